"""WAV: uncompressed samples and their rate.

A value is a pair: the samples, shape (time, channels), and the sample rate in Hz, an int. Samples are
integers of full scale (int16 from -32768 to 32767, int32 likewise) or floats from -1 to 1. Encoding accepts
shape (time,) for one channel too; decoding always returns two dimensions.
"""

from __future__ import annotations

import operator
import os
import struct
from typing import Any, BinaryIO

import numpy as np

from bags.formats.encoded import BufferFile, Encoded, already_encoded, decodes
from bags.formats.scalars import MAX_VALUE_SIZE, Buffer, check_value_size

__all__ = ['Samples', 'decode_wav', 'encode_wav', 'find_samples', 'samples_and_rate', 'samples_of']

Samples = np.ndarray[Any, np.dtype[Any]]

_PCM, _IEEE, _EXTENSIBLE = 1, 3, 0xFFFE


def samples_and_rate(value: Any, *dtypes: str, max_channels: int) -> tuple[Samples, int]:
    """Returns the samples, shape (time, channels), and the rate of a value of an audio type.

    Raises:
        TypeError: Not a pair, or samples of none of the dtypes.
        ValueError: Another shape, or a rate below 1.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f'expected a pair of samples and rate, got {type(value).__name__}')
    samples = np.asarray(value[0])
    if samples.dtype.name not in dtypes:
        raise TypeError(f'expected samples of {" or ".join(dtypes)}, got {samples.dtype}')
    samples = samples[:, None] if samples.ndim == 1 else samples
    if samples.ndim != 2 or not 1 <= samples.shape[1] <= max_channels:
        raise ValueError(
            f'expected samples of shape (time, 1 to {max_channels} channels), got {samples.shape}'
        )
    try:
        rate = operator.index(value[1])
    except TypeError:
        raise TypeError(f'expected the rate as an integer, got {type(value[1]).__name__}') from None
    if not 1 <= rate < 2**31 or isinstance(value[1], bool):
        raise ValueError(f'expected a rate of 1 or more samples a second, got {value[1]}')
    return samples, rate


def encode_wav(value: Any) -> Encoded:
    """Encodes samples as WAV, losslessly: PCM for integers, IEEE for floats.

    Args:
        value: A pair of samples (int16, int32, float32 or float64, shape (time,) or (time, channels)) and
            rate; or a WAV file: bytes or a path.

    Raises:
        TypeError: Not a pair, or samples of another dtype.
        ValueError: Another shape, more than 4 GiB, or a file that is not WAV.
    """
    encoded = already_encoded(value, 'WAV')
    if encoded is not None:
        return encoded
    samples, rate = samples_and_rate(value, 'int16', 'int32', 'float32', 'float64', max_channels=65_535)
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
def decode_wav(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes a WAV of PCM or IEEE samples.

    Returns:
        Samples, shape (time, channels), and rate. PCM of 8 and 16 bits becomes int16, of 24 and 32 bits
        int32; 8 and 24 bits are shifted up, so that all have full scale. IEEE becomes float32 or float64.

    Raises:
        ValueError: Not WAV, cut off, compressed, or of more than `max_size` bytes.
    """
    form, start, stop = find_samples(BufferFile(data))  # type: ignore[arg-type]
    width = {8: 2, 24: 4}.get(form[5], form[5] // 8)
    check_value_size((stop - start) * 8 // max(form[5], 1) * width, max_size, 'the samples')
    return samples_of(memoryview(data)[start:stop], *form)


def find_samples(file: BinaryIO) -> tuple[tuple[int, ...], int, int]:
    """Finds the samples of a WAV by the headers of its chunks.

    Returns:
        Its format (tag, channels, rate, bytes a second, bytes of one sample of all channels, bits), and where
        the samples start and stop.
    """
    form: tuple[int, ...] | None = None
    whole = file.seek(0, os.SEEK_END)
    start = 12
    while start + 8 <= whole:
        file.seek(start)
        kind, size = struct.unpack('<4sI', file.read(8))
        start += 8
        if kind == b'data' and size == 2**32 - 1:
            size = whole - start  # Unknown size: written to a pipe.
        if start + size > whole:
            raise ValueError(f'WAV is cut off after {whole} bytes')
        if kind == b'fmt ':
            chunk = file.read(min(size, 40))
            form = struct.unpack_from('<HHIIHH', chunk)
            if form[0] == _EXTENSIBLE:
                form = (*struct.unpack_from('<H', chunk, 24), *form[1:])
        elif kind == b'data':
            if form is None:
                raise ValueError('WAV has samples before their format')
            return form, start, start + size
        start += size + size % 2
    raise ValueError('WAV is cut off before its samples')


def samples_of(
    data: memoryview, tag: int, channels: int, rate: int, _: int, stride: int, bits: int
) -> tuple[Samples, int]:
    """Returns the samples in bytes of a format as `find_samples` returns it, and their rate."""
    dtypes = {_PCM: {8: 'u1', 16: '<i2', 24: 'u1', 32: '<i4'}, _IEEE: {32: '<f4', 64: '<f8'}}
    dtype = dtypes.get(tag, {}).get(bits)
    if dtype is None:
        raise ValueError(f'expected WAV of PCM or IEEE samples, got format {tag:#06x} of {bits} bits')
    if not channels or not rate or stride != channels * bits // 8 or len(data) % stride:
        raise ValueError(
            f'WAV of {channels} channels, {bits} bits and {rate} Hz does not fit its {len(data)} bytes'
        )
    values = np.frombuffer(data, dtype)
    if bits == 24:
        padded = np.zeros((len(values) // 3, 4), np.uint8)
        padded[:, 1:] = values.reshape(-1, 3)
        values = padded.view('<i4')
    elif bits == 8:
        values = (values.astype(np.int16) - 128) << 8
    shaped = values.reshape(-1, channels)
    return np.array(shaped, shaped.dtype.newbyteorder('=')), rate
