"""Import of LitData, written and read by litdata itself: see make_golden_streams.py."""

import json
import shutil

import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import GOLDEN, assert_equal, converted, expected

NAMES = ['litdata', 'litdata-chunk']


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
def test_a_truncated_chunk_is_named(name, tmp_path):
    source = shutil.copytree(GOLDEN / name, tmp_path / 'in')
    chunk = min(source.glob('chunk-0-1*'))
    chunk.write_bytes(chunk.read_bytes()[:-40])
    with pytest.raises(bags.SourceError, match=chunk.name):
        bags.convert(source, tmp_path / 'out')
    chunk.unlink()
    done = bags.convert(source, tmp_path / 'out2', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (3, 1)


def test_what_cannot_be_read_is_said(tmp_path):
    source = shutil.copytree(GOLDEN / 'litdata', tmp_path / 'in')
    whole = (source / 'index.json').read_text()
    for change, message in (
        ({'encryption': {'algorithm': 'fernet'}}, 'expected encryption None'),
        ({'item_loader': 'TokensLoader'}, 'TokensLoader'),
        ({'compression_level': 'batch'}, 'expected compression_level chunk'),
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
