"""Exports that are killed: an import refuses them, and they are resumed or replaced."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.interop.targets.target import Target
from bags.storage.local import LocalStore

DATA = Path(__file__).parents[3] / 'examples' / 'data'
MARK = '.unfinished-export.json'


@pytest.fixture
def dataset(tmp_path):
    spec = {'__key__': 'utf8', 'txt': 'utf8', 'state': 'float(4)[]', 'task': 'utf8'}
    with bags.DatasetWriter(tmp_path / 'dataset', spec, metadata={'fps': 30}) as writer:
        for number in range(40):
            writer.append(
                {'__key__': f'k{number}', 'txt': f'text {number}', 'state': np.arange(3.0), 'task': 'a'}
            )
    return tmp_path / 'dataset'


def tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob('*') if path.is_file()}


FORMATS = {
    'webdataset': {'shard_length': 7},
    'files': {},
    'parquet': {'shard_length': 7},
    'lerobot': {'fields': ['state', 'task']},
}


def export_killed(dataset, target, format, **options):
    """Kills an export in its 20th datapoint, or while it writes its third tar."""
    code = f"""
import os, signal
from bags.interop.targets.target import Target
import bags
count = 0
def killed(call):
    def wrapped(*args):
        global count
        count += 1
        if count == {3 if 'shard_length' in options else 20}:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return wrapped
Target.write, Target.create = killed(Target.write), killed(Target.create)
bags.export({str(dataset)!r}, {str(target)!r}, format={format!r}, **{options!r})
"""
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == -signal.SIGKILL


def content(path):
    """Returns the rows of what was exported, except LeRobot's videos."""
    bags.convert(path, path.parent / f'{path.name} imported', mode='overwrite')
    with bags.open(path.parent / f'{path.name} imported') as found:
        return [{name: str(value) for name, value in row.items()} for row in found]


@pytest.mark.slow(all_but='webdataset')
@pytest.mark.parametrize('format', FORMATS)
def test_a_killed_export_is_resumed_or_replaced(format, dataset, tmp_path):
    options = FORMATS[format]
    bags.export(dataset, tmp_path / 'whole', format=format, **options)
    for name in ('resumed', 'replaced'):
        target = tmp_path / name
        export_killed(dataset, target, format, **options)
        assert (target / MARK).exists()
        with pytest.raises(bags.SourceError, match=r'is an unfinished export: bags.export\(…, resume=True\)'):
            bags.convert(target, tmp_path / 'out')
        with pytest.raises(FileExistsError, match='holds an unfinished export: resume=True continues it'):
            bags.export(dataset, target, format=format, **options)
        kept = {path: path.stat().st_ino for path in target.iterdir() if path.suffix in ('.tar', '.parquet')}
        choice = {'resume': True} if name == 'resumed' else {'mode': 'overwrite'}
        done = bags.export(dataset, target, format=format, **options, **choice)
        assert done.datapoints == 40
        assert done.size == sum(len(data) for data in tree(target).values())
        assert tree(target).keys() == tree(tmp_path / 'whole').keys()
        assert content(target) == content(tmp_path / 'whole')
        if name == 'resumed' and 'shard_length' in options:
            assert len(kept) == (1 if format == 'webdataset' else 2)
            assert all(path.stat().st_ino == inode for path, inode in kept.items())


def test_a_glob_of_an_unfinished_export_is_refused(dataset, tmp_path):
    export_killed(dataset, tmp_path / 'tars', 'parquet', shard_length=7)
    with pytest.raises(bags.SourceError, match='is an unfinished export'):
        bags.convert(tmp_path / 'tars/*.parquet', tmp_path / 'out')


@pytest.mark.slow(all_but='dataset')
@pytest.mark.parametrize('change', ['shard_length', 'fields', 'dataset', 'mark'])
def test_another_export_is_not_resumed(change, dataset, tmp_path):
    export_killed(dataset, tmp_path / 'tars', 'webdataset', shard_length=7)
    options = {'shard_length': 7}
    if change == 'dataset':
        with bags.DatasetWriter(dataset, bags.open(dataset).spec, mode='overwrite') as writer:
            for number in range(40):
                writer.append({'__key__': f'k{number}', 'txt': 'other', 'state': [], 'task': 'a'})
    elif change == 'mark':
        (tmp_path / f'tars/{MARK}').write_text('[')
    else:
        options[change] = {'shard_length': 8, 'fields': ['__key__', 'txt']}[change]
    with pytest.raises(ValueError, match=r"tars: .*mode='overwrite' begins again"):
        bags.export(dataset, tmp_path / 'tars', resume=True, **options)
    bags.export(dataset, tmp_path / 'tars', mode='overwrite', **options)
    assert len(content(tmp_path / 'tars')) == 40


def test_resume_begins_where_there_is_nothing(dataset, tmp_path):
    bags.export(dataset, tmp_path / 'tars', resume=True)
    with pytest.raises(FileExistsError, match='holds no unfinished export to resume'):
        bags.export(dataset, tmp_path / 'tars', resume=True)
    with pytest.raises(ValueError, match="expected 'create' with resume=True"):
        bags.export(dataset, tmp_path / 'tars', resume=True, mode='overwrite')


def test_overwrite_replaces_exports_alone(dataset, tmp_path):
    for format, options in FORMATS.items():
        for _ in range(2):
            bags.export(dataset, tmp_path / format, format=format, mode='overwrite', **options)
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine/notes.txt').write_text('x')
    with pytest.raises(FileExistsError, match=r"holds 'notes.txt', which an export did not write"):
        bags.export(dataset, tmp_path / 'mine', mode='overwrite')
    assert tree(tmp_path / 'mine') == {'notes.txt': b'x'}
    bags.export(dataset, 'memory://exports/new', format='files')
    with pytest.raises(ValueError, match="mode='overwrite' needs a local folder"):
        bags.export(dataset, 'memory://exports/new', mode='overwrite')


def test_an_export_that_is_being_written_is_not_resumed(dataset, tmp_path):
    export_killed(dataset, tmp_path / 'tars', 'webdataset', shard_length=7)
    lock = LocalStore().lock(tmp_path / 'tars')
    before = tree(tmp_path / 'tars')
    with pytest.raises(BlockingIOError, match='another writer has it open'):
        bags.export(dataset, tmp_path / 'tars', shard_length=7, resume=True)
    assert tree(tmp_path / 'tars') == before
    lock.release()
    bags.export(dataset, tmp_path / 'tars', shard_length=7, resume=True)
    assert len(content(tmp_path / 'tars')) == 40


@pytest.mark.parametrize('existed', [True, False])
def test_overwriting_replaces_only_the_export_that_was_found(existed, dataset, tmp_path):
    target = tmp_path / 'tars'
    if existed:
        bags.export(dataset, target, shard_length=7)
    facts = {'format': 'files', 'extension': 'files'}
    export = Target(target, None, facts, lambda: 'a dataset', mode='overwrite')
    export.write('a.txt', b'1')
    if existed:
        shutil.rmtree(target)
    bags.export(dataset, target, shard_length=9)
    before = tree(target)
    with pytest.raises(OSError, match='was removed, moved or replaced' if existed else 'not empty'), export:
        export.write('b.txt', b'2')
    assert tree(target) == before
    assert sorted(os.listdir(tmp_path)) == ['dataset', 'tars']


def test_an_export_that_fails_leaves_what_it_would_replace(dataset, tmp_path):
    bags.export(dataset, tmp_path / 'tars', shard_length=7)
    before = tree(tmp_path / 'tars')
    with bags.DatasetWriter(tmp_path / 'bad', {'__key__': 'utf8', 'txt': 'utf8'}) as writer:
        for name in ('a', 'a'):
            writer.append({'__key__': name, 'txt': 'x'})
    with pytest.raises(bags.SourceError):
        bags.export(tmp_path / 'bad', tmp_path / 'tars', mode='overwrite')
    assert tree(tmp_path / 'tars') == before
    assert sorted(os.listdir(tmp_path)) == ['bad', 'dataset', 'tars']
