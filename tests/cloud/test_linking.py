"""Data on object stores and web servers that is linked: requests, bytes, and the values of a copy."""

import io
import re
import zipfile

import fsspec
import pytest

import bags
from bags.storage import store_for
from tests.interop.test_linking import GOLDEN, make_tar, photo
from tests.servers import WebServer

PHOTO_BYTES = len(photo(0))


def put(url, options, data):
    store, path = store_for(url, None, options)
    store.replace(path, data)


def downloaded(requests):
    """Returns the bytes that ranged requests ask for."""
    ranges = [re.fullmatch(r'bytes=(\d*)-(\d+)', found) for method, _, found in requests if method == 'GET']
    return sum(int(each[2]) + 1 - int(each[1]) if each[1] else int(each[2]) for each in ranges if each)


def rows(path, **options):
    with bags.open(path, raw=True, **options) as reader:
        return list(reader)


def test_tars_in_a_bucket(tmp_path, s3_storage, proxy):
    root = f'{s3_storage.root}/tars'
    for tar in range(3):
        put(f'{root}/{tar}.tar', s3_storage.options, make_tar(range(20 * tar, 20 * tar + 20)))
    options = s3_storage.through(proxy)
    with proxy.counted() as linking:
        done = bags.convert(f'{root}/*.tar', tmp_path / 'index', link=True, source_options=options)
    assert done.datapoints == 60
    tars = [each for each in linking if each[1].split('?')[0].endswith('.tar') and each[0] == 'GET']
    # One request a datapoint, whose photo lies between two headers; and those that open a tar.
    assert len(tars) <= 60 + 3 * 4
    assert downloaded(tars) < 60 * 10_000 + 3 * 200_000
    bags.convert(f'{root}/*.tar', tmp_path / 'copy', source_options=s3_storage.options)
    linked = rows(tmp_path / 'index', trust_links=root, storage_options={'s3://': s3_storage.options})
    assert linked == rows(tmp_path / 'copy')
    assert done.size < 60 * 300
    with bags.open(
        tmp_path / 'index', trust_links=done.parents, storage_options={'s3://': s3_storage.options}
    ) as reader:
        assert reader[[59, 3, 17], 'txt']['txt'] == ['caption 59', 'caption 3', 'caption 17']
    # The index is local, but its records are not: loaders have as many threads as of a remote dataset.
    with bags.open(tmp_path / 'index') as reader, bags.open(tmp_path / 'copy') as copy:
        assert bags.Loader(reader, 4).workers == bags.Loader(reader[5:, 'jpg'], 4).workers == 16
        assert bags.Loader(copy, 4).workers < 16


def test_a_folder_in_a_bucket_and_an_index_beside_it(s3_storage, proxy):
    root = f'{s3_storage.root}/folder'
    for number in range(20):
        put(f'{root}/raw/{number:02}.jpg', s3_storage.options, photo(number))
    options = s3_storage.through(proxy)
    with proxy.counted() as linking:
        bags.convert(
            f'{root}/raw', f'{root}/index', link=True, source_options=options,
            storage_options=s3_storage.options,
        )  # fmt: skip
    photos = [each for each in linking if each[0] == 'GET' and '.jpg' in each[1]]
    assert len(photos) <= 40
    storage_options = {s3_storage.root: s3_storage.options}
    found = rows(f'{root}/index', trust_links=f'{root}/raw', storage_options=storage_options)
    assert [row['jpg'] for row in found] == list(map(photo, range(20)))


def test_a_web_server(tmp_path):
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'a.tar').write_bytes(make_tar(range(5)))
    with WebServer(tmp_path / 'raw') as server:
        bags.convert(f'{server.url}/a.tar', tmp_path / 'index', link=True)
        found = rows(tmp_path / 'index', trust_links=server.url)
    assert [row['jpg'] for row in found] == list(map(photo, range(5)))


def test_a_zip_in_a_bucket_and_on_a_web_server(tmp_path, s3_storage, proxy):
    data = tmp_path / 'raw' / 'a.zip'
    data.parent.mkdir()
    with zipfile.ZipFile(data, 'w') as archive:
        for number in range(40):
            archive.writestr(f'{number:02}.jpg', photo(number))
            archive.writestr(f'{number:02}.txt', f'caption {number}', zipfile.ZIP_DEFLATED)
    url = f'{s3_storage.root}/zips/a.zip'
    put(url, s3_storage.options, data.read_bytes())
    options = s3_storage.through(proxy)
    with proxy.counted() as linking:
        done = bags.convert(url, tmp_path / 'index', link=True, source_options=options)
    assert any('40 compressed files are copied' in note for note in done.notes)
    requests = [each for each in linking if each[0] == 'GET' and 'a.zip' in each[1]]
    # One request a file, those of the first datapoints that tell what is linked, and those that open the zip.
    assert len(requests) <= 80 + 80 + 4
    assert downloaded(requests) < 200_000 + 160 * 5_000
    bags.convert(url, tmp_path / 'copy', source_options=s3_storage.options)
    found = rows(tmp_path / 'index', trust_links=done.parents, storage_options={'s3://': s3_storage.options})
    assert found == rows(tmp_path / 'copy')
    assert [row['jpg'] for row in found] == list(map(photo, range(40)))
    with WebServer(tmp_path / 'raw') as server:
        bags.convert(f'{server.url}/a.zip', tmp_path / 'web', link=True)
        assert rows(tmp_path / 'web', trust_links=server.url) == found


def test_zips_in_a_bucket(tmp_path, s3_storage):
    root, options = f'{s3_storage.root}/many', s3_storage.options
    for name, first in (('a', 0), ('b', 10)):
        data = io.BytesIO()
        with zipfile.ZipFile(data, 'w') as archive:
            for number in range(first, first + 3):
                archive.writestr(f'{number:02}.jpg', photo(number))
        put(f'{root}/{name}.zip', options, data.getvalue())
    for name, source in {'folder': root, 'glob': f'{root}/*.zip'}.items():
        done = bags.convert(source, tmp_path / name, link=True, source_options=options)
        assert done.parents == [root]
        found = rows(tmp_path / name, trust_links=root, storage_options={'s3://': options})
        assert [row['jpg'] for row in found] == list(map(photo, (0, 1, 2, 10, 11, 12)))
        assert [str(row['label'], 'utf-8') for row in found] == ['a'] * 3 + ['b'] * 3


def test_chunks_in_a_bucket(tmp_path, s3_storage):
    root = f'{s3_storage.root}/mds'
    for path in (GOLDEN / 'mds').iterdir():
        put(f'{root}/{path.name}', s3_storage.options, path.read_bytes())
    bags.convert(root, tmp_path / 'index', link=True, source_options=s3_storage.options)
    bags.convert(GOLDEN / 'mds', tmp_path / 'copy')
    found = rows(tmp_path / 'index', trust_links=root, storage_options={'s3://': s3_storage.options})
    assert found == rows(tmp_path / 'copy')


@pytest.mark.parametrize('name', ['lerobot_v2', 'lerobot_v3'])
def test_recordings_of_lerobot_and_their_index_in_a_bucket(name, tmp_path, s3_storage):
    root, options = f'{s3_storage.root}/{name}', s3_storage.options
    for path in (GOLDEN / name).rglob('*'):
        if path.is_file():
            put(f'{root}/{path.relative_to(GOLDEN / name).as_posix()}', options, path.read_bytes())
    index = f'{s3_storage.root}/index-{name}'
    done = bags.convert(root, index, link=True, source_options=options, storage_options=options)
    assert any(each.startswith(root) for each in done.parents)
    bags.convert(GOLDEN / name, tmp_path / 'copy')
    with (
        bags.open(index, trust_links=done.parents, storage_options=options) as linked,
        bags.open(tmp_path / 'copy') as copied,
    ):
        found = linked.diff(copied)
        assert not found.added.size
        assert not found.removed.size
        assert not found.changed


def test_an_update_creates_an_index_in_a_bucket(tmp_path, s3_storage):
    """Of data without keys, whose datapoints are told by their positions."""
    root, options = f'{s3_storage.root}/updated', s3_storage.options
    settings = {'link': True, 'update': True, 'source_options': options, 'storage_options': options}
    for path in (GOLDEN / 'mds').iterdir():
        put(f'{root}/mds/{path.name}', options, path.read_bytes())
    first = bags.convert(f'{root}/mds', f'{root}/index', **settings)
    assert bags.convert(f'{root}/mds', f'{root}/index', **settings).datapoints == first.datapoints > 0
    bags.convert(GOLDEN / 'mds', tmp_path / 'copy')
    linked = rows(f'{root}/index', trust_links=root, storage_options=options)
    assert linked == rows(tmp_path / 'copy')


def test_a_bucket_that_grows(tmp_path, s3_storage):
    root, options = f'{s3_storage.root}/grows', s3_storage.options
    for number in range(3):
        put(f'{root}/photos/{number}.jpg', options, photo(number))
        put(f'{root}/tars/{number}.tar', options, make_tar(range(5 * number, 5 * number + 5)))
        for name in ('photos', 'tars'):
            bags.convert(f'{root}/{name}', tmp_path / name, link=True, update=True, source_options=options)
    stores = {root: options}
    found = {
        name: rows(tmp_path / name, trust_links=root, storage_options=stores) for name in ('photos', 'tars')
    }
    assert [row['jpg'] for row in found['photos']] == list(map(photo, range(3)))
    assert [row['jpg'] for row in found['tars']] == list(map(photo, range(15)))
    put(f'{root}/photos/0.jpg', options, photo(8))
    with pytest.raises(ValueError, match=r"0, field 'jpg', datapoint 0 of the dataset: .*changed"):
        bags.convert(f'{root}/photos', tmp_path / 'photos', link=True, update=True, source_options=options)


@pytest.mark.parametrize('pattern', ['', '/*.tar', '/{0,[1-9]}.tar'])
def test_files_that_another_client_adds_to_a_bucket(pattern, tmp_path, s3):
    """The client that lists the source has listed it before, in the same process."""
    root = f's3://bucket/added-{len(pattern)}'
    options = {'key': 'a', 'secret': 'b', 'endpoint_url': s3}
    for number in range(3):
        put(
            f'{root}/{number}.tar',
            {**options, 'client': 'obstore'},
            make_tar(range(5 * number, 5 * number + 5)),
        )
        fsspec.core.url_to_fs(root, **options)[0].ls(root)
        done = bags.convert(
            f'{root}{pattern}', tmp_path / 'index', link=True, update=True, source_options=options
        )
        assert done.datapoints == 5 * (number + 1)
