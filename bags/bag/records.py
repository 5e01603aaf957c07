"""`StoredRecords`: records by index, located in byte ranges of files, and read from there."""

from __future__ import annotations

import abc
import copy
import io
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import Checksums, checksums_name, digest_function, digests_of
from bags.bag.compression import Buffer, Zstd
from bags.bag.options import ReaderOptions
from bags.bag.verified import VerifiedBlocks
from bags.concurrency import Shareable, cached_attribute, map_concurrently
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import File
from bags.storage.range_file import RangeFile

MAX_ITEM = 1 << 13  # Consecutive records of equal size, up to this many bytes, are created by one NumPy call.
MAX_FRAME_OVERHEAD = 1 << 20  # Bytes of a zstd frame, in addition to its content. In practice, it is smaller.
CHECKED_BYTES = 1 << 22  # Bytes read at a time to compare a record with its checksum.


class FileRanges(NamedTuple):
    """The byte ranges of records in one file."""

    file: File
    codec: Zstd | None
    """Decompresses the records; None if they are not compressed."""
    view: Any
    """An object whose slices are views of the file, if records can be used in place; else None."""
    starts: Int64s
    """Offset of the first byte of each record, shape (n,)."""
    stops: Int64s
    """Offset of the end of each record, shape (n,)."""
    positions: Int64s | None = None
    """Positions of these records among the requested ones, shape (n,); None if they are all of them, in
    order."""
    are_segments: bool = False
    """Whether each record is a part of the video or recording in the file. The length of its range is then
    its share of the bytes of that video or recording."""

    @property
    def are_stored(self) -> bool:
        """Whether the bytes in the ranges are the records themselves: neither compressed, nor segments."""
        return self.codec is None and not self.are_segments


class SizeLimit(NamedTuple):
    """The maximum size of records that are read as a whole."""

    max_size: int
    """Bytes of a record as stored."""
    error: Callable[[int, int], Exception]
    """Returns the error for a larger record, given its index and size."""


class StoredRecords(Shareable, abc.ABC):
    """`count` records, each a byte range of a file. Thread-safe.

    All reads are based on `locate`, which returns the file, byte range and compression of records. Subclasses
    override other methods where they can be faster.
    """

    path: str
    """The path that errors name: the file with the records, or with their locations."""
    count: int
    is_remote: bool
    """Whether reads wait for a network."""
    codec: Zstd | None = None
    """The compression of the records, which copies keep; None if they are not compressed."""
    checksums: Checksums | None = None
    """The checksums with which records are compared, if any."""
    options: ReaderOptions | None = None
    """The options with which the records were opened; None if they cannot be reopened."""
    reopen: Callable[..., StoredRecords] | None = None
    """Reopens the records, optionally with changed options, also in another process. Picklable."""
    length = 0
    """The length of all records, if they seem to be a table in `buffer` with rows of equal length; else 0."""
    buffer: Any = None
    """The whole file, if all records are in one file that is in memory or memory-mapped; else None."""
    in_place = False
    """Whether each record is a slice of `buffer` and of `view`, i.e. neither compressed nor compared with a
    checksum. `ends_view` then contains the end of each record, which is valid up to `end`."""
    view: Any = None
    """As `buffer`, but slices are views of the file."""
    ends_view: memoryview
    end: int = sys.maxsize
    """Maximum end of the records in their file; unknown if they are in several files."""
    size_limit: SizeLimit | None = None
    """The limit of records that are read as a whole; None if records have any size, or all are smaller."""

    def with_limit(self, limit: SizeLimit) -> Self:
        """Returns these records, of which those above a limit cannot be read as a whole, only opened."""
        limited = copy.copy(self)
        limited.size_limit = limit
        return limited

    def expect_size(self, index: int, size: int, codec: Zstd | None) -> None:
        """Raises an error if a record is too large to be read as a whole.

        Args:
            index: Index of the record.
            size: Its bytes as stored.
            codec: Decompresses the record; None if it is not compressed.

        Raises:
            Exception: The error of `size_limit`.
            CorruptError: A frame is too large for a record of `max_record_size` bytes.
        """
        if self.size_limit is not None and size > self.size_limit.max_size:
            raise self.size_limit.error(index, size)
        if codec is not None and size > 2 * codec.max_record_size + MAX_FRAME_OVERHEAD:
            detail = f'the zstd frame has {size} bytes, too many for max_record_size={codec.max_record_size}'
            raise CorruptError(self.path, index, detail)

    @abc.abstractmethod
    def locate(self, indices: Int64s | range) -> list[FileRanges]:
        """Returns the locations of records, grouped by file, for indices in `range(count)`.

        Raises:
            CorruptError: The range of a record is invalid.
        """

    @property
    def own_bags(self) -> tuple[Any, ...]:
        """The bags of the dataset that contain the records or their locations. Each is a `BagFile`."""
        return ()

    @property
    @abc.abstractmethod
    def is_compressed(self) -> bool:
        """Whether some of the records are compressed."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Bytes of the records as stored, and of their locations."""

    @abc.abstractmethod
    def bytes_before(self, index: int) -> int:
        """Returns how many bytes of `size` precede a record, for an index in `range(count)`."""

    @abc.abstractmethod
    def invalid(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Returns the records from `start` to `stop` that `locate` rejects, and the reasons."""

    def unreadable_links(self, start: int, stop: int) -> list[tuple[list[int], str]]:
        """Returns links that cannot be followed, grouped by reason, and the reasons."""
        return []

    @abc.abstractmethod
    def check_count(self, length: int, last: int) -> None:
        """Raises CorruptError if the records seem to differ from the written records, or to be fewer.

        Args:
            length: Bytes of each record; 0 if the sizes differ.
            last: Index of a record that was written; -1 if unknown.
        """

    def source_of(self, index: int) -> str:
        """Returns the name of the file with a record, for errors; for a linked record, of the linked file."""
        return self.path

    def damaged(self, index: int, detail: str) -> CorruptError:
        """Returns the error for a damaged record."""
        return CorruptError(self.path, index, detail)

    def compare(self, indices: Int64s | range, digests: Iterable[int]) -> None:
        """Raises CorruptError if a record differs from its checksum, given the digests of the records."""
        assert self.checksums is not None
        self.checksums.compare(indices, digests)

    def check_records(self, indices: Int64s | range, records: Iterable[Any]) -> None:
        """Raises CorruptError if a stored record differs from its checksum."""
        assert self.checksums is not None
        self.compare(indices, map(self.checksums.digest, records))

    def cut_error(self, index: int | None, exc: EOFError) -> CorruptError:
        """Returns the error for a file that has become shorter; it names record `index`, if known."""
        return CorruptError(self.path, index, str(exc))

    @cached_attribute
    def verified(self) -> VerifiedBlocks:
        """The verified blocks of a table with rows of `length` bytes."""
        return VerifiedBlocks(self.count, lambda *_: False)

    @property
    def has_checksums(self) -> bool:
        """Whether the records have checksums, even if reads do not compare them."""
        if self.checksums is not None or self.options is None:
            return self.checksums is not None
        return self.options.store_of(self.path).exists(checksums_name(self.path))

    # One record.

    # Bound to a copy: a reference cycle would keep files open until the garbage collector runs.

    @cached_attribute
    def get(self) -> Callable[[int], bytes]:
        """The fastest function that returns the record at an index as bytes."""
        return copy.copy(self).record

    @cached_attribute
    def get_view(self) -> Callable[[int], Buffer]:
        """The fastest function that returns the record at an index as a buffer: a view of a mapped file."""
        return copy.copy(self).record_view

    def record(self, index: int) -> bytes:
        """Returns a record, for any integer that Python accepts as an index.

        Raises:
            IndexError: The index is out of range.
            CorruptError: The range of the record is invalid, or its frame is damaged.
        """
        index = check_index(index, self.count)
        (ranges,) = self.locate(np.array([index]))
        if self.size_limit is not None or ranges.codec is not None:
            self.expect_size(index, int(ranges.stops[0] - ranges.starts[0]), ranges.codec)
        try:
            data = bytes(ranges.file.read(int(ranges.starts[0]), int(ranges.stops[0])))
        except EOFError as exc:
            raise self.cut_error(index, exc) from exc
        if self.checksums is not None:
            self.check_records(range(index, index + 1), [data])
        return data if ranges.codec is None else self.decode(ranges.codec, index, data)

    def record_view(self, index: int) -> Buffer:
        """As `record`, but returns a view of the file if it is mapped and the record is not compressed."""
        index = check_index(index, self.count)
        (ranges,) = self.locate(np.array([index]))
        if ranges.view is None or ranges.codec is not None:
            return self.record(index)
        if self.size_limit is not None:
            self.expect_size(index, int(ranges.stops[0] - ranges.starts[0]), None)
        view: Buffer = ranges.view[int(ranges.starts[0]) : int(ranges.stops[0])]
        return view

    def open(self, index: int, name: str) -> BinaryIO:
        """Opens a record as a file object with its own position; in memory if compressed, or a segment.

        Args:
            index: Index of the record, in `range(count)`.
            name: Name of the record in messages.

        Raises:
            CorruptError: The record is damaged, or differs from its checksum, if it has one.
        """
        (ranges,) = self.locate(np.array([index]))
        return self.open_range(index, ranges, name)

    def open_range(self, index: int, found: FileRanges, name: str) -> BinaryIO:
        """As `open`, for a record that was located before."""
        if not found.are_stored:
            return io.BytesIO(self.get(index))
        file, start, stop = found.file, int(found.starts[0]), int(found.stops[0])
        if self.checksums is not None:
            offsets = range(start, stop, CHECKED_BYTES)
            pieces = (file.read(offset, min(offset + CHECKED_BYTES, stop)) for offset in offsets)
            self.compare(range(index, index + 1), digests_of(pieces, None))
        return RangeFile(file, start, stop, name)  # type: ignore[return-value]

    def decode(self, codec: Zstd, index: int, frame: Buffer) -> bytes:
        """Decompresses the frame of a record.

        Raises:
            CorruptError: The frame is damaged, or the record exceeds `max_record_size`.
        """
        try:
            return codec.decode(frame)
        except ValueError as exc:
            raise self.damaged(index, str(exc)) from exc

    def segment(self, index: int) -> Any:
        """Returns the `Segment` of a record that is a part of a linked file; None for other records.

        Raises:
            CorruptError: The link is damaged, or the file differs from its checksum.
        """
        return None

    # Many records.

    def sizes(self, indices: Int64s | range) -> Int64s:
        """Returns the number of bytes of records as stored, shape (n,)."""
        sizes = np.empty(len(indices), np.int64)
        for ranges in self.locate(indices):
            positions = slice(None) if ranges.positions is None else ranges.positions
            sizes[positions] = ranges.stops - ranges.starts
        return sizes

    def stored_range(self, index: int) -> tuple[File, int, int] | None:
        """Returns the file, the first byte and the end of a record that is stored as it is; else None."""
        (ranges,) = self.locate(np.array([index]))
        return (ranges.file, int(ranges.starts[0]), int(ranges.stops[0])) if ranges.are_stored else None

    def will_need(self, indices: Int64s) -> None:
        """Announces the records to read next."""
        for ranges in self.locate(indices):
            ranges.file.will_need(ranges.starts, ranges.stops)

    def read(
        self, indices: Int64s | range, parallelism: int = 1, *, stored: bool = False, views: bool = False
    ) -> list[Any]:
        """Returns the records at indices in `range(count)`, in the order of the indices.

        Args:
            indices: Indices of the records.
            parallelism: Maximum number of threads for decompression.
            stored: Whether to return compressed records as frames.
            views: Whether to return views of files that are mapped, if the records are not compressed.
        """
        located = self.locate(indices)
        if len(located) == 1 and located[0].positions is None:
            return self.read_ranges(indices, located[0], parallelism, stored, views)
        records: list[Any] = [None] * len(indices)

        def read(ranges: FileRanges) -> None:
            assert ranges.positions is not None
            indices_in_file = np.asarray(indices)[ranges.positions]
            values = self.read_ranges(indices_in_file, ranges, parallelism, stored, views)
            for position, record in zip(ranges.positions.tolist(), values, strict=True):
                records[position] = record

        map_concurrently(read, located, any(ranges.file.is_remote for ranges in located))
        return records

    def read_ranges(
        self, indices: Int64s | range, ranges: FileRanges, parallelism: int, stored: bool, views: bool
    ) -> list[Any]:
        """Returns the records in one file."""
        file, codec, view, starts, stops, *_ = ranges
        if not len(starts):
            return []
        if self.size_limit is not None or codec is not None:
            largest = int((stops - starts).argmax())
            self.expect_size(int(indices[largest]), int(stops[largest] - starts[largest]), codec)
        codec = None if stored else codec
        if view is not None and isinstance(indices, range) and not views:
            records = _read_consecutive(ranges, codec, parallelism)
            if records is not None:
                return records
        if view is not None and (codec is not None or views):
            if len(starts) > 1:
                file.will_need(starts, stops)
            frames = [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        else:
            try:
                frames = file.read_many(starts, stops)
            except EOFError as exc:
                raise self.cut_error(int(indices[0]) if len(indices) == 1 else None, exc) from exc
            if self.checksums is not None:
                self.check_records(indices, frames)
        if codec is None:
            return frames
        try:
            return codec.decode_many(frames, parallelism)
        except ValueError:
            pairs = zip(indices, frames, strict=True)
            return [self.decode(codec, int(index), frame) for index, frame in pairs]

    def digests(self, indices: Int64s) -> list[int]:
        """Reads records and returns their checksums."""
        return list(map(digest_function(), self.read(indices, stored=True)))

    def fixed(self, indices: Int64s, length: int) -> npt.NDArray[np.uint8] | None:
        """Returns records of equal length as a new array (n, length); None if a record has another length."""
        records = self.read(indices)
        if {*map(len, records)} - {length}:
            return None
        return np.frombuffer(bytearray().join(records), np.uint8).reshape(len(records), length)


def _read_consecutive(ranges: FileRanges, codec: Zstd | None, parallelism: int) -> list[bytes] | None:
    """Reads consecutive records of a mapped file with one call; returns None if that is not possible."""
    file, _, view, starts, stops, *_ = ranges
    if np.count_nonzero(starts[1:] != stops[:-1]):
        return None
    first, sizes = int(starts[0]), stops - starts
    size = int(sizes[0])
    file.will_need(starts[:1], stops[-1:])
    if codec is not None:
        # With a slice for each frame, a record of 100 B takes 3.2 us of CPU time instead of 2.1.
        return codec.decode_batch([view[first : int(stops[-1])]], sizes, parallelism)
    if not 0 < size <= MAX_ITEM or np.count_nonzero(sizes != size):
        return None
    records: list[bytes] = np.ndarray(sizes.shape, f'V{size}', file.buffer, first).tolist()
    return records
