"""Which type the files of an extension have, and the extension for the records of a type."""

from __future__ import annotations

import re

__all__ = ['CONTAINERS', 'KEY', 'extension_of', 'field_of', 'split_name', 'type_of']

KEY = '__key__'
"""The field that holds what files of a datapoint are called without their extensions, as in WebDataset."""

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
