"""Maps the samples of a recording to the samples that its decoder returns. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bags.indexing import Int64s, offsets_of
from bags.media.timeline import PacketTable


class AudioLayout(NamedTuple):
    """The presented samples among the decoded samples of `n` packets."""

    offsets: Int64s
    """(n + 2,): the first decoded sample of each packet, the first sample that the decoder returns at the end
    of the file, and the number of decoded samples."""
    starts: Int64s
    """(m,): the first decoded sample of each presented range."""
    stops: Int64s
    """(m,): the end of each presented range."""
    firsts: Int64s
    """(m + 1,): the index of the first sample of each range, and the total number of samples."""

    def decoded_ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the ranges of decoded samples that are presented as samples `start` to `stop`."""
        first, last = np.searchsorted(self.firsts, (start, stop - 1), 'right').tolist()
        lows, highs = self.starts[first - 1 : last].tolist(), self.stops[first - 1 : last].tolist()
        lows[0] += start - int(self.firsts[first - 1])
        highs[-1] += stop - int(self.firsts[last])
        return list(zip(lows, highs, strict=True))


def find_layout(
    table: PacketTable, counts: Int64s, delay: Callable[[int], int], drops_first: bool
) -> AudioLayout:
    """Returns the layout without priming and padding, as libavcodec drops them.

    Priming may extend over several packets.

    Args:
        table: The `n` packets.
        counts: (n + 1,): the number of samples of each packet, and of those at the end of the file.
        delay: Function that returns how many samples the decoder holds back after a packet.
        drops_first: Whether the first packet is dropped.
    """
    offsets = offsets_of(counts)
    last, end = len(counts) - 1, int(offsets[-1])

    def bound(number: int) -> int:
        """Returns the first decoded sample that the decoder returns after `number` packets."""
        return int(offsets[number]) - (delay(number - 1) if number else 0)

    shown = np.concatenate([[True], table.shown, [True]])
    hidden = np.flatnonzero(shown[:-1] != shown[1:]).tolist()
    dropped = [
        (bound(start), end if stop == last else bound(stop))
        for start, stop in zip(hidden[::2], hidden[1::2], strict=True)
    ]
    skips = table.skips if table.skips is not None else np.zeros((last, 2), np.int64)
    for number in np.flatnonzero(skips[:, 0] | skips[:, 1]).tolist():
        before, after = skips[number].tolist()
        ends = [bound(number), bound(number + 1)]
        if number == last - 1 and ends[-1] < end:
            ends.append(end)  # libavcodec applies the numbers of the last packet again.
        for start, stop in itertools.pairwise(ends):
            if before:
                dropped.append((start, start + before))
            if 0 < after <= stop - start:  # A larger number is ignored.
                dropped.append((stop - after, stop))
    if drops_first:
        # Packet 0 of Vorbis has no earlier packet to overlap with. Only WebM signals this.
        dropped.append((0, int(offsets[1])))
    if table.truncation:
        dropped.append((bound(last), end))  # These samples depend on missing packets.
    presented, position = [], 0
    for start, stop in [*sorted(dropped), (end, end)]:
        if start > position:
            presented.append((position, min(start, end)))
        position = max(position, stop)
    starts, stops = np.array(presented, np.int64).reshape(-1, 2).T
    return AudioLayout(offsets, starts, stops, offsets_of(stops - starts))
