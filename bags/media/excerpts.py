"""`Excerpt`: a file in memory with only the groups of pictures that some frames of a video need, not encoded.

    source       I . . . . . I . . . . . I . . . . . I . . .       I: a key frame
    wanted                       1 2 3 4 5
    the excerpt              I . . . . . I . . . . .               up to the last packet that they need
    its frames                   0 1 2 3 4                         an edit list hides those before

Packets are copied unchanged, so that a decoder of another library, e.g. on a GPU, decodes the same pictures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.indexing import Int64s
from bags.media.b_frames import REORDERED_CODECS, is_reference, nal_length_size, recovery_frames
from bags.media.demux import MAX_SKIPPED_VOP_BYTES
from bags.media.remux import MP4_CODECS, FrameCopier, copy_obstacle, write_packets
from bags.media.segments import segment_of
from bags.media.source import LazyDecoder
from bags.media.timeline import Run, monotonic, plan
from bags.media.video_decoder import MAX_EARLIER_KEYS, VideoDecoder
from bags.storage.range_file import RangeFile

MAX_GAP_PACKETS = 16
"""Maximum number of packets between two runs that become one excerpt. The last packets of a group may be of
frames before the last one."""
MIN_OPEN_PACKETS = 20
"""Minimum packets of an excerpt of H.264 that begins with an open group of pictures. FFmpeg 5.1, when it
returns its last frames, omits those that it decoded before it returned the key frame."""
FORMATS = {'flv1': 'flv', 'wmv1': 'asf', 'wmv2': 'asf', 'wmv3': 'asf'}
"""The format of libavformat for codecs that neither MP4 nor Matroska has."""
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Some frames of a video, as a file in memory with the groups of pictures that they need.

    Examples:
        >>> excerpt = bags.Video('film.mp4').excerpt(60, 63)
        >>> excerpt.frames, excerpt.times
        (array([0, 1, 2]), array([2.4 , 2.44, 2.48]))
        >>> bags.Video(excerpt.file)[excerpt.frames].shape
        (3, 360, 640, 3)
    """

    file: bytes
    """An MP4 with one track, without sound; Matroska, FLV or ASF for codecs that MP4 does not support."""
    frames: Int64s
    """int64, shape (n,): the numbers of the wanted frames in the file, in the order of the request."""
    times: Seconds
    """float64, shape (n,): seconds at which the wanted frames are shown in the video."""
    file_times: Seconds
    """float64, shape (n,): seconds at which the wanted frames are shown in the file."""
    name: str
    """The video in error messages."""

    def __len__(self) -> int:
        """Returns the number of wanted frames."""
        return len(self.frames)

    def __repr__(self) -> str:
        return f'Excerpt({self.name!r}, {len(self)} frames, {len(self.file):,} bytes)'


@dataclass(frozen=True, eq=False)
class Excerpts(Sequence[Excerpt]):
    """The excerpts of a batch, in the order of their files: the result of `Dataset.excerpts`.

    Examples:
        >>> excerpts = bags.open('videos').excerpts([0, 0], 'video', [[0.0, 0.4], [0.2, 5.0]])
        >>> excerpts.shape, [excerpt.times.tolist() for excerpt in excerpts]
        ((2, 2), [[0.0, 0.4, 0.2], [5.0]])
        >>> [positions.tolist() for positions in excerpts.positions]
        [[0, 1, 2], [3]]
    """

    excerpts: tuple[Excerpt, ...]
    positions: tuple[Int64s, ...]
    """For each excerpt, int64, shape (n,): positions of its wanted frames among the requested times,
    which are counted row by row."""
    shape: tuple[int, ...]
    """The shape of the requested times."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Excerpt: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Excerpt, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.excerpts[index]

    def __len__(self) -> int:
        """Returns the number of excerpts."""
        return len(self.excerpts)

    def __repr__(self) -> str:
        size = sum(len(excerpt.file) for excerpt in self.excerpts)
        return f'Excerpts({len(self)} files, times of shape {self.shape}, {size:,} bytes)'


class FileFrames(NamedTuple):
    """Requested frames of one file."""

    decoder: LazyDecoder[VideoDecoder]
    numbers: Int64s
    """(n,): numbers of frames, in any order, with repeats."""
    times: Seconds
    """(n,): seconds at which they are shown."""
    positions: Int64s
    """(n,): positions in the request."""
    name: str
    """The video in error messages."""


def cut_excerpts(requests: Sequence[FileFrames], shape: tuple[int, ...], concurrent: bool) -> Excerpts:
    """Copies the packets that frames need, to a file for each run of packets.

    Requests of segments of the same linked file are merged.

    Args:
        requests: The requested frames.
        shape: The shape of the request.
        concurrent: Whether to read several files at a time.

    Raises:
        DecodeError: Packets are missing, or cannot be copied (`ValueError` if the source is not from a
            dataset).
    """
    groups: dict[object, list[FileFrames]] = {}
    for request in requests:
        segment = segment_of(request.decoder.source)
        key = id(request) if segment is None else (id(segment.held), segment.where, request.decoder.track)
        groups.setdefault(key, []).append(request)
    parts = map_concurrently(_cut_file, list(groups.values()), concurrent)
    pairs = [pair for part in parts for pair in part]
    return Excerpts(tuple(excerpt for excerpt, _ in pairs), tuple(found for _, found in pairs), shape)


def _cut_file(requests: list[FileFrames]) -> list[tuple[Excerpt, Int64s]]:
    """Returns the excerpts of a file, each with the positions of its frames in the request."""
    first = requests[0]
    try:
        with first.decoder.use() as decoder:
            whole, _ = decoder.whole()
            segments = [segment_of(request.decoder.source) for request in requests]
            offsets = [0 if segment is None else segment.first for segment in segments]
            numbers = [request.numbers + offset for request, offset in zip(requests, offsets, strict=True)]
            parts = _cut_parts(whole, np.concatenate(numbers))
    except Exception as exc:
        exc.add_note(f'in the excerpt of {first.name}')
        raise
    times = np.concatenate([request.times for request in requests])
    positions = np.concatenate([request.positions for request in requests])
    return [
        (
            Excerpt(part.file, part.frames, times[part.places], part.file_times, first.name),
            positions[part.places],
        )
        for part in parts
    ]


class _Part(NamedTuple):
    """Some of the requested frames, and the file that has them."""

    places: Int64s
    """(n,): positions in the request."""
    file: bytes
    frames: Int64s
    """(n,): the numbers of the frames in the file."""
    file_times: Seconds
    """(n,): seconds at which the frames are shown in the file."""


def _cut_parts(decoder: VideoDecoder, numbers: Int64s) -> list[_Part]:
    """Returns the parts for frames of a whole file. The packets of a remote file are read together."""
    codec = copy_obstacle(decoder)[0]
    runs = _merged_runs(decoder, codec, np.unique(numbers))
    file = decoder.file if isinstance(decoder.file, RangeFile) else None
    if file is not None:
        file.will_need([(low, high) for run in runs for _, low, high in decoder.packets.ranges(*run[:2])])
    try:
        with FrameCopier(decoder) as copier:
            return [_cut(decoder, copier, run, numbers) for run in runs]
    finally:
        if file is not None:
            file.will_need([])


def _merged_runs(decoder: VideoDecoder, codec: str, frames: Int64s) -> list[Run]:
    """Returns the runs that frames need, given by increasing numbers. Neighbouring runs are merged."""
    runs: list[Run] = []
    for run in plan(decoder.timeline, frames):
        runs.append(run._replace(frames=np.sort(run.frames)))
        if len(runs) > 1 and run.start - runs[-2].stop <= MAX_GAP_PACKETS:
            merged = Run(runs[-2].start, run.stop, np.union1d(runs[-2].frames, run.frames))
            if not _hides_frames(decoder, codec, merged):
                runs[-2:] = [merged]
    return [_lengthened(decoder, run) for run in runs] if codec == 'h264' else runs


def _lengthened(decoder: VideoDecoder, run: Run) -> Run:
    """Returns a run of H.264 with more packets, if it is short and begins with an open group of pictures.

    In an open group, frames that are shown before the key frame follow it.
    """
    frames, start = decoder.timeline.frame_of_packet, run.start
    following = frames[start : start + MIN_OPEN_PACKETS]
    if not ((following >= 0) & (following < following[0])).any():
        return run
    stop = min(max(run.stop, start + MIN_OPEN_PACKETS), len(frames))
    while stop - start < MIN_OPEN_PACKETS and start:
        start = decoder.timeline.key_before(start)
    return run._replace(start=start, stop=stop)


def _hides_frames(decoder: VideoDecoder, codec: str, run: Run) -> bool:
    """Returns whether a hidden frame, which a copy would show, is between the wanted frames of a run."""
    timeline, table = decoder.timeline, decoder.packets.table
    part = slice(run.start, run.stop)
    is_hidden = timeline.frame_of_packet[part] < 0
    if codec == 'vp8' or not is_hidden.any():  # VP8 has packets without a frame.
        return False
    if codec == 'mpeg4':
        is_hidden &= table.sizes[part] > MAX_SKIPPED_VOP_BYTES
    low, high = timeline.ticks[run.frames[[0, -1]]].tolist()
    times = table.times[part]
    return bool((is_hidden & (times >= low) & (times <= high)).any())


def _cut(decoder: VideoDecoder, copier: FrameCopier, run: Run, numbers: Int64s) -> _Part:
    """Copies the packets of a run to a file.

    In an MP4, the first wanted frame is at 0 s, and an edit list hides earlier frames. Later frames, to which
    wanted frames refer, are shown.
    """
    timeline, codec = decoder.timeline, copier.codec
    if _hides_frames(decoder, codec, run):
        raise ValueError(
            f'frames {run.frames[0]} to {run.frames[-1] + 1} cannot be copied: a frame between them is hidden'
        )
    start, packets = _packets_from_key(decoder, copier, run)
    frames = timeline.frame_of_packet[start : run.stop]
    stored = decoder.packets.table.times[start : run.stop]
    is_kept = np.array([packet.size > 0 for packet in packets])
    # Leading frames, which are shown before the first key frame, lack their references. No later frame refers
    # to them, except to those of H.264 that only other leading frames refer to, whose numbers it needs.
    is_leading = np.where((frames >= 0) & (frames[0] >= 0), frames < frames[0], stored < stored[0])
    if codec == 'h264':
        length_size = nal_length_size(codec, copier.template.codec_context.extradata)
        for position in np.flatnonzero(is_leading).tolist():
            is_leading[position] = not is_reference(bytes(packets[position]), length_size)
    if codec in REORDERED_CODECS:
        is_kept &= ~is_leading
    if codec == 'mpeg4':  # Frames that are not coded repeat a frame.
        is_kept &= (frames >= 0) | np.array([packet.size > MAX_SKIPPED_VOP_BYTES for packet in packets])
    packets = [packet for packet, kept in zip(packets, is_kept.tolist(), strict=True) if kept]
    frames, stored = frames[is_kept], stored[is_kept]

    is_mp4 = codec in MP4_CODECS
    last = int(frames.max())
    end = timeline.end if last + 1 == len(timeline) else int(timeline.ticks[last + 1])
    times = np.append(np.where(frames >= 0, timeline.ticks[frames], stored), end)
    time_base = Fraction(*timeline.time_base)
    if not is_mp4:
        times, time_base = np.round(timeline.seconds(times) * 1000).astype(np.int64), Fraction(1, 1000)
    times, end = times[:-1], int(times[-1])
    if codec == 'vp8':
        times = _before_next(times, [bool(bytes(packet)[0] & 0x10) for packet in packets])
    order = np.argsort(times, kind='stable')
    times[order] = monotonic(times[order])

    first = int(run.frames[0]) if is_mp4 else int(frames[frames >= 0].min())
    begin = int(times[frames == first][0]) if is_mp4 else int(times.min())
    for packet in packets:
        packet.time_base = time_base
    format = 'mp4' if is_mp4 else FORMATS.get(codec, 'matroska')
    file = write_packets(packets, times, begin, end - begin, copier.template, time_base, format)

    positions = np.flatnonzero(np.isin(numbers, run.frames))
    shown = np.flatnonzero(frames >= first)
    shown = shown[np.argsort(frames[shown])]
    found = np.searchsorted(frames[shown], numbers[positions])
    seconds = (times[shown[found]] - begin) * time_base.numerator / time_base.denominator
    return _Part(positions, file, found, seconds)


def _before_next(times: Int64s, have_frames: list[bool]) -> Int64s:
    """Returns the times of packets; a packet without a frame precedes the next packet by a tick."""
    times = times.copy()
    for position in range(len(times) - 2, -1, -1):
        if not have_frames[position]:
            times[position] = times[position + 1] - 1
    return times


def _packets_from_key(decoder: VideoDecoder, copier: FrameCopier, run: Run) -> tuple[int, list[Any]]:
    """Reads the packets of a run; returns the number of the first, and the packets.

    If the picture is restored gradually from the key frame on, they begin at an earlier one.
    """
    timeline, start = decoder.timeline, run.start
    packets = list(decoder.packets.read(start, run.stop))
    if copier.codec == 'h264':
        length_size = nal_length_size('h264', copier.template.codec_context.extradata)
        for _ in range(1 + MAX_EARLIER_KEYS):
            needed = recovery_frames(bytes(packets[0]), length_size) if start else 0
            if not needed:
                break
            references = (
                number for number, packet in enumerate(packets) if is_reference(bytes(packet), length_size)
            )
            restored = next(itertools.islice(references, needed, None), None)
            if (
                restored is not None
                and timeline.frame_of_packet[start + restored] <= run.frames[0]
                and len(packets) - restored >= MIN_OPEN_PACKETS
            ):
                break
            for packet in packets:
                packet.is_keyframe = False  # An MP4 is read from the last key frame before an edit on.
            earlier = timeline.key_before(start)
            packets = [*decoder.packets.read(earlier, start), *packets]
            start = earlier
    return start, packets
