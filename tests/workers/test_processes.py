"""Workers that are processes: none is left running, and those that die lose no task."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bags.workers.pool import WorkerPool
from bags.workers.processes import check_sendable
from tests.workers import samples


def results_of(work, tasks, **options):
    with WorkerPool(work, 2, processes=True, **options) as pool:
        return [outcome.get() for outcome in pool.run(tasks)]


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    assert not multiprocessing.active_children()


def test_tasks_of_a_dead_worker_are_done_by_another(tmp_path):
    found = results_of(samples.DiesAt({0, 7, 8, 19}, str(tmp_path / 'flag')), range(20))
    assert found == list(range(20))
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize('attempts', [1, 3])
def test_a_task_that_workers_die_of_fails(attempts):
    with WorkerPool(samples.DiesAt({7}), 2, processes=True, attempts=attempts) as pool:
        outcomes = list(pool.run(range(20)))
    assert [outcome.result for outcome in outcomes] == [n if n != 7 else None for n in range(20)]
    said = (
        r'^7: (3 workers died of it, the last: )?worker process bags-\d \(pid \d+\) ended with exit code -9'
    )
    with pytest.raises(RuntimeError, match=said) as error:
        outcomes[7].get()
    assert ('3 workers' in str(error.value)) == (attempts == 3)
    assert '(SIGKILL)' in str(error.value)


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='forks')
def test_children_of_a_worker_do_not_hide_its_death(tmp_path):
    path = tmp_path / 'pid'
    began = time.monotonic()
    with pytest.raises(RuntimeError, match='SIGKILL'):
        results_of(samples.Forks(str(path)), range(20), attempts=1)
    assert time.monotonic() - began < 20
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_errors_that_cannot_be_sent_keep_their_text():
    with pytest.raises(RuntimeError, match=r'^Unpicklable: one'):
        results_of(samples.raises_unpicklable, range(3))
    with pytest.raises(TypeError, match='generator') as error:
        results_of(samples.returns_unpicklable, range(3))
    assert 'while it sent a result' in error.value.__notes__[0]
    with pytest.raises(FileNotFoundError, match='not here') as error:
        results_of(samples.returns_unloadable, range(5))
    assert 'received' in error.value.__notes__[-1]
    with pytest.raises(FileNotFoundError, match='not here') as error:
        results_of(samples.LoadsNowhere(), range(5))
    assert 'must import' in error.value.__notes__[0]


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(TypeError, match=r'work: expected a picklable object, .*lambda.*top of a module'):
        WorkerPool(lambda task: task, 2, processes=True)
    with pytest.raises(TypeError, match=r'lambda.*: expected a picklable object, .*processes=False'):
        results_of(samples.square, [1, lambda: 2])
    check_sendable(work=samples.square, other=3)
    with pytest.raises(TypeError, match=r'^other: '):
        check_sendable(work=samples.square, other=lambda: 3)


def test_functions_of_an_interactive_session_are_refused(kit):
    code = """
        from bags.workers.processes import check_sendable
        def work(task): return task
        try:
            check_sendable(work=work)
        except TypeError as exc:
            print(exc)
    """
    assert b'interactive session' in kit.python(textwrap.dedent(code))


@pytest.mark.slow(all_but='300000')
@pytest.mark.parametrize('size', [100, 300_000])
def test_large_tasks_results_and_payloads(size):
    """Larger than the buffers of pipes, in both directions."""
    tasks = [bytes([number]) * size for number in range(20)]
    assert results_of(samples.size_of, tasks) == [size] * 20
    assert results_of(bytes.upper, [b'a' * size] * 20) == [b'A' * size] * 20
    assert results_of(samples.DiesAt(set(range(1000, 1000 + size))), range(3)) == [0, 1, 2]


def test_results_through_a_transport(tmp_path):
    work = samples.DiesAt({7}, str(tmp_path / 'flag'))
    found = results_of(work, range(20), transport=samples.CountingTransport)
    assert [number for _, number in found] == list(range(20))
    assert sum(count == 1 for count, _ in found) >= 2  # Each process has a transport of its own.


def test_workers_ignore_ctrl_c():
    assert results_of(samples.state_of_interrupts, range(4)) == [True] * 4


def test_close_does_not_wait_for_tasks():
    began = time.monotonic()
    with WorkerPool(samples.sleeps, 2, processes=True) as pool:
        next(pool.run([0, 60]))
    assert time.monotonic() - began < 30


SCRIPT = """
    import os, signal, sys, threading, time
    from multiprocessing import active_children
    from bags.workers.pool import WorkerPool
    from tests.workers import samples

    def main():
        processes = sys.argv[1] == 'processes'
        with WorkerPool(samples.sleeps, 2, processes=processes) as pool:
            outcomes = pool.run([0, 0, 30, 30, 30] if processes else [0, 0, 0.3, 0.3, 0.3])
            next(outcomes)
            print(*(child.pid for child in active_children()), flush=True)
            if sys.argv[2] == 'interrupt':
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            elif sys.argv[2] == 'kill':
                os.kill(os.getpid(), signal.SIGKILL)
            list(outcomes)
"""


def ends(pid):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            state = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
        except OSError:
            return True
        if state == 'Z':
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def script(tmp_path, kit):
    def run(*args, guard="if __name__ == '__main__':"):
        path = tmp_path / 'script.py'
        path.write_text(textwrap.dedent(SCRIPT) + f'\n{guard}\n    main()\n')
        # Output to files: a pipe ends only when all processes have closed it.
        with open(tmp_path / 'out', 'w+') as out, open(tmp_path / 'errors', 'w+') as errors:
            done = subprocess.run(
                [sys.executable, str(path), *args],
                env={**os.environ, 'PYTHONPATH': str(kit.ROOT)},
                stdout=out, stderr=errors, stdin=subprocess.DEVNULL, check=False, timeout=60,
            )  # fmt: skip
        return done.returncode, (tmp_path / 'out').read_text(), (tmp_path / 'errors').read_text()

    return run


@pytest.mark.parametrize('kind', ['threads', 'processes'])
def test_ctrl_c_ends_all(script, kind):
    code, out, errors = script(kind, 'interrupt')
    assert code == -signal.SIGINT
    assert errors.count('Traceback') == 1
    assert 'KeyboardInterrupt' in errors
    assert len(out.split()) == 2 * (kind == 'processes')
    assert all(ends(pid) for pid in out.split())


@pytest.mark.skipif(not os.path.isdir('/proc/self'), reason='looks processes up')
def test_workers_end_with_a_parent_that_is_killed(script):
    code, out, _ = script('processes', 'kill')
    assert code == -signal.SIGKILL
    assert len(out.split()) == 2
    assert all(ends(pid) for pid in out.split())


def test_a_script_without_a_guard_raises(script):
    code, _, errors = script('processes', 'run', guard='if True:')
    assert code == 1
    assert "expected `if __name__ == '__main__':`" in errors
