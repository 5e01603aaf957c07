"""Windows beside the samples of LeRobot, kept in `tests/golden/lerobot`: see `make_lerobot_sample.py`."""

import numpy as np
import pytest

import bags
from tests.views.windows.make_lerobot_sample import DELTA_TIMESTAMPS, EPISODES, FPS, GOLDEN, numbers

SPEC = {'action': 'array(float32,3)[]', 'image': 'video', 'state': 'array(float32,2)[]'}
FACTS = {'fields': {name: {'rate': FPS} for name in ('action', 'state')}}
NAMES = {'action': 'action', 'image': 'observation.image', 'state': 'observation.state'}


@pytest.fixture(scope='module')
def recording(tmp_path_factory):
    pytest.importorskip('av')
    path = tmp_path_factory.mktemp('lerobot') / 'x'
    with bags.DatasetWriter(path, SPEC, metadata=FACTS) as writer:
        for episode, count in enumerate(EPISODES):
            state, action = numbers(episode, count)
            video = (GOLDEN / f'episode-{episode}.mp4').read_bytes()
            writer.append({'action': action, 'image': video, 'state': state})
    return bags.open(path)


@pytest.mark.parametrize('every', ['image', 'state'])
@pytest.mark.parametrize('actions', [bags.times(0.0, 0.4, rate=FPS, fill='exact'), bags.steps(0, 5)])
def test_samples_are_those_of_lerobot(recording, every, actions):
    """Frames, states and actions, and the padding, also where a window exceeds its episode."""
    golden = np.load(GOLDEN / 'samples.npz')
    view = recording.windows(every=every, action=actions,
        image=bags.times(*DELTA_TIMESTAMPS['observation.image'], fill='exact'),
        state=bags.times(*DELTA_TIMESTAMPS['observation.state'], fill='exact'),
    )  # fmt: skip
    assert len(view) == len(golden['places']) == sum(EPISODES)
    assert np.array_equal(np.stack(view.origins()[1:3], 1), golden['places'])
    order = np.random.default_rng(0).permutation(len(view))
    batch = view.batch(order)
    for name, column in NAMES.items():
        for ending in ('', '_is_pad'):
            wanted = golden[column + ending]
            assert batch[name + ending].dtype == wanted.dtype
            assert np.array_equal(batch[name + ending], wanted[order])
            for index in (0, 11, 12, 38):
                assert np.array_equal(view[index, name + ending][name + ending], wanted[index])
