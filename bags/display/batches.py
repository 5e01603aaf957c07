"""`bags.describe`: the dtype and shape of each column of a batch, and batches as HTML in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.reading.batch import Ragged
from bags.display.datasets import class_names
from bags.display.html import value_as_html

SHOWN = 3
"""Maximum number of value types in the description of a list."""
SHOWN_BATCH_ROWS = 4
"""Number of datapoints of a batch that notebooks show."""


class Description(dict[str, str]):
    """The dtype and shape of each column of a batch; `str` is a table.

    In a notebook, the table also shows the first values: pictures, curves, recordings, numbers and texts.
    """

    def __init__(self, columns: Mapping[str, str], batch: Any, dataset: Dataset | None) -> None:
        super().__init__(columns)
        self._batch, self._dataset = batch, dataset

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        return '\n'.join(f'{name:<{width}}  {text}' for name, text in self.items())

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # Without the batch.

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return batch_as_html(self._batch, self._dataset)


def describe(batch: Any, dataset: Dataset | None = None) -> Description:
    """Returns the dtype and shape of each column of a batch, or of each field of a datapoint.

    In a notebook, the result shows a table with the first values of the batch.

    Args:
        batch: A dict of columns, as loaders and `dataset.batch` return it, with arrays of NumPy,
            PyTorch or JAX; or a datapoint. Columns of a tuple or list are named by their positions, and
            nested columns `outer.inner`.
        dataset: A dataset whose metadata names the classes of labels.

    Returns:
        The dtype and shape by column: `uint8 (32, 224, 224, 3)`; for a sequence `Ragged of 32 sequences,
        float32 (61, 4)`; for a list the types of its values: `list of 32 str`.

    Raises:
        TypeError: The batch is not a mapping, tuple or list.

    Examples:
        >>> bags.describe(dataset.batch([0, 1], ('id', 'state')))
        {'id': 'int64 (2,)', 'state': 'Ragged of 2 sequences, float32 (7, 2)'}
        >>> print(bags.describe(dataset[0, ('id', 'image')]))
        id     int
        image  uint8 (48, 64, 3)
    """
    columns = _columns(batch)
    return Description({name: _describe(column) for name, column in columns.items()}, batch, dataset)


def _columns(batch: Any) -> dict[str, Any]:
    """Returns the columns of a batch; nested columns are named `outer.inner`."""
    if isinstance(batch, Mapping):
        columns = {str(name): column for name, column in batch.items()}
    elif isinstance(batch, tuple | list):
        columns = {str(position): column for position, column in enumerate(batch)}
    else:
        raise TypeError(f'describe: expected a batch, which is a dict of columns, got {type(batch).__name__}')
    flat: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            flat.update((f'{name}.{inner}', value) for inner, value in _columns(column).items())
        else:
            flat[name] = column
    return flat


def _describe(column: Any) -> str:
    if isinstance(column, Ragged):
        return f'Ragged of {len(column)} sequences, {_describe(column.values)}'
    if hasattr(column, 'dtype') and hasattr(column, 'shape'):
        return f'{str(column.dtype).removeprefix("torch.")} {tuple(column.shape)}'
    if isinstance(column, list | tuple):
        types = sorted(
            {_describe(value) if isinstance(value, np.ndarray) else _name(value) for value in column}
        )
        words = ' or '.join([*types[:SHOWN], *['…'] * (len(types) > SHOWN)])
        return f'{type(column).__name__} of {len(column)} {words}'.strip()
    return _name(column)


def _name(value: Any) -> str:
    return 'None' if value is None else type(value).__name__


def batch_as_html(batch: Any, dataset: Dataset | None = None) -> str:
    """Returns a table of the columns of a batch, with the values of its first datapoints.

    A value that is not a batch, such as a datapoint, has one column of values.
    """
    columns = _columns(batch)
    length = batch_length(columns)
    shown = None if length is None else range(min(length, SHOWN_BATCH_ROWS))
    head = ['', '', *map(str, shown)] if shown else []
    lines = [''.join(f'<th style="text-align:left">{text}</th>' for text in head)] if head else []
    for name, column in columns.items():
        classes = class_names(dataset, name) if dataset is not None and name in dataset.schema else {}
        values = [column] if shown is None else [column[row] for row in shown]
        cells = [escape(name), f'<code>{escape(_describe(column))}</code>']
        cells += [value_as_html(value, classes) for value in values]
        left = '<td style="text-align:left;vertical-align:top">'
        lines.append(''.join(f'{left}{cell}</td>' for cell in cells))
    rows = ''.join(f'<tr>{line}</tr>' for line in lines)
    heading = '' if length is None else f'<p>Batch of {length:,}</p>'
    return f'{heading}<table>{rows}</table>'


def batch_length(columns: Mapping[str, Any]) -> int | None:
    """Returns the number of datapoints of a batch; None if lengths differ, or no column is an array."""
    lengths = set()
    for column in columns.values():
        if not isinstance(column, list | Ragged) and not getattr(column, 'shape', ()):
            return None
        lengths.add(len(column))
    has_array = any(not isinstance(column, list) for column in columns.values())
    return lengths.pop() if len(lengths) == 1 and has_array else None


def ragged_as_html(batch: Ragged) -> str:
    """Returns a table of the first sequences of a batch: sequences of numbers as curves, others as text."""
    lines = [
        f'<tr><td>{index}</td><td style="text-align:left">{value_as_html(batch[index])}</td></tr>'
        for index in range(min(len(batch), 2 * SHOWN_BATCH_ROWS))
    ]
    return f'<p>{escape(repr(batch))}</p><table>{"".join(lines)}</table>'
