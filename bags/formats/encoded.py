"""Common parts of images, videos and audio: already encoded values, and safe decoders.

A value of a media type may be an encoded file, as bytes or as a path. It is stored unchanged, after a check
of its first bytes, and for images and MP4 of its end.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from bags.formats.scalars import MAX_VALUE_SIZE, Buffer
from bags.formats.signatures import IMAGES, check_end, check_whole, identify, identify_file

Encoded = bytes | BinaryIO
"""A record: its bytes, or an open file that the writer copies without loading it, and closes."""

T = TypeVar('T')


def already_encoded(value: object, *names: str) -> Encoded | None:
    """Returns the bytes of a value, or the open file of a path; None for values that need encoding.

    Raises:
        ValueError: It has none of the allowed formats, which are names of `identify`, or is cut off.
        OSError: The path cannot be read.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        found = identify(data)
        check_format(found, names)
        check_end(memoryview(data), found)
        return data
    if isinstance(value, str | os.PathLike):
        file = open(value, 'rb')  # noqa: SIM115, the writer closes it
        return check_file(file, names)  # type: ignore[no-any-return]
    return None


def check_file(file: Any, names: tuple[str, ...]) -> Any:
    """Checks the format of an open file, and the end of images and MP4; returns it at the same position.

    It is closed if a check fails.
    """
    try:
        found, start = identify_file(file), file.tell()
        check_format(found, names)
        check_end(_Slices(file, start), found)
        file.seek(start)
    except BaseException as exc:
        file.close()
        if type(exc) is ValueError:
            raise ValueError(f'{getattr(file, "name", file)}: {exc}') from None
        raise
    return file


class _Slices:
    """A file from `start` on, to be read by slices."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file, self._start = file, start
        self._length = file.seek(0, os.SEEK_END) - start

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._length)
        self._file.seek(self._start + start)
        return self._file.read(max(0, stop - start))


def check_format(found: str, names: tuple[str, ...]) -> None:
    """Raises ValueError if a format is not one of the allowed ones."""
    if found not in names:
        expected = ' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))
        hint = ", which a field of type 'image' can hold" * (found in IMAGES and names[0] in IMAGES)
        raise ValueError(f'expected {expected}, got {found}{hint}')


def decodes(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Makes a decoder safe for bytes of any origin.

    The decorated function is only called with complete files of its formats, and with `max_size`, the maximum
    bytes of the value, which it checks before allocating them. Errors of other libraries become ValueErrors.
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
                # By exact type: av raises its own subclasses for invalid headers.
                if type(exc) in (ValueError, MemoryError) or isinstance(exc, ImportError):
                    raise
                raise ValueError(f'damaged {name}: {str(exc) or type(exc).__name__}') from exc

        return decode

    return decorate
