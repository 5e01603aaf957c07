"""Ctrl-C held back for as long as workers are started or ended, so that none of them is lost on the way."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ['blocked', 'default_signals', 'held_back']


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delivers a SIGINT that comes meanwhile at the end.

    Python runs handlers of signals in the main thread, between any two instructions: in all others there is
    nothing to hold back.
    """
    before, came = signal.getsignal(signal.SIGINT), []
    try:
        if before is None:  # Not set by Python, which could not put it back.
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
def blocked() -> Iterator[None]:
    """Has processes that are started meanwhile not see SIGINT until they call `default_signals`."""
    if not hasattr(signal, 'pthread_sigmask'):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def default_signals() -> None:
    """Has this process, a worker, end at SIGTERM, and take no notice of SIGINT: its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, 'pthread_sigmask'):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
