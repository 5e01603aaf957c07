"""JSON files of a dataset with checksums: the XXH3-64 of each file is beside it, in `NAME.xxh3`.

To replace a file, the new checksum is written beside the old one, then the file, then the new checksum alone:
whenever the writer is killed, one of the checksums matches the file. A new file is written before its
checksum, and removed after it. spec.json never changes, and the checksums of refs.bag include it; its own
checksum is written when the folder is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from bags.bag.checksums import checksums_name, digest_function, table_of
from bags.bag.limits import ENTRY
from bags.errors import CorruptError
from bags.storage import Store
from bags.storage.base import A_LFS_POINTER, MAX_SMALL_FILE_BYTES, is_lfs_pointer
from bags.storage.errors import condition_error

MAX_CHECKSUMS = 2


def has_checksums(names: Collection[str]) -> bool:
    """Returns whether a dataset folder with these files has checksums."""
    return checksums_name('refs.bag') in names


def write_json(
    store: Store,
    path: str,
    data: bytes,
    checksum: bool,
    version: str | None = '',
    max_size: int = MAX_SMALL_FILE_BYTES,
) -> None:
    """Writes a file of at most `max_size` bytes, and its checksum if `checksum` is set.

    `version` and errors as in `Store.replace`.
    """
    if not checksum:
        store.replace(path, data, version)
        return
    _expect_version(store, path, version)  # Before its checksum is replaced.
    digest = digest_function()
    if store.exists(path):
        with contextlib.suppress(CorruptError):  # Too large: readers refuse it anyway.
            store.replace(checksums_name(path), table_of([digest(data), digest(store.read(path, max_size))]))
    store.replace(path, data, version)
    store.replace(checksums_name(path), table_of([digest(data)]))


def write_checksum(store: Store, path: str) -> None:
    """Writes the checksum of a file."""
    store.replace(checksums_name(path), table_of([digest_function()(store.read(path))]))


def remove_json(store: Store, path: str, version: str | None = '') -> None:
    """Removes a file and its checksum, if they exist. `version` and errors as in `Store.replace`."""
    _expect_version(store, path, version)
    store.remove(checksums_name(path))
    store.remove(path)


def check_no_lfs_pointer(where: object, data: bytes) -> None:
    """Raises CorruptError if a file is the text that Git LFS stores instead of it."""
    if is_lfs_pointer(data):
        raise CorruptError(where, None, f'expected JSON, got {A_LFS_POINTER}')


def _expect_version(store: Store, path: str, version: str | None) -> None:
    if version != '' and store.current_version(path) != version:
        raise condition_error(path, version)


def check_json(store: Store, path: str, data: bytes, renew: str) -> None:
    """Compares the content of a file with its checksum, if it has one.

    Args:
        store, path, data: The file.
        renew: The command that accepts the file or writes it again.

    Raises:
        CorruptError: The content does not match its checksum.
    """
    try:
        table = store.read(checksums_name(path))
    except FileNotFoundError:
        return
    check_no_lfs_pointer(path, data)
    known = [table[start : start + ENTRY] for start in range(0, MAX_CHECKSUMS * ENTRY, ENTRY)]
    if table_of([digest_function()(data)]) not in known:
        detail = f'differs from its checksum: it is damaged, or was edited by hand ({renew})'
        raise CorruptError(path, None, detail)
