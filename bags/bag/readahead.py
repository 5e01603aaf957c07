"""Reading ahead in a file that is waited for: what is read in order comes in ever longer pieces."""

from __future__ import annotations

from collections import deque

from bags.storage import File

__all__ = ['ReadAhead']

SMALL = 1 << 16  # Bytes of the first piece, and of those of reads here and there.
LARGE = 1 << 23
KEPT = 4  # Pieces.


class ReadAhead:
    """The bytes of a file from `start` to `stop`, of which the last few pieces that were read are kept."""

    def __init__(self, file: File, start: int, stop: int) -> None:
        self.file = file
        self.start = start
        self.stop = stop
        self._pieces: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._next = start  # Where a read goes on with the one before it,
        self._ahead = SMALL // 2  # and how much it then reads at least.

    def read(self, start: int, stop: int) -> bytes:
        """Returns the bytes of the file from `start` to `stop`."""
        parts, place = [], start
        while place < stop:
            part = self._kept(place, stop)
            if not part:
                part = self._fetch(place, stop)
            parts.append(part)
            place += len(part)
        self._next = stop
        return parts[0] if len(parts) == 1 else b''.join(parts)

    def _kept(self, start: int, stop: int) -> bytes:
        for first, data in self._pieces:
            if first <= start < first + len(data):
                return data[start - first : stop - first]
        return b''

    def _fetch(self, start: int, stop: int) -> bytes:
        """Reads to `stop`, or on; no further than to where a piece begins that is there already."""
        is_next = start == self._next or any(start == first + len(data) for first, data in self._pieces)
        self._ahead = min(LARGE, 2 * self._ahead) if is_next else SMALL
        limit = min([self.stop, *(first for first, _ in self._pieces if first > start)])
        end = min(max(stop, start + self._ahead), limit)
        data = bytes(self.file.read(start, end))
        if end - start <= LARGE or end > stop:
            self._pieces.append((start, data))
        return data[: stop - start]

    def expect(self, start: int, stop: int) -> None:
        """Reads bytes that are about to be asked for, in one request, as far as they are not there."""
        start, stop = max(start, self.start), min(stop, self.stop)
        while start < stop and (part := self._kept(start, stop)):
            start += len(part)
        if start < stop:
            self._pieces.append((start, bytes(self.file.read(start, stop))))
