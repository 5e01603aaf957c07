"""Records in memory, such as the values of an edit that is not saved yet."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from bags.bag.records import FileRanges, StoredRecords
from bags.indexing import Int64s, offsets_of
from bags.storage.memory_file import MemoryFile


class MemoryRecords(StoredRecords):
    """Records in memory, with the interface of a bag.

    Args:
        path: The path that errors name.
        records: The records.
    """

    is_remote = False
    is_compressed = False
    end = 0  # They are in memory already, so their size has no limit.

    def __init__(self, path: str, records: Sequence[bytes]) -> None:
        self.path, self.count = path, len(records)
        self._file = MemoryFile(path, b''.join(records))
        self._offsets = offsets_of(np.fromiter(map(len, records), np.int64, len(records)))
        self.reopen = functools.partial(MemoryRecords, path, records)

    @property
    def size(self) -> int:
        return self._file.size

    def locate(self, indices: Int64s | range) -> list[FileRanges]:
        positions = np.asarray(indices, np.int64)
        view = memoryview(self._file.buffer or b'')
        return [FileRanges(self._file, None, view, self._offsets[positions], self._offsets[positions + 1])]

    def read_bytes(self, starts: Int64s, stops: Int64s) -> list[bytes]:
        """Returns byte ranges of the concatenated records."""
        return self._file.read_many(starts, stops)

    def bytes_before(self, index: int) -> int:
        return int(self._offsets[index])

    def invalid(self, start: int, stop: int) -> list[tuple[int, str]]:
        return []

    def check_count(self, length: int, last: int) -> None:
        pass
