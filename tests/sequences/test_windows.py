"""Windows of sequences as datapoints, compared with windows made of lists."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags

SPEC = {
    'id': 'int(8)',
    'note': 'utf8?',
    'others': 'int(2)[]?',
    'points': 'array(float32,2)[]',
    'steps': 'int(4)[]',
    'trees': 'msgpack[]',
    'words': 'utf8[]?',
}
MOVING = ('points', 'steps', 'trees', 'words')
LENGTHS = (5, 0, 1, 9, 3, 0, 7, 2, 4, 12, 1, 6)


def make(index):
    count = LENGTHS[index]
    return {
        'id': index,
        'note': None if index % 3 else str(index),
        'others': None if index % 4 == 1 else np.arange(index % 4, dtype=np.int16),
        'points': np.array([[index, step] for step in range(count)], np.float32).reshape(-1, 2),
        'steps': np.arange(100 * index, 100 * index + count, dtype=np.int32),
        'trees': [{'at': [index, step]} for step in range(count)],
        'words': [f'{index} {step}' for step in range(count)] if count else None,
    }


def cut(rows, fields, length, stride, drop_last):
    """Returns the expected windows, and where each is from."""
    found = []
    for index, row in enumerate(rows):
        count = 0 if row[fields[0]] is None else len(row[fields[0]])
        for start in range(0, count - length + 1 if drop_last else count, stride):
            window = {name: row[name][start : start + length] for name in fields}
            found.append(({**row, **window}, (index, start)))
    return [window for window, _ in found], [origin for _, origin in found]


@pytest.fixture(scope='module', params=['plain', 'zstd'])
def sources(request, kit, tmp_path_factory):
    root = tmp_path_factory.mktemp('windows')
    rows = [make(index) for index in range(len(LENGTHS))]
    compression = MOVING if request.param == 'zstd' else ()
    folder = kit.fill(root / 'a', rows, SPEC, compression=compression)
    shards = kit.fill(root / 'b', rows, SPEC, shard_length=5, compression=compression)
    halves = [
        kit.fill(root / str(number), [{name: row[name] for name in names} for row in rows],
                 {name: SPEC[name] for name in names})
        for number, names in enumerate((['id', 'steps', 'words'], ['note', 'others', 'points', 'trees']))
    ]  # fmt: skip
    return [bags.open(folder), bags.open(shards), bags.open(halves)], rows


def plain(value):
    """Converts a column to lists of Python values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, list | bags.Ragged) else value


def check(kit, view, rows):
    """Compares all methods of a view with a list."""
    assert len(view) == len(rows)
    assert kit.equal(list(view), rows)
    order = [*range(len(rows)), *range(len(rows))][::-3]
    wanted = [rows[index] for index in order]
    assert kit.equal(view.__getitems__(order), wanted)
    batch = view.batch(order)
    assert list(batch) == list(SPEC)
    for name, column in batch.items():
        if isinstance(column, bags.Ragged):
            assert column.values.dtype == {'points': 'f4', 'steps': 'i4', 'others': 'i2'}[name]
        assert plain(column) == plain([row[name] for row in wanted])
    for name in ('steps', 'words', 'others'):
        lengths = [0 if row[name] is None else len(row[name]) for row in rows]
        assert view.lengths(name).tolist() == lengths
        assert view.lengths(name).dtype == np.int64
    assert list(view.items('words')) == [word.encode() for row in rows for word in row['words'] or []]
    assert list(view.field('note')) == [None if row['note'] is None else row['note'].encode() for row in rows]
    for index in order[:5]:
        for item, word in enumerate(rows[index]['words'] or []):
            assert view.file(index, 'words', item).read() == word.encode()
        with pytest.raises(IndexError):
            view.file(index, 'steps', len(rows[index]['steps']))
    again = pickle.loads(pickle.dumps(view))
    assert repr(again) == repr(view)
    assert kit.equal(again.__getitems__(order[:3]), wanted[:3])


@pytest.mark.slow(all_but='plain')
@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2),
    st.sampled_from([('steps',), ('words', 'steps'), MOVING]),
    st.integers(1, 8),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(['as it is', 'of a view', 'view of it', 'of another', 'twice', 'joined']),
)
def test_windows_are_those_of_lists(kit, sources, which, fields, length, stride, drop_last, how):
    dataset, rows = sources[0][which], sources[1]
    if how == 'of a view':
        dataset, rows = (
            bags.concat([dataset[::-2], bags.select(dataset, [3, 3])]),
            [*rows[::-2], rows[3], rows[3]],
        )
    if how == 'of another':
        dataset, (rows, _) = bags.windows(dataset, MOVING, 5, 2, False), cut(rows, MOVING, 5, 2, False)
    view = bags.windows(dataset, fields, length, stride, drop_last)
    rows, origins = cut(rows, fields, length, stride, drop_last)
    assert [view.origin(index) for index in range(len(view))] == origins
    assert [tuple(map(int, pair)) for pair in zip(*view.origins(), strict=True)] == origins
    assert [part.tolist() for part in view.origins([-1] if rows else [])] == (
        [[part] for part in origins[-1]] if rows else [[], []]
    )
    if how == 'view of it':
        view, rows = view[::-1][1:], rows[::-1][1:]
    if how == 'twice':
        view, rows = bags.concat([view, view]), rows + rows
    if how == 'joined':
        view = bags.join([view, view], replace=True)
    check(kit, view, rows)


@pytest.mark.parametrize('drop_last', [True, False])
@pytest.mark.parametrize(
    'items',
    [range(1, 3), slice(None, None, -1), slice(-2, None), [0, 0], range(10), range(0), range(-5, 9, 2)],
)  # fmt: skip
def test_items_of_windows(kit, sources, items, drop_last):
    for dataset in sources[0]:
        view = bags.windows(dataset, MOVING, 4, 3, drop_last)
        rows, _ = cut(sources[1], MOVING, 4, 3, drop_last)

        def pick(values):
            if isinstance(items, slice):
                return values[items]
            places = [item for item in items if isinstance(items, list) or 0 <= item < len(values)]
            return values[places] if isinstance(values, np.ndarray) else [values[item] for item in places]

        asked = {'points': items, 'id': True, 'words': items}
        wanted = [{'points': pick(r['points']), 'id': r['id'], 'words': pick(r['words'])} for r in rows]
        assert kit.equal([view[index, asked] for index in range(len(view))], wanted)
        batch = view.batch(range(len(view)), asked)
        assert [list(map(list, part)) for part in batch['points']] == [
            list(map(list, row['points'])) for row in wanted
        ]
        assert batch['words'] == [row['words'] for row in wanted]
        with pytest.raises(IndexError, match='item 4 out of range'):
            view[0, {'points': [4]}]
        with pytest.raises(IndexError, match='item 4 out of range'):
            view.batch([0], {'points': [4]})


def test_a_batch_of_full_windows_is_one_array(sources):
    view = bags.windows(sources[0][1], ('points', 'steps'), 3)
    batch = view.batch(range(0, len(view), 2))
    assert batch['points'].dense().shape == (len(range(0, len(view), 2)), 3, 2)
    assert np.array_equal(
        batch['points'].dense()[:, :, 1] + 100 * batch['points'].dense()[:, :, 0], batch['steps'].dense()
    )
    assert view.batch([], 'points')['points'].dense().shape == (0, 0, 2)
    with pytest.raises(ValueError, match='1 to 3 items'):
        bags.windows(sources[0][0], 'steps', 3, drop_last=False).batch([0, 4], 'steps')['steps'].dense()


def test_windows_own_their_values(sources):
    for dataset in sources[0]:
        view = bags.windows(dataset, MOVING, 4)
        for rows in (view.__getitems__([0, 1, 0]), [view[0], view[1], view[0]]):
            rows[0]['trees'][1]['at'][0] = 77
            rows[0]['points'][1][0] = 77
            assert rows[1]['trees'][0]['at'] == rows[2]['trees'][1]['at'] == [0, 1]
            assert rows[1]['points'][0].tolist() == rows[2]['points'][1].tolist() == [0, 1]


def test_raw_windows(kit, sources):
    for dataset in sources[0][:2]:
        view = bags.windows(bags.open(dataset.directory, raw=True), MOVING, 4)
        rows, _ = cut(sources[1], MOVING, 4, 1, True)
        wanted = [kit.encode_row(row, SPEC) for row in rows]
        order = [*range(len(view)), 0, 0]
        assert kit.to_bytes(list(view)) == wanted
        assert kit.to_bytes(view.__getitems__(order)) == [wanted[index] for index in order]
        batch = view.batch(order)
        assert [kit.to_bytes(words) for words in batch['words']] == [
            wanted[index]['words'] for index in order
        ]


def test_what_cannot_be_meant(kit, sources, tmp_path):
    dataset = sources[0][0]
    with pytest.raises(TypeError, match="'id' of type int"):
        bags.windows(dataset, ('steps', 'id'), 4)
    with pytest.raises(KeyError, match="no field 'x'"):
        bags.windows(dataset, 'x', 4)
    with pytest.raises(ValueError, match='at least one field'):
        bags.windows(dataset, [], 4)
    with pytest.raises(TypeError, match=r'expected a dataset, got \[1\]'):
        bags.windows([1], 'steps', 4)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match='at least 1'):
            bags.windows(dataset, 'steps', wrong)
        with pytest.raises(ValueError, match='at least 1'):
            bags.windows(dataset, 'steps', 1, wrong)
    with pytest.raises(TypeError, match=r'length: expected an integer, got 2.5'):
        bags.windows(dataset, 'steps', 2.5)
    for wrong in (10**6, -(10**6)):
        with pytest.raises(IndexError, match='out of range'):
            bags.windows(dataset, 'steps', 4)[wrong]
    uneven = [{'a': [1, 2], 'b': [1, 2]}, {'a': [1, 2], 'b': [1]}]
    path = kit.fill(tmp_path / 'x', uneven, {'a': 'int(1)[]', 'b': 'int(1)[]'})
    with pytest.raises(ValueError, match=r"2 items of 'a' and 1 of 'b' in datapoint 1$"):
        bags.windows(bags.open(path), ('a', 'b'), 1)
    assert len(bags.windows(bags.open(path), 'a', 1)) == 4


def test_closing_windows_closes_the_dataset(kit, tmp_path):
    path = kit.fill(tmp_path / 'x', [make(0)], SPEC)
    reader = bags.open(path)
    with bags.windows(reader, 'steps', 2) as view:
        view[0]
    with pytest.raises(ValueError, match='closed'):
        reader[0]


@pytest.mark.parametrize('by_time', [False, True])
def test_a_hundred_million_windows_cost_next_to_nothing(kit, tmp_path, by_time):
    rows = [{'x': [0] * 5000, 'y': [1] * 2500}] * 3
    dataset = bags.open(kit.fill(tmp_path / 'x', rows, {'x': 'uint(1)[]', 'y': 'uint(1)[]'}))
    many = bags.select(dataset, np.resize(np.arange(3), 21_000))
    tracemalloc.start()
    if by_time:
        span = bags.times(-0.1, 0.1, rate=50, fill='nearest')
        view = bags.windows(many, every='x', x=bags.steps(0, 16), y=span, times={'x': 100, 'y': 50})
    else:
        view = bags.windows(many, 'x', 16)
    batch = view.batch(np.arange(0, len(view), 1_000_000), 'x')
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    count = 5000 if by_time else 4985
    assert len(view) == 21_000 * count > 100_000_000
    found = batch['x'] if by_time else batch['x'].dense()
    assert found.shape == (105, 16)
    assert view.origin(-1) == (20_999, count - 1)
