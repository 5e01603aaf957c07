"""Sizes of images and videos: unlike nearly all others, or much longer than high."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.media import Array, headers, other_facts, usual_fact

SIZE = ('width', 'height')


def _usual(field: Field) -> tuple[int, ...] | None:
    return usual_fact(field, SIZE)


def _aspects(column: Column) -> Array:
    ratios = [
        max(
            (max(facts['width'] / facts['height'], facts['height'] / facts['width']) for facts in of_row),
            default=1,
        )
        for of_row in (
            [facts for facts in of_row if facts.get('width') and facts.get('height')]
            for of_row in column.once(headers)
        )
    ]
    return np.array(ratios, np.float64)


def _has_pixels(field: Field) -> bool:
    return field.is_media and not field.is_sound


CHECKS = (
    Check(
        name='other_sizes',
        severity='warning',
        level='headers',
        bound=0,
        reason='One camera has one size: this is another camera, or a thumbnail.',
        bound_source='in few datapoints a mistake; photographs have many sizes',
        applies=_has_pixels,
        scores=lambda column: other_facts(column, SIZE, column.field.once(_usual)),
        rare=True,
        detail='images or videos of another size than nearly all others',
    ),
    Check(
        name='aspect_ratio',
        severity='warning',
        level='headers',
        bound=4,
        reason='A strip is a banner or a panorama: scaled to a square, nothing of it can be seen.',
        bound_source='the longest usual picture is 32:9, of a very wide screen, with a ratio of 3.6',
        applies=_has_pixels,
        scores=_aspects,
        rare=True,
        detail='times as long as high, or the other way round',
    ),
)
