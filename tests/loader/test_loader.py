"""Loaders: the same batches for any number of workers, and after resuming at any step."""

import functools
import gc
import itertools
import os
import pickle
import random
import re
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.samplers import Bucketed, Mixture, Random
from tests.loader.samples import COUNT, SPEC, make_row


def ids(batches):
    return [batch['id'].tolist() for batch in batches]


def flat(batches):
    return [index for batch in ids(batches) for index in batch]


def parts(column):
    if isinstance(column, bags.Ragged):
        return column.values, column.offsets
    return (column,) if isinstance(column, np.ndarray) else ()


def same(a, b):
    """Returns whether two streams of batches are equal, bit by bit."""
    a, b = list(a), list(b)
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert type(one[name]) is type(other[name])
            if parts(one[name]):
                for x, y in zip(parts(one[name]), parts(other[name]), strict=True):
                    assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
            else:
                assert one[name] == other[name]
    return True


def augment(batch, rng):
    batch['x'] = batch['x'] + rng.random(batch['x'].shape, np.float32)
    return batch


def has_no_threads():
    return not [thread for thread in threading.enumerate() if thread.name.startswith('bags-loader')]


# The order.


def test_batches_are_what_the_dataset_gives(dataset):
    order = np.concatenate(
        [batch['id'] for batch in bags.Loader(dataset, 10, epochs=1, last_batch='partial')]
    )
    assert sorted(order.tolist()) == list(range(COUNT))
    expected = [dataset.batch(order[start : start + 10]) for start in range(0, COUNT, 10)]
    assert same(bags.Loader(dataset, 10, epochs=1, last_batch='partial'), expected)


@pytest.mark.parametrize('view', ['select', 'concat', 'join', 'slice'])
def test_any_view_is_loaded(dataset, view):
    views = {
        'select': lambda: dataset.select(range(0, COUNT, 2)),
        'concat': lambda: bags.concat([dataset, dataset]),
        'join': lambda: bags.join([dataset, dataset], replace=True),
        'slice': lambda: dataset[5:60],
    }
    made = views[view]()
    found = flat(bags.Loader(made, 7, epochs=1, last_batch='partial'))
    assert sorted(found) == sorted(row['id'] for row in made)


def test_fields(dataset):
    (batch,) = bags.Loader(dataset, COUNT, fields='id', epochs=1)
    assert list(batch) == ['id']
    (batch,) = bags.Loader(dataset, COUNT, fields=iter(['text', 'id']), epochs=1)
    assert list(batch) == ['text', 'id']
    (batch,) = bags.Loader(dataset, COUNT, fields={'nums': range(1, 3)}, shuffle=False, epochs=1)
    assert batch['nums'][4].tolist() == [1, 2]


def test_epochs_differ_and_do_not_mix(dataset):
    batches = ids(bags.Loader(dataset, 10, epochs=3, last_batch='partial'))
    assert [len(batch) for batch in batches] == [*[10] * 10, 3] * 3
    epochs = [list(itertools.chain(*batches[start : start + 11])) for start in (0, 11, 22)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert len(bags.Loader(dataset, 10, epochs=3)) == 33
    loader = bags.Loader(dataset, 10, epochs=None)
    endless = iter(loader)
    assert [next(endless)['id'].tolist() for _ in range(33)] == batches
    endless.close()
    assert list(endless) == []
    with pytest.raises(TypeError, match='epochs=None is endless, so it has no length'):
        len(loader)


def test_seeds_and_no_shuffle(dataset):
    orders = [flat(bags.Loader(dataset, 10, seed=seed, epochs=1)) for seed in (0, 1, 2**80, -1)]
    assert len(set(map(tuple, orders))) == 4
    assert flat(bags.Loader(dataset, 10, shuffle=False, epochs=1, last_batch='partial')) == list(range(COUNT))
    shards = flat(bags.Loader(dataset, 10, shuffle='shards', epochs=1, last_batch='partial'))
    assert sorted(shards) == list(range(COUNT)) != shards


def test_repeats_are_marked(dataset):
    for mask, name in ((None, '_mask'), ('counts', 'counts')):
        batches = list(bags.Loader(dataset, 10, epochs=1, mask_column=mask, last_batch='pad'))
        assert batches[-1][name].tolist() == [True] * 3 + [False] * 7
        assert batches[-1]['id'][3:].tolist() == batches[0]['id'][:7].tolist()
        assert all(batch[name].tolist() == [True] * 10 for batch in batches[:-1])
    assert '_mask' not in next(iter(bags.Loader(dataset, 10, last_batch='partial')))
    assert all(
        batch['m'].all() for batch in bags.Loader(dataset, 10, last_batch='drop', epochs=1, mask_column='m')
    )


@pytest.mark.slow(all_but='pad')
@pytest.mark.parametrize('last_batch', ['pad', 'drop', 'partial'])
def test_ranks_share_an_epoch(dataset, last_batch):
    single = flat(bags.Loader(dataset, 6, epochs=2, last_batch='partial'))

    def epoch_of(loader, epoch):
        alone = bags.Loader(dataset, 4, last_batch=last_batch, rank=loader.rank, world_size=loader.world_size)
        alone.set_epoch(epoch)
        return list(alone)

    # Of 5 hosts, two would have no datapoint in the last step, which `partial` accepts in a last epoch only.
    for hosts in (1, 2, 3, 4 if last_batch == 'partial' else 5):
        loaders = [
            bags.Loader(dataset, 4, epochs=2, last_batch=last_batch, rank=host, world_size=hosts)
            for host in range(hosts)
        ]
        streams = [list(loader) for loader in loaders]
        for epoch in range(2):
            mine = [epoch_of(loader, epoch) for loader in loaders]
            whole = single[epoch * COUNT : (epoch + 1) * COUNT]
            if last_batch == 'partial':
                assert sorted(flat(itertools.chain(*mine))) == list(range(COUNT))
            else:
                assert (
                    len({len(batches) for batches in mine}) == 1 == len({len(loader) for loader in loaders})
                )
                together = [flat(batches) for batches in zip(*mine, strict=True)]
                order = list(itertools.chain(*together))
                assert order[:COUNT] == whole[: len(order)]
                if last_batch == 'pad':
                    counted = [
                        index
                        for batch in itertools.chain(*mine)
                        for index, counts in zip(
                            batch['id'].tolist(), batch.get('_mask', [True] * len(batch['id'])), strict=True
                        )
                        if counts
                    ]
                    assert sorted(counted) == list(range(COUNT))
            starts = [sum(len(epoch_of(loader, e)) for e in range(epoch)) for loader in loaders]
            for stream, batches, start in zip(streams, mine, starts, strict=True):
                assert same(stream[start : start + len(batches)], batches)


# Workers.


@pytest.mark.parametrize('workers', [0, 1, 4])
@pytest.mark.parametrize('prefetch', [None, 1, 3])
def test_any_number_of_workers_makes_the_same_batches(dataset, workers, prefetch):
    options = {'epochs': 3, 'transform': augment, 'mask_column': 'm'}
    expected = list(bags.Loader(dataset, 7, workers=0, **options))
    assert same(bags.Loader(dataset, 7, workers=workers, prefetch=prefetch, **options), expected)


def test_threads_make_no_more_batches_ahead_than_prefetch(dataset):
    made = []

    def note(batch):
        made.append(1)
        return batch

    batches = iter(bags.Loader(dataset, 1, workers=2, prefetch=3, transform=note))
    for taken in range(1, 30):
        next(batches)
        assert len(made) <= taken + 3
    batches.close()


def test_arrays_are_the_consumers_own(dataset):
    for batch in bags.Loader(dataset, 7, epochs=2, workers=2):
        array = batch['x']
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert (array == batch['id'][:, None]).all()
        array[:] = -1
        batch['id'][:] = -1
    assert dataset[0]['x'].tolist() == [0, 0, 0, 0]


@pytest.mark.slow('options2')
@pytest.mark.parametrize('options', [{'workers': 0}, {'workers': 3}, {'workers': 1, 'processes': True}])
def test_large_arrays_stay_the_consumers_own(tmp_path, kit, options):
    rows = [{'x': np.full(300_000, index, 'float32')} for index in range(12)]
    dataset = bags.open(kit.fill(tmp_path / 'x', rows, {'x': 'array(float32,300000)'}))
    loader, held = bags.Loader(dataset, 2, shuffle=False, epochs=4, **options), []
    for number, batch in enumerate(loader):
        if number % 3 != 1:  # Memory of the other batches is reused.
            held.append((number, batch['x'][:, ::2] if number % 2 else batch['x']))
    for number, array in held:
        assert (array == np.array([[2 * number % 12], [2 * number % 12 + 1]])).all()
        array[:] = -1
    assert (next(iter(loader))['x'] == np.array([[0], [1]])).all()


@pytest.mark.parametrize('workers', [0, 2])
def test_a_decoder_around_a_built_in_one_is_used(tmp_path, kit, workers):
    shades = np.random.default_rng(0).integers(0, 256, (20, 40, 40, 3), np.uint8)
    path = kit.fill(tmp_path / 'x', [{'image': one} for one in shades], {'image': 'jpeg'})

    @functools.wraps(bags.decoders['jpeg'])
    def corner(data, *args):
        return bags.decoders['jpeg'](data, *args)[:8, :8]

    dataset = bags.open(path, decoders={'jpeg': corner})
    batch = next(iter(bags.Loader(dataset, 5, shuffle=False, workers=workers)))
    assert [picture.shape for picture in batch['image']] == [(8, 8, 3)] * 5
    assert dataset[0]['image'].shape == (8, 8, 3)


def test_transform_collate_and_to_device_follow_one_another(dataset):
    main = threading.current_thread()

    def transform(batch):
        return {'ids': batch['id'].tolist(), 'nums': batch['nums']}

    def to_device(batch):
        assert threading.current_thread() is main
        return batch['nums'], batch['ids']

    loader = bags.Loader(
        dataset, 5, shuffle=False, transform=transform, collate={'nums': bags.pack}, to_device=to_device
    )
    packed, indices = next(iter(loader))
    assert indices == [0, 1, 2, 3, 4]
    assert packed.offsets.tolist() == [0, 0, 1, 3, 6, 10]


def test_augmentation_is_the_same_in_every_run(dataset):
    first = list(bags.Loader(dataset, 5, epochs=2, transform=augment, seed=3))
    assert same(bags.Loader(dataset, 5, epochs=2, transform=augment, seed=3), first)
    noise = [tuple((batch['x'] - batch['id'][:, None]).ravel().tolist()) for batch in first]
    assert len(set(noise)) == len(noise)


# Resuming.


@pytest.mark.slow(all_but='3')
@pytest.mark.parametrize('workers', [0, 3])
def test_a_run_resumes_at_any_step(dataset, workers):
    options = {'epochs': 3, 'transform': augment, 'workers': workers}
    whole = list(bags.Loader(dataset, 7, **options))
    for done in [0, 1, 14, 15, 16, 29, *random.Random(0).sample(range(len(whole) + 1), 14)]:
        loader = bags.Loader(dataset, 7, **options)
        batches = iter(loader)
        before = [next(batches) for _ in range(done)]
        state = loader.state_dict()
        assert state == batches.get_state() == batches.state_dict()
        batches.close()
        other = bags.Loader(dataset, 7, **options)
        other.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert other.state_dict() == state
        assert same([*before, *other], whole)


def test_an_iterator_can_be_set_back(dataset):
    batches = iter(bags.Loader(dataset, 7, epochs=None))
    next(batches)
    state = batches.get_state()
    expected = [next(batches) for _ in range(20)]
    batches.set_state(state)
    assert same([next(batches) for _ in range(20)], expected)
    batches.close()


def test_what_is_read_ahead_does_not_count(dataset):
    batches = iter(bags.Loader(dataset, 1, workers=2, prefetch=50))
    next(batches)
    time.sleep(0.05)
    assert batches.get_state()['consumed'] == 1
    batches.close()


def test_states_of_other_runs_are_refused(dataset, tmp_path, kit):
    state = bags.Loader(dataset, 7).state_dict()
    with pytest.raises(ValueError, match='of another run: expected the seed 1 of this loader, got 0'):
        bags.Loader(dataset, 7, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match='of another run: expected the sampler'):
        bags.Loader(dataset, 7, shuffle=False).load_state_dict(state)
    others = {
        'longer': (SPEC, [make_row(index) for index in range(COUNT + 1)]),
        'otherwise': (SPEC, [make_row(COUNT - 1 - index) for index in range(COUNT)]),
        'fewer fields': ({'id': 'int(8)'}, [{'id': index} for index in range(COUNT)]),
    }
    for name, (spec, rows) in others.items():
        other = bags.open(kit.fill(tmp_path / name, rows, spec))
        with pytest.raises(ValueError, match='of another dataset'):
            bags.Loader(other, 7).load_state_dict(state)
    with pytest.raises(ValueError, match='of another dataset'):
        bags.Loader(dataset.select(range(COUNT - 1, -1, -1)), 7).load_state_dict(state)
    # A copy counts as the same dataset, also with other shards.
    bags.copy(dataset, tmp_path / 'copy')
    copy = bags.open(tmp_path / 'copy')
    bags.Loader(copy, 9).load_state_dict(state)
    # But not for an order by shards.
    state = bags.Loader(dataset, 7, shuffle='shards').state_dict()
    bags.copy(dataset, tmp_path / 'shards', shard_length=41)
    shards = bags.open(tmp_path / 'shards')
    assert shards.shards == dataset.shards
    with pytest.raises(ValueError, match='of another run: expected the sampler'):
        bags.Loader(shards, 7, shuffle='shards').load_state_dict(state)
    state = bags.Loader(dataset, 7).state_dict()
    for wrong in ({}, 5, {**state, 'consumed': 1000}, {**state, 'epoch': -1}, {**state, 'epoch': 'x'}):
        with pytest.raises(ValueError, match='state: expected'):
            bags.Loader(dataset, 7).load_state_dict(wrong)
    with pytest.raises(ValueError, match='state'):
        iter(bags.Loader(dataset, 7)).set_state({**state, 'seed': 5})


# Samplers.


def test_samplers_of_all_kinds(dataset):
    found = flat(bags.Loader(dataset, 10, sampler=Random(COUNT, samples=500), epochs=1, last_batch='partial'))
    assert len(found) == 500
    mixed = bags.concat([dataset[:3], dataset[3:]])
    found = flat(bags.Loader(mixed, 10, sampler=Mixture([3, 100], [1, 1]), epochs=1, last_batch='drop'))
    assert sum(index < 3 for index in found) == 50
    sampler = Bucketed(dataset.lengths('nums'), 5)
    loader = bags.Loader(dataset, 5, sampler=sampler, fields='nums', epochs=1, collate=bags.pad)
    spread = [int(np.ptp(batch['nums'].lengths)) for batch in loader]
    assert sum(spread) < 6


def test_a_sampler_of_ones_own(dataset):
    class Backwards:
        def __len__(self):
            return COUNT

        def take(self, epoch, positions):
            return COUNT - 1 - positions

    assert (
        flat(bags.Loader(dataset, 10, sampler=Backwards(), epochs=1, last_batch='partial'))
        == [*range(COUNT)][::-1]
    )

    class Broken(Backwards):
        def take(self, epoch, positions):
            return positions + 95

    batches = iter(bags.Loader(dataset, 4, sampler=Broken()))
    next(batches), next(batches)
    with pytest.raises(IndexError, match='103'):
        next(batches)

    class Short(Backwards):
        def take(self, epoch, positions):
            return positions[1:]

    with pytest.raises(ValueError, match='a datapoint for each of 103 positions, got 102'):
        next(iter(bags.Loader(dataset, 4, sampler=Short(), epochs=1)))


# Errors.


@pytest.mark.parametrize('workers', [0, 1, 3])
def test_errors_come_in_their_place(dataset, workers):
    def transform(batch):
        if 50 in batch['id']:
            raise ArithmeticError('fifty')
        return batch

    batches = iter(bags.Loader(dataset, 4, shuffle=False, workers=workers, transform=transform))
    found = []
    with pytest.raises(ArithmeticError, match='fifty') as caught:
        found.extend(batch['id'].tolist() for batch in batches)
    assert found == [list(range(start, start + 4)) for start in range(0, 48, 4)]
    assert caught.value.__notes__ == ['in transform of batch 12 of epoch 0: datapoints 48, 49, 50, 51']
    assert batches.get_state()['consumed'] == 48
    assert next(batches)['id'].tolist() == [52, 53, 54, 55]
    batches.close()
    assert list(batches) == []
    del caught
    assert has_no_threads()


@pytest.mark.slow(all_but='transform-2')
@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('where', ['transform', 'to_device'])
def test_an_error_keeps_no_loader(dataset, workers, where):
    def fails(batch):
        if 50 in batch['id']:
            raise ArithmeticError('fifty')
        return batch

    gc.collect()
    gc.disable()
    try:
        loader = bags.Loader(dataset, 4, shuffle=False, workers=workers, **{where: fails})
        batches = iter(loader)
        with pytest.raises(ArithmeticError, match='fifty') as caught:
            for _ in batches:
                pass
        assert has_no_threads()
        assert batches.get_state()['consumed'] == 48
        left = weakref.ref(loader)
        del caught, batches, loader, _
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize('workers', [0, 2])
def test_ctrl_c_loses_no_batch(dataset, workers):
    """If it interrupts the making of a batch, the next batch is that one."""
    chance, done = random.Random(0), []

    def transform(batch):
        if batch['id'][0] not in done and chance.random() < 0.2:
            done.append(batch['id'][0])
            raise KeyboardInterrupt
        return batch

    batches = iter(bags.Loader(dataset, 1, shuffle=False, epochs=1, workers=workers, transform=transform))
    found = []
    while len(found) < COUNT:
        try:
            found.append(next(batches)['id'].item())
        except KeyboardInterrupt:
            continue
    assert found == list(range(COUNT))
    assert done


def test_threads_that_cannot_all_start_do_not_stay(dataset, monkeypatch):
    start, started = threading.Thread.start, []

    def limited(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, 'start', limited)
    with pytest.raises(RuntimeError, match='start new thread'):
        iter(bags.Loader(dataset, 4, workers=4))
    assert len(started) == 2
    assert has_no_threads()


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('batch_size', [1, 4])
def test_errors_of_decoding_name_the_datapoint_and_the_field(tmp_path, kit, workers, batch_size):
    rows = [{'id': index, 'meta': b'{}' if index not in (37, 38) else b'{'} for index in range(100)]
    path = kit.fill(tmp_path / 'x', rows, {'id': 'int(8)', 'meta': 'bytes'}, shard_length=30)
    for spec in (tmp_path / 'x').glob('*/spec.json'):
        spec.write_text(spec.read_text().replace('bytes', 'json'))
    dataset = bags.open(path)
    batches = iter(bags.Loader(dataset, batch_size, shuffle=False, workers=workers))
    found = []
    with pytest.raises(bags.DecodeError, match=r"datapoint 37, field 'meta': .*record 7") as caught:
        found.extend(batch['id'].tolist() for batch in batches)
    assert len(found) == 37 // batch_size
    assert (caught.value.datapoint, caught.value.field, caught.value.index) == (37, 'meta', 7)


def test_fields_that_do_not_stack(dataset):
    with pytest.raises(bags.StackError, match=r"field 'nums': .* \(4,\) at datapoints 4, 9") as caught:
        next(iter(bags.Loader(dataset, 10, shuffle=False, collate=bags.stack)))
    assert caught.value.datapoints == list(range(10))


def test_a_transform_that_returns_nothing(dataset):
    with pytest.raises(TypeError, match='expected it to return the batch, got None'):
        next(iter(bags.Loader(dataset, 10, transform=lambda batch: None)))


# Abandoned iterators.


def test_an_unclosed_iterator_does_not_keep_a_process_running(kit, dataset):
    code = """
        import sys, time, bags
        batches = iter(bags.Loader(bags.open(sys.argv[1]), 3, workers=3))
        next(batches)
        print('done')
    """
    import textwrap

    assert kit.python(textwrap.dedent(code), dataset.path) == b'done\n'


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
@pytest.mark.filterwarnings('ignore:This process .* is multi-threaded:DeprecationWarning')
def test_a_forked_child_cannot_use_the_iterator(dataset):
    batches = iter(bags.Loader(dataset, 3, workers=2))
    next(batches)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            for _ in range(100):
                next(batches)
        except RuntimeError:
            batches.close()
            code = 0 if len(list(bags.Loader(dataset, 3, workers=2, epochs=1))) == 35 else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    next(batches)
    batches.close()


def test_the_spec_of_a_loader_is_that_of_its_fields(dataset):
    assert bags.Loader(dataset, 4).spec == dataset.spec
    name = next(iter(dataset.spec))
    assert bags.Loader(dataset, 4, fields=name).spec == {name: dataset.spec[name]}
    assert bags.Loader(list(range(9)), 4).spec == {}


def test_dir_of_a_loader_lists_what_the_reference_documents(dataset):
    reference = (Path(__file__).parents[2] / 'docs' / 'reference' / 'training.md').read_text(encoding='utf-8')
    members = re.search(r'^::: bags.Loader\n +options:\n +members: \[(.*)\]$', reference, re.MULTILINE)[1]
    loader = bags.Loader(dataset, 4, seed=3, epochs=2, workers=1, rank=1, world_size=2)
    iter(loader).close()
    assert [name for name in dir(loader) if not name.startswith('_')] == sorted(
        name for name in members.split(', ') if not name.startswith('_')
    )
    assert (loader.batch_size, loader.seed, loader.epochs, loader.workers) == (4, 3, 2, 1)
    assert (loader.rank, loader.world_size, loader.last_batch) == (1, 2, 'pad')
    assert loader.dataset is dataset
    assert len(loader.sampler) == len(dataset)
    rows = list(range(9))
    assert bags.Loader(rows, 4).dataset is rows
    with pytest.raises(AttributeError):
        loader.batch_size = 8
