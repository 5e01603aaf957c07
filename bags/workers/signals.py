"""Delays Ctrl-C while workers start and end, so that no processes are left running."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delays a SIGINT that arrives in the block to its end.

    Python runs signal handlers only in the main thread, between any two instructions. In other threads, this
    does nothing.
    """
    before, received = signal.getsignal(signal.SIGINT), []
    try:
        if before is None:  # The handler was not set by Python, which could not restore it.
            raise ValueError
        signal.signal(signal.SIGINT, lambda *_: received.append(True))
    except ValueError:  # Also raised outside of the main thread.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def block_interrupts() -> Iterator[None]:
    """Blocks SIGINT in processes that are started in the block, until they call `reset_signals`."""
    if not hasattr(signal, 'pthread_sigmask'):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals() -> None:
    """Makes this worker process end on SIGTERM, and ignore SIGINT, on which its parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, 'pthread_sigmask'):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
