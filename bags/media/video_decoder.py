"""Decodes frames of a video by their numbers.

Packets carry the number of their frame through the decoder, in place of a timestamp. The number identifies
every returned frame, independent of its time and order, and shows which frames are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np

from bags.concurrency import cached_attribute
from bags.formats.ffmpeg import import_av
from bags.formats.pixels import FrameFormat, PixelConverter, PixelOptions, Pixels, frame_format
from bags.indexing import Int64s
from bags.media.demux import open_packets
from bags.media.packets import Packets
from bags.media.timeline import PacketTable, Timeline, make_timeline, monotonic, plan
from bags.storage.range_file import positioned

MIN_THREADED_PACKETS = 96
"""Runs of at least this many packets are decoded on all cores by default. Each thread delays the output by
one frame, so shorter runs are faster on one thread."""
MAX_EARLIER_KEYS = 2
"""Key frames to go back for a frame that is not decoded: some key frames refresh the picture gradually."""
FIRST_TO_DROP_HEVC = (62,)
"""The version of libavcodec, in FFmpeg 8, that drops HEVC frames before the first key frame, as for other
codecs. Earlier versions return these frames, with gray in place of the frames that they refer to."""
CAN_SKIP = ('h264', 'hevc', 'mpeg4')
"""Decoders that can skip frames that are not referenced by other frames."""


@dataclass(eq=False)
class VideoDecoder:
    """An open video. Not thread-safe."""

    file: BinaryIO
    packets: Packets
    timeline: Timeline
    _convert: PixelConverter | None = field(default=None, init=False)

    def over(self, file: BinaryIO) -> VideoDecoder:
        """Returns a decoder of the same video that reads another open file."""
        return VideoDecoder(file, replace(self.packets, file=positioned(file)), self.timeline)

    def whole(self) -> tuple[VideoDecoder, int]:
        """Returns the decoder of the whole file, and the number of frame 0 in it."""
        return self, 0

    def without_file(self) -> VideoDecoder:
        """Returns a decoder of the same video without a file, for use with `over`."""
        none: Any = None
        return VideoDecoder(none, replace(self.packets, file=none), self.timeline)

    def close(self) -> None:
        """Closes the file and frees the decoder."""
        vars(self).pop('context', None)
        self.file.close()

    @cached_attribute
    def context(self) -> Any:
        """A single-threaded codec context."""
        return _new_context(self.packets, 1)

    @cached_attribute
    def frame_format(self) -> FrameFormat:
        """The format of the frames. The first access decodes frame 0: not for use while decoding frames."""
        ((_, frame),) = self.frames(np.array([0]))
        return frame_format(frame)

    def pixels(self, number: int, frame: Any, options: PixelOptions) -> Pixels:
        """Returns the pixels of a frame, in most cases without a copy.

        Raises:
            ValueError: The format of the frame differs from the first decoded frame.
        """
        convert = self._convert
        if convert is None or convert.options != options:
            if 'frame_format' not in vars(self):
                self.frame_format = frame_format(frame)
            convert = self._convert = PixelConverter(self.frame_format, options)
        try:
            return convert(frame)
        except ValueError as exc:
            raise ValueError(f'frame {number}: {exc}') from None

    def in_order(
        self, start: int, convert: Callable[[int, Any], Pixels], threads: int | None = None
    ) -> Iterator[Pixels]:
        """Yields `convert(number, frame)` for each frame from `start` on, in order."""
        early: dict[int, Pixels] = {}
        for number, frame in self.frames(np.arange(start, len(self.timeline)), threads):
            early[number] = convert(number, frame)
            while start in early:
                yield early.pop(start)
                start += 1

    def frames(self, numbers: Int64s, threads: int | None = None) -> Iterator[tuple[int, Any]]:
        """Decodes frames.

        Args:
            numbers: Increasing frame numbers.
            threads: Decoder threads; 0 for one per core. By default, chosen by the number of packets.

        Yields:
            Numbers and frames, not always in order.

        Raises:
            ValueError: A frame is damaged.
        """
        for run in plan(self.timeline, numbers):
            count = threads if threads is not None else int(run.stop - run.start < MIN_THREADED_PACKETS)
            missing, start = dict.fromkeys(run.frames.tolist()), run.start
            errors: list[Exception] = []
            for _ in range(1 + MAX_EARLIER_KEYS):
                for number, frame in self._decode(start, run.stop, missing, count, errors):
                    if number in missing:
                        if frame.is_corrupt:
                            errors.append(ValueError('the frame is damaged'))
                            break
                        del missing[number]
                        yield number, frame
                if not missing or start == 0:
                    break
                start = self.timeline.key_before(start)
            if missing:
                first = errors[0] if errors else None
                detail = first or 'the decoder does not return it: a frame that it refers to is damaged'
                raise ValueError(f'frame {min(missing)}: {detail}') from first

    def _decode(
        self, start: int, stop: int, wanted: dict[int, None], threads: int, errors: list[Exception]
    ) -> Iterator[tuple[int, Any]]:
        """Decodes packets up to the first damaged packet, and yields all frames before it."""
        # A context with threads is used only once: after a fork, its threads are missing and the decoder
        # hangs.
        context = self.context if threads == 1 else _new_context(self.packets, threads)
        context.flush_buffers()
        can_skip = context.name in CAN_SKIP
        frames = self.timeline.frame_of_packet[start:stop].tolist()
        try:
            for number, packet in zip(frames, self.packets.read(start, stop), strict=False):
                if not packet.size:
                    continue  # An empty packet flushes the decoder.
                if context.name == 'mpeg4' and 0 <= number < frames[0]:
                    continue  # Its references are missing: the decoder would derive wrong times from it.
                packet.pts, packet.dts = number, None
                if can_skip:
                    context.skip_frame = 'DEFAULT' if number in wanted else 'NONREF'
                for frame in context.decode(packet):
                    if frame.pts is not None:
                        yield frame.pts, frame
        except (import_av().FFmpegError, ValueError) as exc:
            errors.append(exc)
        except GeneratorExit:
            # Freeing a decoder waits for its running threads, which wait for the GIL: a deadlock.
            context.flush_buffers()
            raise
        for frame in _drain(context):
            if frame.pts is not None:
                yield frame.pts, frame


def _new_context(packets: Packets, threads: int) -> Any:
    context = packets.new_context()
    context.thread_count = threads
    context.thread_type = 'SLICE' if threads == 1 else 'AUTO'
    if context.name == 'h264':
        # Without this option, a stream that does not declare its reordering depth loses some first frames.
        context.options = {'strict': '1'}
    context.open(strict=False)
    return context


def _drain(context: Any) -> list[Any]:
    """Returns the frames that remain in a decoder, and resets the decoder."""
    try:
        frames: list[Any] = context.decode(None)
    except import_av().FFmpegError:
        frames = []
    context.flush_buffers()
    return frames


def open_video(file: BinaryIO, track: int | None = None) -> VideoDecoder:
    """Opens a video and numbers its frames, in most cases without decoding; `track` as in `open_packets`.

    Raises:
        ValueError: The file is not a video, or has no frames.
    """
    packets = open_packets(file, 'video', track)
    table = packets.table
    decoder = VideoDecoder(file, packets, make_timeline(table))
    if not table.one_frame_each or (np.diff(decoder.timeline.ticks) == 0).any():
        # Frames without usable or distinct times are numbered in the order of the decoder.
        decoder.timeline = _timeline_by_decoding(table, _decoded(decoder, len(table.sizes)))
    elif doubtful := decoder.timeline.count_doubtful():
        # Drop first frames that refer to frames missing from the file.
        decoded = _decoded(decoder, doubtful)
        shown = table.shown.copy()
        shown[:doubtful] = False
        shown[decoded] = table.shown[decoded]
        decoder.timeline = make_timeline(replace(table, shown=shown))
    if not len(decoder.timeline):
        raise ValueError(table.truncation or f'expected at least one frame in the {packets.name}, got none')
    return decoder


def _decoded(decoder: VideoDecoder, stop: int) -> list[int]:
    """Decodes the packets before `stop`; returns the packets of the frames, in the order of the decoder."""
    context = _new_context(decoder.packets, 1)
    start = 0
    if context.name == 'hevc' and import_av().library_versions['libavcodec'] < FIRST_TO_DROP_HEVC:
        start = int(np.argmax(decoder.packets.table.keys[:stop])) if stop else 0
    numbers: list[int | None] = []
    for number, packet in enumerate(decoder.packets.read(start, stop), start):
        packet.pts, packet.dts = number, None
        try:
            numbers += [frame.pts for frame in context.decode(packet)]
        except import_av().FFmpegError:
            continue
    numbers += [frame.pts for frame in _drain(context)]
    return [number for number in numbers if number is not None]


def _timeline_by_decoding(table: PacketTable, decoded: list[int]) -> Timeline:
    """Numbers the frames of packets without usable times; `decoded` is the result of `_decoded`."""
    stop = len(table.sizes)
    order = np.array(decoded, np.int64)
    order = order[table.shown[order]]
    shown = np.zeros(stop, bool)
    shown[order] = True
    ranks = np.full(stop, -1, np.int64)
    ranks[order] = np.arange(len(order))
    # Packets without a frame are ordered with the previous frame.
    before = np.maximum.accumulate(np.where(shown, np.arange(stop), -1))
    times = np.where(before >= 0, ranks[before], -1)
    timeline = make_timeline(replace(table, times=times, shown=shown), 0)
    # A frame may continue in the packets up to the packet of the next frame.
    holders = np.append(np.flatnonzero(shown), stop)
    stops = holders[np.searchsorted(holders, timeline.packet_of_frame, 'right')]
    ticks = monotonic(table.times[order] if table.timed else np.sort(table.times[order]))
    last = int(table.durations[order[-1]]) if len(order) else 0
    return replace(timeline, stops=stops, ticks=ticks, end=int(ticks[-1]) + last if len(order) else 0)
