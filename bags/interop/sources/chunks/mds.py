"""Shards of MosaicML Streaming (MDS): `index.json` names the shards and the encoding of each column."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.errors import SourceError
from bags.interop.records import array_from, path_beside, read_json, size_of
from bags.interop.sources.arrays.arrays import natural_order
from bags.interop.sources.chunks.chunks import (
    ChunkSource,
    SampleChunk,
    SampleColumn,
    numbers,
    split_images,
    split_pixels,
)
from bags.validation import at_least

_COLUMNS = 'column_names', 'column_encodings', 'column_sizes'
_DTYPES = {
    8: 'u1', 9: 'i1', 16: 'u2', 17: 'i2', 18: 'f2', 32: 'u4', 33: 'i4', 34: 'f4',
    64: 'u8', 65: 'i8', 66: 'f8',
}  # fmt: skip
_ENCODINGS = {
    'bytes': SampleColumn('bytes'),
    'str': SampleColumn('utf8'),
    'json': SampleColumn('json'),
    'jpeg': SampleColumn('jpeg'),
    'png': SampleColumn('png'),
    **dict.fromkeys(('str_int', 'str_decimal'), SampleColumn('utf8', note=' is text: numbers of any length')),
    'str_float': SampleColumn('float(8)'),
    'pkl': SampleColumn('bytes', note=' has pickles, which stay bytes: to unpickle them could run any code'),
    'pil': SampleColumn('png', split_pixels, ' has raw pixels, which become PNG'),
    **dict.fromkeys(('jpeg_array', 'jpegarray'), SampleColumn('jpeg[]', split_images)),
    'int': numbers('int64'),
    **{np.dtype(each).name: numbers(each) for each in _DTYPES.values()},
}


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> ChunkSource:
    """Returns the source of MDS folders, read one after the other."""
    shards: dict[str, SampleChunk] = {}
    columns: list[tuple[str, SampleColumn]] = []
    first: dict[str, Any] = {}
    uses_raw = False
    for path in sorted(paths, key=natural_order):
        root = path.rstrip('/')
        facts, file_columns, chunks = read_json(
            f'{root}/index.json', functools.partial(_parse, root), storage_options
        )
        if facts != (first or facts):
            raise SourceError(f'{root}/index.json', f'expected the columns {first}, got {facts}')
        first, columns = facts, file_columns
        for files in chunks:
            stored, *others = files
            if others and size_of(stored, storage_options) is None and size_of(others[0], storage_options):
                uses_raw, stored = True, others[0]  # The cache of Streaming lacks compressed files.
            if stored in shards:
                raise SourceError(f'{root}/index.json', f'expected each shard once, got {stored!r} twice')
            shards[stored] = files[stored]
    source = ChunkSource('mds', columns, shards, storage_options)
    if uses_raw:
        source.notes.append('shards whose compressed files are missing are read from their raw files')
    return source


def _parse(
    root: str, index: Any
) -> tuple[dict[str, Any], list[tuple[str, SampleColumn]], list[dict[str, SampleChunk]]]:
    """Returns the stored column facts, the columns, and the files of each shard: as stored, then raw."""
    shards = []
    first = {key: index['shards'][0][key] for key in _COLUMNS}
    for number, each in enumerate(index['shards']):
        if (each['version'], each['format']) != (2, 'mds'):
            raise ValueError(f'expected version 2 of mds, got {each["version"]} of {each["format"]!r}')
        if any(each[key] != first[key] for key in _COLUMNS):
            raise ValueError(f'expected the same columns in each shard, got others in shard {number}')
        length = at_least('samples', each['samples'], 0)
        files = {}
        for key, codec in (('zip_data', str(each['compression'])), ('raw_data', '')):
            if file := each[key]:
                hashes = tuple(
                    (str(name), str(digest)) for name, digest in (file.get('hashes') or {}).items()
                )
                files[path_beside(root, file['basename'])] = SampleChunk(
                    length, at_least('bytes', file['bytes'], 0), codec, hashes=hashes
                )
        if not files:
            raise ValueError(f'shard {number}: expected a file, got none')
        shards.append(files)
    columns = [
        (str(name), _column(str(name), encoding)._replace(size=size))
        for name, encoding, size in zip(*first.values(), strict=True)
    ]
    return first, columns, shards


def _column(name: str, encoding: str) -> SampleColumn:
    if encoding in _ENCODINGS:
        return _ENCODINGS[encoding]
    word, _, rest = encoding.partition(':')
    dtype, _, lengths = rest.partition(':')
    if word != 'ndarray':
        encodings = ', '.join((*_ENCODINGS, 'ndarray'))
        raise ValueError(f'column {name!r}: expected an encoding of {encodings}, got {encoding!r}')
    if lengths:
        return numbers(dtype, tuple(map(int, lengths.split(','))))
    return SampleColumn('array', functools.partial(_array, dtype=dtype))


def _array(data: bytes, dtype: str) -> Any:
    """Parses an array: the dtype if `dtype` is empty, then the shape, then the elements."""
    if not dtype:
        dtype, data = _DTYPES[data[0]], data[1:]
    width, rank = 1 << (data[0] & 3), data[0] >> 2
    shape = np.frombuffer(data[1 : 1 + width * rank], f'<u{width}').tolist()
    return np.asarray(array_from(data[1 + width * rank :], np.dtype(dtype), tuple(shape)), dtype)
