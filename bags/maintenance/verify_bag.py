"""The records of one bag: their limits, their sizes, their frames and, if asked, their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.bag.blocks import broken_frames
from bags.bag.limits import ENTRY
from bags.errors import CorruptError, MissingDependencyError
from bags.indexing import Int64s
from bags.maintenance.findings import Damage, Finding
from bags.maintenance.verify_heads import wrong_heads
from bags.maintenance.verify_jobs import Job, Result

__all__ = ['Decode', 'Kind', 'limits_of', 'one_by_one', 'record_jobs', 'unfit']

Bools = npt.NDArray[np.bool_]
Decode = Callable[[Int64s], Iterable[tuple[int, str]]]
"""Decodes records by index; gives those that fail, and why."""

TOGETHER = 1 << 20  # Records that are looked at in one job.
DECODED = 1 << 23  # Bytes of records, about, that are decoded in one job.


class Kind(NamedTuple):
    """What the records of a bag are."""

    field: str | None = None
    """What findings call it."""
    type: str = ''
    """Of the field."""
    length: int = 0
    """Bytes that every record must have; 0 for any."""
    head: str = ''
    """The word in `HEADS` that says how every record must begin, if any."""
    decode: Decode | None = None
    """If given, every record is decoded."""


def record_jobs(bag: BagFile, kind: Kind) -> Iterator[Job]:
    """Yields jobs that together look at all records of a bag."""
    step = TOGETHER
    if kind.decode is not None:
        mean = max(1, bag.end // max(1, bag.count))
        step = max(1, min(1 << 14, DECODED // mean))
    for start in range(0, bag.count, step):
        yield _job(bag, kind, start, min(start + step, bag.count))


def _job(bag: BagFile, kind: Kind, start: int, stop: int) -> Job:
    def look() -> Result:
        try:
            starts, stops = limits_of(bag, start, stop)
        except EOFError as exc:
            return Result([Damage(bag.path, kind.field, None, str(exc))])
        bad = unfit(starts, stops, bag.end)
        findings: list[Iterable[Finding]] = [_limits(bag, kind, start, bad, starts, stops)]
        good = ~bad
        sizes = stops - starts
        if kind.length and bag.codec is None:
            wrong = good & (sizes != kind.length)
            findings.append(_sizes(bag, kind, start, wrong, sizes))
            good &= ~wrong
        if bag.file.buffer is not None:
            wrong, detail = _misformed(bag, kind, good, starts, stops)
            findings.append(_named(bag, kind, start, wrong, detail))
            good &= ~wrong
        if kind.decode is not None:
            failed = kind.decode(start + np.flatnonzero(good)) if good.any() else ()
            findings.append(Damage(bag.path, kind.field, record, detail) for record, detail in failed)
        read = int(sizes[good].sum()) if kind.decode is not None else 0
        return Result(_chained(findings), (), stop - start, read + ENTRY * (stop - start))

    return look


def _misformed(bag: BagFile, kind: Kind, good: Bools, starts: Int64s, stops: Int64s) -> tuple[Bools, str]:
    """Returns which records do not begin, or end, as they should: frames, and media that are not in one."""
    wrong = np.zeros(len(good), bool)
    if bag.codec is not None:
        places = np.flatnonzero(good & (stops > starts))
        wrong[places] = broken_frames(bag.file.buffer, starts[places], stops[places])
        return wrong, 'is not one whole zstd frame'
    if kind.head:
        places = np.flatnonzero(good)
        wrong[places] = wrong_heads(kind.head, bag.file.buffer, starts[places], stops[places])
    return wrong, f'does not begin as {kind.type} does'


def _named(bag: BagFile, kind: Kind, first: int, wrong: Bools, detail: str) -> Iterator[Damage]:
    return (Damage(bag.path, kind.field, first + place, detail) for place in np.flatnonzero(wrong).tolist())


def _chained(findings: list[Iterable[Finding]]) -> Iterator[Finding]:
    for each in findings:
        yield from each


def limits_of(bag: BagFile, start: int, stop: int) -> tuple[Int64s, Int64s]:
    """Returns starts and ends of consecutive records, unchecked."""
    stops = np.asarray(bag.ends[start:stop])
    starts = np.empty_like(stops)
    starts[1:] = stops[:-1]
    if start < stop:
        starts[0] = bag.ends[start - 1 : start][0] if start else 0
    return starts, stops


def unfit(starts: Int64s, stops: Int64s, end: int) -> Bools:
    """Returns which ranges are not inside so many bytes, or end before they start."""
    # As unsigned numbers, a negative one is larger than any size.
    bad: Bools = stops.view('<u8') > end
    bad |= starts.view('<u8') > stops.view('<u8')
    return bad


def _limits(
    bag: BagFile, kind: Kind, first: int, bad: Bools, starts: Int64s, stops: Int64s
) -> Iterator[Damage]:
    for place in np.flatnonzero(bad).tolist():
        try:
            bag._refuse(first + place, int(starts[place]), int(stops[place]))
        except CorruptError as exc:
            yield Damage(bag.path, kind.field, first + place, exc.detail)


def _sizes(bag: BagFile, kind: Kind, first: int, wrong: Bools, sizes: Int64s) -> Iterator[Damage]:
    for place in np.flatnonzero(wrong).tolist():
        detail = f'has {int(sizes[place])} bytes, but {kind.type} takes {kind.length}'
        yield Damage(bag.path, kind.field, first + place, detail)


def one_by_one(work: Callable[[int], Any], indices: Int64s) -> list[tuple[int, str]]:
    """Does work on each record; returns those it fails on, and why."""
    found = []
    for index in indices.tolist():
        try:
            work(index)
        except MissingDependencyError:
            raise
        except CorruptError as exc:
            found.append((index, exc.detail))
        except Exception as exc:
            cause = exc.__cause__ or exc
            found.append((index, f'{type(cause).__name__}: {cause}'))
    return found
