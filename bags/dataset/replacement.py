"""Replacing a local dataset: a new one is written beside it, then both are swapped in one step."""

from __future__ import annotations

import contextlib
import errno
import os

from bags.bag.leftovers import remove_leftovers, remove_tree, temporary_path
from bags.dataset.shard_index import INDEX
from bags.dataset.unfinished import SOURCE, is_file_of_dataset, is_temporary
from bags.storage import Store
from bags.storage.local import swap_folders
from bags.validation import one_of

__all__ = ['Replacement', 'replacement']


class Replacement:
    """A folder that takes the place of a dataset.

    Args:
        store, target: The dataset; there may be none.

    Raises:
        ValueError: It is on an object store, where folders cannot be swapped.
        FileExistsError: The folder holds what is no part of a dataset.
        BlockingIOError: A writer is at work in it.
    """

    def __init__(self, store: Store, target: str) -> None:
        if store.is_remote:
            raise ValueError(
                f"{target}: mode='overwrite' needs a local folder, as object stores cannot swap folders: "
                f'write to another folder, then remove this one'
            )
        self._store = store
        self.target = os.path.realpath(target)  # Not a link, which would be renamed itself.
        remove_leftovers(store, self.target)
        if store.exists(self.target):
            self._check()
        self.path = temporary_path(store, self.target)
        """Where to write it."""

    def _check(self) -> None:
        store, folders = self._store, [self.target]
        names = store.names(self.target)
        if names and 'spec.json' not in names:
            folders += [store.join(self.target, name) for name in names if name.isascii() and name.isdigit()]
            names = [name for name in names if not (name.isascii() and name.isdigit())]
            names = [name for name in names if name not in (SOURCE, INDEX) and not is_temporary(name)]
            names += [name for folder in folders[1:] for name in store.names(folder)]
        for name in names:
            if not is_file_of_dataset(name) and not name.endswith('.idx'):
                detail = f'holds {name!r}, which is no part of a dataset: it is not overwritten'
                raise FileExistsError(errno.EEXIST, detail, self.target)
        for folder in folders:
            store.lock(folder).release()

    def swap(self) -> str:
        """Puts the new dataset in place, removes the old one, and returns the path."""
        swap_folders(self.path, self.target)
        with contextlib.suppress(OSError):  # E.g. files that are open on Windows: `recover` removes the rest.
            remove_tree(self._store, self.path)
        return self.target


def replacement(mode: str, resume: bool, store: Store, directory: str) -> Replacement | None:
    """Returns what replaces a dataset in mode 'overwrite'; None in mode 'create'."""
    one_of('mode', mode, ('create', 'overwrite'))
    if mode == 'create':
        return None
    if resume:
        raise ValueError("mode: expected 'create' with resume=True, got 'overwrite'")
    return Replacement(store, directory)
