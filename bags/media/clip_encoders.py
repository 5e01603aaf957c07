"""Encodes streams of frames or blocks of samples as clips: short videos and recordings.

    frames   0  1  2  3  4  5  6  7     with times, or at a constant rate
    clips   [0  1  2][3  4  5][6  7]    a frame lasts until the next one, also from clip to clip

Joined clips of `flac` and `wav` equal the samples of the stream. For `opus`, the stream is resampled before
it is cut: for a sine, where Opus has an error of 0.006, resampling each clip separately gives errors of 0.05
at the ends of clips.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from bags.formats import audio, videos, write_video
from bags.formats.encoded import Encoded
from bags.formats.samples import Samples, checked_samples, resampled
from bags.formats.write_video import Codec, Frames

TICKS_PER_SECOND = 1_000_000
"""Resolution of the times of items."""
MAX_FRAME_TICKS = 1 << 30
"""Maximum duration of a frame in ticks, 18 minutes: MP4 has 31 bits for the duration of a stored frame, which
can be longer than a shown one, as frames are stored in another order."""
MATROSKA_TIME_BASE = Fraction(1, 1000)
"""Resolution of times in Matroska and WebM, in seconds."""

# x264 takes less than half the time of its default preset, and buffers 10 frames instead of 40. It encodes
# the buffered frames at the end of a clip, while the next frames wait.
_MP4 = replace(write_video.MP4, options=write_video.MP4.options | {'preset': 'veryfast'})
_WEBM = replace(write_video.WEBM, options=write_video.WEBM.options | {'lag-in-frames': '0'})

Item = np.ndarray[Any, np.dtype[Any]]
Rate = float | None


class ClipEncoder(NamedTuple):
    """The functions that check and encode a stream of frames or of blocks of samples."""

    check: Callable[[Item, Rate], Item]
    """Returns an array as an item: a frame (height, width, 3), of depth (height, width), or a block (time,
    channels).

    Raises TypeError or ValueError for another array, or if the field cannot have this rate."""
    encode: Callable[..., Iterator[Encoded]]
    """Encodes items as clips, and yields the records of the clips.

    Arguments: the items, each with its time in seconds or None; the length of a clip in seconds; the rate of
    the field; the arguments of the type. A clip is encoded while its items arrive."""
    dimensions: tuple[int, ...]
    """Possible numbers of dimensions of an item; other arrays are not treated as items."""
    is_video: bool = False
    """Whether items are frames, and not blocks of samples."""


def cut_frames(
    frames: Iterator[tuple[Frames, int]], length: int, last: int
) -> Iterator[Iterator[tuple[Frames, int, int]]]:
    """Yields the frames of each clip with their start and end ticks. Read each clip before the next one.

    A clip also ends before a gap of more than `MAX_FRAME_TICKS`. Its last frame, like the last frame of the
    stream, lasts as long as the frame before.

    Args:
        frames: Frames with their start ticks, which increase.
        length: Length of a clip, in ticks.
        last: Duration of a single frame, in ticks.
    """
    current = next(frames, None)

    def clip(stop: int) -> Iterator[tuple[Frames, int, int]]:
        nonlocal current, last
        while current is not None and current[1] < stop:
            frame, start = current
            current = next(frames, None)
            gap = 0 if current is None else current[1] - start
            is_gap = gap > MAX_FRAME_TICKS
            last = gap if gap and not is_gap else last
            yield frame, start, start + last
            if is_gap:
                return

    while current is not None:
        yield clip(current[1] + length)


def _encode_frames(
    codec: Codec,
    frames: Iterator[tuple[Frames, float | None]],
    seconds: float,
    rate: Rate,
    *args: str,
) -> Iterator[Encoded]:
    fps, crf = videos.video_options(*args)
    fps = fps if rate is None else videos.parse_fps(str(rate))
    first = next(frames, None)
    if first is None:
        return
    has_times = first[1] is not None
    time_base = Fraction(1, TICKS_PER_SECOND) if has_times else 1 / fps
    timed = _with_ticks(first, frames)
    is_mp4 = codec.format == 'mp4'
    for clip in cut_frames(timed, max(1, round(seconds / time_base)), round(1 / fps / time_base)):
        file = io.BytesIO()
        if not is_mp4:
            clip = _in_units(clip, time_base / MATROSKA_TIME_BASE)
        unit = time_base if is_mp4 else MATROSKA_TIME_BASE
        write_video.write_frames(file, clip, codec.with_options(crf), fps, unit, is_exact=True)
        yield file.getvalue()


def _in_units(clip: Iterator[tuple[Frames, int, int]], units: Fraction) -> Iterator[tuple[Frames, int, int]]:
    """Converts starts and ends of frames to another unit, rounded; `units` is the number of units per tick.

    Starts count from the first frame of the stream, so that rounding errors of clips do not add up.
    """
    end = 0
    for frame, start, stop in clip:
        begin = max(end, round(start * units))
        end = max(begin + 1, round(stop * units))
        yield frame, begin, end


def _with_ticks(
    item: tuple[Frames, float | None] | None, others: Iterator[tuple[Frames, float | None]]
) -> Iterator[tuple[Frames, int]]:
    """Yields frames with their times in ticks, or with their numbers if they have no times."""
    tick = -1
    while item is not None:
        frame, time = item
        tick = max(tick + 1, 0 if time is None else round(time * TICKS_PER_SECOND))
        yield frame, tick
        item = next(others, None)


def _check_frame(codec: Codec, array: Item, rate: Rate) -> Item:
    frame = write_video.as_frame(array, codec)
    if rate is not None:
        videos.parse_fps(str(rate))
    return frame


def _encode_samples(
    format: str,
    blocks: Iterator[tuple[Samples, float | None]],
    seconds: float,
    rate: Rate,
    *args: str,
) -> Iterator[Encoded]:
    samples: Iterable[Samples] = (block for block, _ in blocks)
    clip_rate = _integer_rate(rate)
    if format == 'opus':
        samples, clip_rate = resampled(samples, clip_rate, audio.OPUS_RATE), audio.OPUS_RATE
    length, pending, count = max(1, round(seconds * clip_rate)), [], 0
    for block in samples:
        pending.append(block)
        count += len(block)
        while count >= length:
            joined = np.concatenate(pending)
            yield _encode_clip(format, joined[:length], clip_rate, *args)
            pending, count = [joined[length:]], count - length
    if count:
        yield _encode_clip(format, np.concatenate(pending), clip_rate, *args)


def _encode_clip(format: str, samples: Samples, rate: int, *args: str) -> Encoded:
    if format == 'opus':
        return audio.encode_opus((samples, rate), *args)
    is_wav = format == 'wav' or samples.dtype.kind == 'f'
    return (audio.encode_wav if is_wav else audio.encode_flac)((samples, rate))


def _check_samples(format: str, block: Item, rate: Rate) -> Item:
    is_wav = format == 'audio' and block.dtype.kind == 'f'
    format = 'wav' if is_wav else 'flac' if format == 'audio' else format
    samples, _ = checked_samples((block, _integer_rate(rate)), format)
    return samples.astype(samples.dtype.newbyteorder('='), copy=False)


def _integer_rate(rate: Rate) -> int:
    if rate is None or rate != int(rate):
        raise ValueError(
            f'expected the sample rate in Hz as "rate" of the field in the metadata, got {rate}: '
            'blocks of samples do not contain it'
        )
    return int(rate)


def _of_frames(codec: Codec) -> ClipEncoder:
    check = functools.partial(_check_frame, codec)
    return ClipEncoder(check, functools.partial(_encode_frames, codec), (2, 3), is_video=True)


def _of_samples(format: str) -> ClipEncoder:
    check = functools.partial(_check_samples, format)
    return ClipEncoder(check, functools.partial(_encode_samples, format), (1, 2))


MP4, WEBM, MKV = map(_of_frames, (_MP4, _WEBM, write_video.MKV))
WAV, FLAC, OPUS, AUDIO = map(_of_samples, ('wav', 'flac', 'opus', 'audio'))

BY_FUNCTION = {
    videos.encode_mp4: MP4,
    videos.encode_webm: WEBM,
    videos.encode_mkv: MKV,
    audio.encode_wav: WAV,
    audio.encode_flac: FLAC,
    audio.encode_opus: OPUS,
}
"""The clip encoder for each encoder in `bags.formats`. Other encoders have an attribute `clips`."""


def clip_encoder_of(encode: Callable[..., Any] | None) -> ClipEncoder | None:
    """Returns the clip encoder for the encoder of a type; None if the type does not support clips."""
    own: ClipEncoder | None = getattr(encode, 'clips', None)
    return own or next((encoder for function, encoder in BY_FUNCTION.items() if function is encode), None)
