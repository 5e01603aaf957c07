"""TFRecord files, without TensorFlow: `tf.train.Example` and `SequenceExample`, or other records.

A record has a length (8 bytes) and its checksum, then the data and their checksum: masked CRC-32C, 4 bytes.
The package `tfrecord` verifies no checksum, allocates any length, and cannot be imported with TensorFlow.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from bags.errors import SourceError
from bags.interop.records import open_file
from bags.interop.source import DamagedEntries, Source, collect_errors
from bags.interop.sources.files.compressed import DecompressedFile, codec_of
from bags.interop.sources.tfrecord.examples import open_examples
from bags.interop.stores import list_paths

_HEAD = 12
"""Bytes before the data of a record; 4 bytes follow the data."""
_MAX_BYTES = 1 << 31
"""Maximum bytes of a record: the maximum of Protobuf messages."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of TFRecord files."""
    files: dict[str, int] = {}
    damaged: list[tuple[str, str]] = []
    codecs = {path: _codec_of(path, storage_options) for path in list_paths(paths, storage_options)}
    for path, codec in codecs.items():
        files[path] = 0
        with collect_errors(damaged):
            if codec is None and (path.lower().endswith(('.gz', '.gzip')) or any(codecs.values())):
                raise SourceError(path, 'expected compressed records, got an empty file')
            for _ in _records(path, sys.maxsize, storage_options):
                files[path] += 1

    def read(path: str, start: int, count: int) -> Iterator[bytes | DamagedEntries]:
        some = itertools.islice(_records(path, start, storage_options), start, count)
        return (data for data in some if data is not None)

    source = open_examples('tfrecord', files, read, storage_options)
    source.damaged = damaged
    return source


def _records(
    path: str, start: int, storage_options: Mapping[str, Any] | None
) -> Iterator[bytes | DamagedEntries | None]:
    """Yields the records of a file: None before `start`, and `DamagedEntries` for a wrong checksum."""
    checksum, codec = _crc32c(), _codec_of(path, storage_options)
    with open_file(path, storage_options) as raw:
        file: DecompressedFile | BinaryIO = DecompressedFile(raw, codec) if codec else raw
        for index in itertools.count():
            try:
                if not (head := file.read(_HEAD)):
                    return
                if head[8:] != checksum(head[:8]):
                    raise ValueError('expected a length and its checksum, got others')
                length = int.from_bytes(head[:8], 'little')
                if length > _MAX_BYTES:
                    raise ValueError(f'expected at most {_MAX_BYTES} bytes, got {length}')
                data: bytes | None = None
                if index < start:
                    file.seek(length, 1)
                else:
                    data = file.read(length)
                if len(end := file.read(4)) != 4:
                    raise ValueError(f'expected {length} bytes and a checksum, got the end of the file')
            except (ValueError, OSError) as exc:
                detail = f'{exc}; the records from here on cannot be read'
                raise SourceError(f'{path}, record {index}', detail) from exc
            if data is not None and end != checksum(data):
                detail = 'expected another checksum: it is damaged'
                yield DamagedEntries(SourceError(f'{path}, record {index}', detail))
            else:
                yield data


def _codec_of(path: str, storage_options: Mapping[str, Any] | None) -> str | None:
    """Returns the codec of a file, '' if it is not compressed, or None for an empty file."""
    with open_file(path, storage_options) as file:
        head = file.read(_HEAD)
    if not head:
        return None
    # A length of 559,903 bytes begins with the same bytes as gzip.
    return '' if head[8:] == _crc32c()(head[:8]) else codec_of(head)


def _crc32c() -> Callable[[bytes], bytes]:
    """Returns a function from bytes to their checksum, four bytes."""
    import google_crc32c

    def checksum(data: bytes) -> bytes:
        value = int(google_crc32c.value(data))
        return ((((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, 'little')

    return checksum
