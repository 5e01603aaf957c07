"""The layout `fields`: files that differ in a folder or an affix of their names are a datapoint. No I/O.

audio/x.flac, text/x.txt                       a folder for each field
x.jpg, x_mask.png                              a suffix
leftImg8bit/x_leftImg8bit.png,
gtFine/x_gtFine_color.png                      both
imagesTr/x_0000.nii.gz, labelsTr/x.nii.gz      a folder for each field and split, and the number of a channel
x/x_flair.nii.gz, x/x_seg.nii.gz               a suffix after the name of the folder
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
from bags.interop.sources.files.affixes import find_affixes, is_after_folder, may_have_affixes, split_stems
from bags.interop.sources.files.folders_of_fields import (
    LAST,
    MAX_DEPTH,
    MAX_FOLDERS,
    Path,
    are_alike,
    are_twins,
    complete_each_other,
    folder_at,
    folder_words,
    stems_without_splits,
    stems_without_words,
    suffixes_of_folders,
    without_folder,
)

FileGroup = tuple[str, dict[str, str | list[str]]]
"""The key of a datapoint, and the file of each field, or the files of a sequence in order."""


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


def find_fields(names: Iterable[str]) -> FoundFields | None:
    """Finds the folders and affixes that tell the fields of files; None if the files do not have such.

    Two folders do if at least half of the keys of the smaller one are in the other, and the files of a key
    have different types or affixes, or both folders are called after what they hold (`images/x.png`,
    `masks/x.png`). So do a few folders with the same names of files (`are_twins`). Classes with files of the
    same types and numbers do not.

    Of several positions in a path, the one that makes the fewest datapoints is taken.
    """
    names = sorted(name for name in names if not name.endswith(METADATA_TABLES))
    split = [split_name(name) for name in names]
    stems_of = stems_without_splits([stem for stem, _ in split])
    paths = [
        (name, f'{stem}.{extension}'.split('/'), stem, extension)
        for name, stem, (_, extension) in zip(names, stems_of, split, strict=True)
    ]
    above = {stem.rpartition('/')[0] for stem in stems_of}
    has_types = len({media_type(extension) for extension in {extension for _, extension in split}}) > 1
    has_affixes = may_have_affixes(stems_of)
    words = folder_words(above)
    if len(above) < 2 and not (has_affixes or has_types):
        return None
    owners = _owners(paths) if has_types else {}
    candidates: list[FoundFields] = []
    if has_affixes or owners or words:
        folders = dict.fromkeys(names, '')
        stems = stems_without_words(paths, words)
        candidates += _find_at(paths, None, folders, stems, owners, {}, has_affixes=True)
    for depth in (*range(MAX_DEPTH), LAST) if len(above) > 1 else ():
        inside = [f'{folder}/'.lstrip('/').split('/') for folder in above]
        distinct = {folder_at(parts, depth) for parts in inside if len(parts) > max(depth, 0)}
        if not 1 < len(distinct) <= MAX_FOLDERS or (depth == LAST and len(above) > len(distinct)):
            continue  # Several folders may have one name, such as train/images and val/images.
        own = [path for path in paths if len(path[1]) > max(depth, 0)]
        folders = {name: folder_at(parts, depth) for name, parts, *_ in own}
        if depth == LAST:
            stems = {name: stem.rpartition('/')[2] for name, _, stem, _ in own}
        else:
            stems = {name: without_folder(stem, depth if folders[name] else None) for name, _, stem, _ in own}
        suffixes = suffixes_of_folders(own, folders, stems) if has_affixes else {}
        stems |= {name: stems[name].removesuffix(suffix) for name, suffix in suffixes.items()}
        found = _find_at(own, depth, folders, stems, owners, suffixes, has_affixes=has_affixes)
        candidates += found
        if found and not has_affixes and len(found[0].parts) == len(names):
            break
    # Each file that is left out counts as a datapoint.
    return min(candidates, key=lambda each: each.datapoints + len(names) - len(each.parts), default=None)


def _find_at(
    paths: list[Path],
    depth: int | None,
    folders: Mapping[str, str],
    stems: Mapping[str, str],
    owners: Mapping[str, str],
    suffixes: Mapping[str, str],
    *,
    has_affixes: bool,
) -> list[FoundFields]:
    """Finds the fields that folders at a position of the paths tell, or only affixes, if it is None.

    Args:
        paths: The files.
        depth: The position.
        folders: The folder of each file.
        stems: The path of each file without the folder, the suffix and the extension.
        owners: The media file that some files describe.
        suffixes: The suffix of files whose folder tells it.
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
        parts[name] = FileParts(key, folders[name], affix + suffixes.get(name, ''), extension)
    if depth is None:
        has_fields = bool(owners) or any(each.affix for each in parts.values())
        return [FoundFields(None, _without_folders_of_keys(parts))] if has_fields else []
    files: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for each in parts.values():
        files[each.folder][each.key].add((each.extension, each.affix))
    complete = {
        folder
        for pair in itertools.combinations(files.items(), 2)
        if complete_each_other(*pair)
        for folder, _ in pair
    }
    if not complete and are_twins(files):
        complete = set(files)
    if not complete:
        return []
    if any(each.affix for each in parts.values()) and any(
        are_alike(files[one], files[other]) for one, other in itertools.combinations(sorted(complete), 2)
    ):
        return []  # Splits, such as train and val beside train_masks and val_masks.
    return [FoundFields(depth, {name: each for name, each in parts.items() if each.folder in complete})]


def _without_folders_of_keys(parts: dict[str, FileParts]) -> dict[str, FileParts]:
    """Shortens keys to the folders of the datapoints, if all have files called after their folder.

    E.g. `case` for `case/case_flair.nii.gz` and `case/case_seg.nii.gz`, instead of `case/case`.
    """
    if not all(is_after_folder(each.key) for each in parts.values()):
        return parts
    return {name: each._replace(key=each.key.rpartition('/')[0]) for name, each in parts.items()}


def _owners(paths: list[Path]) -> dict[str, str]:
    """Returns the media file that is described by each file with its whole name: `x.jpg` for `x.jpg.json`."""
    media = {name for name, _, _, extension in paths if type_of(extension) in MEDIA}
    return {
        name: stem
        for name, _, _, extension in paths
        if (stem := split_name(name)[0]) in media and type_of(extension) not in MEDIA
    }


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
    """Returns the field of each file: the folder, the affix, or the extension.

    It is the folder if no datapoint has files with several affixes in it.
    """
    affixes: dict[tuple[str, str], set[str]] = defaultdict(set)
    extensions: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, parts in found.parts.items():
        affixes[parts.folder, parts.key].add(parts.affix)
        extensions[parts.folder, parts.affix][parts.key].append(name)
    with_affixes = {folder for (folder, _), each in affixes.items() if len(each) > 1}
    plain: dict[tuple[str, str], str] = {}
    for folder, affix in extensions:
        text = affix.strip('_.-')
        if text.isdecimal():  # The channel of nnU-Net.
            text = '_'.join(filter(None, (folder, text)))
        plain[folder, affix] = folder if folder and folder not in with_affixes else text or folder
    many = [name.lower() for _, name in {(folder, name) for (folder, _), name in plain.items()}]
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
