"""Adopting the data of another format: which fields are linked, and what readers have to permit."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from bags.interop.source import Source

MIN_LINKED_BYTES = 256
"""Mean bytes of records above which `link=True` links a field."""


def fields_to_link(source: Source, link: bool | Iterable[str]) -> set[str]:
    """Returns the fields of a source to link.

    Args:
        source: The source.
        link: As in `convert`.

    Raises:
        KeyError: No such field.
        ValueError: There is none, or one cannot be linked.
    """
    if isinstance(link, str) or not isinstance(link, bool | Iterable):
        raise TypeError(f'link: expected True, or names of fields, got {link!r:.80}')
    found = {name: each for name, each in source.linkable().items() if name in source.spec} if link else {}
    if not isinstance(link, bool):
        chosen = set(link)
        for name in sorted(chosen - source.spec.keys()):
            raise KeyError(f'link: no field {name!r}; the fields are {", ".join(map(repr, source.spec))}')
        for name in sorted(chosen):
            if isinstance(why := found.get(name, 'is made by the import'), str):
                raise ValueError(f'link: field {name!r} cannot be linked: {why}')
        return chosen
    chosen = {name for name, size in found.items() if not isinstance(size, str) and size > MIN_LINKED_BYTES}
    if link and not chosen:
        reasons = [
            f'{name!r}: {why if isinstance(why, str) else f"records of {why:,.0f} bytes on average"}'
            for name, why in found.items()
        ]
        expected = f'expected a field with files of more than {MIN_LINKED_BYTES} bytes on average'
        raise ValueError(f'link: {source.path}: {expected}, got {"; ".join(reasons)}')
    return chosen


def linked_folders(folders: Collection[str]) -> list[str]:
    """Returns the folder that all linked files are below; their folders if there is none."""
    if not folders:
        return []
    parts = [each.split('/') for each in folders]
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(min(parts), max(parts), strict=False))
    common = '/'.join(part for part, _ in pairs)
    return [common] if common.rpartition('://')[2].strip('/') else sorted(folders)
