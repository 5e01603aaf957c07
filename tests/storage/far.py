"""A local store that reports itself as remote, and records the calls it receives."""

from __future__ import annotations

import os
import threading
import time

from bags.storage import Hints
from bags.storage.cache.store import CachedStore
from bags.storage.local import LocalStore


class FarFile:
    """A file that records its reads, with an optional delay."""

    def __init__(self, store, path):
        self.file = LocalStore().open(path, Hints(mapped=False))
        self.store, self.path, self.size = store, path, self.file.size
        self.version, self.buffer, self.is_remote = store.stat(path).version, None, True

    cached_from = 0

    def expect(self, starts, stops):
        pass

    def read(self, start, stop):
        self.store.asked.append((self.path, start, stop))
        time.sleep(self.store.delay)
        if start >= self.store.end:
            threading.Event().wait()
        if self.store.fails:
            raise OSError(5, 'the network is gone', self.path)
        return self.file.read(start, stop)

    fetch = read

    def read_many(self, starts, stops):
        return [bytes(self.read(a, b)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


class Far(LocalStore):
    """A local store that reports itself as remote; a read that starts at `end` or later never returns."""

    is_remote = True

    def __init__(self, delay=0.0, end=float('inf')):
        self.delay, self.end, self.fails = delay, end, False
        self.asked, self.opened = [], []

    def open(self, path, hints):
        self.opened.append(path)
        return FarFile(self, path)


def cached(far, tmp_path, limit=None):
    return CachedStore(far, os.fspath(tmp_path / 'cache'), limit)
