"""Words in the names of files and folders that say what they contain: `masks`, `1_mask.png`. No I/O."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from bags.interop.exported import EPISODE
from bags.interop.formats import SPLITS

WORD_OF_EPISODE = re.compile(EPISODE.pattern.replace(')?[^a-z]*', ')[^a-z]*'), re.IGNORECASE)
_OF_FIELDS = {
    'annotation', 'annotations', 'audio', 'calib', 'caption', 'captions', 'color', 'colour', 'depth',
    'disp', 'disparity', 'flow', 'frame', 'frames', 'ground', 'groundtruth', 'gt', 'image', 'images', 'img',
    'imgs', 'input', 'inputs', 'jpegimages', 'json', 'keypoints', 'label', 'labels', 'landmarks',
    'left', 'lidar', 'mask', 'masks', 'meta', 'metadata', 'normal', 'normals', 'output', 'outputs',
    'photo', 'photos', 'picture', 'pictures', 'pose', 'poses', 'radar', 'rgb', 'right', 'segmentation',
    'segmentationclass', 'segmentationobject', 'segmentations', 'semantic', 'sound', 'sounds',
    'target', 'targets', 'text', 'texts', 'thermal', 'transcript', 'transcripts', 'txt', 'velodyne',
    'video', 'videos', 'wav', 'wavs', 'xml',
}  # fmt: skip
"""Words for what a folder holds, instead of for the class of its files."""
_OF_AFFIXES = _OF_FIELDS | {
    'alpha', 'anno', 'annot', 'bbox', 'boxes', 'cam', 'camera', 'colors', 'colours', 'edge', 'edges',
    'instance', 'instances', 'l', 'manual', 'matte', 'mic', 'panoptic', 'parsing', 'parts', 'polygons', 'r',
    'seg', 'skeleton', 'thumb', 'thumbnail', 'trimap',
}  # fmt: skip
"""Words for what a file contains, in its name."""
_OF_SCANS = {
    'adc', 'ct', 'dwi', 'flair', 'pet', 't1', 't1c', 't1ce', 't1gd', 't1n', 't1w', 't2', 't2f', 't2w',
}  # fmt: skip
"""Words for the scans of a case, such as the sequences of magnetic resonance imaging."""
_OPPOSITES = [
    {'blur', 'sharp'}, {'clean', 'noisy'}, {'clear', 'hazy'}, {'high', 'low'}, {'hq', 'lq'}, {'hr', 'lr'},
]  # fmt: skip
"""Folders with two forms of each picture or sound."""
_OF_ITEMS = {
    'audio', 'frame', 'frames', 'image', 'images', 'img', 'imgs', 'photo', 'photos', 'picture', 'pictures',
    'sound', 'sounds', 'text', 'texts', 'video', 'videos', 'wav', 'wavs',
}  # fmt: skip
"""Words that number items: `cam-frame0003` is a frame of many, `a_mic2` one of the microphones."""
_SPLITS = (*SPLITS, 'tr', 'ts')
_SPLIT_AT_END = re.compile(
    rf'(.+)[_.-]((?i:{"|".join(_SPLITS)}))|(.*[a-z])({"|".join(map(str.title, _SPLITS))})', re.DOTALL
)
"""The name of a folder with a split at its end: `images_train`, `imagesTr`."""
_SEPARATORS = re.compile('[_.-]')
_WORD = re.compile(r'[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+')
_DIGIT = re.compile('[0-9]')


def is_of_field(folder: str) -> bool:
    """Returns whether a folder is called after what its files are: `images`, `image_2`, `left-camera`."""
    name = folder.rpartition('/')[2].lower()
    word = re.split(r'[\W\d_]', name, maxsplit=1)[0]
    return word in _OF_FIELDS and WORD_OF_EPISODE.fullmatch(name) is None


def split_folder(folder: str, others: Collection[str]) -> tuple[str, str] | None:
    """Returns the folder whose name another one begins with, and the word after it: `train` and `masks`."""
    for other in others:
        word = folder[len(other) :].strip('_.-')
        if other and folder.startswith(other) and word.lower() in _OF_AFFIXES:
            return other, word
    return None


def are_opposites(folders: Collection[str]) -> bool:
    """Returns whether two folders are called after two forms of the same: `low` and `high`."""
    return {folder.lower() for folder in folders} in _OPPOSITES


def are_splits(folders: Iterable[str]) -> bool:
    """Returns whether all folders are called after splits of a dataset: `train` and `val`."""
    return all(folder.lower() in _SPLITS for folder in folders)


def folders_of_splits(inside: Mapping[str, Collection[str]]) -> dict[str, tuple[str, str]]:
    """Returns the folders of a field and a split, with both: `images` and `Tr` for `imagesTr`.

    These are folders beside others of another field and the same split.

    Args:
        inside: The names of the folders in each folder.
    """
    found: dict[str, tuple[str, str]] = {}
    for above, names in inside.items():
        fields: dict[str, set[str]] = defaultdict(set)
        parts: dict[str, tuple[str, str]] = {}
        for name in names:
            match = _SPLIT_AT_END.fullmatch(name)
            if match is not None and is_of_field(field := match[1] or match[3]):
                parts[name] = field, match[2] or match[4]
                fields[parts[name][1]].add(field)
        if any(len(each) > 1 for each in fields.values()):
            found |= {f'{above}/{name}'.lstrip('/'): each for name, each in parts.items()}
    return found


def is_word(affix: str) -> bool:
    """Returns whether an affix says what a file contains: `_mask`, `_gtFine_color`, `sync_depth_`."""
    text = affix.strip('_.-')
    if text.lower() in _OF_SCANS:
        return True
    words = _WORD.findall(text) if text[0].isalpha() else []
    if not words:
        return False
    word = words[0 if is_suffix(affix) else -1].lower()
    return word in _OF_AFFIXES and not (word in _OF_ITEMS and _DIGIT.search(text))


def is_suffix(affix: str) -> bool:
    """Returns whether an affix is at the end of names."""
    return _SEPARATORS.match(affix) is not None
