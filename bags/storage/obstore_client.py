"""Storages through obstore: S3, GCS, Azure and HTTP, with little work a request.

Requests are made by threads for the length of a call, each for one range, on the condition that the object
is still the same.
"""

from __future__ import annotations

import errno
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bags.concurrency import map_in_threads
from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, Unsatisfiable, Unsupported, changed
from bags.storage.object_client import PART, Client, Upload
from bags.storage.obstore_errors import fault_of
from bags.storage.obstore_options import Use
from bags.storage.obstore_upload import StreamedUpload
from bags.storage.retry import RetryPolicy, persist
from bags.storage.urls import split, unquoted

__all__ = ['ObstoreClient']

Result = TypeVar('Result')


class ObstoreClient:
    """A storage through obstore.

    Args:
        make: Returns, for each use, what makes obstore's store of a bucket (of a host, for HTTP).
        patience: How long to wait.
        uploader: Makes the client that sends objects of unknown size, in parts that grow, or None: then
            obstore does it.
        sends_all: Whether that one also sends the small ones, and removes and copies.
    """

    gap = 1 << 16
    versions = 'etag'

    def __init__(
        self,
        make: Callable[[Use], Callable[[str], Any] | None],
        patience: RetryPolicy,
        uploader: Callable[[], Client | None],
        sends_all: bool = False,
    ) -> None:
        self.patience = patience
        self.concurrency = patience.concurrency
        self._make = make
        self._make_uploader = uploader
        self._sends_all = sends_all
        self._stores: dict[tuple[str, Use], Any] = {}
        self._slots = threading.Semaphore(self.concurrency)

    def _at(self, path: str, use: Use = 'ask') -> tuple[Any, str]:
        """Returns the store of a path, and the path in it."""
        bucket, key = split(path)
        if path.startswith(('http://', 'https://')):
            bucket = f'{path.partition("://")[0]}://{bucket}'
        if (bucket, use) not in self._stores:
            try:
                make = self._make(use)
                assert make is not None
                self._stores[bucket, use] = make(bucket)
            except Exception as exc:
                raise fault_of(path, exc) from exc
        return self._stores[bucket, use], key

    def _ask(self, path: str, work: Callable[[], Result]) -> Result:
        """Makes one request, with its errors mapped."""
        try:
            with self._slots:
                return work()
        except Exception as exc:
            fault = fault_of(path, exc)
            if fault is exc:
                raise
            raise fault from exc

    def _persist(self, path: str, work: Callable[[], Result]) -> Result:
        return persist(lambda: self._ask(path, work), path, self.patience)

    # Reading.

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        import obstore

        store, key = self._at(path)

        def work() -> tuple[Stat, bytes]:
            found = obstore.get(store, key, options={'range': {'suffix': count}})
            head, (start, stop) = _head(found.meta), found.range
            data = found.buffer().to_bytes()
            if len(data) != stop - start or stop != head.size:
                raise Transient(f'expected {stop - start} bytes, got {len(data)}')
            return head, data

        try:
            return self._persist(path, work)
        except (Unsatisfiable, Unsupported):
            head = self.head(path)  # It is empty, or the storage knows no ranges from the end.
        first = max(0, head.size - count)
        return head, self.fetch(path, [first], [head.size], head)[0] if head.size else b''

    def fetch(self, path: str, starts: Sequence[int], stops: Sequence[int], head: Stat) -> list[bytes]:
        import obstore

        store, key = self._at(path)
        weak = not head.version or head.version.startswith('W/')
        condition: Any = {} if weak else {'if_match': f'"{head.version}"'}

        def one(start: int, stop: int) -> bytes:
            def work() -> bytes:
                found = obstore.get(
                    store,
                    key,
                    options={'range': (start, stop), **condition},  # type: ignore[arg-type]
                )
                got = _head(found.meta)
                if got != head:
                    raise changed(path, str(head), str(got))
                data = found.buffer().to_bytes()
                if len(data) != stop - start:
                    raise Transient(f'expected {stop - start} bytes, got {len(data)}')
                return data

            return self._persist(path, work)

        try:
            return map_in_threads(
                lambda index: one(starts[index], stops[index]), range(len(starts)), self.concurrency
            )
        except (Precondition, Unsatisfiable) as exc:
            raise changed(path, str(head), str(exc)) from exc
        except Unsupported as exc:
            raise Unsupported(path, 'the server answers no ranges') from exc

    def head(self, path: str) -> Stat:
        import obstore

        store, key = self._at(path)
        return self._persist(path, lambda: _head(obstore.head(store, key)))

    def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        import obstore

        store, key = self._at(folder)
        first = len(key) + 1 if key else 0

        def work() -> dict[str, Stat | None]:
            if deep:
                found = itertools.chain.from_iterable(obstore.list(store, key or None))
                return {item['path'][first:]: _head(item) for item in found}
            level = obstore.list_with_delimiter(store, key or None)
            names: dict[str, Stat | None] = dict.fromkeys(path[first:] for path in level['common_prefixes'])
            return names | {item['path'][first:]: _head(item) for item in level['objects']}

        return self._persist(folder, work)

    # Writing.

    @functools.cached_property
    def _uploader(self) -> Client | None:
        return self._make_uploader()

    @property
    def _sender(self) -> Client | None:
        return self._uploader if self._sends_all else None

    def put(self, path: str, data: bytes, create: bool) -> None:
        import obstore

        other = self._sender
        if other is not None:
            other.put(path, data, create)
            return
        store, key = self._at(path, 'send')
        tries = itertools.count()

        def work() -> None:
            next(tries)
            obstore.put(store, key, data, mode='create' if create else 'overwrite', use_multipart=False)

        try:
            self._persist(path, work)
        except Precondition as exc:
            # Perhaps it is what was sent before, and only the answer did not arrive.
            if next(tries) < 2 or self.tail(path, len(data) + 1)[1] != data:
                raise FileExistsError(errno.EEXIST, 'is there already', path) from exc

    def _check_absent(self, path: str) -> None:
        try:
            self.head(path)
        except FileNotFoundError:
            return
        raise FileExistsError(errno.EEXIST, 'is there already', path)

    def upload(self, path: str, create: bool) -> Upload:
        other = self._uploader
        if other is not None:
            return other.upload(path, create)
        return StreamedUpload(lambda parts: self._stream(path, parts, create))

    def _stream(self, path: str, parts: Iterator[bytes], create: bool) -> None:
        """Sends an object whose size is not known yet."""
        import obstore

        if create:
            self._check_absent(path)
        store, key = self._at(path, 'stream')
        self._ask(path, lambda: obstore.put(store, key, parts, chunk_size=4 * PART, max_concurrency=4))

    def remove(self, path: str) -> None:
        import obstore

        if self._sender is not None:
            self._sender.remove(path)
            return
        store, key = self._at(path)
        try:
            self._persist(path, lambda: obstore.delete(store, key))
        except FileNotFoundError:
            pass  # What should not be there is not: another remove was first, or a try whose answer got lost.

    def copy(self, path: str, target: str) -> None:
        import obstore

        if self._sender is not None:
            self._sender.copy(path, target)
            return
        store, key = self._at(path, 'send')
        self._persist(path, lambda: obstore.copy(store, key, self._at(target)[1]))


def _head(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta['size'], unquoted(meta['e_tag'] or meta['version']))
