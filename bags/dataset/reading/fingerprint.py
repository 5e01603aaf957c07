"""Fingerprints: hashes of the datapoints of a dataset, independent of its path.

The fingerprint of a dataset is computed from the ids of its folders (`bags.dataset.format.identity`). A
folder does not have an id if another library or an earlier version wrote it, or until it is closed. Then its
refs, limits, checksums, and the records of each field of up to 64 MiB are hashed. Datasets of up to 8 MiB in
up to 64 folders are always hashed, to detect files that were replaced by hand. The fingerprint of a view is
computed from the fingerprints of its datasets and the options of the view. Modification times of files are
not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Sequence, Sized
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, SupportsIndex, TypeGuard

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.concurrency import map_concurrently
from bags.dataset.format.identity import Identity, read_identity
from bags.dataset.format.sizes import folder_size
from bags.dataset.format.spec import Schema
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.refs_reader import RefsReader
from bags.dataset.reading.row_reader import SizedRowReader
from bags.errors import CorruptError, SpecError
from bags.storage import Hints

if TYPE_CHECKING:
    from bags.dataset.format.folder import Folder

SMALL_DATASET_BYTES = 1 << 23
MAX_SMALL_FOLDERS = 64
"""Opening the files of a folder takes 1.4 ms, and reading its id 0.05 ms."""
MAX_RECORDS_BYTES = 1 << 26
"""Maximum bytes of records of a field that are read for the fingerprint of a folder without an id."""
HASHED_READ_BYTES = 1 << 24
SAMPLED_DATAPOINTS = 8
HASHED_RECORD_BYTES = 256
MIN_RECORDS_FOR_THREADS = 64
THREADS = 16


class FingerprintedDataset(SizedRowReader, Protocol):
    """The methods of a dataset that its fingerprint uses. Any `bags.Dataset` has them."""

    schema: Schema
    is_remote: bool

    @property
    def spec(self) -> dict[str, str]: ...

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str: ...

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO: ...


class FolderReader(Protocol):
    """The reader of one dataset folder."""

    schema: Schema
    folder: Folder
    refs: RefsReader

    def __len__(self) -> int: ...

    def open_field(self, name: str) -> FieldReader: ...


def _is_dataset(dataset: FingerprintedDataset | Sized) -> TypeGuard[FingerprintedDataset]:
    return hasattr(dataset, 'fingerprint_of')


def fingerprint(
    dataset: FingerprintedDataset | Sized, fields: Sequence[str] | None = None, *, of_origin: bool = False
) -> str:
    """Returns the fingerprint of a dataset, 24 hexadecimal digits.

    Args:
        dataset: A reader, a view, or any map-style dataset, where only the type and the length are used.
        fields: Only these fields are used.
        of_origin: For a copy of all datapoints of another dataset, return the fingerprint of the original.

    Raises:
        OSError: A file cannot be read.
    """
    if not _is_dataset(dataset):
        return digest_of(type(dataset).__name__, len(dataset))
    return dataset.fingerprint_of(tuple(sorted(dataset.schema) if fields is None else fields), of_origin)


def source_fingerprints(dataset: FingerprintedDataset | Sized) -> dict[str, str]:
    """Returns the fingerprints for a progress log: the current one and the one of earlier versions."""
    return {'fingerprint': legacy_fingerprint(dataset), 'identity': fingerprint(dataset)}


def digest_of(*parts: object) -> str:
    """Returns the digest of strings, numbers and tuples of them, 24 hexadecimal digits."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def fingerprint_of_folders(
    dataset: FingerprintedDataset,
    folders: Sequence[Folder],
    lengths: Sequence[int],
    reader_of: Callable[[int], FolderReader],
    fields: Sequence[str],
    of_origin: bool,
) -> str:
    """Returns the fingerprint of a dataset, or of shards of one.

    Args:
        dataset: The reader of the dataset.
        folders, lengths: The folders, and the number of datapoints in each.
        reader_of: Function from the number of a folder to its reader.
        fields, of_origin: As in `fingerprint`.
    """

    def identity_of(number: int) -> Identity | None:
        folder = folders[number]
        entry = folder.known if folder.store.is_remote else None
        return read_identity(folder.store, folder.path, lengths[number], entry)

    identities = map_concurrently(identity_of, range(len(folders)), dataset.is_remote)
    origin = _origin_of(identities, sum(lengths)) if of_origin else None
    if origin is not None:
        return origin
    present = [identity for identity in identities if identity is not None]
    size = sum(sum(identity.sizes.values()) for identity in present)
    is_small = size <= SMALL_DATASET_BYTES and len(folders) <= MAX_SMALL_FOLDERS
    hashed = set(fields)
    if len(present) < len(identities):
        names = [name for name in fields if name in dataset.schema]
        hashed = {name for name in names if _size_of(folders, name) <= MAX_RECORDS_BYTES}
    parts: list[Any] = []
    for number, identity in enumerate(identities):
        parts.append(None if identity is None else (identity.id, sorted(identity.sizes.items())))
        if identity is None or (is_small and len(present) == len(identities)):
            parts.append(_digest_of_folder(reader_of(number), fields, hashed))
    spec = {name: field_type.text for name, field_type in dataset.schema.items() if name in fields}
    return digest_of('dataset', sorted(spec.items()), parts)


def _origin_of(identities: Sequence[Identity | None], total: int) -> str | None:
    """Returns the fingerprint of the original, if the folders are a copy of all its datapoints in order."""
    originals, first = set(), 0
    for identity in identities:
        if identity is None or identity.copied_from is None or identity.copied_from.first != first:
            return None
        originals.add((identity.copied_from.fingerprint, identity.copied_from.total))
        first += identity.datapoints
    if len(originals) != 1:
        return None
    digest, count = originals.pop()
    return digest if count == total else None


def _size_of(folders: Sequence[Folder], field: str) -> int:
    """Returns the bytes of the bags of a field in all folders."""
    return sum(folder_size(folder, [field], False) - folder_size(folder, [], False) for folder in folders)


def _digest_of_folder(reader: FolderReader, fields: Sequence[str], hashed: Collection[str]) -> str:
    """Returns a digest of the files of some fields of a folder, and of the records of fields in `hashed`."""
    folder, schema = reader.folder, reader.schema
    names = [name for name in fields if name in schema]

    def digest(name: str | None) -> tuple[str, ...]:
        # Damaged fields have a digest too, because a loader may skip unreadable datapoints.
        try:
            bag = reader.refs.bag if name is None else reader.open_field(name).bag
        except (CorruptError, SpecError):
            return ('damaged',)
        if bag is None:
            return ('none',)
        count = bag.count if name is not None else min(len(reader), bag.count)
        return tuple(
            text
            for part in bag.own_bags
            for text in _digest_of_bag(
                folder, part, part.count if part is not bag else count, name is None or name in hashed
            )
        )

    digests = map_concurrently(digest, [None, *names], folder.store.is_remote)
    dictionaries = [_digest_of_file(folder, f'{name}.zdict') for name in names]
    return digest_of(len(reader), names, digests, dictionaries)


def _digest_of_bag(folder: Folder, bag: BagFile, count: int, with_records: bool) -> tuple[str, ...]:
    """Returns digests of limits, records and checksums of a bag."""
    from xxhash import xxh3_128

    limits, records, end = xxh3_128(), xxh3_128(), 0
    with contextlib.suppress(CorruptError, EOFError):
        for start in range(0, count, HASHED_READ_BYTES // ENTRY):
            ends = bag.ends[start : min(start + HASHED_READ_BYTES // ENTRY, count)]
            limits.update(np.asarray(ends).tobytes())
            end = int(ends[-1])
        end = min(max(end, 0), bag.file.size)
        for start in range(0, end if with_records else 0, HASHED_READ_BYTES):
            records.update(bag.file.read(start, min(start + HASHED_READ_BYTES, end)))
    checksums = _digest_of_file(folder, os.path.basename(checksums_name(bag.path)))
    return str(count), limits.hexdigest(), records.hexdigest(), checksums


def _digest_of_file(folder: Folder, name: str) -> str:
    from xxhash import xxh3_128

    if name in folder.names:
        with contextlib.suppress(FileNotFoundError):
            file = folder.store.open(folder.store.join(folder.path, name), Hints(mapped=False))
            digest = xxh3_128()
            for start in range(0, file.size, HASHED_READ_BYTES):
                digest.update(file.read(start, min(start + HASHED_READ_BYTES, file.size)))
            return digest.hexdigest()
    return ''


# Fingerprints as earlier versions computed them, for files that they wrote.


def sample(length: int) -> list[int]:
    """Returns the indices of the datapoints in the fingerprints of earlier versions."""
    steps = range(SAMPLED_DATAPOINTS) if length else ()
    return sorted({step * (length - 1) // (SAMPLED_DATAPOINTS - 1) for step in steps})


def legacy_fingerprint(dataset: FingerprintedDataset | Sized, fields: Sequence[str] | None = None) -> str:
    """Returns the fingerprint of earlier versions, from the spec, the length, and heads of a few records.

    Datasets that differ only in other records have the same fingerprint.
    """
    digest = hashlib.blake2b(digest_size=12)
    length = len(dataset)
    if not _is_dataset(dataset):
        digest.update(repr((type(dataset).__name__, length)).encode())
        return digest.hexdigest()
    spec = {name: dataset.spec[name] for name in (sorted(dataset.spec) if fields is None else fields)}
    digest.update(repr((spec, length)).encode())
    records = [(index, name) for name in spec for index in sample(length)]
    is_slow = len(records) > MIN_RECORDS_FOR_THREADS or dataset.is_remote
    for head in map_concurrently(
        lambda record: _head(dataset, *record), records, max_threads=THREADS if is_slow else 1
    ):
        digest.update(head)
    return digest.hexdigest()


def _head(dataset: FingerprintedDataset, index: int, field: str) -> bytes:
    """Returns size and first bytes of a record; for a sequence, its length and the head of its first item."""
    head = b''
    # Missing or unreadable records do not add anything.
    with contextlib.suppress(Exception):
        item = None
        if dataset.schema[field].sequence:
            count = int(dataset.item_counts(np.array([index]), field, True)[0])
            head = b'%d:' % count
            if not count:
                return head
            item = 0
        with contextlib.closing(dataset.file(index, field, item)) as file:
            size = file.seek(0, 2)
            file.seek(0)
            head += b'%d:' % size + bytes(file.read(min(HASHED_RECORD_BYTES, size)))
    return head
