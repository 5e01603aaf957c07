"""Consecutive videos as one video."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.indexing import Int64s
from bags.media.video import Frames, Video

__all__ = ['JoinedVideos', 'length_of']

Pixels = npt.NDArray[np.uint8]
Seconds = npt.NDArray[np.float64]


class JoinedVideos:
    """Videos that follow one another as one.

    Args:
        count: How many there are.
        video: Returns one of them.
        length: Returns its frames, and an error if more should be there.
        is_remote: Whether reading mostly is_remote, so that it is worth doing at the same time.
    """

    def __init__(
        self,
        count: int,
        video: Callable[[int], Video],
        length: Callable[[int], tuple[int, Exception | None]],
        is_remote: bool,
    ) -> None:
        self._count, self._video, self._length, self._is_remote = count, video, length, is_remote
        self._ends: list[int] = []
        """Frames up to the end of each clip, as far as they are known."""
        self._cut: Exception | None = None
        self._lock = threading.Lock()
        self._clock: tuple[Seconds, float] | None = None

    # What it is.

    def __len__(self) -> int:
        return self._reach(None)

    @property
    def lengths(self) -> Int64s:
        """Frames of each clip, shape (clips,)."""
        self._reach(None)
        ends = np.array([0, *self._ends], np.int64)
        return ends[1:] - ends[:-1]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(time, height, width, channels)."""
        return (len(self), *(self._video(0).shape[1:] if self._count else (0, 0, 3)))

    @property
    def timestamps(self) -> Seconds:
        """When each frame is shown, float64 seconds, shape (time,), from 0 on."""
        return self._times()[0]

    @property
    def duration(self) -> float:
        """Seconds until the last frame ends."""
        return self._times()[1]

    @property
    def fps(self) -> float:
        """Frames a second, on average."""
        return len(self) / self.duration if self.duration else 0.0

    def _reach(self, stop: int | None) -> int:
        """Returns how many frames there are, having looked at least as far as `stop` (None: the end)."""
        ends = self._ends
        while len(ends) < self._count or self._cut:
            if stop is not None and ends and ends[-1] >= stop:
                break
            if self._cut:
                raise self._cut
            with self._lock:
                if len(ends) < self._count and not self._cut:
                    self._look(self._needed(stop))
        return ends[-1] if ends else 0

    def _needed(self, stop: int | None) -> int:
        """Returns how many clips have to be looked at next: all at once, where that waits.

        Up to a frame that is as many as it takes if none is longer than those before.
        """
        ends, left = self._ends, self._count - len(self._ends)
        if not self._is_remote or (stop is not None and not ends):
            return 1
        if stop is None:
            return left
        longest = max(end - start for start, end in zip([0, *ends], ends, strict=False))
        return min(left, -(-(stop - ends[-1]) // max(1, longest)))

    def _look(self, count: int) -> None:
        """Notes the lengths of the next clips, up to one that is damaged."""

        def work(clip: int) -> tuple[int, Exception | None] | Exception:
            try:
                return self._length(clip)
            except Exception as exc:
                return exc

        first, ends = len(self._ends), self._ends
        for found in map_concurrently(work, range(first, first + count), self._is_remote):
            if isinstance(found, Exception):
                if len(ends) == first:
                    raise found
                break  # Whoever needs that clip will look again.
            length, self._cut = found
            ends.append((ends[-1] if ends else 0) + length)
            if self._cut:
                break

    def _times(self) -> tuple[Seconds, float]:
        if self._clock is None:
            self._reach(None)
            parts, end = [np.empty(0)], 0.0
            for timeline in map_concurrently(
                lambda clip: self._video(clip).timeline, range(self._count), self._is_remote
            ):
                seconds = timeline.seconds(np.append(timeline.ticks, timeline.end))
                parts.append(end + seconds[:-1] - seconds[0])
                end += float(seconds[-1] - seconds[0])
            self._clock = np.concatenate(parts), end
        return self._clock

    # Frames.

    def __getitem__(self, key: Any) -> Pixels:
        """Returns frames as uint8, as `Video` does: by an index, a slice, or several indices.

        Raises:
            IndexError: No such frame.
            DecodeError: A clip is damaged.
        """
        if isinstance(key, slice):
            bounds = [key.start or 0, -1 if key.stop is None else key.stop]
            ahead = all(bound >= 0 for bound in bounds) and (key.step or 1) > 0
            return self._read(np.arange(self._reach(bounds[1] if ahead else None))[key])
        if isinstance(key, list | tuple | range | np.ndarray) and np.ndim(key):
            return self._read(self._numbers(key))
        frame: Pixels = self._read(self._numbers([operator.index(key)]))[0]
        return frame

    def _numbers(self, key: Any) -> Int64s:
        found = np.asarray(key)
        if found.ndim != 1 or (found.size and found.dtype.kind not in 'iu'):
            raise TypeError(f'expected a row of frame numbers, got {found.dtype} of shape {found.shape}')
        found = found.astype(np.int64)
        if not len(found):
            return found
        count = self._reach(None if int(found.min()) < 0 else int(found.max()) + 1)
        bad = np.flatnonzero((found < -count) | (found >= count))
        if len(bad):
            raise IndexError(f'frame {found[bad[0]]} out of range [{-count}, {count})')
        return np.where(found < 0, found + count, found)

    def _read(self, numbers: Int64s) -> Pixels:
        ends = np.array(self._ends, np.int64)
        clips = np.searchsorted(ends, numbers, 'right')
        if not len(numbers):
            return np.empty((0, *(self._video(0).shape[1:] if self._count else (0, 0, 3))), np.uint8)

        def work(clip: int) -> tuple[Int64s, Pixels]:
            places = np.flatnonzero(clips == clip)
            start = int(ends[clip - 1]) if clip else 0
            return places, self._video(clip)[numbers[places] - start]

        parts = map_concurrently(work, np.unique(clips).tolist(), self._is_remote)
        if len(parts) == 1:
            return parts[0][1]
        shapes = sorted({part.shape[1:] for _, part in parts})
        if len(shapes) > 1:
            raise ValueError(f'expected clips of one size, got frames of shape {shapes[0]} and {shapes[1]}')
        found = np.empty((len(numbers), *shapes[0]), np.uint8)
        for places, part in parts:
            found[places] = part
        return found

    def read(self, key: Any) -> Frames:
        """Returns frames together with the times at which they are shown; `key` as for `clips[key]`."""
        return Frames(self[key], self.timestamps[key])

    def at(self, seconds: float) -> Pixels:
        """Returns the frame that is shown at a time, shape (height, width, channels).

        Raises:
            IndexError: The time is negative, or when the last frame has ended.
        """
        times, end = self._times()
        if not 0 <= seconds < end:
            raise IndexError(f'nothing is shown at {seconds} s; the clips last {end} s')
        return self[int(np.searchsorted(times, seconds, 'right')) - 1]

    def between(self, start: float, stop: float) -> Pixels:
        """Returns the frames whose times are in [start, stop), in seconds."""
        return self[self.span(start, stop)]

    def span(self, start: float, stop: float) -> slice:
        """Returns the numbers of the frames whose times are in [start, stop), in seconds."""
        low, high = np.searchsorted(self.timestamps, [start, stop], 'left').tolist()
        return slice(low, max(low, high))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError('the frames of Clips are decoded: expected copy=None or True, got False')
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def __iter__(self) -> Iterator[Pixels]:
        """Yields all frames one after another, a few of them in memory."""
        for clip in range(self._count):
            yield from self._video(clip)


def length_of(video: Video) -> tuple[int, Exception | None]:
    """Returns the frames of a video, and an error if more should be there."""
    timeline = video.timeline
    return len(timeline.packets), video.source.error(ValueError(timeline.cut)) if timeline.cut else None
