"""Values that the metadata excludes: outside of `range`, `classes` or `vocabulary`."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import Array


def _range(field: Field) -> tuple[Array, Array] | None:
    """Returns the stated lowest and highest value of each dimension, or of all."""
    stated = field.facts.get('range')
    if not isinstance(stated, list) or len(stated) != 2 or field.dtype is None:
        return None
    try:
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in stated)
    except (TypeError, ValueError):
        return None
    width = int(np.prod(field.shape))
    return (low, high) if {len(low), len(high)} <= {1, width} else None


def _outside(column: Column) -> Scores:
    stated = _range(column.field)
    assert stated is not None
    return _count(column, (column.numbers.items < stated[0]) | (column.numbers.items > stated[1]))


def _count(column: Column, are_wrong: Array) -> Scores:
    numbers = column.numbers
    wrong = np.flatnonzero(are_wrong.any(1))
    owners = numbers.owners[wrong]
    counts = np.bincount(owners, are_wrong[wrong].sum(1), len(column))
    items = np.full(len(column), -1)
    if column.field.has_items:
        items[owners[::-1]] = numbers.item_of(wrong, owners)[::-1]
    return Scores(counts, items)


def _names(field: Field) -> list[str] | None:
    classes = field.facts.get('classes')
    is_list = isinstance(classes, list) and bool(classes) and all(isinstance(name, str) for name in classes)
    return classes if is_list else None


def _unknown_labels(column: Column) -> Scores:
    names = _names(column.field)
    assert names is not None
    if column.field.is_text:
        texts, owners = column.texts
        known = set(names)
        are_wrong = np.array([text not in known for text in texts], bool)
        return Scores(np.bincount(owners[are_wrong], minlength=len(column)))
    items = column.numbers.items
    return _count(column, (items < 0) | (items >= len(names)))


def _has_labels(field: Field) -> bool:
    is_label = field.is_text or (field.dtype is not None and field.dtype.kind in 'iu')
    return _names(field) is not None and is_label


def _vocabulary(field: Field) -> int | None:
    """Returns the number of tokens that the metadata states: a number, or a list of tokens."""
    stated = field.facts.get('vocabulary')
    if isinstance(stated, list):
        return len(stated)
    return stated if type(stated) is int and stated > 0 else None


def _unknown_tokens(column: Column) -> Scores:
    size = _vocabulary(column.field)
    assert size is not None
    return _count(column, (column.numbers.items < 0) | (column.numbers.items >= size))


CHECKS = (
    Check(
        name='outside_values',
        severity='error',
        bound=0,
        reason='The metadata says that no value is outside of `range`.',
        bound_source='`range` in the metadata of the field: [lowest, highest], or a list of each',
        applies=lambda field: _range(field) is not None,
        scores=_outside,
        detail='numbers outside the range in the metadata',
    ),
    Check(
        name='unknown_labels',
        severity='error',
        bound=0,
        reason='A label without a class is an index outside of the last layer.',
        bound_source='`classes` in the metadata of the field',
        applies=_has_labels,
        scores=_unknown_labels,
        detail='labels that are not in the classes of the metadata',
    ),
    Check(
        name='unknown_tokens',
        severity='error',
        bound=0,
        reason='A token outside of the vocabulary is an index outside of the embedding.',
        bound_source='`vocabulary` in the metadata of the field: a number, or a list of tokens',
        applies=lambda field: (
            _vocabulary(field) is not None and field.dtype is not None and field.dtype.kind in 'iu'
        ),
        scores=_unknown_tokens,
        detail='tokens that are not in the vocabulary of the metadata',
    ),
)
