"""The layout `fields`: files that differ in a folder or an affix of their names are a datapoint. No I/O.

audio/x.flac, text/x.txt                       a folder for each field
x.jpg, x_mask.png                              a suffix
leftImg8bit/x_leftImg8bit.png,
gtFine/x_gtFine_color.png                      both
x.jpg, x.jpg.json                              the name of another file, and an extension
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bags.errors import SourceError
from bags.interop.file_extensions import JOINED, field_of, media_type, split_name, type_of
from bags.interop.ignored_files import MEDIA, METADATA_TABLES
from bags.interop.sources.files.affixes import (
    MIN_SHARE,
    MIN_SHARE_BESIDE,
    find_affixes,
    frequent_affixes,
    is_of_field,
    is_suffix,
    is_word,
    split_affixes,
    split_folder,
    split_stems,
)

FileGroup = tuple[str, dict[str, str | list[str]]]
"""The key of a datapoint, and the file of each field, or the files of a sequence in order."""

MAX_FOLDERS = 64
"""Maximum number of folders that are compared with each other as fields."""
MAX_DEPTH = 3
"""Number of positions in a path at which the folders of fields are looked for."""
LAST = -1
"""The position of the folders right above the files."""


class FileParts(NamedTuple):
    """The parts of a path that tell the datapoint and the field of a file."""

    key: str
    folder: str
    """The folder that tells the field; '' for none, and for files beside such folders."""
    affix: str
    """The prefix or suffix that tells the field; '' for none."""
    extension: str


class FoundFields(NamedTuple):
    """The files of datapoints whose fields are told by folders or affixes."""

    depth: int | None
    """The number of folders above those that tell the fields; None if none do."""
    parts: Mapping[str, FileParts]
    """The parts of each file that is in a datapoint."""

    @property
    def datapoints(self) -> int:
        """The number of datapoints."""
        return len({parts.key for parts in self.parts.values()})


_Path = tuple[str, list[str], str, str]
"""A file, the folders and the last part of its path, the path without extension, and the extension."""


def find_fields(names: Iterable[str]) -> FoundFields | None:
    """Finds the folders and affixes that tell the fields of files; None if the files do not have such.

    Two folders do if at least half of the keys of the smaller one are in the other, and the files of a key
    have different types or affixes, or both folders are called after what they hold (`images/x.png`,
    `masks/x.png`). Classes with files of the same names and types do not.

    Of several positions in a path, the one that makes the fewest datapoints is taken.
    """
    names = sorted(name for name in names if not name.endswith(METADATA_TABLES))
    above = {name.rpartition('/')[0] for name in names}
    split = [split_name(name) for name in names]
    has_types = len({media_type(extension) for extension in {extension for _, extension in split}}) > 1
    has_words = any(is_of_field(part) for folder in above for part in folder.split('/'))
    has_affixes = bool(frequent_affixes([stem for stem, _ in split])[0])
    is_apart = len(above) > 1 and (has_types or has_words or has_affixes)
    words = _folder_words(above)
    if not (is_apart or has_affixes or has_types or words):
        return None
    paths = [(name, name.split('/'), *parts) for name, parts in zip(names, split, strict=True)]
    owners = _owners(paths) if has_types else {}
    candidates: list[FoundFields] = []
    if has_affixes or owners or words:
        folders = dict.fromkeys(names, '')
        stems = _stems_without_words(paths, words)
        candidates += _find_at(paths, None, folders, stems, owners, has_affixes=True)
    for depth in (*range(MAX_DEPTH), LAST) if is_apart else ():
        own = [path for path in paths if len(path[1]) > max(depth, 0)]
        folders = {name: _folder_at(parts, depth) for name, parts, *_ in own}
        distinct = set(folders.values())
        if not 1 < len(distinct) <= MAX_FOLDERS or (depth == LAST and len(above) > len(distinct)):
            continue  # Several folders may have one name, such as train/images and val/images.
        if depth == LAST:
            stems = {name: stem.rpartition('/')[2] for name, _, stem, _ in own}
        else:
            stems = {name: without_folder(stem, depth if folders[name] else None) for name, _, stem, _ in own}
        found = _find_at(own, depth, folders, stems, owners, has_affixes=has_affixes)
        candidates += found
        if found and not has_affixes and len(found[0].parts) == len(names):
            break
    # Each file that is left out counts as a datapoint.
    return min(candidates, key=lambda each: each.datapoints + len(names) - len(each.parts), default=None)


def _find_at(
    paths: list[_Path],
    depth: int | None,
    folders: Mapping[str, str],
    stems: Mapping[str, str],
    owners: Mapping[str, str],
    *,
    has_affixes: bool,
) -> list[FoundFields]:
    """Finds the fields that folders at a position of the paths tell, or only affixes, if it is None.

    Args:
        paths: The files.
        depth: The position.
        folders: The folder of each file.
        stems: The path of each file without the folder and the extension.
        owners: The media file that some files describe.
        has_affixes: Whether names may have affixes.
    """
    extensions: dict[str, set[str]] = defaultdict(set)
    for name, _, _, extension in paths:
        if name not in owners:
            extensions[stems[name]].add(extension)
    split = split_stems(extensions, find_affixes(extensions) if has_affixes else ())
    parts: dict[str, FileParts] = {}
    for name, _, _, extension in paths:
        key, affix = split[stems[owners.get(name, name)]]
        parts[name] = FileParts(key, folders[name], affix, extension)
    if depth is None:
        has_fields = bool(owners) or any(each.affix for each in parts.values())
        return [FoundFields(None, parts)] if has_fields else []
    files: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for each in parts.values():
        files[each.folder][each.key].add((each.extension, each.affix))
    complete = {
        folder
        for pair in itertools.combinations(files.items(), 2)
        if _complete_each_other(*pair)
        for folder, _ in pair
    }
    if not complete:
        return []
    if any(each.affix for each in parts.values()) and any(
        _are_alike(files[one], files[other]) for one, other in itertools.combinations(sorted(complete), 2)
    ):
        return []  # Splits, such as train and val beside train_masks and val_masks.
    return [FoundFields(depth, {name: each for name, each in parts.items() if each.folder in complete})]


def _folder_at(parts: list[str], depth: int) -> str:
    """Returns the folder at a position of a path; '' if the path has none there."""
    if depth == LAST:
        return parts[-2] if len(parts) > 1 else ''
    return parts[depth] if len(parts) > depth + 1 else ''


def _folder_words(folders: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns the folders whose names are those of others and a word, with both: `train` and `masks`."""
    inside: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        parts = folder.split('/')
        for place, part in enumerate(parts):
            inside['/'.join(parts[:place])].add(part)
    return {
        f'{above}/{part}'.lstrip('/'): found
        for above, parts in inside.items()
        if 1 < len(parts) <= MAX_FOLDERS
        for part in parts
        if (found := split_folder(part, parts)) is not None
    }


def _stems_without_words(paths: list[_Path], words: Mapping[str, tuple[str, str]]) -> dict[str, str]:
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


def _owners(paths: list[_Path]) -> dict[str, str]:
    """Returns the media file that is described by each file with its whole name: `x.jpg` for `x.jpg.json`."""
    media = {name for name, _, _, extension in paths if type_of(extension) in MEDIA}
    return {
        name: stem for name, _, stem, extension in paths if stem in media and type_of(extension) not in MEDIA
    }


_Files = Mapping[str, set[tuple[str, str]]]
"""The extensions and affixes of the files of each key."""


def _are_alike(one: _Files, other: _Files) -> bool:
    """Returns whether most keys of a folder are also in another one, with files of the same names."""
    shared = one.keys() & other.keys()
    return 2 * len(shared) > min(len(one), len(other)) and all(one[key] == other[key] for key in shared)


def _complete_each_other(one: tuple[str, _Files], other: tuple[str, _Files]) -> bool:
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


def group_fields(names: Iterable[str]) -> tuple[list[FileGroup], int | None]:
    """Groups the files that differ in a folder or an affix; files of other folders are left out.

    Returns:
        The datapoints, and the number of folders above those that are fields, None if none are.

    Raises:
        SourceError: There are no such files, or two files of a datapoint would be one field.
    """
    names = list(names)
    found = find_fields(names)
    if found is None:
        detail = (
            "expected files of the same name in several folders, such as 'audio/1.wav' and 'text/1.txt', or "
            "with affixes, such as '1.jpg' and '1_mask.png'"
        )
        raise SourceError(min(names, default=''), detail)
    fields = _field_names(found)
    groups: dict[str, dict[str, str | list[str]]] = defaultdict(dict)
    for name, parts in found.parts.items():
        add_file(groups[parts.key], fields[name], name)
    return sorted(groups.items()), found.depth


def _field_names(found: FoundFields) -> dict[str, str]:
    """Returns the field of each file: the folder, if it has one affix, else the affix, else the extension."""
    affixes: dict[str, set[str]] = defaultdict(set)
    extensions: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, parts in found.parts.items():
        affixes[parts.folder].add(parts.affix)
        extensions[parts.folder, parts.affix][parts.key].append(name)
    plain: dict[tuple[str, str], str] = {}
    for folder, affix in extensions:
        text = affix.strip('_.-')
        plain[folder, affix] = folder if folder and len(affixes[folder]) == 1 else text or folder
    many = [name.lower() for name in plain.values()]
    fields: dict[str, str] = {}
    for (folder, affix), keys in extensions.items():
        name = plain[folder, affix]
        if name and many.count(name.lower()) > 1:
            name = '_'.join(filter(None, (folder, affix.strip('_.-'))))
        has_several = any(len(files) > 1 for files in keys.values())
        used = {found.parts[file].extension for files in keys.values() for file in files}
        joined = next((each for each, types in JOINED.items() if {*map(type_of, used)} <= {*types}), '')
        for files in keys.values():
            for file in files:
                extension = found.parts[file].extension
                if has_several or not name:
                    is_joined = not name and not has_several and len(used) > 1 and joined
                    fields[file] = (
                        joined if is_joined else field_of('.'.join(filter(None, (name, extension))))
                    )
                else:
                    fields[file] = field_of(name)
    return fields


def add_file(fields: dict[str, str | list[str]], field: str, name: str) -> None:
    """Adds a file to those of a datapoint; raises SourceError if the field has a file."""
    if field in fields:
        raise SourceError(name, f'expected one file for field {field!r}, got {fields[field]} too')
    fields[field] = name
