"""Each iteration over a loader is the next epoch, however the one before ended."""

import itertools
import json
import random

import numpy as np
import pytest

import bags
from tests.loader.samples import COUNT


def ids(batches):
    return [index for batch in batches for index in batch['id'].tolist()]


def epochs_of(dataset, count, **options):
    """Returns the order of the first epochs, each read by itself."""
    found = []
    for epoch in range(count):
        loader = bags.Loader(dataset, 103, **options)
        loader.set_epoch(epoch)
        found.append(ids(loader))
    assert len({tuple(epoch) for epoch in found}) == count
    return found


def noise(batch, rng):
    return {'id': batch['id'], 'noise': rng.random(len(batch['id']))}


@pytest.mark.parametrize('workers', [0, 2])
def test_a_loop_in_a_loop_gives_another_order_each_time(dataset, workers):
    expected = epochs_of(dataset, 4)
    loader = bags.Loader(dataset, 10, workers=workers, transform=noise)
    noises = []
    for epoch in range(4):
        batches = list(loader)
        assert ids(batches) == expected[epoch]
        assert len(batches) == len(loader) == 11
        noises += np.concatenate([batch['noise'] for batch in batches]).tolist()
    assert len(set(noises)) == 4 * COUNT
    assert sorted(expected[0]) == list(range(COUNT))


def test_after_a_break_the_next_loop_is_the_next_epoch(dataset):
    expected = epochs_of(dataset, 4)
    loader = bags.Loader(dataset, 10)
    for _ in loader:
        break
    assert (loader.state_dict()['epoch'], loader.state_dict()['consumed']) == (0, 10)
    assert ids(loader) == expected[1]
    assert (loader.state_dict()['epoch'], loader.state_dict()['consumed']) == (2, 0)
    together = list(zip(loader, loader, strict=True))
    assert ids(batch for batch, _ in together) == expected[2]
    assert ids(batch for _, batch in together) == expected[3]


def test_an_epoch_is_chosen(dataset):
    expected = epochs_of(dataset, 8)
    loader = bags.Loader(dataset, 10)
    for epoch in (5, 0, 6):
        loader.set_epoch(epoch)
        assert loader.state_dict()['epoch'] == epoch
        assert ids(loader) == expected[epoch]
    assert ids(loader) == expected[7]
    several = bags.Loader(dataset, 10, epochs=3)
    several.set_epoch(2)
    assert ids(several) == expected[2] + expected[3] + expected[4]
    assert ids(several)[:COUNT] == expected[5]
    assert len(several) == 33


def test_an_endless_loader_does_not_repeat_what_it_gave(dataset):
    expected = epochs_of(dataset, 8)
    loader = bags.Loader(dataset, 10, epochs=None)
    batches = iter(loader)
    assert (
        ids(next(batches) for _ in range(25)) == (expected[0] + expected[1] + expected[2])[: 2 * COUNT + 30]
    )
    assert ids(next(iter(loader)) for _ in range(3)) == expected[3][:10] + expected[4][:10] + expected[5][:10]
    loader.set_epoch(1)
    next(batches)
    assert ids([next(iter(loader))]) == expected[1][:10]


@pytest.mark.slow(all_but='1')
@pytest.mark.parametrize('epochs', [1, 3])
def test_a_loaded_state_goes_on_where_it_was(dataset, epochs):
    """The next epochs follow, also if the state is that of a finished iteration."""
    expected = epochs_of(dataset, 12)
    for iteration in (0, 2):
        for taken in range(11 * epochs + 1):
            loader = bags.Loader(dataset, 10, epochs=epochs)
            for _ in range(iteration):
                assert ids(loader)
            batches = iter(loader)
            begun = ids(next(batches) for _ in range(taken))
            state = json.loads(json.dumps(loader.state_dict()))
            assert state == batches.state_dict()
            whole = [
                [*itertools.chain(*expected[epochs * n : epochs * (n + 1)])]
                for n in range(iteration, iteration + 2)
            ]
            resumed = bags.Loader(dataset, 10, epochs=epochs)
            resumed.load_state_dict(state)
            assert resumed.state_dict()['epoch'] == state['epoch']
            if taken < 11 * epochs:
                assert begun + ids(resumed) == whole[0]
            if taken == 5:
                assert ids(resumed) == whole[1]
            # A finished iterator stays finished; the next iterator is the next epoch.
            again = iter(bags.Loader(dataset, 10, epochs=epochs))
            again.load_state_dict(state)
            assert begun + ids(again) == whole[0]
            if taken == 5:
                loader = bags.Loader(dataset, 10, epochs=epochs)
                iter(loader).load_state_dict(state)
                assert ids(loader) == whole[1]


def test_a_state_of_a_run_with_other_epochs(dataset):
    expected = epochs_of(dataset, 6)
    batches = iter(bags.Loader(dataset, 10, epochs=10))
    for _ in range(24):
        next(batches)
    state = batches.state_dict()
    for epochs, count in ((1, 83), (2, 83 + COUNT), (3, 83), (4, 83 + COUNT)):
        loader = bags.Loader(dataset, 10, epochs=epochs)
        loader.load_state_dict(state)
        batches = iter(bags.Loader(dataset, 10, epochs=epochs))
        batches.load_state_dict(state)
        assert ids(loader) == ids(batches) == (expected[2][20:] + expected[3])[:count]
    del state['first_epoch']  # As in states of earlier versions.
    loader.load_state_dict(state)
    assert ids(loader) == expected[2][20:] + expected[3]


def test_a_smaller_last_batch_on_one_rank(dataset):
    batches = list(bags.Loader(dataset, 20))
    assert [len(batch['id']) for batch in batches] == [20] * 5 + [3]
    assert not any('_mask' in batch for batch in batches)


def test_a_mask_in_every_batch_on_several_ranks(dataset):
    loaders = [bags.Loader(dataset, 20, rank=rank, world_size=2) for rank in range(2)]
    batches = [batch for loader in loaders for batch in loader]
    assert [len(batch['id']) for batch in batches] == [20] * 6
    assert all(batch['_mask'].dtype == bool for batch in batches)
    counted = np.concatenate([batch['id'][batch['_mask']] for batch in batches])
    assert sorted(counted.tolist()) == list(range(COUNT))
    # Also if the rank is given later.
    (first, *_) = bags.Loader(dataset, 20).on_rank(1, 2)
    assert first['_mask'].all()


def test_fewer_datapoints_than_a_batch(dataset):
    few = dataset[:5]
    (batch,) = bags.Loader(few, 8, shuffle=False)
    assert batch['id'].tolist() == [0, 1, 2, 3, 4]
    assert len(bags.Loader(few, 8)) == 1
    (padded,) = bags.Loader(few, 8, shuffle=False, last_batch='pad')
    assert padded['id'].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert padded['_mask'].tolist() == [True] * 5 + [False] * 3
    ranks = [list(bags.Loader(few, 2, shuffle=False, rank=rank, world_size=7)) for rank in range(7)]
    assert [len(batches) for batches in ranks] == [1] * 7
    assert [index for (batch,) in ranks for index in batch['id'][batch['_mask']].tolist()] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match='batch_size: expected at most the 5 datapoints there are, got 8'):
        bags.Loader(few, 8, last_batch='drop')


@pytest.mark.parametrize('runs', [40, pytest.param(3000, marks=pytest.mark.campaign)])
def test_random_runs(dataset, runs):
    """Iterations that are abandoned, resumed on other ranks with other batch sizes, and set to epochs."""
    few = dataset[:23]
    expected = []
    for epoch in range(60):
        loader = bags.Loader(few, 23, fields='id', workers=0)
        loader.set_epoch(epoch)
        expected.append(ids(loader))
    for seed in range(runs):
        chance = random.Random(seed)
        ranks, size = chance.randint(1, 3), chance.randint(1, 9)

        def make(ranks=ranks, size=size, chance=chance):
            return [
                bags.Loader(
                    few, size, fields='id', rank=rank, world_size=ranks, workers=chance.choice((0, 1))
                )
                for rank in range(ranks)
            ]

        loaders, next_epoch, consumed, actions = make(), 0, 0, []
        for _ in range(6):
            action = chance.choice(('all', 'some', 'some', 'set', 'resume'))
            actions.append(action)
            if action == 'set':
                next_epoch, consumed = chance.randrange(30), 0
                for loader in loaders:
                    loader.set_epoch(next_epoch)
                continue
            streams = [iter(loader) for loader in loaders]
            steps = -(-(23 - consumed) // (size * ranks))
            taken = steps if action == 'all' else chance.randint(0, steps)
            found = [[next(stream) for stream in streams] for _ in range(taken)]
            wanted = expected[next_epoch][consumed : consumed + taken * size * ranks]
            unmasked = [
                index
                for step in found
                for batch in step
                for index in batch['id'][batch.get('_mask', slice(None))].tolist()
            ]
            assert unmasked == wanted, (seed, actions)
            if taken == steps:
                assert all(next(stream, None) is None for stream in streams), (seed, actions)
            states = [loader.state_dict() for loader in loaders]
            assert all(state == states[0] for state in states), (seed, actions)
            for stream in streams:
                stream.close()
            if action == 'resume':
                consumed = (consumed + taken * size * ranks) if taken < steps else 0
                next_epoch += taken == steps
                ranks, size = chance.randint(1, 3), chance.randint(1, 9)
                loaders = make(ranks, size)
                for loader in loaders:
                    loader.load_state_dict(states[0])
            else:
                next_epoch, consumed = next_epoch + 1, 0


def test_all_ranks_have_the_same_state(dataset):
    """Also those without a datapoint in the last step of an epoch: 103 are 5 steps of 20, and 3."""
    options = {'world_size': 5, 'last_batch': 'partial', 'workers': 0}
    loaders = [bags.Loader(dataset, 4, rank=rank, **options) for rank in range(5)]
    batches = [iter(loader) for loader in loaders]
    for consumed in (20, 40, 60, 80, 100):
        for each in batches:
            next(each)
        states = [loader.state_dict() for loader in loaders]
        assert all(state == states[0] for state in states)
        assert (states[0]['epoch'], states[0]['consumed']) == (0, consumed)
    for each in batches:
        assert len(list(each)) <= 1
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    assert (states[0]['epoch'], states[0]['consumed']) == (1, 0)


@pytest.mark.parametrize('epochs', [None, 2])
def test_ranks_that_would_be_at_different_steps_are_refused(dataset, epochs):
    options = {'last_batch': 'partial', 'epochs': epochs, 'workers': 0}
    with pytest.raises(
        ValueError, match="last_batch='partial': expected epochs=1, or a datapoint for each of 5"
    ):
        bags.Loader(dataset, 4, world_size=5, **options)
    alone = bags.Loader(dataset, 20, **options)
    next(iter(alone))
    # Steps of 8 leave 7 of the 103 datapoints, but 3 of the 83 that are left.
    several = bags.Loader(dataset, 2, world_size=4, **options)
    with pytest.raises(ValueError, match=r'a datapoint for each of 4 ranks .* got 3'):
        several.load_state_dict(alone.state_dict())
    next(iter(alone))
    several.load_state_dict({**alone.state_dict(), 'consumed': 24})
