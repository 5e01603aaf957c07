"""Statistics by group, and normalization with them, beside NumPy."""

import pickle

import numpy as np
import pytest

import bags

ROBOTS = ['arm', 'crane', None, 'arm', 'crane', 'arm', None, 'one']


@pytest.fixture
def dataset(tmp_path):
    rng = np.random.default_rng(0)
    spec = {
        'robot': 'utf8?',
        'state': 'array(float32,2)',
        'actions': 'array(float32,3)[]',
        'force': 'float(4)?',
    }
    with bags.DatasetWriter(tmp_path / 'robots', spec) as writer:
        for number, robot in enumerate(ROBOTS):
            size = {'arm': 1, 'crane': 100, 'one': 5}.get(robot, 7)
            writer.append(
                {
                    'robot': robot,
                    'state': size * rng.random(2, np.float32),
                    'actions': size * rng.random((number, 3), np.float32),
                    'force': None if number == 3 else float(number * size),
                }
            )
    return bags.open(tmp_path / 'robots')


def rows_of(robot):
    return [row for row, each in enumerate(ROBOTS) if each == robot]


def test_statistics_of_each_group(dataset):
    found = bags.statistics(dataset, by='robot')
    assert list(found) == ['arm', 'crane', 'one', None]
    assert found.by == 'robot'
    for robot, group in found.items():
        states = np.stack([dataset[row]['state'] for row in rows_of(robot)])
        assert group['state'].count.tolist() == [len(states)] * 2
        np.testing.assert_allclose(group['state'].mean, states.mean(0), rtol=1e-6)
        actions = np.concatenate([dataset[row]['actions'] for row in rows_of(robot)])
        np.testing.assert_allclose(group['actions'].std, actions.std(0), rtol=1e-5)
    assert str(found).startswith("robot 'arm'\nfield")
    assert pickle.loads(pickle.dumps(found)).by == 'robot'


def test_a_path_and_integers(dataset, tmp_path):
    found = bags.statistics(tmp_path / 'robots', 'state', by='robot')
    assert list(found['one']) == ['state']
    bags.from_numpy({'episode': np.arange(6) // 2, 'x': np.arange(6.0)}, tmp_path / 'episodes')
    found = bags.statistics(tmp_path / 'episodes', by='episode')
    assert {group: each['x'].mean.item() for group, each in found.items()} == {0: 0.5, 1: 2.5, 2: 4.5}
    assert 'episode' not in found[0]


@pytest.mark.parametrize('mode', ['std', 'range'])
def test_each_datapoint_by_its_group(dataset, mode):
    found = bags.statistics(dataset, by='robot')
    scale = pickle.loads(pickle.dumps(bags.normalize(found, ('state', 'actions', 'force'), mode=mode)))
    batch = dataset.batch(range(len(dataset)))
    scaled = scale(batch)
    for row, robot in enumerate(ROBOTS):
        alone = bags.normalize(found[robot], ('state', 'actions', 'force'), mode=mode)
        expected = alone(dataset[row])
        np.testing.assert_array_equal(scaled['state'][row], expected['state'])
        np.testing.assert_array_equal(scaled['actions'][row], expected['actions'])
        assert scaled['force'][row] == expected['force']
        assert scale(dataset[row])['state'].tolist() == expected['state'].tolist()
    restored = scale.inverse(scaled)
    np.testing.assert_allclose(restored['state'], batch['state'], rtol=1e-5)
    np.testing.assert_allclose(restored['actions'].values, batch['actions'].values, rtol=1e-4, atol=1e-5)


def test_a_group_of_one_datapoint_becomes_zero(dataset):
    scaled = bags.normalize(bags.statistics(dataset, by='robot'), 'state')(dataset.batch([7]))
    assert scaled['state'].tolist() == [[0, 0]]


def test_in_a_loader(dataset):
    scale = bags.normalize(bags.statistics(dataset, by='robot'), 'state', mode='range')
    batches = list(bags.Loader(dataset, 3, fields=('robot', 'state'), transform=scale, last_batch='partial'))
    assert sum(len(batch['state']) for batch in batches) == 8
    assert max(np.abs(batch['state']).max() for batch in batches) == 1


def test_errors(dataset):
    with pytest.raises(KeyError, match="no field 'colour'"):
        bags.statistics(dataset, by='colour')
    with pytest.raises(
        TypeError, match=r"by='actions': expected a field of numbers or texts, got type array"
    ):
        bags.statistics(dataset, by='actions')
    scale = bags.normalize(bags.statistics(dataset.select([0, 1]), by='robot'), 'state')
    with pytest.raises(KeyError, match="no statistics of robot 'one'; the groups are 'arm', 'crane'"):
        scale(dataset.batch([7]))
    with pytest.raises(KeyError, match="expected the field 'robot' in the batch"):
        scale(dataset.batch([0], 'state'))


def test_groups_without_values_of_a_field(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'robot': 'utf8', 'state': 'array(float32,2)?'}) as writer:
        for number, robot in enumerate(['arm', 'arm', 'none']):
            state = None if robot == 'none' else np.full(2, number, np.float32)
            writer.append({'robot': robot, 'state': state})
    dataset = bags.open(tmp_path / 'x')
    found = bags.statistics(dataset, by='robot')
    batch = bags.normalize(found, 'state')(dataset.batch(range(3)))
    states = [None if state is None else state.tolist() for state in batch['state']]
    assert states == [[-1, -1], [1, 1], None]
    none = bags.statistics(dataset.select([2]), by='robot')
    with pytest.raises(ValueError, match="field 'state': expected values in one group, got none"):
        bags.normalize(none, 'state')
    with pytest.raises(KeyError, match="no statistics of field 'speed'"):
        bags.normalize(found, 'speed')


WIDTHS = {'arm': 2, 'hand': 4}


@pytest.fixture
def mixture(tmp_path):
    """Sequences of actions of two robots, of 2 and 4 joints."""
    rng = np.random.default_rng(1)
    parts = {}
    for robot, width in WIDTHS.items():
        with bags.DatasetWriter(tmp_path / robot, {'action': f'array(float32,{width})[]'}) as writer:
            for length in (3, 5, 4):
                writer.append({'action': rng.normal(width, 3, (length, width)).astype(np.float32)})
        dataset = bags.open(tmp_path / robot)
        parts[robot] = dataset.windows(every='action', action=bags.steps(0, 4), padding='zero')
    return bags.concat(parts, fields='union')


def padded_to(array, width):
    return np.pad(array, [(0, 0), (0, width - array.shape[1])])


@pytest.mark.parametrize('mode', ['std', 'range'])
def test_the_inverse_of_padded_and_masked_actions(mixture, mode):
    scale = bags.normalize(bags.statistics(mixture, 'action', by='source'), 'action', mode=mode)
    loader = bags.Loader(mixture, 24, shuffle=False, transform=scale, collate={'action': 'mask'})
    (batch,) = loader
    assert batch['action'].shape == (24, 4, 4)
    assert (batch['action'][~batch['action_mask']] == 0).all()
    without_mask = {name: column for name, column in batch.items() if name != 'action_mask'}
    for restored in (scale.inverse(batch)['action'], scale.inverse(without_mask)['action']):
        assert restored.dtype == np.float32
        for index in range(24):
            expected = padded_to(mixture[index]['action'], 4)
            np.testing.assert_allclose(restored[index], expected, atol=1e-5)
    # The action of a policy for one robot, in the shape of the batch.
    one = scale.inverse({'source': 'arm', 'action': batch['action'][0]})['action']
    np.testing.assert_allclose(one, padded_to(mixture[0]['action'], 4), atol=1e-5)
    wide = {'source': 'arm', 'action': np.zeros((4, 32), np.float32)}
    with pytest.raises(ValueError, match=r"field 'action': .* shape \(4, 2\), got \(4, 32\) .*action_mask"):
        scale.inverse(wide)
    mask = np.zeros((4, 32), bool)
    mask[:, :2] = True
    assert not scale.inverse({**wide, 'action_mask': mask})['action'][:, 2:].any()
    mask[0, 2] = True
    with pytest.raises(ValueError, match=r"field 'action': .* action_mask has values beyond"):
        scale.inverse({**wide, 'action_mask': mask})


def test_a_mask_that_is_none_changes_nothing(dataset):
    scale = bags.normalize(bags.statistics(dataset, 'state'), 'state')
    batch = dataset.batch([0, 1], 'state')
    for mask in (np.zeros(2, bool), np.zeros((2, 2)), [None, None]):
        np.testing.assert_array_equal(scale({**batch, 'state_mask': mask})['state'], scale(batch)['state'])


def test_results_of_pad_and_pack(mixture, tmp_path):
    dataset = bags.open(tmp_path / 'arm')
    actions = dataset.batch(range(3), 'action')
    scale = bags.normalize(bags.statistics(dataset, 'action'), 'action')
    scaled = scale(actions)
    for collate in (bags.pad, bags.pack):
        collated = collate(scaled['action'])
        restored = scale.inverse({'action': collated})['action']
        assert type(restored) is type(collated)
        np.testing.assert_allclose(restored.values, collate(actions['action']).values, atol=1e-5)
        by_group = bags.types.NormalizeGroups('robot', {'arm': scale, 'other': bags.normalize(
            bags.statistics(dataset.select([1]), 'action'), 'action')})  # fmt: skip
        both = by_group.inverse({'robot': ['arm', 'arm', 'arm'], 'action': collated})['action']
        np.testing.assert_array_equal(both.values, restored.values)
        mixed = by_group.inverse({'robot': ['other', 'arm', 'other'], 'action': collated})['action']
        assert type(mixed) is type(collated)
        assert not np.array_equal(mixed.values, restored.values)
        middle = slice(3, 8) if collate is bags.pack else 1
        np.testing.assert_array_equal(mixed.values[middle], restored.values[middle])
    masked = bags.pad(list(scaled['action']), length=(None, 6), mask=True)
    restored = scale.inverse({'action': masked})['action']
    assert (restored.values[~masked.mask] == 0).all()
    np.testing.assert_allclose(restored.values[1, :5, :2], actions['action'][1], atol=1e-5)
