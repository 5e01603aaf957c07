"""One field of a dataset folder: reads values by their refs, and opens records as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.concurrency import FifoCache, Shareable, cached_attribute
from bags.dataset.refs import MISSING, BadRef, dangling
from bags.dataset.schema import Decoder
from bags.dataset.selection import FrameSelection, select_items
from bags.dataset.spec import FieldType
from bags.errors import BagsError, DecodeError
from bags.formats.arrays import invalid_row
from bags.indexing import Int64s
from bags.media.video import JoinedVideos, Video, decode_video

MAX_SINGLE_ITEMS = 4  # More items are read as a batch.
MAX_SINGLE_BYTES = 1 << 14  # Larger items of a fixed size are read as a batch.
MAX_SINGLE_RECORDS = 8  # More records are read by one call.
MAX_OPEN_VIDEOS = 16


class Field(Shareable):
    """The values of one field. `position` is that of its first ref in a row."""

    def __init__(
        self, name: str, field_type: FieldType, position: int, bag: BagFile, decoder: Decoder
    ) -> None:
        self.name = name
        self.type = field_type
        self.position = position
        self.bag = bag
        self.decoder = decoder
        self.table = _table(bag, decoder)
        """All values as an array over the file; None if records may differ in size.

        Verify the limits of a record before using its value in this array."""
        self._get: Callable[[int], Any] = bag.get_view if decoder.accepts_view else bag.get
        if decoder.lazy:
            self._get = lambda index: Record(bag, index, name, field_type.text)
        self._video_lengths: dict[int, int] = {}

    # One row, by its refs. If this fails, the reader reads the row as a batch, which raises the real error.

    def read(self, refs: Sequence[int]) -> Any:
        """Returns the value of a row; None if it is missing."""
        first = refs[self.position]
        if not self.type.sequence:
            return None if self.type.optional and first == MISSING else self.value(first)
        count = refs[self.position + 1]
        if self.type.optional and first == MISSING and not count:
            return None
        return self.values(self._records(first, count))

    def read_items(self, refs: Sequence[int], items: range | slice | list[int] | FrameSelection) -> Any:
        """Returns some items of a row's sequence, or some frames; None if the value is missing."""
        first = refs[self.position]
        count = refs[self.position + 1] if self.type.sequence else 1
        if isinstance(items, FrameSelection):
            return self.frames(first, count, items)
        if self.type.optional and first == MISSING and not count:
            return None
        if first == MISSING or (count and first + count > self.bag.count):
            raise IndexError(first)
        records = range(first, first + count)
        if isinstance(items, range) and items.start >= 0 and items.stop >= 0 and items.step > 0:
            items = slice(items.start, items.stop, items.step)
        if isinstance(items, slice):
            return self.values(records[items])
        return self.values([records[item] for item in select_items(items, count)])

    def value(self, index: int) -> Any:
        """Returns the value of one record."""
        decode = self.decoder.decode
        record = self._get(index)
        try:
            return record if decode is None else decode(record)
        except Exception as exc:
            self._fail(index, exc)

    def _records(self, first: int, count: int) -> range:
        """Returns the records of a whole sequence, after checking that they exist."""
        if first == MISSING or (count and first + count > self.bag.count):
            raise IndexError(first)
        self.check_items(first, count)
        return range(first, first + count)

    def check_items(self, first: int, count: int) -> None:
        """Raises DecodeError if compressed items of a sequence would exceed `max_value_size` in memory."""
        if count > self.decoder.max_items and self.bag.codec is not None:
            size, limit = self.decoder.length, self.decoder.max_items
            detail = f'{count} items of {size} bytes exceed max_value_size, which allows {limit} items'
            raise DecodeError(self.name, first, self.type.text, detail, self.bag.path)

    def _fail(self, index: int, exc: Exception) -> None:
        """Raises the error of a record whose decoder failed."""
        # A lazy decoder reads the file, which may raise OSError.
        if isinstance(exc, BagsError) or (self.decoder.lazy and isinstance(exc, OSError)):
            exc.add_note(f'in the decoder of field {self.name!r}, record {index} of {self.bag.path}')
            raise exc
        detail = f'{type(exc).__name__}: {exc}'
        raise DecodeError(self.name, index, self.type.text, detail, self.bag.path) from exc

    # Many records, by their indices in the bag.

    def check(self, firsts: Int64s, counts: Int64s | None) -> None:
        """Checks many refs at once.

        Raises:
            BadRef: For the first ref outside the bag.
        """
        if not len(firsts):
            return
        ends = firsts if counts is None else firsts + counts - 1
        if int(np.maximum.reduce(ends)) < self.bag.count and (counts is None or MISSING not in firsts):
            return
        bad = dangling(self.type, firsts, counts, self.bag.count)
        if np.count_nonzero(bad):
            position = int(bad.argmax())
            last = int(firsts[position] if counts is None else firsts[position] + counts[position] - 1)
            is_missing = int(firsts[position]) == MISSING
            what = 'no value, in a field that is not optional' if is_missing else f'record {last}'
            detail = f'field {self.name!r}: refers to {what}; {self.bag.path} has {self.bag.count} records'
            raise BadRef(position, detail)

    def values(self, indices: Sequence[int] | Int64s) -> npt.NDArray[Any] | list[Any]:
        """Returns values: one new array (n, *shape) if the type has a fixed size, else a list."""
        decoder, count = self.decoder, len(indices)
        if count <= MAX_SINGLE_ITEMS and decoder.length <= MAX_SINGLE_BYTES and not self.bag.is_remote:
            table = self.table
            if table is not None and all(map(self.bag.verified.verify, indices)):
                return table[indices]
            values = list(map(self.value, map(int, indices)))
        else:
            chosen = np.asarray(indices, np.int64)
            array = self.array(chosen)
            if array is not None:
                return array
            values = self.decoded(chosen)
        if decoder.dtype is None:
            return values
        try:
            return np.array(values, decoder.dtype).reshape(count, *decoder.shape)
        except OverflowError:
            return values  # Integers of Granular, whose records differ in length.

    def array(self, indices: Int64s) -> npt.NDArray[Any] | None:
        """Returns values as one new array (n, *shape).

        None if the type has no fixed size, or a record has another size.
        """
        decoder = self.decoder
        if decoder.dtype is None:
            return None
        if not decoder.length:
            return np.empty((len(indices), *decoder.shape), decoder.dtype)
        raw = self.bag.fixed(indices, decoder.length)
        if raw is None:
            return None
        values = raw.view(decoder.dtype).reshape(len(indices), *decoder.shape)
        return None if decoder.dtype.kind in 'bU' and invalid_row(values) is not None else values

    def decoded(self, indices: Int64s) -> list[Any]:
        """Returns values, decoded one at a time."""
        decode = self.decoder.decode
        if self.decoder.lazy or (len(indices) <= MAX_SINGLE_RECORDS and not self.bag.is_remote):
            records: list[Any] = list(map(self._get, indices.tolist()))
        else:
            records = self.bag.read(indices, views=self.decoder.accepts_view)
        if decode is None:
            return records
        try:
            # Not `map`: a StopIteration of the decoder would end it early.
            return [decode(record) for record in records]
        except Exception:
            return [self._decode(*pair) for pair in zip(indices.tolist(), records, strict=True)]

    def _decode(self, index: int, record: Any) -> Any:
        assert self.decoder.decode is not None
        try:
            return self.decoder.decode(record)
        except Exception as exc:
            self._fail(index, exc)

    # Videos.

    @cached_attribute
    def _videos(self) -> FifoCache[int, Video]:
        name, field_type, bag = self.name, self.type, self.bag  # Not self: a cycle would keep the file open.
        return FifoCache(
            lambda index: decode_video(Record(bag, index, name, field_type.text), *field_type.args),
            MAX_OPEN_VIDEOS,
        )

    def frames(self, first: int, count: int, selection: FrameSelection) -> Any:
        """Returns frames of a row's video, or of its clips as one video; None if it is missing.

        The most recently opened videos stay open.
        """
        if self.type.optional and first == MISSING and not (self.type.sequence and count):
            return None
        records = self._records(first, count)
        video = JoinedVideos(
            len(records),
            lambda clip: self._videos[records[clip]],
            lambda clip: self._video_length(records[clip]),
            self.bag.is_remote,
            f'{self.bag.path}, field {self.name!r} of type {self.type.text}',
        )
        if isinstance(selection.key, str):
            if self.type.sequence:
                return video.timestamps  # Times of consecutive clips, starting at 0.
            len(video)  # Raises if the file is truncated.
            return self._videos[first].timestamps
        return len(video) if selection.key is None else video[selection.key]

    def _video_length(self, index: int) -> tuple[int, Exception | None]:
        """Returns the number of frames of a video, and an error if the file should have more."""
        if index in self._video_lengths:
            return self._video_lengths[index], None
        length, error = self._videos[index]._length()
        if error is None:
            self._video_lengths[index] = length
        return length, error


def _table(bag: BagFile, decoder: Decoder) -> npt.NDArray[Any] | None:
    if decoder.dtype is None or not decoder.length or bag.length != decoder.length:
        return None
    if decoder.dtype.kind in 'bU' or not (decoder.is_scalar or decoder.shape):
        return None
    return np.ndarray((bag.count, *decoder.shape), decoder.dtype, bag.file.buffer)


class Record:
    """A record that is opened on use: the argument of decoders with the attribute `lazy`.

    Creating it reads nothing. It keeps the files of the bag open, even after the dataset is closed. An
    unpickled record opens them again, by path.
    """

    __slots__ = ('_again', 'bag', 'field', 'index', 'type')

    def __init__(self, bag: BagFile, index: int, field: str, type: str) -> None:
        if not 0 <= index < bag.count:
            raise IndexError(index)
        self.bag: BagFile | None = bag
        self.index = index
        self.field = field
        self.type = type
        self._again: tuple[str, ReaderOptions | None] = bag.path, bag.options

    @property
    def name(self) -> str:
        """The name of the record in error messages."""
        return f'{self._again[0]}, field {self.field!r} of type {self.type}, record {self.index}'

    @property
    def is_remote(self) -> bool:
        """Whether reading may wait for a network; after unpickling True, until the bag is open."""
        return self.bag is None or self.bag.is_remote

    def open(self) -> BinaryIO:
        """Opens the record as a file with its own position. A compressed record is read into memory."""
        path, options = self._again
        if self.bag is None:
            assert options is not None
            self.bag = open_bag(options.store_of(path), path, options)
        return self.bag.open(self.index, f'{path}, record {self.index}')

    def error(self, exc: Exception) -> DecodeError:
        """Returns the error to raise if the content of the record is invalid."""
        return DecodeError(self.field, self.index, self.type, str(exc) or type(exc).__name__, self._again[0])

    def __repr__(self) -> str:
        return f'Record({self.name!r})'

    def __getstate__(self) -> dict[str, Any]:
        return {'again': self._again, 'index': self.index, 'field': self.field, 'type': self.type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.bag = None
        self._again = state['again']
        self.index, self.field, self.type = state['index'], state['field'], state['type']
