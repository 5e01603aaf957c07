"""A sequence as a source: opened by whoever reads it, and divided by bytes into ranges of its indices."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from apache_beam.io import iobase, range_trackers

from bags.beam.splitting import cuts

__all__ = ['Divided']


class Divided(iobase.BoundedSource, abc.ABC):  # type: ignore[misc]
    """What sources of records and of datapoints share. Pickled without what is open."""

    _opened: Any = None

    @abc.abstractmethod
    def open(self) -> Any:
        """Opens the sequence: it has a length, a `size` in bytes, and `bytes_before`."""

    def opened(self) -> Any:
        """Returns the sequence, opened once a process."""
        if self._opened is None:
            self._opened = self.open()
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != '_opened'}

    def estimate_size(self) -> int:
        size: int = self.opened().size
        return size

    def split(
        self, desired_bundle_size: int, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[iobase.SourceBundle]:
        sequence = self.opened()
        stop = len(sequence) if stop_position is None else stop_position
        for first, last, size in cuts(start_position or 0, stop, desired_bundle_size, sequence.bytes_before):
            yield iobase.SourceBundle(size, self, first, last)

    def get_range_tracker(
        self, start_position: int | None, stop_position: int | None
    ) -> range_trackers.OffsetRangeTracker:
        stop = len(self.opened()) if stop_position is None else stop_position
        return range_trackers.OffsetRangeTracker(start_position or 0, stop)
