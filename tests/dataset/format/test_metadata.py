"""Metadata of datasets: written, read, changed, and returned by views."""

import json

import numpy as np
import pytest

import bags
from bags.errors import CorruptError

SPEC = {'id': 'int(4)', 'state': 'array(float32,2)[]', 'state_time': 'float(8)[]'}
METADATA = {
    'robot': 'arm – 7',
    'fields': {'state': {'times': 'state_time', 'unit': 'rad', 'names': ['a', 'b']}, 'id': {'of': 'episode'}},
}


def fill(path, metadata=METADATA, *, count=5, sharded=False, resume=False):
    kind = bags.ShardedDatasetWriter if sharded else bags.DatasetWriter
    options = {'shard_length': 2} if sharded else {}
    with kind(path, SPEC, metadata=metadata, resume=resume, **options) as writer:
        for index in range(count):
            writer.append({'id': index, 'state': np.zeros((3, 2), 'f4'), 'state_time': [0.0, 0.1, 0.2]})
    return path


@pytest.mark.parametrize('sharded', [False, True])
def test_metadata_is_kept(tmp_path, sharded):
    path = fill(tmp_path / 'a', sharded=sharded)
    reader = bags.open(path)
    assert reader.metadata == METADATA
    reader.metadata['robot'] = 'changed'
    assert bags.open(path).metadata == reader.metadata == METADATA
    assert list(bags.verify(path)) == []
    assert bags.info(path).metadata == METADATA
    fill(path, None, sharded=sharded, resume=True)
    assert bags.open(path).metadata == METADATA
    folders = sorted(path.iterdir()) if sharded else [path]
    assert all(json.loads((folder / 'metadata.json').read_text()) == METADATA for folder in folders)
    bags.set_metadata(path, {'robot': 'other'})
    assert bags.open(path).metadata == {'robot': 'other'}
    fill(path, {'robot': 'third'}, sharded=sharded, resume=True)
    assert bags.open(path).metadata == {'robot': 'third'}
    folders = sorted(path.iterdir()) if sharded else [path]
    assert all(json.loads((folder / 'metadata.json').read_text()) == {'robot': 'third'} for folder in folders)
    bags.set_metadata(path, {})
    assert bags.open(path).metadata == {}
    assert len(bags.open(path)) == 15


def test_views(tmp_path):
    reader = bags.open(fill(tmp_path / 'a'))
    assert reader[1:3].metadata == METADATA
    assert reader[1:3, 'id'].metadata == {'robot': 'arm – 7', 'fields': {'id': {'of': 'episode'}}}
    assert bags.concat([reader, reader]).metadata == METADATA
    assert reader.windows(every='state', state=bags.steps(0, 2)).metadata == METADATA
    with bags.DatasetWriter(tmp_path / 'b', {'id': 'int(4)', 'x': 'int(4)'}, metadata={
        'robot': 'leg', 'task': 'walk', 'fields': {'id': {'of': 'step'}, 'x': {'unit': 'm'}}
    }) as writer:  # fmt: skip
        for index in range(5):
            writer.append({'id': index, 'x': index})
    joined = bags.join([tmp_path / 'a', tmp_path / 'b'])
    assert joined.metadata == {
        'robot': 'arm – 7',
        'task': 'walk',
        'fields': {'state': METADATA['fields']['state'], 'id': {'of': 'step'}, 'x': {'unit': 'm'}},
    }


def test_copies(tmp_path):
    reader = bags.open(fill(tmp_path / 'a'))
    bags.copy(reader, tmp_path / 'b', fields=['id', 'state_time'])
    assert bags.open(tmp_path / 'b').metadata == {'robot': 'arm – 7', 'fields': {'id': {'of': 'episode'}}}


def test_copies_and_exports_without_the_field_of_times(tmp_path):
    reader = bags.open(fill(tmp_path / 'a'))
    without = {'robot': 'arm – 7', 'fields': {'state': {'unit': 'rad', 'names': ['a', 'b']}}}
    bags.copy(reader, tmp_path / 'b', fields='state')
    assert bags.open(tmp_path / 'b').metadata == without
    bags.export(reader.select(fields='state'), tmp_path / 'tars')
    bags.convert(tmp_path / 'tars', tmp_path / 'c')
    assert bags.open(tmp_path / 'c').metadata == without
    windows = reader.windows(every='state', state=bags.steps(0, 2), state_time=bags.steps(0, 2))
    bags.copy(windows, tmp_path / 'd', fields=('state', 'state_time'))
    assert bags.open(tmp_path / 'd').metadata == without
    apart = bags.join([reader.select(fields='state'), reader.select(fields='state_time')])
    bags.copy(apart, tmp_path / 'e')
    assert bags.open(tmp_path / 'e').metadata['fields'] == {'state': METADATA['fields']['state']}


def test_object_stores(tmp_path):
    for path, sharded in (('memory://metadata/a', False), ('memory://metadata/b', True)):
        fill(path, sharded=sharded)
        assert bags.open(path).metadata == METADATA
        bags.set_metadata(path, {'x': 1})
        assert bags.open(path).metadata == {'x': 1}


@pytest.mark.parametrize(('metadata', 'error', 'text'), [
    ([1], TypeError, 'mapping'),
    ({'x': object()}, TypeError, 'JSON'),
    ({'x': float('nan')}, ValueError, 'JSON'),
    ({'x': 'y' * (1 << 24)}, ValueError, 'at most'),
    ({'fields': {'nothing': {}}}, ValueError, "'nothing'"),
    ({'fields': {'state': 3}}, TypeError, "'state'"),
    ({'fields': {'state': {'rate': 0}}}, ValueError, 'rate'),
    ({'fields': {'state': {'rate': 'x'}}}, ValueError, 'rate'),
    ({'fields': {'state': {'start': None}}}, ValueError, 'start'),
    ({'fields': {'state': {'times': 'id'}}}, ValueError, 'times'),
])  # fmt: skip
def test_invalid_metadata(tmp_path, metadata, error, text):
    for sharded in (False, True):
        with pytest.raises(error, match=text):
            fill(tmp_path / f'x{sharded}', metadata, sharded=sharded)
    path = fill(tmp_path / 'a')
    with pytest.raises(error, match=text):
        bags.set_metadata(path, metadata)
    assert bags.open(path).metadata == METADATA


@pytest.mark.parametrize('data', [b'', b'{', b'[1]', b'{"fields": 3}'])
def test_damaged_metadata(tmp_path, data):
    path = fill(tmp_path / 'a')
    (path / 'metadata.json').write_bytes(data)
    reader = bags.open(path)
    assert reader[0]['id'] == 0
    with pytest.raises(CorruptError, match=r'metadata\.json'):
        _ = reader.metadata
    assert [finding.path for finding in bags.verify(path)] == [str(path / 'metadata.json')]


@pytest.mark.parametrize(
    ('field', 'facts', 'text'),
    [
        ('cam', {'times': 'words'}, 'times: expected a sequence of numbers'),
        ('cam', {'times': 'cam'}, 'times: expected a sequence of numbers'),
        ('film', {'elements': 'items'}, 'elements: expected a sequence of clips or recordings'),
        ('cam', {'elements': 'frames'}, "elements: expected 'items'"),
    ],
)
def test_facts_that_contradict_the_types(tmp_path, field, facts, text):
    spec = {'cam': 'mp4[]', 'film': 'video', 'words': 'utf8[]'}
    with pytest.raises(ValueError, match=f"field '{field}'.*{text}"):
        bags.DatasetWriter(tmp_path / 'd', spec, metadata={'fields': {field: facts}})
    bags.DatasetWriter(tmp_path / 'd', spec).close()
    with pytest.raises(ValueError, match=f"field '{field}'.*{text}"):
        bags.set_metadata(tmp_path / 'd', {'fields': {field: facts}})


def test_doubtful_rates_of_pictures(tmp_path):
    facts = {'fields': {'cam': {'rate': 30_000}, 'state': {'rate': 30_000}}}
    with pytest.warns(RuntimeWarning, match=r"field 'cam' of type jpeg\[\]: rate 30000") as caught:
        bags.DatasetWriter(tmp_path / 'd', {'cam': 'jpeg[]', 'state': 'float(4)[]'}, metadata=facts).close()
    assert not any('state' in str(each.message) for each in caught)
