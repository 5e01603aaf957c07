"""Closing a finished shard in the background, where that means to upload it."""

from __future__ import annotations

import threading

from bags.dataset.writer import DatasetWriter

__all__ = ['Closing']


class Closing:
    """Closes a writer in a thread of its own.

    Attributes:
        failed: An attempt has failed; `wait` raises the error.
    """

    def __init__(self, writer: DatasetWriter) -> None:
        self._writer = writer
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._close, name='bags-upload')
        self._thread.start()

    @property
    def failed(self) -> bool:
        return self._error is not None

    def _close(self) -> None:
        try:
            self._writer.close()
        except BaseException as exc:
            self._error = exc

    def wait(self) -> None:
        """Waits until the writer is closed. After an error that was raised, tries again.

        Raises:
            OSError: The shard is not there yet.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        elif self._error is not None:
            self._error = None
            self._close()
        if self._error is not None:
            raise self._error
