"""Select, concat and join, beyond the tests of every dataset in test_reader.py."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'int(2)[]?', 'note': 'utf8?'}


def row(index):
    return {
        'id': index,
        'note': None if index % 3 else str(index),
        'text': f'text {index}',
        'words': None if index % 4 == 3 else list(range(index % 4)),
    }


@pytest.fixture(scope='module')
def source(kit, tmp_path_factory):
    root = tmp_path_factory.mktemp('views')
    rows = [row(index) for index in range(12)]
    return [
        bags.open(kit.fill(root / 'a', rows, SPEC)),
        bags.open(kit.fill(root / 'b', rows[:5], SPEC, shard_length=2)),
        bags.open(kit.fill(root / 'c', [], SPEC)),
    ], [rows, rows[:5], []]


def rows_of(dataset):
    """Returns the datapoints, with lists in place of arrays."""
    return [
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
        for row in dataset
    ]


def check(dataset, rows):
    """Compares all methods of a view with a list."""
    assert len(dataset) == len(rows)
    assert rows_of(dataset) == rows
    assert dataset.lengths('words').tolist() == [len(r['words'] or []) for r in rows]
    order = [*range(len(rows)), *range(len(rows))][::-2]
    assert rows_of(dataset.__getitems__(order)) == [rows[index] for index in order]
    batch = dataset.batch(order)
    assert batch['id'].tolist() == [rows[index]['id'] for index in order]
    assert batch['id'].dtype == np.int64
    assert batch['note'] == [rows[index]['note'] for index in order]
    found = [None if words is None else words.tolist() for words in batch['words']]
    assert found == [rows[index]['words'] for index in order]
    assert list(dataset.records('text')) == [r['text'].encode() for r in rows]
    items = [item.to_bytes(2, 'little') for r in rows for item in r['words'] or []]
    assert list(dataset.records('words')) == items
    assert repr(pickle.loads(pickle.dumps(dataset))) == repr(dataset)


def grow(data, sources, rows, depth):
    """Draws a view over views, and the list that it should equal."""
    which = data.draw(st.integers(0, len(sources) - 1))
    dataset, expected = sources[which], rows[which]
    for _ in range(depth):
        step = data.draw(st.sampled_from(['slice', 'select', 'concat', 'join', 'range']))
        if step == 'slice':
            bound = st.none() | st.integers(-15, 15)
            part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1, -3])))
            dataset, expected = dataset[part], expected[part]
        elif step == 'select':
            places = st.integers(-len(expected), len(expected) - 1)
            order = data.draw(st.lists(places, max_size=9)) if expected else []
            dataset, expected = dataset.select(order), [expected[place] for place in order]
        elif step == 'range':
            part = range(len(expected))[:: data.draw(st.sampled_from([1, 2, -1]))]
            dataset, expected = dataset.select(part), [expected[place] for place in part]
        elif step == 'concat':
            other = data.draw(st.integers(0, len(sources) - 1))
            dataset, expected = bags.concat([dataset, sources[other]]), expected + rows[other]
        else:
            dataset = bags.join([dataset, dataset[:]], replace=True)
    return dataset, expected


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 4))
def test_views_of_views(source, data, depth):
    check(*grow(data, *source, depth))


def test_indices_of_select(source):
    dataset, rows = source[0][0], source[1][0]
    for indices in ([3, -1, 3], np.array([3, -1, 3], np.int8), (3, -1, 3), iter([3, -1, 3])):
        assert rows_of(dataset.select(indices)) == [rows[3], rows[-1], rows[3]]
    for indices in (slice(2, 5), range(2, 5), slice(-10, -7), range(-10, -7)):
        assert rows_of(dataset.select(indices)) == rows[2:5]
    assert rows_of(dataset.select(range(5, 2, -1))) == [rows[5], rows[4], rows[3]]
    assert rows_of(dataset.select(np.array([], np.int64))) == list(dataset.select([])) == []
    for wrong in ([12], [-13], range(10, 13), range(-13, 0), np.array([2**40])):
        with pytest.raises(IndexError, match='out of range'):
            dataset.select(wrong)
    for wrong in ([1.5], ['id'], 'abc'):
        with pytest.raises(TypeError):
            dataset.select(wrong)
    with pytest.raises(TypeError, match='select: expected indices or a mask, got 3'):
        dataset.select(3)


def test_masks_and_fields_of_select(source):
    dataset, rows = source[0][0], source[1][0]
    mask = np.arange(len(rows)) % 3 == 1
    for indices in (mask, mask.tolist()):
        assert rows_of(dataset.select(indices)) == rows[1::3]
    assert rows_of(dataset.select(np.zeros(len(rows), bool))) == []
    with pytest.raises(IndexError, match='mask of shape'):
        dataset.select(mask[:-1])
    for view in (dataset.select(fields='id'), dataset[:, 'id'], dataset[:, {'id': True}]):
        assert list(view.spec) == ['id']
        assert len(view) == len(rows)
        assert view[3] == {'id': rows[3]['id']}
        assert list(view.batch([1, 0])) == ['id']
        assert view[2:4][0] == {'id': rows[2]['id']}
        with pytest.raises(KeyError, match='id'):
            view[0, 'words']
    with pytest.raises(KeyError, match='nope'):
        dataset.select(fields='nope')
    with pytest.raises(TypeError, match='as a whole'):
        dataset.select(fields={next(n for n, k in dataset.spec.items() if '[]' in k): range(1)})


def test_a_selection_is_its_own(source):
    indices = np.array([1, 2])
    view = source[0][0].select(indices)
    text = repr(view)
    indices[:] = 0
    assert [r['id'] for r in view] == [1, 2]
    assert repr(view) == text


def test_concat_wants_one_spec(source, kit, tmp_path):
    other = bags.open(kit.fill(tmp_path / 'x', [{'id': 1}], {'id': 'int(8)'}))
    with pytest.raises(bags.SpecError, match='dataset 1'):
        bags.concat([source[0][0], other])
    with pytest.raises(ValueError, match='at least one'):
        bags.concat([])
    with pytest.raises(TypeError, match='dataset 1'):
        bags.concat([source[0][0], 'path'])
    assert rows_of(bags.concat(dataset for dataset in source[0])) == [r for rows in source[1] for r in rows]


def test_join_adds_and_replaces_fields(source, kit, tmp_path):
    base, rows = source[0][0], source[1][0]
    more = bags.open(
        kit.fill(
            tmp_path / 'x', [{'text': str(i), 'z': i} for i in range(12)], {'text': 'utf8', 'z': 'int(1)'}
        )
    )
    with pytest.raises(ValueError, match=r"'text'.*replace=True"):
        bags.join([base, more])
    both = bags.join([base, more], replace=True)
    assert both.spec == {**SPEC, 'text': 'utf8', 'z': 'int(1)'}
    wanted = [dict(sorted({**r, 'text': str(i), 'z': i}.items())) for i, r in enumerate(rows)]
    assert rows_of(both) == wanted
    assert [list(r) for r in both] == [[*SPEC, 'z']] * 12
    assert list(both[3, ('z', 'id')].items()) == [('z', 3), ('id', 3)]
    assert list(both.batch([3], ('z', 'id'))) == ['z', 'id']
    assert both.file(3, 'text').read() == b'3'
    assert rows_of(bags.join([base.path, more.path], replace=True)) == wanted
    assert rows_of(bags.join([base, Path(more.path)], replace=True)) == wanted
    back = bags.join([more, base], replace=True)
    assert [r['text'] for r in back] == [r['text'] for r in rows]
    with pytest.raises(ValueError, match='one length'):
        bags.join([base, base[1:]], replace=True)
    with pytest.raises(ValueError, match='at least one'):
        bags.join([])
    with pytest.raises(TypeError):
        bags.join([base, None])


def write_fields(path, fields, spec):
    with bags.ShardedDatasetWriter(path, spec, shard_length=7) as writer:
        for values in zip(*fields.values(), strict=True):
            writer.append(dict(zip(fields, values, strict=True)))
    return path


@pytest.mark.parametrize('raw', [False, True])
@pytest.mark.parametrize(('one', 'other'), [('int(8)', 'int(4)'), ('utf8', 'utf8'), ('int(4)?', 'uint(2)')])
def test_fields_of_several_folders_are_compared(tmp_path, one, other, raw):
    def make(name, type, values):
        values = list(map(str, values)) if type == 'utf8' else values
        fields = {'id': values, name: range(len(values))}
        return write_fields(tmp_path / name, fields, {'id': type, name: 'int(2)'})

    values = list(range(3, 43))
    paths = make('a', one, values), make('b', other, values)
    both = bags.join([bags.open(path, raw=raw) for path in paths])
    assert sorted(both.spec) == ['a', 'b', 'id']
    assert len(both) == len(bags.join([bags.open(path) for path in paths])) == 40
    values[17], values[30] = 1000, 1001
    paths = paths[0], make('c', other, values)
    with pytest.raises(
        ValueError, match=r"'id' differs at datapoint 17: expected '20'.*got '1000'.*replace=True"
    ):
        bags.join([bags.open(path, raw=raw) for path in paths])
    assert str(bags.join(paths, replace=True)[17, 'id']['id']) == '1000'


def test_fields_of_other_types_are_not_compared(tmp_path):
    paths = [write_fields(tmp_path / name, {'x': [1.0]}, {'x': 'float(8)'}) for name in 'ab']
    with pytest.raises(ValueError, match=r"field 'x' of dataset 1 is also in an earlier dataset \(replace"):
        bags.join(paths)
    assert bags.join(paths, replace=True)[0] == {'x': 1.0}


def test_several_paths_are_joined_and_not_opened(tmp_path):
    paths = [write_fields(tmp_path / name, {name: [1.0]}, {name: 'float(8)'}) for name in 'ab']
    assert bags.join(paths)[0] == bags.join(map(str, paths))[0] == {'a': 1.0, 'b': 1.0}
    several = r'expected a path, got .* \(bags\.join\(\[…\]\) opens several, and joins their fields\)'
    for value in (paths, tuple(paths), []):
        with pytest.raises(TypeError, match=several):
            bags.open(value)
    with pytest.raises(TypeError, match=r"'replace': use bags\.join\(\[…\], replace=…\)$"):
        bags.open(paths[0], replace=True)
    with pytest.raises(TypeError, match='join: expected several datasets, got'):
        bags.join(paths[0])
    with pytest.raises(TypeError, match="join, dataset 0: expected a dataset, got 'a'"):
        bags.join({'a': bags.open(paths[0])})


def test_editing_with_views(source, kit, tmp_path):
    """Delete, reorder, update and add, as DESIGN says."""
    base, rows = source[0][0], source[1][0]
    kept = [i for i in range(12) if rows[i]['note'] is not None]
    assert rows_of(base.select(kept)) == [rows[i] for i in kept]
    shuffled = np.random.default_rng(0).permutation(12)
    assert [r['id'] for r in base.select(shuffled)] == shuffled.tolist()
    new = kit.fill(tmp_path / 'x', [{'note': 'new'}] * 12, {'note': 'utf8?'})
    assert {r['note'] for r in bags.join([base.path, new], replace=True)} == {'new'}


def test_closing_a_view_closes_its_datasets(kit, tmp_path):
    paths = [kit.fill(tmp_path / name, [row(0), row(1)], SPEC) for name in 'ab']
    for make in (
        lambda a, b: bags.concat([a, b]),
        lambda a, b: bags.join([a, b], replace=True),
        lambda a, b: bags.concat([a[1:], b.select([0])]),
    ):
        a, b = map(bags.open, paths)
        with make(a, b) as view:
            view[0]
        for reader in (a, b):
            with pytest.raises(ValueError, match='closed'):
                reader[0]
