"""Writes frames as a video, with a choice of codecs and exact frame durations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bags.formats.ffmpeg import import_av

if TYPE_CHECKING:
    from fractions import Fraction

Frames = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]
"""Frames of uint8 (height, width, 3), or grey of uint16 (height, width)."""
Int64s = np.ndarray[Any, np.dtype[np.int64]]

FULL_CHROMA_INPUT = 0x4000
"""SWS_FULL_CHR_H_INP of libswscale, missing in PyAV 15: computes the chroma of every pixel."""
KEYFRAME_INTERVAL = 32
"""Frames from one key frame to the next. A slice is decoded from the preceding key frame. The default of
libx264, 250, saves about 5% of the bytes, and makes slices eight times slower."""


MIN_HEVC_SIDE = 16
"""Minimum number of pixels of a side of a frame for libx265."""
MIN_CUTREE_PIXELS = 1 << 16
"""Minimum number of pixels of a frame for the option cutree of libx265. With less than 16 blocks of 16 x 16
pixels, it writes behind its memory, which aborts the process."""
X265_PARAMETERS = 'log-level=none'
GRAY_FORMATS = {'libx265': ('gray12le', 12), 'ffv1': ('gray16le', 16)}
"""The pixel format and the bits of grey of uint16, by the name of the encoder in libavcodec."""


@dataclass(frozen=True)
class Codec:
    """The container, encoder and options of a video."""

    format: str
    """The name of the container in libavformat."""
    name: str
    """The name of the encoder in libavcodec."""
    options: dict[str, str]
    """Options of the encoder."""
    gray: Codec | None = None
    """The codec of grey frames of uint16; None if they cannot be encoded."""

    def with_options(self, crf: int | None = None, gop: int | None = None) -> Codec:
        """Returns the codec with a different constant rate factor or key frame interval."""
        changes = {'crf': crf, 'g': gop}
        options = {name: str(value) for name, value in changes.items() if value is not None}
        gray = None if self.gray is None else self.gray.with_options(crf, gop)
        return replace(self, options=self.options | options, gray=gray)


# Lossless without a constant rate factor. With the preset ultrafast, a frame of depth of 640 x 480 pixels
# takes 19 ms and 201 kB on two cores, with the default preset 72 ms and 199 kB. LeRobot does not find all
# frames of open groups of pictures, which are the default of libx265.
_HEVC_GRAY = Codec('mp4', 'libx265', {'g': str(KEYFRAME_INTERVAL), 'preset': 'ultrafast'})
MP4 = Codec('mp4', 'libx264', {'crf': '20', 'g': str(KEYFRAME_INTERVAL)}, _HEVC_GRAY)
# The default settings of libvpx are ten times slower.
_REALTIME = {'deadline': 'realtime', 'cpu-used': '8', 'row-mt': '1'}
WEBM = Codec('webm', 'libvpx-vp9', {'crf': '30', 'b': '0', 'g': str(KEYFRAME_INTERVAL), **_REALTIME})
_FFV1 = {'level': '3', 'slicecrc': '1', 'g': '1'}
MKV = Codec('matroska', 'ffv1', _FFV1, Codec('matroska', 'ffv1', _FFV1))


def as_frame(array: np.ndarray[Any, Any], codec: Codec) -> Frames:
    """Returns an array as a frame for a codec: RGB, or grey of uint16, shape (height, width).

    Raises:
        TypeError: The dtype is neither uint8 nor uint16, or the codec has no grey of uint16.
        ValueError: The array has another shape, or larger values than the codec.
    """
    if array.dtype == np.uint16:
        return _as_gray(array, codec)
    if array.dtype != np.uint8:
        deep = ', or of uint16 for grey such as depth' if codec.gray else ''
        raise TypeError(f'expected frames of uint8{deep}, got {array.dtype}')
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0:
        raise ValueError(f'expected frames of shape (height, width, 3), got {array.shape}')
    return array


def _as_gray(array: np.ndarray[Any, Any], codec: Codec) -> Frames:
    if codec.gray is None:
        raise TypeError(
            f'expected frames of uint8, got uint16: {codec.name} has no grey of more than 8 bits; mp4 has 12 '
            'bits, mkv has 16'
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f'expected grey frames of uint16, shape (height, width), got {array.shape}')
    if codec.gray.name == 'libx265' and min(array.shape) < MIN_HEVC_SIDE:
        raise ValueError(f'expected grey frames of {MIN_HEVC_SIDE} pixels a side or more, got {array.shape}')
    bits = GRAY_FORMATS[codec.gray.name][1]
    if bits < 16 and (largest := int(array.max())) >> bits:
        raise ValueError(
            f'expected grey of {bits} bits, values from 0 to {(1 << bits) - 1}, got {largest}; '
            'mkv and png have 16 bits'
        )
    return array


def write_frames(
    file: BinaryIO,
    frames: Iterator[tuple[Frames, int, int]],
    codec: Codec,
    fps: Fraction,
    time_base: Fraction,
    is_exact: bool = False,
) -> int:
    """Writes frames as a video that begins at time 0.

    Args:
        file: The file.
        frames: Frames that `as_frame` returned, each with its start and end in ticks.
        codec: Container and encoder; its `gray` is used for grey of uint16.
        fps: The average frame rate.
        time_base: Seconds per tick.
        is_exact: Whether to store the exact duration of each frame, including the last one. All packets are
            then kept in memory until the end.

    Returns:
        The number of frames.

    Raises:
        ValueError: Frames are missing, have several shapes, or a shape that the encoder does not support.
    """
    av = import_av()
    reformatter = av.video.reformatter
    first = next(frames, None)
    if first is None:
        raise ValueError('expected at least one frame, got none')
    shape, begin = first[0].shape, first[1]
    is_gray = len(shape) == 2
    if is_gray:
        assert codec.gray is not None
        codec = codec.gray
    durations: dict[int, int] = {}
    packets: list[Any] = []
    try:
        with av.open(file, 'w', format=codec.format) as container:
            write = packets.extend if is_exact else container.mux
            stream = _add_stream(container, shape, codec, fps)
            stream.codec_context.time_base = time_base
            convert = reformatter.VideoReformatter()
            # Before FFmpeg 8, with an odd width, the chroma of the last column is averaged with later bytes.
            interpolation = reformatter.Interpolation.BILINEAR | (FULL_CHROMA_INPUT if shape[1] % 2 else 0)
            buffer = None if is_gray else _frame_buffer(shape)
            for array, start, stop in itertools.chain([first], frames):
                if array.shape != shape:
                    raise ValueError(f'expected frames of shape {shape}, got {array.shape}')
                if buffer is None:
                    frame = _gray_frame(array, stream.pix_fmt)
                else:
                    # `from_ndarray` copies a 720p frame in 1.0 ms without releasing the GIL; this takes 0.2.
                    np.copyto(buffer, array)
                    frame = av.VideoFrame.from_numpy_buffer(buffer, format='rgb24')
                if buffer is not None and codec.name != 'ffv1':
                    frame = convert.reformat(
                        frame,
                        format=stream.pix_fmt,
                        interpolation=interpolation,
                        src_colorspace=reformatter.Colorspace.ITU709,
                        dst_colorspace=reformatter.Colorspace.ITU709,
                        dst_color_range=reformatter.ColorRange.MPEG,
                    )
                frame.pts, frame.duration, frame.time_base = start - begin, stop - start, time_base
                write(stream.encode(frame))
                durations[frame.pts] = frame.duration
            write(stream.encode(None))
            if is_exact:
                _mux_exactly(container, packets, durations)
    except av.FFmpegError as exc:
        raise ValueError(f'cannot encode {shape} with {codec.name}: {exc}') from exc
    finally:
        if codec.name == 'libsvtav1' and hasattr(os, 'SCHED_OTHER'):
            # For root, libsvtav1 gives the calling thread, and the threads it starts, real-time priority.
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return len(durations)


def _frame_buffer(shape: tuple[int, ...]) -> Frames:
    """Allocates a frame with aligned, padded rows: libswscale reads up to 16 bytes after each row."""
    height, width, channels = shape
    size = width * channels
    rows = np.zeros((height, -(-(size + 16) // 64) * 64), np.uint8)
    return rows[:, :size].reshape(height, width, channels)


def _gray_frame(array: Frames, format: str) -> Any:
    """Returns grey of uint16, shape (height, width), as a frame."""
    height, width = array.shape
    frame = import_av().VideoFrame(width, height, format)
    plane = frame.planes[0]
    rows = np.frombuffer(plane, np.dtype('<u2')).reshape(-1, plane.line_size // 2)
    rows[:height, :width] = array
    return frame


def _mux_exactly(container: Any, packets: list[Any], durations: dict[int, int]) -> None:
    """Writes all packets of a video with exact frame durations, including the last frame of an MP4."""
    times = np.array([packet.pts for packet in packets])
    shown = np.sort(times)
    decoded = decoding_times(times, shown, int(shown[-1]) + durations[int(shown[-1])])
    for packet, decoding_time in zip(packets, decoded.tolist(), strict=True):
        packet.duration, packet.dts = durations[packet.pts], decoding_time
        container.mux(packet)


def decoding_times(times: Int64s, shown: Int64s, end: int) -> Int64s:
    """Returns increasing decoding times of packets. Each is at most the presentation time of its frame.

    In MP4, the duration of a frame is the difference between its decoding time and the decoding time of the
    next packet. The result gives the right duration for the last presented frame, and therefore for the whole
    video.

    Args:
        times: The presentation times of packets, in decoding order.
        shown: The presentation times in ascending order.
        end: The end of the last frame.
    """
    decoded = shown - int((shown - times).max())
    last = int(times.argmax())
    if last + 1 < len(times):
        wrong = int(decoded[last + 1] - decoded[last]) - (end - int(shown[-1]))
        decoded[: last + 1] += min(wrong, 0)
        decoded[last + 1 :] -= max(wrong, 0)
    return decoded


def _add_stream(container: Any, shape: tuple[int, ...], codec: Codec, fps: Fraction) -> Any:
    is_gray, options = len(shape) == 2, codec.options
    if codec.name == 'libx265':
        parameters = [X265_PARAMETERS, *(['open-gop=0'] if is_gray else [])]
        parameters += ['lossless=1'] if is_gray and 'crf' not in options else []
        parameters += ['no-cutree=1'] if shape[0] * shape[1] < MIN_CUTREE_PIXELS else []
        options = options | {'x265-params': ':'.join(parameters)}
    stream = container.add_stream(codec.name, rate=fps, options=options)
    stream.height, stream.width = height, width = shape[:2]
    if is_gray:
        stream.pix_fmt = GRAY_FORMATS[codec.name][0]
        stream.codec_context.color_range = 2  # full
        return stream
    rgb = codec.name == 'ffv1'
    odd = codec.name in ('libx264', 'libx265') and (height % 2 or width % 2)
    stream.pix_fmt = 'bgr0' if rgb else 'yuv444p' if odd else 'yuv420p'
    context = stream.codec_context
    context.colorspace = 0 if rgb else 1  # RGB, BT.709
    context.color_primaries = context.color_trc = 1  # BT.709
    context.color_range = 2 if rgb else 1  # full, limited
    return stream
