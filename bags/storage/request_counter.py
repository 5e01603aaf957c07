"""Counts the requests to an object store, and the bytes received."""

from __future__ import annotations

import threading
from typing import NamedTuple


class RequestCounts(NamedTuple):
    """Numbers of requests to object stores."""

    requests: int = 0
    """Attempts, including those that failed."""
    received: int = 0
    """Bytes of objects that were received."""
    retries: int = 0
    """Attempts after the first."""

    def since(self, before: RequestCounts) -> RequestCounts:
        """Returns the numbers since an earlier time."""
        return RequestCounts(*(now - then for now, then in zip(self, before, strict=True)))


class RequestCounter:
    """Counts requests, in this process and before it was forked.

    Usable by threads and forked children, as it has no lock: each thread has its own numbers.
    """

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int, int]] = {}
        """Requests, bytes and retries, by thread."""
        self.connected: set[str] = set()
        """Servers that have responded to a request, in this process or before it was forked."""

    @property
    def counts(self) -> RequestCounts:
        """The sums of all threads."""
        counts = list(self._counts.values())  # A copy, as threads may add their first request meanwhile.
        return RequestCounts(*map(sum, zip(*counts, strict=True))) if counts else RequestCounts()

    def add(self, requests: int = 0, received: int = 0, retries: int = 0) -> None:
        """Adds requests, received bytes, and retries."""
        thread = threading.get_ident()
        before = self._counts.get(thread, (0, 0, 0))
        self._counts[thread] = before[0] + requests, before[1] + received, before[2] + retries
