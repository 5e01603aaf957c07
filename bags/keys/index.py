"""The index of a field's keys, `FIELD.index`: looks up the datapoints of a key without reading the field.

    blocks   for every 256 keys: their hashes, sorted, 8 bytes each; then their datapoints, 8 bytes each
    hashes   the first hash of each block, 8 bytes each
    sums     xxh3_64 of each block, 8 bytes each
    footer   "bags key index 1", the fingerprint of the field (24 characters), the number of keys and of
             datapoints, and xxh3_64 of all preceding bytes from the hashes on

All numbers are little-endian. The hash of a key is xxh3_64 of its bytes, of its UTF-8, or of the decimal text
of an integer. Datapoints whose keys have the same hash are in ascending order.

A look-up reads one block, and then compares the keys of the datapoints in it, so a wrong index cannot return
a datapoint with another key.
"""

from __future__ import annotations

import bisect
import errno
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import digest_function
from bags.dataset.base import Dataset
from bags.dataset.format.file_names import IDENTITY
from bags.dataset.format.folder import Folder
from bags.dataset.format.spec import FieldType
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.fingerprint import fingerprint, legacy_fingerprint, sample
from bags.dataset.reading.key_values import KEY_TYPES, MAX_KEY_CHUNK, Matches, as_key, read_keys, sort_matches
from bags.dataset.reading.selection import select_whole
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.links.permission import PermittedPaths
from bags.progress.progress import progress as show_progress
from bags.storage import File, Hints
from bags.storage.base import Buffer
from bags.storage.memory_file import MemoryFile
from bags.validation import with_advice

INDEX_SUFFIX = '.index'
INDEX_MAGIC = b'bags key index 1'
INDEX_FOOTER = struct.Struct('<16s24sQQQ')
KEYS_PER_BLOCK = 256
INDEX_BLOCK_BYTES = 16 * KEYS_PER_BLOCK

Hashes = npt.NDArray[np.uint64]


def check_key_field(dataset: Dataset, field: str) -> FieldType:
    """Checks that a field can have keys, and returns its type.

    Raises:
        KeyError: The field does not exist.
        TypeError: The field is a sequence, or has a type whose values cannot be keys.
    """
    select_whole(field, dataset.schema, 'key')
    field_type: FieldType = dataset.schema[field]
    if field_type.sequence or field_type.format not in KEY_TYPES:
        raise TypeError(
            f'field {field!r} of type {field_type.text}: '
            f'expected keys: utf8, bytes, int or uint, not a sequence'
        )
    return field_type


# The file.


def dump_key_index(dataset: Dataset, field: str, advance: Callable[[int], None] | None = None) -> bytes:
    """Reads all keys of a field, and returns the content of its index."""
    digest = digest_function()
    parts = [np.empty((2, 0), np.uint64)]
    for rows, keys in read_keys(dataset, field):
        has_key = np.array([key is not None for key in keys])
        hashes = np.fromiter((digest(key) for key in keys if key is not None), np.uint64)
        parts.append(np.stack([hashes, rows[has_key].astype(np.uint64)]))
        if advance is not None:
            advance(len(keys))
    table = np.concatenate(parts, 1)
    table = table[:, np.argsort(table[0], kind='stable')].astype('<u8')
    count = table.shape[1]
    blocks = [table[:, start : start + KEYS_PER_BLOCK].tobytes() for start in range(0, count, KEYS_PER_BLOCK)]
    sums = np.array([digest(block) for block in blocks], '<u8')
    footer = INDEX_FOOTER.pack(INDEX_MAGIC, fingerprint(dataset, [field]).encode(), count, len(dataset), 0)[
        :-8
    ]
    tail = table[0, ::KEYS_PER_BLOCK].tobytes() + sums.tobytes() + footer
    return b''.join([*blocks, tail, digest(tail).to_bytes(8, 'little')])


class KeyIndex:
    """The index of a field's keys, in a file. Raises CorruptError if the file is damaged."""

    def __init__(self, file: File) -> None:
        self.path, self._file = file.path, file
        size = file.size - INDEX_FOOTER.size
        if size < 0:
            raise self._damaged(f'expected at least {INDEX_FOOTER.size} bytes, got {file.size}')
        footer = bytes(file.read(size, file.size))
        magic, self.fingerprint, count, self.length, checksum = INDEX_FOOTER.unpack(footer)
        self.count: int = count
        blocks = -(-self.count // KEYS_PER_BLOCK)
        if magic != INDEX_MAGIC or size != 16 * (self.count + blocks):
            raise self._damaged('expected the index of a field at its end')
        head = bytes(file.read(size - 16 * blocks, size))
        self._digest = digest_function()
        if self._digest(head + footer[:-8]) != checksum:
            raise self._damaged('differs from its checksum')
        self._firsts, self._sums = np.frombuffer(head, '<u8').reshape(2, blocks)
        self._first_hashes = memoryview(head)[: 8 * blocks].cast('Q')
        self._expect_order(self._firsts)

    def _damaged(self, detail: str) -> CorruptError:
        return CorruptError(self.path, None, f'{detail}: run bags.create_index again')

    def _expect_order(self, hashes: Hashes) -> None:
        if not (hashes[1:] >= hashes[:-1]).all():
            raise self._damaged('expected sorted hashes')

    def _expect_sum(self, number: int, data: Buffer) -> None:
        if self._digest(data) != self._sums[number]:
            raise self._damaged(f'block {number} differs from its checksum')

    def _read(self, numbers: Int64s) -> Hashes:
        """Returns the hashes and the datapoints of blocks, each concatenated, shape (2, n)."""
        starts = numbers * INDEX_BLOCK_BYTES
        blocks = self._file.read_many(starts, np.minimum(starts + INDEX_BLOCK_BYTES, 16 * self.count))
        tables = [np.empty((2, 0), np.uint64)]
        for number, data in zip(numbers.tolist(), blocks, strict=True):
            self._expect_sum(number, data)
            tables.append(np.frombuffer(data, '<u8').reshape(2, -1))
        table = np.concatenate(tables, 1)
        self._expect_order(table[0])
        return table

    def check(self) -> None:
        """Reads and checks the whole index.

        Raises:
            CorruptError: The index is damaged.
        """
        for start in range(0, len(self._firsts), 1024):
            self._read(np.arange(start, min(start + 1024, len(self._firsts))))

    def _candidates(self, hashes: Hashes) -> Int64s:
        """Returns the datapoints whose keys have one of the hashes. `hashes` is sorted and distinct."""
        # Equal hashes may begin at the end of the previous block, and continue in later blocks.
        starts = np.maximum(self._firsts.searchsorted(hashes, 'left') - 1, 0)
        counts = self._firsts.searchsorted(hashes, 'right') - starts
        index_hashes, rows = self._read(np.unique(concat_ranges(starts, counts)))
        lows, highs = index_hashes.searchsorted(hashes, 'left'), index_hashes.searchsorted(hashes, 'right')
        rows = np.unique(rows[concat_ranges(lows, highs - lows)])
        self._expect_below(rows[-1:].tolist())
        return rows.astype(np.int64)

    def _candidate(self, digest: int) -> list[int]:
        """Returns the datapoints whose key has a hash if all are in one block, else an empty list.

        A look-up of one key takes 23 us with this method, and 54 us with the method for many keys.
        """
        firsts = self._first_hashes
        block = bisect.bisect_left(firsts, digest)
        if not self.count or (block < len(firsts) and firsts[block] == digest):
            return []
        number = max(block - 1, 0)
        data = self._file.read(
            number * INDEX_BLOCK_BYTES, min((number + 1) * INDEX_BLOCK_BYTES, 16 * self.count)
        )
        self._expect_sum(number, data)
        table = memoryview(data).cast('Q')
        count = len(table) // 2
        start = bisect.bisect_left(table, digest, 0, count)
        rows = table[count + start : count + bisect.bisect_right(table, digest, start, count)].tolist()
        self._expect_below(rows[-1:])
        return rows

    def _expect_below(self, largest: list[int]) -> None:
        if largest and largest[0] >= self.length:
            raise self._damaged(f'expected datapoints below {self.length}, got {largest[0]}')

    def match(self, dataset: Dataset, field: str, keys: list[bytes | None]) -> Matches:
        """Returns the datapoints of each key."""
        if len(keys) == 1 and keys[0] is not None and not dataset.is_remote:
            # Reading a row takes 1 us, a batch 60 us. The check: user decoders may return other types.
            one = self._candidate(self._digest(keys[0]))
            value = dataset.read_row(one[0], {field: True})[field] if len(one) == 1 else None
            if isinstance(value, KEY_TYPES[dataset.schema[field].format]) and as_key(value) == keys[0]:
                return np.zeros(1, np.int64), np.array(one, np.int64)
        positions, rows = [], []
        for start in range(0, len(keys), MAX_KEY_CHUNK):
            positions_of: dict[bytes | None, list[int]] = defaultdict(list)
            for position, key in enumerate(keys[start : start + MAX_KEY_CHUNK], start):
                if key is not None:
                    positions_of[key].append(position)
            hashes = np.unique(np.fromiter(map(self._digest, positions_of), np.uint64, len(positions_of)))
            for candidates, row_keys in read_keys(dataset, field, self._candidates(hashes), MAX_KEY_CHUNK):
                for row, key in zip(candidates.tolist(), row_keys, strict=True):
                    for position in positions_of.get(key, ()):
                        positions.append(position)
                        rows.append(row)
        return sort_matches(np.array(positions, np.int64), np.array(rows, np.int64))


def index_in_memory(dataset: Dataset, field: str) -> KeyIndex:
    """Builds the index of a field in memory."""
    return KeyIndex(MemoryFile(f'index of field {field!r} of {dataset!r}', dump_key_index(dataset, field)))


def open_key_index(dataset: Dataset, field: str, folder: Folder) -> KeyIndex:
    """Opens the index of a dataset, from its folder or the folder of its first shard.

    Raises:
        FileNotFoundError: The index does not exist.
        CorruptError: The index is damaged or stale.
    """
    path = folder.store.join(folder.path, field + INDEX_SUFFIX)
    hints = Hints(mapped=folder.options.mapped, max_parallelism=folder.options.max_parallelism)
    try:
        index = KeyIndex(folder.store.open(path, hints))
    except FileNotFoundError:
        detail = f'no index of field {field!r}: bags.create_index writes it'
        raise FileNotFoundError(errno.ENOENT, detail, path) from None
    if index.length != len(dataset) or not _is_of(dataset, field, index, folder):
        dataset.batch(sample(len(dataset)), field)  # Raises the real error if the dataset is damaged.
        detail = f'is stale: it was made from other data ({index.length} datapoints, here {len(dataset)})'
        again = 'run bags.create_index again, and open the dataset again'
        raise CorruptError(path, None, f'{detail}: {again}')
    return index


def _is_of(dataset: Dataset, field: str, index: KeyIndex, folder: Folder) -> bool:
    """Returns whether an index was made from this dataset."""
    is_legacy = not folder.store.exists(folder.store.join(folder.path, IDENTITY))
    if is_legacy and index.fingerprint == legacy_fingerprint(dataset, [field]).encode():
        return True  # Both were written by an earlier version.
    is_same: bool = index.fingerprint == fingerprint(dataset, [field]).encode()
    return is_same


def find_keys(dataset: Dataset, field: str, keys: Iterable[Any]) -> Int64s:
    """Returns the first datapoint with each key; raises as `Dataset.find`."""
    field_type = check_key_field(dataset, field)
    wanted = list(keys)
    for key in wanted:
        if not isinstance(key, KEY_TYPES[field_type.format]) or isinstance(key, bool):
            raise TypeError(
                f'field {field!r} of type {field_type.text}: expected a key of this type, got {key!r:.80}'
            )
    matches: Matches = dataset.match_keys(field, list(map(as_key, wanted)))
    positions, rows = matches
    if len(wanted) == len(rows) == 1:  # `find` of a unique key.
        return rows
    missing = np.flatnonzero(np.bincount(positions, minlength=len(wanted)) == 0)
    if len(missing):
        listed = f'{wanted[missing[0]]!r:.80}' + (f' and {len(missing) - 1} others' * (len(missing) > 1))
        raise KeyError(f'{dataset!r}: field {field!r}: no datapoint has the key {listed}')
    firsts: Int64s = rows[positions.searchsorted(np.arange(len(wanted)))]
    return firsts


@with_advice
def create_index(
    path: str | os.PathLike[str],
    field: str,
    *,
    progress: bool | None = None,
    trust_links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes the index of a field of keys, for `dataset.find` and `find_many`.

    The index is one file for the whole dataset, `FIELD.index`, with 16 bytes per key, and replaces an older
    index. Readers of bags and other libraries ignore it. It becomes stale when datapoints are added or
    replaced, and `bags.copy` leaves it out. Writing it takes about 60 bytes of memory per key. Several
    datapoints may have the same key.

    Args:
        path: The dataset: str, path or URL.
        field: A field of type `utf8`, `bytes`, `int` or `uint`. Missing values are not in the index.
        progress: Whether to show a progress bar. Default: on terminals.
        trust_links, filesystem, storage_options: As in `bags.open`.

    Returns:
        The number of datapoints in the index.

    Raises:
        FileNotFoundError: The dataset does not exist.
        KeyError: The field does not exist.
        TypeError: The field is a sequence, or has another type.
        ValueError: The dataset is unfinished.
        OSError: The dataset is on a web server.
        CorruptError: A record cannot be read.

    Examples:
        >>> bags.create_index('episodes', 'task')
        8
        >>> bags.open('episodes').find('task', 'reach 3')
        3
    """
    with open_dataset(
        path, trust_links=trust_links, filesystem=filesystem, storage_options=storage_options
    ) as dataset:
        check_key_field(dataset, field)
        folder = dataset.index_folder()
        folder.store.make_folder(folder.path)  # Raises on a web server, before any key is read.
        if dataset.unfinished:
            detail = 'expected a finished dataset, got one that is being written, or whose writer ended early'
            raise ValueError(f'{folder.path}: {detail} (bags.recover accepts it as it is)')
        path = folder.store.join(folder.path, field + INDEX_SUFFIX)
        version = folder.store.current_version(path)
        with show_progress('indexing', len(dataset), 'keys', show=progress) as advance:
            data = dump_key_index(dataset, field, advance)
        folder.store.replace(path, data, version)
        return KeyIndex(MemoryFile(path, data)).count
