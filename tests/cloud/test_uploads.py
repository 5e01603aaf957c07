"""Uploads take constant memory, whatever the length of a bag or a single record."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bags import bag
from bags.storage import store_for
from tests.servers import gcs_server, s3_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists('/proc/self/clear_refs'), reason='needs Linux, to tell memory'),
]

ROOT = Path(__file__).parents[2]
PIECE = 100_000
RAW_BYTES = 'ignore:Sending a large body directly with raw bytes:ResourceWarning'  # From aiohttp, in gcsfs.
CODE = """
import json, sys
from pathlib import Path

import numpy as np

from bags import bag
from bags.storage import connect as clients

path, options, kind, size = *sys.argv[1:4], int(sys.argv[4])
options = json.loads(options)
if kind == 'alone':
    # As where s3fs is not installed: obstore sends large objects too.
    sys.modules['s3fs'] = None

def peak():
    status = Path('/proc/self/status').read_text()
    return int(status.partition('VmHWM:')[2].split()[0]) >> 10

with bag.Writer(f'{path}.first', storage_options=options) as writer:
    writer.write(bytes(9 << 20))
record = np.full(size, 7, np.uint8) if kind == 'record' else None
Path('/proc/self/clear_refs').write_text('5')
before = peak()
with bag.Writer(path, storage_options=options) as writer:
    if record is not None:
        writer.write(record)
    else:
        for number in range(size // 100_000):
            writer.write(number.to_bytes(4, 'little') * 25_000)
print(peak() - before)
"""


def taken(path, options, kind, size):
    """Returns the peak memory of writing, in MiB."""
    done = subprocess.run(
        [
            *(sys.executable, '-W', 'error', '-W', RAW_BYTES, '-c', CODE),
            *(path, json.dumps(options), kind, str(size)),
        ],
        env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)


@contextlib.contextmanager
def served(scheme):
    """Starts an object store for one test and yields its options."""
    with (s3_server if scheme == 's3' else gcs_server)() as url:
        own = {'key': 'a', 'secret': 'b'} if scheme == 's3' else {'token': 'anon', 'project': 't'}
        yield {**own, 'endpoint_url': url}


CASES = [
    *(('s3', 'obstore', 'many'), ('s3', 'obstore', 'alone'), ('s3', 'fsspec', 'many')),
    *(('s3', 'obstore', 'record'), ('s3', 'fsspec', 'record')),
    *(('gs', 'obstore', 'many'), ('gs', 'fsspec', 'many'), ('gs', 'fsspec', 'record')),
]


@pytest.mark.parametrize(('scheme', 'client', 'kind'), CASES, ids=map('-'.join, CASES))
def test_memory(scheme, client, kind):
    path = f'{scheme}://bucket/large/{client}-{kind}.bag'
    size = 400_000_000
    copies = size >> 20 if kind == 'record' else 0  # A buffer that its owner may change is copied once.
    with served(scheme) as options:
        options['client'] = client
        assert taken(path, options, kind, size) < copies + 200
        reader = bag.Reader(path, storage_options=options)
        store, path = store_for(path, None, options)
        if kind == 'record':
            assert (len(reader), store.stat(path).size) == (1, size + 8)
        else:
            assert len(reader) == size // PIECE
            chosen = np.random.default_rng(0).integers(0, len(reader), 5).tolist()
            expected = [number.to_bytes(4, 'little') for number in chosen]
            assert [record[:4] for record in reader.read_indices(chosen)] == expected
        store.remove(path)
