"""A linked file other than a bag, opened on first read."""

from __future__ import annotations

import mmap
from typing import Any

from bags.links.linked_files import CheckedObject
from bags.storage.base import Buffer, Offsets


class LinkedObject:
    """A linked file other than a bag, opened on first read.

    Args:
        records: The `LinkedRecords` that open the file. Their errors name the record.
        number: Number of the file.
        index: Index of the record.
        size, is_remote: As in `File`.
    """

    buffer: mmap.mmap | bytes | None = None
    version = ''

    def __init__(self, records: Any, number: int, index: int | None, size: int, is_remote: bool) -> None:
        self._of = records, number, index
        self.size, self.is_remote = size, is_remote
        self.cached_from = size if is_remote else 0

    @property
    def path(self) -> str:
        """Path or URL of the file, if links may reach it."""
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.path)  # type: ignore[no-any-return]

    def read(self, start: int, stop: int) -> Buffer:
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.read(start, stop))  # type: ignore[no-any-return]

    fetch = read

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.read_many(starts, stops))  # type: ignore[no-any-return]

    def check(self) -> None:
        """Compares size and sample of the file with its entry."""
        records, number, index = self._of
        records.read_file(
            number, index, lambda file: file.check() if isinstance(file, CheckedObject) else None
        )

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        pass  # Opening many files ahead costs more than it saves.
