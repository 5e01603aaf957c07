"""Fingerprints of the files of a source, which tell `bags.convert` whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bags.interop.stores import find_store, open_in, read_in, size_in, walk
from bags.storage.base import Stat
from bags.storage.errors import UnsupportedError

MAX_BYTES = 1 << 26
"""Total bytes of the files that are read whole, in the order of names. Of other files, the ends are read."""
END_BYTES = 1 << 16
HAVE_ETAGS = ('s3://', 'gs://', 'az://')
"""URLs of object stores whose versions are ETags."""
MAX_ENDS = 1 << 10
"""Maximum number of files whose ends are read."""


def fingerprint_of_files(
    paths: Sequence[str], storage_options: Mapping[str, Any] | None
) -> tuple[str, list[str]]:
    """Returns a hash of the names, sizes and contents of files, and the files that were not read whole.

    Files with an ETag are not read. Modification times are not used.

    Args:
        paths: Files and folders; paths or URLs.
        storage_options: As in `open_source`.

    Raises:
        OSError: A file cannot be read.
    """
    from xxhash import xxh3_128

    digest, bytes_left, ends_left, not_read = xxh3_128(), MAX_BYTES, MAX_ENDS, list[str]()
    for path in paths:
        store, root = find_store(path, storage_options)
        stats = walk(store, root)[0] if store.can_list else {}
        if not stats and not os.path.isdir(root):
            try:
                stats = {'': store.stat(root)}
            except FileNotFoundError:  # The name of several bags: `name@3.bagz`.
                digest.update(path.encode())
                continue
            except UnsupportedError:
                stats = {'': Stat(size_in(store, root, storage_options) or 0)}
        for name, (size, version) in sorted(stats.items()):
            below = f'/{name}' * bool(name)
            etag = f'"{version}"' if root.startswith(HAVE_ETAGS) and version else None
            digest.update(repr((below, size, etag)).encode())
            if etag is not None or not size:
                continue
            if size <= bytes_left:
                bytes_left -= size
                digest.update(read_in(store, root + below, storage_options))
                continue
            not_read.append(root + below)
            if ends_left:
                ends_left -= 1
                file = open_in(store, root + below, storage_options)
                digest.update(file.read(0, min(END_BYTES, file.size)))
                digest.update(file.read(max(0, file.size - END_BYTES), file.size))
    return digest.hexdigest(), not_read
