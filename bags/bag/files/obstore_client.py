"""Storages through obstore: S3, GCS, Azure and HTTP, with little work a request.

Requests are made by threads for the length of a call. obstore waits outside the GIL, so eight of them make
1,024 requests for 30 KB from a server beside it in 50 ms, as quickly as its own `get_ranges` does, which can
neither tell whether the object has changed nor have more than ten requests on their way.
"""

from __future__ import annotations

import errno
import functools
import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bags.bag.files.faults import Precondition, Transient, Unsatisfiable, by_status, changed
from bags.bag.files.objects import PART, Client, Upload
from bags.bag.files.patience import Patience, persist
from bags.bag.files.protocols import Stat
from bags.bag.files.urls import split, unquoted
from bags.bag.threads import in_threads

__all__ = ['ObstoreClient']

Result = TypeVar('Result')

NEAR = 2e-3  # Seconds: a storage that answers within these needs few requests at a time,
FEW = 8  # namely these.
STATUS = re.compile(
    r'status code:? (\d{3})|status: (\d{3})|non-2xx status code: (\d{3})|\b(\d{3}) [A-Z][a-z]+ '
)
LATE = re.compile(r'timed? ?out', re.IGNORECASE)
NO_RANGE = re.compile('non-partial response|CONTENT_RANGE')  # Or the object is empty.
DENIED = re.compile(
    r'metadata endpoint|169\.254\.169\.254|metadata\.google\.internal|latest/api/token|credential',
    re.IGNORECASE,
)


class ObstoreClient:
    """A storage through obstore.

    Args:
        make: Makes obstore's store of a bucket (of a host, for HTTP).
        patience: How long to wait.
        uploader: Makes the client that sends objects of unknown size, in parts that grow, or None: then
            obstore does it.
        sends_all: Whether that one also sends the small ones, and removes and copies.
    """

    gap = 1 << 16
    versions = 'etag'

    def __init__(
        self,
        make: Callable[[str], Any],
        patience: Patience,
        uploader: Callable[[], Client | None],
        sends_all: bool = False,
    ) -> None:
        self.patience = patience
        self.concurrency = patience.concurrency
        self._make = make
        self._make_uploader = uploader
        self._sends_all = sends_all
        self._stores: dict[str, Any] = {}
        self._quickest = 1.0  # Seconds that a small request took at least.
        self._slots = threading.BoundedSemaphore(self.concurrency)

    def _at(self, path: str) -> tuple[Any, str]:
        """Returns the store of a path, and the path in it."""
        bucket, key = split(path)
        if path.startswith(('http://', 'https://')):
            bucket = f'{path.partition("://")[0]}://{bucket}'
        if bucket not in self._stores:
            try:
                self._stores[bucket] = self._make(bucket)
            except Exception as exc:
                raise _fault(path, exc) from exc
        return self._stores[bucket], key

    def _ask(self, path: str, work: Callable[[], Result]) -> Result:
        """Makes one request, with its errors mapped."""
        try:
            with self._slots:
                return work()
        except Exception as exc:
            fault = _fault(path, exc)
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
            begun = time.perf_counter()
            found = obstore.get(store, key, options={'range': {'suffix': count}})
            head, (start, stop) = _head(found.meta), found.range
            data = found.buffer().to_bytes()
            if len(data) != stop - start or stop != head.size:
                raise Transient(f'expected {stop - start} bytes, got {len(data)}')
            self._quickest = min(self._quickest, time.perf_counter() - begun)
            return head, data

        try:
            return self._persist(path, work)
        except (Unsatisfiable, NotImplementedError):
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
            return self._spread(one, starts, stops)
        except (Precondition, Unsatisfiable) as exc:
            raise changed(path, str(head), str(exc)) from exc
        except NotImplementedError as exc:
            raise OSError(errno.EOPNOTSUPP, 'the server answers no ranges', path) from exc

    def _spread(
        self, one: Callable[[int, int], bytes], starts: Sequence[int], stops: Sequence[int]
    ) -> list[bytes]:
        """Reads ranges in threads that each take the next one."""
        count = len(starts)
        results: list[Any] = [None] * count
        turns: Iterator[int] = iter(range(count))

        def work(_: int) -> None:
            try:
                for index in turns:
                    results[index] = one(starts[index], stops[index])
            except BaseException:
                for _ in turns:  # The others need not go on.
                    pass
                raise

        most = FEW if self._quickest < NEAR else self.concurrency
        in_threads(work, range(min(count, most)), most)
        return results

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
        store, key = self._at(path)
        tries = itertools.count()

        def work() -> None:
            next(tries)
            obstore.put(store, key, data, mode='create' if create else 'overwrite', use_multipart=False)

        try:
            self._persist(path, work)
        except Precondition as exc:
            # Perhaps it is what was sent before, and only the answer did not arrive.
            if next(tries) < 2 or self.tail(path, len(data) + 1)[1] != data:
                raise FileExistsError(17, 'is there already', path) from exc

    def _check_absent(self, path: str) -> None:
        try:
            self.head(path)
        except FileNotFoundError:
            return
        raise FileExistsError(17, 'is there already', path)

    def upload(self, path: str, create: bool) -> Upload:
        other = self._uploader
        return StreamedUpload(self, path, create) if other is None else other.upload(path, create)

    def stream(self, path: str, parts: Iterator[bytes], create: bool) -> None:
        """Sends an object whose size is not known yet."""
        import obstore

        store, key = self._at(path)
        if create:
            self._check_absent(path)
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
            pass

    def copy(self, path: str, target: str) -> None:
        import obstore

        if self._sender is not None:
            self._sender.copy(path, target)
            return
        store, key = self._at(path)
        self._persist(path, lambda: obstore.copy(store, key, self._at(target)[1]))


class StreamedUpload:
    """An upload by a thread that takes parts from a queue, all of one size: about 320 GB at most."""

    def __init__(self, client: ObstoreClient, path: str, create: bool) -> None:
        self._path = path
        parts: queue.Queue[bytes | BaseException | None] = queue.Queue(2)
        errors: list[BaseException] = []

        def taken() -> Iterator[bytes]:
            while (part := parts.get()) is not None:
                if isinstance(part, BaseException):
                    raise part
                yield part

        def work() -> None:
            try:
                client.stream(path, taken(), create)
            except BaseException as exc:
                errors.append(exc)
                while not isinstance(parts.get(), BaseException | None):
                    pass

        self._parts, self._errors = parts, errors
        self._thread = threading.Thread(target=work, name='bags-upload', daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        if self._errors:
            raise self._errors[0]
        self._parts.put(part)

    def complete(self, last: bytes) -> None:
        self.send(last)
        self._parts.put(None)
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    def abort(self) -> None:
        self._parts.put(InterruptedError('the upload was given up'))
        self._thread.join()


def _head(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta['size'], unquoted(meta['e_tag'] or meta['version']))


def _fault(path: str, exc: Exception) -> Exception:
    """Returns the error that one of obstore's stands for."""
    import obstore.exceptions as known

    if type(exc).__module__.startswith('bags.'):
        return exc
    text = str(exc).partition('Debug source')[0]
    if isinstance(exc, FileNotFoundError):
        return by_status(path, 404, text)
    if isinstance(exc, known.PermissionDeniedError | known.UnauthenticatedError):
        return by_status(path, 403, text)
    if isinstance(exc, known.PreconditionError | known.AlreadyExistsError | known.NotModifiedError):
        return Precondition(text)
    if isinstance(exc, known.NotSupportedError) or NO_RANGE.search(text):
        return NotImplementedError(text)
    if isinstance(exc, PermissionError | FileExistsError | TypeError | KeyboardInterrupt):
        return exc
    status = STATUS.search(str(exc))
    if DENIED.search(text):
        return PermissionError(
            13, f'no credentials (anon=True needs none): {" ".join(text.split())[:300]}', path
        )
    if status is not None:
        return by_status(path, int(next(filter(None, status.groups()))), text)
    return Transient(' '.join(text.split())[:300], bool(LATE.search(str(exc))))
