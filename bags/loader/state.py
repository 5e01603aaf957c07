"""The state of a run as a dict of integers and strings, and back. No I/O."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from bags.loader.schedule import Cursor, Schedule

__all__ = ['Progress', 'State', 'cursor_from', 'state_at']

State = dict[str, Any]

MUST_MATCH = {
    'dataset': ('dataset', 'fingerprint of the dataset'),
    'seed': ('run', 'seed'),
    'sampler': ('run', 'sampler'),
}
"""What must be equal for one run to resume from the state of another."""


class Progress:
    """How far an iterator has come."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.delivered = 0
        """Steps delivered so far."""

    @property
    def cursor(self) -> Cursor:
        return self._schedule[self.delivered - 1].after if self.delivered else self._schedule.begin


def state_at(cursor: Cursor, *, seed: int, sampler: str, dataset: str) -> State:
    """Returns the state of a run at a cursor."""
    return {
        'seed': seed,
        'epoch': cursor.epoch,
        'consumed': cursor.consumed,
        'sampler': sampler,
        'dataset': dataset,
    }


def cursor_from(state: Any, own: State, length: int) -> Cursor:
    """Returns the cursor of a state, after checking that it belongs to this run.

    Args:
        state: The state to check.
        own: A state of this run.
        length: Positions in an epoch of this run.

    Raises:
        ValueError: The state is of another run, or is not a state.
    """
    if not isinstance(state, Mapping) or not own.keys() <= state.keys():
        raise ValueError(f'state: expected a dict of {", ".join(own)}, got {state!r:.200}')
    for key, (whose, what) in MUST_MATCH.items():
        if state[key] != own[key]:
            raise ValueError(
                f'state of another {whose}: expected the {what} {own[key]!r} of this loader, '
                f'got {state[key]!r:.200}'
            )
    try:
        epoch, consumed = operator.index(state['epoch']), operator.index(state['consumed'])
    except TypeError:
        raise ValueError(
            f'state: expected integers for epoch and consumed, got {state["epoch"]!r} and '
            f'{state["consumed"]!r}'
        ) from None
    if epoch < 0 or not 0 <= consumed <= length:
        raise ValueError(
            f'state: expected an epoch of at least 0 and at most {length} datapoints '
            f'consumed, got {epoch} and {consumed}'
        )
    return Cursor(epoch, consumed)
