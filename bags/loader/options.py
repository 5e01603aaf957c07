"""What a loader is told: that each option is of its kind, and that all together can be followed. No I/O."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.dataset.selection import Fields, select_fields
from bags.loader.batches import MASK
from bags.samplers.sampler import Sampler
from bags.validation import integer

__all__ = ['check_counts', 'check_fields', 'check_functions', 'check_sampler', 'host_of']


def host_of(shard: Any) -> tuple[int, int]:
    """Returns which host of how many a `shard` says.

    Raises:
        TypeError: It is no pair of integers.
        ValueError: There is no such host.
    """
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise TypeError(f'shard: expected a pair of host and hosts, got {shard!r:.200}')
    host, hosts = integer('shard', shard[0]), integer('shard', shard[1])
    if hosts < 1 or not 0 <= host < hosts:
        raise ValueError(f'shard: expected a number below that of hosts, got {(host, hosts)}')
    return host, hosts


def check_functions(**functions: Any) -> None:
    """Raises TypeError where something given is no function."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f'{name}: expected a function, got {function!r:.200}')


def check_sampler(sampler: Any, datapoints: int) -> None:
    """Checks that a sampler is one, and of no more datapoints than there are.

    Raises:
        TypeError: It is none: also a class of samplers, or an array of indices.
        ValueError: It is one of another dataset.
    """
    if not isinstance(sampler, Sampler) or isinstance(sampler, type | np.ndarray):
        raise TypeError(
            'sampler: expected one of bags.samplers, or what has its __len__ and take, '
            f'got {f"the class {sampler.__name__}" if isinstance(sampler, type) else type(sampler).__name__}'
            ' (to load chosen datapoints, give the loader bags.select(dataset, indices))'
        )
    if getattr(sampler, 'datapoints', 0) > datapoints > 0:
        raise ValueError(
            f'sampler: expected an order of at most the {datapoints} datapoints there are, got one of '
            f'{sampler.datapoints}'  # type: ignore[attr-defined]
        )


def check_counts(datapoints: int, length: int, batch_size: int, hosts: int, even: Any) -> None:
    """Raises ValueError where no batch could be made."""
    if even not in ('pad', 'drop', False) or even is True:
        raise ValueError(f"even: expected 'pad', 'drop' or False, got {even!r:.200}")
    if not datapoints:
        raise ValueError('dataset: expected datapoints to load, got none')
    if not length:
        raise ValueError('sampler: expected positions to load, got none')
    if length < hosts:
        raise ValueError(f'shard: expected at most as many hosts as the {length} datapoints, got {hosts}')
    most = length // hosts if even == 'drop' else length
    if batch_size > most:
        each = f' for each of {hosts} hosts' if hosts > 1 and even == 'drop' else ''
        raise ValueError(
            f'batch_size: expected at most the {most} datapoints there are{each}, got {batch_size}'
        )


def check_fields(fields: Fields, types: Any, mask: str | None, even: Any) -> None:
    """Raises KeyError or TypeError for fields that cannot be read, ValueError for a mask named like one."""
    if mask is not None and not isinstance(mask, str):
        raise TypeError(f'mask: expected the name of a column, got {mask!r:.200}')
    selected = select_fields(fields, types) if types is not None else {}
    name = mask or (MASK if even == 'pad' else None)
    if name in selected:
        raise ValueError(f'mask: expected a name that is no field, got {name!r}; choose another with mask=')
