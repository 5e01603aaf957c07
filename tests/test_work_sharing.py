"""Threads that help each other once they have nothing left to do."""

import gc
import threading
import time
import weakref

import pytest

import bags.work_sharing as crew_module
from bags.work_sharing import Crew, each

SECONDS = 30  # That no test takes, unless threads wait for each other for ever.


def members(count, *works):
    """Runs one function in each of several threads of a crew; returns what they returned or raised."""
    crew, found = Crew(count), {}

    def run(place, work):
        crew.join()
        try:
            found[place] = work()
        except Exception as exc:
            found[place] = exc
        crew.help()

    threads = [
        threading.Thread(target=run, args=(place, work), daemon=True) for place, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return [found[place] for place in range(len(works))]


def test_alone_it_is_a_map():
    assert each(str, []) == []
    assert each(str, range(5)) == ['0', '1', '2', '3', '4']
    assert members(1, lambda: each(str, range(5))) == [['0', '1', '2', '3', '4']]


def test_who_is_idle_helps():
    both = threading.Barrier(2, timeout=SECONDS)

    def work(number):
        both.wait()  # Two threads have to be here at a time.
        return number * number, threading.get_ident()

    found, nothing = members(2, lambda: each(work, range(20)), lambda: None)
    assert [square for square, _ in found] == [number * number for number in range(20)]
    assert len({thread for _, thread in found}) == 2
    assert nothing is None


def test_each_gets_the_results_of_its_own_work():
    def many(name):
        return [each(lambda number: (name, number), range(50)) for _ in range(50)]

    found = members(3, lambda: many('a'), lambda: many('b'), lambda: None)
    assert found[0] == [[('a', number) for number in range(50)]] * 50
    assert found[1] == [[('b', number) for number in range(50)]] * 50


def test_work_may_be_divided_again():
    def rows(number):
        return each(lambda other: number * other, range(4))

    found, _ = members(2, lambda: each(rows, range(30)), lambda: None)
    assert found == [[number * other for other in range(4)] for number in range(30)]


@pytest.mark.parametrize('kind', [ValueError, IndexError, KeyError])
def test_an_error_is_raised_where_the_work_was_given(kind):
    def fail(number):
        if number == 7:
            raise kind('seven')
        return number

    def work():
        with pytest.raises(kind, match='seven'):
            each(fail, range(20))
        return each(str, range(3))  # The crew goes on.

    assert members(3, work, lambda: None, lambda: None) == [['0', '1', '2'], None, None]


def test_an_error_of_a_helper_is_raised_where_the_work_was_given():
    both = threading.Barrier(2, timeout=SECONDS)
    threads = []

    def work():
        own = threading.get_ident()

        def fail(number):
            threads.append(threading.get_ident())
            both.wait()
            if threading.get_ident() != own:
                raise ValueError('of the helper')
            return number

        with pytest.raises(ValueError, match='of the helper'):
            each(fail, range(2))

    assert members(2, work, lambda: None) == [None, None]
    assert len(set(threads)) == 2


def test_nothing_is_kept_of_work_that_is_done():
    class Thing:
        pass

    kept, helped = [], threading.Event()

    def make(fails):
        thing = Thing()
        kept.append(weakref.ref(thing))
        if fails:
            raise ValueError
        return thing

    def work():
        own, both = threading.get_ident(), threading.Barrier(2, timeout=SECONDS)

        def wait(_):
            both.wait()
            helped.set() if threading.get_ident() != own else None
            return make(False)

        each(wait, range(2))
        with pytest.raises(ValueError):
            each(make, [True])
        until = time.monotonic() + SECONDS
        while any(thing() for thing in kept) and time.monotonic() < until:
            time.sleep(0.01)
        return [thing() for thing in kept]  # While the helper waits for more to do.

    gc.disable()
    try:
        assert members(2, work, lambda: None)[0] == [None] * 3
    finally:
        gc.enable()
    assert helped.is_set()


def test_a_crew_that_the_garbage_collector_closes_as_a_thread_begins_to_wait(monkeypatch):
    monkeypatch.setattr(crew_module, 'LOOKING', 0.05)
    crew = Crew(2)

    class Jobs(list):
        def __iter__(self):
            crew.close()  # After the look whether anybody is busy, and before the wait.
            return super().__iter__()

    crew._jobs = Jobs()
    thread = threading.Thread(target=crew.help, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_closing_sends_helpers_home():
    crew, gone = Crew(2), threading.Event()

    def run():
        crew.join()
        crew.help()
        gone.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert not gone.wait(0.05)  # The other one is not done.
    crew.close()
    assert gone.wait(SECONDS)
    thread.join(SECONDS)
