"""Resuming a dataset folder: how many of its datapoints are complete."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.refs import MISSING, RefsFormat
from bags.errors import CorruptError
from bags.storage import Store

__all__ = ['bag_suffix', 'count_complete']


def bag_suffix(folder: str, field: str, names: Collection[str]) -> str | None:
    """Returns the extension of a field's bag among the names in a folder; None if there is no bag yet.

    Raises:
        CorruptError: There are two bags.
    """
    found = [suffix for suffix in ('.bag', '.bagz') if field + suffix in names]
    if len(found) == 2:
        raise CorruptError(folder, None, f'field {field!r}: has both {field}.bag and {field}.bagz')
    return found[0] if found else None


def count_complete(
    store: Store, folder: str, format: RefsFormat, names: Collection[str], storage: dict[str, Any]
) -> int | None:
    """Returns how many datapoints are left without those at the end whose records are missing.

    Such datapoints are left by a crash of the machine, which may save refs and lose records.

    Args:
        store, folder: The dataset folder.
        format: The format of its refs.
        names: The files in the folder.
        storage: The options `filesystem` and `storage_options`.

    Returns:
        The number of datapoints; None if the folder has no refs yet.

    Raises:
        CorruptError: Files are missing, or records are missing although the folder was closed.
        ValueError: Another library wrote the folder.
    """
    options = ReaderOptions(**storage)
    if 'refs.bag' not in names:
        if any(name.endswith('.idx') for name in names):
            raise ValueError(f'{folder}: was written by Granular, and can be read but not resumed')
        # The refs are created before all other bags.
        if not store.is_remote and any(
            name.endswith(('.bag', '.bagz')) and name != 'limits.refs.bag' for name in names
        ):
            raise CorruptError(folder, None, 'has bags, but no refs.bag')
        return None
    refs = open_bag(store, store.join(folder, 'refs.bag'), options)
    if refs.count and not int(refs.ends[0:1][0]):
        raise ValueError(f'{folder}: was written by Bags 0.x, and can be read but not resumed')
    counts: dict[str, int] = {}
    for field in format.spec:
        suffix = bag_suffix(folder, field, names)
        if suffix is not None:
            counts[field] = open_bag(store, store.join(folder, field + suffix), options).count
        elif refs.count:
            # All bags are created before the first datapoint.
            raise CorruptError(folder, None, f'field {field!r}: has neither {field}.bag nor {field}.bagz')
    keep = refs.count
    while keep and not _is_complete(refs, keep - 1, format, counts):
        keep -= 1
    if keep < refs.count and 'limits.refs.bag' not in names:
        raise CorruptError(refs.path, keep, 'its refs lead to records that are missing')
    return keep


def _is_complete(refs: BagFile, index: int, format: RefsFormat, counts: dict[str, int]) -> bool:
    try:
        row = format.unpack(refs.record(index))
    except (CorruptError, ValueError):
        return False
    for name, kind in format.spec.items():
        place = format.places[name]
        first, count = row[place], row[place + 1] if kind.sequence else 1
        if count and first + count > counts[name] and not (kind.optional and first == MISSING):
            return False
    return True
