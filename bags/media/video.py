"""`Video`: a file of moving pictures, of which only the frames asked for are read and decoded.

Which frame is which is told by the times at which they are shown: `video[k]` is what comes k-th when all of
the file is decoded, also where frames come at varying distances, are stored out of order, or are cut away
by an edit.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import import_av
from bags.media.handle import Handle, as_number, as_seconds, check_reach
from bags.media.source import Source, as_source
from bags.media.timeline import Timeline
from bags.media.video_decoder import Reel, open_reel

__all__ = ['Frames', 'Video', 'decode_video']

Pixels = npt.NDArray[np.uint8]
Seconds = npt.NDArray[np.float64]

CHANNELS = {'rgb': ('rgb24', 3), 'gray': ('gray', 1)}
NUMBERS = 'a number of a frame, a slice, or a list of numbers'


class Frames(NamedTuple):
    """Frames and when they are shown."""

    pixels: Pixels
    """uint8, shape (time, height, width, channels)."""
    timestamps: Seconds
    """float64, shape (time,): seconds."""


class Video:
    """The frames of a video, decoded when they are asked for.

    Creating it reads nothing. The file is opened when something is first asked of it, and stays open until
    the last `Video` over it is gone. Safe to use from any thread; one decodes at a time. Picklable, and
    usable after a fork: it opens the file again.

    Args:
        source: A path, bytes, or a record of a dataset (see `bags.decoders`).
        size: Height and width to scale frames to; their own unless given.
        color: `rgb`, or `gray` for one channel.
        threads: That decode; 0 for as many as there are cores. Unless given, one decodes a few frames, and
            all decode many.
    """

    def __init__(
        self,
        source: Any,
        *,
        size: tuple[SupportsIndex, SupportsIndex] | None = None,
        color: str = 'rgb',
        threads: int | None = None,
    ) -> None:
        self._handle = Handle(as_source(source), open_reel)
        self._set(size, color, threads)

    def _set(self, size: Any, color: str, threads: int | None) -> None:
        if color not in CHANNELS:
            raise ValueError(f'expected a color of {" or ".join(CHANNELS)}, got {color!r}')
        if size is not None:
            height, width = map(operator.index, size)
            if not (0 < height < 1 << 15 and 0 < width < 1 << 15):
                raise ValueError(f'expected a size of (height, width), got {size}')
            size = height, width
        if threads is not None and (type(threads) is not int or not 0 <= threads <= 256):
            raise ValueError(f'expected a number of threads, got {threads!r}')
        self._size, self._color, self._threads = size, color, threads

    def options(self, **options: Any) -> Video:
        """Returns the same video with another `size`, `color` or `threads`. The index is shared."""
        other = object.__new__(Video)
        other._handle = self._handle
        given = {'size': self._size, 'color': self._color, 'threads': self._threads, **options}
        other._set(**given)
        return other

    # What it is.

    @property
    def source(self) -> Source:
        """What it is read from."""
        return self._handle.source

    @property
    def timeline(self) -> Timeline:
        """Which packet holds which frame, and when each is shown."""
        with self._handle.use() as reel:
            return reel.timeline

    def __len__(self) -> int:
        with self._handle.use() as reel:
            return len(reel.timeline.packets)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(time, height, width, channels)."""
        with self._handle.use() as reel:
            return (len(reel.timeline.packets), *self._frame_shape(reel))

    def _frame_shape(self, reel: Reel) -> tuple[int, int, int]:
        height, width = self._size or reel.frame_size()
        return height, width, CHANNELS[self._color][1]

    @property
    def timestamps(self) -> Seconds:
        """When each frame is shown, float64 seconds, shape (time,)."""
        with self._handle.use() as reel:
            return reel.timeline.seconds(reel.timeline.ticks)

    @property
    def duration(self) -> float:
        """Seconds from when the first frame is shown until the last one ends."""
        with self._handle.use() as reel:
            return _duration(reel)

    @property
    def fps(self) -> float:
        """Frames a second, on average."""
        with self._handle.use() as reel:
            duration = _duration(reel)
            return len(reel.timeline.packets) / duration if duration else 0.0

    def __repr__(self) -> str:
        return f'bags.Video({self._handle.source.name!r})'

    # Frames.

    @overload
    def __getitem__(self, key: SupportsIndex) -> Pixels: ...

    @overload
    def __getitem__(self, key: Any) -> Pixels: ...

    def __getitem__(self, key: Any) -> Pixels:
        """Returns frames as uint8.

        - `video[-1]`: one frame, shape (height, width, channels).
        - `video[100:116]`, `video[::10]`: shape (time, height, width, channels); slices clamp.
        - `video[[3, 50, 7]]`: in any order, with repeats; each group of pictures is decoded once.

        Raises:
            IndexError: No such frame.
            DecodeError: It is damaged (`ValueError` if the video is not of a dataset).
        """
        with self._handle.use() as reel:
            count = len(reel.timeline.packets)
            if isinstance(key, slice):
                numbers = np.arange(count)[key]
                check_reach(key, count, reel.timeline.cut, 'frames')
                return self._read(reel, numbers)
            if isinstance(key, list | tuple | range | np.ndarray) and np.ndim(key):
                return self._read(reel, self._numbers(key, count))
            frame: Pixels = self._read(reel, self._numbers([as_number(key, NUMBERS)], count))[0]
            return frame

    def read(self, key: Any) -> Frames:
        """Returns frames together with the times at which they are shown; `key` as for `video[key]`."""
        return Frames(self[key], self.timestamps[key])

    def at(self, seconds: float) -> Pixels:
        """Returns the frame that is shown at a time, shape (height, width, channels).

        Raises:
            IndexError: The time is before the first frame, or when the last one has ended.
        """
        seconds = as_seconds(seconds)
        with self._handle.use() as reel:
            times = reel.timeline.seconds(reel.timeline.ticks)
            end = reel.timeline.end * reel.timeline.unit[0] / reel.timeline.unit[1]
            if not times[0] <= seconds < max(end, np.nextafter(times[-1], np.inf)):
                where = f'shown from {times[0]} s to {end} s'
                raise IndexError(
                    f'{self._handle.source.name}: nothing is shown at {seconds} s; it is {where}'
                )
            number = int(np.searchsorted(times, seconds, 'right')) - 1
            frame: Pixels = self._read(reel, np.array([number]))[0]
            return frame

    def between(self, start: float, stop: float) -> Pixels:
        """Returns the frames whose times are in [start, stop), in seconds."""
        chosen = self.span(start, stop)
        with self._handle.use() as reel:
            timeline = reel.timeline
            if stop > timeline.end * timeline.unit[0] / timeline.unit[1]:
                count = len(timeline.packets)
                check_reach(slice(chosen.start, count + 1), count, timeline.cut, 'frames')
        return self[chosen]

    def span(self, start: float, stop: float) -> slice:
        """Returns the numbers of the frames whose times are in [start, stop), in seconds."""
        times = self.timestamps
        low, high = np.searchsorted(times, [as_seconds(start), as_seconds(stop)], 'left').tolist()
        return slice(low, max(low, high))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError('the frames of a Video are decoded: expected copy=None or True, got False')
        frames = self[:]
        return frames if dtype is None else frames.astype(dtype, copy=False)

    def __iter__(self) -> Iterator[Pixels]:
        """Yields all frames one after another, by a decoder of its own, a few of them in memory."""
        with self._handle.use() as shared:
            reel = shared.over(self._handle.source.open())
            size = shared.frame_size()
        try:
            waiting: dict[int, Pixels] = {}
            convert = import_av().video.reformatter.VideoReformatter()
            expected = 0
            with self._handle.errors():
                for number, frame in reel.frames(np.arange(len(reel.timeline.packets)), self._threads):
                    waiting[number] = self._pixels(convert, frame, size, number).copy()
                    while expected in waiting:
                        yield waiting.pop(expected)
                        expected += 1
                if reel.timeline.cut:
                    raise ValueError(reel.timeline.cut)
        finally:
            reel.close()

    def _numbers(self, key: Any, count: int) -> npt.NDArray[np.int64]:
        found = np.asarray(key)
        if found.size and found.dtype.kind not in 'iu':
            raise TypeError(f'expected frame numbers as integers, got {found.dtype}')
        found = found.astype(np.int64)
        if found.ndim != 1:
            raise TypeError(f'expected a row of frame numbers, got an array of shape {found.shape}')
        bad = np.flatnonzero((found < -count) | (found >= count))
        if len(bad):
            name = self._handle.source.name
            raise IndexError(f'{name}: frame {int(found[bad[0]])} is out of range, there are {count}')
        return np.where(found < 0, found + count, found)

    def _read(self, reel: Reel, numbers: npt.NDArray[np.int64]) -> Pixels:
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers.tolist()):
            places.setdefault(number, []).append(place)
        distinct = np.array(sorted(places), np.int64)
        size = reel.frame_size()
        shape = self._frame_shape(reel)
        pixels = np.empty((len(numbers), *shape), np.uint8)
        convert = import_av().video.reformatter.VideoReformatter()
        for number, frame in reel.frames(distinct, self._threads):
            found = self._pixels(convert, frame, size, number)
            for place in places[number]:
                pixels[place] = found
        return pixels

    def _pixels(self, convert: Any, frame: Any, size: tuple[int, int], number: int) -> Pixels:
        if (frame.height, frame.width) != size:
            found = f'{frame.height} x {frame.width}'
            raise ValueError(
                f'frame {number}: expected {size[0]} x {size[1]} pixels as in the others, got {found}'
            )
        format, channels = CHANNELS[self._color]
        height, width = self._size or size
        converted = convert.reformat(frame, width=width, height=height, format=format, threads=1)
        plane = converted.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        return rows[:height, : width * channels].reshape(height, width, channels)


def _duration(reel: Reel) -> float:
    timeline = reel.timeline
    return (timeline.end - int(timeline.ticks[0])) * timeline.unit[0] / timeline.unit[1]


def decode_video(record: Any, *_args: str) -> Video:
    """Returns a `Video` over a record, which is read when frames are asked for."""
    return Video(record)


decode_video.lazy = True  # type: ignore[attr-defined]
