"""TFRecord files, without TensorFlow: `tf.train.Example` and `SequenceExample`, or other records.

A record is its length (8 bytes), the checksum of that, the data, and its checksum: masked CRC-32C, 4 bytes.
`google-crc32c` and `protobuf` read it; the package `tfrecord` compares no checksum, and defines messages that
TensorFlow defines too, so that one process cannot import both.
"""

from __future__ import annotations

import errno
import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from bags.errors import MissingDependencyError, SourceError
from bags.interop.examples import open_examples
from bags.interop.records import open_file, size_of
from bags.interop.source import Source, list_paths

__all__ = ['count_records', 'open_source', 'read_records']

_HEAD = 12
"""Bytes before the data; 4 follow it."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of TFRecord files."""
    return open_examples(
        'tfrecord', list_paths(paths, storage_options), count_records, read_records, storage_options
    )


def count_records(path: str, storage_options: Mapping[str, Any] | None) -> tuple[int, tuple[str, str] | None]:
    """Returns the number of records of a file, and what is wrong after them, if something is."""
    count = 0
    with open_file(path, storage_options) as raw:
        try:
            file, size = _decompressed(path, raw, storage_options)
            checksum = _crc32c()
            place = 0
            while head := file.read(_HEAD):
                length = _length(head, checksum)
                place += _HEAD + length + 4
                if size is None:  # Of a compressed file, the size is not known.
                    _skip(file, length + 4)
                elif place > size:
                    raise ValueError(f'expected {length} bytes and a checksum, got the end of the file')
                else:
                    file.seek(place)
                count += 1
        except (ValueError, EOFError, zlib.error, OSError) as exc:
            if isinstance(exc, FileNotFoundError | PermissionError):
                raise
            return count, (f'{path}, record {count}', f'{exc}; the records from here on are left out')
    return count, None


def read_records(
    path: str, start: int, count: int, storage_options: Mapping[str, Any] | None
) -> Iterator[bytes | SourceError]:
    """Yields the records from `start` to `count` of a file, or an error for one whose checksum differs."""
    checksum = _crc32c()
    with open_file(path, storage_options) as raw:
        file, size = _decompressed(path, raw, storage_options)
        for index in range(count):
            length = _length(file.read(_HEAD), checksum)
            if index < start:
                _skip(file, length + 4) if size is None else file.seek(length + 4, 1)
                continue
            data, end = file.read(length), file.read(4)
            if len(end) != 4:
                raise SourceError(f'{path}, record {index}', 'expected a record, got the end of the file')
            expected, found = int.from_bytes(end, 'little'), _mask(checksum(data))
            if expected == found:
                yield data
            else:
                yield SourceError(
                    f'{path}, record {index}', f'expected checksum {expected:#010x}, got {found:#010x}'
                )


def _decompressed(
    path: str, file: BinaryIO, storage_options: Mapping[str, Any] | None
) -> tuple[BinaryIO, int | None]:
    """Returns a file, decompressed if it is of gzip, and its size if that is known."""
    is_gzip = file.read(2) == b'\x1f\x8b'
    file.seek(0)
    if is_gzip:
        head = file.read(_HEAD)
        file.seek(0)
        try:  # A length may begin with these bytes too: 35,615 bytes, and 65,536 times any number.
            _length(head, _crc32c())
        except ValueError:
            return gzip.GzipFile(fileobj=file), None  # type: ignore[return-value]
    size = size_of(path, storage_options)
    if size is None:
        raise FileNotFoundError(errno.ENOENT, 'no file to import', path)
    return file, size


def _length(head: bytes, checksum: Any) -> int:
    if len(head) != _HEAD:
        raise ValueError(f'expected the {_HEAD} bytes before a record, got {len(head)}')
    length, expected = struct.unpack('<QI', head)
    found = _mask(checksum(head[:8]))
    if found != expected:
        raise ValueError(f'expected a length with checksum {found:#010x}, got {expected:#010x}')
    return int(length)


def _mask(value: int) -> int:
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _skip(file: BinaryIO, size: int) -> None:
    while size:
        found = len(file.read(min(size, 1 << 20)))
        if not found:
            raise EOFError('expected more bytes, got the end of the file')
        size -= found


def _crc32c() -> Any:
    try:
        import google_crc32c
    except ImportError as exc:
        raise MissingDependencyError('google-crc32c', 'tfrecord') from exc
    return google_crc32c.value
