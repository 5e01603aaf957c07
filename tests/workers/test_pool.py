"""The pool of workers: results in order or as completed, bounded, and errors at their tasks."""

import gc
import os
import threading
import time
import weakref

import pytest

from bags.workers.outcome import PartialResult
from bags.workers.pool import WorkerPool
from tests.workers import samples

KINDS = {
    'inline': {'workers': 0},
    'threads': {'workers': 3},
    'processes': {'workers': 2, 'processes': True},
}


@pytest.fixture(params=list(KINDS))
def options(request):
    return KINDS[request.param]


def test_results_come_in_order(options):
    with WorkerPool(samples.uneven, **options) as pool:
        outcomes = list(pool.run(range(40)))
        assert all(outcome.seconds > 0.04 for outcome in outcomes if outcome.task % 5 == 0)
        found = [outcome.get() for outcome in outcomes]
        assert [number for number, _ in found] == list(range(40))
        assert ({pid for _, pid in found} == {os.getpid()}) == ('processes' not in options)
        assert not list(pool.run([]))
        outcomes = list(pool.run(range(10)))
        assert not options['workers'] or all(
            outcome.seconds > 0.04 for outcome in outcomes if outcome.task % 5 == 0
        )
        assert [outcome.task for outcome in pool.run('ab')] == ['a', 'b']


def test_the_tasks_at_work_are_bounded(options):
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield number

    with WorkerPool(samples.square, **options) as pool:
        for count, _ in enumerate(pool.run(tasks()), 1):
            assert len(taken) - count <= max(0, 2 * options['workers'])
    assert len(taken) == 40


def test_ahead_bounds_what_is_begun_and_not_yielded():
    taken = []

    def tasks():
        for number in range(30):
            taken.append(number)
            yield number

    def work(number):
        if number == 0:
            until = time.monotonic() + 30
            while len(taken) < 12 and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.3)  # Time in which more tasks would be taken.
        return number

    with WorkerPool(work, 3) as pool:
        outcomes = pool.run(tasks(), ahead=12)
        assert next(outcomes).get() == 0
        assert len(taken) == 13
        assert [outcome.get() for outcome in outcomes] == list(range(1, 30))


def test_bytes_bound_what_is_done_and_not_yielded():
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield number

    def work(number):
        if number == 0:
            time.sleep(0.3)
        return bytes(100)

    with WorkerPool(work, 2, size_of=len) as pool:
        outcomes = pool.run(tasks(), ahead=1000, max_held_bytes=500)
        next(outcomes)
        assert len(taken) <= 12
        assert all(outcome.size == 100 for outcome in outcomes)
        assert len(taken) == 40


def test_inline_tasks_wait_until_the_one_before_was_taken():
    events = []

    def tasks():
        for number in range(3):
            events.append(f'task {number}')
            yield number

    with WorkerPool(samples.square, 0) as pool:
        for outcome in pool.run(tasks()):
            events += [f'result {outcome.task}']
    assert events == ['task 0', 'result 0', 'task 1', 'result 1', 'task 2', 'result 2']


def test_errors_come_in_their_place(options):
    begun = []

    def tasks():
        for number in range(100):
            begun.append(number)
            yield number

    found = []
    with WorkerPool(samples.fails_at_7, **options) as pool:
        with pytest.raises(ArithmeticError, match='seven') as error:
            found.extend(outcome.get() for outcome in pool.run(tasks()))
        assert found == list(range(7))
        assert len(begun) < 30
        if 'processes' in options:
            assert 'in a worker process:\nTraceback' in error.value.__notes__[-1]
            assert 'in fails_at_7' in error.value.__notes__[-1]
    with WorkerPool(samples.fails_at_7, **options) as pool:
        outcomes = list(pool.run(range(20)))  # Outcomes with errors do not end the run.
    assert [outcome.task for outcome in outcomes if outcome.error is not None] == [7]
    assert [outcome.task for outcome in outcomes] == list(range(20))


def test_what_was_made_before_an_error(options):
    with WorkerPool(samples.partial_at_7, **options) as pool:
        outcome = list(pool.run(range(8)))[-1]
        assert outcome.result == 7
        with pytest.raises(ArithmeticError):
            outcome.get()


def test_system_exit_of_a_task_is_its_error(options):
    with WorkerPool(samples.exits_at_7, **options) as pool:
        outcomes = list(pool.run(range(10)))
        assert [type(outcome.error) for outcome in outcomes if outcome.error] == [SystemExit]


def test_a_closed_pool_refuses_tasks(options):
    pool = WorkerPool(samples.square, **options)
    outcomes = pool.run(range(100))
    next(outcomes)
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match='closed'):
        list(pool.run([3]))
    with pytest.raises(ValueError, match='closed'):
        list(outcomes)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith('bags-')]


@pytest.mark.slow(all_but='threads')
@pytest.mark.parametrize('kind', ['threads', 'processes'])
def test_a_pool_that_nobody_has_ends_its_workers(kind):
    pool = WorkerPool(samples.square, name='abandoned', **KINDS[kind])
    outcomes = pool.run(range(100))
    next(outcomes)
    reference = weakref.ref(pool)
    del pool, outcomes
    gc.collect()
    assert reference() is None
    import multiprocessing

    names = [thread.name for thread in threading.enumerate()]
    names += [child.name for child in multiprocessing.active_children()]
    assert not [name for name in names if name.startswith('abandoned')]


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='forks')
@pytest.mark.filterwarnings('ignore:.*fork')
def test_a_forked_child_has_no_workers():
    with WorkerPool(samples.square, 2) as pool:
        assert next(pool.run([2])).get() == 4
        pid = os.fork()
        if not pid:
            try:
                list(pool.run([3]))
            except RuntimeError:
                pool.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert next(pool.run([3])).get() == 9


def test_an_error_that_was_raised_is_not_kept():
    with WorkerPool(samples.fails_at_7, 2) as pool:
        (outcome,) = pool.run([7])
        with pytest.raises(ArithmeticError):
            outcome.get()
        assert outcome.error is None


def test_a_partial_result_is_a_pair():
    assert PartialResult(1, ValueError('x')).result == 1
