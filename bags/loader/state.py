"""Where a run has come to, as integers and strings, and back. No I/O."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from bags.loader.schedule import Place

__all__ = ['State', 'place_of', 'state_of']

State = dict[str, Any]

SAME = {
    'dataset': ('dataset', 'fingerprint of the dataset'),
    'seed': ('run', 'seed'),
    'sampler': ('run', 'sampler'),
}
"""What two runs must have in common for one to go on from where the other has come to."""


def state_of(place: Place, *, seed: int, sampler: str, dataset: str) -> State:
    """Returns a place of a run as what can be saved."""
    return {
        'seed': seed,
        'epoch': place.epoch,
        'consumed': place.consumed,
        'sampler': sampler,
        'dataset': dataset,
    }


def place_of(state: Any, own: State, length: int) -> Place:
    """Returns the place that a state tells, for a run that has epochs of `length` and a state like `own`.

    Raises:
        ValueError: It is of another run, or no state.
    """
    if not isinstance(state, Mapping) or not own.keys() <= state.keys():
        raise ValueError(f'state: expected a dict of {", ".join(own)}, got {state!r:.200}')
    for key, (whose, what) in SAME.items():
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
    return Place(epoch, consumed)
