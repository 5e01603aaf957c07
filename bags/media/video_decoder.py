"""A video that is open: from frame numbers to decoded frames.

Packets carry the number of their frame through the decoder, in place of a time. So a frame that comes out
is known for what it is, whatever its times are and in whatever order frames come, and one that does not
come out is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from bags.formats.ffmpeg import import_av
from bags.indexing import Int64s
from bags.media.packets import Packets, open_packets
from bags.media.timeline import Run, Timeline, make_timeline, plan

__all__ = ['Reel', 'open_reel']

LONG = 96
"""Packets of a run from which on all cores share the work, unless told. Each adds a frame of delay, so that
a few are done sooner by one."""
TRIES = 2
"""Key frames to go back for a frame that does not come out: some only begin to restore the picture."""
SKIPS = ('h264', 'hevc', 'mpeg4')
"""Decoders that can leave out a frame that no other one is made of."""


class Reel:
    """An open video. One thread at a time may use it.

    Args:
        file: The file, which it closes in the end.
        packets: The packets of its video.
        timeline: Its frames.
        name: What the file is.
    """

    def __init__(self, file: BinaryIO, packets: Packets, timeline: Timeline, name: str) -> None:
        self.file = file
        self.packets = packets
        self.timeline = timeline
        self.name = name
        self._context: Any = None
        self._size: tuple[int, int] | None = None

    def over(self, file: BinaryIO) -> Reel:
        """Returns another one of the same video, with a decoder of its own."""
        return Reel(file, self.packets.over(file), self.timeline, self.name)

    def close(self) -> None:
        self._context = None
        self.file.close()

    def frame_size(self) -> tuple[int, int]:
        """Returns height and width of the frames: of the first, where the header does not say."""
        if self._size is None:
            context = self._alone()
            self._size = context.height, context.width
            if 0 in self._size:
                ((_, frame),) = self.frames(np.array([0]))
                self._size = frame.height, frame.width
        return self._size

    def _alone(self) -> Any:
        """Returns the decoder of one thread, which is kept."""
        if self._context is None:
            self._context = _new_context(self.packets, 1)
        return self._context

    def frames(self, numbers: Int64s, threads: int | None = None) -> Iterator[tuple[int, Any]]:
        """Decodes frames.

        Args:
            numbers: Which, rising, each once.
            threads: That decode; 0 for as many as there are cores.

        Yields:
            Numbers and frames, not always in their order.

        Raises:
            ValueError: One of those that were not yielded is damaged.
        """
        for run in plan(self.timeline, numbers):
            chosen = threads if threads is not None else int(run.stop - run.start < LONG)
            yield from self._run(run, chosen)

    def _run(self, run: Run, threads: int) -> Iterator[tuple[int, Any]]:
        start, missing, first_error = run.start, dict.fromkeys(run.frames.tolist()), None
        for _ in range(1 + TRIES):
            errors: list[Exception] = []
            for number, frame in self._decode(start, run.stop, missing, threads, errors):
                if number in missing:
                    if frame.is_corrupt:
                        errors.append(ValueError('it is damaged'))
                        break
                    del missing[number]
                    yield number, frame
            if not missing:
                return
            first_error = first_error or (errors[0] if errors else None)
            if start == 0:
                break
            start = self.timeline.before(start)
        number = min(missing)
        detail = (
            str(first_error) if first_error else 'the decoder does not give it; what it is made of is damaged'
        )
        raise ValueError(f'frame {number}: {detail}') from first_error

    def _decode(
        self, start: int, stop: int, wanted: dict[int, None], threads: int, errors: list[Exception]
    ) -> Iterator[tuple[int, Any]]:
        """Decodes packets; stops at the first that is damaged, with the frames before it."""
        av = import_av()
        # Threads do not outlive the call: after a fork there are none, and a decoder would wait for them.
        context = self._alone() if threads == 1 else _new_context(self.packets, threads)
        context.flush_buffers()
        skips = context.name in SKIPS
        places = self.timeline.places[start:stop].tolist()
        try:
            for place, packet in zip(places, self.packets.read(start, stop), strict=False):
                packet.pts, packet.dts = place, None
                if skips:
                    context.skip_frame = 'DEFAULT' if place in wanted else 'NONREF'
                for frame in context.decode(packet):
                    if frame.pts is not None:
                        yield frame.pts, frame
        except (av.FFmpegError, ValueError) as exc:
            errors.append(exc)
        except GeneratorExit:
            # A decoder that is freed while its threads are at work waits for them, and they for the GIL.
            context.flush_buffers()
            raise
        for frame in _drain(context):
            if frame.pts is not None:
                yield frame.pts, frame


def _new_context(packets: Packets, threads: int) -> Any:
    context = packets.context()
    context.thread_count = threads
    context.thread_type = 'SLICE' if threads == 1 else 'AUTO'
    if context.name == 'h264':
        # A stream that does not say by how much its frames are out of order loses some at first else.
        context.options = {'strict': '1'}
    context.open(strict=False)
    return context


def _drain(context: Any) -> list[Any]:
    """Returns the frames that a decoder still has, and makes it ready for other packets."""
    av = import_av()
    try:
        frames: list[Any] = context.decode(None)
    except av.FFmpegError:
        frames = []
    context.flush_buffers()
    return frames


def open_reel(file: BinaryIO) -> Reel:
    """Opens a video, and finds its frames without decoding, where that can be.

    Raises:
        ValueError: None, or no frame in it.
    """
    packets, name = open_packets(file, 'video')
    table = packets.table
    last = int(np.argmax(np.where(table.shown, table.times, np.iinfo(np.int64).min)))
    timeline = make_timeline(
        table.offsets,
        table.sizes,
        table.keys,
        table.times,
        table.shown,
        int(table.durations[last]),
        table.unit,
        table.cut,
    )
    reel = Reel(file, packets, timeline, name)
    if not table.certain:
        reel.timeline = _counted(reel)
    elif timeline.doubtful():
        reel.timeline = _without_undecodable(reel, timeline.doubtful())
    if not len(reel.timeline.packets):
        raise ValueError(table.cut or f'expected at least one frame in the {name}, got none')
    return reel


def _decoded(reel: Reel, stop: int) -> list[int]:
    """Decodes the packets before `stop`; returns the packets whose frames come out, in that order."""
    av = import_av()
    context = _new_context(reel.packets, 1)
    found: list[int | None] = []
    for number, packet in enumerate(reel.packets.read(0, stop)):
        packet.pts, packet.dts = number, None
        try:
            found += [frame.pts for frame in context.decode(packet)]
        except av.FFmpegError:
            continue
    found += [frame.pts for frame in _drain(context)]
    return [number for number in found if number is not None]


def _without_undecodable(reel: Reel, doubtful: int) -> Timeline:
    """Leaves out the first frames if what they are made of is not in the file."""
    table = reel.packets.table
    shown = table.shown.copy()
    shown[:doubtful] = False
    found = _decoded(reel, doubtful)
    shown[found] = table.shown[found]
    timeline = reel.timeline
    duration = timeline.end - int(timeline.ticks[-1])
    return make_timeline(
        table.offsets, table.sizes, table.keys, table.times, shown, duration, table.unit, table.cut
    )


def _counted(reel: Reel) -> Timeline:
    """Finds the frames by decoding, where packets do not say which they hold."""
    table = reel.packets.table
    stop = len(table.sizes)
    found = np.array(_decoded(reel, stop), np.int64)
    found = found[table.shown[found]]
    times = np.full(stop, np.iinfo(np.int64).min, np.int64)
    times[found] = np.arange(len(found))
    shown = np.zeros(stop, bool)
    shown[found] = True
    # Packets without a frame go with the frame before them.
    times = np.maximum.accumulate(np.where(shown, np.arange(stop), -1))
    ranks = np.full(stop, -1, np.int64)
    ranks[found] = np.arange(len(found))
    times = np.where(times >= 0, ranks[times], -1)
    timeline = make_timeline(table.offsets, table.sizes, table.keys, times, shown, 0, table.unit, table.cut)
    # What belongs to a frame may go on until the packet of the next.
    holders = np.append(np.flatnonzero(shown), stop)
    stops = holders[np.searchsorted(holders, timeline.packets, 'right')]
    ticks = table.times[found] if table.timed else np.sort(table.times[found])
    last = int(table.durations[found[-1]]) if len(found) else 0
    return replace(timeline, stops=stops, ticks=ticks, end=int(ticks[-1]) + last if len(found) else 0)
