"""`QueuedEpisode`: an episode whose items a background thread writes from a queue.

The methods encode values in the thread of the caller, and put the records into a queue. A thread of the
episode writes the records to the bags and flushes the bags, so that calls do not wait for the disk. Single
frames and blocks of samples go to a thread of their field, which puts the records of clips into the queue.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from queue import Full
from typing import Any

from bags.dataset.format.metadata import Metadata
from bags.dataset.writing.encoder import Encoder, check_mapping, close_files, encode_call
from bags.dataset.writing.episode import ONE_PROCESS, Call, EpisodeOptions, OpenEpisode
from bags.episodes.clip_stream import ENCODER_POLL_SECONDS, ClipItem, ClipStream, open_streams
from bags.episodes.episode_bags import EpisodeBags
from bags.errors import EncodeError

MAX_QUEUED_BYTES = 100_000_000
"""Bytes pending to be encoded or written above which calls wait."""
ENTRY_BYTES = 64
"""Approximate overhead of a record in the queue, in bytes."""


class _Stopped(Exception):
    """Stops the encoding of items that are no longer needed."""


class QueuedEpisode(OpenEpisode):
    """An episode that is written by its own thread.

    Args:
        bags, encoder, metadata: The bags, encoder and metadata of the folder.
        begin: The first records of the episode.
        path: The folder.
        offset: Number of datapoints in earlier shards.
        options: The options of `writer.begin`.
        on_end: The method of the writer that is called when the episode is committed or discarded.
    """

    def __init__(
        self,
        bags: EpisodeBags,
        encoder: Encoder,
        metadata: Metadata,
        begin: Call,
        path: str,
        offset: int,
        options: EpisodeOptions,
        on_end: weakref.WeakMethod[Callable[[], None]],
    ) -> None:
        self._bags = bags
        self._encode_item = encoder.encode_item
        self._path = path
        self._offset = offset
        self._on_end = on_end
        self._options = options
        # Half: an item waits for one interval, and for the write in progress.
        self._interval = options.flush_seconds / 2
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._streams = open_streams(bags.schema, encoder.functions, metadata, lock, options.copy)
        self._encoding: dict[str, threading.Thread] = {}
        """The threads that encode clips, by field."""
        self._queue: deque[Call] = deque([begin])
        self._queued_bytes = self._record_bytes = sum(map(_size, begin))
        """Bytes of all pending items and records, and of the records pending to be written."""
        self._flushes_asked = self._flushes_done = 0
        self._has_ended = False
        """Whether the thread ends after writing the queue."""
        self._is_done = False
        """Whether the thread has stopped using the bags."""
        self._is_stopped = False
        """Whether pending items are dropped instead of encoded."""
        self._then: Callable[[], None] | None = None
        """What the thread calls when it has ended, if nobody uses the writer anymore."""
        self._error: BaseException | None = None
        """The error raised in a thread."""
        self._set_fields = {name for name, record in begin if record is not None}
        self._appended = dict.fromkeys(bags.schema, 0)
        """Number of items of each field so far."""
        bags.begin()
        self._thread = threading.Thread(target=self._write_queue, name='bags-episode', daemon=True)
        self._thread.start()

    def append(self, items: Mapping[str, Any]) -> None:
        check_mapping('items', items)
        streams = self._streams
        taken = {name for name, value in items.items() if name in streams and streams[name].takes(value)}
        for name in items.keys() & streams.keys() - taken:
            streams[name].expect_no_items(items[name])
        call = self._encode({name: items[name] for name in items if name not in taken}, are_items=True)
        self._put(call, {name: streams[name].item_of(items) for name in taken})

    def set(self, values: Mapping[str, Any]) -> None:
        check_mapping('values', values)
        self._put(self._encode(values, are_items=False))
        self._set_fields |= {name for name, value in values.items() if value is not None}

    def flush(self) -> None:
        self._expect_open()
        with self._changed:
            self._flushes_asked += 1
            number = self._flushes_asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushes_done >= number or self._error is not None)
        self._raise_error()

    def commit(self) -> int:
        self._expect_open()
        for name, field_type in self._bags.schema.items():
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
        self._notify_writer()
        return self.index

    def discard(self) -> None:
        if self.is_inherited:
            return
        self._expect_open()
        with self._changed:
            self._is_stopped = True
            dropped, self._queue = self._queue, deque()
        for call in dropped:
            close_files(record for _, record in call)
        self._end()
        self._bags.discard()
        self.state = 'discarded'
        self._notify_writer()

    def leave(self) -> None:
        if self.is_inherited:
            return
        self._end()  # May be a second call, after an interrupted one.
        if self.state == 'open':
            self.state = 'left'

    def has_thread(self) -> bool:
        return threading.current_thread() in (self._thread, *self._encoding.values())

    def leave_later(self, then: Callable[[], None]) -> None:
        self._then = then  # Without the lock, which this thread may hold.

    def __repr__(self) -> str:
        written = ', '.join(f'{count} of {name}' for name, count in self._bags.counts.items())
        return f'<bags.Episode of {self._path!r}: {self.state}; written: {written or "nothing"}>'

    # Called in the threads of callers.

    def _notify_writer(self) -> None:
        if (on_end := self._on_end()) is not None:
            on_end()

    def _expect_open(self) -> None:
        if self.is_inherited:
            raise RuntimeError(f'{self!r} cannot write in process {os.getpid()}: {ONE_PROCESS}')
        if self.state != 'open':
            raise ValueError(f'the episode is {self.state}')
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            self.state = 'left'
            raise self._error

    def _encode(self, values: Mapping[str, Any], are_items: bool) -> Call:
        """Encodes values as records. All values are encoded before the first record is written."""
        self._expect_open()
        for name, value in values.items():
            if value is None and not are_items and name in self._set_fields:
                raise EncodeError(
                    name, self._bags.schema[name].text, 'is set already: expected a value, got None'
                )
        counts = self._appended if are_items else None
        return encode_call(self._bags.schema, self._encode_item, values, counts)

    def _put(self, call: Call, items: Mapping[str, ClipItem] | None = None) -> None:
        with self._changed:
            if self._is_full():
                self.waits += 1
                if self._options.when_full == 'raise':
                    close_files(record for _, record in call)
                    raise Full(f'{self._queued_bytes:,} bytes wait to be encoded or written')
                self._changed.wait_for(lambda: not self._is_full())
            self._expect_open()
            if self._has_ended:
                raise ValueError('the episode has ended')
            for name, item in (items or {}).items():
                self._streams[name].check(item, self._appended[name])
            for name, item in (items or {}).items():
                self._add(name, item)
            if call:
                self._queue_records(call)
            for name, _ in call:
                self._appended[name] += 1
            if self._is_due():
                self._changed.notify_all()

    def _queue_records(self, call: Call) -> None:
        size = sum(map(_size, call))
        self._queue.append(call)
        self._queued_bytes += size
        self._record_bytes += size

    def _is_full(self) -> bool:
        return self._queued_bytes >= MAX_QUEUED_BYTES and self._error is None

    def _add(self, name: str, item: ClipItem) -> None:
        stream = self._streams[name]
        stream.add(item)
        self._appended[name] += 1
        self._queued_bytes += item.values.nbytes
        if name not in self._encoding:
            thread = threading.Thread(
                target=self._encode_clips, args=(stream,), name=f'bags-{name}', daemon=True
            )
            self._encoding[name] = thread
            thread.start()

    def _end(self) -> None:
        """Waits until the threads have encoded and written all items, and ends them."""
        with self._changed:
            self._set_ended()
            # Not `join`: in Python 3.11, an interrupted join marks the thread as ended.
            self._changed.wait_for(lambda: self._is_done)

    def _set_ended(self) -> None:
        self._has_ended = True
        self._changed.notify_all()
        for stream in self._streams.values():
            stream.changed.notify_all()

    # Called in the threads that encode clips.

    def _encode_clips(self, stream: ClipStream) -> None:
        error = None
        try:
            for record in stream.encode(self._take(stream), self._options.clip_seconds):
                with self._changed:
                    self._queue_records([(stream.name, record)])
        except _Stopped:
            pass
        except BaseException as exc:
            error = exc
        with self._changed:
            self._queued_bytes -= sum(item.values.nbytes for item in stream.pending)
            stream.pending.clear()
            if error is not None:
                # Other fields are still encoded, and records written, until `leave`.
                self._error = self._error or error
                self._set_ended()
            del self._encoding[stream.name]
            self._changed.notify_all()

    def _take(self, stream: ClipStream) -> Iterator[ClipItem]:
        """Yields the items of a stream until the episode ends. Each item counts as queued until the next."""
        size = 0
        while True:
            with self._changed:
                if self._queued_bytes >= MAX_QUEUED_BYTES:
                    self._changed.notify_all()
                self._queued_bytes -= size
                while not (stream.pending or self._has_ended):
                    stream.changed.wait(ENCODER_POLL_SECONDS)
                if self._is_stopped:
                    raise _Stopped
                if not stream.pending:
                    return
                item = stream.pending.popleft()
            size = item.values.nbytes
            yield item
            del item

    # Called in the thread of the episode, the only user of the bags until it ends.

    def _write_queue(self) -> None:
        queue: deque[Call] = deque()
        is_last = False
        try:
            while not is_last:
                with self._changed:
                    self._changed.wait_for(self._is_due, self._interval)
                    if self._then is not None and not self._has_ended:
                        self._set_ended()
                    queue, self._queue = self._queue, deque()
                    size, self._record_bytes = self._record_bytes, 0
                    is_last = self._has_ended and not self._encoding
                    flushes_requested = self._flushes_asked
                    self._changed.notify_all()
                while queue:
                    self._bags.write(queue.popleft())
                self._bags.flush()
                with self._changed:
                    self._flushes_done = flushes_requested
                    self._queued_bytes -= size
                    self._changed.notify_all()
        except BaseException as exc:
            with self._changed:
                queue += self._queue
                self._error, self._queue = exc, deque()
                self._is_stopped = True
                self._set_ended()
            for call in queue:
                close_files(record for _, record in call)
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()
            if self._then is not None:
                self._then()

    def _is_due(self) -> bool:
        is_full = self._record_bytes >= MAX_QUEUED_BYTES // 4
        has_ended = self._has_ended and not self._encoding
        is_left = self._then is not None
        return has_ended or is_full or is_left or self._flushes_asked > self._flushes_done


def _size(entry: tuple[str, Any]) -> int:
    record = entry[1]
    return ENTRY_BYTES + (len(record) if isinstance(record, bytes) else 0)
