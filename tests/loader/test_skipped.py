"""Datapoints that cannot be read: an error after which the iterator continues, or skipped."""

import itertools
import re

import numpy as np
import pytest

import bags
from bags import samplers
from bags.formats.images import encode_jpeg
from bags.samplers.orders import Sequential
from tests.loader.samples import COUNT

BAD = {3, 17, 18, 50, 51, 102}
WORKERS = [{'workers': 0}, {'workers': 1}, {'workers': 4}, {'workers': 2, 'processes': True}]
SKIP = {'on_error': 'skip', 'shuffle': False}


@pytest.fixture(scope='module')
def damaged(tmp_path_factory):
    """Writes a dataset in which some JPEGs cannot be decoded."""
    path = tmp_path_factory.mktemp('damaged') / 'x'
    good = encode_jpeg(np.zeros((8, 8, 3), np.uint8))
    with bags.DatasetWriter(path, {'id': 'int', 'image': 'bytes'}) as writer:
        for index in range(COUNT):
            writer.append({'id': index, 'image': b'no image' if index in BAD else good})
    (path / 'spec.json').write_text((path / 'spec.json').read_text().replace('"bytes"', '"jpeg"'))
    return bags.open(path)


def ids(batches):
    return [index for batch in batches for index in batch['id'].tolist()]


class Rows:
    """A user's own dataset."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index in BAD:
            raise RuntimeError('not readable')
        return {'id': index}


@pytest.mark.parametrize('on_error', ['skip', 'replace'])
@pytest.mark.parametrize('hosts', [2, 3, 5])
def test_ranks_together_skip_each_datapoint_once(damaged, hosts, on_error):
    """Also one that another rank repeats in the last step of an epoch."""
    skipped = []
    for rank in range(hosts):
        options = {'on_error': on_error, 'shuffle': False, 'workers': 0}
        loader = bags.Loader(damaged, 20, rank=rank, world_size=hosts, **options)
        list(loader)
        skipped += [each.datapoint for each in loader.skipped]
    assert sorted(skipped) == sorted(BAD)


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_sound_datapoints_come_once_an_epoch(damaged, workers):
    loader = bags.Loader(damaged, 8, seed=4, epochs=2, on_error='skip', **workers)
    batches = list(loader)
    half = len(batches) // 2
    assert sorted(ids(batches[:half])) == sorted(ids(batches[half:])) == sorted({*range(COUNT)} - BAD)
    # In the order of the sampler, batch by batch.
    for step, batch in enumerate(batches):
        epoch, within = divmod(step, half)
        assert batch['id'].tolist() == [i for i in loader.indices(epoch, within).tolist() if i not in BAD]
        assert len(batch['image']) == len(batch['id'])
    assert [(each.datapoint, each.field) for each in loader.skipped] == [(i, 'image') for i in sorted(BAD)]
    assert 'image' in loader.skipped[0].reason


def test_it_resumes_at_any_step_on_any_hosts(damaged):
    whole = [batch['id'].tolist() for batch in bags.Loader(damaged, 12, on_error='skip', workers=0)]
    for taken in range(len(whole)):
        first = bags.Loader(damaged, 12, on_error='skip', workers=0)
        batches = iter(first)
        begun = [next(batches)['id'].tolist() for _ in range(taken)]
        resumed = bags.Loader(damaged, 12, on_error='skip', workers=1)
        resumed.load_state_dict(first.state_dict())
        assert begun + [batch['id'].tolist() for batch in resumed] == whole
    for hosts in (2, 3):
        options = {'world_size': hosts, 'on_error': 'skip', 'workers': 0}
        ranks = [list(bags.Loader(damaged, 12 // hosts, rank=rank, **options)) for rank in range(hosts)]
        steps = zip(*ranks, strict=True)
        # A batch with a mask keeps its size, by repeats.
        assert all(len(batch['id']) == 12 // hosts for rank in ranks for batch in rank)
        found = [index for step in steps for batch in step for index in batch['id'][batch['_mask']].tolist()]
        assert found == [index for batch in whole for index in batch]


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_batches_without_a_sound_datapoint_are_left_out(damaged, workers):
    loader = bags.Loader(damaged, 1, **SKIP, **workers)
    assert ids(loader) == sorted({*range(COUNT)} - BAD)
    assert loader.state_dict()['epoch'] == 1
    assert {each.datapoint for each in loader.skipped} == BAD
    broken = damaged.select(sorted(BAD))
    with pytest.raises(ValueError, match=r'no datapoint of 3 batches in a row can be read: .*image'):
        list(bags.Loader(broken, 2, on_error='skip', epochs=None, **workers))
    with pytest.raises(ValueError, match='none of datapoints 0, 1 can be read'):
        list(bags.Loader(broken, 2, mask_column='m', **SKIP, **workers))


def test_a_view_that_leaves_out_what_was_skipped(damaged):
    loader = bags.Loader(damaged, 10, on_error='skip')
    list(loader)
    sound = np.setdiff1d(np.arange(COUNT), [each.datapoint for each in loader.skipped])
    assert sorted(ids(bags.Loader(damaged.select(sound), 10))) == sound.tolist()


def test_bins_and_rows_of_others(damaged):
    sampler = bags.samplers.Packed(9, np.arange(COUNT) % 5)
    batches = list(bags.Loader(damaged, 3, sampler=sampler, on_error='skip'))
    assert sorted(ids(batches)) == sorted({*range(COUNT)} - BAD)
    assert all(batch['_datapoint'].tolist() == batch['id'].tolist() for batch in batches)
    rows = bags.Loader(Rows(), 10, **SKIP)
    assert ids(rows) == sorted({*range(COUNT)} - BAD)
    assert rows.skipped[0] == (3, None, 'not readable')


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_after_an_error_the_iterator_goes_on(damaged, workers):
    loader = bags.Loader(damaged, 5, shuffle=False, **workers)
    batches, found, errors = iter(loader), [], []
    while True:
        try:
            batch = next(batches, None)
        except bags.DecodeError as exc:
            errors.append(exc.datapoint)
            # Before that, the state is the one before the batch that failed.
            assert batches.state_dict()['consumed'] == 5 * (len(found) + len(errors) - 1)
            continue
        if batch is None:
            break
        found.append(batch['id'].tolist())
    assert errors == [3, 17, 50, 102]
    assert found == [[*range(at, at + 5)] for at in range(0, 100, 5) if at not in (0, 15, 50)]
    batches = iter(loader)
    with pytest.raises(bags.DecodeError):
        next(batches)
    batches.close()
    assert list(batches) == []


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_replaced_by_the_next_datapoint_of_the_epoch(damaged, workers):
    loader = bags.Loader(damaged, 8, seed=4, epochs=2, on_error='replace', mask_column='own', **workers)
    batches = list(loader)
    steps = len(batches) // 2
    for epoch in range(2):
        order = np.concatenate([loader.indices(epoch, step) for step in range(steps)]).tolist()
        expected = [
            next(order[(at + more) % COUNT] for more in range(COUNT) if order[(at + more) % COUNT] not in BAD)
            for at in range(COUNT)
        ]
        found = batches[epoch * steps : (epoch + 1) * steps]
        assert ids(found) == expected
        own = np.concatenate([batch['own'] for batch in found]).tolist()
        assert own == [index not in BAD for index in order]
    assert {each.datapoint for each in loader.skipped} == BAD


def test_replacements_are_the_same_on_any_hosts_and_after_resuming(damaged):
    options = {'on_error': 'replace', 'workers': 0, 'seed': 3, 'last_batch': 'partial'}
    whole = ids(bags.Loader(damaged, 12, **options))
    for hosts in (2, 3):
        ranks = [
            list(bags.Loader(damaged, 12 // hosts, rank=rank, world_size=hosts, **options))
            for rank in range(hosts)
        ]
        steps = itertools.zip_longest(*ranks, fillvalue={'id': np.zeros(0, int)})
        assert [index for step in steps for index in ids(step)] == whole
    first = bags.Loader(damaged, 12, **options)
    batches = iter(first)
    begun = ids(next(batches) for _ in range(4))
    resumed = bags.Loader(damaged, 12, **options)
    resumed.load_state_dict(first.state_dict())
    assert begun + ids(resumed) == whole


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_nothing_can_replace_what_cannot_be_read(damaged, workers):
    broken = damaged.select(sorted(BAD))
    with pytest.raises(ValueError, match=r'no datapoint of an epoch can be read: .*image'):
        list(bags.Loader(broken, 2, on_error='replace', epochs=None, **workers))
    packed = bags.samplers.Packed(9, np.arange(COUNT) % 5)
    with pytest.raises(ValueError, match=r'one datapoint a position, got Packed'):
        list(bags.Loader(damaged, 2, sampler=packed, on_error='replace', **workers))


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_datapoints_to_leave_out(dataset, workers):
    out = [5, 17, -1]
    whole = [batch['id'].tolist() for batch in bags.Loader(dataset, 8, fields='id', seed=1, workers=0)]
    gone = {5, 17, COUNT - 1}
    loader = bags.Loader(dataset, 8, fields='id', seed=1, skip=out, **workers)
    assert [batch['id'].tolist() for batch in loader] == [
        [index for index in batch if index not in gone] for batch in whole
    ]
    assert loader.skipped == []
    # A resumed run that skips some datapoints has the same batches without them.
    first = bags.Loader(dataset, 8, fields='id', seed=1, workers=0)
    next(iter(first))
    loader.load_state_dict(first.state_dict())
    assert ids(loader) == [index for batch in whole[1:] for index in batch if index not in gone]
    replaced = bags.Loader(dataset, 8, fields='id', seed=1, skip=out, on_error='replace', **workers)
    assert sorted(set(ids(replaced))) == sorted({*range(COUNT)} - gone)
    for wrong, error in (([COUNT], IndexError), ([1.5], TypeError), ([True], TypeError)):
        with pytest.raises(error, match='skip'):
            bags.Loader(dataset, 8, skip=wrong)


def test_skipped_is_what_verify_names(damaged):
    loader = bags.Loader(damaged, 8, on_error='skip')
    list(loader)
    found = bags.verify(damaged.path, decode=True)
    named = {int(re.search(r'record (\d+)', str(each))[1]) for each in found}
    assert {each.datapoint for each in loader.skipped} == named == BAD


def test_errors_that_are_not_of_a_datapoint(damaged):

    def fails(batch):
        raise OSError('of the user')

    with pytest.raises(OSError, match='of the user'):
        list(bags.Loader(damaged, 5, transform=fails, on_error='skip'))
    for options, match in [
        ({'on_error': 'ignore'}, 'on_error'),
        ({'per': 'row', 'transform': fails}, 'per'),
        ({'per': 'datapoint'}, 'expected a transform'),
    ]:
        with pytest.raises(ValueError, match=match):
            bags.Loader(damaged, 5, **options)


SAMPLERS = [
    None,
    Sequential(COUNT),
    samplers.Random(COUNT, seed=5, samples=40),
    samplers.Sliding(COUNT, 8, 4),
    samplers.Shuffled(COUNT, seed=9),
]


@pytest.mark.parametrize('sampler', SAMPLERS, ids=repr)
@pytest.mark.parametrize('hosts', [1, 3])
def test_indices_of_a_step(dataset, sampler, hosts):
    options = {'sampler': sampler, 'seed': 2, 'epochs': 3, 'fields': 'id'}
    loaders = [bags.Loader(dataset, 7, rank=rank, world_size=hosts, **options) for rank in range(hosts)]
    for rank, loader in enumerate(loaders):
        batches = list(loader)
        steps = len(batches) // 3
        for number, batch in enumerate(batches):
            found = loaders[0].on_rank(rank, hosts).indices(*divmod(number, steps))
            assert found.tolist() == batch['id'].tolist()
        with pytest.raises(IndexError, match=f'step {steps} out of range: an epoch has {steps}'):
            loader.indices(0, steps)
    loader = loaders[0]
    with pytest.raises(ValueError, match='epoch: expected at least 0'):
        loader.indices(-1, 0)


def crop(row, rng):
    return {**row, 'x': row['x'][:2] + rng.integers(100), 'noise': rng.random()}


@pytest.mark.slow('*True*')
@pytest.mark.parametrize('workers', WORKERS, ids=str)
def test_a_transform_of_single_datapoints(dataset, workers):
    def run(batch_size, **options):
        return list(bags.Loader(dataset, batch_size, epochs=2, transform=crop, per='datapoint', **options))

    batches = run(10, **workers)
    assert batches[0]['x'].shape == (10, 2)
    assert batches[0]['text'][0] == f'text {batches[0]["id"][0]}'
    noise = np.concatenate([batch['noise'] for batch in batches])
    assert len(set(noise.tolist())) == 2 * COUNT
    # Random numbers depend on the position, not on the batch size or the hosts.
    assert noise.tolist() == np.concatenate([batch['noise'] for batch in run(7)]).tolist()
    ranks = [run(5, rank=rank, world_size=2, last_batch='partial') for rank in range(2)]
    both = np.concatenate([batch['noise'] for step in zip(*ranks, strict=True) for batch in step])
    assert noise.tolist() == both.tolist()


def test_transforms_of_datapoints_that_fail(dataset):
    def fails(row):
        if row['id'] == 13:
            raise ArithmeticError('thirteen')
        return None if row['id'] == 50 else row

    loader = bags.Loader(dataset, 10, shuffle=False, transform=fails, per='datapoint', workers=0)
    batches = iter(loader)
    next(batches)
    with pytest.raises(ArithmeticError) as caught:
        next(batches)
    assert caught.value.__notes__ == ['in transform of datapoint 13, in batch 1 of epoch 0']
    with pytest.raises(TypeError, match='expected it to return the datapoint, got None'):
        list(batches)


def test_transforms_of_tuples_and_bins(dataset):
    rows = [(index, f'n {index}') for index in range(10)]
    ((numbers, names),) = bags.Loader(
        rows, 10, shuffle=False, transform=lambda row: (row[0] * 2, row[1]), per='datapoint'
    )
    assert numbers.tolist() == list(range(0, 20, 2))
    assert names[3] == 'n 3'
    sampler = bags.samplers.Packed(9, dataset.lengths('nums'))
    batches = list(bags.Loader(dataset, 2, sampler=sampler, transform=crop, per='datapoint'))
    assert len({number for batch in batches for number in batch['noise'].tolist()}) == COUNT
    assert all(batch['_datapoint'].tolist() == batch['id'].tolist() for batch in batches)
