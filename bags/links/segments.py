"""Segments: records that are parts of linked videos and recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bags.bag.checksums import digest_function, digests_of
from bags.indexing import Int64s
from bags.storage import File
from bags.storage.range_file import RangeFile, read_pieces

MAX_HELD_BYTES = 1 << 28
"""Maximum bytes of the parsed tables of linked files that a dataset holds; 75 a frame."""


class Parsed(NamedTuple):
    """What was parsed of a linked file."""

    value: Any
    size: int
    """Bytes in memory."""


class ParsedFiles(dict[Any, Parsed]):
    """What was parsed of linked files, shared by their segments: the latest up to `MAX_HELD_BYTES`."""

    def add(self, key: Any, found: Parsed) -> Parsed:
        """Holds what was parsed, and drops the oldest beyond the maximum. Without a lock: see `FifoCache`."""
        held = sum(each.size for each in list(self.values()))
        while self and held + found.size > MAX_HELD_BYTES:
            try:
                held -= self.pop(next(iter(self))).size
            except (KeyError, RuntimeError, StopIteration):
                break  # Another thread did it.
        self[key] = found
        return found


class Segment(NamedTuple):
    """A part of a video or recording in a range of a linked file."""

    type: Any
    """The type of the field, a `FieldType` with the word `video` or `audio`."""
    first: int
    """The first frame, or the first sample."""
    stop: int
    """The end in frames or samples; 0 for the whole range."""
    file: File
    start: int
    end: int
    """The range of the file."""
    where: Any
    """Tells the range from those of other files."""
    held: ParsedFiles
    """What was parsed of the dataset's linked files."""

    def open(self) -> BinaryIO:
        """Opens the range of the file. Reads nothing yet."""
        return RangeFile(self.file, self.start, self.end, self.file.path)  # type: ignore[return-value]

    def parsed(self, name: Any, parse: Callable[[], Parsed]) -> Any:
        """Returns what `parse` found in the range when it was first called for a name."""
        key = (self.where, name)
        return (self.held.get(key) or self.held.add(key, parse())).value

    def digest(self) -> int:
        """Returns the checksum of the record: that of the range, which is read once, and of the frames."""

        def read() -> Parsed:
            (digest,) = digests_of(read_pieces(self.open(), self.end - self.start), None)
            return Parsed(digest, 8)

        of_range: int = self.parsed('digest', read)
        if not self.stop:
            return of_range
        digest: int = digest_function()(np.array([of_range, self.first, self.stop], '<u8').tobytes())
        return digest


def shares_of(numbers: Int64s, starts: Int64s, ends: Int64s, frames: Int64s) -> Int64s:
    """Returns the bytes of each record, shape (n,): those of a range are divided by the frames of segments.

    Args:
        numbers, starts, ends: The file and the range of each record.
        frames: The first frame and the end of each segment, shape (n, 2); zeros for other records.
    """
    sizes: Int64s = np.maximum(ends - starts, 0)
    mine = np.flatnonzero(frames[:, 1] > frames[:, 0])
    counts = frames[mine, 1] - frames[mine, 0]
    _, which = np.unique(np.stack([numbers, starts, ends], 1)[mine], axis=0, return_inverse=True)
    which = which.reshape(-1)
    shares = counts / np.bincount(which, counts)[which]
    sizes[mine] = (sizes[mine] * shares).astype(np.int64)
    return sizes
