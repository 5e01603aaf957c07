"""ArrayRecord files: `tf.train.Example` as TensorFlow Datasets writes them, or other records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bags.errors import MissingDependencyError, SourceError
from bags.interop.examples import open_examples
from bags.interop.source import Source, list_paths

__all__ = ['open_source']

_BLOCK = 64
"""Records that are read at a time."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of ArrayRecord files, which the library reads from local disks only."""
    files, damaged = {}, []
    for path in list_paths(paths, storage_options):
        try:
            files[path] = _open(path).num_records()
        except SourceError as exc:
            damaged.append((exc.name, exc.detail))
    source = open_examples('array_record', files, _read, storage_options)
    source.damaged = damaged
    return source


def _read(path: str, start: int, count: int) -> Iterator[bytes | SourceError]:
    reader = _open(path)
    for first in range(start, count, _BLOCK):
        indices = range(first, min(first + _BLOCK, count))
        try:
            found = reader.read(indices.start, indices.stop)
        except Exception:  # The library raises RuntimeError, ValueError and IndexError.
            found = [_read_one(reader, path, index) for index in indices]
        yield from found


def _read_one(reader: Any, path: str, index: int) -> bytes | SourceError:
    try:
        (data,) = reader.read([index])
    except Exception as exc:
        return SourceError(f'{path}, record {index}', f'cannot be read: {exc}')
    return bytes(data)


def _open(path: str) -> Any:
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as exc:
        raise MissingDependencyError('array_record', 'array-record') from exc
    if '://' in path:
        raise SourceError(path, 'expected a local file, which array_record reads; copy it first')
    try:
        reader = ArrayRecordReader(path, 'readahead_buffer_size:0,max_parallelism:0')
        if not reader.ok():
            raise ValueError('expected an ArrayRecord file, got a damaged one')
    except Exception as exc:
        raise SourceError(path, f'cannot be opened: {exc}') from exc
    return reader
