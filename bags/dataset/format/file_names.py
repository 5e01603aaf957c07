"""Names of the files of a dataset folder: bags, their companions, and JSON. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from bags.bag.checksums import SUFFIX
from bags.dataset.format.journal import is_journal
from bags.dataset.format.metadata import METADATA, STATISTICS
from bags.dataset.format.shard_index import INDEX
from bags.errors import CorruptError
from bags.links.files import LINKED

BAG_SUFFIXES = ('.bag', '.bagz', *LINKED)
IDENTITY = 'source.json'
"""A file beside bags: the identity of the folder (`bags.dataset.format.identity`)."""
PROGRESS = 'progress.json'
"""A file beside shards: their source, and how much of it was processed (`ProgressLog`)."""
EARLIER_PROGRESS = 'source.json'
"""The name of `PROGRESS` in datasets of earlier versions."""
DERIVED = re.compile(rf'{re.escape(STATISTICS)}({re.escape(SUFFIX)})?|.*\.index', re.DOTALL)
"""Matches the names of files that are computed from datapoints: statistics, and indexes of keys."""


def is_temporary(name: str) -> bool:
    """Returns whether a file, by its name, is temporary. Killed writers leave such files behind."""
    return name.endswith('.new')


def is_file_of_dataset(name: str) -> bool:
    """Returns whether a file in a dataset folder, by its name, is part of the dataset."""
    files = ('spec.json', METADATA, STATISTICS, IDENTITY, PROGRESS, EARLIER_PROGRESS, INDEX)
    return (
        name in files
        or is_journal(name)
        or name.endswith((*BAG_SUFFIXES, '.idx', '.index', '.zdict', '.new', SUFFIX))
    )


def bag_suffix(folder: str, field: str, has: Callable[[str], bool]) -> str | None:
    """Returns the extension of a field's bag; None without a bag. `has`: whether a file exists.

    Raises:
        CorruptError: The field has two bags.
    """
    is_plain, is_compressed = has(f'{field}.bag'), has(f'{field}.bagz')
    if is_plain and is_compressed:
        raise CorruptError(folder, None, f'field {field!r}: has both {field}.bag and {field}.bagz')
    if is_plain or is_compressed:
        return '.bag' if is_plain else '.bagz'
    return LINKED[0] if has(field + LINKED[0]) else None


def begun_suffix(field: str, names: Collection[str]) -> str | None:
    """Returns the extension of a bag by its limits, which exist first: a power cut may lose the bag."""
    return next((end for end in ('.bag', '.bagz') if f'limits.{field}{end}' in names), None)


def is_linked(field: str, names: Collection[str]) -> bool:
    """Returns whether a field is linked, by the names of the files in its folder."""
    return any(f'{before}{field}{suffix}' in names for before in ('', 'limits.') for suffix in LINKED)


def linked_fields(folder: str, fields: Iterable[str], names: Collection[str], asked: set[str]) -> set[str]:
    """Returns the linked fields of a folder: the existing ones and the requested ones.

    Raises:
        ValueError: A requested field is in the folder, and is not linked.
    """
    found = {name for name in fields if is_linked(name, names)}
    for name in asked - found:
        if bag_suffix(folder, name, names.__contains__):
            raise ValueError(
                f'linked_fields: field {name!r} is not linked in the folder, and stays so: {folder}'
            )
    return found | asked


def bag_files(
    folder: str, fields: Iterable[str], names: Collection[str], linked: Collection[str] = ()
) -> dict[str, str]:
    """Returns the file names of the bags of a dataset folder in the order of its journal.

    Args:
        folder, fields, names: The folder, its fields, and the names in it.
        linked: Further linked fields, which are not in the folder yet.

    Returns:
        Maps `refs` and each field to a name; before linked fields also `FIELD/values` and `FIELD/files`.
    """
    found: dict[str, str] = {}
    for name in ('refs', *fields):
        linked_suffix = LINKED[0] if name in linked or is_linked(name, names) else '.bag'
        found_suffix = bag_suffix(folder, name, names.__contains__) or begun_suffix(name, names)
        suffix = found_suffix or linked_suffix
        if suffix == LINKED[0]:
            found |= {f'{name}/{each}': f'{name}.{each}' for each in ('values', 'files')}
        found[name] = name + suffix
    return found
