"""Work that is divided over threads for the length of a call."""

import _thread
import threading

import pytest

from bags.bag.heap import HELD, MOST, hold
from bags.bag.threads import at_once


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
    assert at_once(lambda number: (number, _thread.get_ident()), range(3)) == [
        (number, _thread.get_ident()) for number in range(3)
    ]


def test_memory_is_held_for_large_results_in_pieces_from_the_heap():
    assert hold(2 * MOST, 1000) is None
    assert hold(2 * MOST + 1, 1000).nbytes == 1000
    assert hold(HELD, MOST).nbytes == MOST
    assert hold(HELD, MOST + 1) is None
    assert hold(HELD + 1, 1000) is None
