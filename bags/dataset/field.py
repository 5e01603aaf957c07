"""One field of a dataset folder: from refs to values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.dataset.record import Record, open_record
from bags.dataset.refs import MISSING, BadRef, dangling
from bags.dataset.schema import Decoder
from bags.dataset.selection import FrameSelection, select_items
from bags.dataset.spec import FieldType
from bags.dataset.videos import Films
from bags.errors import BagsError, DecodeError
from bags.formats.arrays import invalid_row
from bags.indexing import Int64s, check_index

__all__ = ['Field']

FEW = 4  # Items that are quicker read one by one than as a batch.


class Field:
    """The values of one field.

    `read(row)` is the way to the value of one row of refs: a closure over what it needs.
    """

    def __init__(self, name: str, kind: FieldType, place: int, bag: BagFile, decoder: Decoder) -> None:
        self.name = name
        self.kind = kind
        self.place = place
        self.bag = bag
        self.decoder = decoder
        self.is_remote = bag.is_remote
        """Whether records read one by one would be waited for one by one."""
        self.get: Callable[[int], Any] = bag.get_view if decoder.aliases else bag.get
        if decoder.opens:
            self.get = lambda index: Record(bag, index, name, kind.text)
        # From a twin, so that the function and the field do not refer to each other: a cycle would keep
        # the files open until the garbage collector comes.
        twin = object.__new__(Field)
        twin.__dict__.update(self.__dict__)
        self.read = twin._reader()

    def _reader(self) -> Callable[[tuple[int, ...]], Any]:
        return self._sequence_reader() if self.kind.sequence else self._plain_reader()

    def _plain_reader(self) -> Callable[[tuple[int, ...]], Any]:
        place, get, decode, optional, fail = (
            self.place,
            self.get,
            self.decoder.decode,
            self.kind.optional,
            self.fail,
        )

        def read(row: tuple[int, ...]) -> Any:
            ref = row[place]
            if optional and ref == MISSING:
                return None
            try:
                return get(ref) if decode is None else decode(get(ref))
            except Exception as exc:
                fail(ref, exc)

        return read

    def table(self) -> npt.NDArray[Any] | None:
        """Returns the whole field as an array over the file, if all records seem to have the type's length.

        A value of it counts only where `bag.uniform` knows that. None too where not all bytes are a value, or
        an item of the array is not what the decoder gives.
        """
        uniform, decoder = self.bag.uniform, self.decoder
        if uniform is None or decoder.dtype is None or uniform.length != decoder.length:
            return None
        if decoder.dtype.kind in 'bU' or not (decoder.is_scalar or decoder.shape):
            return None
        return np.ndarray((self.bag.count, *decoder.shape), decoder.dtype, self.bag.file.buffer)

    def _sequence_reader(self) -> Callable[[tuple[int, ...]], Any]:
        place, optional = self.place, self.kind.optional

        def read(row: tuple[int, ...]) -> Any:
            first, count = row[place], row[place + 1]
            if optional and first == MISSING and not count:
                return None
            return self.values(self.span(first, count))

        return read

    def span(self, first: int, count: int) -> range:
        """Returns the records of a sequence.

        Raises:
            BadRef: They are not all there.
        """
        if count and first + count > self.bag.count:
            raise BadRef(0, self.beyond(first + count - 1))
        if first == MISSING:
            raise BadRef(0, self.beyond(first))
        return range(first, first + count)

    def beyond(self, ref: int) -> str:
        what = 'no value, in a field that is not optional' if ref == MISSING else f'record {ref}'
        return f'field {self.name!r}: refers to {what}; {self.bag.path} has {self.bag.count} records'

    def fail(self, ref: int, exc: Exception) -> None:
        """Raises the error that says what went wrong with a record."""
        if ref >= self.bag.count:
            raise BadRef(0, self.beyond(ref)) from None
        if isinstance(exc, BagsError | OSError | EOFError) or self.decoder.decode is None:
            raise exc
        detail = f'{type(exc).__name__}: {exc}'
        raise DecodeError(self.name, ref, self.kind.text, detail, self.bag.path) from exc

    def read_items(self, row: tuple[int, ...], items: range | slice | list[int] | FrameSelection) -> Any:
        """Returns some items of a row's sequence, or some frames; None if it is missing."""
        if isinstance(items, FrameSelection):
            return self.frames(row[self.place], row[self.place + 1] if self.kind.sequence else 1, items)
        first, count = row[self.place], row[self.place + 1]
        if self.kind.optional and first == MISSING and not count:
            return None
        span = self.span(first, count)
        return self.values([span[item] for item in select_items(items, count)])

    def values(self, indices: Sequence[int] | Int64s) -> list[Any]:
        """Returns the values of records, by their indices in the bag."""
        if len(indices) <= FEW and not self.is_remote:
            return [self.value(index) for index in indices]
        chosen = np.asarray(indices, np.int64)
        array = self.array(chosen)
        if array is not None and self.decoder.is_scalar:
            values: list[Any] = array.tolist()
            return values
        if array is not None:
            return [array[position, ...] for position in range(len(array))]
        return self.decoded(chosen)

    def value(self, index: int) -> Any:
        decode = self.decoder.decode
        try:
            return self.get(index) if decode is None else decode(self.get(index))
        except Exception as exc:
            self.fail(index, exc)

    def records(self, indices: Int64s) -> list[Any]:
        """Returns records by their indices in the bag: buffers if the decoder takes them, else bytes."""
        if self.decoder.opens:
            return [self.get(index) for index in indices.tolist()]
        return self.bag.views(indices) if self.decoder.aliases else self.bag.read(indices)

    def decoded(self, indices: Int64s) -> list[Any]:
        """Returns values by their indices in the bag, decoded one by one."""
        decode = self.decoder.decode
        if decode is bytes.decode:
            texts = self._texts(indices)
            if texts is not None:
                return texts
        records = self.records(indices)
        if decode is None:
            return records
        try:
            if self.decoder.together is not None:
                return self.decoder.together(records)
            return list(map(decode, records))
        except Exception:
            for index, record in zip(indices.tolist(), records, strict=True):
                try:
                    decode(record)
                except Exception as exc:
                    self.fail(index, exc)
            raise

    def _texts(self, indices: Int64s) -> list[str] | None:
        """Returns short texts by cutting them out of a single one; None if they are not all ASCII."""
        found = self.bag.padded(indices)
        if found is None:
            return None
        rows, sizes = found
        try:
            text = str(rows.data, 'ascii')
        except UnicodeDecodeError:
            return None
        width = rows.shape[1]
        places = zip(range(0, len(text), width), sizes.tolist(), strict=True)
        return [text[start : start + size] for start, size in places]

    def array(self, indices: Int64s) -> npt.NDArray[Any] | None:
        """Returns values by their indices in the bag as one new array (n, *shape).

        None if the type has no such form, or a record no such length (the decoder then says what it thinks
        of that).
        """
        decoder = self.decoder
        if decoder.dtype is None:
            return None
        raw = self.bag.fixed(indices, decoder.length)
        if raw is None:
            return None
        if not decoder.length:
            return np.empty((len(indices), *decoder.shape), decoder.dtype)
        values = raw.view(decoder.dtype).reshape(len(indices), *decoder.shape)
        return None if invalid_row(values) is not None else values

    @functools.cached_property
    def films(self) -> Films:
        """Its videos, if that is what its records are."""
        return Films(self.bag, self.name, self.kind.text)

    def frames(self, first: int, count: int, selection: FrameSelection) -> Any:
        """Returns frames of a row's video, or of its clips as one; None if it is missing."""
        if self.kind.optional and first == MISSING and not (self.kind.sequence and count):
            return None
        return self.films.frames(self.span(first, count), selection)

    def check(self, firsts: Int64s, counts: Int64s | None) -> None:
        """Checks many refs at once.

        Raises:
            BadRef: The first that leads outside the bag.
        """
        bad = dangling(self.kind, firsts, counts, self.bag.count)
        if np.count_nonzero(bad):
            position = int(bad.argmax())
            last = firsts[position] if counts is None else firsts[position] + counts[position] - 1
            raise BadRef(position, self.beyond(int(last)))

    def sources(self, indices: Int64s) -> list[bytes]:
        """Returns records as bytes, undecoded, by their indices in the bag."""
        self.check(indices, None)
        return self.bag.read(indices)

    def open(self, row: tuple[int, ...], item: SupportsIndex | None) -> BinaryIO | None:
        """Opens a row's record, or that of an item of its sequence, as a file; None if its value is missing.

        What is compressed is read into memory.
        """
        first, count = row[self.place], row[self.place + 1] if self.kind.sequence else 1
        if self.kind.optional and first == MISSING and not (self.kind.sequence and count):
            return None
        index = first if item is None else self.span(first, count)[check_index(item, count)]
        if index >= self.bag.count:
            raise BadRef(0, self.beyond(index))
        return open_record(self.bag, index)
