"""Chunks of samples, as in MDS and LitData: an index names the chunks, and how each column is stored.

A chunk is the number of its samples and the offsets of these and of their end, 4 bytes each, then the
samples. A sample is the sizes of those columns that have no fixed one, 4 bytes each, then the columns.

The libraries of both formats would not make this shorter: they import torch, and their readers decode JPEG
and unpickle, where an import keeps the bytes.
"""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import zstandard

from bags.dataset.spec import parse_type
from bags.errors import SourceError
from bags.interop.files import checked_value
from bags.interop.records import Read, Record, RecordSource, array_from, open_file, type_of_numbers
from bags.interop.source import name_fields

__all__ = [
    'ChunkSource',
    'Column',
    'chunk_path',
    'numbers',
    'read_chunk',
    'split_images',
    'split_pixels',
]

_MAX_CHUNK_MIB = 1 << 12
"""Offsets have four bytes."""
_STREAMS: dict[str, Callable[[Any], Any]] = {
    'zstd': lambda file: zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True),
    'gz': lambda file: gzip.GzipFile(fileobj=file),
}
_CHANNELS = {b'L': (), b'RGB': (3,), b'RGBA': (4,)}


class Column(NamedTuple):
    """A column, and how its bytes become values."""

    kind: str
    """The type of its field."""
    decode: Callable[[bytes], Any] | None = None
    """Returns a value, or the files of a sequence; None for texts and files, which stay as they are."""
    note: str = ''
    """What the import changes: the rest of a sentence that starts with the name of the field."""
    size: int | None = None
    """Bytes, if they are the same in each sample."""


class ChunkSource(RecordSource):
    """The samples of chunks, which have the columns in this order."""

    def __init__(
        self, format: str, columns: Sequence[tuple[str, Column]], files: Mapping[str, int], read: Read
    ) -> None:
        super().__init__(format, {}, files, read)
        fields = name_fields([name for name, _ in columns], self.notes)
        self._columns = [(fields[name], column) for name, column in columns]
        self.spec = {field: column.kind for field, column in self._columns}
        self.notes += [f'field {field!r}{column.note}' for field, column in self._columns if column.note]

    def decode(self, entry: Record, data: bytes) -> Mapping[str, Any]:
        varying = [field for field, column in self._columns if not column.size]
        sizes = dict(zip(varying, struct.unpack_from(f'<{len(varying)}I', data), strict=True))
        place, values = 4 * len(varying), {}
        for field, column in self._columns:
            part = data[place : (place := place + (column.size or sizes[field]))]
            if field in self.spec:
                word, name = parse_type(self.spec[field]).word, f'{self.name(entry)}, field {field!r}'
                value = column.decode(part) if column.decode else checked_value(name, word, part)
                if isinstance(value, list):
                    value = [checked_value(f'{name}, item {i}', word, item) for i, item in enumerate(value)]
                values[field] = value
        if place != len(data):
            raise ValueError(f'expected a sample of {place} bytes, got {len(data)}')
        return values


def chunk_path(root: str, name: Any) -> str:
    """Returns the path of a chunk; ValueError for one that is not in the folder of the index."""
    if not isinstance(name, str) or set(name) & set('/\\\0') or name in ('', '.', '..'):
        raise ValueError(f'expected the name of a file beside it, got {name!r}')
    return f'{root}/{name}'


def read_chunk(
    path: str, start: int, count: int, codec: str = '', storage_options: Mapping[str, Any] | None = None
) -> Iterator[bytes]:
    """Yields the samples of a chunk from `start` to `count`; a compressed one is read into memory.

    Raises:
        SourceError: The chunk is damaged, or has not `count` samples.
    """
    with open_file(path, storage_options) as stored:
        file = stored if not codec else io.BytesIO(_decompressed(path, stored, codec))
        size = file.seek(0, 2)
        file.seek(0)
        length = 4 * (count + 2)
        offsets = np.frombuffer(file.read(length) if length <= size else b'', '<u4').astype(np.int64)
        if len(offsets) != count + 2 or offsets[0] != count:
            raise SourceError(path, f'expected {count} samples, got a file of {size} bytes without them')
        ends = offsets[1:]
        if ends[0] < length or (np.diff(ends) < 0).any() or ends[-1] > size:
            raise SourceError(path, f'expected samples from byte {length} to byte {size}, got other offsets')
        file.seek(int(ends[start]))
        for size in np.diff(ends)[start:].tolist():
            yield file.read(size)


def _decompressed(path: str, file: Any, codec: str) -> bytes:
    name = codec.partition(':')[0]
    if name not in _STREAMS:
        raise SourceError(path, f'expected compression {", ".join(_STREAMS)}, or none, got {codec!r}')
    try:
        with _STREAMS[name](file) as stream:
            parts = iter(functools.partial(stream.read, 1 << 20), b'')
            return b''.join(itertools.islice(parts, _MAX_CHUNK_MIB))
    except Exception as exc:  # Each codec has errors of its own.
        raise SourceError(path, f'cannot be decompressed: {exc}') from exc


def numbers(dtype: str, shape: tuple[int, ...] = ()) -> Column:
    """Returns a column of numbers, or of arrays of one dtype and shape; -1 is a length that varies."""
    element = np.dtype(dtype)
    return Column(type_of_numbers(element, shape), functools.partial(array_from, dtype=element, shape=shape))


def split_images(data: bytes) -> list[bytes]:
    """Returns the files of a list of images: their number, the size of each, 4 bytes each, then the files."""
    (count,) = struct.unpack_from('<I', data)
    ends = itertools.accumulate(struct.unpack_from(f'<{count}I', data, 4), initial=4 + 4 * count)
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def split_pixels(data: bytes) -> Any:
    """Returns the pixels of an image that is stored as PIL has them: width, height, mode, and the bytes."""
    width, height, length = struct.unpack_from('<3I', data)
    channels = _CHANNELS.get(data[12 : 12 + length])
    if channels is None:
        raise ValueError(f'expected pixels of mode L, RGB or RGBA, got {data[12:20]!r}')
    return array_from(data[12 + length :], np.dtype(np.uint8), (height, width, *channels))
