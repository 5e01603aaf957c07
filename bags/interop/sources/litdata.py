"""Chunks of LitData: `index.json` names the chunks and the format of each leaf of a sample.

`litdata` imports torch. What its `PyTreeLoader` reads is small: a chunk is the offsets of its samples
(`read_items`); a sample is the size of each leaf, 4 bytes each, then the leaves. With zstd, a chunk is
one stream (`.zstd.bin`), or each sample is a frame, or a frame holds some samples (magic `LDFZ01`).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import zstandard

from bags.dataset.spec import parse_type
from bags.errors import SourceError
from bags.interop.columns import (
    Column,
    array_from,
    column_of_files,
    column_of_numbers,
    images_of,
    natural,
    pixels_of,
)
from bags.interop.extensions import type_of
from bags.interop.records import Record, RecordSource, open_file, read_all, read_items, size_of
from bags.interop.source import name_fields

__all__ = ['LitDataSource', 'open_source']

_NUMPY: dict[int, str] = dict(
    enumerate(('i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'c8', 'c16', '?'))
)
_TORCH: dict[int, str] = {
    0: 'f4', 1: 'f4', 2: 'f8', 3: 'f8', 4: 'c8', 5: 'c8', 6: 'c16', 7: 'c16', 8: 'f2', 9: 'f2', 11: 'u1',
    12: 'i1', 13: 'i2', 14: 'i2', 15: 'i4', 16: 'i4', 17: 'i8', 18: 'i8', 19: '?', 20: 'u2',
}  # fmt: skip
"""The dtypes by their numbers in LitData, but for those without one in NumPy."""
_PICKLES = ', which stay bytes, because to unpickle them could run any code'
_LEAVES = {
    **dict.fromkeys(('str', 'text'), column_of_files('utf8')),
    'bool': column_of_numbers('bool', 'bool'),
    'int': column_of_numbers('int(8)', '<i8'),
    'float': column_of_numbers('float(8)', '<f8'),
    'bytes': column_of_files('bytes'),
    'jpeg': column_of_files('jpeg'),
    'image': column_of_files('image'),
    'tiff': column_of_files('image'),
    'tifffile': column_of_files('image'),
    'video': column_of_files('video'),
    'audio': column_of_files('audio'),
    **dict.fromkeys(('pdf', 'mesh', 'nifti'), column_of_files('bytes')),
    'json': column_of_files('bytes', ': lists in a code of LitData, which stay bytes'),
    'pickle': column_of_files('bytes', f': pickles{_PICKLES}'),
    'graph': column_of_files('bytes', f': graphs with pickles{_PICKLES}'),
    'pil': Column('png', pixels_of, ': raw pixels, which become PNG'),
    'jpeg_array': Column('jpeg[]', images_of),
    'numpy': Column('array', lambda _name, _word, data: _array(data, '<', _NUMPY)),
    'tensor': Column('array', lambda _name, _word, data: _array(data, '>', _TORCH)),
}
_MAGIC = b'LDFZ01\0\0'
_MAX_CHUNK_BYTES = 1 << 32
"""Offsets in a chunk have four bytes."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> LitDataSource:
    """Returns the source of a folder of LitData."""
    return LitDataSource(paths[0].rstrip('/'), storage_options)


class LitDataSource(RecordSource):
    """The samples of a folder that `litdata.optimize` wrote.

    Raises:
        SourceError: An index that is damaged, encrypted chunks, or leaves of an unknown format.
    """

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None) -> None:
        super().__init__('litdata', {}, [])
        self._storage_options = storage_options
        index = f'{root}/index.json'
        with open_file(index, storage_options) as file:
            try:
                found = json.load(file)
                self._config = dict(found['config'])
                formats = [str(each) for each in self._config['data_format']]
                names = list(_names(json.loads(self._config['data_spec'])[1]))
                chunks = [(_file_name(each), natural(each['chunk_size'])) for each in found['chunks']]
            except (ValueError, LookupError, TypeError, RecursionError) as exc:
                raise SourceError(index, f'expected the index of a LitData dataset: {exc!r}') from exc
        if self._config.get('encryption'):
            raise SourceError(index, 'expected chunks that are not encrypted')
        if str(self._config.get('item_loader') or 'PyTreeLoader') != 'PyTreeLoader':
            raise SourceError(index, f'expected PyTreeLoader, got chunks of {self._config["item_loader"]}')
        if len(names) != len(formats):
            raise SourceError(index, f'expected a format for each of {names}, got {formats}')
        fields = name_fields(names, self.notes)
        self._columns = [
            (fields[name], _column(f'{index}, leaf {name!r}', format))
            for name, format in zip(names, formats, strict=True)
        ]
        for field, column in self._columns:
            self.spec[field] = column.kind
            if column.note:
                self.notes.append(f'field {field!r}{column.note}')
        for name, count in chunks:
            if size_of(f'{root}/{name}', storage_options) is None:
                self.damaged.append((f'{root}/{name}', 'expected a chunk, got no file'))
            else:
                self.files.append((f'{root}/{name}', count))
                self.count += count

    def read(self, path: str, start: int) -> Iterator[bytes | SourceError]:
        size, count = size_of(path, self._storage_options) or 0, dict(self.files)[path]
        codec, level = self._config.get('compression'), self._config.get('compression_level') or 'chunk'
        if codec and not str(codec).startswith('zstd'):
            raise SourceError(path, f'expected compression zstd, or none, got {codec!r}')
        with open_file(path, self._storage_options) as file:
            try:
                if codec and level == 'chunk':
                    with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
                        data = read_all(stream, _MAX_CHUNK_BYTES)
                    yield from read_items(io.BytesIO(data), path, len(data), count, start)
                elif file.read(len(_MAGIC)) == _MAGIC:
                    yield from _framed(file, path, size, count, start)
                else:
                    for data in read_items(file, path, size, count, start):
                        yield _decompress(data, _MAX_CHUNK_BYTES) if codec and level == 'sample' else data
            except (zstandard.ZstdError, struct.error) as exc:
                raise SourceError(path, f'cannot be decompressed: {exc}') from exc

    def decode(self, entry: Record) -> Mapping[str, Any]:
        data = entry.data
        assert isinstance(data, bytes)
        if not data:
            raise ValueError('expected a sample, got one in Arrow beside the samples; read it with litdata')
        sizes = struct.unpack_from(f'<{len(self._columns)}I', data)
        place = 4 * len(sizes)
        if place + sum(sizes) != len(data):
            raise ValueError(f'expected a sample of {place + sum(sizes)} bytes, got {len(data)}')
        values = {}
        for (field, column), size in zip(self._columns, sizes, strict=True):
            if field in self.spec:
                name = f'{self.name(entry)}, field {field!r}'
                values[field] = column.value(
                    name, parse_type(self.spec[field]).word, data[place : place + size]
                )
            place += size
        return values


def _names(spec: Any, before: str = '') -> Iterator[str]:
    """Yields the names of the leaves of a tree, those of nested ones joined by dots.

    Args:
        spec: Of a node, as `torch.utils._pytree` dumps it.
        before: The name of the node.
    """
    children = spec['children_spec']
    if spec['type'] is None:
        yield before or 'value'
    is_mapping = 'dict' in str(spec['type']).lower()
    keys = json.loads(spec['context']) if is_mapping else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _names(child, f'{before}.{key}' if before else str(key))


def _file_name(chunk: Mapping[str, Any]) -> str:
    name = str(chunk['filename'])
    if set(name) & set('/\\\0') or name in ('', '.', '..'):
        raise ValueError(f'expected the name of a chunk, got {name!r}')
    return name


def _column(where: str, format: str) -> Column:
    word, _, rest = format.partition(':')
    if word in _LEAVES:
        return _LEAVES[word]
    if word == 'file':
        return column_of_files(type_of(rest) if rest else 'bytes')
    dtypes = {'no_header_numpy': _NUMPY, 'no_header_tensor': _TORCH}.get(word, {})
    dtype = dtypes.get(int(rest) if rest.isdecimal() else -1, '-')
    if dtype == '-':
        known = ', '.join((*_LEAVES, 'file'))
        raise SourceError(
            where, f'expected a leaf of {known}, or numbers of a dtype of NumPy, got {format!r}'
        )
    return column_of_numbers(f'array({np.dtype(dtype).name},?)', dtype, (-1,))


def _array(data: bytes, order: str, dtypes: Mapping[int, str]) -> Any:
    """Returns an array that follows the number of its dtype, its rank and its shape, 4 bytes each."""
    number, rank = struct.unpack_from(f'{order}2I', data)
    if dtypes.get(number, '-') == '-' or rank > 64:
        raise ValueError(f'expected a dtype of NumPy, got number {number} with {rank} dimensions')
    shape = struct.unpack_from(f'{order}{rank}I', data, 8)
    array = array_from(data[8 + 4 * rank :], np.dtype(dtypes[number]), shape)
    return np.asarray(array, dtypes[number])


def _framed(file: BinaryIO, path: str, size: int, count: int, start: int) -> Iterator[bytes]:
    """Yields the samples of a chunk of frames, each of which holds some of them."""
    version, _, found, _, frames = struct.unpack('<HHIII', file.read(16))
    if version != 1 or found != count or 24 * (frames + 1) + 4 * (count + 1) > size:
        raise SourceError(path, f'expected {count} items of version 1, got {found} of version {version}')
    offsets = struct.unpack(f'<{count + 1}I', file.read(4 * (count + 1)))
    table = list(struct.iter_unpack('<IIQII', file.read(24 * frames)))
    for first, length, place, compressed, raw in table:
        if place + compressed > size:
            raise SourceError(path, f'expected frames in {size} bytes, got one up to {place + compressed}')
        if first + length > start:
            file.seek(place)
            data = _decompress(file.read(compressed), raw)
            for index in range(max(first, start), min(first + length, count)):
                yield data[offsets[index] - offsets[first] : offsets[index + 1] - offsets[first]]


def _decompress(data: bytes, limit: int) -> bytes:
    """Returns the content of a zstd frame of at most `limit` bytes."""
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        return read_all(stream, limit)
