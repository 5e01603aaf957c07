"""`Video`: a video file whose frames are read and decoded on access.

Frames are numbered in presentation order: `video[k]` is frame k of the whole decoded file, also with a
variable frame rate, B-frames, or an edit that removes frames.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from bags.concurrency import Shareable, cached_attribute
from bags.dataset.reading.frames import FrameTimes
from bags.formats.ffmpeg import Track
from bags.formats.pixels import PixelOptions, Pixels, pixel_color, pixel_dtype
from bags.indexing import Int64s
from bags.media.audio import Audio
from bags.media.demux import tracks_of
from bags.media.encoders import reading_options
from bags.media.excerpts import Excerpt, FileFrames, cut_excerpts
from bags.media.frames import FrameSequence
from bags.media.segments import open_whole, segment_length, video_of
from bags.media.source import LazyDecoder, MediaSource
from bags.media.timeline import Timeline
from bags.other_names import find_attribute
from bags.validation import reject_unknown_options, with_advice

NO_FRAMES: Pixels = np.empty((0, 0, 0, 3), np.uint8)
"""The empty result without a video."""


class VideoOptions(TypedDict, total=False):
    """Options of the returned frames; see `Video`."""

    size: tuple[SupportsIndex, SupportsIndex] | None
    color: str | None
    dtype: npt.DTypeLike | None
    rotate: bool
    threads: int | None


class Video(Shareable, FrameSequence):
    """The frames of a video, decoded on access.

    Creating it reads nothing. The file is opened on first access and stays open until the last `Video` over
    it is freed. Thread-safe: one thread decodes at a time. Picklable and usable after a fork: the file is
    opened again.

    Args:
        source: A path, bytes, or a record of a dataset (see `bags.decoders`).
        size: Height and width to scale frames to; by default, frames keep their size.
        color: `rgb`, or `gray` for one channel. By default `rgb`, and for grey of more than 8 bits, such as
            depth, frames without channels, (height, width), as grey images.
        dtype: `uint8` or `uint16`, with values from 0 to 255 or 65535. By default uint8, and for grey of more
            than 8 bits, such as depth, uint16 with the stored values: 0 to 4095 for 12 bits.
        rotate: Rotate frames by the display matrix, as players do. With False, frames are returned as stored.
        threads: Decoder threads; 0 for one per core. By default, one for few frames and all cores for many.
        track: An index in `tracks`. By default, the track that players choose.

    Examples:
        >>> video = bags.Video('film.mp4', size=(90, 160))
        >>> len(video), video.shape
        (132, (132, 90, 160, 3))
        >>> video[10:14].shape, video.at(1.0).shape
        ((4, 90, 160, 3), (90, 160, 3))
    """

    is_joined: ClassVar[bool] = False
    """Whether the frames come from several files; `source`, `tracks`, `rotation` and `audio` of one file."""
    get_times: Callable[[], FrameTimes] | None = None
    """Returns the times of frames that `with_times` gave; for internal use."""

    @with_advice
    def __init__(
        self,
        source: Any,
        *,
        size: tuple[SupportsIndex, SupportsIndex] | None = None,
        color: str | None = None,
        dtype: npt.DTypeLike | None = None,
        rotate: bool = True,
        threads: int | None = None,
        track: int | None = None,
    ) -> None:
        self.decoder = LazyDecoder(source, video_of, track)
        """The decoder, for internal use."""
        self.set_options(size, color, dtype, rotate, threads)

    def set_options(
        self, size: Any, color: str | None, dtype: Any, rotate: bool, threads: int | None
    ) -> None:
        """Sets the options of a new object; for internal use."""
        color = None if color is None else pixel_color(color)
        if size is not None:
            if np.shape(size) != (2,) or not all(0 < operator.index(side) < 1 << 15 for side in size):
                raise ValueError(f'expected a size of (height, width), got {size!r}')
            size = tuple(map(operator.index, size))
        if type(rotate) is not bool:
            raise ValueError(f'expected rotate to be True or False, got {rotate!r}')
        if threads is not None and (type(threads) is not int or not 0 <= threads <= 256):
            raise ValueError(f'expected a number of threads, got {threads!r}')
        self.pixel_options = PixelOptions(size, color, None if dtype is None else pixel_dtype(dtype), rotate)
        self.threads = threads

    if not TYPE_CHECKING:  # A name that does not exist is an error for type checkers.

        def __getattr__(self, name: str) -> Any:
            return find_attribute(self, 'Video', name)

    def options(self, **options: Unpack[VideoOptions]) -> Self:
        """Returns the same video with other options (not `track`). Both share the open file."""
        reject_unknown_options(options, VideoOptions.__annotations__, self.options)
        other = copy.copy(self)
        own = self.pixel_options._asdict() | {'threads': self.threads}
        other.set_options(**{**own, **options})
        return other

    def with_times(self, get_times: Callable[[], FrameTimes]) -> Self:
        """Returns the same video with other times of its frames; for internal use.

        Args:
            get_times: Returns the times. Called once, on first use. Picklable.
        """
        other = copy.copy(self)
        other.get_times = get_times
        vars(other).pop('_given_times', None)
        return other

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks of the file: video, audio and others. Opens the file again."""
        return tracks_of(self.decoder)

    @property
    def audio(self) -> Audio:
        """The audio of the file, with the same clock as the video.

        `video.audio.between(t0, t1)` is heard during `video.between(t0, t1)`.
        """
        audio = Audio(self.source)
        if self.get_times is None:
            return audio
        return audio.with_start(audio.start + self.start - float(self.file_times().starts[0]))

    @property
    def clip_lengths(self) -> Int64s:
        """Number of frames of each clip, int64, shape (clips,). A video of one file is one clip."""
        return np.array([len(self)], np.int64)

    @property
    def rotation(self) -> int:
        """Clockwise rotation of the stored frames in degrees: 0, 90, 180 or 270. Independent of `rotate`."""
        with self.decoder.use() as decoder:
            return decoder.frame_format.orientation.rotation

    @property
    def source(self) -> MediaSource:
        """The source of the file: a record, a path or bytes."""
        return self.decoder.source

    @property
    def _timeline(self) -> Timeline:
        """The packet and the presentation time of each frame."""
        return self.decoder.get().timeline

    @property
    def truncation(self) -> Exception | None:
        """The error for frames that are missing at the end of the file; None if the file is complete."""
        missing = None if self._known_length is not None else self._timeline.truncation
        return self.source.error(ValueError(missing)) if missing else None

    @property
    def name(self) -> str:
        return self.decoder.source.name

    def __repr__(self) -> str:
        """Returns length, size and rate. Opens a local file for them, but not a remote file."""
        name = f'bags.Video({self.name!r}'
        try:
            if self.decoder.peek() is None:
                return f'{name})'
            count, height, width = self.shape[:3]
            text = f'{count} frames, {height} x {width}, {self.rate:.6g} fps, {self.duration:.6g} s'
        except Exception as exc:
            text = f'cannot be read: {type(exc).__name__}'
        return f'{name}, {text})'

    @cached_attribute
    def _known_length(self) -> int | None:
        """The number of frames of a segment, known without opening its file; None for other sources."""
        return segment_length(self.source, 'video')

    def frame_count(self, stop: int | None, strict: bool = False) -> int:
        if self._known_length is not None:
            return self._known_length
        with self.decoder.use() as decoder:
            count, truncation = len(decoder.timeline.ticks), decoder.timeline.truncation
            if truncation and strict and (stop is None or stop > count):
                raise ValueError(f'{truncation}; the first {count} frames are available')
            return count

    def frame_times(self) -> FrameTimes:
        return self.file_times() if self.get_times is None else self._given_times

    @cached_attribute
    def _given_times(self) -> FrameTimes:
        assert self.get_times is not None
        return self.get_times()

    def file_times(self) -> FrameTimes:
        """Returns the presentation times of frames in the file; for internal use."""
        timeline = self._timeline
        numerator, denominator = timeline.time_base
        duration = (timeline.end - int(timeline.ticks[0])) * numerator / denominator
        return FrameTimes(timeline.seconds(timeline.ticks), timeline.end * numerator / denominator, duration)

    def frame_type(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        with self.decoder.use() as decoder:
            return self.pixel_options.result(decoder.frame_format)

    def decode_frames(self, numbers: Int64s) -> Pixels:
        result: Pixels | None = None
        with self.decoder.use() as decoder:
            for number, frame in decoder.frames(np.unique(numbers), self.threads):
                pixels = decoder.pixels(number, frame, self.pixel_options)
                if result is None:
                    result = np.empty((len(numbers), *pixels.shape), pixels.dtype)
                for position in np.flatnonzero(numbers == number):
                    result[position] = pixels
        return self.no_frames() if result is None else result

    def excerpt(self, start: SupportsIndex, stop: SupportsIndex) -> Excerpt:
        """Returns frames `start` to `stop` as a file in memory, for a decoder of another library.

        The file has the packets of the groups of pictures that the frames need, unchanged: from the key frame
        before them, to the last packet that they refer to. Only these are read. Options such as `size` do not
        change them. `bags.torch.decode` decodes the frames to a tensor, also on a GPU.

        Raises:
            IndexError: A frame number is out of range.
            ValueError: `start` is not before `stop`, the frames are in several files, or cannot be copied
                because a frame between them is hidden.
            DecodeError: Packets are missing (`ValueError` if the video is not from a dataset).
            MissingDependencyError: av is not installed.

        Examples:
            >>> excerpt = bags.Video('film.mp4').excerpt(60, 70)
            >>> len(excerpt), len(bags.Video(excerpt.file))
            (10, 12)
        """
        first, last = operator.index(start), operator.index(stop)
        count = self.frame_count(last, strict=True)
        if not 0 <= first <= count or not 0 <= last <= count:
            raise IndexError(f'{self.name}: expected frames in range({count}), got {first} to {last}')
        if first >= last:
            raise ValueError(f'{self.name}: expected a start before the stop, got {first} to {last}')
        numbers = np.arange(first, last)
        requests = self.file_frames(numbers, numbers - first)
        cut = None if len(requests) > 1 else cut_excerpts(requests, numbers.shape, False)
        excerpts: Sequence[Excerpt] = () if cut is None else cut.excerpts
        if len(excerpts) != 1:
            detail = 'have a hidden frame between them' if excerpts else 'are in several clips'
            raise ValueError(
                f'{self.name}: frames {first} to {last} {detail}: expected frames of one excerpt; '
                'dataset.excerpts returns several'
            )
        return excerpts[0]

    def file_frames(self, numbers: Int64s, positions: Int64s) -> list[FileFrames]:
        """Returns requests of frames by the file that has them; for internal use.

        Args:
            numbers: Numbers in range(len(self)), in any order, with repeats.
            positions: Their positions in the whole request.
        """
        return [FileFrames(self.decoder, numbers, self.times[numbers], positions, self.name)]

    def __iter__(self) -> Iterator[Pixels]:
        """Yields all frames in order, with a few frames in memory. Uses a separate decoder."""
        with self.decoder.use() as shared:
            decoder = shared.over(open_whole(self.source))
        try:
            yield from decoder.in_order(
                0, lambda k, frame: decoder.pixels(k, frame, self.pixel_options).copy(), self.threads
            )
            if decoder.timeline.truncation:
                raise ValueError(decoder.timeline.truncation)
        except Exception as exc:
            self.decoder.fail(exc)
        finally:
            decoder.close()


def decode_video(record: Any, *args: str) -> Video:
    """Returns a `Video` of a record, read when frames are accessed. `args`: the arguments of its type."""
    return Video(record, **reading_options(*args))


decode_video.lazy = True  # type: ignore[attr-defined]
decode_video.frames = decode_video  # type: ignore[attr-defined]
decode_video.no_frames = NO_FRAMES  # type: ignore[attr-defined]
