"""Batches over datasets of robots that differ in their vectors, beside an oracle of plain Python."""

import collections

import numpy as np
import pytest

import bags
from bags.dataset.base import View

ROBOTS = {'arm': (7, 10), 'hand': (14, 6), 'base': (3, 4), 'none': (0, 5)}
"""The length of a state, and the number of episodes, by robot."""
STEPS = 5


def state_of(robot, number, step):
    length = ROBOTS[robot][0]
    return np.arange(length, dtype=np.float32) + 100 * number + 10 * step


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
    """Windows of three states of each robot, of datasets with other names of fields."""
    folder = tmp_path_factory.mktemp('robots')
    found = {}
    for robot, (length, episodes) in ROBOTS.items():
        name = 'qpos' if robot == 'hand' else 'state'
        spec = {'id': 'int(8)', name: f'array(float32,{length})[]'} if length else {'id': 'int(8)'}
        with bags.DatasetWriter(folder / robot, spec) as writer:
            for number in range(episodes):
                states = {name: [state_of(robot, number, step) for step in range(STEPS)]} if length else {}
                writer.append({'id': number, **states})
        dataset = bags.open(folder / robot)
        dataset = dataset.rename({'qpos': 'state'}) if robot == 'hand' else dataset
        found[robot] = (
            dataset.windows(every='state', state=bags.steps(0, 3), padding='drop') if length else dataset
        )
    return found


def test_a_mixture_beside_an_oracle(parts):
    mixture = bags.concat(parts, fields='union')
    lengths = [len(part) for part in parts.values()]
    sampler = bags.samplers.Mixture(lengths, {0: [3, 1, 1, 1], 40: [1, 1, 2, 0]}, seed=5, samples=60)
    loader = bags.Loader(mixture, 8, sampler=sampler, epochs=2, collate={'state': 'mask'}, workers=2)
    fields = ('id', 'source', 'state', 'state_mask')
    found = [
        dict(zip(fields, row, strict=True)) for b in loader for row in zip(*map(b.get, fields), strict=True)
    ]
    assert len(found) == 120

    counts = collections.Counter()
    for position, row in enumerate(found):
        index = int(sampler.take(position // 60, np.array([position % 60]))[0])
        robots = [
            (robot, number) for robot, length in zip(parts, lengths, strict=True) for number in range(length)
        ]
        robot, within = robots[index]
        counts[robot, position < 40] += 1
        windows = STEPS - 2 if ROBOTS[robot][0] else 1
        number, first = divmod(within, windows)
        expected = np.stack([state_of(robot, number, first + step) for step in range(3)])
        assert (row['id'], row['source']) == (number, robot)
        own = 3 if ROBOTS[robot][0] else 0
        assert row['state_mask'].sum() == own * ROBOTS[robot][0]
        np.testing.assert_array_equal(row['state'][:own, : ROBOTS[robot][0]], expected[:own])
        assert not row['state'][~row['state_mask']].any()
    each = [counts[robot, True] for robot in parts], [counts[robot, False] for robot in parts]
    assert np.abs(np.array(each[0]) - [20, 40 / 6, 40 / 6, 40 / 6]).max() < 1
    assert each[1] == [20, 20, 40, 0]


@pytest.mark.parametrize('last_batch', ['partial', 'pad'])
def test_a_run_resumes_on_three_hosts_in_the_middle_of_a_schedule(parts, last_batch):
    mixture = bags.concat(parts, fields='union')
    weights = {0: [1, 0, 0, 0], 30: [3, 1, 1, 1], 64: [1, 1, 1, 0], 100: [0, 0, 1, 1]}
    sampler = bags.samplers.Mixture([len(part) for part in parts.values()], weights, seed=1, samples=72)
    options = {'sampler': sampler, 'epochs': 2, 'collate': {'state': 'mask'}, 'workers': 0}

    def rows(batch):
        kept = batch.get('_mask', np.ones(len(batch['id']), bool))
        states = [
            (state[mask].tolist()) for state, mask in zip(batch['state'], batch['state_mask'], strict=True)
        ]
        found = zip(batch['source'], batch['id'].tolist(), states, kept.tolist(), strict=True)
        return [(source, number, state) for source, number, state, keep in found if keep]

    whole = [row for batch in bags.Loader(mixture, 12, **options) for row in rows(batch)]
    for steps in (2, 4, 7):
        two = [
            iter(bags.Loader(mixture, 6, rank=rank, world_size=2, last_batch=last_batch, **options))
            for rank in range(2)
        ]
        seen = [row for _ in range(steps) for run in two for row in rows(next(run))]
        states = [run.state_dict() for run in two]
        assert states[0] == states[1]
        three = [
            bags.Loader(mixture, 4, rank=rank, world_size=3, last_batch=last_batch, **options)
            for rank in range(3)
        ]
        for loader in three:
            loader.load_state_dict(states[0])
        for batches in zip(*three, strict=True):
            seen += [row for batch in batches for row in rows(batch)]
        assert len(seen) == 144
        assert seen == whole[: len(seen)]


class Counted(View):
    """A view that counts its reads."""

    def __init__(self, dataset):
        super().__init__([dataset], dataset.schema)
        self.reads = []

    def __len__(self):
        return len(self.datasets[0])

    def plan_rows(self, indices, selection):
        self.reads.append(len(indices))
        return self.datasets[0].plan_rows(indices, selection)

    @property
    def expression(self):
        return f'counted {self.datasets[0].expression}'


def test_a_batch_reads_each_dataset_once(parts):
    counted = {robot: Counted(part) for robot, part in parts.items()}
    mixture = bags.concat(counted, fields='union')
    sampler = bags.samplers.Mixture([len(part) for part in counted.values()], [1, 1, 1, 1], samples=64)
    next(iter(bags.Loader(mixture, 64, sampler=sampler, collate={'state': 'mask'}, workers=0)))
    assert [each.reads for each in counted.values()] == [[16]] * 4


def test_transforms_by_source(parts):
    scale = {'arm': 1.0, 'hand': 10.0, 'base': 100.0, 'none': 0.0}

    def transform(row):
        state = np.zeros((3, 1), np.float32) if row['state'] is None else row['state']
        return {'source': row['source'], 'state': state * scale[row['source']]}

    mixture = bags.concat(parts, fields='union')
    loader = bags.Loader(
        mixture, 16, seed=2, transform=transform, per='datapoint', collate={'state': 'mask'}, workers=0
    )
    plain = bags.Loader(mixture, 16, seed=2, collate={'state': 'mask'}, workers=0)
    for batch, other in zip(loader, plain, strict=True):
        for row, source in enumerate(batch['source']):
            own = other['state_mask'][row]
            expected = other['state'][row][own] * np.float32(scale[source])
            found = batch['state'][row][: own.shape[0], : own.shape[1]]
            np.testing.assert_array_equal(found[own[:, : found.shape[1]]] if own.any() else [], expected)


def test_normalization_by_source(parts):
    mixture = bags.concat(parts, fields='union')
    found = bags.statistics(mixture, 'state', by='source')
    assert found['arm']['state'].mean.shape == (3, 7)
    scaled = bags.normalize(found, 'state')
    batch = next(iter(bags.Loader(mixture, len(mixture), transform=scaled, collate={'state': 'mask'})))
    for robot, (length, _) in ROBOTS.items():
        rows = [row for row, source in enumerate(batch['source']) if source == robot]
        values = batch['state'][rows][batch['state_mask'][rows]].reshape(
            len(rows), 3 if length else 0, length
        )
        assert batch['state_mask'][rows].all(0).sum() == 3 * length
        if length:
            np.testing.assert_allclose(values.mean(0), 0, atol=1e-5)
            np.testing.assert_allclose(values.std(0), 1, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"field 'state': expected values of one shape, got \(3, 7\) and \(3, 14\)"
    ):
        bags.statistics(mixture, 'state')
    assert list(bags.statistics(mixture)) == ['id', 'state_is_pad']
