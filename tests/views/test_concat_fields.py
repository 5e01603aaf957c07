"""`bags.concat` of datasets with other fields, beside datapoints put together by hand."""

import pickle

import numpy as np
import pytest

import bags

SPECS = [
    {'id': 'int(8)', 'state': 'array(float32,2)', 'words': 'utf8[]', 'score': 'float(4)?'},
    {'id': 'int(8)', 'task': 'utf8', 'path': 'array(float32,3)[]', 'score': 'float(4)'},
    {'id': 'int(8)', 'words': 'utf8[]?', 'image': 'jpeg'},
]


def datapoint(part, number):
    rng = np.random.default_rng([part, number])
    every = {
        'id': 10 * part + number,
        'state': rng.random(2, np.float32),
        'words': ['a'] * number if part == 0 or number % 2 else None,
        'score': float(np.float32(number / 3)) if part or number % 2 else None,
        'task': f'reach {number}',
        'path': rng.random((number, 3), np.float32),
        'image': np.full((2, 2, 3), 50 * number, np.uint8),
    }
    return {name: every[name] for name in SPECS[part]}


@pytest.fixture
def parts(tmp_path):
    for part, spec in enumerate(SPECS):
        with bags.DatasetWriter(tmp_path / str(part), spec) as writer:
            for number in range(4):
                writer.append(datapoint(part, number))
    return [bags.open(tmp_path / str(part)) for part in range(len(SPECS))]


@pytest.fixture
def expected(parts):
    """Each datapoint of the union, by hand."""
    names = dict.fromkeys(name for spec in SPECS for name in spec)
    rows = [datapoint(part, number) for part in range(3) for number in range(4)]
    return [{name: row.get(name) for name in names} for row in rows]


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert found[name] is None
        elif name == 'image':
            assert found[name].shape == value.shape
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found[name], value)
        else:
            assert found[name] == value


def test_union(parts, expected):
    union = bags.concat(parts, fields='union')
    assert union.spec == {
        'id': 'int(8)', 'state': 'array(float32,2)?', 'words': 'utf8[]?', 'score': 'float(4)?',
        'task': 'utf8?', 'path': 'array(float32,3)[]?', 'image': 'jpeg?',
    }  # fmt: skip
    for index, row in enumerate(expected):
        assert_equal(union[index], row)
    assert union.lengths('words').tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0, 1, 0, 3]
    assert "fields='union'" in repr(union)
    assert_equal(pickle.loads(pickle.dumps(union))[5], expected[5])


@pytest.mark.parametrize('indices', [[0, 1], [4, 5], [9, 0, 5, 0], [11, 3, 7, 2, 8], []])
@pytest.mark.parametrize('name', ['state', 'words', 'score', 'task', 'path', 'image'])
def test_columns_of_a_union_are_of_one_kind(parts, expected, name, indices):
    """The datasets that a batch touches do not change the type of a column."""
    column = bags.concat(parts, fields='union').batch(indices, name)[name]
    assert type(column) is (bags.Ragged if name == 'path' else list)
    for value, index in zip(column, indices, strict=True):
        assert_equal({name: value}, {name: expected[index][name]})


def test_a_view_of_a_union_can_be_copied(parts, expected, tmp_path):
    view = bags.concat(parts, fields='union').select([9, 0, 5])
    bags.copy(view, tmp_path / 'copy')
    copied = bags.open(tmp_path / 'copy')
    assert copied.spec == view.spec
    assert bags.verify(copied, decode=True) == []
    for row, index in zip(copied, [9, 0, 5], strict=True):
        assert_equal(row, expected[index])


def test_common(parts):
    common = bags.concat(parts, fields='common')
    assert common.spec == {'id': 'int(8)'}
    assert common.column('id').tolist() == [10 * part + number for part in range(3) for number in range(4)]
    both = bags.concat([parts[0], parts[2]], fields='common')
    assert both.spec == {'id': 'int(8)', 'words': 'utf8[]?'}
    assert both.column('words') == [[], ['a'], ['a'] * 2, ['a'] * 3, None, ['a'], None, ['a'] * 3]


def test_a_mixture_over_specs_beside_an_oracle(parts, expected):
    union = bags.concat(parts, fields='union')
    sampler = bags.samplers.Mixture([4, 4, 4], weights=[2, 1, 1], seed=3)
    loader = bags.Loader(union, 4, fields=('id', 'task', 'state'), sampler=sampler, epochs=3)
    found = [
        dict(zip(batch, row, strict=True)) for batch in loader for row in zip(*batch.values(), strict=True)
    ]
    order = np.concatenate([sampler.take(epoch, np.arange(len(sampler))) for epoch in range(3)])
    assert len(found) == len(order)
    for row, index in zip(found, order, strict=True):
        assert_equal(row, {name: expected[index][name] for name in ('id', 'task', 'state')})
    assert np.bincount(order // 4).tolist() == [18, 9, 9]


def test_types_that_differ_are_named(parts):
    other = parts[1].rename({'task': 'state'})
    with pytest.raises(bags.SpecError, match=r"dataset 1.*'state': 'array\(float32,2\).*'state': 'utf8'"):
        bags.concat([parts[0], other], fields='union')
    with pytest.raises(ValueError, match="fields: expected 'same' or 'union' or 'common', got 'all'"):
        bags.concat(parts, fields='all')


def written(path, spec, rows):
    with bags.DatasetWriter(path, spec) as writer:
        for row in rows:
            writer.append(row)
    return bags.open(path)


@pytest.fixture
def robots(tmp_path):
    """Two datasets whose vectors differ in length."""
    found = []
    for number, length in enumerate((2, 5)):
        spec = {'state': f'array(float32,{length})', 'path': f'array(float32,4,{length})[]', 'id': 'int(8)'}
        rows = [
            {
                'state': np.full(length, row, np.float32),
                'path': np.full((row, 4, length), row, np.float32),
                'id': 10 * number + row,
            }
            for row in range(3)
        ]
        found.append(written(tmp_path / str(number), spec, rows))
    return found


def test_arrays_that_differ_in_a_length(robots, tmp_path):
    mixed = bags.concat(robots, fields='union')
    assert mixed.spec == {'state': 'array(float32,?)', 'path': 'array(float32,4,?)[]', 'id': 'int(8)'}
    assert bags.concat(robots, fields='common').spec == mixed.spec
    for indices in ([0, 2], [5, 3], [4, 0, 3], []):
        columns = mixed.batch(indices)
        assert type(columns['state']) is type(columns['path']) is list
        for index, state, path in zip(indices, columns['state'], columns['path'], strict=True):
            part, row = divmod(index, 3)
            np.testing.assert_array_equal(state, robots[part][row]['state'])
            assert type(path) is type(mixed[index]['path']) is list
            expected = robots[part][row]['path']
            np.testing.assert_array_equal(np.reshape(path, expected.shape), expected)
            np.testing.assert_array_equal(mixed[index]['state'], state)
            assert len(mixed[index]['path']) == row
    bags.copy(mixed, tmp_path / 'copy')
    copied = bags.open(tmp_path / 'copy')
    assert copied.spec == mixed.spec
    assert bags.verify(copied, decode=True) == []
    np.testing.assert_array_equal(copied[4, 'state']['state'], robots[1][1]['state'])
    np.testing.assert_array_equal(np.stack(copied[5, 'path']['path']), robots[1][2]['path'])


def test_a_dataset_without_arrays_that_differ(robots, tmp_path):
    third = written(tmp_path / 'third', {'id': 'int(8)'}, [{'id': 7}])
    mixed = bags.concat([*robots, third], fields='union')
    assert (mixed.spec['state'], mixed.spec['path']) == ('array(float32,?)?', 'array(float32,4,?)[]?')
    for indices in ([0, 4, 6], [0], [6]):
        for name in ('state', 'path'):
            column = mixed.batch(indices, name)[name]
            assert type(column) is list
            for index, value in zip(indices, column, strict=True):
                assert (value is None) == (index == 6)
                if value is not None:
                    expected = robots[index // 3][index % 3][name]
                    np.testing.assert_array_equal(np.reshape(value, expected.shape), expected)


def test_datasets_without_a_common_field(robots, tmp_path):
    robot = robots[0].select(fields='state')
    other = written(tmp_path / 'other', {'qpos': 'array(float32,2)'}, [{'qpos': np.zeros(2, 'f4')}])
    said = (
        r"dataset 'hand': .*a field of the datasets before it, \['state'\] \(rename\({'qpos': 'state'}\) of"
    )
    with pytest.raises(bags.SpecError, match=said):
        bags.concat({'arm': robot, 'hand': other}, fields='common')
    assert list(bags.concat([robot, other.rename({'qpos': 'state'})], fields='common').spec) == ['state']


@pytest.mark.parametrize(
    'other',
    ['array(float64,5)', 'array(float32,5,2)', 'array(float32,5)[]', 'array', 'float(4)'],
)
def test_arrays_that_differ_in_more(robots, tmp_path, other):
    value = np.zeros((5, 2) if '5,2' in other else 5, 'f8' if '64' in other else 'f4')
    value = 0.0 if other == 'float(4)' else [value] if '[]' in other else value
    third = written(tmp_path / 'third', {'state': other}, [{'state': value}])
    for fields in ('union', 'common'):
        with pytest.raises(bags.SpecError) as caught:
            bags.concat([robots[0], third], fields=fields)
        assert "'state': 'array(float32,2)" in str(caught.value)
        assert f"got {{'state': '{other}" in str(caught.value)
        assert "rename({'state': …}) or drop(fields=['state']) of one of them" in str(caught.value)
        assert "'id'" not in str(caught.value)  # Which only one has.
    with pytest.raises(bags.SpecError, match="fields='union' takes the fields of all datasets, 'common' the"):
        bags.concat([robots[0], robots[1]])


def test_a_field_says_the_source(robots, tmp_path):
    mixed = bags.concat({'arm': robots[0], 'hand': robots[1]}, fields='union')
    assert list(mixed.spec) == ['state', 'path', 'id', 'source']
    assert mixed.column('source') == ['arm'] * 3 + ['hand'] * 3
    assert mixed[4, ('id', 'source')] == {'id': 11, 'source': 'hand'}
    assert mixed[4]['source'] == 'hand'
    assert mixed[[5, 0], 'source'] == {'source': ['hand', 'arm']}
    assert mixed.records('source')[3] == b'hand'
    assert mixed.find('source', 'hand') == 3
    assert mixed[:2].batch([], 'source') == {'source': []}
    assert len(mixed.filter(lambda row: row['source'] == 'arm', 'source')) == 3
    assert repr(mixed).startswith("<bags.concat({'arm': bags.open(") or "{'arm': " in repr(mixed)
    again = pickle.loads(pickle.dumps(mixed))
    assert again.column('source') == mixed.column('source')
    bags.copy(mixed.drop(fields=('path', 'state')), tmp_path / 'copy')
    assert bags.open(tmp_path / 'copy').column('source') == mixed.column('source')
    other = bags.concat({'x': robots[0], 'hand': robots[1]}, fields='union')
    assert bags.dataset.reading.fingerprint.fingerprint(
        other
    ) != bags.dataset.reading.fingerprint.fingerprint(mixed)


def test_a_source_of_another_name(robots):
    mixed = bags.concat({'arm': robots[0]}, source='robot')
    assert mixed.column('robot') == ['arm'] * 3
    with pytest.raises(ValueError, match=r"dataset 'arm' has a field 'id' already: source= names another"):
        bags.concat({'arm': robots[0]}, source='id')
    with pytest.raises(TypeError, match='expected texts as names of datasets, got 1'):
        bags.concat({1: robots[0]})
    with pytest.raises(ValueError, match=r"datasets by name for the field 'robot'.* got 2 datasets without"):
        bags.concat(robots[:2], fields='union', source='robot')
    with pytest.raises(bags.SpecError, match=r"dataset 'hand'.*array\(float32,5\)"):
        bags.concat({'arm': robots[0], 'hand': robots[1]})


def test_arrays_that_differ_in_a_length_are_updated_and_padded(robots):
    mixed = bags.concat(robots, fields='union')
    changed = mixed.update({0: {'state': np.ones(4, np.float32)}, 5: {'path': [np.ones((4, 3), np.float32)]}})
    assert [state.tolist() for state in changed.batch([3, 0], 'state')['state']] == [[0] * 5, [1] * 4]
    assert np.shape(changed[5, 'path']['path']) == (1, 4, 3)
    padded = bags.pad(mixed.batch([1, 5, 0], 'path'), mask=True)
    assert padded['path'].shape == (3, 2, 4, 5)
    assert padded['path_mask'].sum((1, 2, 3)).tolist() == [8, 40, 0]


def test_arrays_that_differ_in_a_length_are_arrow(robots):
    pa = pytest.importorskip('pyarrow')
    table = pa.Table.from_batches(
        bags.concat({'arm': robots[0], 'hand': robots[1]}, fields='union').to_arrow()
    )
    assert table['source'].to_pylist() == ['arm'] * 3 + ['hand'] * 3
    assert list(map(len, table['state'].to_pylist())) == [2, 2, 2, 5, 5, 5]
    assert np.shape(table['path'][5].as_py()) == (2, 4, 5)


def test_a_view_of_arrays_that_differ_is_saved_as_links(tmp_path):
    parts = {}
    for name, length in (('arm', 100), ('hand', 300)):
        rows = [{'state': np.full(length, row, np.float32)} for row in range(4)]
        parts[name] = written(tmp_path / name, {'state': f'array(float32,{length})'}, rows)
    mixed = bags.concat(parts, fields='union')
    mixed.save(tmp_path / 'links')
    linked = bags.open(tmp_path / 'links', trust_links='all')
    assert linked.spec == mixed.spec
    assert [len(state) for state in linked.column('state')] == [100] * 4 + [300] * 4
    assert linked.column('source') == mixed.column('source')
    assert (linked[6, 'state']['state'] == 2).all()


def test_values_of_a_union_have_the_types_of_those_of_a_row(tmp_path):
    spec = {
        'bit': 'bool', 'number': 'int(2)', 'real': 'float(4)', 'point': 'array(float32)',
        'name': 'array(<U3)',
        'flags': 'array(bool,2)', 'vector': 'array(float64,2)', 'items': 'int(4)[]',
    }  # fmt: skip
    row = {
        'bit': True, 'number': -3, 'real': 0.5, 'point': np.array(1.5, np.float32), 'name': np.array('arm'),
        'flags': np.array([True, False]), 'vector': np.array([1.0, 2.0]), 'items': [1, 2],
    }  # fmt: skip
    full = written(tmp_path / 'full', spec, [row] * 20)
    other = written(tmp_path / 'other', {'id': 'int(8)'}, [{'id': 1}] * 2)
    union = bags.concat([full, other], fields='union')
    batch = union.batch([21, *range(12), 20])
    for name in spec:
        assert batch[name][0] is batch[name][-1] is None
        value, alone = batch[name][1], full[0][name]
        assert type(value) is type(alone)
        np.testing.assert_array_equal(value, alone)
        assert np.asarray(value).dtype == np.asarray(alone).dtype
    batch['vector'][1][:] = 7
    assert batch['vector'][2].tolist() == [1.0, 2.0]
    assert batch['items'].present.tolist() == [False, *[True] * 12, False]


def test_vectors_are_padded_as_by_hand():
    vectors = [np.arange(length, dtype=np.float32) for length in (3, 0, 5, 1)]
    values, mask = bags.pad([None, *vectors], mask=True, value=-1, multiple=4)
    assert (values.shape, values.dtype, mask.shape) == ((5, 8), np.float32, (5, 8))
    for row, vector in enumerate([np.empty(0), *vectors]):
        assert values[row].tolist() == [*vector.tolist(), *[-1] * (8 - len(vector))]
        assert mask[row].tolist() == [column < len(vector) for column in range(8)]
