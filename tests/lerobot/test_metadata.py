"""What training scripts read of `meta`, beside that of LeRobot."""

import numpy as np
import pytest
from lerobot.datasets.sampler import EpisodeAwareSampler

import bags
from tests.lerobot.recordings import HAS_0_4, dataset_to_policy_features, open_ours, open_theirs

EQUAL = [
    'fps', 'robot_type', 'features', 'camera_keys', 'video_keys', 'image_keys', 'names', 'shapes',
    'total_episodes', 'total_frames', 'total_tasks',
]  # fmt: skip


@pytest.mark.parametrize('form', ['copied', 'linked'])
def test_facts(recording, form):
    ours, theirs = open_ours(recording, form), open_theirs(recording)
    for name in EQUAL:
        assert getattr(ours.meta, name) == getattr(theirs.meta, name), name
    assert list(ours.meta.features) == list(theirs.meta.features)
    for name in ('features', 'fps', 'num_frames', 'num_episodes'):
        assert getattr(ours, name) == getattr(theirs, name)
    info = theirs.meta.info if HAS_0_4 else vars(theirs.meta.info)
    assert ours.meta.info == {name: info[name] for name in ours.meta.info}
    assert dataset_to_policy_features(ours.meta.features) == dataset_to_policy_features(theirs.meta.features)


def test_statistics(recording):
    ours, theirs = open_ours(recording).meta.stats, open_theirs(recording).meta.stats
    assert theirs.keys() - ours.keys() == {'index', 'frame_index', 'episode_index'}  # Which count.
    for name, stats in ours.items():
        assert stats.keys() == theirs[name].keys()
        for key, value in stats.items():
            np.testing.assert_array_equal(value, theirs[name][key], strict=True)


def test_episodes_and_tasks(recording):
    ours, theirs = open_ours(recording).meta, open_theirs(recording).meta
    assert len(ours.episodes) == len(theirs.episodes)
    for number, episode in enumerate(ours.episodes):
        assert episode == {name: theirs.episodes[number][name] for name in episode}
        assert ours.episodes[number] == episode
    assert ours.episodes[-1] == ours.episodes[1:][-1]
    assert ours.tasks.equals(theirs.tasks)
    for task in (*theirs.tasks.index, 'another'):
        assert ours.get_task_index(task) == theirs.get_task_index(task)


def test_their_sampler(recordings):
    ours, theirs = (
        EpisodeAwareSampler(
            meta.episodes['dataset_from_index'], meta.episodes['dataset_to_index'], drop_n_last_frames=1
        ).indices
        for meta in (open_ours(recordings['aloha']).meta, open_theirs(recordings['aloha']).meta)
    )
    assert ours == theirs


def test_tasks_that_no_metadata_number(recordings):
    """A field of texts gives the tasks instead."""
    with bags.open(recordings['aloha'].root / 'copied') as dataset:
        ours = bags.lerobot.dataset(dataset.drop(fields='task_index'))
        theirs = open_theirs(recordings['aloha'])
        for number in (0, 31, 32, 33, 77, 78, 124):
            assert ours[number]['task'] == theirs[number]['task']
            assert ours.meta.task_names[ours[number]['task_index']] == ours[number]['task']
        assert [each['tasks'] for each in ours.meta.episodes] == theirs.meta.episodes['tasks'][:]
