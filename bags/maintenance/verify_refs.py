"""The refs of a folder: whether every row is one and leads to what is there, and what none leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.dataset.batch import spread
from bags.dataset.refs import MISSING, RefsFormat, dangling
from bags.indexing import Int64s
from bags.maintenance.findings import Damage, Finding, Note
from bags.maintenance.verify_bag import limits_of, unfit
from bags.maintenance.verify_jobs import Result

__all__ = ['look_at_rows']

TOGETHER = 1 << 18
Chosen = tuple[Int64s, dict[str, Any]]
"""Indices of rows, and the refs of each field in them, as `RefsFormat.columns` gives them."""


def look_at_rows(bag: BagFile, format: RefsFormat, counts: dict[str, tuple[str, int]]) -> Result:
    """Looks at all rows of refs.

    Args:
        bag: The refs.
        format: How they are held.
        counts: Of each field that could be opened, its bag's path and how many records that has.
    """
    used = {name: np.zeros(count, bool) for name, (_, count) in counts.items()}
    findings: list[Iterable[Finding]] = []
    for start in range(0, bag.count, TOGETHER):
        stop = min(start + TOGETHER, bag.count)
        (rows, refs), bad = _rows(bag, format, start, stop)
        findings.append(bad)
        for name, (path, count) in counts.items():
            kind = format.spec[name]
            firsts, items = refs[name] if kind.sequence else (refs[name], None)
            wrong = dangling(kind, firsts, items, count)
            if items is not None:
                # An empty sequence reads as one wherever it points to, but no writer has it point beyond.
                wrong |= (items == 0) & (firsts > count) & ~((firsts == MISSING) & kind.optional)
            if wrong.any():
                findings.append(_dangling(bag.path, name, path, count, rows, firsts, items, wrong))
            _use(used[name], firsts[~wrong], None if items is None else items[~wrong])
    for name, (path, count) in counts.items():
        orphans = count - int(np.count_nonzero(used[name]))
        if orphans:
            some = '1 record' if orphans == 1 else f'{orphans:,} records'
            findings.append([Note(path, name, f'{some} of {count:,} that no datapoint refers to; harmless')])
    return Result(
        (finding for each in findings for finding in each), (), bag.count, bag.count * format.stride
    )


def _rows(bag: BagFile, format: RefsFormat, start: int, stop: int) -> tuple[Chosen, list[Finding]]:
    """Returns the rows that are sound, and damage for the others.

    Those whose limits cannot be right are left out of both: they are met with the limits.
    """
    names = list(format.spec)
    try:
        starts, stops = limits_of(bag, start, stop)
    except EOFError:
        return (np.empty(0, np.int64), format.gather([], names)), []
    first, last = int(starts[0]), int(stops[-1])
    if (
        last - first == format.stride * len(stops)
        and bool((stops - starts == format.stride).all())
        and last <= bag.end
    ):
        data: Any = np.frombuffer(bag.file.read(first, last), np.uint8) if bag.file.buffer is None else None
        if data is None:
            data = np.ndarray((last - first,), np.uint8, bag.file.buffer, first)
        if format.has_tags(data.reshape(-1, format.stride)):
            return (np.arange(start, stop), format.columns(data, stop - start, slice(None), names)), []
    findings: list[Finding] = []
    indices, rows = [], []
    for place in np.flatnonzero(~unfit(starts, stops, bag.end)).tolist():
        try:
            rows.append(format.unpack(bytes(bag.file.read(int(starts[place]), int(stops[place])))))
            indices.append(start + place)
        except (ValueError, EOFError) as exc:
            findings.append(Damage(bag.path, None, start + place, str(exc)))
    return (np.array(indices, np.int64), format.gather(rows, names)), findings


def _dangling(
    refs: str,
    field: str,
    path: str,
    count: int,
    rows: Int64s,
    firsts: Int64s,
    items: Int64s | None,
    wrong: npt.NDArray[np.bool_],
) -> Iterator[Damage]:
    for place in np.flatnonzero(wrong).tolist():
        last = int(firsts[place]) if items is None else int(firsts[place]) + max(0, int(items[place]) - 1)
        missing = int(firsts[place]) == MISSING
        what = 'no value, in a field that is not optional' if missing else f'record {last}'
        yield Damage(refs, field, int(rows[place]), f'refers to {what}; {path} has {count} records')


def _use(used: npt.NDArray[np.bool_], firsts: Int64s, items: Int64s | None) -> None:
    """Marks the records that refs lead to."""
    if items is None:
        present = firsts[firsts < len(used)]  # Not those that are missing.
        if (
            len(present)
            and int(present[-1]) - int(present[0]) == len(present) - 1
            and (np.diff(present) == 1).all()
        ):
            used[int(present[0]) : int(present[-1]) + 1] = True
        else:
            used[present] = True
        return
    full = items > 0
    firsts, items = firsts[full], items[full]
    if not len(firsts):
        return
    ends = firsts + items
    if bool((firsts[1:] == ends[:-1]).all()):
        used[int(firsts[0]) : int(ends[-1])] = True
    elif int(items.sum()) <= len(used):
        used[spread(firsts, items)] = True
    else:
        # Sequences that overlap: at each record, how many begin minus how many have ended.
        depth = np.bincount(firsts, minlength=len(used) + 1) - np.bincount(ends, minlength=len(used) + 1)
        used |= np.cumsum(depth[:-1]) > 0
