"""ArrayRecord files: `tf.train.Example` as TensorFlow Datasets writes them, or other records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from bags.errors import MissingDependencyError, SourceError
from bags.interop.examples import open_examples
from bags.interop.source import Source, list_paths

__all__ = ['count_records', 'open_source', 'read_records']

_BLOCK = 64
"""Records that are read at a time."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of ArrayRecord files."""
    return open_examples(
        'array_record', list_paths(paths, storage_options), count_records, read_records, storage_options
    )


def count_records(path: str, storage_options: Mapping[str, Any] | None) -> tuple[int, tuple[str, str] | None]:
    """Returns the number of records of a file, and what is wrong with it, if it cannot be opened."""
    try:
        reader = _open(path, storage_options)
        with contextlib.suppress(Exception):  # Of a damaged file, `close` raises too.
            count = int(reader.num_records())
            reader.close()
            return count, None
    except SourceError as exc:
        return 0, (exc.name, exc.detail)
    return 0, (path, 'expected an ArrayRecord file, got a damaged one')


def read_records(
    path: str, start: int, count: int, storage_options: Mapping[str, Any] | None
) -> Iterator[bytes | SourceError]:
    """Yields the records from `start` to `count` of a file, or an error for one in a damaged chunk."""
    reader = _open(path, storage_options)
    try:
        for first in range(start, count, _BLOCK):
            stop = min(first + _BLOCK, count)
            try:
                found = reader.read(first, stop)
            except Exception:  # The library raises RuntimeError, ValueError and IndexError.
                yield from (_read_one(reader, path, index) for index in range(first, stop))
            else:
                yield from found
    finally:
        with contextlib.suppress(Exception):
            reader.close()


def _read_one(reader: Any, path: str, index: int) -> bytes | SourceError:
    try:
        (data,) = reader.read([index])
    except Exception as exc:
        return SourceError(f'{path}, record {index}', f'cannot be read: {exc}')
    return bytes(data)


def _open(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as exc:
        raise MissingDependencyError('array_record', 'array-record') from exc
    import fsspec

    fs, inner = fsspec.core.url_to_fs(path, **(storage_options or {}))
    if 'file' not in fs.protocol:
        raise SourceError(path, 'expected a local file, which array_record reads; copy it first')
    try:
        return array_record_module.ArrayRecordReader(inner, 'readahead_buffer_size:0,max_parallelism:0')
    except Exception as exc:
        raise SourceError(path, f'cannot be opened: {exc}') from exc
