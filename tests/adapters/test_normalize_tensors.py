"""`bags.normalize` with tensors, as policies return them."""

import numpy as np
import pytest

import bags
import bags.torch

torch = pytest.importorskip('torch')


@pytest.fixture
def scale(tmp_path):
    values = np.random.default_rng(0).normal(3, 2, (40, 2)).astype(np.float32)
    bags.from_numpy({'robot': np.arange(40) % 2, 'action': values}, tmp_path / 'x')
    return bags.normalize(bags.statistics(tmp_path / 'x', 'action', by='robot'), 'action')


def test_tensors_stay_tensors(scale):
    rng = np.random.default_rng(1)
    batch = {'robot': np.array([0, 1, 1]), 'action': rng.random((3, 5, 2), np.float32)}
    expected = scale.inverse(batch)['action']
    found = scale.inverse({'robot': [0, 1, 1], 'action': torch.from_numpy(batch['action'])})['action']
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    tensors = bags.torch.to_torch(batch)
    np.testing.assert_allclose(scale(scale.inverse(tensors))['action'], batch['action'], atol=1e-5)
    half = scale.inverse({'robot': 1, 'action': torch.zeros(2, dtype=torch.bfloat16)})['action']
    assert half.dtype == torch.float32


def test_gradients_and_masks_of_tensors(scale):
    of_robot = scale.groups[0]
    action = torch.zeros((3, 4), requires_grad=True)
    mask = torch.tensor([[True, True, False, False]] * 2 + [[False] * 4])
    found = of_robot.inverse({'action': action, 'action_mask': mask})['action']
    offset = of_robot.scales['action'][0]
    np.testing.assert_allclose(found.detach()[:2, :2], np.tile(offset, (2, 1)), rtol=1e-6)
    assert not found[2].any()
    assert not found[:, 2:].any()
    found.sum().backward()
    np.testing.assert_allclose(action.grad[0, :2], of_robot.scales['action'][1], rtol=1e-6)
    assert action.grad[2].tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match=r'got \(3, 4\) .*action_mask'):
        of_robot.inverse({'action': action})
