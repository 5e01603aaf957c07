"""Bytes of the bags of a dataset folder."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bags.dataset.format.file_names import BAG_SUFFIXES
from bags.dataset.format.folder import Folder
from bags.dataset.format.listing import names_in
from bags.links.files import LINKED


def folder_size(folder: Folder, fields: Iterable[str] | None = None, linked: bool = True) -> int:
    """Returns the total bytes of the bags of some or all fields, with their separate limits files.

    A linked field counts the bytes of its records, in any file, and of the links to them; with
    `linked=False`, the bytes of its files in the folder.
    """
    asked = None if fields is None else {'refs', *fields}
    store, known = folder.store, folder.known
    sizes = known.sizes if known is not None and store.is_remote else None
    names = names_in(store, folder.path) if sizes is None else sizes
    total = 0
    if linked and any(name.endswith(LINKED[0]) for name in names):
        for field in folder.layout().schema:
            if field + LINKED[0] in names and (asked is None or field in asked):
                total += folder.open_bag(field).size
    for name in names:
        stem, end = os.path.splitext(name)
        is_asked = asked is None or stem.removeprefix('limits.') in asked
        if is_asked and end in (*BAG_SUFFIXES, '.idx') and not (linked and end in LINKED):
            try:
                total += store.stat(store.join(folder.path, name)).size if sizes is None else sizes[name]
            except FileNotFoundError:
                pass  # A writer has just moved these limits into the bag.
    return total
