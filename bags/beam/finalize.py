"""End of the sinks: what bundles wrote is renamed to files or folders with consecutive numbers.

Each bundle writes to a temporary folder, under a name of its own. One that is retried writes under another
name, and what its first attempt left is removed in the end. Renaming may be retried too.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Sequence

from bags.storage import Store

__all__ = ['finalize', 'make_temporary_folder']

PREFIX = '.unfinished-'


def make_temporary_folder(store: Store, folder: str) -> str:
    """Returns a new folder for the outputs of bundles, inside that where they go in the end."""
    store.make_folder(folder)
    path = store.join(folder, f'{PREFIX}{uuid.uuid4().hex}')
    store.make_folder(path)
    return path


def finalize(store: Store, temporary: str, moves: Sequence[tuple[str, str]]) -> None:
    """Renames outputs, and removes all else in the temporary folder.

    Args:
        temporary: What `make_temporary_folder` returned.
        moves: Files or folders there, and the paths that they get.

    Raises:
        FileExistsError: A path exists, and is not from an earlier attempt.
    """
    for path, target in moves:
        _move(store, path, target)
    _remove_folder(store, temporary)


def _move(store: Store, path: str, target: str) -> None:
    if not _exists(store, path):
        if not _exists(store, target):
            raise FileNotFoundError(errno.ENOENT, 'was removed before it was finalized', path)
        return
    names = _names(store, path)
    # On an object store, a file of the same size may be the copy that an earlier attempt made to rename it.
    if _exists(store, target) and (
        not store.is_remote or (names is None and store.size(target) != store.size(path))
    ):
        raise FileExistsError(errno.EEXIST, 'exists already', target)
    if names is None or not store.is_remote:
        store.rename(path, target)
        return
    # Object stores rename single files only: refs.bag last, without which a folder is not complete.
    for name in sorted(names, key=lambda name: (name != 'spec.json', name == 'refs.bag', name)):
        store.rename(store.join(path, name), store.join(target, name))


def _exists(store: Store, path: str) -> bool:
    return store.exists(path) or _names(store, path) is not None


def _names(store: Store, path: str) -> list[str] | None:
    """Lists a folder; None if it is not one, or empty."""
    try:
        return store.names(path) or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove_folder(store: Store, folder: str) -> None:
    for name in _names(store, folder) or ():
        path = store.join(folder, name)
        if _names(store, path) is None and store.exists(path):
            store.remove(path)
        else:
            _remove_folder(store, path)
    store.remove_folder(folder)
