"""Import and export of WebDataset tars, written and read by webdataset itself."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard

import bags
from bags.interop.open_source import open_source

CAT = (Path(__file__).parents[4] / 'examples' / 'data' / 'cat.jpg').read_bytes()


def samples(count):
    rng = random.Random(count)
    for i in range(count):
        sample = {'__key__': f'part/{i:06}', 'jpg': CAT, 'txt': f'caption {i}', 'seg.bin': rng.randbytes(i)}
        if i % 2:
            sample['cls'] = str(i).encode()
        yield sample


def write_tar(path, found):
    import webdataset

    with webdataset.TarWriter(str(path)) as writer:
        for sample in found:
            writer.write(sample)


def read_tar(*paths):
    found = {}
    for path in paths:
        with tarfile.open(path) as tar:
            for member in tar:
                assert member.name not in found
                found[member.name] = tar.extractfile(member).read()
    return found


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('suffix', ['tar', 'tar.gz'])
def test_tars_of_webdataset_round_trip(suffix, tmp_path):
    write_tar(tmp_path / f'a-0.{suffix}', samples(30))
    write_tar(
        tmp_path / f'a-1.{suffix}', ({**sample, '__key__': sample['__key__'] + 'b'} for sample in samples(9))
    )
    done = bags.convert(str(tmp_path / f'a-*.{suffix}'), tmp_path / 'out')
    assert done.spec == {
        '__key__': 'utf8', 'cls': 'int(8)?', 'jpg': 'jpeg', 'seg.bin': 'bytes', 'txt': 'utf8',
    }  # fmt: skip
    assert done.datapoints == 39
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[3, 'txt'] == {'txt': 'caption 3'}
        bags.export(dataset, tmp_path / 'tars', shard_length=10)
    tars = sorted((tmp_path / 'tars').iterdir())
    assert [tar.name for tar in tars] == [f'{i:06}.tar' for i in range(4)]
    originals = [tmp_path / f'a-0.{suffix}', tmp_path / f'a-1.{suffix}']
    assert read_tar(*tars) == read_tar(*originals)


@pytest.mark.filterwarnings('ignore')
def test_webdataset_reads_what_is_exported(tmp_path):
    import webdataset

    spec = {'id': 'int(8)', 'image': 'jpeg', 'vector': 'array(float32,3)', 'words': 'utf8[]', 'note': 'utf8?'}
    with bags.DatasetWriter(tmp_path / 'in', spec) as writer:
        for i in range(5):
            vector = np.arange(3, dtype=np.float32) + i
            writer.append({'id': i, 'image': CAT, 'vector': vector, 'words': ['a', f'b{i}'], 'note': None})
    with bags.open(tmp_path / 'in') as dataset:
        bags.export(dataset, tmp_path / 'tars')
    found = list(webdataset.WebDataset(str(tmp_path / 'tars' / '000000.tar'), shardshuffle=False))
    assert [sample['__key__'] for sample in found] == [f'{i:09}' for i in range(5)]
    assert found[3]['id'] == b'3'
    assert found[3]['image.jpg'] == CAT
    assert found[3]['words.000001.txt'] == b'b3'
    assert 'note.txt' not in found[3]
    np.testing.assert_array_equal(np.load(io.BytesIO(found[3]['vector.npy'])), [3, 4, 5])


def test_a_folder_of_tars(tmp_path):
    (tmp_path / 'in').mkdir()
    for number in range(3):
        with tarfile.open(tmp_path / 'in' / f'{number}.tar', 'w') as tar:
            member = tarfile.TarInfo(f'k{number}.txt')
            member.size = 2
            tar.addfile(member, io.BytesIO(b'ok'))
    assert bags.convert(tmp_path / 'in', tmp_path / 'out').datapoints == 3


def test_a_range_of_tars(tmp_path):
    for number in range(12):
        with tarfile.open(tmp_path / f'a-{number:03}.tar', 'w') as tar:
            member = tarfile.TarInfo(f'{number}.txt')
            member.size = 2
            tar.addfile(member, io.BytesIO(b'%02d' % number))
    done = bags.convert(tmp_path / 'a-{002..010}.tar', tmp_path / 'out')
    assert done.datapoints == 9
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('txt') == [f'{number:02}' for number in range(2, 11)]
    with pytest.raises(FileNotFoundError, match=r'a-012\.tar'):
        bags.convert(tmp_path / 'a-{010..012}.tar', tmp_path / 'missing')
    with pytest.raises(ValueError, match=r'source: expected at most 1000000 files, got '):
        bags.convert('a-{0..1000000}.tar', tmp_path / 'missing')


def test_damaged_tars_are_named(tmp_path):
    write_tar(tmp_path / 'a.tar', samples(3))
    data = (tmp_path / 'a.tar').read_bytes()
    (tmp_path / 'cut.tar').write_bytes(data[: len(data) // 2])
    (tmp_path / 'not.tar').write_bytes(b'no tar at all' * 100)
    for name in ('cut.tar', 'not.tar'):
        with pytest.raises(bags.SourceError, match=name):
            bags.convert(tmp_path / name, tmp_path / f'out {name}')
    with pytest.raises(FileNotFoundError):
        bags.convert(tmp_path / 'none.tar', tmp_path / 'out')


def test_two_datapoints_of_one_key_cannot_go_into_a_tar(tmp_path):
    with bags.DatasetWriter(tmp_path / 'in', {'__key__': 'utf8', 'txt': 'utf8'}) as writer:
        for _ in range(2):
            writer.append({'__key__': 'same', 'txt': 'x'})
    with bags.open(tmp_path / 'in') as dataset, pytest.raises(ValueError, match='twice in a row'):
        bags.export(dataset, tmp_path / 'tars')
    assert not list((tmp_path / 'tars').iterdir())
    with bags.open(tmp_path / 'in') as dataset, pytest.raises(FileExistsError):
        bags.export(dataset, tmp_path / 'in')


def make_tar(path, files, mode='w'):
    with tarfile.open(path, mode) as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def keys_of(path):
    with bags.open(path) as dataset:
        return dataset.batch(range(len(dataset)), '__key__')['__key__']


def test_a_compressed_tar_of_another_name(tmp_path):
    source = make_tar(tmp_path / 'x[1].tar', [('a.txt', b'one'), ('b.txt', b'two')], 'w:gz')
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.batch(range(2), 'txt') == {'txt': ['one', 'two']}


def test_metadata_and_hidden_files_are_left_out(tmp_path):
    names = ['__meta__', '__kept__.txt', '._a.txt', 'd/._b.txt', 'd/b.txt']
    bags.convert(make_tar(tmp_path / 'a.tar', [(name, b'x') for name in names]), tmp_path / 'out')
    assert keys_of(tmp_path / 'out') == ['__kept__', 'd/b']


OF_SYSTEMS = ('Thumbs.db', '.DS_Store', 'd/.DS_Store', '__MACOSX/0.txt', '__MACOSX/._1.txt', 'd/desktop.ini')
DOCUMENTS = ('README.md', 'LICENSE', 'SHA256SUMS', 'dataset_info.json')


@pytest.mark.parametrize('root', ['', './', 'data/', './data/train/'])
@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_files_that_describe_the_others_are_left_out(root, mode, tmp_path):
    names = ('Thumbs.db', 'README.md', '0.txt', 'd/1.txt', *OF_SYSTEMS, *DOCUMENTS[1:])
    (tmp_path / 'in').mkdir()
    tar = make_tar(tmp_path / 'in/a.tar', [(root + name, b'x') for name in names], mode)
    make_tar(tmp_path / 'in/b.tar', [('README.md', b'x')])
    done = bags.convert(tmp_path / 'in', tmp_path / 'out')
    prefix = root.removeprefix('./')
    assert keys_of(tmp_path / 'out') == [f'{prefix}0', f'{prefix}d/1']
    assert set(done.spec) == {'__key__', 'txt'}
    left_out = ', '.join(repr(prefix + name) for name in sorted(DOCUMENTS))
    assert f'{tar}: left out: {left_out}' in done.notes
    assert f"{tmp_path / 'in/b.tar'}: left out: 'README.md'" in done.notes
    assert any('7 hidden files, files of operating systems' in note for note in done.notes)
    assert bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True).datapoints == 2


def test_keys_in_folders_with_names_of_systems_are_kept(tmp_path):
    keys = ['.x/y', 'lost+found/c', '__pycache__/d', 'Thumbs.db/e']
    with bags.DatasetWriter(tmp_path / 'x', {'__key__': 'utf8', 'txt': 'utf8'}) as writer:
        for key in keys:
            writer.append({'__key__': key, 'txt': key})
    bags.export(tmp_path / 'x', tmp_path / 'tars')
    bags.convert(tmp_path / 'tars', tmp_path / 'out')
    assert keys_of(tmp_path / 'out') == keys


def test_documents_in_a_tar_of_nothing_else_are_datapoints(tmp_path):
    names = ['a/README.md', 'b/README.md', 'b/LICENSE', 'README.md']
    done = bags.convert(make_tar(tmp_path / 'a.tar', [(name, b'x') for name in names]), tmp_path / 'out')
    assert keys_of(tmp_path / 'out') == ['a/README', 'b/README', 'b/LICENSE']
    assert done.notes[1].endswith("a.tar: left out: 'README.md'")
    done = bags.convert(make_tar(tmp_path / 'b.tar', [('README.md', b'x')]), tmp_path / 'one')
    assert (keys_of(tmp_path / 'one'), done.notes[1:]) == (['README'], [])


def test_documents_that_share_their_name_with_a_datapoint_are_fields(tmp_path):
    names = ['0.jpg', '0.md5', 'README.jpg', 'README.md']
    bags.convert(make_tar(tmp_path / 'a.tar', [(name, CAT) for name in names]), tmp_path / 'out',
                 spec={'md': 'bytes?'})  # fmt: skip
    assert keys_of(tmp_path / 'out') == ['0', 'README']


def test_a_document_in_an_exported_tar_is_left_out(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'box': 'float(4)[]'}) as writer:
        writer.append({'box': [1.0]})
    bags.export(tmp_path / 'x', tmp_path / 'out')
    with tarfile.open(tmp_path / 'out/000000.tar', 'a') as tar:
        tar.addfile(tarfile.TarInfo('README.md'))
    done = bags.convert(tmp_path / 'out', tmp_path / 'back')
    assert (done.datapoints, done.spec) == (1, {'box': 'float(4)[]'})
    assert done.notes[-1].endswith("000000.tar: left out: 'README.md'")


def test_damaged_tars_are_read_up_to_the_damage(tmp_path):
    cut = make_tar(tmp_path / '0.tar', [(f'0{i}.txt', b'x' * 3000) for i in range(5)])
    cut.write_bytes(cut.read_bytes()[:9000])
    (tmp_path / '1.tar').write_bytes(b'')
    make_tar(tmp_path / '2.tar', [(f'2{name}.txt', b'x') for name in 'abbc'])
    source = str(tmp_path / '*.tar')
    with pytest.raises(bags.SourceError, match=r'0\.tar'):
        bags.convert(source, tmp_path / 'raised')
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert [Path(name.partition(':')[0]).name for name, _ in done.skipped] == ['0.tar', '1.tar', '2.tar']
    assert keys_of(tmp_path / 'out') == ['00', '01', '2a', '2c']


def test_a_tar_cut_off_anywhere_or_changed_is_an_error(tmp_path):
    """Also between two files, or within a header, where tarfile reports the end."""
    path = tmp_path / '0.tar'
    with tarfile.open(path, 'w', format=tarfile.USTAR_FORMAT) as tar:
        for index in range(4):
            member = tarfile.TarInfo(f'{index}.txt')
            member.size = 600
            tar.addfile(member, io.BytesIO(b'x' * 600))
    whole = path.read_bytes()
    content = 4 * 3 * 512
    for size in [*range(0, content, 128), *range(1, content, 509)]:
        path.write_bytes(whole[:size])
        with pytest.raises(bags.SourceError, match=r'0\.tar'):
            bags.convert(path, tmp_path / 'out')
    path.write_bytes(whole[: 2 * 1536] + b'?' * 20 + whole[2 * 1536 + 20 :])
    with pytest.raises(bags.SourceError, match=r'0\.tar: .*at byte 3072'):
        bags.convert(path, tmp_path / 'out')
    done = bags.convert(path, tmp_path / 'out', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (1, 1)  # The second datapoint may lack a file.


@pytest.mark.parametrize('form', ['gz', 'bz2', 'xz'])
def test_damaged_compressed_tars_are_errors(tmp_path, form):
    chance = random.Random(0)
    path = tmp_path / f'0.tar.{form}'
    with tarfile.open(path, f'w:{form}') as tar:
        for index in range(20):
            member = tarfile.TarInfo(f'{index}.txt')
            member.size = 3000
            tar.addfile(member, io.BytesIO(bytes(chance.choices(b'abcdef', k=3000))))
    whole = path.read_bytes()
    for number in range(60):
        data = bytearray(whole)
        place = chance.randrange(len(data))
        data[place : place + 8] = chance.randbytes(8)
        path.write_bytes(data if number % 2 else whole[:place])
        try:
            bags.convert(path, tmp_path / str(number))
        except bags.SourceError as exc:
            assert '0.tar' in str(exc)  # noqa: PT017 - some changes are of padding or of texts


def npy(value):
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


@pytest.mark.filterwarnings('ignore')
def test_values_are_those_of_the_decoder_of_webdataset(tmp_path):
    import webdataset

    with webdataset.TarWriter(str(tmp_path / 'a.tar')) as writer:
        for i in range(4):
            array = np.asfortranarray(np.arange(6.0, dtype=np.float32).reshape(2, 3) * i)
            writer.write({'__key__': f'{i}', 'npy': array, 'cls': -i, 'json': {'a': i}, 'id': str(2**70 + i)})
    done = bags.convert(tmp_path / 'a.tar', tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'cls': 'int(8)', 'id': 'utf8', 'json': 'json', 'npy': 'array'}
    wanted = webdataset.WebDataset(str(tmp_path / 'a.tar'), shardshuffle=False).decode()
    with bags.open(tmp_path / 'out') as dataset:
        for datapoint, sample in zip(dataset, wanted, strict=True):
            assert datapoint['cls'] == sample['cls']
            assert datapoint['json'] == sample['json']
            assert int(datapoint['id']) == sample['id']
            assert datapoint['npy'].dtype == sample['npy'].dtype
            np.testing.assert_array_equal(datapoint['npy'], sample['npy'])
        bags.export(dataset, tmp_path / 'tars')
    exported = read_tar(tmp_path / 'tars' / '000000.tar')
    assert exported['3.cls'] == b'-3'
    np.testing.assert_array_equal(np.load(io.BytesIO(exported['3.npy'])), np.arange(6).reshape(2, 3) * 3)


def test_labels_that_are_not_all_integers_are_texts(tmp_path):
    make_tar(tmp_path / 'a.tar', [('0.cls', b'1\n'), ('1.cls', b'2'), ('3.index', b'x')])
    assert bags.convert(tmp_path / 'a.tar', tmp_path / 'out').spec['cls'] == 'int(8)?'
    make_tar(tmp_path / 'b.tar', [('2.cls', b'007')])
    done = bags.convert(tmp_path / '*.tar', tmp_path / 'out2')
    assert done.spec == {'__key__': 'utf8', 'cls': 'utf8?', 'index': 'utf8?'}
    done = bags.convert(tmp_path / 'b.tar', tmp_path / 'out3', spec={'cls': 'bytes'})
    with bags.open(tmp_path / 'out3') as dataset:
        assert dataset[0, 'cls'] == {'cls': b'007'}


def test_arrays_that_are_damaged_or_need_pickle_are_named(tmp_path):
    huge = npy(np.zeros(4)).replace(b'(4,)', b'(10**15,)'[:4])
    for name, data in (('cut', npy(np.zeros(4))[:-1]), ('pickle', npy(np.array([{}]))), ('huge', huge)):
        make_tar(tmp_path / f'{name}.tar', [('0.npy', data)])
        with pytest.raises(bags.SourceError, match=r'0\.npy: expected a \.npy file'):
            bags.convert(tmp_path / f'{name}.tar', tmp_path / f'out {name}')
    for value in (np.zeros((0, 3), 'f4'), np.array(5), np.array(['a', 'bc']), np.ones((2, 3), '>i2')):
        make_tar(tmp_path / 'ok.tar', [('0.npy', npy(value))])
        bags.convert(tmp_path / 'ok.tar', tmp_path / 'ok', mode='overwrite')
        with bags.open(tmp_path / 'ok') as dataset:
            np.testing.assert_array_equal(dataset[0]['npy'], value)


@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_tables_are_joined_to_the_files_they_name(tmp_path, mode):
    rows = b'{"file_name": "0.jpg", "caption": "a cat", "n": 1}\n{"file_name": "1.jpg", "n": 2.5}\n'
    make_tar(tmp_path / 'a.tar', [('0.jpg', CAT), ('metadata.jsonl', rows), ('1.jpg', CAT)], mode)
    make_tar(tmp_path / 'b.tar', [('d/metadata.csv', b'file_name,n\n2.jpg,3\n'), ('./d/2.jpg', CAT)], mode)
    done = bags.convert(tmp_path / '*.tar', tmp_path / 'out')
    assert done.spec == {'__key__': 'utf8', 'caption': 'utf8?', 'jpg': 'jpeg', 'n': 'float(8)'}
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.batch(range(3), ('__key__', 'caption', 'n')) == {
            '__key__': ['0', '1', 'd/2'], 'caption': ['a cat', None, None], 'n': pytest.approx([1, 2.5, 3]),
        }  # fmt: skip


@pytest.mark.parametrize('order', [1, -1])
def test_tables_of_different_types_unite(tmp_path, order):
    columns = [(b'7', b'1'), (b'007', b'2.5')][::order]
    for number, (code, n) in enumerate(columns):
        table = b'file_name,code,n\n%d.jpg,%s,%s\n' % (number, code, n)
        make_tar(tmp_path / f'{number}.tar', [(f'{number}.jpg', CAT), ('metadata.csv', table)])
    done = bags.convert(tmp_path / '*.tar', tmp_path / 'out')
    assert (done.spec['code'], done.spec['n']) == ('utf8', 'float(8)')
    with bags.open(tmp_path / 'out') as dataset:
        assert [row['code'] for row in dataset] == [code.decode() for code, _ in columns]
        assert [row['n'] for row in dataset] == [float(n) for _, n in columns]


def test_tables_that_do_not_fit_are_refused(tmp_path):
    for number, table in enumerate(
        (
            b'file_name,n\n../secret.jpg,3\n',
            b'file_name,jpg\n0.jpg,3\n',
            b'file_name,n\n0.jpg,3\n0.jpg,4\n',
        )
    ):
        make_tar(tmp_path / f'{number}.tar', [('0.jpg', CAT), ('metadata.csv', table)])
        with pytest.raises(bags.SourceError, match=f'{number}' + r'\.tar'):
            bags.convert(tmp_path / f'{number}.tar', tmp_path / 'out')
    make_tar(tmp_path / 'other.tar', [('0.jpg', CAT), ('metadata.csv', b'other,n\nx,3\n')])
    assert bags.convert(tmp_path / 'other.tar', tmp_path / 'out').datapoints == 2
    make_tar(tmp_path / 'named.tar', [('0.jpg', CAT), ('labels.csv', b'other,n\n0.jpg,3\n')])
    with pytest.raises(bags.SourceError, match=r"layout='tables': 1 .* layout='webdataset': 2 "):
        bags.convert(tmp_path / 'named.tar', tmp_path / 'out2')


@pytest.mark.parametrize('form', ['gz', 'bz2', 'xz', 'zst'])
def test_a_changed_byte_of_a_compressed_tar_is_an_error(form, tmp_path):
    chance = random.Random(form)
    texts = [(f'{index:03}.txt', chance.randbytes(200).hex().encode()) for index in range(40)]
    raw = make_tar(tmp_path / 'raw.tar', texts).read_bytes()
    compress = {'gz': gzip.compress, 'bz2': bz2.compress, 'xz': lzma.compress, 'zst': zstd}[form]
    whole, path = compress(raw), tmp_path / f'0.tar.{form}'
    path.write_bytes(whole)
    assert bags.convert(path, tmp_path / 'whole').datapoints == 40
    for place in chance.sample(range(100, len(whole)), 25):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(bags.SourceError, match=r'0\.tar'):
            open_source(path)
        assert not open_source(path, on_error='skip').count
    for more in (b'x', whole[:20]):
        path.write_bytes(whole + more)
        with pytest.raises(bags.SourceError, match=r'0\.tar'):
            open_source(path)


def zstd(data):
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def test_of_several_compressed_tars_the_damaged_ones_are_left_out(tmp_path):
    for number in range(3):
        make_tar(tmp_path / f'{number}.tar.gz', [(f'{number}{i}.txt', b'x') for i in range(3)], 'w:gz')
    damaged = tmp_path / '1.tar.gz'
    damaged.write_bytes(damaged.read_bytes()[:-8] + bytes(8))  # The checksum and the length.
    done = bags.convert(tmp_path, tmp_path / 'out', on_error='skip')
    assert keys_of(tmp_path / 'out') == ['00', '01', '02', '20', '21', '22']
    assert [name for name, _ in done.skipped] == [str(damaged)]


def test_bytes_after_the_end_of_a_tar_are_an_error(tmp_path):
    path = make_tar(tmp_path / '0.tar', [(f'{i}.txt', b'x' * 600) for i in range(4)])
    whole = path.read_bytes()
    hole = whole[:1536] + bytes(512) + whole[2048:]  # In place of the second header.
    for data, place in ((hole, 2048), (whole + whole, len(whole)), (whole + b'x', len(whole))):
        path.write_bytes(data)
        with pytest.raises(bags.SourceError, match=rf'0\.tar: expected zeros .* at byte {place}$'):
            open_source(path)


@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_hard_links_have_the_content_of_their_target(mode, tmp_path):
    with tarfile.open(tmp_path / 'a.tar', mode) as tar:
        for name, target in (
            ('0.txt', ''), ('0.cls', ''), ('1.txt', '0.txt'), ('1.cls', '0.cls'), ('2.txt', '1.txt'),
            ('3.txt', 'none.txt'), ('4.txt', ''),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname = (tarfile.LNKTYPE, target) if target else (tarfile.REGTYPE, '')
            member.size = 0 if target else 2
            tar.addfile(member, None if target else io.BytesIO(b'7\n'))
        link = tarfile.TarInfo('5.txt')
        link.type, link.linkname = tarfile.SYMTYPE, '0.txt'
        tar.addfile(link)
    with pytest.raises(bags.SourceError, match=r"a\.tar: 3\.txt: is a link to 'none\.txt'"):
        bags.convert(tmp_path / 'a.tar', tmp_path / 'raised')
    source = open_source(tmp_path / 'a.tar')
    assert source.notes[1:] == [f'{tmp_path / "a.tar"}: 1 symbolic links are left out']
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert done.spec == {'__key__': 'utf8', 'cls': 'int(8)?', 'txt': 'utf8'}
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('__key__') == ['0', '1', '2', '4']
        assert dataset.column('cls') == [7, 7, None, None]
        assert dataset.column('txt') == ['7\n'] * 4


def sparse_tar(path, size, files=1):
    """Writes a tar of sparse files, of the old GNU form, whose content ends with `end`."""
    with path.open('wb') as file:
        for number in range(files):
            member = tarfile.TarInfo(f'{number}.bin')
            member.type, member.size = tarfile.GNUTYPE_SPARSE, 3
            head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
            head[386:410] = b'%011o\0%011o\0' % (size - 3, 3)
            head[483:495] = b'%011o\0' % size
            head[148:156] = b'%06o\0 ' % sum(head[:148] + b' ' * 8 + head[156:])
            file.write(head + b'end' + bytes(509))
        file.write(bytes(1024))
    return path


def test_sparse_files_are_bounded(tmp_path):
    bags.convert(sparse_tar(tmp_path / 'a.tar', 100_000, files=2), tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.column('bin') == [bytes(99_997) + b'end'] * 2
    with pytest.raises(bags.SourceError, match=r"b\.tar: expected at most 1073741824 bytes for '0\.bin'"):
        open_source(sparse_tar(tmp_path / 'b.tar', 1 << 32))


def test_many_sparse_files_take_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.load.BATCH_BYTES', 1 << 20)
    path = sparse_tar(tmp_path / 'b.tar', 1 << 22, files=12)
    small = make_tar(tmp_path / 'a.tar', [(f'a{i}.bin', b'x') for i in range(15)])
    bags.convert(small, tmp_path / 'small')
    tracemalloc.start()
    bags.convert([small, path], tmp_path / 'out')
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 22


def test_a_compressed_datapoint_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.interop.source.MAX_EXPANDED_BYTES', 100_000)
    files = [(f'{i}.{name}', bytes(40_000)) for i in range(5) for name in 'ab']
    assert open_source(make_tar(tmp_path / 'a.tar.gz', files, 'w:gz')).count == 5
    make_tar(tmp_path / 'b.tar.gz', [(f'0.{name}', bytes(40_000)) for name in 'abc'], 'w:gz')
    with pytest.raises(bags.SourceError, match=r"b\.tar\.gz: expected at most 100000 bytes .* '0'"):
        open_source(tmp_path / 'b.tar.gz')


def written_by_tar(count, start=0):
    """Returns the files of a tar as `tar cf x.tar *.jpg *.txt` writes them."""
    pictures = [(f'{number}.jpg', CAT) for number in range(start, start + count)]
    return pictures + [(f'{number}.txt', b'caption %d' % number) for number in range(start, start + count)]


@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_files_of_a_key_that_do_not_follow_each_other(mode, tmp_path):
    source = tmp_path / 'in'
    source.mkdir()
    for number in range(2):
        make_tar(source / f'{number}.tar', written_by_tar(3, 3 * number), mode)
    for path in (source, source / '0.tar', source / '*.tar'):
        expected = r"0\.tar: .*several ways.* layout='stems': \d .* layout='webdataset': \d+ "
        with pytest.raises(bags.SourceError, match=expected):
            bags.convert(path, tmp_path / 'out')
    assert open_source(source, layout='webdataset').count == 12
    done = bags.convert(source, tmp_path / 'out', layout='stems')
    assert (done.datapoints, done.spec) == (6, {'__key__': 'utf8', 'jpg': 'jpeg', 'txt': 'utf8'})
    assert keys_of(tmp_path / 'out') == [str(number) for number in range(6)]
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == 6
    if mode == 'w':
        bags.convert(source, tmp_path / 'linked', layout='stems', link=True)
        make_tar(source / '2.tar', written_by_tar(2, 6))
        assert bags.convert(source, tmp_path / 'linked', link=True, update=True).datapoints == 8
        with bags.open(tmp_path / 'linked', trust_links=source) as dataset:
            assert dataset[7, ('__key__', 'txt')] == {'__key__': '7', 'txt': 'caption 7'}
            assert bytes(dataset.records('jpg')[7]) == CAT


def test_a_file_that_was_appended_to_a_tar(tmp_path):
    names = ['0.jpg', '0.txt', '1.jpg', '2.jpg', '2.txt']
    make_tar(tmp_path / 'a.tar', [(name, CAT if name.endswith('jpg') else b'x') for name in names])
    assert open_source(tmp_path / 'a.tar').count == 3
    make_tar(tmp_path / 'a.tar', [('1.txt', b'z')], 'a')
    with pytest.raises(bags.SourceError, match=r"layout='stems': 3 .* layout='webdataset': 4 "):
        open_source(tmp_path / 'a.tar')


def test_keys_that_are_used_again_for_other_datapoints(tmp_path):
    twice = [('0.jpg', CAT), ('0.txt', b'x'), ('1.txt', b'y'), ('0.jpg', CAT), ('0.txt', b'z')]
    make_tar(tmp_path / 'a.tar', twice)
    assert open_source(tmp_path / 'a.tar').count == 3
    done = bags.convert(tmp_path / 'a.tar', tmp_path / 'out', layout='stems', on_error='skip')
    assert [name.rpartition(': ')[2] for name, _ in done.skipped] == ['0.jpg']


@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_folders_of_fields_in_a_tar(mode, tmp_path):
    files = {f'photos/{number}.jpg': CAT for number in range(3)} | {f'texts/{n}.txt': b'x' for n in range(3)}
    path = make_tar(tmp_path / 'a.tar', [(f'./{name}', data) for name, data in files.items()], mode)
    with pytest.raises(
        bags.SourceError, match=r"layout='fields': 3 datapoints.* layout='webdataset': 6 datapoints"
    ):
        bags.convert(path, tmp_path / 'out')
    done = bags.convert(path, tmp_path / 'out', layout='fields')
    assert (done.datapoints, done.spec) == (3, {'__key__': 'utf8', 'photos': 'jpeg', 'texts': 'utf8'})
    assert bags.convert(path, tmp_path / 'out', resume=True).datapoints == 3
    assert bags.convert(path, tmp_path / 'wds', layout='webdataset').datapoints == 6
    assert open_source(path, layout='classes').spec.keys() == {'__key__', 'jpg', 'txt', 'label'}
    make_tar(tmp_path / 'b.tar', [(f'./{name}', data) for name, data in files.items()], mode)
    with pytest.raises(bags.SourceError, match="expected one tar for layout='fields', got 2: unpack them"):
        bags.convert(tmp_path / '*.tar*', tmp_path / 'two', layout='fields')


def test_a_tar_that_is_read_as_a_folder_has_each_name_once(tmp_path):
    make_tar(tmp_path / 'a.tar', [('x/0.txt', b'x'), ('x/0.txt', b'y')])
    with pytest.raises(bags.SourceError, match=r"expected one file of each name, got two of 'x/0\.txt'"):
        open_source(tmp_path / 'a.tar', layout='files')


def test_folders_of_complete_datapoints_in_a_tar(tmp_path):
    stems = [f'{folder}/{number}' for folder in ('a', 'b') for number in range(3)]
    names = [f'{stem}.{extension}' for stem in stems for extension in ('jpg', 'txt')]
    make_tar(tmp_path / 'a.tar', [(name, CAT if name.endswith('jpg') else b'x') for name in names])
    assert open_source(tmp_path / 'a.tar').count == 6
    make_tar(tmp_path / 'b.tar', [(name, CAT) for name in names if name.endswith('jpg')])
    assert open_source(tmp_path / 'b.tar').count == 6


def classes(tmp_path, extra=()):
    """Returns the files of folders of classes, and makes the folder."""
    files = {f'{kind}/{n}.{each}': CAT if each == 'jpg' else b'x' for kind in ('cat', 'dog')
             for n in range(3) for each in ('jpg', 'txt')}  # fmt: skip
    for name, data in {**files, **dict(extra)}.items():
        (tmp_path / 'in' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'in' / name).write_bytes(data)
    return {**files, **dict(extra)}


@pytest.mark.parametrize('extra', [{}, {'README.md': b'x', 'names.csv': b'a'}])
@pytest.mark.parametrize('form', ['', './', 'two', 'gz'])
def test_folders_of_classes_are_read_as_in_a_folder(form, extra, tmp_path):
    files = [*classes(tmp_path, extra).items()]
    bags.convert(tmp_path / 'in', tmp_path / 'of-folder')
    (tmp_path / 'tars').mkdir()
    if form == 'two':  # Each tar has one class.
        make_tar(tmp_path / 'tars/0.tar', files[:6])
        make_tar(tmp_path / 'tars/1.tar', files[6:])
    else:
        named = [(f'{form}{name}' if form == './' else name, data) for name, data in files]
        make_tar(tmp_path / 'tars/0.tar', named, 'w:gz' if form == 'gz' else 'w')
    done = bags.convert(tmp_path / 'tars', tmp_path / 'out')
    assert done.notes[0] == 'read as classes: 6 datapoints, a folder for each class'
    left_out = [note for note in done.notes if 'left out: ' in note]
    assert all(any(name in note for note in left_out) for name in extra)
    with bags.open(tmp_path / 'out') as dataset, bags.open(tmp_path / 'of-folder') as of_folder:
        assert dataset.spec == of_folder.spec
        assert dataset.column('label') == of_folder.column('label') == ['cat'] * 3 + ['dog'] * 3
        assert dataset.column('__key__') == of_folder.column('__key__')
    source = open_source(tmp_path / 'tars')
    assert source.readings()[:2] == [('classes', 6), ('webdataset', 6)]
    assert 'label' not in open_source(tmp_path / 'tars', layout='webdataset').spec


def test_folders_of_classes_that_an_export_writes(tmp_path):
    classes(tmp_path)
    bags.convert(tmp_path / 'in', tmp_path / 'd')
    with bags.open(tmp_path / 'd') as dataset:
        for rows in (slice(None), slice(0, 2), slice(3, None)):  # The last two are of one class.
            for format in ('webdataset', 'files'):
                target = tmp_path / f'{format} {rows.start}'
                notes = bags.export(dataset[rows], target, format=format, shard_length=2).notes
                layout = 'classes' if notes else None
                assert ("layout='classes'" in ''.join(notes)) == (rows != slice(None))
                done = bags.convert(target, tmp_path / f'{format} {rows.start} out', layout=layout)
                assert done.spec == dataset.spec
                with bags.open(tmp_path / f'{format} {rows.start} out') as again:
                    assert again.column('label') == dataset[rows].column('label')


def test_folders_of_classes_whose_files_do_not_follow_each_other(tmp_path):
    files = sorted(classes(tmp_path).items(), key=lambda item: (item[0][-3:], item[0]))
    path = make_tar(tmp_path / 'a.tar', files)
    match = (
        r"layout='classes': 6 datapoints.*layout='stems': 6 datapoints.*layout='webdataset': 12 datapoints"
    )
    with pytest.raises(bags.SourceError, match=match):
        bags.convert(path, tmp_path / 'out')
    done = bags.convert(path, tmp_path / 'out', layout='classes')
    assert (done.datapoints, done.spec['label'], done.spec['txt']) == (6, 'utf8', 'utf8')
    assert bags.convert(path, tmp_path / 'out', resume=True).datapoints == 6
    with pytest.raises(
        bags.SourceError, match=r'0\.jpg.* a folder for each class, got a file outside of any'
    ):
        open_source(make_tar(tmp_path / 'b.tar', [*files, ('0.jpg', CAT), ('1.jpg', CAT)]), layout='classes')


@pytest.mark.parametrize('has_log', [True, False])
def test_an_import_of_classes_in_tars_is_continued(has_log, tmp_path):
    """Datasets that were begun without labels stay so."""
    files = [*classes(tmp_path).items()]
    path = make_tar(tmp_path / 'a.tar', files)
    for layout in ('webdataset', None):
        out = tmp_path / f'{layout}'
        spec = bags.convert(path, out, layout=layout, link=True).spec
        assert ('label' in spec) == (layout is None)
        if not has_log:
            (out / 'progress.json').unlink()
        make_tar(path, files)
        again = bags.convert(path, out, resume=True, link=True)
        assert (again.datapoints, again.spec) == (6, spec)


@pytest.mark.parametrize(
    'names',
    [
        ['0/1.jpg', '0/2.jpg'],
        ['0.jpg', '1.jpg'],
        ['a/b/0.jpg', 'a/c/0.jpg'],
        ['a/0.jpg', 'b/c/0.jpg'],
        ['cat/0.jpg', 'dog/2.txt', 'cat/1.label'],
    ],
)
def test_keys_with_folders_that_are_no_classes(names, tmp_path):
    make_tar(tmp_path / 'a.tar', [(name, CAT if name.endswith('jpg') else b'x') for name in names])
    found = open_source(tmp_path / 'a.tar')
    assert found.spec.get('label', 'bytes?') == 'bytes?'
