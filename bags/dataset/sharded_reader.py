"""Reads datasets of many folders: `000000`, `000001`, …, each of which is a dataset."""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack

from bags.bag.options import ReaderOptions
from bags.bag.sharding import Concatenated
from bags.concurrency import ClosedHandle, FifoCache, cached_attribute, map_concurrently, max_open_bags
from bags.dataset.address import (
    Address,
    Datapoint,
    MissingFields,
    RecordRanges,
    divide_fields,
    group_by_part,
    row_of_part,
)
from bags.dataset.base import Dataset
from bags.dataset.batch import Column
from bags.dataset.field import Field
from bags.dataset.fingerprint import fingerprint_of_folders
from bags.dataset.folder import Folder
from bags.dataset.listing import ShardList, length_by_size, list_local_shards, list_remote_shards
from bags.dataset.mark import is_marked
from bags.dataset.metadata import Metadata
from bags.dataset.options import ReadOptions, open_store
from bags.dataset.reader import DatasetReader
from bags.dataset.schema import Decoders
from bags.dataset.selection import Selection
from bags.dataset.shard_index import INDEX, Shard
from bags.dataset.spec import Spec, type_texts, union
from bags.errors import BagsError, CorruptError, SpecError
from bags.indexing import Int64s, check_index
from bags.storage import Store
from bags.validation import at_least

STATE = (
    *('path', '_options', '_decoders', '_shards', 'share', '_first', '_last', '_after'),
    *('_unfinished', 'types', '_lengths_of_shards'),
)
"""Attributes of a reader that other processes need."""


class ShardedDatasetReader(Dataset):
    """A dataset of many folders, as they were when it was opened. Folders are opened when first read.

    Args:
        path: The folder of the shard folders: str, path or URL.
        decoders, cache_index: As in `DatasetReader`.
        shard_start, shard_step: Read the shards `shard_start`, `shard_start + shard_step`, … only, so that
            each of `shard_step` workers reads a separate part.
        **options: As in `bags.open`.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        CorruptError: A shard lacks spec or refs, and is not the last one (which is being written).
        SpecError: Shards have different specs; raised when such a shard is first read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        shard_start: int = 0,
        shard_step: int = 1,
        **options: Unpack[ReadOptions],
    ) -> None:
        store, path, made = open_store(path, cache_index, options, ShardedDatasetReader)
        known = Decoders(decoders, made.raw, made.max_value_size)
        self._over(store, path, made, known, None, shard_start, shard_step)

    def _over(
        self,
        store: Store,
        path: str,
        options: ReaderOptions,
        decoders: Decoders,
        listed: ShardList | None,
        shard_start: int,
        shard_step: int,
    ) -> Self:
        """Makes this the reader of shards, which may be listed already."""
        if (shard_start, shard_step) != (0, 1):
            shard_start = at_least('shard_start', shard_start, 0)
            shard_step = at_least('shard_step', shard_step, 1)
        inode = None if store.is_remote else _inode(path)
        if listed is None:
            if store.is_remote:
                listed = list_remote_shards(store, path, options.checksum)
            else:
                listed = list_local_shards(store, path)
        if not listed.shards:
            detail = 'no dataset here: expected spec.json, or shard folders 000000, 000001, …'
            if store.exists(store.join(path, 'spec.json')):
                detail = 'expected folders of shards, got a dataset of one folder (bags.open opens either)'
            elif store.is_remote and path.endswith(('.bag', '.bagz')):
                detail += ' (bags.bag.Reader opens a bag alone)'
            raise FileNotFoundError(errno.ENOENT, detail, path)
        self.path, self._options, self._decoders = path, options, decoders
        # With more workers than shards, some have no shard; they still have the spec.
        self._shards = listed.shards[shard_start::shard_step]
        self.share = shard_start, shard_step
        self._first, self._last, self._after = listed.shards[0], listed.shards[-1], listed.after
        self._unfinished = listed.is_unfinished or None
        self._set_store(store)
        if listed.types is not None:
            self.types = listed.types
            self._lengths_of_shards = [shard.length or 0 for shard in self._shards]
        else:
            try:
                self.types, self._lengths_of_shards = self._inspect_shards()
            except FileNotFoundError as exc:
                raise _missing_file(exc) from exc
        if inode is not None and _inode(path) != inode:
            raise CorruptError(path, None, 'was replaced by another while it was opened: open it again')
        return self

    def _set_store(self, store: Store) -> None:
        self.store, self.is_remote = store, store.is_remote
        self._sizes: dict[tuple[str, ...] | None, list[int]] = {}
        self._known_fields: Any = {}
        path, options, first = self.path, self._options, self._first
        root = self._root = Folder(store, store.join(path, first.name), options, first)
        if not store.is_remote:
            root.load()

        # Not a method: `_readers` would refer to this reader, and a reference cycle keeps files open.
        def folder_of(shard: Shard) -> Folder:
            return root if shard is first else Folder(store, store.join(path, shard.name), options, shard)

        self.folder = folder_of

    def _inspect_shards(self) -> tuple[Spec, list[int]]:
        """Returns the fields of all shards, and the datapoints of each that is read."""
        root, first, last = self._root, self._first, self._last
        is_remote = self.store.is_remote
        root.load()
        types, format = root.schema()
        # Later shards may have more fields, which are optional; then their spec.json is longer.
        if last.sizes.get('spec.json', -1) != first.sizes.get('spec.json'):
            folder = self.folder(last)
            folder.load(refs=False)
            with contextlib.suppress(OSError, BagsError):  # Raised when the shard is read.
                other = folder.schema().types
                types = types if types == other else union(types, other) or types
        by_size = False
        if is_remote and types == format.spec:
            # Only a shard with datapoints shows whether rows have one length.
            sample, folder = first, root
            if not first.sizes.get('refs.bag'):
                sample = next((shard for shard in self._shards if shard.sizes.get('refs.bag')), first)
                folder = self.folder(sample)
            refs = folder.open_refs()
            by_size = refs is None or (not folder.starts and refs.count == length_by_size(sample, format))
        lengths: list[Any] = [None] * len(self._shards)
        if by_size:
            lengths = list(map(length_by_size, self._shards, itertools.repeat(format)))
        if None in lengths:
            shards = [shard for shard, length in zip(self._shards, lengths, strict=True) if length is None]
            counted = iter(map_concurrently(lambda shard: self.folder(shard).length(), shards, is_remote))
            lengths = [next(counted) if length is None else length for length in lengths]
        return types, lengths

    @cached_attribute
    def _layout(self) -> Concatenated:
        """Maps datapoints to shards."""
        return Concatenated(self._lengths_of_shards)

    @cached_attribute
    def readers(self) -> Any:
        """The readers of shards by number, each opened on first read."""
        store, path, decoders, folder_of = self.store, self.path, self._decoders, self.folder
        root, types, lengths, shards = self._root, self.types, self._lengths_of_shards, self._shards
        unseen = [self._after] if self._after is not None else []

        def make(number: int) -> DatasetReader:
            # The check for a shard after the last one runs together with the first requests of another.
            works: list[Callable[[], Any]] = [lambda: _open_shard(folder_of(shards[number]), decoders)]
            if unseen:
                works.append(lambda: _check_after(store, path, unseen))
            reader: DatasetReader = map_concurrently(lambda work: work(), works, True)[0]
            root.check_pinned()
            folder = reader.folder
            if union(types, reader.types) != types:
                raise SpecError(
                    None, f'that of the other shards, {type_texts(types)}', reader.spec, folder.path
                )
            if store.is_remote and len(reader) != lengths[number]:
                folder.raise_changed(f'expected {lengths[number]} datapoints, got {len(reader)}')
            reader.pin_length(lengths[number])
            return reader

        return FifoCache(make, max_open_bags() // (len(types) + 1))

    def __len__(self) -> int:
        return self._layout.total

    @property
    def size(self) -> int:
        return sum(self._shard_sizes())

    def _shard_sizes(self, fields: tuple[str, ...] | None = None) -> list[int]:
        if fields not in self._sizes:
            self._sizes[fields] = [self.folder(shard).size(fields) for shard in self._shards]
        return self._sizes[fields]

    @property
    def shards(self) -> int:
        return len(self._shards)

    @property
    def metadata(self) -> Metadata:
        return copy.deepcopy(self._root.metadata)

    def _stores(self) -> list[Store]:
        return [self.store]

    def _directories(self) -> list[str]:
        return [self.path]

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        if not len(indices):
            return [Address(MissingFields(self.open_field), indices, selection, None)]
        return [
            Address(_Shard(self, part), within, share, places)
            for part, within, share, places in group_by_part(self._layout, indices, selection)
        ]

    def open_field(self, name: str) -> Field:
        if name not in self._known_fields:
            # This reader may have no shard with the field, or no shard at all.
            folders = map(self.folder, (self._last, self._first, *self._shards))
            folder = next(folder for folder in folders if name in folder.schema().types)
            self._known_fields[name] = _open_shard(folder, self._decoders).open_field(name)
        field: Field = self._known_fields[name]
        return field

    def part_lengths(self) -> list[int]:
        return self._lengths_of_shards

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        reader = self.readers[part]
        if len(reader.types) == len(self.types):
            row: Datapoint = reader.read_row(within, selection)
            return row
        return row_of_part(reader, within, selection, self.types)

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        sizes = self._shard_sizes(fields)
        if index >= len(self):
            return sum(sizes)
        shard, within = self._layout.one(index)
        reader = self.readers[shard]
        # A shard may lack optional fields.
        own = None if fields is None else tuple(name for name in fields if name in reader.types)
        before: int = reader.bytes_before(within, own)
        return sum(sizes[:shard]) + before

    def __repr__(self) -> str:
        start, step = self.share
        which = '' if (start, step) == (0, 1) else f' [{start}::{step}]'
        return (
            f'bags.ShardedDatasetReader({self.path!r}, {self.spec}, {len(self._shards)} shards{which}, '
            f'{len(self)} datapoints{", unfinished" if self.unfinished else ""})'
        )

    def _is_unfinished(self) -> bool:
        return is_marked(self.store, self.path) or any(
            self.folder(shard).is_unfinished() for shard in (self._first, *self._shards)
        )

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        folders, readers = [self.folder(shard) for shard in self._shards], self.readers
        lengths = self._lengths_of_shards
        return fingerprint_of_folders(self, folders, lengths, readers.__getitem__, fields, of_origin)

    def index_folder(self) -> Folder:
        if self.share != (0, 1):
            raise TypeError(f'find: {self!r:.200}: expected all shards, as the index of a field is of all')
        # Not beside the shards, where Bags 0.x and Granular would take the file for a shard.
        return self._root

    def close(self) -> None:
        closed = ClosedHandle(f'bags.ShardedDatasetReader({self.path!r})')
        self.readers = self._key_indexes = self._known_fields = closed
        self._root.refs = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_store(self._options.store_of(self.path))


class _Shard:
    """The reader of a shard, opened on first read, in the thread that reads.

    Values are missing for optional fields that only other shards have.
    """

    def __init__(self, dataset: ShardedDatasetReader, number: int) -> None:
        self._dataset = dataset
        self._number = number

    @property
    def folder(self) -> Folder:
        return self._dataset.folder(self._dataset._shards[self._number])

    def _of(self, field: str) -> Any:
        reader = self._dataset.readers[self._number]
        return reader if field in reader.types else MissingFields(self._dataset.open_field)

    def read_selection(
        self, rows: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        reader = self._dataset.readers[self._number]
        there, rest = divide_fields(selection, reader.types)
        columns: dict[str, Column] = reader.read_selection(rows, there, read)
        if rest:
            columns |= MissingFields(self._dataset.open_field).read_selection(rows, rest, read)
        return columns

    def _item_counts(self, rows: Int64s, field: str, items: Any) -> Int64s:
        counts: Int64s = self._of(field)._item_counts(rows, field, items)
        return counts

    def _ranges_of(self, rows: Int64s, field: str, items: Any) -> RecordRanges | None:
        ranges: RecordRanges | None = self._of(field)._ranges_of(rows, field, items)
        return ranges


def _open_shard(folder: Folder, decoders: Decoders) -> DatasetReader:
    try:
        return DatasetReader.__new__(DatasetReader)._over(folder, decoders)
    except FileNotFoundError as exc:
        raise _missing_file(exc) from exc


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _missing_file(exc: FileNotFoundError) -> CorruptError:
    """Returns the error for a missing file of a shard."""
    folder, name = os.path.split(exc.filename or 'spec.json')
    return CorruptError(folder, None, f'shard without {name}')


def _check_after(store: Store, path: str, unseen: list[str]) -> None:
    """Checks, once, that there is no shard after the last one in shards.json."""
    for name in list(unseen):
        if store.exists(store.join(store.join(path, name), 'spec.json')):
            detail = f'is stale, as it does not have shard {name}: run bags consolidate'
            raise CorruptError(store.join(path, INDEX), None, detail)
    unseen.clear()
