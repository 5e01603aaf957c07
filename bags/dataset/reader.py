"""`DatasetReader`: reads a dataset folder."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Self, TypeVar, Unpack

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderOptions
from bags.concurrency import ClosedHandle, cached_attribute, map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format import registry
from bags.dataset.format.folder import Folder
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.metadata import METADATA, Metadata, package_of
from bags.dataset.format.options import ReadOptions, dataset_path
from bags.dataset.format.refs import Refs
from bags.dataset.format.sizes import folder_size
from bags.dataset.format.spec import FieldType, Schema, likely_type, reordered
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import BadRef, ReadField
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import fingerprint_of_folders
from bags.dataset.reading.partial import (
    PartialDatapoint,
    read_partial,
    unset_fields,
    with_optional_fields,
    with_partial_row,
)
from bags.dataset.reading.read_row import RowFunction, make_row_function
from bags.dataset.reading.refs_reader import RefsReader, refs_in_memory
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.row_reader import FolderFields, RecordRanges, ranges_of_refs
from bags.dataset.reading.selection import Asked, PerRowItems, Selection, select_fields
from bags.errors import CorruptError, SpecError
from bags.indexing import Int64s
from bags.validation import merge

Reader = TypeVar('Reader', bound=Dataset)
MAX_ROW_FUNCTIONS = 16  # Sets of fields with a generated function.
MAX_REOPEN_ATTEMPTS = 4
"""Number of times that `reopen(partial=True)` opens a folder whose writer closes it meanwhile."""


class DatasetReader(Dataset):
    """A dataset folder, as it was when it was opened.

    The folder may be closed, in the process of being written, or left by a killed writer. This library, Bags
    0.x or Granular may have written it.

    Args:
        path: The folder: str, path or URL.
        decoders, cache_index: As in `bags.open`.
        **options: As in `bags.open`.

    Raises:
        FileNotFoundError: No such folder, or it has no spec.json.
        NotADirectoryError: The path is a file, such as a single bag.
        SpecError: Its spec.json is invalid.
        CorruptError: Its refs are damaged. A damaged field raises when it is first read.

    Examples:
        >>> bags.DatasetReader('episodes/000000')[0, 'task']
        {'task': 'reach 0'}
    """

    documented_names = ('path', 'reopen')

    def __init__(
        self,
        path: str | os.PathLike[str],
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        **options: Unpack[ReadOptions],
    ) -> None:
        at = dataset_path(path, decoders, cache_index, options, DatasetReader)
        self._open(Folder(at.store, at.path, at.options), at.decoders)

    @classmethod
    def of_folder(
        cls,
        folder: Folder,
        decoders: Decoders,
        order: Schema | None = None,
        partial: PartialDatapoint | bool = False,
        optional: frozenset[str] = frozenset(),
    ) -> Self:
        """Returns the reader of a folder that may be listed or loaded already.

        The fields are in the order of `order`, else in the order of the folder.

        Args:
            folder, decoders: The folder.
            order: A schema with the order of the fields.
            partial: The partial datapoint, which follows the committed ones; True for the one now, if any.
            optional: Fields that are optional in this reader.

        Raises:
            CorruptError: The records of the partial datapoint are not there any more.
        """
        reader = cls.__new__(cls)
        reader._open(folder, decoders, order, partial, optional)
        return reader

    def _open(
        self,
        folder: Folder,
        decoders: Decoders,
        order: Schema | None = None,
        partial: PartialDatapoint | bool = False,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self.is_remote = folder.store.is_remote
        folder.load(order=order is None)
        # Before the refs: if they have as many rows as the journal says, the episode was not committed since.
        present = read_partial(folder) if partial is True else None
        refs = folder.open_refs()
        if present is not None and refs is not None and refs.count > present.committed:
            present = None
        given = partial if isinstance(partial, PartialDatapoint) else present
        in_memory = folder.options.limits_storage is LimitsStorage.IN_MEMORY
        if self.is_remote and in_memory and refs is not None:
            refs = refs_in_memory(refs)
        layout = folder.layout()
        if given is not None and refs is not None:
            if refs.count < given.committed:
                detail = f'had {given.committed} datapoints before its open episode, now {refs.count}'
                raise CorruptError(folder.path, None, detail)
            refs = with_partial_row(refs, layout.refs_format, given)
            optional |= unset_fields(layout.schema, given)
        if optional:
            layout = layout._replace(schema=with_optional_fields(layout.schema, optional))
        schema = layout.schema
        self.schema = schema if order is None else reordered(schema, [order])
        if order is None and folder.has(METADATA):
            self.schema = folder.in_order(schema)
        self.folder = folder
        self._decoders = decoders
        self._length = folder.shortest(self.schema) if refs is None else refs.count
        self.refs = RefsReader(
            folder.path if refs is None else refs.path, refs, layout.refs_format, self._length
        )
        self._layout = layout
        self._fields: dict[str, FieldReader] = {}
        """Fields by name, opened by `open_field`."""
        self._row_functions: dict[str | tuple[str, ...] | None, RowFunction] = {}
        """Row functions by the names of their fields; None for all fields."""
        self._item_functions: dict[str | tuple[str, ...] | None, RowFunction] = {}
        """The same, for rows with selected items or frames."""
        self.partial_datapoint, self.optional = given, optional
        if given is not None:
            # Now, because a writer that closes the dataset without datapoints replaces the bags.
            for name, (first, count) in given.items.items():
                if first + count > self.open_field(name).bag.count:
                    detail = f'field {name!r}: the records of the open episode were removed'
                    raise CorruptError(folder.path, None, f'{detail}: it was discarded, or left out')

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> int:
        return folder_size(self.folder)

    @property
    def shards(self) -> int:
        return 1

    @property
    def path(self) -> str:
        """The folder."""
        return self.folder.path

    @property
    def metadata(self) -> Metadata:
        return copy.deepcopy(self.folder.metadata)

    @property
    def expression(self) -> str:
        return f'bags.DatasetReader({self.folder.path!r})'

    @cached_attribute
    def unfinished(self) -> bool:
        return self.folder.has(JOURNAL)

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        folders, lengths = [self.folder], [self._length]
        return fingerprint_of_folders(self, folders, lengths, lambda _: self, fields, of_origin)

    def index_folder(self) -> Folder:
        return self.folder

    @property
    def partial(self) -> Int64s:
        return np.array([] if self.partial_datapoint is None else [self._length - 1], np.int64)

    def partial_refs(self) -> dict[str, BagFile]:
        """Returns the refs in memory, with the row of the partial datapoint, by folder; empty without one."""
        return {} if self.partial_datapoint is None or self.refs.bag is None else {self.path: self.refs.bag}

    def reopen(self, partial: bool = False) -> Self:
        """Returns a new reader of the datapoints so far, with the same options. This one does not change.

        Args:
            partial: Whether an open episode is the last datapoint of the new reader, as far as it is flushed.
                `partial` of the reader has its index. All items of a call of `append` are there, or none;
                frames are there once their clip is encoded. Plain fields that are not set are None, and
                optional in the new reader. The episode of a killed writer is there too.

        Raises:
            ValueError: With `partial`, on an object store, where a folder appears when it is closed.
        """
        options = self.__getstate__()['options']
        return reopened(
            self,
            lambda: self.of_folder(
                Folder(options.store_of(self.path), self.path, options), self._decoders, partial=partial
            ),
            partial,
        )

    def close(self) -> None:
        closed: Any = ClosedHandle(self.expression)
        self.refs = self._fields = self.key_indexes = closed
        self._row_functions = self._item_functions = {}

    # One row: read by a generated function if files are mapped; else, or after an error, as a batch of one.

    def __getitem__(self, key: Any) -> Any:
        index, fields = key if type(key) is tuple and len(key) == 2 else (key, None)
        if type(index) is int and (fields is None or type(fields) in {str, tuple}) and not self.is_remote:
            function = self._row_functions.get(fields) or self._row_function(fields)
            datapoint = function(index)
            if datapoint is not None:
                return datapoint
        if type(index) is int:
            return self.read_row(index, None if fields is None else select_fields(fields, self.schema))
        return super().__getitem__(key)

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        if self.is_remote:
            return super().read_row(index, selection)
        names = None if selection is None else tuple(selection)
        if selection is None or list(selection.values()).count(True) == len(selection):
            function = self._row_functions.get(names) or self._row_function(names)
        else:
            function = self._item_functions.get(names) or self._row_function(names, has_items=True)
        datapoint = function(index, selection)
        return super().read_row(index, selection) if datapoint is None else datapoint

    def _row_function(self, fields: str | tuple[str, ...] | None, has_items: bool = False) -> RowFunction:
        """Returns the row function of some fields, made on first use."""
        if fields is None:
            names: Iterable[str] = self.schema
        else:
            names = select_fields(fields, self.schema)
        function = make_row_function([*map(self.open_field, names)], self.refs, has_items)
        functions = self._item_functions if has_items else self._row_functions
        if len(functions) < MAX_ROW_FUNCTIONS:
            functions[fields] = function
        return function

    # Many rows: read the refs, then each field.

    def roots(self) -> list[Folder]:
        return [self.folder]

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        return [RowGroup(self, indices, selection, None)]

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return [(self.folder, list(fields))]

    def open_field(self, name: str, confirm: bool = True) -> FieldReader:
        """Returns the reader of a field. Without `confirm`, the caller calls `Folder.confirm` later."""
        field: FieldReader | None = self._fields.get(name)
        if field is not None:
            if confirm and self.is_remote:
                self.folder.confirm()
            return field
        folder, field_type = self.folder, self._layout.schema[name]
        try:
            decoder = self._decoders.get(name, field_type, folder.starts, folder.path)
        except KeyError:
            raise self._no_decoder(name, field_type) from None
        bag = folder.open_bag(name)
        differ = field_type.format == 'int' and not field_type.args  # Integers of Granular differ in length.
        last = -1 if self.is_remote else self.refs.last_records.get(name, -1)  # Remote: see `_refs_of`.
        bag.check_count(0 if differ else decoder.length, last)
        field = self._fields[name] = FieldReader(
            name, field_type, self._layout.refs_format.positions[name], bag, decoder
        )
        if confirm and self.is_remote:
            self.folder.confirm()
        return field

    def _no_decoder(self, name: str, field_type: FieldType) -> SpecError:
        """Returns the error for a field whose type no function decodes."""
        functions = registry.decoders if self._decoders.functions is None else self._decoders.functions
        detail = f'no decoder for {field_type.format!r}{likely_type(field_type, functions)}'
        with contextlib.suppress(OSError, CorruptError):
            package = package_of(self.folder.metadata, name)
            detail += f', a type of the package {package!r}' if package else ''
        readable = [
            other for other, other_type in self.schema.items() if self._decoders.has(other_type.format)
        ]
        if readable:
            detail += f'; without it, {", ".join(map(repr, readable))} can be read'
        detail += '; raw=True reads the records of all fields'
        return SpecError.of_decoder(name, field_type.text, detail, self.folder.path)

    def _refs_of(self, indices: Int64s, names: Iterable[str]) -> dict[str, Refs]:
        """Returns the refs of datapoints, as `RefsReader.of`; opens remote fields concurrently."""
        closed = sorted(set(names) - self._fields.keys()) if self.is_remote else []
        if not closed:
            return self.refs.of(indices, names)
        calls: list[Callable[[], Any]] = [
            functools.partial(self.refs.of, indices, names),
            functools.partial(getattr, self.refs, 'last_records'),
            *map(functools.partial, repeat(self.open_field), closed, repeat(False)),
        ]
        refs: dict[str, Refs] = map_concurrently(operator.call, calls, True)[0]
        for name in closed:
            self._fields[name].bag.check_count(0, self.refs.last_records.get(name, -1))
        return refs

    def read_selection(self, indices: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        fields = self._fields
        try:
            # Only selected fields are checked, because the check opens their links.
            if self.is_remote or (self._linked and self._links_wait(self._linked & selection.keys())):
                # Reads the refs while fields are opened, then all fields at once.
                refs = self._refs_of(indices, selection)

                def read_field(name: str) -> Column:
                    field = fields.get(name) or self.open_field(name)
                    return read(field, refs[name], selection[name])

                calls: list[Callable[[], Any]] = list(map(functools.partial, repeat(read_field), selection))
                if self.is_remote and self.folder.confirmed < len(self.folder.unlisted):
                    calls.append(self.folder.confirm)
                results = map_concurrently(operator.call, calls)
                return dict(zip(selection, results[: len(selection)], strict=True))
            refs, columns = self.refs.of(indices, selection), {}
            for name, items in selection.items():
                columns[name] = read(fields.get(name) or self.open_field(name), refs[name], items)
        except BadRef as exc:
            raise CorruptError(self.refs.path, int(indices[exc.position]), exc.detail) from None
        return columns

    def item_counts(self, indices: Int64s, field: str, items: Asked = True) -> Int64s:
        if isinstance(items, PerRowItems):
            return items.counts
        refs = self.refs.of(indices, [field])[field]
        if self.is_remote:
            self.folder.confirm()
        assert isinstance(refs, tuple)
        return refs[1]

    @cached_attribute
    def reads_wait(self) -> bool:
        return self.is_remote or self._links_wait(self._linked)

    @cached_attribute
    def _linked(self) -> set[str]:
        """The fields whose records are links."""
        return {name for name in self.schema if self.folder.has(f'{name}.links')}

    def _links_wait(self, names: set[str]) -> bool:
        """Returns whether some of these fields have links to remote files."""
        return any(self.open_field(name).bag.is_remote for name in names)

    def record_ranges(self, indices: Int64s, field: str, items: Asked = True) -> RecordRanges | None:
        """Returns the locations of the records of a field; None for selected frames of videos."""
        refs = self._refs_of(indices, [field])[field]
        reader = self.open_field(field)
        try:
            return ranges_of_refs(reader, refs, items, self.folder.starts)
        except BadRef as exc:
            raise CorruptError(self.refs.path, int(indices[exc.position]), exc.detail) from None

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        if index >= self._length:
            return folder_size(self.folder, fields)
        names, total = tuple(self.schema if fields is None else fields), 0
        refs = self.refs.of(np.array([index]), names)
        if self.refs.bag is not None:
            total = self.refs.bag.bytes_before(index)
        for name in names:
            field = self.open_field(name)
            bag = field.bag
            field_refs = refs[name]
            firsts, counts = field_refs if isinstance(field_refs, tuple) else (field_refs, np.ones(1))
            if firsts[0] >= bag.count or not counts[0]:  # The value is missing.
                total += bag.size * index // self._length
            else:
                total += bag.bytes_before(int(firsts[0]))
        return total

    # Other processes.

    def __getstate__(self) -> dict[str, Any]:
        folder = self.folder
        return {
            'path': folder.path,
            'options': merge(ReaderOptions, folder.options, {'limits_placement': LimitsPlacement.TAIL}),
            'decoders': self._decoders,
            'length': self._length,
            'listed': folder.listed,
            'partial': self.partial_datapoint,
            'optional': self.optional,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = state['options']
        folder = Folder(options.store_of(state['path']), state['path'], options, state['listed'])
        partial: PartialDatapoint | None = state['partial']
        self._open(folder, state['decoders'], None, partial or False, state['optional'])
        self.pin_length(state['length'])

    def pin_length(self, length: int) -> None:
        """Sets the length to an earlier length of the dataset, which may have grown since.

        Raises:
            CorruptError: The dataset has become shorter.
        """
        if self._length < length:
            raise CorruptError(self.folder.path, None, f'had {length} datapoints before, now {self._length}')
        self._length = self.refs.count = length


def reopened(reader: Reader, open_reader: Callable[[], Reader], partial: bool) -> Reader:
    """Returns a new reader of a dataset; again if its writer ends an episode while a folder is opened.

    Args:
        reader: The earlier reader.
        open_reader: Opens the new one.
        partial: Whether the new one has partial datapoints.

    Raises:
        ValueError: Partial datapoints are requested from an object store.
    """
    if not partial:
        return open_reader()
    if reader.is_remote:
        detail = 'on an object store, the datapoints of a folder appear when it is closed'
        raise ValueError(f'reopen: partial=True: expected a local dataset, got {reader.expression}: {detail}')
    for _ in range(MAX_REOPEN_ATTEMPTS - 1):
        with contextlib.suppress(CorruptError):
            return open_reader()
    return open_reader()
