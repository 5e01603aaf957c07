"""Datasets and shards that differ by optional fields."""

import pickle

import numpy as np
import pytest

import bags
from tests.dataset.writing.killed import leave_open

OLD = {'id': 'int(4)', 'text': 'utf8'}
NEW = {**OLD, 'count': 'int(2)?', 'grid': 'array(float32,2)[]?', 'note': 'utf8?', 'words': 'utf8[]?'}


def row(number, spec):
    datapoint = {'id': number, 'text': f'text {number}'}
    if spec is OLD:
        return datapoint
    return {
        'count': number if number % 3 else None,
        'grid': np.full((number % 4, 2), number, np.float32) if number % 5 else None,
        'id': number,
        'note': f'note {number}' if number % 2 else None,
        'text': f'text {number}',
        'words': ['a', 'b'] if number % 4 else None,
    }


def write(path, first, count, spec, resume=False, **options):
    kind = bags.ShardedDatasetWriter if 'shard_length' in options else bags.DatasetWriter
    with kind(path, spec, resume=resume, **options) as writer:
        for number in range(first, first + count):
            writer.append(row(number, spec))
    return path


def concatenated(path, order):
    parts = [write(path / str(number), 20 * number, 20, spec) for number, spec in enumerate(order)]
    return bags.concat(map(bags.open, parts))


def resumed(path, order):
    for number, spec in enumerate(order):
        write(path / 'd', 20 * number, 20, spec, resume=number > 0, shard_length=8)
    return bags.open(path / 'd')


CASES = [
    (concatenated, [OLD, NEW, OLD]), (concatenated, [NEW, OLD, NEW]),
    (resumed, [OLD, NEW]), (resumed, [OLD, OLD, NEW, NEW]),
]  # fmt: skip


@pytest.mark.parametrize(('make', 'order'), CASES)
def test_fields_that_some_do_not_have(tmp_path, kit, make, order):
    dataset = make(tmp_path, order)
    expected = []
    for number in range(20 * len(order)):
        found = row(number, order[number // 20])
        expected.append({name: found.get(name) for name in dataset.spec})
    assert dataset.spec == dict(sorted(NEW.items()))
    assert kit.equal(list(dataset), expected)
    for each in (dataset, pickle.loads(pickle.dumps(dataset))):
        chosen = np.random.default_rng(0).permutation(len(dataset))
        assert kit.equal(each.__getitems__(chosen), [expected[index] for index in chosen])
        for indices in (chosen, chosen[:0], [0], [len(dataset) - 1], range(18, 22)):
            batch = each.batch(indices)
            wanted = [expected[index] for index in indices]
            assert batch['count'] == [values['count'] for values in wanted]
            assert batch['words'] == [values['words'] for values in wanted]
            assert batch['id'].tolist() == [values['id'] for values in wanted]
            for index, values in enumerate(wanted):
                assert kit.equal(batch['grid'][index], values['grid'])
    assert dataset.lengths('words').tolist() == [len(values['words'] or ()) for values in expected]
    assert list(dataset.records('note')) == [
        values['note'] if values['note'] is None else values['note'].encode() for values in expected
    ]
    for index, values in enumerate(expected):
        assert dataset[index, 'note'] == {'note': values['note']}
        assert dataset[index, ('note', 'id')] == {'note': values['note'], 'id': values['id']}
        assert dataset[index, {'words': slice(1)}] == {'words': values['words'] and values['words'][:1]}
        if values['note'] is None:
            with pytest.raises(ValueError, match="field 'note' has no value"):
                dataset.file(index, 'note')
        else:
            assert dataset.file(index, 'note').read() == values['note'].encode()
    bags.copy(dataset, tmp_path / 'copy', shard_length=11)
    assert kit.equal(list(bags.open(tmp_path / 'copy')), expected)
    assert kit.equal(list(dataset.select(chosen)), [expected[index] for index in chosen])
    assert bags.verify(dataset, decode=True) == []
    if make is resumed:
        info = bags.info(tmp_path / 'd')
        assert (info.datapoints, list(info.fields)) == (len(dataset), sorted(NEW))
        bags.consolidate(tmp_path / 'd')
        assert kit.equal(list(bags.open(tmp_path / 'd')), expected)


def test_an_unclosed_shard_is_closed_without_the_new_fields(tmp_path):
    writer = bags.ShardedDatasetWriter(tmp_path / 'd', OLD)
    for number in range(5):
        writer.append(row(number, OLD), flush=True)
    leave_open(writer)
    del writer
    write(tmp_path / 'd', 5, 5, NEW, resume=True, shard_length=100)
    assert [each['id'] for each in bags.open(tmp_path / 'd')] == list(range(10))
    assert not bags.open(tmp_path / 'd').unfinished
    assert bags.open(tmp_path / 'd').shards == 2


@pytest.mark.parametrize(
    'other', [{'id': 'int(8)', 'text': 'utf8'}, {**OLD, 'more': 'utf8'}, {'id': 'int(4)'}]
)
def test_other_differences_are_refused(tmp_path, other):
    first = write(tmp_path / 'a', 0, 3, OLD, shard_length=10)
    with bags.DatasetWriter(tmp_path / 'b', other):
        pass
    with pytest.raises(bags.SpecError, match='except for optional fields'):
        bags.concat([bags.open(first), bags.open(tmp_path / 'b')])
    with pytest.raises(bags.SpecError, match='the spec of the other shards'):
        bags.ShardedDatasetWriter(first, other, resume=True)


FITTING = [
    ({'id': 'int', 'image': 'jpeg'}, {'id': 'int', 'jpg': 'jpeg'}, r"rename\({'jpg': 'image'}\) of this one"),
    ({'id': 'int'}, {'id': 'int', 'depth': 'png'}, r"drop\(fields=\['depth'\]\) of this one unless"),
    ({'id': 'int', 'depth': 'png'}, {'id': 'int'}, r"drop\(fields=\['depth'\]\) of the others unless"),
    ({'id': 'int', 'x': 'utf8'}, {'id': 'int(8)', 'x': 'utf8'}, r"drop\(fields=\['id'\]\) of all"),
]


@pytest.mark.parametrize(('first', 'other', 'advice'), FITTING)
def test_the_error_says_what_makes_datasets_fit(tmp_path, first, other, advice):
    for name, spec in (('a', first), ('b', other)):
        with bags.DatasetWriter(tmp_path / name, spec):
            pass
    with bags.open(tmp_path / 'a') as one, bags.open(tmp_path / 'b') as two:
        with pytest.raises(bags.SpecError, match=advice):
            bags.concat([one, two])
        if 'rename' in advice:
            assert len(bags.concat([one, two.rename({'jpg': 'image'})])) == 0


def test_fields_that_the_last_shard_does_not_have(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'd', NEW, shard_step=2) as writer:
        writer.append(row(0, NEW))
    with bags.ShardedDatasetWriter(tmp_path / 'd', OLD, shard_start=1, shard_step=2) as writer:
        writer.append(row(1, OLD))
    dataset = bags.open(tmp_path / 'd')
    assert dataset[1] == row(1, OLD) | {'count': None, 'grid': None, 'note': None, 'words': None}
    assert dataset.batch([1, 0], ('count', 'words')) == {'count': [None, None], 'words': [None, None]}
    assert dataset.batch([], 'note') == {'note': []}
