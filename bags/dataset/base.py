"""The base of readers and views: datapoints by index, and slices, which are views."""

from __future__ import annotations

import abc
import hashlib
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from bags.concurrency import Shareable
from bags.dataset.address import Address, Datapoint
from bags.dataset.batch import spread
from bags.dataset.field import Field
from bags.dataset.field_access import FieldAccess
from bags.dataset.fingerprint import digest_of, fingerprint
from bags.dataset.key_values import Matches, sort_matches
from bags.dataset.late_binding import late
from bags.dataset.metadata import Metadata, merge_metadata, metadata_of_fields
from bags.dataset.selection import Fields, Selection, select_fields, select_whole
from bags.dataset.spec import Spec
from bags.indexing import Int64s, as_indices, check_index
from bags.storage import Store

Indices = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
"""Several datapoints: a list, a range or an array of integers."""


class Dataset(Shareable, FieldAccess):
    """A sequence of datapoints whose fields and items can be read separately: a reader or a view.

    Every dataset is a random-access source for Grain and a map-style dataset for PyTorch. It is thread-safe,
    fork-safe and picklable, and its `repr` identifies it.
    """

    _unfinished: bool | None = None
    """The value of `unfinished`; None until it is determined."""

    # To be defined by readers and views.

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Bytes on disk of the underlying folders."""

    @property
    @abc.abstractmethod
    def shards(self) -> int:
        """Number of underlying folders."""

    @property
    def unfinished(self) -> bool:
        """Whether the dataset is being written, or its writer ended early (an exception, or it was killed).

        `resume=True` continues such a dataset, and `bags.recover` accepts it as it is. Determined on first
        use.
        """
        if self._unfinished is None:
            self._unfinished = self._is_unfinished()
        return self._unfinished

    @abc.abstractmethod
    def _is_unfinished(self) -> bool: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files. Values that were read stay valid."""

    @abc.abstractmethod
    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        """Returns the fingerprint of some fields; see `bags.dataset.fingerprint`."""

    @property
    def retries(self) -> int:
        """Number of requests to the dataset's object stores that were retried by this process.

        Datasets that were opened with equal storage options share a store, and are counted together.
        """
        counters = {id(store.retry_counter): store.retry_counter for store in self._stores()}
        return sum(counter.count for counter in counters.values() if counter is not None)

    @abc.abstractmethod
    def _stores(self) -> list[Store]:
        """Returns the stores of the underlying datasets."""

    @abc.abstractmethod
    def _directories(self) -> list[str]:
        """Returns the paths of the underlying datasets, without duplicates."""

    def part_lengths(self) -> list[int]:
        """Returns the number of datapoints of each shard, or of each dataset of a `concat`."""
        return [len(self)]

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        """Returns the approximate bytes on disk of the datapoints before an index, for some or all fields.

        Views assume that all datapoints have the same size.
        """
        return self.size * index // max(1, len(self))

    @property
    def metadata(self) -> Metadata:
        """The author's metadata of the dataset and its fields, as JSON values; empty by default."""
        return {}

    @property
    def fingerprint(self) -> str:
        """A hash of the datapoints, 24 hexadecimal digits, wherever the dataset is; computed at each use.

        It is that of the id that the writer gave the dataset, which changes with each change. Of a dataset of
        an earlier version or another library, it is that of all limits, refs and checksums, and of the
        records of each field of up to 64 MiB. That of a view is made from those of its datasets.
        """
        return fingerprint(self)

    # Public access.

    @overload
    def __getitem__(self, key: slice | tuple[slice, Fields]) -> Dataset: ...

    @overload
    def __getitem__(self, key: Indices | tuple[Indices, Fields]) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: SupportsIndex | tuple[SupportsIndex, Fields]) -> Datapoint: ...

    def __getitem__(self, key: Any) -> Any:
        """Returns datapoints by index.

        - `dataset[3]`: a datapoint, a dict of its fields.
        - `dataset[3, 'image']`, `dataset[3, ('id', 'image')]`, `dataset[3, {'id': True, 'words': range(2)}]`:
          some fields of it, and some items of sequences.
        - `dataset[[5, 1, 5]]`, `dataset[[5, 1, 5], ('id', 'image')]`: a batch, as `dataset.batch` returns it.
        - `dataset[10:20]`, `dataset[10:20, ('id', 'image')]`: a view, which reads nothing.
        """
        if type(key) is int:
            return self.read_row(key, None)
        fields: Fields = None
        if type(key) is tuple:
            if len(key) != 2:
                raise TypeError(
                    f'expected an index, or an index and fields (several in a tuple), got {len(key)} values'
                )
            key, fields = key
        if isinstance(key, slice):
            return Select(self, range(len(self))[key], fields)
        if isinstance(key, list | range) or (isinstance(key, np.ndarray) and key.ndim > 0):
            return self.batch(key, fields)
        if isinstance(key, str):
            raise TypeError(
                f'index: expected an integer, got {key!r} '
                f'(dataset.batch(range(len(dataset)), {key!r}) reads a whole column)'
            )
        selection = None if fields is None else select_fields(fields, self.types)
        return self.read_row(key if type(key) is int else check_index(key, len(self)), selection)

    def __iter__(self) -> Iterator[Datapoint]:
        return map(self.read_row, range(len(self)), itertools.repeat(None))

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns datapoints as a list, read together (PyTorch's fetchers call this)."""
        return self._rows(as_indices(indices, len(self)), dict.fromkeys(self.types, True))

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns `__getitems__(indices)`; Grain calls this name."""
        return self.__getitems__(indices)

    def __str__(self) -> str:
        """Returns a heading and a line for each field; `repr` is one line."""
        text: str = late('dataset_as_text')(self)
        return text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Returns the HTML for notebooks: the fields, with their values in the first datapoints."""
        html: str = late('dataset_as_html')(self)
        return html

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class View(Dataset):
    """A dataset over other datasets. Creating it reads nothing."""

    def __init__(self, datasets: Sequence[Dataset], types: Spec) -> None:
        self.datasets = list(datasets)
        self.types = types
        self.is_remote = any(dataset.is_remote for dataset in datasets)

    @property
    def size(self) -> int:
        return sum(dataset.size for dataset in self.datasets)

    @property
    def shards(self) -> int:
        return sum(dataset.shards for dataset in self.datasets)

    @property
    def metadata(self) -> Metadata:
        return metadata_of_fields(merge_metadata(each.metadata for each in self.datasets), self.types)

    def _is_unfinished(self) -> bool:
        return any(dataset.unfinished for dataset in self.datasets)

    def close(self) -> None:
        for dataset in self.datasets:
            dataset.close()

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        below = [
            dataset.fingerprint_of([name for name in fields if name in dataset.types], of_origin)
            for dataset in self.datasets
        ]
        spec = [(name, self.types[name].text) for name in fields]
        return digest_of(type(self).__name__, self.fingerprint_options(), spec, below)

    def fingerprint_options(self) -> object:
        """Returns numbers, strings and tuples of them that say how the view is made of its datasets."""
        return ()

    def dataset_of(self, field: str) -> Dataset:
        """Returns a dataset that has a field."""
        return next(dataset for dataset in self.datasets if field in dataset.types)

    def open_field(self, name: str) -> Field:
        return self.dataset_of(name).open_field(name)

    def _stores(self) -> list[Store]:
        return [store for dataset in self.datasets for store in dataset._stores()]

    def _directories(self) -> list[str]:
        return list(dict.fromkeys(path for dataset in self.datasets for path in dataset._directories()))


class Select(View):
    """A view of some datapoints and fields of a dataset: the result of `bags.select` and of slices."""

    def __init__(self, dataset: Dataset, indices: range | Int64s, fields: Fields = None) -> None:
        names = sorted(select_whole(fields, dataset.types, 'select'))
        if isinstance(dataset, Select) and isinstance(indices, range):
            below: range | Int64s = dataset.indices
            if isinstance(below, range):  # A slice of a slice is a slice of the underlying dataset.
                dataset, indices = dataset.datasets[0], below[_as_slice(indices)]
        super().__init__([dataset], {name: dataset.types[name] for name in names})
        self.indices: range | Int64s = indices

    def source_indices(self, indices: Int64s) -> Int64s:
        """Converts indices to indices of the underlying dataset."""
        if isinstance(self.indices, range):
            return self.indices.start + self.indices.step * indices
        return self.indices[indices]

    def __len__(self) -> int:
        return len(self.indices)

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        below = self.datasets[0]
        if type(self) is Select and isinstance(self.indices, range) and self.indices == range(len(below)):
            return below.fingerprint_of(fields, of_origin)
        return super().fingerprint_of(fields, of_origin)

    def fingerprint_options(self) -> object:
        if isinstance(self.indices, range):
            return self.indices.start, self.indices.stop, self.indices.step
        return hashlib.blake2b(self.indices.astype('<i8').tobytes(), digest_size=16).hexdigest()

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        return self.datasets[0].resolve(self.source_indices(indices), selection)

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        owners, rows = self.datasets[0].match_keys(field, keys)
        if isinstance(self.indices, range):
            positions, rest = np.divmod(rows - self.indices.start, self.indices.step)
            there = (rest == 0) & (positions >= 0) & (positions < len(self.indices))
            return sort_matches(owners[there], positions[there])
        known: tuple[Int64s, Int64s] | None = vars(self).get('_known_places')
        if known is None:
            order = np.argsort(self.indices, kind='stable')
            known = self._known_places = self.indices[order], order
        starts = known[0].searchsorted(rows, 'left')
        counts = known[0].searchsorted(rows, 'right') - starts
        return sort_matches(np.repeat(owners, counts), known[1][spread(starts, counts)])

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        below = self.datasets[0]
        if selection is None and len(self.types) < len(below.types):
            selection = dict.fromkeys(self.types, True)
        return below.read_row(int(self.indices[check_index(index, len(self.indices))]), selection)

    def __repr__(self) -> str:
        below = self.datasets[0]
        fields = '' if len(self.types) == len(below.types) else f', fields={list(self.types)}'
        if isinstance(self.indices, range):
            part = f'[{self.indices.start}:{self.indices.stop}:{self.indices.step}]'
            return f'bags.select({below!r}{part}{fields})' if fields else f'{below!r}{part}'
        # The checksum of the indices distinguishes selections.
        mark = zlib.crc32(self.indices.tobytes())
        return f'bags.select({below!r}, {len(self.indices)} indices #{mark:08x}{fields})'


def _as_slice(part: range) -> slice:
    """Converts a range of non-negative indices to a slice."""
    if not part:
        return slice(0, 0)
    stop = part[-1] + (1 if part.step > 0 else -1)
    return slice(part.start, stop if stop >= 0 else None, part.step)


def check_dataset(what: str, value: Any) -> None:
    """Raises TypeError, naming `what`, if a value is not a dataset."""
    if not isinstance(value, Dataset):
        advice = ' (bags.open opens one)' if isinstance(value, str | os.PathLike) else ''
        raise TypeError(f'{what}: expected a dataset, got {value!r:.80}{advice}')
