"""Any dataset is a map-style dataset of PyTorch, as it is."""

import itertools
import json
import operator
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import data
from torchdata.stateful_dataloader import StatefulDataLoader

import bags
from bags.loader.iterator import worker_shard
from bags.loader.loader import plan_of

WORKERS = [(0, None), (2, 'fork')]
# Spawned workers import torch, which takes seconds: only the kind that contains all others.
SPAWNED = pytest.mark.parametrize('kind', ['views'])
LISTS = {'collate_fn': list, 'pin_memory': False}


def rows_of(loader):
    return [row for batch in loader for row in batch]


def by_id(rows):
    return sorted(rows, key=operator.itemgetter('id'))


def check_columns(batches, dataset, chosen, kit):
    """Compares batches as PyTorch converts them with those read directly."""
    assert len(batches) == len(chosen)
    for batch, indices in zip(batches, chosen, strict=True):
        columns = dataset.batch(indices)
        assert list(batch) == list(columns)
        for name, column in columns.items():
            found = batch[name]
            if isinstance(column, np.ndarray):
                assert isinstance(found, torch.Tensor)
                assert kit.equal(found.numpy(), column), name
            elif isinstance(column, bags.Ragged):
                assert isinstance(found, bags.Ragged)
                assert kit.equal(list(found), list(column)), name
                assert kit.equal(found.offsets, column.offsets)
            elif name == 'any':
                assert all(map(kit.equal, [tensor.numpy() for tensor in found], column))
            else:
                assert kit.equal(found, column), name


@pytest.mark.parametrize(('workers', 'context'), WORKERS)
def test_rows_in_order(make, same, kind, workers, context):
    dataset, rows = make(kind)
    same(dataset, rows)  # Forked workers inherit files that are open and were read.
    loader = data.DataLoader(
        dataset, batch_size=4, num_workers=workers, multiprocessing_context=context, **LISTS
    )
    assert len(loader) == -(-len(rows) // 4)
    same(rows_of(loader), rows)


@pytest.mark.parametrize(('workers', 'context'), WORKERS)
def test_rows_shuffled(make, same, kind, workers, context):
    dataset, rows = make(kind)
    generator = torch.Generator().manual_seed(1)
    loader = data.DataLoader(
        dataset, 4, True, num_workers=workers, multiprocessing_context=context, generator=generator, **LISTS
    )
    first, second = rows_of(loader), rows_of(loader)
    assert [row['id'] for row in first] != [row['id'] for row in second]
    same(by_id(first), by_id(rows))
    same(by_id(second), by_id(rows))


@SPAWNED
@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_workers_that_stay_for_several_epochs(make, same, kind, context):
    dataset, rows = make(kind)
    loader = data.DataLoader(
        dataset, 4, num_workers=2, multiprocessing_context=context, persistent_workers=True, **LISTS
    )
    for _ in range(3):
        same(rows_of(loader), rows)


def test_a_batch_is_one_call(make, calls, kind):
    dataset, rows = make(kind)
    fetched, read = calls('__getitems__'), calls('batch')
    for _ in data.DataLoader(dataset, batch_size=4, **LISTS):
        pass
    order = list(range(len(rows)))
    assert fetched == [order[start : start + 4] for start in range(0, len(order), 4)]
    assert not read


def test_rows_are_stacked_by_default(make, kit, kind):
    dataset, rows = make(kind, 'small')
    for start, batch in enumerate(data.DataLoader(dataset, batch_size=5, drop_last=True)):
        chosen = rows[start * 5 : start * 5 + 5]
        assert list(batch) == list(rows[0])
        assert batch['text'] == [row['text'] for row in chosen]
        assert batch['grid'].dtype == torch.float32
        assert kit.equal(batch['grid'].numpy(), np.stack([row['grid'] for row in chosen]))
        for name in ('id', 'odd', 'small', 'flag'):
            assert batch[name].tolist() == [row[name] for row in chosen]
        assert batch['score'].tolist() == [row['score'] for row in chosen]


@pytest.mark.parametrize(('workers', 'context'), WORKERS)
@pytest.mark.parametrize('shuffled', [False, True])
def test_batches_of_columns(make, kit, kind, workers, context, shuffled):
    dataset, rows = make(kind)
    order = torch.randperm(len(rows)).tolist() if shuffled else list(range(len(rows)))
    sampler = data.BatchSampler(order, 5, drop_last=False)
    loader = data.DataLoader(
        dataset, batch_size=None, sampler=sampler, num_workers=workers, multiprocessing_context=context
    )
    check_columns(list(loader), dataset, list(sampler), kit)


@SPAWNED
def test_batches_of_columns_from_spawned_workers(make, kit, kind):
    dataset, rows = make(kind)
    sampler = data.BatchSampler(range(len(rows)), 5, drop_last=False)
    loader = data.DataLoader(
        dataset, batch_size=None, sampler=sampler, num_workers=2, multiprocessing_context='spawn'
    )
    check_columns(list(loader), dataset, list(sampler), kit)


def test_a_batch_of_columns_is_one_read(make, calls, kind):
    dataset, rows = make(kind)
    fetched, read = calls('__getitems__'), calls('batch')
    sampler = data.BatchSampler(data.RandomSampler(range(len(rows))), 5, drop_last=False)
    for _ in data.DataLoader(dataset, batch_size=None, sampler=sampler):
        pass
    assert [len(indices) for indices in read] == [
        min(5, len(rows) - start) for start in range(0, len(rows), 5)
    ]
    assert sorted(index for indices in read for index in indices) == list(range(len(rows)))
    assert not fetched


def test_tensors_are_the_callers_own(make, same, kind):
    dataset, rows = make(kind, 'small')
    sampler = data.BatchSampler(range(len(rows)), 5, drop_last=False)
    for batch in data.DataLoader(dataset, batch_size=None, sampler=sampler):
        batch['id'].add_(1)
        batch['grid'].zero_()
    for batch in data.DataLoader(dataset, batch_size=5, collate_fn=data.default_convert):
        for row in batch:
            row['grid'].zero_()
    same(dataset, rows)


def test_subsets_and_samplers_of_pytorch(make, same, calls, kind):
    dataset, rows = make(kind)
    fetched = calls('__getitems__')
    subset = data.Subset(dataset, [5, 0, 5, 2])
    same(rows_of(data.DataLoader(subset, 3, **LISTS)), [rows[index] for index in (5, 0, 5, 2)])
    assert fetched == [[5, 0, 5], [2]]
    halves = data.random_split(dataset, [0.5, 0.5], torch.Generator().manual_seed(0))
    parts = [row for half in halves for row in rows_of(data.DataLoader(half, 3, **LISTS))]
    same(by_id(parts), by_id(rows))
    ranks = [data.DistributedSampler(dataset, 2, rank, shuffle=False, drop_last=True) for rank in (0, 1)]
    for rank, sampler in enumerate(ranks):
        loader = data.DataLoader(dataset, 3, sampler=sampler, **LISTS)
        same(rows_of(loader), rows[: len(rows) // 2 * 2][rank::2])
    both = data.ConcatDataset([dataset, dataset])
    same(rows_of(data.DataLoader(both, 7, **LISTS)), rows * 2)


def test_indices_as_tensors(make, same, kind):
    dataset, rows = make(kind)
    chosen = torch.tensor([3, 1, 1, 8])
    wanted = [rows[index] for index in chosen]
    sampler = data.SubsetRandomSampler(chosen)
    same(by_id(rows_of(data.DataLoader(dataset, 3, sampler=sampler, **LISTS))), by_id(wanted))
    same([dataset[index] for index in chosen], wanted)
    same(dataset.__getitems__(chosen), wanted)
    assert dataset.batch(chosen, 'id')['id'].tolist() == [row['id'] for row in wanted]
    same(dataset.select(chosen), wanted)


def test_damage_met_by_a_worker_names_the_file(kit, tmp_path):
    rows = [{'id': index} for index in range(9)]
    path = kit.fill(tmp_path / 'damaged', rows, {'id': 'int(8)'}, compression=['id'])
    bag = Path(path, 'id.bagz')
    content = bytearray(bag.read_bytes())
    content[0:4] = b'\0\0\0\0'
    bag.write_bytes(content)
    loader = data.DataLoader(bags.open(path), 3, num_workers=1, multiprocessing_context='fork', **LISTS)
    # PyTorch creates errors again from their text; if the class needs other arguments, a RuntimeError.
    with pytest.raises((RuntimeError, bags.CorruptError), match=r'id\.bagz'):
        rows_of(loader)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # Called by torchdata 0.11; torch 2.13 warns.
@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('shuffle', [False, True])
def test_a_stateful_loader_goes_on_where_it_was(make, same, kind, workers, shuffle):
    def loader():
        dataset, rows = make(kind)
        return StatefulDataLoader(dataset, 3, shuffle, num_workers=workers, **LISTS), rows

    torch.manual_seed(5)
    whole, rows = loader()
    batches = iter(whole)
    begun = [row for _ in range(2) for row in next(batches)]
    state = pickle.dumps(whole.state_dict())
    rest = [row for batch in batches for row in batch]
    same(by_id(begun + rest), by_id(rows))

    torch.manual_seed(6)
    resumed, _ = loader()
    resumed.load_state_dict(pickle.loads(state))
    same(rows_of(resumed), rest)


# Batches of a loader.


def loader(dataset, **options):
    return bags.Loader(dataset, 5, **{'seed': 3, 'epochs': 2, 'workers': 2, **options})


def iterable(dataset, **options):
    return bags.torch.IterableDataset(loader(dataset, **options))


def numbers(batches):
    return [batch['id'].tolist() for batch in batches]


# Three workers, also on a machine with two cores.
MANY = pytest.mark.filterwarnings('ignore:This DataLoader will create')


@MANY
@SPAWNED
@pytest.mark.parametrize(('workers', 'context'), [*WORKERS, (1, 'fork'), (3, 'fork')])
def test_batches_are_those_of_the_loader(make, kit, kind, workers, context):
    dataset, _ = make(kind)
    batches = data.DataLoader(
        iterable(dataset), batch_size=None, num_workers=workers, multiprocessing_context=context
    )
    same = loader(dataset)
    assert len(batches) == len(same)
    for _ in range(2):
        for batch, expected in zip(batches, same, strict=True):
            assert list(batch) == list(expected)
            assert batch['id'].tolist() == expected['id'].tolist()
            assert isinstance(batch['grid'], torch.Tensor)
            assert kit.equal(batch['grid'].numpy(), expected['grid'])
            assert isinstance(batch['nums'].values, torch.Tensor)
            assert kit.equal([part.numpy() for part in batch['nums']], list(expected['nums']))
            assert batch['text'] == expected['text']


@SPAWNED
def test_batches_from_spawned_workers_that_stay(make, kind):
    dataset, _ = make(kind)
    batches = iterable(dataset, epochs=1)
    stay = data.DataLoader(
        batches, batch_size=None, num_workers=2, multiprocessing_context='spawn', persistent_workers=True
    )
    expected = loader(dataset, epochs=1)
    whole = [numbers(expected) for _ in range(5)]
    assert [numbers(stay) for _ in range(3)] == whole[:3]
    batches.set_epoch(1)
    assert [numbers(stay) for _ in range(2)] == whole[1:3]
    batches.loader.set_epoch(4)
    assert numbers(stay) == whole[4]


def test_without_a_data_loader(make):
    dataset, _ = make('views')
    batches = iterable(dataset)
    assert isinstance(batches, data.IterableDataset)
    assert numbers(batches) == numbers(loader(dataset))
    arrays = next(iter(bags.torch.IterableDataset(loader(dataset), tensors=False)))
    assert isinstance(arrays['id'], np.ndarray)
    endless = iterable(dataset, epochs=None)
    with pytest.raises(TypeError, match='is endless'):
        len(endless)
    with pytest.raises(ValueError, match='epoch'):
        endless.set_epoch(-1)


def test_ranks_share_the_batches(make):
    dataset, rows = make('views')
    found = []
    for rank in range(3):
        batches = bags.torch.IterableDataset(loader(dataset, epochs=1, last_batch='partial'), rank, 3)
        stream = data.DataLoader(batches, batch_size=None, num_workers=2, multiprocessing_context='fork')
        found += [number for ids in numbers(stream) for number in ids]
    assert sorted(found) == sorted(row['id'] for row in rows)
    with pytest.raises(ValueError, match='rank and world_size'):
        bags.torch.IterableDataset(loader(dataset), 1)
    with pytest.raises(ValueError, match='expected a loader of rank 1 of 2'):
        bags.torch.IterableDataset(loader(dataset, world_size=2), 1, 2)
    with pytest.raises(TypeError, match=r'expected a bags\.Loader, got '):
        bags.torch.IterableDataset(dataset)
    with pytest.raises(TypeError, match="epoch: expected an integer, got 'x'"):
        batches.set_epoch('x')


def test_the_rank_is_that_of_the_process_group(make, tmp_path):
    dataset, _ = make('views')
    torch.distributed.init_process_group('gloo', f'file://{tmp_path}/group', rank=0, world_size=1)
    try:
        batches = iterable(dataset)
        assert (batches.loader.rank, batches.loader.world_size) == (0, 1)
        assert numbers(batches) == numbers(loader(dataset))
        own = iterable(dataset, rank=1, world_size=2).loader
        assert (own.rank, own.world_size) == (1, 2)
    finally:
        torch.distributed.destroy_process_group()


MESH = """
import json, os, sys
import torch
import bags

rank = next((number for number in range(4) if not os.fork()), None)
if rank is None:
    sys.exit(any([os.wait()[1] for _ in range(4)]))
torch.distributed.init_process_group('gloo', f'file://{sys.argv[1]}/group', rank=rank, world_size=4)
rows = bags.open(f'{sys.argv[1]}/rows')
BLOCK
with open(f'{sys.argv[1]}/{rank}.json', 'w') as file:
    json.dump([batch['id'].tolist() for batch in loader], file)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_groups_of_a_device_mesh_read_the_same_batches(tmp_path):
    """By the block of docs/recipes/parallel.md, with 2 x 2 processes."""
    page = (Path(__file__).parents[2] / 'docs/recipes/parallel.md').read_text('utf-8')
    (block,) = re.findall(r'^```python title="torch"\n(.*?)^```', page, re.DOTALL | re.MULTILINE)
    assert "'cuda', (2, 4)" in block
    script = MESH.replace('BLOCK', block.replace("'cuda', (2, 4)", "'cpu', (2, 2)"))
    bags.from_numpy({'id': np.arange(64)}, tmp_path / 'rows')
    subprocess.run([sys.executable, '-c', script, tmp_path], check=True, timeout=100)
    found = [json.loads((tmp_path / f'{rank}.json').read_text()) for rank in range(4)]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert len(found[0]) == 4
    for one, other in zip(found[0], found[2], strict=True):
        assert len({*one, *other}) == 16


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@MANY
@pytest.mark.parametrize('workers', [0, 1, 3])
def test_a_stateful_loader_of_batches_goes_on_where_it_was(make, workers):
    def stream():
        batches = iterable(make('views')[0], epochs=3)
        return StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    whole = numbers(stream())
    assert whole == numbers(loader(make('views')[0], epochs=3))
    for count in (1, 4, 7, len(whole) - 1):
        begun = stream()
        batches = iter(begun)
        assert numbers([next(batches) for _ in range(count)]) == whole[:count]
        resumed = stream()
        resumed.load_state_dict(pickle.loads(pickle.dumps(begun.state_dict())))
        del batches
        assert numbers(resumed) == whole[count:]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_the_state_of_other_workers_is_refused(make):
    dataset, _ = make('views')
    shard = worker_shard(plan_of(loader(dataset)), 0, 2)
    next(shard)
    with pytest.raises(ValueError, match='1 workers, got the state of 2'):
        iter(iterable(dataset)).load_state_dict(shard.state_dict())
    with pytest.raises(ValueError, match='seed'):
        iter(iterable(dataset, seed=4)).load_state_dict(iter(iterable(dataset)).state_dict())


def test_tensors_straight_from_the_loader(make):
    dataset, _ = make('views')
    found = loader(dataset, to_device=bags.torch.to_torch)
    for batch, expected in zip(found, loader(dataset), strict=True):
        assert isinstance(batch['grid'], torch.Tensor)
        assert batch['id'].tolist() == expected['id'].tolist()


def test_padded_and_packed_columns_arrive_as_tensors(make):
    dataset, _ = make('views')
    for collate, fields in (
        (bags.pad, ('values', 'lengths')),
        (bags.pack, ('values', 'offsets', 'positions')),
    ):
        batches = iterable(dataset, fields=('id', 'nums'), collate={'nums': collate})
        stream = data.DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context='fork')
        for batch, expected in zip(
            stream, loader(dataset, fields=('id', 'nums'), collate={'nums': collate}), strict=True
        ):
            assert batch['nums']._fields == fields
            for part, array in zip(batch['nums'], expected['nums'], strict=True):
                assert torch.equal(part, torch.from_numpy(array))


@MANY
@SPAWNED
@pytest.mark.parametrize(
    ('context', 'stay'),
    [('fork', False), ('fork', True), pytest.param('spawn', False, marks=pytest.mark.slow)],
)
def test_each_iteration_is_the_next_epoch(make, kind, context, stay):
    """Also after a break, with a seed that is set again, and with two concurrent iterations."""
    dataset, _ = make(kind)
    whole = [numbers(batches) for batches in [loader(dataset, epochs=1)] * 9]
    assert len({str(epoch) for epoch in whole}) == 9
    batches = iterable(dataset, epochs=1)
    stream = data.DataLoader(
        batches, batch_size=None, num_workers=3, multiprocessing_context=context, persistent_workers=stay
    )
    assert [numbers(stream) for _ in range(2)] == whole[:2]
    if context == 'spawn':
        return  # Each iteration takes seconds.
    next(iter(stream))
    for epoch in (3, 4):
        torch.manual_seed(0)
        assert numbers(stream) == whole[epoch]
    if not stay:
        together = zip(*zip(stream, stream, strict=True), strict=True)
        assert sorted(map(numbers, together)) == sorted(whole[5:7])
        # Iterations in this process and in workers take turns.
        assert numbers(batches) == whole[7]
        assert numbers(stream) == whole[8]
    batches.loader.load_state_dict(loader(dataset, epochs=1).state_dict())
    assert numbers(stream) == whole[0]


@MANY
def test_an_endless_loader_goes_on_after_what_its_workers_made(make):
    dataset, rows = make('views')
    epoch = -(-len(rows) // 5)
    whole = numbers(itertools.islice(loader(dataset, epochs=None), 10 * epoch))
    stream = data.DataLoader(
        iterable(dataset, epochs=None), batch_size=None, num_workers=2, multiprocessing_context='fork'
    )
    assert numbers(itertools.islice(stream, 2 * epoch + 1)) == whole[: 2 * epoch + 1]
    (first,) = numbers(itertools.islice(stream, 1))
    assert whole.index(first) >= 3 * epoch


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize('workers', [0, 2])
def test_the_epoch_after_a_resumed_one_is_the_next(make, workers):
    def stream():
        batches = iterable(make('views')[0], epochs=1)
        return StatefulDataLoader(batches, batch_size=None, num_workers=workers)

    begun = stream()
    whole = [numbers(begun) for _ in range(4)]
    begun = stream()
    numbers(begun)
    for taken in (1, len(whole[0])):
        batches = iter(begun)
        for _ in range(taken):
            next(batches)
        if taken > 1:
            assert next(batches, None) is None
        state = pickle.loads(pickle.dumps(begun.state_dict()))
        resumed = stream()
        resumed.load_state_dict(state)
        rest = [*whole[1][1:], *whole[2]] if taken == 1 else [*whole[3]]
        found = numbers(resumed)
        assert [*found, *numbers(resumed)][: len(rest)] == rest


def test_a_map_style_dataset_of_pytorch(make):
    images, labels = torch.arange(60.0).reshape(20, 3), torch.arange(20)
    dataset = data.TensorDataset(images, labels)
    subset = data.Subset(dataset, range(0, 20, 2))
    for rows, expected in ((dataset, 20), (subset, 10)):
        found = bags.Loader(rows, 6, workers=2, to_device=bags.torch.to_torch)
        for _ in range(2):
            order = []
            for image, label in found:
                assert torch.equal(image, images[label])
                order += label.tolist()
            assert len(set(order)) == expected


def test_sequences_of_numbers_collate_to_one_tensor(kit, tmp_path):
    rows = [{'pose': np.full((5, 7), i, np.float32), 'tokens': range(i, i + 9)} for i in range(8)]
    path = kit.fill(tmp_path / 'a', rows, {'pose': 'array(float32,7)[]', 'tokens': 'int(8)[]'})
    (batch,) = torch.utils.data.DataLoader(bags.open(path), batch_size=8)
    assert (batch['pose'].dtype, batch['pose'].shape) == (torch.float32, (8, 5, 7))
    assert batch['tokens'].tolist() == [list(row['tokens']) for row in rows]


@pytest.mark.parametrize('workers', [0, 2])
def test_new_weights_hold_from_the_next_batch_or_iteration(tmp_path, workers):
    bags.from_numpy({'id': np.arange(60)}, tmp_path / 'd')
    sampler = bags.samplers.Mixture([40, 20], weights=[1, 1], samples=20)
    source = bags.torch.IterableDataset(bags.Loader(bags.open(tmp_path / 'd'), 5, sampler=sampler))
    loader = data.DataLoader(source, batch_size=None, num_workers=workers)
    batches = iter(loader)
    next(batches)
    assert source.loader.set_weights([0, 1]) == (20 if workers else 5)
    rest = torch.cat([batch['id'] for batch in batches])
    assert len(rest) == 15
    assert bool((rest >= 40).all()) == (workers == 0)
    assert all((batch['id'] >= 40).all() for batch in loader)


def test_a_worker_that_begins_late_keeps_the_weights_of_its_iteration(tmp_path):
    changed = torch.multiprocessing.get_context('fork').Event()

    def wait(worker: int) -> None:
        assert not worker or changed.wait(60)

    bags.from_numpy({'id': np.arange(60)}, tmp_path / 'd')
    sampler = bags.samplers.Mixture([40, 20], weights=[1, 1], samples=20)
    source = bags.torch.IterableDataset(bags.Loader(bags.open(tmp_path / 'd'), 5, sampler=sampler))
    loader = data.DataLoader(
        source, batch_size=None, num_workers=2, worker_init_fn=wait, multiprocessing_context='fork'
    )
    batches = iter(loader)
    rows = [next(batches)['id']]
    assert source.loader.set_weights([0, 1]) == 20
    changed.set()
    rows += [batch['id'] for batch in batches]
    expected = np.concatenate([source.loader.indices(0, step) for step in range(4)])
    assert sorted(torch.cat(rows).tolist()) == sorted(expected.tolist())


def test_workers_that_stay_refuse_new_weights(tmp_path):
    bags.from_numpy({'id': np.arange(60)}, tmp_path / 'd')
    source = bags.torch.IterableDataset(
        bags.Loader(bags.open(tmp_path / 'd'), 5, sampler=bags.samplers.Weighted(np.ones(60)))
    )
    loader = data.DataLoader(source, batch_size=None, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 12
    source.loader.set_weights(np.arange(60))
    with pytest.raises(RuntimeError, match='weights were changed after the workers of the DataLoader'):
        list(loader)
