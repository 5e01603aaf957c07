"""Every source, cut off or with changed bytes: the valid part is imported, or an error names the file."""

import random
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import bags
from tests.interop.sources.streams import GOLDEN

PEERS = Path(__file__).parents[2] / 'golden'
SAMPLES = [
    *(GOLDEN / name for name in (
        'aloha', 'hf/hub', 'hf/saved', 'lerobot_v2', 'lerobot_v3', 'litdata', 'litdata-batch',
        'litdata-chunk', 'litdata-rows', 'litdata-sample', 'mds', 'mds-gz', 'mds-zstd', 'npz',
        'recording.mcap', 'replay_v2.zarr.zip', 'replay_v3.zarr.zip', 'robomimic.hdf5', 'tfds',
        'tfrecord-gz.tfrecord.gz', 'tfrecord-sequence.tfrecord', 'tfrecord.tfrecord',
    )),
    PEERS / 'bagz-zstd.bagz',
]  # fmt: skip
CHANGES = 6


def changed(data, rng):
    """Returns data that is cut off, or has a changed bit or zeros somewhere."""
    place = rng.randrange(len(data))
    kind = rng.choice(['cut', 'bit', 'zeros'])
    if kind == 'cut':
        return data[:place]
    if kind == 'zeros':
        return data[:place] + bytes(len(data[place : place + 16])) + data[place + 16 :]
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def attempt(source, target, **options):
    """Returns the result of an import, or None, and its error."""
    try:
        return bags.convert(source, target, progress=False, **options), None
    except bags.SourceError as error:
        return None, error


@pytest.mark.slow('robomimic.hdf5', 'recording.mcap', 'litdata-batch', 'lerobot_*')
@pytest.mark.filterwarnings('ignore:coroutine:RuntimeWarning')  # From zarr, for a damaged group.
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize('sample', SAMPLES, ids=lambda path: path.name)
def test_damage_is_named_skipped_and_resumed_after(sample, tmp_path):
    source = tmp_path / sample.name
    shutil.copytree(sample, source) if sample.is_dir() else shutil.copy(sample, source)
    files = sorted(path for path in source.rglob('*') if path.is_file()) if sample.is_dir() else [source]
    count = bags.convert(source, tmp_path / 'whole', progress=False).datapoints
    rng = random.Random(zlib.crc32(sample.name.encode()))
    for number in range(CHANGES):
        file, target = rng.choice(files), tmp_path / f'out {number}'
        whole = file.read_bytes()
        file.unlink()  # Writing in place would change a mapped file.
        file.write_bytes(changed(whole, rng))
        done, error = attempt(source, tmp_path / f'some {number}', on_error='skip')
        if error is not None:  # Nothing is valid, or the metadata of the source is damaged.
            assert sample.name in error.name or error.name in str(file)
        else:
            assert all(sample.name in name and detail for name, detail in done.skipped)
            # A damaged index may list fewer datapoints.
            assert done.skipped or done.datapoints == count or file.suffix == '.json'
        done, error = attempt(source, target)
        file.unlink()
        file.write_bytes(whole)
        if error is not None:
            assert error.detail
            done, error = attempt(source, target, resume=True)
        assert error is None
        assert done.datapoints == count or file.suffix == '.json'


KILLED = """
import os, signal, sys, bags
from bags.interop.open_source import open_source
source, count = open_source(sys.argv[1]), 0
load = source.load
def killed(entry):
    global count
    count += 1
    if count == source.count:  # The last one.
        os.kill(os.getpid(), signal.SIGKILL)
    return load(entry)
source.load = killed
bags.convert(source, sys.argv[2], shard_length=1, workers=1, progress=False)
"""


@pytest.mark.slow(all_but='npz')
@pytest.mark.parametrize(
    'sample',
    [*(GOLDEN / name for name in ('aloha', 'litdata-batch', 'litdata-rows', 'mds-zstd', 'npz', 'tfds')),
     GOLDEN / 'replay_v3.zarr.zip', GOLDEN / 'robomimic.hdf5', PEERS / 'bagz-zstd.bagz'],
    ids=lambda path: path.name,
)  # fmt: skip
def test_a_killed_import_resumes(sample, kit, tmp_path):
    kill_and_resume(sample, kit, tmp_path)


@pytest.mark.slow(all_but='webdataset')
@pytest.mark.parametrize('format', ['files', 'webdataset', 'parquet', 'recordings'])
def test_a_killed_import_of_several_files_resumes(format, kit, tmp_path):
    if format == 'recordings':
        (tmp_path / 'in').mkdir()
        for number in range(3):
            shutil.copy(GOLDEN / 'recording.mcap', tmp_path / f'in/{number}.mcap')
    else:
        bags.convert(GOLDEN / 'mds', tmp_path / 'dataset', progress=False)
        bags.export(tmp_path / 'dataset', tmp_path / 'in', format=format, shard_length=1, progress=False)
    kill_and_resume(tmp_path / 'in', kit, tmp_path)


def kill_and_resume(source, kit, tmp_path):
    command = [sys.executable, '-c', KILLED, source, tmp_path / 'out']
    assert subprocess.run(command, cwd=kit.ROOT, check=False).returncode == -signal.SIGKILL
    done = bags.convert(source, tmp_path / 'out', shard_length=1, resume=True, progress=False)
    bags.convert(source, tmp_path / 'again', progress=False)
    with bags.open(tmp_path / 'out', raw=True) as resumed, bags.open(tmp_path / 'again', raw=True) as again:
        assert len(resumed) == done.datapoints > 1
        assert [resumed[index] for index in range(len(resumed))] == list(again)
