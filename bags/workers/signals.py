"""Delays Ctrl-C while workers start and end, so that no process is left behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delivers a SIGINT that arrives meanwhile at the end.

    Python runs signal handlers in the main thread, between any two instructions: in other threads there is
    nothing to delay.
    """
    before, came = signal.getsignal(signal.SIGINT), []
    try:
        if before is None:  # Not set by Python, which could not restore it.
            raise ValueError
        signal.signal(signal.SIGINT, lambda *_: came.append(True))
    except ValueError:  # Not the main thread.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def block_interrupts() -> Iterator[None]:
    """Blocks SIGINT in processes that are started meanwhile, until they call `reset_signals`."""
    if not hasattr(signal, 'pthread_sigmask'):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals() -> None:
    """Makes this worker process end at SIGTERM and ignore SIGINT, at which its parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, 'pthread_sigmask'):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
