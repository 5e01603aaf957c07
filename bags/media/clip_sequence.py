"""`ClipSequence`: the videos of a datapoint as one. `JoinedVideos`: several videos as one.

Frames are numbered consecutively across all videos.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex, Unpack

import numpy as np

from bags.concurrency import FifoCache, cached_attribute
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.metadata import UNITS
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.dataset.reading.frames import JoinedFrames, known_length
from bags.dataset.reading.selection import select_fields
from bags.formats.pixels import Pixels
from bags.indexing import Int64s, check_index
from bags.media.clip_encoders import MAX_FRAME_TICKS, TICKS_PER_SECOND
from bags.media.encoders import reading_options
from bags.media.frames import FrameSequence, FrameTimes
from bags.media.video import NO_FRAMES, Video, VideoOptions

MAX_OPEN_CLIPS = 16
"""Maximum number of open clips of a `ClipSequence`."""
MAX_FRAME_SECONDS = MAX_FRAME_TICKS / TICKS_PER_SECOND


class JoinedVideos(FrameSequence):
    """Consecutive videos as one. Each header is read once, on the first access that needs it.

    Args:
        count: The number of videos.
        video: Function from a number to the video.
        length: Function from a number to the frame count of the video, and an error if more frames are
            missing.
        is_remote: Whether reads wait for a network; several videos are then read concurrently.
        name: The name in error messages.
    """

    def __init__(
        self,
        count: int,
        video: Callable[[int], Video],
        length: Callable[[int], tuple[int, Exception | None]],
        is_remote: bool,
        name: str,
    ) -> None:
        self._videos, self._video, self._label = count, video, name
        self._frames = JoinedFrames(
            count, lambda number, frames: video(number)[frames], length, is_remote, name, NO_FRAMES
        )

    @property
    def name(self) -> str:
        return self._label

    @property
    def lengths(self) -> Int64s:
        """Number of frames of each video, shape (videos,)."""
        self._frames.count()
        return np.diff(self._frames.ends(), prepend=0)

    def frame_count(self, stop: int | None, strict: bool = True) -> int:
        return self._frames.count(stop)

    def frame_times(self) -> FrameTimes:
        return self._all_times

    @cached_attribute
    def _all_times(self) -> FrameTimes:
        starts, end = self._frames.times(
            lambda number: (self._video(number).timestamps, self._video(number).duration)
        )
        return FrameTimes(starts, end, end)

    def frame_type(self) -> tuple[tuple[int, int, int], np.dtype[Any]]:
        return self._video(0).frame_type() if self._videos else (NO_FRAMES.shape[1:], NO_FRAMES.dtype)

    def decode_frames(self, numbers: Int64s) -> Pixels:
        return self._frames.read(numbers)

    def __iter__(self) -> Iterator[Pixels]:
        for number in range(self._videos):
            yield from self._video(number)


class ClipSequence(JoinedVideos):
    """The clips of a datapoint as one video.

    Frames are numbered consecutively across all clips. A read loads the headers of the clips up to the last
    frame, once, and decodes only the necessary parts of the clips that contain the frames. Each clip begins
    where the previous one ends, except after gaps of more than 18 minutes in the `times` of the field, which
    a video cannot store. Thread-safe, and picklable if the dataset is picklable.

    Args:
        dataset: A reader or a view.
        index: The datapoint.
        field: A field of type `mp4[]`, `webm[]`, `mkv[]` or `video[]`, or without `[]` for a single clip.
        **options: `size`, `color`, `dtype`, `rotate` and `threads`, as for `Video`.

    Examples:
        >>> with bags.DatasetWriter('clips', {'video': 'mp4[]'}) as writer:
        ...     writer.append({'video': np.zeros((2, 20, 48, 64, 3), np.uint8)})
        0
        >>> clips = bags.ClipSequence(bags.open('clips'), 0, 'video')
        >>> len(clips), clips[18:22].shape
        (40, (4, 48, 64, 3))
    """

    def __init__(
        self, dataset: Dataset, index: SupportsIndex, field: str, **options: Unpack[VideoOptions]
    ) -> None:
        check_dataset('ClipSequence', dataset)
        select_fields(field, dataset.schema)
        field_type = dataset.schema[field]
        if field_type.format not in VIDEO_FORMATS:
            raise TypeError(f'ClipSequence: field {field!r} of type {field_type.text} is not a video')
        row = check_index(index, len(dataset))
        count = int(dataset.item_counts(np.array([row]), field)[0]) if field_type.sequence else 1
        self._arguments = (dataset, row, field, options)
        merged: dict[str, Any] = {**reading_options(*field_type.args), **options}
        videos: FifoCache[int, Video] = FifoCache(
            lambda clip: Video(dataset.record(row, field, clip if field_type.sequence else None), **merged),
            MAX_OPEN_CLIPS,
        )
        where = f'{dataset.expression}, datapoint {row}, field {field!r}'
        super().__init__(
            count, videos.__getitem__, lambda clip: known_length(videos[clip]), dataset.reads_wait, where
        )

    def frame_times(self) -> FrameTimes:
        return self._times_with_gaps

    @cached_attribute
    def _times_with_gaps(self) -> FrameTimes:
        """The times of the joined clips, with gaps that are too long for the last frame of a clip.

        An episode ends a clip before such a gap. Its length is in the `times` of the field.
        """
        joined = self._all_times
        dataset, row, field, _ = self._arguments
        facts = dataset.metadata.get('fields', {})
        times = facts.get(field, {}).get('times')
        if times not in dataset.schema or not dataset.schema[times].sequence:
            return joined
        scale = UNITS.get(facts.get(times, {}).get('unit'), 1.0)
        seconds = np.asarray(dataset[row, times][times], float) * scale
        if len(seconds) != len(joined.starts) or not len(seconds):
            return joined
        gaps = np.diff(seconds)
        missing = np.where(gaps > MAX_FRAME_SECONDS, gaps - np.diff(joined.starts), 0.0)
        shifts = np.cumsum(np.concatenate([[0.0], missing]))
        total = float(shifts[-1])
        return FrameTimes(joined.starts + shifts, joined.end + total, joined.duration + total)

    def __reduce__(self) -> Any:
        dataset, row, field, options = self._arguments
        return functools.partial(ClipSequence, **options), (dataset, row, field)

    def __repr__(self) -> str:
        dataset, row, field, _ = self._arguments
        return f'bags.ClipSequence({dataset.expression}, {row}, {field!r})'
