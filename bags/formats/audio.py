"""Audio: samples and their rate, to and from WAV, FLAC and Opus.

A value is a pair: the samples, shape (time, channels), and the samples a second of each channel, an int.
Samples are integers of full scale (int16 from -32768 to 32767, int32 likewise) or floats, of which full scale
is -1 to 1. Writing takes shape (time,) for one channel too; reading always gives two dimensions.
"""

from __future__ import annotations

import io
import operator
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.arguments import check_count, whole_number
from bags.formats.media import BufferFile, Encoded, already_encoded, decodes
from bags.formats.scalars import Buffer

__all__ = [
    'OPUS_RATE',
    'decode_flac',
    'decode_opus',
    'decode_wav',
    'encode_flac',
    'encode_opus',
    'encode_wav',
    'opus_bitrate',
]

Samples = np.ndarray[Any, np.dtype[Any]]

OPUS_RATE = 48_000
"""Samples a second of all Opus, whatever went in."""

_LAYOUTS = ('mono', 'stereo', '3.0', 'quad', '5.0', '5.1', '6.1', '7.1')
_PCM, _IEEE, _EXTENSIBLE = 1, 3, 0xFFFE
_BLOCK = 1 << 16
_CHECKED = {'err_detect': 'crccheck+explode'}


def encode_wav(value: Any) -> Encoded:
    """Encodes samples as WAV, exactly: PCM for integers, IEEE for floats.

    Args:
        value: A pair of samples (int16, int32, float32 or float64, shape (time,) or (time, channels)) and
            rate; or what is WAV already: bytes or a path.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, more than 4 GiB, or a file that is not WAV.
    """
    encoded = already_encoded(value, 'WAV')
    if encoded is not None:
        return encoded
    samples, rate = _pair(value, 'int16', 'int32', 'float32', 'float64', most_channels=65_535)
    data = samples.astype(samples.dtype.newbyteorder('<'), copy=False).tobytes()
    tag = _PCM if samples.dtype.kind == 'i' else _IEEE
    channels, width = samples.shape[1], samples.dtype.itemsize
    form = struct.pack(
        '<HHIIHH', tag, channels, rate, rate * channels * width % 2**32, channels * width, 8 * width
    )
    chunks = [(b'fmt ', form), (b'data', data)]
    if tag == _IEEE:
        chunks = [(b'fmt ', form + b'\0\0'), (b'fact', struct.pack('<I', len(samples))), (b'data', data)]
    if channels * width >= 2**16 or len(data) >= 2**32 - 100:
        raise ValueError(f'expected samples that WAV can hold, got {samples.shape} of {samples.dtype}')
    body = b''.join(part for kind, chunk in chunks for part in (kind, struct.pack('<I', len(chunk)), chunk))
    return b'RIFF' + struct.pack('<I', 4 + len(body)) + b'WAVE' + body


@decodes('WAV')
def decode_wav(data: Buffer) -> tuple[Samples, int]:
    """Decodes a WAV of PCM or IEEE samples.

    Returns:
        Samples, shape (time, channels), and rate. PCM of 8 and 16 bits gives int16, of 24 and 32 bits int32,
        those of 8 and 24 bits in the upper bits, so that all have full scale. IEEE gives float32 or float64.

    Raises:
        ValueError: Not WAV, cut off, or compressed.
    """
    view = memoryview(data)
    form: tuple[int, ...] | None = None
    start = 12
    while start + 8 <= len(view):
        kind, size = struct.unpack_from('<4sI', view, start)
        start += 8
        if kind == b'data' and size == 2**32 - 1:
            size = len(view) - start  # Written to a pipe, before its length was known.
        if start + size > len(view):
            raise ValueError(f'WAV is cut off after {len(view)} bytes')
        chunk = view[start : start + size]
        if kind == b'fmt ':
            form = struct.unpack_from('<HHIIHH', chunk)
            if form[0] == _EXTENSIBLE:
                form = (*struct.unpack_from('<H', chunk, 24), *form[1:])
        elif kind == b'data':
            if form is None:
                raise ValueError('WAV has samples before their format')
            return _samples(chunk, *form)
        start += size + size % 2
    raise ValueError('WAV is cut off before its samples')


def _samples(
    data: memoryview, tag: int, channels: int, rate: int, _: int, stride: int, bits: int
) -> tuple[Samples, int]:
    dtype = {
        (_PCM, 8): 'u1',
        (_PCM, 16): '<i2',
        (_PCM, 24): 'u1',
        (_PCM, 32): '<i4',
        (_IEEE, 32): '<f4',
        (_IEEE, 64): '<f8',
    }
    if (tag, bits) not in dtype:
        raise ValueError(f'expected WAV of PCM or IEEE samples, got format {tag:#06x} of {bits} bits')
    if not channels or not rate or stride != channels * bits // 8 or len(data) % stride:
        raise ValueError(
            f'WAV of {channels} channels, {bits} bits and {rate} Hz does not fit its {len(data)} bytes'
        )
    values = np.frombuffer(data, dtype[tag, bits]) if len(data) else np.empty(0, dtype[tag, bits])
    if bits == 24:
        values = np.zeros((len(values) // 3, 4), np.uint8)
        values[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3) if len(data) else 0
        values = values.view('<i4')
    elif bits == 8:
        values = (values.astype(np.int16) - 128) << 8
    shaped = values.reshape(-1, channels)
    return np.array(shaped, shaped.dtype.newbyteorder('=')), rate


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
    samples, rate = _pair(value, 'int16', 'int32', most_channels=8)
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
    samples, rate = _decode_frames(data) if framed else _decode(data, 'flac', _CHECKED)
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
    av = _av()
    start, last = 4, 0
    while not last:
        # A block of metadata: 1 bit, whether it is the last; 7 bits, its kind; 24 bits, its length.
        (block,) = struct.unpack_from('>I', data, start)
        last, start = block >> 31, start + 4 + (block & 0xFFFFFF)
    context = av.CodecContext.create('flac', 'r')
    context.extradata = bytes(data[8:42])  # Stream info, always the first block.
    context.options = _CHECKED
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
    samples, rate = _pair(value, 'int16', 'float32', most_channels=2)
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


def _pair(value: Any, *dtypes: str, most_channels: int) -> tuple[Samples, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f'expected a pair of samples and rate, got {type(value).__name__}')
    samples = np.asarray(value[0])
    if samples.dtype.name not in dtypes:
        raise TypeError(f'expected samples of {" or ".join(dtypes)}, got {samples.dtype}')
    samples = samples[:, None] if samples.ndim == 1 else samples
    if samples.ndim != 2 or not 1 <= samples.shape[1] <= most_channels:
        raise ValueError(
            f'expected samples of shape (time, 1 to {most_channels} channels), got {samples.shape}'
        )
    try:
        rate = operator.index(value[1])
    except TypeError:
        raise TypeError(f'expected the rate as an integer, got {type(value[1]).__name__}') from None
    if not 1 <= rate < 2**31 or isinstance(value[1], bool):
        raise ValueError(f'expected a rate of 1 or more samples a second, got {value[1]}')
    return samples, rate


def _av() -> Any:
    try:
        import av
    except ImportError as exc:
        raise MissingDependencyError('av', 'video') from exc
    return av


def _encode(
    samples: Samples,
    rate: int,
    container: str,
    codec: str,
    format: str,
    codec_rate: int,
    kbps: int | None = None,
) -> bytes:
    av = _av()
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
    av = _av()
    with av.open(BufferFile(data), format=format, metadata_errors='replace') as container:
        stream = container.streams.best('audio')
        # Without a context, of a codec that is unknown, av before 18.1 crashes in `decode`.
        if stream is None or stream.codec_context is None:
            raise ValueError('expected audio, got none in the file that can be decoded')
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
