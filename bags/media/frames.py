"""`FrameSequence`: the methods of a video, over a few functions that read and decode it."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.frames import FrameTimes, Seconds, frame_numbers
from bags.formats.pixels import Pixels
from bags.indexing import Int64s, needed_stop
from bags.other_names import find_attribute

SAME_SECONDS = 1e-6
"""Maximum difference of equal times in seconds: above float64 rounding errors, below any interval."""


class Elements(NamedTuple):
    """Elements of a stream and their times: the result of `read`.

    Examples:
        >>> states, times = dataset.stream(3, 'state').read(slice(0, 2))
        >>> states.shape, times
        ((2, 2), array([0. , 0.1]))
    """

    values: Any
    """The elements, as `stream[key]` returns them."""
    times: Seconds
    """float64, shape (n,): seconds. For a single element, a float."""


if not TYPE_CHECKING:  # A name that does not exist is an error for type checkers.
    Elements.__getattr__ = lambda self, name: find_attribute(self, 'Elements', name)


class FrameSequence(ABC):
    """The frames of a video, decoded on access. Subclasses implement the five abstract methods."""

    @abstractmethod
    def frame_count(self, stop: int | None, strict: bool = False) -> int:
        """Returns the number of frames, or any smaller number that is at least `stop`.

        Args:
            stop: The end of the needed frames; None for all frames.
            strict: Raise if needed frames are missing at the end of a truncated file.
        """

    @abstractmethod
    def frame_times(self) -> FrameTimes:
        """Returns the times of frames."""

    @abstractmethod
    def frame_type(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Returns the shape and the dtype of frames: (height, width, channels), or without channels."""

    @abstractmethod
    def decode_frames(self, numbers: Int64s) -> Pixels:
        """Decodes frames by numbers in range(len(self)), in any order, with repeats."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in error messages."""

    @abstractmethod
    def __iter__(self) -> Iterator[Pixels]:
        """Yields all frames in order, with a few frames in memory."""

    def __len__(self) -> int:
        return self.frame_count(None)

    @property
    def shape(self) -> tuple[int, ...]:
        """(time, height, width, channels); (time, height, width) for grey of more than 8 bits."""
        return (len(self), *self.frame_type()[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of frames: uint8, or uint16 for grey of more than 8 bits or with the option `dtype`."""
        return self.frame_type()[1]

    def no_frames(self) -> Pixels:
        """Returns an empty array of frames."""
        shape, dtype = self.frame_type()
        return np.empty((0, *shape), dtype)

    @property
    def times(self) -> Seconds:
        """The time at which each frame is shown, float64 seconds, shape (time,), increasing."""
        return self.frame_times().starts

    @property
    def start(self) -> float:
        """The time of the first frame in seconds; NaN without frames."""
        starts = self.frame_times().starts
        return float(starts[0]) if len(starts) else math.nan

    @property
    def duration(self) -> float:
        """Seconds from the start of the first frame to the end of the last frame."""
        return self.frame_times().duration

    @property
    def rate(self) -> float:
        """Frames per second, on average."""
        times = self.frame_times()
        return len(times.starts) / times.duration if times.duration else 0.0

    def __getitem__(self, key: Any) -> Pixels:
        """Decodes frames.

        - `video[-1]`: one frame, shape (height, width, channels), or (height, width) for grey of more than 8
          bits.
        - `video[100:116]`, `video[::10]`: shape (time, height, width, channels); slices clamp.
        - `video[[3, 50, 7]]`: in any order, with repeats; each group of pictures is decoded once.

        Raises:
            IndexError: A frame number is out of range.
            DecodeError: A frame is damaged (`ValueError` if the video is not from a dataset).
        """
        if isinstance(key, slice):
            return self.decode_frames(np.arange(self.frame_count(needed_stop(key), strict=True))[key])
        if isinstance(key, list | tuple | range | np.ndarray) and np.ndim(key):
            return self.decode_frames(frame_numbers(key, self.frame_count, self.name))
        try:
            number = operator.index(key)
        except TypeError:
            raise TypeError(
                f'expected a frame number, a slice or a list of frame numbers, got {type(key).__name__}'
            ) from None
        frame: Pixels = self.decode_frames(frame_numbers([number], self.frame_count, self.name))[0]
        return frame

    def read(self, key: Any) -> Elements:
        """Returns frames and their times; `key` as for `video[key]`."""
        return Elements(self[key], self.times[key])

    def at(self, seconds: float | Sequence[float] | npt.NDArray[Any]) -> Pixels:
        """Returns the frame that is shown at a time, shape (height, width, channels).

        For a list or an array of times, in any order: shape (time, height, width, channels).

        Raises:
            IndexError: A time is before the start of the first frame, or not before the end of the last
                frame.
        """
        frames = self.decode_frames(self.numbers_at(seconds_of(seconds)))
        return frames if np.ndim(seconds) else frames[0]

    def numbers_at(self, times: Seconds, tolerance: float = 0.0, name: str | None = None) -> Int64s:
        """Returns the numbers of the frames that are shown at times, shape (n,); for internal use.

        Args:
            times: Seconds, shape (n,).
            tolerance: Seconds by which a time may precede the start of its frame.
            name: The name in errors. Default: the name of the video.

        Raises:
            IndexError: As for `at`.
        """
        starts, end, _ = self.frame_times()
        for time in times.tolist():
            if not len(starts) or not starts[0] - tolerance <= time < max(
                end, np.nextafter(starts[-1], np.inf)
            ):
                shown = f'it is shown from {starts[0]} s to {end} s' if len(starts) else 'it has no frames'
                raise IndexError(f'{name or self.name}: nothing is shown at {time} s; {shown}')
        return np.searchsorted(starts, times + tolerance, 'right') - 1

    def between(self, start: float, stop: float) -> Pixels:
        """Returns the frames whose times are in [start, stop), in seconds."""
        chosen = self.span(start, stop)
        starts, end, _ = self.frame_times()
        if stop > end:
            self.frame_count(len(starts) + 1, strict=True)
        return self[chosen]

    def span(self, start: float, stop: float) -> slice:
        """Returns the numbers of the frames whose times are in [start, stop), in seconds.

        Times that differ by less than a microsecond are equal, as in windows.
        """
        bounds = [as_seconds(start), as_seconds(stop)]
        if np.isnan(bounds).any():
            raise ValueError(f'{self.name}: expected times in seconds, got {start!r} and {stop!r}')
        low, high = np.searchsorted(self.times, np.array(bounds) - SAME_SECONDS, 'left').tolist()
        return slice(low, max(low, high))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f'{self.name}: frames are decoded: expected copy=None or True, got False')
        frames = self[:]
        return frames if dtype is None else frames.astype(dtype, copy=False)


def as_seconds(value: Any) -> float:
    """Returns a time as a float.

    Raises:
        TypeError: Not a number.
    """
    try:
        return value + 0.0  # type: ignore[no-any-return]
    except TypeError:
        raise TypeError(f'expected a time in seconds, got {value!r}') from None


def seconds_of(value: Any) -> Seconds:
    """Returns a time, or a list of times, as an array of shape (n,).

    Raises:
        TypeError: Not a number or a list of numbers.
    """
    if np.ndim(value) > 1:
        raise TypeError(f'expected a time or a list of times, got shape {np.shape(value)}')
    return np.array([as_seconds(time) for time in (value if np.ndim(value) else [value])], float)
