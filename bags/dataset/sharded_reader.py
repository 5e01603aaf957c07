"""`ShardedDatasetReader`: reads a dataset of shard folders `000000`, `000001`, …, each a dataset."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.sharding import Concatenated
from bags.concurrency import MAX_OPEN_BAGS, ClosedHandle, FifoCache, cached_attribute, map_concurrently
from bags.dataset.base import Dataset, row_of_part
from bags.dataset.format.folder import Folder
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.journal import JOURNAL, has_journal
from bags.dataset.format.listing import ShardList, length_by_size, list_local_shards, list_remote_shards
from bags.dataset.format.metadata import METADATA, Metadata
from bags.dataset.format.options import DatasetPath, ReadOptions, dataset_path
from bags.dataset.format.shard_index import INDEX, MAX_INDEX_BYTES, Shard, load_index
from bags.dataset.format.sizes import folder_size
from bags.dataset.format.spec import Schema, count_text, type_texts, union
from bags.dataset.reader import DatasetReader, reopened
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import ReadField
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import fingerprint_of_folders
from bags.dataset.reading.partial import PartialDatapoint, with_optional_fields
from bags.dataset.reading.row_groups import Datapoint, RowGroup, divide_fields, group_by_part
from bags.dataset.reading.row_reader import FolderFields, MissingFields, RecordRanges, RowReader
from bags.dataset.reading.selection import Asked, Selection
from bags.errors import BagsError, CorruptError, SpecError
from bags.indexing import Int64s, check_index
from bags.storage import Store
from bags.validation import at_least

STATE = (
    *('path', '_options', '_decoders', 'shard_list', 'share', '_first', '_last', '_after'),
    *('unfinished', 'schema', '_lengths_of_shards', '_partials', '_optional'),
)
"""Attributes of a reader that are pickled."""


class ShardedDatasetReader(Dataset):
    """A dataset of shard folders, as they were when it was opened. A shard is opened on first read.

    Args:
        path: The folder of the shard folders: str, path or URL.
        decoders, cache_index: As in `DatasetReader`.
        shard_start, shard_step: Read only the shards `shard_start`, `shard_start + shard_step`, …, so that
            each of `shard_step` workers reads a separate part.
        **options: As in `bags.open`.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        CorruptError: A shard lacks spec or refs, and is not the last one (which is being written).
        SpecError: Shards have different specs; raised when such a shard is first read.

    Examples:
        >>> reader = bags.ShardedDatasetReader('episodes', shard_start=1, shard_step=2)
        >>> reader.shards, reader[0, 'id']
        (1, {'id': 4})
    """

    path: str
    """The folder of the shard folders."""
    documented_names = ('path', 'reopen')

    def __init__(
        self,
        path: str | os.PathLike[str],
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        shard_start: int = 0,
        shard_step: int = 1,
        **options: Unpack[ReadOptions],
    ) -> None:
        at = dataset_path(path, decoders, cache_index, options, ShardedDatasetReader)
        self._open(at, None, shard_start, shard_step)

    @classmethod
    def of_shards(
        cls,
        at: DatasetPath,
        listed: ShardList | None,
        shard_start: int,
        shard_step: int,
        partial: bool = False,
    ) -> Self:
        """Returns the reader of shards; `listed` is their list if it was read already.

        With `partial`, it has the partial datapoints of all shards.
        """
        reader = cls.__new__(cls)
        reader._open(at, listed, shard_start, shard_step, partial)
        return reader

    def _open(
        self,
        at: DatasetPath,
        listed: ShardList | None,
        shard_start: int,
        shard_step: int,
        partial: bool = False,
    ) -> None:
        store, path, options, decoders = at
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
            elif store.names(path):
                detail += ' (bags.convert imports other formats)'
            raise FileNotFoundError(errno.ENOENT, detail, path)
        self.path, self._options, self._decoders = path, options, decoders
        # With more workers than shards, some workers have no shard, but they still have the spec.
        self.shard_list = listed.shards[shard_start::shard_step]
        self.share = shard_start, shard_step
        self._first, self._last, self._after = listed.shards[0], listed.shards[-1], listed.after
        if listed.is_unfinished:
            self.unfinished = True
        self._partials: dict[int, PartialDatapoint] = {}
        """The partial datapoint of shards that have one, by number."""
        self._optional: frozenset[str] = frozenset()
        """Fields that are optional because partial datapoints lack them."""
        self._set_store(store)
        if listed.schema is not None:
            self.schema = listed.schema
            self._lengths_of_shards = [shard.length or 0 for shard in self.shard_list]
        else:
            try:
                schema, self._lengths_of_shards = self._inspect_shards()
                self.schema = self._root.in_order(schema) if self._root.has(METADATA) else schema
            except FileNotFoundError as exc:
                raise _missing_file(exc) from exc
        if partial:
            self._open_partial()
        if inode is not None and _inode(path) != inode:
            raise CorruptError(path, None, 'was replaced by another while it was opened: open it again')

    def _open_partial(self) -> None:
        """Adds the partial datapoints of the shards. Their readers stay open."""
        for number, shard in enumerate(self.shard_list):
            folder = self.folder_of(shard)
            if not folder.has(JOURNAL):
                continue
            reader = _open_shard(folder, self._decoders, self.schema, partial=True)
            self._lengths_of_shards[number] = len(reader)
            if reader.partial_datapoint is not None:
                self._partials[number] = reader.partial_datapoint
                self._optional |= reader.optional
                self._partial_readers[number] = reader
        self.schema = with_optional_fields(self.schema, self._optional)
        for number, reader in self._partial_readers.items():
            if reader.optional != self._optional:
                self._partial_readers[number] = _open_shard(
                    reader.folder, self._decoders, self.schema, self._partials[number], self._optional
                )

    def _set_store(self, store: Store) -> None:
        self._partial_readers: dict[int, DatasetReader] = {}
        self.store, self.is_remote = store, store.is_remote
        self._sizes: dict[tuple[str, ...] | None, list[int]] = {}
        self._known_fields: dict[str, FieldReader] = {}
        path, options, first = self.path, self._options, self._first
        whole = Folder(store, path, options)
        root = self._root = Folder(store, store.join(path, first.name), options, first, whole)
        if not store.is_remote:
            root.load()

        # Not a method: `readers` would refer to this reader, and a reference cycle would keep files open.
        def folder_of(shard: Shard) -> Folder:
            if shard is first:
                return root
            return Folder(store, store.join(path, shard.name), options, shard, whole)

        self.folder_of = folder_of

    def _inspect_shards(self) -> tuple[Schema, list[int]]:
        """Returns the fields of all shards, and the number of datapoints of each shard of this reader."""
        root, first, last = self._root, self._first, self._last
        is_remote = self.store.is_remote
        root.load()
        schema, refs_format = root.layout()
        # Later shards may have more fields, which are optional; then their spec.json is longer.
        if last.sizes.get('spec.json', -1) != first.sizes.get('spec.json'):
            folder = self.folder_of(last)
            folder.load(refs=False, order=False)
            with contextlib.suppress(OSError, BagsError):  # Raised when the shard is read.
                other = folder.layout().schema
                schema = schema if schema == other else union(schema, other) or schema
        by_size = False
        if is_remote and schema == refs_format.schema:
            # Only a shard with datapoints shows whether all refs have the same length.
            sample, folder = first, root
            if not first.sizes.get('refs.bag'):
                sample = next((shard for shard in self.shard_list if shard.sizes.get('refs.bag')), first)
                folder = self.folder_of(sample)
            refs = folder.open_refs()
            by_size = refs is None or (
                not folder.starts and refs.count == length_by_size(sample, refs_format)
            )

        if by_size:
            lengths = [length_by_size(shard, refs_format) for shard in self.shard_list]
            known = [length for length in lengths if length is not None]
            if len(known) == len(lengths):
                return schema, known
        return schema, map_concurrently(
            lambda shard: self.folder_of(shard).length(), self.shard_list, is_remote
        )

    @cached_attribute
    def _layout(self) -> Concatenated:
        """Maps datapoints to shards."""
        return Concatenated(self._lengths_of_shards)

    @cached_attribute
    def readers(self) -> FifoCache[int, DatasetReader]:
        """The readers of shards by number, each opened on first read."""
        store, path, decoders, folder_of = self.store, self.path, self._decoders, self.folder_of
        root, schema, lengths, shards = self._root, self.schema, self._lengths_of_shards, self.shard_list
        partials, optional, opened = self._partials, self._optional, self._partial_readers
        unseen = [self._after] if self._after is not None else []
        if self._options.cache_check == 'never':
            unseen = []
        versions: dict[int, str | None] = {}

        def make(number: int) -> DatasetReader:
            # The check for a shard after the last one runs concurrently with the requests of this shard.
            if number in opened:
                return opened[number]
            partial = partials.get(number, False)
            works: list[Callable[[], Any]] = [
                lambda: _open_shard(folder_of(shards[number]), decoders, schema, partial, optional)
            ]
            if unseen:
                works.append(lambda: _check_after(store, path, unseen))
            reader: DatasetReader = map_concurrently(lambda work: work(), works, True)[0]
            root.check_pinned()
            folder = reader.folder
            if union(schema, reader.schema) != schema:
                if store.is_remote:
                    folder.confirm()  # The dataset may have been replaced by one with another spec.
                raise SpecError(
                    None, f'the spec of the other shards, {type_texts(schema)}', reader.spec, folder.path
                )
            if store.is_remote and len(reader) != lengths[number]:
                folder.raise_changed(f'expected {lengths[number]} datapoints, got {len(reader)}')
            if versions.setdefault(number, folder.version) != folder.version:
                detail = 'was replaced by another shard since it was first read: open the dataset again'
                raise CorruptError(folder.path, None, detail)
            reader.pin_length(lengths[number])
            return reader

        return FifoCache(make, MAX_OPEN_BAGS // (len(schema) + 1))

    def __len__(self) -> int:
        return self._layout.total

    @property
    def size(self) -> int:
        return sum(self._shard_sizes())

    def _shard_sizes(self, fields: tuple[str, ...] | None = None) -> list[int]:
        if fields not in self._sizes:
            self._sizes[fields] = [folder_size(self.folder_of(shard), fields) for shard in self.shard_list]
        return self._sizes[fields]

    @property
    def shards(self) -> int:
        return len(self.shard_list)

    @property
    def metadata(self) -> Metadata:
        return copy.deepcopy(self._root.metadata)

    @cached_attribute
    def reads_wait(self) -> bool:
        return self.is_remote or (len(self) > 0 and self.readers[0].reads_wait)

    def roots(self) -> list[Folder]:
        return [Folder(self.store, self.path, self._options)]

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        if not len(indices):
            return [RowGroup(MissingFields(self.open_field), indices, selection, None)]
        return [
            RowGroup(ShardReader(self, part), within, share, positions)
            for part, within, share, positions in group_by_part(self._layout, indices, selection)
        ]

    def open_field(self, name: str) -> FieldReader:
        if name not in self._known_fields:
            # This reader may have no shard with the field, or no shard at all.
            folders = map(self.folder_of, (self._last, self._first, *self.shard_list))
            folder = next(folder for folder in folders if name in folder.layout().schema)
            shard = _open_shard(folder, self._decoders, self.schema, False, self._optional)
            self._known_fields[name] = shard.open_field(name)
        return self._known_fields[name]

    def part_lengths(self) -> list[int]:
        return self._lengths_of_shards

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        reader = self.readers[part]
        if len(reader.schema) == len(self.schema):
            return reader.read_row(within, selection)
        return row_of_part(reader, within, selection, self.schema)

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        sizes = self._shard_sizes(fields)
        if index >= len(self):
            return sum(sizes)
        shard, within = self._layout.one(index)
        reader = self.readers[shard]
        # A shard may lack optional fields.
        present = None if fields is None else tuple(name for name in fields if name in reader.schema)
        return sum(sizes[:shard]) + reader.bytes_before(within, present)

    @property
    def expression(self) -> str:
        start, step = self.share
        share = '' if (start, step) == (0, 1) else f', shard_start={start}, shard_step={step}'
        return f'bags.ShardedDatasetReader({self.path!r}{share})'

    @property
    def length_text(self) -> str:
        return f'{count_text(len(self))} in {self.shards} {"shard" if self.shards == 1 else "shards"}'

    @cached_attribute
    def unfinished(self) -> bool:
        return has_journal(self.store, self.path) or any(
            self.folder_of(shard).has(JOURNAL) for shard in (self._first, *self.shard_list)
        )

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        folders, readers = [self.folder_of(shard) for shard in self.shard_list], self.readers
        lengths = self._lengths_of_shards
        return fingerprint_of_folders(self, folders, lengths, readers.__getitem__, fields, of_origin)

    def index_folder(self) -> Folder:
        if self.share != (0, 1):
            raise TypeError(f'find: {self!r:.200}: expected all shards, as a key index covers all shards')
        # Not beside the shards, where Bags 0.x and Granular would read the file as a shard.
        return self._root

    @property
    def partial(self) -> Int64s:
        return np.array([self._layout.starts[number + 1] - 1 for number in sorted(self._partials)], np.int64)

    def partial_refs(self) -> dict[str, BagFile]:
        """Returns the refs of each shard with a partial datapoint, as `DatasetReader.partial_refs`."""
        refs: dict[str, BagFile] = {}
        for number in self._partials:
            refs |= self.readers[number].partial_refs()
        return refs

    def reopen(self, partial: bool = False) -> Self:
        """Returns a new reader of the datapoints so far, with the same options. This one does not change.

        Args:
            partial: As in `DatasetReader.reopen`: an open episode is the last datapoint of its shard.
        """
        options = self._options
        at = DatasetPath(options.store_of(self.path), self.path, options, self._decoders)
        return reopened(self, lambda: self.of_shards(at, None, *self.share, partial), partial)

    def close(self) -> None:
        closed: Any = ClosedHandle(self.expression)
        self.readers = self.key_indexes = self._known_fields = self._partial_readers = closed
        self._root.refs = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in STATE if name in vars(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_store(self._options.store_of(self.path))


class ShardReader:
    """Reads rows of a shard, which is opened on first read, in the thread that reads.

    All values are missing in optional fields that only other shards have.
    """

    def __init__(self, dataset: ShardedDatasetReader, number: int) -> None:
        self._dataset = dataset
        self._number = number

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        reader = self._dataset.readers[self._number]
        present, missing = divide_fields(selection, reader.schema)
        columns = reader.read_selection(rows, present, read)
        if missing:
            columns |= MissingFields(self._dataset.open_field).read_selection(rows, missing, read)
        return columns

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        return self._reader_of(field).item_counts(rows, field, items)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        return self._reader_of(field).record_ranges(rows, field, items)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return [(self._dataset.folder_of(self._dataset.shard_list[self._number]), list(fields))]

    def _reader_of(self, field: str) -> RowReader:
        reader = self._dataset.readers[self._number]
        return reader if field in reader.schema else MissingFields(self._dataset.open_field)


def _open_shard(
    folder: Folder,
    decoders: Decoders,
    order: Schema,
    partial: PartialDatapoint | bool = False,
    optional: frozenset[str] = frozenset(),
) -> DatasetReader:
    try:
        return DatasetReader.of_folder(folder, decoders, order, partial, optional)
    except FileNotFoundError as exc:
        if folder.store.is_remote and folder.listed is not None and folder.listed.sizes:
            folder.raise_changed(f'is missing {os.path.basename(exc.filename or "spec.json")}')
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
    """Raises, once, if a shard exists after the last one in shards.json, and shards.json does not list it.

    If shards.json was removed or written again, a writer has added the shard since the dataset was opened.
    """
    for name in list(unseen):
        if store.exists(store.join(store.join(path, name), 'spec.json')) and _is_stale(store, path, name):
            detail = f'is stale: it does not list shard {name}: run bags consolidate'
            raise CorruptError(store.join(path, INDEX), None, detail)
    unseen.clear()


def _is_stale(store: Store, path: str, shard: str) -> bool:
    """Returns whether a remote dataset has a shards.json that does not list a shard."""
    index = store.join(path, INDEX)
    try:
        data = store.read(index, MAX_INDEX_BYTES)
    except (FileNotFoundError, CorruptError):  # A web server has another version than when it was opened.
        return False
    _, shards = load_index(data, index)
    return all(listed.name != shard for listed in shards)
