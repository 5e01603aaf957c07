"""Any dataset is a map-style dataset of PyTorch, as it is."""

import operator
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import data
from torchdata.stateful_dataloader import StatefulDataLoader

import bags

WORKERS = [(0, None), (2, 'fork')]
# Spawned workers import torch, which takes seconds: they get the kind that holds all others.
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
    same(dataset, rows)  # Forked workers find the files open, and used.
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
    same(bags.select(dataset, chosen), wanted)


def test_damage_met_by_a_worker_names_the_file(kit, tmp_path):
    rows = [{'id': index} for index in range(9)]
    path = kit.fill(tmp_path / 'damaged', rows, {'id': 'int(8)'}, compression=['id'])
    bag = Path(path, 'id.bagz')
    content = bytearray(bag.read_bytes())
    content[0:4] = b'\0\0\0\0'
    bag.write_bytes(content)
    loader = data.DataLoader(bags.open(path), 3, num_workers=1, multiprocessing_context='fork', **LISTS)
    # PyTorch makes errors anew from their text, and a RuntimeError of those that take more than a text.
    with pytest.raises((RuntimeError, bags.CorruptError), match=r'id\.bagz'):
        rows_of(loader)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it, torch 2.13 warns
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
