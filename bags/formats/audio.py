"""WAV, FLAC and Opus: encodes and decodes samples with their rate.

| type | encodes | decodes to |
| --- | --- | --- |
| `wav` | int16, int32 as PCM, float32, float64 as IEEE; below 4 GiB | the same; 8 and 24 bits shifted up |
| `flac` | int16, 24 bits shifted up to int32; up to 8 channels, 655,350 Hz | int16; int32 above 16 bits |
| `opus(kbps)` | int16, float32; one or two channels; resampled to 48 kHz | float32 at 48 kHz |

A value is a pair of the samples, shape (time, channels), and the sample rate in Hz, an int. Samples are
full-scale integers (int16 from -32768 to 32767, int32 likewise) or floats from -1 to 1. Encoding also accepts
shape (time,) for a single channel. Decoding always returns two dimensions.

Encoders also accept a file of their format, as bytes or a path. They raise TypeError for other values or
dtypes, and ValueError for other shapes or files of another format. Decoders raise ValueError if the file has
another format, is cut off or damaged, or if its samples take more than `max_size` bytes.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.ffmpeg import best_stream, frame_samples, import_av, open_container
from bags.formats.flac import first_frame, max_samples, read_stream_info
from bags.formats.samples import Samples, audio_frames, checked_samples, resampled, sample_format
from bags.formats.scalars import MAX_VALUE_SIZE, Buffer, check_count, check_value_size, parse_int
from bags.storage.range_file import BufferFile

_PCM, _IEEE, _EXTENSIBLE = 1, 3, 0xFFFE

OPUS_RATE = 48_000
"""The sample rate of decoded Opus."""

VERIFY_CHECKSUMS = {'err_detect': 'crccheck+explode'}
"""Options with which the FLAC decoder verifies the checksums of its frames."""


def encode_wav(value: Any) -> Encoded:
    """Encodes samples as WAV, losslessly."""
    encoded = already_encoded(value, 'WAV')
    if encoded is not None:
        return encoded
    samples, rate = checked_samples(value, 'wav')
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
    body = b''.join(part for name, chunk in chunks for part in (name, struct.pack('<I', len(chunk)), chunk))
    return b'RIFF' + struct.pack('<I', 4 + len(body)) + b'WAVE' + body


@decodes('WAV')
def decode_wav(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes a WAV with PCM or IEEE samples."""
    form, start, stop = find_samples(BufferFile(data))  # type: ignore[arg-type]
    width = {8: 2, 24: 4}.get(form[5], form[5] // 8)
    check_value_size((stop - start) * 8 // max(form[5], 1) * width, max_size, 'the samples')
    return samples_of(memoryview(data)[start:stop], *form)


def find_samples(file: BinaryIO) -> tuple[tuple[int, ...], int, int]:
    """Locates the samples of a WAV by the headers of its chunks.

    Returns:
        The format (tag, channels, rate, bytes per second, bytes of one sample of all channels, bits), and the
        offsets of the start and the end of the whole samples.

    Raises:
        ValueError: The file is cut off, or has no samples.
    """
    form: tuple[int, ...] | None = None
    whole = file.seek(0, os.SEEK_END)
    file.seek(4)
    riff_stop = 8 + int.from_bytes(file.read(4), 'little')
    start = 12
    while start + 8 <= whole:
        file.seek(start)
        chunk, size = struct.unpack('<4sI', file.read(8))
        start += 8
        if (
            chunk == b'data'
            and form is not None
            and (
                size == 2**32 - 1
                or (not size and (riff_stop <= start or not _are_chunks(file, start, whole)))
            )
        ):
            # The file was written to a pipe, or its writer was killed: the header lacks the real size.
            size = whole - start
        if start + size > whole:
            raise ValueError(f'WAV is cut off after {whole} bytes')
        if chunk == b'fmt ':
            if size < 16:
                raise ValueError(f'WAV has a format of {size} bytes, expected at least 16')
            fields = file.read(min(size, 40))
            form = struct.unpack_from('<HHIIHH', fields)
            if form[0] == _EXTENSIBLE:
                if size < 26:
                    raise ValueError(f'WAV has an extensible format of {size} bytes, expected at least 26')
                form = (*struct.unpack_from('<H', fields, 24), *form[1:])
        elif chunk == b'data':
            if form is None:
                raise ValueError('WAV has samples before their format')
            # A recorder that stopped may leave a part of a sample at the end, which players ignore.
            return form, start, start + size - size % max(form[4], 1)
        start += size + size % 2
    raise ValueError('WAV is cut off before its samples')


def _are_chunks(file: BinaryIO, start: int, stop: int) -> bool:
    """Returns whether a part of a WAV consists of chunks, and not of samples."""
    while start + 8 <= stop:
        file.seek(start)
        name, size = struct.unpack('<4sI', file.read(8))
        if not (name.isascii() and name.decode('ascii').isprintable()):
            return False
        start += 8 + size + size % 2
    return abs(stop - start) <= 1  # The last chunk may lack its padding.


def samples_of(
    data: memoryview, tag: int, channels: int, rate: int, _: int, stride: int, bits: int
) -> tuple[Samples, int]:
    """Returns the samples in `data`, and their rate, for a format that `find_samples` returned."""
    dtypes = {_PCM: {8: 'u1', 16: '<i2', 24: 'u1', 32: '<i4'}, _IEEE: {32: '<f4', 64: '<f8'}}
    dtype = dtypes.get(tag, {}).get(bits)
    if dtype is None:
        raise ValueError(f'expected WAV of PCM or IEEE samples, got format {tag:#06x} of {bits} bits')
    if not channels or not rate or stride != channels * bits // 8 or len(data) % stride:
        raise ValueError(
            f'WAV of {channels} channels, {bits} bits and {rate} Hz does not fit its {len(data)} bytes'
        )
    values: Samples = np.frombuffer(data, dtype)
    if bits == 24:
        padded = np.zeros((len(values) // 3, 4), np.uint8)
        padded[:, 1:] = values.reshape(-1, 3)
        values = padded.view('<i4')
    elif bits == 8:
        values = (values.astype(np.int16) - 128) << 8
    shaped = values.reshape(-1, channels)
    return np.array(shaped, shaped.dtype.newbyteorder('=')), rate


def encode_flac(value: Any) -> Encoded:
    """Encodes samples (at least one) as FLAC, losslessly."""
    encoded = already_encoded(value, 'FLAC')
    if encoded is not None:
        return encoded
    samples, rate = checked_samples(value, 'flac')
    return _encode(samples, rate, 'flac', 'flac', rate)


@decodes('FLAC')
def decode_flac(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes a FLAC. Detects damage by the checksums of frames, and the number of samples in the header."""
    info = read_stream_info(data)
    expected, width = info.length, 2 if info.bits <= 16 else 4
    check_value_size(expected * info.channels * width, max_size, f'{expected} samples')
    # The count is missing if the file was written to a pipe, and may be wrong. Packets are limited to 2 GiB.
    as_one_packet = expected > 0 and len(data) < 2**31 - 64
    if as_one_packet and max_samples(data) * width <= max_size:
        samples, rate = _decode_frames(data)
    else:
        samples, rate = _decode(data, 'FLAC', VERIFY_CHECKSUMS, max_size)
    if expected and len(samples) != expected:
        raise ValueError(f'FLAC is cut off or damaged: expected {expected} samples, got {len(samples)}')
    return samples, rate


def _decode_frames(data: Buffer) -> tuple[Samples, int]:
    """Decodes the frames of a FLAC as a single packet.

    The parser of libavcodec, which splits the file in `_decode`, searches for the header of the next frame.
    In 2 of 16,114 files of noise, it finds samples that look like a header. The decoder itself determines
    where a frame ends. It stops at damage, but av 18.1 raises only for the first frame, so the caller has to
    compare the number of samples.
    """
    av = import_av()
    start = first_frame(data)
    context = av.CodecContext.create('flac', 'r')
    context.extradata = bytes(data[8:42])  # The stream info, which is always the first block.
    context.options = VERIFY_CHECKSUMS
    context.thread_count = 1  # With frame threads, the decoder reads only one frame of a packet.
    # Allocating by size adds padding: the decoder reads a little beyond the end of a packet.
    packet = av.Packet(len(data) - start)
    packet.update(memoryview(data)[start:])
    frames = context.decode(packet)[::-1]
    return _joined((frames.pop() for _ in range(len(frames))), sys.maxsize)


def opus_bitrate(*args: str) -> int:
    """Parses the argument of `opus(kbps)`: 6 to 510 kbit/s, 128 by default."""
    check_count(args, 1, 'opus(kbps)')
    return parse_int(args[0], 6, 510, 'kbit/s') if args else 128


def encode_opus(value: Any, *args: str) -> Encoded:
    """Encodes samples (at least one), resampled to 48 kHz, as Opus in Ogg. The argument is the bit rate."""
    bitrate = opus_bitrate(*args)
    encoded = already_encoded(value, 'Ogg Opus')
    if encoded is not None:
        return encoded
    samples, rate = checked_samples(value, 'opus')
    return _encode(samples, rate, 'ogg', 'libopus', OPUS_RATE, bitrate)


@decodes('Ogg Opus')
def decode_opus(data: Buffer, *_args: str, max_size: int = MAX_VALUE_SIZE) -> tuple[Samples, int]:
    """Decodes Opus in Ogg, and removes priming and padding.

    Records of `encode_opus` decode to `ceil(time * 48000 / rate)` samples.
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
        samples = np.concatenate(list(resampled([samples], rate, codec_rate)))
    form = sample_format(samples)
    file = io.BytesIO()
    try:
        with av.open(file, 'w', format=container) as output:
            stream = output.add_stream(codec, rate=codec_rate, layout=form['layout'])
            stream.format = form['format']
            if kbps is not None:
                stream.bit_rate = 1000 * kbps
            for frame in audio_frames(samples, codec_rate):
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    except av.FFmpegError as exc:
        raise ValueError(f'cannot encode {samples.shape} at {rate} Hz as {codec}: {exc}') from exc
    return file.getvalue()


def _decode(data: Buffer, name: str, options: dict[str, str], max_size: int) -> tuple[Samples, int]:
    with open_container(BufferFile(data), name) as container:
        stream = best_stream(container, 'audio')
        stream.codec_context.options = options
        return _joined(container.decode(stream), max_size)


def _joined(frames: Iterable[Any], max_size: int) -> tuple[Samples, int]:
    """Concatenates the samples of decoded frames, shape (time, channels). Also returns their rate."""
    blocks: list[Samples] = []
    layouts = set()
    size = 0
    for frame in frames:
        if frame.is_corrupt:
            raise ValueError(f'audio is damaged in block {len(blocks)}')
        block = frame_samples(frame)
        size += block.nbytes
        check_value_size(size, max_size, f'the first {len(blocks) + 1} blocks of samples')
        blocks.append(block)
        layouts.add((frame.sample_rate, frame.layout.nb_channels))
    if not blocks:
        raise ValueError('expected at least one sample, got none')
    if len(layouts) != 1:
        raise ValueError(f'expected one rate and number of channels, got {sorted(layouts)}')
    return np.ascontiguousarray(np.concatenate(blocks)), frame.sample_rate
