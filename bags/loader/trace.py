"""The datapoints of all ranks of a run at a step, from the state of its loader alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, get_args

from bags import samplers
from bags.indexing import Int64s
from bags.loader.schedule import LastBatch, Schedule, plan_steps
from bags.loader.state import Cursor
from bags.samplers import Sampler
from bags.validation import item_count, one_of

MAX_SAMPLER_LENGTH = 1 << 16
"""Maximum number of characters of a sampler's repr."""


def indices_of_step(sampler: Sampler, schedule: Schedule, step: int) -> Int64s:
    """Returns the datapoints of a step of the first epoch of a schedule, int64.

    Raises:
        IndexError: The epoch has fewer steps.
    """
    if item_count('step', step, 0) >= schedule.epoch_steps():
        raise IndexError(f'step {step} out of range: an epoch has {schedule.epoch_steps()} on this rank')
    return plan_steps(sampler, schedule, step, 1)[0].indices


def trace(state: Any, step: int, epoch: int | None = None) -> list[Int64s]:
    """Returns the datapoints of each rank at a step of a run, as `Loader.indices` does.

    Args:
        state: The result of `Loader.state_dict()`.
        step: From 0, counted from the beginning of the epoch.
        epoch: From 0; by default the epoch of the state.

    Raises:
        IndexError: The epoch has fewer steps.
        ValueError: Not a state, or its sampler cannot be recreated, because the state does not have its
            weights or lengths.
    """
    names = ('epoch', 'batch_size', 'world_size', 'last_batch', 'length', 'sampler')
    if not isinstance(state, Mapping) or not set(names) <= state.keys():
        raise ValueError(f'state: expected the state of a loader with {", ".join(names)}, got {state!r:.200}')
    epoch = item_count('epoch', state['epoch'] if epoch is None else epoch, 0)
    sampler = _sampler(state['sampler'])
    if len(sampler) != state['length']:
        length = state['length']
        raise ValueError(f'state: expected a sampler of {length!r:.40} positions, got {sampler!r:.200}')
    one_of('last_batch', state['last_batch'], get_args(LastBatch))
    batch_size = item_count('batch_size', state['batch_size'], 1)
    world_size = item_count('world_size', state['world_size'], 1)
    found = []
    for rank in range(world_size):
        schedule = Schedule(
            len(sampler), batch_size, rank, world_size, state['last_batch'], 1, Cursor(epoch, 0, epoch),
        )  # fmt: skip
        found.append(indices_of_step(sampler, schedule, step))
    return found


def _sampler(text: Any) -> Sampler:
    """Recreates a sampler from its repr, whose arguments must be literals: `Shuffled(100, seed=1)`."""
    error = ValueError(
        f'sampler: {text!r:.200} cannot be made from the state alone; call Loader.indices(epoch, step) of a '
        'loader with this sampler'
    )
    if not isinstance(text, str) or len(text) > MAX_SAMPLER_LENGTH:
        raise error
    try:
        call = ast.parse(text, mode='eval').body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise error
        if call.func.id not in samplers.__all__:
            raise error
        args = [ast.literal_eval(arg) for arg in call.args]
        options = {option.arg or '': ast.literal_eval(option.value) for option in call.keywords}
        sampler: Sampler = getattr(samplers, call.func.id)(*args, **options)
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError, OverflowError):
        raise error from None
    if repr(sampler) != text:
        raise error
    return sampler
