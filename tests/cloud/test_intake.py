"""Folders and tars in object stores: import from them and export to them."""

import io
import json
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from bags.storage import store_for


@pytest.fixture(params=['s3', 'gs', 'memory'])
def place(request):
    """A folder in an object store, its options, and those of fsspec for the same."""
    if request.param == 'memory':
        return 'memory://intake', {}
    if request.param == 's3':
        url = request.getfixturevalue('s3')
        return 's3://bucket/intake', {'key': 'a', 'secret': 'b', 'endpoint_url': url}
    url = request.getfixturevalue('gcs')
    return 'gs://bucket/intake', {'token': 'anon', 'project': 't', 'endpoint_url': url}


@pytest.mark.slow('s3')
def test_folders_and_tars_there_and_back(place, tmp_path):
    root, options = place
    (tmp_path / 'in').mkdir()
    for number in range(9):
        (tmp_path / 'in' / f'{number}.txt').write_text(f'text {number}')
        (tmp_path / 'in' / f'{number}.BIN').write_bytes(bytes([number]) * number * 100)
    bags.convert(tmp_path / 'in', f'{root}/a', storage_options=options)
    with bags.open(f'{root}/a', storage_options=options) as dataset:
        rows = list(dataset)
        bags.export(dataset, f'{root}/files', format='files', storage_options=options)
        bags.export(dataset, f'{root}/tars', shard_length=4, storage_options=options)
    assert rows[3] == {
        '__extensions__': {'bin': 'BIN'},
        '__key__': '3',
        'bin': b'\3' * 300,
        'txt': 'text 3',
    }
    for name in ('files', 'tars'):
        bags.convert(f'{root}/{name}', tmp_path / name, source_options=options)
        assert list(bags.open(tmp_path / name)) == rows


@pytest.mark.parametrize('layout', ['coco', 'yolo', 'fields', 'tables'])
def test_layouts_of_folders(layout, s3, tmp_path):
    root, options = f's3://bucket/layouts/{layout}', {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    picture = (Path(__file__).parents[2] / 'examples/data/cat.jpg').read_bytes()
    images = [{'id': number, 'file_name': f'{number}.jpg'} for number in range(3)]
    box = {'id': 1, 'image_id': 1, 'category_id': 5, 'bbox': [1, 2, 3, 4]}
    coco = {'images': images, 'annotations': [box], 'categories': [{'id': 5, 'name': 'cat'}]}
    files = {f'images/{number}.jpg': picture for number in range(3)}
    files |= {
        'coco': {'annotations/instances.json': json.dumps(coco).encode()},
        'yolo': {'labels/1.txt': b'0 0.5 0.5 0.25 0.25', 'data.yaml': b'names: [cat]'},
        'fields': {f'texts/{number}.txt': b'x' for number in range(3)},
        'tables': {'labels.csv': b'file,labels\n1.jpg,0\n'},
    }[layout]
    for name, data in files.items():
        put('s3', options, f'layouts/{layout}/{name}', data)
    given = {'layout': layout} if layout == 'fields' else {}
    done = bags.convert(
        root, f'{root}-index', link=True, source_options=options, storage_options=options, **given
    )
    assert done.notes[0].startswith(f'read as {layout}: 3 datapoints, ')
    put('s3', options, f'layouts/{layout}/images/3.jpg', picture)
    if layout == 'fields':
        put('s3', options, f'layouts/{layout}/texts/3.txt', b'x')
    again = bags.convert(
        root, f'{root}-index', link=True, update=True, source_options=options, storage_options=options
    )
    assert again.datapoints == 4
    assert again.notes[0].startswith(f'read as {layout}: 4 datapoints, ')
    with bags.open(f'{root}-index', trust_links='s3://bucket', storage_options=options) as dataset:
        row = dataset[1]
        assert row['images' if layout == 'fields' else 'jpg'].shape == (300, 451, 3)
        if layout in ('coco', 'yolo'):
            assert row['labels'].tolist() == [0]
            assert dataset.metadata['fields']['labels']['classes'] == ['cat']


def test_options_of_storage_are_those_of_open(s3, tmp_path):
    options = {
        'access_key_id': 'a', 'secret': 'b', 'endpoint_url': s3, 'region': 'us-east-1', 'timeout': 30,
        'connect_timeout': 5, 'retries': 3, 'concurrency': 8, 'client': 'obstore',
    }  # fmt: skip
    bags.from_numpy({'id': np.arange(5)}, tmp_path / 'a')
    with bags.open(tmp_path / 'a') as dataset:
        for format in ('webdataset', 'files', 'parquet'):
            bags.export(dataset, f's3://bucket/options/{format}', format=format, storage_options=options)
            bags.convert(f's3://bucket/options/{format}', tmp_path / format, source_options=options)
            assert sorted(bags.open(tmp_path / format).column('id').tolist()) == list(range(5))


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    """An environment in which S3 is not found without options."""
    for name in ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_PROFILE',
                 'AWS_ENDPOINT_URL'):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')
    monkeypatch.setenv('AWS_DEFAULT_REGION', 'us-east-1')
    for name in ('AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE'):
        monkeypatch.setenv(name, str(tmp_path / 'none'))


ADVICE = 'storage_options apply to the dataset; pass source_options= for the source'


def test_options_of_the_source_are_advised_between_urls(s3, tmp_path, no_credentials):
    root, options = 's3://bucket/advised', {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    (tmp_path / 'in').mkdir()
    (tmp_path / 'in/0.txt').write_text('text')
    bags.convert(tmp_path / 'in', f'{root}/dataset', storage_options=options)
    with bags.open(f'{root}/dataset', storage_options=options) as dataset:
        bags.export(dataset, f'{root}/tars', storage_options=options)
    with pytest.raises(bags.SourceError, match=rf'{root}/tars: cannot be read: .*{ADVICE}'):
        bags.convert(f'{root}/tars', f'{root}/again', storage_options=options)
    done = bags.convert(f'{root}/tars', f'{root}/again', storage_options=options, source_options=options)
    assert done.datapoints == 1
    with pytest.raises(ValueError, match=rf'convert: {ADVICE} {root}/tars'):
        bags.convert(f'{root}/tars', tmp_path / 'x', storage_options=options)
    with pytest.raises(FileNotFoundError) as error:
        bags.convert('memory://nothing', f'{root}/again', storage_options=options)
    assert error.value.__notes__ == [ADVICE]


def test_a_dataset_is_copied_between_urls(s3, tmp_path, no_credentials):
    root, options = 's3://bucket/copied', {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    bags.from_numpy({'id': np.arange(5)}, f'{root}/a', storage_options=options)
    done = bags.copy(f'{root}/a', f'{root}/b', storage_options=options, source_options=options)
    assert done.datapoints == 5
    assert bags.copy(f'{root}/b', tmp_path / 'c', source_options=options).datapoints == 5
    assert bags.open(tmp_path / 'c').column('id').tolist() == list(range(5))
    with pytest.raises(ValueError, match=rf'copy: {ADVICE} {root}/a'):
        bags.copy(f'{root}/a', tmp_path / 'd', storage_options=options)
    with pytest.raises(OSError) as error:
        bags.copy(f'{root}/a', f'{root}/d', storage_options={**options, 'retries': 0})
    assert error.value.__notes__[-1] == ADVICE
    with pytest.raises(ValueError, match='source_options: have no effect for a dataset that is open'):
        bags.copy(bags.open(tmp_path / 'c'), tmp_path / 'd', source_options=options)
    assert not (tmp_path / 'd').exists()


def put(root, options, key, data=b''):
    """Writes an object of any key, which may end with a slash."""
    if root.startswith('s3'):
        import boto3

        server = options['endpoint_url']
        keys = {'aws_access_key_id': 'a', 'aws_secret_access_key': 'b'}
        client = boto3.client('s3', endpoint_url=server, region_name='us-east-1', **keys)
        client.put_object(Bucket='bucket', Key=key, Body=data)
        client.close()
    else:
        query = urllib.parse.urlencode({'uploadType': 'media', 'name': key})
        address = f'{options["endpoint_url"]}/upload/storage/v1/b/bucket/o?{query}'
        urllib.request.urlopen(urllib.request.Request(address, data, method='POST')).close()


@pytest.mark.parametrize('place', ['s3', 'gs'], indirect=True)
def test_keys_that_consoles_make_for_folders_are_no_files(place, tmp_path):
    root, options = place
    with tarfile.open(tmp_path / '0.tar', 'w') as tar:
        tar.add(__file__, 'a.txt')
    for name, data in {
        '': b'', 'cats/': b'', 'cats/0.txt': b'a', 'dogs/': b'', 'dogs/0.txt': b'b', 'none/': b'',
    }.items():  # fmt: skip
        put(root, options, f'intake/classes/{name}', data)
    for name in ('', 'part/', 'part/0.tar'):
        data = (tmp_path / '0.tar').read_bytes() if name.endswith('.tar') else b''
        put(root, options, f'intake/shards/{name}', data)
    found = open_source(f'{root}/classes', storage_options=options)
    assert found.spec == {'__key__': 'utf8', 'label': 'utf8', 'txt': 'utf8'}
    (note,) = found.notes
    assert note.endswith("; 1 left out: 'none'")
    assert bags.convert(found, tmp_path / 'out').datapoints == 2
    assert open_source(f'{root}/shards', storage_options=options).format == 'webdataset'


@pytest.mark.parametrize('place', ['s3', 'gs'], indirect=True)
def test_a_folder_that_a_console_created_is_empty(place):
    root, options = place
    for name in ('plain', 'shards', 'export'):
        put(root, options, f'intake/created/{name}/')
    root, settings = f'{root}/created', {'storage_options': options}
    bags.from_numpy({'id': np.arange(5)}, f'{root}/shards/', **settings)
    with bags.DatasetWriter(f'{root}/plain/', {'id': 'int'}, **settings) as writer:
        writer.append({'id': 3})
    with bags.open(f'{root}/plain', **settings) as dataset:
        assert list(dataset) == [{'id': 3}]
        bags.export(dataset, f'{root}/export/', format='parquet', **settings)
    assert open_source(f'{root}/export/', storage_options=options).count == 1


KEYS = ['a b', 'ü', 'a%20b', 'a#b', 'a?b', '[x]', 'a*b', 'a\\b', 'a:b', 'x{1,2}', '~', 'a%2Fb']


def test_keys_of_any_letters_are_read(s3, tmp_path):
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    for key in KEYS:
        put('s3', options, f'letters/{key}.txt', key.encode())
    bags.convert('s3://bucket/letters', tmp_path / 'out', source_options=options)
    with bags.open(tmp_path / 'out') as dataset:
        assert {row['__key__']: row['txt'] for row in dataset} == {key: key for key in KEYS}


@pytest.mark.parametrize('key', ['a//b', '../b', './b', 'a\x7fb'])
def test_keys_that_obstore_cannot_read_need_the_other_client(key, s3, tmp_path):
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    folder = f'odd-{key.encode().hex()}'
    put('s3', options, f'{folder}/{key}.txt', b'text')
    with pytest.raises(OSError, match=r"cannot read the key .*: set the storage option client='fsspec'"):
        bags.convert(f's3://bucket/{folder}', tmp_path / 'out', source_options=options)
    options['client'] = 'fsspec'
    assert open_source(f's3://bucket/{folder}', storage_options=options).count == 1


PATTERNS = {
    '*/*.csv': 1,
    '**/*.csv': 2,
    '**': 2,
    '[ab]/x.csv': 1,
    '*': 2,
    '?/c/*.csv': 1,
}


@pytest.mark.slow('s3', 'gs')
def test_globs(place, tmp_path):
    root, options = place
    for name in ('a/x', 'b/c/y'):
        store, path = store_for(f'{root}/globs/{name}.csv', None, options)
        store.replace(path, b'n\n1\n')
        (tmp_path / f'{name}.csv').parent.mkdir(parents=True)
        (tmp_path / f'{name}.csv').write_bytes(b'n\n1\n')
    for folder, source_options in ((f'{root}/globs', options), (tmp_path, None)):
        counts = {
            pattern: open_source(f'{folder}/{pattern}', storage_options=source_options).count
            for pattern in PATTERNS
        }
        assert counts == PATTERNS
        with pytest.raises(FileNotFoundError, match='no files to import'):
            open_source(f'{folder}/*/none.csv', storage_options=source_options)


KILLED = """
import json, os, signal, sys
from bags.interop.targets.target import Target
import bags
path, url, format, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
create, count = Target.create, 0
def killed(*args):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return create(*args)
Target.create = killed
bags.export(path, url, format=format, storage_options=options, shard_length=3)
"""


@pytest.mark.slow(all_but='obstore-webdataset')
@pytest.mark.parametrize('format', ['webdataset', 'parquet'])
@pytest.mark.parametrize('client', ['obstore', 'fsspec'])
def test_an_export_that_was_killed_is_resumed(format, client, s3, tmp_path, kit):
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3, 'client': client}
    url, settings = f's3://bucket/killed/{format}-{client}', {'format': format, 'storage_options': options}
    with bags.DatasetWriter(tmp_path / 'a', {'__key__': 'utf8', 'bin': 'bytes'}) as writer:
        for number in range(9):
            writer.append({'__key__': f'{number:02}', 'bin': bytes([number]) * 3_000_000})
    with pytest.raises(AssertionError):  # Its exit status.
        kit.python(KILLED, tmp_path / 'a', url, format, json.dumps(options))
    with pytest.raises(bags.SourceError, match='is an unfinished export'):
        bags.convert(url, tmp_path / 'b', source_options=options)
    with pytest.raises(FileExistsError, match='holds an unfinished export: resume=True continues it'):
        bags.export(tmp_path / 'a', url, shard_length=3, **settings)
    done = bags.export(tmp_path / 'a', url, shard_length=3, resume=True, **settings)
    assert (done.datapoints, done.shards) == (9, 3)
    bags.convert(url, tmp_path / 'b', source_options=options)
    assert list(bags.open(tmp_path / 'b')) == list(bags.open(tmp_path / 'a'))


def test_an_export_that_fails_leaves_nothing(s3, tmp_path):
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    with bags.DatasetWriter(tmp_path / 'a', {'__key__': 'utf8', 'bin': 'bytes'}) as writer:
        for number in (0, 1, 1):
            writer.append({'__key__': f'{number}', 'bin': bytes([number]) * 6_000_000})
    for format in ('webdataset', 'files'):
        url = f's3://bucket/failed/{format}'
        with pytest.raises(bags.SourceError):
            bags.export(tmp_path / 'a', url, format=format, storage_options=options)
        store, path = store_for(url, None, options)
        with pytest.raises(FileNotFoundError):
            store.names(path)


def pack(letter):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w') as tar:
        for number in range(3):
            member = tarfile.TarInfo(f'{number}.bin')
            member.size = 100_000
            tar.addfile(member, io.BytesIO(letter * member.size))
    return data.getvalue()


def test_a_tar_that_is_replaced_while_it_is_imported(s3, tmp_path):
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    put('s3', options, 'replaced/0.tar', pack(b'a'))
    source = open_source('s3://bucket/replaced', storage_options=options)
    put('s3', options, 'replaced/0.tar', pack(b'b'))
    with pytest.raises(bags.SourceError, match=r'replaced/0\.tar: was replaced since it was opened'):
        bags.convert(source, tmp_path / 'out')
