"""`ClipStream`: the frames, or blocks of samples, of one field of an episode, which are encoded as clips."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.format.metadata import UNITS, Metadata
from bags.dataset.format.spec import FieldType, Spec
from bags.errors import EncodeError
from bags.formats.arrays import as_array
from bags.media.clip_encoders import ClipEncoder, clip_encoder_of

ENCODER_POLL_SECONDS = 0.01
"""An encoder without items looks for new ones after this time. If each item woke it, it would often run
before the call that appends the item returns; after a longer time, while the next ones are appended. Of three
cameras of 720p on two idle cores, 1% of the calls took over 2.1 ms, with 0.02 s over 2.9 ms, with 0.05 s over
4.6 ms, and over 4.7 ms if each item woke it."""
NOTIFIED_ITEMS = 8
"""Number of pending items that wake it."""
MAX_FREE_BYTES = 25_000_000
"""Bytes of copies that are no longer used, which an episode keeps for its next ones."""
MIN_REUSED_BYTES = 128 << 10
"""Bytes of a copy from which memory is used again."""


class ClipItem(NamedTuple):
    """A frame or a block of samples."""

    values: np.ndarray[Any, Any]
    time: float | None
    """In seconds; None for items at a constant rate."""


class CopyMemory:
    """Copies arrays into the memory of earlier copies that are no longer used.

    New memory is mapped while it is written, of a frame of 720p in 675 pages. Of these copies, on two cores
    with a load of 20, 6.5% took over 2 ms, and 12.5% over 1 ms; into memory that is used again 4.3% and 7.9%.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[memoryview]] = {}
        """By number of bytes."""

    def copy(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns a copy in C order."""
        if array.nbytes < MIN_REUSED_BYTES:
            return np.array(array, order='C')
        try:
            memory = self._free[array.nbytes].pop()
        except (KeyError, IndexError):
            memory = np.empty(array.nbytes, np.uint8).data
        # All views of an array over a buffer refer to that array, so that it is deleted after them.
        flat = np.frombuffer(memory, array.dtype)
        weakref.finalize(flat, self._free_memory, memory).atexit = False
        copied = flat.reshape(array.shape)
        if array.flags.c_contiguous:
            # Keeps the GIL, unlike `copyto`, which then waits for an encoder that has it. Of three cameras of
            # 720p on two idle cores, p99 0.8 ms beside 1.2.
            memory[:] = array.reshape(-1).view(np.uint8).data
        else:
            np.copyto(copied, array)
        return copied

    def _free_memory(self, memory: memoryview) -> None:
        size = len(memory)
        if size + sum(each * len(free) for each, free in list(self._free.items())) <= MAX_FREE_BYTES:
            self._free.setdefault(size, deque()).append(memory)


class ClipStream:
    """The items of a field, until they are encoded.

    Args:
        name, field_type: The field.
        encoder: The functions of its type.
        facts: Its facts in the metadata.
        scale: Seconds of a unit of its times.
        memory: Copies its items; None if they are not copied.
        changed: Is notified when many items are pending, or when there will be none.
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
        """Items that the encoder has not taken yet."""
        self.count = 0
        """Number of items so far."""
        self._last: ClipItem | None = None
        self._memory = memory

    def takes(self, value: Any) -> bool:
        """Returns whether a value is an item: an array, or tensor, of its dimensions. Others are clips."""
        # Lazy values of media, which are clips, have `__array__` alone.
        is_array = type(value) is np.ndarray or any(
            hasattr(value, name) for name in ('__array_interface__', '__dlpack__')
        )
        return is_array and np.ndim(value) in self._encoder.dimensions

    def item_of(self, values: Mapping[str, Any]) -> ClipItem:
        """Returns the item in the values of a call, copied if there is `memory` for it, with its time.

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
            EncodeError: It differs in dtype or shape from the item before, is not later, or follows a clip.
        """
        if earlier != self.count:
            raise self._error(f'expected a clip, as the {earlier} items before, got {_form(item)}')
        if self._last is not None and _differ(item.values, self._last.values):
            raise self._error(f'expected {_form(self._last)}, as the items before, got {_form(item)}')
        before = None if self._last is None else self._last.time
        if item.time is not None and not (-math.inf if before is None else before) < item.time < math.inf:
            after = 'a finite time' if before is None else f'a time after {before} s'
            raise self._error(f'expected {after}, got {item.time} s')

    def add(self, item: ClipItem) -> None:
        """Adds an item that was checked."""
        self._last = item
        self.pending.append(item)
        self.count += 1
        if len(self.pending) >= NOTIFIED_ITEMS:
            self.changed.notify()

    def encode(self, items: Iterator[ClipItem], seconds: float) -> Iterator[Any]:
        """Yields the records of clips of some seconds.

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
        """Raises EncodeError if there are items: a clip cannot follow them."""
        if self._last is not None:
            raise self._error(
                f'expected {_form(self._last)}, as the items before, got {type(value).__name__}'
            )

    def _error(self, detail: str, is_item: bool = True) -> EncodeError:
        return EncodeError(self.name, self._type.text, detail, self.count if is_item else None)


def _differ(item: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Returns whether frames differ in dtype or shape, or blocks in dtype or channels."""
    begin = 0 if item.ndim == 3 else 1
    return bool(item.dtype != other.dtype) or item.shape[begin:] != other.shape[begin:]


def _form(item: ClipItem) -> str:
    shape = item.values.shape
    what = f'frames of shape {shape}' if len(shape) == 3 else f'samples of {shape[1]} channels'
    return f'{item.values.dtype} {what}'


def open_streams(
    types: Spec,
    functions: Mapping[str, Callable[..., Any]],
    metadata: Metadata,
    lock: threading.Lock,
    copy: bool,
) -> dict[str, ClipStream]:
    """Returns a stream for each field that can take single frames, or blocks of samples.

    Args:
        types: The types of all fields.
        functions: The encoders in use.
        metadata: The metadata, with rates and times.
        lock: The lock of the episode.
        copy: Whether items are copied.
    """
    facts, memory = metadata.get('fields', {}), CopyMemory() if copy else None
    found = {}
    for name, field_type in types.items():
        encoder = clip_encoder_of(functions.get(field_type.word)) if field_type.sequence else None
        if encoder is not None:
            own = facts.get(name, {})
            scale = UNITS.get(facts.get(own.get('times'), {}).get('unit'), 1.0)
            changed = threading.Condition(lock)
            found[name] = ClipStream(name, field_type, encoder, own, scale, memory, changed)
    return found
