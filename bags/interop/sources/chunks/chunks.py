"""Chunks of samples, as in MDS and LitData: an index lists the chunks and the format of each column.

A chunk has the number of its samples and their offsets, followed by their end, 4 bytes each, then the
samples. A sample has the sizes of the columns without a fixed size, 4 bytes each, then the columns.

The libraries of both formats are not used, because they import torch, and their readers decode JPEG and
unpickle, while an import copies the bytes.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bags.dataset.format.spec import parse_type
from bags.errors import SourceError
from bags.formats.arrays import type_text
from bags.indexing import Int64s
from bags.interop.files import checked_link, checked_value, is_stored_as_is
from bags.interop.records import FileRecord, RecordSource, array_from, open_file, size_of
from bags.interop.source import DamagedEntries, as_source_errors, check_claim, list_some, name_fields
from bags.interop.sources.files.compressed import CODECS, DecompressedFile
from bags.links.link import Link
from bags.links.sources import LinkOpener, OpenedLink

_OFFSET_BYTES = 4
"""Bytes of the offset of a sample."""
_SAMPLE_BYTES = 1 << 13
"""Bytes of a linked sample that are read at once: the sizes of its columns, and the first columns."""
_MAX_CHUNK_BYTES = 1 << 32
"""Maximum size of a chunk: offsets have four bytes."""
_HASHED_BYTES = 1 << 20
_CHANNELS = {b'L': (), b'RGB': (3,), b'RGBA': (4,)}
_FRAMES_HEAD = struct.Struct('<8s2H3I')
_FRAME = struct.Struct('<2IQ2I')


class SampleChunk(NamedTuple):
    """A file of samples, as an index describes it."""

    length: int
    """Number of samples."""
    size: int | None = None
    """Bytes of the file."""
    codec: str = ''
    """A codec, optionally with ':' and a level; empty if not compressed."""
    level: str = 'chunk'
    """The unit of compression: the whole 'chunk', each 'batch' or each 'sample'."""
    hashes: tuple[tuple[str, str], ...] = ()
    """Algorithms of hashlib or xxhash, and the digests of the file in hexadecimal digits."""


class SampleColumn(NamedTuple):
    """A column, and the conversion of its bytes to values."""

    type: str
    """The type of its field."""
    decode: Callable[[bytes], Any] | None = None
    """Function from bytes to a value, or to the files of a sequence; None to keep the bytes."""
    note: str = ''
    """What the import changes: a sentence without its subject, the field."""
    size: int | None = None
    """Bytes of a value, if all have the same size."""
    is_raw: bool = False
    """Whether `decode` returns arrays of one dtype and shape, whose records equal the stored bytes."""


class ChunkSource(RecordSource):
    """The samples of chunks, by path. The order of `columns` is the order in a sample."""

    def __init__(
        self,
        format: str,
        columns: Sequence[tuple[str, SampleColumn]],
        chunks: Mapping[str, SampleChunk],
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        damaged = []
        for path, chunk in chunks.items():
            size = size_of(path, storage_options)
            if size is None or chunk.size not in (None, size):
                expected = 'a file' if chunk.size is None else f'{chunk.size} bytes'
                damaged.append((path, f'expected {expected}, got {"no file" if size is None else size}'))
                continue
            try:
                check_claim(_OFFSET_BYTES * chunk.length, size, f'{chunk.length} samples')
            except ValueError as exc:
                damaged.append((path, str(exc)))
        files = {path: chunk.length for path, chunk in chunks.items() if path not in dict(damaged)}
        super().__init__(
            format, {}, files, lambda path, start, _: self._read_chunk(path, chunks[path], start)
        )
        self._compressed = [path for path in files if chunks[path].codec]
        self._storage_options = storage_options
        self.damaged = damaged
        fields = name_fields([name for name, _ in columns], self.notes)
        self._columns = [(fields[name], column) for name, column in columns]
        self.spec = {field: column.type for field, column in self._columns}
        self.notes += [f'field {field!r}{column.note}' for field, column in self._columns if column.note]

    def _read_chunk(
        self, path: str, chunk: SampleChunk, start: int
    ) -> Iterator[bytes | OpenedLink | DamagedEntries]:
        if self.linked and not chunk.codec:
            return _link_samples(path, chunk, start, self.opener)
        return _read_chunk(path, chunk, start, self._storage_options)

    def linkable(self) -> dict[str, float | str]:
        if len(self._compressed) == len(self.files):
            return dict.fromkeys(self.spec, f'chunks of {self.format} that are compressed have no records')
        if self._compressed:
            self.notes.append(f'the records of compressed chunks are copied: {list_some(self._compressed)}')
        return self.measured(
            {
                field
                for field, column in self._columns
                if self.spec.get(field) == column.type
                if column.is_raw or (not column.decode and is_stored_as_is(parse_type(column.type)))
            }
        )

    def decode(self, entry: FileRecord, data: bytes | OpenedLink) -> Mapping[str, Any]:
        varying = [field for field, column in self._columns if not column.size]
        if isinstance(data, OpenedLink):
            data = data.read_ahead(_SAMPLE_BYTES)
        heads = bytes(data[: 4 * len(varying)])
        sizes = dict(zip(varying, struct.unpack(f'<{len(varying)}I', heads), strict=True))
        offset, values = 4 * len(varying), {}
        for field, column in self._columns:
            start, offset = offset, offset + (column.size or sizes[field])
            if field not in self.spec:
                continue
            type_format, name = parse_type(self.spec[field]).format, f'{self.name(entry)}, field {field!r}'
            if isinstance(data, OpenedLink) and field in self.linked:
                values[field] = checked_link(name, type_format, data.part(start, offset))
                continue
            part = bytes(data[start:offset])
            value = column.decode(part) if column.decode else checked_value(name, type_format, part)
            if isinstance(value, list):
                value = [
                    checked_value(f'{name}, item {i}', type_format, item) for i, item in enumerate(value)
                ]
            values[field] = value
        if offset != len(data):
            raise ValueError(f'expected a sample of {offset} bytes, got {len(data)}')
        return values


def _link_samples(path: str, chunk: SampleChunk, start: int, opener: LinkOpener) -> Iterator[OpenedLink]:
    """Yields links to the samples of an uncompressed chunk; its digests are not verified."""
    with as_source_errors(path, 'chunk'):
        whole = opener.open(Link(path))
        if chunk.size not in (None, len(whole)):
            raise ValueError(f'expected {chunk.size} bytes, got {len(whole)}')
        length = 4 * (chunk.length + 2)
        ends = _ends(bytes(whole[:length]), chunk.length, len(whole))
        for first, stop in itertools.pairwise(ends[start:].tolist()):
            yield whole.part(first, stop)


def _ends(data: bytes, count: int, size: int) -> Int64s:
    """Returns the start of each sample of a chunk, and the end of the last one, shape (count + 1,).

    Args:
        data: The beginning of the chunk, with all offsets; empty if the chunk is too short for them.
        count: The number of samples.
        size: Bytes of the chunk.
    """
    offsets = np.frombuffer(data[: len(data) & ~3], '<u4').astype(np.int64)
    if len(offsets) != count + 2 or offsets[0] != count:
        raise ValueError(f'expected {count} samples, got a file of {size} bytes without them')
    ends: Int64s = offsets[1:]
    if ends[0] < len(data) or (np.diff(ends) < 0).any() or ends[-1] > size:
        raise ValueError(f'expected samples from byte {len(data)} to byte {size}, got other offsets')
    return ends


def _read_chunk(
    path: str, chunk: SampleChunk, start: int, storage_options: Mapping[str, Any] | None
) -> Iterator[bytes | DamagedEntries]:
    """Yields the samples of a chunk from `start` on; a chunk compressed as a whole is read into memory."""
    count, codec, level = chunk.length, chunk.codec.partition(':')[0], chunk.level
    with as_source_errors(path, 'chunk'), open_file(path, storage_options) as stored:
        if codec and codec not in CODECS:
            raise ValueError(f'expected compression {", ".join(CODECS)}, or none, got {codec!r}')
        _check_hashes(stored, chunk.hashes)
        file = io.BytesIO(_inflated(stored, codec)) if codec and level == 'chunk' else stored
        size = file.seek(0, 2)
        file.seek(0)
        if codec and level == 'batch':
            yield from _read_frames(path, file, size, count, start, codec)
            return
        length = 4 * (count + 2)
        ends = _ends(file.read(length) if length <= size else b'', count, size)
        file.seek(int(ends[start]))
        for number, size in enumerate(np.diff(ends)[start:].tolist(), start):
            data = file.read(size)
            try:
                with as_source_errors(f'{path}, record {number}', codec):
                    yield _inflated(io.BytesIO(data), codec) if level == 'sample' else data
            except SourceError as exc:
                yield DamagedEntries(exc)


def _check_hashes(file: BinaryIO, hashes: Sequence[tuple[str, str]]) -> None:
    """Verifies the digests of a file; skips unknown algorithms."""
    import xxhash

    for name, expected in hashes:
        if name in hashlib.algorithms_available:
            digest: Any = hashlib.new(name, usedforsecurity=False)
        elif name in xxhash.algorithms_available:
            digest = getattr(xxhash, name)()
        else:
            continue
        while block := file.read(_HASHED_BYTES):
            digest.update(block)
        file.seek(0)
        actual = digest.hexdigest()
        if actual != expected.lower():
            raise ValueError(f'expected {name} {expected}, got {actual}')


def _read_frames(
    path: str, file: BinaryIO, size: int, count: int, start: int, codec: str
) -> Iterator[bytes | DamagedEntries]:
    """Yields the samples of a LitData chunk that is compressed in frames of one or several samples.

    The chunk begins with the numbers of samples and of frames. The offsets of samples and their end follow,
    in the content of all frames; then for each frame its first sample, its number of samples, its offset,
    its size, and the size of its content.
    """
    magic, version, _, samples, _, frames = _FRAMES_HEAD.unpack(file.read(_FRAMES_HEAD.size))
    if (magic, version, samples) != (b'LDFZ01\0\0', 1, count):
        raise ValueError(f'expected {count} samples in batches of version 1, got {samples} in {version}')
    length = 4 * (count + 1) + _FRAME.size * frames
    if length > size:
        raise ValueError(f'expected {frames} batches, got a file of {size} bytes')
    offsets = np.frombuffer(file.read(4 * (count + 1)), '<u4').astype(np.int64)
    table = list(_FRAME.iter_unpack(file.read(_FRAME.size * frames)))
    if [first for first, *_ in table] + [count] != [0, *itertools.accumulate(frame[1] for frame in table)]:
        raise ValueError('expected batches that follow each other')
    for first, number, offset, stored, _ in table:
        stop = first + number
        if stop <= start:
            continue
        ends = (offsets[start : stop + 1] - offsets[first]).tolist()
        try:
            with as_source_errors(f'{path}, records {start} to {stop - 1}', codec):
                if offset + stored > size:
                    raise ValueError(f'expected {stored} bytes at {offset}, got a file of {size}')
                file.seek(offset)
                data = _inflated(io.BytesIO(file.read(stored)), codec)
                if len(data) != offsets[stop] - offsets[first] or ends != sorted(ends):
                    raise ValueError(f'expected other offsets in {len(data)} bytes')
        except SourceError as exc:
            yield DamagedEntries(exc, stop - start)
        else:
            yield from (data[begin:end] for begin, end in itertools.pairwise(ends))
        start = stop


def _inflated(file: BinaryIO, codec: str) -> bytes:
    content, parts = DecompressedFile(file, codec), list[bytes]()
    while part := content.read(1 << 20):
        parts.append(part)
        if content.tell() > _MAX_CHUNK_BYTES:
            raise ValueError(f'expected at most {_MAX_CHUNK_BYTES} bytes')
    return b''.join(parts)


def numbers(dtype: str, shape: tuple[int, ...] = ()) -> SampleColumn:
    """Returns a column of numbers, or of arrays of one dtype and shape; -1 marks a variable length."""
    element = np.dtype(dtype)
    decode = functools.partial(array_from, dtype=element, shape=shape)
    return SampleColumn(type_text(element, shape), decode, is_raw=bool(shape))


def split_images(data: bytes) -> list[bytes]:
    """Splits a stored list of images into files: their number and sizes, 4 bytes each, then the files."""
    (count,) = struct.unpack_from('<I', data)
    ends = itertools.accumulate(struct.unpack_from(f'<{count}I', data, 4), initial=4 + 4 * count)
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def split_pixels(data: bytes) -> Any:
    """Returns the pixels of an image stored as width, height, PIL mode, and the bytes in memory."""
    width, height, length = struct.unpack_from('<3I', data)
    channels = _CHANNELS.get(data[12 : 12 + length])
    if channels is None:
        raise ValueError(f'expected pixels of mode L, RGB or RGBA, got {data[12:20]!r}')
    return array_from(data[12 + length :], np.dtype(np.uint8), (height, width, *channels))
