"""Chunks of LitData: `index.json` names the chunks and the format of each leaf of a sample.

Samples of texts, numbers, and lists and dicts of them are rows of an Arrow file in the chunk, if pyarrow was
installed when LitData wrote them.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bags.interop.file_extensions import type_of
from bags.interop.records import array_from, open_file, path_beside, read_json
from bags.interop.source import Source
from bags.interop.sources.chunks.chunks import (
    ChunkSource,
    SampleChunk,
    SampleColumn,
    numbers,
    split_images,
    split_pixels,
)
from bags.interop.sources.tables import arrow
from bags.interop.sources.tables.arrow_files import LITDATA_END
from bags.validation import at_least

# NumPy dtypes by their number in LitData.
_NUMPY: dict[int, str] = dict(
    enumerate(('i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8', 'c8', 'c16', '?'))
)
_TORCH: dict[int, str] = {
    0: 'f4', 1: 'f4', 2: 'f8', 3: 'f8', 4: 'c8', 5: 'c8', 6: 'c16', 7: 'c16', 8: 'f2', 9: 'f2', 11: 'u1',
    12: 'i1', 13: 'i2', 14: 'i2', 15: 'i4', 16: 'i4', 17: 'i8', 18: 'i8', 19: '?', 20: 'u2',
}  # fmt: skip


def _array(data: bytes, order: str, dtypes: Mapping[int, str]) -> Any:
    """Parses an array: the number of its dtype, its rank and its shape, 4 bytes each, then the elements."""
    number, rank = struct.unpack_from(f'{order}2I', data)
    if number not in dtypes or rank > 64:
        raise ValueError(f'expected a dtype of NumPy, got number {number} with {rank} dimensions')
    shape = struct.unpack_from(f'{order}{rank}I', data, 8)
    return np.asarray(array_from(data[8 + 4 * rank :], np.dtype(dtypes[number]), shape), dtypes[number])


_LEAVES = {
    **dict.fromkeys(('str', 'text'), SampleColumn('utf8')),
    'bool': numbers('bool'),
    'int': numbers('int64'),
    'float': numbers('float64'),
    'bytes': SampleColumn('bytes'),
    **{word: SampleColumn(word) for word in ('jpeg', 'image', 'video', 'audio')},
    **dict.fromkeys(('tiff', 'tifffile'), SampleColumn('image')),
    'json': SampleColumn('bytes', note=' has lists in a code of LitData, which stay bytes'),
    'pickle': SampleColumn(
        'bytes', note=' has pickles, which stay bytes: to unpickle them could run any code'
    ),
    'pil': SampleColumn('png', split_pixels, ' has raw pixels, which become PNG'),
    'jpeg_array': SampleColumn('jpeg[]', split_images),
    'numpy': SampleColumn('array', functools.partial(_array, order='<', dtypes=_NUMPY)),
    'tensor': SampleColumn('array', functools.partial(_array, order='>', dtypes=_TORCH)),
}


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None) -> Source:
    """Returns the source of a folder that `litdata.optimize` wrote."""
    root = paths[0].rstrip('/')
    columns, chunks = read_json(f'{root}/index.json', functools.partial(_parse, root), storage_options)
    source = ChunkSource('litdata', columns, chunks, storage_options)
    if source.files and _has_rows(next(iter(source.files)), storage_options):
        rows = arrow.ArrowSource(list(source.files), storage_options)
        rows.format, rows.damaged = 'litdata', source.damaged + rows.damaged
        return rows
    return source


def _has_rows(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    with open_file(path, storage_options) as file:
        file.seek(max(0, file.seek(0, 2) - len(LITDATA_END)))
        return file.read() == LITDATA_END


def _parse(root: str, index: Any) -> tuple[list[tuple[str, SampleColumn]], dict[str, SampleChunk]]:
    """Returns the columns, and the chunks by their paths."""
    config = index['config']
    for option, expected in (
        ('encryption', None),
        ('item_loader', 'PyTreeLoader'),
    ):
        if (value := config.get(option)) not in (None, expected):
            raise ValueError(f'expected {option} {expected}, got {value!r:.80}; litdata can write it so')
    level = str(config.get('compression_level') or 'chunk')
    if level not in ('chunk', 'batch', 'sample'):
        raise ValueError(f'expected compression_level chunk, batch or sample, got {level!r:.80}')
    names = _names(json.loads(config['data_spec'])[1])
    columns = [
        (name, _column(name, str(format))) for name, format in zip(names, config['data_format'], strict=True)
    ]
    codec = str(config.get('compression') or '')
    chunks = {
        path_beside(root, facts['filename']): SampleChunk(
            at_least('chunk_size', facts['chunk_size'], 0), None, codec, level
        )
        for facts in index['chunks']
    }
    if len(chunks) < len(index['chunks']):
        raise ValueError('expected each chunk once, got one twice')
    return columns, chunks


def _names(spec: Any, before: str = '') -> Iterator[str]:
    """Yields the names of the leaves of a tree dumped by `torch.utils._pytree`; dots join nested names."""
    if spec['type'] is None:
        yield before or 'value'
    children = spec['children_spec']
    keys = json.loads(spec['context']) if 'dict' in str(spec['type']).lower() else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _names(child, f'{before}.{key}' if before else str(key))


def _column(name: str, format: str) -> SampleColumn:
    word, _, rest = format.partition(':')
    if word in _LEAVES:
        return _LEAVES[word]
    if word == 'file':
        return SampleColumn(type_of(rest))
    dtypes = {'no_header_numpy': _NUMPY, 'no_header_tensor': _TORCH}.get(word, {})
    dtype = dtypes.get(int(rest)) if rest.isdecimal() else None
    if dtype is None:
        leaves = ', '.join((*_LEAVES, 'file'))
        raise ValueError(f'leaf {name!r}: expected {leaves}, or numbers of NumPy, got {format!r}')
    return numbers(dtype, (-1,))
