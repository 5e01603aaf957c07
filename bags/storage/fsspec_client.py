"""Storages through an asynchronous fsspec file system: s3fs, gcsfs, HTTP, and any other one.

All requests of a call are coroutines on fsspec's loop, as `cat_ranges` would do it. What that lacks is here:
merging, tries after a failure, a look whether the object is still the same, and uploads in parts.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol, TypeVar

from bags.errors import MissingDependencyError
from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, Unsatisfiable, changed
from bags.storage.object_client import Client, Upload
from bags.storage.retry import RetryPolicy, persist_async

__all__ = ['Backend', 'FsspecClient', 'make_fsspec_client']

Result = TypeVar('Result')

PACKAGES = {
    's3': ('s3fs (or obstore)', 's3'),
    'gs': ('gcsfs (or obstore)', 'gcs'),
    'az': ('adlfs (or obstore)', 'all'),
    'http': ('aiohttp', 'all'),
    'https': ('aiohttp', 'all'),
}
"""What a scheme needs, and the extra that brings it."""
IN_FLIGHT = 64 << 20  # Bytes of an upload that are on their way: four parts, of large ones one.


class Backend(Protocol):
    """Single requests to one kind of storage. Errors are mapped; those that may pass are `Transient`."""

    async def get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        """Returns a range, or with no start the last `stop` bytes, and which object it is of."""
        ...

    async def head(self, path: str) -> Stat: ...

    async def put(self, path: str, data: bytes, create: bool) -> None: ...

    async def begin(self, path: str, create: bool) -> Any:
        """Starts an upload, and returns what it is known by."""
        ...

    async def part(self, token: Any, number: int, offset: int, data: bytes) -> Any: ...

    async def complete(
        self, token: Any, receipts: list[Any], offset: int, last: bytes, create: bool
    ) -> None: ...

    async def abort(self, token: Any) -> None: ...

    async def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]: ...

    async def remove(self, path: str) -> None: ...

    async def copy(self, path: str, target: str) -> None: ...

    def version_of(self, receipts: list[Any]) -> str | None:
        """Returns the version of an object of these parts; None if that does not follow from them."""
        ...

    versions: str
    ordered: bool
    """Whether parts must arrive one after the other."""


def make_fsspec_client(
    scheme: str, filesystem: Any, options: Mapping[str, Any], patience: RetryPolicy
) -> Client:
    """Returns the client for a scheme, or for a file system that was given.

    Raises:
        MissingDependencyError: The package for that scheme is not installed.
    """
    from bags.storage.obstore_options import for_fsspec

    if filesystem is None:
        filesystem = _make_filesystem(scheme, for_fsspec(scheme, options), patience)
    elif getattr(filesystem, 'async_impl', False):
        filesystem = _own(filesystem)
    if not getattr(filesystem, 'async_impl', False):
        from bags.storage.plain_client import PlainClient

        return PlainClient(filesystem, patience)
    kind = type(filesystem)
    names = {f'{base.__module__.partition(".")[0]}.{base.__name__}' for base in kind.__mro__}
    backend: Backend
    if 's3fs.S3FileSystem' in names:
        from bags.storage.fsspec_s3 import S3Backend

        backend = S3Backend(filesystem, patience)
    elif 'gcsfs.GCSFileSystem' in names:
        from bags.storage.fsspec_gcs import GcsBackend

        backend = GcsBackend(filesystem, patience)
    elif 'fsspec.HTTPFileSystem' in names:
        from bags.storage.fsspec_http import HttpBackend

        backend = HttpBackend(filesystem)
    else:
        from bags.storage.fsspec_other import OtherBackend

        backend = OtherBackend(filesystem)
    return FsspecClient(filesystem, backend, patience)


def _make_filesystem(scheme: str, options: dict[str, Any], patience: RetryPolicy) -> Any:
    import fsspec

    if scheme == 's3':
        config = {
            'connect_timeout': patience.connect_timeout,
            'read_timeout': patience.timeout,  # What one try may take is bounded here.
            'max_pool_connections': patience.concurrency,
            'retries': {'total_max_attempts': 1},
            **(options.pop('config_kwargs', None) or {}),
        }
        options['config_kwargs'] = config
    try:
        # A file system of our own: fsspec would share it with whoever asks for equal options.
        filesystem = fsspec.filesystem(scheme, skip_instance_cache=True, **options)
    except ImportError as exc:
        # fsspec puts words of its own around the error that names the package.
        missing = getattr(exc.__cause__, 'name', None) or exc.name or f'the fsspec package for {scheme}'
        raise MissingDependencyError(*PACKAGES.get(scheme, (missing, ''))) from exc
    if scheme == 's3':
        filesystem.retries = 1
    return filesystem


def _own(filesystem: Any) -> Any:
    """Returns a file system that can be used by this process, and not from a loop of the caller's."""
    import os

    if not filesystem.asynchronous and getattr(filesystem, '_pid', os.getpid()) == os.getpid():
        return filesystem
    options = {**filesystem.storage_options, 'asynchronous': False, 'skip_instance_cache': True, 'loop': None}
    return type(filesystem)(*filesystem.storage_args, **options)


class FsspecClient:
    """A storage through an asynchronous fsspec file system."""

    gap = 1 << 18  # A request costs nearly a millisecond of work.

    def __init__(self, filesystem: Any, backend: Backend, patience: RetryPolicy) -> None:
        self.filesystem = filesystem
        self.backend = backend
        self.patience = patience
        self.concurrency = patience.concurrency
        self.versions = backend.versions
        self._slots = asyncio.Semaphore(self.concurrency)

    def start(self, work: Callable[[], Awaitable[Result]]) -> Future[Result]:
        """Has work begin on fsspec's loop."""

        async def run() -> Result:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.filesystem.loop)

    def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Does work on fsspec's loop; interrupted, it is given up."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _ask(
        self, path: str, work: Callable[[], Awaitable[Result]], attempt: float | None = None
    ) -> Result:
        async with self._slots:
            return await persist_async(work, path, self.patience, attempt)

    # Reading.

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        async def work() -> tuple[Stat, bytes]:
            head, data = await self.backend.get(path, None, count, None)
            if len(data) != min(count, head.size):
                raise Transient(f'expected {min(count, head.size)} bytes, got {len(data)}')
            return head, data

        try:
            return self.run(lambda: self._ask(path, work))
        except Unsatisfiable:
            head = self.head(path)  # It is empty.
            first = max(0, head.size - count)
            return head, self.fetch(path, [first], [head.size], head)[0] if head.size else b''

    def fetch(self, path: str, starts: Sequence[int], stops: Sequence[int], head: Stat) -> list[bytes]:
        async def one(start: int, stop: int) -> bytes:
            async def work() -> bytes:
                got, data = await self.backend.get(path, start, stop, head)
                if got != head:
                    raise changed(path, str(head), str(got))
                if len(data) != stop - start:
                    raise Transient(f'expected {stop - start} bytes, got {len(data)}')
                return data

            return await self._ask(path, work)

        async def all_of_them() -> list[bytes]:
            tasks = [asyncio.ensure_future(one(*pair)) for pair in zip(starts, stops, strict=True)]
            try:
                return await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise

        try:
            return self.run(all_of_them)
        except (Precondition, Unsatisfiable) as exc:
            raise changed(path, str(head), str(exc)) from exc

    def head(self, path: str) -> Stat:
        return self.run(lambda: self._ask(path, lambda: self.backend.head(path)))

    def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        return self.run(lambda: self._ask(folder, lambda: self.backend.listing(folder, deep)))

    # Writing.

    def put(self, path: str, data: bytes, create: bool) -> None:
        tries = itertools.count()

        async def work() -> None:
            next(tries)
            await self.backend.put(path, data, create)

        try:
            self.run(lambda: self._ask(path, work, self.patience.timeout))
        except Precondition as exc:
            # Perhaps it is what was sent before, and only the answer did not arrive.
            if next(tries) < 2 or self.tail(path, len(data) + 1)[1] != data:
                raise FileExistsError(errno.EEXIST, 'is there already', path) from exc

    def upload(self, path: str, create: bool) -> Upload:
        return PartedUpload(self, path, create)

    def remove(self, path: str) -> None:
        try:
            self.run(lambda: self._ask(path, lambda: self.backend.remove(path)))
        except FileNotFoundError:
            pass  # What should not be there is not: another remove was first, or a try whose answer got lost.

    def copy(self, path: str, target: str) -> None:
        self.run(lambda: self._ask(path, lambda: self.backend.copy(path, target), self.patience.timeout))


class PartedUpload:
    """An upload whose parts are on their way while the next ones are made."""

    def __init__(self, client: FsspecClient, path: str, create: bool) -> None:
        self._client = client
        self._path = path
        self._create = create
        self._offset = 0
        self._sent: list[Future[Any]] = []
        self._token = self._do(lambda: client.backend.begin(path, create)).result()

    def _do(self, work: Callable[[], Awaitable[Any]]) -> Future[Any]:
        patience = self._client.patience
        return self._client.start(lambda: persist_async(work, self._path, patience, patience.timeout))

    def send(self, part: bytes) -> None:
        backend, token, number, offset = self._client.backend, self._token, len(self._sent), self._offset
        room = 1 if backend.ordered else max(1, min(4, IN_FLIGHT // len(part)))
        while len(waiting := [future for future in self._sent if not future.done()]) >= room:
            wait(waiting, return_when=FIRST_COMPLETED)
        for future in self._sent[-8:]:
            if future.done():
                future.result()
        self._sent.append(self._do(lambda: backend.part(token, number, offset, part)))
        self._offset += len(part)

    def complete(self, last: bytes) -> None:
        backend, token, offset = self._client.backend, self._token, self._offset
        if not backend.ordered and last:
            self.send(last)
        receipts = [future.result() for future in self._sent]
        tries = itertools.count()

        async def work() -> None:
            next(tries)
            await backend.complete(token, receipts, offset, last, self._create)

        try:
            self._do(work).result()
        except (Precondition, OSError) as exc:
            # Perhaps it was complete before, and only the answer did not arrive.
            if next(tries) > 1 and self._is_complete(receipts):
                return
            self.abort()
            if isinstance(exc, OSError):
                raise
            raise FileExistsError(errno.EEXIST, 'is there already', self._path) from exc

    def _is_complete(self, receipts: list[Any]) -> bool:
        """Whether the object is there, and of just these parts."""
        backend, path = self._client.backend, self._path
        try:
            return self._client.head(path).version == backend.version_of(receipts)
        except OSError:
            return False  # The error that led here tells more.

    def abort(self) -> None:
        for future in self._sent:
            future.cancel()
        try:
            self._do(lambda: self._client.backend.abort(self._token)).result()
        except OSError:
            pass  # What is left of it the storage forgets by rules of its own.
