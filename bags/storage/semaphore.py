"""How many requests are on their way at a time."""

from __future__ import annotations

import threading

__all__ = ['Slots']


class Slots:
    """A semaphore of which several units are taken at once or not at all.

    So two that want several cannot each hold what the other waits for.

    Args:
        count: The units there are.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._freed = threading.Condition(threading.Lock())

    def take(self, count: int = 1) -> None:
        """Waits until so many units are free, and takes them."""
        with self._freed:
            while self._free < count:
                self._freed.wait()
            self._free -= count

    def give(self, count: int = 1) -> None:
        """Gives units back."""
        with self._freed:
            self._free += count
            self._freed.notify_all()
