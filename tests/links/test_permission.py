"""What links may reach: their own dataset, and bags of datasets beside it; all else needs permission."""

import contextlib
import gc
import os
import shutil
import sys
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


def test_a_removed_dataset_beside_is_named_through_a_symbolic_link(folders):
    with bags.open(folders / 'd' / 'base') as base:
        base.save(folders / 'd' / 'saved', link=('x',))
    os.symlink(folders / 'd', folders / 'alias')
    shutil.rmtree(folders / 'd' / 'base')
    with pytest.raises(bags.LinkError, match='expected a bag of a dataset, got none'):
        bags.open(folders / 'alias' / 'saved')[0]


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


@contextlib.contextmanager
def at_first_open(before, after):
    """Calls `before` and `after` around the first time when this thread opens a file."""
    calls = [before, after]

    def profile(frame, event, function):
        if function is os.open and event in ('c_call', 'c_return', 'c_exception') and calls:
            calls.pop(0)()

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def exchange(path, other, kept):
    """Puts a symbolic link to `other` at a path, whose file or folder is kept elsewhere."""
    os.rename(path, kept)
    os.symlink(other, path)


@pytest.mark.skipif(os.name == 'nt', reason='needs symbolic links')
@pytest.mark.parametrize('is_reversed', [False, True])
@pytest.mark.parametrize('name', ['raw/sub/1', 'raw/sub', 'raw'])
@pytest.mark.parametrize('options', [{}, {'cache_policy': 'direct_io'}], ids=str)
def test_a_file_that_is_exchanged_between_check_and_opening(folders, name, options, is_reversed):
    """What was opened is checked, also if the path is as before afterwards."""
    folder_of_links(folders)
    reader = bags.open(folders / 'd' / 'linked', trust_links=folders / 'raw', **options)
    assert reader[0]['x'] == b'0' * 9000
    content = b'1' * 4096 + b'a secret' * 101 + b'1' * 4096  # Of the same size and sample.
    (folders / 'home' / 'sub' / '1').write_bytes(content)
    path, other, kept = folders / name, folders / name.replace('raw', 'home'), folders / 'kept'

    def restore():
        if is_reversed:
            os.unlink(path)
            os.rename(kept, path)

    with at_first_open(lambda: exchange(path, other, kept), restore):
        try:
            found = reader[1]['x']
        except (PermissionError, bags.LinkError):
            found = b''
    assert b'secret' not in found
    assert kept.exists() != is_reversed


@pytest.fixture(scope='module')
def base_with_a_dictionary(tmp_path_factory):
    """A dataset whose dictionary takes 0.2 s to train."""
    path = tmp_path_factory.mktemp('dictionary') / 'base'
    with bags.DatasetWriter(path, {'text': 'utf8'}, compression={'text': 'dictionary'}) as writer:
        for index in range(300):
            writer.append({'text': f'a plain text about the number {index * 7919 % 1000}, {index}'})
    return path


@pytest.mark.skipif(not os.path.exists('/proc/self/maps'), reason='needs /proc')
@pytest.mark.parametrize('is_reversed', [False, True])
@pytest.mark.parametrize('name', ['text.bagz', 'text.zdict', ''])
@pytest.mark.parametrize('mapped', [False, True])
def test_a_bag_that_is_exchanged_between_check_and_opening(
    tmp_path, base_with_a_dictionary, name, mapped, is_reversed
):
    shutil.copytree(base_with_a_dictionary, tmp_path / 'd' / 'base')
    bags.open(tmp_path / 'd' / 'base').save(tmp_path / 'd' / 'view', link=('text',))
    (tmp_path / 'home').mkdir()
    for file in (tmp_path / 'd' / 'base').iterdir():
        (tmp_path / 'home' / file.name).write_bytes(file.read_bytes())
    reader = bags.open(tmp_path / 'd' / 'view', mapped=mapped)
    len(reader)
    path, other, kept = tmp_path / 'd' / 'base' / name, tmp_path / 'home' / name, tmp_path / 'kept'
    opened = []
    opening = os.path.join(path, '') if not name else str(path)

    def profile(frame, event, function):
        if function is not os.open or event not in ('c_call', 'c_return'):
            return
        given = str(frame.f_locals.get('path') or getattr(frame.f_locals.get('self'), 'path', ''))
        if event == 'c_call' and not opened and given.startswith(opening):
            opened.append(given)
            exchange(path, other, kept)
        elif event == 'c_return' and len(opened) == 1 and is_reversed:
            opened.append(given)
            os.unlink(path)
            os.rename(kept, path)

    refused = ''
    sys.setprofile(profile)
    try:
        assert reader[1]['text'].startswith('a plain text')
    except PermissionError as exc:
        refused = str(exc)
    finally:
        sys.setprofile(None)
    assert opened
    if is_reversed:  # The row may have been read again, from the bag that is permitted.
        gc.collect()
        in_use = Path('/proc/self/maps').read_text()
        for descriptor in os.listdir('/proc/self/fd'):
            with contextlib.suppress(FileNotFoundError):
                in_use += os.readlink(f'/proc/self/fd/{descriptor}')
        assert str(tmp_path / 'home') not in in_use
    else:
        assert f'links to {tmp_path / "home"}' in refused
