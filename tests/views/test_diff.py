"""`diff`: what differs, and what is not read to find it."""

import numpy as np
import pytest

import bags

SPEC = {'id': 'int(8)', 'text': 'utf8?', 'blob': 'bytes', 'parts': 'bytes[]', 'packed': 'bytes'}
COUNT = 60


def write(path, rows, **options):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=25, **options) as writer:
        for index in rows:
            chance = np.random.default_rng(index)
            writer.append(
                {
                    'id': index,
                    'text': None if index % 4 == 0 else f'text {index}',
                    'blob': chance.bytes(1000),
                    'parts': [chance.bytes(400) for _ in range(index % 3)],
                    'packed': b'%d ' % index * 400,
                }
            )
    return path


@pytest.fixture(params=[{}, {'checksum': True, 'compression': {'packed': 3}}], ids=['plain', 'checksums'])
def source(tmp_path, request):
    with bags.open(write(tmp_path / 'source', range(COUNT), **request.param)) as source:
        yield source


def edited(source):
    """Ten datapoints less or other, in another order."""
    changes = {
        3: {'text': 'other'},
        4: {'text': ''},
        5: {'blob': b'new', 'parts': []},
        8: {'parts': [b'1', b'2']},
        9: {'text': None},
        10: {'packed': b'x'},
    }
    view = source.update(changes).drop([0, 30, 59])
    return view.select([*range(len(view))][::-1])


def as_lists(found):
    return {name: pairs.tolist() for name, pairs in found.changed.items()}


def test_differences_by_key(source, tmp_path):
    for other in (
        edited(source),
        saved_as(source, tmp_path / 'linked'),
        saved_as(source, tmp_path / 'copy', link=False),
    ):
        found = source.diff(other, on='id')
        assert found.fields == {}
        assert found.removed.tolist() == [0, 30, 59]
        assert found.added.tolist() == []
        ids = other.column('id').tolist()
        expected = {'text': [3, 4, 9], 'blob': [5], 'parts': [5, 8], 'packed': [10]}
        assert as_lists(found) == {
            name: [[key, ids.index(key)] for key in keys] for name, keys in expected.items()
        }
        assert found.compared == COUNT - 3
        back = other.diff(source, on='id')
        assert back.added.tolist() == [0, 30, 59]
        assert str(found).splitlines() == [
            '3 datapoints removed: 0, 30, 59',
            'text: 3 datapoints changed: 3, 4, 9',
            'blob: 1 datapoint changed: 5',
            'parts: 2 datapoints changed: 5, 8',
            'packed: 1 datapoint changed: 10',
        ]


def saved_as(source, path, **options):
    edited(source).save(path, **options)
    return bags.open(path)


def test_differences_by_position(source, tmp_path):
    other = source.drop([59]).rename({'text': 'label'}).update({2: {'id': 7}})
    found = source.diff(other)
    assert found.fields == {'text': ('utf8?', None), 'label': (None, 'utf8?')}
    assert as_lists(found) == {'id': [[2, 2]]}
    assert found.removed.tolist() == [59]
    assert other.diff(source).added.tolist() == [59]
    assert source.diff(source).is_empty
    assert str(source.diff(source)) == 'no difference in 60 datapoints'
    windows = source.windows(every='parts', parts=bags.steps(0, 1))
    assert windows.diff(windows).is_empty


def damage(path, kept):
    """Changes the first byte of each record of a bag but some."""
    with bags.bag.Reader(path) as reader:
        sizes = [len(record) for record in reader]
    data, start = bytearray(path.read_bytes()), 0
    for index, size in enumerate(sizes):
        if size and index not in kept:
            data[start] ^= 1
        start += size
    path.write_bytes(data)


def test_shared_records_are_not_read(tmp_path):
    write(tmp_path / 'source', range(COUNT), checksum=True)
    with bags.open(tmp_path / 'source') as source, saved_as(source, tmp_path / 'linked') as linked:
        expected = as_lists(source.diff(linked, on='id'))
    for shard in ('000000', '000001', '000002'):
        # The records of the datapoints that differ; reading another one raises.
        damage(tmp_path / 'source' / shard / 'blob.bag', [5] if shard == '000000' else [])
        damage(tmp_path / 'source' / shard / 'parts.bag', range(4, 9) if shard == '000000' else [])
    with (
        bags.open(tmp_path / 'source', checksum=True) as source,
        bags.open(tmp_path / 'linked', checksum=True) as linked,
    ):
        assert as_lists(source.diff(linked, on='id')) == expected
        with pytest.raises(bags.CorruptError):
            source.unique('blob')


def test_records_with_equal_checksums_are_not_read(tmp_path):
    for name in ('a', 'b'):
        write(tmp_path / name, range(COUNT), checksum=True)
    for shard in ('000000', '000001', '000002'):
        damage(tmp_path / 'b' / shard / 'blob.bag', [])
    with bags.open(tmp_path / 'a') as first, bags.open(tmp_path / 'b') as second:
        assert first.diff(second).is_empty
        assert first.records('blob')[0] != second.records('blob')[0]
        assert as_lists(first.diff(second.update({1: {'blob': b''}}))) == {'blob': [[1, 1]]}


def test_a_parent_that_has_grown_is_not_read(tmp_path):
    with bags.DatasetWriter(tmp_path / 'source', {'id': 'int(8)', 'blob': 'bytes'}) as writer:
        for index in range(30):
            writer.append({'id': index, 'blob': bytes([index]) * 900})
    with bags.open(tmp_path / 'source') as source:
        source.drop([3]).save(tmp_path / 'linked', link=['blob'], shard_length=10)
    with bags.DatasetWriter(tmp_path / 'source', {'id': 'int(8)', 'blob': 'bytes'}, resume=True) as writer:
        writer.append({'id': 30, 'blob': b'more'})
    with bags.open(tmp_path / 'source') as source, bags.open(tmp_path / 'linked') as linked:
        for one, other in ((source, linked), (linked, source)):
            found = one.diff(other, on='id')
            assert (found.removed.tolist() or found.added.tolist()) == [3, 30]
            assert not found.changed


def test_a_replaced_dataset_differs_from_the_open_one(tmp_path):
    def write_numbers(first):
        with bags.DatasetWriter(tmp_path / 'd', {'x': 'bytes'}, mode='overwrite') as writer:
            for index in range(40):
                writer.append({'x': bytes([first if index == 20 else index]) * 900})

    write_numbers(20)
    with bags.open(tmp_path / 'd') as before:
        bags.copy(before, tmp_path / 'whole')
        write_numbers(200)
        with bags.open(tmp_path / 'd') as after, bags.open(tmp_path / 'whole') as whole:
            assert as_lists(before.diff(after)) == {'x': [[20, 20]]}
            assert before.diff(whole).is_empty


def test_wrong_diffs_are_refused(source, tmp_path):
    for other, on, error, message in (
        (str(tmp_path), None, TypeError, 'expected a dataset'),
        (source, 'ids', KeyError, "no field 'ids'"),
        (source, 'parts', TypeError, 'expected utf8, bytes, int or uint'),
        (source, 'text', ValueError, 'datapoint 0 has no key'),
        (source.select([1, 2, 1]), 'id', ValueError, 'datapoints 0 and 2 have the same key'),
    ):
        with pytest.raises(error, match=message):
            source.diff(other, on)
