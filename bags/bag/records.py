"""Records by index: where each is stored, and how it is read from there."""

from __future__ import annotations

import abc
import copy
import io
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import Checksums, checksums_name, digest_function, digests_of
from bags.bag.options import ReaderOptions
from bags.bag.verified import VerifiedBlocks
from bags.bag.zstd import Buffer, Zstd
from bags.concurrency import Shareable, cached_attribute, map_concurrently
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import File
from bags.storage.range_file import RangeFile

MAX_ITEM = 1 << 13  # Consecutive records of one size, up to this, are created by one NumPy call.
CHECKED_BYTES = 1 << 22  # Bytes read at a time to compare a record with its checksum.


class FileRanges(NamedTuple):
    """Where records are stored: a range of one file each."""

    file: File
    codec: Zstd | None
    """Decompresses the records; None if they are not compressed."""
    view: Any
    """An object whose slices are views of the file, if records can be used in place; else None."""
    starts: Int64s
    """The first byte of each record, shape (n,)."""
    stops: Int64s
    """The end of each record, shape (n,)."""
    positions: Int64s | None = None
    """Positions of these records among the requested ones, shape (n,); None if they are all, in order."""
    are_segments: bool = False
    """Whether each record is made of a part of the video or recording in its file. Its range is then as long
    as its share of that."""

    @property
    def are_stored(self) -> bool:
        """Whether the bytes in the ranges are the records: neither compressed, nor segments."""
        return self.codec is None and not self.are_segments


class StoredRecords(Shareable, abc.ABC):
    """`count` records, each a range of a file. Thread-safe.

    All reads follow from `locate`, which says for each record in which file it is, from where to where, and
    in which compression. A subclass overrides other methods where it can do the same faster.
    """

    path: str
    """What errors name: the file of the records, or of where they are."""
    count: int
    is_remote: bool
    """Whether reads wait for a network."""
    codec: Zstd | None = None
    """The compression of the records, which a copy keeps; None if they are not compressed."""
    checksums: Checksums | None = None
    """The checksums to compare records with, if any."""
    options: ReaderOptions | None = None
    """How the records were opened; None if they cannot be opened again."""
    reopen: Callable[..., StoredRecords] | None = None
    """Opens them again, with other options if given some, also in another process; can be pickled."""
    length = 0
    """The length of all records if they seem to be a table of rows of one length in `buffer`; else 0."""
    buffer: Any = None
    """The whole file of the records, if they are in one that is in memory or mapped; else None."""
    in_place = False
    """Whether each record is a slice of `buffer` and of `view`: it is neither compressed nor compared with a
    checksum. It then ends at its number in `ends_view`, at most at `end`."""
    view: Any = None
    """As `buffer`, but its slices are views of the file."""
    ends_view: memoryview
    end: int

    @abc.abstractmethod
    def locate(self, indices: Int64s | range) -> list[FileRanges]:
        """Returns where records are, by file, for indices in `range(count)`.

        Raises:
            CorruptError: A range that cannot be that of a record.
        """

    @property
    def own_bags(self) -> tuple[Any, ...]:
        """The bags of the dataset that the records are in, or what says where they are: each a `BagFile`."""
        return ()

    @property
    @abc.abstractmethod
    def is_compressed(self) -> bool:
        """Whether some of the records are compressed."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Bytes of the records as stored, and of what says where they are."""

    @abc.abstractmethod
    def bytes_before(self, index: int) -> int:
        """Returns the bytes of `size` before a record, for an index in `range(count)`."""

    @abc.abstractmethod
    def invalid(self, start: int, stop: int) -> list[tuple[int, str]]:
        """Returns the records from `start` to `stop` that `locate` refuses, and why."""

    def unreadable_links(self, start: int, stop: int) -> list[tuple[list[int], str]]:
        """Returns links that cannot be followed, and why: together those with one reason, as of one file."""
        return []

    @abc.abstractmethod
    def check_count(self, length: int, last: int) -> None:
        """Raises CorruptError if the records seem to be fewer, or other ones, than were written.

        Args:
            length: Bytes of each record; 0 if they differ.
            last: A record that was written; -1 if none is known.
        """

    def cut_error(self, index: int | None, exc: EOFError) -> CorruptError:
        """Returns the error for a file that has become shorter, found at a record if that is known."""
        return CorruptError(self.path, index, str(exc))

    @cached_attribute
    def verified(self) -> VerifiedBlocks:
        """The blocks of records that are rows of `length` bytes."""
        return VerifiedBlocks(self.count, lambda *_: False)

    @property
    def has_checksums(self) -> bool:
        """Whether the records have checksums, also if they are not compared with them."""
        if self.checksums is not None or self.options is None:
            return self.checksums is not None
        return self.options.store_of(self.path).exists(checksums_name(self.path))

    # One record.

    # Functions refer to a copy: a reference cycle would keep files open until the garbage collector runs.

    @cached_attribute
    def get(self) -> Callable[[int], bytes]:
        """The fastest function from an index to a record as bytes."""
        return copy.copy(self).record

    @cached_attribute
    def get_view(self) -> Callable[[int], Buffer]:
        """The fastest function from an index to a record as a buffer: a view of the file if it is mapped."""
        return copy.copy(self).record_view

    def record(self, index: int) -> bytes:
        """Returns a record, for any integer that Python accepts as an index.

        Raises:
            IndexError: Out of range.
            CorruptError: An invalid range or a damaged frame.
        """
        index = check_index(index, self.count)
        (found,) = self.locate(np.array([index]))
        try:
            data = bytes(found.file.read(int(found.starts[0]), int(found.stops[0])))
        except EOFError as exc:
            raise self.cut_error(index, exc) from exc
        if self.checksums is not None:
            self.checksums.check(range(index, index + 1), [data])
        return data if found.codec is None else self.decode(found.codec, index, data)

    def record_view(self, index: int) -> Buffer:
        """As `record`; a view of the file if it is mapped and not compressed."""
        index = check_index(index, self.count)
        (found,) = self.locate(np.array([index]))
        if found.view is None or found.codec is not None:
            return self.record(index)
        view: Buffer = found.view[int(found.starts[0]) : int(found.stops[0])]
        return view

    def open(self, index: int, name: str) -> BinaryIO:
        """Opens a record as a file with its own position. A compressed record, or a segment, is in memory.

        Args:
            index: The record, in `range(count)`.
            name: The name of the record in messages.

        Raises:
            CorruptError: The record is damaged, or differs from its checksum, if there is one.
        """
        (found,) = self.locate(np.array([index]))
        return self.open_range(index, found, name)

    def open_range(self, index: int, found: FileRanges, name: str) -> BinaryIO:
        """As `open`, of a record that is located already."""
        if not found.are_stored:
            return io.BytesIO(self.get(index))
        file, start, stop = found.file, int(found.starts[0]), int(found.stops[0])
        if self.checksums is not None:
            offsets = range(start, stop, CHECKED_BYTES)
            pieces = (file.read(offset, min(offset + CHECKED_BYTES, stop)) for offset in offsets)
            self.checksums.compare(range(index, index + 1), digests_of(pieces, None))
        return RangeFile(file, start, stop, name)  # type: ignore[return-value]

    def decode(self, codec: Zstd, index: int, frame: Buffer) -> bytes:
        """Returns the record of a frame.

        Raises:
            CorruptError: The frame is damaged, or its record exceeds `max_record_size`.
        """
        try:
            return codec.decode(frame)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc

    def segment(self, index: int) -> Any:
        """Returns the part of a linked file that a record is, a `Segment`; None for other records.

        Raises:
            CorruptError: The link is damaged, or the file differs from its checksum.
        """
        return None

    # Many records.

    def sizes(self, indices: Int64s | range) -> Int64s:
        """Returns the bytes of records as stored, shape (n,)."""
        sizes = np.empty(len(indices), np.int64)
        for found in self.locate(indices):
            sizes[slice(None) if found.positions is None else found.positions] = found.stops - found.starts
        return sizes

    def expect(self, indices: Int64s) -> None:
        """Announces records to read next."""
        for found in self.locate(indices):
            found.file.expect(found.starts, found.stops)

    def read(
        self, indices: Int64s | range, parallelism: int = 1, *, stored: bool = False, views: bool = False
    ) -> list[Any]:
        """Returns records by indices in `range(count)`, in the order of these.

        Args:
            indices: The records.
            parallelism: Maximum number of threads that decompress.
            stored: Return compressed records as their frames.
            views: Return views of a file where it is mapped and the records are not compressed.
        """
        found = self.locate(indices)
        if len(found) == 1 and found[0].positions is None:
            return self.read_ranges(indices, found[0], parallelism, stored, views)
        records: list[Any] = [None] * len(indices)

        def read(ranges: FileRanges) -> None:
            assert ranges.positions is not None
            some = np.asarray(indices)[ranges.positions]
            values = self.read_ranges(some, ranges, parallelism, stored, views)
            for position, record in zip(ranges.positions.tolist(), values, strict=True):
                records[position] = record

        map_concurrently(read, found, any(ranges.file.is_remote for ranges in found))
        return records

    def read_ranges(
        self, indices: Int64s | range, ranges: FileRanges, parallelism: int, stored: bool, views: bool
    ) -> list[Any]:
        """Returns the records of one file."""
        file, codec, view, starts, stops, *_ = ranges
        if not len(starts):
            return []
        codec = None if stored else codec
        if view is not None and isinstance(indices, range) and not views:
            found = _read_consecutive(ranges, codec, parallelism)
            if found is not None:
                return found
        if view is not None and (codec is not None or views):
            if len(starts) > 1:
                file.expect(starts, stops)
            frames = [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        else:
            try:
                frames = file.read_many(starts, stops)
            except EOFError as exc:
                raise self.cut_error(int(indices[0]) if len(indices) == 1 else None, exc) from exc
            if self.checksums is not None:
                self.checksums.check(indices, frames)
        if codec is None:
            return frames
        try:
            return codec.decode_many(frames, parallelism)
        except ValueError:
            pairs = zip(indices, frames, strict=True)
            return [self.decode(codec, int(index), frame) for index, frame in pairs]

    def digests(self, indices: Int64s) -> list[int]:
        """Returns the checksums of records, which are read."""
        return list(map(digest_function(), self.read(indices, stored=True)))

    def fixed(self, indices: Int64s, length: int) -> npt.NDArray[np.uint8] | None:
        """Returns records of one length as a new array (n, length); None if a record has another length."""
        records = self.read(indices)
        if {*map(len, records)} - {length}:
            return None
        return np.frombuffer(bytearray().join(records), np.uint8).reshape(len(records), length)


def _read_consecutive(ranges: FileRanges, codec: Zstd | None, parallelism: int) -> list[bytes] | None:
    """Returns records of a mapped file that follow each other by one call; None if that cannot be."""
    file, _, view, starts, stops, *_ = ranges
    if np.count_nonzero(starts[1:] != stops[:-1]):
        return None
    first, sizes = int(starts[0]), stops - starts
    size = int(sizes[0])
    file.expect(starts[:1], stops[-1:])
    if codec is not None:
        # Slicing each frame takes 3.2 us of CPU time a record of 100 B instead of 2.1.
        return codec.decode_batch([view[first : int(stops[-1])]], sizes, parallelism)
    if not 0 < size <= MAX_ITEM or np.count_nonzero(sizes != size):
        return None
    records: list[bytes] = np.ndarray(sizes.shape, f'V{size}', file.buffer, first).tolist()
    return records
