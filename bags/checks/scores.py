"""Datasets of scores, which `bags.check(save=…)` writes, and their join with the dataset that was checked."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bags.authoring.from_numpy import from_numpy
from bags.checks.findings import Findings
from bags.checks.run import Scored
from bags.dataset.base import Dataset
from bags.dataset.open import open as open_dataset
from bags.maintenance.metadata import set_metadata
from bags.views.groups import check_key_types
from bags.views.join import Join

CHECKED = 'checked'
"""Key of the metadata of a dataset of scores that describes the dataset that was checked."""
ROW = 'row'
"""The field with the index of the datapoint."""


def save_scores(
    dataset: Dataset, found: Findings, scores: Scored, path: str | os.PathLike[str], on: str | None
) -> None:
    """Writes a dataset with a datapoint for each datapoint that was checked.

    Its fields are `row`, the key if there is one, and a column `FIELD.CHECK` for each check with a score; a
    missing score is NaN. Its metadata has the fingerprint of the dataset, and the findings.

    Args:
        dataset: The dataset that was checked.
        found, scores: What was found.
        path: The folder of the new dataset.
        on: The field of keys.

    Raises:
        FileExistsError: The folder is not empty.
        KeyError, TypeError: No such field, or it has no keys.
    """
    columns: dict[str, Any] = {ROW: np.arange(len(dataset))}
    if on is not None:
        check_key_types(dataset, on, 'check: on')
        keys = dataset.column(on)
        columns[on] = np.array(keys, object) if isinstance(keys, list) else keys
    columns |= {f'{field}.{check}': values for (field, check), values in scores.items()}
    from_numpy(columns, path, progress=False)
    set_metadata(path, {CHECKED: {**found.as_json(), 'on': on}})


def join_scores(dataset: Dataset, path: str | os.PathLike[str], **options: Any) -> Join:
    """Returns a view of a dataset with its scores, as fields `FIELD.CHECK`.

    Args:
        dataset: The dataset that was checked.
        path: The scores of it.
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
            f'{path}: the scores are those of another dataset, or of an earlier state of this one: expected '
            f'the fingerprint {dataset.fingerprint}, got {checked.get("fingerprint")!r}; check again'
        )
    names = [name for name in scores.schema if name not in (ROW, checked.get('on'))]
    return Join([dataset, scores.select(fields=names)], replace=False)
