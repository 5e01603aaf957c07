from __future__ import annotations

import io

import numpy as np
import pytest

import bags
from bags import Video
from bags.media.remux import copy_frames
from bags.media.video_decoder import open_video
from tests.media.samples import DATA, deep, example, film, x264


@pytest.mark.parametrize(
    'kind',
    [
        'Matroska',
        'VP9 with hidden frames',
        'fragments',
        'audio beside it, in Matroska',
        'varying distances in Matroska',
    ],
)
def test_remux(kind, tmp_path):
    data, frames, times = example(kind)
    with bags.remux(data) as file:
        stored = file.read()
    assert stored.index(b'moov') < stored.index(b'mdat')
    video = Video(stored)
    assert np.array_equal(video[:], frames)
    assert np.allclose(video.timestamps, times, atol=1e-3)
    with bags.DatasetWriter(tmp_path / 'it', {'film': 'video(remux=True)', 'other': 'video'}) as writer:
        writer.append({'film': data, 'other': bags.remux(data)})
    with bags.open(tmp_path / 'it') as reader:
        assert np.array_equal(reader[0]['film'][5:9], frames[5:9])
        assert bytes(reader.field('other')[0]).index(b'moov') < 100


def test_what_cannot_be_remuxed():
    with pytest.raises(ValueError, match='MP4'):
        bags.remux(example('VP8 with hidden frames')[0])
    with pytest.raises(ValueError, match='expected a video, got JPEG'):
        bags.remux(DATA / 'cat.jpg')


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
