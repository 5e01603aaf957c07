"""Threads that live for the length of one call, and what threads share."""

import contextlib
import copy
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

from bags.concurrency import FifoCache, Shareable, cached_attribute, map_concurrently


def test_results_come_in_order():
    for max_threads in (0, 1, 2, 4, 100):
        assert map_concurrently(lambda number: number * number, range(9), max_threads=max_threads) == [
            number * number for number in range(9)
        ]
    assert map_concurrently(str, [], max_threads=4) == []
    assert map_concurrently(str, range(3), False) == map_concurrently(str, range(3), True) == ['0', '1', '2']


def test_items_are_done_at_the_same_time():
    barrier = threading.Barrier(4, timeout=30)
    map_concurrently(lambda _: barrier.wait(), range(4), max_threads=4)  # Times out unless each has a thread.


def test_no_more_threads_than_allowed_and_the_first_item_in_the_calling_thread():
    used = map_concurrently(lambda _: (time.sleep(0.001), threading.get_ident())[1], range(50), max_threads=3)
    assert used[0] == threading.get_ident()
    assert len(set(used)) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name == 'bags']


def threads_of_a_call(least):
    """Returns how many threads do the items of a call, of which so many are done at the same time."""
    barrier = threading.Barrier(least, timeout=30)
    used = map_concurrently(lambda _: (barrier.wait(), threading.get_ident())[1], range(8 * least))
    return len(set(used))


def test_a_call_beside_many_threads_of_another_starts_few():
    ended, begun = threading.Event(), threading.Barrier(66)

    def wait(_):
        begun.wait(30)
        ended.wait(30)

    other = threading.Thread(target=map_concurrently, args=(wait, range(65), True, 65))
    other.start()
    try:
        begun.wait(30)
        assert threads_of_a_call(least=2) <= 4
    finally:
        ended.set()
        other.join()


def test_other_threads_of_the_process_do_not_count():
    ended = threading.Event()
    others = [threading.Thread(target=ended.wait) for _ in range(70)]
    for thread in others:
        thread.start()
    try:
        assert threads_of_a_call(least=5) >= 5
    finally:
        ended.set()
        for thread in others:
            thread.join()


@pytest.mark.parametrize('failing', [0, 1, 3])
def test_an_error_of_any_thread_is_raised(failing):
    def work(number):
        if number == failing:
            raise ValueError(number)

    with pytest.raises(ValueError, match=str(failing)):
        map_concurrently(work, range(4), max_threads=4)


def test_an_index_error_of_the_work_is_raised():
    with pytest.raises(IndexError):
        map_concurrently([0, 1].__getitem__, range(4), max_threads=2)


def test_pending_items_are_not_begun_after_an_error():
    done = []

    def work(number):
        if number == 1:
            raise ValueError(number)
        time.sleep(0.01)
        done.append(number)

    with pytest.raises(ValueError):
        map_concurrently(work, range(1000), max_threads=2)
    assert len(done) < 100
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count


@pytest.mark.parametrize('allowed', [0, 1])
def test_where_no_thread_can_be_started_the_caller_does_it(monkeypatch, allowed):
    start, started = threading.Thread.start, []

    def refuse(thread):
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, 'start', refuse)
    found = map_concurrently(lambda number: (number, threading.get_ident()), range(9), max_threads=4)
    assert [number for number, _ in found] == list(range(9))
    assert len({thread for _, thread in found}) <= 1 + allowed


def test_calls_of_several_threads_that_nest():
    def rows(row):
        return map_concurrently(lambda other: row * other, range(4), max_threads=4)

    found = []

    def call():
        found.extend(map_concurrently(rows, range(5), max_threads=5) for _ in range(20))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert found == [[[row * other for other in range(4)] for row in range(5)]] * 120


def script(code):
    run = [sys.executable, '-c', textwrap.dedent(code)]
    done = subprocess.run(run, check=False, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_work_as_the_interpreter_ends():
    code = """
        import sys
        from bags.concurrency import map_concurrently

        class Last:
            def __del__(self):
                assert sys.is_finalizing()
                print(map_concurrently(str, range(3), max_threads=3))

        sys.last_value = Last()  # Deleted before any module, when finalization has begun.
    """
    assert script(code) == "['0', '1', '2']\n"


def test_work_in_an_exit_handler():
    code = """
        import atexit
        from bags.concurrency import map_concurrently
        atexit.register(lambda: print(map_concurrently(str, range(3), max_threads=3)))
    """
    assert script(code) == "['0', '1', '2']\n"


def test_ctrl_c_as_a_thread_is_started(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    def work(number):
        go.wait(30)
        done.append(number)

    monkeypatch.setattr(threading.Thread, 'start', interrupted)
    done, go = [], threading.Event()
    with pytest.raises(KeyboardInterrupt):
        map_concurrently(work, range(1000), max_threads=2)
    go.set()
    monkeypatch.undo()
    until = time.monotonic() + 30
    while any(thread.name == 'bags' for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert done == [1]
    assert map_concurrently(str, range(2), max_threads=2) == ['0', '1']


def test_nothing_of_a_call_is_kept():
    class Thing:
        pass

    things = [Thing() for _ in range(4)]
    alive = [weakref.ref(thing) for thing in things]
    map_concurrently(id, things, max_threads=4)
    del things
    gc.collect()
    assert [thing() for thing in alive] == [None] * 4


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='the system does not fork')
def test_a_forked_child_starts_threads_of_its_own():
    code = """
        import os, threading, warnings
        from bags.concurrency import map_concurrently
        warnings.simplefilter('ignore', DeprecationWarning)  # Of forks beside threads that are about to end.
        there = threading.Barrier(3, timeout=30)
        for _ in range(10):
            map_concurrently(lambda _: there.wait(), range(3), max_threads=3)
            child = os.fork()
            if not child:
                map_concurrently(lambda _: there.wait(), range(3), max_threads=3)
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            map_concurrently(lambda _: there.wait(), range(3), max_threads=3)
        print('done')
    """
    assert script(code).splitlines()[-1] == 'done'


def test_a_fifo_cache_drops_the_oldest():
    made = []
    cache = FifoCache(lambda key: made.append(key) or str(key), 2)
    assert [cache[1], cache[2], cache[1], cache[3], cache[1]] == ['1', '2', '1', '3', '1']
    assert made == [1, 2, 3, 1]
    assert list(cache) == [3, 1]


def test_a_large_fifo_cache_keeps_almost_as_many_as_it_may():
    cache = FifoCache(str, 5000)
    counts = [len(cache) for key in range(30_000) if cache[key]]
    assert max(counts) == 5000
    assert min(counts[5000:]) > 4990
    assert list(cache) == list(range(30_000 - len(cache), 30_000))


@contextlib.contextmanager
def collecting(work, number):
    """Collects garbage whenever an object is made, and once does work during it, as another thread may."""
    threshold, kept = gc.get_threshold(), [{} for _ in range(200)]  # Freed dicts would be used again.

    def callback(phase, info):
        kept.append(info)
        if len(kept) == 200 + 2 * number:
            work()

    gc.callbacks.append(callback)
    try:
        gc.set_threshold(1)
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)


class Lengths(Shareable):
    def __init__(self):
        self.made = []

    @cached_attribute
    def rows(self):
        self.made.append('rows')
        return 3

    @cached_attribute
    def items(self):
        self.made.append('items')
        return 30


class OwnLengths(Lengths):
    """With the `__dict__` that objects have otherwise, which is made when it is first used."""

    def __new__(cls):
        return object.__new__(cls)


@pytest.mark.parametrize('made', [Lengths, OwnLengths])
def test_attributes_that_are_cached_while_garbage_is_collected_stay(made):
    for number in range(20):
        lengths = made()
        with collecting(lambda lengths=lengths: lengths.rows, number):
            assert (lengths.items, lengths.items, lengths.rows) == (30, 30, 3)
        assert sorted(lengths.made) == ['items', 'rows']


def test_objects_are_copied_while_garbage_is_collected():
    for number in range(40):
        lengths = Lengths()
        with collecting(lambda lengths=lengths: vars(lengths).update(x=1), number):
            other = copy.copy(lengths)
            lengths.y = 2
        assert other.made is lengths.made
        assert {'made': [], 'y': 2}.items() <= vars(lengths).items() <= {'made': [], 'x': 1, 'y': 2}.items()
