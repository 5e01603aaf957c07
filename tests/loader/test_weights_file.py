"""Loaders whose weights change while they run: beside the sampler, with workers, ranks and resumes."""

import json

import numpy as np
import pytest

import bags
from bags.errors import CorruptError
from bags.loader.weights_file import write_weights
from bags.samplers import Mixture, Shuffled, Weighted

COUNT = 60


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp('weights') / 'd'
    bags.from_numpy({'id': np.arange(COUNT)}, path)
    return bags.open(path)


def make(kind, samples=50):
    if kind == 'weighted':
        return Weighted(np.ones(COUNT), seed=3, samples=samples)
    return Mixture([40, 20], {0: [3, 1], 90: [1, 1]}, seed=3, samples=samples)


def weights_of(kind, number):
    rng = np.random.default_rng(number)
    return rng.random(COUNT if kind == 'weighted' else 2) + 1e-3


@pytest.mark.parametrize('kind', ['weighted', 'mixture'])
@pytest.mark.parametrize('options', [{'workers': 0}, {'workers': 2, 'prefetch': 9}, {'workers': 3}])
def test_changes_hold_from_the_next_batch_on(dataset, kind, options):
    sampler = make(kind)
    loader = bags.Loader(dataset, 5, sampler=sampler, epochs=4, **options)
    found, calls = [], {}
    for step, batch in enumerate(loader):
        found.append(batch['id'].tolist())
        if step in (0, 3, 4, 17):
            position = loader.set_weights(weights_of(kind, step))
            assert position == 5 * (step + 1)
            calls[position] = weights_of(kind, step)
    expected = []
    for position in range(0, 200, 5):
        if position in calls:
            sampler = sampler.with_weights(position, calls[position])
        expected.append(sampler.take(position // 50, np.arange(position % 50, position % 50 + 5)).tolist())
    assert found == expected
    assert {at: weights.tolist() for at, weights in loader.weights.items()} == {
        at: weights.tolist() for at, weights in calls.items()
    }
    # What was delivered can be asked again.
    assert loader.indices(0, 3).tolist() == found[3]
    assert loader.indices(3, 9).tolist() == found[-1]


def run(dataset, kind, world_size, batch_size, stop, state=None, weights=None, **options):
    """Runs all ranks to a position; changes the weights every 20 positions of the run.

    Returns the datapoints in the order of positions, the state, and the loader of the first rank.
    """
    loaders = [
        bags.Loader(
            dataset, batch_size, sampler=make(kind), epochs=4, rank=rank, world_size=world_size,
            last_batch='partial', **options,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    if state is not None:
        for loader in loaders:
            loader.load_state_dict(state, weights=weights)
    iterators = [iter(loader) for loader in loaders]
    found = []
    while len(found) < stop:
        batches = [next(iterator, None) for iterator in iterators]
        if all(batch is None for batch in batches):
            break
        found += [id for batch in batches if batch is not None for id in batch['id'].tolist()]
        if loaders[0].state_dict()['consumed'] % 20 == 0:
            number = len(loaders[0].weights)
            positions = {loader.set_weights(weights_of(kind, number)) for loader in loaders}
            assert len(positions) == 1
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    return found, states[0], loaders[0]


@pytest.mark.parametrize('kind', ['weighted', 'mixture'])
@pytest.mark.parametrize('given', ['path', 'mapping'])
def test_other_ranks_and_workers_resume_with_the_changes(dataset, kind, given, tmp_path):
    whole, _, _ = run(dataset, kind, 1, 10, 200, workers=0)
    found, state, loader = run(dataset, kind, 2, 5, 70, workers=2)
    assert json.loads(json.dumps(state)) == state
    assert all(isinstance(value, int | str) for value in state.values())
    for world_size, batch_size, workers in ((5, 2, 0), (1, 10, 3)):
        loader.save_weights(tmp_path / 'weights')
        given_weights = tmp_path / 'weights' if given == 'path' else loader.weights
        stop = 140 if world_size == 5 else 200
        more, state, loader = run(
            dataset, kind, world_size, batch_size, stop - len(found), state, given_weights, workers=workers
        )
        found += more
    assert found == whole


@pytest.mark.slow
def test_processes(dataset):
    loaders = [
        bags.Loader(dataset, 5, sampler=make('mixture', 40), epochs=2, workers=workers, processes=workers > 0)
        for workers in (0, 2)
    ]
    found = []
    for loader in loaders:
        batches = iter(loader)
        ids = [next(batches)['id'].tolist() for _ in range(3)]
        loader.set_weights([0, 1])
        found.append(ids + [batch['id'].tolist() for batch in batches])
    assert found[0] == found[1]
    assert min(min(ids) for ids in found[0][3:]) >= 40  # The schedule has other weights from 90 on.


def test_a_position_to_come(dataset):
    loader = bags.Loader(dataset, 10, sampler=make('mixture'), epochs=2, workers=2)
    batches = iter(loader)
    next(batches)
    assert loader.set_weights([0, 1], position=25) == 25
    second, third = next(batches)['id'], next(batches)['id']
    assert (third[5:] >= 40).all()
    assert (np.concatenate([second, third[:5]]) < 40).any()
    with pytest.raises(ValueError, match=r'position: expected at least 30, .* got 29'):
        loader.set_weights([1, 1], position=29)
    # A change replaces one at the same position, and holds until the next one.
    loader.set_weights([1, 0])
    loader.set_weights([0, 1], position=40)
    loader.set_weights([1, 0], position=40)
    assert list(loader.weights) == [25, 30, 40]
    assert (next(batches)['id'] < 40).all()
    assert (next(batches)['id'] < 40).all()
    assert [len(batch['id']) for batch in batches] == [10] * 5


def test_before_the_first_batch_and_between_epochs(dataset):
    loader = bags.Loader(dataset, 10, sampler=Mixture([40, 20], [3, 1], samples=50))
    assert loader.set_weights([0, 1]) == 0
    assert all((batch['id'] >= 40).all() for batch in loader)
    assert loader.set_weights([1, 0]) == 50
    assert all((batch['id'] < 40).all() for batch in loader)
    assert len(loader) == 5


def test_states_of_other_weights_are_refused(dataset, tmp_path):
    loader = bags.Loader(dataset, 10, sampler=make('mixture'), workers=0)
    untouched = loader.state_dict()
    assert 'weights' not in untouched
    batches = iter(loader)
    next(batches)
    loader.set_weights([1, 2])
    next(batches)
    state = loader.state_dict()
    loader.set_weights([1, 3])
    loader.save_weights(tmp_path / 'weights')
    later = loader.weights
    rest = [batch['id'].tolist() for batch in batches]

    other = bags.Loader(dataset, 10, sampler=make('mixture'), workers=0)
    with pytest.raises(ValueError, match=r'expected the weights from position 10 on, .*save_weights'):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r'weights from position 10 on of its run \(digest .*, got others'):
        other.load_state_dict(state, weights={10: [1, 2.5]})
    changed = {**state, 'weights': f'10:{digest_of([1, 2, 3])}'}
    with pytest.raises(ValueError, match='one for each of 2 sources, got 3'):
        other.load_state_dict(changed, weights={10: [1, 2, 3]})
    with pytest.raises(TypeError, match='expected a path, or weights by position'):
        other.load_state_dict(state, weights=[[1, 2]])
    with pytest.raises(ValueError, match='state: weights: expected positions and digests'):
        other.load_state_dict({**state, 'weights': 'x:y'}, weights=later)
    assert other.state_dict() == untouched
    # A file of a later checkpoint has the weights of an earlier one; later changes are left out.
    for weights in (tmp_path / 'weights', str(tmp_path / 'weights'), later, {10: [1, 2]}):
        other.load_state_dict(state, weights=weights)
        assert list(other.weights) == [10]
        assert other.state_dict() == state
    other.set_weights([1, 3])
    assert [batch['id'].tolist() for batch in other] == rest
    # The loader of the run has its own weights, also for a state of before.
    loader.load_state_dict(state)
    loader.set_weights([1, 3])
    assert [batch['id'].tolist() for batch in loader] == rest
    loader.load_state_dict(untouched)
    assert loader.weights == {}
    iterator = iter(other)
    iterator.load_state_dict(state, weights=later)
    assert iterator.state_dict() == state


def digest_of(weights):
    return next(iter(Mixture([1] * len(weights), weights).with_weights(0, weights).changes.values())).digest


def test_files_that_are_wrong(dataset, tmp_path):
    loader = bags.Loader(dataset, 10, sampler=make('weighted'), workers=0)
    loader.set_weights(np.arange(COUNT))
    state = loader.state_dict()
    other = bags.Loader(dataset, 10, sampler=make('weighted'), workers=0)
    with pytest.raises(FileNotFoundError):
        other.load_state_dict(state, weights=tmp_path / 'none')
    loader.save_weights(tmp_path / 'weights')
    data = (tmp_path / 'weights').read_bytes()
    write_weights(tmp_path / 'weights', {1: np.array(['a'])})
    texts = (tmp_path / 'weights').read_bytes()
    pairs = (b'\x81\xa7weights\x91\x01', b'\x81\xa7weights\x91\x92\x01\x02')
    for damaged in (data[:-8], b'', b'{}', texts, *pairs):
        (tmp_path / 'weights').write_bytes(damaged)
        with pytest.raises(CorruptError, match=r'weights.*expected a file of loader\.save_weights'):
            other.load_state_dict(state, weights=tmp_path / 'weights')
    with pytest.raises(TypeError, match="weights: expected positions as keys, got 'first'"):
        other.load_state_dict(state, weights={'first': np.arange(COUNT)})


def test_samplers_without_weights(dataset):
    for options in ({'sampler': Shuffled(COUNT)}, {'shuffle': 'shards'}):
        loader = bags.Loader(dataset, 10, **options)
        with pytest.raises(TypeError, match='weights: expected the sampler Weighted or Mixture, got S'):
            loader.set_weights([1] * COUNT)
        assert loader.weights == {}
