"""Zips of files, which are imported and linked as the folders of their files are."""

import os
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.errors import LinkError, SourceError
from bags.interop.open_source import open_source

DATA = Path(__file__).parents[4] / 'examples' / 'data'
CAT = (DATA / 'cat.jpg').read_bytes()
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def photo(number):
    """Returns a JPEG that differs from others in a comment."""
    comment = b'%06d' % number
    return CAT[:2] + b'\xff\xfe' + (2 + len(comment)).to_bytes(2, 'big') + comment + CAT[2:]


def make_zip(path, files, compression=STORED):
    """Writes a zip; `compression` may be a function of the name."""
    with zipfile.ZipFile(path, 'w') as archive:
        for name, content in files.items():
            method = compression(name) if callable(compression) else compression
            archive.writestr(name, content, method)
    return path


def photos(numbers):
    files = {}
    for number in numbers:
        stem = f'{"abc"[number % 3]}/{number:04}'
        files |= {f'{stem}.jpg': photo(number), f'{stem}.txt': f'caption {number}'.encode()}
    return files


def rows(path):
    with bags.open(path, raw=True, trust_links=True) as reader:
        return [
            {
                name: [bytes(item) for item in value] if isinstance(value, list) else value
                for name, value in row.items()
            }
            for row in reader
        ]


def changed(path, at, data, count=1):
    """Replaces bytes of a file after the occurrence number `count` of a mark."""
    content, (mark, offset) = bytearray(path.read_bytes()), at
    start = -1
    for _ in range(count):
        start = content.index(mark, start + 1)
    content[start + offset : start + offset + len(data)] = data
    path.write_bytes(content)


CENTRAL, LOCAL = b'PK\x01\x02', b'PK\x03\x04'


LAYOUTS = {
    'classes': photos(range(12)),
    'stems': {f'{number}.jpg': photo(number) for number in range(4)} | {'x/1.json': b'{"a": 1}'},
    'episodes': {
        f'episode_{number}/{frame:03}.jpg': photo(10 * number + frame)
        for number in range(3)
        for frame in range(number + 2)
    },
    'files': photos(range(3)),
    'a table': photos(range(2))
    | {'metadata.csv': b'file_name,weight\na/0000.jpg,0.5\nb/0001.jpg,2\n', 'README.md': b'about'},
}


@pytest.mark.parametrize('name', LAYOUTS)
@pytest.mark.parametrize('compression', [STORED, DEFLATED])
def test_a_zip_is_as_the_folder_of_its_files(name, compression, tmp_path):
    make_zip(tmp_path / 'data.zip', LAYOUTS[name], compression)
    with zipfile.ZipFile(tmp_path / 'data.zip') as archive:
        archive.extractall(tmp_path / 'data')
    options = {'layout': 'files', 'spec': {'jpg': 'jpeg?'}} if name == 'files' else {}
    folder = bags.convert(tmp_path / 'data', tmp_path / 'of-folder', **options)
    done = bags.convert(tmp_path / 'data.zip', tmp_path / 'of-zip', **options)
    assert (done.spec, done.datapoints, done.notes) == (folder.spec, folder.datapoints, folder.notes)
    assert rows(tmp_path / 'of-zip') == rows(tmp_path / 'of-folder')
    if compression == STORED:
        linked = bags.convert(tmp_path / 'data.zip', tmp_path / 'linked', link=True, **options)
        assert linked.spec == folder.spec
        assert linked.parents == [str(tmp_path)]
        assert rows(tmp_path / 'linked') == rows(tmp_path / 'of-folder')
        sizes = [each.stat().st_size for each in (tmp_path / 'linked').rglob('*') if each.is_file()]
        assert sum(sizes) < len(CAT)
        (tmp_path / 'data.zip').unlink()
        with (
            bags.open(tmp_path / 'linked', trust_links=True) as reader,
            pytest.raises(LinkError, match='got none'),
        ):
            reader[0]


def test_compressed_members_are_copied_with_a_note(tmp_path):
    files = photos(range(6))
    make_zip(tmp_path / 'a.zip', files, lambda name: DEFLATED if name.endswith(('.txt', '1.jpg')) else STORED)
    done = bags.convert(tmp_path / 'a.zip', tmp_path / 'index', link=True)
    assert f"{tmp_path}/a.zip: 7 compressed files are copied: 'a/0000.txt' and 6 more" in done.notes
    assert {'jpg.links', 'txt.bag'} < set(os.listdir(tmp_path / 'index' / '000000'))
    for row in rows(tmp_path / 'index'):
        assert row['jpg'] == files[str(row['__key__'], 'utf-8') + '.jpg']
    make_zip(tmp_path / 'b.zip', files, DEFLATED)
    with pytest.raises(
        ValueError, match=r"link: .*b\.zip.* got '__key__', .*: all files of zips are compressed"
    ):
        bags.convert(tmp_path / 'b.zip', tmp_path / 'none', link=True)


def test_resume_and_update(tmp_path):
    files = photos(range(6)) | {'c/0005.jpg': b'no photo'}
    make_zip(tmp_path / 'a.zip', files)
    for link in (False, True):
        with pytest.raises(SourceError, match=r'a.zip/c/0005\.jpg: expected JPEG, got'):
            bags.convert(tmp_path / 'a.zip', tmp_path / f'{link}', link=link)
    for link in (False, True):
        options = {'link': link, 'on_error': 'skip', 'resume': True}
        done = bags.convert(tmp_path / 'a.zip', tmp_path / f'{link}', **options)
        assert done.datapoints == 5
    assert rows(tmp_path / 'True') == rows(tmp_path / 'False')
    before = rows(tmp_path / 'True')
    options = {'link': True, 'on_error': 'skip', 'update': True}
    bags.convert(tmp_path / 'a.zip', tmp_path / 'True', **options)
    assert rows(tmp_path / 'True') == before
    with zipfile.ZipFile(tmp_path / 'a.zip', 'a') as archive:
        archive.writestr('d/0009.jpg', photo(9))
    with pytest.raises(
        ValueError, match='has changed; expected a source that only grows'
    ):  # Its directory moved.
        bags.convert(tmp_path / 'a.zip', tmp_path / 'True', **options)


def test_an_export_in_a_zip(tmp_path):
    spec = {'name': 'utf8', 'x': 'array', 'tags': 'utf8[]'}
    with bags.DatasetWriter(tmp_path / 'data', spec) as writer:
        for number in range(3):
            writer.append({'name': f'{number}', 'x': np.arange(number), 'tags': ['a'] * number})
    bags.export(tmp_path / 'data', tmp_path / 'out', format='files')
    shutil.make_archive(str(tmp_path / 'out'), 'zip', tmp_path / 'out')
    done = bags.convert(tmp_path / 'out.zip', tmp_path / 'back')
    assert done.spec == spec
    assert rows(tmp_path / 'back') == rows(tmp_path / 'data')


def test_what_is_left_out(tmp_path):
    files = photos(range(3)) | {'__MACOSX/a/._0000.jpg': b'x', '.DS_Store': b'x', 'README.md': b'x'}
    make_zip(tmp_path / 'a.zip', files)
    with zipfile.ZipFile(tmp_path / 'a.zip', 'a') as archive:
        link = zipfile.ZipInfo('a/latest.jpg')
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, '0000.jpg')
        archive.mkdir('empty') if hasattr(archive, 'mkdir') else archive.writestr('empty/', b'')
    source = open_source(tmp_path / 'a.zip')
    assert source.count == 3
    assert source.notes[0].endswith(
        "; 4 left out: '.DS_Store', 'README.md', '__MACOSX/a/._0000.jpg', 'a/latest.jpg'"
    )


@pytest.mark.parametrize('link', [False, True])
@pytest.mark.parametrize(
    ('at', 'data', 'detail'),
    [
        ((CENTRAL, 8), b'\x01', 'b/0001.jpg: cannot be read: is encrypted'),
        ((CENTRAL, 10), b'\x0c', 'expected no compression or deflate, got method 12'),
        ((CENTRAL, 24), struct.pack('<I', 1 << 29), r'expected 536870912 stored bytes, got \d+'),
        ((LOCAL, 30), b'x', r'expected its header at byte \d+ of the zip, got other bytes'),
        ((LOCAL, 28), b'\xff\xff', r'expected \d+ bytes before the next file, got fewer'),
    ],
)
def test_a_damaged_member_is_named_and_can_be_skipped(at, data, detail, link, tmp_path):
    path = make_zip(tmp_path / 'a.zip', photos(range(3)))
    changed(path, at, data, count=3)
    with pytest.raises(SourceError, match=detail):
        bags.convert(path, tmp_path / 'a', link=link)
    done = bags.convert(path, tmp_path / 'b', link=link, on_error='skip')
    assert [Path(name).name for name, _ in done.skipped] == ['0001.jpg']
    assert [row['__key__'] for row in rows(tmp_path / 'b')] == [b'a/0000', b'c/0002']


@pytest.mark.parametrize('compression', [STORED, DEFLATED])
def test_checksums_are_compared_when_files_are_copied(compression, tmp_path):
    path = make_zip(tmp_path / 'a.zip', {'1.bin': bytes(range(256)), '2.bin': bytes(256)}, compression)
    changed(path, (CENTRAL, 16), b'\0\0')
    with pytest.raises(
        SourceError, match=r'a.zip/1.bin: cannot be read: the checksum of its content differs'
    ):
        bags.convert(path, tmp_path / 'a')


def test_a_file_that_is_longer_or_shorter_than_its_claim(tmp_path):
    for size in (10, 10_000):
        path = make_zip(tmp_path / f'{size}.zip', {'1.bin': bytes(5000)}, DEFLATED)
        changed(path, (CENTRAL, 24), struct.pack('<I', size))
        with pytest.raises(SourceError, match=f'expected {size} bytes after decompression, got'):
            bags.convert(path, tmp_path / 'a', mode='overwrite')


def test_claims_of_many_bytes_are_refused(tmp_path):
    path = make_zip(tmp_path / 'a.zip', {'1.bin': bytes(5000), '2.bin': b'a'}, DEFLATED)
    changed(path, (CENTRAL, 24), struct.pack('<I', (1 << 30) + 1))
    with pytest.raises(
        SourceError, match=r'1.bin: .*expected at most 1073741824 bytes for a compressed file'
    ):
        bags.convert(path, tmp_path / 'a')
    changed(path, (CENTRAL, 24), struct.pack('<I', 4_000_000_000))
    with pytest.raises(SourceError, match=r'a.zip: .* got 4000000001 in the archive'):
        bags.convert(path, tmp_path / 'a')


@pytest.mark.parametrize(
    'name', ['../a.jpg', '/a.jpg', 'a/../../b.jpg', 'a//b.jpg', '..\\a.jpg', './../a.jpg']
)
def test_names_that_leave_the_folder(name, tmp_path):
    make_zip(tmp_path / 'a.zip', {name: CAT})
    with pytest.raises(SourceError, match=r'a.zip: .*expected the name of a file in its folder'):
        open_source(tmp_path / 'a.zip')


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_two_members_of_one_name(tmp_path):
    make_zip(tmp_path / 'a.zip', {'a.jpg': CAT})
    with zipfile.ZipFile(tmp_path / 'a.zip', 'a') as archive:
        archive.writestr('a.jpg', photo(1))
    with pytest.raises(SourceError, match=r"a.zip: .*expected one file of each name, got two of 'a.jpg'"):
        open_source(tmp_path / 'a.zip')


def test_a_zip_that_is_cut_or_empty(tmp_path):
    path = make_zip(tmp_path / 'a.zip', photos(range(3)))
    whole = path.read_bytes()
    for size in (0, 4, len(CAT), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(SourceError, match=r'a\.zip: cannot be read as \.zip: '):
            open_source(path)
    make_zip(path, {})
    with pytest.raises(SourceError, match='expected files, got a zip without any'):
        open_source(path)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / 'missing.zip')


def test_zip64_prefixes_and_names(tmp_path, monkeypatch):
    with monkeypatch.context() as limits:
        limits.setattr(zipfile, 'ZIP64_LIMIT', 1000)
        limits.setattr(zipfile, 'ZIP_FILECOUNT_LIMIT', 2)
        make_zip(tmp_path / 'a.zip', {f'{name}.jpg': photo(at) for at, name in enumerate(('a', 'ä', '日本'))})
    assert b'PK\x06\x06' in (tmp_path / 'a.zip').read_bytes()
    (tmp_path / 'b.zip').write_bytes(b'#!/bin/sh\n' + (tmp_path / 'a.zip').read_bytes())
    for name in ('a', 'b'):
        for link in (False, True):
            bags.convert(tmp_path / f'{name}.zip', tmp_path / f'{name}{link}', link=link)
            found = {str(row['__key__'], 'utf-8'): row['jpg'] for row in rows(tmp_path / f'{name}{link}')}
            assert found == {'a': photo(0), 'ä': photo(1), '日本': photo(2)}


def test_other_formats_in_a_zip_are_refused(tmp_path):
    make_zip(tmp_path / 'a.zip', {'train/0.tar': b'x', 'train/1.tar': b'x'})
    with pytest.raises(
        SourceError, match=r'a\.zip: has files of webdataset .*, which are not read from a zip'
    ):
        open_source(tmp_path / 'a.zip')
    assert open_source(tmp_path / 'a.zip', format='folder').count == 2


def test_a_folder_with_the_name_of_a_zip(tmp_path):
    (tmp_path / 'a.zip').mkdir()
    (tmp_path / 'a.zip' / '0.jpg').write_bytes(CAT)
    assert open_source(tmp_path / 'a.zip').spec == {'__key__': 'utf8', 'jpg': 'jpeg'}


def test_a_zip_that_changes_between(tmp_path):
    path = make_zip(tmp_path / 'a.zip', photos(range(3)))
    source = open_source(path)
    make_zip(path, dict(reversed(photos(range(6)).items())))
    with pytest.raises(SourceError, match=r'a\.zip/a/0000\.jpg: .*expected its header at byte'):
        list(map(source.load, source.entries()))


# Several zips.


def keys(path):
    return [str(row['__key__'], 'utf-8') for row in rows(path)]


def three_zips(folder):
    """Makes a zip of a folder of its own name, one of files without a folder, and a compressed one."""
    folder.mkdir(exist_ok=True)
    system = {'__MACOSX/cats/._0.jpg': b'x', '.DS_Store': b'x'}
    make_zip(folder / 'cats.zip', {f'cats/{number}.jpg': photo(number) for number in range(3)} | system)
    make_zip(folder / 'dogs.zip', {f'{number}.jpg': photo(10 + number) for number in range(3)})
    make_zip(folder / 'eels.ZIP', {f'{number}.jpg': photo(20 + number) for number in range(2)}, DEFLATED)
    return [*(f'cats/{number}' for number in range(3)), *(f'dogs/{number}' for number in range(3)),
            'eels/0', 'eels/1']  # fmt: skip


def test_zips_in_a_folder_stand_for_folders(tmp_path):
    raw = tmp_path / 'raw'
    expected = three_zips(raw)
    (raw / 'README.md').write_text('about')
    (raw / 'metadata.csv').write_text('file_name,weight\ncats/1.jpg,2\n')
    done = bags.convert(raw, tmp_path / 'index', link=True)
    assert done.spec == {'__key__': 'utf8', 'jpg': 'jpeg', 'weight': 'int(8)?', 'label': 'utf8'}
    assert f"{raw}: 2 compressed files are copied: 'eels/0.jpg' and 1 more" in done.notes
    assert done.parents == [str(raw)]
    assert keys(tmp_path / 'index') == expected
    found = rows(tmp_path / 'index')
    assert [row['jpg'] for row in found] == list(map(photo, [0, 1, 2, 10, 11, 12, 20, 21]))
    assert [str(row['label'], 'utf-8') for row in found] == [key.partition('/')[0] for key in expected]
    bags.convert(raw, tmp_path / 'copy')
    assert rows(tmp_path / 'copy') == found
    assert bags.verify(tmp_path / 'index', trust_links=True) == []


def test_zips_by_their_names(tmp_path):
    raw = tmp_path / 'raw'
    three_zips(raw)
    for name, source in {'glob': raw / '*.[zZ]*', 'list': sorted(raw.iterdir())}.items():
        bags.convert(source, tmp_path / name, link=True)
        bags.convert(raw, tmp_path / 'folder', link=True, mode='overwrite')
        assert rows(tmp_path / name) == rows(tmp_path / 'folder')
    with pytest.raises(SourceError, match=r'cats\.zip: is an archive, which is not read: unpack it'):
        open_source([raw / 'cats.zip', tmp_path / 'list' / 'spec.json'])


def test_zips_that_come_later(tmp_path):
    raw = tmp_path / 'raw'
    three_zips(raw)
    options = {'link': True, 'update': True}
    bags.convert(raw, tmp_path / 'index', **options)
    make_zip(raw / 'fish.zip', {'3.jpg': photo(3)})
    (raw / 'dogs').mkdir()
    (raw / 'dogs' / '9.jpg').write_bytes(photo(9))  # Beside a zip of its folder.
    assert bags.convert(raw, tmp_path / 'index', **options).datapoints == 10
    bags.convert(raw, tmp_path / 'anew', link=True)
    assert sorted(rows(tmp_path / 'index'), key=lambda row: bytes(row['__key__'])) == rows(tmp_path / 'anew')
    make_zip(raw / 'dogs.zip', {f'{number}.jpg': photo(30 + number) for number in range(3)})
    with pytest.raises(ValueError, match=r"raw: dogs/0, field 'jpg', datapoint 3 of the dataset: .*changed"):
        bags.convert(raw, tmp_path / 'index', **options)
    (raw / 'dogs.zip').unlink()
    with pytest.raises(ValueError, match=r"'dogs/0', 'dogs/1', 'dogs/2': the files of these .* are missing"):
        bags.convert(raw, tmp_path / 'index', **options)


def test_one_name_in_two_zips(tmp_path):
    three_zips(tmp_path)
    make_zip(tmp_path / 'CATS.zip', {'1.jpg': CAT})
    (tmp_path / 'cats').mkdir()
    assert open_source(tmp_path).count == 9
    (tmp_path / 'cats' / '1.jpg').write_bytes(CAT)
    with pytest.raises(
        SourceError, match=r"cats\.zip: expected one file of the name 'cats/1\.jpg', got anoth"
    ):
        open_source(tmp_path)


def test_a_damaged_zip_among_others(tmp_path):
    raw = tmp_path / 'raw'
    three_zips(raw)
    (raw / 'dogs.zip').write_bytes((raw / 'dogs.zip').read_bytes()[:-1])
    with pytest.raises(SourceError, match=r'dogs\.zip: cannot be read as \.zip'):
        bags.convert(raw, tmp_path / 'index', link=True)
    done = bags.convert(raw, tmp_path / 'index', link=True, on_error='skip')
    assert [Path(name).name for name, _ in done.skipped] == ['dogs.zip']
    assert keys(tmp_path / 'index') == ['cats/0', 'cats/1', 'cats/2', 'eels/0', 'eels/1']
    for name in ('cats.zip', 'eels.ZIP'):
        (raw / name).unlink()
    with pytest.raises(SourceError, match=r'dogs\.zip: cannot be read as \.zip'):
        open_source(raw, on_error='skip')


def test_zips_that_are_values(tmp_path):
    (tmp_path / '1.jpg').write_bytes(CAT)
    make_zip(tmp_path / '1.zip', {'depth.png': b'x'})
    with pytest.raises(SourceError, match=r"1\.zip: is an archive.*layout='files' stores it as bytes"):
        open_source(tmp_path)
    assert open_source(tmp_path, format='folder').spec['zip'] == 'bytes'
    (tmp_path / '1.jpg').unlink()
    assert open_source(tmp_path, layout='files').spec == {'__key__': 'utf8', 'zip': 'bytes'}
    with pytest.raises(SourceError, match=r'expected PNG'):
        bags.convert(tmp_path, tmp_path / 'out')


def test_other_formats_in_several_zips(tmp_path):
    for name in 'ab':
        make_zip(tmp_path / f'{name}.zip', {f'{name}.tar': b'x', f'{name}2.tar': b'x'})
    with pytest.raises(
        SourceError, match=r"webdataset \('a/a\.tar' and 3 more\), which are not read from a zip"
    ):
        open_source(tmp_path)
    assert open_source(tmp_path, layout='stems').count == 4
