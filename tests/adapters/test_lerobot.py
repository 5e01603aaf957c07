"""LeRobot 3 datasets that are adopted, beside LeRobot's class, which reads the same files here.

Skipped without lerobot 0.4.4, which needs older packages than the other adapters: a PyAV before 16. Run in an
environment of it, absl-py, and bags with images and video: `python -m pytest tests/adapters/test_lerobot.py`.
"""

import numpy as np
import pytest

import bags
from tests.sequences.make_lerobot_adopted import VARIANTS, add_episodes, encode_again, read, record
from tests.sequences.test_lerobot_adopted import check_adopted

lerobot_dataset = pytest.importorskip('lerobot.datasets.lerobot_dataset')


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    monkeypatch.setattr('datasets.config.HF_DATASETS_CACHE', tmp_path / 'cache')


@pytest.mark.parametrize('codec', ['h264', 'libsvtav1'])  # By default, HEVC has open groups.
def test_recordings_of_lerobot(codec, tmp_path):
    record(tmp_path / 'in', codec)
    check_adopted(tmp_path / 'in', tmp_path / 'index', read(tmp_path / 'in'))


@pytest.mark.parametrize('name', VARIANTS)
def test_videos_whose_episodes_begin_between_key_frames(name, tmp_path):
    record(tmp_path / 'in', 'h264')
    encode_again(tmp_path / 'in', *VARIANTS[name])
    check_adopted(tmp_path / 'in', tmp_path / 'index', read(tmp_path / 'in'))


def test_a_recording_that_is_resumed(tmp_path):
    root = tmp_path / 'in'
    record(root, 'h264', (5, 8))
    bags.convert(root, tmp_path / 'index', link=True, update=True)
    for first in (2, 4):
        dataset = lerobot_dataset.LeRobotDataset('golden/sample', root, vcodec='h264', video_backend='pyav')
        add_episodes(dataset, (3, 6), first)
        dataset.finalize()
        done = bags.convert(root, tmp_path / 'index', link=True, update=True)
        assert done.datapoints == first + 2
    bags.convert(root, tmp_path / 'anew', link=True)
    with (
        bags.open(tmp_path / 'index', links=root) as index,
        bags.open(tmp_path / 'anew', links=root) as anew,
    ):
        assert not anew.diff(index).changed
        assert len(anew) == len(index) == 6
        found = [row['observation.images.front'][:] for row in index]
    samples = lerobot_dataset.LeRobotDataset('golden/sample', root, video_backend='pyav')
    shown = [np.asarray(samples[n]['observation.images.front']) * 255 for n in range(len(samples))]
    assert np.array_equal(np.concatenate(found), np.rint(np.moveaxis(shown, 1, -1)))
