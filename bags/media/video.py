"""`Video`: a video file of which only the frames that are accessed are read and decoded.

Frames are numbered by their presentation times: `video[k]` is frame k of a decode of the whole file, also
with a variable frame rate, B-frames, or an edit that removes frames.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any, SupportsIndex

import numpy as np

from bags.indexing import Int64s
from bags.media.frames import FrameSequence, FrameTimes, Pixels
from bags.media.source import LazyDecoder, Source, as_source
from bags.media.timeline import Timeline
from bags.media.video_decoder import COLORS, open_video

__all__ = ['Video', 'decode_video']


class Video(FrameSequence):
    """The frames of a video, decoded on access.

    Creating it reads nothing. The file is opened on first access and stays open until the last `Video` over
    it is freed. Thread-safe: one thread decodes at a time. Picklable and usable after a fork: the file is
    opened again.

    Args:
        source: A path, bytes, or a record of a dataset (see `bags.decoders`).
        size: Height and width to scale frames to; by default, frames keep their size.
        color: `rgb`, or `gray` for one channel.
        threads: Decoder threads; 0 for one per core. By default, one for few frames and all cores for many.
    """

    def __init__(
        self,
        source: Any,
        *,
        size: tuple[SupportsIndex, SupportsIndex] | None = None,
        color: str = 'rgb',
        threads: int | None = None,
    ) -> None:
        self._decoder = LazyDecoder(as_source(source), open_video)
        self._set(size, color, threads)

    def _set(self, size: Any, color: str, threads: int | None) -> None:
        if color not in COLORS:
            raise ValueError(f'expected a color of {" or ".join(COLORS)}, got {color!r}')
        if size is not None:
            height, width = map(operator.index, size)
            if not (0 < height < 1 << 15 and 0 < width < 1 << 15):
                raise ValueError(f'expected a size of (height, width), got {size}')
            size = height, width
        if threads is not None and (type(threads) is not int or not 0 <= threads <= 256):
            raise ValueError(f'expected a number of threads, got {threads!r}')
        self._size, self._color, self._threads = size, color, threads

    def options(self, **options: Any) -> Video:
        """Returns the same video with another `size`, `color` or `threads`, sharing the open file."""
        other = copy.copy(self)
        current = {'size': self._size, 'color': self._color, 'threads': self._threads}
        other._set(**{**current, **options})
        return other

    @property
    def source(self) -> Source:
        """What it is read from."""
        return self._decoder.source

    @property
    def timeline(self) -> Timeline:
        """Which packet holds which frame, and when each is shown."""
        return self._decoder.get().timeline

    @property
    def _name(self) -> str:
        return self._decoder.source.name

    def __repr__(self) -> str:
        return f'bags.Video({self._name!r})'

    def _count(self, stop: int | None, strict: bool = False) -> int:
        with self._decoder.use() as decoder:
            count, truncation = len(decoder.timeline), decoder.timeline.truncation
            if truncation and strict and (stop is None or stop > count):
                raise ValueError(f'{truncation}; the first {count} frames are there')
            return count

    def _times(self) -> FrameTimes:
        timeline = self.timeline
        numerator, denominator = timeline.time_base
        duration = (timeline.end - int(timeline.ticks[0])) * numerator / denominator
        return FrameTimes(timeline.seconds(timeline.ticks), timeline.end * numerator / denominator, duration)

    def _frame_shape(self) -> tuple[int, int, int]:
        with self._decoder.use() as decoder:
            return (*(self._size or decoder.frame_size), COLORS[self._color][1])

    def _decode(self, numbers: Int64s) -> Pixels:
        with self._decoder.use() as decoder:
            frame_size = decoder.frame_size
            size = self._size or frame_size
            frames = np.empty((len(numbers), *size, COLORS[self._color][1]), np.uint8)
            for number, frame in decoder.frames(np.unique(numbers), self._threads):
                pixels = decoder.pixels(number, frame, size, self._color)
                for place in np.flatnonzero(numbers == number):
                    frames[place] = pixels
        return frames

    def __iter__(self) -> Iterator[Pixels]:
        """Yields all frames in order, a few of them in memory, with a decoder of its own."""
        with self._decoder.use() as shared:
            decoder = shared.over(self.source.open())
        try:
            frame_size = decoder.frame_size  # May decode a frame, so not while others are decoded.
            size = self._size or frame_size
            yield from decoder.in_order(
                0, lambda k, frame: decoder.pixels(k, frame, size, self._color).copy(), self._threads
            )
            if decoder.timeline.truncation:
                raise ValueError(decoder.timeline.truncation)
        except Exception as exc:
            self._decoder.fail(exc)
        finally:
            decoder.close()


def decode_video(record: Any, *_args: str) -> Video:
    """Returns a `Video` over a record, which is read when frames are accessed."""
    return Video(record)


decode_video.lazy = True  # type: ignore[attr-defined]
