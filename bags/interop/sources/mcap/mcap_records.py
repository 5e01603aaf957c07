"""Records of MCAP files: chunks, channels and attachments. https://mcap.dev/spec describes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

import zstandard

from bags.interop.source import check_expanded

MAGIC = b'\x89MCAP0\r\n'
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = range(1, 7)
CHUNK_INDEX, ATTACHMENT, STATISTICS, DATA_END = 8, 9, 11, 15
SCHEMAS = ('', 'ros2msg', 'ros2idl', 'omgidl')
"""Languages of message definitions of ROS."""
HEAD = struct.Struct('<BQ')
MESSAGE_HEAD = struct.Struct('<HIQQ')
_CHUNK = struct.Struct('<QQQI')
READ_BYTES = 1 << 20


class McapChunk(NamedTuple):
    """A chunk of messages: its location and the fields of its header."""

    start: int
    length: int
    checksum: int
    codec: str
    content: int
    """Offset of its content in the file."""
    stored: int
    """Bytes of its content in the file, as stored."""
    size: int
    """Bytes of its content after decompression."""


def make_record(code: int, content: bytes) -> bytes:
    """Returns a record."""
    return HEAD.pack(code, len(content)) + content


def make_head(header: bytes) -> bytes:
    """Returns the beginning of a file with the profile `ros2`; empty if the file has this profile.

    rosbags reads only files with this profile, but others may have messages of ROS 2 too. The header keeps
    its length, because offsets count from the beginning of the file. rosbags does not read the text after
    the profile.
    """
    profile = struct.pack('<I', 4) + b'ros2'
    if len(header) < len(profile) or header.startswith(profile):
        return b''
    return MAGIC + HEAD.pack(HEADER, len(header)) + profile


def walk(file: BinaryIO, start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yields code, start and length of each record, with the file at its content, up to an incomplete one."""
    while start + HEAD.size <= size:
        file.seek(start)
        code, length = HEAD.unpack(file.read(HEAD.size))
        if not code or length > size - start - HEAD.size:  # A file system may leave zeros.
            return
        yield code, start, length
        start += HEAD.size + length


def parse_text(data: bytes, start: int) -> tuple[str, int]:
    """Returns a text, and the offset of its end."""
    (length,) = struct.unpack_from('<I', data, start)
    stop = start + 4 + length
    if stop > len(data):
        raise ValueError(f'expected a text of {length} bytes at {start}, got {len(data)} bytes')
    return str(data[start + 4 : stop], 'utf-8'), stop


def parse_channel(record: bytes, schemas: Mapping[int, bytes]) -> tuple[str, str, str]:
    """Returns the topic of a channel, the encoding of its messages, and the language of their definition."""
    schema = schemas.get(struct.unpack_from('<H', record, 2)[0])
    topic, stop = parse_text(record, 4)
    encoding, _ = parse_text(record, stop)
    language = parse_text(schema, parse_text(schema, 2)[1])[0] if schema else ''
    return topic, encoding, language


def read_chunk_head(file: BinaryIO, start: int, length: int) -> McapChunk:
    """Reads the header of the chunk whose record starts at `start` and has a content of `length` bytes."""
    head = file.read(min(length, 128))
    _, _, size, checksum = _CHUNK.unpack_from(head)
    codec, stop = parse_text(head, _CHUNK.size)
    (stored,) = struct.unpack_from('<Q', head, stop)
    if stop + 8 + stored > length:
        raise ValueError(f'chunk at byte {start}: expected {stored} bytes of content, got {length} in all')
    content = start + HEAD.size + stop + 8
    return McapChunk(start, HEAD.size + length, checksum, codec, content, stored, size)


def read_chunk(file: BinaryIO, chunk: McapChunk) -> bytes:
    """Returns the records of a chunk.

    Raises:
        ValueError: The chunk is damaged, or larger than an import allows.
    """
    check_expanded(chunk.size, 'a chunk')
    file.seek(chunk.content)
    data = file.read(chunk.stored)
    if chunk.codec == 'zstd':
        if (size := zstandard.frame_content_size(data)) not in (-1, chunk.size):
            raise ValueError(f'expected a frame of {chunk.size} bytes, got one of {size}')
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=chunk.size)
    elif chunk.codec == 'lz4':
        from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

        data = LZ4FrameDecompressor().decompress(data, max_length=chunk.size)
    elif chunk.codec:
        raise ValueError(f'expected compression lz4, zstd or none, got {chunk.codec!r}')
    if len(data) != chunk.size:
        raise ValueError(f'expected {chunk.size} bytes, got {len(data)}')
    if chunk.checksum and zlib.crc32(data) != chunk.checksum:
        raise ValueError(f'expected CRC {chunk.checksum:08x}, got {zlib.crc32(data):08x}')
    return data


def read_attachment(file: BinaryIO, length: int) -> str:
    """Verifies the checksum of an attachment, and returns its name."""
    begin, checksum, left = file.tell(), 0, length - 4
    while left > 0 and (block := file.read(min(left, READ_BYTES))):
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    stored = int.from_bytes(file.read(4), 'little')
    file.seek(begin)
    name, _ = parse_text(file.read(min(length, READ_BYTES)), 16)
    if stored and stored != checksum:
        raise ValueError(f'attachment {name!r}: expected CRC {stored:08x}, got {checksum:08x}')
    return name
