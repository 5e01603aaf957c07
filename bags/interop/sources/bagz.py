"""Bags of bagz and Säckli. The user gives the type of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bags.bag import Reader
from bags.bag.open import open_bag
from bags.interop.records import RawRecordSource, open_file, read_blocks
from bags.interop.source import DamagedEntries, Source, as_source_errors, collect_errors
from bags.interop.sources.mcap import mcap
from bags.interop.stores import list_paths
from bags.links.sources import OpenedLink
from bags.validation import import_optional

_BLOCK_BYTES = 1 << 22


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of bags; `a@8.bagz` stands for the shards of one bag."""
    if '@' not in paths[0]:
        paths = list_paths(paths, storage_options)
        with open_file(paths[0], storage_options) as file:
            if file.read(8) == b'#ROSBAG ':  # ROS 1 bags have the same extension.
                import_optional('rosbags', 'mcap')
                return mcap.open_source(paths, storage_options)
    files: dict[str, int] = {}
    damaged: list[tuple[str, str]] = []
    for path in paths:
        if path.rpartition('/')[2].startswith('limits.'):
            continue  # Opened with the file that has the rest of the name.
        with (
            collect_errors(damaged),
            as_source_errors(path, 'bagz'),
            Reader(path, storage_options=storage_options) as reader,
        ):
            files[path] = len(reader)

    def link(path: str, start: int) -> Iterator[OpenedLink]:
        with (
            as_source_errors(path, 'bagz'),
            Reader(path, storage_options=storage_options, mapped=False) as reader,
        ):
            for shard in reader.paths:
                bag = open_bag(reader.options.store_of(shard), shard, reader.options)
                yield from source.opener.records(bag, start)
                start = max(0, start - bag.count)

    def read(path: str, start: int, count: int) -> Iterator[bytes | OpenedLink | DamagedEntries]:
        if source.linked:
            yield from link(path, start)
            return
        # Without memory mapping, so that memory use stays constant.
        with (
            as_source_errors(path, 'bagz'),
            Reader(path, storage_options=storage_options, mapped=False) as reader,
        ):
            size = max(1, min(1024, int(_BLOCK_BYTES // max(1, reader.approximate_bytes_per_record()))))
            yield from read_blocks(
                path, 'bagz', range(start, count), size, lambda some: reader.read_range(some.start, len(some))
            )

    source = RawRecordSource('bagz', files, read)
    source.damaged = damaged
    return source
