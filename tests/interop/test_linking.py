"""Linked data: datasets of links to the files of other formats, which equal imported copies."""

import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.bag import Writer
from bags.errors import LinkError, SourceError
from bags.interop.open_source import open_source
from bags.links.sources import LinkOpener

GOLDEN = Path(__file__).parent / 'sources' / 'golden'
DATA = Path(__file__).parents[2] / 'examples' / 'data'
CAT = (DATA / 'cat.jpg').read_bytes()


def photo(number):
    """Returns a JPEG that differs from others in a comment."""
    comment = b'%06d' % number
    return CAT[:2] + b'\xff\xfe' + (2 + len(comment)).to_bytes(2, 'big') + comment + CAT[2:]


def make_photos(root, numbers):
    for number in numbers:
        folder = root / 'abc'[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f'{number:04}.jpg').write_bytes(photo(number))
        (folder / f'{number:04}.txt').write_text(f'caption {number}')
        if number % 2:
            (folder / f'{number:04}.cls').write_text(str(number))


def rows(path, **options):
    with bags.open(path, raw=True, trust_links=True, **options) as reader:
        return list(reader)


def size_of(folder):
    return sum(each.stat().st_size for each in Path(folder).rglob('*') if each.is_file())


def test_a_folder_of_files(tmp_path):
    make_photos(tmp_path / 'photos', range(30))
    copied = bags.convert(tmp_path / 'photos', tmp_path / 'copy')
    done = bags.convert(tmp_path / 'photos', tmp_path / 'index', link=True)
    assert done.spec == copied.spec
    assert done.parents == [str(tmp_path / 'photos')]
    assert f'trust_links={done.parents}' in done.notes[-1]
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    assert done.size < copied.size - 29 * len(CAT)
    names = os.listdir(tmp_path / 'index' / '000000')
    assert {'jpg.links', 'txt.bag', 'cls.bag', '__key__.bag'} < set(names)
    with bags.open(tmp_path / 'index') as reader, pytest.raises(PermissionError, match='trust_links='):
        reader[0]
    with bags.open(tmp_path / 'index', trust_links=tmp_path / 'photos') as reader:
        assert reader[7]['jpg'].shape == (reader[0]['jpg'].shape)
        assert set(reader.batch(range(30))['txt']) == {f'caption {n}' for n in range(30)}
    bags.copy(bags.open(tmp_path / 'index', trust_links=True), tmp_path / 'whole')
    shutil.rmtree(tmp_path / 'photos')
    assert rows(tmp_path / 'whole') == rows(tmp_path / 'copy')


def test_episodes_link_each_item(tmp_path):
    for number in range(6):
        for frame in range(number + 2):
            path = tmp_path / 'raw' / f'episode_{number}' / f'{frame:03}.jpg'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo(100 * number + frame))
    for link in (False, True):
        done = bags.convert(tmp_path / 'raw', tmp_path / f'{link}', link=link)
    assert done.spec['jpg'] == 'jpeg[]'
    assert rows(tmp_path / 'True') == rows(tmp_path / 'False')
    assert size_of(tmp_path / 'True') < 5000


def test_which_fields_are_linked(tmp_path):
    make_photos(tmp_path / 'photos', range(4))
    done = bags.convert(tmp_path / 'photos', tmp_path / 'a', link=['txt'], rename={'txt': 'text'})
    assert {'text.links', 'jpg.bag'} < set(os.listdir(tmp_path / 'a' / '000000'))
    assert [row['text'] for row in rows(tmp_path / 'a')] == [f'caption {n}'.encode() for n in (0, 3, 1, 2)]
    assert done.parents == [str(tmp_path / 'photos')]
    with pytest.raises(KeyError, match="no field 'png'"):
        bags.convert(tmp_path / 'photos', tmp_path / 'b', link=['png'])
    with pytest.raises(ValueError, match="field 'cls' cannot be linked: no value of type int"):
        bags.convert(tmp_path / 'photos', tmp_path / 'b', link=['cls'], spec={'cls': 'int(8)?'})
    with pytest.raises(ValueError, match="'__key__' cannot be linked"):
        bags.convert(tmp_path / 'photos', tmp_path / 'b', link=['__key__'])
    with pytest.raises(TypeError, match='link: expected True'):
        bags.convert(tmp_path / 'photos', tmp_path / 'b', link='jpg')
    with pytest.raises(
        ValueError, match=r"link: .*more than 256 bytes on average, got .*'txt': records of 9 b"
    ):
        bags.convert(tmp_path / 'photos', tmp_path / 'b', spec={'jpg': None}, link=True)
    assert not (tmp_path / 'b').exists()


def test_resume_keeps_the_linked_fields(tmp_path):
    make_photos(tmp_path / 'photos', range(3))
    (tmp_path / 'photos' / 'd').mkdir()
    (tmp_path / 'photos' / 'd' / '9.jpg').write_bytes(b'no photo')
    (tmp_path / 'photos' / 'd' / '9.txt').write_text('caption')
    with pytest.raises(SourceError, match=r'9\.jpg: expected JPEG, got bytes that begin'):
        bags.convert(tmp_path / 'photos', tmp_path / 'index', link=True)
    (tmp_path / 'photos' / 'd' / '9.jpg').write_bytes(photo(9))
    bags.convert(tmp_path / 'photos', tmp_path / 'index', link=True, resume=True)
    bags.convert(tmp_path / 'photos', tmp_path / 'copy')
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    assert size_of(tmp_path / 'index') < len(CAT)
    with pytest.raises(ValueError, match='has no linked fields'):
        bags.convert(tmp_path / 'photos', tmp_path / 'copy', link=True, resume=True)


def test_damaged_files_are_named_or_skipped(tmp_path):
    make_photos(tmp_path / 'raw', range(5))
    (tmp_path / 'raw' / 'd').mkdir()
    (tmp_path / 'raw' / 'd' / 'bunny.mp4').write_bytes((DATA / 'bunny.mp4').read_bytes()[:-2000])
    (tmp_path / 'raw' / 'b' / '0001.jpg').write_bytes(b'GIF89a' + bytes(300))
    done = bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True, on_error='skip')
    assert sorted(Path(name).name for name, _ in done.skipped) == ['0001.jpg', 'bunny.mp4']
    assert any(error.startswith('expected JPEG, got GIF') for _, error in done.skipped)
    assert any('MP4 is cut off' in error for _, error in done.skipped)
    assert done.datapoints == 4


def test_the_source_is_not_replaced_by_its_links(tmp_path):
    make_photos(tmp_path / 'raw', range(3))
    with pytest.raises(FileExistsError, match='not empty'):
        bags.convert(tmp_path / 'raw', tmp_path / 'raw', link=True)
    bags.convert(tmp_path / 'raw', tmp_path / 'data')
    bag = tmp_path / 'data' / '000000' / 'jpg.bag'
    with pytest.raises(
        ValueError, match=r'links cannot lead into the dataset that mode=.overwrite. replaces'
    ):
        bags.convert(bag, tmp_path / 'data', link=True, mode='overwrite')
    assert rows(tmp_path / 'data')[0]['jpg'] == photo(0)


def test_files_that_change_later(tmp_path):
    make_photos(tmp_path / 'raw', range(3))
    bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)
    path = tmp_path / 'raw' / 'b' / '0001.jpg'
    path.write_bytes(photo(7))
    with bags.open(tmp_path / 'index', raw=True, trust_links=True) as reader:
        assert reader[0]['jpg'] == photo(0)
        with pytest.raises(LinkError, match=r'0001\.jpg'):
            reader[1]


def make_tar(numbers, *, mode='w', format=tarfile.GNU_FORMAT, without=()):
    """Returns a tar of datapoints, whose photos have about 40 KB."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=format) as tar:
        for number in numbers:
            parts = {'jpg': photo(number), 'txt': b'caption %d' % number, 'cls': b'%d' % number}
            for extension in parts.keys() - set(without) if without else parts:
                data = parts[extension]
                member = tarfile.TarInfo(f'{number:06}.{extension}')
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize('format', [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_tars(format, tmp_path):
    (tmp_path / 'raw').mkdir()
    for tar in range(3):
        (tmp_path / 'raw' / f'{tar}.tar').write_bytes(make_tar(range(10 * tar, 10 * tar + 10), format=format))
    bags.convert(tmp_path / 'raw' / '*.tar', tmp_path / 'copy')
    done = bags.convert(tmp_path / 'raw' / '*.tar', tmp_path / 'index', link=True)
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    assert done.parents == [str(tmp_path / 'raw')]
    assert size_of(tmp_path / 'index') < 30 * 400


def test_compressed_tars_are_copied(tmp_path):
    (tmp_path / 'a.tar.gz').write_bytes(make_tar(range(3), mode='w:gz'))
    (tmp_path / 'b.tar').write_bytes(make_tar(range(3, 6)))
    with pytest.raises(ValueError, match="'jpg', 'txt': compressed tars have no files that could be linked"):
        bags.convert(tmp_path / 'a.tar.gz', tmp_path / 'index', link=True)
    bags.convert([tmp_path / 'a.tar.gz', tmp_path / 'b.tar'], tmp_path / 'copy')
    done = bags.convert([tmp_path / 'a.tar.gz', tmp_path / 'b.tar'], tmp_path / 'index', link=True)
    assert f"the files of compressed tars are copied: '{tmp_path}/a.tar.gz'" in done.notes
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')


def test_damaged_tars(tmp_path):
    whole = make_tar(range(4))
    path = tmp_path / 'a.tar'
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r'a\.tar'):
        bags.convert(path, tmp_path / 'index', link=True)
    done = bags.convert(path, tmp_path / 'index', link=True, on_error='skip')
    assert [row['jpg'] for row in rows(tmp_path / 'index')] == [photo(n) for n in range(done.datapoints)]
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w') as tar:
        for number, data in enumerate(map(photo, range(4))):
            member = tarfile.TarInfo(f'{max(1, number)}.jpg')
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    path.write_bytes(file.getvalue())
    with pytest.raises(SourceError, match=r'1\.jpg: is in one datapoint twice'):
        bags.convert(path, tmp_path / 'twice', link=True)


def test_a_tar_that_changes_while_it_is_linked(tmp_path):
    (tmp_path / 'a.tar').write_bytes(make_tar(range(4)))
    source = open_source(tmp_path / 'a.tar')
    source.linked, source.opener = {'jpg'}, LinkOpener(None)
    entry = next(source.entries())
    (tmp_path / 'a.tar').write_bytes(make_tar(range(30)))
    with pytest.raises(SourceError, match=r'a\.tar: expected \d+ bytes, got \d+: it has changed since'):
        source.load(entry)


@pytest.mark.parametrize('name', ['mds', 'litdata'])
def test_chunks(name, tmp_path):
    bags.convert(GOLDEN / name, tmp_path / 'copy')
    done = bags.convert(GOLDEN / name, tmp_path / 'index', link=True)
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    assert done.parents == [str(GOLDEN / name)]
    assert any(each.name == 'jpeg.links' for each in (tmp_path / 'index' / '000000').iterdir())


@pytest.mark.parametrize('name', ['mds-zstd', 'litdata-chunk'])
def test_compressed_chunks_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match='that are compressed have no records'):
        bags.convert(GOLDEN / name, tmp_path / 'index', link=True)


def test_a_cut_shard_of_mds(tmp_path):
    shutil.copytree(GOLDEN / 'mds', tmp_path / 'raw')
    path = tmp_path / 'raw' / 'shard.00001.mds'
    data = bytearray(path.read_bytes())
    data[4:8] = b'\xff\xff\0\0'
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r'shard\.00001\.mds, records 0 to 1: .*expected samples from byte'):
        bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)


@pytest.mark.parametrize('suffix', ['bag', 'bagz'])
def test_bags_of_records(suffix, tmp_path):
    (tmp_path / 'raw').mkdir()
    for number in range(2):
        with Writer(tmp_path / 'raw' / f'{number}.{suffix}') as writer:
            for each in range(5):
                writer.write(photo(5 * number + each))
    done = bags.convert(
        tmp_path / 'raw', tmp_path / 'index', link=True, spec={'record': 'jpeg'}, rename={'record': 'photo'}
    )
    assert [row['photo'] for row in rows(tmp_path / 'index')] == list(map(photo, range(10)))
    assert size_of(tmp_path / 'index') < 10 * 300
    assert done.parents == [str(tmp_path / 'raw')]
    with Writer(tmp_path / f'text.{suffix}') as writer:
        writer.write(b'{}' * 1000)
    if suffix == 'bag':
        with pytest.raises(SourceError, match=r'text\.bag, record 0: expected JPEG'):
            bags.convert(tmp_path / 'text.bag', tmp_path / 'b', link=True, spec={'record': 'jpeg'})


def test_arrays_of_npz(tmp_path):
    chance = np.random.default_rng(0)
    (tmp_path / 'raw').mkdir()
    for number in range(4):
        arrays = {
            'image': chance.integers(0, 255, (16, 9, 3), np.uint8),
            'states': chance.random((5 + number, 100), np.float32),
            'flat': chance.random(3),
            'fortran': np.asfortranarray(chance.random((20, 30))),
            'big': chance.random((20, 30)).astype('>f8'),
            'id': np.array(number),
        }
        save = np.savez_compressed if number == 3 else np.savez
        save(tmp_path / 'raw' / f'{number}.npz', **arrays)
    bags.convert(tmp_path / 'raw', tmp_path / 'copy')
    done = bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)
    assert done.spec['states'] == 'array(float32,100)[]'
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    names = os.listdir(tmp_path / 'index' / '000000')
    assert [name for name in sorted(names) if name.endswith('.links')] == ['image.links', 'states.links']
    assert (tmp_path / 'index' / '000000' / 'states.values').stat().st_size < 8 * 404 + 100
    path = tmp_path / 'raw' / '1.npz'
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ValueError, match=r'1\.npz'):
        bags.convert(tmp_path / 'raw', tmp_path / 'b', link=True)
    (tmp_path / 'small').mkdir()
    np.savez(tmp_path / 'small' / 'a.npz', fortran=np.asfortranarray(np.ones((9, 9))))
    with pytest.raises(ValueError, match=r'no value of type array.* is stored as its record'):
        bags.convert(tmp_path / 'small', tmp_path / 'b', link=True)


def make_many(root, count):
    """Writes small files that begin and end as JPEGs do, forty in a folder, with captions for some."""
    head = CAT[:600]
    for number in range(count):
        folder = root / f'set {number // 40}x'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f'{number:05}.jpg').write_bytes(head + b'%05d\xff\xd9' % number)
        if number % 3:
            (folder / f'{number:05}.txt').write_text(f'caption {number}')


def test_blocks_of_files_with_damaged_ones_among_them(tmp_path):
    make_many(tmp_path / 'raw', 400)
    damaged = [0, 1, 150, 399]
    for number in damaged:
        (tmp_path / 'raw' / f'set {number // 40}x' / f'{number:05}.jpg').write_bytes(b'no photo')
    odd = tmp_path / 'raw' / 'set 9x' / '00360\\.jpg'  # A name that links do not store.
    odd.write_bytes(CAT)
    bags.convert(tmp_path / 'raw', tmp_path / 'copy', on_error='skip')
    done = bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True, on_error='skip')
    names = [Path(name).name for name, _ in done.skipped]
    assert sorted(names) == ['00000.jpg', '00001.jpg', '00150.jpg', '00360\\', '00399.jpg']
    keys = {row['__key__'] for row in rows(tmp_path / 'index')}
    assert rows(tmp_path / 'index') == [row for row in rows(tmp_path / 'copy') if row['__key__'] in keys]
    assert done.datapoints == 396

    (tmp_path / 'raw' / 'set 0x' / '00000.jpg').write_bytes(CAT)
    (tmp_path / 'raw' / 'set 0x' / '00001.jpg').write_bytes(CAT)
    with pytest.raises(SourceError, match=r'00150\.jpg: expected JPEG, got bytes that begin'):
        bags.convert(tmp_path / 'raw', tmp_path / 'again', link=True)
    for number in damaged:
        (tmp_path / 'raw' / f'set {number // 40}x' / f'{number:05}.jpg').write_bytes(CAT)
    with pytest.raises(SourceError, match=r'00360\\.*expected a path without'):
        bags.convert(tmp_path / 'raw', tmp_path / 'again', link=True, resume=True)
    odd.unlink()
    bags.convert(tmp_path / 'raw', tmp_path / 'again', link=True, resume=True)
    bags.convert(tmp_path / 'raw', tmp_path / 'anew', link=True)
    assert rows(tmp_path / 'again') == rows(tmp_path / 'anew')
    assert len(rows(tmp_path / 'again')) == 400


@pytest.mark.parametrize('options', [{'shard_length': 7}, {'shard_size': 20_000}, {'checksum': True}])
def test_shards_and_checksums_of_blocks(options, tmp_path):
    make_many(tmp_path / 'raw', 300)
    bags.convert(tmp_path / 'raw', tmp_path / 'copy')
    done = bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True, **options)
    assert rows(tmp_path / 'index') == rows(tmp_path / 'copy')
    assert bags.verify(tmp_path / 'index', trust_links=True) == []
    if 'shard_length' in options:
        assert done.shards == 43
    if 'shard_size' in options:
        assert done.shards > 1
        sizes = [size_of(each) for each in sorted((tmp_path / 'index').glob('0*'))]
        assert all(20_000 <= size < 21_000 for size in sizes[:-1])


def test_files_that_vanish_or_are_cut_while_they_are_linked(tmp_path):
    make_many(tmp_path / 'raw', 120)
    source = open_source(tmp_path / 'raw')
    (tmp_path / 'raw' / 'set 2x' / '00110.jpg').unlink()
    (tmp_path / 'raw' / 'set 2x' / '00111.jpg').write_bytes(b'')
    done = bags.convert(source, tmp_path / 'index', link=True, on_error='skip')
    assert [Path(name).name for name, _ in done.skipped] == ['00110.jpg', '00111.jpg']
    assert 'No such file' in done.skipped[0].error
    assert done.skipped[1].error == 'expected JPEG, got no bytes'
    assert done.datapoints == 118


@pytest.mark.skipif(os.name == 'nt', reason='needs limits of descriptors')
def test_an_episode_of_more_files_than_may_be_open(tmp_path):
    import resource

    for frame in range(600):
        path = tmp_path / 'raw' / f'episode_{frame % 2}' / f'{frame:03}.jpg'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo(frame))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/dev/fd')) + 150, limits[1]))
    try:
        done = bags.convert(tmp_path / 'raw', tmp_path / 'index', link=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert done.spec['jpg'] == 'jpeg[]'
    assert [list(row['jpg']) for row in rows(tmp_path / 'index')] == [
        [photo(frame) for frame in range(first, 600, 2)] for first in (0, 1)
    ]


FAR = 5 << 30
"""An offset of more than 32 bits, in files with a hole before it."""


def far_tar(path):
    with open(path, 'wb') as file:
        for name, content in (('0.bin', None), ('1.jpg', photo(1)), ('1.bin', b'x' * 300)):
            member = tarfile.TarInfo(name)
            member.size = FAR if content is None else len(content)
            file.write(member.tobuf(tarfile.GNU_FORMAT))
            if content is None:
                file.seek(FAR, os.SEEK_CUR)
            else:
                file.write(content + bytes(-len(content) % 512))
        file.write(bytes(1024))


def far_zip(path):
    with open(path, 'wb') as file:
        file.seek(FAR)
        with zipfile.ZipFile(file, 'w') as archive:
            archive.writestr('1.jpg', photo(1))
            archive.writestr('1.bin', b'x' * 300)


def far_bag(path):
    with open(path, 'wb') as file:
        file.seek(FAR)
        file.write(photo(1))
        file.write(np.array([FAR, FAR + len(photo(1))], '<u8').tobytes())


@pytest.mark.skipif(os.name == 'nt', reason='needs files with holes')
@pytest.mark.parametrize('write', [far_tar, far_zip, far_bag])
def test_offsets_beyond_32_bits(write, tmp_path):
    path = tmp_path / f'a.{write.__name__.removeprefix("far_")}'
    write(path)
    assert path.stat().st_size > FAR
    done = bags.convert(path, tmp_path / 'index', link=True)
    assert done.size < 10_000
    with bags.open(tmp_path / 'index', trust_links=tmp_path, raw=True) as reader:
        row = reader[len(reader) - 1]
    assert row.get('jpg', row.get('record')) == photo(1)
    assert row.get('bin', b'x' * 300) == b'x' * 300
    with bags.open(tmp_path / 'index', trust_links=tmp_path) as reader:
        assert bags.info(tmp_path / 'index').datapoints == len(reader)
    assert bags.verify(tmp_path / 'index', trust_links=tmp_path) == []
