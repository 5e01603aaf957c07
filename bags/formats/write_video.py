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

Frames = np.ndarray[Any, np.dtype[np.uint8]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]

FULL_CHROMA_INPUT = 0x4000
"""SWS_FULL_CHR_H_INP of libswscale, missing in PyAV 15: computes the chroma of every pixel."""
KEYFRAME_INTERVAL = 32
"""Frames from one key frame to the next. A slice is decoded from the preceding key frame. The default of
libx264, 250, saves about 5% of the bytes, and makes slices eight times slower."""


@dataclass(frozen=True)
class Codec:
    """The container, encoder and options of a video."""

    format: str
    """The name of the container in libavformat."""
    name: str
    """The name of the encoder in libavcodec."""
    options: dict[str, str]
    """Options of the encoder."""

    def with_options(self, crf: int | None = None, gop: int | None = None) -> Codec:
        """Returns the codec with a different constant rate factor or key frame interval."""
        changes = {'crf': crf, 'g': gop}
        options = {name: str(value) for name, value in changes.items() if value is not None}
        return replace(self, options=self.options | options)


MP4 = Codec('mp4', 'libx264', {'crf': '20', 'g': str(KEYFRAME_INTERVAL)})
# The default settings of libvpx are ten times slower.
_REALTIME = {'deadline': 'realtime', 'cpu-used': '8', 'row-mt': '1'}
WEBM = Codec('webm', 'libvpx-vp9', {'crf': '30', 'b': '0', 'g': str(KEYFRAME_INTERVAL), **_REALTIME})
MKV = Codec('matroska', 'ffv1', {'level': '3', 'slicecrc': '1', 'g': '1'})


def check_frame(frame: np.ndarray[Any, Any]) -> None:
    """Raises TypeError or ValueError for an array that is not an RGB frame."""
    if frame.dtype != np.uint8:
        raise TypeError(f'expected frames of uint8, got {frame.dtype}')
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.size == 0:
        raise ValueError(f'expected frames of shape (height, width, 3), got {frame.shape}')


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
        frames: Frames, each with its start and end in ticks.
        codec: Container and encoder.
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
            buffer = _frame_buffer(shape)
            for array, start, stop in itertools.chain([first], frames):
                if array.shape != shape:
                    raise ValueError(f'expected frames of shape {shape}, got {array.shape}')
                # `from_ndarray` copies a 720p frame in 1.0 ms without releasing the GIL; this takes 0.2 ms.
                np.copyto(buffer, array)
                frame = av.VideoFrame.from_numpy_buffer(buffer, format='rgb24')
                if codec.name != 'ffv1':
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
    stream = container.add_stream(codec.name, rate=fps, options=codec.options)
    stream.height, stream.width = height, width = shape[:2]
    rgb = codec.name == 'ffv1'
    odd = codec.name in ('libx264', 'libx265') and (height % 2 or width % 2)
    stream.pix_fmt = 'bgr0' if rgb else 'yuv444p' if odd else 'yuv420p'
    context = stream.codec_context
    context.colorspace = 0 if rgb else 1  # RGB, BT.709
    context.color_primaries = context.color_trc = 1  # BT.709
    context.color_range = 2 if rgb else 1  # full, limited
    return stream
