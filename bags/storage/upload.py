"""Uploads: the sizes and checksums of parts, and objects that are sent while they are written."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

MiB = 1 << 20
PART_SIZE = 8 * MiB
EQUAL_PARTS = 1000  # Number of parts of `PART_SIZE` before the size grows.
PARTS_PER_STEP = 60  # Number of parts of each larger size.
COMPARED_BYTES = 1 << 16  # Bytes compared at the start of each part, and at the end of an object.


def part_size(number: int) -> int:
    """Returns the size, in bytes, of part `number` of an upload, counted from 0.

    The first thousand parts have 8 MiB. Later ones grow, so that the 10,000 parts that S3 accepts hold 5 TB.
    """
    return PART_SIZE * (1 + max(0, number - EQUAL_PARTS) // PARTS_PER_STEP)


class SentRange(NamedTuple):
    """A byte range of a sent object, and its checksum: the MD5 of a part, or the CRC-32 of a sample."""

    start: int
    stop: int
    checksum: bytes


class SentObject:
    """Size and checksums of the bytes that were sent as one object, to compare with the stored object.

    Args:
        part_size: Bytes of the parts whose MD5s are computed; the last part may be shorter. 0 for the parts
            as they are added, None for no MD5s.
    """

    def __init__(self, part_size: int | None) -> None:
        self.size = 0
        self.last = b''
        """The last bytes of the last part, at most `COMPARED_BYTES`."""
        self.samples: list[SentRange] = []
        """Samples of the first bytes of each added part."""
        self._part_size = part_size
        self._parts: list[SentRange] = []
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._start = 0

    def add(self, part: bytes) -> None:
        if not part:
            return
        sample, self.last = part[:COMPARED_BYTES], part[-COMPARED_BYTES:]
        self.samples.append(SentRange(self.size, self.size + len(sample), crc32(sample)))
        if self._part_size is None:
            self.size += len(part)
            return
        view = memoryview(part)
        while view:
            missing = self._start + self._part_size - self.size if self._part_size else len(view)
            self._md5.update(view[:missing])
            self.size += min(missing, len(view))
            if missing <= len(view):
                self._parts.append(SentRange(self._start, self.size, self._md5.digest()))
                self._md5, self._start = hashlib.md5(usedforsecurity=False), self.size
            view = view[missing:]

    @property
    def parts(self) -> list[SentRange]:
        """The parts and their MD5s; empty if MD5s are not computed."""
        if self._part_size is None or self._start == self.size:
            return self._parts
        return [*self._parts, SentRange(self._start, self.size, self._md5.digest())]

    @property
    def etags(self) -> list[str]:
        """The ETags that S3 may assign to the object, unless it encrypts it with a key of its user."""
        digests = [part.checksum for part in self.parts]
        if not digests:
            return []
        joined = hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()
        return [f'{joined}-{len(digests)}', *(digest.hex() for digest in digests if len(digests) == 1)]


def crc32(data: bytes) -> bytes:
    """Returns the CRC-32 of bytes, as 4 bytes."""
    return zlib.crc32(data).to_bytes(4, 'little')


class StreamedUpload:
    """Sends an object in a thread while it is written. The object becomes visible when it is complete.

    Args:
        stream: Sends an iterable of bytes as one object.
        check: Called before the object is completed. If it raises an error, the upload is aborted.
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
                # Drain the queue: `send` must not block on a full queue, so that it or `complete` raises the
                # error. A thread of the client may already have taken the end, or may still take it.
                while not ended.is_set():
                    with contextlib.suppress(queue.Empty):
                        if not isinstance(parts.get(timeout=0.1), bytes):
                            ended.set()

        self._parts, self._errors, self._check = parts, errors, check
        self._thread = threading.Thread(target=work, name='bags-upload', daemon=True)
        self._thread.start()

    def send(self, part: bytes) -> None:
        """Sends the next part. May return before the part has arrived.

        Raises:
            OSError: This part or an earlier one could not be sent.
        """
        if self._errors:
            raise self._errors[0]
        self._parts.put(part)

    def complete(self, last: bytes) -> None:
        """Sends the last part, which may be empty, and makes the object visible.

        Raises:
            FileExistsError: The object exists, although it must not.
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
