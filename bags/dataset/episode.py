"""`Episode`: a datapoint that is written item by item, while it happens.

Its methods encode values in the thread of the caller, and put the records into a queue. A thread of the
episode writes them to the bags and flushes these, so that no call waits for a disk.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from bags.dataset.encoder import close_files
from bags.dataset.episode_bags import Call, EpisodeBags
from bags.dataset.spec import Spec
from bags.errors import EncodeError
from bags.formats.encoded import BorrowedFile

MAX_QUEUED_BYTES = 100_000_000
"""Bytes of records that wait to be written; then calls wait."""
ENTRY_BYTES = 64
"""Approximate bytes of a record without its content."""


class Episode:
    """A datapoint that is being written by items, as `writer.begin` returns it.

    Leaving its `with` block commits it. Only `discard` drops it: after an exception, what was written stays
    for `bags.recover` and `resume=True`, as after a kill. Several threads may use it at a time.

    Attributes:
        state: 'open', 'committed', 'discarded', or 'left' if an error has ended it.
        index: The index of the datapoint, once it is committed.
    """

    def __init__(
        self,
        bags: EpisodeBags,
        encode_item: Callable[[str, Any, int | None], Any],
        begin: Call,
        path: str,
        offset: int,
        flush_seconds: float,
        on_end: Callable[[], None],
    ) -> None:
        self._bags = bags
        self._encode_item = encode_item
        self._path = path
        self._offset = offset
        """Datapoints of earlier shards."""
        self._on_end = on_end
        """Called when it is committed or discarded."""
        self._interval = flush_seconds / 2  # An item waits for one interval, and for the writing of others.
        self._changed = threading.Condition()
        self._queue: deque[Call] = deque([begin])
        self._queued_bytes = sum(map(_size, begin))
        self._flushes_asked = self._flushes_done = 0
        self._has_ended = False
        """Whether the thread ends after it has written the queue."""
        self._error: BaseException | None = None
        """The error of the thread."""
        self._set_fields = {name for name, record in begin if record is not None}
        self._appended = dict.fromkeys(bags.types, 0)
        """Number of records of each field in the calls so far."""
        self.state: Literal['open', 'committed', 'discarded', 'left'] = 'open'
        self.index: int | None = None
        bags.begin()
        self._thread = threading.Thread(target=self._write_queue, name='bags-episode', daemon=True)
        self._thread.start()

    def append(self, items: Mapping[str, Any]) -> None:
        """Appends one item to each of some sequences, or to none of them if this raises.

        Args:
            items: An item by field. Fields may be appended to in any order, and as often as one likes.

        Raises:
            EncodeError: No such field, a field that is no sequence, or an item that cannot be encoded. The
                episode goes on.
            ValueError: The episode has ended.
            OSError: Earlier items could not be written, e.g. as the disk is full. The episode ends: what was
                written before stays, as after a kill.
        """
        self._put(self._encode(items, are_items=True))

    def set(self, values: Mapping[str, Any]) -> None:
        """Sets plain fields, at any time until `commit`. The last value of a field counts.

        Raises:
            EncodeError: No such field, a sequence, or a value that cannot be encoded. The episode goes on.
            ValueError, OSError: As for `append`.
        """
        self._put(self._encode(values, are_items=False))
        self._set_fields |= {name for name, value in values.items() if value is not None}

    def flush(self) -> None:
        """Makes all items so far safe if this process is killed; with `durability='flush'`, also on disk."""
        self._expect_open()
        with self._changed:
            self._flushes_asked += 1
            number = self._flushes_asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushes_done >= number or self._error is not None)
        self._raise_error()

    def commit(self) -> int:
        """Ends the episode: it becomes a datapoint. Returns its index, as `append` of the writer does.

        Raises:
            EncodeError: A plain field that is not optional is not set. The episode goes on.
            OSError: Writing failed. What was written stays, as after a kill.
        """
        self._expect_open()
        for name, field_type in self._bags.types.items():
            if not (field_type.sequence or field_type.optional or name in self._set_fields):
                raise EncodeError(
                    name, field_type.text, 'is not set in the episode, which cannot be committed'
                )
        try:
            self._end()
            self._raise_error()
            self.index = self._offset + self._bags.commit()
        except BaseException:
            self.state = 'left'
            raise
        self.state = 'committed'
        self._on_end()
        return self.index

    def discard(self) -> None:
        """Ends the episode without a datapoint.

        Nothing refers to the records that were written; their bytes stay in the bags.
        """
        self._expect_open()
        with self._changed:
            dropped, self._queue = self._queue, deque()
        for call in dropped:
            close_files(record for _, record in call)
        self._end()
        self._bags.discard()
        self.state = 'discarded'
        self._on_end()

    def leave(self) -> None:
        """Ends the episode as a kill does, after what was appended is written."""
        if self.state == 'open':
            self._end()
            self.state = 'left'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self.state == 'open' and error_type is None:
            try:
                self.commit()
            except BaseException:
                self.leave()
                raise
        elif self.state == 'open':
            self.leave()

    def __repr__(self) -> str:
        written = ', '.join(f'{count} of {name}' for name, count in self._bags.counts.items())
        return f'<bags.Episode of {self._path!r}: {self.state}; written: {written or "nothing"}>'

    # In the threads of callers.

    def _expect_open(self) -> None:
        if self.state != 'open':
            raise ValueError(f'the episode is {self.state}')
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            self.state = 'left'
            raise self._error

    def _encode(self, values: Mapping[str, Any], are_items: bool) -> Call:
        """Returns the records of values, all of which are encoded before one is written."""
        self._expect_open()
        for name, value in values.items():
            if value is None and not are_items and name in self._set_fields:
                raise EncodeError(
                    name, self._bags.types[name].text, 'is set already: expected a value, got None'
                )
        counts = self._appended if are_items else None
        return encode_call(self._bags.types, self._encode_item, values, counts)

    def _put(self, call: Call) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._queued_bytes < MAX_QUEUED_BYTES or self._error is not None)
            self._expect_open()
            if self._has_ended:
                raise ValueError('the episode has ended')
            self._queue.append(call)
            for name, _ in call:
                self._appended[name] += 1
            self._queued_bytes += sum(map(_size, call))
            if self._queued_bytes >= MAX_QUEUED_BYTES // 4:
                self._changed.notify_all()

    def _end(self) -> None:
        """Waits until the thread has written what is queued, and ends it."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._thread.join()

    # In the thread of the episode, which alone uses the bags until it ends.

    def _write_queue(self) -> None:
        queue: deque[Call] = deque()
        is_last = False
        try:
            while not is_last:
                with self._changed:
                    self._changed.wait_for(self._is_due, self._interval)
                    queue, self._queue = self._queue, deque()
                    is_last, asked = self._has_ended, self._flushes_asked
                    self._changed.notify_all()
                size = sum(_size(entry) for call in queue for entry in call)
                while queue:
                    self._bags.write(queue.popleft())
                self._bags.flush()
                with self._changed:
                    self._flushes_done = asked
                    self._queued_bytes -= size
                    self._changed.notify_all()
        except BaseException as exc:
            with self._changed:
                queue += self._queue
                self._error, self._queue = exc, deque()
                self._changed.notify_all()
            for call in queue:
                close_files(record for _, record in call)

    def _is_due(self) -> bool:
        is_full = bool(self._queue) and self._queued_bytes >= MAX_QUEUED_BYTES // 4
        return self._has_ended or is_full or self._flushes_asked > self._flushes_done


def encode_call(
    types: Spec,
    encode_item: Callable[[str, Any, int | None], Any],
    values: Mapping[str, Any],
    counts: Mapping[str, int] | None,
) -> Call:
    """Returns the records of items of sequences, or of the values of plain fields.

    Args:
        types: The types of all fields.
        encode_item: Returns the record of a value, given its field and the number of the item.
        values: By field.
        counts: Number of items of each sequence so far; None for plain fields.

    Raises:
        EncodeError: No such field, one of the other kind, or a value that cannot be encoded.
    """
    found: Call = []
    try:
        for name, value in values.items():
            field_type = types.get(name)
            if field_type is None:
                detail = f'is not in the spec, which has {", ".join(map(repr, types))}'
                raise EncodeError(str(name), '?', detail)
            if field_type.sequence is (counts is None):
                is_plain = counts is not None
                detail = 'is no sequence: set() sets it' if is_plain else 'is a sequence: append() appends'
                raise EncodeError(name, field_type.text, detail)
            if value is None and field_type.optional and counts is None:
                found.append((name, None))
                continue
            record = encode_item(name, value, None if counts is None else counts[name])
            # The file of a caller may be moved before the record is written.
            found.append((name, _loaded(record) if isinstance(record, BorrowedFile) else record))
    except BaseException:
        close_files(record for _, record in found)
        raise
    return found


def _loaded(record: Any) -> bytes:
    with contextlib.closing(record):
        data: bytes = record.read()
        return data


def _size(entry: tuple[str, Any]) -> int:
    record = entry[1]
    return ENTRY_BYTES + (len(record) if isinstance(record, bytes) else 0)
