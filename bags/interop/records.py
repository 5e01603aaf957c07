"""Sources of records in files, which are read from the first to the last: TFRecord, bagz, MDS and others."""

from __future__ import annotations

import abc
import functools
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bags.dataset.registry import bind_decoder, encoders
from bags.dataset.spec import parse_type
from bags.errors import BagsError, SourceError, SpecError
from bags.interop.files import MEDIA, checked_value
from bags.interop.source import Source

__all__ = ['Bytes', 'Record', 'RecordSource', 'open_file', 'read_all', 'read_items', 'size_of']

FIELD = 'record'
"""The field of records whose structure nothing tells."""


class Record(NamedTuple):
    """A record of a file, or what is wrong with it."""

    path: str
    number: int
    """Of the record in the file, from 0."""
    data: bytes | SourceError


class RecordSource(Source):
    """The records of files, one file after the other; each becomes a datapoint.

    Args:
        format: Its name.
        spec: The type of each field.
        files: Path and number of records of each file.
    """

    def __init__(self, format: str, spec: dict[str, str], files: list[tuple[str, int]]) -> None:
        super().__init__(format, spec, sum(count for _, count in files))
        self.files = files
        # Values that are records already, in files of the source.
        self.encoders = dict.fromkeys(('json', 'msgpack', 'tree'), lambda value, *_args: bytes(value))

    def entries(self, start: int = 0) -> Iterator[Record]:
        for path, count in self.files:
            if start < count:
                for index, data in enumerate(self.read(path, start), start):
                    yield Record(path, index, data)
            start = max(0, start - count)

    def name(self, entry: Record) -> str:
        return f'{entry.path}, record {entry.number}'

    def load(self, entry: Record) -> Mapping[str, Any]:
        if isinstance(entry.data, SourceError):
            raise entry.data
        try:
            return self.decode(entry)
        except BagsError:
            raise
        except (ValueError, TypeError, KeyError, LookupError, EOFError, struct.error) as exc:
            raise SourceError(self.name(entry), str(exc)) from exc

    @abc.abstractmethod
    def read(self, path: str, start: int) -> Iterator[bytes | SourceError]:
        """Yields the records of a file from the record `start` on, in one thread.

        It yields an error for each record that is damaged, so that those after it keep their index.
        """

    @abc.abstractmethod
    def decode(self, entry: Record) -> Mapping[str, Any]:
        """Returns the datapoint of a record; several threads call this.

        Raises:
            ValueError: It is damaged; `load` adds the file and the record.
        """


class Bytes(RecordSource):
    """Records that become a field `record` byte for byte, of the type that the user names: bytes by default.

    Each record is checked to be of that type: the structure of media, all else by decoding it.

    Args:
        format: Its name.
        files: Path and number of records of each file.
        read: As `RecordSource.read`.
    """

    def __init__(
        self,
        format: str,
        files: list[tuple[str, int]],
        read: Callable[[str, int], Iterator[bytes | SourceError]],
    ) -> None:
        super().__init__(format, {FIELD: 'bytes'}, files)
        self._read = read
        self.encoders = dict.fromkeys(encoders, lambda value, *_args: value)
        self.notes.append(
            f"records become the field '{FIELD}' of type bytes; "
            f"spec={{'{FIELD}': 'msgpack'}}, or json, jpeg, utf8, …, says what they are"
        )

    def read(self, path: str, start: int) -> Iterator[bytes | SourceError]:
        return self._read(path, start)

    def decode(self, entry: Record) -> Mapping[str, Any]:
        assert isinstance(entry.data, bytes)
        kind = parse_type(self.spec[FIELD])
        if kind.sequence:
            raise SpecError(FIELD, 'a type of one record, without []', kind.text)
        if kind.word in MEDIA:
            return {FIELD: checked_value(self.name(entry), kind.word, entry.data)}
        _decoder(kind.word, kind.args)(entry.data)
        return {FIELD: entry.data}


@functools.lru_cache
def _decoder(word: str, args: tuple[str, ...]) -> Callable[[Any], Any]:
    return bind_decoder(word, args)


def open_file(path: str, storage_options: Mapping[str, Any] | None = None) -> BinaryIO:
    """Opens a file or URL to read; a local file as `open` does, without fsspec between."""
    if ':' not in path:
        return open(path, 'rb')
    import fsspec

    fs, inner = fsspec.core.url_to_fs(path, **(storage_options or {}))
    if 'file' in fs.protocol:
        return open(inner, 'rb')
    file: BinaryIO = fs.open(inner, 'rb')
    return file


def size_of(path: str, storage_options: Mapping[str, Any] | None = None) -> int | None:
    """Returns the bytes of a file, or None if there is none."""
    import fsspec

    fs, inner = fsspec.core.url_to_fs(path, **(storage_options or {}))
    try:
        return os.path.getsize(inner) if 'file' in fs.protocol else int(fs.size(inner))
    except FileNotFoundError:
        return None


def read_all(stream: Any, limit: int) -> bytes:
    """Returns what a decompressing stream has, at most `limit` bytes, in memory for what there is."""
    data = bytearray()
    while len(data) < limit and (part := stream.read(min(1 << 20, limit - len(data)))):
        data += part
    return bytes(data)


def read_items(file: BinaryIO, path: str, size: int, count: int, start: int) -> Iterator[bytes]:
    """Yields the items of a shard of MDS or LitData, from the item `start` on.

    Such a shard is the number of its items and the offsets of these and of their end, each 4 bytes, then the
    items; MDS has its configuration between.

    Args:
        file: The shard; it can seek.
        path: For errors.
        size: Bytes of the shard.
        count: Items that the index tells.
        start: The first item.

    Raises:
        SourceError: The shard does not have this many items, or ends before the last.
    """
    file.seek(0)
    head = file.read(4 * (count + 2)) if 4 * (count + 2) <= size else b''
    offsets = np.frombuffer(head, '<u4').astype(np.int64)
    ends = offsets[1:]
    if len(offsets) != count + 2 or offsets[0] != count:
        raise SourceError(path, f'expected {count} items in {size} bytes, got a file that begins otherwise')
    if ends[0] < len(head) or (np.diff(ends) < 0).any() or ends[-1] > size:
        raise SourceError(
            path, f'expected items from byte {len(head)} to byte {size} at most, got other ones'
        )
    file.seek(int(ends[start]))
    for index in range(start, count):
        length = int(ends[index + 1] - ends[index])
        data = file.read(length)
        if len(data) != length:
            raise SourceError(f'{path}, record {index}', f'expected {length} bytes, got {len(data)}')
        yield data
