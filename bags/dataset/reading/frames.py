"""Frames of values, such as videos, which are read in parts. Frames of consecutive records form one sequence.

The values of a type have frames if its decoder has an attribute `frames`. `bags.frames` then selects frames,
and `dataset.windows` creates windows of frames, without decoding whole values. The attribute is a function
that takes a record to open, as a lazy decoder does, and the arguments of the type, and returns `LazyFrames`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.indexing import Int64s, needed_stop

Seconds = npt.NDArray[np.float64]


class LazyFrames(Protocol):
    """The frames of a record.

    Optional attributes:

    - `timestamps`: The time of each frame, float64 seconds (n,), increasing. Windows then select frames by
      their own times. The attribute can also be called `times`, as in a `bags.Video`.
    - `duration`: Seconds from the first frame to the end of the last one. Default: the last frame lasts for
      the median interval.
    - `truncation`: The error for frames that are missing at the end of the record, or None.
    """

    def __len__(self) -> int:
        """Returns the number of frames of the record."""
        ...

    def __getitem__(self, numbers: Int64s, /) -> npt.NDArray[Any]:
        """Returns frames, shape (n, …), a new array.

        Args:
            numbers: int64, shape (n,), in range(len(self)): in any order, with repeats, possibly none.
        """
        ...


class FrameTimes(NamedTuple):
    """The times of frames in seconds."""

    starts: Seconds
    """Start of each frame, shape (n,), increasing."""
    end: float
    """End of the last frame."""
    duration: float
    """Time from the first start to the end."""


def known_times(frames: LazyFrames) -> FrameTimes | None:
    """Returns the times of the frames of a record; None without times."""
    times = getattr(frames, 'timestamps', None)
    if times is None:
        times = getattr(frames, 'times', None)
    if times is None:
        return None
    starts = np.asarray(times, np.float64)
    duration = getattr(frames, 'duration', None)
    if duration is None:
        intervals = np.diff(starts)
        duration = float(starts[-1] - starts[0] + np.median(intervals)) if len(intervals) else 0.0
    return FrameTimes(starts, float(starts[0]) + duration if len(starts) else 0.0, float(duration))


Length = tuple[int, Exception | None]
"""The number of frames of a record, and the error if frames are missing at its end."""


def known_length(frames: LazyFrames) -> Length:
    """Returns the number of frames of a record, and the error if frames are missing at its end."""
    return len(frames), getattr(frames, 'truncation', None)


def frame_numbers(key: Any, count: Callable[[int | None], int], name: str, element: str = 'frame') -> Int64s:
    """Returns frame numbers as int64 in the range of the frames.

    Args:
        key: Numbers; negative numbers count from the end.
        count: A function as `Frames.count`.
        name: The name of the frames in errors.
        element: The noun for a frame in errors.

    Raises:
        IndexError: A frame does not exist.
        TypeError: The key does not consist of integers.
    """
    numbers = np.asarray(key)
    are_long = numbers.dtype == object and all(isinstance(number, int) for number in numbers.flat)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in 'iu' and not are_long):
        detail = f'{numbers.dtype} of shape {numbers.shape}'
        raise TypeError(f'expected a list of integer {element} numbers, got {detail}')
    if not len(numbers):
        return numbers.astype(np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    total = count(None if low < 0 else high + 1)
    if low >= 0 and high < total:
        return numbers.astype(np.int64, copy=False)
    # Checked before the conversion, which makes large unsigned numbers negative.
    wrong = numbers[(numbers < -total) | (numbers >= total)]
    if len(wrong):
        raise IndexError(f'{name}: {element} {wrong[0]} out of range [{-total}, {total})')
    numbers = numbers.astype(np.int64)
    return np.where(numbers < 0, numbers + total, numbers)


class Frames(ABC):
    """The frames of a value: of a record, or of several records as one sequence."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the frames in error messages."""

    @abstractmethod
    def count(self, stop: int | None = None) -> int:
        """Returns the number of frames; or, if at least `stop` frames exist, any number from `stop` on.

        Raises:
            Exception: The error of a truncated record, if its missing frames are needed.
        """

    @abstractmethod
    def read(self, numbers: Int64s) -> npt.NDArray[Any]:
        """Returns frames by non-negative numbers, in any order, with repeats."""

    @abstractmethod
    def times(self) -> FrameTimes | None:
        """Returns the times of the frames; None if a record has no times."""

    def read_some(self, numbers: Int64s) -> npt.NDArray[Any]:
        """As `read`.

        Raises:
            IndexError: A frame does not exist.
        """
        stop = int(np.maximum.reduce(numbers, initial=-1)) + 1
        count = self.count(stop)
        if stop > count:
            raise IndexError(f'{self.name}: frame {stop - 1} out of range [{-count}, {count})')
        return self.read(numbers)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        """Returns the frames of a slice, which is clipped, or of a list of numbers."""
        if isinstance(key, slice):
            return self.read(np.arange(self.count(needed_stop(key)))[key])
        return self.read(frame_numbers(key, self.count, self.name))


class JoinedFrames(Frames):
    """The frames of consecutive records as one sequence. Lengths are read on demand, once.

    Each record begins where the previous one ends. The first frame is at 0 s.

    Args:
        records: The number of records.
        read: Returns frames, given the number of a record and numbers of its frames.
        length: Returns the `Length` of a record, given its number.
        times: Returns the times of the frames of a record, given its number; None without times.
        is_remote: Whether reads wait for a network: several records are then read concurrently.
        name: The name of the frames in error messages.
        no_frames: The result for an empty list of frames.
    """

    def __init__(
        self,
        records: int,
        read: Callable[[int, Int64s], npt.NDArray[Any]],
        length: Callable[[int], Length],
        times: Callable[[int], FrameTimes | None],
        is_remote: bool,
        name: str,
        no_frames: npt.NDArray[Any],
    ) -> None:
        self._records, self._read, self._length, self._times = records, read, length, times
        self._is_remote, self._name, self._no_frames = is_remote, name, no_frames
        self._known: list[Length] = []
        """Lengths of the first records. Not protected by a lock, which a fork could leave locked: threads may
        read the same lengths, and write equal values."""

    @property
    def name(self) -> str:
        return self._name

    def ends(self) -> Int64s:
        """Returns the end of each record, in frames, whose length is known."""
        return np.cumsum([length for length, _ in self._known], dtype=np.int64)

    def count(self, stop: int | None = None) -> int:
        while True:
            known = list(self._known)
            lengths = [length for length, _ in known]
            count, cut = sum(lengths), known[-1][1] if known else None
            if stop is not None and known and count >= stop:
                return count
            if cut:
                raise cut
            if len(known) == self._records:
                return count
            # Assumes that later records are not longer than the longest known record.
            more = self._records - len(known)
            if stop is not None:
                longest = max(lengths, default=stop)
                more = min(more, max(1, -(-(stop - count) // max(1, longest))))
            self._find_lengths(len(known), more)

    def _find_lengths(self, first: int, count: int) -> None:
        """Finds the lengths of records, up to a damaged one; concurrently in a remote dataset."""

        def work(number: int) -> Length | Exception:
            try:
                return self._length(number)
            except Exception as exc:
                return exc

        results: list[Length] = []
        for length in map_concurrently(work, range(first, first + count), self._is_remote):
            if isinstance(length, Exception):
                if not results:
                    raise length
                break  # The next access that needs this record tries again.
            results.append(length)
            if length[1]:
                break
        self._known[first : first + len(results)] = results

    def read(self, numbers: Int64s) -> npt.NDArray[Any]:
        """Returns frames by non-negative numbers, in any order, with repeats.

        Raises:
            ValueError: The frames differ in shape or dtype.
        """
        if not len(numbers):
            return self._read(0, numbers) if self._records else self._no_frames
        starts = np.append(0, self.ends())
        owners = np.searchsorted(starts, numbers, 'right') - 1

        def work(record: int) -> tuple[Int64s, npt.NDArray[Any]]:
            positions = np.flatnonzero(owners == record)
            return positions, self._read(record, numbers[positions] - starts[record])

        parts = map_concurrently(work, np.flatnonzero(np.bincount(owners)).tolist(), self._is_remote)
        if len(parts) == 1:
            return parts[0][1]
        shapes = sorted({(part.shape[1:], part.dtype.name) for _, part in parts})
        if len(shapes) > 1:
            detail = ' and '.join(f'{dtype} frames of shape {shape}' for shape, dtype in shapes[:2])
            raise ValueError(f'{self._name}: expected frames of the same size, got {detail}')
        frames = np.empty((len(numbers), *shapes[0][0]), shapes[0][1])
        for positions, part in parts:
            frames[positions] = part
        return frames

    def times(self) -> FrameTimes | None:
        self.count()
        parts: list[Seconds] = [np.empty(0)]
        end = 0.0
        for found in map_concurrently(self._times, range(self._records), self._is_remote):
            if found is None:
                return None
            parts.append(end + found.starts - found.starts[:1])
            end += found.duration
        return FrameTimes(np.concatenate(parts), end, end)
