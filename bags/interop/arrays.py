"""Named arrays as datapoints: what HDF5, Zarr and .npz share, and the types that fields of arrays have.

The length of a datapoint is the first dimension that most of its arrays have, two of them at least.

    x[]         each item a row: the arrays of all datapoints have the length, or differ in their first
                dimension only
    array(…)    other arrays, whole
"""

from __future__ import annotations

import abc
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from bags.errors import SourceError
from bags.formats.scalars import MAX_VALUE_SIZE, check_value_size
from bags.formats.signatures import HEAD_BYTES, identify
from bags.interop.source import Source, name_fields

__all__ = ['Array', 'ArraySource', 'Shape', 'episode_groups', 'json_value', 'natural_order', 'type_of_arrays']

BLOCK_BYTES = 1 << 24
"""Of an array that is read at a time, where items are its rows."""
PADDED = {'JPEG': 'jpeg', 'PNG': 'png'}
"""Pictures that may be rows of bytes with zeros behind them: both end with other bytes."""

Shape = tuple[int, ...]


class Array(Protocol):
    """An array in a file, of which parts are read."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...


class ArraySource(Source):
    """Datapoints that are arrays by name. Fields are named after them, with dots for slashes.

    Args:
        format: Name of the format.
        records: What `open` needs for each datapoint.

    Raises:
        SourceError: No datapoint has an array.
    """

    def __init__(self, format: str, records: Sequence[Any]) -> None:
        super().__init__(format, {}, 0)
        found: dict[str, _Arrays] = {}
        self._records = []
        for record in records:
            try:
                with self.open(record) as arrays:
                    lengths = Counter(array.shape[0] for array in arrays.values() if array.shape)
                    count, length = max(
                        ((count, length) for length, count in lengths.items()), default=(0, 0)
                    )
                    for name, array in arrays.items():
                        found.setdefault(name, _Arrays()).add(array, length if count > 1 else None)
                self._records.append(record)
            except SourceError as exc:
                self.damaged.append((exc.name, exc.detail))
        if not found:
            raise SourceError(*self.damaged[0] if self.damaged else (format, 'expected arrays, found none'))
        self.count = len(self._records)
        types = {name: kind.type(self.count) for name, kind in sorted(found.items())}
        self.notes += [
            f'{name!r} is left out: {found[name].what}' for name, kind in types.items() if not kind
        ]
        self._fields = name_fields([name for name, kind in types.items() if kind], self.notes)
        self._found = found
        self.spec = {field: types[name] or '' for name, field in self._fields.items()}
        mixed = [field for field, kind in self.spec.items() if kind.rstrip('[]?') == 'array']
        self.notes += [
            f'field {field!r} has arrays of several dtypes or shapes, which each record states'
            for field in mixed
        ]

    @abc.abstractmethod
    def open(self, record: Any) -> AbstractContextManager[Mapping[str, Array]]:
        """Opens the arrays of a datapoint; errors in the file become a SourceError, also inside of `with`."""

    def entries(self, start: int = 0) -> Iterator[Any]:
        return iter(self._records[start:])

    def load(self, entry: Any) -> dict[str, Any]:
        with self.open(entry) as arrays:
            return {
                field: self._value(entry, name, arrays[name])
                for name, field in self._fields.items()
                if name in arrays and field in self.spec
            }

    def _value(self, entry: Any, name: str, array: Array) -> Any:
        """Returns an array as the type of its field wants it; large ones as an iterator over their rows."""
        kind, where = self._found[name], f'{self.name(entry)}, {name}'
        size = array.dtype.itemsize * math.prod(array.shape)
        rows = array.shape[0] if kind.is_sequence else 1
        try:
            check_value_size(size // max(1, rows), MAX_VALUE_SIZE, f'an array of shape {array.shape}')
            if not kind.is_sequence:
                return kind.item(array[()])
            if size > BLOCK_BYTES:
                return self._rows(entry, name)
            return array[:] if kind.word is None else [kind.item(item) for item in array[:]]
        except ValueError as exc:
            raise SourceError(where, str(exc)) from exc

    def _rows(self, entry: Any, name: str) -> Iterator[Any]:
        kind = self._found[name]
        with self.open(entry) as arrays:
            array = arrays[name]
            row = array.dtype.itemsize * math.prod(array.shape[1:])
            step = max(1, BLOCK_BYTES // max(1, row))
            for start in range(0, array.shape[0], step):
                yield from map(kind.item, array[start : start + step])


class _Arrays:
    """The arrays that a field has in all datapoints."""

    def __init__(self) -> None:
        self.count = 0
        self.what = ''
        """Why there is no type for them."""
        self.word: str | None = None
        """The type of elements that are no numbers, or of pictures in rows of bytes."""
        self.is_sequence = False
        self._dtypes: set[str] = set()
        self._shapes: set[Shape] = set()
        self._have_length = True
        self._is_known = False

    def add(self, array: Array, length: int | None) -> None:
        dtype, shape = np.dtype(array.dtype), tuple(array.shape)
        self.count += 1
        self._dtypes.add(dtype.name if dtype.kind in 'biufcmM' else dtype.kind)
        if not self._is_known and 0 not in shape:
            self._is_known = True
            self.word = self._word(array, dtype, shape)
        self._shapes.add(shape)
        self._have_length &= bool(shape) and shape[0] == length

    def _word(self, array: Array, dtype: np.dtype[Any], shape: Shape) -> str | None:
        is_bytes = dtype == np.uint8 and 1 <= len(shape) <= 2
        if dtype.kind in 'biufcmM' and not (is_bytes and shape[-1] > 4):
            return None
        first = array[(0,) * (len(shape) - is_bytes)]
        if isinstance(first, np.ndarray) and dtype.kind == 'O' and first.dtype.kind in 'biuf':
            data = bytes(first)[:HEAD_BYTES] if first.dtype == np.uint8 else b''
            return PADDED.get(identify(data), f'array({first.dtype.name},?)')
        if isinstance(first, str):
            return 'utf8'
        if is_bytes or isinstance(first, bytes) or (dtype.kind == 'V' and dtype.names is None):
            found = PADDED.get(identify(bytes(first)[:HEAD_BYTES]))
            text = dtype.kind == 'S' or dict(dtype.metadata or {}).get('vlen') in (bytes, str)
            return found or (None if is_bytes else 'utf8' if text else 'bytes')
        self.what = f'expected numbers or texts, got dtype {dtype}'
        return None

    def type(self, count: int) -> str | None:
        """Returns the type of the field in `count` datapoints; None if there is none."""
        optional = '?' * (self.count < count)
        ranks = {len(shape) for shape in self._shapes}
        items = {shape[1:] for shape in self._shapes}
        if self.word is not None:
            is_bytes = self._dtypes == {'uint8'}
            ranks = {rank - is_bytes for rank in ranks}
            if ranks in ({0}, {1}):
                self.is_sequence = ranks == {1}
                return self.word + '[]' * self.is_sequence + optional
            self.what = f'expected one dimension, got shape {min(self._shapes)}'
        if self.what:
            return None
        if self._dtypes & {'O', 'S', 'U', 'T', 'V'}:
            self.word, self.is_sequence = 'utf8', True  # All of them are empty.
            return 'utf8[]' + optional
        self.is_sequence = (
            len(ranks) == 1
            and 0 not in ranks
            and (self._have_length or (len(self._shapes) > 1 and len(items) == 1))
        )
        kind = type_of_arrays(self._dtypes, items if self.is_sequence else self._shapes)
        return kind + '[]' * self.is_sequence + optional

    def item(self, value: Any) -> Any:
        """Returns an item, or a whole array, as its type wants it."""
        if self.word is None or self.word.startswith('array'):
            return value
        if self.word == 'utf8':
            return str(value) if isinstance(value, str) else bytes(value).decode()
        data = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
        return data if self.word == 'bytes' else data.rstrip(b'\0')


def type_of_arrays(dtypes: set[str], shapes: set[Shape]) -> str:
    """Returns the type of values of some dtypes, by name, and shapes: a number or `array(float32,3,?)`."""
    if len(dtypes) > 1 or len({len(shape) for shape in shapes}) > 1:
        return 'array'
    dtype = np.dtype(next(iter(dtypes)))
    dimensions = [set(lengths) for lengths in zip(*shapes, strict=True)]
    if not dimensions:
        kinds = {'b': 'bool', 'i': f'int({dtype.itemsize})', 'u': f'uint({dtype.itemsize})'}
        kind = (
            f'float({dtype.itemsize})'
            if dtype.kind == 'f' and dtype.itemsize <= 8
            else f'array({dtype.name})'
        )
        return kinds.get(dtype.kind, kind)
    varying = sum(len(lengths) > 1 for lengths in dimensions)
    if varying > 1 or (varying and any(0 in lengths for lengths in dimensions)):
        return 'array'
    parts = ('?' if len(lengths) > 1 else str(*lengths) for lengths in dimensions)
    return f'array({",".join((dtype.name, *parts))})'


def natural_order(name: str) -> list[tuple[int, int | str]]:
    """A key for sorting: `demo_2` before `demo_10`."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r'(\d+)', name) if part]


def episode_groups(children: Callable[[str], Mapping[str, bool]]) -> list[str]:
    """Returns the paths of the groups that are datapoints: those with a number, of `data` or of the root.

    Args:
        children: Returns the names in a group, and if they are groups.

    Returns:
        The root alone, '', if it has others.
    """
    for parent in ('data', ''):
        if parent and not children('').get(parent):
            continue
        found = children(parent)
        groups = [name for name, is_group in found.items() if is_group and re.search(r'\d$', name)]
        if groups and len(groups) == len(found):
            return [f'{parent}/{name}'.lstrip('/') for name in sorted(groups, key=natural_order)]
    return ['']


def json_value(value: Any) -> Any:
    """Returns an attribute as JSON has it: NumPy's values as Python's, bytes as text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return value.decode(errors='replace') if isinstance(value, bytes) else value
