"""Records of many kinds, options of bags, and helpers, for the tests of bags."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings

from bags import bag

few = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
"""Settings of hypothesis."""
many = settings(few, max_examples=400)
"""Settings of hypothesis for tests marked campaign."""

DICTIONARY = b'a photo of thing number {"row": "caption"} ' * 20
PLACEMENTS = ('tail', 'separate', 'starts')
COMPRESSIONS = {
    'plain': bag.CompressionNone(),
    'zstd': bag.CompressionZstd(),
    'dictionary': bag.CompressionZstd(5, DICTIONARY),
}
ACCESS = {
    'mapped': {},
    'pread': {'mapped': False},
    'drop_after_read': {'cache_policy': 'drop_after_read'},
    'direct_io': {'cache_policy': 'direct_io'},
}


def records_of_many_kinds(count: int = 61, seed: int = 0) -> list[bytes]:
    """Returns records that are distinct unless empty; some are long, some compressible."""
    rng = random.Random(seed)
    records = []
    for index in range(count):
        size = rng.choice([0, 1, 7, 8, 100, 512, 4096, 9000]) if index % 9 else 0
        text = b'%d a photo of thing number %d' % (index, index)
        records.append(
            (text + (rng.randbytes(size) if index % 2 else bytes(size)))[:size]
            if size < 8
            else text + (rng.randbytes(size) if index % 2 else bytes(size))
        )
    return records


def write(path: str | os.PathLike[str], records: Sequence[bytes], **options: object) -> str:
    with bag.Writer(path, **options) as writer:
        for record in records:
            writer.write(record)
    return os.fspath(path)


def ends_of(records: Sequence[bytes]) -> bytes:
    return np.cumsum([len(record) for record in records], dtype='<u8').tobytes()


def raw_bag(records: Sequence[bytes]) -> bytes:
    """Returns the bytes of a bag by the definition of the format, without the library."""
    return b''.join(records) + ends_of(records)


def run_child(code: str, *args: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs code in a child process, which may crash."""
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, '-X', 'faulthandler', '-c', textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, 'PYTHONPATH': str(root)},
    )


@contextlib.contextmanager
def forked(work: Callable[[], bool]):
    """Runs work in a forked child, concurrently with the block; checks that it returns True."""
    pid = os.fork()
    if not pid:
        good = False
        try:
            good = work()
        finally:
            os._exit(0 if good else 1)
    try:
        yield
    finally:
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def descriptors() -> int:
    return len(os.listdir('/proc/self/fd'))


def threads_of_bags() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith('bags')]
