"""Closes a full shard in a thread, while the next one is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future


class ClosableWriter(Protocol):
    """A writer of one folder."""

    def close(self) -> None: ...

    def leave(self) -> None: ...


class BackgroundClose:
    """Closes one writer at a time in a thread: uploads it, or writes it to the disk."""

    def __init__(self) -> None:
        self._writer: ClosableWriter | None = None
        self._future: Future[None] | None = None
        """Its `close`, running in a thread; None after it failed, to be retried in the calling thread."""

    def start(self, writer: ClosableWriter) -> None:
        """Starts closing a writer. The previous one must be closed."""
        from concurrent.futures import ThreadPoolExecutor

        self._writer, self._future = writer, None
        threads = ThreadPoolExecutor(1, 'bags-close')
        with contextlib.suppress(RuntimeError):  # No more threads: `finish` closes it.
            self._future = threads.submit(writer.close)
        threads.shutdown(wait=False)

    def finish_if_done(self) -> bool:
        """Calls `finish` if the thread is done; returns whether it was done."""
        if self._future is None or self._future.done():
            self.finish()
        return self._writer is None

    def finish(self) -> None:
        """Waits until the writer is closed; after an error, the next call retries.

        Raises:
            OSError: Closing failed, e.g. the disk is full.
        """
        if self._writer is None:
            return
        if self._future is None:
            self._writer.close()
        elif (error := self._future.exception()) is not None:
            self._future = None
            raise error
        self._writer = self._future = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """On an OSError in the block, waits for the thread, and adds its error as a note.

        Both often have the same cause, such as a full disk. The next call retries.
        """
        try:
            yield
        except OSError as exc:
            if self._future is not None and (error := self._future.exception()) is not None:
                self._future = None
                exc.add_note(f'closing the previous shard also failed: {type(error).__name__}: {error}')
            raise

    def finish_or_leave(self) -> None:
        """As `finish`. After an error, releases the lock and leaves the files as a killed writer does."""
        try:
            self.finish()
        except OSError:
            if self._writer is not None:
                self._writer.leave()
            self._writer = self._future = None
            raise
