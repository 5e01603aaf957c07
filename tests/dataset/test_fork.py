"""Children forked while other threads open and read datasets do the same, and none of them hangs."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import bags

SPEC = {'blob': 'bytes', 'id': 'int(8)', 'image': 'png', 'text': 'utf8[]', 'tree': 'tree?'}
COUNT = 30
SECONDS = 20

pytestmark = [
    pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked'),
    pytest.mark.skipif(
        not getattr(sys, '_is_gil_enabled', lambda: True)(),
        reason='a child can inherit locks of the interpreter itself, held by other threads',
    ),
]


def row(index):
    image = np.full((2, 2, 3), index, np.uint8)
    return {'blob': bytes(index), 'id': index, 'image': image, 'text': ['x'] * (index % 3), 'tree': None}


@pytest.fixture
def paths(tmp_path):
    with (
        bags.DatasetWriter(tmp_path / 'folder', SPEC, compression=['blob', 'text']) as writer,
        bags.ShardedDatasetWriter(tmp_path / 'shards', SPEC, shard_length=4) as shards,
    ):
        for index in range(COUNT):
            writer.append(row(index))
            shards.append(row(index))
    return tmp_path / 'folder', tmp_path / 'shards'


def read(paths, indices):
    for path in paths:
        with bags.open(path) as reader:
            for index in indices:
                assert reader[index]['id'] == index
                assert (reader[index, 'image']['image'] == index).all()
            assert reader.batch(indices)['id'].tolist() == list(indices)
            assert reader.records('blob')[indices[-1]] == bytes(indices[-1])
        bag = bags.bag.Reader(paths[0] / 'id.bag')
        assert bag[3] == (3).to_bytes(8, 'little')
        assert bags.bag.Index(bag)[bag[4]] == 4


def fork(paths, shared):
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        code = 1
        try:
            read(paths, range(COUNT))
            assert [reader[5]['id'] for reader in shared] == [5, 5]
            code = 0
        finally:
            os._exit(code)
    return pid


def fork_beside_threads(paths, forks):
    ended = threading.Event()
    failed = []

    def work():
        try:
            while not ended.is_set():
                read(paths, range(0, COUNT, 7))
        except BaseException as exc:
            failed.append(exc)

    read(paths, range(COUNT))  # Imports all modules before the first fork.
    shared = [bags.open(path) for path in paths]
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        children = []
        for _ in range(forks):
            time.sleep(0.002)
            children.append(fork(paths, shared))
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * forks
    assert not failed


# Python 3.12 and later warn of forks beside threads, but PyTorch forks its loaders so.
@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_children_read_that_are_forked_beside_threads(paths):
    fork_beside_threads(paths, 12)


@pytest.mark.campaign
@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_many_children_read_that_are_forked_beside_threads(paths):
    fork_beside_threads(paths, 60)
