"""Names of exported files: from a field to file names, and from a file name to the field and item.

If file names do not determine the fields and their types, or an import would ignore files because of their
names, `metadata.json` has an entry `EXPORT`: the spec, and the field that names the files, if any.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from bags.dataset.format.metadata import Metadata
from bags.dataset.format.spec import FieldType, Schema, parse_spec
from bags.errors import SourceError, SpecError
from bags.interop.file_extensions import (
    IMAGE_TYPES,
    JOINED,
    KEY,
    LABELS,
    WRITTEN_EXTENSIONS,
    extension_of,
    field_of,
    split_key,
    type_of,
)

EXPORT = '__export__'
NUMBERS = ('int', 'uint', 'float', 'bool', 'i64', 'u64')
EPISODE = re.compile(
    r'(?:.*[^a-z])?(?:ep|eps|episode|seq|sequence|clip|scene|video|vid|rec|recording|take|run|trial|traj'
    r'|trajectory|demo|session)?[^a-z]*[0-9]+',
    re.IGNORECASE,
)
"""Names of folders that may be episodes instead of classes."""


class FileNames(NamedTuple):
    """The part after the key in the names of the files of a field."""

    stem: str
    suffix: str = ''
    """The part after the number of an item."""
    is_numbered: bool = False
    """Whether each item has a file."""
    is_media: bool = False
    """Whether an extension follows, which depends on the format of the content."""

    @property
    def pattern(self) -> str:
        """A regular expression with a group for the number."""
        number = r'\.([0-9]{6,})' if self.is_numbered else '()'
        media = r'(?:\.[a-z0-9]+)?' if self.is_media else ''
        return re.escape(self.stem or 'data') + number + re.escape(self.suffix) + media


def is_one_array(field_type: FieldType) -> bool:
    """Returns whether a sequence becomes one array (n, *shape), as its items have a fixed size."""
    return field_type.format in NUMBERS or (
        field_type.format == 'array' and bool(field_type.args) and '?' not in field_type.args
    )


def names_of(field: str, field_type: FieldType) -> FileNames:
    """Returns the file names of a field: `photo.jpg`, `frames.000003.jpg`."""
    is_array = field_type.sequence and is_one_array(field_type)
    name = extension_of(field, 'array' if is_array else field_type.format)
    # The format of these types depends on the content, unless the field is named after a format.
    named = (field_type.format, *IMAGE_TYPES) if field_type.format == 'image' else (field_type.format,)
    is_media = field_type.format in ('image', 'video', 'audio') and type_of(name) not in named
    if not field_type.sequence or is_array:
        return FileNames(name, is_media=is_media)
    # `frames` of jpeg is frames.000003.jpg, and `jpg` jpg.000003.jpg.
    stem, _, extension = name.rpartition('.')
    if is_media or (type_of(extension) == 'bytes' and field_type.format != 'array'):
        return FileNames(name or field, '', True, is_media)
    return FileNames(stem or extension, f'.{extension}', True, is_media)


def names_tell_types(schema: Schema, fields: Collection[str]) -> bool:
    """Returns whether an import can infer these fields from file names, because an import named them."""
    return KEY in schema and all(_name_tells(field, schema[field], schema) for field in fields)


def _name_tells(field: str, field_type: FieldType, schema: Schema) -> bool:
    text = field_type.text.removesuffix('?')
    if field == text and text in JOINED:
        return WRITTEN_EXTENSIONS in schema  # Merged from fields of several formats.
    extension = extension_of(field, field_type.format)
    is_label = field in LABELS and text == 'int(8)'
    return field_of(extension) == field and (is_label or text == type_of(extension))


def are_classes(folders: Collection[str]) -> bool:
    """Returns whether folders are taken for classes by their names alone, whatever files they contain."""
    return len(folders) > 1 and not all(map(EPISODE.fullmatch, folders))


class ExportedFields:
    """The fields of an export.

    Args:
        schema: The types of the fields.
        key: The field that names the files; '' if there is none.
    """

    def __init__(self, schema: Schema, key: str) -> None:
        self.schema, self.key = schema, key
        names = {field: names_of(field, field_type) for field, field_type in schema.items() if field != key}
        # Fields of media last: `image.txt` is not the image of a field `image`.
        self._fields = sorted(names, key=lambda field: names[field].is_media)
        self._pattern = re.compile('|'.join(f'({names[field].pattern})' for field in self._fields))

    def find(self, name: str) -> tuple[str, int | None]:
        """Returns the field and the item of a file, given the part of its name after the key.

        Raises:
            ValueError: The file does not belong to a field.
        """
        match = self._pattern.fullmatch(name) if self._fields else None
        if match is None:
            raise ValueError(f'expected a file of {", ".join(self._fields)}, got {name!r:.80}')
        number = next(number for number in range(1, 2 * len(self._fields), 2) if match[number] is not None)
        return self._fields[number // 2], int(match[number + 1]) if match[number + 1] else None

    def has(self, name: str) -> bool:
        """Returns whether a file, given its whole name, belongs to a field."""
        return bool(self._fields) and self._pattern.fullmatch(split_key(name)[1]) is not None


def read_exported(metadata: Metadata, where: str) -> ExportedFields | None:
    """Removes the fields of an export from its metadata and returns them; None if it does not have them.

    Raises:
        SourceError: The entry of the metadata is damaged.
    """
    value: Any = metadata.pop(EXPORT, None)
    if value is None:
        return None
    try:
        schema, key = parse_spec(value['spec']), value['key']
        if key not in schema and key != '':
            raise ValueError(f'expected the name of a field or none, got {key!r:.80}')
    except (KeyError, TypeError, ValueError, SpecError) as exc:
        raise SourceError(where, f'{EXPORT}: expected a spec and a key: {exc}') from exc
    return ExportedFields(schema, key)
