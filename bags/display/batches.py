"""`bags.describe`: the dtype and shape of each column of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.dataset.batch import Ragged

SHOWN = 3
"""Maximum number of types of values that are named for a list."""


def describe(batch: Any) -> dict[str, str]:
    """Returns a line for each column of a batch, or for each field of a datapoint.

    Args:
        batch: A dict of columns, as loaders and `dataset.batch` return it, of NumPy, PyTorch or JAX; or a
            datapoint. Columns of a tuple or list are named by their positions, nested ones `outer.inner`.

    Returns:
        By column, its dtype and shape: `uint8 (32, 224, 224, 3)`; of a sequence `Ragged of 32 sequences,
        float32 (61, 4)`; of a list the types in it: `list of 32 str`.

    Raises:
        TypeError: Neither a mapping, nor a tuple or list.

    Examples:
        >>> bags.describe(dataset.batch([0, 1], ('id', 'state')))
        {'id': 'int64 (2,)', 'state': 'Ragged of 2 sequences, float32 (7, 2)'}
    """
    if isinstance(batch, Mapping):
        columns = {str(name): column for name, column in batch.items()}
    elif isinstance(batch, tuple | list):
        columns = {str(position): column for position, column in enumerate(batch)}
    else:
        raise TypeError(f'describe: expected a batch, which is a dict of columns, got {type(batch).__name__}')
    found: dict[str, str] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            found.update((f'{name}.{inner}', text) for inner, text in describe(column).items())
        else:
            found[name] = _describe(column)
    return found


def _describe(column: Any) -> str:
    if isinstance(column, Ragged):
        return f'Ragged of {len(column)} sequences, {_describe(column.values)}'
    if hasattr(column, 'dtype') and hasattr(column, 'shape'):
        return f'{str(column.dtype).removeprefix("torch.")} {tuple(column.shape)}'
    if isinstance(column, list | tuple):
        each = sorted(
            {_describe(value) if isinstance(value, np.ndarray) else _name(value) for value in column}
        )
        words = ' or '.join([*each[:SHOWN], *['…'] * (len(each) > SHOWN)])
        return f'{type(column).__name__} of {len(column)} {words}'.strip()
    return _name(column)


def _name(value: Any) -> str:
    return 'None' if value is None else type(value).__name__
