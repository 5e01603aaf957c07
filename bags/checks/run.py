"""Runs checks over a dataset, field by field: returns findings and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bags.checks.check_log import CheckLog
from bags.checks.column import SPLIT_NAMES, Field
from bags.checks.definition import Check
from bags.checks.field_run import MAX_DAMAGED, FieldRun, RunResult
from bags.checks.findings import MAX_LISTED, Finding
from bags.checks.places import Places
from bags.dataset.base import Dataset
from bags.progress.progress import progress as show_progress


def run_checks(
    dataset: Dataset,
    checks: Sequence[Check],
    bounds: Mapping[str, float],
    *,
    fields: Sequence[str],
    places: Places | None,
    window: int | None = None,
    keep_scores: bool = False,
    log: CheckLog | None = None,
    has_own_decoders: bool = True,
    progress: bool | None = None,
) -> RunResult:
    """Runs checks.

    Args:
        dataset: The dataset.
        checks: The checks to run.
        bounds: Bounds by name of a check, instead of its own.
        fields: The fields to check.
        places: Where the datapoints are, for commands; None if no command can read the dataset.
        window: Number of items of the windows that training uses.
        keep_scores: Whether to return the scores.
        log: Stores scores until all are computed, and has the scores of an interrupted run.
        has_own_decoders: Whether the dataset may have other decoders than the library.
        progress: Whether to show a progress bar; None: on a terminal.
    """
    result = RunResult([], [], {})
    all_fields: dict[str, Field] = {}
    parts = None if places is None else places.parts
    split = next((name for name in SPLIT_NAMES if name in dataset.schema), None)
    for name in dataset.schema:
        all_fields[name] = Field(dataset, name, all_fields, window, split, parts, has_own_decoders)
    damage: dict[str, list[tuple[int, str]]] = {}
    with (
        show_progress('checking', len(dataset) * len(fields), 'values', show=progress) as advance,
        np.errstate(all='ignore'),  # Numbers may be NaN or inf.
    ):
        for field in (all_fields[name] for name in fields):
            run = FieldRun(field, checks, bounds, places, keep_scores, log)
            advance(run.resume())
            try:
                for rows in run.blocks():
                    run.check_block(rows)
                    advance(len(rows))
            except BaseException:  # Including Ctrl-C.
                if log is not None:
                    log.save()
                raise
            if log is not None:
                log.end_field()
            run.conclude(result)
            if run.damaged:
                damage[field.name] = run.damaged
            field.forget()
    if damage:
        result.findings.append(_damage(damage, places))
    return result


def _damage(damage: Mapping[str, list[tuple[int, str]]], places: Places | None) -> Finding:
    """Returns one finding for all damage."""
    rows = sorted({row for of_field in damage.values() for row, _ in of_field})
    name, ((row, error), *_) = max(damage.items(), key=lambda entry: len(entry[1]))
    given_up = any(len(of_field) > MAX_DAMAGED for of_field in damage.values())
    others = f', and in {", ".join(other for other in damage if other != name)}' if len(damage) > 1 else ''
    rest = '; the rest of the field was not checked' if given_up else ''
    command = 'bags verify --decode' if places is None else places.verify()
    detail = f'cannot be read: {" ".join(error.split()):.200}{others}{rest}; {command} lists all damage'
    listed = tuple(rows[:MAX_LISTED])
    leave_out = '' if places is None or len(rows) > MAX_LISTED else places.drop(listed)
    show = '' if places is None else places.show(row)
    return Finding(
        'damaged_datapoints', 'error', name, detail, float(len(rows)), 0.0, len(rows), listed, None, None,
        show, leave_out,
    )  # fmt: skip
