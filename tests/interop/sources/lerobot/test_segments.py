"""The frames of episodes in a video file, found by number or by time."""

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from bags.interop.sources.lerobot.segments import EpisodeInVideo, find_frames

FPS = 30
EPISODE = st.tuples(st.integers(1, 9), st.integers(-1, 1), st.booleans())
EPISODES = st.lists(EPISODE.filter(lambda each: each[0] + each[1] > 0), min_size=1, max_size=6)


def starts_of(lengths):
    return [0, *itertools.accumulate(lengths)]


@given(EPISODES, st.floats(0, 100))
def test_each_episode_has_its_own_frames_or_an_error(episodes, first):
    """Episodes may have a frame more or fewer than rows, and those in between may be deleted."""
    starts = starts_of(length + change for length, change, _ in episodes)
    times = first + np.arange(starts[-1]) / FPS
    parts = [
        EpisodeInVideo(number, length, first + starts[number] / FPS, first + (starts[number] + length) / FPS)
        for number, (length, _, is_deleted) in enumerate(episodes)
        if not is_deleted or number in (0, len(episodes) - 1)
    ]
    counted = starts_of(part.length for part in parts)
    late = [starts[part.number] - start for part, start in zip(parts, counted, strict=False)]
    assume(counted[-1] != len(times) or not any(late) or len(set(np.diff(late))) > 1)  # Else as times drift.
    found = find_frames(times, parts, FPS)
    kept = {part.number for part in parts}
    for number in kept:
        length, change, _ = episodes[number]
        expected = range(starts[number], starts[number] + length)
        if change < 0 and (number + 1 in kept or number + 1 == len(episodes)):
            assert isinstance(found[number], str)
        elif counted[-1] != len(times) and change >= 0:
            assert found[number] == expected
        else:
            assert found[number] == expected or isinstance(found[number], str)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 2), st.floats(-5, 5))
def test_times_that_drift_do_not_matter_where_counts_are_exact(lengths, drift, shift):
    starts = starts_of(lengths)
    times = np.arange(starts[-1]) / FPS
    parts = [
        EpisodeInVideo(number, length, starts[number] / FPS + drift * number + shift)
        for number, length in enumerate(lengths)
    ]
    found = find_frames(times, parts, FPS)
    assert found == {number: range(starts[number], starts[number + 1]) for number in range(len(lengths))}


def test_times_that_are_none_or_not_numbers():
    times = np.arange(10) / FPS
    assert find_frames(times, [EpisodeInVideo(0, 4), EpisodeInVideo(1, 6)], FPS) == {
        0: range(4),
        1: range(4, 10),
    }
    assert find_frames(times, [EpisodeInVideo(3, 8)], FPS) == {3: range(8)}
    assert all(
        isinstance(each, str)
        for each in find_frames(times, [EpisodeInVideo(0, 4), EpisodeInVideo(1, 4)], FPS).values()
    )
    nan = float('nan')
    assert isinstance(find_frames(times, [EpisodeInVideo(0, 4, nan, nan)], FPS)[0], str)
    assert isinstance(find_frames(times[:0], [EpisodeInVideo(0, 4, 0.0)], FPS)[0], str)
