"""Shared by the tests of loaders: a dataset, scripts that start processes, and comparison of batches."""

import os
import subprocess
import sys
import textwrap

import pytest

import bags
from tests.loader.samples import COUNT, SPEC, make_row

HEAD = """
    import gc, json, os, pickle, random, signal, sys, threading, time, warnings
    import numpy as np
    import bags
    from multiprocessing import active_children

    def augment(batch, rng):
        batch['x'] = batch['x'] + rng.random(batch['x'].shape, np.float32)
        batch['noise'] = [rng.integers(0, 9, 3) for _ in batch['id']]
        return batch

    def slow(batch):
        time.sleep(0.02)
        return batch

    def stuck(batch):
        time.sleep(60)
        return batch

    def bad(batch):
        if 50 in batch['id']:
            raise ArithmeticError('fifty')
        return batch

    def sudden(batch):
        if 50 in batch['id']:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    def same(a, b):
        if isinstance(a, np.ndarray):
            return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        if isinstance(a, bags.Ragged):
            return same(a.values, b.values) and same(a.offsets, b.offsets)
        if isinstance(a, dict):
            return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        return type(a) is type(b) and a == b

    def held():
        'What a process has that could be left behind: where the system tells.'
        gc.collect()
        if not os.path.isdir('/proc/self/fd'):
            return threading.active_count(), len(active_children())
        with open('/proc/self/maps') as maps:
            shared = [line.split()[-1] for line in maps if 'memfd:' in line]
        return {
            'threads': threading.active_count(),
            'children': len(active_children()),
            'descriptors': len(os.listdir('/proc/self/fd')),
            'shared memory': len(shared),  # And with a name, which others have too, there is none.
        }

    def status(pid):
        'What the system says of a process.'
        with open(f'/proc/{pid}/status') as file:
            return dict(line.split(':', 1) for line in file)

    def ends(pid, seconds=20):
        'Whether a process ends within some seconds.'
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if status(pid)['State'].split()[0] == 'Z':
                    return True
            except FileNotFoundError:
                return True
            time.sleep(0.02)
        return False

    dataset = bags.open(sys.argv[1])

    def loader(**options):
        return bags.Loader(dataset, 7, shuffle=False, **{'workers': 2, 'processes': True, **options})
"""


@pytest.fixture(scope='session')
def rows():
    """The dataset that scripts open, of 103 datapoints."""
    return [make_row(index) for index in range(COUNT)]


@pytest.fixture(scope='session')
def dataset(tmp_path_factory, kit, rows):
    return bags.open(kit.fill(tmp_path_factory.mktemp('loading') / 'x', rows, SPEC, shard_length=40))


@pytest.fixture
def script(dataset, kit, tmp_path):
    """Runs code as a script of its own, so that processes find its functions in `__main__`."""

    def run(code, *args, functions='', guard=True, timeout=120):
        """Returns the exit code, the output, and the errors."""
        path = tmp_path / 'script.py'
        head, body = textwrap.dedent(HEAD) + textwrap.dedent(functions), textwrap.dedent(code)
        if guard:
            body = f"if __name__ == '__main__':\n{textwrap.indent(body, '    ')}"
        path.write_text(f'{head}\n{body}')
        # To files: a pipe ends only when all processes have closed it, also one that was left running.
        with open(tmp_path / 'out', 'w+') as out, open(tmp_path / 'errors', 'w+') as error:
            done = subprocess.run(
                [sys.executable, '-W', 'error', str(path), dataset.path, *map(str, args)],
                env={**os.environ, 'PYTHONPATH': str(kit.ROOT)},
                cwd=tmp_path,
                stdout=out,
                stderr=error,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=timeout,
            )
        printed, errors = (tmp_path / 'out').read_text(), (tmp_path / 'errors').read_text()
        sys.stderr.write(errors)  # Shown by pytest if a test fails.
        return done.returncode, printed, errors

    return run
