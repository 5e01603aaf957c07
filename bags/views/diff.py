"""`diff`: the datapoints that differ between two datasets. Records that both datasets share are not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.bag.memory_records import MemoryRecords
from bags.bag.records import StoredRecords
from bags.concurrency import MAX_OPEN_BAGS, FifoCache
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.refs import is_missing
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.difference import Diff
from bags.dataset.reading.key_values import read_keys
from bags.dataset.reading.row_reader import RecordRanges
from bags.indexing import Int64s
from bags.links.files import LinkedFile, sample_of, sample_ranges
from bags.links.link_builder import LinkBuilder
from bags.views.groups import check_key_types, read_values

PAIRS_AT_ONCE = 1 << 16
Bools = npt.NDArray[np.bool_]


def diff_datasets(first: Dataset, other: Dataset, on: str | None) -> Diff:
    """Returns the result of `Dataset.diff`; see there for errors."""
    check_dataset('diff', other)
    one, two = first.spec, other.spec
    names = [*one, *(name for name in two if name not in one)]
    fields = {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}
    if on is None:
        shared = min(len(first), len(other))
        lefts = rights = np.arange(shared)
        removed, added = np.arange(shared, len(first)), np.arange(shared, len(other))
    else:
        lefts, rights = _match(first, other, on)
        removed, added = _others(len(first), lefts), _others(len(other), rights)
    changed: dict[str, Int64s] = {}
    for name in names:
        if name in fields or name == on:
            continue
        compare = _FieldComparison(first, other, name)
        starts = range(0, len(lefts), PAIRS_AT_ONCE)
        parts = [
            start
            + compare.differing(lefts[start : start + PAIRS_AT_ONCE], rights[start : start + PAIRS_AT_ONCE])
            for start in starts
        ]
        differing = np.concatenate([np.empty(0, np.int64), *parts])
        if len(differing):
            changed[name] = np.stack([lefts[differing], rights[differing]], 1)
    return Diff(fields, removed, added, changed, len(lefts))


def _others(count: int, rows: Int64s) -> Int64s:
    """Returns the datapoints that are not among `rows`."""
    is_other = np.ones(count, bool)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def _match(first: Dataset, other: Dataset, on: str) -> tuple[Int64s, Int64s]:
    """Returns pairs of datapoints with equal keys, in the order of the first dataset."""
    rows_of = []
    for dataset, which in ((first, 'the first'), (other, 'the other')):
        check_key_types(dataset, on, f'diff: {which} dataset')
        keys = [key for _, some in read_keys(dataset, on) for key in some]
        rows = dict(zip(keys, range(len(keys)), strict=True))
        what = f'diff: field {on!r} of {which} dataset'
        if None in rows:
            raise ValueError(f'{what}: datapoint {keys.index(None)} has no key')
        if len(rows) < len(keys):
            row, key = next((row, key) for row, key in enumerate(keys) if rows[key] != row)
            raise ValueError(f'{what}: datapoints {row} and {rows[key]} have the same key')
        rows_of.append(rows)
    matches = np.fromiter((rows_of[1].get(key, -1) for key in rows_of[0]), np.int64, len(rows_of[0]))
    lefts = np.flatnonzero(matches >= 0)
    return lefts, matches[lefts]


class _FieldComparison:
    """Compares the values of a field of two datasets."""

    def __init__(self, first: Dataset, other: Dataset, field: str) -> None:
        self._datasets, self._field = (first, other), field
        self._existing, self._files = LinkBuilder(), _FileNumbers()
        self._codecs: dict[bytes | None, int] = {}
        """The number of each compression dictionary."""
        self._opened = FifoCache(_open_checked, MAX_OPEN_BAGS)

    def differing(self, lefts: Int64s, rights: Int64s) -> Int64s:
        """Returns the positions of the pairs of datapoints whose values differ."""
        one, other = (
            dataset.record_ranges(rows, self._field)
            for dataset, rows in zip(self._datasets, (lefts, rights), strict=True)
        )
        if one is None or other is None:  # Values of windows are computed.
            return self._read(lefts, rights, np.arange(len(lefts)))
        are_missing = [is_missing(ranges.firsts, ranges.counts) for ranges in (one, other)]
        differ: Bools = (one.counts != other.counts) | (are_missing[0] != are_missing[1])
        rows = np.flatnonzero(~differ & (one.counts > 0))
        counts = one.counts[rows]
        locations = [self._locations(ranges, rows) for ranges in (one, other)]
        is_same = (locations[0] == locations[1]).all(0)
        left = np.flatnonzero(~is_same)
        if len(left):
            digests = [self._digests(ranges, rows, left) for ranges in (one, other)]
            is_same[left] = (digests[0] == digests[1]).all(0) & (digests[0][1] != 0)
        owners = np.repeat(rows, counts)
        # Parts of videos are compared by file and frames only, because some cannot be read as bytes.
        are_parts = ~is_same & (np.minimum(locations[0][4], locations[1][4]) > 0)
        differ[owners[are_parts]] = True
        unknown = np.setdiff1d(owners[~is_same], np.flatnonzero(differ))
        return np.sort(np.append(np.flatnonzero(differ), self._read(lefts, rights, unknown)))

    def _read(self, lefts: Int64s, rights: Int64s, positions: Int64s) -> Int64s:
        """Reads the records at some positions, and returns the positions where they differ."""
        one, other = self._datasets
        differing = []
        # Both are read in the same chunks, which the record sizes of the first dataset determine.
        start = 0
        for chunk, values in read_values(one, lefts[positions], self._field):
            some = positions[start : start + len(chunk)]
            start += len(chunk)
            records = other.read_records(rights[some], self._field)
            others = [tuple(record) if isinstance(record, list) else record for record in records]
            if values != others:
                pairs = zip(some.tolist(), values, others, strict=True)
                differing += [position for position, value, record in pairs if value != record]
        return np.array(differing, np.int64)

    def _locations(self, ranges: RecordRanges, rows: Int64s) -> Int64s:
        """Returns the file, byte range and frame range of each record, shape (5, n)."""
        return self._of_records(ranges, rows, None, self._locations_in)

    def _digests(self, ranges: RecordRanges, rows: Int64s, chosen: Int64s) -> Int64s:
        """Returns the compression and the checksum (0: none) of some records, shape (2, n)."""
        return self._of_records(ranges, rows, chosen, self._digests_in)

    def _of_records(self, ranges: RecordRanges, rows: Int64s, chosen: Int64s | None, find: Any) -> Int64s:
        """Returns the columns that `find` returns for the records of each bag."""
        records = concat_ranges(ranges.firsts[rows], ranges.counts[rows])
        which = np.repeat(ranges.which[rows], ranges.counts[rows])
        if chosen is not None:
            records, which = records[chosen], which[chosen]
        result: Any = None
        for number, source in enumerate(ranges.sources):
            of_source = np.flatnonzero(which == number)
            if not len(of_source):
                continue
            columns = find(source.bag, records[of_source])
            if result is None:
                result = np.zeros((len(columns), len(records)), np.int64)
            result[:, of_source] = columns
        return np.zeros((5, 0), np.int64) if result is None else result

    def _locations_in(self, bag: StoredRecords, records: Int64s) -> Any:
        run = self._existing.link(bag, records)
        numbers = np.array([self._files.number(bag, file) for file in run.files])
        frames = np.zeros((len(run.which), 2), np.int64) if run.frames is None else run.frames
        return np.stack([numbers[run.which], run.starts, run.stops, *frames.T])

    def _digests_in(self, bag: StoredRecords, records: Int64s) -> Any:
        if not bag.has_checksums or (bag.is_compressed and not isinstance(bag, BagFile)):
            return np.zeros((2, len(records)), np.int64)
        checked = self._opened[bag]
        assert checked.checksums is not None
        # Checksums of stored bytes are comparable only for equal compression.
        compression = 0
        if bag.codec is not None:
            dictionary = bag.codec.options.dictionary
            compression = 1 + self._codecs.setdefault(dictionary, len(self._codecs))
        sums = np.array(checked.checksums.of(records), np.uint64).view(np.int64)
        return np.stack([np.full(len(records), compression), sums])


class _FileNumbers:
    """Assigns numbers to files. A file replaced since it was opened or linked counts as another file."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._seen: dict[str, list[tuple[LinkedFile, BagFile | None, int]]] = {}
        """Maps paths to numbered files; each file with its open bag, if it is a bag."""

    def number(self, bag: StoredRecords, file: LinkedFile | MemoryRecords) -> int:
        """Returns the number of a source of records: a bag, a linked file, or records in memory."""
        if isinstance(file, MemoryRecords):
            return self._numbers.setdefault(id(file), len(self._numbers))
        bag_file = bag if isinstance(bag, BagFile) else None
        store = repr(bag.options.storage_options) if bag.is_remote and bag.options else ''
        key = store, file, bag_file and bag_file.file.version
        if key not in self._numbers:
            seen = self._seen.setdefault(store + file.path, [])
            same = (
                number
                for seen_file, known_bag, number in seen
                if (bag_file is None) != (known_bag is None)
                and _is_sampled(bag_file or known_bag, seen_file if bag_file is not None else file)
            )
            self._numbers[key] = next(same, len(self._numbers))
            seen.append((file, bag_file, self._numbers[key]))
        return self._numbers[key]


def _is_sampled(bag: BagFile | None, file: LinkedFile) -> bool:
    """Returns whether a bag matches the file of a link. The bag may have grown since the link was made."""
    if bag is None or file.size > bag.end:
        return False
    ranges = np.array(sample_ranges(file.size), np.int64)
    return sample_of(bag.file.read_many(ranges[:, 0], ranges[:, 1])) == file.sample


def _open_checked(bag: StoredRecords) -> StoredRecords:
    """Opens a bag again, with checksums."""
    if bag.checksums is not None or bag.reopen is None:
        return bag
    return bag.reopen(checksum=True)
