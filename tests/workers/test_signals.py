"""Ctrl-C delayed while workers start and end."""

import signal
import threading

import pytest

from bags.workers.signals import block_interrupts, delay_interrupts


def test_a_signal_comes_at_the_end():
    done = []

    def work():
        with delay_interrupts():
            with delay_interrupts(), block_interrupts():
                signal.raise_signal(signal.SIGINT)
                done.append(1)
            done.append(2)
        done.append(3)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), delay_interrupts(), block_interrupts():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
def test_other_threads_hold_nothing_back():
    found = []

    def work():
        with delay_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
