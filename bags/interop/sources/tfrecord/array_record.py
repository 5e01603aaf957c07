"""ArrayRecord files: `tf.train.Example` as TensorFlow Datasets writes them, or other records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bags.errors import SourceError
from bags.interop.records import read_blocks
from bags.interop.source import DamagedEntries, Source, as_source_errors, collect_errors
from bags.interop.sources.tfrecord.examples import open_examples
from bags.interop.stores import list_paths

if TYPE_CHECKING:
    from array_record.python.array_record_module import ArrayRecordReader
_BLOCK = 64
"""Number of records that are read at a time."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of ArrayRecord files; array_record reads only local files."""
    files: dict[str, int] = {}
    damaged: list[tuple[str, str]] = []
    for path in list_paths(paths, storage_options):
        with collect_errors(damaged):
            files[path] = _open(path).num_records()
    source = open_examples('array_record', files, _read, storage_options)
    source.damaged = damaged
    return source


def _read(path: str, start: int, count: int) -> Iterator[bytes | DamagedEntries]:
    reader = _open(path)
    indices = range(start, count)
    return read_blocks(path, 'ArrayRecord', indices, _BLOCK, lambda some: map(bytes, reader.read(list(some))))


def _open(path: str) -> ArrayRecordReader:
    from array_record.python.array_record_module import ArrayRecordReader

    if '://' in path:
        raise SourceError(path, 'expected a local file, which array_record reads; copy it first')
    with as_source_errors(path, 'ArrayRecord'):
        reader = ArrayRecordReader(path, 'readahead_buffer_size:0,max_parallelism:0')
        if not reader.ok():
            raise ValueError('expected an ArrayRecord file, got a damaged one')
    return reader
