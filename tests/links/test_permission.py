"""What links may reach: their own dataset, and bags of datasets beside it; all else needs permission."""

import os
from pathlib import Path

import fsspec
import pytest

import bags
from bags.links.permission import Permission, permitted_paths
from bags.storage import store_for


@pytest.fixture
def folders(tmp_path):
    """Datasets `d/view` and `d/base`, a sharded one `d/sharded`, and files elsewhere."""
    for name in ('view', 'base', 'sharded/000000'):
        with bags.DatasetWriter(tmp_path / 'd' / name, {'x': 'bytes'}) as writer:
            writer.append({'x': b'abc'})
    for name in (
        'view/a.mp4',
        'view/sub/a.mp4',
        'base/a.mp4',
        'folder/a.bag',
        'a.bag',
        '../home/key',
        '../home/x.bag',
    ):
        path = tmp_path / 'd' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'secret')
    return tmp_path


def permission(folders, links=(), root='d/view'):
    return Permission(store_for(folders)[0], str(folders / root), permitted_paths('trust_links', links))


def refused(permission, path):
    with pytest.raises(
        PermissionError, match=r"not permitted: if the dataset is trusted, bags.open\(…, trust_links=\['"
    ):
        permission.check(str(path))


@pytest.mark.parametrize(
    'name', ['view/a.mp4', 'view/sub/a.mp4', 'base/x.bag', 'base/x.bagz', 'base/x.values', 'base/x.zdict',
             'sharded/000000/x.bag', 'view/missing']
)  # fmt: skip
def test_the_dataset_and_bags_beside_it(folders, name):
    path = str(folders / 'd' / name)
    assert permission(folders).check(path) == path


@pytest.mark.parametrize(
    'name',
    [
        'base/a.mp4', 'base/spec.json', 'base/sub/x.bag', 'folder/a.bag', 'a.bag', '.', 'viewer/a.mp4',
        'sharded/x.bag', 'sharded/000000/sub/x.bag', '../home/key', '../home/x.bag', 'view/../../home/key',
    ],
)  # fmt: skip
def test_all_else_needs_permission(folders, name):
    path = os.path.join(folders, 'd', name)
    refused(permission(folders), path)
    assert permission(folders, True).check(path) == os.path.realpath(path)


def test_files_of_a_dataset_beside_that_is_no_shard(folders):
    (folders / 'd' / 'group').mkdir()
    os.rename(folders / 'd' / 'base', folders / 'd' / 'group' / 'base')
    refused(permission(folders), folders / 'd' / 'group' / 'base' / 'x.bag')


def test_symbolic_links_are_resolved(folders):
    for name in ('view/key', 'base/key.bag'):
        os.symlink(folders / 'home' / 'key', folders / 'd' / name)
    os.symlink(folders / 'home', folders / 'd' / 'view' / 'folder')
    for name in ('view/key', 'base/key.bag', 'view/folder/key', 'view/folder/missing'):
        refused(permission(folders), folders / 'd' / name)
    # A symbolic link to the dataset, and one as a permitted path, stand for what they lead to.
    os.symlink(folders / 'd' / 'view', folders / 'view')
    path = folders / 'd' / 'base' / 'x.bag'
    assert permission(folders, root='view').check(str(path)) == str(path)
    os.symlink(folders / 'home', folders / 'alias')
    key = folders / 'home' / 'key'
    assert permission(folders, [folders / 'alias']).check(str(key)) == str(key)
    assert permission(folders, [folders / 'alias']).check(str(folders / 'alias' / 'key')) == str(key)


def test_permitted_paths(folders, monkeypatch):
    key = str(folders / 'home' / 'key')
    for links in (folders / 'home', str(folders / 'home') + '/', [key], [Path('/nowhere'), folders / 'home']):
        assert permission(folders, links).check(key) == key
    for links in ([], False, str(folders / 'hom'), [key + 's'], [str(folders / 'home' / 'ke')]):
        refused(permission(folders, links), key)
    monkeypatch.chdir(folders)
    assert permission(folders, 'home').check(key) == key
    monkeypatch.setenv('BAGS_TRUST_LINKS', f's3://bucket/a, {folders / "home"},')
    assert permission(folders).check(key) == key
    monkeypatch.setenv('BAGS_TRUST_LINKS', ' , ')
    refused(permission(folders), key)


def test_former_environment_variable(folders, monkeypatch):
    key, other = str(folders / 'home' / 'key'), str(folders / 'raw' / 'a.mp4')
    monkeypatch.setenv('BAGS_LINKS', str(folders / 'home'))
    assert permission(folders).check(key) == key
    refused(permission(folders), other)
    monkeypatch.setenv('BAGS_TRUST_LINKS', str(folders / 'raw'))
    assert permission(folders).check(key) == key
    assert permission(folders).check(other) == other


def test_urls(folders):
    def check(path, *links):
        return permission(folders, links).check(path)

    assert check('s3://bucket/videos/a.mp4', 's3://bucket/videos/') == 's3://bucket/videos/a.mp4'
    assert check('s3://bucket/a.mp4', 's3://bucket') == 's3://bucket/a.mp4'
    assert check('https://h/a', 'https://h/a') == 'https://h/a'
    for path, link in {
        'https://h:443/a/b': 'https://h/a',
        'https://h/a/b': 'https://H:443/a',
        'https://H/a/b': 'HTTPS://h/a/',
        'http://h/a/b': 'http://h:80',
        'https://h/a%20b/%C3%BC': 'https://h/a b/ü',
        'https://h/a/b?key=x/y': 'https://h/a',
        'https://me@h/a/b': 'https://me@h/a',
    }.items():
        assert check(path, link) == path
    for path, link in {
        's3://bucket/videos2/a.mp4': 's3://bucket/videos',
        's3://bucket2/a.mp4': 's3://bucket',
        'https://h@evil/a': 'https://h',
        'https://evil@h/a': 'https://h',
        'https://evil?@h/a': 'https://h',
        'https://h:8443/a': 'https://h',
        'https://h:80/a': 'https://h',
        'https://h./a': 'https://h',
        'https://h/a%2Fb/c': 'https://h/a/b',
        'https://h/a?b/c': 'https://h/a',
        'https://h/A/b': 'https://h/a',
        'https://h.evil/a': 'https://h',
        'http://169.254.169.254/latest/meta-data': 'https://169.254.169.254',
        's3://bucket/x.bag': '/',
    }.items():
        refused(permission(folders, [link]), path)
    with pytest.raises(PermissionError, match=r"trust_links=\['http://169.254.169.254/latest'\]"):
        check('http://169.254.169.254/latest/meta-data')


def test_a_remote_dataset(folders):
    files = fsspec.filesystem('memory')
    files.pipe({'/links/base/spec.json': b'{}', '/links/view/spec.json': b'{}', '/links/folder/x': b''})
    store, root = store_for('memory://links/view')
    remote = Permission(store, root, ())
    for name in ('view/a.mp4', 'base/x.bag'):
        assert remote.check(f'memory:///links/{name}') == f'memory:///links/{name}'
    for path in (
        'memory:///links/folder/x.bag', 'memory:///links/base/a.mp4', 'memory:///other/base/x.bag',
        's3://links/view/a.mp4', str(folders / 'home' / 'key'), str(folders / 'd' / 'base' / 'x.bag'),
    ):  # fmt: skip
        refused(remote, path)


@pytest.mark.parametrize('value', [None, 7, b'/data', [b'/data'], [7], [''], ''])
def test_other_values_of_the_option_are_refused(value):
    with pytest.raises(TypeError, match='trust_links: expected paths, or True for all'):
        permitted_paths('trust_links', value)


def test_a_repository_of_a_hub_is_permitted_with_all_revisions(folders):
    allowed = permission(folders, ['hf://datasets/u/d/x', 'hf://u/m@abc'])
    for path in ('hf://datasets/u/d/x/1', f'hf://datasets/u/d@{"a" * 40}/x/1', 'hf://datasets/u/d@refs/pr/1/x/1',
                 'hf://u/m@abc/1'):  # fmt: skip
        assert allowed.check(path) == path
    for path in ('hf://datasets/u/d/x@a/1', 'hf://datasets/u/d@a/y/1', 'hf://datasets/u/d@a/x2', 'hf://u/m/1',
                 'hf://u/m@abcd/1', 'hf://spaces/u/d@a/x/1', 'hf://u/datasets/u/d@a/x/1'):  # fmt: skip
        refused(allowed, path)


def folder_of_links(folders, count=3):
    """Writes a dataset of links to files in `raw/sub`, and returns it open, after a read of the first."""
    (folders / 'raw' / 'sub').mkdir(parents=True)
    (folders / 'home' / 'sub').mkdir()
    for number in range(count):
        (folders / 'raw' / 'sub' / f'{number}').write_bytes(b'%d' % number * 9000)
        (folders / 'home' / 'sub' / f'{number}').write_bytes(b'%d' % number * 9000)
    with bags.DatasetWriter(folders / 'd' / 'linked', {'x': 'bytes'}, linked_fields=['x']) as writer:
        for number in range(count):
            writer.append({'x': bags.Link(folders / 'raw' / 'sub' / f'{number}')})
    reader = bags.open(folders / 'd' / 'linked', trust_links=folders / 'raw')
    assert reader[0]['x'] == b'0' * 9000
    return reader


@pytest.mark.skipif(os.name == 'nt', reason='needs symbolic links')
@pytest.mark.parametrize('name', ['raw/sub/1', 'raw/sub', 'raw'])
def test_symbolic_links_that_come_while_a_dataset_is_open(folders, name):
    reader = folder_of_links(folders)
    os.rename(folders / name, folders / 'moved')
    os.symlink(folders / name.replace('raw', 'home'), folders / name)
    if name == 'raw':  # The reader's own path, which was resolved when it was first used.
        reader = bags.open(folders / 'd' / 'linked', trust_links=folders / 'd')
    with pytest.raises(PermissionError, match='not permitted'):
        reader[1]


def test_another_folder_that_comes_while_a_dataset_is_open(folders):
    reader = folder_of_links(folders)
    os.rename(folders / 'raw', folders / 'moved')
    with pytest.raises(bags.LinkError, match='expected a file of 9000 bytes, got none'):
        reader[1]
    os.rename(folders / 'moved', folders / 'raw')
    assert reader[1]['x'] == b'1' * 9000
    os.rename(folders / 'raw' / 'sub', folders / 'moved')
    (folders / 'raw' / 'sub').mkdir()
    (folders / 'raw' / 'sub' / '2').write_bytes(b'2' * 9000)
    assert reader[2]['x'] == b'2' * 9000


@pytest.mark.skipif(os.name == 'nt', reason='needs pipes')
def test_a_pipe_that_comes_while_a_dataset_is_open(folders):
    reader = folder_of_links(folders)
    os.unlink(folders / 'raw' / 'sub' / '1')
    os.mkfifo(folders / 'raw' / 'sub' / '1')
    with pytest.raises(bags.LinkError, match='expected a file, got something else'):
        reader[1]
    os.unlink(folders / 'raw' / 'sub' / '1')
    os.symlink('2', folders / 'raw' / 'sub' / '1')  # Below the permitted folder.
    with pytest.raises(bags.LinkError, match='has changed since it was linked'):
        reader[1]
