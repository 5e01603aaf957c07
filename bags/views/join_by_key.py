"""`bags.join`. A join by keys first replaces each dataset by a view of its matching datapoints."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from bags.dataset.base import Dataset, Select
from bags.dataset.format.spec import as_optional
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.key_values import KEY_TYPES, Matches, read_keys
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.row_reader import MissingFields
from bags.dataset.reading.selection import Selection, divide
from bags.indexing import Int64s, check_index
from bags.keys.index import check_key_field, index_in_memory
from bags.storage.urls import plain_path
from bags.validation import one_of
from bags.views.concat import check_datasets
from bags.views.join import Join
from bags.views.optional import ChangedReader, optional_column, optional_field


def join(
    datasets: Iterable[Dataset | str | os.PathLike[str]],
    replace: bool = False,
    *,
    on: str | None = None,
    how: Literal['inner', 'left'] = 'inner',
    many: bool = False,
) -> Join:
    """Returns a view of the fields of several datasets of equal length, or joined by a field of keys.

    Without `on`, datapoints at the same index are joined. With `on`, the keys of the first dataset are read
    now, and the keys of other datasets if they do not have an index (`bags.create_index`). Other fields are
    read on demand. The view is in the order of the first dataset. Datapoints without a key never match.

    Args:
        datasets: The datasets, or paths that `bags.open` opens with its default options. With options:
            `bags.join([bags.open(path, …), …])`.
        replace: Read a field of several datasets from the last of them. Without it, the type of such a field
            must be an integer or `utf8`; it is read now, and must have equal values in all datasets.
        on: A field of type `utf8`, `bytes`, `int` or `uint` that all datasets have. Integers of different
            sizes are equal if their values are equal.
        how: 'inner' keeps the datapoints whose key is in all datasets. 'left' keeps all datapoints of the
            first; the fields of the other datasets are then optional.
        many: Allow several datapoints with the same key in a later dataset: the view has one datapoint for
            each of them, in their order, and for each combination across several datasets.

    Raises:
        ValueError: Without `on`, the lengths differ. Without `replace`, several datasets have a field, with
            different values or types. Without `many`, several datapoints of a later dataset have the same
            key. With `how='inner'`, no key is in all datasets.
        KeyError, TypeError: The field `on` does not exist, or cannot have keys.
        CorruptError: An index is damaged or stale.

    Examples:
        >>> scores = {'score': np.arange(8, dtype=np.float32) / 8}
        >>> done = bags.from_numpy(scores, 'scores')
        >>> joined = bags.join(['episodes', 'scores'])
        >>> joined[4, ('id', 'score')]
        {'id': 4, 'score': 0.5}
    """
    opened = _open_paths(datasets)
    one_of('how', how, ('inner', 'left'))
    if on is not None:
        return Join(_join_by_key(opened, on, how == 'left', many), replace)
    if how != 'inner' or many:
        raise ValueError("join: how='left' and many=True have no effect without on, a field of keys")
    return Join(opened, replace)


def _open_paths(datasets: Iterable[Dataset | str | os.PathLike[str]]) -> list[Dataset]:
    """Opens the datasets given as paths.

    Raises:
        TypeError: The argument is not a list of datasets or paths.
    """
    is_one = isinstance(datasets, Dataset | str | os.PathLike | Mapping)
    if is_one or not isinstance(datasets, Iterable):
        return check_datasets('join', datasets)  # Raises the error.
    paths = [source if isinstance(source, Dataset) else plain_path(source) for source in datasets]
    opened = [open_dataset(path) if isinstance(path, str | os.PathLike) else path for path in paths]
    return check_datasets('join', opened)


class _Matched(Select):
    """A view of the datapoints that match the datapoints of another dataset; index -1 means no match.

    All fields are optional.
    """

    def __init__(self, dataset: Dataset, rows: Int64s, fields: Sequence[str]) -> None:
        super().__init__(dataset, rows, fields)
        self._changes = {
            name: functools.partial(optional_column, field_type) for name, field_type in self.schema.items()
        }
        self.schema = {name: as_optional(field_type) for name, field_type in self.schema.items()}

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        rows = self.source_indices(indices)
        matched, missing = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        shares = divide(selection, [matched, missing])
        groups = []
        if len(matched):
            matched_groups = self.datasets[0].plan_rows(rows[matched], shares[0])
            groups = [
                group._replace(reader=ChangedReader(group.reader, self._changes)).within(matched)
                for group in matched_groups
            ]
        if not groups or len(missing):
            groups.append(
                RowGroup(MissingFields(self.open_field), missing, shares[1], missing if len(rows) else None)
            )
        return groups

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        matches = self.source_indices(indices)
        which, rows = self.datasets[0].origin_rows(field, matches.clip(0))
        return which, np.where(matches >= 0, rows, -1)

    def open_field(self, name: str) -> FieldReader:
        return optional_field(super().open_field(name))

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        fields: Selection = dict.fromkeys(self.schema, True) if selection is None else selection
        row = int(self.indices[check_index(index, len(self.indices))])
        return self.datasets[0].read_row(row, fields) if row >= 0 else dict.fromkeys(fields)


def _join_by_key(datasets: Sequence[Dataset], on: str, keep: bool, many: bool) -> list[Dataset]:
    """Returns a view of each dataset, all of equal length. Datapoints at the same index have the same key.

    Args:
        datasets: The datasets.
        on: The field of keys; only the view of the first dataset has it.
        keep: Whether to keep datapoints of the first dataset without a match.
        many: Whether several datapoints of another dataset may have the same key.

    Raises:
        ValueError: Several datapoints of another dataset have the same key, and `many` is not set; or no key
            is in all datasets.
        TypeError: The field of keys has different types.
    """
    first, *others = datasets
    if len({KEY_TYPES[check_key_field(dataset, on).format] for dataset in datasets}) > 1:
        types = [dataset.spec[on] for dataset in datasets]
        raise TypeError(f'join: field {on!r}: expected keys of one type in all datasets, got {types}')
    keys = [key for _, some in read_keys(first, on) for key in some]
    lefts = np.arange(len(first))
    columns: list[Int64s] = []
    for number, dataset in enumerate(others, 1):
        owners, rows = _match(dataset, on, keys)
        counts = np.bincount(owners, minlength=len(keys))
        if not many and (counts > 1).any():
            position = int(counts.argmax())
            pair = ' and '.join(map(str, rows[owners == position][:2].tolist()))
            key = (keys[position] or b'').decode(errors='backslashreplace')
            raise ValueError(
                f'join: key {key!r:.80} of field {on!r} is in datapoints {pair} of dataset {number} '
                f'(many=True takes a datapoint for each)'
            )
        # Row -1, appended at the end, means no match.
        starts = np.where(counts, np.cumsum(counts) - counts, len(rows))[lefts]
        counts = (np.maximum(counts, 1) if keep else counts)[lefts]
        columns = [np.repeat(column, counts) for column in columns]
        columns.append(np.append(rows, -1)[concat_ranges(starts, counts)])
        had_rows, lefts = len(lefts) > 0, np.repeat(lefts, counts)
        if had_rows and not len(lefts) and len(dataset):
            raise ValueError(
                f'join: field {on!r}: expected keys that are in all datasets, got none of dataset {number} '
                f"among {len(keys):,} datapoints of the first; how='left' keeps datapoints without a match"
            )
    view = _Matched if keep else Select
    fields = [[name for name in dataset.schema if name != on] for dataset in others]
    return [Select(first, lefts), *map(view, others, columns, fields)]


def _match(dataset: Dataset, field: str, keys: list[bytes | None]) -> Matches:
    """Looks up the datapoints of each key in the index of the dataset, else in an index in memory."""
    try:
        return dataset.match_keys(field, keys)
    except (FileNotFoundError, TypeError):
        return index_in_memory(dataset, field).match(dataset, field, keys)
