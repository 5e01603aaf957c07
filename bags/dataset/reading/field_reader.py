"""`FieldReader` reads the values of a field of a dataset folder; `Record` is a record opened as a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from bags.bag.records import SizeLimit, StoredRecords
from bags.concurrency import FifoCache, Shareable, cached_attribute
from bags.dataset.format.folder_layout import Decoder
from bags.dataset.format.registry import are_pictures
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.frames import (
    Frames,
    FrameTimes,
    JoinedFrames,
    LazyFrames,
    Length,
    known_length,
    known_times,
)
from bags.dataset.reading.selection import FrameSelection
from bags.errors import BagsError, DecodeError
from bags.formats.arrays import invalid_row
from bags.indexing import Int64s

if TYPE_CHECKING:
    from bags.links.segments import Segment

MAX_SINGLE_ITEMS = 4  # More items are read as a batch.
MAX_SINGLE_BYTES = 1 << 14  # Larger items of a fixed size are read as a batch.
MAX_SINGLE_RECORDS = 8  # More records are read with one call.
MAX_OPEN_FRAMES = 16  # Records whose frames stay open.
NO_FRAME_TIMES = np.empty(0)


class FieldReader(Shareable):
    """Reads the values of a field by record index. `position` is the position of its first ref in a row."""

    def __init__(
        self, name: str, field_type: FieldType, position: int, bag: StoredRecords, decoder: Decoder
    ) -> None:
        self.name = name
        self.type = field_type
        self.position = position
        self.bag = bag
        self.bounded = bag
        """The same records. Reading one that is larger than `max_value_size` raises DecodeError."""
        if decoder.max_size is not None and bag.end > decoder.max_size:
            error = functools.partial(_too_large, name, field_type.text, bag, decoder.max_size)
            self.bounded = bag.with_limit(SizeLimit(decoder.max_size, error))
        self.decoder = decoder
        self.table: npt.NDArray[Any] | None = None
        """All values as an array over the file; None if records may differ in size.

        Verify the limits of a record before using its value in this array."""
        dtype, shape = decoder.dtype, decoder.shape
        is_table = bag.length == decoder.length > 0 and (decoder.is_scalar or len(shape) > 0)
        self._is_too_large = decoder.max_size is not None and decoder.length > decoder.max_size
        if is_table and dtype is not None and dtype.kind not in 'bU' and not self._is_too_large:
            self.table = np.ndarray((bag.count, *shape), dtype, bag.buffer)
        self._lengths: dict[int, int] = {}

    # One record.

    @cached_attribute
    def get_record(self) -> Callable[[int], Any]:
        """The function that returns a record in the form that the decoder takes."""
        if self.decoder.lazy:
            # Not self: a cycle would keep the file open.
            name, field_type, bag = self.name, self.type, self.bag
            return lambda index: Record(bag, index, name, field_type.text)
        return self.bounded.get_view if self.decoder.accepts_view else self.bounded.get

    def value(self, index: int) -> Any:
        """Returns the value of a record."""
        decode = self.decoder.decode
        record = self.get_record(index)
        try:
            return record if decode is None else decode(record)
        except Exception as exc:
            self.fail(index, exc)

    def check_items(self, first: int, count: int) -> None:
        """Raises DecodeError if compressed items of a sequence would exceed `max_value_size` in memory."""
        if count > self.decoder.max_items and self.bag.is_compressed:
            size, limit = self.decoder.length, self.decoder.max_items
            detail = f'{count} items of {size} bytes exceed max_value_size, which allows {limit} items'
            raise DecodeError(self.name, first, self.type.text, detail, self.bag.source_of(first))

    def fail(self, index: int, exc: Exception) -> NoReturn:
        """Raises the error of a record whose decoder failed."""
        # Lazy decoders read the file, which may raise OSError.
        if isinstance(exc, BagsError) or (self.decoder.lazy and isinstance(exc, OSError)):
            exc.add_note(
                f'in the decoder of field {self.name!r}, record {index} of {self.bag.source_of(index)}'
            )
            raise exc
        detail = f'{type(exc).__name__}: {exc}'
        where = self.bag.source_of(index)
        raise DecodeError(self.name, index, self.type.text, detail, where) from exc

    # Many records, by their indices in the bag.

    def values(self, indices: Sequence[int] | Int64s) -> npt.NDArray[Any] | list[Any]:
        """Returns values: one new array (n, *shape) if the type has a fixed size, else a list."""
        decoder, count = self.decoder, len(indices)
        if count <= MAX_SINGLE_ITEMS and decoder.length <= MAX_SINGLE_BYTES and not self.bag.is_remote:
            table = self.table
            if table is not None and all(map(self.bounded.verified.verify, indices)):
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

        None if the type does not have a fixed size, or a record has another size.
        """
        decoder = self.decoder
        if decoder.dtype is None:
            return None
        if not decoder.length:
            return np.empty((len(indices), *decoder.shape), decoder.dtype)
        raw = None if self._is_too_large else self.bounded.fixed(indices, decoder.length)
        if raw is None:
            return None
        values = raw.view(decoder.dtype).reshape(len(indices), *decoder.shape)
        return None if decoder.dtype.kind in 'bU' and invalid_row(values) is not None else values

    def decoded(self, indices: Int64s) -> list[Any]:
        """Returns values, decoded one at a time."""
        decode = self.decoder.decode
        if self.decoder.lazy or (len(indices) <= MAX_SINGLE_RECORDS and not self.bag.is_remote):
            records: list[Any] = list(map(self.get_record, indices.tolist()))
        else:
            records = self.bounded.read(indices, views=self.decoder.accepts_view)
        return records if decode is None else self.decode_records(indices, records)

    def decode_records(self, indices: Int64s, records: Sequence[Any]) -> list[Any]:
        """Returns the values of records that were read, for a decoder with a `decode` function."""
        decode = self.decoder.decode
        assert decode is not None
        try:
            # Not `map`: a StopIteration in the decoder would end it early.
            return [decode(record) for record in records]
        except Exception:
            return [self._decode(*pair) for pair in zip(indices.tolist(), records, strict=True)]

    def _decode(self, index: int, record: Any) -> Any:
        assert self.decoder.decode is not None
        try:
            return self.decoder.decode(record)
        except Exception as exc:
            self.fail(index, exc)

    # Frames of a value.

    @cached_attribute
    def _frames(self) -> FifoCache[int, LazyFrames]:
        name, field_type, bag = self.name, self.type, self.bag  # Not self: a cycle would keep the file open.
        open_frames = self._open_frames
        assert open_frames is not None
        return FifoCache(
            lambda index: open_frames(Record(bag, index, name, field_type.text), *field_type.args),
            MAX_OPEN_FRAMES,
        )

    @cached_attribute
    def _open_frames(self) -> Callable[..., LazyFrames] | None:
        return self.decoder.find_frames()

    @property
    def has_frames(self) -> bool:
        """Whether values of the field have frames."""
        return self._open_frames is not None

    def frames(self, records: range | None, selection: FrameSelection) -> Any:
        """Returns frames of the values of consecutive records as one sequence; None for a missing value.

        The most recently opened records stay open.

        Raises:
            TypeError: Values of the type do not have frames.
        """
        if not self.has_frames and not are_pictures(self.type.format, self.type.args):
            raise TypeError(f'field {self.name!r} of type {self.type.text} has no frames: got {selection!r}')
        if records is None:
            return None
        frames = self.open_frames(records)
        if isinstance(selection.key, str):
            times = frames.times()
            return None if times is None else np.append(times.starts, times.end)
        return frames.count() if selection.key is None else frames[selection.key]

    def open_frames(self, records: range) -> Frames:
        """Returns the frames of the values of consecutive records: pictures, or values that have frames."""
        if not self.has_frames:
            return _ImageFrames(self, records)
        if not self.type.sequence:
            return _RecordFrames(self, records.start)
        return JoinedFrames(
            len(records),
            lambda record, numbers: self.read_frames(records[record], numbers),
            lambda record: self.frame_count(records[record]),
            lambda record: self.frame_times(records[record]),
            self.bag.is_remote,
            self.frames_name,
            getattr(self._open_frames, 'no_frames', NO_FRAME_TIMES),
        )

    @property
    def frames_name(self) -> str:
        """The name of frames in error messages."""
        return f'{self.bag.path}, field {self.name!r} of type {self.type.text}'

    def read_frames(self, index: int, numbers: Int64s) -> npt.NDArray[Any]:
        """Returns frames of a record, by their numbers."""
        try:
            frames: Any = self._frames[index][numbers]
            if not isinstance(frames, np.ndarray) or len(frames) != len(numbers):
                raise TypeError(f'expected an array of {len(numbers)} frames, got {type(frames).__name__}')
        except (BagsError, OSError):
            raise
        except Exception as exc:
            self.fail(index, exc)
        return frames

    def frame_times(self, index: int) -> FrameTimes | None:
        """Returns the times of the frames of a record; None without times."""
        return known_times(self._frames[index])

    def frame_count(self, index: int) -> Length:
        """Returns the number of frames of a record, and the error if frames are missing at its end."""
        if index in self._lengths:
            return self._lengths[index], None
        try:
            length, error = known_length(self._frames[index])
        except (BagsError, OSError):
            raise
        except Exception as exc:
            self.fail(index, exc)
        if error is None:
            self._lengths[index] = length
        elif not isinstance(error, BagsError):
            error = DecodeError(self.name, index, self.type.text, str(error), self.bag.source_of(index))
        return length, error


class _RecordFrames(Frames):
    """The frames of the value of a plain field."""

    def __init__(self, field: FieldReader, index: int) -> None:
        self._field, self._index = field, index

    @property
    def name(self) -> str:
        return self._field.frames_name

    def count(self, stop: int | None = None) -> int:
        length, error = self._field.frame_count(self._index)
        if error is not None and (stop is None or stop > length):
            raise error
        return length

    def read(self, numbers: Int64s) -> npt.NDArray[Any]:
        return self._field.read_frames(self._index, numbers)

    def times(self) -> FrameTimes | None:
        self.count()
        return self._field.frame_times(self._index)


class _ImageFrames(Frames):
    """The images of a sequence."""

    def __init__(self, field: FieldReader, records: range) -> None:
        self._field, self._records = field, records

    @property
    def name(self) -> str:
        return self._field.frames_name

    def count(self, stop: int | None = None) -> int:
        return len(self._records)

    def read(self, numbers: Int64s) -> Any:
        """Returns images: one array (n, *shape) if they have one shape, else a list."""
        images = self._field.values(self._records.start + numbers)
        shapes = {(np.shape(image), getattr(image, 'dtype', None)) for image in images}
        return np.stack(list(images)) if len(shapes) == 1 else images

    def times(self) -> None:
        """Returns None: images have no times of their own."""


def _too_large(
    field: str, type: str, bag: StoredRecords, max_size: int, index: int, size: int
) -> DecodeError:
    detail = (
        f'the record has {size} bytes, which exceeds max_value_size={max_size}: open the dataset with a '
        'larger max_value_size, or read parts of the record with dataset.file'
    )
    return DecodeError(field, index, type, detail, bag.source_of(index))


class Record:
    """A record that is opened on use, the argument of decoders with the attribute `lazy`.

    Creating it does not read anything. It keeps the files of the bag open, even after the dataset is closed.
    An unpickled record opens them again, by path.
    """

    __slots__ = ('_origin', 'bag', 'field', 'index', 'type')

    def __init__(self, bag: StoredRecords, index: int, field: str, type: str) -> None:
        if not 0 <= index < bag.count:
            raise IndexError(index)
        self.bag: StoredRecords | None = bag
        self.index = index
        self.field = field
        self.type = type
        self._origin: tuple[str, Callable[..., StoredRecords] | None] = bag.path, bag.reopen
        """The path of the bag, and the function that reopens it."""

    @property
    def name(self) -> str:
        """The name of the record in error messages."""
        # Representations show it too: they do not wait for a network.
        where = self._origin[0] if self.is_remote else self._where
        return f'{where}, field {self.field!r} of type {self.type}, record {self.index}'

    @property
    def _where(self) -> str:
        return self._origin[0] if self.bag is None else self.bag.source_of(self.index)

    @property
    def is_remote(self) -> bool:
        """Whether reading may wait for a network; True after unpickling, until the bag is open."""
        return self.bag is None or self.bag.is_remote

    def open(self) -> BinaryIO:
        """Opens the record as a file with its own position. A compressed record is read into memory."""
        return self._opened().open(self.index, f'{self._origin[0]}, record {self.index}')

    @property
    def segment(self) -> Segment | None:
        """The part of a linked video or recording that the record refers to; None for other records."""
        segment: Segment | None = self._opened().segment(self.index)
        return segment

    def _opened(self) -> StoredRecords:
        if self.bag is None:
            reopen = self._origin[1]
            assert reopen is not None
            self.bag = reopen()
        return self.bag

    def error(self, exc: Exception) -> DecodeError:
        """Returns the error to raise if the content of the record is invalid."""
        return DecodeError(self.field, self.index, self.type, str(exc) or type(exc).__name__, self._where)

    def __repr__(self) -> str:
        return f'Record({self.name!r})'

    def __getstate__(self) -> dict[str, Any]:
        return {'origin': self._origin, 'index': self.index, 'field': self.field, 'type': self.type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.bag = None
        self._origin = state['origin']
        self.index, self.field, self.type = state['index'], state['field'], state['type']
