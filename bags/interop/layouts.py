"""How files of a folder are grouped into datapoints, by their names alone.

files      each file is a datapoint
stems      files that differ in their extension only: `x.jpg`, `x.txt`, `x.json`
classes    as stems, in one folder a class, whose name becomes the field `label`
episodes   each folder is a datapoint; its numbered files are sequences
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from bags.interop.extensions import field_of, split_name

__all__ = ['LAYOUTS', 'Group', 'find_layout', 'group']

LAYOUTS = ('files', 'stems', 'classes', 'episodes')

Group = tuple[str, dict[str, str | list[str]]]
"""The key of a datapoint, and the file of each field, or the files of a sequence in order."""

_NUMBERED = re.compile(r'(.*?)([0-9]+)', re.DOTALL)
_EPISODE = re.compile(
    r'(?:.*[^a-z])?(?:ep|eps|episode|seq|sequence|clip|scene|video|vid|rec|recording|take|run|trial|traj'
    r'|trajectory|demo|session)?[^a-z]*[0-9]+',
    re.IGNORECASE,
)


def find_layout(names: list[str]) -> str:
    """Returns the layout that fits the files of a folder, by their paths in it.

    Folders of numbered files are episodes if the folders are numbered too, by number alone or as `ep_12`, and
    classes otherwise.
    """
    folders = {name.partition('/')[0] for name in names if '/' in name}
    if len(folders) > 1 and all('/' in name for name in names):
        runs: Counter[tuple[str, str, str]] = Counter()
        for name in names:
            folder, _, rest = name.partition('/')
            prefix, number, extension = _split_numbered(rest)
            if number:
                runs[folder, prefix, extension] += 1
        has_run = {folder for (folder, _, _), count in runs.items() if count > 1}
        if has_run == folders and all(map(_EPISODE.fullmatch, folders)):
            return 'episodes'
        if all(name.count('/') == 1 for name in names):
            return 'classes'
    return 'stems'


def group(names: Iterable[str], layout: str) -> list[Group]:
    """Groups files into datapoints, sorted by key.

    Raises:
        ValueError: Two files would be the same field of one datapoint, or the layout does not fit.
    """
    if layout == 'episodes':
        return _episodes(sorted(names))
    groups: dict[str, dict[str, str | list[str]]] = {}
    for name in sorted(names):
        stem, extension = split_name(name)
        if layout == 'classes' and '/' not in name:
            raise ValueError(f'{name}: expected a folder for each class, got a file outside of any')
        key = name if layout == 'files' else stem
        field = field_of(extension)
        fields = groups.setdefault(key, {})
        if field in fields:
            raise ValueError(f'{name}: expected one file for field {field!r}, got {fields[field]} too')
        fields[field] = name
    return sorted(groups.items())


def _split_numbered(name: str) -> tuple[str, str, str]:
    """Splits a file name into what is before its number, the number, and the extension."""
    stem, extension = split_name(name)
    found = _NUMBERED.fullmatch(stem)
    return (found[1], found[2], extension) if found else (stem, '', extension)


def _episodes(names: list[str]) -> list[Group]:
    found: dict[str, dict[tuple[str, str, bool], list[tuple[int, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name in names:
        folder, slash, rest = name.partition('/')
        if not slash:
            raise ValueError(f'{name}: expected a folder for each episode, got a file outside of any')
        prefix, number, extension = _split_numbered(rest)
        found[folder][prefix, extension, bool(number)].append((int(number or 0), name))
    kinds = {kind for episode in found.values() for kind in episode}
    fields = _fields(kinds)
    return [
        (
            folder,
            {
                fields[kind]: [name for _, name in sorted(files)] if kind[2] else files[0][1]
                for kind, files in episode.items()
            },
        )
        for folder, episode in sorted(found.items())
    ]


def _fields(kinds: set[tuple[str, str, bool]]) -> dict[tuple[str, str, bool], str]:
    """Names the fields of episodes by the subfolder, by what is before the number, or by the extension."""
    names = {}
    for prefix, extension, numbered in kinds:
        folder, _, rest = prefix.strip('/').rpartition('/')
        plain = '_'.join(filter(None, (folder.replace('/', '_'), rest.strip(' _-.'))))
        names[prefix, extension, numbered] = field_of(plain) if plain else field_of(extension)
    many = Counter(name.lower() for name in names.values())
    for kind, name in names.items():
        if many[name.lower()] > 1:
            names[kind] = f'{name}.{field_of(kind[1])}'
    again = Counter(name.lower() for name in names.values())
    for kind, name in names.items():
        if again[name.lower()] > 1:
            raise ValueError(f'files {kind[0]}….{kind[1]}: two kinds of files would both be field {name!r}')
    return names
