"""Temporary files and folders beside a bag or a dataset, and the leftovers of killed writers.

The replacement of `NAME` is written beside it as `.NAME.TOKEN.new`, with a random token, and renamed at the
end. A folder that is being replaced is briefly called `.NAME.TOKEN.old`. If a bag has limits or checksums
beside it, the limits of its replacement are briefly called `limits..NAME.TOKEN.swap`, which marks that the
replacement is complete. New checksums and a new journal are written to `NAME.xxh3.PID.new` and
`NAME.unfinished.PID.new`. A NAME that is too long for temporary names is replaced by its digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets

from bags.bag.checksums import SUFFIX, checksums_name
from bags.bag.journal import journal_name
from bags.bag.limits import ENTRY
from bags.bag.open import limits_name
from bags.storage import Hints, Store

REPLACEMENT = re.compile(
    r'(?:limits\.)?(?P<written>\.(?:limits\.)?(?P<name>.+)\.[0-9a-f]{8}\.(?:new|old|swap))'
    rf'(?:{re.escape(SUFFIX)}(?:\.\d+\.new)?)?'
)
"""Matches files of a bag or folder that is written to replace another one."""
NEW_CONTENT = re.compile(
    rf'(?P<written>(?P<name>.+))(?:{re.escape(SUFFIX)}|{re.escape(journal_name(""))})\.\d+\.new'
)
"""Matches the new content of a file beside a bag."""
MAX_NAME_BYTES = 200
"""Maximum bytes of names used in names of temporary files; file systems allow 255 bytes."""


def temporary_path(store: Store, path: str) -> str:
    """Returns a path beside `path` at which to write its replacement."""
    # A random token instead of the process id: in a container, the process id is the same each time, and a
    # killed process may have left a file with the same name.
    folder, name = os.path.split(path)
    return store.join(folder, f'.{_shortened(name)}.{secrets.token_hex(4)}.new')


def _shortened(name: str) -> str:
    data = os.fsencode(name)
    return name if len(data) <= MAX_NAME_BYTES else hashlib.blake2b(data, digest_size=16).hexdigest()


def swap_name(temporary: str) -> str:
    """Returns the path of the limits beside a temporary bag that is complete."""
    return limits_name(temporary).removesuffix('.new') + '.swap'


def leftovers(store: Store, path: str) -> list[str]:
    """Returns the temporary files and folders of a local bag or dataset, including files in use."""
    return [other for other, _ in _find(store, path)]


def _find(store: Store, path: str) -> list[tuple[str, str]]:
    """Returns each temporary file or folder, with the path of the bag or folder that is written there."""
    folder, name = os.path.split(path)
    if store.is_remote or not store.exists(folder or '.'):
        return []
    matches = [
        (other, REPLACEMENT.fullmatch(other) or NEW_CONTENT.fullmatch(other))
        for other in sorted(store.names(folder))
    ]
    return [
        (store.join(folder, other), store.join(folder, match['written']))
        for other, match in matches
        if match and match['name'] in (name, _shortened(name))
    ]


def remove_leftovers(store: Store, path: str) -> list[str]:
    """Removes the leftovers of killed writers of a local bag or dataset. Returns their paths.

    If a dataset was being replaced, but its replacement was not moved into place, the old dataset is
    restored. If a bag was being moved into place together with its limits, the move is completed.
    """
    removed = []
    for other, written in _find(store, path):
        if other.endswith('.swap') and not _is_in_use(store, [other, limits_name(path)]):
            _complete_swap(store, path, other, written.removesuffix('.swap') + '.new')
    for other, written in _find(store, path):
        # Overwriting writers lock their new limits or folder; other writers lock the limits of the bag. A
        # writer that creates a bag holds no lock until its journal is written, and creates the bag last.
        is_being_created = written == path and not store.exists(path)
        locked = [limits_name(written), swap_name(written), other, limits_name(path)]
        if is_being_created or _is_in_use(store, locked):
            continue
        if other.endswith('.old') and not store.exists(path):
            store.rename(other, path)
        else:
            remove_tree(store, other)
            removed.append(other)
    return removed


def _is_in_use(store: Store, paths: list[str]) -> bool:
    """Returns whether a writer holds the lock of any of the files or folders. They need not exist."""
    return any(store.exists(path) and store.is_locked(path) for path in paths)


def _complete_swap(store: Store, path: str, limits: str, data: str) -> None:
    """Completes the move of a bag into place, after its writer was killed during the move.

    Args:
        store, path: The bag that is replaced.
        limits, data: The limits and the records of the new bag.
    """
    folder = os.path.dirname(path)
    if store.exists(data):
        for replaced in (limits_name(path), checksums_name(path), journal_name(path)):
            store.remove(replaced)
        store.sync_folder(folder)
        store.rename(data, path)
        store.sync_folder(folder)
    if store.exists(checksums_name(data)):
        store.rename(checksums_name(data), checksums_name(path))
    ends = store.open(limits, Hints(mapped=False))
    end = int.from_bytes(ends.fetch(max(ends.size - ENTRY, 0), ends.size), 'little')
    del ends  # Windows does not rename open files.
    if store.exists(path) and store.stat(path).size == end:
        store.rename(limits, limits_name(path))
    else:
        store.remove(limits)  # The bag contains a copy of the limits at its end.
    store.sync_folder(folder)


def remove_tree(store: Store, path: str) -> None:
    """Removes a file, or a folder with its contents, if it exists."""
    try:
        names = store.names(path)
    except (FileNotFoundError, NotADirectoryError):
        if store.exists(path):
            store.remove(path)
        return
    for name in names:
        remove_tree(store, store.join(path, name))
    store.remove_folder(path)
