"""The entries of `FIELD.files`, the files that links lead to, and their paths as stored. No I/O.

An entry is a msgpack array `[path, size, sample, compression]`. Paths have one form, and are refused in any
other, so that a path of an untrusted dataset has one meaning in every reader:

    ../raw/images/000000/image.bag      relative to the folder of the links; `..` only at the beginning
    /data/videos/7.mp4                  absolute
    s3://bucket/videos/7.mp4            a URL of a known scheme
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, NamedTuple

import msgpack

from bags.bag.checksums import digest_function
from bags.links.rows import MAX_OFFSET
from bags.storage.urls import SCHEMES, locate

SAMPLE_BYTES = 1 << 12
"""Bytes at the beginning and at the end of a file that its sample is made from."""
MAX_ENTRY_BYTES = 1 << 16
BAG_SUFFIXES = ('.bag', '.bagz', '.values')

_DRIVE = re.compile(r'[A-Za-z]:')
_PLAIN = re.compile(r'(?:/|(?:\.\./)*)(?:(?!\.{1,2}/)[^/:\\\0]+/)*(?!\.{1,2}\Z)[^/:\\\0]+')
"""Valid paths without colons: one match takes a fraction of the time of all checks."""
_ENCODED_DOT = re.compile(r'%2e', re.IGNORECASE)
_URL_SCHEMES = frozenset(SCHEMES.values()) - {'memory'}
_MAX_UINT64 = (1 << 64) - 1


class Dictionary(NamedTuple):
    """The dictionary of the zstd frames of a file."""

    path: str
    """As of a linked file."""
    size: int
    """Bytes."""
    digest: int
    """XXH3-64 of the whole dictionary."""


class LinkedFile(NamedTuple):
    """A file that links lead to, as it was when the first of them was written."""

    path: str
    """Its path as stored."""
    size: int
    """Bytes. Of a bag those of its records: a bag may have grown since."""
    sample: int
    """XXH3-64 of the first and the last 4 KiB of these bytes; of all of them if they are fewer than 8 KiB."""
    is_compressed: bool = False
    """Whether each linked range is a zstd frame, or empty."""
    dictionary: Dictionary | None = None
    """The dictionary of these frames."""

    @property
    def is_bag(self) -> bool:
        """Whether the file is a bag, which may grow, and whose last records are before its limits."""
        return self.path.endswith(BAG_SUFFIXES)


def sample_ranges(size: int) -> list[tuple[int, int]]:
    """Returns the byte ranges that the sample of a file of this size is made from."""
    if size < 2 * SAMPLE_BYTES:
        return [(0, size)]
    return [(0, SAMPLE_BYTES), (size - SAMPLE_BYTES, size)]


def sample_of(parts: list[Any]) -> int:
    """Returns the sample of the bytes in these ranges."""
    return digest_function()(b''.join(parts))


def pack_file(file: LinkedFile) -> bytes:
    """Returns the entry of a file.

    Raises:
        ValueError: Its path is not of a form that is stored.
    """
    compression = [*(file.dictionary or ())] if file.is_compressed else None
    entry: bytes = msgpack.packb([file.path, file.size, file.sample, compression])
    if file.is_compressed or len(entry) > MAX_ENTRY_BYTES or file.size > MAX_OFFSET:
        parse_file(entry)
    check_stored_path(file.path)
    return entry


def parse_file(entry: Any) -> LinkedFile:
    """Parses an entry, which is not trusted.

    Raises:
        ValueError: It is not an entry, or a path in it is not of a form that is stored.
    """
    if len(entry) > MAX_ENTRY_BYTES:
        raise ValueError(f'expected at most {MAX_ENTRY_BYTES} bytes of an entry, got {len(entry)}')
    try:
        found = msgpack.unpackb(entry)
    except Exception as exc:  # msgpack's errors have no common class.
        raise ValueError(f'is not msgpack: {exc}') from exc
    match found:
        case [str(path), int(size), int(sample), None | [] | [str(), int(), int()] as compression] if (
            _is_integer(size, MAX_OFFSET) and _is_integer(sample, _MAX_UINT64)
        ):
            check_stored_path(path)
        case _:
            raise ValueError(f'expected [path, size, sample, compression], got {found!r:.200}')
    if not compression:
        return LinkedFile(path, size, sample, compression is not None)
    dictionary = Dictionary(*compression)
    if not (_is_integer(dictionary.size, MAX_OFFSET) and _is_integer(dictionary.digest, _MAX_UINT64)):
        raise ValueError(f'expected [path, size, digest] of a dictionary, got {compression!r:.200}')
    check_stored_path(dictionary.path)
    return LinkedFile(path, size, sample, True, dictionary)


def _is_integer(value: Any, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum


# Paths.


def is_url(path: str) -> bool:
    """Returns whether a stored path is a URL."""
    return '://' in path


def check_stored_path(path: str) -> None:
    """Raises ValueError unless a path has the form in which the paths of linked files are stored."""
    detail = '' if _PLAIN.fullmatch(path) else _invalid(path)
    if detail:
        raise ValueError(f'path {path!r:.200}: {detail}')


def _invalid(path: str) -> str:
    """Returns why a path has not that form; an empty text if it has."""
    if not path or path.endswith('/'):
        return 'expected the path of a file'
    if '\0' in path or '\\' in path or '::' in path:
        return r"expected a path without '\0', '\' and '::'"
    if is_url(path):
        scheme, rest = path.split('://', 1)
        if scheme not in _URL_SCHEMES:
            return f'expected a URL with {", ".join(sorted(_URL_SCHEMES))}, or a path'
        parts = rest.split('/')
        if not parts[0] or len(parts) < 2:
            return 'expected a bucket or host, and a file'
        if _ENCODED_DOT.search(path):
            return "expected '.' without an escape"
    else:
        if locate(path) != ('file', path) or _DRIVE.match(path):
            return 'expected a path, or a URL with ://'
        parts = path.split('/')
        if path.startswith('/'):
            parts = parts[1:]
        else:
            while parts[:1] == ['..']:
                parts = parts[1:]
    if not parts or not {'', '.', '..'}.isdisjoint(parts):
        return "expected a path without '//', '/./' and, but for its beginning, '..'"
    return ''


def stored_path(path: str, folder: str, above: str) -> str:
    """Returns the stored form of the path of a file.

    Args:
        path: The file: an absolute path, or a URL.
        folder: The folder of the links.
        above: The folder that holds the dataset. A path below it is stored relative to `folder`, so that
            both can be moved together.

    Raises:
        ValueError: A path that cannot be stored.
    """
    if path.startswith(above.rstrip('/') + '/'):
        path = posixpath.relpath(_as_local(path), _as_local(folder))
    check_stored_path(path)
    return path


def _as_local(path: str) -> str:
    """Returns a path or URL as a path from a root, for arithmetic."""
    return '/' + path.replace('://', '/', 1) if is_url(path) else path


def resolved_path(path: str, folder: str) -> str:
    """Returns the path of a stored path: absolute, or a URL.

    Args:
        path: The stored path, checked.
        folder: The folder of the links: an absolute path, or a URL.

    Raises:
        ValueError: It leads above the root, or out of the bucket or host of the folder.
    """
    if is_url(path) or path.startswith('/'):
        return path
    root, inside = '', folder
    if _DRIVE.match(folder):
        root, inside = folder[:2], folder[2:].replace('\\', '/')
    elif is_url(folder):
        scheme, rest = folder.split('://', 1)
        host, _, inside = rest.partition('/')
        root = f'{scheme}://{host}'
    parts = [part for part in inside.split('/') if part]
    names = path.split('/')
    while names[0] == '..':
        if not parts:
            raise ValueError(f'path {path!r:.200}: leads above the root of {folder}')
        parts, names = parts[:-1], names[1:]
    return '/'.join([root, *parts, *names])
