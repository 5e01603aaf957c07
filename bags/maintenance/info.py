"""What a dataset or a bag holds, in numbers: bytes, records, how large they are, how long sequences are.

Bytes and datapoints are counted in all shards. How records are distributed is found in some of them: evenly
spread over the dataset, and all there are where they are few.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.frames import content_sizes
from bags.bag.open import open_bag
from bags.concurrency import map_concurrently
from bags.dataset.folder import Folder, is_being_made
from bags.dataset.refs import MISSING
from bags.dataset.refs_reader import RefsReader
from bags.dataset.schema import Schema, SchemaCache
from bags.dataset.shard_index import Shard
from bags.dataset.shard_list import length_by_size
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.maintenance.sources import Source

__all__ = ['BagFacts', 'DatasetFacts', 'Distribution', 'FieldFacts', 'describe_bags', 'describe_dataset']

SHARDS = 64  # As many are looked into.
RECORDS = 1 << 20  # Of each, as many records of a field.
HEADS = 1 << 10  # Of each, as many heads of frames.
HEAD = 18  # Bytes of a frame that may say how much it holds.
BINS = 8


@dataclasses.dataclass
class Distribution:
    """How numbers are distributed; of no number there is none."""

    count: int
    min: int
    median: float
    mean: float
    max: int
    edges: list[float]
    """Of the bins, one more than there are bins: even, or with an even ratio where numbers vary widely."""
    counts: list[int]

    @classmethod
    def of(cls, numbers: Int64s) -> Distribution | None:
        if not len(numbers):
            return None
        low, high = int(numbers.min()), int(numbers.max())
        if low == high:
            edges = np.array([low, high + 1.0])
        elif high > 64 * max(low, 1):
            first = max(low, 1)
            edges = np.geomspace(first, high + 1, BINS + 1)
            edges[0] = low
        else:
            edges = np.linspace(low, high + 1, min(BINS, high - low + 1) + 1)
        counts = np.histogram(numbers, edges)[0].tolist()
        median, mean = float(np.median(numbers)), float(numbers.mean())
        rounded = [round(edge, 3) for edge in edges.tolist()]
        return cls(len(numbers), low, median, round(mean, 3), high, rounded, counts)


@dataclasses.dataclass
class FieldFacts:
    """A field of a dataset."""

    type: str
    bytes: int
    """On disk, of records and limits, in all shards."""
    compressed: bool
    ratio: float | None
    """Bytes of the records over those they take on disk; None if they are held as they are."""
    record_bytes: Distribution | None
    """Bytes on disk of a record."""
    items: Distribution | None
    """Items of a datapoint; None for what is no sequence."""
    missing: int
    """Values that are missing, of those looked at."""


@dataclasses.dataclass
class DatasetFacts:
    """A dataset."""

    path: str
    datapoints: int
    shards: int
    bytes: int
    refs_bytes: int
    unclosed: list[str]
    """Folders that were not closed."""
    sampled_shards: int
    """Shards that distributions, ratios and missing values were found in."""
    fields: dict[str, FieldFacts]


@dataclasses.dataclass
class BagFacts:
    """A bag, or several that are one sequence."""

    path: str
    records: int
    bags: int
    bytes: int
    unclosed: list[str]
    compressed: bool
    ratio: float | None
    record_bytes: Distribution | None
    sampled_bags: int


class _Sample:
    """Sizes of records, and of some what they hold, from bags looked into so far."""

    def __init__(self) -> None:
        self.sizes: list[Int64s] = []
        self.held = self.taken = 0

    def add(self, bag: BagFile) -> None:
        count = min(bag.count, RECORDS)
        if not count:
            return
        start = (bag.count - count) // 2
        starts, stops = bag.span(start, start + count)
        self.sizes.append(stops - starts)
        if bag.codec is None:
            return
        chosen = np.unique(np.linspace(0, count - 1, min(count, HEADS)).astype(np.int64))
        starts, stops = starts[chosen], stops[chosen]
        starts, stops = starts[stops > starts], stops[stops > starts]
        if not len(starts):
            return
        heads = bag.file.read_many(starts, np.minimum(stops, starts + HEAD))
        joined = b''.join(head.ljust(2 * HEAD, b'\0') for head in heads)
        contents = content_sizes(joined, np.arange(len(heads)) * (2 * HEAD))
        known = contents >= 0
        self.held += int(contents[known].sum())
        self.taken += int((stops - starts)[known].sum())

    def distribution(self) -> Distribution | None:
        return Distribution.of(np.concatenate(self.sizes)) if self.sizes else None

    def ratio(self) -> float | None:
        return round(self.held / self.taken, 3) if self.taken else None


def _spread(things: Sequence[Any]) -> list[Any]:
    """Returns as many of them as are looked into, evenly spread."""
    places = np.unique(np.linspace(0, len(things) - 1, min(len(things), SHARDS)).astype(np.int64))
    return [things[place] for place in places.tolist()] if things else []


def describe_bags(source: Source) -> BagFacts:
    """Describes bags.

    Raises:
        CorruptError: Limits that cannot be right.
    """
    store, options = source.store, source.options()

    def look(path: str) -> tuple[int, int, bool]:
        bag = open_bag(store, path, options)
        return bag.count, store.size(path), bag.limits.path != bag.file.path

    found = map_concurrently(look, source.parts, store.is_remote)
    sample = _Sample()
    compressed = False
    chosen = _spread(source.parts)
    for path in chosen:
        bag = open_bag(store, path, options)
        compressed |= bag.codec is not None
        sample.add(bag)
    return BagFacts(
        source.path,
        sum(count for count, _, _ in found),
        len(source.parts),
        sum(size for _, size, _ in found),
        [path for path, (_, _, unclosed) in zip(source.parts, found, strict=True) if unclosed],
        compressed,
        sample.ratio(),
        sample.distribution(),
        len(chosen),
    )


def describe_dataset(source: Source) -> DatasetFacts:
    """Describes a dataset.

    Raises:
        CorruptError, SpecError: What is read cannot be right.
        FileNotFoundError: It is one that is only just being made.
    """
    store, schemas, options = source.store, SchemaCache(None, True), source.options()
    sizes = _sizes(source)
    parts = list(source.parts)
    while len(parts) > 1 and is_being_made(sizes[parts[-1]]):
        sizes.pop(parts.pop())

    def folder_at(path: str) -> Folder:
        folder = Folder(store, path, options)
        folder.names = set(sizes[path])
        return folder

    def length(path: str) -> int:
        try:
            return folder_at(path).length(schemas)
        except FileNotFoundError as exc:
            if source.kind == 'folder':
                raise
            raise CorruptError(path, None, 'shard without spec.json or refs.bag') from exc

    first = folder_at(parts[0])
    first.open_refs()
    schema = first.schema(schemas)
    chosen = _spread(parts)
    lengths = dict(zip(chosen, map_concurrently(length, chosen, store.is_remote), strict=True))
    # Where rows have one length, sizes tell how many there are: of 10,000 shards, a second's work less.
    told = {} if first.starts else {path: _by_size(schema, path, sizes[path]) for path in parts}
    even = all(told.get(path) in (None, lengths[path]) for path in chosen)
    unknown = [path for path in parts if path not in lengths and (not even or told.get(path) is None)]
    lengths |= zip(unknown, map_concurrently(length, unknown, store.is_remote), strict=True)
    total = sum(lengths[path] if path in lengths else told[path] or 0 for path in parts)
    found = [sizes[path] for path in parts]
    samples = {name: _Sample() for name in schema.types}
    items: dict[str, list[Int64s]] = {name: [] for name, kind in schema.types.items() if kind.sequence}
    missing = dict.fromkeys(schema.types, 0)
    for path in chosen:
        _look_into(folder_at(path), schemas, samples, items, missing)
    names = set().union(*found)
    totals = collections.Counter[str]()
    for each in found:
        totals.update(each)
    return DatasetFacts(
        source.path,
        total,
        len(parts),
        sum(size for name, size in totals.items() if name.endswith(('.bag', '.bagz', '.idx'))),
        totals['refs.bag'] + totals['limits.refs.bag'],
        [path for path in parts if 'limits.refs.bag' in sizes[path]],
        len(chosen),
        {
            name: FieldFacts(
                kind.text,
                sum(totals[file] for file in _files_of(name)),
                f'{name}.bagz' in names,
                samples[name].ratio(),
                samples[name].distribution(),
                Distribution.of(np.concatenate(items[name])) if items.get(name) else None,
                missing[name],
            )
            for name, kind in schema.types.items()
        },
    )


def _sizes(source: Source) -> dict[str, dict[str, int]]:
    """Returns the bytes of each file of each folder, from one listing."""
    found: dict[str, dict[str, int]] = {part: {} for part in source.parts}
    by_name = {os.path.basename(part): part for part in source.parts}
    for path, stat in source.store.walk(source.path).items():
        folder, _, name = path.rpartition('/')
        part = source.path if source.kind == 'folder' and not folder else by_name.get(folder)
        if part in found:
            found[part][name] = stat.size
    return found


def _by_size(schema: Schema, path: str, sizes: dict[str, int]) -> int | None:
    if 'limits.refs.bag' in sizes:
        return None
    return length_by_size(Shard(os.path.basename(path), sizes), schema.format)


def _files_of(field: str) -> list[str]:
    return [f'{prefix}{field}{suffix}' for suffix in ('.bag', '.bagz') for prefix in ('', 'limits.')] + [
        f'{field}.idx'
    ]


def _look_into(
    folder: Folder,
    schemas: SchemaCache,
    samples: dict[str, _Sample],
    lengths: dict[str, list[Int64s]],
    missing: dict[str, int],
) -> None:
    bag = folder.open_refs()
    schema: Schema = folder.schema(schemas)
    count = folder.shortest(schema.types) if bag is None else bag.count
    refs = RefsReader(folder.path, bag, schema.format, count)
    rows = np.arange(max(0, count - RECORDS) // 2, min(count, max(0, count - RECORDS) // 2 + RECORDS))
    asked = [name for name, kind in schema.types.items() if kind.sequence or kind.optional]
    found = refs.of(rows, asked) if asked and len(rows) else {}
    for name, ref in found.items():
        if schema.types[name].sequence:
            missing[name] += int(np.count_nonzero((ref[0] == MISSING) & (ref[1] == 0)))
            lengths[name].append(ref[1])
        else:
            missing[name] += int(np.count_nonzero(ref == MISSING))
    for name in schema.types:
        samples[name].add(folder.open_bag(name))
