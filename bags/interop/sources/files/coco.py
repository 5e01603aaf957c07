"""Annotations of COCO: JSON with the boxes, classes and captions of photos, as columns of these photos.

Each photo gets the fields

    boxes        x, y, width and height of each box in pixels, as in the JSON
    labels       the class of each box: its number in the list of the categories, in the order of their ids
    captions     the captions, if the JSON has any
    annotations  the annotations as they are, with ids, crowds, areas, segmentations and keypoints
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bags.errors import SourceError
from bags.interop.file_extensions import IMAGE_TYPES, split_name, type_of
from bags.interop.source import list_some
from bags.interop.sources.files.file_metadata import FileMetadata, FileNames

MAX_JSON_BYTES = 1 << 30
MAX_FILES = 16
"""Maximum number of JSON files that are looked at. Folders with more have one for each photo."""
_HEAD_BYTES = 1 << 10
_HEAD = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"(info|licenses|images|annotations|categories|type|year)"\s*:')
_NAME = re.compile(r'.*(coco|instances|annotation|captions|keypoints).*', re.IGNORECASE)

Head = Callable[[str, int | None], bytes]
"""Returns the first bytes of a file; all if the number is None."""


def find_coco(names: Collection[str], head: Head) -> list[str]:
    """Returns the JSON files beside photos that begin as annotations of COCO do."""
    files = [name for name in names if name.lower().endswith('.json')]
    photos = {split_name(name)[0] for name in names if files and is_photo(name)}
    files = [name for name in files if photos and split_name(name)[0] not in photos]
    if len(files) > MAX_FILES:
        files = [name for name in files if _NAME.fullmatch(name.rpartition('/')[2])][:MAX_FILES]
    return sorted(name for name in files if _HEAD.match(head(name, _HEAD_BYTES)))


def read_coco(root: str, files: Collection[str], names: Collection[str], head: Head) -> FileMetadata | None:
    """Reads the annotations of photos.

    Args:
        root: The folder, for errors.
        files: The JSON files.
        names: The files of the folder.
        head: Returns the content of a file.

    Returns:
        A row for each photo; None if no file has annotations of photos that are there.

    Raises:
        SourceError: An annotation is damaged, or belongs to no image.
    """
    photos = [name for name in names if is_photo(name)]
    found = _Annotations(root, photos)
    for file in sorted(files, key=lambda file: ('instances' not in file, file)):
        path = f'{root.rstrip("/")}/{file}'
        try:
            content = head(file, MAX_JSON_BYTES + 1)
            if len(content) > MAX_JSON_BYTES:
                raise SourceError(path, f'expected at most {MAX_JSON_BYTES} bytes')
            data = json.loads(content)
        except (ValueError, RecursionError) as exc:
            raise SourceError(path, f'cannot be read as JSON: {exc}') from exc
        if isinstance(data, dict) and isinstance(data.get('images'), list):
            found.add(path, file, data)
    return found.as_metadata() if found.has_annotations and found.listed else None


def is_photo(name: str) -> bool:
    """Returns whether a file has the extension of an image."""
    return type_of(split_name(name)[1]) in IMAGE_TYPES


_Category = tuple[Any, str]
"""The id and the name of a category."""


class _Annotations:
    """The annotations of all JSON files, by photo."""

    def __init__(self, root: str, photos: list[str]) -> None:
        self._root, self._photos = root, photos
        self._names = FileNames(root, photos)
        self._by_photo: dict[str, dict[Any, tuple[dict[str, Any], _Category]]] = {}
        """The annotations of each photo, by their ids, and their categories."""
        self._categories: dict[_Category, None] = {}
        self._files: list[str] = []
        self._missing: list[str] = []
        """Names of images that are not there."""
        self.listed: set[str] = set()
        """The photos that the files list."""
        self.has_annotations = False

    def add(self, path: str, file: str, data: Mapping[str, Any]) -> None:
        """Adds the content of a JSON file."""
        names = {each.get('id'): str(each.get('name', '')) for each in _objects(path, data, 'categories')}
        self._categories |= dict.fromkeys(sorted(names.items(), key=lambda item: (str(type(item[0])), item)))
        images: dict[Any, str | None] = {}
        for image in _objects(path, data, 'images'):
            name = image.get('file_name')
            if not isinstance(name, str) or not isinstance(image.get('id'), int | str):
                raise SourceError(path, f"images: expected 'id' and 'file_name', got {image!r:.200}")
            images[image['id']] = photo = self._find(path, file, name)
            if photo is None:
                self._missing.append(name)
            else:
                self.listed.add(photo)
        self._files.append(file)
        self.has_annotations |= 'annotations' in data
        for number, annotation in enumerate(_objects(path, data, 'annotations')):
            key = annotation.get('id', f'{file}, {number}')
            where, image_id = f'{path}, annotation {key!r:.80}', annotation.get('image_id')
            if not isinstance(image_id, int | str) or image_id not in images:
                raise SourceError(
                    where, f'expected the id of one of its images as image_id, got {image_id!r:.80}'
                )
            if annotation.get('bbox'):
                _check(where, annotation, names)
            if (photo := images[image_id]) is not None:
                category = annotation.get('category_id')
                known = self._by_photo.setdefault(photo, {})
                key = str(key), 'caption' in annotation
                before, _ = known.get(key, ({}, None))  # Keypoints repeat the annotations of instances.
                known[key] = {**before, **annotation}, (category, names.get(category, ''))

    def _find(self, path: str, file: str, name: str) -> str | None:
        """Returns the photo of a name; of several ones, the one in a folder that the JSON is named after."""
        if (photo := self._names.find(name, file.rpartition('/')[0])) is not None:
            return photo
        found = self._names.find_all(name)
        words = re.split(r'[^A-Za-z0-9]+', file)
        named = [photo for photo in found if not set(words).isdisjoint(photo.split('/')[:-1])]
        if found and len(named) != 1:
            raise SourceError(
                path, f'image {name!r:.200}: expected one file of this name, got {list_some(found)}'
            )
        return named[0] if named else None

    def as_metadata(self) -> FileMetadata:
        """Returns the annotations as columns."""
        metadata = FileMetadata()
        metadata.tables = self._files
        classes = [*self._categories]
        numbers = {category: number for number, category in enumerate(classes)}
        metadata.types = {'boxes': 'array(float32,4)[]', 'labels': 'int(4)[]', 'annotations': 'json'}
        has_captions = False
        for photo in self._photos:
            annotations = [*self._by_photo.get(photo, {}).values()]
            boxes = [(each['bbox'], numbers[category]) for each, category in annotations if each.get('bbox')]
            captions = [str(each['caption']) for each, _ in annotations if 'caption' in each]
            has_captions |= bool(captions)
            metadata.rows[photo] = {
                'boxes': json.dumps([box for box, _ in boxes]),
                'labels': json.dumps([label for _, label in boxes]),
                'annotations': json.dumps([each for each, _ in annotations], ensure_ascii=False),
                'captions': json.dumps(captions),
            }
        if has_captions:
            metadata.types['captions'] = 'utf8[]'
        else:
            for row in metadata.rows.values():
                del row['captions']
        metadata.facts = {
            'boxes': {'format': 'xywh', 'labels': 'labels'},
            'labels': {'classes': [name for _, name in classes], 'category_ids': [key for key, _ in classes]},
        }
        if self._missing:
            metadata.notes.append(
                f'{self._root}: images of the JSON without a file: {list_some(self._missing)}'
            )
        if others := sorted(set(self._photos) - self.listed):
            metadata.notes.append(
                f'{self._root}: photos that no JSON lists have no boxes: {list_some(others)}'
            )
        return metadata


def _objects(path: str, data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    objects = data.get(name) or []
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        raise SourceError(path, f'{name}: expected a list of objects')
    return objects


def _check(where: str, annotation: Mapping[str, Any], names: Mapping[Any, str]) -> None:
    """Raises SourceError unless an annotation has a box of four numbers, and the id of a category."""
    box, category = annotation['bbox'], annotation.get('category_id')
    numbers = [each for each in box if isinstance(each, int | float)] if isinstance(box, list) else []
    if len(numbers) != 4 or numbers != box or not all(map(math.isfinite, numbers)):
        raise SourceError(where, f'expected x, y, width and height as bbox, got {box!r:.200}')
    if not isinstance(category, int | str) or category not in names:
        raise SourceError(
            where, f'expected the id of one of its categories as category_id, got {category!r:.80}'
        )
