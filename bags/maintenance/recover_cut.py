"""Keeps the readable datapoints of a closed folder whose files were cut off, e.g. by a broken download.

The limits of a bag are at its end, so they are lost first. The ends of its records are then determined from
the beginning of the file:

- if the type has a fixed size, every record has this size;
- with checksums, a record ends where the checksum of its bytes matches;
- zstd frames mark their end; an empty record has no frame, so this needs a type without empty records;
- if only a part of the limits is cut off, the remaining limits are increasing numbers at the end of the file.
  They are used if all records between them are valid for the type.

Other records cannot be separated: none of them is kept.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.compression import Zstd, check_dictionary, codec_for
from bags.bag.limits import ENTRY
from bags.bag.options import CompressionTrained, ReaderOptions
from bags.dataset.format.file_names import bag_suffix, is_linked
from bags.dataset.format.folder import Folder
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.refs import is_missing
from bags.dataset.format.registry import decoders as builtin_decoders
from bags.dataset.format.spec import FieldType
from bags.dataset.reader import DatasetReader
from bags.dataset.writing.writer import DatasetWriter
from bags.errors import CorruptError
from bags.formats.signatures import FORMAT_OF_TYPE, starts_with
from bags.storage import File, Hints, Store
from bags.storage.memory_file import MemoryFile

MAYBE_EMPTY = ('array', 'bytes', 'utf8')
"""Names of built-in types whose records may be empty."""
MAX_FALSE_LIMITS = 16
MIN_READ_BYTES = 1 << 16
RECOVERED_READ_BYTES = 1 << 24
MAX_LIMITS_BYTES = 1 << 30
"""Maximum bytes of limits that are searched at the end of a bag."""
RECOVERED_ROWS_AT_ONCE = 1 << 16


class CutFolder(Folder):
    """A folder whose bags may be cut off. Bags without valid limits are opened with reconstructed records."""

    def __init__(self, store: Store, path: str) -> None:
        super().__init__(store, path, ReaderOptions())
        self.has_checksums = checksums_name('refs.bag') in self.names
        if self.has_checksums:
            self.options.checksum = True
        self.reasons: dict[str, str] = {}
        """Why the limits of a bag are invalid, by field; `refs` for the refs."""
        self._found: dict[str, BagFile] = {}

    def open_refs(self) -> BagFile:
        if 'refs' not in self._found:
            try:
                bag = super().open_refs()
                if bag is None or self.starts:
                    raise ValueError(f'{self.path}: was written by another library, and stays unchanged')
                self._expect_limits(bag)
            except CorruptError as exc:
                self.reasons['refs'] = exc.detail
                stride = self.layout().refs_format.stride
                bag = self._with_tags(self._rebuilt('refs.bag', lambda file: _equal_sizes(file, stride)))
            self._found['refs'] = bag
        return self._found['refs']

    def _with_tags(self, bag: BagFile) -> BagFile:
        """Returns the refs up to the first invalid row: the bytes from there on are limits."""
        refs_format = self.layout().refs_format
        stride, count = refs_format.stride, 0
        while count < bag.count:
            stop = min(count + RECOVERED_READ_BYTES // stride + 1, bag.count)
            rows = np.frombuffer(bag.file.read(count * stride, stop * stride), np.uint8).reshape(-1, stride)
            valid = bisect.bisect_left(
                range(len(rows)), True, key=lambda last: not refs_format.has_tags(rows[: last + 1])
            )
            count += valid
            if valid < len(rows):
                break
        return self._rebuilt('refs.bag', lambda _: itertools.repeat(stride, count))

    def open_bag(self, field: str) -> BagFile:
        if field not in self._found:
            if is_linked(field, self.names):
                raise ValueError(f'{self.path}: field {field!r} is linked: keep_readable cannot write it')
            try:
                bag = super().open_bag(field)
                assert isinstance(bag, BagFile)
                self._found[field] = bag
                self._expect_limits(bag)
            except CorruptError as exc:
                self.reasons[field] = exc.detail
                self._found[field] = self._rebuilt_field(field)
        return self._found[field]

    def _expect_limits(self, bag: BagFile) -> None:
        """Raises CorruptError if the limits of a bag do not rise to the end of its records."""
        last = 0
        for start in range(0, bag.count, RECOVERED_READ_BYTES // ENTRY):
            ends = np.asarray(bag.ends[start : min(start + RECOVERED_READ_BYTES // ENTRY, bag.count)])
            if int(ends[0]) < last or (np.diff(ends) < 0).any():
                raise CorruptError(bag.path, None, 'its limits decrease')
            last = int(ends[-1])
        if last != bag.end:
            raise CorruptError(bag.path, None, f'its last limit is {last}, but its records end at {bag.end}')

    def _rebuilt_field(self, field: str) -> BagFile:
        name = field + (bag_suffix(self.path, field, self.has) or '.bag')
        if name not in self.names:
            empty = MemoryFile(self.store.join(self.path, name), b'')
            return BagFile(empty.path, empty, empty, 0, 0, 0, None, False)
        field_type = self.layout().schema[field]
        codec = self._codec(field) if name.endswith('.bagz') else None
        length = Decoders(None, raw=True).get(field, field_type, False, self.path).length
        digests: Sequence[int] | None = None
        if checksums_name(name) in self.names:
            table = self.store.open(self.store.join(self.path, checksums_name(name)), Hints())
            data = table.read(0, table.size) if table.buffer is None else table.buffer
            digests = memoryview(data)[: table.size // ENTRY * ENTRY].cast('Q')[1:]
        if codec is None and length:
            # Bytes of the limits may look like records, but no refs point to them.
            return self._rebuilt(name, lambda file: _equal_sizes(file, length, digests))
        if digests is not None:
            return self._rebuilt(name, lambda file: _sizes_by_checksum(file, digests), codec)
        if codec is None:
            return self._rebuilt(name, lambda file: _sizes_by_limits(file, field_type))
        if field_type.format in builtin_decoders and field_type.format not in MAYBE_EMPTY:
            return self._rebuilt(name, lambda file: _sizes_of_frames(file, codec), codec)
        return self._rebuilt(name, lambda file: _sizes_by_frames_and_limits(file, codec), codec)

    def _codec(self, field: str) -> Zstd | None:
        path = self.store.join(self.path, f'{field}.zdict')
        dictionary = b''
        if f'{field}.zdict' in self.names:
            dictionary = check_dictionary(self.store.read(path), path)
        zstd = CompressionTrained(dictionary=dictionary, path=path)
        return codec_for(f'{field}.bagz', zstd, self.options.max_record_size)

    def _rebuilt(
        self, name: str, sizes_of: Callable[[File], Iterable[int]], codec: Zstd | None = None
    ) -> BagFile:
        """Returns a bag with records of the sizes that `sizes_of` yields."""
        path = self.store.join(self.path, name)
        file = self.store.open(path, Hints())
        ends = np.cumsum(np.fromiter(sizes_of(file), np.int64))
        limits = MemoryFile(f'limits of {path}', ends.astype('<i8').tobytes())
        return BagFile(path, file, limits, 0, len(ends), int(ends[-1]) if len(ends) else 0, codec, False)


def _equal_sizes(file: File, size: int, digests: Sequence[int] | None = None) -> Iterator[int]:
    """Yields the size of each whole record; with checksums, up to the first record that does not match."""
    from xxhash import xxh3_64_intdigest

    for number in range(file.size // size):
        if digests is not None:
            data = file.read(number * size, (number + 1) * size)
            if number >= len(digests) or xxh3_64_intdigest(data) != digests[number]:
                return
        yield size


def _sizes_by_checksum(file: File, digests: Sequence[int]) -> Iterator[int]:
    """Yields the sizes of records: each is the shortest run of bytes that matches the next checksum."""
    from xxhash import xxh3_64

    start = 0
    for digest in digests:
        hasher, stop, data = xxh3_64(), start, memoryview(b'')
        while hasher.intdigest() != digest:
            if not data:
                data = memoryview(file.read(stop, min(stop + MIN_READ_BYTES, file.size)))
            if not data:
                return  # The record is cut off, or has no valid checksum.
            hasher.update(data[:1])
            stop, data = stop + 1, data[1:]
        yield stop - start
        start = stop


def _sizes_by_limits(file: File, field_type: FieldType) -> Sequence[int]:
    """Returns the sizes of the records whose limits remain, if only a part of the limits was cut off.

    Empty if the limits could begin at several offsets of the file.
    """
    candidates: list[list[int]] = []
    for rest in range(ENTRY):  # Bytes of a limit that was cut in the middle.
        stop = file.size - rest
        table = _rising_numbers(file, stop)
        # Numbers in the last record may look like limits, and come before the first real limit.
        for first in range(min(len(table), MAX_FALSE_LIMITS)):
            ends = table[first:].astype(np.int64)
            end = stop - len(ends) * ENTRY
            is_possible = ends[0] > 0 or field_type.format in MAYBE_EMPTY
            if is_possible and ends[-1] <= end and _are_of_type(file, ends, field_type):
                if not ends[0]:
                    return []  # The limit of an empty record, or zeros at the end of the last record.
                candidates.append(np.diff(ends, prepend=0).tolist())
                break
    # A single limit may consist of the last byte of the records and seven bytes of a limit.
    return candidates[0] if len(candidates) == 1 and len(candidates[0]) > 1 else []


def _rising_numbers(file: File, stop: int) -> npt.NDArray[np.uint64]:
    """Returns the last u64 before offset `stop` that rise up to `stop` at most; none if they are too many."""
    runs, end = [np.empty(0, '<u8')], stop
    while end >= ENTRY:
        if stop - end > MAX_LIMITS_BYTES:
            return runs[0]
        start = max(end % ENTRY, end - RECOVERED_READ_BYTES)
        numbers = np.frombuffer(file.read(start, end), '<u8')
        followed = np.concatenate([numbers, runs[-1][:1]])
        falls = np.flatnonzero((followed[1:] < followed[:-1]) | (followed[:-1] > stop)) + 1
        runs.append(numbers[falls[-1] if len(falls) else 0 :])
        if len(falls):
            break
        end = start
    return np.concatenate(runs[::-1])


def _are_of_type(file: File, ends: npt.NDArray[np.int64], field_type: FieldType) -> bool:
    """Returns whether all records with these ends are valid for a type; False if any bytes are valid."""
    if field_type.format == 'bytes' or field_type.format not in builtin_decoders:
        return False
    decode = Decoders(None).get('', field_type, False, '').decode
    try:
        for start, stop in itertools.pairwise([0, *ends.tolist()]):
            record = file.read(start, stop)
            if field_type.format in FORMAT_OF_TYPE:
                if not starts_with(record, FORMAT_OF_TYPE[field_type.format]):
                    return False
            elif decode is not None:
                decode(bytes(record))
    except (ValueError, EOFError):
        return False
    return True


def _sizes_of_frames(file: File, codec: Zstd) -> Iterator[int]:
    """Yields the sizes of whole zstd frames. Frames have checksums."""
    dictionary, start = codec.options.dictionary, 0
    zstd_dictionary = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    while start < file.size:
        frame, stop = zstandard.ZstdDecompressor(dict_data=zstd_dictionary).decompressobj(), start
        try:
            while not frame.eof:
                data = bytes(file.read(stop, min(stop + MIN_READ_BYTES, file.size)))
                if not data:
                    return
                frame.decompress(data)
                stop += len(data) - len(frame.unused_data)
        except zstandard.ZstdError:
            return  # The frame is cut off, or these are the limits.
        yield stop - start
        start = stop


def _sizes_by_frames_and_limits(file: File, codec: Zstd) -> Sequence[int]:
    """Returns the sizes of records whose limits remain: zstd frames and empty records."""
    frames = list(_sizes_of_frames(file, codec))
    end = sum(frames)
    if file.size - end > MAX_LIMITS_BYTES:
        return []
    ends = np.frombuffer(file.read(end, file.size - (file.size - end) % ENTRY), '<u8').astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    filled = sizes[sizes != 0].tolist()
    return sizes.tolist() if filled == frames[: len(filled)] else []


class ReadableDatapoints(NamedTuple):
    """The datapoints of a folder whose bags were cut off."""

    kept: int
    """Number of datapoints that could be read."""
    lost: list[int]
    """The datapoints that could not be read."""
    reasons: dict[str, str]
    """Why the limits of a bag are invalid, by field; empty if all limits are valid."""


def keep_readable(store: Store, path: str, storage: dict[str, Any]) -> ReadableDatapoints:
    """Rewrites a folder whose bags were cut off, with the datapoints that can be read.

    Writes nothing if all bags have valid limits, or if no datapoint can be read.

    Raises:
        ValueError: The folder is on an object store, or another library wrote it.
    """
    if store.is_remote:
        raise ValueError(f'{path}: is on an object store: expected a local copy')
    folder = CutFolder(store, path)
    refs, schema = folder.open_refs(), folder.layout().schema
    bags = {name: folder.open_bag(name) for name in schema}
    reader = DatasetReader.of_folder(folder, Decoders(None, raw=True))
    rows = [index for index, has_records in enumerate(_have_records(reader, bags)) if has_records]
    if not folder.reasons and len(rows) < refs.count:
        folder.reasons['refs'] = 'point to records that are missing'
    if not folder.reasons:
        return ReadableDatapoints(refs.count, [], {})
    kept: list[int] = []
    if not rows:
        return ReadableDatapoints(0, list(range(refs.count)), folder.reasons)
    with DatasetWriter(
        path, reader.spec, {field_type.format: _as_bytes for field_type in schema.values()},
        mode='overwrite', checksum=folder.has_checksums, metadata=folder.metadata or None,
        compression={
            name: 'dictionary' if f'{name}.zdict' in folder.names else 3
            for name in schema if f'{name}.bagz' in folder.names
        },
        **storage,
    ) as writer:  # fmt: skip
        for index in rows:
            with contextlib.suppress(CorruptError):
                writer.append(reader[index])
                kept.append(index)
    return ReadableDatapoints(len(kept), sorted({*range(refs.count)} - {*kept}), folder.reasons)


def _as_bytes(record: Any, *_args: str) -> bytes:
    return bytes(record)


def _have_records(reader: DatasetReader, bags: Mapping[str, BagFile]) -> Iterator[bool]:
    """Yields for each datapoint whether all of its records are in the bags."""
    for start in range(0, len(reader), RECOVERED_ROWS_AT_ONCE):
        rows = np.arange(start, min(start + RECOVERED_ROWS_AT_ONCE, len(reader)))
        are_complete = np.ones(len(rows), bool)
        for name, field_refs in reader.refs.of(rows, list(bags)).items():
            field_type = reader.schema[name]
            firsts, counts = field_refs if field_type.sequence else (field_refs, np.ones(len(rows), np.int64))
            has_none = is_missing(firsts) & field_type.optional
            are_complete &= has_none | (counts == 0) | (firsts + counts <= bags[name].count)
        yield from are_complete.tolist()


def ranges_of(numbers: Sequence[int]) -> str:
    """Returns integers as text: `3, 7 to 9`."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    parts = [part.tolist() for part in np.split(numbers, cuts)] if len(numbers) else []
    return ', '.join(f'{part[0]}' if len(part) == 1 else f'{part[0]} to {part[-1]}' for part in parts)
