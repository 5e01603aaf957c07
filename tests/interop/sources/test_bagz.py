"""Import of bags of bagz and Säckli, whose records get the type that the user names."""

import msgpack
import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import converted

PEERS = __import__('pathlib').Path(__file__).parents[2] / 'golden'


@pytest.mark.parametrize(
    'name', ['bagz-plain.bag', 'bagz-zstd.bagz', 'bagz-separate.bagz', 'sackli-plain.bag']
)
def test_files_of_the_peers(name, tmp_path):
    done, found = converted(PEERS / name, tmp_path / 'out')
    with bags.bag.Reader(PEERS / name) as reader:
        assert [each['record'] for each in found] == list(reader)
    assert done.spec == {'record': 'bytes'}


def test_shards(tmp_path):
    source = str(PEERS / 'bagz-shards-*-of-00003.bagz')
    _, found = converted(source, tmp_path / 'out')
    _, other = converted(str(PEERS / 'bagz-shards@3.bagz'), tmp_path / 'out2')
    assert found == other
    assert len(found) > 3


@pytest.mark.parametrize(
    ('kind', 'records', 'values'),
    [
        ('msgpack', [msgpack.packb({'a': [1]}), msgpack.packb(3)], [{'a': [1]}, 3]),
        ('json', [b'{"a":  1}', b'[]'], [{'a': 1}, []]),
        ('utf8', ['tëxt'.encode(), b''], ['tëxt', '']),
        ('int(8)', [bytes(8), b'\xff' * 8], [0, -1]),
        ('array(uint8,3)', [b'abc', b'def'], [np.array([97, 98, 99]), np.array([100, 101, 102])]),
    ],
)
def test_records_of_a_type(kind, records, values, tmp_path):
    with bags.bag.Writer(tmp_path / 'a.bagz') as writer:
        for record in records:
            writer.write(record)
    _, found = converted(tmp_path / 'a.bagz', tmp_path / 'out', spec={'record': kind})
    for one, other in zip(found, values, strict=True):
        np.testing.assert_array_equal(one['record'], other)
    with bags.open(tmp_path / 'out') as dataset:
        assert list(dataset.records('record')) == records


def test_records_that_are_not_of_the_type_are_named(tmp_path):
    with bags.bag.Writer(tmp_path / 'a.bagz') as writer:
        for record in (b'{}', b'{', b'[1]'):
            writer.write(record)
    with pytest.raises(bags.SourceError, match=r'a\.bagz, record 1'):
        bags.convert(tmp_path / 'a.bagz', tmp_path / 'out', spec={'record': 'json'})
    done = bags.convert(tmp_path / 'a.bagz', tmp_path / 'out2', spec={'record': 'json'}, on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (2, 1)
    with pytest.raises(bags.SpecError, match='without'):
        bags.convert(tmp_path / 'a.bagz', tmp_path / 'out3', spec={'record': 'json[]'})


def test_damage_is_named(tmp_path):
    path = tmp_path / 'a.bagz'
    with bags.bag.Writer(path) as writer:
        for number in range(5):
            writer.write(np.random.default_rng(number).bytes(3000))
    data = bytearray(path.read_bytes())
    with bags.bag.Reader(path) as reader:
        start = reader.bytes_before(2)
    data[start : start + 8] = bytes(8)
    path.write_bytes(data)
    with pytest.raises(bags.SourceError, match=r'a\.bagz, record 2'):
        bags.convert(path, tmp_path / 'out')
    done = bags.convert(path, tmp_path / 'out2', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (4, 1)
    path.write_bytes(b'\xff' * 9)
    assert open_source(path, on_error='skip').damaged
