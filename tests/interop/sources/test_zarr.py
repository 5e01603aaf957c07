"""Replay buffers in Zarr: every value equals that of zarr."""

from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'golden'


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
    with pytest.raises(bags.SourceError, match=r'expected integers that rise, got \[3 2\]'):
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
