"""`FieldRun`: the checks of one field, in blocks of datapoints; what they found, and their scores."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.checks.check_log import CheckedBlock, CheckLog
from bags.checks.column import READ_ERRORS, Column, Field
from bags.checks.definition import Check, FieldScores, Float64s, Scores
from bags.checks.findings import MAX_LISTED, Finding, SkippedCheck
from bags.checks.places import Places
from bags.dataset.reading.batch import Ragged
from bags.errors import MissingDependencyError
from bags.indexing import Int64s, chunk_length

BLOCK_BYTES = 1 << 23
"""Approximate bytes of values that are read at a time."""
MAX_BLOCK = 1 << 15
"""Maximum number of datapoints that are read at a time."""
FIRST_BLOCK = 64
MAX_DAMAGED = 100
"""Number of damaged datapoints of a field after which the rest of the field is not checked."""
MAX_RARE_SHARE = 0.1
"""Maximum share of the datapoints of a finding of a check that is `rare`."""
MIN_RARE_DATAPOINTS = 5
"""Number of datapoints of a dataset from which a single one is rare."""
MAX_KEPT_HITS = 4 * MAX_LISTED

ROWS_AT_ONCE = 1 << 12
"""Number of datapoints whose times are read at once, to say where in them a score was found."""


@dataclasses.dataclass
class SavedScores:
    """The scores of a check in all n datapoints, and where those above the bound were found."""

    values: npt.NDArray[np.float32]
    """(n,); NaN where a datapoint has no score."""
    spans: Float64s | None
    """(n, 2), the first and the last second, on the clock of the datapoint; NaN where there are none. None
    if no datapoint has any."""
    others: Int64s | None
    """(n,), the other datapoint that the score refers to; -1 where there is none. None if there are none."""


Scored = dict[tuple[str, str], SavedScores]
"""The scores of all datapoints by field and check."""


@dataclasses.dataclass
class RunResult:
    """What checks found in a dataset."""

    findings: list[Finding]
    skipped: list[SkippedCheck]
    scores: Scored


class _Hits:
    """The datapoints with a score above the bound: their number, and the worst."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []
        self._kept = 0

    def add(self, rows: Int64s, scores: Scores, bound: float, raw: Float64s | None = None) -> None:
        values = np.asarray(scores.values, np.float64)
        are_hits = np.flatnonzero(values > bound)
        if not len(are_hits):
            return
        none = np.full(len(values), -1)
        items = none if scores.items is None else scores.items
        others = none if scores.others is None else scores.others
        raw = values if raw is None else raw
        self.count += len(are_hits)
        self._parts.append(
            (values[are_hits], rows[are_hits], raw[are_hits], items[are_hits], others[are_hits])
        )
        self._kept += len(are_hits)
        if self._kept > MAX_KEPT_HITS:
            self._parts = [tuple(column[:MAX_LISTED] for column in self.worst())]
            self._kept = len(self._parts[0][0])

    def worst(self) -> tuple[npt.NDArray[Any], ...]:
        """Returns scores, rows, what `Check.scores` returned, items and others, worst first."""
        columns = [np.concatenate(parts) for parts in zip(*self._parts, strict=True)]
        order = np.lexsort((columns[1], -columns[0]))
        return tuple(column[order] for column in columns)


class FieldRun:
    """The checks of one field."""

    def __init__(
        self,
        field: Field,
        checks: Sequence[Check],
        bounds: Mapping[str, float],
        places: Places | None,
        keep_scores: bool,
        log: CheckLog | None,
    ) -> None:
        self.field, self._places, self._keep, self._log = field, places, keep_scores, log
        self._start = 0
        self._bounds = {check.name: bounds.get(check.name, check.bound) for check in checks}
        self._skipped: list[SkippedCheck] = []
        self._failed: dict[str, str] = {}
        """Checks that raised an error, and the error; empty if a package is missing."""
        self._is_missing_a_package = False
        self.damaged: list[tuple[int, str]] = []
        self._has_numbers = False
        chosen = [check for check in checks if self._applies(check)]
        self._of_rows = [check for check in chosen if check.scores is not None]
        self._of_field = [check for check in chosen if check.of_field is not None]
        self._hits = {check.name: _Hits() for check in chosen}
        self._scores: dict[str, list[tuple[Int64s, Scores]]] = {check.name: [] for check in chosen}
        self._has_numbers = field.dtype is not None and bool(chosen)

    def _applies(self, check: Check) -> bool:
        if not self.field.has_decoder and check.level != 'columns':
            return False
        try:
            answer = check.applies(self.field)
        except READ_ERRORS:
            return True  # The error is met again, and reported, when the values are read.
        except Exception as exc:
            self._failed[check.name] = _text_of(exc)
            return False
        if isinstance(answer, str):
            self._skipped.append(SkippedCheck(check.name, self.field.name, answer))
        return answer is True

    def blocks(self) -> Iterator[Int64s]:
        """Yields consecutive datapoints whose values take about `BLOCK_BYTES`."""
        if not self._of_rows and not self._has_numbers:
            return
        count, start, step = len(self.field.dataset), self._start, FIRST_BLOCK
        self._block_bytes = 0
        while start < count:
            rows = np.arange(start, min(start + step, count))
            yield rows
            start += len(rows)
            step = chunk_length(len(rows), self._block_bytes, BLOCK_BYTES, MAX_BLOCK, 8)
            if len(self.damaged) > MAX_DAMAGED:
                return

    def resume(self) -> int:
        """Takes what an earlier run computed, and returns the number of its datapoints."""
        for block in () if self._log is None else self._log.blocks(self.field.name):
            for name, part in block.kept.items():
                column = self.field.kept.setdefault(name, np.zeros(len(self.field.dataset), part.dtype))
                column[block.start : block.stop] = part
            extent = self.field.extent
            extent.count, extent.low, extent.high = block.extent
            self.damaged += block.damaged
            self._failed |= block.failed
            for check in self._of_rows:
                for rows, scores in block.scores.get(check.name, ()):
                    self._add(check, rows, scores)
            self._start = block.stop
        return self._start

    def check_block(self, rows: Int64s) -> None:
        """Checks consecutive datapoints, and adds what was computed to the log."""
        added = {name: len(parts) for name, parts in self._scores.items()}
        damaged = len(self.damaged)
        self.check(rows)
        if self._log is None or self._is_missing_a_package:
            return
        start, stop, extent = int(rows[0]), int(rows[-1]) + 1, self.field.extent
        self._log.add(
            self.field.name,
            CheckedBlock(
                start, stop,
                {name: self._scores[name][first:] for name, first in added.items()},
                {name: column[start:stop] for name, column in self.field.kept.items()},
                (extent.count, extent.low, extent.high), self.damaged[damaged:], self._failed,
            ),
        )  # fmt: skip

    def check(self, rows: Int64s) -> None:
        """Checks datapoints. Damaged datapoints are found by halving the range."""
        column = Column(self.field, rows)
        results: list[tuple[Check, Scores]] = []
        try:
            items = column.numbers.items if self._has_numbers else None
            for check in self._of_rows:
                if check.name not in self._failed:
                    scores = self._scored(check, column)
                    if scores is not None:
                        results.append((check, scores))
        except READ_ERRORS as exc:
            if len(rows) == 1:
                self.damaged.append((int(rows[0]), str(exc)))
            elif len(self.damaged) <= MAX_DAMAGED:
                half = len(rows) // 2
                self.check(rows[:half])
                self.check(rows[half:])
            return
        if items is not None:
            self.field.extent.add(items)
        self._block_bytes = _bytes_of(vars(column).get('values'))
        for check, scores in results:
            self._add(check, rows, scores)

    def _add(self, check: Check, rows: Int64s, scores: Scores) -> None:
        if check.compare is not None or self._keep:
            self._scores[check.name].append((rows, scores))
        if check.compare is None:
            self._hits[check.name].add(rows, scores, self._bounds[check.name])

    def _scored(self, check: Check, column: Column) -> Scores | None:
        assert check.scores is not None
        try:
            scores = check.scores(column)
            scores = scores if isinstance(scores, Scores) else Scores(np.asarray(scores))
            values = np.asarray(scores.values, np.float64)
            if values.shape != (len(column),):
                raise ValueError(f'expected {len(column)} scores, got shape {values.shape}')
            return scores._replace(values=values)
        except MissingDependencyError as exc:
            self._skipped.append(SkippedCheck(check.name, self.field.name, str(exc)))
            self._failed[check.name] = ''
            self._is_missing_a_package = True
        except READ_ERRORS:
            raise
        except Exception as exc:  # Of a check of one's own, or of an unforeseen value.
            self._failed[check.name] = _text_of(exc)
        return None

    def conclude(self, result: RunResult) -> None:
        """Adds findings, skipped checks and scores to the result."""
        count = len(self.field.dataset)
        for check in self._of_rows:
            parts = self._scores[check.name]
            if check.compare is not None and parts:
                rows = np.concatenate([rows for rows, _ in parts])
                raw = _joined([scores for _, scores in parts])
                try:
                    scores = raw._replace(values=np.asarray(check.compare(raw.values), np.float64))
                    self._hits[check.name].add(rows, scores, self._bounds[check.name], raw.values)
                except Exception as exc:
                    self._failed[check.name] = _text_of(exc)
                    continue
                parts = [(rows, scores)]
            if self._keep and parts:
                saved = self._saved(check, parts)
                if saved is not None:
                    result.scores[self.field.name, check.name] = saved
            if self._hits[check.name].count:
                result.findings.append(self._finding(check))
        for check in self._of_field:
            assert check.of_field is not None
            try:
                found = check.of_field(self.field) if count else None
            except READ_ERRORS:
                continue  # Reported as damage.
            except Exception as exc:
                self._failed[check.name] = _text_of(exc)
                continue
            if found is not None:
                finding = _finding_of_field(check, self.field, found, self._bounds[check.name])
                result.findings += [] if finding is None else [finding]
        result.skipped += self._skipped
        for name, error in self._failed.items():
            if error:
                result.findings.append(_failure(name, self.field.name, error))

    def _saved(self, check: Check, parts: Sequence[tuple[Int64s, Scores]]) -> SavedScores | None:
        """Returns the scores of all datapoints; None if no datapoint has a score."""
        rows, scores = np.concatenate([rows for rows, _ in parts]), _joined([scores for _, scores in parts])
        count = len(self.field.dataset)
        values = np.full(count, np.nan, np.float32)
        values[rows] = scores.values
        if not np.isfinite(values).any():
            return None
        are_hits = scores.values > self._bounds[check.name]
        spans = scores.spans
        if spans is None and scores.items is not None:
            spans = np.stack([scores.items, scores.items], 1)
        seconds = others = None
        if spans is not None and (with_span := np.flatnonzero(are_hits & (spans >= 0).all(1))).size:
            seconds = np.full((count, 2), np.nan)
            for part in np.split(with_span, range(ROWS_AT_ONCE, len(with_span), ROWS_AT_ONCE)):
                seconds[rows[part]] = self._seconds(rows[part], spans[part])
            seconds = seconds if np.isfinite(seconds).any() else None
        if scores.others is not None and are_hits.any():
            others = np.full(count, -1)
            others[rows[are_hits]] = scores.others[are_hits]
        return SavedScores(values, seconds, others)

    def _seconds(self, rows: Int64s, spans: Int64s) -> Float64s:
        try:
            return np.stack([seconds_of(self.field, rows, spans[:, side]) for side in (0, 1)], 1)
        except READ_ERRORS:
            return np.full((len(rows), 2), np.nan)

    def _finding(self, check: Check) -> Finding:
        hits, bound, count = self._hits[check.name], self._bounds[check.name], len(self.field.dataset)
        values, rows, raw, items, others = hits.worst()
        severity = check.severity
        few = max(MAX_RARE_SHARE * count, count >= MIN_RARE_DATAPOINTS)
        if check.rare and hits.count > few:
            severity = 'info'
        row, other = int(rows[0]), int(others[0]) if others[0] >= 0 else None
        seconds = None
        if items[0] >= 0:
            (second,) = seconds_of(self.field, rows[:1], items[:1]).tolist()
            seconds = second if math.isfinite(second) else None
        detail = check.detail.format(value=float(values[0]), raw=float(raw[0]), bound=bound)
        show = leave_out = ''
        listed = tuple(rows[:MAX_LISTED].tolist())
        if self._places is not None:
            show = self._places.show(row, seconds, other)
            if len(self._places.paths) > 1:
                beside = '' if other is None else f', and {self._places.text(other)}'
                detail += f': {self._places.text(row)}{beside}'
            if hits.count == count:
                leave_out = ''
            elif check.where:
                name = self.field.name if self.field.name.isidentifier() else f'`{self.field.name}`'
                leave_out = self._places.where(check.where.format(field=name, bound=bound))
            elif hits.count <= len(listed):
                leave_out = self._places.drop(listed)
            else:
                name = f'`{self.field.name}.{check.name}`'
                leave_out = self._places.where(f'not {name} > {bound:g}', 'scores')
        return Finding(
            check.name, severity, self.field.name, detail, float(values[0]), bound, hits.count, listed,
            seconds, other, show, leave_out,
        )  # fmt: skip


def seconds_of(field: Field, rows: Int64s, items: Int64s) -> Float64s:
    """Returns the time of an item of each datapoint, on the clock of the datapoint, shape (n,).

    Args:
        field: The field.
        rows: The indices of the datapoints, shape (n,).
        items: The item of each, shape (n,).

    Returns:
        float64 seconds; NaN for an item without a time.
    """
    if field.rate is not None and not field.is_sound:
        start = field.facts.get('start', 0)
        return (float(start) if isinstance(start, int | float) else 0.0) + items / field.rate
    seconds = np.full(len(rows), np.nan)
    if field.is_video or field.is_sound:
        for position, (row, item) in enumerate(zip(rows.tolist(), items.tolist(), strict=True)):
            with contextlib.suppress(*READ_ERRORS, ValueError, IndexError, TypeError):
                stream = field.dataset.stream(row, field.name)
                seconds[position] = (
                    stream.start + item / stream.rate if field.is_sound else stream.times[item]
                )
        return seconds
    column, times = Column(field, rows), None
    if field.times is not None:
        times = column.times
    elif field.has_times_as_values:
        times = column.seconds
    if times is not None:
        are_inside = items < times.counts
        seconds[are_inside] = times.items[(times.offsets[:-1] + items)[are_inside], 0]
    return seconds


def _joined(parts: Sequence[Scores]) -> Scores:
    def column(name: str, *shape: int) -> Any:
        if all(getattr(part, name) is None for part in parts):
            return None
        columns = [getattr(part, name) for part in parts]
        none = [np.full((len(part.values), *shape), -1) for part in parts]
        return np.concatenate(
            [empty if one is None else one for one, empty in zip(columns, none, strict=True)]
        )

    values = np.concatenate([np.asarray(part.values, np.float64) for part in parts])
    return Scores(values, column('items'), column('others'), column('spans', 2))


def _finding_of_field(check: Check, field: Field, found: FieldScores, bound: float) -> Finding | None:
    values = np.atleast_1d(np.asarray(found.values, np.float64))
    above = np.flatnonzero(values > bound)
    if not len(above):
        return None
    worst = above[int(np.argmax(values[above]))]
    detail = found.detail or check.detail.format(value=float(values[worst]), bound=bound)
    if len(values) > 1:
        named = ', '.join(field.dimension(int(number)) for number in above[:8])
        more = f' and {len(above) - 8} others' if len(above) > 8 else ''
        detail = f'{named}{more}: {detail}'
    return Finding(check.name, check.severity, field.name, detail, float(values[worst]), bound, 0)


def _text_of(exc: Exception) -> str:
    return f'{type(exc).__name__}: {" ".join(str(exc).split()):.200}'


def _failure(check: str, field: str, error: str) -> Finding:
    detail = f'the check {check} raised {error}'
    return Finding('failed_checks', 'error', field, detail, 1.0, 0.0, 0)


def _bytes_of(values: Any) -> int:
    """Returns the approximate bytes of a column in memory."""
    if isinstance(values, Ragged):
        return values.values.nbytes + values.offsets.nbytes
    if isinstance(values, np.ndarray):
        return values.nbytes
    if not isinstance(values, list):
        return 0
    sampled = values[:: max(1, len(values) // 64)]
    size = sum(_bytes_of_value(value) for value in sampled)
    return size * len(values) // max(1, len(sampled))


def _bytes_of_value(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list):
        return sum(map(_bytes_of_value, value))
    return 64 + (len(value) if isinstance(value, str | bytes) else 0)
