"""Uploads of objects: the sizes of parts, and objects that are sent while they are written."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

MiB = 1 << 20
PART_SIZE = 8 * MiB
EQUAL_PARTS = 1000  # Number of parts of an upload before their size grows.
PARTS_PER_STEP = 60  # Number of parts of each size after that.


def part_size(number: int) -> int:
    """Returns the bytes of a part of an upload, counted from 0.

    The first thousand have 8 MiB; then they grow, so that the 10,000 parts that S3 accepts hold 5 TB.
    """
    return PART_SIZE * (1 + max(0, number - EQUAL_PARTS) // PARTS_PER_STEP)


class StreamedUpload:
    """An object that is sent while it is written, by a thread. It is visible when it is complete.

    Args:
        stream: Function that sends an iterable of bytes as one object.
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
            FileExistsError: The object exists, and must not.
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
