"""Audio: samples and their rate, to and from FLAC and Opus.

A value is a pair, as `bags.formats.wav` describes it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from bags.formats.arguments import check_count, whole_number
from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.ffmpeg import import_av, open_stream
from bags.formats.scalars import Buffer
from bags.formats.wav import Samples, samples_and_rate

__all__ = ['CHECKED', 'OPUS_RATE', 'decode_flac', 'decode_opus', 'encode_flac', 'encode_opus', 'opus_bitrate']

OPUS_RATE = 48_000
"""Samples a second of all Opus, whatever went in."""

_LAYOUTS = ('mono', 'stereo', '3.0', 'quad', '5.0', '5.1', '6.1', '7.1')
_BLOCK = 1 << 16
CHECKED = {'err_detect': 'crccheck+explode'}
"""Options with which a decoder of FLAC looks at the checksums of frames."""


def encode_flac(value: Any) -> Encoded:
    """Encodes samples as FLAC, exactly.

    Args:
        value: A pair of samples and rate; or what is FLAC already: bytes or a path. Samples are int16, or
            int32 whose lower 8 bits are 0 (24 bits in the upper ones, as `decode_wav` gives them), shape
            (time,) or (time, channels) with at most 8 channels; the rate at most 655,350.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, no samples, samples of more than 24 bits, or a file that is not FLAC.
    """
    encoded = already_encoded(value, 'FLAC')
    if encoded is not None:
        return encoded
    samples, rate = samples_and_rate(value, 'int16', 'int32', most_channels=8)
    if samples.dtype == np.int32 and (samples & 0xFF).any():
        raise ValueError('expected int32 samples whose lower 8 bits are 0: FLAC holds 24 bits')
    if rate > 655_350:
        raise ValueError(f'expected at most 655350 samples a second, got {rate}')
    return _encode(samples, rate, 'flac', 'flac', 's16' if samples.dtype == np.int16 else 's32', rate)


@decodes('FLAC')
def decode_flac(data: Buffer) -> tuple[Samples, int]:
    """Decodes a FLAC.

    Returns:
        Samples, shape (time, channels), and rate: int16, or int32 with the bits in the upper ones if they are
        more than 16.

    Raises:
        ValueError: Not FLAC, cut off, or damaged: frames have checksums, and the header says how many samples
            there are.
    """
    expected = int.from_bytes(data[18:26], 'big') & (1 << 36) - 1
    # What was written to a pipe does not say how many there are; a packet holds less than 2 GiB.
    framed = expected > 0 and len(data) < 2**31 - 64
    samples, rate = _decode_frames(data) if framed else _decode(data, 'flac', CHECKED)
    if expected and len(samples) != expected:
        raise ValueError(f'FLAC is cut off or damaged: expected {expected} samples, got {len(samples)}')
    return samples, rate


def _decode_frames(data: Buffer) -> tuple[Samples, int]:
    """Decodes the frames of a FLAC one after another, each beginning where the one before ended.

    A frame does not say how long it is. libavcodec's parser, which `_decode` has cut frames apart, looks for
    what may be the header of the next one. Where samples of the last frame look like a header (in 2 of 16,114
    files of noise), it hands out the bytes before them a second time, as a frame that is damaged. Only the
    decoder knows where a frame ends, and it takes all of them as one packet. At damage it stops; av 18.1
    raises then only if that is the first frame, so the caller counts the samples.
    """
    av = import_av()
    start, last = 4, 0
    while not last:
        # A block of metadata: 1 bit, whether it is the last; 7 bits, its kind; 24 bits, its length.
        (block,) = struct.unpack_from('>I', data, start)
        last, start = block >> 31, start + 4 + (block & 0xFFFFFF)
    context = av.CodecContext.create('flac', 'r')
    context.extradata = bytes(data[8:42])  # Stream info, always the first block.
    context.options = CHECKED
    context.thread_count = 1  # Frame threads would take one frame of a packet.
    frames = context.decode(av.Packet(memoryview(data)[start:]))[::-1]
    return _joined(frames.pop() for _ in range(len(frames)))


def opus_bitrate(*args: str) -> int:
    """Reads the argument of `opus(kbps)`: 6 to 510 kilobits a second, 128 unless told."""
    check_count(args, 1, 'opus(kbps)')
    return whole_number(args[0], 6, 510, 'kilobits a second') if args else 128


def encode_opus(value: Any, *args: str) -> Encoded:
    """Encodes samples as Opus in Ogg, at 48,000 samples a second.

    Args:
        value: A pair of samples (int16 or float32, shape (time,) or (time, channels), one or two channels)
            and rate, from which they are resampled; or what is Opus in Ogg already: bytes or a path.
        *args: Kilobits a second, 6 to 510; 128 unless told.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, no samples, or a file that is not Opus in Ogg.
    """
    bitrate = opus_bitrate(*args)
    encoded = already_encoded(value, 'Ogg Opus')
    if encoded is not None:
        return encoded
    samples, rate = samples_and_rate(value, 'int16', 'float32', most_channels=2)
    format = 's16' if samples.dtype == np.int16 else 'flt'
    return _encode(samples, rate, 'ogg', 'libopus', format, OPUS_RATE, bitrate)


@decodes('Ogg Opus')
def decode_opus(data: Buffer, *_args: str) -> tuple[Samples, int]:
    """Decodes Opus in Ogg.

    Returns:
        float32 samples, shape (time, channels), and their rate, which is always 48,000. What `encode_opus`
        wrote has `ceil(time * 48000 / rate)` of them: those that the codec adds before and after are cut
        away.

    Raises:
        ValueError: Not Opus in Ogg, cut off, or damaged.
    """
    return _decode(data, 'ogg', {})


def _encode(
    samples: Samples,
    rate: int,
    container: str,
    codec: str,
    format: str,
    codec_rate: int,
    kbps: int | None = None,
) -> bytes:
    av = import_av()
    if not len(samples):
        raise ValueError('expected at least one sample, got none')
    samples = samples.astype(samples.dtype.newbyteorder('='), copy=False)
    if codec_rate != rate:
        samples = _resample(av, samples, rate, codec_rate, format)
    layout = _LAYOUTS[samples.shape[1] - 1]
    file = io.BytesIO()
    try:
        with av.open(file, 'w', format=container) as output:
            stream = output.add_stream(codec, rate=codec_rate, layout=layout)
            stream.format = format
            if kbps is not None:
                stream.bit_rate = 1000 * kbps
            for start in range(0, len(samples), _BLOCK):
                block = np.ascontiguousarray(samples[start : start + _BLOCK])
                frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format=format, layout=layout)
                frame.sample_rate, frame.pts = codec_rate, start
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    except av.FFmpegError as exc:
        raise ValueError(f'cannot encode {samples.shape} at {rate} Hz as {codec}: {exc}') from exc
    return file.getvalue()


def _resample(av: Any, samples: Samples, rate: int, new_rate: int, format: str) -> Samples:
    """Resamples to as many samples as cover the same time, rounded up."""
    layout = _LAYOUTS[samples.shape[1] - 1]
    resampler = av.AudioResampler(format=format, layout=layout, rate=new_rate)
    blocks = []
    for start in range(0, len(samples), _BLOCK):
        block = np.ascontiguousarray(samples[start : start + _BLOCK])
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format=format, layout=layout)
        frame.sample_rate, frame.pts = rate, start
        blocks += [out.to_ndarray() for out in resampler.resample(frame)]
    blocks += [out.to_ndarray() for out in resampler.resample(None)]
    result = np.zeros((-(-len(samples) * new_rate // rate), samples.shape[1]), samples.dtype)
    found = np.concatenate([result[:0], *(block.reshape(-1, samples.shape[1]) for block in blocks)])
    result[: len(found)] = found[: len(result)]  # A single sample is too few for it to give any.
    return result


def _decode(data: Buffer, format: str, options: dict[str, str]) -> tuple[Samples, int]:
    with open_stream(data, format, 'audio') as (container, stream):
        stream.codec_context.options = options
        return _joined(container.decode(stream))


def _joined(frames: Iterable[Any]) -> tuple[Samples, int]:
    """The samples of libavcodec's frames, shape (time, channels), and their rate."""
    blocks: list[Samples] = []
    layouts = set()
    for frame in frames:
        if frame.is_corrupt:
            raise ValueError(f'audio is damaged in block {len(blocks)}')
        block = frame.to_ndarray()
        blocks.append(block.T if frame.format.is_planar else block.reshape(-1, frame.layout.nb_channels))
        layouts.add((frame.sample_rate, frame.layout.nb_channels))
    if not blocks:
        raise ValueError('expected at least one sample, got none')
    if len(layouts) != 1:
        raise ValueError(f'expected one rate and as many channels throughout, got {sorted(layouts)}')
    return np.ascontiguousarray(np.concatenate(blocks)), frame.sample_rate
