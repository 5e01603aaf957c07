"""The entries of `FIELD.files`, which describe linked files, and their stored paths. No I/O.

An entry is a msgpack array `[path, size, sample, compression]`. A path must have one of these normalized
forms, so that a path of an untrusted dataset has the same meaning in every reader:

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
from bags.storage.errors import StorageTimeoutError
from bags.storage.urls import SCHEMES, WEB, escape_name, has_dot_names, locate

FILE_SAMPLE_BYTES = 1 << 12
"""Number of bytes at the beginning and at the end of a file from which its sample is computed."""
MAX_ENTRY_BYTES = 1 << 16
LINKED = ('.links', '.files', '.values')
"""Suffixes of the bags of a linked field: link rows, file entries, and records that are not links."""
RECORD_SUFFIXES = ('.bag', '.bagz', '.values')
"""Suffixes of the bags whose records can be linked."""

_DRIVE = re.compile(r'[A-Za-z]:')
_PLAIN = re.compile(r'(?:/|(?:\.\./)*)(?:(?!\.{1,2}/)[^/:\\\0]+/)*(?!\.{1,2}\Z)[^/:\\\0]+')
"""Matches valid paths without colons, in a fraction of the time of all checks."""
_ENCODED_DOT = re.compile(r'%2e', re.IGNORECASE)
_URL_SCHEMES = frozenset(SCHEMES.values()) - {'memory'}
_AUTHORITY = re.compile(r'[^\s%?#\x00-\x20\x7f]+')
_MAX_UINT64 = (1 << 64) - 1


class Dictionary(NamedTuple):
    """The dictionary for the zstd frames of a file."""

    path: str
    """Stored path, as in `LinkedFile`."""
    size: int
    """Number of bytes."""
    digest: int
    """XXH3-64 of the whole dictionary."""


class LinkedFile(NamedTuple):
    """A linked file, as of the time at which the first link to it was written."""

    path: str
    """Stored path."""
    size: int
    """Number of bytes; for a bag, the bytes of its records. A bag may have grown since."""
    sample: int
    """XXH3-64 of the first and the last 4 KiB of these bytes; of all bytes if there are fewer than 8 KiB."""
    is_compressed: bool = False
    """Whether each linked range is empty or a zstd frame."""
    dictionary: Dictionary | None = None
    """The dictionary for these frames."""

    @property
    def is_bag(self) -> bool:
        """Whether the file is a bag. Bags may grow, and end with their limits, after the records."""
        return self.path.endswith(RECORD_SUFFIXES)


def sample_ranges(size: int) -> list[tuple[int, int]]:
    """Returns the byte ranges from which the sample of a file of this size is computed."""
    if size < 2 * FILE_SAMPLE_BYTES:
        return [(0, size)]
    return [(0, FILE_SAMPLE_BYTES), (size - FILE_SAMPLE_BYTES, size)]


def sample_of(parts: list[Any]) -> int:
    """Returns the sample, given the bytes of `sample_ranges`."""
    return digest_function()(b''.join(parts))


def pack_file(file: LinkedFile) -> bytes:
    """Returns the entry of a file as msgpack.

    Raises:
        ValueError: The path does not have a form that can be stored.
    """
    compression = [*(file.dictionary or ())] if file.is_compressed else None
    entry: bytes = msgpack.packb([file.path, file.size, file.sample, compression])
    if file.is_compressed or len(entry) > MAX_ENTRY_BYTES or file.size > MAX_OFFSET:
        parse_file(entry)
    check_stored_path(file.path)
    return entry


def parse_file(entry: Any) -> LinkedFile:
    """Parses an untrusted entry.

    Raises:
        ValueError: The bytes are not an entry, or a path in it does not have a stored form.
    """
    if len(entry) > MAX_ENTRY_BYTES:
        raise ValueError(f'expected at most {MAX_ENTRY_BYTES} bytes of an entry, got {len(entry)}')
    try:
        value = msgpack.unpackb(entry)
    except Exception as exc:  # The errors of msgpack have no common base class.
        raise ValueError(f'is not msgpack: {exc}') from exc
    match value:
        case [str(path), int(size), int(sample), None | [] | [str(), int(), int()] as compression] if (
            _is_integer(size, MAX_OFFSET) and _is_integer(sample, _MAX_UINT64)
        ):
            check_stored_path(path)
        case _:
            raise ValueError(f'expected [path, size, sample, compression], got {value!r:.200}')
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


def bucket_of(path: str) -> str:
    """Returns the scheme and the bucket or host of a URL; an empty string for a local path."""
    return '/'.join(path.split('/', 3)[:3]) if is_url(path) else ''


def options_by_prefix(path: str) -> str:
    """Returns how the options of the store of a linked file are given, to complete an error message.

    Options without a prefix would be sent to every host that the links of an untrusted dataset name.
    """
    prefix = f'{bucket_of(path)}/'
    return f'options for linked files are given by prefix: storage_options={{{prefix!r:.200}: {{…}}}}'


def with_advice(exc: OSError, advice: str) -> OSError:
    """Returns an error of an object store with advice in its message; errors of other types as they are."""
    if not advice or type(exc) not in (OSError, PermissionError, StorageTimeoutError):
        return exc
    return type(exc)(exc.errno, f'{exc.strerror}; {advice}', exc.filename)


def check_stored_path(path: str) -> None:
    """Raises ValueError unless a path has a form in which paths of linked files are stored."""
    detail = '' if _PLAIN.fullmatch(path) else _invalid(path)
    if detail:
        raise ValueError(f'path {path!r:.200}: {detail}')


def _invalid(path: str) -> str:
    """Returns why a path is not a valid stored path; an empty string if it is valid."""
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
        if path.startswith(WEB):
            if not _AUTHORITY.fullmatch(parts[0]):
                return 'expected a host'
            if has_dot_names(rest):
                return _DOT_NAMES
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
        return "expected a path without '//' and '/./', and with '..' only at its beginning"
    return ''


_DOT_NAMES = "expected a path that no web server reads as one with '.' or '..'"


def stored_path(path: str, folder: str, above: str) -> str:
    """Returns the stored form of the path of a file.

    Args:
        path: Absolute path or URL of the file.
        folder: The folder of the links.
        above: The parent folder of the dataset. A path below it is stored relative to `folder`, so that
            dataset and file can be moved together.

    Raises:
        ValueError: The path cannot be stored.
    """
    if path.startswith(above.rstrip('/') + '/'):
        path = posixpath.relpath(_as_local(path), _as_local(folder))
    check_stored_path(path)
    return path


def _as_local(path: str) -> str:
    """Returns a path or URL as an absolute path, for `posixpath` functions."""
    return '/' + path.replace('://', '/', 1) if is_url(path) else path


def resolved_path(path: str, folder: str) -> str:
    """Returns the absolute path or URL of a stored path.

    Args:
        path: The stored path, checked.
        folder: Absolute path or URL of the folder of the links.

    Raises:
        ValueError: The path leads above the root, or out of the bucket or host of the folder, or a web server
            may read it as one that leads to another folder.
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
    if folder.startswith(WEB):
        names = [escape_name(name) for name in names]
        if has_dot_names('/'.join(names)):
            raise ValueError(f'path {path!r:.200}: {_DOT_NAMES}')
    return '/'.join([root, *parts, *names])
