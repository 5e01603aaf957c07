"""Copies whole videos, clips and ranges of frames to new MP4 files without encoding."""

from __future__ import annotations

import heapq
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, BinaryIO, Self

import numpy as np

from bags.concurrency import cached_attribute
from bags.formats.ffmpeg import import_av, open_container
from bags.formats.signatures import DEMUXERS, identify_file
from bags.formats.write_video import decoding_times
from bags.indexing import Int64s
from bags.media.demux import MAX_SKIPPED_VOP_BYTES
from bags.media.open_audio import open_audio
from bags.media.source import MediaFile
from bags.media.video_decoder import VideoDecoder, open_video
from bags.storage.range_file import BorrowedFile

MP4_CODECS = {'h264', 'hevc', 'vp9', 'av1', 'mpeg4', 'mjpeg'}
"""Codecs that MP4 supports and that have one frame per packet."""

FRAME_TICKS = 512
"""Ticks of a frame in a file of joined clips, as in files of libavformat: 15,360 a second at 30 Hz."""

HEADER_CODECS = {'h264', 'hevc', 'av1'}
"""Codecs whose header in an MP4 is sufficient to write a new header. VP9 also needs the first packets."""


class RemuxedFile(io.BufferedReader):
    """A temporary file from `remux`. The writer that stores it closes it."""

    def __bytes__(self) -> bytes:
        self.seek(0)
        return self.read()


def remux(source: Any) -> BinaryIO:
    """Copies the tracks of a video to an MP4 whose header comes first, with an index of all frames.

    Packets are copied unchanged. Presentation times are copied too; decoding times are replaced by
    presentation times. Tracks other than video and audio are dropped. The copy is opened and its frames are
    counted before it is returned.

    Args:
        source: A path, bytes, or a binary file at its start, which stays open.

    Returns:
        A temporary file at its start, for a field of type `video`. Closing the file deletes it, and
        `bytes(file)` returns its content.

    Raises:
        ValueError: The source is not a video, is damaged, or cannot be stored as MP4 because of its codec or
            of hidden frames.
        MissingDependencyError: av is not installed.

    Examples:
        >>> with bags.remux('film.mp4') as file:
        ...     data = file.read()
        >>> len(bags.Video(data))
        132
    """
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) and not hasattr(
        source, 'seek'
    ):
        raise TypeError(
            f'remux: expected a path, bytes or a file, got {type(source).__name__}; '
            'dataset.file(index, field) opens the file of a datapoint, or of one of its clips with item=…'
        )
    # libavformat needs a path: it opens the output a second time to move the header to the front.
    with MediaFile(source).open() as file, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'remuxed.mp4')
        _copy_streams(file, path)
        if os.name != 'nt':
            return RemuxedFile(io.FileIO(path))  # An unlinked open file stays readable until it is closed.
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
        with open(path, 'rb') as written:
            shutil.copyfileobj(written, copy, 1 << 20)
        copy.seek(0)
        return RemuxedFile(copy)


def _copy_streams(file: BinaryIO, path: str) -> None:
    av, name = import_av(), identify_file(file)
    if name not in DEMUXERS:
        raise ValueError(f'expected a video, got {name}')
    whole = BorrowedFile(file)
    with open_container(BorrowedFile(whole), name) as source:
        streams = [stream for stream in source.streams if stream.type in ('video', 'audio')]
        videos = {
            stream.index: open_video(BorrowedFile(whole), stream.index)  # type: ignore[arg-type]
            for stream in streams
            if stream.type == 'video'
        }
        if not videos:
            raise ValueError('expected a video, got a file without one')
        for video in videos.values():
            if video.timeline.truncation:
                raise ValueError(video.timeline.truncation)
        with av.open(path, 'w', format='mp4', options={'movflags': '+faststart'}) as target:
            copies = {stream.index: _add_copy(target, stream) for stream in streams}
            retimed = {index: video for index, video in videos.items() if not _is_timed(video)}
            demuxed = _shown_packets(source, [stream for stream in streams if stream.index not in retimed])
            packets = heapq.merge(demuxed, *map(_retimed_packets, retimed.values()), key=_seconds)
            last: dict[int, int] = {}
            for index, packet in packets:
                if packet.dts is not None and packet.dts < last.get(index, packet.dts):
                    raise ValueError('cannot be copied to MP4: its times go back, as in joined files')
                last[index] = packet.dts if packet.dts is not None else last.get(index, 0)
                packet.stream = copies[index]
                try:
                    target.mux(packet)
                except av.FFmpegError as exc:
                    raise ValueError(f'cannot be copied to MP4: {exc}') from exc
    for number, index in enumerate(copies):
        with open(path, 'rb') as written:
            if index in videos:
                _check_frames(written, len(videos[index].timeline), number)
            else:
                open_audio(written, number).close()


def _add_copy(target: Any, stream: Any) -> Any:
    """Adds a stream with the codec and header of another stream to a file."""
    try:
        return target.add_stream_from_template(stream, opaque=True)
    except (ValueError, import_av().FFmpegError) as exc:
        codec = getattr(stream.codec_context, 'name', 'unknown')
        raise ValueError(
            f'expected {stream.type} with a codec that MP4 supports, got {codec}: {exc}'
        ) from exc


def _is_timed(video: VideoDecoder) -> bool:
    """Returns whether the packets of a video have distinct presentation times."""
    return video.packets.table.one_frame_each and video.packets.table.timed


def _seconds(turn: tuple[int, Any]) -> float:
    packet = turn[1]
    return float((packet.dts or 0) * packet.time_base)


def _shown_packets(source: Any, streams: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yields packets with their streams, up to the last presented packet of each stream."""
    hidden: dict[int, list[Any]] = {stream.index: [] for stream in streams}
    for packet in source.demux(streams) if streams else ():
        if not packet.size:
            continue
        index = packet.stream.index
        hidden[index].append(packet)
        if not packet.is_discard:
            yield from ((index, queued) for queued in hidden[index])
            hidden[index] = []


def _retimed_packets(video: VideoDecoder) -> Iterator[tuple[int, Any]]:
    """Yields the packets of a video with their stream, with times that follow the order of the decoder.

    Raises:
        ValueError: Some frames are hidden.
    """
    table, frames = video.packets.table, video.timeline.frame_of_packet
    if (table.sizes[frames < 0] > MAX_SKIPPED_VOP_BYTES).any():
        raise ValueError('cannot be copied to MP4: some of its frames are not shown')
    times = video.timeline.ticks[frames[frames >= 0]]
    ends = np.append(video.timeline.ticks[1:], max(video.timeline.end, int(times.max()) + 1))
    decoded = iter(decoding_times(times, video.timeline.ticks, int(ends[-1])).tolist())
    for frame, packet in zip(frames.tolist(), video.packets.read(0, len(frames)), strict=True):
        if frame >= 0:
            packet.pts, packet.dts = int(video.timeline.ticks[frame]), next(decoded)
            packet.duration = int(ends[frame]) - packet.pts
            packet.time_base = Fraction(*table.time_base)
            yield video.packets.stream, packet


def _check_frames(file: BinaryIO, count: int, track: int | None = None) -> None:
    """Raises ValueError if a written video cannot be opened and decoded, or has another number of frames."""
    try:
        copy = open_video(file, track)
        copied_count = len(copy.timeline)
        next(copy.frames(np.array([0])))
    except (ValueError, import_av().FFmpegError) as exc:
        raise ValueError(f'cannot be copied to MP4: the copy cannot be decoded: {exc}') from exc
    if copied_count != count:
        raise ValueError(f'cannot be copied to MP4: {count} frames would become {copied_count}')


def copy_obstacle(decoder: VideoDecoder) -> tuple[str, str | None]:
    """Returns the codec of a video and the reason why it cannot be copied to MP4, or None if it can."""
    name = decoder.packets.new_context().codec
    codec = {'libdav1d': 'av1'}.get(name.name, name.canonical_name)
    timeline = decoder.timeline
    if codec not in MP4_CODECS:
        return codec, f'MP4 does not support {codec}'
    frames = timeline.frame_of_packet
    if timeline.truncation and len(timeline.keys):
        frames = frames[: timeline.keys[-1]]  # No clip contains the packets from the last key frame on.
    if (frames < 0).any():
        return codec, 'some of its frames are not shown'
    if not len(timeline.keys) or timeline.keys[0] or timeline.frame_of_packet[0]:
        return codec, 'its first frames refer to frames that are missing'
    return codec, None


def copy_frames(decoder: VideoDecoder, start: int, stop: int) -> bytes:
    """Copies frames to a new MP4, in which they begin at 0; see `FrameCopier.copy`."""
    with FrameCopier(decoder) as copier:
        return copier.copy(start, stop)


class FrameCopier:
    """Copies frames of a video to new MP4 files.

    Attributes:
        codec: The name of the codec.
    """

    def __init__(self, decoder: VideoDecoder) -> None:
        self._decoder = decoder
        self.codec, self._obstacle = copy_obstacle(decoder)

    @cached_attribute
    def _template(self) -> Any:
        """A container and the stream of the video in it, the template of new streams."""
        packets = self._decoder.packets
        header = packets.header if self.codec in HEADER_CODECS else None
        self._decoder.file.seek(0)
        file = BorrowedFile(self._decoder.file) if header is None else io.BytesIO(header)
        container = open_container(file, packets.name)
        return container, container.streams[packets.stream if header is None else 0]

    @property
    def template(self) -> Any:
        """The stream of the video in a container, the template of new streams; until the copier is closed."""
        return self._template[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if opened := vars(self).pop('_template', None):
            opened[0].close()

    def copy(self, start: int, stop: int, length: int | None = None) -> bytes:
        """Copies the packets of frames to an MP4, in which the frames begin at 0.

        If the first frame is not a key frame, the packets from the key frame before it are copied too, and an
        edit list hides their frames. The MP4 is opened and its first frame is decoded before it is returned.

        Args:
            start, stop: The range of frames.
            length: Ticks from the first frame to the end of the last. By default, as in the video.

        Raises:
            ValueError: The packets cannot be copied, or a frame before `stop` refers to a later frame.
        """
        timeline, obstacle = self._decoder.timeline, self._obstacle
        first = int(timeline.starts[start:stop].min())
        last = int(timeline.packet_of_frame[start:stop].max()) + 1
        frames = timeline.frame_of_packet[first:last]
        if obstacle or int(frames.max()) >= stop:
            obstacle = obstacle or f'some of them refer to a frame after frame {stop - 1}'
            raise ValueError(f'frames {start} to {stop} cannot be copied: {obstacle}')
        packets = list(self._decoder.packets.read(first, last))
        for packet in packets:
            packet.time_base = Fraction(*timeline.time_base)
        begin = int(timeline.ticks[start])
        if length is None:
            length = (int(timeline.ticks[stop]) if stop < len(timeline) else timeline.end) - begin
        data = write_packets(packets, timeline.ticks[frames], begin, length, self.template)
        _check_frames(io.BytesIO(data), stop - start)
        return data


def join_clips(clips: Sequence[VideoDecoder], fps: Fraction) -> bytes:
    """Copies the packets of consecutive videos to one MP4, whose frame k is presented at k / fps.

    The MP4 is opened and its first frame is decoded before it is returned.

    Raises:
        ValueError: A video cannot be copied, or the videos differ in their codec, size or header.
    """
    kinds = []
    for number, clip in enumerate(clips):
        codec, obstacle = copy_obstacle(clip)
        if obstacle := obstacle or clip.timeline.truncation:
            raise ValueError(f'clip {number} cannot be copied: {obstacle}')
        context = clip.packets.new_context()
        kinds.append((codec, context.width, context.height, bytes(context.extradata or b'')))
        if kinds[0] != kinds[-1]:
            raise ValueError(f'clip {number} cannot be joined: its codec, size or header differs from clip 0')
    packets, frames = [], []
    first = 0
    for clip in clips:
        packets += list(clip.packets.read(0, len(clip.timeline.frame_of_packet)))
        frames.append(clip.timeline.frame_of_packet + first)
        first += len(clip.timeline)
    for packet in packets:
        packet.time_base = 1 / (fps * FRAME_TICKS)
    times = np.concatenate(frames) * FRAME_TICKS
    with FrameCopier(clips[0]) as copier:
        data = write_packets(packets, times, 0, first * FRAME_TICKS, copier.template, 1 / (fps * FRAME_TICKS))
    _check_frames(io.BytesIO(data), first)
    return data


def write_packets(
    packets: list[Any],
    times: Int64s,
    begin: int,
    length: int,
    stream: Any,
    time_base: Fraction | None = None,
    format: str = 'mp4',
) -> bytes:
    """Writes packets to an MP4, or a file of another `format` of libavformat.

    Args:
        packets: In decoding order.
        times: Presentation times of the packets, in ticks.
        begin: The tick of the first presented frame.
        length: Ticks from `begin` to the end of the last frame.
        stream: The stream of the packets.
        time_base: Seconds per tick in the MP4. Default: as in the stream.
    """
    shown = np.sort(times)
    until = np.append(shown[1:], max(begin + length, int(shown[-1]) + 1))
    decoded = decoding_times(times, shown, int(until[-1]))
    durations = dict(zip(shown.tolist(), (until - shown).tolist(), strict=True))
    file = io.BytesIO()
    with import_av().open(file, 'w', format=format) as container:
        copy = container.add_stream_from_template(stream, opaque=True)
        if time_base is not None:
            copy.time_base = time_base
        for packet, time, decoding_time in zip(packets, times.tolist(), decoded.tolist(), strict=True):
            packet.duration = durations[time]
            packet.dts = decoding_time - begin
            packet.pts = time - begin
            packet.stream = copy
            container.mux(packet)
    return file.getvalue()
