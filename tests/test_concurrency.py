"""Work that is divided over threads for the length of a call."""

import _thread
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

from bags import concurrency as threads
from bags.concurrency import at_once
from bags.storage.heap import HELD, MOST, hold


def test_results_come_in_order():
    assert at_once(lambda number: number * number, range(9)) == [number * number for number in range(9)]
    barrier = threading.Barrier(4, timeout=30)
    at_once(lambda _: barrier.wait(), range(4))  # Each in a thread, or they would wait for ever.


@pytest.mark.parametrize('failing', [0, 1, 3])
def test_an_error_of_any_thread_is_raised(failing):
    def work(number):
        if number == failing:
            raise ValueError(number)

    with pytest.raises(ValueError, match=str(failing)):
        at_once(work, range(4))


def test_where_no_thread_can_be_started_the_caller_does_it(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, 'start_new_thread', refuse)
    threads._dismiss()
    assert at_once(lambda number: (number, _thread.get_ident()), range(3)) == [
        (number, _thread.get_ident()) for number in range(3)
    ]


def test_threads_are_kept_for_the_next_call():
    both = threading.Barrier(2, timeout=30)

    def work(_):
        both.wait()
        return _thread.get_ident()

    assert {at_once(work, range(2))[1] for _ in range(20)} == {at_once(work, range(2))[1]}


@pytest.mark.skipif(not os.path.isdir('/proc/self/task'), reason='the system does not tell threads')
def test_threads_that_are_not_needed_end(monkeypatch):
    threads._dismiss()
    monkeypatch.setattr(threads, 'KEPT', 0.05)
    there = threading.Barrier(5, timeout=30)
    before = set(os.listdir('/proc/self/task'))
    at_once(lambda _: there.wait(), range(5))
    assert len(threads._idle) == 4
    until = time.monotonic() + 30
    while set(os.listdir('/proc/self/task')) - before:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not threads._idle
    assert at_once(str, range(5)) == ['0', '1', '2', '3', '4']


def test_calls_that_come_as_threads_end(monkeypatch):
    monkeypatch.setattr(threads, 'KEPT', 0.002)
    for number in range(300):
        assert at_once(lambda other, number=number: number + other, range(3)) == [
            number,
            number + 1,
            number + 2,
        ]
        time.sleep(0.002)


def test_many_calls_at_a_time():
    def rows(row):
        return at_once(lambda other: row * other, range(4))

    found = []

    def call():
        found.extend(at_once(rows, range(5)) for _ in range(100))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert found == [[[row * other for other in range(4)] for row in range(5)]] * 600


def script(code):
    run = [sys.executable, '-c', textwrap.dedent(code)]
    done = subprocess.run(run, check=False, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_work_as_the_interpreter_ends():
    code = """
        import sys
        from bags.concurrency import at_once

        class Last:
            def __del__(self):
                assert sys.is_finalizing()
                print(at_once(str, range(3)))

        sys.last_value = Last()  # Goes when the end has begun, before any module does.
        at_once(str, range(3))
    """
    assert script(code) == "['0', '1', '2']\n"


@pytest.mark.skipif(not os.path.isdir('/proc/self/task'), reason='the system does not tell threads')
def test_ctrl_c_as_a_thread_is_given_work(monkeypatch):
    threads._dismiss()
    begin, before = threads.Helper.begin, set(os.listdir('/proc/self/task'))

    def interrupted(*_):
        monkeypatch.setattr(threads.Helper, 'begin', begin)
        raise KeyboardInterrupt

    for _ in range(3):
        monkeypatch.setattr(threads.Helper, 'begin', interrupted)
        with pytest.raises(KeyboardInterrupt):
            at_once(str, range(2))
    until = time.monotonic() + 30
    while set(os.listdir('/proc/self/task')) - before:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert at_once(str, range(2)) == ['0', '1']


def test_nothing_of_a_call_is_kept():
    class Thing:
        pass

    things = [Thing() for _ in range(4)]
    alive = [weakref.ref(thing) for thing in things]
    at_once(id, things)
    del things
    gc.collect()
    assert [thing() for thing in alive] == [None] * 4


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='the system does not fork')
def test_a_child_has_threads_of_its_own():
    code = """
        import os, threading, warnings
        from bags.concurrency import at_once
        warnings.simplefilter('always')  # Python 3.12 warns of a process with threads that forks.
        there = threading.Barrier(3, timeout=30)
        for _ in range(10):
            at_once(lambda _: there.wait(), range(3))
            child = os.fork()
            if not child:
                at_once(lambda _: there.wait(), range(3))
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            at_once(lambda _: there.wait(), range(3))
        print('done')
    """
    assert script(code) == 'done\n'


def test_memory_is_held_for_large_results_in_pieces_from_the_heap():
    assert hold(2 * MOST, 1000) is None
    assert hold(2 * MOST + 1, 1000).nbytes == 1000
    assert hold(HELD, MOST).nbytes == MOST
    assert hold(HELD, MOST + 1) is None
    assert hold(HELD + 1, 1000) is None
