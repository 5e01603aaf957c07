"""Sources of files: the common part of folders and tars, their spec, and checks of file contents."""

from __future__ import annotations

import abc
import io
import json
import math
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, cast

import numpy as np

from bags.dataset.format.registry import encoders
from bags.dataset.format.spec import FieldType, parse_type
from bags.errors import SourceError
from bags.formats.audio import find_samples
from bags.formats.encoded import check_format
from bags.formats.signatures import FORMAT_OF_TYPE, IMAGES, SIGNATURE_BYTES, check_end, check_whole, identify
from bags.formats.trees import check_json, decode_msgpack
from bags.interop.exported import ExportedFields, is_one_array
from bags.interop.file_extensions import KEY, WRITTEN_EXTENSIONS, fields_of_media, type_of
from bags.interop.formats import format_of_extension
from bags.interop.source import RECORD_ENCODERS, Source
from bags.links.link import Link
from bags.links.sources import LinkOpener, OpenedLink
from bags.media.encoders import AUDIO_FILE_FORMATS, VIDEO_FILE_FORMATS
from bags.storage.base import A_LFS_POINTER, SeekableFile, is_lfs_pointer
from bags.storage.range_file import BufferFile

F = TypeVar('F')
NOT_BY_EXTENSION = ('episodes', 'fields')
"""Layouts whose fields are named after folders or files, not after extensions."""
WITHOUT_NAMES = (*NOT_BY_EXTENSION, 'yolo')
"""Layouts whose keys do not tell the names of files, so that an export cannot restore them."""


class JsonText(str):
    """The JSON text of a value in a table."""

    __slots__ = ()

    def as_format(self, type_format: str) -> str:
        """Returns the text to parse as a type: the characters of a string, but for `json` the JSON text."""
        return str(json.loads(self)) if type_format != 'json' and self.startswith('"') else self


class FileEntry(NamedTuple, Generic[F]):
    """The files of a datapoint. `F` is the location of a file: a path, or a range of a tar."""

    origin: str
    """The folder or tar."""
    key: str
    files: dict[str, F | list[F]]
    """The file of each field that has one, or the files of a sequence."""
    columns: dict[str, str]
    """The text of each field that is a column of a table, or a label."""
    extensions: dict[str, str]
    """The original extension of each field for which an export would write another one."""

    @property
    def field_set(self) -> FieldSet:
        return frozenset(self.files), frozenset(self.columns), bool(self.extensions)


FieldSet = tuple[frozenset[str], frozenset[str], bool]
"""The fields of files and of columns that a datapoint has, and whether it has `extensions`."""


class FileSource(Source[FileEntry[F]]):
    """Files that become records byte for byte. The field `KEY` holds their names.

    With `exported`, the fields are the ones in the metadata of an export.
    """

    def __init__(self, format: str, layout: str, exported: ExportedFields | None = None) -> None:
        super().__init__(format, {}, 0)
        self.layout = layout
        self.encoders = RECORD_ENCODERS
        self.exported = exported
        self.key_field = KEY
        if exported is not None:
            self.key_field = exported.key
            self.spec = {field: field_type.text for field, field_type in exported.schema.items()}
            # Files of types that the author defined are the records.
            own = {field_type.format for field_type in exported.schema.values()} - encoders.keys()
            self.encoders = RECORD_ENCODERS | dict.fromkeys(own, lambda value, *_args: value)
        self.rename: Callable[[str], str] = str
        """Maps the field named after an extension to the field in the dataset."""

    def infer(self, field_sets: Counter[FieldSet], types: Mapping[str, str]) -> None:
        """Sets spec and count.

        Args:
            field_sets: The number of datapoints with each set of fields.
            types: Types of fields whose names do not tell them.
        """
        self.count = field_sets.total()
        if self.layout not in NOT_BY_EXTENSION:
            self.rename = fields_of_media(files | columns for files, columns, _ in field_sets)
        present: Counter[str] = Counter()
        named: set[str] = set()
        in_tables: set[str] = set()
        for (files, columns, _), count in field_sets.items():
            present.update(dict.fromkeys([*map(self.rename, files), *columns], count))
            named |= files
            in_tables |= columns
        is_renamed = not present.keys() <= named | in_tables and self.layout not in WITHOUT_NAMES
        has_extensions = any(has for *_, has in field_sets) or is_renamed
        self.spec = {KEY: 'utf8', WRITTEN_EXTENSIONS: 'json?'} if has_extensions else {KEY: 'utf8'}
        for field, count in sorted(present.items(), key=lambda item: (item[0] in in_tables, item)):
            if field in (KEY, WRITTEN_EXTENSIONS):
                raise SourceError(f'*.{field}', 'expected another extension, this field is reserved')
            field_type = types.get(field, type_of(field)) if field in named | in_tables else field
            self.spec[field] = field_type + '?' * (count < self.count)
            if field_type == 'bytes' and field in named and field != 'data':
                if self.layout == 'fields':
                    self.notes.append(f'field {field!r} is stored as bytes; spec= sets another type')
                    continue
                format = format_of_extension(field)
                self.notes.append(
                    f'files *.{field} are stored as bytes: no type is known for this extension; '
                    f"spec={{{field!r}: 'video'}}, or another type, sets their type"
                    if format is None
                    else f'files *.{field} are stored as bytes; format={format!r} imports what they contain'
                )

    @abc.abstractmethod
    def entries(self, start: int = 0) -> Iterator[FileEntry[F]]:
        """Yields the files of each datapoint from `start` on, without the damaged ones."""

    def name(self, entry: FileEntry[F]) -> str:
        return str(entry.key).encode('utf-8', 'backslashreplace').decode()

    @abc.abstractmethod
    def read(self, entry: FileEntry[F], field: str, type_format: str) -> Any:
        """Returns the value for the file of a field, whose type is `type_format`."""

    @abc.abstractmethod
    def sizes(self, entry: FileEntry[F]) -> dict[str, int]:
        """Returns the bytes of the files of each field that has files, without reading them."""

    def linkable(self) -> dict[str, float | str]:
        own = (self.key_field, WRITTEN_EXTENSIONS)
        return self.measured(
            {
                name
                for name, text in self.spec.items()
                if name not in own and is_stored_as_is(parse_type(text))
            }
        )

    def load(self, entry: FileEntry[F], fields: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns the datapoint of an entry, or some fields of it, with undecoded values: bytes or str."""
        datapoint: dict[str, Any] = {}
        for field in self.spec if fields is None else fields:
            field_type = parse_type(self.spec[field])
            if field == self.key_field:
                if field_type.format == 'utf8':
                    datapoint[field] = entry.key
                else:
                    name, key = f'{entry.origin}: {entry.key}', entry.key.encode('utf-8', 'surrogatepass')
                    datapoint[field] = checked_value(name, field_type.format, key)
            elif self.exported is not None:
                if field in entry.files:
                    is_array = field_type.sequence and is_one_array(self.exported.schema[field])
                    datapoint[field] = self.read(entry, field, 'array' if is_array else field_type.format)
                elif field_type.sequence and not field_type.optional:
                    datapoint[field] = []
            elif field == WRITTEN_EXTENSIONS:
                datapoint[field] = json.dumps(entry.extensions).encode() if entry.extensions else None
            elif field in entry.columns and field_type.sequence:
                datapoint[field] = json.loads(entry.columns[field])
            elif field in entry.columns:
                name = f'{entry.origin}: {entry.key}, column {field!r}'
                text = entry.columns[field]
                text = text.as_format(field_type.format) if isinstance(text, JsonText) else text
                column = text.encode('utf-8', 'surrogatepass')
                datapoint[field] = checked_value(name, field_type.format, column)
            elif field in entry.files:
                datapoint[field] = self.read(entry, field, field_type.format)
        return datapoint


def group_exported(exported: ExportedFields, files: Iterable[tuple[str, F]]) -> dict[str, F | list[F]]:
    """Groups the files of a datapoint by field; files of a sequence are in order.

    Args:
        exported: The fields.
        files: The part of each file name after the key, and the location of the file in the source.

    Raises:
        ValueError: A file does not belong to a field, a field has two files, or the file of an item is
            missing.
    """
    groups: dict[str, dict[int | None, F]] = {}
    for name, content in files:
        field, item = exported.find(name)
        items = groups.setdefault(field, {})
        if item in items:
            raise ValueError(f'expected one file of {name!r:.80} for a datapoint, got two')
        items[item] = content
    for field, items in groups.items():
        if None not in items and set(items) != set(range(len(items))):
            raise ValueError(f'field {field!r}: expected items 0 to {len(items) - 1}, got others')
    return {
        field: items[None] if None in items else [items[item] for item in range(len(items))]
        for field, items in groups.items()
    }


def check_columns(name: str, field_sets: Iterable[FieldSet]) -> None:
    """Raises SourceError if a column of the table `name` is also a field of files."""
    files, columns = (set().union(*parts) for parts in list(zip(*field_sets, strict=True))[:2] or ((), ()))
    for field in sorted(files & columns):
        raise SourceError(name, f'column {field!r} has the name of a field of files')


def is_transport_stream(extension: str, read: Callable[[], bytes]) -> bool:
    """Returns whether a file `.ts` is MPEG-TS, not TypeScript; `read` returns its first bytes."""
    return extension == 'ts' and identify(read()) in ('MPEG-TS', 'M2TS')


MAX_PARSES = 10
"""Number of attempts to parse the header of a .npy file if Python's parser raises SystemError."""
MEDIA_FORMATS = {type_format: (name,) for type_format, name in FORMAT_OF_TYPE.items()} | {
    'video': VIDEO_FILE_FORMATS,
    'audio': AUDIO_FILE_FORMATS,
    'image': IMAGES,
}
"""The file formats of the records of a type, by the format of the type."""
_NUMBERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(('int', 'uint', 'i64', 'u64'), int),
    'float': float,
    'bool': lambda text: {'0': False, '1': True, 'false': False, 'true': True}[text.lower()],
}


def checked_value(name: str, type_format: str, data: Any) -> Any:
    """Returns the value to append for the content of the file `name`, after a check of its structure.

    It is the content, as bytes or a memory map; or the number, text or array that was parsed from it.
    """
    try:
        _check_no_lfs_pointer(data)
        if type_format in MEDIA_FORMATS:
            _check_media(type_format, data)
        elif type_format == 'utf8':
            return _text(data)
        elif type_format == 'json':
            check_json(_text(data))
        elif type_format == 'msgpack':
            decode_msgpack(data)
        elif type_format in _NUMBERS:
            return _NUMBERS[type_format](str(data, 'utf-8').strip())
        elif type_format == 'array':
            return _array(data)
    except (ValueError, KeyError, EOFError, RecursionError) as exc:
        detail = f'{type(exc).__name__}: {exc}' if isinstance(exc, KeyError) else str(exc)
        raise SourceError(name, detail) from exc
    return data


def is_stored_as_is(field_type: FieldType) -> bool:
    """Returns whether an import stores files of a type as records, byte for byte."""
    if field_type.format in ('video', 'audio'):
        return not field_type.args  # With an argument, they are remuxed to another container.
    return field_type.format not in (*_NUMBERS, 'array')


def open_unchanged(opener: LinkOpener, path: str, size: int | None) -> OpenedLink:
    """Returns a link to a whole file, in which records were located when it had `size` bytes.

    Raises:
        SourceError: The file has another size now, or cannot be opened.
    """
    try:
        link = opener.open(Link(path))
    except (OSError, ValueError) as exc:
        raise SourceError(path, f'cannot be linked: {exc}') from exc
    if len(link) != size:
        detail = f'expected {size} bytes, got {len(link)}: it has changed since it was opened'
        raise SourceError(path, detail)
    return link


def checked_link(name: str, type_format: str, link: OpenedLink, format: str = '') -> OpenedLink:
    """Returns a link to the content of the file `name`, after a check of its format.

    If `format` is empty, the first bytes determine it. The boxes of MP4 files are checked as well, as a video
    without its sample table cannot be decoded.
    """
    try:
        if type_format in MEDIA_FORMATS:
            media_format = format or identify(bytes(link[:SIGNATURE_BYTES]))
            check_format(media_format, MEDIA_FORMATS[type_format])
            if media_format in ('MP4', 'QuickTime'):
                check_end(link, media_format)
        else:
            _check_no_lfs_pointer(link)
    except (ValueError, EOFError) as exc:
        raise SourceError(name, str(exc)) from exc
    return link


def _check_no_lfs_pointer(data: Any) -> None:
    """Raises ValueError for the text that Git LFS stores instead of a large file."""
    if is_lfs_pointer(data):
        raise ValueError(f'expected the file, got {A_LFS_POINTER}')


def read_npy_header(file: SeekableFile, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Returns shape, order and dtype of a .npy file of `size` bytes; the elements follow.

    `np.load` allocates the size in the header before it checks the number of bytes.

    Raises:
        ValueError: The header is damaged, or contradicts the size.
    """
    begin = file.tell()
    for attempt in range(MAX_PARSES):
        try:
            is_first = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
            break
        except SystemError:  # In CPython 3.11, if another thread parses meanwhile (gh-106905).
            if attempt == MAX_PARSES - 1:
                raise
            file.seek(begin)
        except (SyntaxError, tokenize.TokenError, RecursionError, TypeError, OverflowError) as exc:
            raise ValueError(f'expected the header of a .npy file: {exc}') from exc
    if any(length < 0 for length in shape):
        raise ValueError(f'expected a shape, got {shape}')
    expected, actual = math.prod(shape) * dtype.itemsize, size - file.tell()
    if expected != actual and not dtype.hasobject:
        raise ValueError(f'expected {expected} bytes for shape {shape}, got {actual}')
    return shape, is_fortran, dtype


def _array(data: bytes) -> Any:
    try:
        file = io.BytesIO(data)
        shape, is_fortran, dtype = read_npy_header(file, len(data))
        if dtype.hasobject:
            raise ValueError(f'its elements are pickled: {dtype}')
        elements = memoryview(data)[file.tell() :]
        array = np.frombuffer(elements, dtype)
        return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    except Exception as exc:  # A damaged header also raises errors of Python's parser.
        raise ValueError(f'expected a .npy file: {exc}') from exc


def _text(data: bytes) -> str:
    try:
        return str(data, 'utf-8')
    except UnicodeDecodeError as exc:
        raise ValueError(f"{exc}; a field of type 'bytes' can store it") from exc


def _check_media(type_format: str, data: Any) -> None:
    media_format = identify(data)
    check_format(media_format, MEDIA_FORMATS[type_format])
    check_whole(data, media_format)
    check_end(data, media_format)  # The only check of a JPEG.
    if media_format == 'WAV':
        find_samples(cast(BinaryIO, BufferFile(data)))
