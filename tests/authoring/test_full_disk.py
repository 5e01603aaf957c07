"""A full disk: the error names the file, and the target can be resumed, or is removed."""

import os
import sys

import numpy as np
import pytest

import bags
from tests.authoring import samples

pytestmark = pytest.mark.skipif(sys.platform == 'win32', reason='a limit of the size of files')

ROWS = 3000
CODE = """
import resource, signal, sys
import bags
import numpy as np
from tests.authoring import samples

what, source, target = sys.argv[1:]
CALLS = {
    'write': lambda: bags.write(range(3000), target, samples.SPEC, transform=samples.long, workers=1),
    'write, threads': lambda: bags.write(
        range(3000), target, samples.SPEC, transform=samples.long, workers=2, processes=False
    ),
    'copy': lambda: bags.copy(source, target),
    'arrays': lambda: bags.from_numpy(
        {'id': np.arange(3000), 'x': np.ones((3000, 200))}, target, shard_length=100
    ),
    'copy, zstd': lambda: bags.copy(source, target, compression={'text': 1}),
    'convert': lambda: bags.convert(source + '-files', target),
    'export': lambda: bags.export(source, target),
    'export, files': lambda: bags.export(source, target, format='files', fields=['id', 'text']),
}

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = {'export, files': 5_000, 'arrays': 100_000}.get(what, 300_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    CALLS[what]()
except OSError as exc:
    print(exc.errno, exc.filename)
else:
    print('no error')
"""
RESUMED = {
    'write': lambda source, target: bags.write(
        range(ROWS), target, samples.SPEC, transform=samples.long, workers=1, resume=True
    ),
    'write, threads': lambda source, target: bags.write(
        range(ROWS), target, samples.SPEC, transform=samples.long, workers=1, resume=True
    ),
    'copy': lambda source, target: bags.copy(source, target, resume=True),
    'arrays': lambda source, target: bags.from_numpy(
        {'id': np.arange(ROWS), 'x': np.ones((ROWS, 200))}, target, shard_length=100, resume=True
    ),
    'copy, zstd': lambda source, target: bags.copy(source, target, compression={'text': 1}, resume=True),
    'convert': lambda source, target: bags.convert(f'{source}-files', target, resume=True),
}


@pytest.fixture(scope='module')
def source(kit, tmp_path_factory):
    path = tmp_path_factory.mktemp('full') / 'source'
    kit.fill(path, map(samples.long, range(ROWS)), samples.SPEC)
    files = path.parent / 'source-files'
    files.mkdir()
    for number in range(600):
        (files / f'{number:04}.bin').write_bytes(np.random.default_rng(number).bytes(1000))
    return str(path)


@pytest.mark.slow(all_but='write')
@pytest.mark.parametrize('what', [*RESUMED, 'export', 'export, files'])
def test_a_disk_that_is_full(kit, source, tmp_path, what):
    target = str(tmp_path / 'target')
    said = kit.python(CODE, what, source, target).decode()
    assert target in said, said
    if what not in RESUMED:
        assert not os.listdir(target)
        return
    RESUMED[what](source, target)
    with bags.open(target) as dataset:
        if what == 'convert':
            assert [len(record) for record in dataset.records('bin')] == [1000] * 600
            return
        ids = dataset.batch(range(len(dataset)), 'id')['id'].tolist()
        assert sorted(ids) == list(range(ROWS))
        if what != 'arrays':
            assert str(dataset[1234]) == str(bags.open(source)[ids[1234]])
    assert not list(bags.verify(target, decode=True))
