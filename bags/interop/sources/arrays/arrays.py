"""Named arrays as datapoints: the base of HDF5, Zarr and .npz sources, and the field types of arrays.

The length of a datapoint is the most common first dimension of its arrays, if at least two of them have it.

    x[]         a row is an item: the array has this length in all datapoints, or the shapes differ only in
                the first dimension
    array(…)    any other array
"""

from __future__ import annotations

import abc
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bags.dataset.format.spec import parse_spec
from bags.errors import SourceError
from bags.formats.arrays import type_text
from bags.formats.scalars import MAX_VALUE_SIZE, check_value_size
from bags.formats.signatures import SIGNATURE_BYTES, identify
from bags.interop.file_extensions import KEY
from bags.interop.source import E, Source, collect_errors, name_fields
from bags.interop.stores import list_paths
from bags.links.sources import OpenedLink

BLOCK_BYTES = 1 << 24
"""Bytes that are read at a time from an array whose rows are items."""
ITEMS = {'utf8', 'bytes', 'jpeg', 'png'}
"""Item types other than numbers."""

Shape = tuple[int, ...]
_Facts = tuple[str, Shape, bool]
"""Type and shape of an array, and whether its first dimension is the length of its datapoint."""


class StoredArray(Protocol):
    """An array in a file. A slice as index returns rows, and `()` the whole array."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, key: Any, /) -> Any: ...


Arrays = Mapping[str, StoredArray | Exception]
"""The arrays of a datapoint by name. An error replaces an array that cannot be read."""


class ArrayGroup(NamedTuple):
    """The arrays of a datapoint: a group of a file, or some rows of its arrays."""

    path: str
    group: str
    """Path of the group in the file; '' for the whole file."""
    key: str = ''
    """Name of the datapoint."""
    rows: tuple[int, int] | None = None
    """Start and stop of the rows in the arrays of a replay buffer."""

    def __str__(self) -> str:
        rows = f', rows {self.rows[0]} to {self.rows[1]}' if self.rows else ''
        return f'{self.path}, {self.group}{rows}' if self.group else self.path


class ArraySource(Source[E]):
    """Datapoints of named arrays. Fields have the names of the arrays, with dots for slashes."""

    name_of_format: ClassVar[str]

    def __init__(
        self,
        paths: list[str],
        storage_options: Mapping[str, Any] | None = None,
        left_out: Iterable[str] = (),
    ) -> None:
        """Opens all datapoints, without their values.

        Args:
            paths: Files, folders and globs.
            storage_options: As in `bags.open`.
            left_out: Fields that the user leaves out, whose arrays need not be readable.
        """
        super().__init__(self.name_of_format, {}, 0)
        self.storage_options = storage_options
        records = self.find(sorted(list_paths(paths, storage_options), key=natural_order))
        self.metadata.pop('fields', None)  # In a dataset, this key holds the metadata of fields.
        found: dict[str, Counter[_Facts]] = {}
        self._item_types: dict[tuple[str, str, int], str] = {}
        self.records: list[E] = []
        unreadable: set[str] = set()
        for record in records:
            shown: dict[str, tuple[str, Shape]] | None = None
            with collect_errors(self.damaged), self._arrays_of(record) as arrays:
                seen: dict[str, tuple[str, Shape]] = {}
                for name, array in arrays.items():
                    field = name_fields([name], [])[name]
                    if not isinstance(array, Exception):
                        seen[name] = self._type_and_shape(name, array)
                    elif field in left_out:
                        unreadable.add(field)
                    else:
                        detail = f'{name}: {array}; spec={{{field!r}: None}} leaves it out'
                        raise ValueError(detail) from array
                shown = seen
            if shown is None:
                continue
            self.records.append(record)
            lengths = Counter(shape[0] for _, shape in shown.values() if shape)
            count, length = max(((lengths[each], each) for each in lengths), default=(0, 0))
            for name, (type, shape) in shown.items():
                has_length = count > 1 and shape[:1] == (length,)
                found.setdefault(name, Counter())[type, shape, has_length] += 1
        if not found:
            raise SourceError(
                *self.damaged[0] if self.damaged else (self.format, 'expected arrays, found none')
            )
        self.count = len(self.records)
        types = {name: _type(facts, self.count) for name, facts in sorted(found.items())}
        self.notes += [
            f'{name!r} is left out: expected numbers or texts' for name in types if not types[name]
        ]
        self.left_out = {*unreadable, *name_fields([name for name in types if not types[name]], [])}
        self._fields = name_fields([name for name in types if types[name]], self.notes)
        self.spec = {field: types[name] for name, field in self._fields.items()}
        self._schema = parse_spec(self.spec)

    @abc.abstractmethod
    def find(self, paths: list[str]) -> Sequence[E]:
        """Returns the argument of `open` for each datapoint in the files.

        Adds to `notes`, `damaged` and `metadata`.
        """

    def key(self, record: E) -> str | None:
        """Returns the name of a datapoint, for the field `KEY`; None if datapoints have no names."""
        return None

    @abc.abstractmethod
    def open(self, record: E) -> AbstractContextManager[Arrays]:
        """Opens the arrays of a datapoint; errors in the file raise SourceError, also inside the `with`."""

    @contextmanager
    def _arrays_of(self, record: E) -> Iterator[Arrays]:
        """Opens the arrays of a datapoint, and adds its name as `KEY`; renames an array called `KEY`."""
        key = self.key(record)
        with self.open(record) as arrays:
            if key is None:
                yield arrays
                return
            renamed = {name: name for name in arrays}
            if KEY in arrays:
                renamed[KEY] = next(name for name in _numbered(KEY) if name not in arrays)
                note = f'{KEY!r} becomes {renamed[KEY]!r}: the name of a datapoint is in the field {KEY!r}'
                if note not in self.notes:
                    self.notes.append(note)
            yield {KEY: np.asarray(key), **{renamed[name]: array for name, array in arrays.items()}}

    def load(self, entry: E) -> dict[str, Any]:
        values: dict[str, Any] = {}
        with self._arrays_of(entry) as arrays:
            for name, field in self._fields.items():
                if name in arrays and field in self.spec:
                    array = self._readable(entry, name, arrays[name])
                    link = self.link(entry, field, array)
                    values[field] = self._value(entry, name, array) if link is None else link
        return values

    def link(self, record: E, field: str, array: StoredArray) -> OpenedLink | list[OpenedLink] | None:
        """Returns a link to the elements of an array, or a link to each row; None to copy the values."""
        return None

    def _readable(self, entry: E, name: str, array: StoredArray | Exception) -> StoredArray:
        if isinstance(array, Exception):
            raise SourceError(f'{self.name(entry)}, {name}', str(array)) from array
        return array

    def _type_and_shape(self, name: str, array: StoredArray) -> tuple[str, Shape]:
        """Returns the dtype of numbers, or the type of the first item of other arrays; and the shape."""
        dtype, shape = np.dtype(array.dtype), tuple(array.shape)
        is_rows = dtype == np.uint8 and len(shape) == 2  # May be images.
        if dtype.kind in 'biufcmM' and not is_rows:
            return dtype.name, shape
        key = name, dtype.kind, len(shape)
        if key not in self._item_types and 0 not in shape:
            self._item_types[key] = _type_of_items(array)
        type = self._item_types.get(key, 'uint8' if is_rows else 'utf8')
        return type, shape[:1] if is_rows and type in ITEMS else shape

    def _value(self, entry: E, name: str, array: StoredArray) -> Any:
        """Converts an array to the type of its field. A large sequence becomes an iterator over its rows."""
        field_type = self._schema[self._fields[name]]
        try:
            _check_size(array.shape[field_type.sequence :], array.dtype)
            if not field_type.sequence:
                return _item(array[()], field_type.format)
            if array.dtype.itemsize * math.prod(array.shape) > BLOCK_BYTES:
                return self._rows(entry, name, field_type.format)
            return (
                [_item(row, field_type.format) for row in array[:]]
                if field_type.format in ITEMS
                else array[:]
            )
        except ValueError as exc:
            raise SourceError(f'{self.name(entry)}, {name}', str(exc)) from exc

    def _rows(self, entry: E, name: str, type_format: str) -> Iterator[Any]:
        with self._arrays_of(entry) as arrays:
            array = self._readable(entry, name, arrays[name])
            step = max(1, BLOCK_BYTES // max(1, array.dtype.itemsize * math.prod(array.shape[1:])))
            for start in range(0, array.shape[0], step):
                for index, row in enumerate(array[start : start + step], start):
                    try:
                        item = _item(row, type_format)
                    except ValueError as exc:
                        raise SourceError(f'{self.name(entry)}, {name}, item {index}', str(exc)) from exc
                    yield item


def _numbered(name: str) -> Iterator[str]:
    return (f'{name}_{number}' for number in itertools.count(2))


def _type_of_items(array: StoredArray) -> str:
    """Returns the type of the first item, which may be a row of bytes; '' for other items."""
    _check_size(array.shape[1:], array.dtype)
    first = np.asarray(array[:1] if array.shape else array[()])
    item = first[0] if first.dtype == np.uint8 else first.reshape(-1)[0]
    if isinstance(item, str):
        return 'utf8'
    if isinstance(item, bytes):
        return image_type(item) or 'utf8'
    if isinstance(item, np.ndarray) and item.dtype == np.uint8:
        return image_type(item.tobytes()) or ('bytes' if first.dtype == object else 'uint8')
    return ''


def _check_size(shape: Shape, dtype: np.dtype[Any]) -> None:
    check_value_size(dtype.itemsize * math.prod(shape), MAX_VALUE_SIZE, f'an array of shape {shape}')


def _type(facts: Counter[_Facts], count: int) -> str:
    """Returns the type of a field, from its arrays in `count` datapoints; '' if no type fits."""
    types = {type for type, _, _ in facts}
    shapes = {shape for _, shape, _ in facts}
    items, ranks = {shape[1:] for shape in shapes}, {len(shape) for shape in shapes}
    if types & ITEMS:
        is_sequence = ranks == {1}
        field_type = types.pop() if len(types) == 1 and ranks in ({0}, {1}) else ''
    else:
        varies = len(shapes) > 1 and len(items) == 1
        have_length = all(has_length for _, _, has_length in facts)
        is_sequence = len(ranks) == 1 and 0 not in ranks and (have_length or varies)
        field_type = '' if '' in types else type_of_arrays(types, items if is_sequence else shapes)
    return field_type and field_type + '[]' * is_sequence + '?' * (facts.total() < count)


def _item(value: Any, type_format: str) -> Any:
    """Converts an item, or a whole array, to a type."""
    if type_format not in ITEMS:
        return value
    if isinstance(value, np.ndarray):
        value = value.tobytes() if value.dtype == np.uint8 else value.item()
    if type_format == 'utf8':
        return value if isinstance(value, str) else bytes(value).decode()
    return bytes(value) if type_format == 'bytes' else bytes(value).rstrip(b'\0')


def image_type(data: bytes) -> str | None:
    """Returns the type of a JPEG or PNG image, which may be padded with zeros; None for other data."""
    return {'JPEG': 'jpeg', 'PNG': 'png'}.get(identify(data[:SIGNATURE_BYTES]))


def type_of_arrays(dtypes: set[str], shapes: set[Shape]) -> str:
    """Returns the field type for names of dtypes and shapes: a number or `array(float32,3,?)`."""
    if len(dtypes) > 1 or len({len(shape) for shape in shapes}) > 1:
        return 'array'
    dimensions = [set(lengths) for lengths in zip(*shapes, strict=True)]
    varying = [lengths for lengths in dimensions if len(lengths) > 1]
    if len(varying) > 1 or any(0 in lengths for lengths in varying):
        return 'array'
    shape = [-1 if len(lengths) > 1 else min(lengths) for lengths in dimensions]
    return type_text(np.dtype(next(iter(dtypes))), shape)


def natural_order(name: str) -> list[tuple[int, int | str]]:
    """Returns a key that sorts `demo_2` before `demo_10`."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r'(\d+)', name) if part]


_EPISODE = re.compile(
    r'(demo|demonstration|ep|eps|episode|traj|trajectory|rollout|run|take|trial)?[_-]?[0-9]+', re.IGNORECASE
)


def split_episodes(names: Collection[str]) -> tuple[list[str], list[str]]:
    """Returns the groups that are datapoints, and the arrays outside these groups.

    Datapoints are the groups in `data`, or else in the root, if all their names end with a number. Otherwise
    the root, '', is the only datapoint. Other groups and arrays may be beside groups such as `demo_0`.
    """
    for parent in ('data/', ''):
        inside = [name for name in names if name.startswith(parent)]
        parts = [name.removeprefix(parent).partition('/') for name in inside]
        groups = {group for group, slash, _ in parts if slash}
        is_each = len(groups) == len({name for name, _, _ in parts})  # No array is beside the groups.
        if not (is_each and all(group[-1:].isdecimal() for group in groups)):
            groups = {each for each in groups if (found := _EPISODE.fullmatch(each)) and (parent or found[1])}
        if groups:
            within = tuple(f'{parent}{group}/' for group in groups)
            outside = [name for name in names if not name.startswith(within)]
            return [parent + name for name in sorted(groups, key=natural_order)], outside
    return [''], []
