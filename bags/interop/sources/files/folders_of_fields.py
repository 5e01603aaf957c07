"""Folders that tell the fields of files, by their names and the names of their files. No I/O."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from bags.interop.exported import EPISODE
from bags.interop.file_extensions import media_type, type_of
from bags.interop.sources.files.affixes import (
    MIN_BASED,
    MIN_FILES,
    MIN_SHARE,
    MIN_SHARE_BESIDE,
    find_affixes,
    split_affixes,
)
from bags.interop.sources.files.words import (
    are_opposites,
    are_splits,
    folders_of_splits,
    is_of_field,
    is_suffix,
    is_word,
    split_folder,
)

_NUMBERED = re.compile(r'(.*?)([0-9]+)', re.DOTALL)
MAX_FOLDERS = 64
"""Maximum number of folders that are compared with each other as fields."""
MAX_DEPTH = 3
"""Number of positions in a path at which the folders of fields are looked for."""
MAX_TWINS = 4
"""Maximum number of folders of any name that are fields because files of all have the same names."""
MIN_FILES_OF_TWINS = 4
"""Minimum number of files in each of these folders, divided by the number of the folders."""
LAST = -1
"""The position of the folders right above the files."""

Path = tuple[str, list[str], str, str]
"""A file, the folders and the last part of its path, the path without extension, and the extension."""

Files = Mapping[str, set[tuple[str, str]]]
"""The extensions and affixes of the files of each key."""


def may_tell_fields(extensions: Mapping[str, Collection[str]]) -> bool:
    """Returns whether folders or affixes may tell the fields of some files.

    Args:
        extensions: The extensions of the files of each path without extension.
    """
    stems = stems_without_splits([*extensions])
    folders = {stem.rpartition('/')[0] for stem in stems}
    if any(is_of_field(part) for folder in folders for part in folder.split('/')) or find_affixes(extensions):
        return True
    for depth in range(MAX_DEPTH):
        if 1 < len({folder_at([*folder.split('/'), ''], depth) for folder in folders}) <= MAX_TWINS:
            keys: dict[str, set[str]] = defaultdict(set)
            for stem in stems:
                keys[folder_at(stem.split('/'), depth)].add(without_folder(stem, depth))
            if len(set.intersection(*keys.values())) >= MIN_BASED * max(map(len, keys.values())):
                return True
    return False


def stems_without_splits(stems: list[str]) -> list[str]:
    """Returns paths with the split in the name of a folder as a folder: `images/Tr/1` for `imagesTr/1`."""
    found = folders_of_splits(_folders_inside({stem.rpartition('/')[0] for stem in stems}))
    if not found:
        return stems
    paths = []
    for stem in stems:
        parts = stem.split('/')
        path: list[str] = []
        for place, part in enumerate(parts):
            path += found.get('/'.join(parts[: place + 1]), (part,)) if place + 1 < len(parts) else (part,)
        paths.append('/'.join(path))
    return paths


def stems_without_words(paths: list[Path], words: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Returns the path without extension of each file.

    A word that follows the name of another folder becomes a suffix: `train/1_annot` for `trainannot/1`.
    """
    stems: dict[str, str] = {}
    for name, parts, stem, _ in paths:
        stems[name] = stem
        for place in range(1, len(parts)) if words else ():
            if (found := words.get('/'.join(parts[:place]))) is not None:
                other, word = found
                path = '/'.join((*parts[: place - 1], other, *stem.split('/')[place:]))
                has_word = any(is_suffix(affix) and is_word(affix) for _, affix in split_affixes(stem))
                stems[name] = path if has_word else f'{path}_{word}'
    return stems


def suffixes_of_folders(
    paths: list[Path], folders: Mapping[str, str], stems: Mapping[str, str]
) -> dict[str, str]:
    """Returns the suffix of the files of each folder, all of whose files have one, as another folder's have.

    E.g. `images/21_training.tif` and `1st_manual/21_manual1.gif`: without the suffixes, the names are equal.
    One of the folders or suffixes is called after what the files contain, or the extensions differ.
    """
    files: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for name, _, _, extension in paths:
        files[stems[name].rpartition('/')[0], folders[name]].append((name, stems[name], extension))
    beside: dict[str, list[_FolderOfOneSuffix]] = defaultdict(list)
    for (above, folder), each in files.items():
        if suffix := _common_suffix(folder, [stem for _, stem, _ in each]):
            keys = {stem.removesuffix(suffix) for _, stem, _ in each}
            is_told = is_of_field(folder) or is_word(suffix)
            beside[above].append(
                _FolderOfOneSuffix(folder, suffix, keys, {extension for *_, extension in each}, is_told)
            )
    found: dict[str, str] = {}
    for above, some in beside.items():
        for one, other in itertools.combinations(some, 2):
            if (
                one.suffix != other.suffix
                and (one.is_told or other.is_told or one.extensions.isdisjoint(other.extensions))
                and len(one.keys & other.keys) >= MIN_SHARE_BESIDE * max(len(one.keys), len(other.keys))
            ):
                for side in (one, other):
                    found |= {name: side.suffix for name, *_ in files[above, side.folder]}
    return found


class _FolderOfOneSuffix(NamedTuple):
    """A folder, all of whose files have the same suffix."""

    folder: str
    suffix: str
    keys: set[str]
    """The names of the files without the suffix."""
    extensions: set[str]
    is_told: bool
    """Whether the folder or the suffix is called after what the files contain."""


def _common_suffix(folder: str, stems: list[str]) -> str:
    """Returns the longest suffix that all files of a folder have; '' if it is the name of the folder."""
    if len(stems) < MIN_FILES:
        return ''
    affixes = [affix for _, affix in split_affixes(stems[0]) if is_suffix(affix)]
    suffix = next((affix for affix in affixes if all(stem.endswith(affix) for stem in stems)), '')
    if not suffix or is_word(suffix):
        return suffix
    text, name = suffix.strip('_.-').lower(), folder.lower()
    return '' if name and (text in name or name in text) else suffix


def folder_at(parts: list[str], depth: int) -> str:
    """Returns the folder at a position of a path; '' if the path has none there."""
    if depth == LAST:
        return parts[-2] if len(parts) > 1 else ''
    return parts[depth] if len(parts) > depth + 1 else ''


def folder_words(folders: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns the folders whose names are those of others and a word, with both: `train` and `masks`."""
    return {
        f'{above}/{part}'.lstrip('/'): found
        for above, parts in _folders_inside(folders).items()
        for part in parts
        if (found := split_folder(part, parts)) is not None
    }


def _folders_inside(folders: Iterable[str]) -> dict[str, set[str]]:
    """Returns the names of the folders in each folder that has several, but not too many."""
    inside: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        parts = folder.split('/')
        for place, part in enumerate(parts):
            inside['/'.join(parts[:place])].add(part)
    return {above: parts for above, parts in inside.items() if 1 < len(parts) <= MAX_FOLDERS}


def are_alike(one: Files, other: Files) -> bool:
    """Returns whether most keys of a folder are also in another one, with files of the same names."""
    shared = one.keys() & other.keys()
    return 2 * len(shared) > min(len(one), len(other)) and all(one[key] == other[key] for key in shared)


def are_twins(files: Mapping[str, Files]) -> bool:
    """Returns whether a few folders have files of the same names: `low/1.png` and `high/1.png`.

    If the names of the folders are not opposites, the files must be many, and must not only be numbered:
    files of episodes, splits and classes are often numbered in the same way.
    """
    folders = sorted(files)
    if '' in files or len(folders) > MAX_TWINS or are_splits(folders) or all(map(EPISODE.fullmatch, folders)):
        return False
    keys = set.intersection(*(set(each) for each in files.values()))
    if len(keys) < MIN_FILES or len(keys) < MIN_BASED * max(map(len, files.values())):
        return False
    ends = {extension for each in files.values() for key in keys for extension, _ in each[key]}
    if any(type_of(extension) in ('utf8', 'json') for extension in ends):
        return False
    if len(folders) == 2 and are_opposites(folders):
        return True
    return len(keys) >= MIN_FILES_OF_TWINS * len(folders) and not _are_counted(keys)


def _are_counted(keys: Collection[str]) -> bool:
    """Returns whether most names end with a number, and no number between two others is missing."""
    series: dict[str, set[int]] = defaultdict(set)
    for key in keys:
        if match := _NUMBERED.fullmatch(key):
            series[match[1]].add(int(match[2]))
    counted = [numbers for numbers in series.values() if max(numbers) - min(numbers) < len(numbers)]
    return 2 * sum(len(numbers) for numbers in counted if len(numbers) > 1) >= len(keys)


def complete_each_other(one: tuple[str, Files], other: tuple[str, Files]) -> bool:
    """Returns whether the files of two folders are fields of the same datapoints."""
    (name, files), (other_name, other_files) = one, other
    shared = files.keys() & other_files.keys()
    smaller, larger = sorted((len(files), len(other_files)))
    if not shared or 2 * len(shared) < smaller:
        return False
    are_fields = is_of_field(name) + is_of_field(other_name)
    if are_fields == 2:
        return True
    pairs = [(files[key], other_files[key]) for key in shared]
    if all({affix for _, affix in a}.isdisjoint(affix for _, affix in b) for a, b in pairs):
        return len(shared) >= MIN_SHARE_BESIDE * larger
    is_beside = not (name and other_name)  # Files and a folder beside them.
    if is_beside and are_fields:
        return all({end for end, _ in a}.isdisjoint(end for end, _ in b) for a, b in pairs)
    differ = all(
        {media_type(end) for end, _ in a}.isdisjoint(media_type(end) for end, _ in b) for a, b in pairs
    )
    return differ and len(shared) >= (MIN_SHARE_BESIDE if is_beside else MIN_SHARE) * larger


def without_folder(stem: str, depth: int | None) -> str:
    """Returns a path without the folder at a position."""
    if depth is None:
        return stem
    parts = stem.split('/')
    return '/'.join((*parts[:depth], *parts[depth + 1 :]))
