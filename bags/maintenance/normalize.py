"""`bags.normalize`: scales the numeric columns of batches by statistics of the dataset, and back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import Ragged, as_list, join_columns, take
from bags.maintenance.field_statistics import FieldStatistics, GroupedStatistics
from bags.validation import one_of

Array = npt.NDArray[Any]
Mode = Literal['std', 'range', 'quantiles']


@dataclasses.dataclass(frozen=True)
class Normalize:
    """The `transform` for a loader that `bags.normalize` returns, with its inverse. Picklable.

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
        return self._apply(batch, lambda values, offset, scale: (values - offset) / scale)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the original values of normalized columns, as floats."""
        return self._apply(batch, lambda values, offset, scale: values * scale + offset)

    def _apply(self, batch: Mapping[str, Any], scaled: Callable[..., Array]) -> dict[str, Any]:
        columns = {
            name: _changed(
                batch[name], name, offset.shape, functools.partial(scaled, offset=offset, scale=scale)
            )
            for name, (offset, scale) in self.scales.items()
            if name in batch
        }
        return {**batch, **columns}


@dataclasses.dataclass(frozen=True)
class NormalizeGroups:
    """Like `Normalize`, for statistics by group; batches need the field that names the group. Picklable.

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
        return self._apply(batch, Normalize.__call__)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the original values of normalized columns, as floats."""
        return self._apply(batch, Normalize.inverse)

    def _apply(self, batch: Mapping[str, Any], scaled: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        if self.by not in batch:
            raise KeyError(f'normalize: expected the field {self.by!r} in the batch, which names the group')
        values = batch[self.by]
        if not isinstance(values, list | np.ndarray) or np.ndim(values) == 0:
            return scaled(self._of(values), batch)
        rows: dict[Any, list[int]] = {}
        for row, value in enumerate(as_list(values)):
            rows.setdefault(value, []).append(row)
        scaled_names = dict.fromkeys(name for group in self.groups.values() for name in group.scales)
        names = [name for name in scaled_names if name in batch]
        parts = [
            scaled(self._of(value), {name: take(batch[name], np.array(some)) for name in names})
            for value, some in rows.items()
        ]
        positions = np.concatenate([*rows.values()]) if rows else None
        columns = {name: join_columns([part[name] for part in parts], positions) for name in names if parts}
        return {**batch, **columns}

    def _of(self, value: Any) -> Normalize:
        value = value.item() if isinstance(value, np.generic | np.ndarray) else value
        if value not in self.groups:
            shown = ', '.join(map(repr, list(self.groups)[:8]))
            raise KeyError(f'normalize: no statistics of {self.by} {value!r}; the groups are {shown}')
        return self.groups[value]


def _changed(values: Any, name: str, shape: tuple[int, ...], scaled: Callable[[Array], Array]) -> Any:
    if values is None:
        return None
    if isinstance(values, Ragged):
        return dataclasses.replace(values, values=_changed(values.values, name, shape, scaled))
    if isinstance(values, list | tuple):
        return [_changed(value, name, shape, scaled) for value in values]
    array = np.asarray(values)
    # Statistics of grey images have one channel; the images have no channel dimension.
    if shape != (1,) and array.shape[array.ndim - len(shape) :] != shape:
        raise ValueError(f'normalize: field {name!r}: expected values of shape {shape}, got {array.shape}')
    return scaled(array).astype(np.float64 if array.dtype == np.float64 else np.float32)


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
