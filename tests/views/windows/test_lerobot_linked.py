"""LeRobot 3 datasets that are linked, beside what LeRobot's class returns: see `make_lerobot_linked.py`."""

import numpy as np
import pytest

import bags
from tests.views.windows.make_lerobot_linked import CAMERAS, CODECS, DELTAS, EPISODES, GOLDEN, numbers


def check_linked(root, target, expected):
    """Links to a dataset, and compares frames, values, windows and padding with those of LeRobot, exactly."""
    done = bags.convert(root, target, link=True)
    assert not list(target.rglob('observation.images.*.bag'))
    deltas = {name: bags.times(*each, fill='exact') for name, each in DELTAS.items()}
    with bags.open(target, trust_links=done.parents) as dataset:
        assert [len(row['action']) for row in dataset] == list(EPISODES)
        tasks = [row['tasks'][0] for row, count in zip(dataset, EPISODES, strict=True) for _ in range(count)]
        assert tasks == expected['tasks'].tolist()
        for episode, row in enumerate(dataset):
            mine = expected['places'][:, 0] == episode
            states, actions = numbers(episode, EPISODES[episode])
            assert np.array_equal(row['observation.state'], states)
            assert np.array_equal(row['action'], actions)
            for name in CAMERAS:
                assert np.array_equal(row[name][:], expected[name][mine][:, DELTAS[name].index(0.0)])
        view = dataset.windows(deltas, every='action')
        assert np.array_equal(np.stack(view.origins()[1:3], 1), expected['places'])
        order = np.random.default_rng(0).permutation(len(view))
        batch = view.batch(order)
        for name in DELTAS:
            for column in (name, f'{name}_is_pad'):
                wanted = expected[column][order]
                assert batch[column].dtype == wanted.dtype
                assert np.array_equal(batch[column], wanted)


@pytest.mark.parametrize('codec', CODECS)
def test_linked_values_are_those_of_lerobot(codec, tmp_path):
    pytest.importorskip('av')
    pytest.importorskip('pyarrow')
    with np.load(GOLDEN / f'{codec}.npz') as expected:
        check_linked(GOLDEN / codec, tmp_path / 'index', expected)
