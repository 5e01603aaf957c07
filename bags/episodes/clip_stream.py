"""`ClipStream`: the frames, or blocks of samples, of one field of an episode, which are encoded as clips."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.metadata import UNITS, Metadata
from bags.dataset.spec import FieldType, Spec
from bags.errors import EncodeError
from bags.formats.arrays import as_array
from bags.media.clip_encoders import ClipEncoder, clip_encoder_of

POLL_SECONDS = 0.05
"""An encoder without items looks for new ones after this time. If each item woke it, it would often run
before the call that appends the item returns. Of frames of 720p on two cores with a load of 12, 13 to 17% of
the calls took over 2 ms, now 7 to 14%, as 5 to 22% of plain copies meanwhile."""
NOTIFIED_ITEMS = 8
"""Number of pending items that wake it."""


class ClipItem(NamedTuple):
    """A frame or a block of samples."""

    values: np.ndarray[Any, Any]
    time: float | None
    """In seconds; None for items at a constant rate."""


class ClipStream:
    """The items of a field, until they are encoded.

    Args:
        name, field_type: The field.
        encoder: The functions of its type.
        facts: Its facts in the metadata.
        scale: Seconds of a unit of its times.
        changed: Is notified when many items are pending, or when there will be none.
    """

    def __init__(
        self,
        name: str,
        field_type: FieldType,
        encoder: ClipEncoder,
        facts: Mapping[str, Any],
        scale: float,
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

    def takes(self, value: Any) -> bool:
        """Returns whether a value is an item: an array, or tensor, of its dimensions. Others are clips."""
        # Lazy values of media, which are clips, have `__array__` alone.
        is_array = hasattr(value, '__array_interface__') or hasattr(value, '__dlpack__')
        return is_array and np.ndim(value) in self._encoder.dimensions

    def item_of(self, values: Mapping[str, Any]) -> ClipItem:
        """Returns a copy of the item in the values of a call, with its time.

        Raises:
            EncodeError: It is no frame or block, or has no time.
        """
        try:
            item = self._encoder.check(as_array(values[self.name]), self._rate)
        except (TypeError, ValueError) as exc:
            raise self._error(f'{type(exc).__name__}: {exc}') from exc
        time = None
        if self._times is not None:
            if self._times not in values:
                raise self._error(f'expected its time, an item of {self._times!r}, in the same call')
            time = float(values[self._times]) * self._scale
        return ClipItem(np.array(item, order='C'), time)

    def check(self, item: ClipItem, earlier: int) -> None:
        """Checks the next item; `earlier` is the number of items and clips of the field so far.

        Raises:
            EncodeError: It differs in dtype or shape from the item before, is not later, or follows a clip.
        """
        if earlier != self.count:
            raise self._error(f'expected a clip, as the {earlier} items before, got {_form(item)}')
        if self._last is not None and _form(item) != _form(self._last):
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


def _form(item: ClipItem) -> str:
    shape = item.values.shape
    what = f'frames of shape {shape}' if len(shape) == 3 else f'samples of {shape[1]} channels'
    return f'{item.values.dtype} {what}'


def open_streams(
    types: Spec, functions: Mapping[str, Callable[..., Any]], metadata: Metadata, lock: threading.Lock
) -> dict[str, ClipStream]:
    """Returns a stream for each field that can take single frames, or blocks of samples.

    Args:
        types: The types of all fields.
        functions: The encoders in use.
        metadata: The metadata, with rates and times.
        lock: The lock of the episode.
    """
    facts = metadata.get('fields', {})
    found = {}
    for name, field_type in types.items():
        encoder = clip_encoder_of(functions.get(field_type.word)) if field_type.sequence else None
        if encoder is not None:
            own = facts.get(name, {})
            scale = UNITS.get(facts.get(own.get('times'), {}).get('unit'), 1.0)
            changed = threading.Condition(lock)
            found[name] = ClipStream(name, field_type, encoder, own, scale, changed)
    return found
