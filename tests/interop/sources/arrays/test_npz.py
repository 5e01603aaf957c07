"""Files of NumPy: every value equals that of numpy.load."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parents[1] / 'golden' / 'npz'


def test_values(tmp_path):
    assert open_source(GOLDEN).spec == {
        '__key__': 'utf8', 'depth': 'array(uint16,2,3)[]', 'image': 'array(uint8,2,2,3)',
        'obs': 'array(float64,2)[]', 'score': 'float(4)?', 'task': 'utf8',
    }  # fmt: skip
    bags.convert(GOLDEN, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['score'] is None
        for number, found in enumerate(dataset):
            assert found['__key__'] == str(number)
            with np.load(GOLDEN / f'{number}.npz') as file:
                for name in file.files:
                    assert np.array_equal(found[name], file[name]), name


def test_pickles_and_headers_that_lie_are_refused(tmp_path):
    np.savez(tmp_path / 'a.npz', x=np.array([{}], object), y=np.ones(3))
    with pytest.raises(bags.SourceError, match=r'a.npz: cannot be read as .npz: x: .*allow_pickle=False'):
        open_source(tmp_path / 'a.npz')
    np.savez(tmp_path / 'b.npz', x=np.ones(3))
    with zipfile.ZipFile(tmp_path / 'b.npz') as archive:
        member = archive.read('x.npy').replace(b'(3,), }' + 4 * b' ', b'(3000,), }' + b' ')
    with zipfile.ZipFile(tmp_path / 'b.npz', 'w') as archive:
        archive.writestr('x.npy', member)
    with pytest.raises(
        bags.SourceError, match=r'b.npz: .* x: expected 24000 bytes for shape \(3000,\), got 24'
    ):
        open_source(tmp_path / 'b.npz')


@pytest.mark.parametrize('order', ['C', 'F'])
def test_an_array_that_is_shorter_than_the_archive_says(order, tmp_path):
    """Its header and the directory agree, and the checksum is that of the bytes that are there."""
    path = tmp_path / 'a.npz'
    np.savez_compressed(path, x=np.ones((3, 2), order=order))
    with zipfile.ZipFile(path) as archive:
        member = archive.read('x.npy')
    header, elements = member[:-48], member[-48:]
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('x.npy', header.replace(b'(3, 2), }', b'(6, 2), }') + elements)
    data = path.read_bytes()
    assert data.count(len(member).to_bytes(4, 'little')) == 2
    path.write_bytes(
        data.replace(len(member).to_bytes(4, 'little'), (len(member) + 48).to_bytes(4, 'little'))
    )
    with pytest.raises(bags.SourceError, match=r'a\.npz'):
        bags.convert(path, tmp_path / 'out')


@pytest.mark.parametrize(
    'value', [np.float32(3), np.arange(6.0).reshape(2, 3, order='F'), np.array(['', '']), 'ä']
)
def test_arrays_that_are_read_whole(value, tmp_path):
    np.savez(tmp_path / 'a.npz', x=value)
    bags.convert(tmp_path / 'a.npz', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert np.array_equal(dataset[0]['x'], value)


def test_a_damaged_file(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / 'in')
    (tmp_path / 'in/1.npz').write_bytes(b'PK no zip')
    with pytest.raises(bags.SourceError, match=r'1.npz: cannot be read as .npz: File is not a zip file'):
        bags.convert(tmp_path / 'in', tmp_path / 'out')
    done = bags.convert(tmp_path / 'in', tmp_path / 'out', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (2, 1)


@pytest.mark.slow(all_but='savez')
@pytest.mark.parametrize('save', [np.savez, np.savez_compressed])
def test_large_arrays_are_read_in_parts(save, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (500, 200, 200, 3), np.uint8)  # 60 MB
    turned = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    save(tmp_path / 'a.npz', images=images, state=np.arange(500), turned=turned)
    bags.convert(tmp_path / 'a.npz', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.spec['images'] == 'array(uint8,200,200,3)[]'
        assert np.array_equal(dataset[0]['images'], images)
        assert np.array_equal(dataset[0]['turned'], turned)
    data = bytearray((tmp_path / 'a.npz').read_bytes())
    data[30_000_000] ^= 1
    (tmp_path / 'a.npz').write_bytes(data)
    with pytest.raises(bags.SourceError, match=r'a.npz: cannot be read as .npz: '):
        bags.convert(tmp_path / 'a.npz', tmp_path / 'again')
    assert not (tmp_path / 'again').exists()


def test_an_array_of_objects_can_be_left_out(tmp_path):
    np.savez(tmp_path / 'a.npz', x=np.arange(3), o=np.array([1, 'a'], object))
    with pytest.raises(
        bags.SourceError, match=r"a\.npz: .* o: .*pickled.*; spec=\{'o': None\} leaves it out$"
    ):
        bags.convert(tmp_path / 'a.npz', tmp_path / 'out')
    done = bags.convert(tmp_path / 'a.npz', tmp_path / 'out', spec={'o': None})
    assert done.spec == {'__key__': 'utf8', 'x': 'array(int64,3)'}
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['x'].tolist() == [0, 1, 2]


def test_files_that_are_no_arrays_are_noted(tmp_path):
    np.savez(tmp_path / 'a.npz', x=np.arange(3))
    with zipfile.ZipFile(tmp_path / 'a.npz', 'a') as archive:
        archive.writestr('readme.txt', 'by me')
    assert open_source(tmp_path / 'a.npz').notes == ["'readme.txt' is left out: it is no .npy file"]


@pytest.mark.parametrize('save', [np.savez, np.savez_compressed])
def test_every_changed_byte_is_an_error_or_has_no_effect(save, tmp_path):
    path = tmp_path / 'a.npz'
    save(path, x=np.arange(3.0), y=np.arange(3))
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            source = open_source(path)
            (row,) = (source.load(entry) for entry in source.entries())
        except bags.SourceError:
            continue
        assert {name: value.tolist() for name, value in row.items() if name in 'xy'} == {
            'x': [0.0, 1.0, 2.0], 'y': [0, 1, 2],
        }, place  # fmt: skip


def test_an_array_with_the_name_of_the_key_has_another_name(tmp_path):
    np.savez(tmp_path / 'a.npz', __key__=np.arange(2), x=np.arange(3))
    done = bags.convert(tmp_path / 'a.npz', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0]['__key__'] == 'a'
        assert dataset[0]['__key___2'].tolist() == [0, 1]
    (note,) = done.notes
    assert note.startswith("'__key__' becomes '__key___2'")
