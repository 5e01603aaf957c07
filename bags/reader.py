"""Reading a dataset folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags import formats
from bags.bag.files import store_for
from bags.bag.gather import Kept, overlapped
from bags.bag.indices import check_index
from bags.bag.opened import OpenBag
from bags.bag.options import LimitsPlacement, ReaderOptions, merge
from bags.bag.uniform import Uniform, as_slice
from bags.batch import Column
from bags.dataset import Datapoint, Rows
from bags.errors import CorruptError, SpecError
from bags.field import BadRef, Field, decoder_for
from bags.folder import Folder, reader_options
from bags.refs import MISSING, RefsFormat
from bags.selection import Selection, select_fields

__all__ = ['DatasetReader']

Int64s = npt.NDArray[np.int64]


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
        store, path = store_for(directory, filesystem, storage_options)
        options |= {'filesystem': filesystem, 'storage_options': storage_options}
        self.start(Folder(store, path, reader_options(store, cache_index, options)), decoders, raw)

    @classmethod
    def over(
        cls, folder: Folder, decoders: Mapping[str, Callable[..., Any]] | None, raw: bool
    ) -> DatasetReader:
        """Returns the reader of a folder that is open."""
        reader = cls.__new__(cls)
        reader.start(folder, decoders, raw)
        return reader

    def start(self, folder: Folder, decoders: Mapping[str, Callable[..., Any]] | None, raw: bool) -> None:
        self._folder = folder
        self._decoders = decoders
        self._raw = raw
        self._closed = False
        self.types = folder.spec
        self._format = RefsFormat(self.types)
        self._refs = folder.refs
        self._fields: Kept[str, Field] = Kept(self._open_field, len(self.types) + 1)
        self._all: list[tuple[str, Callable[[tuple[int, ...]], Any]]] | None = None
        self._length = self._refs.count if self._refs is not None else self._shortest()
        self._sound: Uniform | None = None
        self._row_refs = self._row_reader()

    def _shortest(self) -> int:
        return min((self._fields[name].bag.count for name in self.types), default=0)

    def _open_field(self, name: str) -> Field:
        kind = self.types[name]
        decoders = formats.decoders if self._decoders is None else self._decoders
        if self._folder.starts and decoders.get('int') is formats.decoders['int']:
            decoders = {**decoders, 'int': formats.decode_legacy_int}
        try:
            decoder = decoder_for(kind, decoders, self._raw)
        except KeyError:
            raise SpecError(
                name, f'a type of {", ".join(sorted(decoders))}', kind.text, self._folder.path
            ) from None
        except ValueError as exc:
            raise SpecError(name, str(exc), kind.text, self._folder.path) from exc
        bag = self._folder.open_bag(name)
        if decoder.length and bag.codec is None and bag.count * decoder.length != bag.size - bag.count * 8:
            self._check_sizes(name, bag, decoder.length)
        place = self._format.places[name]
        return Field(name, kind, place, bag, decoder)

    def _check_sizes(self, name: str, bag: OpenBag, length: int) -> None:
        """Meets limits cut off at the end of a bag, which would make other numbers of its last records."""
        if self.types[name].word == 'int' and not self.types[name].args:
            return  # Granular's integers differ in length.
        if bag.limits is bag.file:
            found = bag.size - bag.count * 8
            raise CorruptError(
                bag.path, None, f'{bag.count} records of {length} bytes, but they take {found} bytes'
            )

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

    @property
    def directory(self) -> str:
        return self._folder.path

    def __repr__(self) -> str:
        return f'bags.DatasetReader({self._folder.path!r}, {self.spec}, {self._length} datapoints)'

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._refs = None
            self._all = None
            self._fields = Kept(self._refuse, 1)
            self._row_refs = self._refuse

    def _refuse(self, key: Any) -> Any:
        raise ValueError(f'{self!r} is closed')

    # Refs.

    def _row_reader(self) -> Callable[[int], tuple[int, ...]]:
        refs, stride = self._refs, self._format.stride
        if refs is None or refs.uniform is None or refs.uniform.length != stride:
            return self._row_refs_slowly
        table = np.ndarray((refs.count, stride), np.uint8, refs.file.buffer)
        sound = Uniform(refs.ends, stride, lambda start, stop: self._format.has_tags(table[start:stop]))
        self._sound = sound
        return self._format.row_reader(refs.file.buffer, self._length, sound.marks, self._row_refs_slowly)

    def _row_refs_slowly(self, index: Any) -> tuple[int, ...]:
        """Returns the row of refs of a datapoint."""
        if self._refs is None:
            number = check_index(index, self._length)
            return (number,) * len(self.types)
        index = check_index(index, self._length)
        if self._sound is not None:
            self._sound.touch(index)
        record = self._refs.get(index)
        try:
            return self._format.unpack(record)
        except ValueError as exc:
            raise CorruptError(self._refs.path, index, str(exc)) from exc

    def _refs_of(self, indices: Int64s, names: Iterable[str]) -> dict[str, Any]:
        """Returns refs of some fields by field: indices (B,), or firsts and counts."""
        names = list(names)
        if self._closed:
            self._refuse(0)
        if self._refs is None:
            return dict.fromkeys(names, indices)
        if self._sound is not None and len(indices):
            chosen = as_slice(indices)
            if self._sound.holds(chosen):
                refs, stride = self._refs, self._format.stride
                if refs.file.wary:
                    refs.file.expect(indices * stride, (indices + 1) * stride)
                return self._format.columns(refs.file.buffer, refs.count, chosen, names)
        raw = self._refs.fixed(indices, self._format.stride)
        if raw is not None and self._format.has_tags(raw):
            return self._format.columns(raw, len(raw), slice(None), names)
        rows = []
        for index, record in zip(indices.tolist(), self._refs.read(indices), strict=True):
            try:
                rows.append(self._format.unpack(record))
            except ValueError as exc:
                raise CorruptError(self._refs.path, index, str(exc)) from exc
        return self._format.gather(rows, names)

    def _bad_ref(self, index: int, exc: BadRef) -> CorruptError:
        path = self._refs.path if self._refs is not None else self._folder.path
        return CorruptError(path, index, exc.detail)

    # Datapoints.

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and self._all is not None:
            # The same as below, in a call less of the twenty that a row of four fields takes.
            refs = self._row_refs(key)
            try:
                return {name: read(refs) for name, read in self._all}
            except BadRef as exc:
                raise self._bad_ref(check_index(key, self._length), exc) from None
        return super().__getitem__(key)

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        refs = self._row_refs(index)
        try:
            if selection is None:
                reads = self._all
                if reads is None:
                    reads = self._all = [(name, self._fields[name].read) for name in self.types]
                return {name: read(refs) for name, read in reads}
            fields = self._fields
            return {
                name: fields[name].read(refs) if items is True else fields[name].read_items(refs, items)
                for name, items in selection.items()
            }
        except BadRef as exc:
            raise self._bad_ref(check_index(index, self._length), exc) from None

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        refs = self._refs_of(indices, selection)

        def work(name: str) -> list[Any]:
            field, items = self._fields[name], selection[name]
            found: list[Any] = self._checked(indices, lambda: _values(field, refs[name], items))
            return found

        columns = overlapped(work, list(selection), self._waits)
        if not columns:
            return [{} for _ in range(len(indices))]
        return [dict(zip(selection, values, strict=True)) for values in zip(*columns, strict=True)]

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        refs = self._refs_of(indices, selection)

        def work(name: str) -> Column:
            field = self._fields[name]
            found: Column = self._checked(indices, lambda: field.column(refs[name], selection[name]))
            return found

        return dict(zip(selection, overlapped(work, list(selection), self._waits), strict=True))

    @property
    def _waits(self) -> bool:
        return self._refs is not None and self._refs.overlaps

    def _checked(self, indices: Int64s, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BadRef as exc:
            raise self._bad_ref(int(indices[exc.position]), exc) from None

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        chosen = np.arange(self._length) if indices is None else indices
        firsts, counts = self._refs_of(chosen, [field])[field]
        found: Int64s = np.where(firsts == MISSING, 0, counts) if self.types[field].optional else counts
        return found

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        refs = self._refs_of(indices, [field])[field]
        reader = self._fields[field]
        if items is not None:
            return list(self._checked(indices, lambda: reader.sources(refs[0] + items)))
        if not self.types[field].optional:
            return list(self._checked(indices, lambda: reader.sources(refs)))
        present = refs != MISSING
        found = iter(self._checked(indices[present], lambda: reader.sources(refs[present])))
        return [next(found) if there else None for there in present.tolist()]

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        select_fields(field, self.types)
        kind = self.types[field]
        number = check_index(index, self._length)
        if kind.sequence != (item is not None):
            what = 'an item, as it is a sequence' if kind.sequence else 'no item, as it is no sequence'
            raise TypeError(f'field {field!r} of type {kind.text}: expected {what}')
        refs, reader = self._row_refs(number), self._fields[field]
        ref = refs[reader.place]
        if kind.optional and ref == MISSING:
            raise ValueError(f'{self._folder.path}, datapoint {number}: field {field!r} has no value')
        try:
            if item is not None:
                ref = reader.span(ref, refs[reader.place + 1])[check_index(item, refs[reader.place + 1])]
            return reader.open(ref)
        except BadRef as exc:
            raise self._bad_ref(number, exc) from None

    # Other processes.

    def __getstate__(self) -> dict[str, Any]:
        folder = self._folder
        return {
            'path': folder.path,
            'options': merge(ReaderOptions, folder.options, {'limits_placement': LimitsPlacement.TAIL}),
            'decoders': self._decoders,
            'raw': self._raw,
            'length': self._length,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = state['options']
        store, _ = store_for(state['path'], options.filesystem, options.storage_options)
        self.start(Folder(store, state['path'], options), state['decoders'], state['raw'])
        self.pin(state['length'])

    def pin(self, length: int) -> None:
        """Holds on to a length that was seen before, also if the dataset has grown.

        Raises:
            CorruptError: It has become shorter.
        """
        if self._length < length:
            raise CorruptError(self._folder.path, None, f'had {length} datapoints before, now {self._length}')
        self._length = length
        self._row_refs = self._row_reader()


def _values(field: Field, refs: Any, items: Any) -> list[Any]:
    """Returns the values of a field as rows have them."""
    if field.kind.sequence:
        firsts, counts = refs
        field.check(firsts, counts)
        rows = zip(firsts.tolist(), counts.tolist(), strict=True)
        place = field.place
        return [
            field.read((0,) * place + row) if items is True else field.read_items((0,) * place + row, items)
            for row in rows
        ]
    field.check(refs, None)
    if not field.kind.optional:
        return field.decoded(refs)
    present = refs != MISSING
    found = iter(field.decoded(refs[present]))
    return [next(found) if there else None for there in present.tolist()]
