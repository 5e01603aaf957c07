"""Columns of shards whose index names an encoding for each, as in MDS and LitData: their types and values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bags.interop.files import checked_value

__all__ = [
    'Column',
    'array_from',
    'column_of_files',
    'column_of_numbers',
    'images_of',
    'natural',
    'pixels_of',
]


class Column(NamedTuple):
    """A column, and how its records become values."""

    kind: str
    """The type of its field."""
    value: Callable[[str, str, bytes], Any]
    """Returns the value of a record, given its name, for errors, the word of the field's type, and the bytes.
    Raises ValueError."""
    note: str = ''
    """What the import changes: the rest of a sentence that starts with the name of the column."""


def column_of_files(kind: str, note: str = '') -> Column:
    """Returns a column of texts or files, which stay as they are; the field may have any type that fits."""
    return Column(kind, checked_value, note)


def column_of_numbers(kind: str, dtype: str, shape: tuple[int, ...] = ()) -> Column:
    """Returns a column of numbers, or arrays of one dtype and shape; -1 is a length that varies."""
    element = np.dtype(dtype)

    def value(_name: str, _word: str, data: bytes) -> Any:
        return array_from(data, element, shape)

    return Column(kind, value)


def array_from(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Returns the array of some bytes, a scalar of Python if it has no dimension.

    Raises:
        ValueError: More or fewer bytes than the shape needs.
    """
    count = len(data) // dtype.itemsize
    varies = -1 in shape
    size = abs(int(np.prod(shape, dtype=object)))
    if len(data) % dtype.itemsize or (count % size if varies and size else count != size):
        expected = str(shape).replace('-1', '?')
        raise ValueError(f'expected {dtype} of shape {expected}, got {len(data)} bytes')
    array = np.ndarray((count,), dtype, data).reshape(shape)
    return array.item() if shape == () else array


def images_of(name: str, word: str, data: bytes, start: int = 0) -> list[bytes]:
    """Returns the files of a list of images: their number, the size of each, 4 bytes each, then the files."""
    (count,) = struct.unpack_from('<I', data, start)
    sizes = struct.unpack_from(f'<{count}I', data, start + 4) if 4 * count <= len(data) else None
    place = start + 4 + 4 * count
    if sizes is None or place + sum(sizes) != len(data):
        raise ValueError(f'expected {count} images, got {len(data)} bytes')
    files = []
    for index, size in enumerate(sizes):
        file = data[place : place + size]
        files.append(checked_value(f'{name}, item {index}', word, file))
        place += size
    return files


def natural(value: Any) -> int:
    """Returns a number of an index that counts something; ValueError for any other value."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f'expected a count, got {value!r:.40}')
    return value


_MODES = {'L': (), 'RGB': (3,), 'RGBA': (4,)}


def pixels_of(_name: str, _word: str, data: bytes) -> Any:
    """Returns the pixels of an image that is stored as PIL has them: width, height, mode, and the bytes."""
    width, height, length = struct.unpack_from('<3I', data)
    mode = data[12 : 12 + length]
    channels = _MODES.get(str(mode[:8], 'latin-1'))
    if channels is None:
        raise ValueError(f'expected pixels of mode {", ".join(_MODES)}, got {mode[:8]!r}')
    return array_from(data[12 + length :], np.dtype(np.uint8), (height, width, *channels))
