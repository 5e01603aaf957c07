"""Tests that hold for all sources."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'sources' / 'golden'


@pytest.mark.slow(all_but='pyarrow-*')
@pytest.mark.parametrize(
    ('package', 'sample', 'extra'),
    [('h5py', 'aloha', 'hdf5'), ('zarr', 'replay_v3.zarr.zip', 'zarr'), ('rosbags', 'recording.mcap', 'mcap'),
     ('pyarrow', 'lerobot_v3', 'lerobot'), ('av', 'lerobot_v3', 'lerobot')],
)  # fmt: skip
def test_a_missing_package_names_its_extra(package, sample, extra):
    code = f"""
import sys
sys.modules[{package!r}] = None
import bags
from bags.interop.open_source import open_source
try:
    open_source({str(GOLDEN / sample)!r})
except bags.MissingDependencyError as exc:
    assert 'bags[{extra}]' in str(exc), exc
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, '-c', code], check=True)


def test_an_unknown_format_lists_those_known(tmp_path):
    (tmp_path / 'x.xyz').write_bytes(b'hello')
    with pytest.raises(bags.SourceError, match=r'x.xyz: expected a folder, .*\*.mds, .*\*.parquet'):
        bags.convert(tmp_path / 'x.xyz', tmp_path / 'out')
    (tmp_path / 'empty').mkdir()
    with pytest.raises(FileNotFoundError, match=r'no files to import; expected a folder of files, \*\.tar'):
        bags.convert(tmp_path / 'empty', tmp_path / 'out')
    with pytest.raises(FileNotFoundError, match='no such file or folder'):
        bags.convert(tmp_path / 'nowhere', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


def test_braces_are_expanded_as_in_webdataset(tmp_path):
    for name in ('a-0', 'a-2', 'b-0', 'b-2'):
        (tmp_path / f'{name}.npz').parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f'{name}.npz', x=np.arange(3))
    assert open_source(tmp_path / '{a,b}-{0..2..2}.npz').count == 4
    assert open_source(tmp_path / 'a-{2..0..2}.npz').count == 2
    with pytest.raises(FileNotFoundError, match=r'a-1\.npz'):
        bags.convert(tmp_path / 'a-{0..2}.npz', tmp_path / 'out')


def test_braces_in_the_names_of_files_and_folders_that_exist(tmp_path):
    folder = tmp_path / 'run{0..3}'
    folder.mkdir()
    np.savez(folder / 'x{1,2}.npz', x=np.arange(3))
    assert open_source(folder).count == 1
    assert open_source(folder / 'x{1,2}.npz').count == 1
    assert bags.convert(folder, tmp_path / 'out{0..3}').datapoints == 1
    with bags.open(tmp_path / 'out{0..3}') as dataset:
        assert dataset.column('__key__') == ['x{1,2}']


def test_options_of_the_dataset_are_not_taken_for_those_of_the_source(tmp_path):
    with pytest.raises(ValueError, match='pass source_options= for the source s3://bucket/x'):
        bags.convert('s3://bucket/x', tmp_path / 'out', storage_options={'key': 'a', 'secret': 'b'})
    assert not (tmp_path / 'out').exists()


def test_long_names_of_columns_are_cut_off_with_a_note(tmp_path):
    names = ['x' * 250, 'x' * 251, 'y' * 200]
    np.savez(tmp_path / 'a.npz', **{name: np.arange(3) for name in names})
    done = bags.convert(tmp_path / 'a.npz', tmp_path / 'out')
    assert [len(name) for name in done.spec] == [7, 192, 194, 200]
    assert sum('is named' in note for note in done.notes) == 2


@pytest.mark.parametrize('make', [dict, pa.table])
def test_a_table_is_for_from_numpy(make, tmp_path):
    with pytest.raises(TypeError, match=r'source: expected a path or .*, got .*: bags\.from_numpy'):
        bags.convert(make({'a': [1, 2]}), tmp_path / 'out')


LFS_POINTER = f'version https://git-lfs.github.com/spec/v1\noid sha256:{"a" * 64}\nsize 12345\n'


@pytest.mark.parametrize('name', ['a.txt', 'a.bin', 'a.jpg', 'a.json', 'a.npy'])
def test_pointers_of_git_lfs_are_named(name, tmp_path):
    (tmp_path / 'source').mkdir()
    (tmp_path / 'source' / name).write_text(LFS_POINTER)
    for link in (False, True):
        with pytest.raises(bags.SourceError, match=rf'{name}: expected .*, got a Git LFS pointer'):
            bags.convert(tmp_path / 'source', tmp_path / f'out-{link}', link=[name[2:]] if link else False)


@pytest.mark.parametrize(
    'name',
    [
        'a.csv', 'a.tsv', 'a.jsonl', 'a.parquet', 'a.tar', 'a.tar.gz', 'a.zip', 'a.npz', 'a.tfrecord',
        'a.bag', 'a.vtt', 'a.h5', 'metadata.jsonl',
    ],
)  # fmt: skip
def test_tables_and_archives_that_are_pointers_of_git_lfs(name, tmp_path):
    (tmp_path / 'source').mkdir()
    (tmp_path / 'source' / name).write_text(LFS_POINTER)
    if name == 'metadata.jsonl':
        (tmp_path / 'source' / 'a.txt').write_text('text')
    with pytest.raises(
        bags.SourceError, match=rf'{name}\b.*: expected .*, got a Git LFS pointer, which `git l'
    ):
        bags.convert(tmp_path / 'source', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
