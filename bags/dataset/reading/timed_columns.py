"""`TimedColumns` reads columns as `read_column`, and measures the decoding of each field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, thread_time
from typing import Any

from bags.dataset.format.refs import Refs
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import ReadField, read_column
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Asked, FrameSelection
from bags.indexing import Int64s


class TimedColumns:
    """A `ReadField` for one read of a batch, whose fields and shards may be read by several threads.

    Fields whose values are copied as one array are not measured, as nothing is decoded.

    Args:
        concurrent: Whether several threads may read.
    """

    def __init__(self, concurrent: bool) -> None:
        self._concurrent = concurrent
        self._decoded: list[tuple[str, float]] = []
        """Names of fields, and seconds of decoding. Appending is atomic."""
        self._reads: list[float] = []
        """Seconds of each read of a field with its decoding, if several threads may read."""

    def __call__(self, field: FieldReader, refs: Refs, items: Asked) -> Column:
        decoder = field.decoder
        if items is True and (decoder.decode is None or decoder.dtype is not None):
            return read_column(field, refs, items)
        timed = _timed(field, self._decoded)
        if not self._concurrent:
            return read_column(timed, refs, items)
        start = perf_counter()
        try:
            return read_column(timed, refs, items)
        finally:
            self._reads.append(perf_counter() - start)

    def decode(self, name: str, read: Callable[[], Column], waits: bool) -> Column:
        """Returns the result of `read`, whose time is measured as decoding of a field.

        Args:
            name: The name of the field.
            read: Reads and decodes the column.
            waits: Whether it waits for a network: only its time on a processor is then decoding.
        """
        clock = thread_time if waits else perf_counter
        start = clock()
        column = read()
        seconds = clock() - start
        self._decoded.append((name, seconds))
        self._reads.append(seconds)
        return column

    def decode_seconds(self, seconds: float) -> list[tuple[str, float]]:
        """Returns names of fields, each with a part of the duration of the whole read.

        Seconds of threads that ran at the same time count in proportion.

        Args:
            seconds: The duration of the whole read.
        """
        total = sum(self._reads) if self._concurrent else 0.0
        if total <= seconds:
            return self._decoded
        return [(name, part * seconds / total) for name, part in self._decoded]


def _timed(field: FieldReader, decoded: list[tuple[str, float]]) -> _TimedField:
    """Returns a field that appends its name and the seconds of decoding to `decoded`."""
    field.get_record  # noqa: B018 - made once, for all reads
    timed = object.__new__(_TimedField)
    timed.__dict__ = {**field.__dict__, '_field': field, '_decoded': decoded}
    return timed


class _TimedField(FieldReader):
    """A field that measures its decoding, for one read."""

    _field: FieldReader
    _decoded: list[tuple[str, float]]

    def value(self, index: int) -> Any:
        decode = self.decoder.decode
        if decode is None:
            return super().value(index)
        record = self.get_record(index)
        start = perf_counter()
        try:
            return decode(record)
        except Exception as exc:
            self.fail(index, exc)
        finally:
            self._decoded.append((self.name, perf_counter() - start))

    def decode_records(self, indices: Int64s, records: Sequence[Any]) -> list[Any]:
        start = perf_counter()
        try:
            return super().decode_records(indices, records)
        finally:
            self._decoded.append((self.name, perf_counter() - start))

    def frames(self, records: range | None, selection: FrameSelection) -> Any:
        """As `FieldReader.frames`. All of it is decoding; of a remote field, only the time on a processor."""
        if not self._field.has_frames:
            return super().frames(records, selection)  # Images: `values` measures them.
        clock = thread_time if self.bag.is_remote else perf_counter
        start = clock()
        try:
            return self._field.frames(records, selection)
        finally:
            self._decoded.append((self.name, clock() - start))


def as_columns(read: ReadField) -> ReadField:
    """Returns a function that makes columns as `read_column`, and measures them if `read` does."""
    return read if isinstance(read, TimedColumns) else read_column
