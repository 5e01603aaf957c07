"""Bags of bagz and Säckli, whose records have the type that the user names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bags.bag import Reader
from bags.errors import CorruptError, SourceError
from bags.interop.records import Bytes, open_file
from bags.interop.source import Source, list_paths
from bags.interop.sources import mcap

__all__ = ['open_source']

_BLOCK_BYTES = 1 << 22


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of bags; `a@8.bagz` names the shards of one."""
    if '@' not in paths[0]:
        paths = list_paths(paths, storage_options)
        with open_file(paths[0], storage_options) as file:
            if file.read(8) == b'#ROSBAG ':  # Bags of ROS 1 have the same extension.
                return mcap.open_source(paths, storage_options)
    files, damaged = {}, []
    for path in paths:
        if path.rpartition('/')[2].startswith('limits.'):
            continue  # Belongs to the file of the same name without it, which opens it.
        try:
            with Reader(path, storage_options=storage_options) as reader:
                files[path] = len(reader)
        except CorruptError as exc:
            damaged.append((exc.path, exc.detail))

    def read(path: str, start: int, count: int) -> Iterator[bytes | SourceError]:
        with Reader(path, storage_options=storage_options, mapped=False) as reader:  # In constant memory.
            block = max(1, min(1024, int(_BLOCK_BYTES // max(1, reader.approximate_bytes_per_record()))))
            for first in range(start, count, block):
                length = min(block, count - first)
                try:
                    found: list[Any] = list(reader.read_range(first, length))
                except CorruptError:
                    found = [_read_one(reader, path, index) for index in range(first, first + length)]
                yield from found

    source = Bytes('bagz', files, read)
    source.damaged = damaged
    return source


def _read_one(reader: Reader, path: str, index: int) -> bytes | SourceError:
    try:
        return reader[index]
    except CorruptError as exc:
        return SourceError(f'{path}, record {index}', exc.detail)
