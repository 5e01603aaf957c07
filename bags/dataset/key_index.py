"""The index of a field's keys, `FIELD.index`: where each key is, without reading the field.

    blocks   for each 256 keys: their hashes, sorted, 8 bytes each; then their datapoints, 8 bytes each
    hashes   the first hash of each block, 8 bytes each
    sums     xxh3_64 of each block, 8 bytes each
    footer   "bags key index 1", the fingerprint of the field (24 characters), the number of keys and of
             datapoints, and xxh3_64 of all from the hashes to here

All numbers are little-endian. The hash of a key is xxh3_64 of its bytes, of its UTF-8, or of the decimal text
of an integer. Datapoints whose keys have one hash are in ascending order.

A look-up reads one block, and then the keys of the datapoints that it names: what is found does not depend on
what the file says.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.options import LimitsPlacement
from bags.dataset.batch import spread
from bags.dataset.columns import read_records
from bags.dataset.field import Field
from bags.dataset.fingerprint import fingerprint
from bags.dataset.selection import select_whole
from bags.dataset.spec import FieldType
from bags.errors import CorruptError, DecodeError
from bags.formats.scalars import decode_legacy_int, int_decoder
from bags.indexing import Int64s
from bags.storage import File, Hints, Store
from bags.storage.base import Buffer
from bags.storage.memory_file import MemoryFile

__all__ = [
    'KEY_TYPES',
    'KeyIndex',
    'Matches',
    'as_key',
    'check_key_field',
    'dump_key_index',
    'hash_key',
    'index_in_memory',
    'index_name',
    'is_index',
    'open_key_index',
    'read_keys',
]

MAGIC = b'bags key index 1'
FOOTER = struct.Struct('<16s24sQQQ')
BLOCK = 256
ENTRY = 16
KEY_TYPES = {'bytes': bytes, 'utf8': str, 'int': int, 'uint': int, 'i64': int, 'u64': int}
"""Word → the Python type of its keys."""
CHUNK_BYTES = 1 << 22
"""Bytes of keys that are read at a time,"""
MAX_CHUNK = 1 << 15  # and their number.

Hashes = npt.NDArray[np.uint64]


class Matches(NamedTuple):
    """The datapoints that have each of n keys."""

    counts: Int64s
    """How many have it, shape (n,)."""
    rows: Int64s
    """Which: those of the first key, in ascending order, then those of the second, and so on."""

    @classmethod
    def sorted(cls, owners: Int64s, rows: Int64s, count: int) -> Matches:
        """Returns datapoints, each of one of `count` keys, in order."""
        return cls(np.bincount(owners, minlength=count), rows[np.lexsort((rows, owners))])


@functools.cache
def hash_key() -> Callable[[Buffer], int]:
    """Returns the hash of keys: xxh3_64."""
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest


def index_name(field: str) -> str:
    """Returns the name of the index of a field."""
    return f'{field}.index'


def is_index(name: str) -> bool:
    """Tells by its name whether a file is the index of a field."""
    return name.endswith('.index')


# Keys: bytes, which are equal where the values are.


def check_key_field(dataset: Any, field: str) -> FieldType:
    """Returns the type of a field of keys.

    Raises:
        KeyError: No such field.
        TypeError: A sequence, or a type whose values are no keys.
    """
    select_whole(field, dataset._types, 'key')
    kind: FieldType = dataset._types[field]
    if kind.sequence or kind.word not in KEY_TYPES:
        raise TypeError(
            f'field {field!r} of type {kind.text}: expected keys: utf8, bytes, int or uint, and no sequence'
        )
    return kind


def as_key(key: Any, field: str, kind: FieldType) -> bytes:
    """Returns a value as a key of a field.

    Raises:
        TypeError: It is not of the type of the field.
    """
    if kind.word == 'utf8':
        if isinstance(key, str):
            return key.encode()
    elif kind.word == 'bytes':
        if isinstance(key, bytes | bytearray | memoryview):
            return bytes(key)
    elif hasattr(key, '__index__') and not isinstance(key, bool | np.bool_):
        return b'%d' % operator.index(key)
    raise TypeError(f'field {field!r} of type {kind.text}: expected a key of this type, got {key!r:.80}')


def _read_column(field: Field, refs: Any, items: Any) -> list[bytes | None]:
    """Returns keys of a folder: as `bags.dataset.columns` returns values, but whatever the decoders are."""
    records = read_records(field, refs, items)
    kind = field.kind
    if kind.word in ('bytes', 'utf8'):
        return records
    is_signed = kind.word in ('int', 'i64')
    decode: Callable[[bytes], int] = int_decoder(
        *(('8',) if kind.word == 'i64' else kind.args), signed=is_signed
    )
    options = field.bag.options
    if kind.word == 'int' and options is not None and options.limits_placement is LimitsPlacement.STARTS:
        decode = decode_legacy_int
    keys: list[bytes | None] = []
    for ref, record in zip(refs.tolist(), records, strict=True):
        try:
            keys.append(None if record is None else b'%d' % decode(record))
        except ValueError as exc:
            raise DecodeError(field.name, ref, kind.text, str(exc), field.bag.path) from exc
    return keys


def keys_of(dataset: Any, rows: Int64s, field: str) -> list[bytes | None]:
    """Returns the keys of some datapoints; None where they have no value."""
    found: Any = dataset._read(rows, {field: True}, _read_column)[field]
    return list(found)


def read_keys(dataset: Any, field: str) -> Iterator[tuple[int, list[bytes | None]]]:
    """Yields the keys of all datapoints, and the first datapoint of each list of them."""
    start, step = 0, 256
    while start < len(dataset):
        keys = keys_of(dataset, np.arange(start, min(start + step, len(dataset))), field)
        yield start, keys
        start += len(keys)
        size = max(1, sum(len(key) for key in keys if key is not None))
        step = max(1, min(MAX_CHUNK, 4 * step, step * CHUNK_BYTES // size))


# The file.


def dump_key_index(dataset: Any, field: str, advance: Callable[[int], None] | None = None) -> bytes:
    """Reads all keys of a field, and returns the content of its index."""
    digest = hash_key()
    hashes = np.empty(len(dataset), np.uint64)
    present = np.ones(len(dataset), bool)
    for start, keys in read_keys(dataset, field):
        stop = start + len(keys)
        if None in keys:
            present[start:stop] = [key is not None for key in keys]
        hashes[start:stop] = np.fromiter((digest(key or b'') for key in keys), np.uint64, len(keys))
        if advance is not None:
            advance(len(keys))
    rows = np.flatnonzero(present)
    hashes = hashes[rows]
    order = np.argsort(hashes, kind='stable')
    hashes, rows, count = hashes[order], rows[order], len(order)
    data = bytearray(ENTRY * count)
    # (blocks, 2, 256) but for the last block, which may have fewer.
    whole = count // BLOCK * BLOCK
    table = np.frombuffer(data, '<u8')
    blocks = table[: 2 * whole].reshape(-1, 2, BLOCK)
    blocks[:, 0], blocks[:, 1] = hashes[:whole].reshape(-1, BLOCK), rows[:whole].reshape(-1, BLOCK)
    table[2 * whole : whole + count], table[whole + count :] = hashes[whole:], rows[whole:]
    view = memoryview(data)
    sums = [digest(view[start : start + ENTRY * BLOCK]) for start in range(0, len(data), ENTRY * BLOCK)]
    head = hashes[::BLOCK].astype('<u8').tobytes() + np.array(sums, '<u8').tobytes()
    footer = FOOTER.pack(MAGIC, fingerprint(dataset, [field]).encode(), count, len(dataset), 0)[:-8]
    return b''.join([data, head, footer, digest(head + footer).to_bytes(8, 'little')])


class KeyIndex:
    """The index of a field's keys.

    Args:
        file: The file.

    Raises:
        CorruptError: It is damaged.
    """

    def __init__(self, file: File) -> None:
        self.path, self._file = file.path, file
        size = file.size - FOOTER.size
        if size < 0:
            raise self._damaged(f'expected at least {FOOTER.size} bytes, got {file.size}')
        footer = bytes(file.read(size, file.size))
        magic, made_from, count, length, checksum = FOOTER.unpack(footer)
        self.count: int = count
        """Keys."""
        self.length: int = length
        """Datapoints of the dataset."""
        blocks = -(-self.count // BLOCK)
        if magic != MAGIC or size != ENTRY * (self.count + blocks) or self.count > self.length:
            raise self._damaged('expected the index of a field at its end')
        head = bytes(file.read(size - ENTRY * blocks, size))
        if hash_key()(head + footer[:-8]) != checksum:
            raise self._damaged('differs from its checksum')
        self.fingerprint = made_from.decode('ascii', 'replace')
        self._firsts, self._sums = np.frombuffer(head, '<u8').reshape(2, blocks)
        self._check_order(self._firsts)

    def _damaged(self, detail: str) -> CorruptError:
        return CorruptError(self.path, None, f'{detail}: run bags.create_index again')

    def _check_order(self, hashes: Hashes) -> None:
        if not (hashes[1:] >= hashes[:-1]).all():
            raise self._damaged('expected sorted hashes')

    def _table(self, number: int, data: Buffer) -> npt.NDArray[np.uint64]:
        """Returns the hashes and datapoints of a block, shape (2, n)."""
        if hash_key()(data) != self._sums[number]:
            raise self._damaged(f'block {number} differs from its checksum')
        return np.frombuffer(data, '<u8').reshape(2, -1)

    def _tables(self, numbers: Int64s) -> tuple[Hashes, Hashes]:
        """Returns the hashes and datapoints of several blocks, one after the other."""
        starts = numbers * (ENTRY * BLOCK)
        found = self._file.read_many(starts, np.minimum(starts + ENTRY * BLOCK, ENTRY * self.count))
        tables = [self._table(*each) for each in zip(numbers.tolist(), found, strict=True)]
        hashes, rows = np.concatenate([np.empty((2, 0), np.uint64), *tables], 1)
        self._check_order(hashes)
        return hashes, rows

    def check(self) -> None:
        """Reads all of it.

        Raises:
            CorruptError: It is damaged.
        """
        blocks = len(self._firsts)
        for start in range(0, blocks, 1024):
            self._checked(self._tables(np.arange(start, min(start + 1024, blocks)))[1])

    def _checked(self, rows: Hashes) -> Int64s:
        """Returns datapoints, each once and in ascending order, whatever the file says."""
        found = np.unique(rows) if len(rows) > 1 else rows
        if len(found) and int(found[-1]) >= self.length:
            raise self._damaged(f'expected datapoints below {self.length}, got {int(found[-1])}')
        return found.astype(np.int64)

    def _candidates_of(self, hash: np.uint64) -> Int64s:
        """Returns the datapoints whose keys have a hash."""
        after = int(self._firsts.searchsorted(hash, 'right'))
        if not after:
            return np.empty(0, np.int64)
        if self._firsts[after - 1] == hash:
            return self._candidates(np.array([hash]))
        start = (after - 1) * ENTRY * BLOCK
        data = self._file.read(start, min(start + ENTRY * BLOCK, ENTRY * self.count))
        hashes, rows = self._table(after - 1, data)
        return self._checked(rows[hashes.searchsorted(hash, 'left') : hashes.searchsorted(hash, 'right')])

    def _candidates(self, hashes: Hashes) -> Int64s:
        """Returns the datapoints whose keys have one of these hashes, which are sorted and differ."""
        # Equal hashes may begin in the block before the first that begins with them, and go on in others.
        before = np.maximum(self._firsts.searchsorted(hashes, 'left') - 1, 0)
        after = self._firsts.searchsorted(hashes, 'right')
        known, rows = self._tables(np.unique(spread(before, np.maximum(after - before, 0))))
        lows, highs = known.searchsorted(hashes, 'left'), known.searchsorted(hashes, 'right')
        return self._checked(rows[spread(lows, highs - lows)])

    def first(self, dataset: Any, field: str, key: bytes) -> int:
        """Returns the first datapoint that has a key; -1 if none has."""
        rows = self._candidates_of(np.uint64(hash_key()(key)))
        if len(rows) and not dataset.is_remote:
            # A row by itself is read in 1 us, as a batch in 60. Decoders of the user's may give other values.
            row = int(rows[0])
            with contextlib.suppress(TypeError):
                if as_key(dataset._row(row, {field: True})[field], field, dataset._types[field]) == key:
                    return row
        start, step = 0, 1
        while start < len(rows):
            # Mostly there is one. Others have another key of this hash, or have the key too.
            keys = keys_of(dataset, rows[start : start + step], field)
            if key in keys:
                return int(rows[start + keys.index(key)])
            start, step = start + step, min(4 * step, MAX_CHUNK)
        return -1

    def match(self, dataset: Any, field: str, keys: list[bytes]) -> Matches:
        """Returns the datapoints that have each of some keys."""
        counts = np.zeros(len(keys), np.int64)
        parts: list[Int64s] = [np.empty(0, np.int64)]
        for start in range(0, len(keys), MAX_CHUNK):
            asked = keys[start : start + MAX_CHUNK]
            hashes = np.unique(np.fromiter(map(hash_key(), asked), np.uint64, len(asked)))
            rows = self._candidates(hashes)
            found: dict[bytes | None, list[int]] = {key: [] for key in asked}
            for first in range(0, len(rows), MAX_CHUNK):
                some = rows[first : first + MAX_CHUNK]
                for key, row in zip(keys_of(dataset, some, field), some.tolist(), strict=True):
                    if key in found:
                        found[key].append(row)
            for place, key in enumerate(asked, start):
                counts[place] = len(found[key])
            parts.append(np.fromiter((row for key in asked for row in found[key]), np.int64))
        return Matches(counts, np.concatenate(parts))


def index_in_memory(dataset: Any, field: str) -> KeyIndex:
    """Returns the index of a field that is not stored."""
    return KeyIndex(MemoryFile(f'index of field {field!r} of {dataset!r}', dump_key_index(dataset, field)))


def open_key_index(dataset: Any, field: str, store: Store, folder: str, hints: Hints) -> KeyIndex:
    """Opens the index of a dataset.

    Raises:
        FileNotFoundError: There is none.
        CorruptError: It is damaged, or stale.
    """
    path = store.join(folder, index_name(field))
    try:
        index = KeyIndex(store.open(path, hints))
    except FileNotFoundError:
        detail = f'no index of field {field!r}: bags.create_index makes it'
        raise FileNotFoundError(errno.ENOENT, detail, path) from None
    again = 'run bags.create_index again'
    if index.length != len(dataset):
        got = f'is stale: it was made of {index.length} datapoints, there are {len(dataset)}'
        if index.length > len(dataset):
            again += ', or open the dataset again if it has grown'
        raise CorruptError(path, None, f'{got}: {again}')
    if index.fingerprint != fingerprint(dataset, [field]):
        raise CorruptError(path, None, f'is stale: it was made of other data: {again}')
    return index
