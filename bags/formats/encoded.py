"""Encoded images, videos and audio as values, and a decorator that makes decoders safe.

A value of a media type may be an encoded file, as bytes or as a path. It is stored unchanged, after a check
of its first bytes, and, for images and MP4, of its end.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from bags.formats.scalars import MAX_VALUE_SIZE, Buffer
from bags.formats.signatures import IMAGES, check_end, check_whole, identify, identify_file
from bags.storage.base import SeekableFile

Encoded = bytes | BinaryIO
"""A record: its bytes, or an open file, which the writer copies without loading it, and closes."""

T = TypeVar('T')
F = TypeVar('F', bound=SeekableFile)


def already_encoded(value: object, *names: str) -> Encoded | None:
    """Returns the bytes of an encoded value, or the open file of a path; None for values to encode.

    Args:
        value: The value.
        *names: The allowed formats, as names of `identify`.

    Raises:
        ValueError: The file does not have an allowed format, or is cut off.
        OSError: The path cannot be read.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        format = identify(data)
        check_format(format, names)
        check_end(memoryview(data), format)
        return data
    if isinstance(value, str | os.PathLike):
        file = open(value, 'rb')  # noqa: SIM115, the writer closes it
        return check_file(file, names)
    return None


def check_file(file: F, names: tuple[str, ...]) -> F:
    """Checks the format of an open file, and the end of images and MP4. Returns it at the same position.

    Closes the file if a check fails.
    """
    try:
        format, start = identify_file(file), file.tell()
        check_format(format, names)
        check_end(_Slices(file, start), format)
        file.seek(start)
    except BaseException as exc:
        file.close()
        if type(exc) is ValueError:
            raise ValueError(f'{getattr(file, "name", file)}: {exc}') from None
        raise
    return file


class _Slices:
    """The bytes of a file from `start` on, read by slicing."""

    def __init__(self, file: SeekableFile, start: int) -> None:
        self._file, self._start = file, start
        self._length = file.seek(0, os.SEEK_END) - start

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._length)
        self._file.seek(self._start + start)
        return self._file.read(max(0, stop - start))


def check_format(found: str, names: tuple[str, ...]) -> None:
    """Raises ValueError if the format `found` is not one of the allowed formats `names`."""
    if found not in names:
        expected = ' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))
        hint = ", which a field of type 'image' can hold" * (found in IMAGES and names[0] in IMAGES)
        raise ValueError(f'expected {expected}, got {found}{hint}')


def decodes(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Returns a decorator that makes a decoder safe for untrusted bytes.

    The decorated function is called only with complete files of its formats. It has to check the size of the
    value against `max_size`, in bytes, before it allocates memory. Errors of other libraries are converted to
    ValueError.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def decode(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> T:
            name = identify(data)
            check_format(name, names)
            check_whole(data, name)
            try:
                return function(data, *args, max_size=max_size)
            except Exception as exc:
                # Compares exact types, as av raises its own subclasses of ValueError for invalid headers.
                if type(exc) in (ValueError, MemoryError) or isinstance(exc, ImportError):
                    raise
                raise ValueError(f'damaged {name}: {str(exc) or type(exc).__name__}') from exc

        return decode

    return decorate
