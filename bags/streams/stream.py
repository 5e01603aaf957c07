"""`Stream`: the elements of a field in a datapoint and their times, the result of `dataset.stream`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.dataset.reading.frames import FrameTimes
from bags.dataset.reading.selection import select_fields
from bags.indexing import check_index
from bags.media.frames import Elements
from bags.streams.field import StreamField
from bags.streams.item_stream import ItemStream
from bags.streams.joined_audio import join_audio
from bags.streams.joined_video import join_videos


@runtime_checkable
class Stream(Protocol):
    """The elements of a field in a datapoint, and their times: a `Video`, an `Audio`, or items.

    Times are float64 seconds on the clock of the datapoint. Elements are read on access.

    Examples:
        >>> states = dataset.stream(3, 'state')
        >>> states.rate, states.duration, states.at(0.25)
        (10.0, 0.6, array([4., 5.], dtype=float32))
    """

    def __len__(self) -> int:
        """Returns the number of elements."""
        ...

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """The time of each element in seconds, shape (n,), increasing."""
        ...

    @property
    def start(self) -> float:
        """The time of the first element in seconds."""
        ...

    @property
    def duration(self) -> float:
        """Seconds from the first element to the end of the last."""
        ...

    @property
    def rate(self) -> float:
        """Elements per second."""
        ...

    def __getitem__(self, key: Any, /) -> Any:
        """Returns an element, or the elements of a slice or of a list of numbers."""
        ...

    def at(self, seconds: float | Sequence[float] | npt.NDArray[Any], /) -> Any:
        """Returns the last element at or before a time, or at each of several times."""
        ...

    def between(self, start: float, stop: float, /) -> Any:
        """Returns the elements whose times are in [start, stop), in seconds."""
        ...

    def read(self, key: Any, /) -> Elements:
        """Returns elements and their times; `key` as for `stream[key]`."""
        ...


def open_stream(dataset: Dataset, index: SupportsIndex, field: str) -> Stream | None:
    """Returns the stream of a field in a datapoint; None if the value is missing. See `Dataset.stream`."""
    select_fields(field, dataset.schema)
    known = StreamField(dataset, field)
    row = check_index(index, len(dataset))
    if not dataset.are_present(np.array([row]), field)[0]:
        return None
    if known.type == 'samples':
        audio, start = join_audio(dataset, row, field), known.facts_at(row).start
        return audio if start is None else audio.with_start(start)
    if known.type == 'frames' and dataset.schema[field].format in VIDEO_FORMATS:
        video = join_videos(dataset, row, field)
        if known.facts_at(row).are_empty:
            return video
        return video.with_times(functools.partial(_times_of, known, row))
    return ItemStream(known, row)


def _times_of(known: StreamField, row: int) -> FrameTimes:
    """Returns the times of the frames of a video, as the metadata gives them."""
    clock, rows = known.expect_clock(), np.array([row])
    starts = clock.at(rows, np.arange(known.counts(rows)[0])[None])[0]
    first, end = (float(bound[0]) for bound in clock.range(rows))
    return FrameTimes(starts, end, end - first)
