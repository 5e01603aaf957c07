"""Equal values in two datapoints, within a split and across splits."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import digest_function
from bags.bag.records import StoredRecords
from bags.checks.column import READ_ERRORS, Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import Array
from bags.concurrency import MAX_OPEN_BAGS, FifoCache, map_concurrently
from bags.dataset.reading.batch import concat_ranges
from bags.indexing import Int64s

MIN_ITEMS = 16
"""Number of different items from which an equal sequence is no chance."""
Digests = npt.NDArray[np.uint64]
MAX_READ_BYTES = 1 << 28
"""Bytes of records of one size that are read to compare them, if they have no checksums."""
ROWS_AT_ONCE = 1 << 14
UNKNOWN = 0
"""The digest of a value that is not compared."""


class Equal(NamedTuple):
    """For each datapoint of a field, the first datapoint with an equal value; -1 if there is none before."""

    first: Int64s
    """(n,)."""
    first_elsewhere: Int64s
    """The first one in another split, (n,)."""


def equal_of(field: Field) -> Equal:
    """Returns the equal values of a field."""
    digests = _media_digests(field) if field.is_media else _sequence_digests(field)
    count = len(digests)
    first, elsewhere = np.full(count, -1), np.full(count, -1)
    known = np.flatnonzero(digests != UNKNOWN)
    ordered = np.sort(digests[known])
    if (ordered[1:] != ordered[:-1]).all():
        return Equal(first, elsewhere)
    del ordered
    _, starts, groups = np.unique(digests[known], return_index=True, return_inverse=True)
    first[known] = known[starts[groups]]
    first[known[starts]] = -1
    if field.parts is not None:
        parts = field.parts[known]
        is_other = parts != parts[starts[groups]]
        first_other = np.full(len(starts), count)
        np.minimum.at(first_other, groups[is_other], known[is_other])
        elsewhere[known] = np.where(is_other, known[starts[groups]], first_other[groups])
        elsewhere[elsewhere >= np.arange(count)] = -1
    return Equal(first, elsewhere)


def _media_digests(field: Field) -> Digests:
    """Returns a digest of the records of each datapoint: of their checksums, or else of their bytes.

    Without checksums, only records are read that have the size of another one.
    """
    dataset, digest = field.dataset, digest_function()
    digests = np.full(len(dataset), UNKNOWN, np.uint64)
    ranges = dataset.record_ranges(np.arange(len(dataset)), field.name)
    if ranges is None:
        return digests
    opened = FifoCache(_open_checked, MAX_OPEN_BAGS)
    for number, source in enumerate(ranges.sources):
        rows = np.flatnonzero((ranges.which == number) & (ranges.counts > 0))
        checked = opened[source.bag] if number not in field.once(_without_checksums) else source.bag
        if not len(rows) or checked.checksums is None:
            continue
        counts = ranges.counts[rows]
        sums = np.asarray(checked.checksums.of(concat_ranges(ranges.firsts[rows], counts)), np.uint64)
        if (counts == 1).all():
            digests[rows] = sums
            continue
        ends = np.cumsum(counts)
        for row, end, length in zip(rows.tolist(), ends.tolist(), counts.tolist(), strict=True):
            digests[row] = digest(sums[end - length : end].tobytes())
    for row in field.once(_to_read).tolist():
        with contextlib.suppress(*READ_ERRORS):
            (value,) = dataset.read_records(np.array([row]), field.name)
            digests[row] = digest(b''.join(value) if isinstance(value, list) else value)
    return digests


def _without_checksums(field: Field) -> list[int]:
    """Returns the numbers of the bags whose records have no checksums."""
    ranges = field.dataset.record_ranges(np.arange(len(field.dataset)), field.name)
    assert ranges is not None
    have = map_concurrently(lambda source: source.bag.has_checksums, ranges.sources, field.dataset.reads_wait)
    return [number for number, has in enumerate(have) if not has]


def _to_read(field: Field) -> Int64s:
    """Returns the datapoints without checksums that have as many bytes as another one."""
    ranges = field.dataset.record_ranges(np.arange(len(field.dataset)), field.name)
    if ranges is None:
        return np.empty(0, np.int64)
    lacking = np.isin(ranges.which, field.once(_without_checksums))
    rows = np.flatnonzero(lacking & (ranges.counts > 0))
    sizes = ranges.sizes()[rows]
    _, inverse, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    return rows[(counts[inverse] > 1) & (sizes > 0)]


def _bytes_to_read(field: Field) -> int:
    ranges = field.dataset.record_ranges(np.arange(len(field.dataset)), field.name)
    return 0 if ranges is None else int(ranges.sizes()[field.once(_to_read)].sum())


def _open_checked(bag: StoredRecords) -> StoredRecords:
    return bag if bag.checksums is not None or bag.reopen is None else bag.reopen(checksum=True)


def _sequence_digests(field: Field) -> Digests:
    """Returns a digest of each long sequence with many different items."""
    digest, count = digest_function(), len(field.dataset)
    digests = np.full(count, UNKNOWN, np.uint64)
    for start in range(0, count, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, count))
        if field.type.sequence:
            rows = rows[Column(field, rows).lengths >= MIN_ITEMS]
        for part in np.array_split(rows, max(1, len(rows) // 256)) if len(rows) else ():
            column = field.readable(part)
            numbers = column.numbers
            for position, row in enumerate(column.rows.tolist()):
                items = numbers.items[numbers.offsets[position] : numbers.offsets[position + 1]]
                if _are_different(items):
                    digests[row] = digest(np.ascontiguousarray(items).view(np.uint8).data)
    return digests


def _are_different(items: Array) -> bool:
    """Returns whether there are many different items, which do not simply count up."""
    if len(items) < MIN_ITEMS or len(np.unique(items[:256], axis=0)) < MIN_ITEMS:
        return False
    steps = np.diff(items[:256].astype(np.float64), axis=0)
    return bool((np.abs(steps - steps[0]) > 1e-6 * np.abs(steps[0])).any())


def _applies(field: Field) -> bool | str:
    if not field.is_media:
        is_sequence = field.dtype is not None and field.has_items and not field.has_times_as_values
        return is_sequence and len(field.shape) <= 1
    if _bytes_to_read(field) > MAX_READ_BYTES or (field.dataset.reads_wait and len(field.once(_to_read))):
        return 'the records have no checksums: bags copy --checksum adds them'
    return True


def _scores(column: Column) -> Scores:
    equal = column.field.once(equal_of)
    first = np.where(equal.first_elsewhere[column.rows] >= 0, -1, equal.first[column.rows])
    return Scores(first >= 0, None, first)


def _across(column: Column) -> Scores:
    elsewhere = column.field.once(equal_of).first_elsewhere[column.rows]
    return Scores(elsewhere >= 0, None, elsewhere)


def _applies_across(field: Field) -> bool | str:
    return _applies(field) if field.parts is not None else False


CHECKS = (
    Check(
        name='shared_records',
        severity='error',
        bound=0,
        reason='An equal value in two splits: the score in val is that of a value that was trained on.',
        bound_source=f'equal records of media, or equal sequences of {MIN_ITEMS} different items or more',
        applies=_applies_across,
        scores=_across,
        detail='is equal to a datapoint of another split',
    ),
    Check(
        name='equal_records',
        severity='warning',
        bound=0,
        reason='A recording was stored twice: it counts twice, and a split by datapoint shares it.',
        bound_source=f'equal records of media, or equal sequences of {MIN_ITEMS} different items or more',
        applies=_applies,
        scores=_scores,
        rare=True,
        detail='is equal to an earlier datapoint',
    ),
)
