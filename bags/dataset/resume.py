"""Going on with a dataset folder: how many of its datapoints are whole."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.refs import MISSING, RefsFormat
from bags.errors import CorruptError
from bags.storage import Store

__all__ = ['bag_suffix', 'sound_rows']


def bag_suffix(folder: str, field: str, names: Collection[str]) -> str | None:
    """Returns the extension of a field's bag among the names in a folder; None if there is no bag yet.

    Raises:
        CorruptError: There are two.
    """
    found = [suffix for suffix in ('.bag', '.bagz') if field + suffix in names]
    if len(found) == 2:
        raise CorruptError(folder, None, f'field {field!r}: has both {field}.bag and {field}.bagz')
    return found[0] if found else None


def sound_rows(
    store: Store, folder: str, format: RefsFormat, names: Collection[str], storage: dict[str, Any]
) -> int | None:
    """Returns how many datapoints come before the first of those at the end whose records are not there.

    None if there are no refs yet. After a crash of the machine refs may have been saved and records not.

    Args:
        names: What is in the folder.
        storage: Options of the storage.

    Raises:
        CorruptError: Files are missing, or a folder that was closed has such datapoints.
        ValueError: Another library wrote the folder.
    """
    options = ReaderOptions(**storage)
    if 'refs.bag' not in names:
        if any(name.endswith('.idx') for name in names):
            raise ValueError(f'{folder}: was written by Granular, and can be read but not resumed')
        if not store.is_remote and any(
            name.endswith(('.bag', '.bagz')) and name != 'limits.refs.bag' for name in names
        ):
            # The refs are made before all other bags, so this is no writer's doing.
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
            # All bags are made before the first datapoint, so this is no writer's doing either.
            raise CorruptError(folder, None, f'field {field!r}: has neither {field}.bag nor {field}.bagz')
    keep = refs.count
    while keep and not _is_sound(refs, keep - 1, format, counts):
        keep -= 1
    if keep < refs.count and 'limits.refs.bag' not in names:
        raise CorruptError(refs.path, keep, 'leads to records that are not there')
    return keep


def _is_sound(refs: BagFile, index: int, format: RefsFormat, counts: dict[str, int]) -> bool:
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
