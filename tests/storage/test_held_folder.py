"""Stores that hold the folder of a writer: another folder at its path stays unchanged."""

import errno
import os

import pytest

from bags.storage.local import LocalStore


@pytest.fixture
def held(tmp_path):
    path = os.fspath(tmp_path / 'd')
    os.mkdir(path)
    store = LocalStore().hold(path)
    yield store, path
    store.release()


def test_files_in_a_held_folder(held):
    store, path = held
    store.replace(f'{path}/a', b'1')
    output = store.create(f'{path}/b')
    output.write([b'22'])
    output.close()
    store.rename(f'{path}/b', f'{path}/c')
    store.resume(f'{path}/c', 1).close()
    assert (store.read(f'{path}/a'), store.read(f'{path}/c')) == (b'1', b'2')
    store.remove(f'{path}/a')
    store.remove(f'{path}/a')
    assert os.listdir(path) == ['c']
    store.expect_held()


def test_errors_name_the_whole_path(held):
    store, path = held
    store.replace(f'{path}/a', b'')
    with pytest.raises(FileExistsError) as raised:
        store.create(f'{path}/a')
    assert raised.value.filename == f'{path}/a'
    with pytest.raises(FileNotFoundError) as raised:
        store.rename(f'{path}/x', f'{path}/y')
    assert (raised.value.filename, raised.value.filename2) == (f'{path}/x', f'{path}/y')


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason='folders cannot be opened')
def test_another_folder_at_the_path(held):
    store, path = held
    output = store.create(f'{path}/a')
    store.replace(f'{path}/b', b'1')
    os.rename(path, f'{path}-moved')
    os.mkdir(path)
    for name in 'abc':
        with open(f'{path}/{name}', 'wb') as file:
            file.write(b'new')
    output.discard()
    store.remove(f'{path}/b')
    store.replace(f'{path}/c', b'1')
    assert [LocalStore().read(f'{path}/{name}') for name in 'abc'] == [b'new'] * 3
    with pytest.raises(OSError, match='was removed, moved or replaced since the writer opened it') as raised:
        store.expect_held()
    assert (raised.value.errno, raised.value.filename) == (errno.ESTALE, path)
    store.release()
    store.expect_held()
