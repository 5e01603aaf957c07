"""Fingerprints of the files of a source, which tell `bags.convert` whether they have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bags.interop.source import find_filesystem

MAX_BYTES = 1 << 26
"""Total bytes of the files that are read whole, in the order of names. Of other files, the ends are read."""
END_BYTES = 1 << 16
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
        fs, root = find_filesystem(path, storage_options)
        if not fs.exists(root):  # The name of several bags: `name@3.bagz`.
            digest.update(path.encode())
            continue
        infos = fs.find(root, detail=True) if fs.isdir(root) else {root: fs.info(root)}
        for name, info in sorted(infos.items()):
            size, etag = info.get('size') or 0, info.get('ETag') or info.get('etag')
            digest.update(repr((name.removeprefix(root), size, etag)).encode())
            if etag is not None or not size:
                continue
            if size <= bytes_left:
                bytes_left -= size
                digest.update(fs.cat_file(name))
                continue
            not_read.append(name)
            if ends_left:
                ends_left -= 1
                digest.update(fs.cat_file(name, end=min(END_BYTES, size)))
                digest.update(fs.cat_file(name, start=max(0, size - END_BYTES)))
    return digest.hexdigest(), not_read
