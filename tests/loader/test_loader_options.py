"""Invalid options are refused when the loader is created, in one short sentence."""

import pytest

import bags
from bags.samplers import Mixture, Shuffled

WRONG = [
    # Out of range.
    ({'batch_size': 104, 'last_batch': 'drop'}, ValueError, 'at most the 103 datapoints there are, got 104'),
    (
        {'batch_size': 60, 'last_batch': 'drop', 'world_size': 2},
        ValueError,
        'the 51 .* for each of 2 ranks, got 60',
    ),
    ({'batch_size': 0}, ValueError, 'batch_size: expected at least 1, got 0'),
    ({'rank': 2, 'world_size': 2}, ValueError, r'rank: expected less than world_size \(2\), got 2'),
    ({'rank': 1}, ValueError, r'rank: expected less than world_size \(1\), got 1'),
    ({'rank': -1, 'world_size': 2}, ValueError, 'rank: expected at least 0, got -1'),
    ({'world_size': 0}, ValueError, 'world_size: expected at least 1, got 0'),
    (
        {'world_size': 104, 'last_batch': 'partial'},
        ValueError,
        'world_size: expected at most the 103 datapoints there are, got 104',
    ),
    ({'world_size': 104, 'last_batch': 'drop'}, ValueError, 'world_size: expected at most the 103'),
    ({'last_batch': 'maybe'}, ValueError, "last_batch: expected 'pad' or 'drop' or 'partial', got 'maybe'"),
    ({'last_batch': False}, ValueError, 'last_batch: .*got False'),
    ({'fields': 'nope'}, KeyError, r"no field 'nope' \(perhaps 'note'\); the fields are 'id'"),
    ({'fields': ('id', 'nope')}, KeyError, "no field 'nope'"),
    ({'workers': -1}, ValueError, 'workers: expected at least 0, got -1'),
    ({'prefetch': 0}, ValueError, 'prefetch: expected at least 1 or None, got 0'),
    ({'epochs': 0}, ValueError, 'epochs: expected at least 1 or None, got 0'),
    ({'shuffle': 'all'}, ValueError, "shuffle: expected True, False or 'shards', got 'all'"),
    ({'mask_column': 'id'}, ValueError, "mask_column: expected a name that is not a field, got 'id'"),
    # Of another type.
    ({'batch_size': '3'}, TypeError, "batch_size: expected an integer, got '3'"),
    ({'batch_size': 2.5}, TypeError, 'batch_size: expected an integer, got 2.5'),
    ({'batch_size': None}, TypeError, 'batch_size: expected an integer, got None'),
    ({'seed': 'x'}, TypeError, "seed: expected an integer, got 'x'"),
    ({'epochs': 'x'}, TypeError, "epochs: expected an integer or None, got 'x'"),
    ({'workers': 'x'}, TypeError, "workers: expected an integer, got 'x'"),
    ({'prefetch': 1.5}, TypeError, 'prefetch: expected an integer or None, got 1.5'),
    ({'processes': 4}, TypeError, 'processes: expected True or False, got 4; workers= is their number'),
    ({'rank': '0', 'world_size': 2}, TypeError, "rank: expected an integer, got '0'"),
    ({'world_size': None}, TypeError, 'world_size: expected an integer, got None'),
    ({'sampler': [3, 1, 2]}, TypeError, 'sampler: expected one of bags.samplers, .*, got list'),
    ({'sampler': range(9)}, TypeError, 'sampler: .*, got range'),
    ({'sampler': Shuffled(104)}, ValueError, 'sampler: .* at most the 103 datapoints .*, got one of 104'),
    ({'sampler': Mixture([100, 4], [1, 1])}, ValueError, 'sampler: .*, got one of 104'),
    ({'sampler': Shuffled}, TypeError, 'sampler: .*, got the class Shuffled'),
    ({'shuffle': 3}, ValueError, 'shuffle: .*, got 3'),
    ({'fields': 3}, TypeError, 'fields: expected a name, names or a mapping of them, got 3'),
    ({'mask_column': 3}, TypeError, 'mask_column: expected the name of a column, got 3'),
    ({'transform': 'x'}, TypeError, "transform: expected a function, got 'x'"),
    ({'to_device': 3}, TypeError, 'to_device: expected a function, got 3'),
    ({'collate': 3}, TypeError, 'collate: expected a function or a mapping'),
    ({'collate': {'x': 3}}, TypeError, "collate: expected a function, .* for 'x', got 3"),
    ({'transform': lambda batch: batch, 'processes': True}, TypeError, 'transform: .*picklable object'),
    ({'collate': lambda batch: batch, 'processes': True}, TypeError, 'collate: .*picklable object'),
]


@pytest.mark.parametrize(('options', 'error', 'match'), WRONG)
def test_invalid_options(dataset, options, error, match):
    with pytest.raises(error, match=match) as caught:
        bags.Loader(dataset, **{'batch_size': 4, **options})
    assert len(str(caught.value)) < 400
    assert 'nums' not in str(caught.value) or error is KeyError  # The message does not list all fields.


@pytest.mark.parametrize('view', ['empty', 'select', 'windows', 'concat'])
def test_nothing_to_load(dataset, tmp_path, kit, view):
    empty = bags.open(kit.fill(tmp_path / 'x', [], {'id': 'int(8)', 'nums': 'int(4)[]'}))
    made = {
        'empty': lambda: empty,
        'select': lambda: dataset.select([]),
        'windows': lambda: dataset.windows(every='nums', nums=bags.steps(0, 1000), padding='drop'),
        'concat': lambda: bags.concat([empty, empty]),
    }[view]()
    with pytest.raises(ValueError, match=r'^dataset: expected datapoints to load, got none$'):
        bags.Loader(made, 1)


def test_an_empty_shard(tmp_path, kit, rows):
    """One folder without datapoints among others; and too few datapoints for all hosts."""
    spec = {'id': 'int(8)'}
    for worker, count in enumerate((3, 0, 4)):
        with bags.ShardedDatasetWriter(tmp_path / 'x', spec, shard_start=worker, shard_step=3) as writer:
            for index in range(count):
                writer.append({'id': 10 * worker + index})
    dataset = bags.open(tmp_path / 'x')
    for shuffle in (True, 'shards'):
        loaders = [
            bags.Loader(dataset, 2, shuffle=shuffle, epochs=1, last_batch='partial', rank=n, world_size=2)
            for n in (0, 1)
        ]
        found = [index for loader in loaders for batch in loader for index in batch['id'].tolist()]
        assert sorted(found) == [0, 1, 2, 20, 21, 22, 23]
    with pytest.raises(ValueError, match='world_size: expected at most the 7 datapoints there are, got 8'):
        loaders[0].on_rank(0, 8)


def test_not_a_dataset():
    for wrong in (3, 'path', None, {'x': [1]}, list):
        expected = (
            f'dataset: expected a reader, a view, or a map-style dataset .*, got {type(wrong).__name__}'
        )
        with pytest.raises(TypeError, match=expected):
            bags.Loader(wrong, 1)


def test_a_negative_epoch(dataset):
    with pytest.raises(ValueError, match='epoch: expected at least 0'):
        bags.Loader(dataset, 1).set_epoch(-1)
    with pytest.raises(TypeError, match="epoch: expected an integer, got 'x'"):
        bags.Loader(dataset, 1).set_epoch('x')
