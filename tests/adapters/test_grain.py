"""Any dataset is a random-access source of Grain, as it is.

The same pipelines over lists of rows give the expected results.
"""

import json
import operator
import pickle
from pathlib import Path

import grain
import numpy as np
import pytest
from grain._src.python.dataset import base  # Grain keeps the protocol of batched reading there.
from grain._src.python.dataset.transformations import batch as grain_batch

import bags

ADAPTERS = Path(__file__).parent
# Workers are new processes that import Grain, which takes seconds: only the kind that contains all others.
SPAWNED = pytest.mark.parametrize('kind', ['views'])


def shuffled(source):
    return grain.MapDataset.source(source).shuffle(seed=7).map(lambda row: {**row, 'more': row['id'] + 1})


def loader_of(source, workers, batch=4, epochs=1):
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, num_epochs=epochs, seed=3)
    operations = [grain.transforms.Batch(batch, batch_fn=list)]
    return grain.DataLoader(data_source=source, sampler=sampler, operations=operations, worker_count=workers)


def dataset_of(source):
    return shuffled(source).batch(4, batch_fn=list).to_iter_dataset()


def rows_of(batches):
    return [row for batch in batches for row in batch]


def ids_of(batches):
    return [row['id'] for row in rows_of(batches)]


def test_it_is_a_source(make, kind):
    dataset, _ = make(kind)
    assert isinstance(dataset, grain.sources.RandomAccessDataSource)
    assert isinstance(dataset, base.SupportsBatchedReadRandomAccessDataSource)
    again, _ = make(kind)
    assert repr(dataset) == repr(again)


def test_by_index(make, same, kind):
    dataset, rows = make(kind)
    found, wanted = (shuffled(source).repeat(2) for source in (dataset, rows))
    assert len(found) == 2 * len(rows)
    same((found[index] for index in range(len(found))), [wanted[index] for index in range(len(found))])
    same(grain.MapDataset.source(dataset)[3:9], rows[3:9])


def test_read_by_many_threads(make, same, kind):
    dataset, rows = make(kind)
    found, wanted = (
        shuffled(source).repeat(3).batch(4, batch_fn=list).to_iter_dataset() for source in (dataset, rows)
    )
    same(rows_of(found), rows_of(wanted))


def test_batches_are_stacked_by_default(make, kit, kind):
    dataset, rows = make(kind, 'small')
    batches, wanted = (shuffled(source).batch(5).to_iter_dataset() for source in (dataset, rows))
    assert kit.equal(list(batches), list(wanted))
    assert next(iter(batches))['grid'].shape == (5, 2, 3)


@SPAWNED
def test_read_by_worker_processes(make, same, kind):
    dataset, rows = make(kind)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    found = rows_of(dataset_of(dataset).mp_prefetch(options))
    wanted = rows_of(dataset_of(rows))
    # If JAX is installed, Grain sorts the keys of rows from processes.
    same([{name: row[name] for name in wanted[0]} for row in found], wanted)


def test_columns_by_batches_of_indices(make, kit, kind):
    dataset, rows = make(kind)
    indices = grain.MapDataset.range(len(rows)).shuffle(seed=7).batch(5)
    batches = list(indices.map(dataset.batch).to_iter_dataset())
    assert len(batches) == len(indices)
    for batch, chosen in zip(batches, indices, strict=True):
        assert isinstance(chosen, np.ndarray)
        assert batch['id'].tolist() == [rows[index]['id'] for index in chosen]
        assert kit.equal(batch['grid'], np.stack([rows[index]['grid'] for index in chosen]))
        assert kit.equal(batch['text'], [rows[index]['text'] for index in chosen])
        assert [len(frames) for frames in batch['frames']] == [len(rows[index]['frames']) for index in chosen]


@SPAWNED
def test_columns_from_worker_processes(make, kind):
    dataset, rows = make(kind)
    indices = grain.MapDataset.range(len(rows)).shuffle(seed=7).batch(5)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    batches = list(indices.map(dataset.batch).to_iter_dataset().mp_prefetch(options))
    ids = [number for batch in batches for number in batch['id'].tolist()]
    assert ids == [rows[index]['id'] for chosen in indices for index in chosen]
    nums = [list(map(int, part)) for batch in batches for part in batch['nums']]
    assert nums == [list(map(int, rows[index]['nums'])) for chosen in indices for index in chosen]


def test_batches_are_read_together_where_grain_asks(make, same, calls, monkeypatch, kind):
    dataset, rows = make(kind)
    read = calls('_getitems')
    found = grain.MapDataset.source(dataset)._getitems([5, 0, 5, len(rows) + 2])
    same(found, [rows[index] for index in (5, 0, 5, 2)])
    assert read == [[5, 0, 5, 2]]
    # An experiment of Grain, disabled in the published build.
    monkeypatch.setattr(grain_batch, '_is_batch_map_pushdown_experiment_enabled', lambda: True)
    read.clear()
    found = shuffled(dataset).batch(4, batch_fn=list)
    same(rows_of(found), rows_of(shuffled(rows).batch(4, batch_fn=list)))
    assert sorted(index for indices in read for index in indices) == list(range(len(rows)))
    assert max(map(len, read)) == 4


def test_loader(make, same, kind):
    dataset, rows = make(kind)
    same(rows_of(loader_of(dataset, 0)), rows_of(loader_of(rows, 0)))


RESUME = """
import json, sys
adapters, root = sys.argv[1:]
sys.path.insert(0, adapters)
import conftest, test_grain
found = {}
for kind, states in json.load(sys.stdin).items():
    source = conftest.KINDS[kind](root)
    dataset = iter(test_grain.dataset_of(source))
    dataset.set_state(states['dataset'])
    loader = iter(test_grain.loader_of(source, 0))
    loader.set_state(states['loader'].encode())
    found[kind] = {'dataset': test_grain.ids_of(dataset), 'loader': test_grain.ids_of(loader)}
json.dump(found, sys.stdout)
"""


def test_a_new_process_goes_on_where_this_one_was(folders, kit, kinds):
    """All kinds in one process, which takes a second to start. Grain compares the `repr` of the source."""
    states, rest = {}, {}
    for kind, opened in kinds.items():
        source = opened(folders['full'].root)
        dataset, loader = iter(dataset_of(source)), iter(loader_of(source, 0))
        for _ in range(2):
            next(dataset), next(loader)
        states[kind] = {'dataset': dataset.get_state(), 'loader': loader.get_state().decode()}
        rest[kind] = {'dataset': ids_of(dataset), 'loader': ids_of(loader)}
        assert rest[kind]['loader']
    found = kit.python(RESUME, ADAPTERS, folders['full'].root, stdin=json.dumps(states).encode())
    assert json.loads(found) == rest


@SPAWNED
def test_loader_with_worker_processes_goes_on_where_others_were(make, same, kind):
    dataset, rows = make(kind)
    batches = iter(loader_of(dataset, 2))
    begun = [next(batches) for _ in range(3)]
    state = batches.get_state()
    rest = rows_of(batches)
    by_id = operator.itemgetter('id')
    same(sorted(rows_of(begun) + rest, key=by_id), sorted(rows, key=by_id))

    again, _ = make(kind)
    resumed = iter(loader_of(again, 2))
    resumed.set_state(state)
    same(rows_of(resumed), rest)


def test_another_dataset_is_refused(make, kind):
    dataset, _ = make(kind)
    batches = iter(loader_of(dataset, 0))
    next(batches)
    state = batches.get_state()
    other = dataset.select(range(len(dataset) - 1, -1, -1))
    with pytest.raises(ValueError, match='source'):
        iter(loader_of(other, 0)).set_state(state)


# Batches of a loader.

SLOWLY = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)


def loader(dataset, **options):
    return bags.Loader(dataset, 5, **{'seed': 3, 'epochs': 2, 'workers': 2, **options})


def wanted(dataset, **options):
    return [batch['id'].tolist() for batch in loader(dataset, **options)]


def numbers(batches):
    return [batch['id'].tolist() for batch in batches]


def test_batches_are_those_of_the_loader(make, kind, kit):
    dataset, _ = make(kind)
    batches = bags.grain.batches(dataset, 5, seed=3)
    found = list(batches.repeat(2).to_iter_dataset(SLOWLY))
    for batch, expected in zip(found, loader(dataset), strict=True):
        assert list(batch) == list(expected)
        assert batch['id'].tolist() == expected['id'].tolist()
        assert kit.equal(batch['grid'], expected['grid'])
        assert kit.equal(list(batch['nums']), list(expected['nums']))
    assert 2 * len(batches) == len(loader(dataset))
    assert numbers(batches[1:]) == numbers(found[1 : len(batches)])
    assert numbers([batches[len(batches) + 1]]) == numbers([found[len(batches) + 1]])


def test_batches_of_some_fields_on_some_hosts(make):
    dataset, _ = make('views')
    options = {'fields': ('id', 'grid'), 'last_batch': 'drop', 'shuffle': False}
    parts = [bags.grain.batches(dataset, 3, rank=host, world_size=2, **options) for host in range(2)]
    assert list(parts[0][0]) == ['id', 'grid']
    assert [number for pair in zip(*map(numbers, parts), strict=True) for ids in pair for number in ids] == [
        row['id'] for row in list(dataset)[: len(dataset) // 6 * 6]
    ]
    doubled = bags.grain.batches(dataset, 3, fields='id', transform=lambda batch: {'id': batch['id'] * 2})
    assert numbers(doubled) == [[2 * i for i in ids] for ids in numbers(bags.grain.batches(dataset, 3))]
    with pytest.raises(ValueError, match='batch_size'):
        bags.grain.batches(dataset, 1000, last_batch='drop')


def test_batches_go_on_where_they_were(make):
    dataset, _ = make('sharded')
    whole = numbers(bags.grain.batches(dataset, 5, seed=3).repeat(2).to_iter_dataset(SLOWLY))
    for count in range(0, len(whole), 3):
        batches = iter(bags.grain.batches(dataset, 5, seed=3).repeat(2).to_iter_dataset(SLOWLY))
        assert numbers([next(batches) for _ in range(count)]) == whole[:count]
        again = iter(bags.grain.batches(make('sharded')[0], 5, seed=3).repeat(2).to_iter_dataset(SLOWLY))
        again.set_state(json.loads(json.dumps(batches.get_state())))
        assert numbers(again) == whole[count:]


@SPAWNED
def test_batches_from_worker_processes(make, kind):
    dataset, _ = make(kind)
    batches = bags.grain.batches(dataset, 5, seed=3).repeat(2).to_iter_dataset(SLOWLY)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    assert numbers(batches.mp_prefetch(options)) == wanted(dataset)


@pytest.mark.parametrize('workers', [0, 2])
def test_a_loader_is_an_iterable_dataset(make, kind, workers):
    dataset, _ = make(kind)
    found = bags.grain.iter_dataset(loader(dataset, workers=workers))
    assert isinstance(found, grain.IterDataset)
    assert numbers(found) == wanted(dataset)
    assert numbers(found) == wanted(dataset)
    assert [2 * number for ids in wanted(dataset) for number in ids] == [
        number for ids in found.map(lambda batch: batch['id'] * 2) for number in ids.tolist()
    ]


@pytest.mark.parametrize('workers', [0, 2])
def test_a_loader_in_a_pipeline_goes_on_where_it_was(make, workers):
    dataset, _ = make('views')

    def pipeline():
        batches = bags.grain.iter_dataset(loader(make('views')[0], workers=workers))
        return iter(batches.map(lambda batch: {'id': batch['id'] + 1}))

    whole = numbers(pipeline())
    assert whole == [[number + 1 for number in ids] for ids in wanted(dataset)]
    running = pipeline()
    for count in range(len(whole)):
        again = pipeline()
        again.set_state(json.loads(json.dumps(running.get_state())))
        assert numbers(again) == whole[count:]
        assert next(running)['id'].tolist() == whole[count]
    begun = pipeline()
    next(begun)
    begun.close()
    with pytest.raises(ValueError, match='closed'):
        next(begun)


def test_states_of_loaders_and_of_datasets_are_the_same(make):
    dataset, _ = make('views')
    batches = iter(loader(dataset))
    next(batches), next(batches)
    state = batches.get_state()
    rest = numbers(batches)
    again = iter(bags.grain.iter_dataset(loader(dataset)))
    again.set_state(state)
    assert numbers(again) == rest

    begun = iter(bags.grain.iter_dataset(loader(dataset)))
    next(begun)
    resumed = loader(dataset)
    resumed.load_state_dict(begun.get_state())
    assert numbers(resumed) == numbers(begun)
    with pytest.raises(ValueError, match='seed'):
        iter(bags.grain.iter_dataset(loader(dataset, seed=4))).set_state(begun.get_state())


@SPAWNED
def test_a_loader_over_worker_processes(make, kind):
    dataset, _ = make(kind)
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    whole = wanted(dataset)
    running = iter(bags.grain.iter_dataset(loader(dataset)).mp_prefetch(options))
    assert numbers([next(running) for _ in range(3)]) == whole[:3]
    again = iter(bags.grain.iter_dataset(loader(dataset)).mp_prefetch(options))
    again.set_state(json.loads(json.dumps(running.get_state())))
    running.close()
    assert numbers(again) == whole[3:]
    again.close()


def test_checkpoints_of_grain(make, tmp_path):
    dataset, _ = make('views')
    batches = iter(bags.grain.iter_dataset(loader(dataset)))
    next(batches)
    handler = grain.checkpoint.CheckpointHandler()
    handler.save(tmp_path, batches)
    again = handler.restore(tmp_path, iter(bags.grain.iter_dataset(loader(make('views')[0]))))
    assert numbers(again) == numbers(batches)


def test_pickles(make):
    dataset, _ = make('views')
    for found in (bags.grain.iter_dataset(loader(dataset)), bags.grain.batches(dataset, 5, seed=3).repeat(2)):
        assert numbers(pickle.loads(pickle.dumps(found))) == wanted(dataset)
        assert 'bags.grain' in str(found) or 'Repeat' in str(found)


def test_errors_arrive(make):
    dataset, rows = make('views')
    last = max(row['id'] for row in rows)

    def transform(batch):
        if last in batch['id']:
            raise LookupError('no such thing')
        return batch

    with pytest.raises(LookupError, match='no such thing'):
        list(bags.grain.iter_dataset(loader(dataset, transform=transform)))
    with pytest.raises(LookupError, match='no such thing'):
        list(bags.grain.batches(dataset, 5, transform=transform).to_iter_dataset(SLOWLY))


def test_what_is_no_loader_and_no_batch(make):
    dataset, _ = make('views')
    with pytest.raises(TypeError, match=r'expected a bags\.Loader, got '):
        bags.grain.iter_dataset(dataset)
    batches = bags.grain.batches(dataset, 5)
    assert batches[-1]['id'].tolist() == batches[len(batches) - 1]['id'].tolist()
    with pytest.raises(IndexError, match='out of range'):
        batches[-len(batches) - 1]
    with pytest.raises(TypeError, match="index: expected an integer, got 'x'"):
        batches['x']
