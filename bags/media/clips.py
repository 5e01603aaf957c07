"""Clips: a long video cut into short ones, for a field of type `mp4[]`."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from typing import Any, Self

import numpy as np

from bags.formats.ffmpeg import import_av
from bags.formats.videos import MP4, WEBM, Codec, Frames, checked_frames, frame_rate, write_frames
from bags.media.clip_plan import Piece, plan_pieces
from bags.media.cutting import Decoded, Demuxed, name_of, open_file, open_video, why_not_copied
from bags.media.video import Video
from bags.media.video_decoder import open_reel

__all__ = ['Clip', 'clips']

CODECS = {
    'h264': MP4,
    'hevc': Codec('mp4', 'libx265', {'crf': '24', 'g': MP4.options['g'], 'x265-params': 'log-level=none'}),
    'vp9': Codec('mp4', 'libvpx-vp9', WEBM.options),
    'av1': Codec('mp4', 'libsvtav1', {'crf': '35', 'g': MP4.options['g'], 'preset': '9'}),
}
"""What clips are encoded as, by what libavcodec calls the codec."""


class Clip(bytes):
    """A clip as a finished MP4 file, which fields of videos take as it is."""

    frames: int
    """How many it has."""
    copied: bool
    """Whether it was copied from the source; else it was encoded."""

    def __new__(cls, data: bytes, frames: int, copied: bool) -> Self:
        clip = super().__new__(cls, data)
        clip.frames, clip.copied = frames, copied
        return clip

    def __getnewargs__(self) -> tuple[bytes, int, bool]:  # type: ignore[override]
        return bytes(self), self.frames, self.copied

    def __repr__(self) -> str:
        return f'Clip({self.frames} frames, {len(self):,} bytes, {"copied" if self.copied else "encoded"})'


def clips(
    source: Any,
    frames: int,
    *,
    gop: int | None = None,
    codec: str | None = None,
    crf: int | None = None,
    fps: float | str | Fraction | None = None,
    copy: bool = False,
) -> Iterator[Clip]:
    """Cuts a video into consecutive clips, for a field of type `mp4[]`, one in memory at a time.

    All frames of the source are in one clip each, in order, and are shown as long as they were. Sound is left
    out. Where the frames of a clip are whole groups of pictures, it is copied; else it is encoded again.

    Args:
        source: A path, bytes, a seekable binary file or a `Video`, of MP4, QuickTime, WebM, Matroska or AVI;
            or uint8 RGB frames, as an array (time, height, width, 3) or any iterable of (height, width, 3).
        frames: Frames of a clip; the last one has what is left.
        gop: The most frames from one key frame to the next; unless given, what is copied may have any number,
            and what is encoded has 32. A slice of a clip is decoded from the key frame before it.
        codec: `h264`, `hevc`, `vp9` or `av1`. Unless given, that of the source where clips are copied, and
            H.264 where they are encoded.
        crf: The constant rate factor of what is encoded: less is better, and larger.
        fps: Frames a second of frames that come without times, 30 unless given.
        copy: Encode nothing: cut at the key frames nearest to where cuts would be. How long each clip became
            is in its `frames`.

    Yields:
        Clips, which are bytes.

    Raises:
        TypeError, ValueError: No such source, no video in it, or one that cannot be copied where that is
            asked for; or one that is damaged: then after the clips before.
    """
    for what, value in {'frames': frames, 'gop': 1 if gop is None else gop}.items():
        if not hasattr(value, '__index__') or value < 1:
            raise ValueError(f'clips: expected {what} to be an integer of at least 1, got {value!r}')
    if codec is not None and codec not in CODECS:
        raise ValueError(f'clips: expected a codec of {", ".join(CODECS)}, got {codec!r}')
    made = CODECS[codec or 'h264'].at(crf, gop)
    opened = _openable(source)
    if opened is not None:
        if fps is not None:
            raise TypeError('clips: expected no fps for a source that has times of its own')
        return _cut(opened, int(frames), codec, made, gop, copy)
    if copy:
        raise TypeError(f'clips: expected a path, bytes or a file to copy from, got {type(source).__name__}')
    rate = frame_rate(str(30 if fps is None else fps))
    return _encode_all(checked_frames(source), int(frames), made, rate)


def _openable(source: Any) -> Any:
    """Returns what a video is read from; None for frames."""
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview | Video):
        return source
    if isinstance(source, np.ndarray):
        return None
    return source if hasattr(source, 'read') and hasattr(source, 'seek') else None


# Frames that come without a file.


def _encode_all(frames: Iterator[Frames], size: int, codec: Codec, fps: Fraction) -> Iterator[Clip]:
    timed = ((frame, tick, tick + 1) for tick, frame in enumerate(frames))
    first = next(timed, None)
    if first is None:
        raise ValueError('clips: expected at least one frame, got none')
    while first is not None:
        yield _encode(first, itertools.islice(timed, size - 1), codec, fps, 1 / fps)
        first = next(timed, None)


def _encode(
    first: tuple[Frames, int, int],
    others: Iterable[tuple[Frames, int, int]],
    codec: Codec,
    fps: Fraction,
    unit: Fraction,
) -> Clip:
    file = io.BytesIO()
    count = end = 0

    def shifted() -> Iterator[tuple[Frames, int, int]]:
        nonlocal count, end
        for frame, start, stop in itertools.chain([first], others):
            if frame.shape != first[0].shape:
                raise ValueError(f'expected frames of shape {first[0].shape}, got {frame.shape}')
            count, end = count + 1, stop - first[1]
            yield frame, start - first[1], end

    try:
        write_frames(file, shifted(), first[0].shape, codec, fps, unit)
    except import_av().FFmpegError as exc:
        raise ValueError(f'cannot encode {first[0].shape} with {codec.name}: {exc}') from exc
    with open_video(file) as (container, stream):
        data = Demuxed(container, stream).copy(0, count, round(end * unit / stream.time_base))
    return Clip(data, count, copied=False)


# Those that come in a file.


def _cut(
    source: Any, size: int, codec: str | None, made: Codec, gop: int | None, copy: bool
) -> Iterator[Clip]:
    with ExitStack() as opened, _named(source):
        reel = open_reel(opened.enter_context(open_file(source)))
        found, doubt = why_not_copied(reel)
        if codec not in (None, found):
            doubt = f'it is {found}, not {codec}'
        if copy and doubt:
            raise ValueError(f'cannot be copied: {doubt}')
        timeline, table = reel.timeline, reel.packets.table
        count = len(timeline.packets)
        pieces = [Piece(start, min(start + size, count), copied=False) for start in range(0, count, size)]
        if not doubt:
            pieces = plan_pieces(table.times, table.keys, size, gop, copy)
        if timeline.cut:
            # Of the last group of pictures, frames between those that are there may be missing.
            last = timeline.places[timeline.keys[-1] :] if len(timeline.keys) else timeline.places
            safe = int(last[last >= 0].min(initial=count))
            pieces = [piece for piece in pieces if piece.stop <= safe]
        ends = np.append(timeline.ticks, max(timeline.end, int(timeline.ticks[-1]) + 1)).tolist()
        unit = Fraction(*timeline.unit)
        rate = (count / (unit * (ends[-1] - ends[0]))).limit_denominator(100_000)
        packets, frames = None, Decoded(reel)
        for start, stop, copied in pieces:
            if copied:
                if packets is None:
                    packets = Demuxed(*opened.enter_context(open_video(source)))
                yield Clip(packets.copy(start, stop, ends[stop] - ends[start]), stop - start, copied=True)
            else:
                timed = frames.read(start, stop)
                yield _encode(next(timed), timed, made, min(rate, Fraction(1000)), unit)
        if timeline.cut:
            raise ValueError(timeline.cut)


@contextmanager
def _named(source: Any) -> Iterator[None]:
    """Makes what goes wrong with a source an error that names it."""
    try:
        yield
    except (ValueError, import_av().FFmpegError) as exc:
        if isinstance(exc, OSError):
            raise
        raise ValueError(f'clips: {name_of(source)}: {exc}') from exc
