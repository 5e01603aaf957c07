"""Several videos as one video have the methods of a video, with the same results."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bags
from bags.dataset.reading.frames import known_length
from bags.media.clip_sequence import JoinedVideos
from tests.media.samples import decoded, film, x264

LENGTHS = (9, 1, 20)


@functools.cache
def parts():
    starts = np.cumsum([0, *LENGTHS]).tolist()
    return [
        film(numbers=range(start, start + length), options=x264(keyint=6))
        for start, length in zip(starts, LENGTHS, strict=False)
    ]


def joined(records, is_remote=False):
    videos = [bags.Video(record) for record in records]
    return JoinedVideos(
        len(videos), videos.__getitem__, lambda k: known_length(videos[k]), is_remote, 'three videos'
    )


@functools.cache
def whole():
    return np.concatenate([decoded(part)[0] for part in parts()])


@pytest.mark.parametrize('is_remote', [False, True])
def test_frames_are_those_of_all_videos(is_remote):
    chance = random.Random(0)
    for _ in range(20):
        video, frames = joined(parts(), is_remote), whole()
        count = len(frames)
        bounds = [chance.choice([None, chance.randrange(-40, 40)]) for _ in range(2)]
        for key in (
            slice(*bounds, chance.choice([None, 1, 3, -1, -4])),
            chance.randrange(-count, count),
            [chance.randrange(-count, count) for _ in range(5)],
        ):
            assert np.array_equal(video[key], frames[key]), key
    assert video.shape == frames.shape
    assert video.lengths.tolist() == list(LENGTHS)
    assert np.array_equal(np.asarray(video), frames)
    assert all(np.array_equal(*pair) for pair in zip(video, frames, strict=True))


def test_times_continue():
    video = joined(parts())
    assert np.allclose(video.timestamps, np.arange(30) / 25)
    assert (video.duration, video.fps) == (pytest.approx(1.2), pytest.approx(25))
    assert video.span(0.19, 0.39) == slice(5, 10)
    assert np.array_equal(video.between(0.34, 0.5), whole()[9:13])
    assert np.array_equal(video.at(0.37), whole()[9])
    assert np.array_equal(video.read([12, 3]).timestamps, video.timestamps[[12, 3]])


def test_errors():
    video = joined(parts())
    for wrong in (30, -31, [0, 30]):
        with pytest.raises(IndexError, match=r'three videos: frame -?3\d out of range \[-30, 30\)'):
            video[wrong]
    for wrong in ('x', 1.5, None, [1.5], [[1]]):
        with pytest.raises(TypeError):
            video[wrong]
    for wrong in (-0.1, 1.2, float('nan')):
        with pytest.raises(IndexError, match='three videos: nothing is shown'):
            video.at(wrong)
    with pytest.raises(TypeError, match='expected a time in seconds'):
        video.between('x', 1)
    with pytest.raises(IndexError, match='it has no frames'):
        joined([]).at(0)
    assert joined([])[:].shape == (0, 0, 0, 3)


def test_a_truncated_video_ends_what_is_known():
    cut = film(options=x264(), format='matroska', count=60)
    video = joined([parts()[0], cut[: len(cut) // 2], parts()[2]])
    assert np.array_equal(video[3:14], np.concatenate([whole()[3:9], decoded(cut)[0][:5]]))
    for key in (slice(None), 500, -1, slice(3, 300)):
        with pytest.raises(ValueError, match='cut off'):
            video[key]
    with pytest.raises(ValueError, match='cut off'):
        len(video)


def test_videos_of_different_sizes():
    video = joined([parts()[0], film(size=(48, 64), count=3)])
    assert video[9:].shape == (3, 48, 64, 3)
    with pytest.raises(ValueError, match='expected frames of the same size'):
        video[5:12]


def test_a_fork_while_lengths_are_found_does_not_hang():
    """Threads of the parent do not exist in a child, and locks that they held stay locked."""
    begun, go = threading.Event(), threading.Event()
    parent = os.getpid()

    def length(number):
        if os.getpid() == parent:
            begun.set()
            go.wait(60)
        return known_length(videos[number])

    videos = [bags.Video(part) for part in parts()]
    video = JoinedVideos(len(videos), videos.__getitem__, length, False, 'three videos')
    thread = threading.Thread(target=video.__len__)
    thread.start()
    begun.wait(60)
    child = multiprocessing.get_context('fork').Process(target=lambda: os._exit(len(video)))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)  # Python 3.12 warns of forks beside threads.
        child.start()
    child.join(60)
    go.set()
    thread.join()
    child.kill()
    assert child.exitcode == sum(LENGTHS)


def test_threads_that_find_lengths_at_once():
    for _ in range(3):
        video, frames = joined(parts(), is_remote=True), whole()
        with ThreadPoolExecutor(4) as threads:
            keys = [29, 0, slice(5, 12), 12]
            for key, found in zip(keys, threads.map(video.__getitem__, keys), strict=True):
                assert np.array_equal(found, frames[key]), key
