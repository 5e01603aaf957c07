"""Import of MDS, written and read by streaming itself: see make_golden_streams.py."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import xxhash
import zstandard

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.streams import GOLDEN, assert_equal, converted, expected


def test_values_are_those_of_the_reader_of_streaming(tmp_path):
    done, found = converted(GOLDEN / 'mds', tmp_path / 'out')
    wanted = expected('mds')
    assert done.datapoints == len(wanted) == 4
    assert done.spec['fixed'] == 'array(int16,2,3)'
    assert (done.spec['u8'], done.spec['f16'], done.spec['meta']) == ('uint(1)', 'float(2)', 'json')
    for datapoint, sample in zip(found, wanted, strict=True):
        sample['a_name'] = sample.pop('a name')
        assert set(datapoint) == set(sample)
        for field, value in sample.items():
            assert_equal(datapoint[field], value)


def test_files_stay_byte_for_byte(tmp_path):
    bags.convert(GOLDEN / 'mds', tmp_path / 'out')
    shards = b''.join(path.read_bytes() for path in sorted((GOLDEN / 'mds').glob('*.mds')))
    with bags.open(tmp_path / 'out') as dataset:
        for field in ('jpeg', 'png', 'meta'):
            for record in dataset.records(field):
                assert record in shards


@pytest.mark.parametrize('name', ['mds-zstd', 'mds-gz'])
def test_compressed_shards(name, tmp_path):
    _, found = converted(GOLDEN / name, tmp_path / 'out')
    assert [each['text'] for each in found] == ['tëxt 0', 'tëxt 1', 'tëxt 2']
    np.testing.assert_array_equal(found[2]['any'], [[0, 1, 2], [3, 4, 5]])


def test_notes_say_what_changes():
    notes = open_source(GOLDEN / 'mds').notes
    assert "field 'a name' is named 'a_name'" in notes
    assert any('PNG' in note for note in notes)


def copy(tmp_path):
    return shutil.copytree(GOLDEN / 'mds', tmp_path / 'in')


def test_a_missing_or_truncated_shard_is_named(tmp_path):
    source = copy(tmp_path)
    shard = source / 'shard.00001.mds'
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(bags.SourceError, match=r'shard\.00001\.mds: expected 4691 bytes, got 4688'):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert done.datapoints == 2
    assert [name.rpartition('/')[2] for name, _ in done.skipped] == ['shard.00001.mds']


def test_an_index_without_shards_is_refused(tmp_path):
    (tmp_path / 'in').mkdir()
    shutil.copy(GOLDEN / 'mds/index.json', tmp_path / 'in')
    with pytest.raises(bags.SourceError, match='expected shards of MDS or LitData beside'):
        bags.convert(tmp_path / 'in', tmp_path / 'out')


def test_a_damaged_sample_is_named_and_skipped(tmp_path):
    source = copy(tmp_path)
    shard = source / 'shard.00000.mds'
    data = shard.read_bytes()
    start = data.index(b'\xff\xd8\xff')
    shard.write_bytes(data[:start] + b'\0' + data[start + 1 :])
    with pytest.raises(bags.SourceError, match=r'shard\.00000\.mds, record 0, field .(jpeg|burst)'):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'out2', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (3, 1)


def change_index(source, change):
    index = json.loads((source / 'index.json').read_text())
    change(index['shards'])
    (source / 'index.json').write_text(json.dumps(index))


def test_shards_of_other_columns_and_paths_outside_are_refused(tmp_path):
    source = copy(tmp_path)
    change_index(source, lambda shards: shards[1]['column_encodings'].__setitem__(0, 'str'))
    with pytest.raises(bags.SourceError, match='in each shard'):
        open_source(source)
    shutil.copy(GOLDEN / 'mds' / 'index.json', source)
    change_index(source, lambda shards: shards[1]['raw_data'].update(basename='../secret.mds'))
    with pytest.raises(bags.SourceError, match='secret'):
        open_source(source)
    (source / 'index.json').write_text('[' * 100_000)
    with pytest.raises(bags.SourceError, match=r'index\.json: does not match its format'):
        open_source(source)


def test_folders_joined_by_merge_index(tmp_path):
    """Streaming's `merge_index` writes the paths of shards from the folder of the joined index."""
    shards = []
    for part in ('0', 'deep/1'):
        source = tmp_path / 'in' / part
        shutil.copytree(GOLDEN / 'mds', source)
        for shard in json.loads((source / 'index.json').read_text())['shards']:
            shard['raw_data']['basename'] = f'{part}/{shard["raw_data"]["basename"]}'
            shards.append(shard)
    (tmp_path / 'in/index.json').write_text(json.dumps({'version': 2, 'shards': shards}))
    done, found = converted(tmp_path / 'in', tmp_path / 'out')
    assert [each['id'] for each in found] == [0, -1, -2, -3] * 2
    assert done.notes == open_source(GOLDEN / 'mds').notes
    change_index(tmp_path / 'in', lambda shards: shards.append(shards[0]))
    with pytest.raises(bags.SourceError, match=r'index.json: expected each shard once, got '):
        open_source(tmp_path / 'in')
    for outside in ('../x.mds', '/x.mds', 'a/../../x.mds', 'a//x.mds', 'a\\..\\x.mds'):
        change_index(
            tmp_path / 'in', lambda shards, name=outside: shards[0]['raw_data'].update(basename=name)
        )
        with pytest.raises(bags.SourceError, match='expected the name of a file in its folder'):
            open_source(tmp_path / 'in')


def test_the_cache_of_streaming_has_only_raw_files(tmp_path):
    source = tmp_path / 'in'
    shutil.copytree(GOLDEN / 'mds-zstd', source)
    expected = converted(source, tmp_path / 'whole')[1]
    for index, path in enumerate(sorted(source.glob('*.zstd'))):
        raw = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        path.with_suffix('').write_bytes(raw)
        if index:
            path.unlink()
    done, found = converted(source, tmp_path / 'out')
    assert [each['text'] for each in found] == [each['text'] for each in expected]
    assert 'shards whose compressed files are missing are read from their raw files' in done.notes
    (source / 'shard.00001.mds').unlink()
    with pytest.raises(bags.SourceError, match=r'shard.00001.mds.zstd: expected .* bytes, got no file'):
        open_source(source)


@pytest.mark.parametrize('name', ['sha1', 'md5', 'xxh64', 'xxh3_128'])
def test_hashes_of_the_index_are_compared(name, tmp_path):
    source = copy(tmp_path)
    data = (source / 'shard.00000.mds').read_bytes()
    made = getattr(xxhash, name, None) or getattr(hashlib, name)
    change_index(source, lambda shards: shards[0]['raw_data'].update(hashes={name: made(data).hexdigest()}))
    assert bags.convert(source, tmp_path / 'out').datapoints == 4
    place = data.index('tëxt 0'.encode()) + 6
    (source / 'shard.00000.mds').write_bytes(data[:place] + b'9' + data[place + 1 :])
    with pytest.raises(bags.SourceError, match=rf'shard.00000.mds.*: expected {name} .*, got '):
        bags.convert(source, tmp_path / 'again')


def test_an_interrupted_import_resumes(tmp_path):
    source = copy(tmp_path)
    shard = source / 'shard.00001.mds'
    whole = shard.read_bytes()
    start = whole.index(b'\xff\xd8\xff')
    shard.write_bytes(whole[:start] + b'\0' + whole[start + 1 :])
    with pytest.raises(bags.SourceError):
        bags.convert(source, tmp_path / 'out')
    shard.write_bytes(whole)
    done, found = converted(source, tmp_path / 'out', resume=True)
    assert [each['id'] for each in found] == [0, -1, -2, -3]
    assert done.datapoints == 4


def test_a_text_can_get_another_type(tmp_path):
    done, found = converted(GOLDEN / 'mds', tmp_path / 'out', spec={'data': None, 'meta': 'utf8'})
    assert 'data' not in done.spec
    assert json.loads(found[1]['meta']) == {'i': 1, 'list': [1, None]}


@pytest.mark.parametrize(
    ('key', 'value'), [('basename', '\ud800'), ('column_encodings', 'ndarray:int32:3,x'), ('samples', 'x')]
)
def test_an_index_of_other_values_is_an_error_that_names_it(key, value, tmp_path):
    shutil.copytree(GOLDEN / 'mds', tmp_path / 'mds')
    index = json.loads((tmp_path / 'mds/index.json').read_text())
    for shard in index['shards']:
        if key == 'basename':
            shard['raw_data'][key] = value
        else:
            shard[key] = [value] * len(shard[key]) if key == 'column_encodings' else value
    (tmp_path / 'mds/index.json').write_text(json.dumps(index))
    with pytest.raises(bags.SourceError, match=r'index\.json'):
        open_source(tmp_path / 'mds')
