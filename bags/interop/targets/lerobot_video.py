"""The videos of LeRobot episodes: copied packets where frames follow each other, else encoded frames."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from bags.formats.signatures import identify
from bags.formats.write_video import MP4, as_frame, write_frames
from bags.indexing import Int64s, offsets_of
from bags.media.remux import join_clips
from bags.media.video_decoder import VideoDecoder, open_video

TOLERANCE = 1e-4
"""Maximum error of the time of a frame in LeRobot, in seconds."""


class EpisodeVideo(NamedTuple):
    """The video of an episode. The file may have frames before and after the episode."""

    data: bytes
    """An MP4."""
    start: float
    """The time of the first frame of the episode in the file, in seconds."""
    end: float
    """The end of the last frame."""
    is_copied: bool
    """Whether packets were copied."""


def copy_video(
    records: Sequence[bytes], track: int | None, numbers: Int64s, fps: float
) -> EpisodeVideo | None:
    """Copies the clips that contain the frames of an episode, if these are consecutive.

    Args:
        records: The clips of a datapoint.
        track: The track of each clip; None for the track that players choose.
        numbers: The frame of the joined clips at each time.
        fps: Frames per second of the episode.

    Returns:
        The video; None if frames are repeated or left out, or if clips cannot be joined.
    """
    if (np.diff(numbers) != 1).any():
        return None
    try:
        clips = [open_video(io.BytesIO(record), track) for record in records]
        offsets = offsets_of(np.array([len(clip.timeline) for clip in clips]))
        first, last = (int(offsets.searchsorted(number, 'right')) - 1 for number in (numbers[0], numbers[-1]))
        start, stop = (int(number - offsets[first]) for number in (numbers[0], numbers[-1] + 1))
        if first == last and identify(records[first]) == 'MP4' and _is_on_grid(clips[first], fps):
            timeline = clips[first].timeline
            ends = np.append(timeline.ticks, timeline.end)
            bounds = timeline.seconds(ends[[start, stop]]).tolist()
            return EpisodeVideo(records[first], bounds[0], bounds[1], True)
        exact = Fraction(fps).limit_denominator(100_000)
        data = join_clips(clips[first : last + 1], exact)
    except ValueError:
        return None
    return EpisodeVideo(data, start / fps, stop / fps, True)


def _is_on_grid(clip: VideoDecoder, fps: float) -> bool:
    timeline = clip.timeline
    times = timeline.seconds(timeline.ticks)
    errors = abs(times - times[0] - np.arange(len(times)) / fps)
    return timeline.truncation is None and float(errors.max()) <= TOLERANCE


def encode_video(frames: Iterable[Any], numbers: Int64s, fps: float) -> EpisodeVideo:
    """Encodes the frames of an episode in H.264, or grey of 12 bits in HEVC without loss.

    Args:
        frames: All frames of the stream, in order.
        numbers: The frame at each time, which do not decrease.
        fps: Frames per second.

    Raises:
        TypeError, ValueError: They are not RGB frames of 8 bits, or grey frames of 12 bits, and of one shape.
    """

    def timed() -> Iterator[tuple[Any, int, int]]:
        step = 0
        for number, frame in enumerate(frames):
            while step < len(numbers) and numbers[step] == number:
                yield np.ascontiguousarray(as_frame(frame, MP4)), step, step + 1
                step += 1
            if step == len(numbers):
                return
        raise ValueError(f'expected {int(numbers[-1]) + 1} frames, got fewer')

    exact = Fraction(fps).limit_denominator(100_000)
    file = io.BytesIO()
    count = write_frames(file, timed(), MP4, exact, 1 / exact, is_exact=True)
    return EpisodeVideo(file.getvalue(), 0.0, count / fps, False)
