from __future__ import annotations

import numpy as np
import pytest

import bags
from bags import Video
from tests.media.samples import DATA, example


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
