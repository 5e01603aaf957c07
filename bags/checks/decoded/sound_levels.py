"""Clipped and silent sound."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check, Scores
from bags.checks.media import Array, sound_parts

FULL_SCALE = 0.999
MIN_RUN = 3
"""Consecutive samples at full scale that are clipped: a single one is a peak."""
SILENCE = 1e-3
"""Root mean square of a block, relative to full scale, below which it is silent: -60 dB."""
BLOCK_SECONDS = 0.1


def _levels(column: Column) -> tuple[Array, Array, Array]:
    """Returns the shares of clipped samples and of silent blocks, and the first clipped sample."""
    clipped, silent = np.full(len(column), np.nan), np.full(len(column), np.nan)
    first = np.full(len(column), -1)
    for position, row in enumerate(column.rows.tolist()):
        samples, over, blocks, quiet = 0, 0, 0, 0
        for sound, rate in sound_parts(column.field, row):
            are_full = (np.abs(sound) >= FULL_SCALE).any(1)
            runs = np.convolve(are_full, np.ones(MIN_RUN, int), 'same') >= MIN_RUN
            if runs.any() and first[position] < 0:
                first[position] = samples + int(runs.argmax())
            over += int(runs.sum())
            samples += len(sound)
            size = max(1, round(BLOCK_SECONDS * rate))
            whole = sound[: len(sound) // size * size].reshape(-1, size * sound.shape[1])
            blocks += len(whole)
            quiet += int((np.sqrt((whole.astype(np.float64) ** 2).mean(1)) < SILENCE).sum())
        clipped[position] = over / samples if samples else np.nan
        silent[position] = quiet / blocks if blocks else np.nan
    return clipped, silent, first


def _clipped(column: Column) -> Scores:
    clipped, _, first = column.once(_levels)
    return Scores(clipped, first)


CHECKS = (
    Check(
        name='clipped_share',
        severity='warning',
        level='decoded',
        bound=0.001,
        reason='The microphone was too loud: what is above full scale is lost.',
        bound_source='1 of 1,000 samples in runs of 3 at full scale; music that is made loud has fewer',
        applies=lambda field: field.is_sound,
        scores=_clipped,
        rare=True,
        detail='of the samples are clipped',
    ),
    Check(
        name='silent_share',
        severity='warning',
        level='decoded',
        bound=0.9,
        reason='The microphone was off, or nobody spoke.',
        bound_source='blocks of 0.1 s below -60 dB; speech in a quiet room has 20 to 50% of them',
        applies=lambda field: field.is_sound,
        scores=lambda column: column.once(_levels)[1],
        rare=True,
        detail='of the recording is silent',
    ),
)
