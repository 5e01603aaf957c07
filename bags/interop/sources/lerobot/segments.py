"""Finds the frames of each episode in a video file of LeRobot, where episodes follow each other. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-4
"""Maximum error of the time of a frame in LeRobot, in seconds (`tolerance_s`)."""

Float64s = npt.NDArray[np.float64]


class EpisodeInVideo(NamedTuple):
    """An episode in a video file, as the metadata describe it."""

    number: int
    length: int
    """Number of frames."""
    begin: float | None = None
    """Time in the file at which the episode begins, in seconds."""
    end: float | None = None

    def lacks(self, fps: float) -> float:
        """Returns the number of frames that do not fit between begin and end; 0 if these are unknown."""
        if self.begin is None or self.end is None:
            return 0
        return self.length - (self.end - self.begin) * fps


def find_frames(times: Float64s, parts: Sequence[EpisodeInVideo], fps: float) -> dict[int, range | str]:
    """Finds the frames of episodes in a video file.

    Counts are exact if the file has as many frames as its episodes, however far the times of episodes have
    drifted. Otherwise frames are found by time, with the tolerance of LeRobot, and no frame belongs to
    two episodes. If both ways disagree although all times are times of frames, the result is an error text.

    Args:
        times: The time of each frame of the file in seconds, shape (n,).
        parts: The episodes in the file.
        fps: Frames per second.

    Returns:
        For each episode, by number: its frames, or a text that says what is wrong.
    """
    parts = sorted(parts, key=lambda part: part.number)
    stops = list(itertools.accumulate(part.length for part in parts))
    counted = [range(stop - part.length, stop) for part, stop in zip(parts, stops, strict=True)]
    starts = [_frame_at(times, part.begin) for part in parts]
    is_counted = stops[-1] == len(times) and _follow(parts, fps)
    if is_counted and _have_drifted(starts, counted):
        return {part.number: frames for part, frames in zip(parts, counted, strict=True)}
    if len(parts) == 1 and parts[0].begin is None and len(times):  # Version 2.
        parts, starts = [parts[0]._replace(begin=float(times[0]))], [0]
    results: dict[int, range | str] = {}
    for part, start, frames in zip(parts, starts, counted, strict=True):
        later = [other for other in starts if other is not None and start is not None and other > start]
        stop = min(later, default=len(times))
        result = _frames_by_time(times, part, start, stop, fps)
        if start is not None and starts.count(start) > 1 and part.length:
            result = f'expected frames of its own, got those of another episode at {part.begin} s'
        elif is_counted and isinstance(result, range) and result != frames:
            result = (
                f'expected frames from {result.start} on by its time, got those from {frames.start} on by '
                'numbers: another episode may have frames too many or too few'
            )
        results[part.number] = result
    return results


def _frame_at(times: Float64s, begin: float | None) -> int | None:
    """Returns the frame at a time, within the tolerance."""
    if begin is None or not len(times):
        return None
    start = int(np.abs(times - begin).argmin())
    return start if abs(times[start] - begin) <= TOLERANCE else None


def _follow(parts: Sequence[EpisodeInVideo], fps: float) -> bool:
    """Returns whether episodes have consecutive numbers, rising begin times, and as many frames as fit."""
    begins = [part.begin for part in parts if part.begin is not None]
    numbers = [part.number for part in parts]
    return (
        begins == sorted(begins)
        and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        and not any(abs(part.lacks(fps)) >= 0.5 for part in parts)
    )


def _have_drifted(starts: Sequence[int | None], counted: Sequence[range]) -> bool:
    """Returns whether the begin times of episodes are those that frame counts imply, or have drifted.

    If all begin times are times of frames, but the difference to the counted frame varies, an episode in the
    file may have an extra frame, and another episode may lack a frame.
    """
    known_starts = [start for start in starts if start is not None]
    if len(known_starts) < len(starts):
        return True
    late = np.subtract(known_starts, [frames.start for frames in counted])
    return len(set(np.diff(late).tolist())) <= 1


def _frames_by_time(
    times: Float64s, part: EpisodeInVideo, start: int | None, stop: int, fps: float
) -> range | str:
    """Returns the frames of an episode that begins at frame `start` and ends at frame `stop` or earlier."""
    expected = f'expected {part.length} frames from {part.begin} s on'
    if start is None or part.begin is None:
        end = f'{times[-1]:.4f} s' if len(times) else 'none'
        return f'{expected}, got no frame within {TOLERANCE} s of that; the last one is at {end}'
    count = min(part.length, stop - start)
    lacking = part.lacks(fps)
    if count < part.length or lacking >= 0.5:
        return f'{expected}, got {min(count, part.length - round(lacking))}'
    late = np.abs(times[start : start + count] - part.begin - np.arange(count) / fps).max(initial=0)
    if late > TOLERANCE:
        return f'{expected}, each within {TOLERANCE} s, got one that is {late:.4f} s off'
    return range(start, start + count)
