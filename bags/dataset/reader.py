"""Reading a dataset folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, SupportsIndex

import numpy as np

from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderOptions, merge
from bags.concurrency import ClosedHandle, map_concurrently
from bags.dataset.base import Datapoint, Rows
from bags.dataset.batch import Column
from bags.dataset.columns import read_column, read_values
from bags.dataset.compiled import compile_row
from bags.dataset.fields import OpenFields
from bags.dataset.folder import Folder, reader_options
from bags.dataset.record_ranges import RecordRanges, Source
from bags.dataset.refs import MISSING, BadRef
from bags.dataset.refs_reader import RefsReader
from bags.dataset.schema import SchemaCache
from bags.dataset.selection import Selection, select_fields
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import store_to_read

__all__ = ['DatasetReader']

NAMES = (str, tuple)
QUICK = 16  # Choices of fields that have a function of their own.


class DatasetReader(Rows):
    """A dataset folder, as it was when it was opened.

    Written by this library, by Bags 0.x or by Granular; closed, being written, or left by a killed writer.

    Args:
        directory: The folder: str, path or URL.
        decoders: The functions by word; `bags.decoders` unless given. A mapping is the whole set.
        cache_index: Where limits are not mapped, read them as a whole at open and keep them, instead of in
            blocks when they are needed.
        raw: Give records as they are, as buffers that may alias the files, instead of values.
        filesystem: An fsspec file system that `directory` belongs to.
        storage_options: Options of the storage behind a URL.
        **options: Any of `access_pattern`, `cache_policy`, `mapped`, `max_parallelism`, `max_record_size`,
            as in `bags.bag.Reader`.

    Raises:
        FileNotFoundError: No such folder, or it has no spec.json.
        NotADirectoryError: A file, such as a bag alone.
        SpecError: Its spec.json is none.
        CorruptError: Its refs cannot be right. What is wrong with a field is met when it is first read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        *,
        raw: bool = False,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        options |= {'filesystem': filesystem, 'storage_options': storage_options}
        store, path = store_to_read(directory, merge(ReaderOptions, None, options))
        self.start(
            Folder(store, path, reader_options(store, cache_index, options)), SchemaCache(decoders, raw)
        )

    @classmethod
    def over(cls, folder: Folder, schemas: SchemaCache) -> DatasetReader:
        """Returns the reader of a folder."""
        reader = cls.__new__(cls)
        reader.start(folder, schemas)
        return reader

    def start(self, folder: Folder, schemas: SchemaCache) -> None:
        folder.look()
        refs = folder.open_refs()
        self.is_remote = folder.store.is_remote
        if self.is_remote and refs is not None and folder.options.limits_storage is LimitsStorage.IN_MEMORY:
            refs = folder.keep(refs)
        schema = folder.schema(schemas)
        self.types = schema.types
        self._folder = folder
        self._schemas = schemas
        self._fields: Any = OpenFields(folder, schema, refs, self.is_remote)
        self._quick: dict[Any, Callable[[int], Datapoint | None]] = {}
        """Quick ways to a datapoint: by the fields, as they are named, and by None to all."""
        self._last_row: tuple[int, ...] | None = None
        self._length = folder.shortest(self.types) if refs is None else refs.count
        path = folder.path if refs is None else refs.path
        self._refs: Any = RefsReader(path, refs, schema.format, self._length)
        self._row_refs: Any = self._refs.row_reader()

    # What it is.

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> int:
        """Bytes of the dataset."""
        return self._folder.size()

    @property
    def shards(self) -> int:
        """1: a folder is one shard."""
        return 1

    def bytes_before(self, index: int) -> int:
        """Returns about how many bytes the datapoints before an index take on disk."""
        if index >= self._length:
            return self.size
        refs, total = self._row_refs(index), 0
        if self._refs.bag is not None:
            total = self._refs.bag.where(index)[0] + index * ENTRY
        for name in self.types:
            field = self._fields[name]
            bag, ref = field.bag, refs[field.place]
            missing = ref >= bag.count or (field.kind.sequence and not refs[field.place + 1])
            if missing:
                total += bag.size * index // self._length
            else:
                total += bag.where(ref)[0] + ref * ENTRY
        return total

    @property
    def folder(self) -> Folder:
        """The files it reads."""
        return self._folder

    @property
    def has_even_refs(self) -> bool:
        """Whether its refs seem to be of this library or Granular's: those of Bags 0.x differ in length."""
        return not self._folder.starts

    @property
    def directory(self) -> str:
        return self._folder.path

    def __repr__(self) -> str:
        return f'bags.DatasetReader({self._folder.path!r}, {self.spec}, {self._length} datapoints)'

    def close(self) -> None:
        self._refs = self._fields = self._row_refs = ClosedHandle(
            f'bags.DatasetReader({self._folder.path!r})'
        )
        self._quick = {}

    # Datapoints.

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int:
            quick = self._quick.get(None)
            datapoint = None if quick is None else quick(key)
            return self._row(key, None) if datapoint is None else datapoint
        if type(key) is not tuple or len(key) != 2 or type(key[0]) is not int or type(key[1]) not in NAMES:
            return super().__getitem__(key)
        index, fields = key
        try:
            quick = self._quick.get(fields)
        except TypeError:  # Something in the tuple that is no name.
            quick = None
        datapoint = None if quick is None else quick(index)
        if datapoint is None:
            datapoint = super().__getitem__(key)
            if quick is None:
                self._hasten(fields, datapoint)
        return datapoint

    def _hasten(self, fields: Any, names: Iterable[str]) -> None:
        """Has datapoints, or these fields of them, read the quick way the next time, if there is one."""
        ways = self._quick  # Another one, if the reader is closed or cut off meanwhile.
        if not self.is_remote and (fields is None or len(ways) < QUICK):
            quick = compile_row([self._fields[name] for name in names], self._refs)
            if quick is not None:
                ways[fields] = quick

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        if selection is None and type(index) is int:
            datapoint: Datapoint = self[index]
            return datapoint
        return self._row(index, selection)

    def _row(self, index: Any, selection: Selection | None) -> Datapoint:
        if self.is_remote:
            return self._row_waiting(index, selection)
        refs = self._row_refs(index)
        try:
            if selection is None:
                fields = [self._fields[name] for name in self.types]
                if None not in self._quick:
                    self._hasten(None, self.types)
                return {field.name: field.read(refs) for field in fields}
            fields = self._fields
            return {
                name: fields[name].read(refs) if items is True else fields[name].read_items(refs, items)
                for name, items in selection.items()
            }
        except BadRef as exc:
            raise CorruptError(self._refs.path, check_index(index, self._length), exc.detail) from None

    def _row_waiting(self, index: Any, selection: Selection | None) -> Datapoint:
        """As `row`, where reads wait: first the refs and the fields not open yet, then all values at once."""
        chosen: Selection = dict.fromkeys(self.types, True) if selection is None else selection
        index = check_index(index, len(self))
        refs = self._fields.beside(chosen, lambda: self._row_refs(index))
        if selection is None and not any(self._fields[name].bag.is_remote for name in chosen):
            self.is_remote = self._fields.is_remote = (
                False  # Nothing is, any more: all of it is in local copies.
            )
        try:
            values: Datapoint = self._fields.row(refs, chosen)
        except BadRef as exc:
            raise CorruptError(self._refs.path, index, exc.detail) from None
        return values

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        refs = self._fields.beside(selection, lambda: self._refs.of(indices, selection))

        def work(name: str) -> list[Any]:
            field, items = self._fields[name], selection[name]
            found: list[Any] = self._checked(indices, lambda: read_values(field, refs[name], items))
            return found

        columns = map_concurrently(work, list(selection), self.is_remote or self._refs.is_remote)
        if not columns:
            return [{} for _ in range(len(indices))]
        return [dict(zip(selection, values, strict=True)) for values in zip(*columns, strict=True)]

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        refs = self._fields.beside(selection, lambda: self._refs.of(indices, selection))

        def work(name: str) -> Column:
            field, items = self._fields[name], selection[name]
            found: Column = self._checked(indices, lambda: read_column(field, refs[name], items))
            return found

        return dict(
            zip(
                selection,
                map_concurrently(work, list(selection), self.is_remote or self._refs.is_remote),
                strict=True,
            )
        )

    def _checked(self, indices: Int64s, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BadRef as exc:
            raise CorruptError(self._refs.path, int(indices[exc.position]), exc.detail) from None

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        chosen = np.arange(self._length) if indices is None else indices
        counts: Int64s = self._refs.of(chosen, [field])[field][1]
        return counts

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        refs = self._fields.beside([field], lambda: self._refs.of(indices, [field]))[field]
        reader = self._fields[field]
        if items is not None:
            return list(self._checked(indices, lambda: reader.sources(refs[0] + items)))
        if not self.types[field].optional:
            return list(self._checked(indices, lambda: reader.sources(refs)))
        present = refs != MISSING
        found = iter(self._checked(indices[present], lambda: reader.sources(refs[present])))
        return [next(found) if there else None for there in present.tolist()]

    def spans(self, indices: Int64s, field: str) -> RecordRanges:
        refs, reader = self._refs.of(indices, [field])[field], self._fields[field]
        firsts, counts = refs if reader.kind.sequence else (refs, None)
        self._checked(indices, lambda: reader.check(firsts, counts))
        if counts is None:
            counts = np.ones(len(indices), np.int64)
            if reader.kind.optional:
                counts[firsts == MISSING] = 0
        source = Source(reader.bag, self._folder.starts)
        return RecordRanges([source], np.zeros(len(indices), np.int64), firsts, counts)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        select_fields(field, self.types)
        kind = self.types[field]
        number = check_index(index, self._length)
        if kind.sequence != (item is not None):
            what = 'an item, as it is a sequence' if kind.sequence else 'no item, as it is no sequence'
            raise TypeError(f'field {field!r} of type {kind.text}: expected {what}')
        refs = self._fields.beside([field], lambda: self._row_refs(number))
        try:
            file: BinaryIO | None = self._fields[field].open(refs, item)
        except BadRef as exc:
            raise CorruptError(self._refs.path, number, exc.detail) from None
        if file is None:
            raise ValueError(f'{self._folder.path}, datapoint {number}: field {field!r} has no value')
        return file

    # Other processes.

    def __getstate__(self) -> dict[str, Any]:
        folder, schemas = self._folder, self._schemas
        return {
            'path': folder.path,
            'options': merge(ReaderOptions, folder.options, {'limits_placement': LimitsPlacement.TAIL}),
            'decoders': schemas.decoders,
            'raw': schemas.raw,
            'length': self._length,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = state['options']
        store, _ = store_to_read(state['path'], options)
        self.start(Folder(store, state['path'], options), SchemaCache(state['decoders'], state['raw']))
        self.pin(state['length'])

    def pin(self, length: int) -> None:
        """Holds on to a length that was seen before, also if the dataset has grown.

        Raises:
            CorruptError: It has become shorter.
        """
        if self._length < length:
            raise CorruptError(self._folder.path, None, f'had {length} datapoints before, now {self._length}')
        if self._length > length:
            self._length = self._refs.count = length
            self._row_refs = self._refs.row_reader()
            self._quick = {}
