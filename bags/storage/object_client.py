"""What the clients of object stores have in common: retries, concurrent ranges, uploads while writing."""

from __future__ import annotations

import abc
import contextlib
import errno
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from bags.concurrency import map_concurrently
from bags.storage.base import Stat
from bags.storage.errors import PreconditionError, RangeError, TransientError, UnsupportedError, changed_error
from bags.storage.retry import RetryPolicy, with_retries

__all__ = ['PART_SIZE', 'ObjectClient', 'StreamedUpload', 'part_size', 'web_version']

MiB = 1 << 20
PART_SIZE = 8 * MiB
EQUAL_PARTS = 1000  # Parts of an upload before they grow,
PARTS_PER_STEP = 60  # and how many then have the same size.


def part_size(number: int) -> int:
    """Returns the bytes of a part of an upload, counted from 0.

    The first thousand have 8 MiB; then they grow, so that the 10,000 parts that S3 accepts hold 5 TB.
    """
    return PART_SIZE * (1 + max(0, number - EQUAL_PARTS) // PARTS_PER_STEP)


def web_version(etag: str | None, modified: datetime | None) -> str:
    """Returns the version of a file on a web server: its ETag, else its Last-Modified, if it has either."""
    seconds = 0.0 if modified is None else modified.timestamp()
    return (etag or '').strip('"') or (str(seconds) if seconds else '')


class ObjectClient(abc.ABC):
    """An object store, for one process. Safe to use from any thread. Paths are URLs.

    Methods that subclasses implement make one attempt. All others retry after transient errors, and raise
    FileNotFoundError, PermissionError, TimeoutError and OSError, each with the path.
    """

    merge_gap: int
    """Bytes between two ranges that are cheaper to read than to skip with another request."""
    version_kind: str
    """Versions of one object are comparable between clients of the same kind."""
    max_object_size: int
    """Maximum bytes of an upload of unknown size."""
    is_web: bool = False
    """Whether it reads from a web server: with GET and Range, and nothing else."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.semaphore = threading.Semaphore(policy.concurrency)

    # Single attempts.

    @abc.abstractmethod
    def map_error(self, path: str, exc: Exception) -> Exception:
        """Returns this library's error for one of the client's."""

    @abc.abstractmethod
    def get_range(self, path: str, start: int | None, stop: int, version: str) -> tuple[Stat, bytes]:
        """Returns size and version of an object and a byte range: without `start`, the last `stop` bytes.

        Raises:
            PreconditionError: The object does not have this version (if it is known, and can be asked for).
        """

    @abc.abstractmethod
    def get_stat(self, path: str) -> Stat:
        """Returns size and version of an object; of a web server by a GET whose body is not read."""

    @abc.abstractmethod
    def list_names(self, folder: str) -> list[str]:
        """Returns the names in a folder. Empty if there is no such folder."""

    @abc.abstractmethod
    def list_files(self, folder: str) -> dict[str, Stat]:
        """Returns all files below a folder, by their paths in it. Empty if there is no such folder."""

    @abc.abstractmethod
    def put_object(self, path: str, data: bytes, create: bool) -> None:
        """Sends a whole object.

        Raises:
            PreconditionError: With `create`: it exists.
        """

    @abc.abstractmethod
    def put_stream(self, path: str, parts: Iterable[bytes], create: bool) -> None:
        """Sends an object of unknown size; what was sent is removed if `parts` raises an error."""

    @abc.abstractmethod
    def delete_object(self, path: str) -> None: ...

    @abc.abstractmethod
    def copy_object(self, path: str, target: str) -> None: ...

    # Reading.

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        """Returns size and version of an object and its last `count` bytes, or fewer, with one request."""
        try:
            return with_retries(self.policy, self.map_error, self._get, path, None, count, None)
        except (RangeError, UnsupportedError):
            # The object is empty, or the store knows no ranges from the end.
            head = self._web_head(path) if self.is_web else self.head(path)
        first = max(0, head.size - count)
        return head, self.fetch(path, [first], [head.size], head)[0] if head.size else b''

    def _web_head(self, path: str) -> Stat:
        try:
            return with_retries(self.policy, self.map_error, self._get, path, 0, 1, None)[0]
        except RangeError:
            return Stat(0)
        except UnsupportedError:
            # Some servers send an empty file as a whole.
            head = with_retries(self.policy, self.map_error, self.get_stat, path)
            if head.size:
                raise
            return head

    def fetch(self, path: str, starts: Sequence[int], stops: Sequence[int], head: Stat) -> list[bytes]:
        """Returns non-empty byte ranges of an object, with concurrent requests.

        Raises:
            CorruptError: The object is not the one of `head`.
        """

        def get(number: int) -> bytes:
            start, stop = starts[number], stops[number]
            return with_retries(self.policy, self.map_error, self._get, path, start, stop, head)[1]

        try:
            return map_concurrently(get, range(len(starts)), max_threads=self.policy.concurrency)
        except (PreconditionError, RangeError) as exc:
            raise changed_error(path, head, exc) from exc

    def _get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        found, data = self.get_range(path, start, stop, '' if head is None else head.version)
        if head is not None and found != head:
            raise changed_error(path, head, found)
        expected = min(stop, found.size) if start is None else stop - start
        if len(data) != expected:
            raise TransientError(f'expected {expected} bytes, got {len(data)}')
        return found, data

    def head(self, path: str) -> Stat:
        """Returns size and version of an object."""
        if self.is_web:
            return self.tail(path, 1)[0]
        return with_retries(self.policy, self.map_error, self.get_stat, path)

    # Writing.

    def put(self, path: str, data: bytes, create: bool) -> None:
        """Creates or replaces an object.

        Raises:
            FileExistsError: With `create`: it exists.
        """
        attempts = 0

        def send(path: str) -> None:
            nonlocal attempts
            attempts += 1
            self.put_object(path, data, create)

        try:
            with_retries(self.policy, self.map_error, send, path)
        except PreconditionError as exc:
            # An earlier attempt may have created the object, its response lost.
            if attempts < 2 or self.tail(path, len(data) + 1)[1] != data:
                raise FileExistsError(errno.EEXIST, 'already exists', path) from exc

    def upload(self, path: str, create: bool) -> StreamedUpload:
        """Starts to send an object of unknown size.

        Raises:
            FileExistsError: With `create`: it exists. Checked again before it is completed.
        """
        if not create:
            return StreamedUpload(lambda parts: self._send(path, parts, False))
        self._check_absent(path)
        return StreamedUpload(lambda parts: self._send(path, parts, True), lambda: self._check_absent(path))

    def _send(self, path: str, parts: Iterator[bytes], create: bool) -> None:
        size, last, all_sent = 0, b'', False

        def counted() -> Iterator[bytes]:
            nonlocal size, last, all_sent
            for part in parts:
                size, last = size + len(part), part
                yield part
            all_sent = True

        try:
            self.put_stream(path, counted(), create)
        except Exception as exc:
            # The last request may have succeeded, its response lost.
            if all_sent and self._ends_with(path, size, last):
                return
            error = self.map_error(path, exc)
            if isinstance(error, PreconditionError):
                error = FileExistsError(errno.EEXIST, 'already exists', path)
            elif isinstance(error, TransientError):
                error = OSError(errno.EIO, error.reason, path)
            raise error from exc

    def _check_absent(self, path: str) -> None:
        try:
            self.head(path)
        except FileNotFoundError:
            return
        raise FileExistsError(errno.EEXIST, 'already exists', path)

    def _ends_with(self, path: str, size: int, data: bytes) -> bool:
        try:
            head, tail = self.tail(path, len(data))
        except OSError:
            return False  # The error of the upload says more.
        return head.size == size and tail == data


class StreamedUpload:
    """An object that is sent while it is written, by a thread. It is visible when it is complete.

    Args:
        stream: Sends what it iterates over as one object.
        check: Called before the object is completed; if it raises an error, the upload is aborted.
    """

    def __init__(
        self, stream: Callable[[Iterator[bytes]], None], check: Callable[[], None] | None = None
    ) -> None:
        parts: queue.Queue[bytes | BaseException | None] = queue.Queue(2)
        errors: list[BaseException] = []
        ended = threading.Event()

        def take() -> Iterator[bytes]:
            while isinstance(part := parts.get(), bytes):
                yield part
            ended.set()
            if part is not None:
                raise part

        def work() -> None:
            try:
                stream(take())
            except BaseException as exc:
                errors.append(exc)
                # `send` must not block on a full queue, so that it or `complete` raises the error. The end
                # may have been taken already, or still be taken by a thread of the client's.
                while not ended.is_set():
                    with contextlib.suppress(queue.Empty):
                        if not isinstance(parts.get(timeout=0.1), bytes):
                            ended.set()

        self._parts, self._errors, self._check = parts, errors, check
        self._thread = threading.Thread(target=work, name='bags-upload', daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        """Sends the next part; may return before it has arrived.

        Raises:
            OSError: This part or an earlier one could not be sent.
        """
        if self._errors:
            raise self._errors[0]
        self._parts.put(part)

    def complete(self, last: bytes) -> None:
        """Sends the last part, which may be empty, and makes the object visible.

        Raises:
            FileExistsError: It must not exist, and does.
        """
        if last:
            self.send(last)
        if self._check is not None:
            try:
                self._check()
            except BaseException:
                self.abort()
                raise
        self._parts.put(None)
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    def abort(self) -> None:
        """Aborts the upload: the object store drops the parts that were sent."""
        self._parts.put(InterruptedError('the upload was aborted'))
        self._thread.join()
