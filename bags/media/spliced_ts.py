"""Finds the joins of transport streams that are concatenated, e.g. with `cat`, and continues their clock.

Each packet of a stream has a counter from 0 to 15. A missing counter means that data may be lost. At a join,
no data is lost, and the counters of the tables restart, since every transport stream begins with tables.
"""

from __future__ import annotations

import numpy as np

from bags.storage.range_file import BorrowedFile

JOINED_FORMATS = ('MPEG-TS', 'M2TS', 'MPEG-PS')
"""Formats whose files can be joined, so that their times may restart."""
MAX_SEARCHED_BYTES = 1 << 20
"""Maximum number of bytes to search for tables, which are at most a second apart: 1 MiB at 8 Mbit/s."""
TABLES = (0, 17)
"""The streams of the two tables: the table of programs and the table of their descriptions."""


class JoinedClock:
    """Continues the times of a stream at a join, where they restart, as FFmpeg does."""

    def __init__(self) -> None:
        self._offset = 0
        self._end: int | None = None

    def times(self, pts: int | None, dts: int | None, duration: int) -> tuple[int | None, int | None, int]:
        """Returns the times of the next packet in decoding order: presentation, decoding, duration."""
        if dts is not None:
            if self._end is not None and dts + self._offset < self._end - duration:
                self._offset = self._end - dts
            self._end = dts + self._offset + duration
        shifted = (None if time is None else time + self._offset for time in (pts, dts))
        return next(shifted), next(shifted), duration


def is_join(file: BorrowedFile, start: int, stop: int, name: str) -> bool:
    """Returns whether another transport stream begins after the byte `start` and before `stop`."""
    if name not in ('MPEG-TS', 'M2TS'):
        return False
    width, skipped = (192, 4) if name == 'M2TS' else (188, 0)
    low = max(0, start - MAX_SEARCHED_BYTES) // width * width
    head = _counters(file.read_at(0, MAX_SEARCHED_BYTES), width, skipped)
    part = _counters(file.read_at(low, stop - low), width, skipped)
    for table in TABLES:
        first = next((counter for _, stream, counter in head if stream == table), None)
        before: int | None = None
        for position, stream, counter in part:
            if stream == table:
                is_next = before is not None and counter == before + 1 & 15
                if low + position > start and counter == first and not is_next:
                    return True
                before = counter
    return False


def _counters(data: bytes, width: int, skipped: int) -> list[tuple[int, int, int]]:
    """Returns the position, the stream and the counter of each packet of a table."""
    count = len(data) // width
    packets = np.frombuffer(data, np.uint8, count * width).reshape(count, width)[:, skipped:]
    streams = (packets[:, 1].astype(int) & 31) << 8 | packets[:, 2]
    chosen = np.flatnonzero((packets[:, 0] == 0x47) & np.isin(streams, TABLES))
    return [
        (number * width, int(streams[number]), int(packets[number, 3]) & 15) for number in chosen.tolist()
    ]
