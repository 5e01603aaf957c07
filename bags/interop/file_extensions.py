"""File name extensions: from an extension to a type, and from a type to an extension."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from bags.formats.signatures import EXTENSION_OF_FORMAT, FORMAT_OF_TYPE

KEY = '__key__'
"""The field with the common name of a datapoint's files, without extensions, as in WebDataset."""

WRITTEN_EXTENSIONS = '__extensions__'
"""The field with the original extensions of files, if an export would write other ones: `{"txt": "TXT"}`.
A dataset without such files does not have it."""

_BY_TYPE = {
    'jpeg': 'jpg jpeg jpe',
    'png': 'png',
    'webp': 'webp',
    'avif': 'avif',
    'image': 'gif bmp tif tiff',
    'video': 'mp4 m4v mov mkv webm avi mpg mpeg flv wmv m2ts mts ogv vob 3gp',
    'audio': 'wav flac ogg oga opus mp3 m4a aac aiff aif aifc au snd wma',
    'json': 'json',
    'array': 'npy',
    'msgpack': 'msgpack mp msg',
    'utf8': 'txt text caption transcript cls cls2 index inx id csv tsv md html xml yaml yml srt',
}
LABELS = ('cls', 'cls2', 'class', 'count', 'index', 'inx', 'id')
"""The extensions of files with an integer, as in WebDataset."""
IMAGE_TYPES = ('jpeg', 'png', 'webp', 'avif', 'image')
JOINED = {'image': IMAGE_TYPES, 'audio': ('audio',)}
"""Fields with files of several formats, and the types of these formats."""
_TYPES = {extension: type for type, names in _BY_TYPE.items() for extension in names.split()}
_EXTENSIONS = {type_format: EXTENSION_OF_FORMAT[format] for type_format, format in FORMAT_OF_TYPE.items()} | {
    'opus': 'ogg', 'json': 'json', 'msgpack': 'msgpack', 'tree': 'msgpack', 'utf8': 'txt', 'array': 'npy',
}  # fmt: skip
_NIFTI = '.nii'
_EXTENSION = re.compile(r'[A-Za-z0-9_-]{1,16}')
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9_.-]')


def split_name(name: str) -> tuple[str, str]:
    """Splits a file name into the stem and the extension, in lower case; '' without an extension.

    The extension of compressed NIfTI is `nii.gz`, not `gz`.
    """
    stem, dot, extension = name.rpartition('.')
    if not dot or not stem or stem.endswith('/') or not _EXTENSION.fullmatch(extension):
        return name, ''
    if (
        extension.lower() == 'gz'
        and stem[-len(_NIFTI) :].lower() == _NIFTI
        and stem[: -len(_NIFTI)][-1:] not in ('', '/')
    ):
        return stem[: -len(_NIFTI)], name[len(stem) - len(_NIFTI) + 1 :].lower()
    return stem, extension.lower()


def field_of(extension: str) -> str:
    """Returns the name of the field for files with an extension, which may have several parts (`seg.png`)."""
    name = _NOT_IN_NAMES.sub('_', extension).rstrip('.')
    if name == 'data':
        return '_data'  # `data` is the field of files without an extension.
    name = name or 'data'
    return name if name[0].isalpha() or name[0] == '_' else f'_{name}'


@functools.lru_cache
def type_of(extension: str) -> str:
    """Returns the type for files with an extension; 'bytes' for unknown ones."""
    last = extension.rpartition('.')[2].lower()
    return _TYPES.get(last, _TYPES.get(last.removeprefix('_'), 'bytes'))  # The field of `.3gp` is `_3gp`.


def media_type(extension: str) -> str:
    """Returns the type of files with an extension; image formats have the same type."""
    found = type_of(extension)
    return 'image' if found in IMAGE_TYPES else extension if found == 'bytes' else found


def type_of_all(extensions: Iterable[str]) -> str:
    """Returns the type for files with one of some extensions."""
    types = set(map(type_of, extensions))
    if len(types) == 1:
        return types.pop()
    return 'image' if types <= {*IMAGE_TYPES} else 'utf8' if types <= {'utf8', 'json'} else 'bytes'


def fields_of_media(datapoints: Iterable[Collection[str]]) -> Callable[[str], str]:
    """Returns a function that renames fields of image formats to `image`, and of audio formats to `audio`.

    The fields keep their names if a datapoint has two images or two recordings, or if there is one format.
    """
    datapoints = list(datapoints)
    renamed: dict[str, str] = {}
    for name, type_formats in JOINED.items():
        media = [{field for field in fields if _TYPES.get(field) in type_formats} for fields in datapoints]
        formats = set().union(*media)
        is_clear = not any(name in fields for fields in datapoints) and max(map(len, media), default=0) < 2
        if is_clear and len(formats) > 1:
            renamed |= dict.fromkeys(formats, name)
    return lambda field: renamed.get(field, field)


@functools.lru_cache
def extension_of(field: str, type_format: str) -> str:
    """Returns the extension of the files of a field.

    It is the name of the field, to which the usual extension of its type is added if the name does not end
    with one: `jpg` and `seg.png` stay, `photo` of type jpeg becomes `photo.jpg`. Empty for files without an
    extension.
    """
    if field == '_data':
        return 'data'
    if field[0] == '_' and field[1:2].isdigit():
        field = field[1:]
    last = field.rpartition('.')[2]
    usual = _EXTENSIONS.get(type_format)
    if field == 'data' and usual is None:
        return ''
    if (
        usual is None
        or _TYPES.get(last) == _TYPES.get(usual, type_format)
        or (type_format == 'array' and last == 'npy')
    ):
        return field
    return f'{field}.{usual}'


def file_name(key: str, name: str, is_only: bool) -> str:
    """Joins a key and the part after it to a file name.

    The key of the only file of a datapoint may be its whole name.
    """
    if is_only and key.lower().endswith(f'.{name}'):
        return key
    return f'{key}.{name}' if name else key


def written_extensions(key: str, files: Mapping[str, str]) -> dict[str, str]:
    """Returns the original extensions of files by field, if an export would write other ones."""
    return {
        field: name[len(key) :].removeprefix('.')
        for field, name in files.items()
        if name != file_name(key, extension_of(field, type_of(field)), len(files) == 1)
    }


def written_extensions_in_tar(extensions: Mapping[str, str]) -> dict[str, str]:
    """Returns the result of `written_extensions` for files in a tar, given their extensions by field."""
    return {
        field: extension
        for field, extension in extensions.items()
        if extension != extension_of(field, type_of(field))
    }


_DOT = re.compile(r'%((?:25)*)2E')


def escape_key(key: str) -> str:
    """Escapes a key for names in tars, where keys end at the first dot of the last part of the path."""
    folder, slash, base = key.rpartition('/')
    return folder + slash + _DOT.sub(r'%25\g<1>2E', base).replace('.', '%2E')


def unescape_key(key: str) -> str:
    """Reverses `escape_key`."""
    folder, slash, base = key.rpartition('/')
    return folder + slash + _DOT.sub(lambda dot: f'%{dot[1][2:]}2E' if dot[1] else '.', base)


def split_key(name: str) -> tuple[str, str]:
    """Splits a name into key and extension as WebDataset does, at the first dot of its last part."""
    folder, slash, base = name.rpartition('/')
    stem, _, extension = base.partition('.')
    return unescape_key(folder + slash + stem), extension
