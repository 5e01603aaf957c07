"""Local folders read through an object store, so that tests of local files run over HTTP unchanged.

A file that a test writes is uploaded before the library reads it; a file that the library writes is
downloaded after it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from bags.storage.object_store import RemoteStore

__all__ = ['SyncedStore']


class SyncedStore:
    """A remote store with local paths.

    Args:
        remote: The store.
        root: The URL that is put before local paths.
        known: By path, the local file as of its last upload or download.
    """

    is_remote = True
    can_list = True

    def __init__(self, remote: RemoteStore, root: str, known: dict[str, Any]) -> None:
        self.remote = remote
        self.root = root
        self.known = known

    def url(self, path: str) -> str:
        return f'{self.root}{os.path.abspath(path)}'

    def push(self, path: str) -> str:
        if os.path.isfile(path):
            if self.known.get(path) != sign(path):
                with open(path, 'rb') as file:
                    self.remote.replace(self.url(path), file.read())
                self.known[path] = sign(path)
        elif path in self.known:
            self.remote.remove(self.url(path))
            self.known.pop(path, None)
        return self.url(path)

    def pull(self, path: str) -> None:
        with open(f'{path}.pulled', 'wb') as file:
            file.write(self.remote.read(self.url(path), sys.maxsize))
        os.replace(f'{path}.pulled', path)
        self.known[path] = sign(path)

    def push_folder(self, folder: str, deep: bool) -> str:
        folder = folder or '.'
        if not os.path.isdir(folder):
            raise (NotADirectoryError if os.path.exists(folder) else FileNotFoundError)(
                2, 'no folder', folder
            )
        inside = [path for path in list(self.known) if path.startswith(f'{folder.rstrip("/")}/')]
        for path in {
            *inside,
            *(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names),
        }:
            self.push(path)
        return self.url(folder)

    def __getattr__(self, name):
        return getattr(self.remote, name)  # What is the same for all paths.

    # The store.

    def open(self, path, hints):
        return self.remote.open(self.push(path), hints)

    def create(self, path):
        return SyncedOutput(self, path, self.remote.create(self.push(path)))

    def resume(self, path, size):
        return SyncedOutput(self, path, self.remote.resume(self.push(path), size))

    def clone(self, path, target, size):
        self.remote.clone(self.push(path), self.push(target), size)
        self.pull(target)

    def read(self, path, *max_size):
        return self.remote.read(self.push(path), *max_size)

    def current_version(self, path):
        return self.remote.current_version(self.push(path))

    def replace(self, path, data, version=''):
        self.remote.replace(self.push(path), data, version)
        self.pull(path)

    def rename(self, path, target):
        self.remote.rename(self.push(path), self.push(target))
        os.replace(path, target)
        self.known[target] = sign(target)
        self.known.pop(path, None)

    def remove(self, path):
        self.remote.remove(self.push(path))
        if os.path.exists(path):
            os.unlink(path)
        self.known.pop(path, None)

    def exists(self, path):
        return self.remote.exists(self.push(path))

    def stat(self, path):
        return self.remote.stat(self.push(path))

    def walk(self, folder):
        return self.remote.walk(self.push_folder(folder, True))

    def names(self, folder):
        url = self.push_folder(folder, False)
        try:
            return self.remote.names(url)
        except FileNotFoundError:
            return []  # An empty file.

    def hold(self, folder):
        return self

    def make_folder(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.remote.make_folder(self.url(folder))

    def join(self, folder, name):
        return os.path.join(folder, name)

    def lock(self, folder):
        return self.remote.lock(folder)


class SyncedOutput:
    """An output whose file is downloaded when it is closed."""

    def __init__(self, store, path, output):
        self.__dict__.update(store=store, path=path, output=output)

    def __getattr__(self, name):
        return getattr(self.output, name)

    def __setattr__(self, name, value):
        setattr(self.output, name, value)

    def close(self):
        if not self.output.closed:
            self.output.close()
            self.store.pull(self.path)


def sign(path):
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino
