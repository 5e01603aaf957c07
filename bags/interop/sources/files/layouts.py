"""Layouts of a folder: which of its files form a datapoint. Names of files alone, no I/O.

files      each file is a datapoint
stems      files that differ only in their extension are a datapoint: `x.jpg`, `x.txt`, `x.json`
classes    like stems, with a folder for each class; the folder name becomes the field `label`
episodes   each folder is a datapoint; its numbered files are sequences
fields     files of one name in several folders are a datapoint: `audio/x.flac`, `text/x.txt`; or files whose
           names differ in a prefix or suffix: `x.jpg`, `x_mask.png`
coco       like stems, each photo with the boxes and labels of a JSON file of COCO
yolo       like fields, with the boxes and labels of `labels/x.txt` for the photo `images/x.jpg`
tables     like stems, with the columns of a table that names the files
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from bags.errors import SourceError
from bags.interop.exported import are_classes
from bags.interop.file_extensions import field_of, media_type, split_name, type_of
from bags.interop.ignored_files import MEDIA, METADATA_TABLES
from bags.interop.sources.files.fields import FileGroup, add_file, group_fields
from bags.interop.sources.files.folders_of_fields import without_folder
from bags.interop.sources.files.words import WORD_OF_EPISODE

LAYOUTS = {
    'files': 'each file is a datapoint',
    'stems': 'files that differ only in their extension are a datapoint',
    'classes': 'a folder for each class',
    'fields': 'a folder, prefix or suffix for each field',
    'coco': 'photos with boxes of COCO',
    'yolo': 'photos with boxes of YOLO',
    'tables': 'files with the columns of tables that name them',
    'episodes': 'a folder for each episode',
}
_OF_TARS = {
    'webdataset': 'files that follow each other in a tar, and differ only after a dot, are a datapoint'
}
"""Each layout, and what it takes the files for."""

_NUMBERED = re.compile(r'(.*?)([0-9]+)', re.DOTALL)
_IMAGES, _LABELS = ('images', 'jpegimages'), 'labels'
"""Folders of YOLO in lower case: photos are in the former, their label files in the latter beside it."""
LABEL_FIELD = 'txt'
"""The field of the label files of YOLO."""
MAX_BESIDE = 16
"""Number of files beside containers, or folders of classes, that are not taken for datapoints themselves."""
MAX_SHARED_NUMBERS = 0.1
"""Share of the numbers of files in folders of classes that are in several folders."""


def find_layout(names: list[str]) -> str:
    """Infers the layout of a folder from the paths of its files.

    Folders of numbered files are episodes if the folder names are numbers or end with a number (`ep_12`),
    if most folders have a series of the same name, and classes otherwise. Folders whose names are numbers are
    also classes if the numbers of their files are unrelated, as in `0/1.png`, `7/2.png`, `0/5.png`. Files
    that have the same names as others in their folder, such as a recording and its transcript, are not frames
    of an episode, unless the folder is called one and they are not sounds.
    """
    folders = {name.partition('/')[0] for name in names if '/' in name}
    if len(folders) > 1 and all('/' in name for name in names):
        if are_classes(folders):
            return 'classes' if all(name.count('/') == 1 for name in names) else 'stems'
        runs: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        for name in names:
            folder, _, rest = name.partition('/')
            prefix, number, extension = _split_numbered(rest)
            if number:
                runs[folder, prefix, extension].add(int(number))
        has_run = {folder for (folder, _, _), numbers in runs.items() if len(numbers) > 1}
        shared = Counter((prefix, extension) for _, prefix, extension in runs)
        if has_run == folders and 2 * max(shared.values()) > len(folders) and not _has_pairs(names, folders):
            common = shared.most_common(1)[0][0]
            numbered = [numbers for (_, *run), numbers in runs.items() if tuple(run) == common]
            if all(map(WORD_OF_EPISODE.fullmatch, folders)) or not _are_unrelated(numbered):
                return 'episodes'
        if all(name.count('/') == 1 for name in names):
            return 'classes'
    return 'stems'


def _are_unrelated(numbered: list[set[int]]) -> bool:
    """Returns whether the numbers of files in several folders do not count the frames of each folder.

    Their ranges overlap, and either the folders share hardly any number, or the steps between numbers differ.
    """
    ranges = sorted((min(numbers), max(numbers)) for numbers in numbered)
    apart = sum(one[1] < other[0] for one, other in itertools.pairwise(ranges))
    if 2 * apart >= len(ranges) - 1:
        return False
    total, distinct = sum(map(len, numbered)), len(set[int]().union(*numbered))
    if total - distinct <= MAX_SHARED_NUMBERS * total:
        return True
    steps = [Counter(b - a for a, b in itertools.pairwise(sorted(numbers))) for numbers in numbered]
    irregular = sum(2 * max(each.values(), default=1) < each.total() for each in steps)
    return 2 * irregular > len(numbered)


def without_strays(names: list[str]) -> list[str]:
    """Leaves out a few files beside folders of classes or episodes with media.

    They are texts, if there are none in the folders, and fewer other files than there are folders.
    """
    inside = [name for name in names if '/' in name]
    beside = [name for name in names if '/' not in name and name not in METADATA_TABLES]
    if not (inside and 0 < len(beside) <= MAX_BESIDE):
        return names
    extensions = {split_name(name)[1] for name in inside}
    strays = [
        extension
        for extension in (split_name(name)[1] for name in beside)
        if type_of(extension) in MEDIA or extension in extensions
    ]
    if (
        len(strays) < len({name.partition('/')[0] for name in inside})
        and any(type_of(extension) in MEDIA for extension in extensions)
        and find_layout(inside) in ('classes', 'episodes')
    ):
        return sorted(set(names) - set(beside))
    return names


def _has_pairs(names: list[str], folders: Iterable[str]) -> bool:
    """Returns whether most files have the same stem as another one, and are not frames of an episode."""
    extensions: dict[str, set[str]] = defaultdict(set)
    for name in names:
        stem, extension = split_name(name)
        extensions[stem].add(extension)
    pairs = [found for found in extensions.values() if len(found) > 1]
    if 2 * len(pairs) <= len(extensions):
        return False
    has_sounds = any(type_of(extension) == 'audio' for extension in set().union(*pairs))
    return has_sounds or not all(map(WORD_OF_EPISODE.fullmatch, folders))


def describe(layout: str, count: int) -> str:
    """Returns what a layout takes files for, with the number of datapoints."""
    datapoints = f'{count:,} datapoint{"s" * (count != 1)}'
    about = LAYOUTS.get(layout) or _OF_TARS.get(layout)
    return f'{datapoints}, {about}' if about else datapoints


def label_files(names: Collection[str]) -> dict[str, str]:
    """Returns the label file of YOLO for each photo that has one.

    It is the text in the folder `labels` beside the folder `images` of the photo, in any case, or else beside
    the photo.
    """
    texts = {split_name(name)[0]: name for name in names if split_name(name)[1] == 'txt'}
    lowered = {_with_lower_labels(stem): name for stem, name in texts.items()}
    files: dict[str, str] = {}
    for name in names:
        stem, extension = split_name(name)
        if media_type(extension) == 'image':
            where = _images_folder(stem)
            parts = stem.split('/')
            beside = stem if where is None else '/'.join((*parts[:where], _LABELS, *parts[where + 1 :]))
            if label := texts.get(beside) or lowered.get(_with_lower_labels(beside)) or texts.get(stem):
                files[name] = label
    return files


def _with_lower_labels(stem: str) -> str:
    """Returns a path with its folders `Labels` in lower case."""
    return '/'.join(_LABELS if part.lower() == _LABELS else part for part in stem.split('/'))


def _images_folder(stem: str) -> int | None:
    """Returns the position of the last folder `images` in a path."""
    parts = stem.split('/')[:-1]
    return max((place for place, part in enumerate(parts) if part.lower() in _IMAGES), default=None)


def group_photos(names: Iterable[str], labels: Mapping[str, str] | None = None) -> list[FileGroup]:
    """Groups photos with the files of the same stem; other files are left out.

    Args:
        names: The files.
        labels: For YOLO, the label file of each photo that has one. Keys are then without `images`.
    """
    names = sorted(names)
    own = set(labels.values()) if labels else set[str]()
    stems = {split_name(name)[0] for name in names if media_type(split_name(name)[1]) == 'image'}
    groups: dict[str, dict[str, str | list[str]]] = {}
    for name in names:
        stem, extension = split_name(name)
        if stem in stems and name not in own and not (labels is not None and extension == LABEL_FIELD):
            key = stem if labels is None else without_folder(stem, _images_folder(stem))
            fields = groups.setdefault(key, {})
            add_file(fields, field_of(extension), name)
            if labels is not None and (label := labels.get(name)):
                fields[LABEL_FIELD] = label
    return sorted(groups.items())


def group(names: Iterable[str], layout: str) -> list[FileGroup]:
    """Groups files into datapoints, sorted by key."""
    if layout == 'episodes':
        return _episodes(sorted(names))
    if layout == 'fields':
        return group_fields(names)[0]
    groups: dict[str, dict[str, str | list[str]]] = {}
    for name in sorted(names):
        stem, extension = split_name(name)
        if layout == 'classes' and '/' not in name:
            raise SourceError(name, 'expected a folder for each class, got a file outside of any')
        key = name if layout == 'files' else stem
        add_file(groups.setdefault(key, {}), field_of(extension), name)
    return sorted(groups.items())


def _split_numbered(name: str) -> tuple[str, str, str]:
    """Splits a file name into the part before its number, the number, and the extension."""
    stem, extension = split_name(name)
    match = _NUMBERED.fullmatch(stem)
    return (match[1], match[2], extension) if match else (stem, '', extension)


def _episodes(names: list[str]) -> list[FileGroup]:
    episodes: dict[str, dict[tuple[str, str, bool], list[tuple[int, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name in names:
        folder, slash, rest = name.partition('/')
        if not slash:
            raise SourceError(name, 'expected a folder for each episode, got a file outside of any')
        prefix, number, extension = _split_numbered(rest)
        episodes[folder][prefix, extension, bool(number)].append((int(number or 0), name))
    groups = {group for episode in episodes.values() for group in episode}
    fields = _fields(groups)
    return [
        (
            folder,
            {
                fields[group]: [name for _, name in sorted(files)] if group[2] else files[0][1]
                for group, files in episode.items()
            },
        )
        for folder, episode in sorted(episodes.items())
    ]


def _fields(groups: set[tuple[str, str, bool]]) -> dict[tuple[str, str, bool], str]:
    """Names the fields of episodes after the subfolder, the part before the number, or the extension."""
    names = {}
    for prefix, extension, numbered in groups:
        folder, _, rest = prefix.strip('/').rpartition('/')
        plain = '_'.join(filter(None, (folder.replace('/', '_'), rest.strip(' _-.'))))
        names[prefix, extension, numbered] = field_of(plain) if plain else field_of(extension)
    many = Counter(name.lower() for name in names.values())
    for group, name in names.items():
        if many[name.lower()] > 1:
            names[group] = f'{name}.{field_of(group[1])}'
    again = Counter(name.lower() for name in names.values())
    for group, name in names.items():
        if again[name.lower()] > 1:
            raise SourceError(f'{group[0]}….{group[1]}', f'two groups of files would both be field {name!r}')
    return names
