"""Import of ArrayRecord files, written by array_record itself."""

import json

import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import converted

array_record = pytest.importorskip('array_record.python.array_record_module')


def write(path, records):
    writer = array_record.ArrayRecordWriter(str(path), 'group_size:2')
    for record in records:
        writer.write(record)
    writer.close()


def test_records_become_a_field_of_the_type_that_is_named(tmp_path):
    records = [json.dumps({'number': number}).encode() for number in range(150)]
    write(tmp_path / 'a.array_record', records)
    write(tmp_path / 'b.array_record', records[:3])
    source = str(tmp_path / '*.array_record')
    done, found = converted(source, tmp_path / 'out')
    assert done.spec == {'record': 'bytes'}
    assert [each['record'] for each in found] == records + records[:3]
    _, found = converted(source, tmp_path / 'out2', spec={'record': 'json'})
    assert found[149] == {'record': {'number': 149}}


def test_damage_is_named(tmp_path):
    path = tmp_path / 'a.array_record'
    write(path, [bytes([number]) * 5000 for number in range(20)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(bags.SourceError, match=r'a\.array_record'):
        bags.convert(path, tmp_path / 'out')
    path.write_bytes(b'no such file')
    assert open_source(path, on_error='skip').damaged
