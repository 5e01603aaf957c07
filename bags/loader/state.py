"""The state of a loader, from which a run resumes with any number of ranks and any batch size. No I/O."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

State = dict[str, Any]
"""The position of a run, as integers and strings."""

MUST_MATCH = {
    'dataset': ('dataset', 'fingerprint of the dataset'),
    'seed': ('run', 'seed'),
    'sampler': ('run', 'sampler'),
}
"""Keys of the state that must be equal for a run to resume, with their names in error messages."""


class Cursor(NamedTuple):
    """A point between two steps of a run."""

    epoch: int = 0
    consumed: int = 0
    """Positions of the epoch that all ranks together have taken."""
    first: int = 0
    """The epoch with which the iteration began."""


def cursor_from(state: Any, own: State, length: int, epochs: int | None) -> Cursor:
    """Returns the cursor of a state, after checking that it belongs to this run.

    Args:
        state: The state to check.
        own: The seed, the sampler and the dataset of this run; None as dataset matches any.
        length: Positions in an epoch of this run.
        epochs: Number of epochs in an iteration of this run; None for no end.

    Raises:
        ValueError: The state belongs to another run, or is not a state.
    """
    required = ('seed', 'epoch', 'consumed', 'sampler', 'dataset')
    if not isinstance(state, Mapping) or not set(required) <= state.keys():
        raise ValueError(f'state: expected a dict of {", ".join(required)}, got {state!r:.200}')
    for key, (whose, what) in MUST_MATCH.items():
        if own[key] is not None and state[key] != own[key]:
            hint = ' (load_state_dict with check_dataset=False resumes anyway)' if key == 'dataset' else ''
            raise ValueError(
                f'state of another {whose}: expected the {what} {own[key]!r} of this loader, '
                f'got {state[key]!r:.200}{hint}'
            )
    try:
        epoch, consumed = operator.index(state['epoch']), operator.index(state['consumed'])
        first = operator.index(state.get('first_epoch', 0))
    except TypeError:
        raise ValueError(
            f'state: expected integers for epoch, consumed and first_epoch, got {state["epoch"]!r}, '
            f'{state["consumed"]!r} and {state.get("first_epoch", 0)!r}'
        ) from None
    if not 0 <= first <= epoch or not 0 <= consumed <= length:
        raise ValueError(
            f'state: expected an epoch of at least first_epoch and 0, and at most {length} datapoints '
            f'consumed, got {epoch}, {first} and {consumed}'
        )
    # The state of a run with fewer epochs in an iteration begins another iteration.
    is_later = epochs is not None and (epoch, consumed) > (first + epochs, 0)
    return Cursor(epoch, consumed, epoch if is_later else first)
