"""Formats unlike nearly all others: grey among colour, other sample rates and channels, other codecs."""

from __future__ import annotations

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.media import other_facts, usual_fact
from bags.indexing import Int64s

MODE = ('mode',)
SOUND = ('rate', 'channels')
CODEC = ('codec',)


def _usual_mode(field: Field) -> tuple[str, ...] | None:
    return usual_fact(field, MODE)


def _usual_sound(field: Field) -> tuple[int, ...] | None:
    return usual_fact(field, SOUND)


def _usual_codec(field: Field) -> tuple[str, ...] | None:
    return usual_fact(field, CODEC)


def _modes(column: Column) -> Int64s:
    return other_facts(column, MODE, column.field.once(_usual_mode))


CHECKS = (
    Check(
        name='other_modes',
        severity='warning',
        level='headers',
        bound=0,
        reason='A grey image among colour, or one with transparency, has another number of channels.',
        bound_source='in few datapoints a mistake; in many, intended',
        applies=lambda field: field.is_media and field.is_image,
        scores=_modes,
        rare=True,
        detail='images with other channels than nearly all others',
    ),
    Check(
        name='other_recordings',
        severity='warning',
        level='headers',
        bound=0,
        reason='Samples of another rate are another pitch and speed, if the rate is taken for granted.',
        bound_source='in few datapoints a mistake; in many, intended',
        applies=lambda field: field.is_sound,
        scores=lambda column: other_facts(column, SOUND, column.field.once(_usual_sound)),
        rare=True,
        detail='recordings with another sample rate or number of channels than nearly all others',
    ),
    Check(
        name='other_codecs',
        severity='info',
        level='headers',
        bound=0,
        reason='Another codec may not be decoded on all machines, as on a GPU.',
        bound_source='a fact, not a mistake',
        applies=lambda field: field.is_video,
        scores=lambda column: other_facts(column, CODEC, column.field.once(_usual_codec)),
        detail='videos with another codec than most',
    ),
)
