"""The file `unfinished`, the mark of a dataset that is being written.

A writer creates the mark before the first datapoint and removes it at `close`. It exists while the dataset is
being written, and remains if the writer is killed or its `with` block ends with an exception. It is also the
journal of the bags in a folder (`bags.bag.journal`). Readers of bags and other libraries open files by name
and ignore it.

A sharded dataset has a mark beside its shards from before the first new shard until its writer is closed, and
another one in the shard that is being written. Each of several parallel writers has its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from bags.storage import Lock, Store

MARK = 'unfinished'
TEXT = b'This dataset is being written, or its writer ended early: resume=True continues it.\n'


def is_mark(name: str) -> bool:
    """Returns whether a file, by its name, is the mark of a folder or of a sharded writer."""
    return name == MARK or name.startswith(f'{MARK}-')


def is_marked(store: Store, directory: str) -> bool:
    """Returns whether a sharded dataset has a mark beside its shards."""
    if store.can_list:
        return any(map(is_mark, store.names(directory)))
    return store.exists(store.join(directory, MARK))


class WriterMark:
    """The mark beside the shards of a sharded writer, from before its first new shard until it is closed.

    Args:
        store, directory: The dataset.
        shard_start, shard_step: The numbers of the shards of the writer.
    """

    def __init__(self, store: Store, directory: str, shard_start: int, shard_step: int) -> None:
        self._store = store
        self._covers_all = shard_step == 1
        name = MARK if self._covers_all else f'{MARK}-{shard_start}-{shard_step}'
        self._path = store.join(directory, name)
        self._found: list[str] = []
        """The marks that earlier writers left, beside shards and in them."""
        self._lock: Lock | None = None

    def find(self, names: Collection[str]) -> None:
        """Finds the marks of earlier writers among the files beside the shards."""
        directory = os.path.dirname(self._path)
        paths = [self._store.join(directory, name) for name in names if is_mark(name)]
        self._found += [path for path in paths if self._covers_all or path == self._path]

    def add_shard(self, shard: str) -> None:
        """Adds a closed shard that has a mark, from an earlier version or a writer of this folder alone."""
        self._found.append(self._store.join(shard, MARK))

    @property
    def is_set(self) -> bool:
        """Whether the dataset is unfinished."""
        return self._lock is not None or bool(self._found)

    def set(self) -> None:
        """Writes the mark, if it is not there, and locks it.

        Raises:
            BlockingIOError: Another writer of the same shards is open.
        """
        if self._lock is None:
            if not self._store.exists(self._path):
                self._store.replace(self._path, TEXT)
            self._lock = self._store.lock(self._path)

    def remove(self, accept: Callable[[Store, str], None]) -> None:
        """Removes all marks: the dataset is finished.

        Args:
            accept: Removes the mark of a shard.
        """
        if not self.is_set:
            return
        directory = os.path.dirname(self._path)
        for path in self._found:
            if os.path.dirname(path) != directory:
                accept(self._store, os.path.dirname(path))
            else:
                self._store.remove(path)
        self._store.remove(self._path)
        self._store.sync_folder(directory)
        self._found = []
        self.release()

    def release(self) -> None:
        """Unlocks the mark, which stays."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
