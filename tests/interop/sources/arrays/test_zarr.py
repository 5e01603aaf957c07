"""Replay buffers in Zarr: every value equals that of zarr."""

import shutil
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parents[1] / 'golden'


@pytest.mark.parametrize('version', [2, 3])
def test_replay_buffer(tmp_path, version):
    path = GOLDEN / f'replay_v{version}.zarr.zip'
    source = open_source(path)
    assert source.spec == {
        'depth': 'array(uint16,2,2)[]', 'img': 'array(float32,2,2,3)[]', 'reward': 'float(8)[]',
        'state': 'array(float32,2)[]',
    }  # fmt: skip
    assert source.metadata == {'robot': 'ur5'}
    assert bags.convert(path, tmp_path / 'out').datapoints == 3
    with zarr.storage.ZipStore(path, mode='r') as store, bags.open(tmp_path / 'out') as dataset:
        root = zarr.open_group(store, mode='r')
        for found, (start, stop) in zip(dataset, ((0, 3), (3, 5), (5, 9)), strict=True):
            for field, values in found.items():
                expected = root[f'data/{field}'][start:stop]
                assert np.array_equal(values, expected)
                assert np.asarray(values).dtype == expected.dtype


@pytest.mark.parametrize('version', [2, 3])
def test_groups_in_a_folder(tmp_path, version):
    root = zarr.open_group(tmp_path / 'in.zarr', mode='w', zarr_format=version)
    for number in (0, 2, 10):
        root.create_array(f'episode_{number}/a', data=np.full((2 + number, 2), number))
        root.create_array(f'episode_{number}/b', data=np.full(2 + number, number))
    bags.convert(tmp_path / 'in.zarr', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset.spec == {'a': 'array(int64,2)[]', 'b': 'int(8)[]'}
        assert [len(found['b']) for found in dataset] == [2, 4, 12]
        assert dataset[2]['a'][0].tolist() == [10, 10]


def test_attributes_may_have_any_words(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w')
    root.create_array('x', data=np.arange(5), attributes={'object': 'pickle'})
    assert open_source(tmp_path / 'a.zarr').spec == {'x': 'array(int64,5)'}


def test_rows_after_the_last_end_are_left_out_with_a_note(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w')
    root.create_array('data/x', data=np.arange(10))
    root.create_array('meta/episode_ends', data=np.array([3, 7]))
    (note,) = open_source(tmp_path / 'a.zarr').notes
    assert note.endswith('a.zarr: rows 7 to 9 are left out: meta/episode_ends ends before them')
    assert bags.convert(tmp_path / 'a.zarr', tmp_path / 'out').datapoints == 2


@pytest.mark.parametrize('version', [2, 3])
def test_an_array_without_a_group_is_refused(tmp_path, version):
    zarr.save_array(tmp_path / 'a.zarr', np.zeros((3, 2)), zarr_format=version)
    with pytest.raises(
        bags.SourceError, match=r'a.zarr: .*a group of arrays, got an array of shape \(3, 2\)'
    ):
        open_source(tmp_path / 'a.zarr')


def test_ends_that_do_not_fit(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w')
    root.create_array('data/x', data=np.arange(5))
    root.create_array('meta/episode_ends', data=np.array([3, 9]))
    with pytest.raises(
        bags.SourceError, match=r'a.zarr: .*data/x: expected 9 rows, as meta/episode_ends says, got 5'
    ):
        open_source(tmp_path / 'a.zarr')
    root.create_array('meta/episode_ends', data=np.array([3, 2]), overwrite=True)
    with pytest.raises(bags.SourceError, match=r'expected increasing integers, got \[3 2\]'):
        open_source(tmp_path / 'a.zarr')


def test_a_damaged_one_of_several_is_left_out(tmp_path):
    for name in ('a', 'b'):
        root = zarr.open_group(tmp_path / f'{name}.zarr', mode='w')
        root.create_array('x', data=np.arange(5))
        root.create_array('y', data=np.arange(5))
    (tmp_path / 'a.zarr/zarr.json').write_text('{')
    with pytest.raises(bags.SourceError, match=r'a.zarr: cannot be read as Zarr'):
        bags.convert(tmp_path / '*.zarr', tmp_path / 'out')
    done = bags.convert(tmp_path / '*.zarr', tmp_path / 'out', on_error='skip')
    assert (done.datapoints, [name for name, _ in done.skipped]) == (1, [str(tmp_path / 'a.zarr')])


def test_pickles_are_refused(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w', zarr_format=2)
    root.create_array('x', shape=(2,), dtype='i8', filters=[numcodecs.Delta('i8')])
    path = tmp_path / 'a.zarr/x/.zarray'
    path.write_text(path.read_text().replace('"delta"', '"pickle"'))
    with pytest.raises(bags.SourceError, match=r'a.zarr: '):
        bags.convert(tmp_path / 'a.zarr', tmp_path / 'out')


def test_a_damaged_chunk_is_named_and_resumed_after(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w')
    root.create_array('data/x', data=np.arange(6), chunks=(2,))
    root.create_array('data/y', data=np.arange(6), chunks=(2,))
    root.create_array('meta/episode_ends', data=np.array([2, 4, 6]))
    chunk = tmp_path / 'a.zarr/data/x/c/1'
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:7])
    with pytest.raises(bags.SourceError, match=r'a.zarr, data, rows 2 to 4: cannot be read as Zarr'):
        bags.convert(tmp_path / 'a.zarr', tmp_path / 'out')
    assert bags.convert(tmp_path / 'a.zarr', tmp_path / 'some', on_error='skip').datapoints == 2
    chunk.write_bytes(whole)
    bags.convert(tmp_path / 'a.zarr', tmp_path / 'out', resume=True)
    with bags.open(tmp_path / 'out') as dataset:
        assert [found['x'].tolist() for found in dataset] == [[0, 1], [2, 3], [4, 5]]


def compressed(path, version, **options):
    """Writes random values with Blosc; returns the values, and the path of a chunk."""
    image = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
    root = zarr.open_group(path, mode='w', zarr_format=version)
    blosc = numcodecs.Blosc('lz4') if version == 2 else zarr.codecs.BloscCodec(cname='lz4')
    root.create_array('data/img', data=image, chunks=(10, 8, 8), compressors=blosc, **options)
    root.create_array('data/act', data=np.arange(20.0))
    root.create_array('data/rew', data=np.arange(20.0))
    root.create_array('meta/episode_ends', data=np.array([10, 20]))
    chunk = 'data/img/0.0.0' if version == 2 else 'data/img/c/0/0/0'
    return image, path / chunk


@pytest.mark.slow(all_but='3-options1')
@pytest.mark.parametrize(('version', 'options'), [(2, {}), (3, {}), (3, {'shards': (20, 8, 8)})])
def test_a_chunk_of_blosc_that_is_cut_is_an_error(version, options, tmp_path):
    image, chunk = compressed(tmp_path / 'a.zarr', version, **options)
    bags.convert(tmp_path / 'a.zarr', tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert np.array_equal(np.concatenate(dataset.column('img')), image)
    whole = chunk.read_bytes()
    for size in (0, 5, 16, len(whole) // 2, len(whole) - 1):
        chunk.write_bytes(whole[:size])
        with pytest.raises(bags.SourceError, match=r'a\.zarr, data, rows '):
            bags.convert(tmp_path / 'a.zarr', tmp_path / 'cut', mode='overwrite')
    chunk.write_bytes(whole + b'x')
    with pytest.raises(bags.SourceError, match=r'a\.zarr, data, rows '):
        bags.convert(tmp_path / 'a.zarr', tmp_path / 'cut', mode='overwrite')


@pytest.mark.parametrize(
    ('version', 'name'),
    [
        (2, each)
        for each in ('.zgroup', 'data/.zgroup', 'meta/.zgroup', 'data/img/.zarray', 'data/act/.zarray')
    ]
    + [(3, f'{each}zarr.json') for each in ('', 'data/', 'meta/', 'data/img/', 'meta/episode_ends/')],
)
def test_metadata_that_is_gone_is_an_error(version, name, tmp_path):
    compressed(tmp_path / 'a.zarr', version)
    (tmp_path / 'a.zarr' / name).unlink()
    with pytest.raises(bags.SourceError, match=r'a\.zarr'):
        open_source(tmp_path / 'a.zarr')


@pytest.mark.parametrize('version', [2, 3])
def test_an_array_of_an_unknown_codec_can_be_left_out(version, tmp_path):
    compressed(tmp_path / 'a.zarr', version)
    metadata = tmp_path / 'a.zarr/data/img' / ('.zarray' if version == 2 else 'zarr.json')
    metadata.write_text(metadata.read_text().replace('"blosc"', '"other"'))
    with pytest.raises(
        bags.SourceError, match=r"a\.zarr.* img: .*other.*; spec=\{'img': None\} leaves it out"
    ):
        open_source(tmp_path / 'a.zarr')
    assert bags.convert(tmp_path / 'a.zarr', tmp_path / 'out', spec={'img': None}).spec == {
        'act': 'float(8)[]',
        'rew': 'float(8)[]',
    }


@pytest.mark.parametrize('version', [2, 3])
def test_chunks_that_are_not_stored_are_noted(version, tmp_path):
    _, chunk = compressed(tmp_path / 'a.zarr', version)
    shutil.move(chunk.parents[1] if version == 3 else chunk, tmp_path / 'moved')
    (tmp_path / 'a.zarr/readme.txt').write_text('by me')
    assert open_source(tmp_path / 'a.zarr').notes == [
        "'readme.txt' is left out: it is not an array",
        "'data/img': 1 of 2 chunks are not stored, their values are 0",
    ]
    other = chunk.parents[2] / '1/0/0' if version == 3 else chunk.with_name('1.0.0')
    for number in (7, 8):
        shutil.copy(other, other.with_name(str(number) if version == 3 else f'{number}.0.0'))
    with pytest.raises(bags.SourceError, match=r'expected 2 chunks for shape \(20, 8, 8\), got 3'):
        open_source(tmp_path / 'a.zarr')


@pytest.mark.parametrize('version', [2, 3])
@pytest.mark.parametrize('name', ['data/x', 'meta/episode_ends'])
def test_a_shape_that_is_far_larger_than_the_files_is_refused(version, name, tmp_path):
    compressed(tmp_path / 'a.zarr', version)
    root = zarr.open_group(tmp_path / 'a.zarr', mode='a')
    root.create_array(name, shape=(1 << 40,), dtype='i8', chunks=(1 << 20,), overwrite=True)
    with pytest.raises(
        bags.SourceError, match=r'a\.zarr: .* expected up to \d+ bytes of values in \d+ bytes'
    ):
        open_source(tmp_path / 'a.zarr')


def test_a_damaged_zip_is_an_error(tmp_path):
    whole, path = (GOLDEN / 'replay_v3.zarr.zip').read_bytes(), tmp_path / 'a.zarr.zip'
    for place in range(7, len(whole), len(whole) // 40):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            source = open_source(path)
        except bags.SourceError:
            continue
        assert (source.count, len(source.spec), source.notes) == (
            3,
            4,
            open_source(GOLDEN / 'replay_v3.zarr.zip').notes,
        )


@pytest.mark.parametrize('version', [2, 3])
@pytest.mark.parametrize('chunks', [(2,), (3,)])
def test_other_files_in_a_group_or_an_array_are_noted_or_hidden(version, chunks, tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w', zarr_format=version)
    root.create_array('data/x', data=np.arange(6), chunks=chunks)
    root.create_array('meta/one', data=np.array(5))
    root.create_array('meta/episode_ends', data=np.array([2, 6]))
    for name in ('README.md', 'data/notes.txt', 'data/x/notes.txt', '.DS_Store', 'data/x/.DS_Store',
                 'data/x/Thumbs.db'):  # fmt: skip
        (tmp_path / 'a.zarr' / name).write_bytes(b'x')
    source = open_source(tmp_path / 'a.zarr')
    assert sorted(source.notes) == [
        "'README.md' is left out: it is not an array",
        "'data/notes.txt' is left out: it is not an array",
        "'data/x/notes.txt' is left out: it is not a chunk",
        "'meta/one' is left out: it is in no datapoint",
    ]
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert [row['x'].tolist() for row in dataset] == [[0, 1], [2, 3, 4, 5]]


def test_warnings_of_zarr_are_notes(tmp_path):
    root = zarr.open_group(tmp_path / 'a.zarr', mode='w', zarr_format=3)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        root.create_array('x', data=np.arange(6), compressors=zarr.codecs.numcodecs.Zlib())
    done = bags.convert(tmp_path / 'a.zarr', tmp_path / 'out')
    (note,) = done.notes
    assert 'a.zarr: Numcodecs codecs are not in the Zarr version 3 specification' in note


def test_an_array_without_a_shape_is_an_error(tmp_path):
    compressed(tmp_path / 'a.zarr', 2)
    metadata = tmp_path / 'a.zarr/data/img/.zarray'
    metadata.write_text(metadata.read_text().replace('"shape"', '"Shape"'))
    expected = r"a\.zarr.* img: expected the shape of an array in \.zarray, got none; spec=\{'img': None\}"
    with pytest.raises(bags.SourceError, match=expected):
        open_source(tmp_path / 'a.zarr')
    assert 'img' not in open_source(tmp_path / 'a.zarr', spec={'img': None}).spec
