"""The base of readers and views: public methods over one primitive, which resolves datapoints to folders."""

from __future__ import annotations

import abc
import itertools
import operator
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.address import Address, merge_columns, merge_ranges
from bags.dataset.arrow import arrow_dataset, read_batches
from bags.dataset.arrow_types import Media
from bags.dataset.batch import Column, spread
from bags.dataset.columns import read_column, read_records, read_values
from bags.dataset.display import as_html, as_text, heading
from bags.dataset.key_index import KeyIndex, Matches, as_key, check_key_field, open_key_index
from bags.dataset.metadata import Metadata, merge_metadata, metadata_of_fields
from bags.dataset.record_ranges import RecordRanges
from bags.dataset.records import Records
from bags.dataset.selection import Fields, PerRowItems, Selection, select_fields, select_whole
from bags.dataset.spec import Spec
from bags.dataset.thumbnails import thumbnails
from bags.indexing import Int64s, as_indices, check_index, offsets_of
from bags.storage import Hints, Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ['Datapoint', 'Dataset', 'Indices', 'Select', 'View', 'check_dataset']

Datapoint = dict[str, Any]
"""A value for each field."""
Indices = Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]
"""Several datapoints: a list, a range or an array of integers."""
SHOWN_ROWS = 3
"""Datapoints that notebooks show of a dataset."""


class Dataset(abc.ABC):
    """A sequence of datapoints that can be read in parts: a reader, or a view of other datasets.

    Every dataset is a random-access source for Grain and a map-style dataset for PyTorch. It is thread-safe,
    fork-safe and picklable, and its `repr` identifies it.
    """

    _types: Spec
    """The type of each field, parsed."""
    is_remote: bool = False
    """Whether reads wait for a network."""
    _unfinished: bool | None = None
    """None: not known yet."""

    # To be defined by readers and views.

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Bytes on disk of the folders behind it."""

    @property
    @abc.abstractmethod
    def shards(self) -> int:
        """Number of folders behind it."""

    @property
    def unfinished(self) -> bool:
        """Whether it is being written, or its writer ended early: by an exception, or because it was killed.

        `resume=True` continues such a dataset, and `bags.recover` accepts it as it is. Found out when it is
        first asked for.
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
    def _directories(self) -> list[str]:
        """Returns the paths of the datasets that it reads from, each once."""

    @abc.abstractmethod
    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        """Returns the rows of folders that datapoints come down to, reading no payload."""

    def _part_lengths(self) -> list[int]:
        """Returns the number of datapoints of each shard, or of each dataset of a `concat`."""
        return [len(self)]

    def _bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        """Returns about how many bytes the datapoints before an index take on disk, of some fields or of all.

        Of views all datapoints count alike.
        """
        return self.size * index // max(1, len(self))

    @property
    def metadata(self) -> Metadata:
        """What its author says of it and of its fields, as values of JSON; empty if nothing."""
        return {}

    # Reading: resolve to addresses, read each folder, put the results in order.

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        """Returns what `read`, a function of `bags.dataset.columns`, gives for each field."""
        addresses = self._resolve(indices, selection)
        found = map_concurrently(
            lambda address: address.reader._read(address.rows, address.selection, read),
            addresses,
            self.is_remote,
        )
        return merge_columns(addresses, found, list(selection))

    def _rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        columns = self._read(indices, selection, read_values)
        if not columns:
            return [{} for _ in range(len(indices))]
        return [dict(zip(selection, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _row(self, index: int, selection: Selection | None) -> Datapoint:
        """Returns one datapoint; overridden where there is a faster way."""
        index = check_index(index, len(self))
        asked = dict.fromkeys(self._types, True) if selection is None else selection
        return self._rows(np.array([index], np.int64), asked)[0]

    def _records(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        """Returns records undecoded: of a plain field, or one item of each sequence."""
        asked = True if items is None else PerRowItems(items, np.ones(len(items), np.int64))
        found: Any = self._read(indices, {field: asked}, read_records)[field]
        return list(found)

    def _lengths(self, indices: Int64s, field: str) -> Int64s:
        """Returns the items of sequences, without reading payload."""
        addresses = self._resolve(indices, {field: True})
        found = map_concurrently(
            lambda address: {
                field: address.reader._item_counts(address.rows, field, address.selection[field])
            },
            addresses,
            self.is_remote,
        )
        lengths = merge_columns(addresses, found, [field])[field]
        assert isinstance(lengths, np.ndarray)
        return lengths

    def _record_ranges(self, indices: Int64s, field: str) -> RecordRanges | None:
        """Returns where the records of a field lie; None if its values are made of decoded frames."""
        if not len(indices):
            return None
        addresses = self._resolve(indices, {field: True})
        found = [
            address.reader._ranges_of(address.rows, field, address.selection[field]) for address in addresses
        ]
        return None if None in found else merge_ranges(addresses, found)

    # Public access.

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return {name: kind.text for name, kind in self._types.items()}

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
            return self._row(key, None)
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
        selection = None if fields is None else select_fields(fields, self._types)
        return self._row(key if type(key) is int else check_index(key, len(self)), selection)

    def __iter__(self) -> Iterator[Datapoint]:
        return map(self._row, range(len(self)), itertools.repeat(None))

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns datapoints as a list, read together (PyTorch's fetchers call this)."""
        return self._rows(as_indices(indices, len(self)), dict.fromkeys(self._types, True))

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """The same under the name that Grain calls."""
        return self.__getitems__(indices)

    def batch(self, indices: Iterable[SupportsIndex], fields: Fields = None) -> dict[str, Any]:
        """Returns columns of values.

        Args:
            indices: The datapoints, in any order, with repeats; negative ones count from the end.
            fields: A name, names, or a mapping of names to True, False, or the items (a range, slice or
                list) of a sequence; all fields unless given.

        Returns:
            The columns in the order asked. Of types whose values have one size, a new array (B, *shape);
            of sequences of those, a `Ragged`; else a list. An optional plain field gives a list with None.

        Raises:
            IndexError, KeyError, TypeError: No such datapoint, field or selection.
            CorruptError, DecodeError: Damaged data.
        """
        return self._read(as_indices(indices, len(self)), select_fields(fields, self._types), read_column)

    def column(self, field: str) -> Any:
        """Returns the values of a field of all datapoints, as `batch` returns them."""
        return self.batch(range(len(self)), field)[field]

    def lengths(self, field: str) -> Int64s:
        """Returns the number of items in each datapoint of a sequence field, int64 (len,), without payload.

        A missing sequence has none.
        """
        self._expect(field, is_sequence=True)
        return self._lengths(np.arange(len(self)), field)

    def field(self, field: str) -> Records:
        """Returns the records of a plain field as a sequence of bytes, one a datapoint (None: missing)."""
        self._expect(field, is_sequence=False)
        return Records(self, field)

    def items(self, field: str) -> Records:
        """Returns the records of all items of a sequence field as one sequence of bytes."""
        self._expect(field, is_sequence=True)
        return Records(self, field)

    def owner(self, field: str, item: SupportsIndex) -> int:
        """Returns the datapoint of an item, counted over all datapoints as in `items`."""
        return self.items(field).locate(item)[0]

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        """Opens a record as a seekable binary file, read on demand.

        Args:
            index: The datapoint.
            field: Its field.
            item: Which item, if the field is a sequence.

        Raises:
            IndexError, KeyError: No such datapoint, item or field.
            TypeError: An item of a plain field, or none of a sequence.
            ValueError: The value is missing.
        """
        select_fields(field, self._types)
        kind, number = self._types[field], check_index(index, len(self))
        if kind.sequence != (item is not None):
            what = 'an item, as it is a sequence' if kind.sequence else 'no item, as it is no sequence'
            raise TypeError(f'field {field!r} of type {kind.text}: expected {what}')
        asked = True if item is None else [operator.index(item)]
        (address,) = self._resolve(np.array([number], np.int64), {field: asked})
        file: BinaryIO | None = address.reader._open_file(
            int(address.rows[0]), field, address.selection[field]
        )
        if file is None:
            raise ValueError(f'{address.reader!r}, datapoint {number}: field {field!r} has no value')
        return file

    # Arrow.

    def to_arrow(
        self, fields: Fields = None, *, media: Media = None, batch_size: int | None = None
    ) -> pa.RecordBatchReader:
        """Returns an Arrow reader of record batches, each read when it is asked for.

        `pa.table(dataset)`, `polars.DataFrame(dataset)` and DuckDB's `from dataset` take all fields; with
        `dataset.to_arrow(fields)` in place of the dataset, those fields. Of other fields nothing is read.

        Numbers, bools, texts and times have Arrow's types; float16 becomes float32. Arrays are lists of a
        fixed size, nested as deep as their shape (`?` in a shape: of any size), and sequences lists. `array`
        is a struct of dtype, shape and data; `json` its text; pictures, `bytes` and all other types their
        records. Missing values are null. Decoders that the dataset was opened with are not used.

        Args:
            fields: As in `batch`; no frames of videos.
            media: What stands for a picture, a video or a recording: 'bytes', or 'location', a struct of
                path, offset and length in bytes. By default the location of `video` and `audio`, which are
                lazy, and the bytes of the others.
            batch_size: Datapoints of a batch; by default as many as take about 16 MiB, at most 65,536.

        Raises:
            KeyError, TypeError: As `batch`.
            MissingDependencyError: pyarrow is not installed.
            ValueError: When a batch is read: locations in a compressed bag, or a value that Arrow cannot
                hold.
            CorruptError: When a batch is read: damaged data.
        """
        return read_batches(self, fields, media, batch_size)

    def to_arrow_dataset(self, *, media: Media = None) -> Any:
        """Returns a `pyarrow.dataset.Dataset`, for queries that read only the fields that they use.

        With `table = dataset.to_arrow_dataset()`, DuckDB's `select max(score) from table` and
        `polars.scan_pyarrow_dataset(table)` read the field `score` alone.

        Args:
            media: As in `to_arrow`.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        return arrow_dataset(self, media)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns an Arrow stream of all fields, a PyCapsule: Arrow's protocol between libraries."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def find(self, field: str, key: str | bytes | int) -> int:
        """Returns the index of the first datapoint that has a key, without reading the other datapoints.

        It needs the index of the field that `bags.create_index` writes. Slices, `select`, `concat` and `join`
        look in the datasets below; the result counts in the view. An index is opened when it is first used.

        Args:
            field: A field of type `utf8`, `bytes`, `int` or `uint`.
            key: A value of this type.

        Raises:
            KeyError: No datapoint has the key, or no such field.
            TypeError: The key is not of the field's type, the field is of another type, or this is a view of
                windows, whose datapoints share the keys of others.
            FileNotFoundError: There is no index.
            CorruptError: The index is damaged, or the dataset has changed since it was made.
        """
        row = self._find_first(field, as_key(key, field, check_key_field(self, field)))
        if row < 0:
            raise KeyError(f'{self!r}: field {field!r}: no datapoint has the key {key!r:.80}')
        return row

    def find_many(self, field: str, keys: Iterable[str] | Iterable[bytes] | Iterable[int]) -> Int64s:
        """Returns the index of the first datapoint that has each key, int64 (n,); reads them together.

        Raises:
            KeyError: No datapoint has one of the keys; names the first such key.
            TypeError, FileNotFoundError, CorruptError: As `find`; also TypeError for a key alone.
        """
        kind = check_key_field(self, field)
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f'find_many: expected several keys, got {keys!r:.80}')
        asked: list[Any] = list(keys)
        counts, rows = self._match(field, [as_key(key, field, kind) for key in asked])
        missing = np.flatnonzero(counts == 0)
        if len(missing):
            some = f'{asked[missing[0]]!r:.80}' + (f' and {len(missing) - 1} others' * (len(missing) > 1))
            raise KeyError(f'{self!r}: field {field!r}: no datapoint has the key {some}')
        firsts: Int64s = rows[np.cumsum(counts) - counts]
        return firsts

    def _match(self, field: str, keys: list[bytes]) -> Matches:
        """Returns all datapoints that have each key, as `as_key` returns it."""
        return self._key_index(field).match(self, field, keys)

    def _find_first(self, field: str, key: bytes) -> int:
        """Returns the first datapoint that has a key; -1 if none has."""
        return self._key_index(field).first(self, field, key)

    def _key_index(self, field: str) -> KeyIndex:
        known: dict[str, KeyIndex] = vars(self).setdefault('_key_indexes', {})
        if field not in known:
            known[field] = open_key_index(self, field, *self._index_place())
        return known[field]

    def _index_place(self) -> tuple[Store, str, Hints]:
        """Returns the folder of the index files, and how to read them."""
        raise TypeError(
            f'find: {self!r:.200} has no keys of its own: use find of the dataset that it is made of'
        )

    def _item_offsets(self, field: str) -> Int64s:
        """Returns the number of items before each datapoint, and of all; remembered."""
        known: dict[str, Int64s] = vars(self).setdefault('_known_offsets', {})
        if field not in known:
            known[field] = offsets_of(self.lengths(field))
        return known[field]

    def __getstate__(self) -> dict[str, Any]:
        dropped = ('_known_offsets', '_key_indexes', '_known_places')
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def _expect(self, field: str, *, is_sequence: bool) -> None:
        select_fields(field, self._types)
        if self._types[field].sequence != is_sequence:
            what, instead = ('a sequence', 'field()') if is_sequence else ('a plain', 'items()')
            raise TypeError(
                f'field {field!r} of type {self._types[field].text}: expected {what} field; see {instead}'
            )

    def __str__(self) -> str:
        """A heading and a line for each field; `repr` is one line."""
        return as_text(self._heading(), self.spec)

    def _heading(self) -> str:
        return heading(type(self).__name__, len(self), self.shards, self.unfinished)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Called by IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Called by notebooks: the fields, with those of the first datapoints."""
        columns = thumbnails(self, range(min(SHOWN_ROWS, len(self))))
        return as_html(self._heading(), self.spec, columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class View(Dataset):
    """A dataset over others. It reads nothing until it is read."""

    def __init__(self, datasets: Sequence[Dataset], types: Spec) -> None:
        self._datasets = list(datasets)
        self._types = types
        self.is_remote = any(dataset.is_remote for dataset in datasets)

    @property
    def size(self) -> int:
        return sum(dataset.size for dataset in self._datasets)

    @property
    def shards(self) -> int:
        return sum(dataset.shards for dataset in self._datasets)

    @property
    def metadata(self) -> Metadata:
        return metadata_of_fields(merge_metadata(each.metadata for each in self._datasets), self._types)

    def _is_unfinished(self) -> bool:
        return any(dataset.unfinished for dataset in self._datasets)

    def _find_first(self, field: str, key: bytes) -> int:
        rows = self._match(field, [key]).rows
        return int(rows[0]) if len(rows) else -1

    def close(self) -> None:
        for dataset in self._datasets:
            dataset.close()

    def _directories(self) -> list[str]:
        return list(dict.fromkeys(path for dataset in self._datasets for path in dataset._directories()))


class Select(View):
    """Some datapoints and fields of a dataset: what `bags.select` and slices return."""

    def __init__(self, dataset: Dataset, indices: range | Int64s, fields: Fields = None) -> None:
        names = sorted(select_whole(fields, dataset._types, 'select'))
        if isinstance(dataset, Select) and isinstance(indices, range):
            below: range | Int64s = dataset._indices
            if isinstance(below, range):  # A slice of a slice is a slice of the dataset below.
                dataset, indices = dataset._datasets[0], below[_as_slice(indices)]
        super().__init__([dataset], {name: dataset._types[name] for name in names})
        self._indices: range | Int64s = indices

    def _below(self, indices: Int64s) -> Int64s:
        """Returns indices as indices of the dataset below."""
        if isinstance(self._indices, range):
            return self._indices.start + self._indices.step * indices
        return self._indices[indices]

    def __len__(self) -> int:
        return len(self._indices)

    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        return self._datasets[0]._resolve(self._below(indices), selection)

    def _match(self, field: str, keys: list[bytes]) -> Matches:
        counts, rows = self._datasets[0]._match(field, keys)
        owners = np.repeat(np.arange(len(keys)), counts)
        if isinstance(self._indices, range):
            places, rest = np.divmod(rows - self._indices.start, self._indices.step)
            there = (rest == 0) & (places >= 0) & (places < len(self._indices))
            return Matches.sorted(owners[there], places[there], len(keys))
        known: tuple[Int64s, Int64s] | None = vars(self).get('_known_places')
        if known is None:
            order = np.argsort(self._indices, kind='stable')
            known = self._known_places = self._indices[order], order
        starts = known[0].searchsorted(rows, 'left')
        found = known[0].searchsorted(rows, 'right') - starts
        return Matches.sorted(np.repeat(owners, found), known[1][spread(starts, found)], len(keys))

    def _row(self, index: int, selection: Selection | None) -> Datapoint:
        below = self._datasets[0]
        if selection is None and len(self._types) < len(below._types):
            selection = dict.fromkeys(self._types, True)
        return below._row(int(self._indices[check_index(index, len(self._indices))]), selection)

    def __repr__(self) -> str:
        below = self._datasets[0]
        fields = '' if len(self._types) == len(below._types) else f', fields={list(self._types)}'
        if isinstance(self._indices, range):
            part = f'[{self._indices.start}:{self._indices.stop}:{self._indices.step}]'
            return f'bags.select({below!r}{part}{fields})' if fields else f'{below!r}{part}'
        # A checksum of all indices tells one selection from another.
        mark = zlib.crc32(self._indices.tobytes())
        return f'bags.select({below!r}, {len(self._indices)} indices #{mark:08x}{fields})'


def _as_slice(part: range) -> slice:
    """Returns the slice that takes the places of a range, all of them at least 0."""
    if not part:
        return slice(0, 0)
    stop = part[-1] + (1 if part.step > 0 else -1)
    return slice(part.start, stop if stop >= 0 else None, part.step)


def check_dataset(what: str, value: Any) -> None:
    """Raises TypeError, naming `what`, if a value is no dataset."""
    if not isinstance(value, Dataset):
        advice = ' (bags.open opens one)' if isinstance(value, str | os.PathLike) else ''
        raise TypeError(f'{what}: expected a dataset, got {value!r:.80}{advice}')
