"""Replacing a local dataset: a new one is written beside it, then takes its place by renaming."""

from __future__ import annotations

import contextlib
import errno
import os

from bags.bag.leftovers import remove_leftovers, remove_tree, temporary_path
from bags.dataset.unfinished import is_file_of_dataset
from bags.storage import Lock, Store
from bags.validation import one_of

__all__ = ['Replacement', 'replacement']


class Replacement:
    """A folder that takes the place of a dataset, if there is one. Nothing else may write to that meanwhile.

    Raises:
        ValueError: It is on an object store, where folders cannot be renamed.
        FileExistsError: The folder holds what is no part of a dataset.
        BlockingIOError: A writer is at work in it.
    """

    def __init__(self, store: Store, target: str) -> None:
        if store.is_remote:
            raise ValueError(
                f"{target}: mode='overwrite' needs a local folder, as object stores cannot rename folders: "
                f'write to another folder, then remove this one'
            )
        self._store = store
        self._target = os.path.realpath(target)  # Not a link, which would be renamed itself.
        remove_leftovers(store, self._target)
        self._locks = [_check(store, self._target)] if store.exists(self._target) else []
        self.path = temporary_path(store, self._target)
        """Where to write it."""
        store.make_folder(self.path)
        self._locks.append(store.lock(self.path))

    def swap(self) -> str:
        """Puts the new dataset in place, removes the old one, and returns the path."""
        # A process that is killed in between leaves the old one, which `remove_leftovers` puts back.
        old = self.path.removesuffix('.new') + '.old'
        if self._store.exists(self._target):
            self._store.rename(self._target, old)
        self._store.rename(self.path, self._target)
        with contextlib.suppress(OSError):  # E.g. files that are open on Windows: `recover` removes the rest.
            remove_tree(self._store, old)
        self.release()
        return self._target

    def release(self) -> None:
        """Lets others write to the dataset again; removes the new one if it did not take its place."""
        with contextlib.suppress(OSError):
            remove_tree(self._store, self.path)
        for lock in self._locks:
            lock.release()


def _check(store: Store, folder: str, is_shard: bool = False) -> Lock:
    """Locks a folder in which all is part of a dataset, and no writer at work."""
    lock = store.lock(folder)
    for name in store.names(folder):
        if name.isascii() and name.isdigit() and not is_shard:
            _check(store, store.join(folder, name), True).release()
        elif not is_file_of_dataset(name):
            detail = f'holds {name!r}, which is no part of a dataset: it is not overwritten'
            raise FileExistsError(errno.EEXIST, detail, folder)
    return lock


def replacement(mode: str, resume: bool, store: Store, directory: str) -> Replacement | None:
    """Returns what replaces a dataset in mode 'overwrite'; None in mode 'create'."""
    one_of('mode', mode, ('create', 'overwrite'))
    if mode == 'create':
        return None
    if resume:
        raise ValueError("mode: expected 'create' with resume=True, got 'overwrite'")
    return Replacement(store, directory)
