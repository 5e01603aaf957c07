"""`HeldFolder`: the folder of a writer, in which nothing is changed once another folder is at its path."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from bags.storage.descriptors import open_descriptor

REPLACED = 'was removed, moved or replaced since the writer opened it: nothing more is written'


class HeldFolder:
    """A local folder that is held open, so that it stays known by its number until `release`.

    Args:
        path: The absolute path of the folder.

    Raises:
        FileNotFoundError: The folder does not exist.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        # Windows cannot open folders. Nor does it remove or rename folders with open files.
        with contextlib.suppress(PermissionError):
            self._fd = open_descriptor(path, os.O_RDONLY)
        self._stat = os.stat(path) if self._fd < 0 else os.fstat(self._fd)
        self._prefix = os.path.join(path, '')
        self._is_released = False
        self._is_lost = False
        """Whether the folder was missing at its path before, as the writer has then ended."""

    def expect_in_place(self, moved_to: str | None = None) -> None:
        """Raises OSError if the folder is no longer at its path, or at `moved_to`."""
        if self._is_released:
            return
        try:
            stat = os.stat(self.path if moved_to is None else moved_to)
            if stat.st_ino != self._stat.st_ino or stat.st_dev != self._stat.st_dev:
                self._is_lost = True
        except (FileNotFoundError, NotADirectoryError):
            self._is_lost = True
        if self._is_lost:
            raise OSError(errno.ESTALE, f'the folder {REPLACED}', self.path)

    def locate(self, path: str) -> tuple[str, int | None]:
        """Returns the path of a file relative to the folder, and the descriptor of the folder.

        Changes relative to the descriptor cannot affect another folder at the path. For files elsewhere, and
        where the system cannot open folders, these are the path and None.

        Raises:
            OSError: The folder cannot be opened, and is no longer at its path.
        """
        if self._fd >= 0 and path.startswith(self._prefix):
            return path[len(self._prefix) :], self._fd
        self.expect_in_place()
        return path, None

    def release(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor. From here on, files are changed by their paths."""
        # `close` is an argument because `os` may be cleared already when the interpreter exits.
        self._is_released = True
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self.release()
