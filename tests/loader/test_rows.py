"""Map-style datasets of any kind: the loader makes columns of their rows."""

import itertools
import threading
from typing import NamedTuple

import numpy as np
import pytest

import bags


class Pairs:
    """Like a dataset of PyTorch, whose rows are tuples."""

    def __init__(self, count=50):
        self.count = count
        self.threads = set()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert type(index) is int
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.threads.add(threading.current_thread().name)
        return np.full((2, 3), index, np.float32), index


class Together(Pairs):
    """A dataset whose rows are read with one call."""

    def __getitem__(self, index):
        raise NotImplementedError

    def __getitems__(self, indices):
        assert type(indices) is list
        return [Pairs.__getitem__(self, index) for index in indices]


@pytest.mark.slow('options2-*')
@pytest.mark.parametrize('kind', [Pairs, Together])
@pytest.mark.parametrize('options', [{'workers': 0}, {'workers': 3}, {'workers': 1, 'processes': True}])
def test_tuples(kind, options):
    dataset = kind()
    loader = bags.Loader(dataset, 8, seed=1, **options)
    for epoch in range(2):
        order = []
        for images, labels in loader:
            assert (images.dtype, images.shape[1:], labels.dtype) == (np.float32, (2, 3), np.int64)
            assert (images[:, 0, 0] == labels).all()
            order += labels.tolist()
        alone = bags.Loader(range(50), 50, seed=1)
        alone.set_epoch(epoch)
        assert order == next(iter(alone)).tolist()
        assert len(loader) == 7
    if options == {'workers': 3}:
        assert all(name.startswith('bags-loader') for name in dataset.threads)


def test_it_resumes():
    whole = [labels.tolist() for _, labels in bags.Loader(Pairs(), 8)]
    for taken in range(7):
        loader = bags.Loader(Pairs(), 8)
        begun = [labels.tolist() for _, labels in itertools.islice(loader, taken)]
        resumed = bags.Loader(Pairs(), 8)
        resumed.load_state_dict(loader.state_dict())
        assert begun + [labels.tolist() for _, labels in resumed] == whole
    with pytest.raises(ValueError, match='of another dataset'):
        bags.Loader(Pairs(51), 8).load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match='of another dataset'):
        bags.Loader(Together(), 8).load_state_dict(loader.state_dict())


def test_dicts():
    rows = [{'id': i, 'x': np.ones(i % 2 + 1), 'name': f'n {i}', 'tokens': [0] * i} for i in range(10)]
    first, second = bags.Loader(rows, 5, shuffle=False, mask_column='m', collate={'tokens': bags.pad})
    assert list(first) == ['id', 'x', 'name', 'tokens', 'm']
    assert first['id'].tolist() == [0, 1, 2, 3, 4]
    assert [x.tolist() for x in first['x']] == [[1], [1, 1], [1], [1, 1], [1]]
    assert second['name'] == ['n 5', 'n 6', 'n 7', 'n 8', 'n 9']
    assert second['tokens'].lengths.tolist() == [5, 6, 7, 8, 9]
    (some,) = bags.Loader(rows, 10, shuffle=False, fields=('name', 'id'))
    assert list(some) == ['name', 'id']
    (one,) = bags.Loader(rows, 10, shuffle=False, fields='id')
    assert one['id'].tolist() == list(range(10))
    ranks = [list(bags.Loader(rows, 4, rank=rank, world_size=2)) for rank in range(2)]
    assert sum(batch['_mask'].sum() for batches in ranks for batch in batches) == 10


class Named(NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ('rows', 'expected'),
    [
        ([1, 2, 3], np.array([1, 2, 3])),
        ([1, 2.5, 3], np.array([1, 2.5, 3])),
        ([True, False], np.array([True, False])),
        ([2**63, 1], [2**63, 1]),  # Floats would round them.
        ([2**70, 1], [2**70, 1]),
        ([None, 1], [None, 1]),
        (['a', 'bc'], ['a', 'bc']),
        ([b'a', b'bc'], [b'a', b'bc']),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (np.arange(6).reshape(3, 2), np.arange(6).reshape(3, 2)),
        ([(1, 'a'), (2, 'b')], (np.array([1, 2]), ['a', 'b'])),
        ([Named(1, 'a'), Named(2, 'b')], (np.array([1, 2]), ['a', 'b'])),
        (
            [np.datetime64('2020-01-01'), np.datetime64('2021-01-01')],
            np.array(['2020-01-01', '2021-01-01'], 'M8[D]'),
        ),
        ([np.datetime64('2020-01-01'), 1], [np.datetime64('2020-01-01'), 1]),
        ([], None),
    ],
)
def test_columns(rows, expected, kit):
    if not len(rows):
        with pytest.raises(ValueError, match='dataset: expected datapoints to load, got none'):
            bags.Loader(rows, 2)
        return
    (batch,) = bags.Loader(rows, len(rows), shuffle=False)
    assert type(batch) is type(expected)
    assert kit.equal(batch, expected)


class Wrong(Pairs):
    def __init__(self, found):
        super().__init__()
        self.found = found

    def __getitems__(self, indices):
        return self.found


@pytest.mark.parametrize(
    ('rows', 'options', 'error', 'match'),
    [
        ([{'a': 1}, {'b': 1}], {}, ValueError, r"datapoint 1: expected fields .*'a'.* as in .*, got .*'b'"),
        ([{'a': 1}, 3], {}, ValueError, 'datapoint 1: .*, got int'),
        (
            [(1, 2), (1,)],
            {},
            ValueError,
            'datapoint 1: expected a tuple of 2 as in this batch, got a tuple of 1',
        ),
        ([1, 2], {'fields': 'a'}, TypeError, 'fields: .* rows that are dicts'),
        (
            [{'a': 1}],
            {'fields': {'a': range(2)}},
            TypeError,
            'fields: of a map-style dataset, expected names',
        ),
        ([{'a': 1}], {'fields': 'b'}, KeyError, 'b'),
        ([1, 2], {'mask_column': 'm'}, TypeError, "'m': expected rows that are dicts"),
        (
            Wrong([1]),
            {},
            ValueError,
            r'__getitems__ of Wrong of 50 rows: expected a list of 10 rows, got \[1\]',
        ),
        (Wrong({'a': [1]}), {'batch_size': 1}, ValueError, '__getitems__ of .* expected a list of 1 rows'),
    ],
)
def test_errors(rows, options, error, match):
    with pytest.raises(error, match=match):
        list(bags.Loader(rows, **{'batch_size': 10, 'shuffle': False, **options}))


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('where', ['__getitem__', 'transform', 'collate', 'to_device'])
def test_stop_iteration_is_an_error(workers, where):
    """If raised by a user's function: it would end the loop as if the epoch were complete."""

    def fails(value):
        if where == '__getitem__' or 30 in value[1]:
            raise StopIteration
        return value

    class Ends(Pairs):
        def __getitem__(self, index):
            return fails(super().__getitem__(index)) if index == 30 else super().__getitem__(index)

    rows, options = (Ends(), {}) if where == '__getitem__' else (Pairs(), {where: fails})
    found = []
    with pytest.raises(RuntimeError, match='StopIteration') as caught:
        found.extend(bags.Loader(rows, 4, shuffle=False, workers=workers, **options))
    assert len(found) == 7
    assert str(caught.value).startswith(
        {
            '__getitem__': 'StopIteration was raised: datapoint 30',
            'to_device': 'to_device raised StopIteration',
        }.get(where, f'StopIteration was raised: in {where} of batch 7 of epoch 0: datapoints 28, 29, 30, 31')
    )


def test_an_error_names_the_datapoint():
    rows = Pairs()
    rows.count = 10
    loader = bags.Loader(rows, 4, shuffle=False, workers=0)
    rows.count = 6
    with pytest.raises(IndexError) as caught:
        list(loader)
    assert caught.value.__notes__ == ['datapoint 6']
