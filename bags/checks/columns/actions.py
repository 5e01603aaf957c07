"""Actions beside states: an unusual lag, another range, and actions that move nothing."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, FieldScores, Float64s
from bags.checks.usual import Array, state_of, usual_numbers

MAX_LAG = 12
"""Maximum lag that is searched, in items."""
MIN_ITEMS = 3 * MAX_LAG
MIN_FIT = 0.5
"""Share of the movement that the best lag has to explain; otherwise the actions are not positions."""


def _has_positions(field: Field) -> bool:
    state = state_of(field)
    return state is not None and state.shape == field.shape


def _pairs(column: Column) -> list[tuple[Array, Array]]:
    """Returns the actions and the states of each datapoint, cut to one length."""
    state = state_of(column.field)
    assert state is not None
    actions, states = column.numbers, column.other(state.name).numbers
    pairs = []
    for position in range(len(column)):
        one = actions.items[actions.offsets[position] : actions.offsets[position + 1]]
        two = states.items[states.offsets[position] : states.offsets[position + 1]]
        count = min(len(one), len(two))
        pairs.append((one[:count].astype(np.float64), two[:count].astype(np.float64)))
    return pairs


def _fits(column: Column) -> tuple[Array, Array]:
    """Returns the lags at which states are nearest to actions, and their differences.

    Returns:
        Items, and the mean squared difference as a share of the variance of the states; both (n,), and NaN
        where the actions or the states do not move.
    """
    lags, differences = np.full(len(column), np.nan), np.full(len(column), np.nan)
    for position, (action, state) in enumerate(_pairs(column)):
        if len(action) < MIN_ITEMS or not (np.isfinite(action).all() and np.isfinite(state).all()):
            continue
        deviation = state.std(0)
        moving = (deviation > 0) & (action.std(0) > 0)
        if not moving.any():
            continue
        action, state = action[:, moving] / deviation[moving], state[:, moving] / deviation[moving]
        errors = []
        for lag in range(-MAX_LAG, MAX_LAG + 1):
            one = action[max(0, -lag) : len(action) - max(0, lag)]
            two = state[max(0, lag) : len(state) - max(0, -lag)]
            difference = one - two
            errors.append(float(np.mean((difference - difference.mean(0)) ** 2)))
        best = int(np.argmin(errors))
        lags[position], differences[position] = best - MAX_LAG, errors[best]
    return lags, differences


def _lags(column: Column) -> Array:
    lags, differences = column.once(_fits)
    return np.where(differences < 1 - MIN_FIT, lags, np.nan)


def _unlike_usual(differences: Float64s) -> Float64s:
    """Returns the differences if states follow actions in most datapoints."""
    if not np.isfinite(differences).any() or np.nanmedian(differences) >= 1 - MIN_FIT:
        return np.full(len(differences), np.nan)
    return differences


def _beside_usual(lags: Float64s) -> Float64s:
    if not np.isfinite(lags).any():
        return lags
    return np.abs(lags - np.nanmedian(lags))


def _unmoved(column: Column) -> Array:
    counts = np.full(len(column), np.nan)
    for position, (action, state) in enumerate(_pairs(column)):
        if len(action) >= MIN_ITEMS:
            moves, is_moved = np.ptp(action, 0) > 0, np.ptp(state, 0) != 0  # True for NaN.
            same = action.shape[1] == state.shape[1]
            counts[position] = (moves & ~is_moved).sum() if same else moves.any() and not is_moved.any()
    return counts


def _outside(field: Field) -> FieldScores:
    state = state_of(field)
    assert state is not None
    usual = state.once(usual_numbers)
    actions = field.sample.numbers.items
    margin = 0.05 * np.where(np.isfinite(usual.range), usual.range, 0)
    outside = (actions < usual.low - margin) | (actions > usual.high + margin)
    return FieldScores(np.where(np.isfinite(usual.low), outside.mean(0) if len(actions) else 0, np.nan))


CHECKS = (
    Check(
        name='action_lag_items',
        severity='warning',
        bound=4,
        reason='Actions lead states by another time than elsewhere: they were recorded late, or shifted.',
        bound_source='the lag of a robot varies by one or two items; 4 items at 30 Hz are 0.13 s',
        applies=_has_positions,
        scores=_lags,
        compare=_beside_usual,
        rare=True,
        detail='items from the usual lag: states follow actions by {raw:.0f} items',
    ),
    Check(
        name='unfollowed_ratio',
        severity='warning',
        bound=1,
        reason='States do not follow actions, as they do elsewhere: they are of another episode or arm.',
        bound_source='the mean of the states is as near to them as the actions are',
        applies=_has_positions,
        scores=lambda column: column.once(_fits)[1],
        compare=_unlike_usual,
        rare=True,
        detail='squared difference of states and actions, of the variance of the states',
    ),
    Check(
        name='unmoved_dimensions',
        severity='warning',
        bound=0,
        reason='The action moves and the state does not: the robot was off, or the state is not its own.',
        bound_source='a commanded joint moves by at least one step of its encoder',
        applies=lambda field: state_of(field) is not None,
        scores=_unmoved,
        rare=True,
        detail='dimensions that are commanded and do not move',
    ),
    Check(
        name='action_outside_share',
        severity='info',
        bound=0.5,
        reason='Actions and states have other units, or actions are differences.',
        bound_source='half of the items, as in lerobot-lint; a fact, not a mistake',
        applies=_has_positions,
        of_field=_outside,
        detail='{value:.0%} of the actions are outside the range of the states',
    ),
)
