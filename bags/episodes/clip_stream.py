"""`ClipStream`: encodes the frames, or blocks of samples, of one field of an episode as clips."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.format.metadata import UNITS, Metadata
from bags.dataset.format.registry import AUDIO_FORMATS
from bags.dataset.format.spec import FieldType, Schema
from bags.errors import EncodeError
from bags.formats.arrays import as_array
from bags.media.clip_encoders import ClipEncoder, clip_encoder_of

ENCODER_POLL_SECONDS = 0.01
"""Interval at which an idle encoder looks for new items. If each item woke the encoder, it would often run
before the call that appends the item returns; with a longer interval, it runs while the next items are
appended. With three 720p cameras on two idle cores, the slowest 1% of calls took over 2.1 ms; with 0.02 s
over 2.9 ms, with 0.05 s over 4.6 ms, and over 4.7 ms if each item woke the encoder."""
NOTIFIED_ITEMS = 8
"""Number of pending items that wake the encoder."""
MAX_FREE_BYTES = 25_000_000
"""Maximum bytes of unused copies that an episode keeps for reuse."""
MIN_REUSED_BYTES = 128 << 10
"""Minimum bytes of a copy whose memory is reused."""


class ClipItem(NamedTuple):
    """A frame or a block of samples."""

    values: np.ndarray[Any, Any]
    time: float | None
    """In seconds; None if items have a constant rate."""


class CopyMemory:
    """Copies arrays into the memory of earlier copies that are no longer used.

    The pages of new memory are mapped on first write, 675 pages for a 720p frame. On two cores with a load of
    20, 6.5% of these copies took over 2 ms, and 12.5% over 1 ms; with reused memory 4.3% and 7.9%.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[memoryview]] = {}
        """Unused memory, by number of bytes."""

    def copy(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns a copy in C order."""
        if array.nbytes < MIN_REUSED_BYTES:
            return np.array(array, order='C')
        try:
            memory = self._free[array.nbytes].pop()
        except (KeyError, IndexError):
            memory = np.empty(array.nbytes, np.uint8).data
        # All views refer to `flat`, the array over the buffer, so it is deleted after them.
        flat = np.frombuffer(memory, array.dtype)
        weakref.finalize(flat, self._free_memory, memory).atexit = False
        copied = flat.reshape(array.shape)
        if array.flags.c_contiguous:
            # Keeps the GIL. `copyto` releases it, and then waits for an encoder that holds it: with three
            # 720p cameras on two idle cores, p99 1.2 ms instead of 0.8 ms.
            memory[:] = array.reshape(-1).view(np.uint8).data
        else:
            np.copyto(copied, array)
        return copied

    def _free_memory(self, memory: memoryview) -> None:
        size = len(memory)
        if size + sum(nbytes * len(free) for nbytes, free in list(self._free.items())) <= MAX_FREE_BYTES:
            self._free.setdefault(size, deque()).append(memory)


class ClipStream:
    """The items of a field that are not encoded yet.

    Args:
        name, field_type: The field.
        encoder: The functions of the field type.
        facts: The entry of the field in the metadata.
        scale: Seconds per unit of the times of the field.
        memory: Copies the items; None to use them without a copy.
        changed: Notified when many items are pending, or when the episode ends.
    """

    def __init__(
        self,
        name: str,
        field_type: FieldType,
        encoder: ClipEncoder,
        facts: Mapping[str, Any],
        scale: float,
        memory: CopyMemory | None,
        changed: threading.Condition,
    ) -> None:
        self.name = name
        self._type, self._encoder, self._scale = field_type, encoder, scale
        self._rate: float | None = facts.get('rate')
        self._times: str | None = facts.get('times')
        self.changed = changed
        self.pending: deque[ClipItem] = deque()
        """Items that the encoder has not received yet."""
        self.count = 0
        """Number of items so far."""
        self._last: ClipItem | None = None
        self._memory = memory

    def takes(self, value: Any) -> bool:
        """Returns whether a value is an item, an array or tensor of suitable dimensions, and not a clip."""
        # Lazy media values, which are clips, have only `__array__`.
        is_array = type(value) is np.ndarray or any(
            hasattr(value, name) for name in ('__array_interface__', '__dlpack__')
        )
        if self._encoder.is_video and np.ndim(value) == 3 and 'uint16' in str(getattr(value, 'dtype', '')):
            return bool(value.shape[2] == 1)  # Grey frames (time, height, width) are a clip.
        return is_array and np.ndim(value) in self._encoder.dimensions

    def item_of(self, values: Mapping[str, Any]) -> ClipItem:
        """Returns the item in the values of a call with its time; copies it if `memory` is set.

        Raises:
            EncodeError: The value is not a frame or block, or has no time.
        """
        try:
            value = values[self.name]
            array = value if type(value) is np.ndarray else as_array(value)
            item = self._encoder.check(array, self._rate)
        except (TypeError, ValueError) as exc:
            raise self._error(f'{type(exc).__name__}: {exc}') from exc
        time = None
        if self._times is not None:
            if self._times not in values:
                raise self._error(f'expected its time, an item of {self._times!r}, in the same call')
            time = float(values[self._times]) * self._scale
        return ClipItem(item if self._memory is None else self._memory.copy(item), time)

    def check(self, item: ClipItem, earlier: int) -> None:
        """Checks the next item; `earlier` is the number of items and clips of the field so far.

        Raises:
            EncodeError: The item differs in dtype or shape from the previous item, is not later than it, or
                follows a clip.
        """
        if earlier != self.count:
            raise self._error(f'expected a clip, as the {earlier} items before, got {self._form(item)}')
        if self._last is not None and self._differ(item.values, self._last.values):
            raise self._error(
                f'expected {self._form(self._last)}, as the items before, got {self._form(item)}'
            )
        before = None if self._last is None else self._last.time
        if item.time is not None and not (-math.inf if before is None else before) < item.time < math.inf:
            after = 'a finite time' if before is None else f'a time after {before} s'
            raise self._error(f'expected {after}, got {item.time} s')

    def add(self, item: ClipItem) -> None:
        """Adds a checked item."""
        self._last = item
        self.pending.append(item)
        self.count += 1
        if len(self.pending) >= NOTIFIED_ITEMS:
            self.changed.notify()

    def encode(self, items: Iterator[ClipItem], seconds: float) -> Iterator[Any]:
        """Encodes items as clips of `seconds`, and yields their records.

        Raises:
            EncodeError: The encoder fails.
        """
        done = 0
        try:
            for record in self._encoder.encode(items, seconds, self._rate, *self._type.args):
                yield record
                done += 1
        except Exception as exc:
            raise self._error(f'clip {done}: {type(exc).__name__}: {exc}', is_item=False) from exc

    def expect_no_items(self, value: Any) -> None:
        """Raises EncodeError if the field has items, because a clip cannot follow items."""
        if self._last is not None:
            raise self._error(
                f'expected {self._form(self._last)}, as the items before, got {type(value).__name__}'
            )

    def _error(self, detail: str, is_item: bool = True) -> EncodeError:
        return EncodeError(self.name, self._type.text, detail, self.count if is_item else None)

    def _differ(self, item: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
        """Returns whether frames differ in dtype or shape, or blocks in dtype or channels."""
        begin = 0 if self._encoder.is_video else 1
        return bool(item.dtype != other.dtype) or item.shape[begin:] != other.shape[begin:]

    def _form(self, item: ClipItem) -> str:
        shape = item.values.shape
        what = f'frames of shape {shape}' if self._encoder.is_video else f'samples of {shape[1]} channels'
        return f'{item.values.dtype} {what}'


def open_streams(
    schema: Schema,
    functions: Mapping[str, Callable[..., Any]],
    metadata: Metadata,
    lock: threading.Lock,
    copy: bool,
) -> dict[str, ClipStream]:
    """Returns a stream for each field that accepts single frames or blocks of samples.

    Args:
        schema: The types of all fields.
        functions: The encoders in use.
        metadata: The metadata, with rates and times.
        lock: The lock of the episode.
        copy: Whether items are copied.

    Raises:
        ValueError: A recording in blocks has times.
    """
    facts, memory = metadata.get('fields', {}), CopyMemory() if copy else None
    streams = {}
    for name, field_type in schema.items():
        encoder = clip_encoder_of(functions.get(field_type.format)) if field_type.sequence else None
        field_facts = facts.get(name, {})
        if encoder is not None and field_facts.get('elements') != 'items':
            if field_type.format in AUDIO_FORMATS and 'times' in field_facts:
                raise ValueError(
                    f"begin: field {name!r} of type {field_type.text}: expected 'rate' and 'start' in the "
                    f'metadata of a recording in blocks, got times={field_facts["times"]!r} (with '
                    "'elements': 'items', each recording is an item at its time)"
                )
            scale = UNITS.get(facts.get(field_facts.get('times'), {}).get('unit'), 1.0)
            changed = threading.Condition(lock)
            streams[name] = ClipStream(name, field_type, encoder, field_facts, scale, memory, changed)
    return streams
