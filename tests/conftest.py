"""Shared by the tests of datasets: a spec with every kind of column, its rows, and comparison of values."""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import numpy as np
import pytest

import bags
from bags.dataset.format import registry
from bags.dataset.format.spec import parse_spec
from tests.found import Found
from tests.marks import choose_slow_variants
from tests.processor_time import ProcessorTime

ROOT = Path(__file__).parent.parent

# If a shell starts the tests in the background, they ignore SIGINT, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Temporary files are in memory if it has room for them: there, syncing a file takes no time.
MEMORY = '/dev/shm'
if 'TMPDIR' not in os.environ and os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ['TMPDIR'] = tempfile.tempdir = MEMORY


@pytest.fixture(scope='session')
def disk():
    """A temporary folder on a disk, for tests that are about disks."""
    folder = '/var/tmp' if os.path.isdir('/var/tmp') else None
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def disk_path(disk):
    """As `tmp_path`, but on a disk."""
    return Path(tempfile.mkdtemp(dir=disk))


@pytest.fixture
def small_disk(tmp_path):
    """A folder with a file system of 4 MiB."""
    path = tmp_path / 'disk'
    path.mkdir()
    try:
        done = subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', str(path)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip('no mount command')
    if done.returncode:
        pytest.skip(f'mounting is not permitted: {done.stderr.decode().strip()}')
    yield path
    subprocess.run(['umount', '-l', str(path)], check=True)


@pytest.fixture(autouse=True)
def _plain_scheduling():
    """Resets the scheduling policy: as root, libsvtav1 makes the thread and its children real-time."""
    yield
    if hasattr(os, 'SCHED_OTHER') and os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


# Examples have no deadline, and are the same in each run. The profile `search` draws more of them and
# other ones each time.
hypothesis.settings.register_profile('bags', deadline=None, derandomize=True)
hypothesis.settings.register_profile('search', deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'bags'))

SPEC = {
    'any': 'array',
    'blob': 'bytes',
    'flag': 'bool',
    'frames': 'array(uint8,2)[]',
    'grid': 'array(float32,2,3)',
    'id': 'int(8)',
    'maybe': 'int(4)?',
    'meta': 'msgpack',
    'note': 'utf8?',
    'nums': 'int(2)[]',
    'odd': 'int(3)',
    'points': 'float(8)[]?',
    'score': 'float(4)',
    'small': 'uint(2)',
    'tags': 'utf8[]?',
    'text': 'utf8',
    'words': 'utf8[]',
}
COMPRESSED = ('blob', 'frames', 'grid', 'id', 'meta', 'note', 'nums', 'tags', 'words')


def make_row(index):
    """Returns a datapoint that no other index has; its values are equal after they are read."""
    chance = random.Random(index)
    array = np.random.default_rng(index)
    return {
        'any': array.integers(0, 9, (index % 3, 2)).astype('int16'),
        'blob': chance.randbytes(chance.choice([0, 1, 300, 5000])),
        'flag': chance.random() < 0.5,
        'frames': array.integers(0, 255, (chance.choice([0, 1, 7]), 2)).astype('uint8'),
        'grid': array.random((2, 3)).astype('float32'),
        'id': index - 3,
        'maybe': chance.choice([None, 0, -index]),
        'meta': {'index': index, 'of': ['x', 1.5, None]},
        'note': chance.choice([None, '', f'note {index}']),
        'nums': array.integers(-(2**15), 2**15, chance.choice([0, 0, 1, 3, 9])).astype('int16'),
        'odd': -index,
        'points': chance.choice([None, np.empty(0), array.random(6)]),
        'score': float(np.float32(chance.random())),
        'small': index % 2**16,
        'tags': chance.choice([None, [], [f'tag {index}', '']]),
        'text': f'text of {index} ' * chance.choice([0, 1, 9]),
        'words': [f'word {index} {number}' for number in range(chance.choice([0, 1, 2, 8]))],
    }


def equal(a, b):
    """Returns whether two values have the same type and are equal, nested values included."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def to_bytes(value):
    """Returns buffers as bytes, also in lists and dicts, to compare raw values."""
    if isinstance(value, dict):
        return {key: to_bytes(part) for key, part in value.items()}
    if isinstance(value, list):
        return [to_bytes(part) for part in value]
    return value if value is None else bytes(value)


def encode_row(row, spec=SPEC):
    """Returns a datapoint as its records."""
    found = {}
    for name, kind in parse_spec(spec).items():
        encode = registry.bind_encoder(kind.format, kind.args)
        value = row.get(name)
        if value is None:
            found[name] = None
        else:
            found[name] = [bytes(encode(v)) for v in value] if kind.sequence else bytes(encode(value))
    return found


def fill(directory, rows, spec=SPEC, **options):
    """Writes rows to a new dataset, with shards if `shard_length` is given."""
    kind = bags.ShardedDatasetWriter if 'shard_length' in options else bags.DatasetWriter
    with kind(directory, spec, **options) as writer:
        for row in rows:
            writer.append(row)
    return str(directory)


def fill_up(path, leave=0):
    """Fills a file system, except for some bytes."""
    with open(path, 'wb', buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    if leave:
        os.truncate(path, max(0, os.path.getsize(path) - leave))


def python(code, *args, stdin=None, wait=True, paths=()):
    """Runs Python code in a new process that can import the library, and packages in `paths`."""
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(map(str, (*paths, ROOT)))}
    command = [sys.executable, '-W', 'error', '-c', code, *map(str, args)]
    if not wait:
        pipe = subprocess.PIPE  # Without a buffer, as `communicate` would miss what `readline` has put in it.
        return subprocess.Popen(command, bufsize=0, env=environment, stdin=pipe, stdout=pipe, cwd=ROOT)
    done = subprocess.run(
        command, env=environment, input=stdin, capture_output=True, check=False, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope='session')
def kit():
    """The functions above, for test modules, which cannot import this one."""
    return SimpleNamespace(
        SPEC=SPEC,
        COMPRESSED=COMPRESSED,
        GOLDEN=ROOT / 'tests' / 'golden',
        ROOT=ROOT,
        make_row=make_row,
        equal=equal,
        to_bytes=to_bytes,
        encode_row=encode_row,
        fill=fill,
        fill_up=fill_up,
        python=python,
    )


def pytest_addoption(parser):
    parser.addoption(
        '--storage', help='have local paths be objects: s3-obstore, s3-fsspec, gs-obstore, gs-fsspec'
    )
    parser.addoption(
        '--max-processor-time', type=float, help='fail if an unmarked test takes more seconds of it'
    )


def pytest_configure(config):
    config.pluginmanager.register(Found())
    if config.getoption('--storage') is None:
        config.pluginmanager.register(ProcessorTime(config.getoption('--max-processor-time')))


# The tests over object stores: pytest --storage s3-obstore tests/dataset/test_reader.py


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    choose_slow_variants(config, items)
    if config.getoption('--storage') is not None:
        from tests.cloud.local_only import is_local_only

        for item in items:
            if is_local_only(item.nodeid):
                item.add_marker(pytest.mark.skip(reason='of local files'))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keeps garbage collection from passing the objects of all tests, which takes 0.2 s each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope='session', autouse=True)
def storage_of_all(request):
    """With --storage, local paths lead to an object store on loopback."""
    name = request.config.getoption('--storage')
    if name is None:
        yield
        return
    from bags import storage as files
    from bags.storage.connect import clients_for
    from bags.storage.object_store import RemoteStore
    from tests.cloud.synced import SyncedStore
    from tests.servers import gcs_server, s3_server

    scheme, _, client = name.partition('-')
    with (s3_server if scheme == 's3' else gcs_server)() as url, pytest.MonkeyPatch.context() as patch:
        own = {'key': 'a', 'secret': 'b'} if scheme == 's3' else {'token': 'anon', 'project': 't'}
        clients = clients_for(scheme, None, {**own, 'endpoint_url': url, 'client': client})
        known = {}

        def local(durability):
            return SyncedStore(RemoteStore(clients), f'{scheme}://bucket', known)

        patch.setattr(files, 'LocalStore', local)
        yield
