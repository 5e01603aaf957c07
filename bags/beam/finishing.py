"""How what bundles wrote becomes files or folders with consecutive numbers.

Each bundle writes below a folder for what is not finished, under a name of its own: one that is tried again
writes another one, and what the first left is removed in the end. Renaming may be tried again too.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Sequence

from bags.storage import Store

__all__ = ['begin', 'finish']

PREFIX = '.unfinished-'


def begin(store: Store, folder: str) -> str:
    """Returns a new folder for what is not finished, beside where it will be."""
    store.make_folder(folder)
    path = store.join(folder, f'{PREFIX}{uuid.uuid4().hex}')
    store.make_folder(path)
    return path


def finish(store: Store, unfinished: str, moves: Sequence[tuple[str, str]]) -> None:
    """Renames files or folders, and removes the others that are not finished.

    Args:
        unfinished: What `begin` returned.
        moves: Paths, and what they become.

    Raises:
        FileExistsError: Something is there that did not come from here.
    """
    for path, target in moves:
        _move(store, path, target)
    _clear(store, unfinished)


def _move(store: Store, path: str, target: str) -> None:
    if not _is_there(store, path):
        if not _is_there(store, target):
            raise FileNotFoundError(errno.ENOENT, 'is gone before it was finished', path)
        return
    names = _names(store, path)
    if _is_there(store, target) and (
        not store.is_remote or (names is None and not _is_copy(store, target, path))
    ):
        raise FileExistsError(errno.EEXIST, 'something is there already', target)
    if names is None or not store.is_remote:
        store.rename(path, target)
        return
    # A folder where there are none, only names of files: the refs go last, without which it does not count.
    for name in sorted(names, key=lambda name: (name != 'spec.json', name == 'refs.bag', name)):
        store.rename(store.join(path, name), store.join(target, name))


def _is_copy(store: Store, target: str, path: str) -> bool:
    """Tells whether a file may be what an earlier attempt made of another, which it had still to remove."""
    return store.size(target) == store.size(path)


def _is_there(store: Store, path: str) -> bool:
    return store.exists(path) or _names(store, path) is not None


def _names(store: Store, path: str) -> list[str] | None:
    """Lists a folder; None if it is none."""
    try:
        return store.names(path) or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _clear(store: Store, folder: str) -> None:
    for name in _names(store, folder) or ():
        path = store.join(folder, name)
        if _names(store, path) is None and store.exists(path):
            store.remove(path)
        else:
            _clear(store, path)
    store.remove_folder(folder)
