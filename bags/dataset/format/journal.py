"""Names of the journal `unfinished` of a dataset that is being written, and the journal beside shards.

A writer creates the journal before the first datapoint and removes it at `close`. It exists while the dataset
is being written, and remains if the writer is killed or its `with` block ends with an exception. Readers of
bags and other libraries open files by name and ignore it.

`bags.bag.journal` writes the journal of a folder, which says which records of its bags survive a power cut.
A sharded dataset has another journal beside its shards, from before the first new shard until its writer is
closed: it holds only a text. Each of several parallel writers has its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from bags.storage import Lock, Store

JOURNAL = 'unfinished'
DATASET_JOURNAL_TEXT = (
    b'This dataset is being written, or its writer ended early: resume=True continues it.\n'
)


def is_journal(name: str) -> bool:
    """Returns whether a file, by its name, is the journal of a folder or of a sharded writer."""
    return name == JOURNAL or name.startswith(f'{JOURNAL}-')


def has_journal(store: Store, directory: str) -> bool:
    """Returns whether a sharded dataset has a journal beside its shards."""
    if store.can_list:
        return any(map(is_journal, store.names(directory)))
    return store.exists(store.join(directory, JOURNAL))


class ShardsJournal:
    """The journal beside the shards of a sharded writer, from before its first new shard until it is closed.

    Args:
        store, directory: The dataset.
        shard_start, shard_step: The numbers of the shards of the writer.
    """

    def __init__(self, store: Store, directory: str, shard_start: int, shard_step: int) -> None:
        self._store = store
        self._covers_all = shard_step == 1
        name = JOURNAL if self._covers_all else f'{JOURNAL}-{shard_start}-{shard_step}'
        self._path = store.join(directory, name)
        self._earlier: list[str] = []
        """The journals that earlier writers left, beside shards and in them."""
        self._lock: Lock | None = None

    def find(self, names: Collection[str]) -> None:
        """Finds the journals of earlier writers among the files beside the shards."""
        directory = os.path.dirname(self._path)
        paths = [self._store.join(directory, name) for name in names if is_journal(name)]
        self._earlier += [path for path in paths if self._covers_all or path == self._path]

    def add_shard(self, shard: str) -> None:
        """Adds a closed shard with a journal, by an earlier version or by a writer of this folder only."""
        self._earlier.append(self._store.join(shard, JOURNAL))

    @property
    def is_unfinished(self) -> bool:
        """Whether the dataset is unfinished."""
        return self._lock is not None or bool(self._earlier)

    def create(self) -> None:
        """Writes the journal, unless it exists, and locks it.

        Raises:
            BlockingIOError: Another writer of the same shards is open.
        """
        if self._lock is None:
            if not self._store.exists(self._path):
                self._store.replace(self._path, DATASET_JOURNAL_TEXT)
            self._lock = self._store.lock(self._path)

    def remove(self, accept: Callable[[Store, str], None]) -> None:
        """Removes all journals: the dataset is finished.

        Args:
            accept: Removes the journal of a shard.
        """
        if not self.is_unfinished:
            return
        directory = os.path.dirname(self._path)
        for path in self._earlier:
            if os.path.dirname(path) != directory:
                accept(self._store, os.path.dirname(path))
            else:
                self._store.remove(path)
        self._store.remove(self._path)
        self._store.sync_folder(directory)
        self._earlier = []
        self.release()

    def release(self) -> None:
        """Unlocks the journal, which stays."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
