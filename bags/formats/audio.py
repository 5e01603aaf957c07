"""FLAC and Opus, to and from samples and their rate: a pair, as described in `bags.formats.wav`."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bags.formats.encoded import BufferFile, Encoded, already_encoded, decodes
from bags.formats.ffmpeg import best_stream, import_av, open_container
from bags.formats.scalars import MAX_VALUE_SIZE, Buffer, check_count, check_value_size, whole_number
from bags.formats.wav import Samples, samples_and_rate

__all__ = [
    'OPUS_RATE',
    'VERIFY_CHECKSUMS',
    'decode_flac',
    'decode_opus',
    'encode_flac',
    'encode_opus',
    'opus_bitrate',
]

OPUS_RATE = 48_000
"""The sample rate of all decoded Opus."""

_LAYOUTS = ('mono', 'stereo', '3.0', 'quad', '5.0', '5.1', '6.1', '7.1')
_FORMATS = {'int16': 's16', 'int32': 's32', 'float32': 'flt'}
_FRAME_SAMPLES = 1 << 16
_BLOCK_LENGTHS = np.array([0, 192, 576, 1152, 2304, 4608, 256, 65536, *(1 << n for n in range(8, 16))])
_CHANNELS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 2, 2, 2, 0, 0, 0, 0, 0])
"""Samples at most, and channels, by their codes in the header of a FLAC frame."""
VERIFY_CHECKSUMS = {'err_detect': 'crccheck+explode'}
"""Options with which the FLAC decoder verifies the checksums of frames."""


def encode_flac(value: Any) -> Encoded:
    """Encodes samples as FLAC, losslessly.

    Args:
        value: A pair of samples and rate; or a FLAC file: bytes or a path. Samples are int16, or int32 whose
            lower 8 bits are 0 (24 bits shifted up, as `decode_wav` returns them), shape (time,) or
            (time, channels) with at most 8 channels; the rate is at most 655,350 Hz.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, no samples, samples of more than 24 bits, or a file that is not FLAC.
    """
    encoded = already_encoded(value, 'FLAC')
    if encoded is not None:
        return encoded
    samples, rate = samples_and_rate(value, 'int16', 'int32', max_channels=8)
    if samples.dtype == np.int32 and (samples & 0xFF).any():
        raise ValueError('expected int32 samples whose lower 8 bits are 0: FLAC stores 24 bits')
    if rate > 655_350:
        raise ValueError(f'expected a rate of at most 655350 Hz, got {rate}')
    return _encode(samples, rate, 'flac', 'flac', rate)


@decodes('FLAC')
def decode_flac(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes a FLAC.

    Returns:
        Samples, shape (time, channels), and rate: int16, or int32 shifted up if they have more than 16 bits.

    Raises:
        ValueError: Not FLAC, cut off, of more than `max_size` bytes, or damaged: frames have checksums, and
            the header has the number of samples.
    """
    info = int.from_bytes(data[18:26], 'big')
    expected = info & (1 << 36) - 1
    channels = (info >> 41 & 7) + 1
    sample_size = channels * (2 if info >> 36 & 31 < 16 else 4)
    check_value_size(expected * sample_size, max_size, f'{expected} samples')
    # Without a count if it was written to a pipe, and it may be wrong; a packet is limited to 2 GiB.
    as_one_packet = expected > 0 and len(data) < 2**31 - 64
    if as_one_packet and _max_samples(data) * sample_size // channels <= max_size:
        samples, rate = _decode_frames(data)
    else:
        samples, rate = _decode(data, 'FLAC', VERIFY_CHECKSUMS, max_size)
    if expected and len(samples) != expected:
        raise ValueError(f'FLAC is cut off or damaged: expected {expected} samples, got {len(samples)}')
    return samples, rate


def _max_samples(data: Buffer) -> int:
    """Returns an upper bound of the samples in a FLAC: those of every place where a frame may begin."""
    values = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero((values[:-3] == 0xFF) & (values[1:-2] & 0xFE == 0xF8))
    lengths, channels = _BLOCK_LENGTHS[values[starts + 2] >> 4], _CHANNELS[values[starts + 3] >> 4]
    return int((lengths * channels).sum())


def _decode_frames(data: Buffer) -> tuple[Samples, int]:
    """Decodes the frames of a FLAC as a single packet.

    libavcodec's parser, which splits the file in `_decode`, searches for the header of the next frame, and
    finds samples that look like one in 2 of 16,114 files of noise. The decoder itself knows where a frame
    ends. At damage it stops; av 18.1 raises only for the first frame, so the caller compares the number of
    samples.
    """
    av = import_av()
    start, last = 4, 0
    while not last:
        # A metadata block: 1 bit, whether it is the last; 7 bits, its kind; 24 bits, its length.
        (block,) = struct.unpack_from('>I', data, start)
        last, start = block >> 31, start + 4 + (block & 0xFFFFFF)
    context = av.CodecContext.create('flac', 'r')
    context.extradata = bytes(data[8:42])  # Stream info, always the first block.
    context.options = VERIFY_CHECKSUMS
    context.thread_count = 1  # With frame threads, the decoder reads one frame of a packet.
    # Of a size first: a packet over a buffer has no padding, so that the decoder reads past its end.
    packet = av.Packet(len(data) - start)
    packet.update(memoryview(data)[start:])
    frames = context.decode(packet)[::-1]
    return _joined((frames.pop() for _ in range(len(frames))), sys.maxsize)


def opus_bitrate(*args: str) -> int:
    """Parses the argument of `opus(kbps)`: 6 to 510 kbit/s, 128 by default."""
    check_count(args, 1, 'opus(kbps)')
    return whole_number(args[0], 6, 510, 'kbit/s') if args else 128


def encode_opus(value: Any, *args: str) -> Encoded:
    """Encodes samples as Opus in Ogg, resampled to 48 kHz.

    Args:
        value: A pair of samples (int16 or float32, shape (time,) or (time, channels), one or two channels)
            and rate; or a file of Opus in Ogg: bytes or a path.
        *args: The bit rate in kbit/s, 6 to 510; 128 by default.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, no samples, or a file that is not Opus in Ogg.
    """
    bitrate = opus_bitrate(*args)
    encoded = already_encoded(value, 'Ogg Opus')
    if encoded is not None:
        return encoded
    samples, rate = samples_and_rate(value, 'int16', 'float32', max_channels=2)
    return _encode(samples, rate, 'ogg', 'libopus', OPUS_RATE, bitrate)


@decodes('Ogg Opus')
def decode_opus(data: Buffer, *_args: str, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes Opus in Ogg.

    Returns:
        float32 samples, shape (time, channels), and their rate, always 48,000. Records of `encode_opus` have
        `ceil(time * 48000 / rate)` samples: priming and padding are removed.

    Raises:
        ValueError: Not Opus in Ogg, cut off, damaged, or of more than `max_size` bytes.
    """
    return _decode(data, 'Ogg Opus', {}, max_size)


def _encode(
    samples: Samples, rate: int, container: str, codec: str, codec_rate: int, kbps: int | None = None
) -> bytes:
    av = import_av()
    if not len(samples):
        raise ValueError('expected at least one sample, got none')
    samples = samples.astype(samples.dtype.newbyteorder('='), copy=False)
    if codec_rate != rate:
        samples = _resample(av, samples, rate, codec_rate)
    form = _form(samples)
    file = io.BytesIO()
    try:
        with av.open(file, 'w', format=container) as output:
            stream = output.add_stream(codec, rate=codec_rate, layout=form['layout'])
            stream.format = form['format']
            if kbps is not None:
                stream.bit_rate = 1000 * kbps
            for frame in _frames(av, samples, codec_rate):
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    except av.FFmpegError as exc:
        raise ValueError(f'cannot encode {samples.shape} at {rate} Hz as {codec}: {exc}') from exc
    return file.getvalue()


def _form(samples: Samples) -> dict[str, str]:
    """Returns the sample format and the channel layout, as FFmpeg names them."""
    return {'format': _FORMATS[samples.dtype.name], 'layout': _LAYOUTS[samples.shape[1] - 1]}


def _frames(av: Any, samples: Samples, rate: int) -> Iterator[Any]:
    for start in range(0, len(samples), _FRAME_SAMPLES):
        block = np.ascontiguousarray(samples[start : start + _FRAME_SAMPLES])
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), **_form(samples))
        frame.sample_rate, frame.pts = rate, start
        yield frame


def _resample(av: Any, samples: Samples, rate: int, new_rate: int) -> Samples:
    """Resamples to the number of samples that covers the same time, rounded up."""
    resampler = av.AudioResampler(**_form(samples), rate=new_rate)
    blocks = [
        out.to_ndarray() for frame in (*_frames(av, samples, rate), None) for out in resampler.resample(frame)
    ]
    result = np.zeros((-(-len(samples) * new_rate // rate), samples.shape[1]), samples.dtype)
    found = np.concatenate([result[:0], *(block.reshape(-1, samples.shape[1]) for block in blocks)])
    result[: len(found)] = found[: len(result)]  # Of a single sample the resampler returns none.
    return result


def _decode(data: Buffer, name: str, options: dict[str, str], max_size: int) -> tuple[Samples, int]:
    with open_container(BufferFile(data), name) as container:
        stream = best_stream(container, 'audio')
        stream.codec_context.options = options
        return _joined(container.decode(stream), max_size)


def _joined(frames: Iterable[Any], max_size: int) -> tuple[Samples, int]:
    """Returns the samples of frames of libavcodec, shape (time, channels), and their rate."""
    blocks: list[Samples] = []
    layouts = set()
    size = 0
    for frame in frames:
        if frame.is_corrupt:
            raise ValueError(f'audio is damaged in block {len(blocks)}')
        block = frame.to_ndarray()
        size += block.nbytes
        check_value_size(size, max_size, f'the first {len(blocks) + 1} blocks of samples')
        blocks.append(block.T if frame.format.is_planar else block.reshape(-1, frame.layout.nb_channels))
        layouts.add((frame.sample_rate, frame.layout.nb_channels))
    if not blocks:
        raise ValueError('expected at least one sample, got none')
    if len(layouts) != 1:
        raise ValueError(f'expected one rate and number of channels, got {sorted(layouts)}')
    return np.ascontiguousarray(np.concatenate(blocks)), frame.sample_rate
