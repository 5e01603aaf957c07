"""`bags.normalize`: scales the numeric columns of batches by statistics of the dataset, and back."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from bags.collate.columns import PackedSequences, Padded
from bags.collate.padding import Masked
from bags.dataset.reading.batch import Ragged, as_list, join_columns, take
from bags.indexing import Int64s
from bags.maintenance.field_statistics import FieldStatistics, GroupedStatistics
from bags.validation import one_of

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Mode = Literal['std', 'range', 'quantiles']


@dataclasses.dataclass(frozen=True)
class Normalize:
    """The `transform` for a loader that `bags.normalize` returns, with its inverse. Picklable.

    Columns may be arrays, PyTorch tensors, lists, or the results of `bags.pad` and `bags.pack`. Padding stays
    as it is: elements that the column `NAME_mask` of the batch marks with False, and items beyond the
    `lengths` of a `Padded`. Items that windows mark in `NAME_is_pad` are values, and are scaled.

    Examples:
        >>> scale = bags.normalize(bags.statistics('episodes', 'state'), 'state')
        >>> batch = dataset.batch([0], 'state')
        >>> bool(
        ...     np.allclose(
        ...         scale.inverse(scale(batch))['state'].values, batch['state'].values, atol=1e-6
        ...     )
        ... )
        True
    """

    scales: dict[str, tuple[Array, Array]]
    """For each field, the offset that is subtracted from its values, and the scale that divides them."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch or a datapoint with normalized columns: float64 if they were, else float32."""
        return {**batch, **self.columns(batch, is_inverse=False)}

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the original values of normalized columns, e.g. of the actions of a policy, as floats.

        Raises:
            ValueError: An array is larger than the values of the field, and the batch has no mask.
        """
        return {**batch, **self.columns(batch, is_inverse=True)}

    def columns(
        self, batch: Mapping[str, Any], *, is_inverse: bool, widest: Mapping[str, Shape] | None = None
    ) -> dict[str, Any]:
        """Returns the changed columns; `widest` are the shapes of padded values that need no mask."""
        columns = {}
        for name, (offset, scale) in self.scales.items():
            if name in batch:
                padded = (widest or {}).get(name, offset.shape)
                change = _Change(name, offset, scale, is_inverse, padded)
                columns[name] = change.of(batch[name], batch.get(f'{name}_mask'))
        return columns


@dataclasses.dataclass(frozen=True)
class NormalizeGroups:
    """Like `Normalize`, for statistics by group; batches need the field that names the group. Picklable.

    The values of groups may have different shapes. Arrays that are padded to the shape of the largest group
    need no mask: elements beyond the values of the group of a datapoint stay as they are.

    Examples:
        >>> scale = bags.normalize(bags.statistics('episodes', 'state', by='label'), 'state')
        >>> scale(dataset.batch([0, 1], ('label', 'state')))['state'].values.shape
        (7, 2)
    """

    by: str
    """The field that names the group."""
    groups: dict[Any, Normalize]
    """Normalizes the datapoints of each group, by the value of the field."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch, or a datapoint, with normalized columns."""
        return self._apply(batch, is_inverse=False)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the original values of normalized columns, e.g. of the actions of a policy, as floats."""
        return self._apply(batch, is_inverse=True)

    def _apply(self, batch: Mapping[str, Any], *, is_inverse: bool) -> dict[str, Any]:
        if self.by not in batch:
            raise KeyError(f'normalize: expected the field {self.by!r} in the batch, which names the group')
        widest = self._widest()
        values = batch[self.by]
        values = values.tolist() if _is_tensor(values) else values
        if not isinstance(values, list | np.ndarray) or np.ndim(values) == 0:
            columns = self._of(values).columns(batch, is_inverse=is_inverse, widest=widest)
            return {**batch, **columns}
        rows: dict[Any, list[int]] = {}
        for row, value in enumerate(as_list(values)):
            rows.setdefault(value, []).append(row)
        names = [name for name in widest if name in batch]
        if not rows or not names:
            return {**batch}
        masks = [f'{name}_mask' for name in names if batch.get(f'{name}_mask') is not None]
        parts = []
        for value, some in rows.items():
            part = {name: _take(batch[name], np.array(some)) for name in (*names, *masks)}
            parts.append({**part, **self._of(value).columns(part, is_inverse=is_inverse, widest=widest)})
        positions = np.concatenate([*rows.values()])
        columns = {name: _joined(batch[name], [part[name] for part in parts], positions) for name in names}
        return {**batch, **columns}

    def _widest(self) -> dict[str, Shape]:
        """Returns the shape that the values of all groups fit, by field."""
        shapes: dict[str, list[Shape]] = {}
        for group in self.groups.values():
            for name, (offset, _) in group.scales.items():
                shapes.setdefault(name, []).append(offset.shape)
        return {
            name: tuple(map(max, zip(*of_field, strict=True))) if len({*map(len, of_field)}) == 1 else ()
            for name, of_field in shapes.items()
        }

    def _of(self, value: Any) -> Normalize:
        value = value.item() if isinstance(value, np.generic | np.ndarray) else value
        if value not in self.groups:
            shown = ', '.join(map(repr, list(self.groups)[:8]))
            raise KeyError(f'normalize: no statistics of {self.by} {value!r}; the groups are {shown}')
        return self.groups[value]


@dataclasses.dataclass(frozen=True)
class _Change:
    """Changes the values of a field: normalizes them, or inverts this."""

    name: str
    offset: Array
    scale: Array
    is_inverse: bool
    padded: Shape
    """The shape of padded values that need no mask."""

    def of(self, values: Any, mask: Any = None) -> Any:
        """Returns a changed value or column. Elements whose mask is False stay as they are."""
        if values is None:
            return None
        if isinstance(values, Ragged):
            return dataclasses.replace(values, values=self.of(values.values))
        if isinstance(values, Masked):
            return values._replace(values=self.of(*values))
        if isinstance(values, Padded):
            is_item = np.arange(values.values.shape[1]) < np.asarray(values.lengths)[:, None]
            is_item = is_item.reshape(*is_item.shape, *[1] * (np.ndim(values.values) - 2))
            return values._replace(
                values=self.of(values.values, np.broadcast_to(is_item, values.values.shape))
            )
        if isinstance(values, PackedSequences):
            return values._replace(values=self.of(values.values))
        if isinstance(values, list | tuple):
            masks = itertools.repeat(None) if mask is None else mask
            return [self.of(value, of_value) for value, of_value in zip(values, masks, strict=False)]
        return self._of_array(values if _is_tensor(values) else np.asarray(values), mask)

    def _of_array(self, array: Any, mask: Any) -> Any:
        shape, where = self.offset.shape, f'normalize: field {self.name!r}'
        found = tuple(array.shape[array.ndim - len(shape) :])
        # Other columns of this name, e.g. of segments of an image, are no mask of its elements.
        is_mask = getattr(mask, 'shape', None) == array.shape and str(mask.dtype).endswith('bool')
        # Statistics of grey images have one channel; the images have no channel dimension.
        is_padded = shape not in (found, (1,))
        if is_padded:
            is_larger = len(found) == len(shape) and all(map(operator.ge, found, shape))
            if not is_larger or not (is_mask or found == self.padded):
                advice = f' (a padded array needs its mask, {self.name}_mask)' if is_larger else ''
                got = tuple(array.shape)
                raise ValueError(f'{where}: expected values of shape {shape}, got {got}{advice}')
        if not is_padded and not is_mask:
            return self._scaled(array)
        region = (..., *map(slice, shape)) if is_padded else ...
        values = self._scaled(array[region])
        changed = array.to(values.dtype, copy=True) if _is_tensor(array) else array.astype(values.dtype)
        if is_mask:
            is_value = mask[region]
            if mask.sum() > is_value.sum():
                raise ValueError(
                    f'{where}: expected values of shape {shape}, but {self.name}_mask has values beyond it'
                )
            changed[region][is_value] = values[is_value]
        else:
            changed[region] = values
        return changed

    def _scaled(self, values: Any) -> Any:
        """Returns changed values without padding, as floats: an array or a tensor."""
        offset, scale = self.offset, self.scale
        if _is_tensor(values):
            is_double = values.is_floating_point() and values.dtype.itemsize == 8
            values = values.double() if is_double else values.float()
            offset, scale = values.new_tensor(offset), values.new_tensor(scale)
            return values * scale + offset if self.is_inverse else (values - offset) / scale
        changed = values * scale + offset if self.is_inverse else (values - offset) / scale
        return changed.astype(np.float64 if values.dtype == np.float64 else np.float32)


def _is_tensor(values: Any) -> bool:
    """Returns whether a value is a tensor of PyTorch."""
    return hasattr(values, 'new_tensor')


def _take(column: Any, rows: Int64s) -> Any:
    """Returns rows of a column."""
    if isinstance(column, Masked):
        return Masked(column.values[rows], column.mask[rows])
    if isinstance(column, Padded):
        return Padded(column.values[rows], column.lengths[rows])
    if isinstance(column, PackedSequences):
        return take(Ragged(np.asarray(column.values), np.asarray(column.offsets, np.int64)), rows)
    return column[rows] if _is_tensor(column) else take(column, rows)


def _joined(column: Any, parts: list[Any], positions: Int64s) -> Any:
    """Returns a column with new values; row i of the parts is row `positions[i]` of the column."""
    if isinstance(column, Masked | Padded):
        return column._replace(values=_joined(column.values, [part.values for part in parts], positions))
    if isinstance(column, PackedSequences):
        joined = join_columns(parts, positions)
        assert isinstance(joined, Ragged)
        return column._replace(values=joined.values)
    if not _is_tensor(column):
        return join_columns(parts, positions)
    tensor, start = column.new_empty(column.shape, dtype=parts[0].dtype), 0
    for part in parts:
        tensor[positions[start : start + len(part)]] = part
        start += len(part)
    return tensor


@overload
def normalize(
    statistics: GroupedStatistics,
    fields: str | Iterable[str] | None = None,
    *,
    mode: Mode = 'std',
) -> NormalizeGroups: ...
@overload
def normalize(
    statistics: Mapping[str, FieldStatistics],
    fields: str | Iterable[str] | None = None,
    *,
    mode: Mode = 'std',
) -> Normalize: ...
def normalize(
    statistics: Mapping[Any, Any],
    fields: str | Iterable[str] | None = None,
    *,
    mode: Mode = 'std',
) -> Normalize | NormalizeGroups:
    """Returns a `transform` for `bags.Loader` that normalizes fields, and its inverse.

    Args:
        statistics: The result of `bags.statistics`. With `by`, each datapoint is normalized by the statistics
            of its group, and batches need the field that names the group.
        fields: A name or names. Default: all fields of the statistics.
        mode: 'std' scales to mean 0 and standard deviation 1; 'range' to -1 at the minimum and 1 at the
            maximum; 'quantiles' to -1 and 1 at the quantiles 0.01 and 0.99. Constant elements become 0.

    Raises:
        KeyError: A field has no statistics.
        ValueError: `mode` is unknown; or a field has no values (in any group), no quantiles, or infinite
            values.

    Examples:
        >>> scale = bags.normalize(bags.statistics(dataset, 'state'), 'state')
        >>> loader = bags.Loader(dataset, 8, fields='state', transform=scale)
        >>> abs(float(next(iter(loader))['state'].values.mean())) < 1e-6
        True
    """
    one_of('mode', mode, get_args(Mode))
    names = None if fields is None else [fields] if isinstance(fields, str) else [*fields]
    if isinstance(statistics, GroupedStatistics):
        return _normalize_groups(statistics, names, mode)
    names = list(statistics) if names is None else names
    scales = {}
    for name in names:
        if name not in statistics:
            raise KeyError(
                f'no statistics of field {name!r}; the fields are {", ".join(map(repr, statistics))}'
            )
        field = statistics[name]
        if not np.all(field.count):
            raise ValueError(f'normalize: field {name!r}: expected values, got none')
        if mode == 'std':
            offset, scale = field.mean, field.std
        else:
            if mode == 'quantiles' and not field.quantiles:
                raise ValueError(
                    f'normalize: field {name!r} has no quantiles: its values have too many elements'
                )
            low, high = (
                (field.min, field.max) if mode == 'range' else (field.quantiles[0.01], field.quantiles[0.99])
            )
            offset, scale = (low + high) / 2, (high - low) / 2
        if not (np.isfinite(offset).all() and np.isfinite(scale).all()):
            raise ValueError(
                f'normalize: field {name!r}: expected finite statistics, got {offset} and {scale}'
            )
        scales[name] = offset, np.where(scale > 0, scale, 1.0)
    return Normalize(scales)


def _normalize_groups(statistics: GroupedStatistics, names: list[str] | None, mode: Mode) -> NormalizeGroups:
    """Like `normalize`, by group; a group without values of a field leaves the field unchanged."""
    groups, fields_with_values = {}, set[str]()
    for value, fields in statistics.items():
        filled = [name for name in fields if np.any(fields[name].count)]
        fields_with_values |= {*filled}
        wanted = filled if names is None else [name for name in names if name in filled or name not in fields]
        groups[value] = normalize(fields, wanted, mode=mode)
    for name in names or ():
        if name not in fields_with_values:
            raise ValueError(f'normalize: field {name!r}: expected values in one group, got none')
    return NormalizeGroups(statistics.by, groups)
