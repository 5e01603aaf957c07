"""Shards of MosaicML Streaming (MDS): `index.json` names the shards and the encoding of each column.

`streaming` imports torch and the clients of every cloud. What it reads is small: see its page "Dataset
Format". A shard is the offsets of its samples (`read_items`); a sample is the sizes of those columns that
have no fixed one, 4 bytes each, then the columns. A compressed shard is one stream of zstd, gzip or bzip2.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.spec import parse_type
from bags.errors import SourceError
from bags.interop.columns import Column, column_of_files, column_of_numbers, images_of, natural, pixels_of
from bags.interop.files import checked_value
from bags.interop.records import Record, RecordSource, open_file, read_all, read_items, size_of
from bags.interop.source import name_fields

__all__ = ['MdsSource', 'open_source']

_NUMBERS = {
    'int': 'int(8)',
    **{f'int{8 * size}': f'int({size})' for size in (1, 2, 4, 8)},
    **{f'uint{8 * size}': f'uint({size})' for size in (1, 2, 4, 8)},
    **{f'float{8 * size}': f'float({size})' for size in (2, 4, 8)},
}
_DTYPES = {
    8: 'u1', 9: 'i1', 16: 'u2', 17: 'i2', 18: 'f2', 32: 'u4', 33: 'i4', 34: 'f4',
    64: 'u8', 65: 'i8', 66: 'f8',
}  # fmt: skip
_TEXT = ': numbers of any length, which are text'
_FILES = {
    'bytes': column_of_files('bytes'),
    'str': column_of_files('utf8'),
    'json': column_of_files('json'),
    'jpeg': column_of_files('jpeg'),
    'png': column_of_files('png'),
    'str_int': column_of_files('utf8', _TEXT),
    'str_decimal': column_of_files('utf8', _TEXT),
    'str_float': Column('float(8)', lambda name, _word, data: checked_value(name, 'float', data)),
    'pkl': column_of_files('bytes', ': pickles, which stay bytes: to unpickle them could run any code'),
    'pil': Column('png', pixels_of, ': raw pixels, which become PNG'),
    **dict.fromkeys(('jpeg_array', 'jpegarray'), Column('jpeg[]', images_of)),
    'list[jpeg]': Column('jpeg[]', lambda name, word, data: images_of(name, word, data, 4)),
    'list[png]': Column('png[]', lambda name, word, data: images_of(name, word, data, 4)),
}  # fmt: skip


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> MdsSource:
    """Returns the source of a folder of MDS."""
    return MdsSource(paths[0].rstrip('/'), storage_options)


class MdsSource(RecordSource):
    """The samples of a folder with an `index.json` of MDS.

    Raises:
        SourceError: An index that is damaged, or whose shards differ in their columns; an unknown encoding.
    """

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None) -> None:
        super().__init__('mds', {}, [])
        self._storage_options = storage_options
        index = f'{root}/index.json'
        with open_file(index, storage_options) as file:
            try:
                content = json.load(file)['shards']
                found = [
                    (
                        [str(name) for name in each['column_names']],
                        [str(encoding) for encoding in each['column_encodings']],
                        [size and natural(size) for size in each['column_sizes']],
                    )
                    for each in content
                ]
                shards = [(each, *_shard(root, each)) for each in content]
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
                raise SourceError(index, f'expected the index of MDS version 2: {exc!r}') from exc
        for number, columns in enumerate(found):
            if columns != found[0]:
                raise SourceError(
                    index, f'expected columns {found[0]} in each shard, got {columns} in {number}'
                )
        self._sizes: list[int | None]
        names, encodings, self._sizes = found[0] if found else ([], [], [])
        if not len(names) == len(encodings) == len(self._sizes):
            raise SourceError(index, f'expected an encoding and a size for each of {names}')
        fields = name_fields(names, self.notes)
        self._columns = [
            (fields[name], _column(f'{index}, column {name!r}', encoding))
            for name, encoding in zip(names, encodings, strict=False)
        ]
        for field, column in self._columns:
            self.spec[field] = column.kind
            if column.note:
                self.notes.append(f'field {field!r}{column.note}')
        self._shards: dict[str, tuple[int, str]] = {}
        for each, shard, raw in shards:
            chosen = shard
            size = size_of(shard.path, storage_options)
            if size is None and raw != shard:  # Streaming may have decompressed it in place.
                chosen, size = raw, size_of(raw.path, storage_options)
            if size == chosen.size:
                self._shards[chosen.path] = raw.size, '' if chosen is raw else str(each.get('compression'))
                self.files.append((chosen.path, chosen.samples))
                self.count += chosen.samples
            else:
                actual = 'no file' if size is None else f'{size} bytes'
                self.damaged.append((shard.path, f'expected a shard of {shard.size} bytes, got {actual}'))

    def read(self, path: str, start: int) -> Iterator[bytes | SourceError]:
        (raw, compression), count = self._shards[path], dict(self.files)[path]
        codec = compression.partition(':')[0]
        with open_file(path, self._storage_options) as file:
            if not codec:
                yield from read_items(file, path, raw, count, start)
                return
            if codec not in _STREAMS:
                raise SourceError(path, f'expected compression {", ".join(_STREAMS)}, or none, got {codec!r}')
            try:
                with _STREAMS[codec](file) as stream:
                    data = read_all(stream, raw)
            except Exception as exc:  # Each has errors of its own.
                raise SourceError(path, f'cannot be decompressed: {exc}') from exc
        yield from read_items(io.BytesIO(data), path, len(data), count, start)

    def decode(self, entry: Record) -> Mapping[str, Any]:
        data, place, sizes = entry.data, 0, []
        assert isinstance(data, bytes)
        for size in self._sizes:
            if size:
                sizes.append(size)
            else:
                sizes.append(struct.unpack_from('<I', data, place)[0])
                place += 4
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


def _zstd(file: Any) -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


_STREAMS: dict[str, Callable[[Any], Any]] = {
    'zstd': _zstd,
    'gz': lambda file: gzip.GzipFile(fileobj=file),
    'bz2': bz2.BZ2File,
}


class _Shard(NamedTuple):
    path: str
    size: int
    samples: int


def _shard(root: str, facts: Mapping[str, Any]) -> tuple[_Shard, _Shard]:
    """Returns a shard as it is stored, and as it is decompressed; both are in the folder of the index."""
    if facts['version'] != 2 or facts['format'] != 'mds':
        raise ValueError(f'got version {facts["version"]} of {facts["format"]!r}')
    found = []
    for file in (facts.get('zip_data') or facts['raw_data'], facts['raw_data']):
        name = str(file['basename'])
        if set(name) & set('/\\\0') or name in ('', '.', '..'):
            raise ValueError(f'got a shard in {name!r}')
        found.append(_Shard(f'{root}/{name}', natural(file['bytes']), natural(facts['samples'])))
    return found[0], found[0] if found[0] == found[1] else found[1]


def _column(where: str, encoding: str) -> Column:
    if encoding in _FILES:
        return _FILES[encoding]
    if encoding in _NUMBERS:
        return column_of_numbers(_NUMBERS[encoding], '<i8' if encoding == 'int' else encoding)
    word, _, rest = encoding.partition(':')
    dtype, _, lengths = rest.partition(':')
    if word != 'ndarray':
        raise SourceError(
            where, f'expected an encoding of {", ".join((*_FILES, *_NUMBERS))}, got {encoding!r}'
        )
    if lengths:
        shape = tuple(map(int, lengths.split(',')))
        return column_of_numbers(f'array({dtype},{lengths})', dtype, shape)
    return Column('array', lambda _name, _word, data: _array(data, dtype))


def _array(data: bytes, dtype: str) -> Any:
    """Returns an array with its shape before it, and its dtype before that if `dtype` is empty."""
    place = 0
    if not dtype:
        dtype, place = _DTYPES[data[0]], 1
    width, rank = 1 << (data[place] & 3), data[place] >> 2
    start = place + 1 + width * rank
    shape = np.frombuffer(data[place + 1 : start], f'<u{width}').tolist()
    count, element = int(np.prod(shape, dtype=object)), np.dtype(dtype)
    if len(shape) != rank or count * element.itemsize != len(data) - start:
        raise ValueError(f'expected {element} of shape {tuple(shape)}, got {len(data)} bytes')
    return np.frombuffer(data[start:], element).reshape(shape)
