"""`JoinedVideos`: consecutive videos as one video."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bags.concurrency import map_concurrently
from bags.indexing import Int64s
from bags.media.frames import FrameSequence, FrameTimes, Pixels
from bags.media.video import Video

__all__ = ['JoinedVideos', 'length_of']


class JoinedVideos(FrameSequence):
    """Consecutive videos as one. Headers are read as far as an access needs them, and once.

    Args:
        count: The number of videos.
        video: Returns one of them by its number.
        length: Returns its number of frames, and an error if more are missing.
        is_remote: Reads wait for a network, so that several videos are read concurrently.
        name: The name in messages.
    """

    def __init__(
        self,
        count: int,
        video: Callable[[int], Video],
        length: Callable[[int], tuple[int, Exception | None]],
        is_remote: bool,
        name: str,
    ) -> None:
        self._videos, self._video, self._length = count, video, length
        self._is_remote, self._label = is_remote, name
        self._ends: list[int] = []
        """The end of each video in frames, as far as the lengths are known."""
        self._cut: Exception | None = None
        self._lock = threading.Lock()
        self._known_times: FrameTimes | None = None

    @property
    def _name(self) -> str:
        return self._label

    @property
    def lengths(self) -> Int64s:
        """Frames of each video, shape (videos,)."""
        self._count(None)
        ends = np.array([0, *self._ends], np.int64)
        return ends[1:] - ends[:-1]

    def _count(self, stop: int | None, strict: bool = True) -> int:
        ends = self._ends
        while len(ends) < self._videos or self._cut:
            if stop is not None and ends and ends[-1] >= stop:
                break
            if self._cut:
                raise self._cut
            with self._lock:
                if len(ends) < self._videos and not self._cut:
                    self._find_lengths(self._next_videos(stop))
        return ends[-1] if ends else 0

    def _next_videos(self, stop: int | None) -> int:
        """Returns the number of videos whose lengths to find next, concurrently where the storage is remote.

        Up to a frame, it is as many as are needed if none is longer than those before.
        """
        ends, left = self._ends, self._videos - len(self._ends)
        if not self._is_remote or (stop is not None and not ends):
            return 1
        if stop is None:
            return left
        longest = max(end - start for start, end in zip([0, *ends], ends, strict=False))
        return min(left, -(-(stop - ends[-1]) // max(1, longest)))

    def _find_lengths(self, count: int) -> None:
        """Finds the lengths of the next videos, up to a damaged one."""

        def work(number: int) -> tuple[int, Exception | None] | Exception:
            try:
                return self._length(number)
            except Exception as exc:
                return exc

        first, ends = len(self._ends), self._ends
        for found in map_concurrently(work, range(first, first + count), self._is_remote):
            if isinstance(found, Exception):
                if len(ends) == first:
                    raise found
                break  # An access that needs this video tries again.
            length, self._cut = found
            ends.append((ends[-1] if ends else 0) + length)
            if self._cut:
                break

    def _times(self) -> FrameTimes:
        if self._known_times is None:
            self._count(None)
            parts, end = [np.empty(0)], 0.0
            numbers = range(self._videos)
            for timeline in map_concurrently(lambda k: self._video(k).timeline, numbers, self._is_remote):
                seconds = timeline.seconds(np.append(timeline.ticks, timeline.end))
                parts.append(end + seconds[:-1] - seconds[0])
                end += float(seconds[-1] - seconds[0])
            self._known_times = FrameTimes(np.concatenate(parts), end, end)
        return self._known_times

    def _frame_type(self) -> tuple[tuple[int, int, int], np.dtype[Any]]:
        return self._video(0)._frame_type() if self._videos else ((0, 0, 3), np.dtype(np.uint8))

    def _decode(self, numbers: Int64s) -> Pixels:
        if not len(numbers):
            return self._no_frames()
        starts = np.array([0, *self._ends], np.int64)
        videos = np.searchsorted(starts, numbers, 'right') - 1

        def work(video: int) -> tuple[Int64s, Pixels]:
            places = np.flatnonzero(videos == video)
            return places, self._video(video)[numbers[places] - starts[video]]

        parts = map_concurrently(work, np.unique(videos).tolist(), self._is_remote)
        if len(parts) == 1:
            return parts[0][1]
        shapes = sorted({(part.shape[1:], part.dtype.name) for _, part in parts})
        if len(shapes) > 1:
            sizes = ' and '.join(f'{dtype} frames of shape {shape}' for shape, dtype in shapes[:2])
            raise ValueError(f'{self._name}: expected videos of one frame size, got {sizes}')
        frames = np.empty((len(numbers), *shapes[0][0]), shapes[0][1])
        for places, part in parts:
            frames[places] = part
        return frames

    def __iter__(self) -> Iterator[Pixels]:
        for number in range(self._videos):
            yield from self._video(number)


def length_of(video: Video) -> tuple[int, Exception | None]:
    """Returns the number of frames of a video, and an error if more are missing at the end of the file."""
    timeline, missing = video.timeline, video.timeline.truncation
    return len(timeline), video.source.error(ValueError(missing)) if missing else None
