"""`bags.computed`: fields whose values are computed once, by a function, and then read from a folder."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bags.concurrency import Shareable
from bags.dataset.base import Dataset, check_dataset, expect_committed
from bags.dataset.format.folder import Folder
from bags.dataset.format.options import Compression
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import ReadField
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import digest_of, fingerprint
from bags.dataset.reading.row_groups import RowGroup, merge_columns, merge_ranges
from bags.dataset.reading.row_reader import FolderFields, RecordRanges
from bags.dataset.reading.selection import Asked, Selection
from bags.dataset.writing.encoder import Encoder
from bags.indexing import Int64s
from bags.validation import at_least
from bags.views.computed_fields import AddedFields, ComputedFields, added_fields
from bags.views.computed_store import DATAPOINT, MAX_RANKS, ComputedStore, StoredSource
from bags.views.join import Join


def computed(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    add: AddedFields,
    batch_size: int = 256,
    rank: int = 0,
    compression: Compression = None,
    checksum: bool = False,
) -> ComputedView:
    """Returns a view with new fields, whose values are computed when they are first read, and stored.

    A read returns the stored values. Values that are not stored are computed by the functions, in the process
    that called this, and appended to the folder `path/RANK` before they are returned. They are safe if the
    process is killed, except in the batch that is being computed. Threads may read; the functions are
    called by one thread at a time. Processes with a pickled or forked view read what is stored.

    Args:
        dataset: The dataset.
        path: A local folder for the values, created with its parents; one for each version of the functions.
        add: The new fields, as in `bags.copy`: their type, and a function from a batch to the values of its
            datapoints. A field of the dataset of the same name is replaced.
        batch_size: Maximum number of datapoints in a batch for the functions. Only the datapoints of a read
            that are not stored are in it.
        rank: The rank of this process in a distributed run, as in `bags.Loader`. Each process needs its own.
        compression, checksum: As in `DatasetWriter`, for the values.

    Raises:
        ValueError: The folder has values of another dataset, by its fingerprint; or `path` is a URL, or a
            field has the name 'datapoint', which the folder uses.
        SpecError: The folder has fields of other names or types.
        FileExistsError: The folder holds other files.
        TypeError: Not a dataset, or `add` is not a mapping to pairs.

    Reads raise the errors of the functions, with notes that name the field and the datapoints; EncodeError if
    a value does not have the type of its field; BlockingIOError if another process has the same rank; and, in
    another process, RuntimeError if a value is not stored. None of the values of that batch are then stored.

    Examples:
        >>> def double(batch):
        ...     return batch['id'] * 2
        >>> view = bags.computed(dataset, 'doubled', add={'twice': ('int(8)', double)})
        >>> view.batch([5, 1], ('id', 'twice'))
        {'id': array([5, 1]), 'twice': array([10,  2])}
        >>> int(view.stored.sum())
        2
        >>> view.close()
    """
    check_dataset('computed', dataset)
    expect_committed('computed', dataset)
    schema, functions = added_fields(add)
    if not schema:
        raise ValueError('add: expected fields to compute, got none')
    if DATAPOINT in schema:
        raise ValueError(f'add: expected other names than {DATAPOINT!r}, the field of the stored indices')
    rank = at_least('rank', rank, 0)
    if rank >= MAX_RANKS:
        raise ValueError(f'rank: expected less than {MAX_RANKS}, got {rank}')
    fields = ComputedFields(
        dataset, schema, functions, Encoder(schema, None), at_least('batch_size', batch_size, 1), False
    )
    source = StoredSource(fingerprint(dataset, of_origin=True), len(dataset), dataset.expression)
    store = ComputedStore(path, schema, source, rank, compression, bool(checksum))
    return ComputedView(dataset, ComputedValues(store, source, fields))


class ValueComputer(Shareable):
    """Computes the values of a store that are missing. In other processes, it raises an error instead."""

    def __init__(self, store: ComputedStore, fields: ComputedFields | None) -> None:
        self._store, self._fields = store, fields
        self._process = os.getpid()
        self._lock = threading.RLock()

    def compute(self, rows: Int64s) -> None:
        """Computes and stores the values of the rows that are not stored.

        Raises:
            RuntimeError: Another process called `bags.computed`.
        """
        missing = np.unique(rows[~self._store.are_stored(rows)])
        if not len(missing):
            return
        if self._fields is None or os.getpid() != self._process:
            names = ', '.join(map(repr, self._store.schema))
            raise RuntimeError(
                f'{self._store.path}: field {names} of datapoint {missing[0]} is not stored, and process '
                f'{os.getpid()} cannot compute it: functions run in the process that called bags.computed. '
                'Make batches there, with bags.Loader(…, processes=False) or num_workers=0; or read the '
                'field of all datapoints there first, in batches'
            )
        with self._lock:
            self._store.begin()
            missing = missing[~self._store.are_stored(missing)]  # Another thread may have computed them.
            size = self._fields.batch_size
            for start in range(0, len(missing), size):
                part = missing[start : start + size]
                self._store.append(part, self._fields.encode_batch(part))

    def exclusive(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the lock of the store. In a forked child, another thread may have held it forever."""
        return self._lock if os.getpid() == self._process else contextlib.nullcontext()

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueComputer, (self._store, None)


class ComputedValues(Dataset):
    """The computed fields alone, as a dataset. Reads first compute the values that are not stored."""

    def __init__(self, store: ComputedStore, source: StoredSource, fields: ComputedFields | None) -> None:
        self.schema, self.store, self._source = store.schema, store, source
        self.computer = ValueComputer(store, fields)

    def __len__(self) -> int:
        return self._source.length

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        return [RowGroup(self, indices, selection, None)]  # Nothing is computed before it is read.

    def _plan(self, rows: Int64s, selection: Selection) -> list[RowGroup]:
        self.computer.compute(rows)
        return self.store.plan_rows(rows, selection)

    def read_selection(self, indices: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        groups = self._plan(indices, selection)
        columns = [group.reader.read_selection(group.rows, group.selection, read) for group in groups]
        return merge_columns(groups, columns, list(selection))

    def item_counts(self, indices: Int64s, field: str, items: Asked = True) -> Int64s:
        groups = self._plan(indices, {field: items})
        counts: list[dict[str, Column]] = [
            {field: group.reader.item_counts(group.rows, field, group.selection[field])} for group in groups
        ]
        return np.asarray(merge_columns(groups, counts, [field])[field], np.int64)

    def record_ranges(self, indices: Int64s, field: str, items: Asked = True) -> RecordRanges | None:
        groups = self._plan(indices, {field: items})
        ranges = [group.reader.record_ranges(group.rows, field, group.selection[field]) for group in groups]
        located = [ranges_of_group for ranges_of_group in ranges if ranges_of_group is not None]
        return merge_ranges(groups, located) if len(located) == len(groups) else None

    def open_field(self, name: str) -> FieldReader:
        return self.store.open_field(name)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        names = list(fields)
        return [folder for reader in self.store.readers for folder in reader.folders(names)]

    def roots(self) -> list[Folder]:
        return [root for reader in self.store.readers for root in reader.roots()]

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        # Independent of what is stored, so that a loader can resume.
        spec = [(name, self.schema[name].text) for name in fields]
        return digest_of(type(self).__name__, spec, self._source.fingerprint)

    @property
    def size(self) -> int:
        return sum(reader.size for reader in self.store.readers)

    @property
    def shards(self) -> int:
        return sum(reader.shards for reader in self.store.readers)

    @property
    def unfinished(self) -> bool:
        return False  # Every datapoint has a value.

    @property
    def expression(self) -> str:
        return f'values of {self.store.path!r}'

    def close(self) -> None:
        with self.computer.exclusive():
            self.store.close()


class ComputedView(Join):
    """A view with fields whose values are computed once, and stored: the result of `bags.computed`.

    `with bags.computed(…) as view:` closes it. An unclosed view loses no values.

    Examples:
        >>> view = bags.computed(
        ...     dataset, 'halves', add={'half': ('float(4)', lambda batch: batch['id'] / 2)}
        ... )
        >>> view[5, 'half'], np.flatnonzero(view.stored)
        ({'half': 2.5}, array([5]))
    """

    documented_names = ('path', 'rank', 'stored', 'reopen')

    def __init__(self, dataset: Dataset, values: ComputedValues) -> None:
        super().__init__([dataset, values], replace=True)
        self._values = values

    @property
    def path(self) -> str:
        """The folder of the values."""
        return self._values.store.path

    @property
    def rank(self) -> int:
        """The rank of this process. Its values are in the folder `path/RANK`."""
        return self._values.store.rank

    @property
    def stored(self) -> npt.NDArray[np.bool_]:
        """Which datapoints have stored values, bool (len,): of this rank, and of others at `reopen`."""
        return self._values.store.are_stored()

    def reopen(self) -> Self:
        """Finds the values that other ranks have stored since, and returns this view.

        Loaders and views of this view then have them too. To compute each value once, call it at the
        beginning of an epoch, after a barrier of all ranks.

        Raises:
            ValueError, SpecError, CorruptError: As `bags.computed`.
        """
        with self._values.computer.exclusive():
            self._values.store.reopen()
        return self

    def part_lengths(self) -> list[int]:
        return self.datasets[0].part_lengths()

    @property
    def expression(self) -> str:
        names = list(self._values.schema)
        return f'bags.computed({self.datasets[0].expression}, {self.path!r}, add={names})'
