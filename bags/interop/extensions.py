"""Which type the files of an extension have, and the extension for the records of a type."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = [
    'CONTAINERS',
    'KEY',
    'WRITTEN',
    'escaped',
    'extension_of',
    'field_of',
    'file_name',
    'split_name',
    'type_of',
    'unescaped',
    'written',
    'written_in_tars',
]

KEY = '__key__'
"""The field that holds what files of a datapoint are called without their extensions, as in WebDataset."""

WRITTEN = '__extensions__'
"""The field that notes what follows the key in the names of files, where an export would write something
else: `{"txt": "TXT"}`. There is none where it would not."""

_BY_TYPE = {
    'jpeg': 'jpg jpeg jpe',
    'png': 'png',
    'webp': 'webp',
    'avif': 'avif',
    'video': 'mp4 m4v mov mkv webm',
    'audio': 'wav flac ogg oga opus mp3 m4a',
    'json': 'json',
    'msgpack': 'msgpack mp msg',
    'utf8': 'txt text caption transcript cls cls2 index inx id csv tsv md html xml yaml yml srt',
}
_TYPES = {extension: kind for kind, names in _BY_TYPE.items() for extension in names.split()}
_EXTENSIONS = {
    'jpeg': 'jpg',
    'jpg': 'jpg',
    'png': 'png',
    'webp': 'webp',
    'avif': 'avif',
    'mp4': 'mp4',
    'webm': 'webm',
    'mkv': 'mkv',
    'wav': 'wav',
    'flac': 'flac',
    'opus': 'ogg',
    'utf8': 'txt',
    'json': 'json',
    'msgpack': 'msgpack',
    'tree': 'msgpack',
    'array': 'npy',
}
CONTAINERS = {
    'MP4': 'mp4', 'QuickTime': 'mov', 'WebM': 'webm', 'Matroska': 'mkv', 'AVI': 'avi', 'WAV': 'wav',
    'RF64': 'wav', 'FLAC': 'flac', 'Ogg Opus': 'opus', 'Ogg': 'ogg', 'MP3': 'mp3',
}  # fmt: skip
"""Extensions of films and recordings, by what `identify` finds."""
_EXTENSION = re.compile(r'[A-Za-z0-9_-]{1,16}')
_UNNAMEABLE = re.compile(r'[^A-Za-z0-9_.-]')


def split_name(name: str) -> tuple[str, str]:
    """Splits a file name into stem and extension, which is in lower case and '' if there is none."""
    stem, dot, extension = name.rpartition('.')
    if not dot or not stem or stem.endswith('/') or not _EXTENSION.fullmatch(extension):
        return name, ''
    return stem, extension.lower()


def field_of(extension: str) -> str:
    """Returns the name of the field for files of an extension, which may have several parts (`seg.png`)."""
    name = _UNNAMEABLE.sub('_', extension).rstrip('.')
    if name == 'data':
        return '_data'  # `data` is the field of files without an extension.
    name = name or 'data'
    return name if name[0].isalpha() or name[0] == '_' else f'_{name}'


def type_of(extension: str) -> str:
    """Returns the type that keeps files of an extension as they are; 'bytes' for one not known."""
    return _TYPES.get(extension.rpartition('.')[2].lower(), 'bytes')


def extension_of(field: str, word: str) -> str:
    """Returns the extension of files that a field's records become.

    A field that is called like an extension of its type keeps it, others get one: `jpg` and `seg.png` stay,
    `photo` of type jpeg becomes `photo.jpg`. What came from files without one gets none.
    """
    if field == '_data':
        return 'data'
    if field[0] == '_' and field[1:2].isdigit():
        field = field[1:]
    last = field.rpartition('.')[2]
    usual = _EXTENSIONS.get(word)
    if field == 'data' and usual is None:
        return ''
    if usual is None or _TYPES.get(last) == _TYPES.get(usual, word) or (word == 'array' and last == 'npy'):
        return field
    return f'{field}.{usual}'


def file_name(key: str, name: str, alone: bool) -> str:
    """Returns what a file is called.

    Args:
        key: Of its datapoint.
        name: What follows that.
        alone: It is the only file of its datapoint: then the key may be all of its name.
    """
    if alone and key.lower().endswith(f'.{name}'):
        return key
    return f'{key}.{name}' if name else key


def written(key: str, files: Mapping[str, str]) -> dict[str, str]:
    """Returns by field what follows the key in the names of files, where an export would not write it so.

    Args:
        key: Of their datapoint.
        files: Their names by field.
    """
    return {
        field: name[len(key) :].removeprefix('.')
        for field, name in files.items()
        if name != file_name(key, extension_of(field, type_of(field)), len(files) == 1)
    }


def written_in_tars(extensions: Mapping[str, str]) -> dict[str, str]:
    """As `written`, of the extensions by field of what was in a tar."""
    return {
        field: extension
        for field, extension in extensions.items()
        if extension != extension_of(field, type_of(field))
    }


_DOT = re.compile(r'%((?:25)*)2E')


def escaped(key: str) -> str:
    """Returns a key as names in tars have it, where it ends at the first dot of the last part."""
    folder, slash, base = key.rpartition('/')
    return folder + slash + _DOT.sub(r'%25\g<1>2E', base).replace('.', '%2E')


def unescaped(key: str) -> str:
    """Returns the key of which this is the escaped form."""
    folder, slash, base = key.rpartition('/')
    return folder + slash + _DOT.sub(lambda dot: f'%{dot[1][2:]}2E' if dot[1] else '.', base)
