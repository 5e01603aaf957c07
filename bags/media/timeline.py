"""Which packet of a video holds which frame, and where decoding has to begin for it. No I/O.

Frames are numbered in the order in which they are shown, packets in that in which they are decoded. With an
open group of pictures the two cross at a key frame:

    packet     0   1   2   3   4   5   6
               I   P   b   b   I   b   b      b: between the two beside it
    frame      0   3   1   2   6   4   5

Packet 4 is a key frame, but 5 and 6, which are shown before it, are made of packet 1 as well: who wants
frame 4 has to begin with packet 0, who wants frame 6 with packet 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['Run', 'Timeline', 'make_timeline', 'plan']


class Run(NamedTuple):
    """Packets to decode one after another, from a key frame on, and the frames to keep of them."""

    start: int
    stop: int
    frames: Int64s


@dataclass(frozen=True)
class Timeline:
    """The frames of a video.

    Attributes:
        offsets, sizes: (packets,): where each packet is in the file.
        keys: Which packets decoding can begin with, rising.
        places: (packets,): the frame that a packet holds; -1 if none that is shown.
        packets: (frames,): the packet that holds a frame.
        starts, stops: (frames,): the packets to decode for it.
        ticks: (frames,): when each is shown.
        end: When the last one ends.
        unit: Seconds of a tick: numerator and denominator.
        cut: What is missing at the end; None if nothing is.
    """

    offsets: Int64s
    sizes: Int64s
    keys: Int64s
    places: Int64s
    packets: Int64s
    starts: Int64s
    stops: Int64s
    ticks: Int64s
    end: int
    unit: tuple[int, int]
    cut: str | None = None

    def seconds(self, ticks: Int64s) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = ticks * self.unit[0] / self.unit[1]
        return found

    def before(self, packet: int) -> int:
        """Returns the last key frame before a packet; the first packet if there is none."""
        number = int(np.searchsorted(self.keys, packet, 'left')) - 1
        return int(self.keys[number]) if number >= 0 else 0

    def doubtful(self) -> int:
        """Returns how many packets from the first on may hold frames that cannot be decoded, as what they are
        made of was cut away; 0 if the file begins with a key frame and none is shown before it.
        """
        first = int(self.keys[0]) if len(self.keys) else len(self.places)
        second = int(self.keys[1]) if len(self.keys) > 1 else len(self.places)
        if first < len(self.places) and self.places[first] >= 0:
            shown = self.places[first + 1 : second]
            late = np.flatnonzero((shown >= 0) & (shown < self.places[first]))
            if len(late):
                return first + 2 + int(late[-1])
        return first


def make_timeline(
    offsets: Int64s,
    sizes: Int64s,
    keys: npt.NDArray[np.bool_],
    times: Int64s,
    shown: npt.NDArray[np.bool_],
    duration: int,
    unit: tuple[int, int],
    cut: str | None = None,
) -> Timeline:
    """Numbers the frames.

    Args:
        offsets, sizes, keys, times, shown: Of each packet: where it is, whether it is a key frame, when its
            frame is shown, and whether it is.
        duration: Of the frame that is shown last.
        unit: Seconds of a tick.
        cut: What is missing at the end.
    """
    order = np.argsort(times, kind='stable')
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    packets = order[shown[order]]
    places = np.full(len(order), -1, np.int64)
    places[packets] = np.arange(len(packets))
    key_packets = np.flatnonzero(keys)
    ticks = times[packets]
    return Timeline(
        offsets=offsets,
        sizes=sizes,
        keys=key_packets,
        places=places,
        packets=packets,
        starts=_starts(packets, key_packets, ranks),
        stops=packets + 1,
        ticks=ticks,
        end=int(ticks[-1]) + duration if len(ticks) else 0,
        unit=unit,
        cut=cut,
    )


def _starts(packets: Int64s, keys: Int64s, ranks: Int64s) -> Int64s:
    if not len(keys):
        return np.zeros(len(packets), np.int64)
    number = np.searchsorted(keys, packets, 'right') - 1
    leading = (number >= 0) & (ranks[packets] < ranks[keys[number]])
    number = number - leading
    return np.where(number >= 0, keys[number], 0)


def plan(timeline: Timeline, frames: Int64s) -> Iterator[Run]:
    """Yields the runs that hold frames, each packet in one of them.

    Args:
        timeline: The video's.
        frames: Numbers of frames, rising, each once.
    """
    starts, stops = timeline.starts[frames], timeline.stops[frames]
    order = np.argsort(starts, kind='stable')
    starts, frames = starts[order], frames[order]
    ends = np.maximum.accumulate(stops[order])
    cuts = np.flatnonzero(starts[1:] >= ends[:-1]) + 1
    for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(frames)], strict=True):
        if low < high:
            yield Run(int(starts[low]), int(ends[high - 1]), frames[low:high])
