"""Names of the journal `unfinished` of a dataset that is being written, and the journal beside shards.

A writer creates the journal before the first datapoint and removes it at `close`. It exists while the dataset
is being written, and remains if the writer is killed or its `with` block ends with an exception. Readers of
bags and other libraries open files by name and ignore it.

`bags.bag.journal` writes the journal of a folder, which says which records of its bags survive a power cut.
A sharded dataset has another journal beside its shards, from before the first new shard until its writer is
closed: it holds only a text. Each of several parallel writers has its own, `unfinished-START-STEP`. The first
of them also writes `unfinished-of-STEP`, which the last one removes once all of them have begun.

On an object store, where locks would not end with the process that holds them, the journal also has the id of
its writer (`RemoteJournal`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Collection

from bags.storage import Lock, Store

JOURNAL = 'unfinished'
DATASET_JOURNAL_TEXT = (
    b'This dataset is being written, or its writer ended early: resume=True continues it.\n'
)
WRITERS = re.compile(rf'{JOURNAL}-of-([1-9]\d{{0,4}})')
"""The name of the file that says how many parallel writers a dataset has."""
WRITERS_TEXT = (
    b'Several writers write this dataset: the name of this file ends with their number (shard_step).\n'
    b'The last of them removes it, once each has begun.\n'
)
SHOWN_SHARDS = 5
TAKEN = (
    'another writer or bags.recover has taken this dataset, or it was removed, since this writer began: '
    'nothing is written. Write the datapoints that are not in it again, with resume=True'
)
"""The error of a writer on an object store that finds the journal of another writer."""


def is_journal(name: str) -> bool:
    """Returns whether a file, by its name, is the journal of a folder or of a sharded writer."""
    return name == JOURNAL or name.startswith(f'{JOURNAL}-')


def has_journal(store: Store, directory: str) -> bool:
    """Returns whether a sharded dataset has a journal beside its shards."""
    if store.can_list:
        return any(map(is_journal, store.names(directory)))
    return store.exists(store.join(directory, JOURNAL))


def shards_not_begun(names: Collection[str]) -> list[str]:
    """Returns the first shards of parallel writers that have not begun, given the names beside the shards."""
    numbers = {int(name) for name in names if name.isascii() and name.isdigit()}
    not_begun = set[int]()
    for count in (int(match[1]) for match in map(WRITERS.fullmatch, names) if match):
        not_begun |= {
            writer for writer in {*range(count)} - numbers if f'{JOURNAL}-{writer}-{count}' not in names
        }
    return [f'{number:06}' for number in sorted(not_begun)]


def describe_not_begun(shards: list[str]) -> str:
    """Describes the writers of these shards, which have not begun; empty without shards."""
    if not shards:
        return ''
    names = ', '.join(shards[:SHOWN_SHARDS]) + ', …' * (len(shards) > SHOWN_SHARDS)
    who = '1 writer has' if len(shards) == 1 else f'{len(shards)} writers have'
    return f'{who} not begun (no shard {names})'


def of_writer(text: bytes) -> bytes:
    """Returns the content of a journal on an object store: a text, and a new id for its writer."""
    return text + f'writer {secrets.token_hex(12)}\n'.encode()


class RemoteJournal:
    """The journal of a dataset on an object store. It has the id of the writer that owns the dataset.

    The journal is created on the condition that it does not exist, so that of two writers that begin at the
    same moment one raises an error before it has written anything. A store cannot say whether the writer of
    an existing journal was killed. A writer that resumes the dataset therefore replaces the journal, in the
    version that it has read. The other writer, if it still runs, finds another id when it closes the dataset.

    Args:
        store, path: The journal.
        data: Its content, which no other writer has.
        taken: The error of a writer that finds another journal.
    """

    def __init__(self, store: Store, path: str, data: bytes, taken: str = TAKEN) -> None:
        self._store = store
        self._path = path
        self._data = data
        self._taken = taken
        self.earlier: bytes | None = None
        """The content of the journal that was replaced; None without one."""
        self.is_held = False
        """Whether this writer has taken the dataset, and neither left nor finished it."""
        self.is_changed = False
        """Whether this writer has removed files of the earlier writer."""

    def take(self, exists: bool) -> None:
        """Creates the journal, or replaces the journal of a writer that was killed.

        Args:
            exists: Whether there was a journal before.

        Raises:
            BlockingIOError: Another writer has taken the dataset at the same moment.
        """
        store, path = self._store, self._path
        version = store.current_version(path) if exists else None
        earlier = None if version is None else self._read()
        try:
            store.replace(path, self._data, version)
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ESTALE):
                raise
            if self._read() != self._data:  # Otherwise, the client repeated a request that had succeeded.
                detail = 'another writer has just begun here: wait until it has ended, or use another path'
                raise BlockingIOError(errno.EWOULDBLOCK, detail, os.path.dirname(path)) from exc
        self.earlier, self.is_held = earlier, True

    def expect_listed(self, names: Collection[str]) -> None:
        """Raises OSError if a listing after `take` is wrong: it does not have the journal."""
        if os.path.basename(self._path) not in names:
            detail = 'its listing does not have a file that was just written, and is out of date: try again'
            raise OSError(errno.ESTALE, detail, os.path.dirname(self._path))

    def expect_own(self) -> None:
        """Raises OSError if another writer has taken the dataset since."""
        if self._read() != self._data:
            raise OSError(errno.ESTALE, self._taken, os.path.dirname(self._path))

    def update(self, data: bytes) -> None:
        """Replaces the content, which must still have the id of this writer.

        Raises:
            OSError: Another writer has taken the dataset since.
        """
        version = self._store.current_version(self._path)
        self.expect_own()
        self._store.replace(self._path, data, version)
        self._data = data

    def leave(self) -> None:
        """Puts the journal back as it was before `take`, unless another writer has taken the dataset since.

        If files of the earlier writer were removed, the journal stays as the one of a killed writer. Else the
        earlier writer, if it still runs, can finish the dataset.
        """
        if not self.is_held:
            return
        self.is_held = False
        if self.is_changed:
            return
        version = self._store.current_version(self._path)
        if version is None or self._read() != self._data:
            return
        if self.earlier is None:
            self._store.remove(self._path)
        else:
            self._store.replace(self._path, self.earlier, version)

    def _read(self) -> bytes | None:
        try:
            return self._store.read(self._path)
        except FileNotFoundError:
            return None


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
        self._writers_path = ''
        """The path of the file with the number of writers; empty if this is none of several writers."""
        writers = f'{JOURNAL}-of-{shard_step}'
        if shard_start < shard_step and not self._covers_all and WRITERS.fullmatch(writers):
            self._writers_path = store.join(directory, writers)
        self._earlier: list[str] = []
        """The journals that earlier writers left, beside shards and in them."""
        self._lock: Lock | None = None
        self.remote = (
            RemoteJournal(store, self._path, of_writer(DATASET_JOURNAL_TEXT)) if store.is_remote else None
        )
        """The journal on an object store."""

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
            if self.remote is not None:
                self.remote.take(self._path in self._earlier)
            elif not self._store.exists(self._path):
                self._store.replace(self._path, DATASET_JOURNAL_TEXT)
            self._lock = self._store.lock(self._path)
            if self._writers_path and not self._store.exists(self._writers_path):
                self._store.replace(self._writers_path, WRITERS_TEXT)

    def set_changed(self) -> None:
        """Prevents `leave` from giving the dataset back to a writer whose files are removed next."""
        if self.remote is not None:
            self.remote.is_changed = True

    @property
    def was_taken_over(self) -> bool:
        """Whether another writer had a dataset on an object store, and was killed or still runs."""
        return self.remote is not None and self.remote.earlier is not None

    def expect_own(self) -> None:
        """Raises OSError if another writer has taken a dataset on an object store since `create`."""
        if self.remote is not None and self.remote.is_held:
            self.remote.expect_own()

    def remove(self, accept: Callable[[Store, str], None]) -> None:
        """Removes all journals of this writer: its shards are finished.

        Args:
            accept: Removes the journal of a shard.
        """
        if not self.is_unfinished:
            return
        self.expect_own()
        directory = os.path.dirname(self._path)
        for path in self._earlier:
            if os.path.dirname(path) != directory:
                accept(self._store, os.path.dirname(path))
            else:
                self._store.remove(path)
        self._store.remove(self._path)
        if not self._covers_all:
            self._remove_number(directory)
        self._store.sync_folder(directory)
        self._earlier = []
        if self.remote is not None:
            self.remote.is_held = False
        self.release()

    def leave(self) -> None:
        """Unlocks the journal. On an object store, it is put back as it was before `create`."""
        self.release()
        if self.remote is not None:
            self.remote.leave()
            with contextlib.suppress(OSError):
                self._remove_number(os.path.dirname(self._path))

    def _remove_number(self, directory: str) -> None:
        """Removes the number of writers after the last of them, if all have begun, or none has a shard."""
        names = self._store.names(directory)
        numbers = list(filter(WRITERS.fullmatch, names))
        others = [name for name in names if is_journal(name) and name not in numbers]
        has_shards = any(name.isascii() and name.isdigit() for name in names)
        if not others and not (has_shards and shards_not_begun(names)):
            for name in numbers:
                self._store.remove(self._store.join(directory, name))

    def release(self) -> None:
        """Unlocks the journal, which stays."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
