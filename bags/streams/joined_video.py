"""`join_videos`: the videos of a datapoint as one `Video`.

Frames are numbered consecutively across all clips. Each clip begins where the previous one ends:

    clips     [0 1 2 3][0 1 2][0 1 2 3]
    joined    [0 1 2 3  4 5 6  7 8 9 10]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn, SupportsIndex, Unpack

import numpy as np

from bags.concurrency import FifoCache, cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.dataset.reading.frames import FrameTimes, JoinedFrames, Length, known_length
from bags.formats.pixels import Pixels
from bags.indexing import Int64s, offsets_of
from bags.media.audio import Audio
from bags.media.encoders import reading_options
from bags.media.excerpts import FileFrames
from bags.media.video import NO_FRAMES, Video, VideoOptions
from bags.streams.joined_audio import JoinedAudio, RecordingLimits
from bags.streams.records import MAX_OPEN_CLIPS, FieldRecords, Parts


def join_videos(dataset: Dataset, index: SupportsIndex, field: str, **options: Unpack[VideoOptions]) -> Video:
    """Returns the videos of a datapoint as one, which is read on access.

    Args:
        dataset: A reader or a view.
        index: The datapoint.
        field: A field of type `mp4`, `webm`, `mkv` or `video`, or a sequence of one of these types.
        **options: `size`, `color`, `dtype`, `rotate` and `threads`, as for `Video`.

    Returns:
        The `Video` of a plain field; a `JoinedVideo` for a sequence.
    """
    records = FieldRecords.of(dataset, index, field, VIDEO_FORMATS, 'videos')
    merged: dict[str, Any] = {**reading_options(*records.args), **options}
    if not records.is_sequence:
        return Video(records[0], **merged)
    track = merged.pop('track', None)
    return JoinedVideo(VideoClips(records, track), **merged)


class VideoClips:
    """The videos of a datapoint.

    Args:
        records: Their records.
        track: The track of each video; None for the track that players choose.
    """

    def __init__(self, records: FieldRecords, track: int | None) -> None:
        self._records, self._track = records, track
        self.name, self.is_remote = records.name, records.is_remote

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Video:
        return Video(self._records[number], track=self._track)


class JoinedVideo(Video):
    """Consecutive videos as one, with the methods of a `Video`.

    A read loads the headers of the clips up to the last frame, once, and decodes only the necessary parts of
    the clips that contain the frames. Thread-safe, and picklable if the dataset is picklable. It is not one
    file: `source` and `tracks` raise AttributeError.
    """

    is_joined: ClassVar[bool] = True

    def __init__(self, clips: Parts[Video], **options: Unpack[VideoOptions]) -> None:
        self._clips = clips
        own: dict[str, Any] = {'size': None, 'color': None, 'dtype': None, 'rotate': True, 'threads': None}
        self.set_options(**{**own, **options})

    @cached_attribute
    def _videos(self) -> FifoCache[int, Video]:
        return FifoCache(self._clips.__getitem__, MAX_OPEN_CLIPS)

    @cached_attribute
    def _lengths(self) -> dict[int, Length]:
        """The known lengths of complete clips, by their numbers."""
        return {}

    @cached_attribute
    def _frames(self) -> JoinedFrames:
        clips, videos, lengths, options = self._clips, self._videos, self._lengths, self._options()

        def length(number: int) -> Length:
            if number not in lengths:
                found = known_length(videos[number])
                if found[1] is not None:
                    return found
                lengths[number] = found
            return lengths[number]

        return JoinedFrames(
            len(clips),
            lambda number, frames: videos[number].options(**options)[frames],
            length,
            lambda number: videos[number].frame_times(),
            clips.is_remote,
            clips.name,
            NO_FRAMES,
        )

    def _options(self) -> VideoOptions:
        options: Any = self.pixel_options._asdict() | {'threads': self.threads}
        return options  # type: ignore[no-any-return]

    @property
    def clips(self) -> Parts[Video]:
        """The clips; for internal use."""
        return self._clips

    def _clip(self, number: int) -> Video:
        return self._videos[number].options(**self._options())

    @property
    def clip_lengths(self) -> Int64s:
        """Number of frames of each clip, shape (clips,)."""
        self._frames.count()
        return np.diff(self._frames.ends(), prepend=0)

    @property
    def name(self) -> str:
        return self._clips.name

    @property
    def source(self) -> NoReturn:
        """A joined video has no source."""
        raise AttributeError(f'{self._several_files}, which have no common source')

    @property
    def tracks(self) -> NoReturn:
        """A joined video has no tracks."""
        raise AttributeError(f'{self._several_files}, which have their own tracks')

    @property
    def _several_files(self) -> str:
        return f'{self.name}: expected one file, got a video joined from {len(self._clips)} clips'

    @property
    def audio(self) -> JoinedAudio:
        """The audio of the clips as one recording, with the same clock as the video.

        The audio of a clip is heard during its frames: samples that it lacks are 0, and samples before and
        after its frames are left out.
        """
        return JoinedAudio(ClipSounds(self)).with_start(self.start)

    @property
    def rotation(self) -> int:
        """Clockwise rotation of the stored frames of the first clip in degrees: 0, 90, 180 or 270."""
        return self._videos[0].rotation if len(self._clips) else 0

    @property
    def truncation(self) -> Exception | None:
        """The error for frames that are missing at the end of a clip; None if all clips are complete."""
        for number in range(len(self._clips)):
            if error := self._videos[number].truncation:
                return error
        return None

    def frame_count(self, stop: int | None, strict: bool = True) -> int:
        return self._frames.count(stop)

    def file_times(self) -> FrameTimes:
        return self._joined_times

    @cached_attribute
    def _joined_times(self) -> FrameTimes:
        times = self._frames.times()
        assert times is not None
        return times

    def frame_type(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return self._clip(0).frame_type() if len(self._clips) else (NO_FRAMES.shape[1:], NO_FRAMES.dtype)

    def decode_frames(self, numbers: Int64s) -> Pixels:
        stop = int(numbers.max(initial=-1)) + 1
        count = self._frames.count(stop)
        if count < stop:  # Other times, which `with_times` gave, are more than the frames.
            raise IndexError(f'{self.name}: frame {stop - 1} out of range [{-count}, {count})')
        return self._frames.read(numbers)

    def file_frames(self, numbers: Int64s, positions: Int64s) -> list[FileFrames]:
        self._frames.count(int(numbers.max(initial=-1)) + 1)
        starts, times = np.append(0, self._frames.ends()), self.times
        owners = np.searchsorted(starts, numbers, 'right') - 1
        requests: list[FileFrames] = []
        for owner in np.unique(owners).tolist():
            is_own = owners == owner
            of_clip = self._videos[owner].file_frames(numbers[is_own] - starts[owner], positions[is_own])
            requests += [request._replace(times=times[numbers[is_own]]) for request in of_clip]
        return requests

    def __iter__(self) -> Iterator[Pixels]:
        for number in range(len(self._clips)):
            yield from self._clip(number)

    def __copy__(self) -> JoinedVideo:
        # Shares open clips and their lengths. The frames depend on the options.
        other = type(self).__new__(type(self))
        _ = self._videos, self._lengths
        vars(other).update({name: value for name, value in vars(self).items() if name != '_frames'})
        return other

    def __getstate__(self) -> dict[str, Any]:
        dropped = ('_videos', '_lengths', '_frames')
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def __repr__(self) -> str:
        return f'bags.Video({self.name!r}, {len(self._clips)} clips)'


class ClipSounds:
    """The audio of the clips of a joined video."""

    def __init__(self, video: JoinedVideo) -> None:
        self._video, self._clips = video, video.clips
        self.name, self.is_remote = self._clips.name, self._clips.is_remote

    def __len__(self) -> int:
        return len(self._clips)

    def __getitem__(self, number: int) -> Audio:
        return self._clips[number].audio

    def limits(self) -> RecordingLimits:
        """Returns the time at which each clip is shown."""
        starts, end, _ = self._video.frame_times()
        frames = offsets_of(self._video.clip_lengths)
        offsets = [self._clips[number].start for number in range(len(self._clips))]
        return RecordingLimits(np.append(starts, end)[frames], np.array(offsets))
