"""Datasets that are exported as files or tars and imported again have the same fields, types and records."""

import io
import json
import tarfile

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

SPEC = {
    'any': 'array', 'anys': 'array[]', 'blob': 'bytes', 'blobs': 'bytes[]?', 'box': 'array(float32,4)',
    'boxes': 'array(float32,4)[]', 'caption': 'utf8', 'class': 'int(1)', 'data': 'bytes', 'flag': 'bool',
    'frames': 'jpeg[]', 'id': 'int', 'image': 'jpeg', 'image.txt': 'utf8', 'jpg': 'png', 'label': 'utf8',
    'lengths': 'array(float32,?)[]', 'maybe': 'utf8?', 'meta': 'json', 'msgpack': 'msgpack?', 'npy': 'array',
    'numbers': 'int(2)[]', 'odd': 'int(3)', 'pic': 'image', 'pics': 'image[]', 'score': 'float(4)?',
    'tags': 'utf8[]', 'time': 'array(datetime64[us])', 'tree': 'tree', 'u': 'uint(1)', 'video': 'mp4',
    'wav': 'wav?',
}  # fmt: skip


def picture(index, format='jpeg'):
    return bags.encoders[format](np.full((8, 8, 3), index, np.uint8))


def row(index):
    return {
        'any': np.ones((index, 2)), 'anys': [np.arange(index)] * index, 'blob': b'\0\n\xff,%d' % index,
        'blobs': None if not index else [b'x'] * index, 'box': np.full(4, index, np.float32),
        'boxes': np.ones((index, 4), np.float32), 'caption': f'c{index}\n', 'class': index,
        'data': b'd', 'flag': bool(index % 2), 'frames': [picture(item) for item in range(index)],
        'id': 3 * index, 'image': picture(index), 'image.txt': 'no picture', 'jpg': picture(index, 'png'),
        'label': 'x', 'lengths': [np.ones(length, np.float32) for length in range(index)],
        'maybe': None if index % 2 else 'm', 'meta': {'a': [index]}, 'msgpack': None if index == 2 else {},
        'npy': np.eye(2), 'numbers': list(range(index)), 'odd': -index,
        'pic': picture(index, 'png' if index % 2 else 'jpeg'), 'pics': [picture(index)] * (index % 2),
        'score': None if index % 3 else 1 / 3, 'tags': ['a.b', 'ü'] * (index % 3),
        'time': np.datetime64('2024-01-01', 'us') + np.timedelta64(index, 's'), 'tree': {'a': np.ones(3)},
        'u': index, 'video': [np.zeros((16, 16, 3), np.uint8)] * 3,
        'wav': None if index else (np.zeros((10, 1), np.int16), 8000),
    }  # fmt: skip


def records(path):
    """Returns the records of all datapoints, sorted."""

    def as_bytes(value):
        return [bytes(item) for item in value] if isinstance(value, list) else value and bytes(value)

    with bags.open(path, raw=True) as dataset:
        found = [{name: as_bytes(value) for name, value in each.items()} for each in dataset]
    return sorted(found, key=lambda each: each['id'])


@pytest.mark.parametrize('key', [None, 'id'])
@pytest.mark.parametrize('has_keys', [False, True])
@pytest.mark.parametrize('format', ['webdataset', 'files'])
def test_types_names_and_records_come_back(format, has_keys, key, tmp_path):
    spec = SPEC | ({'__key__': 'utf8'} if has_keys else {})
    metadata = {'robot': 'arm', 'fields': {'boxes': {'rate': 30}}}
    with bags.DatasetWriter(tmp_path / 'in', spec, metadata=metadata) as writer:
        for index in range(5):
            writer.append(row(index) | ({'__key__': f'k.{index}/x.y{index}'} if has_keys else {}))
    bags.export(tmp_path / 'in', tmp_path / 'out', format=format, key=key)
    done = bags.convert(tmp_path / 'out', tmp_path / 'again')
    assert done.spec == dict(sorted(spec.items()))
    assert records(tmp_path / 'again') == records(tmp_path / 'in')
    with bags.open(tmp_path / 'again') as dataset:
        assert dataset.metadata == metadata


@pytest.mark.parametrize('format', ['webdataset', 'files'])
def test_an_interrupted_import_is_resumed(format, tmp_path):
    spec = {'id': 'int', 'words': 'utf8[]'}
    with bags.DatasetWriter(tmp_path / 'in', spec) as writer:
        for index in range(9):
            writer.append({'id': index, 'words': ['a'] * index})
    bags.export(tmp_path / 'in', tmp_path / 'out', format=format)
    source = open_source(tmp_path / 'out')
    load = source.load

    def fail(entry):
        if entry.key == '000000006':
            raise KeyboardInterrupt
        return load(entry)

    source.load = fail
    with pytest.raises(KeyboardInterrupt):
        bags.convert(source, tmp_path / 'again', workers=1)
    done = bags.convert(tmp_path / 'out', tmp_path / 'again', resume=True)
    assert (done.datapoints, done.spec) == (9, spec)
    assert records(tmp_path / 'again') == records(tmp_path / 'in')


def test_records_of_types_of_your_own_come_back(tmp_path):
    encoders = bags.encoders | {'point': bytes}
    with bags.DatasetWriter(tmp_path / 'in', {'id': 'int', 'at': 'point[]'}, encoders) as writer:
        writer.append({'id': 1, 'at': [(1, 2), (3, 4)]})
    bags.export(tmp_path / 'in', tmp_path / 'out')
    bags.convert(tmp_path / 'out', tmp_path / 'again')
    decoders = bags.decoders | {'point': tuple}
    with bags.open(tmp_path / 'again', decoders) as dataset:
        assert dataset[0] == {'at': [(1, 2), (3, 4)], 'id': 1}


def test_some_fields_and_changes_of_types(tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', SPEC) as writer:
        writer.append(row(1))
    bags.export(tmp_path / 'in', tmp_path / 'out', fields=('id', 'image', 'numbers'))
    assert bags.convert(tmp_path / 'out', tmp_path / 'a').spec == {
        'id': 'int', 'image': 'jpeg', 'numbers': 'int(2)[]',
    }  # fmt: skip
    changes = {'id': 'utf8', 'image': None}
    assert bags.convert(tmp_path / 'out', tmp_path / 'b', spec=changes).spec == {
        'id': 'utf8', 'numbers': 'int(2)[]',
    }  # fmt: skip
    with bags.open(tmp_path / 'b') as dataset:
        assert dataset[0, 'id'] == {'id': '3'}


def test_files_of_no_field_and_a_damaged_spec(tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'id': 'int'}) as writer:
        writer.append({'id': 1})
    bags.export(tmp_path / 'in', tmp_path / 'out', format='files')
    (tmp_path / 'out/000000000.other').write_bytes(b'x')
    with pytest.raises(bags.SourceError, match=r"out: expected a file of id, got 'other'"):
        bags.convert(tmp_path / 'out', tmp_path / 'again')
    bags.export(tmp_path / 'in', tmp_path / 'tars')
    with tarfile.open(tmp_path / 'tars/000000.tar', 'a') as tar:
        member = tarfile.TarInfo('1.other')
        member.size = 1
        tar.addfile(member, io.BytesIO(b'x'))
    with pytest.raises(bags.SourceError, match=r"000000\.tar: expected a file of id, got 'other'"):
        bags.convert(tmp_path / 'tars', tmp_path / 'again')
    for exported in (
        3,
        {'spec': {'id': 'int'}},
        {'spec': {'id': 'in t'}, 'key': ''},
        {'spec': {'a': 'int'}, 'key': 3},
    ):
        (tmp_path / 'tars/metadata.json').write_text(json.dumps({'__export__': exported}))
        with pytest.raises(bags.SourceError, match=r'metadata\.json: __export__: expected a spec and a key'):
            bags.convert(tmp_path / 'tars', tmp_path / 'again')
    assert not (tmp_path / 'again').exists()


def test_two_fields_of_one_file_name(tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'photo': 'jpeg', 'photo.jpg': 'jpeg'}) as writer:
        writer.append({'photo': picture(0), 'photo.jpg': picture(1)})
    for format in ('webdataset', 'files'):
        with pytest.raises(
            bags.SourceError, match=r'datapoint 0, .*two fields have the same file name: photo\.jpg, '
        ):
            bags.export(tmp_path / 'in', tmp_path / 'out', format=format)
        assert not list((tmp_path / 'out').iterdir())


@pytest.mark.parametrize(
    ('name', 'error'),
    [('000000000.id', "expected one file of 'id' for a datapoint, got two"),
     ('000000000.words.000003.txt', r"field 'words': expected items 0 to 2, got others")],
)  # fmt: skip
def test_files_that_are_there_twice_or_missing(name, error, tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'id': 'int', 'words': 'utf8[]'}) as writer:
        writer.append({'id': 1, 'words': ['a', 'b']})
    bags.export(tmp_path / 'in', tmp_path / 'out')
    with tarfile.open(tmp_path / 'out/000000.tar', 'a') as tar:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(b'2'))
    with pytest.raises(bags.SourceError, match=rf'000000\.tar: {error}'):
        bags.convert(tmp_path / 'out', tmp_path / 'again')


@pytest.mark.parametrize('format', ['webdataset', 'files'])
def test_a_datapoint_without_files_is_refused(format, tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'caption': 'utf8?', 'words': 'utf8[]'}) as writer:
        writer.append({'caption': 'one', 'words': []})
        writer.append({'caption': None, 'words': []})
    with pytest.raises(bags.SourceError, match='datapoint 1: expected at least one file'):
        bags.export(tmp_path / 'a', tmp_path / 'b', format=format, progress=False)


@pytest.mark.parametrize('format', ['webdataset', 'files'])
def test_a_dataset_without_datapoints_comes_back(format, tmp_path):
    spec = {'id': 'int(8)', 'text': 'utf8'}
    bags.DatasetWriter(tmp_path / 'a', spec, metadata={'robot': 'arm'}).close()
    bags.export(tmp_path / 'a', tmp_path / 'b', format=format)
    assert bags.convert(tmp_path / 'b', tmp_path / 'c').datapoints == 0
    with bags.open(tmp_path / 'c') as dataset:
        assert (len(dataset), dataset.spec, dataset.metadata) == (0, spec, {'robot': 'arm'})


KEYS = [
    '0', 'README', 'a/LICENSE', 'checksums', '_metadata', 'Thumbs', 'desktop', '.hidden', '.git/config',
    '__MACOSX/x', '__data__', 'md5sum.of', 'dataset_info', 'metadata', 'b/._c', 'x.tmp',
    '~$x', 'x~', '#x#', 'x.txt',
]  # fmt: skip


@pytest.mark.parametrize('format', ['webdataset', 'files'])
def test_keys_that_look_like_files_of_editors_come_back(format, tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'__key__': 'utf8', 'data': 'bytes'}) as writer:
        for key in ('3.jpg', '3.jpg~', 'x/#4.txt#', '~$5'):
            writer.append({'__key__': key, 'data': b'x'})
    bags.export(tmp_path / 'in', tmp_path / 'out', format=format)
    bags.convert(tmp_path / 'out', tmp_path / 'again')
    with bags.open(tmp_path / 'in') as before, bags.open(tmp_path / 'again') as dataset:
        assert sorted(dataset.column('__key__')) == sorted(before.column('__key__'))


@pytest.mark.parametrize(
    'others',
    [
        {},
        {'db': 'bytes?', 'md5': 'bytes', 'tar': 'bytes'},
        {'swp': 'bytes'},
        {'bak': 'bytes'},
        {'box': 'float(4)[]'},
    ],
)
@pytest.mark.parametrize('format', ['webdataset', 'files'])
@pytest.mark.parametrize('keys', [KEYS, ['README'], ['Thumbs'], ['metadata'], ['a', 'b']])
def test_keys_that_look_like_other_files_come_back(keys, format, others, tmp_path):
    spec = {'__key__': 'utf8', 'txt': 'utf8', 'csv': 'utf8', 'ini': 'bytes', **others}
    with bags.DatasetWriter(tmp_path / 'in', spec) as writer:
        for key in keys:
            values = {'db': b'b', 'md5': b'c', 'tar': b'd', 'swp': b'e', 'bak': b'f', 'box': [1.0]}
            row = {'__key__': key, 'txt': key, 'csv': 'file_name,x\n', 'ini': b'a'}
            writer.append(row | {name: values[name] for name in others})
    bags.export(tmp_path / 'in', tmp_path / 'out', format=format)
    done = bags.convert(tmp_path / 'out', tmp_path / 'again')
    with bags.open(tmp_path / 'in') as before, bags.open(tmp_path / 'again') as dataset:
        assert dataset.spec == before.spec
        rows = sorted(before, key=lambda each: each['__key__'])
        assert sorted(dataset, key=lambda each: each['__key__']) == rows
    notes = [note for note in done.notes if not note.startswith('read as ')]
    assert not notes or notes[0].startswith('files *.')
