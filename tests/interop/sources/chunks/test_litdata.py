"""Import of LitData, written and read by litdata itself: see make_golden_streams.py."""

import json
import shutil

import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import GOLDEN, assert_equal, converted, expected

NAMES = ['litdata', 'litdata-chunk', 'litdata-batch', 'litdata-sample']


@pytest.mark.parametrize('name', NAMES)
def test_values_are_those_of_the_reader_of_litdata(name, tmp_path):
    done, found = converted(GOLDEN / name, tmp_path / 'out')
    assert done.spec['tokens'] == 'array(uint16,?)'
    assert done.spec['nested.a'] == 'int(8)'
    for datapoint, sample in zip(found, expected('litdata'), strict=True):
        nested = sample.pop('nested')
        assert datapoint.pop('nested.a') == nested['a']
        assert datapoint.pop('nested.b').endswith(json.dumps(nested['b'], separators=(',', ':')).encode())
        sample['jpeg'] = sample['jpeg'].transpose(1, 2, 0) if sample['jpeg'].shape[0] == 3 else sample['jpeg']
        assert set(datapoint) == set(sample)
        for field, value in sample.items():
            assert_equal(datapoint[field], value)


@pytest.mark.parametrize('name', NAMES)
def test_files_stay_byte_for_byte(name, tmp_path):
    bags.convert(GOLDEN / name, tmp_path / 'out')
    chunks = b''.join(path.read_bytes() for path in sorted((GOLDEN / 'litdata').glob('*.bin')))
    with bags.open(tmp_path / 'out') as dataset:
        assert len(set(dataset.records('jpeg'))) == 5
        assert all(record in chunks for record in dataset.records('jpeg'))


@pytest.mark.parametrize('name', NAMES)
def test_a_truncated_chunk_is_named(name, tmp_path):
    source = shutil.copytree(GOLDEN / name, tmp_path / 'in')
    chunk = min(source.glob('chunk-0-1*'))
    chunk.write_bytes(chunk.read_bytes()[:-40])
    with pytest.raises(bags.SourceError, match=chunk.name):
        bags.convert(source, tmp_path / 'out')
    chunk.unlink()
    done = bags.convert(source, tmp_path / 'out2', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (3, 1)


@pytest.mark.parametrize(('name', 'lost'), [('chunk', [0, 1, 2]), ('batch', [0, 1]), ('sample', [1])])
def test_damage_in_compressed_samples_is_skipped(name, lost, tmp_path):
    source = shutil.copytree(GOLDEN / f'litdata-{name}', tmp_path / 'in')
    chunk = min(source.glob('chunk-0-0*'))
    whole = chunk.read_bytes()
    frames = [place for place in range(len(whole)) if whole[place : place + 4] == b'\x28\xb5\x2f\xfd']
    place = frames[1 if name == 'sample' else 0]
    chunk.write_bytes(whole[:place] + bytes(4) + whole[place + 4 :])
    with pytest.raises(bags.SourceError, match=f'{chunk.name}, record.* cannot be read as'):
        bags.convert(source, tmp_path / 'out')
    done, found = converted(source, tmp_path / 'some', on_error='skip')
    assert [each['id'] for each in found] == [each for each in range(5) if each not in lost]
    assert len(done.skipped) == 1
    chunk.write_bytes(whole)
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == 5


@pytest.mark.slow
def test_changed_chunks_are_read_or_named(tmp_path):
    source = shutil.copytree(GOLDEN / 'litdata-batch', tmp_path / 'in')
    chunk = source / 'chunk-0-0.bin'
    whole = chunk.read_bytes()
    for place in range(0, 160, 3):
        for mask in (1, 0x80):
            chunk.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            done = bags.convert(source, tmp_path / 'out', on_error='skip', mode='overwrite')
            assert done.skipped or done.datapoints == 5


def test_rows_in_arrow(tmp_path):
    done, found = converted(GOLDEN / 'litdata-rows', tmp_path / 'out')
    assert done.spec == {'facts': 'msgpack', 'id': 'int(8)', 'tags': 'utf8[]', 'text': 'utf8'}
    assert [{**each, 'tags': list(each['tags'])} for each in found] == expected('litdata-rows')
    source = shutil.copytree(GOLDEN / 'litdata-rows', tmp_path / 'in')
    (source / 'chunk-0-1.bin').unlink()
    done = bags.convert(source, tmp_path / 'some', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (3, 1)


def test_what_cannot_be_read_is_said(tmp_path):
    source = shutil.copytree(GOLDEN / 'litdata', tmp_path / 'in')
    whole = (source / 'index.json').read_text()
    for change, message in (
        ({'encryption': {'algorithm': 'fernet'}}, 'expected encryption None'),
        ({'item_loader': 'TokensLoader'}, 'TokensLoader'),
        ({'compression_level': 'bits'}, 'expected compression_level chunk, batch or sample'),
        ({'data_format': ['int']}, 'zip'),
        ({'data_format': ['what', *json.loads(whole)['config']['data_format'][1:]]}, "got 'what'"),
    ):
        index = json.loads(whole)
        index['config'].update(change)
        (source / 'index.json').write_text(json.dumps(index))
        with pytest.raises(bags.SourceError, match=message):
            open_source(source)
    index = json.loads(whole)
    index['chunks'][0]['filename'] = '../chunk-0-0.bin'
    (source / 'index.json').write_text(json.dumps(index))
    with pytest.raises(bags.SourceError, match='name of a file'):
        open_source(source)
