"""Plans of clips, and copies of frames."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.media.clips import plan_clips
from bags.media.remux import copy_frames
from bags.media.video_decoder import open_video
from tests.media.samples import deep, film, x264


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 20),
    st.none() | st.integers(1, 15),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_plans_take_every_frame_once(groups, size, gop, copy, chance):
    """Of groups of pictures, some open: with frames that are shown before their key frame."""
    times, keys = [], []
    for number, length in enumerate(groups):
        start = len(times)
        own = list(range(start, start + length))
        lead = chance.randint(0, min(3, length - 1)) if number else 0
        times += [own[lead], *own[:lead], *own[lead + 1 :]]
        keys += [True] + [False] * (length - 1)
    pieces = plan_clips(np.array(times), np.array(keys), size, gop, copy)
    assert [frame for piece in pieces for frame in range(piece.start, piece.stop)] == list(range(len(times)))
    for piece in pieces:
        if piece.copied:
            assert keys[piece.start]
            assert times[piece.start] == piece.start
            assert sorted(times[piece.start : piece.stop]) == list(range(piece.start, piece.stop))
    if copy:
        assert all(piece.copied for piece in pieces)
    else:
        assert [piece.start for piece in pieces] == list(range(0, len(times), size))


@pytest.mark.parametrize(
    'data',
    [film(count=40, options=x264(keyint=12, bframes=0)), film(count=40, options=x264(keyint=12, bframes=2)),
     film('libsvtav1', 40)],
    ids=['h264', 'b-frames', 'av1'],
)  # fmt: skip
@pytest.mark.parametrize('span', [(0, 40), (12, 24), (24, 40), (5, 22), (17, 40), (23, 24)])
def test_copied_frames_begin_at_0(data, span):
    start, stop = span
    whole, part = bags.Video(data), bags.Video(copy_frames(open_video(io.BytesIO(data)), start, stop))
    assert len(part) == stop - start
    assert np.array_equal(part[:], whole[start:stop])
    assert np.allclose(part.timestamps, whole.timestamps[start:stop] - whole.timestamps[start], atol=1e-4)


def test_copied_depth_is_exact():
    values = np.random.default_rng(0).integers(0, 4096, (20, 32, 48)).astype(np.uint16)
    options = {'x265-params': 'lossless=1:open-gop=0:bframes=0:keyint=8:log-level=none'}
    data = deep(values, 'gray12le', 'libx265', 'mp4', options)
    for start, stop in ((0, 8), (8, 20), (3, 11)):
        part = bags.Video(copy_frames(open_video(io.BytesIO(data)), start, stop))
        assert np.array_equal(part[:][..., 0], values[start:stop])


def test_frames_that_need_a_later_one_are_not_copied():
    decoder = open_video(io.BytesIO(film(count=40, options=x264(keyint=12, bframes=2))))
    with pytest.raises(
        ValueError, match=r'frames 0 to 20 cannot be copied: .* refer to a frame after frame 19'
    ):
        copy_frames(decoder, 0, 20)
