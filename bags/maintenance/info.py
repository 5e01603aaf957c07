"""`bags.info`: counts and bytes of datasets and bags, and distributions of sizes and lengths.

Bytes and datapoints are counted in all shards. Distributions are sampled from up to 64 shards, evenly spaced.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.bag.records import StoredRecords
from bags.concurrency import map_concurrently
from bags.dataset.format.file_names import BAG_SUFFIXES
from bags.dataset.format.folder import Folder
from bags.dataset.format.journal import JOURNAL, has_journal, shards_not_begun
from bags.dataset.format.listing import files_below
from bags.dataset.format.refs import is_missing
from bags.dataset.format.registry import is_stream
from bags.dataset.format.spec import count_text
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.refs_reader import RefsReader
from bags.display.counts import byte_count, plural
from bags.display.tables import as_lines, info_table
from bags.errors import BagsError
from bags.indexing import Int64s
from bags.links.files import LINKED, resolved_path
from bags.links.linked_files import LinkedFiles
from bags.links.open import open_links
from bags.links.records import dataset_folder
from bags.links.rows import VALUES_FILE
from bags.maintenance.location import Location, locate
from bags.streams.field import StreamField
from bags.validation import with_advice

SAMPLED_SHARDS = 64
SAMPLED_RECORDS = 1 << 20
"""Records of each field sampled from the middle of each of these shards."""
SAMPLED_FRAMES = 1 << 10
"""Records whose zstd headers are read, among the sampled records."""
FRAME_HEADER_BYTES = 18
HISTOGRAM_BINS = 8
SAMPLED_DURATIONS = 1 << 12
"""Datapoints whose streams are measured, evenly spaced."""


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution of numbers.

    Examples:
        >>> bags.info('episodes').fields['id'].record_bytes.median
        8.0
    """

    count: int
    min: float
    median: float
    mean: float
    max: float
    edges: list[float]
    """Edges of the bins, one more than bins: evenly spaced, or logarithmic if the numbers vary widely."""
    counts: list[int]
    """Count of numbers in each bin."""

    @classmethod
    def of_seconds(cls, seconds: npt.NDArray[np.float64]) -> Distribution | None:
        """Returns the distribution of durations, without NaN; None if there are no others."""
        numbers = seconds[np.isfinite(seconds)]
        if not len(numbers):
            return None
        counts, edges = np.histogram(numbers, HISTOGRAM_BINS if np.ptp(numbers) else 1)
        facts = (numbers.min(), np.median(numbers), numbers.mean(), numbers.max())
        low, median, mean, high = (round(float(number), 6) for number in facts)
        rounded = [round(edge, 6) for edge in edges.tolist()]
        return cls(len(numbers), low, median, mean, high, rounded, counts.tolist())

    @classmethod
    def of(cls, parts: Sequence[Int64s]) -> Distribution | None:
        """Returns the distribution of the numbers in several arrays; None if the arrays are empty."""
        numbers = np.concatenate([np.empty(0, np.int64), *parts])
        if not len(numbers):
            return None
        low, high = int(numbers.min()), int(numbers.max())
        if high > 64 * max(low, 1):
            edges = np.geomspace(max(low, 1), high + 1, HISTOGRAM_BINS + 1)
            edges[0] = low
        else:
            edges = np.linspace(low, high + 1, min(HISTOGRAM_BINS, high - low + 1) + 1)
        counts = np.histogram(numbers, edges)[0].tolist()
        median, mean = float(np.median(numbers)), round(float(numbers.mean()), 3)
        return cls(len(numbers), low, median, mean, high, [round(edge, 3) for edge in edges.tolist()], counts)


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """A field of a dataset.

    Examples:
        >>> field = bags.info('episodes').fields['state']
        >>> field.type, field.items.min, field.items.max
        ('array(float32,2)[]', 3, 10)
    """

    type: str
    bytes: int
    """Bytes on disk of records and limits, in all shards."""
    linked_bytes: int
    """Bytes of linked records in other files; each byte range counts once."""
    compressed: bool
    ratio: float | None
    """Bytes of the records divided by their compressed bytes; None if they are not compressed."""
    record_bytes: Distribution | None
    """Bytes on disk of a record."""
    items: Distribution | None
    """Number of items of a datapoint; None for plain fields."""
    seconds: Distribution | None
    """Seconds of the stream of a datapoint; None for values without times."""
    unmeasured: int
    """Number of sampled recordings and videos whose header has no length, so that they were opened."""
    missing: int
    """Number of missing values in the sampled datapoints."""


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """A dataset.

    Examples:
        >>> summary = bags.info('episodes')
        >>> summary.datapoints, summary.shards, list(summary.fields)
        (8, 2, ['id', 'label', 'task', 'image', 'state'])
    """

    path: str
    datapoints: int
    shards: int
    bytes: int
    linked_bytes: int
    """Bytes of linked records in other files; each byte range counts once per field."""
    refs_bytes: int
    unfinished: bool
    """Whether the dataset is being written, or its writer ended early: it raised, or was killed."""
    unclosed: list[str]
    """Folders that were not closed."""
    not_begun: list[str]
    """The first shards of parallel writers (`shard_start`, `shard_step`) that have not begun."""
    checksums: bool
    """Whether the records of every shard have checksums."""
    sampled_shards: int
    """Number of shards from which distributions, ratios and missing values are computed."""
    fields: dict[str, FieldInfo]
    metadata: dict[str, Any]
    needs: list[str]
    """The datasets, and the folders of files, with the linked records, without which it cannot be read."""

    def __repr__(self) -> str:
        return f'<DatasetInfo of {self.path!r}: {count_text(self.datapoints)}; str() has all fields>'

    def __str__(self) -> str:
        shards = plural(self.shards, 'shard')
        heading = f'{plural(self.datapoints, "datapoint")} in {shards}, {byte_count(self.bytes)}'
        needs = f'\n\nneeds {", ".join(self.needs)}' if self.needs else ''
        return f'{self.path}\n{heading}\n\n{as_lines(info_table(self))}{needs}'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))


@dataclasses.dataclass(frozen=True)
class BagInfo:
    """A bag, or several bags that form one sequence.

    Examples:
        >>> bags.info('episodes/000000/task.bag').records
        4
    """

    path: str
    records: int
    bags: int
    bytes: int
    unclosed: list[str]
    """Bags that were not closed."""
    checksums: bool
    """Whether the records of every bag have checksums."""
    compressed: bool
    ratio: float | None
    """Bytes of the records divided by their compressed bytes; None if they are not compressed."""
    record_bytes: Distribution | None
    """Bytes on disk of a record."""
    sampled_bags: int


@with_advice
def info(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DatasetInfo | BagInfo:
    """Describes a dataset or bags: counts, bytes, and distributions of record sizes and sequence lengths.

    Args:
        path: A dataset, or one or several bags (`name@*.bagz`); also a URL.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: The path has no dataset or bag, or the dataset is just being created.
        CorruptError, SpecError: The data are damaged.

    Examples:
        >>> summary = bags.info('episodes')
        >>> summary.datapoints, summary.fields['image'].type
        (8, 'jpeg')
    """
    location = locate(path, filesystem, storage_options)
    if location.type == 'bags':
        return _bag_info(location)
    return _dataset_info(location, path, {'filesystem': filesystem, 'storage_options': storage_options})


class _Sample:
    """Sizes of some records, compressed and uncompressed, and lengths of some sequences."""

    def __init__(self) -> None:
        self.sizes: list[Int64s] = []
        self.lengths: list[Int64s] = []
        self.missing = 0
        self._compressed = self._uncompressed = 0

    def add(self, bag: StoredRecords) -> None:
        chosen = _middle(bag.count)
        if not chosen:
            return
        self.sizes.append(bag.sizes(chosen))
        if not isinstance(bag, BagFile) or not bag.is_compressed:
            return  # The sources of links report their own ratio.
        for located in bag.locate(np.array(_evenly_spaced(chosen, SAMPLED_FRAMES))):
            starts, stops = located.starts, located.stops
            headers = located.file.read_many(starts, np.minimum(stops, starts + FRAME_HEADER_BYTES))
            for header, size in zip(headers, (stops - starts).tolist(), strict=True):
                try:
                    content = zstandard.frame_content_size(header)
                except zstandard.ZstdError:
                    continue
                if located.codec is not None and content >= 0:
                    self._compressed += size
                    self._uncompressed += content

    def ratio(self) -> float | None:
        return round(self._uncompressed / self._compressed, 3) if self._compressed else None


def _middle(count: int) -> range:
    """Returns the range of records of a bag to sample."""
    start = max(0, count - SAMPLED_RECORDS) // 2
    return range(start, min(count, start + SAMPLED_RECORDS))


def _evenly_spaced(items: Sequence[Any], count: int) -> list[Any]:
    """Returns at most `count` items, evenly spaced."""
    positions = np.linspace(0, len(items) - 1, min(len(items), count)).astype(np.int64)
    return [items[position] for position in np.unique(positions).tolist()]


def _bag_info(location: Location) -> BagInfo:
    store, options, paths = location.store, ReaderOptions(), location.parts

    def look(path: str) -> tuple[int, int, bool]:
        bag = open_bag(store, path, options)
        return bag.count, store.stat(path).size, bag.limits.path != bag.file.path

    summaries = map_concurrently(look, paths, store.is_remote)
    sample = _Sample()
    sampled = [open_bag(store, path, options) for path in _evenly_spaced(paths, SAMPLED_SHARDS)]
    for bag in sampled:
        sample.add(bag)
    return BagInfo(
        location.path,
        sum(count for count, _, _ in summaries),
        len(paths),
        sum(size for _, size, _ in summaries),
        [path for path, (_, _, is_unclosed) in zip(paths, summaries, strict=True) if is_unclosed],
        all(store.exists(checksums_name(path)) for path in paths),
        any(bag.is_compressed for bag in sampled),
        sample.ratio(),
        Distribution.of(sample.sizes),
        len(sampled),
    )


def _dataset_info(location: Location, path: Any, storage: Mapping[str, Any]) -> DatasetInfo:
    with open_dataset(path, raw=True, **storage) as dataset:
        schema, datapoints, metadata = dataset.schema, len(dataset), dataset.metadata
        paths = location.parts[: dataset.shards]  # Excludes shards that are being created.
    seconds = _seconds(path, storage, [name for name in schema if is_stream(schema[name])])
    samples = {name: _Sample() for name in schema}
    sampled = _evenly_spaced(paths, SAMPLED_SHARDS)
    for folder in sampled:
        _sample_folder(Folder(location.store, folder, ReaderOptions()), samples)
    totals = collections.Counter[str]()
    folders, unclosed, checked = set(paths), set(), set()
    unfinished = len(paths) < len(location.parts) or has_journal(location.store, location.path)
    can_list = unfinished and location.type == 'shards' and location.store.can_list
    not_begun = shards_not_begun(location.store.names(location.path)) if can_list else []
    for file, stat in files_below(location.store, paths, location.path).items():
        folder, _, name = file.rpartition('/')
        path = location.store.join(location.path, folder) if folder else location.path
        if path in folders:
            totals[name] += stat.size
            unfinished |= name in (JOURNAL, 'limits.refs.bag')
            if name == 'limits.refs.bag':
                unclosed.add(path)
            if name == checksums_name('refs.bag'):
                checked.add(path)
    fields, needs = {}, set[str]()
    for name, field_type in schema.items():
        sample = samples[name]
        fields[name] = FieldInfo(
            field_type.text,
            bytes_of_field(totals, name),
            _linked_bytes(location, paths, name, needs) if name + LINKED[0] in totals else 0,
            f'{name}.bagz' in totals,
            sample.ratio(),
            Distribution.of(sample.sizes),
            Distribution.of(sample.lengths),
            *seconds.get(name, (None, 0)),
            sample.missing,
        )
    return DatasetInfo(
        location.path,
        datapoints,
        len(paths),
        bytes_of_bags(totals),
        sum(field.linked_bytes for field in fields.values()),
        totals['refs.bag'] + totals['limits.refs.bag'],
        unfinished,
        [path for path in paths if path in unclosed],
        not_begun,
        checked == folders,
        len(sampled),
        fields,
        metadata,
        sorted(needs),
    )


def bytes_of_field(sizes: Mapping[str, int], field: str) -> int:
    """Returns the bytes of the records and limits of a field, given the bytes of files by name."""
    names = [f'{stem}{end}' for stem in (field, f'limits.{field}') for end in BAG_SUFFIXES]
    return sum(sizes.get(file, 0) for file in (*names, f'{field}.idx'))


def bytes_of_bags(sizes: Mapping[str, int]) -> int:
    """Returns the bytes of the records and limits of all bags, given the bytes of files by name."""
    return sum(size for name, size in sizes.items() if name.endswith((*BAG_SUFFIXES, '.idx')))


def _seconds(
    path: Any, storage: Mapping[str, Any], fields: Sequence[str]
) -> dict[str, tuple[Distribution | None, int]]:
    """Returns the seconds of the streams of sampled datapoints, and the number of files without a length.

    Leaves out fields without times, and those that cannot be read, such as linked files without permission.
    """
    found: dict[str, tuple[Distribution | None, int]] = {}
    errors = BagsError, OSError, ValueError, TypeError
    with contextlib.suppress(*errors), open_dataset(path, **storage) as dataset:
        rows = np.array(_evenly_spaced(range(len(dataset)), SAMPLED_DURATIONS), np.int64)
        for name in fields:
            with contextlib.suppress(*errors):
                stream = StreamField(dataset, name)
                found[name] = Distribution.of_seconds(stream.durations(rows)), stream.unmeasured
    return found


def _linked_bytes(location: Location, paths: Sequence[str], field: str, needs: set[str]) -> int:
    """Returns the bytes of all ranges of other files that the links of a field point to.

    Adds the folders of these files to `needs`; for bags, the folders of their datasets.
    """
    store, options = location.store, ReaderOptions()
    ranges: dict[str, set[tuple[int, int]]] = {}
    for path in paths:
        if not store.exists(store.join(path, field + LINKED[0])):
            continue
        bag = open_links(store, path, field, options, LinkedFiles(store, location.path, options))
        rows = np.unique(np.stack(bag.link_rows(range(bag.count))[:3], 1), axis=0)
        for number, start, end in rows[rows[:, 0] != VALUES_FILE].tolist():
            ranges.setdefault(resolved_path(bag.entry(number).path, path), set()).add((start, end))
        for number in np.unique(rows[rows[:, 0] != VALUES_FILE, 0]).tolist():
            entry = bag.entry(number)
            folder = resolved_path(entry.path, path).rpartition('/')[0]
            needs.add(dataset_folder(folder) if entry.is_bag else folder)
    return sum(end - start for file_ranges in ranges.values() for start, end in file_ranges)


def _sample_folder(folder: Folder, samples: dict[str, _Sample]) -> None:
    refs_bag = folder.open_refs()
    layout = folder.layout()
    count = folder.shortest(layout.schema) if refs_bag is None else refs_bag.count
    rows = np.array(_middle(count), np.int64)
    names = [name for name, field_type in layout.schema.items() if field_type.sequence or field_type.optional]
    refs = (
        RefsReader(folder.path, refs_bag, layout.refs_format, count).of(rows, names)
        if names and count
        else {}
    )
    for name, ref in refs.items():
        if layout.schema[name].sequence:
            firsts, lengths = ref
            samples[name].lengths.append(lengths)
            missing = is_missing(firsts, lengths)
        else:
            missing = is_missing(ref)
        samples[name].missing += int(np.count_nonzero(missing))
    for name in layout.schema:
        samples[name].add(folder.open_bag(name))
