"""Counts the requests to an object store, and the bytes received."""

from __future__ import annotations

from collections import defaultdict
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

    Usable by threads and forked children, as it has no lock: each thread changes only its own numbers, those
    of its `threading.get_ident()`.
    """

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        """Attempts, by thread."""
        self.received: defaultdict[int, int] = defaultdict(int)
        """Bytes, by thread."""
        self.retries: defaultdict[int, int] = defaultdict(int)
        """Attempts after the first, by thread."""
        self.connected: set[str] = set()
        """Servers that have responded to a request, in this process or before it was forked."""

    @property
    def counts(self) -> RequestCounts:
        """The sums of all threads."""
        # Copies, as threads may add their first request meanwhile.
        by_thread = (list(numbers.values()) for numbers in (self.requests, self.received, self.retries))
        return RequestCounts(*map(sum, by_thread))
