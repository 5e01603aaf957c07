"""Storages through an fsspec file system that is not asynchronous: `memory://` and all others of that kind.

One request at a time: whether such a file system may be used by several threads is not said.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, changed
from bags.storage.fsspec_other import fault_of, head_of, names_of
from bags.storage.retry import RetryPolicy, persist

__all__ = ['PlainClient']

Result = TypeVar('Result')


class PlainClient:
    """A storage through a file system that blocks."""

    gap = 1 << 16
    versions = 'info'
    concurrency = 1

    def __init__(self, filesystem: Any, patience: RetryPolicy) -> None:
        self.filesystem = filesystem
        self.patience = patience
        self._turn = threading.RLock()

    def _ask(self, path: str, work: Callable[[str], Result]) -> Result:
        def once() -> Result:
            try:
                with self._turn:
                    return work(self.filesystem._strip_protocol(path))
            except Transient:
                raise
            except Exception as exc:
                if type(exc).__module__.startswith('bags.'):
                    raise
                raise fault_of(path, exc) from exc

        return persist(once, path, self.patience)

    def _info(self, inner: str) -> Stat:
        self.filesystem.invalidate_cache()
        info = self.filesystem.info(inner)
        if info['type'] == 'directory':
            raise FileNotFoundError(inner)
        return head_of(info)

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        def work(inner: str) -> tuple[Stat, bytes]:
            head = self._info(inner)
            return head, self._read(inner, [max(0, head.size - count)], [head.size])[0]

        return self._ask(path, work)

    def _read(self, inner: str, starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
        found = []
        with self.filesystem.open(inner, 'rb') as file:
            for start, stop in zip(starts, stops, strict=True):
                file.seek(start)
                data = bytes(file.read(stop - start))
                if len(data) != stop - start:
                    raise Transient(f'expected {stop - start} bytes, got {len(data)}')
                found.append(data)
        return found

    def fetch(self, path: str, starts: Sequence[int], stops: Sequence[int], head: Stat) -> list[bytes]:
        def work(inner: str) -> list[bytes]:
            got = self._info(inner)
            if got != head:
                raise changed(path, str(head), str(got))
            return self._read(inner, starts, stops)

        return self._ask(path, work)

    def head(self, path: str) -> Stat:
        return self._ask(path, self._info)

    def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        def work(inner: str) -> dict[str, Stat | None]:
            self.filesystem.invalidate_cache()
            if deep:
                return names_of(inner, self.filesystem.find(inner, detail=True).values())
            return names_of(inner, self.filesystem.ls(inner, detail=True))

        try:
            return self._ask(folder, work)
        except FileNotFoundError:
            return {}  # A store says what that means: where there are no folders, there is no empty one.

    def put(self, path: str, data: bytes, create: bool) -> None:
        def work(inner: str) -> None:
            if create and self.filesystem.exists(inner):
                raise FileExistsError(errno.EEXIST, 'is there already', path)
            self.filesystem.pipe_file(self._with_folder(inner), data)

        try:
            self._ask(path, work)
        except Precondition as exc:
            raise FileExistsError(errno.EEXIST, 'is there already', path) from exc

    def upload(self, path: str, create: bool) -> PlainUpload:
        return PlainUpload(self, path, create)

    def remove(self, path: str) -> None:
        try:
            self._ask(path, self.filesystem.rm_file)
        except FileNotFoundError:
            pass  # What should not be there is not: another remove was first, or a try whose answer got lost.

    def copy(self, path: str, target: str) -> None:
        def work(inner: str) -> None:
            place = self._with_folder(self.filesystem._strip_protocol(target))
            self.filesystem.cp_file(inner, place)

        self._ask(path, work)

    def _with_folder(self, inner: str) -> str:
        """Makes the folder that a file will be in; returns the file."""
        parent = self.filesystem._parent(inner)
        if parent:
            self.filesystem.makedirs(parent, exist_ok=True)
        return inner


class PlainUpload:
    """A file that appears as a whole: written beside, then renamed."""

    def __init__(self, client: PlainClient, path: str, create: bool) -> None:
        self._client = client
        self._path = path
        self._create = create
        folder, _, name = path.rpartition('/')
        self._beside = f'{folder}/.{name}.{id(self):x}.new'
        client.put(self._beside, b'', False)
        self._file = client._ask(self._beside, lambda inner: client.filesystem.open(inner, 'wb'))

    def send(self, part: bytes) -> None:
        self._file.write(part)

    def complete(self, last: bytes) -> None:
        self._file.write(last)
        self._file.close()
        client = self._client
        if self._create:
            try:
                client.head(self._path)
            except FileNotFoundError:
                pass  # As it should be.
            else:
                client.remove(self._beside)
                raise FileExistsError(errno.EEXIST, 'is there already', self._path)
        client._ask(
            self._beside,
            lambda inner: client.filesystem.mv(inner, client.filesystem._strip_protocol(self._path)),
        )

    def abort(self) -> None:
        self._file.close()
        self._client.remove(self._beside)
