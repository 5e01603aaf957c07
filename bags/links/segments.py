"""Segments: records that are parts of linked videos and audio recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from bags.bag.checksums import digest_function, digests_of
from bags.indexing import Int64s
from bags.storage import File
from bags.storage.range_file import RangeFile, read_pieces

MAX_FRAME_TABLE_BYTES = 1 << 28
"""Maximum bytes of parsed tables of linked files that a dataset holds in memory; a frame takes 75 bytes."""


class Parsed(NamedTuple):
    """A value parsed from a linked file, such as its frame table."""

    value: Any
    size: int
    """Memory of the value, in bytes."""


class ParsedFiles(dict[Any, Parsed]):
    """Cache of values parsed from linked files, shared by their segments; at most `MAX_FRAME_TABLE_BYTES`."""

    def add(self, key: Any, found: Parsed) -> Parsed:
        """Adds a value, and drops the oldest ones above the maximum. Needs no lock: see `FifoCache`."""
        total = sum(parsed.size for parsed in list(self.values()))
        while self and total + found.size > MAX_FRAME_TABLE_BYTES:
            try:
                total -= self.pop(next(iter(self))).size
            except (KeyError, RuntimeError, StopIteration):
                break  # Another thread dropped entries.
        self[key] = found
        return found


class LinkedType(Protocol):
    """The members of `FieldType` of a spec that segments use."""

    @property
    def format(self) -> str: ...

    @property
    def args(self) -> tuple[str, ...]: ...

    @property
    def text(self) -> str: ...


class Segment(NamedTuple):
    """A part of a video or recording in a range of a linked file."""

    type: LinkedType
    """The type of the field, whose format is `video` or `audio`."""
    first: int
    """Index of the first frame or sample."""
    stop: int
    """Index after the last frame or sample; 0 for the whole range."""
    file: File
    start: int
    end: int
    """`start` to `end` is the byte range in the file."""
    where: Any
    """Key that identifies the file and the range."""
    held: ParsedFiles
    """Cache of values parsed from the linked files of the dataset."""

    def open(self) -> BinaryIO:
        """Opens the range of the file, without reading."""
        return RangeFile(self.file, self.start, self.end, self.file.path)  # type: ignore[return-value]

    def parsed(self, name: Any, parse: Callable[[], Parsed]) -> Any:
        """Returns the value that `parse` makes of the range, cached under `name`."""
        key = (self.where, name)
        return (self.held.get(key) or self.held.add(key, parse())).value

    def digest(self) -> int:
        """Returns the checksum of the record: of the checksum of the range and the frame limits.

        The checksum of the range is computed once and cached.
        """

        def read() -> Parsed:
            (digest,) = digests_of(read_pieces(self.open(), self.end - self.start), None)
            return Parsed(digest, 8)

        of_range: int = self.parsed('digest', read)
        if not self.stop:
            return of_range
        digest: int = digest_function()(np.array([of_range, self.first, self.stop], '<u8').tobytes())
        return digest


def shares_of(numbers: Int64s, starts: Int64s, ends: Int64s, frames: Int64s) -> Int64s:
    """Returns the number of bytes of each record, shape (n,).

    The bytes of a range are divided among its segments in proportion to their frames.

    Args:
        numbers, starts, ends: File number and byte range of each record.
        frames: First frame and end of each segment, shape (n, 2); zeros for other records.
    """
    sizes: Int64s = np.maximum(ends - starts, 0)
    segments = np.flatnonzero(frames[:, 1] > frames[:, 0])
    counts = frames[segments, 1] - frames[segments, 0]
    _, groups = np.unique(np.stack([numbers, starts, ends], 1)[segments], axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    shares = counts / np.bincount(groups, counts)[groups]
    sizes[segments] = (sizes[segments] * shares).astype(np.int64)
    return sizes
