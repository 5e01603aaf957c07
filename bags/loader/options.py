"""Checks of a loader's options, each by itself and together. No I/O."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from bags.dataset.selection import Fields, select_fields
from bags.dataset.spec import Spec
from bags.loader.batches import MASK
from bags.loader.schedule import LastBatch
from bags.samplers.orders import Sampler
from bags.validation import at_least, one_of

__all__ = ['check_counts', 'check_fields', 'check_functions', 'check_rank', 'check_sampler']


def check_rank(rank: Any, world_size: Any) -> tuple[int, int]:
    """Returns rank and world size as integers.

    Raises:
        TypeError: Not integers.
        ValueError: Not in range.
    """
    world_size = at_least('world_size', world_size, 1)
    rank = at_least('rank', rank, 0)
    if rank >= world_size:
        raise ValueError(f'rank: expected less than world_size ({world_size}), got {rank}')
    return rank, world_size


def check_functions(**functions: Any) -> None:
    """Raises TypeError where something given is not a function."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f'{name}: expected a function, got {function!r:.200}')


def check_sampler(sampler: Any, datapoints: int) -> None:
    """Checks that a sampler is one, and samples no more datapoints than there are.

    Raises:
        TypeError: Not a sampler: also a class of samplers, or an array of indices.
        ValueError: A sampler of another dataset.
    """
    if not isinstance(sampler, Sampler) or isinstance(sampler, type | np.ndarray):
        raise TypeError(
            'sampler: expected one of bags.samplers, or an object with __len__ and take, '
            f'got {f"the class {sampler.__name__}" if isinstance(sampler, type) else type(sampler).__name__}'
            ' (to load chosen datapoints, give the loader bags.select(dataset, indices))'
        )
    if getattr(sampler, 'datapoints', 0) > datapoints > 0:
        raise ValueError(
            f'sampler: expected an order of at most the {datapoints} datapoints there are, got one of '
            f'{sampler.datapoints}'  # type: ignore[attr-defined]
        )


def check_counts(
    datapoints: int, length: int, batch_size: int, world_size: int, last_batch: LastBatch
) -> None:
    """Raises ValueError where no batch could be made."""
    one_of('last_batch', last_batch, get_args(LastBatch))
    if not datapoints:
        raise ValueError('dataset: expected datapoints to load, got none')
    if not length:
        raise ValueError('sampler: expected positions to load, got none')
    if length < world_size:
        raise ValueError(f'world_size: expected at most the {length} datapoints there are, got {world_size}')
    drops = last_batch == 'drop'
    most = length // world_size if drops else length
    if batch_size > most:
        each = f' for each of {world_size} ranks' if world_size > 1 and drops else ''
        raise ValueError(
            f'batch_size: expected at most the {most} datapoints there are{each}, got {batch_size}'
        )


def check_fields(fields: Fields, types: Spec | None, mask_column: Any, last_batch: LastBatch) -> None:
    """Checks fields and the mask's name.

    Raises:
        KeyError, TypeError: Fields that cannot be read.
        ValueError: A mask named like a field.
    """
    if mask_column is not None and not isinstance(mask_column, str):
        raise TypeError(f'mask_column: expected the name of a column, got {mask_column!r:.200}')
    selected = select_fields(fields, types) if types is not None else {}
    name = mask_column or (MASK if last_batch == 'pad' else None)
    if name in selected:
        raise ValueError(f'mask_column: expected a name that is not a field, got {name!r}')
