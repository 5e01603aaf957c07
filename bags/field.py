"""One field of a dataset folder: from refs to values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from bags import formats
from bags.bag.gather import Kept, overlapped
from bags.bag.opened import OpenBag
from bags.batch import Column, Ragged, offsets_of, spread
from bags.errors import BagsError, DecodeError
from bags.formats.lazy_video import Video
from bags.joined_clips import Joined, length_of
from bags.record import Record, open_record
from bags.refs import MISSING, dangling
from bags.schema import Decoder
from bags.selection import Each, FrameSelection, Items, select_items, select_many
from bags.spec import FieldType

__all__ = ['BadRef', 'Field']

Int64s = npt.NDArray[np.int64]

OPEN = 16  # Videos of a field that stay open, to be asked again.
FEW = 4  # Items that are quicker read one by one than as a batch.
CONSTANT = (str, bytes, int, float, type(None))


class BadRef(Exception):
    """A ref that leads nowhere: its position among those asked for, and what is wrong with it."""

    def __init__(self, position: int, detail: str) -> None:
        self.position = position
        self.detail = detail


class Field:
    """The values of one field.

    `read(row)` is the way to the value of one row of refs: a closure over what it needs.
    """

    def __init__(self, name: str, kind: FieldType, place: int, bag: OpenBag, decoder: Decoder) -> None:
        self.name = name
        self.kind = kind
        self.place = place
        self.bag = bag
        self.decoder = decoder
        self.apart = bag.overlaps
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

    def values(self, indices: Sequence[int]) -> list[Any]:
        """Returns the values of records, by their indices in the bag."""
        if len(indices) <= FEW and not self.apart:
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
        if int(np.maximum.reduce(rows, axis=None)) >= 0x80:
            return None
        text, width = str(rows.data, 'ascii'), rows.shape[1]
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
        return None if formats.invalid_row(values) is not None else values

    @functools.cached_property
    def videos(self) -> Kept[int, Video]:
        """Videos by the index of their record, the last ones that were asked for."""
        bag, name, text = self.bag, self.name, self.kind.text
        return Kept(lambda index: Video(Record(bag, index, name, text)), OPEN)

    @functools.cached_property
    def frame_counts(self) -> dict[int, int]:
        """Frames of videos that were asked for, by the index of their record."""
        return {}

    def frames(self, first: int, count: int, selection: FrameSelection) -> Any:
        """Returns frames of a row's video, or of its clips as one; None if it is missing."""
        if self.kind.optional and first == MISSING and not (self.kind.sequence and count):
            return None
        span, videos, counts = self.span(first, count), self.videos, self.frame_counts

        def length(clip: int) -> tuple[int, Exception | None]:
            index = span[clip]
            if index in counts:
                return counts[index], None
            found = length_of(videos[index])
            if found[1] is None:
                counts[index] = found[0]
            return found

        clips = Joined(count, lambda clip: videos[span[clip]], length, self.bag.overlaps)
        return len(clips) if selection.key is None else clips[selection.key]

    # Batches.

    def frames_of(self, refs: Any, selection: FrameSelection) -> list[Any]:
        """Returns frames of many rows."""
        firsts, counts = refs if self.kind.sequence else (refs, np.ones(len(refs), np.int64))
        self.check(*(refs if self.kind.sequence else (refs, None)))
        rows = zip(firsts.tolist(), counts.tolist(), strict=True)
        return overlapped(lambda row: self.frames(*row, selection), list(rows), self.bag.overlaps)

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

    def column(self, refs: Any, items: Items | Literal[True]) -> Column:
        """Returns the column of a batch.

        Args:
            refs: For a plain field, indices (B,); for a sequence, firsts and counts.
            items: True, or which items of each sequence.
        """
        if isinstance(items, FrameSelection):
            found = self.frames_of(refs, items)
            shapes = {np.shape(frames) if frames is not None else None for frames in found}
            return np.stack(found) if len(shapes) == 1 and None not in shapes else found
        if self.kind.sequence:
            firsts, counts = refs
            return self._sequence_column(firsts, counts, items)
        self.check(refs, None)
        if self.kind.optional:
            present = refs != MISSING
            values = iter(self.decoded(refs[present]))
            return [next(values) if there else None for there in present.tolist()]
        return self._dense(refs)

    def _dense(self, indices: Int64s) -> npt.NDArray[Any] | list[Any]:
        array = self.array(indices)
        if array is not None:
            return array
        values = self.decoded(indices)
        if self.decoder.dtype is None or not all(isinstance(value, int) for value in values):
            return values
        try:
            # Integers whose records differ in length, as Granular has them.
            return np.array(values, self.decoder.dtype)
        except OverflowError:
            return values

    def _sequence_column(
        self, firsts: Int64s, counts: Int64s, items: Items | Literal[True]
    ) -> Ragged | list[Any]:
        present = (firsts != MISSING) | (counts > 0) if self.kind.optional else None
        self.check(firsts, counts)
        if items is True:
            members = spread(firsts, counts)
        else:
            members, counts = select_many(items, firsts, counts)
        values = self._once(members) if type(items) is Each else self._dense(members)
        if isinstance(values, np.ndarray):
            return Ragged(values, offsets_of(counts), present)
        if self.decoder.dtype is not None and not values:
            empty = np.empty((0, *self.decoder.shape), self.decoder.dtype)
            return Ragged(empty, offsets_of(counts), present)
        there = [True] * len(counts) if present is None else present.tolist()
        parts = _parts(values, counts)
        return [part if is_there else None for part, is_there in zip(parts, there, strict=True)]

    def each(self, firsts: Int64s, counts: Int64s, items: Each) -> list[list[Any]]:
        """Returns items that differ from row to row as rows have them: lists of values."""
        self.check(firsts, counts)
        members, counts = select_many(items, firsts, counts)
        values = self._once(members)
        if isinstance(values, np.ndarray):
            if self.decoder.is_scalar:
                values = values.tolist()
            else:
                values = [values[position, ...] for position in range(len(values))]
        return _parts(values, counts)

    def _once(self, members: Int64s) -> npt.NDArray[Any] | list[Any]:
        """As `_dense`, for overlapping runs: what several of them have is read and decoded once."""
        if self.bag.is_sliced and self.decoder.dtype is not None:
            return self._dense(members)
        indices, first, back = np.unique(members, return_index=True, return_inverse=True)
        if len(indices) == len(members):
            return self._dense(members)
        values = self._dense(indices)
        if isinstance(values, np.ndarray):
            return values[back]
        found = [values[place] for place in back.tolist()]
        repeated = np.ones(len(members), bool)
        repeated[first] = False
        # Every run owns its values: what is written to one does not show in another.
        for position in np.flatnonzero(repeated).tolist():
            value = found[position]
            if type(value) is np.ndarray:
                found[position] = value.copy()
            elif self.decoder.decode is not None and not isinstance(value, CONSTANT):
                found[position] = self.value(int(members[position]))
        return found

    def together(self, firsts: Int64s, counts: Int64s, items: Any) -> list[Any]:
        """Returns the values of many rows as rows have them, read at once."""
        self.check(firsts, counts)
        present = (firsts != MISSING) | (counts > 0)
        if items is True:
            members = spread(firsts, counts)
        else:
            members, counts = select_many(items, firsts, counts)
        values = iter(_parts(self.values(members), counts))  # type: ignore[arg-type]
        return [value if there else None for there, value in zip(present.tolist(), values, strict=True)]

    def sources(self, indices: Int64s) -> list[bytes]:
        """Returns records as bytes, undecoded, by their indices in the bag."""
        self.check(indices, None)
        return self.bag.read(indices)

    def open(self, index: int) -> BinaryIO:
        """Opens a record as a file: its bytes on disk, or in memory if it is compressed."""
        if index >= self.bag.count:
            raise BadRef(0, self.beyond(index))
        return open_record(self.bag, index)


def _parts(values: list[Any], counts: Int64s) -> list[list[Any]]:
    """Cuts a list into parts of these lengths."""
    ends = np.cumsum(counts).tolist()
    return [values[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
