"""Base class of the clients of object stores: retries, concurrent range requests, streamed uploads."""

from __future__ import annotations

import abc
import contextlib
import errno
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from bags.concurrency import map_concurrently
from bags.storage.base import Stat
from bags.storage.errors import (
    CutResponseError,
    PreconditionError,
    RangeError,
    TransientError,
    UnsupportedError,
    condition_error,
    replaced_error,
)
from bags.storage.retry import RetryPolicy, with_retries
from bags.storage.upload import SentObject, StreamedUpload, crc32

MD5_ETAG = re.compile(r'[0-9a-f]{32}(-[0-9]+)?')
READ_BACK_BYTES = 1 << 30
"""Maximum size of an object that is read back to find out how a store computes its checksums."""
READ_BACK_REQUEST_BYTES = 1 << 22
"""Bytes of one request when an object is read back."""
PIECES = 16
"""Maximum number of ranges of such an object that are held in memory."""


def web_version(etag: str | None, modified: datetime | None) -> str:
    """Returns the version of a file on a web server: its ETag, else its Last-Modified, else ''."""
    seconds = 0.0 if modified is None else modified.timestamp()
    return (etag or '').strip('"') or (str(seconds) if seconds else '')


class ObjectClient(abc.ABC):
    """The client of an object store, for one process. Thread-safe. Paths are URLs.

    Methods that subclasses implement make a single attempt. The other methods retry after transient errors,
    and raise FileNotFoundError, PermissionError, TimeoutError and OSError with the path.
    """

    merge_gap: int
    """Maximum bytes between two ranges that are cheaper to read than to skip with another request."""
    version_type: str
    """The type of versions. Versions of an object are comparable between clients with the same type."""
    max_object_size: int
    """Maximum bytes of an upload of unknown size."""
    is_web: bool = False
    """Whether the client reads from a web server, which only supports GET with Range."""
    can_list: bool = True
    """Whether the client lists folders. Web servers do not, and are read-only."""
    is_conditional: bool = True
    """Whether the store checks that an object does not exist, in the request that creates it. With other
    stores, it is checked before."""
    sends_parts: bool = True
    """Whether an upload of unknown size takes several requests."""
    hashed_part_size: int | None = None
    """Bytes of the parts of an upload from whose MD5s the store computes its checksum; 0 for the parts as
    they are passed. None if the store has no such checksum."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._has_md5: dict[str, bool] = {}
        """Maps buckets to whether their checksums are computed from MD5s, if that is known."""
        self.semaphore = threading.Semaphore(policy.concurrency)

    # Single attempts.

    @abc.abstractmethod
    def map_error(self, path: str, exc: Exception) -> Exception:
        """Maps an exception of the underlying client to an error of this library."""

    @abc.abstractmethod
    def get_range(self, path: str, start: int | None, stop: int, version: str) -> tuple[Stat, bytes]:
        """Returns size and version of an object, and a byte range; without `start`, the last `stop` bytes.

        Raises:
            PreconditionError: The object has another version (if this is known and can be requested).
        """

    @abc.abstractmethod
    def get_stat(self, path: str) -> Stat:
        """Returns size and version of an object. Web servers are sent a GET whose body is not read."""

    @abc.abstractmethod
    def list_names(self, folder: str) -> list[str]:
        """Returns the names in a folder; empty if the folder does not exist."""

    @abc.abstractmethod
    def list_files(self, folder: str) -> dict[str, Stat]:
        """Returns all files below a folder, by their paths in it; empty if the folder does not exist."""

    @abc.abstractmethod
    def put_object(self, path: str, data: bytes, version: str | None) -> None:
        """Sends a whole object; `version` as in `put`.

        Raises:
            PreconditionError: The object has another version, or exists although it must not.
        """

    @abc.abstractmethod
    def put_stream(self, path: str, parts: Iterable[bytes], create: bool) -> None:
        """Sends an object of unknown size. Parts already sent are removed if `parts` raises an error.

        With `create`, the object must not exist, if the store checks this for an object of unknown size.
        """

    @abc.abstractmethod
    def delete_object(self, path: str) -> None: ...

    @abc.abstractmethod
    def copy_object(self, path: str, target: str) -> None: ...

    # Reading.

    def pinned(self, path: str) -> str:
        """See `Store.pinned`."""
        return path

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        """Returns size and version of an object, and its last `count` bytes (or fewer), with one request."""
        try:
            return with_retries(self.policy, self.map_error, self._get, path, None, count, None)
        except (RangeError, UnsupportedError):
            # The object is empty, or the store does not support ranges from the end.
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

    def fetch(
        self,
        path: str,
        starts: Sequence[int],
        stops: Sequence[int],
        head: Stat,
        found: set[Stat] | None = None,
    ) -> list[bytes]:
        """Returns non-empty byte ranges of an object, with concurrent requests.

        Args:
            path: The object.
            starts, stops: The ranges.
            head: Its expected size, and its version if that is known.
            found: A set to which size and version in each response are added.

        Raises:
            CorruptError: Size or version of the object differ from `head`.
        """

        def get(number: int) -> bytes:
            start, stop, received = starts[number], stops[number], list[bytes]()
            stat, data = with_retries(
                self.policy, self.map_error, self._get, path, start, stop, head, received
            )
            if found is not None:
                found.add(stat)
            return data

        try:
            return map_concurrently(get, range(len(starts)), max_threads=self.policy.concurrency)
        except (PreconditionError, RangeError) as exc:
            raise replaced_error(path, head, exc) from exc

    def _get(
        self, path: str, start: int | None, stop: int, head: Stat | None, received: list[bytes] | None = None
    ) -> tuple[Stat, bytes]:
        """Makes one attempt to read a range.

        Args:
            path, start, stop: The range, as for `get_range`.
            head: The expected size and version; None if they are not known.
            received: The bytes that earlier attempts received of the range. This attempt requests the rest:
                the cache of a proxy may have two versions of a file, and cut each response where they meet.
        """
        if start is not None and received:
            start += sum(map(len, received))
        cut = None
        try:
            stat, data = self.get_range(path, start, stop, '' if head is None else head.version)
        except CutResponseError as exc:
            if self.version_type != 'web':  # The hub has other versions than the hosts of its files.
                raise
            stat, data, cut = exc.stat, exc.data, exc
        if head is not None and stat != (head if head.version else Stat(head.size, stat.version)):
            raise replaced_error(path, head, stat)
        if cut is not None:
            if received is not None and head is not None and head.version:
                received.append(data)
            raise cut
        expected = min(stop, stat.size) if start is None else stop - start
        if len(data) != expected:
            raise TransientError(f'expected {expected} bytes, got {len(data)}')
        data = b''.join((*received, data)) if received else data
        self.policy.counter.received[threading.get_ident()] += len(data)
        return stat, data

    def head(self, path: str) -> Stat:
        """Returns size and version of an object."""
        if self.is_web:
            return self.tail(path, 1)[0]
        return with_retries(self.policy, self.map_error, self.get_stat, path)

    # Writing.

    def current_version(self, path: str) -> str | None:
        """Returns the version of an object, for `put`; None if it does not exist."""
        try:
            return self.head(path).version
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes, version: str | None = '') -> None:
        """Creates or replaces an object.

        Args:
            path, data: The object.
            version: The version to replace, as `current_version` returned it: None if the object must not
                exist, '' for any version.

        Raises:
            FileExistsError: The object exists, although it must not.
            OSError: The object has another version, or was removed (errno ESTALE).
        """
        try:
            with_retries(self.policy, self.map_error, self.put_object, path, data, version)
        except PreconditionError as exc:
            # An earlier attempt may have written the object, and its response was lost. Clients repeat some
            # requests by themselves, e.g. aiohttp after a connection was reset.
            if not self._has_content(path, data):
                raise condition_error(path, version) from exc
        except FileNotFoundError as exc:
            if not version:
                raise  # No such bucket.
            raise condition_error(path, version) from exc

    def _has_content(self, path: str, data: bytes) -> bool:
        try:
            return self.tail(path, len(data) + 1)[1] == data
        except FileNotFoundError:
            return False

    def upload(self, path: str, version: str | None) -> StreamedUpload:
        """Starts the upload of an object of unknown size; `version` and errors as in `put`.

        The version is compared before the upload begins, and again before it is completed.
        """
        if version == '':
            return StreamedUpload(lambda parts: self._send(path, parts, False))
        self.check_version(path, version)
        return StreamedUpload(
            lambda parts: self._send(path, parts, version is None), lambda: self.check_version(path, version)
        )

    def _send(self, path: str, parts: Iterator[bytes], create: bool) -> None:
        all_sent = False
        sent = SentObject(self.hashed_part_size if self._has_md5.get(_bucket(path), True) else None)

        def counted() -> Iterator[bytes]:
            nonlocal all_sent
            for part in parts:
                sent.add(part)
                yield part
            all_sent = True

        try:
            self.put_stream(path, counted(), create)
        except Exception as exc:
            # The last request may have succeeded, and its response was lost.
            with contextlib.suppress(OSError):  # The error of the upload is raised instead.
                if all_sent and self._difference(path, sent) is None:
                    return
            error = self.map_error(path, exc)
            if isinstance(error, PreconditionError):
                error = condition_error(path, None)
            elif isinstance(error, TransientError):
                error = OSError(errno.EIO, error.reason, path)
            raise error from exc
        difference = self._difference(path, sent)
        if difference is not None:
            raise OSError(errno.EIO, f'the object is not what was sent: {difference}', path)

    def check_version(self, path: str, version: str | None) -> None:
        """Raises an error as `put` does if an object has another version."""
        if self.current_version(path) != version:
            raise condition_error(path, version)

    # Comparing an object with the sent bytes.

    def get_checksum(self, path: str, head: Stat) -> str:
        """Returns the store's checksum of an object: an ETag, or the hexadecimal MD5 of all bytes."""
        return head.version

    def _difference(self, path: str, sent: SentObject) -> str | None:
        """Compares an object with the sent bytes. Returns a description of the difference; None if equal.

        An ETag that differs may not be computed from MD5s, e.g. if the store encrypts with a key of its user.
        The object is read back to find out, once for each bucket.
        """
        head, last = self.tail(path, len(sent.last))
        if head.size != sent.size:
            return f'expected {sent.size} bytes after the upload, got {head.size}'
        if last != sent.last:
            return f'its last {len(last)} bytes differ'
        if not self.sends_parts:
            return None
        bucket, etags = _bucket(path), sent.etags
        checksum = self.get_checksum(path, head).lower() if etags else ''
        if checksum in etags:
            self._has_md5[bucket] = True
            return None
        if MD5_ETAG.fullmatch(checksum) and (self._has_md5.get(bucket) or sent.size <= READ_BACK_BYTES):
            for start, stop, md5 in sent.parts:
                if self._md5(path, start, stop, head) != md5:
                    return f'bytes {start} to {stop} differ: expected ETag {etags[0]}, got {checksum}'
            self._has_md5[bucket] = False
            return None
        for first in range(0, len(sent.samples), PIECES):
            samples = sent.samples[first : first + PIECES]
            ranges = [sample.start for sample in samples], [sample.stop for sample in samples]
            for sample, data in zip(samples, self.fetch(path, *ranges, head), strict=True):
                if crc32(data) != sample.checksum:
                    return f'bytes {sample.start} to {sample.stop} differ'
        return None

    def _md5(self, path: str, start: int, stop: int, head: Stat) -> bytes:
        """Returns the MD5 of a range of an object."""
        digest = hashlib.md5(usedforsecurity=False)
        cuts = [*range(start, stop, READ_BACK_REQUEST_BYTES), stop]
        for first in range(0, len(cuts) - 1, PIECES):
            bounds = cuts[first : first + PIECES + 1]
            for data in self.fetch(path, bounds[:-1], bounds[1:], head):
                digest.update(data)
        return digest.digest()


def _bucket(path: str) -> str:
    return path.partition('://')[2].partition('/')[0]
