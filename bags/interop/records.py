"""Sources of records in files, read in order: TFRecord, bagz, MDS and others."""

from __future__ import annotations

import abc
import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from bags.dataset.format.registry import bind_decoder, encoders
from bags.dataset.format.spec import parse_type
from bags.errors import BagsError, CorruptError, SourceError, SpecError
from bags.interop.files import MEDIA_FORMATS, checked_link, checked_value
from bags.interop.source import RECORD_ENCODERS, DamagedEntries, Source, as_source_errors
from bags.interop.stores import find_store, open_in, size_in
from bags.links.sources import OpenedLink
from bags.storage import File
from bags.storage.base import SeekableFile
from bags.storage.range_file import RangeFile

FIELD = 'record'
"""The field for records of unknown structure."""
MAX_JSON_BYTES = 1 << 28

ReadRecords = Callable[[str, int, int], Iterator[bytes | OpenedLink | DamagedEntries]]
"""Yields the records of a file from a start to a stop, or links to them, in one thread. Raises SourceError if
no further record can be read."""
T = TypeVar('T')


class FileRecord(NamedTuple):
    """A record of a file."""

    path: str
    number: int
    """Number of the record in the file, from 0."""
    data: bytes | OpenedLink


class RecordSource(Source[FileRecord]):
    """The records of `files`, which maps paths to numbers of records. Each record becomes a datapoint."""

    def __init__(
        self, format: str, spec: dict[str, str], files: Mapping[str, int], read: ReadRecords
    ) -> None:
        super().__init__(format, spec, sum(files.values()))
        self.files, self._read = files, read
        self.encoders = RECORD_ENCODERS

    def entries(self, start: int = 0) -> Iterator[FileRecord | DamagedEntries]:
        for path, count in self.files.items():
            index = start
            try:
                for data in self._read(path, start, count) if start < count else ():
                    if isinstance(data, DamagedEntries):
                        yield data
                        index += data.length
                    else:
                        yield FileRecord(path, index, data)
                        index += 1
            except SourceError as exc:
                rows = f'{path}, records {index} to {count - 1}'
                yield DamagedEntries(
                    SourceError(rows if exc.name == path else exc.name, exc.detail), count - index
                )
            start = max(0, start - count)

    def name(self, entry: FileRecord) -> str:
        return f'{entry.path}, record {entry.number}'

    def load(self, entry: FileRecord) -> Mapping[str, Any]:
        try:
            return self.decode(entry, entry.data)
        except BagsError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError, struct.error) as exc:
            raise SourceError(self.name(entry), _detail(exc)) from exc

    @abc.abstractmethod
    def decode(self, entry: FileRecord, data: bytes | OpenedLink) -> Mapping[str, Any]:
        """Returns the datapoint of a record, given its bytes or a link to them.

        `load` adds the file and the record to a ValueError.
        """


class RawRecordSource(RecordSource):
    """Records that become a field `record` byte for byte, of the type given by the user; bytes by default.

    Each record is checked against the type: media by their structure, others by decoding.
    """

    def __init__(self, format: str, files: Mapping[str, int], read: ReadRecords) -> None:
        super().__init__(format, {FIELD: 'bytes'}, files, read)
        self.encoders = dict.fromkeys(encoders, lambda value, *_args: value)
        self.notes.append(
            f"records become the field '{FIELD}' of type bytes; "
            f"spec={{'{FIELD}': 'msgpack'}}, or json, jpeg, utf8, …, sets another type"
        )

    def linkable(self) -> dict[str, float | str]:
        return self.measured(self.spec.keys())

    def decode(self, entry: FileRecord, data: bytes | OpenedLink) -> Mapping[str, Any]:
        field_type = parse_type(self.spec[FIELD])
        if field_type.sequence:
            raise SpecError(FIELD, 'a type of one record, without []', field_type.text)
        if isinstance(data, OpenedLink):
            if not data.entry.is_compressed:
                checked_link(self.name(entry), field_type.format, data)
        elif field_type.format in MEDIA_FORMATS:
            checked_value(self.name(entry), field_type.format, data)
        else:
            bind_decoder(field_type.format, field_type.args)(data)
        return {FIELD: data}


def read_blocks(
    path: str, format: str, indices: range, size: int, read: Callable[[range], Iterable[bytes]]
) -> Iterator[bytes | DamagedEntries]:
    """Yields records, read `size` at a time, and one at a time after an error."""
    for start in range(indices.start, indices.stop, size):
        block = range(start, min(start + size, indices.stop))
        try:
            yield from list(read(block))
        except Exception:  # Libraries raise many errors for damaged files.
            for index in block:
                try:
                    with as_source_errors(f'{path}, record {index}', format):
                        (data,) = read(range(index, index + 1))
                    yield data
                except SourceError as exc:
                    yield DamagedEntries(exc)


def open_file(path: str, storage_options: Mapping[str, Any] | None = None) -> BinaryIO:
    """Opens a file or URL to read. A file that is not local is read ahead."""
    store, path = find_store(path, storage_options)
    if not store.is_remote:
        return open(path, 'rb')
    file = open_in(store, path, storage_options)
    return io.BufferedReader(RangeFile(file, 0, file.size, path))


def read_at_most(file: SeekableFile, max_size: int) -> bytes:
    """Returns the content of a file; raises ValueError if it has `max_size` bytes or more.

    The size is compared before the file is read, except for a compressed file, whose size is unknown.
    """
    is_known = isinstance(file, io.BufferedReader)
    size = file.seek(0, io.SEEK_END) if is_known else 0
    file.seek(0)
    data = file.read(max_size) if size < max_size else b''
    if max(size, len(data)) >= max_size:
        raise ValueError(f'expected less than {max_size:,} bytes, got more: split it')
    return data


def read_range(path: str, start: int, size: int, remote: File | None) -> bytes:
    """Returns `size` bytes of a file from `start` on; raises SourceError if they cannot be read.

    Args:
        path: The file.
        start, size: The byte range.
        remote: The open file, if it is not local.
    """
    try:
        if remote is not None:
            data = bytes(remote.read(start, start + size))
        else:
            with open(path, 'rb') as file:
                file.seek(start)
                data = file.read(size)
    except CorruptError as exc:
        raise SourceError(path, exc.detail) from exc
    except (OSError, EOFError) as exc:
        raise SourceError(path, f'cannot be read: {exc}') from exc
    if len(data) != size:
        raise SourceError(path, f'expected {size} bytes at {start}, got {len(data)}')
    return data


def size_of(path: str, storage_options: Mapping[str, Any] | None = None) -> int | None:
    """Returns the size of a file in bytes, or None if it does not exist."""
    return size_in(*find_store(path, storage_options), storage_options)


def read_json(path: str, parse: Callable[[Any], T], storage_options: Mapping[str, Any] | None = None) -> T:
    """Returns the result of `parse` for the JSON object in a file; raises SourceError if parsing fails."""
    with open_file(path, storage_options) as file:
        content = file.read(MAX_JSON_BYTES + 1)
    try:
        if len(content) > MAX_JSON_BYTES:
            raise ValueError(f'expected at most {MAX_JSON_BYTES} bytes')
        value = json.loads(content, parse_constant=lambda _: None)  # Metadata cannot hold NaN.
        if not isinstance(value, dict):
            raise ValueError(f'expected an object, got {value!r:.80}')
        return parse(value)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise SourceError(path, f'does not match its format: {_detail(exc)}') from exc


def path_beside(folder: str, name: Any) -> str:
    """Returns the path of a file that an index names; raises ValueError if it is outside the folder.

    The file may be in a subfolder, as after `merge_index` of Streaming.
    """
    parts = name.replace('\\', '/').split('/') if isinstance(name, str) else ['']
    if '\0' in str(name) or any(part in ('', '.', '..') for part in parts):
        raise ValueError(f'expected the name of a file in its folder, got {name!r}')
    name.encode()  # Raises for lone surrogates.
    return '/'.join((folder, *parts))


def _detail(exc: Exception) -> str:
    return repr(exc) if isinstance(exc, LookupError) else str(exc)


def array_from(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Converts bytes to an array, or to a Python scalar if the shape is ()."""
    size = abs(int(np.prod(shape, dtype=object))) * dtype.itemsize
    if len(data) != size and not (-1 in shape and size and len(data) % size == 0):
        expected = str(shape).replace('-1', '?')
        raise ValueError(f'expected {dtype} of shape {expected}, got {len(data)} bytes')
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.item() if shape == () else array
