"""Converts columns of sequences or arrays to single arrays: padded, stacked or packed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bags.collate.padding import Length, Masked, fill_of, pad_to_shape
from bags.dataset.reading.batch import Ragged
from bags.errors import StackError
from bags.indexing import offsets_of
from bags.validation import at_least, item_count, no_field

Array = npt.NDArray[Any]
NUMBER_CLASSES = (int, float, complex, np.generic)
CollateField = Callable[[Any], Any] | Literal['pad', 'mask', 'stack', 'pack']


class Padded(NamedTuple):
    """The sequences of a batch, padded to one length.

    Examples:
        >>> bags.pad(dataset.batch([0, 1], 'state')['state']).lengths.tolist()
        [3, 4]
    """

    values: Array
    """Shape (B, length, *shape)."""
    lengths: npt.NDArray[np.int32]
    """Number of items of each sequence before padding, shape (B,)."""


class PackedSequences(NamedTuple):
    """The concatenated sequences of a batch, as variable-length attention expects them.

    Examples:
        >>> bags.pack(dataset.batch([0, 1], 'state')['state']).offsets.tolist()
        [0, 3, 7]
    """

    values: Array
    """Shape (items, *shape)."""
    offsets: npt.NDArray[Any]
    """The start of each sequence, and the end of the last, shape (B + 1,): `cu_seqlens`."""
    positions: npt.NDArray[Any]
    """The position of each item in its sequence, from 0, shape (items,)."""


@overload
def pad(
    column: Mapping[str, Any],
    length: Length = None,
    *,
    value: Any = 0,
    multiple: int = 1,
    mask: bool = False,
) -> dict[str, Any]: ...
@overload
def pad(
    column: Ragged | Sequence[Any],
    length: int | None = None,
    *,
    value: Any = 0,
    multiple: int = 1,
    mask: Literal[False] = False,
) -> Padded: ...
@overload
def pad(
    column: Ragged | Array | Sequence[Any],
    length: Length = None,
    *,
    value: Any = 0,
    multiple: int = 1,
    mask: Literal[True],
) -> Masked: ...
def pad(column: Any, length: Length = None, *, value: Any = 0, multiple: int = 1, mask: bool = False) -> Any:
    """Pads the sequences of a column to one length, or with `mask` its arrays to one shape.

    Args:
        column: A `Ragged`, or a list of arrays or of lists of numbers; or a batch, to pad all such columns.
        length: The length to pad to. Default: the length of the longest sequence. With `mask`, also the
            lengths of all dimensions, where None means the length of the largest array.
        value: The padding value. For texts, 0, the default, is the empty text.
        multiple: Rounds the length of the first dimension up to a multiple of this.
        mask: Arrays may differ in all dimensions, as in datasets of different robots, and a mask says
            which elements are values.

    Returns:
        A `Padded`: the array (B, length, *shape), and the original lengths; 0 for a missing sequence. With
        `mask` a `Masked`: the array (B, *shape), and a mask of the same shape; False for a missing array. A
        batch gets the masks as columns `NAME_mask`.

    Raises:
        StackError: Items of different shapes; with `mask`, arrays of different numbers of dimensions.
        ValueError: A sequence longer than `length`, or a value that the dtype of the sequences cannot hold.

    Examples:
        >>> padded = bags.pad(dataset.batch([0, 1], 'state')['state'])
        >>> padded.values.shape, padded.lengths
        ((2, 4, 2), array([3, 4], dtype=int32))
        >>> bags.pad([np.ones(2), np.ones(3)], mask=True).mask
        array([[ True,  True, False],
               [ True,  True,  True]])
    """
    if isinstance(column, Mapping):
        options: Any = {'length': length, 'value': value, 'multiple': multiple, 'mask': mask}
        return _columns(functools.partial(pad, **options), column)
    multiple = at_least('multiple', multiple, 1)
    if mask:
        return pad_to_shape(column, length, value, multiple)
    length = None if length is None else item_count('length', length, 0)
    ragged = as_ragged(column)
    lengths = ragged.lengths
    longest = int(lengths.max(initial=0))
    if length is not None and longest > length:
        where = f'at {int(lengths.argmax())} of the batch'
        raise ValueError(f'pad: expected sequences of at most {length} items, got {longest} {where}')
    width = -(-(longest if length is None else length) // multiple) * multiple
    values = np.full((len(ragged), width, *ragged.values.shape[1:]), *fill_of(ragged.values.dtype, value))
    values[np.arange(width) < lengths[:, None]] = ragged.values
    return Padded(values, lengths.astype(np.int32))


@overload
def stack(column: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
def stack(column: Ragged | Array | Sequence[Any]) -> Array: ...
def stack(column: Any) -> Any:
    """Stacks the values of a column, which must have the same shape, into one array.

    Args:
        column: A `Ragged`, or a list of arrays, numbers or lists of numbers; or a batch, to stack all such
            columns.

    Returns:
        The array, shape (B, *shape); for a `Ragged`, a view of its values.

    Raises:
        StackError: Values differ in shape, or a value is missing. The message names the values.

    Examples:
        >>> bags.stack(dataset.batch([0, 1], 'image')['image']).shape
        (2, 48, 64, 3)
    """
    if isinstance(column, Mapping):
        return _columns(stack, column)
    if isinstance(column, np.ndarray):
        return column
    arrays: list[Any] = [None if value is None else np.asarray(value) for value in column]
    shapes = [None if array is None else array.shape for array in arrays]
    if len(set(shapes)) > 1 or None in shapes:
        raise StackError(shapes)
    if not arrays:
        return np.empty(0)
    return column.dense() if isinstance(column, Ragged) else np.stack(arrays)


@overload
def pack(column: Mapping[str, Any], *, dtype: npt.DTypeLike = np.int32) -> dict[str, Any]: ...
@overload
def pack(column: Ragged | Sequence[Any], *, dtype: npt.DTypeLike = np.int32) -> PackedSequences: ...
def pack(column: Any, *, dtype: npt.DTypeLike = np.int32) -> Any:
    """Concatenates the sequences of a column.

    Args:
        column: As for `pad`.
        dtype: Dtype of the offsets and positions.

    Returns:
        A `PackedSequences`: the values (items, *shape), the cumulative lengths (B + 1,), and the position of
        each item in its sequence (items,). A missing sequence is empty.

    Raises:
        StackError: Items of different shapes.
        ValueError: More items than the dtype can count.

    Examples:
        >>> packed = bags.pack(dataset.batch([0, 1], 'state')['state'])
        >>> packed.values.shape, packed.offsets
        ((7, 2), array([0, 3, 7], dtype=int32))
    """
    if isinstance(column, Mapping):
        return _columns(functools.partial(pack, dtype=dtype), column)
    ragged = as_ragged(column)
    most = np.iinfo(np.dtype(dtype)).max
    if int(ragged.offsets[-1]) > most:
        raise ValueError(f'pack: expected at most {most} items, got {ragged.offsets[-1]}')
    offsets = ragged.offsets.astype(dtype)
    positions = np.arange(len(ragged.values), dtype=dtype)
    positions -= np.repeat(offsets[:-1], ragged.lengths)
    return PackedSequences(ragged.values, offsets, positions)


def _columns(collate: Callable[[Any], Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """Collates the columns of a batch that are not arrays but can be converted to one."""
    collated: dict[str, Any] = dict(batch)
    for name, column in batch.items():
        if can_be_array(column, numbers=collate is stack):
            _add_collated(collated, name, _collated(collate, name, column))
    return collated


def _add_collated(batch: dict[str, Any], name: str, column: Any) -> None:
    """Puts a collated column in a batch; its mask becomes a separate column."""
    if isinstance(column, Masked):
        mask_name = f'{name}_mask'
        if mask_name in batch:
            raise ValueError(
                f'pad: the mask needs the column name {mask_name!r}, which the batch already has: '
                'rename that field'
            )
        column, batch[mask_name] = column
    batch[name] = column


def _collated(collate: Callable[[Any], Any], name: str, column: Any) -> Any:
    """Returns a collated column; errors name the field."""
    try:
        return collate(column)
    except StackError as exc:
        raise StackError(exc.shapes, name) from None
    except Exception as exc:
        exc.add_note(f'field {name!r}')
        raise


def can_be_array(column: Any, *, numbers: bool) -> bool:
    """Returns whether a column is a `Ragged`, or a list of arrays or of lists of numbers.

    With `numbers`, also a list of numbers.
    """
    if isinstance(column, Ragged):
        return True
    if not isinstance(column, list):
        return False
    types = (np.ndarray, *NUMBER_CLASSES) if numbers else np.ndarray
    present = [value for value in column if value is not None]
    if {*map(type, present)} == {np.ndarray}:
        return True
    return bool(present) and all(
        all(isinstance(item, (np.ndarray, *NUMBER_CLASSES)) for item in value)
        if isinstance(value, list)
        else isinstance(value, types)
        for value in present
    )


def as_ragged(column: Any) -> Ragged:
    """Returns a column of sequences with their items concatenated; a missing sequence has none.

    Raises:
        StackError: Items of different shapes.
        TypeError: Single values.
    """
    if isinstance(column, Ragged):
        return column
    arrays = [None if value is None else np.asarray(value) for value in column]
    present = [array for array in arrays if array is not None]
    filled = [array for array in present if array.size]
    if len({array.shape[1:] for array in filled}) > 1:
        raise StackError([None if array is None else array.shape for array in arrays])
    for array in present:
        if not array.ndim:
            what = 'numbers' if array.dtype.kind in 'biufc' else f'values, such as {array.item()!r:.40}'
            raise TypeError(f'expected sequences, got single {what}')
    counts = np.array([0 if array is None else len(array) for array in arrays], np.int64)
    values = np.concatenate(filled or present) if present else np.empty(0)
    return Ragged(values, offsets_of(counts))


def collate_function(collate: Any) -> Callable[[Any], Any] | None:
    """Converts a loader's `collate` option to a function of a batch.

    Raises:
        TypeError: Neither a function nor a mapping of fields to functions.
    """
    if isinstance(collate, Mapping):
        named = {'pad': pad, 'mask': functools.partial(pad, mask=True), 'stack': stack, 'pack': pack}
        functions: dict[str, Any] = {}
        for name, function in collate.items():
            functions[name] = named.get(function, function) if isinstance(function, str) else function
            if not callable(functions[name]):
                raise TypeError(
                    f"collate: expected a function, 'mask', 'pad', 'stack' or 'pack' for {name!r}, got "
                    f'{function!r}'
                )
        return functools.partial(_fields, functions)
    if collate is not None and not callable(collate):
        raise TypeError(f'collate: expected a function or a mapping of fields to functions, got {collate!r}')
    return collate  # type: ignore[no-any-return]


def _fields(functions: Mapping[str, Callable[[Any], Any]], batch: Any) -> dict[str, Any]:
    """Collates the columns of a batch that have a function."""
    collated = dict(batch)
    for name, function in functions.items():
        if name not in collated:
            raise KeyError(f'collate: {no_field(name, collated)}')
        _add_collated(collated, name, _collated(function, name, collated[name]))
    return collated
