"""Several videos as one video have the methods of a video, with the same results."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bags
from bags.dataset.reading.frames import FrameTimes
from bags.streams.joined_video import JoinedVideo, join_videos
from tests.media.samples import decoded, film, several, x264

LENGTHS = (9, 1, 20)


@functools.cache
def parts():
    starts = np.cumsum([0, *LENGTHS]).tolist()
    return [
        film(numbers=range(start, start + length), options=x264(keyint=6))
        for start, length in zip(starts, LENGTHS, strict=False)
    ]


class Clips(list):
    """Videos, which a network may delay."""

    name, is_remote = 'three videos', False


def joined(records, is_remote=False):
    clips = Clips(bags.Video(record) for record in records)
    clips.is_remote = is_remote
    return JoinedVideo(clips)


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
    assert video.clip_lengths.tolist() == list(LENGTHS)
    assert np.array_equal(np.asarray(video), frames)
    assert all(np.array_equal(*pair) for pair in zip(video, frames, strict=True))


def test_it_is_a_video():
    video = joined(parts())
    assert isinstance(video, bags.Video)
    small = video.options(size=(8, 12), color='gray')
    assert (small.shape, video.shape) == ((30, 8, 12, 1), whole().shape)
    assert np.array_equal(small[7:12], np.concatenate([bags.Video(part, size=(8, 12), color='gray')[:]
                                                       for part in parts()])[7:12])  # fmt: skip
    assert video.rotation == 0
    assert video.truncation is None
    for name in ('source', 'tracks'):
        with pytest.raises(AttributeError, match='expected one file, got a video joined from 3'):
            getattr(video, name)
    with pytest.raises(TypeError, match="unexpected option 'track'"):
        video.options(track=1)


def later_times():
    return FrameTimes(np.arange(30) / 10 + 5, 8.0, 3.0)


def test_other_times():
    video = joined(parts())
    other = video.with_times(later_times)
    assert (other.start, other.duration, other.rate) == (5.0, 3.0, 10.0)
    assert np.array_equal(other.times, np.arange(30) / 10 + 5)
    assert np.array_equal(other.at(5.95), whole()[9])
    assert np.array_equal(other.options(size=(8, 12)).between(5.5, 5.7), video.options(size=(8, 12))[5:7])
    assert np.array_equal(pickle.loads(pickle.dumps(other)).times, other.times)
    assert video.start == 0.0
    single = bags.Video(parts()[0]).with_times(later_times)
    assert single.start == 5.0


@pytest.mark.parametrize('format', ['video', 'mp4', 'webm', 'mkv(7)'])
def test_all_clips_are_stored_with_their_times(tmp_path, format):
    video = joined(parts()).with_times(later_times)
    with bags.DatasetWriter(tmp_path / 'd', {'m': format}) as writer:
        writer.append({'m': video})
    stored = join_videos(bags.open(tmp_path / 'd'), 0, 'm')
    assert len(stored) == 30
    assert np.allclose(stored.times, np.arange(30) / 10)
    assert stored.duration == pytest.approx(3.0)
    assert np.abs(stored[:].astype(int) - whole()).mean() < 12


def test_all_clips_are_cut_again():
    clips = list(bags.cut_clips(joined(parts()), 7))
    assert [clip.frames for clip in clips] == [7, 7, 7, 7, 2]
    assert [bags.Video(clip).duration for clip in clips] == pytest.approx([0.28] * 4 + [0.08])
    assert np.abs(bags.Video(clips[1])[:].astype(int) - whole()[7:14]).mean() < 12
    with pytest.raises(TypeError, match=r'copy: expected a path, bytes or a file .*, got JoinedVideo'):
        next(bags.cut_clips(joined(parts()), 7, copy=True))
    with pytest.raises(TypeError, match='no fps for a source that has times'):
        next(bags.cut_clips(joined(parts()), 7, fps=30))
    with pytest.raises(ValueError, match='expected at least one frame'):
        next(bags.cut_clips(joined([]), 7))


def test_audio_of_clips_is_heard_during_their_frames(tmp_path):
    """Sound of two seconds is longer than clips of one second, and shorter than clips of three."""
    rate, tones, lengths = 16_000, (400, 800, 1600), (20, 60, 20)
    clips = [
        several('mp4', [('libx264', 20, length, (48, 64), 0)], [('aac', rate, tone)])
        for tone, length in zip(tones, lengths, strict=True)
    ]
    with bags.DatasetWriter(tmp_path / 'd', {'clips': 'video[]'}) as writer:
        writer.append({'clips': clips})
    video = join_videos(bags.open(tmp_path / 'd'), 0, 'clips')
    audio = pickle.loads(pickle.dumps(video.audio))
    assert isinstance(audio, bags.Audio)
    assert audio.start == video.start == 0
    assert audio.duration == video.duration == pytest.approx(5)
    for number, (start, stop) in enumerate([(0.1, 0.9), (1.1, 2.9), (4.1, 4.9)]):
        sound = audio.between(start, stop)[:, 0]
        assert np.abs(np.fft.rfft(sound)).argmax() / (stop - start) == pytest.approx(tones[number], abs=2)
        own = bags.Video(clips[number]).audio
        begin = round((start - (0, 1, 4)[number]) * rate) - round(own.start * rate)
        assert np.array_equal(sound, own[begin : begin + len(sound)][:, 0])
    assert not audio.between(3.1, 3.9).any()  # The second clip is longer than its sound.
    later = video.with_times(functools.partial(times_with_a_gap, lengths)).audio
    assert (later.start, later.duration) == (10.0, 8.0)
    assert later.between(11.5, 11.9).any()  # The last frame of a clip lasts until the next clip.
    assert not later.between(15.5, 16.5).any()
    assert np.array_equal(later.between(17.1, 17.9), audio.between(4.1, 4.9))
    single = bags.Video(clips[0]).with_times(functools.partial(times_with_a_gap, (20, 0, 0)))
    assert single.audio.start == pytest.approx(bags.Video(clips[0]).audio.start + 10)


def times_with_a_gap(lengths):
    """Returns times from 10 s on, with a second before the second clip, and two before the third."""
    frames = np.arange(sum(lengths)) / 20
    number = np.repeat(np.arange(3), lengths)
    starts = 10 + frames + np.array([0, 1, 3])[number]
    return FrameTimes(starts, float(starts[-1]) + 0.05, float(starts[-1] - starts[0]) + 0.05)


def test_it_is_not_a_file():
    video = joined(parts())
    frames = next(iter(video))
    for take, advice in (
        (lambda: bags.remux(video), r'got JoinedVideo; dataset.file\(index, field\) opens the file'),
        (lambda: bags.Video(video), 'expected a path, bytes or a record, got JoinedVideo'),
        (lambda: bags.Link(video), r'are linked by dataset.save\(path, link=True\)'),
        (lambda: bags.encoders['mp4'](frames), r'a sequence takes a list of videos, such as \[video\]'),
    ):
        with pytest.raises((TypeError, ValueError), match=advice):
            take()


def test_times_continue():
    video = joined(parts())
    assert np.allclose(video.times, np.arange(30) / 25)
    assert (video.duration, video.rate) == (pytest.approx(1.2), pytest.approx(25))
    assert video.span(0.19, 0.39) == slice(5, 10)
    assert np.array_equal(video.between(0.34, 0.5), whole()[9:13])
    assert np.array_equal(video.at(0.37), whole()[9])
    assert np.array_equal(video.read([12, 3]).times, video.times[[12, 3]])


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

    class SlowClips(Clips):
        def __getitem__(self, number):
            if os.getpid() == parent:
                begun.set()
                go.wait(60)
            return super().__getitem__(number)

    video = JoinedVideo(SlowClips(bags.Video(part) for part in parts()))
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
