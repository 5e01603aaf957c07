"""Checks the records of one bag: limits, sizes, media signatures, zstd frames, values. Defines findings."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bags.bag.limits import ENTRY
from bags.bag.records import FileRanges, StoredRecords
from bags.dataset.reading.field_reader import Record
from bags.errors import CorruptError, DecodeError, MissingDependencyError
from bags.formats.scalars import MAX_VALUE_SIZE
from bags.formats.signatures import identify, starts_with
from bags.indexing import Int64s, chunk_length
from bags.storage.errors import is_of_file

MAX_CHECKED_RECORDS = 1 << 20
"""Number of records in a check of limits and sizes."""
MAX_READ_RECORDS = 1 << 14
"""Maximum number of records in a check that reads them."""
CHECKED_READ_BYTES = 1 << 21
"""Approximate bytes on disk of the records in a check that reads them."""
MAX_READ_BYTES = 1 << 28
"""Maximum bytes of the records in a check that are read together: a few may be much larger than the rest."""
MAX_FINDINGS = 1000
"""Number of findings of a check, and of a field in a file, above which only their number is kept."""
CHECKED_HEAD_BYTES = 16
AUDIO_BLOCK = 1 << 16
"""Samples of a recording that are decoded at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A problem in a dataset or a bag.

    Examples:
        >>> path = bags.copy(dataset, 'torn') and 'torn/000000/task.bag'
        >>> os.truncate(path, os.path.getsize(path) - 1)
        >>> [(type(finding).__name__, finding.field) for finding in bags.verify('torn')]
        [('Damage', 'task')]
    """

    path: str
    """The file or folder."""
    field: str | None
    """The damaged field; None if the damage is not specific to a field."""
    record: int | None
    """Index of the record in the file; None if the damage concerns the whole file."""
    detail: str
    """The actual and the expected state."""
    count: int = 1
    """Number of damaged records; for a linked file, all records that link to it. `record` is the first."""

    def __str__(self) -> str:
        record = '' if self.record is None else f', record {self.record}'
        record += f' and {self.count - 1:,} more' if self.count > 1 else ''
        return f'{_where(self.path, self.field)}{record}: {self.detail}'


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """A finding that is not damage, such as an unclosed bag or unused records.

    Examples:
        >>> writer = bags.DatasetWriter('begun', {'n': 'int(4)'})
        >>> writer.append({'n': 1}, flush=True)
        0
        >>> writer.abandon()
        >>> {type(finding).__name__ for finding in bags.verify('begun', notes=True)}
        {'Note'}
    """

    path: str
    field: str | None
    detail: str

    def __str__(self) -> str:
        return f'{_where(self.path, self.field)}: {self.detail}'


Finding = Damage | Note


def unreadable(exc: OSError, path: str, field: str | None = None) -> Damage:
    """Returns the damage of a file that cannot be read; raises the error if it is not about the file.

    Args:
        exc: The error. It may name another file, such as a linked one.
        path, field: The file that was read, and its field.
    """
    if not is_of_file(exc):
        raise exc
    return Damage(os.fsdecode(exc.filename or path), field, None, f'cannot be read: {exc.strerror or exc}')


def add_finding(findings: list[Finding], finding: Finding) -> None:
    """Adds a finding of a check. Above `MAX_FINDINGS`, damage is counted with the last one."""
    last = findings[-1] if len(findings) >= MAX_FINDINGS else None
    if isinstance(last, Damage) and isinstance(finding, Damage):
        findings[-1] = dataclasses.replace(last, count=last.count + finding.count)
    else:
        findings.append(finding)


def _where(path: str, field: str | None) -> str:
    return path if field is None else f'{path}, field {field!r}'


class Result(NamedTuple):
    """The result of a check."""

    findings: list[Finding]
    records: int = 0
    """Number of records that were checked."""
    size: int = 0
    """Number of bytes that were read."""


Check = Callable[[], Result]
"""A check to run, in any thread."""


class Expected(NamedTuple):
    """The expected properties of the records of a bag."""

    field: str | None = None
    """The field to name in findings."""
    type: str = ''
    """Type of the field."""
    length: int = 0
    """Bytes of every record; 0 for any size."""
    format: str | None = None
    """Media format of every record, a name in `SIGNATURES`."""
    decode: Callable[[Any], Any] | None = None
    """The decoder to try; None to leave values undecoded."""
    is_lazy: bool = False
    """Whether `decode` takes a `Record` and decodes lazily, when its result is used."""


def bag_checks(bag: StoredRecords, expected: Expected, decode: bool) -> Iterator[Check]:
    """Yields checks that together cover all records of a bag.

    Compressed records are decompressed, and records with checksums are compared with them: always in local
    bags, and only with `decode` on an object store.
    """
    must_read = bag.is_compressed or bag.checksums is not None
    reads = expected.decode is not None or (must_read and (decode or not bag.is_remote))
    step = MAX_CHECKED_RECORDS if expected.format is None else MAX_READ_RECORDS
    if reads:
        step = chunk_length(bag.count, bag.size - ENTRY * bag.count, CHECKED_READ_BYTES, MAX_READ_RECORDS)
    for start in range(0, bag.count, step):
        yield functools.partial(_check, bag, expected, reads, start, min(start + step, bag.count))


def _check(bag: StoredRecords, expected: Expected, reads: bool, start: int, stop: int) -> Result:
    """Checks consecutive records. A record that fails a check is left out of the following checks."""
    count = stop - start
    try:
        findings: list[Finding] = []
        valid = np.ones(count, bool)

        def report(failures: Iterable[tuple[int, str]]) -> None:
            """Reports records that fail, given their indices and the reasons."""
            for index, detail in failures:
                valid[index - start] = False
                add_finding(findings, Damage(bag.path, expected.field, index, detail))

        report(bag.invalid(start, stop))
        for links, detail in bag.unreadable_links(start, stop):
            valid[np.array(links) - start] = False
            findings.append(Damage(bag.path, expected.field, links[0], detail, len(links)))
        indices = start + np.flatnonzero(valid)
        file_ranges = bag.locate(range(start, stop) if len(indices) == count else indices)
    except (EOFError, CorruptError) as exc:
        return Result([Damage(bag.path, expected.field, None, str(exc))])
    except OSError as exc:
        return Result([unreadable(exc, bag.path, expected.field)])
    sizes = np.zeros(count, np.int64)
    for ranges in file_ranges:
        records = indices if ranges.positions is None else indices[ranges.positions]
        sizes[records - start] = ranges.stops - ranges.starts
        if ranges.are_stored:
            report(_size_failures(expected, records, ranges))
            if expected.format is not None and not reads and not bag.is_remote:
                try:
                    report(_signature_failures(expected, records, ranges))
                except OSError as exc:
                    findings.append(unreadable(exc, bag.path, expected.field))
    if not reads:
        return Result(findings, count, ENTRY * count)
    size = int(sizes[valid].sum())
    report(_failures(bag, expected, start + np.flatnonzero(valid)))
    return Result(findings, count, size + ENTRY * count)


def _size_failures(expected: Expected, indices: Int64s, ranges: FileRanges) -> Iterator[tuple[int, str]]:
    """Yields records whose size differs from the fixed size of their type."""
    sizes = ranges.stops - ranges.starts
    for position in np.flatnonzero(sizes != expected.length).tolist() if expected.length else ():
        detail = f'has {sizes[position]} bytes, but {expected.type} takes {expected.length}'
        yield int(indices[position]), detail


def _signature_failures(expected: Expected, indices: Int64s, ranges: FileRanges) -> Iterator[tuple[int, str]]:
    """Yields records whose signature does not match their type: an earlier limit may be wrong."""
    assert expected.format is not None
    heads = ranges.file.read_many(ranges.starts, np.minimum(ranges.stops, ranges.starts + CHECKED_HEAD_BYTES))
    for index, head in zip(indices.tolist(), heads, strict=True):
        if not starts_with(head, expected.format):
            yield index, f'expected {expected.format}, got {identify(head)}'


def _failures(bag: StoredRecords, expected: Expected, indices: Int64s) -> list[tuple[int, str]]:
    """Decompresses and decodes records; returns the records that fail, and the reasons.

    Segments of linked files that are not decoded are only compared with their checksums, because not every
    segment can be copied.
    """
    decode = expected.decode
    is_lazy = expected.is_lazy and decode is not None
    are_whole = not any(ranges.are_segments for ranges in bag.locate(indices))
    records: list[Any] | None = None
    sizes = bag.sizes(indices)
    if not is_lazy and are_whole and int(sizes.sum()) <= MAX_READ_BYTES:
        try:
            records = bag.read(indices)
        except (CorruptError, OSError):
            pass  # The records are read one at a time below, to find the damaged record.
    failures = []
    for position, index in enumerate(indices.tolist()):
        try:
            if decode is not None and is_lazy:
                _use(decode(Record(bag, index, expected.field or '', expected.type)))
                continue
            if not are_whole and bag.segment(index) is not None:
                continue
            if sizes[position] > MAX_VALUE_SIZE:
                bag.open(index, '').close()  # Compares a record with its checksum, in pieces.
                if decode is not None:
                    raise ValueError(f'{sizes[position]} bytes exceed max_value_size={MAX_VALUE_SIZE}')
                continue
            record = bag.get(index) if records is None else records[position]
            if decode is not None:
                decode(record)
        except MissingDependencyError:
            raise
        except CorruptError as exc:
            failures.append((index, exc.detail))
        except Exception as exc:
            if isinstance(exc, OSError) and not is_of_file(exc):
                raise
            cause = exc.__cause__ if isinstance(exc, DecodeError) and exc.__cause__ else exc
            source = bag.source_of(index)
            where = '' if source == bag.path else f'{source}: '
            failures.append((index, f'{where}{type(cause).__name__}: {cause}'))
    return failures


def _use(value: Any) -> None:
    """Decodes a lazy value completely: the frames of a video, the samples of a recording."""
    parts = value.blocks(AUDIO_BLOCK) if hasattr(value, 'blocks') else value
    for _ in parts if isinstance(parts, Iterable) else ():
        pass
