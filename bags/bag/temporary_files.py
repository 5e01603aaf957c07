"""Temporary files and folders beside a bag or a dataset; those left by killed writers are leftovers.

The replacement of `NAME` is written beside it as `.NAME.TOKEN.new`, with a random token, and renamed at the
end. A folder that is being replaced is `.NAME.TOKEN.old` for a moment. The separate limits of a bag that
replaces another one are `limits..NAME.TOKEN.swap` for a moment: both files of the bag are complete.
"""

from __future__ import annotations

import os
import re
import secrets

from bags.bag.checksums import SUFFIX
from bags.bag.open import limits_name
from bags.storage import Store

NAME = re.compile(r'(?:limits\.)?\.(.+)\.[0-9a-f]{8}\.(?:new|old|swap)' + f'(?:{re.escape(SUFFIX)})?')


def temporary_path(store: Store, path: str) -> str:
    """Returns a path beside `path` for its replacement."""
    # Random instead of the process id: in a container that is the same each time, and a killed process may
    # have left a file with the same name.
    folder, name = os.path.split(path)
    return store.join(folder, f'.{name}.{secrets.token_hex(4)}.new')


def swap_name(temporary: str) -> str:
    """Returns the path of the separate limits of a temporary bag that is complete."""
    return limits_name(temporary).removesuffix('.new') + '.swap'


def leftovers(store: Store, path: str) -> list[str]:
    """Returns the temporary files and folders of a local bag or dataset, also those in use by a writer."""
    folder, name = os.path.split(path)
    if store.is_remote or not store.exists(folder or '.'):
        return []
    found = [(other, NAME.fullmatch(other)) for other in sorted(store.names(folder))]
    return [store.join(folder, other) for other, match in found if match and match[1] == name]


def remove_leftovers(store: Store, path: str) -> list[str]:
    """Removes the leftovers of killed writers of a local bag or dataset; returns their paths.

    An old dataset whose replacement was not moved into place is put back instead, and a bag with separate
    limits that was being moved into place is moved.
    """
    removed = []
    for other in leftovers(store, path):
        if other.endswith('.swap'):
            _complete_swap(store, path, other)
    for other in leftovers(store, path):
        folder, name = os.path.split(other)
        limits = limits_name(store.join(folder, name.removeprefix('limits.').removesuffix(SUFFIX)))
        try:
            # Overwriting writers hold a lock on the limits or the folder, others on the limits of the bag.
            for held in (limits, other, limits_name(path)):
                if store.exists(held):
                    store.lock(held).release()
        except BlockingIOError:
            continue
        if other.endswith('.old') and not store.exists(path):
            store.rename(other, path)
        else:
            remove_tree(store, other)
            removed.append(other)
    return removed


def _complete_swap(store: Store, path: str, limits: str) -> None:
    """Moves a bag with separate limits into place, whose writer was killed while it did."""
    folder, name = os.path.split(limits)
    data = store.join(folder, name.removeprefix('limits.').removesuffix('.swap') + '.new')
    if store.exists(data):
        store.remove(limits_name(path))
        store.remove(path + SUFFIX)
        store.sync_folder(folder)
        store.rename(data, path)
        store.sync_folder(folder)
    if store.exists(data + SUFFIX):
        store.rename(data + SUFFIX, path + SUFFIX)
    store.rename(limits, limits_name(path))
    store.sync_folder(folder)


def remove_tree(store: Store, path: str) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    try:
        names = store.names(path)
    except (FileNotFoundError, NotADirectoryError):
        if store.exists(path):
            store.remove(path)
        return
    for name in names:
        remove_tree(store, store.join(path, name))
    store.remove_folder(path)
