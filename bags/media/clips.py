"""`cut_clips`: cuts a long video into short ones, for a field of type `mp4[]`.

    source     I . . . . . I . . . . . I . . . . . I . . .       I: a key frame
    size 6     |copied     |copied     |copied     |copied       every cut is at a key frame
    size 8     |encoded        |encoded        |encoded          only the first cut is at a key frame
    copy       |copied     |copied     |copied     |copied       size 8, cuts moved to the nearest key frames

A clip is copied if its packets contain exactly the frames between its two cuts. Cuts at key frames are not
sufficient: in an open group of pictures, the first frames refer to the previous group.
"""

from __future__ import annotations

import functools
import io
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import import_av
from bags.formats.pixels import PixelOptions
from bags.formats.videos import checked_frames, parse_fps, timed_frames
from bags.formats.write_video import MP4, WEBM, Codec, Frames, as_frame, write_frames
from bags.indexing import Int64s
from bags.media.remux import FrameCopier, copy_obstacle
from bags.media.source import MediaFile, MediaSource
from bags.media.video import Video
from bags.media.video_decoder import VideoDecoder, open_video

CODECS = {
    'h264': replace(MP4, gray=None),
    'hevc': Codec('mp4', 'libx265', {'crf': '24', 'g': MP4.options['g']}, MP4.gray),
    'vp9': Codec('mp4', 'libvpx-vp9', WEBM.options),
    'av1': Codec('mp4', 'libsvtav1', {'crf': '35', 'g': MP4.options['g'], 'preset': '9'}),
}
"""The encoders, by the name of the codec in libavcodec."""


class ClipRange(NamedTuple):
    """The frames of a clip."""

    start: int
    stop: int
    copied: bool
    """Whether the clip is copied; the numbers of its packets are then the numbers of its frames."""


class EncodedClip(bytes):
    """A clip as an MP4 file, which fields of videos store unchanged.

    Examples:
        >>> clip = next(bags.cut_clips('film.mp4', 50, copy=True))
        >>> clip.frames, clip.copied
        (50, True)
    """

    frames: int
    """Number of frames."""
    copied: bool
    """Whether the clip was copied from the source; otherwise it was encoded."""

    def __new__(cls, data: bytes, frames: int, copied: bool) -> Self:
        clip = super().__new__(cls, data)
        clip.frames, clip.copied = frames, copied
        return clip

    def __getnewargs__(self) -> tuple[bytes, int, bool]:  # type: ignore[override]
        return bytes(self), self.frames, self.copied

    def __repr__(self) -> str:
        how = 'copied' if self.copied else 'encoded'
        return f'EncodedClip({self.frames} frames, {len(self):,} bytes, {how})'


def cut_clips(
    source: Any,
    frames: int,
    *,
    gop: int | None = None,
    codec: str | None = None,
    crf: int | None = None,
    fps: float | str | Fraction | None = None,
    copy: bool = False,
) -> Iterator[EncodedClip]:
    """Cuts a video into consecutive clips for a field of type `mp4[]`, with one clip in memory at a time.

    Every frame of the source is in one clip, in order, and keeps its duration. Audio is dropped. A clip that
    consists of whole groups of pictures is copied; any other clip is encoded again.

    Args:
        source: A path, bytes, a seekable binary file or a `Video`, in MP4, QuickTime, WebM, Matroska or AVI;
            a `Video` that is joined from clips, whose clips are all encoded again; or uint8 RGB frames, as an
            array (time, height, width, 3) or any iterable of (height, width, 3); or depth, grey frames of
            uint16, (time, height, width) or (height, width), with values of 12 bits.
        frames: Number of frames of a clip. The last clip has the remaining frames.
        gop: Maximum number of frames from one key frame to the next. By default, unlimited for copied clips
            and 32 for encoded clips. A slice of a clip is decoded from the key frame before it.
        codec: `h264`, `hevc`, `vp9` or `av1`. By default, the codec of the source for copied clips, and H.264
            for encoded clips, for grey of more than 8 bits HEVC, which is lossless without a `crf`.
        crf: Constant rate factor of encoded clips. A lower factor means better quality and larger files.
        fps: Frames per second of a source without times. Default: 30.
        copy: Copy all clips without encoding: cut at the key frames nearest to the exact cuts. The attribute
            `frames` of each clip holds its resulting length.

    Yields:
        Clips, which are bytes.

    Raises:
        TypeError, ValueError: The source is not a video, cannot be copied although `copy` is set, or is
            damaged. For a damaged source, the clips before the damage are yielded first.

    Examples:
        >>> clips = list(bags.cut_clips('film.mp4', 50, copy=True))
        >>> [(clip.frames, clip.copied) for clip in clips]
        [(50, True), (50, True), (32, True)]
    """
    for what, value in {'frames': frames, 'gop': 1 if gop is None else gop}.items():
        if not hasattr(value, '__index__') or value < 1:
            raise ValueError(f'cut_clips: expected {what} to be an integer of at least 1, got {value!r}')
    if codec is not None and codec not in CODECS:
        raise ValueError(f'cut_clips: expected a codec of {", ".join(CODECS)}, got {codec!r}')
    encoder = (MP4 if codec is None else CODECS[codec]).with_options(crf, gop)
    opened = _source_of(source)
    track = source.decoder.track if isinstance(source, Video) and not source.is_joined else None
    if opened is not None:
        if fps is not None:
            raise TypeError('cut_clips: expected no fps for a source that has times')
        return _cut(opened, track, int(frames), codec, encoder, gop, copy)
    if copy:
        raise TypeError(
            f'cut_clips: copy: expected a path, bytes or a file to copy from, got {type(source).__name__}'
        )
    if isinstance(source, Video):  # Joined from clips.
        if fps is not None:
            raise TypeError('cut_clips: expected no fps for a source that has times')
        timed, rate, time_base = timed_frames(
            checked_frames(source, encoder), source.times, source.duration, encoder
        )
    else:
        rate = parse_fps(str(30 if fps is None else fps))
        time_base = 1 / rate
        timed = ((frame, tick, tick + 1) for tick, frame in enumerate(checked_frames(source, encoder)))
    return _encode_all(timed, int(frames), encoder, rate, time_base)


def _source_of(value: Any) -> MediaSource | None:
    """Returns the source of a video file; None if the value is frames, or a video joined from clips."""
    if isinstance(value, Video):
        return None if value.is_joined else value.source
    is_file = hasattr(value, 'read') and hasattr(value, 'seek')
    if is_file or isinstance(value, str | os.PathLike | bytes | bytearray | memoryview):
        return MediaFile(value)
    return None


# From frames.


def _encode_all(
    timed: Iterator[tuple[Frames, int, int]], size: int, codec: Codec, fps: Fraction, time_base: Fraction
) -> Iterator[EncodedClip]:
    is_empty = True
    for first in timed:
        is_empty = False
        yield _encode(itertools.chain([first], itertools.islice(timed, size - 1)), codec, fps, time_base)
    if is_empty:
        raise ValueError('cut_clips: expected at least one frame, got none')


def _encode(
    frames: Iterator[tuple[Frames, int, int]], codec: Codec, fps: Fraction, time_base: Fraction
) -> EncodedClip:
    """Encodes frames, given with their start and end ticks."""
    file = io.BytesIO()
    count = write_frames(file, frames, codec, fps, time_base, is_exact=True)
    return EncodedClip(file.getvalue(), count, copied=False)


# From a file.


def _cut(
    source: MediaSource,
    track: int | None,
    size: int,
    codec: str | None,
    encoder: Codec,
    gop: int | None,
    copy: bool,
) -> Iterator[EncodedClip]:
    with ExitStack() as opened, _errors(source):
        decoder = open_video(opened.enter_context(source.open()), track)
        timeline, copier = decoder.timeline, opened.enter_context(FrameCopier(decoder))
        time_base = Fraction(*timeline.time_base)
        ticks = [*timeline.ticks.tolist(), max(timeline.end, int(timeline.ticks[-1]) + 1)]
        frames: Iterator[Frames] = iter(())
        position = -1
        fps = (len(timeline) / (time_base * (ticks[-1] - ticks[0]))).limit_denominator(100_000)
        for start, stop, copied in _plan(decoder, size, codec, gop, copy):
            if copied:
                yield EncodedClip(
                    copier.copy(start, stop, ticks[stop] - ticks[start]), stop - start, copied=True
                )
            else:
                if start != position:
                    frames = decoder.in_order(start, functools.partial(_frame, decoder, encoder))
                position = stop
                bounds = zip(ticks[start:stop], ticks[start + 1 : stop + 1], strict=True)
                timed = ((next(frames), *shown) for shown in bounds)
                yield _encode(timed, encoder, min(fps, Fraction(1000)), time_base)
        if timeline.truncation:
            raise ValueError(timeline.truncation)


def _frame(decoder: VideoDecoder, codec: Codec, number: int, frame: Any) -> Frames:
    try:
        pixels = as_frame(decoder.pixels(number, frame, PixelOptions()), codec)
    except (TypeError, ValueError) as exc:
        raise ValueError(f'frame {number}: {exc}; copy=True copies frames') from exc
    return np.ascontiguousarray(pixels)


def _plan(
    decoder: VideoDecoder, size: int, codec: str | None, gop: int | None, copy: bool
) -> list[ClipRange]:
    """Plans the clips that are complete: a truncated file ends with the last complete clip."""
    source_codec, obstacle = copy_obstacle(decoder)
    if codec not in (None, source_codec):
        obstacle = f'it is {source_codec}, not {codec}'
    if copy and obstacle:
        raise ValueError(f'cannot be copied: {obstacle}')
    timeline = decoder.timeline
    count = len(timeline)
    ranges = [ClipRange(start, min(start + size, count), False) for start in range(0, count, size)]
    if not obstacle:
        frames = timeline.frame_of_packet
        # Packets without a frame follow the last complete packet of a truncated file.
        later = timeline.end + 1 + np.arange(len(frames))
        times = np.where(frames >= 0, timeline.ticks[frames], later)
        ranges = plan_clips(times, decoder.packets.table.keys, size, gop, copy)
    if timeline.truncation:
        # In the last group of pictures, frames may be missing between other frames.
        last_key = timeline.keys[-1] if len(timeline.keys) else 0
        last = timeline.frame_of_packet[last_key:]
        complete = int(last[last >= 0].min(initial=count))
        ranges = [clip for clip in ranges if clip.stop <= complete]
    return ranges


def plan_clips(
    times: Int64s, keys: npt.NDArray[np.bool_], size: int, gop: int | None = None, copy: bool = False
) -> list[ClipRange]:
    """Divides a video into clips that are copied or encoded.

    Args:
        times: The presentation time of each packet, in decoding order; all different.
        keys: Which packets are key frames.
        size: Number of frames of a clip.
        gop: The maximum key frame interval of copied clips.
        copy: Copy all clips.
    """
    cuts = _clean_cuts(times, keys)
    count = len(times)
    if copy:
        exact_cuts = np.arange(0, count, size)
        right = np.clip(np.searchsorted(cuts, exact_cuts), 1, len(cuts) - 1)
        nearest = np.where(
            cuts[right] - exact_cuts < exact_cuts - cuts[right - 1], cuts[right], cuts[right - 1]
        )
        ends = np.unique(np.concatenate([cuts[:1], nearest, cuts[-1:]])).tolist()
    else:
        ends = [*range(0, count, size), count]
    clean_cuts, key_packets = set(cuts.tolist()), np.append(np.flatnonzero(keys), count)
    ranges = []
    for start, stop in itertools.pairwise(ends):
        copied = start in clean_cuts and stop in clean_cuts
        if copied and gop is not None and not copy:
            within = key_packets[(key_packets >= start) & (key_packets <= stop)]
            copied = int(np.diff(within, append=stop).max(initial=0)) <= gop
        ranges.append(ClipRange(start, stop, copied))
    return ranges


def _clean_cuts(times: Int64s, keys: npt.NDArray[np.bool_]) -> Int64s:
    """Returns the key frames at which a copy can be cut, and the end.

    At such a key frame, frame and packet have the same number. In the file, all earlier frames precede the
    key frame, and all later frames follow it.
    """
    count = len(times)
    frame_of_packet = np.argsort(np.argsort(times, kind='stable'))
    before = np.concatenate([[-1], np.maximum.accumulate(frame_of_packet)[:-1]])
    is_clean = keys & (frame_of_packet == np.arange(count)) & (before == frame_of_packet - 1)
    return np.append(np.flatnonzero(is_clean), count)


@contextmanager
def _errors(source: MediaSource) -> Iterator[None]:
    """Adds the name of a source to errors that its content causes."""
    try:
        yield
    except (ValueError, import_av().FFmpegError) as exc:
        if isinstance(exc, OSError):
            raise
        raise ValueError(f'cut_clips: {source.name}: {exc}') from exc
