"""Annotations of COCO: JSON with the boxes, classes and captions of photos, as columns of these photos.

Each photo gets the fields

    boxes        x, y, width and height of each box in pixels, as in the JSON
    labels       the class of each box: its number in the list of the categories, in the order of their ids;
                 categories of several files are one class if they have the same name
    captions     the captions, if the JSON has any
    annotations  the annotations as they are, with ids, crowds, areas, segmentations and keypoints
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from bags.errors import SourceError
from bags.interop.file_extensions import IMAGE_TYPES, split_name, type_of
from bags.interop.source import list_some
from bags.interop.sources.files.file_metadata import FileMetadata, FileNames

MAX_JSON_BYTES = 1 << 30
MAX_FILES = 16
"""Maximum number of JSON files that are looked at. Folders with more have one for each photo."""
MAX_PIXEL = 2.0**64
"""Maximum of the numbers of a box, which are far from what a float32 holds."""
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
        if _is_coco(data):
            found.add(path, file, data)
    return found.as_metadata() if found.has_annotations and found.listed else None


def is_photo(name: str) -> bool:
    """Returns whether a file has the extension of an image."""
    return type_of(split_name(name)[1]) in IMAGE_TYPES


_Category = tuple[Any, str]
"""The id and the name of a category."""


class _Annotation(NamedTuple):
    """An annotation of a photo."""

    files: tuple[str, ...]
    """The JSON files that have it."""
    content: dict[str, Any]
    category: _Category | None

    def is_same(self, other: _Annotation) -> bool:
        """Returns whether two annotations of one id, of several files, do not contradict each other."""
        shared = self.content.keys() & other.content.keys() & {'bbox', 'caption'}
        one, two = self.category, other.category
        return (
            not set(self.files) & set(other.files)
            and (one is None or two is None or one == two)
            and all(self.content[name] == other.content[name] for name in shared)
        )

    def merge(self, other: _Annotation) -> _Annotation:
        """Returns an annotation with the members of two."""
        files, content = self.files + other.files, {**self.content, **other.content}
        return _Annotation(files, content, self.category or other.category)


class _Annotations:
    """The annotations of all JSON files, by photo."""

    def __init__(self, root: str, photos: list[str]) -> None:
        self._root, self._photos = root, photos
        self._names = FileNames(root, photos)
        self._by_photo: dict[str, dict[tuple[str, bool], list[_Annotation]]] = {}
        """The annotations of each photo, by their ids, and whether they are captions."""
        self._categories: dict[_Category, None] = {}
        self._files: list[str] = []
        self._missing: list[str] = []
        """Names of images that are not there."""
        self.listed: set[str] = set()
        """The photos that the files list."""
        self.has_annotations = False

    def add(self, path: str, file: str, data: Mapping[str, Any]) -> None:
        """Adds the content of a JSON file."""
        categories = self._add_categories(path, data)
        images: dict[Any, str | None] = {}
        for image in _objects(path, data, 'images'):
            name = image.get('file_name')
            if not isinstance(name, str) or not isinstance(image.get('id'), int | str):
                raise SourceError(path, f"images: expected 'id' and 'file_name', got {image!r:.200}")
            photo = self._find(path, file, name)
            if images.setdefault(image['id'], photo) != photo:
                raise SourceError(
                    path, f"images: expected another 'id' for {name!r:.200}, {image['id']!r:.80} is taken"
                )
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
                _check(where, annotation, categories)
            if (photo := images[image_id]) is not None:
                category = annotation.get('category_id')
                is_known = isinstance(category, int | str) and category in categories
                added = _Annotation((file,), annotation, categories[category] if is_known else None)
                by_id = self._by_photo.setdefault(photo, {})
                known = by_id.setdefault((str(key), 'caption' in annotation), [])
                for place, each in enumerate(known):
                    if each.is_same(added):  # Keypoints repeat the annotations of instances.
                        known[place] = each.merge(added)
                        break
                else:
                    known.append(added)

    def _add_categories(self, path: str, data: Mapping[str, Any]) -> dict[Any, _Category]:
        """Returns the category of each id in a JSON file; one of other files if it has the same name."""
        names: dict[Any, str] = {}
        for each in _objects(path, data, 'categories'):
            if not isinstance(each.get('id'), int | str):
                raise SourceError(path, f"categories: expected a number or a text as 'id', got {each!r:.200}")
            names[each['id']] = str(each.get('name', ''))
        of_name: dict[str, list[_Category]] = defaultdict(list)
        for category in self._categories:
            of_name[category[1]].append(category)
        many, categories = Counter(names.values()), dict[Any, _Category]()
        for number, name in sorted(names.items(), key=lambda item: (str(type(item[0])), item)):
            others = of_name[name] if name and many[name] == 1 else []
            is_known = (number, name) in self._categories or len(others) != 1
            categories[number] = category = (number, name) if is_known else others[0]
            self._categories[category] = None
        return categories

    def _find(self, path: str, file: str, name: str) -> str | None:
        """Returns the photo of a name; None if there is none."""
        if (photo := self._names.find(name, file)) is not None:
            return photo
        if found := self._names.find_all(name):
            detail = f'image {name!r:.200}: expected one file of this name, got {list_some(found)}'
            raise SourceError(path, detail)
        return None

    def as_metadata(self) -> FileMetadata:
        """Returns the annotations as columns."""
        metadata = FileMetadata()
        metadata.tables = self._files
        classes = [*self._categories]
        numbers = {category: number for number, category in enumerate(classes)}
        metadata.types = {'boxes': 'array(float32,4)[]', 'labels': 'int(4)[]', 'annotations': 'json'}
        has_captions = False
        for photo in self._photos:
            annotations = [each for known in self._by_photo.get(photo, {}).values() for each in known]
            boxes = [
                (each.content['bbox'], numbers[each.category])
                for each in annotations
                if each.content.get('bbox') and each.category
            ]
            captions = [str(each.content['caption']) for each in annotations if 'caption' in each.content]
            has_captions |= bool(captions)
            metadata.rows[photo] = {
                'boxes': json.dumps([box for box, _ in boxes]),
                'labels': json.dumps([label for _, label in boxes]),
                'annotations': json.dumps([each.content for each in annotations], ensure_ascii=False),
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


def _is_coco(data: Any) -> bool:
    """Returns whether JSON lists images by their file names, or has none."""
    images = data.get('images') if isinstance(data, dict) else None
    return isinstance(images, list) and (
        not images or any(isinstance(each, dict) and 'file_name' in each for each in images)
    )


def _objects(path: str, data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    objects = data.get(name) or []
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        raise SourceError(path, f'{name}: expected a list of objects')
    return objects


def _check(where: str, annotation: Mapping[str, Any], categories: Collection[Any]) -> None:
    """Raises SourceError unless an annotation has a box of four numbers, and the id of a category."""
    box, category = annotation['bbox'], annotation.get('category_id')
    numbers = [each for each in box if isinstance(each, int | float)] if isinstance(box, list) else []
    if len(numbers) != 4 or numbers != box or not all(-MAX_PIXEL <= each <= MAX_PIXEL for each in numbers):
        raise SourceError(where, f'expected x, y, width and height as bbox, got {box!r:.200}')
    if not isinstance(category, int | str) or category not in categories:
        raise SourceError(
            where, f'expected the id of one of its categories as category_id, got {category!r:.80}'
        )
