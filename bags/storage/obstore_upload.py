"""Uploads through obstore of objects whose size is not known yet."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

__all__ = ['StreamedUpload']


class StreamedUpload:
    """An upload by a thread that takes parts from a queue, all of one size: about 320 GB at most."""

    def __init__(self, stream: Callable[[Iterator[bytes]], None]) -> None:
        parts: queue.Queue[bytes | BaseException | None] = queue.Queue(2)
        errors: list[BaseException] = []
        ended = threading.Event()

        def taken() -> Iterator[bytes]:
            while isinstance(part := parts.get(), bytes):
                yield part
            ended.set()
            if part is not None:
                raise part

        def work() -> None:
            try:
                stream(taken())
            except BaseException as exc:
                errors.append(exc)
                # Who sends is not to wait for room, but to be told by the next `send`, or in the end. What
                # ends it may already have been taken, or still be taken by a thread of obstore's.
                while not ended.is_set():
                    with contextlib.suppress(queue.Empty):
                        if not isinstance(parts.get(timeout=0.1), bytes):
                            ended.set()

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
