"""MP4, WebM and Matroska: encodes frames, and decodes whole files.

| type | codec | for |
| --- | --- | --- |
| `mp4(fps,crf)` | H.264, 4:2:0; a constant rate factor of 20 | playing everywhere |
| `webm(fps,crf)` | VP9, 4:2:0, libvpx's realtime settings; 30 | browsers, without patents |
| `mkv(fps)` | FFV1, RGB, every frame a key frame | lossless pixels, with a checksum on every slice |
| `mp4(fps,crf)` of uint16 | HEVC, grey of 12 bits; lossless without `crf` | depth |
| `mkv(fps)` of uint16 | FFV1, grey of 16 bits | depth of more than 12 bits |

The constant rate factor is 0 to 51; lower values mean better quality. The default is 30 frames per second.
H.264 stores frames with an odd height or width as 4:4:4, which some players do not support, as 4:2:0 needs
even sizes.

Encoders accept uint8 RGB frames, shape (time, height, width, 3); grey frames of uint16, shape (time, height,
width); an iterable of frames of shape (height, width, 3) or (height, width), which are in memory one at a
time; or a file of their format, as bytes or a path. They return the bytes of a file, or, for an iterator, an
open temporary file. They raise TypeError for another dtype, and ValueError for another shape, frames of
several shapes, grey values of more bits than the codec has, no frames, or a file of another format.

Decoders return all frames in presentation order, shape (time, height, width, 3), for files with any codec.
They raise ValueError if the file has another format, is cut off, damaged or without frames, or if its frames
have several sizes or take more than `max_size` bytes.

Encoded videos are tagged as BT.709 in limited range (`mkv`: RGB). Decoding follows the tags of a video; as in
FFmpeg, a video without tags is BT.601 in limited range. Frames are rotated by the display matrix;
`mp4(rotate=False)` decodes the stored frames. Grey of more than 8 bits, such as depth, is uint16, shape
(time, height, width), with the stored values; `mp4(color=rgb)` decodes it as three channels. Colours of more
than 8 bits are uint8 by default, and uint16 with `mp4(dtype=uint16)`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bags.formats.arrays import as_array
from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.ffmpeg import best_stream, open_container
from bags.formats.pixels import PIXEL_OPTIONS, PixelConverter, PixelOptions, Pixels, frame_format
from bags.formats.scalars import (
    MAX_VALUE_SIZE,
    Buffer,
    check_count,
    check_value_size,
    parse_int,
    split_options,
)
from bags.formats.write_video import MKV, MP4, WEBM, Codec, Frames, as_frame, write_frames
from bags.storage.range_file import BufferFile

if TYPE_CHECKING:
    from fractions import Fraction

DEFAULT_FPS = '30'
MP4_TICKS_PER_SECOND = 90_000
"""Resolution of times in an MP4 of frames with times. All common frame rates divide it."""
MATROSKA_TICKS_PER_SECOND = 1000
"""Resolution of times in Matroska and WebM."""


def video_options(*args: str) -> tuple[Fraction, int | None]:
    """Parses the arguments of `mp4(fps,crf)` and `webm(fps,crf)`. The factor is None if it is missing."""
    args, _ = split_options(args, **PIXEL_OPTIONS)
    check_count(args, 2, 'fps and crf')
    fps = parse_fps(args[0] if args else DEFAULT_FPS)
    return fps, parse_int(args[1], 0, 51, 'a crf') if len(args) > 1 else None


def mkv_options(*args: str) -> Fraction:
    """Parses the argument of `mkv(fps)`."""
    check_count(split_options(args, **PIXEL_OPTIONS)[0], 1, 'mkv(fps)')
    return video_options(*args)[0]


def parse_fps(text: str) -> Fraction:
    """Parses frames per second, such as `30`, `29.97` or `30000/1001`."""
    from fractions import Fraction

    try:
        if len(text) > 24 or 'e' in text.lower():
            raise ValueError
        fps = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f'expected an fps such as 30, 29.97 or 30000/1001, got {text!r}') from None
    if not Fraction(1, 1000) <= fps <= 1000:
        raise ValueError(f'expected an fps of 1/1000 to 1000, got {text!r}')
    return fps.limit_denominator(100_000)


def encode_mp4(value: Any, *args: str) -> Encoded:
    """Encodes frames as H.264 in MP4."""
    fps, crf = video_options(*args)
    return already_encoded(value, 'MP4') or _encode(value, MP4, fps, crf)


@decodes('MP4')
def decode_mp4(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes all frames of an MP4."""
    return _decode(data, 'MP4', args, max_size)


def encode_webm(value: Any, *args: str) -> Encoded:
    """Encodes frames as VP9 in WebM."""
    fps, crf = video_options(*args)
    return already_encoded(value, 'WebM') or _encode(value, WEBM, fps, crf)


@decodes('WebM')
def decode_webm(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes all frames of a WebM, without transparency."""
    return _decode(data, 'WebM', args, max_size)


def encode_mkv(value: Any, *args: str) -> Encoded:
    """Encodes frames as FFV1 in Matroska."""
    fps = mkv_options(*args)
    return already_encoded(value, 'Matroska') or _encode(value, MKV, fps, None)


@decodes('Matroska')
def decode_mkv(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes all frames of a Matroska file."""
    return _decode(data, 'Matroska', args, max_size)


def checked_frames(value: Any, codec: Codec) -> Iterator[Frames]:
    """Yields the frames of an array or an iterable, after checking each frame for a codec."""
    if isinstance(value, np.ndarray) or not isinstance(value, Iterable):
        value = as_array(value)
        if value.ndim != 4 and not (value.ndim == 3 and value.dtype == np.uint16):
            advice = '; a sequence takes a list of videos, such as [video]' if value.ndim == 3 else ''
            raise ValueError(
                'expected frames of shape (time, height, width, 3), or (time, height, width) of uint16, got '
                f'{value.dtype} {value.shape}{advice}'
            )
    shape = None
    for item in value:
        frame = as_frame(as_array(item), codec)
        if shape is not None and frame.shape != shape:
            raise ValueError(f'expected frames of one shape, got {shape} and {frame.shape}')
        shape = frame.shape
        yield np.ascontiguousarray(frame)


def _encode(value: Any, codec: Codec, fps: Fraction, crf: int | None) -> Encoded:
    import tempfile  # This import takes as long as all of bags.formats.

    # The frames of an iterator may exceed memory, and so may the file.
    file: BinaryIO = tempfile.TemporaryFile() if isinstance(value, Iterator) else io.BytesIO()  # noqa: SIM115
    try:
        frames = checked_frames(value, codec)
        times = getattr(value, 'times', None)
        if isinstance(times, np.ndarray):  # A video, e.g. one that is joined from clips.
            timed, fps, time_base = timed_frames(frames, times, value.duration, codec)
            write_frames(file, timed, codec.with_options(crf), fps, time_base, is_exact=True)
        else:
            timed = ((frame, tick, tick + 1) for tick, frame in enumerate(frames))
            write_frames(file, timed, codec.with_options(crf), fps, 1 / fps)
    except BaseException:
        file.close()
        raise
    if isinstance(file, io.BytesIO):
        return file.getvalue()
    file.seek(0)
    return file


def timed_frames(
    frames: Iterator[Frames], times: np.ndarray[Any, np.dtype[Any]], duration: float, codec: Codec
) -> tuple[Iterator[tuple[Frames, int, int]], Fraction, Fraction]:
    """Returns frames with their start and end in ticks, the average frame rate, and the seconds per tick.

    Args:
        frames: The frames.
        times: The time of each frame in seconds, increasing, shape (n,).
        duration: Seconds from the first frame to the end of the last.
        codec: The codec to write the frames with.

    Raises:
        ValueError: There are no frames.
    """
    from fractions import Fraction

    if not len(times):
        raise ValueError('expected at least one frame, got none')

    ticks_per_second = MP4_TICKS_PER_SECOND if codec.format == 'mp4' else MATROSKA_TICKS_PER_SECOND
    ticks = np.rint(np.append(times - times[0], duration) * ticks_per_second).astype(np.int64)
    numbers = np.arange(len(ticks))
    ticks = (np.maximum.accumulate(ticks - numbers) + numbers).tolist()  # Each frame has at least one tick.
    fps = Fraction(len(times) * ticks_per_second, ticks[-1]).limit_denominator(100_000)
    timed = zip(frames, ticks[:-1], ticks[1:], strict=True)
    return timed, min(fps, Fraction(1000)), Fraction(1, ticks_per_second)


def _decode(data: Buffer, name: str, args: tuple[str, ...], max_size: int) -> Pixels:
    # `bags.media` decodes the same frames from packets, but opening a file there takes longer than demuxing a
    # short clip: 16 frames of 48 x 64 take 1.9 ms here and 2.9 ms there, 24 of 128 x 128 take 3.7 and 4.3.
    options = PixelOptions(**split_options(args, **PIXEL_OPTIONS)[1])
    with open_container(BufferFile(data), name) as container:
        stream = best_stream(container, 'video')
        convert: PixelConverter | None = None
        frames: Pixels | None = None
        count = packets = 0
        # The size is checked before a decoder allocates a frame, and again before the array grows.
        size = 3 * stream.codec_context.width * stream.codec_context.height
        check_value_size(size * max(1, stream.frames), max_size, f'{max(1, stream.frames)} frames')
        stream.codec_context.options = {'max_pixels': str(max_size // 3)}
        for packet in container.demux(stream):
            packets += packet.size > 0 and not packet.is_discard
            for frame in packet.decode():
                if frame.is_corrupt:
                    raise ValueError(f'frame {count} is damaged')
                convert = convert or PixelConverter(frame_format(frame), options)
                pixels = convert(frame)
                if frames is None:
                    length = _expected_frames(stream, pixels.nbytes, max_size)
                    frames = np.empty((length, *pixels.shape), pixels.dtype)
                if count == len(frames):
                    check_value_size(pixels.nbytes * (count + 1), max_size, f'{count + 1} frames')
                    length = min(count + count // 2 + 1, max_size // pixels.nbytes)
                    frames.resize((length, *pixels.shape), refcheck=False)
                frames[count] = pixels
                count += 1
        # With other codecs, a packet need not contain a visible frame.
        if count < packets and stream.codec_context.name in ('h264', 'ffv1', 'mjpeg'):
            raise ValueError(f'expected {packets} frames, got {count}: the rest are damaged')
    if frames is None:
        raise ValueError('expected at least one frame, got none')
    # The header was wrong. `resize` frees the end of a large array without a copy.
    if count != len(frames):
        frames.resize((count, *frames.shape[1:]), refcheck=False)
    return frames


def _expected_frames(stream: Any, frame_size: int, max_size: int) -> int:
    """Returns the number of frames according to the header, which may be wrong, limited by `max_size`."""
    count: int = stream.frames
    if not count and stream.duration and stream.average_rate:
        count = round(stream.duration * stream.time_base * stream.average_rate)
    return max(1, min(count, max_size // frame_size))
