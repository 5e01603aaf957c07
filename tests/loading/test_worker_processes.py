"""Batches made by processes: the same as those of threads, and nothing of it stays."""

import gc
import os
import signal
import textwrap
import time

import numpy as np
import pytest

import bags
from bags.bag.files.arena import ALIGNMENT, Arena

SPEC = {'id': 'int(8)', 'x': 'array(float32,4)', 'text': 'utf8', 'nums': 'int(4)[]'}
COUNT = 103


@pytest.fixture(scope='module')
def dataset(tmp_path_factory, kit):
    rows = [
        {'id': index, 'x': np.full(4, index, 'float32'), 'text': f'text {index}', 'nums': range(index % 5)}
        for index in range(COUNT)
    ]
    return bags.open(kit.fill(tmp_path_factory.mktemp('processes') / 'x', rows, SPEC, shard_length=40))


def run(dataset, kit, code, tmp_path):
    """Runs a script, whose functions processes find as those of `__main__`."""
    import subprocess
    import sys

    head = """
        import gc, os, pickle, signal, sys, threading, time
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

        def bad(batch):
            if 50 in batch['id']:
                raise ArithmeticError('fifty')
            return batch

        def sudden(batch):
            if 50 in batch['id']:
                os.kill(os.getpid(), signal.SIGKILL)
            return batch

        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(one)

        def odd(batch):
            raise Odd(1, 2)

        def generator(batch):
            return (name for name in batch)

        def shared():
            return sorted(os.listdir('/dev/shm')) if os.path.isdir('/dev/shm') else []

        def descriptors():
            return len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0

        dataset = bags.open(sys.argv[1])

        def loader(**options):
            return bags.Loader(dataset, 7, shuffle=False, **{'workers': 2, 'processes': True, **options})
    """
    script = tmp_path / 'script.py'
    body = textwrap.indent(textwrap.dedent(code), '    ')
    script.write_text(f"{textwrap.dedent(head)}\nif __name__ == '__main__':\n{body}")
    done = subprocess.run(
        [sys.executable, '-W', 'error', str(script), dataset.directory],
        env={**os.environ, 'PYTHONPATH': str(kit.ROOT)},
        capture_output=True,
        check=False,
        timeout=600,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def test_processes_make_the_batches_that_threads_do(dataset, kit, tmp_path):
    code = """
        def same(a, b):
            if isinstance(a, np.ndarray):
                return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            if isinstance(a, bags.Ragged):
                return same(a.values, b.values) and same(a.offsets, b.offsets)
            pairs = zip(a, b)
            return len(a) == len(b) and all(x == y if isinstance(x, str) else same(x, y) for x, y in pairs)

        options = dict(epochs=2, transform=augment)
        expected = list(loader(processes=False, workers=0, **options))
        for workers, prefetch in ((1, None), (3, 2)):
            found = list(loader(workers=workers, prefetch=prefetch, **options))
            assert len(found) == len(expected) == 30
            for one, other in zip(found, expected):
                assert list(one) == list(other)
                assert all(same(one[name], other[name]) for name in one)
                for array in (one['x'], one['id'], one['nums'].values, *one['noise']):
                    assert array.flags.writeable and array.flags.c_contiguous
                assert one['x'].ctypes.data % 64 == 0
        # From a state, and back.
        batches = iter(loader(**options))
        for _ in range(20):
            next(batches)
        state = batches.get_state()
        other = loader(**options)
        other.load_state_dict(state)
        assert all(same(one['x'], another['x']) for one, another in zip(list(other), expected[20:]))
        assert not active_children() or batches
        batches.close()
        assert not active_children()
        print('done')
    """
    assert run(dataset, kit, code, tmp_path) == (0, 'done\n', '')


def test_errors_arrive_and_nothing_stays(dataset, kit, tmp_path):
    code = """
        def error_of(batches):
            found = []
            try:
                for batch in batches:
                    found.append(batch)
            except Exception as exc:
                assert not active_children(), active_children()
                return len(found), type(exc).__name__, str(exc), '\\n'.join(getattr(exc, '__notes__', []))
            raise AssertionError('no error')

        before = shared()
        count, kind, text, notes = error_of(loader(transform=bad))
        assert (count, kind, text) == (7, 'ArithmeticError', 'fifty')
        assert 'datapoints 49, 50, 51' in notes and 'in bad' in notes
        count, kind, text, notes = error_of(loader(transform=odd))
        assert (count, kind) == (0, 'RuntimeError') and text.startswith('Odd: ')
        count, kind, text, notes = error_of(loader(transform=generator))
        assert (count, kind) == (0, 'TypeError') and 'generator' in text, (kind, text)
        began = time.monotonic()
        count, kind, text, notes = error_of(loader(transform=sudden))
        assert kind == 'RuntimeError' and 'exit code -9' in text
        assert time.monotonic() - began < 30
        batches = iter(loader(transform=slow))
        next(batches)
        os.kill(active_children()[0].pid, signal.SIGKILL)
        assert 'exit code -9' in error_of(batches)[2]
        for end in ('del', 'cycle', 'close', 'unused'):
            batches = iter(loader(transform=slow))
            if end != 'unused':
                next(batches)
            if end == 'cycle':
                ring = [batches]
                ring.append(ring)
                del ring
            elif end == 'close':
                batches.close()
                assert list(batches) == []
            batches = None
            gc.collect()
            assert not active_children(), end
            left = descriptors()
        assert descriptors() == left
        assert shared() == before
        assert not [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        try:
            loader(transform=lambda batch: batch)
        except TypeError as exc:
            assert str(exc).startswith('transform: expected what can be pickled')
        batches = iter(loader(transform=slow))
        next(batches)
        print('done')  # And the process ends, with an iterator at work.
    """
    assert run(dataset, kit, code, tmp_path) == (0, 'done\n', '')


def test_ctrl_c_ends_all(dataset, kit, tmp_path):
    code = """
        batches = iter(loader(transform=slow))
        pids = [child.pid for child in active_children()]
        for number, _ in enumerate(batches):
            if number == 5:
                print(*pids, flush=True)
                os.kill(os.getpid(), signal.SIGINT)
    """
    code, out, error = run(dataset, kit, code, tmp_path)
    assert code == -signal.SIGINT
    assert error.count('Traceback') == 1
    assert 'KeyboardInterrupt' in error
    assert all_end(out)


def test_workers_end_with_a_process_that_is_killed(dataset, kit, tmp_path):
    code = """
        batches = iter(loader(transform=slow))
        next(batches)
        print(*(child.pid for child in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    code, out, _ = run(dataset, kit, code, tmp_path)
    assert code == -signal.SIGKILL
    assert all_end(out)


def all_end(pids):
    """Whether processes end within some seconds."""
    pids = [int(pid) for pid in pids.split()]
    assert len(pids) == 2
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def is_alive(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def test_a_script_without_a_guard_is_told_so(dataset, kit, tmp_path):
    script = tmp_path / 'unguarded.py'
    script.write_text(
        'import sys, bags\n'
        'for batch in bags.Loader(bags.open(sys.argv[1]), 7, workers=1, processes=True): pass\n'
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, str(script), dataset.directory],
        env={**os.environ, 'PYTHONPATH': str(kit.ROOT)},
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )
    assert done.returncode == 1
    assert "a script that starts processes needs `if __name__ == '__main__':`" in done.stderr


@pytest.mark.slow
def test_many_times(dataset, kit, tmp_path):
    code = """
        def cycle(number):
            batches = iter(loader(workers=1 + number % 2, transform=(slow, bad, None)[number % 3]))
            try:
                for _ in range(number % 9):
                    next(batches)
            except ArithmeticError:
                pass

        cycle(0)
        before = descriptors(), shared()
        for number in range(30):
            cycle(number)
        assert not active_children()
        assert (descriptors(), shared()) == before
        print('done')
    """
    assert run(dataset, kit, code, tmp_path) == (0, 'done\n', '')


# The memory.


def test_an_arena_grows_and_aligns():
    arena = Arena()
    for sizes in ([3, 0, 100], [], [5_000_000, 7]):
        parts = [memoryview(os.urandom(size)) for size in sizes]
        offsets = arena.write(parts)
        assert all(offset % ALIGNMENT == 0 for offset in offsets)
        for offset, part in zip(offsets, parts, strict=True):
            assert arena.view(offset + len(part))[offset:] == part
    before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0
    arena.close()
    arena.close()
    del arena
    gc.collect()
    if before:
        assert len(os.listdir('/proc/self/fd')) < before
