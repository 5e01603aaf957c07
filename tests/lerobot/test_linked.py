"""Linked recordings of LeRobot: frames and windows are those of its class, in all codecs."""

import numpy as np
import pytest

import bags
from tests.lerobot.recordings import HAS_0_4, LeRobotDataset
from tests.views.windows.make_lerobot_linked import (
    VARIANTS,
    add_episodes,
    encode_again,
    options_of,
    read,
    record,
)
from tests.views.windows.test_lerobot_linked import check_linked


@pytest.mark.parametrize('codec', ['h264', 'libsvtav1'])  # By default, HEVC has open groups.
def test_recordings_of_lerobot(codec, tmp_path):
    record(tmp_path / 'in', codec)
    check_linked(tmp_path / 'in', tmp_path / 'index', read(tmp_path / 'in'))


@pytest.mark.parametrize('name', VARIANTS)
def test_videos_whose_episodes_begin_between_key_frames(name, tmp_path):
    record(tmp_path / 'in', 'h264')
    encode_again(tmp_path / 'in', *VARIANTS[name])
    check_linked(tmp_path / 'in', tmp_path / 'index', read(tmp_path / 'in'))


def test_a_recording_that_is_resumed(tmp_path):
    root = tmp_path / 'in'
    record(root, 'h264', (5, 8))
    bags.convert(root, tmp_path / 'index', link=True, update=True)
    for first in (2, 4):
        resume = LeRobotDataset if HAS_0_4 else LeRobotDataset.resume
        dataset = resume('golden/sample', root, video_backend='pyav', **options_of('h264'))
        add_episodes(dataset, (3, 6), first)
        dataset.finalize()
        done = bags.convert(root, tmp_path / 'index', link=True, update=True)
        assert done.datapoints == first + 2
    bags.convert(root, tmp_path / 'anew', link=True)
    with (
        bags.open(tmp_path / 'index', trust_links=root) as index,
        bags.open(tmp_path / 'anew', trust_links=root) as anew,
    ):
        assert not anew.diff(index).changed
        assert len(anew) == len(index) == 6
        found = [row['observation.images.front'][:] for row in index]
    samples = LeRobotDataset('golden/sample', root, video_backend='pyav')
    shown = [np.asarray(samples[n]['observation.images.front']) * 255 for n in range(len(samples))]
    assert np.array_equal(np.concatenate(found), np.rint(np.moveaxis(shown, 1, -1)))
