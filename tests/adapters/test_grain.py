"""Any dataset is a random-access source of Grain, as it is.

The same pipelines over lists of rows say what is to come out.
"""

import json
import operator
from pathlib import Path

import grain
import numpy as np
import pytest
from grain._src.python.dataset import base  # where the protocol of batched reading is, for now
from grain._src.python.dataset.transformations import batch as grain_batch

import bags

ADAPTERS = Path(__file__).parent
# Workers are new processes that import Grain, which takes a while: they get the kind that holds all others.
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
    same(rows_of(dataset_of(dataset).mp_prefetch(options)), rows_of(dataset_of(rows)))


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
    # An experiment of Grain's, which the published build does not turn on.
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
    """All kinds in one process, which takes a second to start; Grain compares the source's `repr`."""
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
    other = bags.select(dataset, range(len(dataset) - 1, -1, -1))
    with pytest.raises(ValueError, match='source'):
        iter(loader_of(other, 0)).set_state(state)
