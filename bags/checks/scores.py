"""Datasets of scores, which `bags.check(save=…)` writes, and their join with the dataset that was checked."""

from __future__ import annotations

import os
from typing import Any, Unpack

import numpy as np

from bags.authoring.from_numpy import from_numpy
from bags.checks.field_run import Scored
from bags.checks.findings import Findings
from bags.dataset.base import Dataset
from bags.dataset.format.options import ReadOptions
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.batch import as_list
from bags.maintenance.metadata import set_metadata
from bags.views.groups import check_key_types
from bags.views.join import Join

CHECKED = 'checked'
"""Key of the metadata of a dataset of scores that describes the dataset that was checked."""
SPAN, OTHER = 'span', 'other'
"""Ends of the names of columns beside a score: where it was found in time, and the other datapoint."""
ROW = 'row'
"""The field with the index of the datapoint."""


def read_key_column(dataset: Dataset, on: str) -> Any:
    """Returns the keys of all datapoints, as an array.

    Raises:
        KeyError, TypeError: No such field, or it has no keys.
        ValueError: A datapoint has no key.
    """
    check_key_types(dataset, on, 'check: on')
    keys = dataset.column(on)
    if not isinstance(keys, list):
        return keys
    if None in keys:
        raise ValueError(f'check: on: field {on!r}: datapoint {keys.index(None)} has no key')
    return np.array(keys, object if dataset.schema[on].format == 'utf8' else None)


def save_scores(
    dataset: Dataset,
    found: Findings,
    scores: Scored,
    path: str | os.PathLike[str],
    on: str | None,
    resume: bool = False,
) -> None:
    """Writes a dataset with a datapoint for each datapoint that was checked.

    Its fields are `row`, the key if there is one, and a column `FIELD.CHECK` for each check with a score; a
    missing score is NaN. Beside it, `FIELD.CHECK.span` has the first and the last second of a score above
    the bound, on the clock of the datapoint, and `FIELD.CHECK.other` the other datapoint that the score
    refers to, e.g. an equal one; NaN and -1 where there are none. Its metadata has the fingerprint of the
    dataset, and the findings.

    Args:
        dataset: The dataset that was checked.
        found, scores: What was found.
        path: The folder of the new dataset.
        on: The field of keys.
        resume: Whether to continue an interrupted call.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is not set.
        KeyError, TypeError, ValueError: As `read_key_column`.
    """
    columns: dict[str, Any] = {ROW: np.arange(len(dataset))}
    if on is not None:
        columns[on] = read_key_column(dataset, on)
    for (field, check), saved in scores.items():
        columns[f'{field}.{check}'] = saved.values
        if saved.spans is not None:
            columns[f'{field}.{check}.{SPAN}'] = saved.spans
        if saved.others is not None:
            columns[f'{field}.{check}.{OTHER}'] = saved.others
    from_numpy(columns, path, progress=False, resume=resume)
    set_metadata(path, {CHECKED: {**found.as_json(), 'on': on}})


def open_scores(dataset: Dataset, path: str | os.PathLike[str], **options: Unpack[ReadOptions]) -> Dataset:
    """Returns the scores of a dataset, a view with a column `FIELD.CHECK` for each check.

    Args:
        dataset: The dataset that was checked.
        path: The scores.
        **options: As in `bags.open`, for the scores.

    Raises:
        FileNotFoundError: The path has no dataset.
        ValueError: The path has no scores, or those of another dataset or of an earlier state of this one.
    """
    scores = open_dataset(path, **options)
    checked = scores.metadata.get(CHECKED)
    if not isinstance(checked, dict) or ROW not in scores.schema:
        raise ValueError(f'{path}: expected scores that bags.check(…, save=…) wrote, got another dataset')
    if checked.get('fingerprint') != dataset.fingerprint or len(scores) != len(dataset):
        raise ValueError(
            f'{path}: expected scores of {dataset!r:.200}, got those of another dataset, or of an earlier '
            'state of this one: check again'
        )
    on = checked.get('on')
    if on is not None and as_list(scores.column(on)) != as_list(dataset.column(on)):
        raise ValueError(f'{path}: field {on!r}: expected the keys of the dataset, got others: check again')
    return scores.select(fields=[name for name in scores.schema if name not in (ROW, on)])


def findings_of(scores: Dataset) -> list[dict[str, Any]]:
    """Returns the findings of scores for the page of the viewer: without commands, which name local paths."""
    checked = scores.metadata.get(CHECKED)
    findings = checked.get('findings') if isinstance(checked, dict) else None
    return [
        {name: value for name, value in finding.items() if name not in ('show', 'leave_out')}
        for finding in (findings if isinstance(findings, list) else ())
        if isinstance(finding, dict)
    ]


def join_scores(dataset: Dataset, scores: Dataset) -> Join:
    """Returns a view of a dataset, or of an edit of it, with its scores."""
    return Join([dataset, scores], replace=False)
