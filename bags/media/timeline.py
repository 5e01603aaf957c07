"""Packet tables of streams, and the timeline that maps frames of a video to packets. No I/O.

Frames are numbered in presentation order, packets in decoding order. In an open group of pictures, the two
orders cross at a key frame:

    packet     0   1   2   3   4   5   6
               I   P   b   b   I   b   b      b: predicted from the frames on both sides
    frame      0   3   1   2   6   4   5

Packet 4 is a key frame, but packets 5 and 6, which are shown before it, refer to packet 1 as well: frame 4 is
decoded from packet 0 on, frame 6 from packet 4 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PacketTable:
    """The `n` packets of a stream, in decoding order."""

    offsets: Int64s
    """(n,): start of each packet in the file, in bytes."""
    sizes: Int64s
    """(n,): bytes of each packet."""
    times: Int64s
    """(n,): presentation times, in ticks."""
    durations: Int64s
    """(n,): durations, in ticks."""
    keys: Bools
    """(n,): whether each packet is a key frame, where decoding can start."""
    shown: Bools
    """(n,): whether each packet is presented; others are only needed to decode."""
    time_base: tuple[int, int]
    """Seconds per tick: numerator and denominator."""
    one_frame_each: bool = True
    """Whether every presented packet is known to hold exactly one frame."""
    timed: bool = True
    """Whether `times` are presentation times. Otherwise they are decoding times, and frames are numbered in
    the order in which the decoder returns them."""
    truncation: str | None = None
    """What is missing at the end of the file; None if nothing is."""
    skips: Int64s | None = None
    """(n, 2): audio samples to drop at the start and at the end of each packet; None to drop nothing."""


class Run(NamedTuple):
    """Packets to decode in order, from a key frame on, and the frames to keep."""

    start: int
    stop: int
    frames: Int64s


@dataclass(frozen=True)
class Timeline:
    """The frames of a video: their packets and presentation times."""

    keys: Int64s
    """The packets that are key frames, in order."""
    frame_of_packet: Int64s
    """(packets,): the frame of each packet; -1 if it is not presented."""
    packet_of_frame: Int64s
    """(frames,): the packet of each frame."""
    starts: Int64s
    """(frames,): the first packet to decode for each frame."""
    stops: Int64s
    """(frames,): the end of the packets to decode for each frame."""
    ticks: Int64s
    """(frames,): presentation times."""
    end: int
    """The tick at which the last frame ends."""
    time_base: tuple[int, int]
    """Seconds per tick: numerator and denominator."""
    truncation: str | None = None
    """What is missing at the end of the file; None if nothing is."""

    def __len__(self) -> int:
        return len(self.packet_of_frame)

    def part(self, first: int, stop: int) -> Timeline:
        """Returns the timeline of a range of frames; the first frame starts at 0.

        Raises:
            ValueError: The video has fewer frames.
        """
        count = len(self)
        if not first < stop <= count:
            missing = self.truncation or f'the video has {count}'
            raise ValueError(f'expected frames {first} to {stop}, but {missing}')
        frames = self.frame_of_packet
        begin = int(self.ticks[first])
        return replace(
            self,
            frame_of_packet=np.where((frames >= first) & (frames < stop), frames - first, -1),
            packet_of_frame=self.packet_of_frame[first:stop],
            starts=self.starts[first:stop],
            stops=self.stops[first:stop],
            ticks=self.ticks[first:stop] - begin,
            end=(int(self.ticks[stop]) if stop < count else self.end) - begin,
            truncation=None,
        )

    def seconds(self, ticks: Int64s) -> npt.NDArray[np.float64]:
        """Converts ticks to seconds."""
        seconds: npt.NDArray[np.float64] = ticks * self.time_base[0] / self.time_base[1]
        return seconds

    def key_before(self, packet: int) -> int:
        """Returns the packet of the last key frame before a packet, or packet 0 without a key frame."""
        number = int(np.searchsorted(self.keys, packet, 'left')) - 1
        return int(self.keys[number]) if number >= 0 else 0

    def count_doubtful(self) -> int:
        """Returns the number of first packets that may not be decodable because the file was cut there.

        0 if the file begins with a key frame and no frame is presented before this key frame.
        """
        first = int(self.keys[0]) if len(self.keys) else len(self.frame_of_packet)
        second = int(self.keys[1]) if len(self.keys) > 1 else len(self.frame_of_packet)
        if first < len(self.frame_of_packet) and self.frame_of_packet[first] >= 0:
            shown = self.frame_of_packet[first + 1 : second]
            leading = np.flatnonzero((shown >= 0) & (shown < self.frame_of_packet[first]))
            if len(leading):
                return first + 2 + int(leading[-1])
        return first


def make_timeline(table: PacketTable, duration: int | None = None) -> Timeline:
    """Numbers the frames of a video. `duration` replaces the ticks of the last frame in the table."""
    times, shown = table.times, table.shown
    order = np.argsort(times, kind='stable')
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    packet_of_frame = order[shown[order]]
    frame_of_packet = np.full(len(order), -1, np.int64)
    frame_of_packet[packet_of_frame] = np.arange(len(packet_of_frame))
    keys = np.flatnonzero(table.keys)
    ticks = times[packet_of_frame]
    if duration is None and len(packet_of_frame):
        last = int(np.argmax(np.where(shown, times, np.iinfo(np.int64).min)))
        duration = int(table.durations[last])
    return Timeline(
        keys=keys,
        frame_of_packet=frame_of_packet,
        packet_of_frame=packet_of_frame,
        starts=_starts(packet_of_frame, keys, ranks),
        stops=packet_of_frame + 1,
        ticks=ticks,
        end=int(ticks[-1]) + (duration or 0) if len(ticks) else 0,
        time_base=table.time_base,
        truncation=table.truncation,
    )


def _starts(packets: Int64s, keys: Int64s, ranks: Int64s) -> Int64s:
    """Returns for each packet the last key frame before it in both orders, where decoding starts."""
    if not len(keys):
        return np.zeros(len(packets), np.int64)
    number = np.searchsorted(keys, packets, 'right') - 1
    leading = (number >= 0) & (ranks[packets] < ranks[keys[number]])
    number = number - leading
    return np.where(number >= 0, keys[number], 0)


def in_order_packets(times: Int64s) -> Int64s:
    """Returns the packets that, like both neighbors, are presented after all earlier packets.

    A video with B-frames has such packets only if its times are decoding times: each B-frame is presented
    before an earlier packet.
    """
    latest = np.maximum.accumulate(times)
    is_last = np.concatenate([[True], times[1:] > latest[:-1]])[: len(times)]
    return np.flatnonzero(is_last[:-2] & is_last[1:-1] & is_last[2:]) + 1


def are_decoding_times(times: Int64s, b_frames: Bools) -> bool:
    """Returns whether the times of packets are decoding times.

    With decoding times, a B-frame is presented after all earlier packets, although it must precede one of
    them.
    """
    latest = np.maximum.accumulate(times)
    return bool((b_frames[1:] & (times[1:] > latest[:-1])).any())


def monotonic(ticks: Int64s) -> Int64s:
    """Returns increasing times: a time that does not increase becomes one tick after the previous time."""
    numbers = np.arange(len(ticks))
    increasing: Int64s = np.maximum.accumulate(ticks - numbers) + numbers
    return increasing


def plan(timeline: Timeline, frames: Int64s) -> Iterator[Run]:
    """Yields the runs that decode frames, given by increasing numbers. Runs do not overlap."""
    starts, stops = timeline.starts[frames], timeline.stops[frames]
    order = np.argsort(starts, kind='stable')
    starts, frames = starts[order], frames[order]
    ends = np.maximum.accumulate(stops[order])
    cuts = np.flatnonzero(starts[1:] >= ends[:-1]) + 1
    for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(frames)], strict=True):
        if low < high:
            yield Run(int(starts[low]), int(ends[high - 1]), frames[low:high])
