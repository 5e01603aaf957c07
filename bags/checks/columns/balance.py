"""Classes with few datapoints."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Field
from bags.checks.definition import Check, FieldScores

MAX_CLASSES = 64
MIN_DATAPOINTS = 40


def _ratio(field: Field) -> FieldScores:
    if field.is_text:
        _, counts = np.unique(np.array(field.sample.texts[0], str), return_counts=True)
    else:
        _, counts = np.unique(field.sample.numbers.items, return_counts=True)
    if len(counts) < 2 or len(counts) > MAX_CLASSES or counts.sum() < MIN_DATAPOINTS:
        return FieldScores(np.array([np.nan]))
    return FieldScores(np.array([counts.max() / counts.min()]))


def _applies(field: Field) -> bool:
    is_label = field.dtype is not None and (field.dtype.kind == 'b' or 'classes' in field.facts)
    is_class = (is_label or field.is_text) and not field.has_items and not field.shape
    return is_class and field.name != field.split


CHECKS = (
    Check(
        name='class_ratio',
        severity='info',
        bound=5,
        reason='A model learns the rare class last: weigh it, or draw it more often.',
        bound_source='a fact, not a mistake',
        applies=_applies,
        of_field=_ratio,
        detail='in the sample, the largest class has {value:.3g} times the datapoints of the smallest',
    ),
)
