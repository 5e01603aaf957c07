"""Linked sources may be cut, change meanwhile, have two files of one name, or be of somebody else."""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.errors import SourceError
from bags.interop.open_source import open_source
from bags.links.sources import LinkOpener
from tests.interop.sources.lerobot.test_lerobot import make
from tests.interop.test_linking import CAT, DATA, make_photos, make_tar, photo, rows


def small_photo(number):
    return CAT[:300] + b'%04d\xff\xd9' % number


def make_zip(path, numbers):
    with zipfile.ZipFile(path, 'w') as archive:
        for number in numbers:
            archive.writestr(f'{number}.jpg', photo(number))


def make_npz(path, count):
    np.savez(path, **{f'array{number}': np.full((9, 9), number) for number in range(count)})


def make_video(path, count):
    shutil.rmtree(path, ignore_errors=True)
    make(path, (3,) * count)


@pytest.mark.parametrize(
    ('name', 'write', 'field'),
    [('a.zip', lambda path, count: make_zip(path, range(count)), 'jpg'), ('a.npz', make_npz, 'array1'),
     ('a', make_video, 'cam')],
)  # fmt: skip
def test_sources_that_change_while_they_are_linked(name, write, field, tmp_path):
    path = tmp_path / name
    write(path, 3)
    source = open_source(path)
    source.linked, source.opener = {field}, LinkOpener(None)
    first, *others = source.entries()
    source.load(first)
    write(path, 5)
    source.opener = LinkOpener(None)
    # A file that has only one datapoint is read anew.
    changes = pytest.raises(SourceError, match=r'expected \d+ bytes, got \d+: it has changed since')
    with changes if others else contextlib.nullcontext():
        source.load(others[0] if others else first)


def test_an_npz_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / 'a.npz'
    make_npz(path, 3)
    source = open_source(path)
    source.linked, source.opener = {'array1'}, LinkOpener(None)
    with source.open(str(path)) as arrays:
        make_npz(tmp_path / 'other.npz', 5)
        os.replace(tmp_path / 'other.npz', path)
        with pytest.raises(SourceError, match=r'a\.npz: expected \d+ bytes, got \d+: it has changed since'):
            source.link(str(path), 'array1', arrays['array1'])


def test_two_files_of_one_name_in_a_zip(tmp_path):
    make_zip(tmp_path / 'a.zip', range(3))
    with zipfile.ZipFile(tmp_path / 'a.zip', 'a') as archive, pytest.warns(UserWarning, match='Duplicate'):
        archive.writestr('1.jpg', photo(9))
    with pytest.raises(SourceError, match=r"a\.zip: .*expected one file of each name, got two of '1\.jpg'"):
        bags.convert(tmp_path / 'a.zip', tmp_path / 'index', link=True)


def test_a_zip_that_is_cut(tmp_path):
    make_zip(tmp_path / 'a.zip', range(3))
    data = (tmp_path / 'a.zip').read_bytes()
    for cut in (0, 30, len(data) // 2, len(data) - 1):
        (tmp_path / 'a.zip').write_bytes(data[:cut])
        with pytest.raises(SourceError, match=r'a\.zip: cannot be read as \.zip'):
            bags.convert(tmp_path / 'a.zip', tmp_path / 'index', link=True)
    assert not (tmp_path / 'index').exists()


def test_a_tar_that_is_cut_anywhere(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w') as tar:
        for number in range(3):
            for extension, data in (('jpg', small_photo(number)), ('txt', b'text %d' % number)):
                member = tarfile.TarInfo(f'{number}.{extension}')
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    whole, path = file.getvalue(), tmp_path / 'a.tar'
    path.write_bytes(whole)
    bags.convert(path, tmp_path / 'whole', link=True)
    expected = rows(tmp_path / 'whole')
    assert [row['jpg'] for row in expected] == [small_photo(number) for number in range(3)]
    end = 3 * 4 * 512  # Of the last member.
    counts = []
    for cut in range(512, end + 1, 256):
        path.write_bytes(whole[:cut])
        with pytest.raises((SourceError, ValueError), match=r'a\.tar: '):
            bags.convert(path, tmp_path / 'raised', link=True)
        shutil.rmtree(tmp_path / 'raised', ignore_errors=True)
        with contextlib.suppress(ValueError):  # None of its datapoints could be linked.
            bags.convert(path, tmp_path / f'{cut}', link=True, on_error='skip')
            found = rows(tmp_path / f'{cut}')
            assert found == expected[: len(found)]
            counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] == 2


def test_videos_without_a_table(tmp_path):
    data = bytearray((DATA / 'bunny.mp4').read_bytes())
    where = data.index(b'moov')
    data[where : where + 4] = b'free'
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'a.mp4').write_bytes(data)
    with pytest.raises(SourceError, match=r'raw/a\.mp4: expected a header \(moov\) in the MP4, got none'):
        bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)

    root = make(tmp_path / 'robot', (3, 4))
    path = root / 'videos/cam/chunk-000/file-000.mp4'
    for name in (b'moov', b'stts', b'stsz', b'avc1'):
        data = bytearray(path.read_bytes())
        where = data.rindex(name)
        data[where : where + 4] = b'free'
        broken = shutil.copytree(root, tmp_path / str(name, 'ascii'))
        (broken / path.relative_to(root)).write_bytes(data)
        for number in range(2):
            source = open_source(broken)
            source.linked, source.opener = {'cam'}, LinkOpener(None)
            expected = rf'file-000\.mp4: cannot be read as video of episode {number}'
            with pytest.raises(SourceError, match=expected):
                source.load([*source.entries()][number])


@contextlib.contextmanager
def as_somebody_else():
    """Runs as a user who may not read what has no permissions; tests may run as root, who may."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder for all users; those above `tmp_path` are for one."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


@pytest.mark.skipif(os.name == 'nt', reason='needs permissions of files')
def test_files_and_folders_that_may_not_be_read(open_folder):
    tmp_path = open_folder
    make_photos(tmp_path / 'photos', range(6))
    make_zip(tmp_path / 'a.zip', range(3))
    root = make(tmp_path / 'robot', (3, 4))
    video = root / 'videos/cam/chunk-000/file-000.mp4'
    file, folder = tmp_path / 'photos' / 'b' / '0001.jpg', tmp_path / 'photos' / 'c'
    (tmp_path / 'tars').mkdir()
    for tar in range(3):
        (tmp_path / 'tars' / f'{tar}.tar').write_bytes(make_tar(range(2 * tar, 2 * tar + 2)))
    try:
        for path in (file, tmp_path / 'a.zip', video, tmp_path / 'tars' / '1.tar'):
            path.chmod(0)
        with as_somebody_else():
            with pytest.raises(SourceError, match=r'0001\.jpg: cannot be read: .*Permission denied'):
                bags.convert(tmp_path / 'photos', tmp_path / 'index', link=True)
            done = bags.convert(tmp_path / 'photos', tmp_path / 'some', link=True, on_error='skip')
            assert ([Path(name).name for name, _ in done.skipped], done.datapoints) == (['0001.jpg'], 5)
            with pytest.raises(SourceError, match=r'a\.zip: .*Permission denied'):
                bags.convert(tmp_path / 'a.zip', tmp_path / 'zip', link=True)
            with pytest.raises(SourceError, match=r'1\.tar: cannot be read: .*Permission denied'):
                bags.convert(tmp_path / 'tars', tmp_path / 'index', link=True)
            done = bags.convert(tmp_path / 'tars', tmp_path / 'two', link=True, on_error='skip')
            assert ([Path(name).name for name, _ in done.skipped], done.datapoints) == (['1.tar'], 4)
            with pytest.raises((SourceError, PermissionError), match=r'Permission denied.*file-000\.mp4'):
                bags.convert(root, tmp_path / 'videos', link=True)
        file.chmod(0o644)
        folder.chmod(0)
        with as_somebody_else():
            done = bags.convert(tmp_path / 'photos', tmp_path / 'others', link=True)
            assert done.notes[0].endswith("; 1 left out: 'c (permission denied)'")
            with pytest.raises(PermissionError, match='photos/c'):
                bags.convert(folder, tmp_path / 'none', link=True)
            with pytest.raises(ValueError, match='the files of these datapoints are missing'):
                bags.convert(tmp_path / 'photos', tmp_path / 'some', link=True, update=True)
    finally:
        folder.chmod(0o755)
