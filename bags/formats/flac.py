"""FLAC headers: the number of samples in a file and in its frames (RFC 9639)."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import numpy as np

from bags.formats.scalars import SEARCH_BLOCK_BYTES, Buffer, Sliceable

BLOCK_LENGTHS = (0, 192, 576, 1152, 2304, 4608, 256, 65536, *(1 << n for n in range(8, 16)))
"""Number of samples of a frame, or its maximum, for each code in a frame header."""
FRAME_CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 2, 2, 2, 0, 0, 0, 0, 0)
"""Number of channels for each code in a frame header."""
MAX_FRAME_HEADER_BYTES = 16
MAX_TAIL_BYTES = 1 << 20
"""Bytes at the end of a file that are searched for the last frame, if the header has no frame size."""
MAX_TAG_BYTES = 1 << 16
"""Maximum bytes of tags that programs append after the last frame."""
FILE_START = re.compile(rb'fLaC[\0\x80]\0\0\x22')
"""Matches the beginning of a file, up to the length of the first metadata block."""


class StreamInfo(NamedTuple):
    """The stream info, which is the first metadata block."""

    block_length: int
    """Samples of all frames except the last, if frames have equal lengths. Frames are then numbered."""
    max_frame_bytes: int
    """0 if unknown."""
    channels: int
    bits: int
    """Bits of a sample."""
    length: int
    """Number of samples of each channel; 0 if the file was written to a pipe."""


def read_stream_info(head: Buffer) -> StreamInfo:
    """Parses the first 42 bytes of a FLAC."""
    block_length, sizes, packed = struct.unpack('>2xH6sQ', bytes(head[8:26]))
    return StreamInfo(
        block_length,
        int.from_bytes(sizes[3:], 'big'),
        (packed >> 41 & 7) + 1,
        (packed >> 36 & 31) + 1,
        packed & (1 << 36) - 1,
    )


def first_frame(data: Sliceable) -> int:
    """Returns the offset of the first frame, after the metadata blocks."""
    start, last = 4, 0
    while not last:
        # 1 bit: whether it is the last block; 7 bits: its type; 24 bits: its length.
        (block,) = struct.unpack('>I', bytes(data[start : start + 4]))
        last, start = block >> 31, start + 4 + (block & 0xFFFFFF)
    return start


def check_frames(data: Sliceable) -> None:
    """Raises ValueError if the frames do not contain exactly the samples that the header announces.

    Programs that cut a FLAC without decoding it keep the header of the longer file. Decoders then disagree on
    the samples of the file, as they do for concatenated files. Only the first and the last frame are checked.
    """
    info = read_stream_info(data[:42])
    start = first_frame(data)
    for first in range(start, len(data), SEARCH_BLOCK_BYTES):
        if match := FILE_START.search(bytes(data[first : first + SEARCH_BLOCK_BYTES + 7])):
            raise ValueError(
                f'FLAC is joined from several files: another begins at byte {first + match.start()}, and '
                'decoders disagree on the samples; expected one file'
            )
    span = _frame_span(bytes(data[start : start + MAX_FRAME_HEADER_BYTES]), info)
    if span is None:
        raise ValueError(f'expected a frame of FLAC at byte {start}')
    if span[0]:
        raise ValueError(
            f'FLAC begins with sample {span[0]}: it was cut from a longer file without decoding it; expected '
            'sample 0'
        )
    if not info.length:
        return
    size = len(data)
    start = max(start, size - MAX_TAG_BYTES - (info.max_frame_bytes or MAX_TAIL_BYTES))
    tail = bytes(data[start:size])
    end = span[1]
    values = np.frombuffer(tail, np.uint8)
    for offset in np.flatnonzero((values[:-1] == 0xFF) & (values[1:] & 0xFE == 0xF8))[::-1].tolist():
        span = _frame_span(tail[offset : offset + MAX_FRAME_HEADER_BYTES], info)
        if span is not None and span[1] == info.length:
            return
        if span is not None and span[1] < info.length:
            end = max(end, span[1])
    raise ValueError(f'FLAC is cut off: expected {info.length} samples, got about {end}')


def _frame_span(header: bytes, info: StreamInfo) -> tuple[int, int] | None:
    """Returns the number of the first sample of a frame, and the end of its samples.

    Returns None if the bytes are not a frame header with a valid checksum.
    """
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xFE != 0xF8 or not FRAME_CHANNELS[header[3] >> 4]:
        return None
    # The number is coded as in UTF-8, with up to 36 bits.
    lead = header[4]
    width = 1 if lead < 0x80 else 8 - (lead ^ 0xFF).bit_length()
    number = lead if width == 1 else lead & 0x7F >> width
    for byte in header[5 : 4 + width]:
        number = number << 6 | byte & 0x3F
    end = 4 + width
    code = header[2] >> 4
    length = BLOCK_LENGTHS[code]
    if code in (6, 7):
        length = int.from_bytes(header[end : end + code - 5], 'big') + 1
        end += code - 5
    end += {12: 1, 13: 2, 14: 2}.get(header[2] & 15, 0)  # The rate.
    if end >= len(header) or _checksum(header[:end]) != header[end]:
        return None
    start = number if header[1] & 1 else number * info.block_length
    return start, start + length


def _checksum(data: bytes) -> int:
    """Returns the CRC-8 of a header, with the polynomial x^8 + x^2 + x + 1."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value << 1 ^ 0x107) if value & 0x80 else value << 1
    return value


def max_samples(data: Buffer) -> int:
    """Returns an upper bound of the samples of all channels: the sum over all possible frame headers."""
    values = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero((values[:-3] == 0xFF) & (values[1:-2] & 0xFE == 0xF8))
    lengths = np.array(BLOCK_LENGTHS)[values[starts + 2] >> 4]
    return int((lengths * np.array(FRAME_CHANNELS)[values[starts + 3] >> 4]).sum())
