"""`JoinedVideos`: consecutive videos as one video."""

from __future__ import annotations

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
        self._known: list[tuple[int, Exception | None]] = []
        """What `length` returned for the first videos. Without a lock, which a fork would keep: threads may
        find the same lengths, and write equal ones."""
        self._known_times: FrameTimes | None = None

    @property
    def _name(self) -> str:
        return self._label

    @property
    def lengths(self) -> Int64s:
        """Frames of each video, shape (videos,)."""
        self._count(None)
        return np.diff(self._ends(), prepend=0)

    def _ends(self) -> Int64s:
        """Returns the end of each video in frames, as far as the lengths are known."""
        return np.cumsum([length for length, _ in self._known], dtype=np.int64)

    def _count(self, stop: int | None, strict: bool = True) -> int:
        while True:
            ends = self._ends()
            count, cut = (int(ends[-1]), self._known[len(ends) - 1][1]) if len(ends) else (0, None)
            if stop is not None and len(ends) and count >= stop:
                return count
            if cut:
                raise cut
            if len(ends) == self._videos:
                return count
            # Up to a frame, as many videos as are needed if none is longer than those before.
            more = self._videos - len(ends)
            if stop is not None:
                longest = int(np.diff(ends, prepend=0).max()) if len(ends) else stop
                more = min(more, max(1, -(-(stop - count) // max(1, longest))))
            self._find_lengths(len(ends), more)

    def _find_lengths(self, first: int, count: int) -> None:
        """Finds the lengths of videos, up to a damaged one; concurrently where the storage is remote."""

        def work(number: int) -> tuple[int, Exception | None] | Exception:
            try:
                return self._length(number)
            except Exception as exc:
                return exc

        results: list[tuple[int, Exception | None]] = []
        for found in map_concurrently(work, range(first, first + count), self._is_remote):
            if isinstance(found, Exception):
                if not results:
                    raise found
                break  # An access that needs this video tries again.
            results.append(found)
            if found[1]:
                break
        self._known[first : first + len(results)] = results

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
        starts = np.append(0, self._ends())
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
