"""Writers of the bags of a dataset folder, and the options for their compression."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bags import bag
from bags.bag.compression import MAX_TRAINING_BYTES, TrainingZstd, check_dictionary
from bags.bag.limits import ENTRY
from bags.bag.options import CompressionNone, CompressionZstd, WriterOptions
from bags.dataset.format.file_names import bag_suffix, begun_suffix
from bags.dataset.format.options import Compression
from bags.dataset.format.refs import MISSING, RefsFormat
from bags.dataset.format.spec import FieldType, Schema, parse_type
from bags.dataset.writing.background_close import BackgroundClose
from bags.errors import EncodeError, SpecError
from bags.storage import Store

MAX_BAG_RECORDS = 0xFFFFFFFE
"""Maximum number of records in a bag of a dataset folder. The next larger number marks missing values."""

DEFAULT_LEVEL = 3


class FieldCompression(NamedTuple):
    """The compression of a field."""

    level: int = DEFAULT_LEVEL
    trained: bool = False
    """Whether a dictionary is trained on the first records of the field."""
    dictionary: bytes = b''
    """The dictionary; empty if it is not trained yet."""


def field_compressions(
    compression: Compression, schema: Schema, links: Iterable[str] = ()
) -> dict[str, FieldCompression]:
    """Returns the compression of each compressed field.

    Raises:
        SpecError: The spec does not have a field of `compression` or of `links`.
        TypeError: `compression` is neither names of fields nor a mapping of fields.
        ValueError: The compression of a field is invalid, or the field is linked.
    """
    if isinstance(compression, str) or not isinstance(compression, Iterable | None):
        raise TypeError(f'compression: expected names of fields, or a mapping of them, got {compression!r}')
    if not isinstance(compression, Mapping):
        compression = dict.fromkeys(compression or (), DEFAULT_LEVEL)
    found = {}
    for name, value in compression.items():
        if name not in schema:
            raise SpecError(name, f'one of the fields {", ".join(schema)} to compress', name)
        try:
            found[name] = value if isinstance(value, FieldCompression) else _parse(value)
        except ValueError as exc:
            raise ValueError(f'compression of field {name!r}: {exc}') from None
    for name in links:
        if name not in schema:
            raise SpecError(name, f'one of the fields {", ".join(schema)} to link', name)
        if name in found:
            raise ValueError(f'compression: expected a field that is not linked, got {name!r}')
    return found


def _parse(value: Any) -> FieldCompression:
    parts = list(value) if isinstance(value, tuple | list) else [value]
    trained = bool(parts) and parts[0] == 'dictionary'
    levels = parts[trained:]
    if len(levels) > 1 or len(levels) + trained < 1 or not all(isinstance(level, int) for level in levels):
        raise ValueError(f"expected a zstd level, 'dictionary' or ('dictionary', level), got {value!r}")
    level = levels[0] if levels else DEFAULT_LEVEL
    CompressionZstd(level)  # Checks the level.
    return FieldCompression(level, trained)


class RecordRun(NamedTuple):
    """Consecutive records."""

    data: Sequence[Any] | BinaryIO
    """The bytes of the records: buffers, or an open file that is read from its current position."""
    sizes: npt.NDArray[np.int64]
    """Bytes of each record, shape (n,)."""
    stored: bool
    """Whether the bytes have the form stored in the bag: zstd frames if the bag is compressed."""


class FieldWriter(bag.Writer):
    """Writes one bag of a dataset folder: the records of a field, or the refs.

    Args:
        store: The store that holds the folder.
        name: The field.
        field_type: The type of the field.
        path, options, **keywords: As in `bag.Writer`.
        save_dictionary: Saves the dictionary trained on the first records; None for no training.
        companion: The content of the other file needed to read the bag: spec.json, or a dictionary.
    """

    _is_alone = False

    def __init__(
        self,
        store: Store,
        name: str,
        field_type: FieldType,
        path: str,
        options: WriterOptions,
        save_dictionary: Callable[[bytes], None] | None = None,
        companion: bytes = b'',
        **keywords: Any,
    ) -> None:
        self._store = store
        super().__init__(path, options, **keywords)
        self.name = name
        self.type = field_type
        self.count = len(self)
        """Number of records, including buffered ones."""
        if companion:
            self.appender.set_companion(companion)
        if save_dictionary is not None and self._codec is not None:
            appender = self.appender  # The codec must not refer to the writer: a cycle would keep files open.

            def save(dictionary: bytes) -> None:
                save_dictionary(dictionary)
                appender.set_companion(dictionary)

            self._codec = TrainingZstd(self._codec.options, self._codec.max_record_size, save)

    def _locate(self, filename: str | os.PathLike[str], options: WriterOptions) -> tuple[Store, str]:
        return self._store, os.fspath(filename)

    def write_record(self, record: Any) -> int:
        """Appends a record. An open file is copied to the bag at once, and closed.

        Returns:
            The index of the record in the bag; `MISSING` for None.

        Raises:
            EncodeError: The record is too large, the bag is full, or a file ends early.
            OSError: E.g. the disk is full. `rollback` drops the record.
        """
        if record is None:
            return MISSING
        index = self.count
        try:
            if index >= MAX_BAG_RECORDS:
                raise ValueError(f'expected at most {MAX_BAG_RECORDS} records in a folder')
            if type(record) is bytes:
                self.write(record)
            else:
                self.write_file(record)
        except (ValueError, EOFError) as exc:
            raise self.error(str(exc)) from exc
        finally:
            if type(record) is not bytes:
                record.close()
        self.count = index + 1
        return index

    def error(self, detail: str) -> EncodeError:
        """Returns the error for a record that cannot be written."""
        return EncodeError(self.name, self.type.text, detail)

    def write_items(self, records: Iterable[Any] | None) -> tuple[int, int]:
        """Appends the items of a sequence. Besides the buffer, one item is in memory at a time.

        Returns:
            The index of the first record and the number of records; `MISSING` and 0 for None.

        Raises:
            EncodeError: An item cannot be encoded or written.
        """
        if records is None:
            return MISSING, 0
        first = self.count
        for record in records:
            self.write_record(record)
        return (first, self.count - first) if self.count > first else (0, 0)

    def write_column(self, records: Sequence[Any]) -> list[Sequence[int]]:
        """Appends the records of several datapoints.

        Returns:
            The results of `write_record`; for a sequence, the results of `write_items` as two lists.
        """
        if not self.type.sequence:
            return [list(map(self.write_record, records))]
        return list(zip(*map(self.write_items, records), strict=True))

    def stores_as(self, how: FieldCompression | None) -> bool:
        """Returns whether stored records of a field with this compression can be copied to this bag."""
        if how is not None and how.trained and not how.dictionary:
            return True  # The writer trains the dictionary: the records are written decompressed.
        if self._codec is None or how is None:
            return self._codec is None and how is None
        return self._codec.options.dictionary == how.dictionary

    def write_runs(self, runs: Iterable[RecordRun]) -> None:
        """Appends runs of records, and makes them readable.

        Raises:
            EncodeError: A record is too large, or there are too many.
            OSError, EOFError: Reading or writing failed. Records that were written have no refs.
        """
        for data, sizes, stored in runs:
            if self.count + len(sizes) > MAX_BAG_RECORDS:
                raise self.error(f'expected at most {MAX_BAG_RECORDS} records in a folder')
            if isinstance(data, Sequence) and self._codec is not None and not stored:
                joined, start = b''.join(data), 0
                for stop in np.cumsum(sizes).tolist():
                    self.write_record(joined[start:stop])
                    start = stop
            else:
                try:
                    self.write_stored(data, sizes)
                finally:
                    self.count = len(self)
        self.flush()

    def rollback(self, count: int) -> None:
        """Drops buffered records after the first `count`.

        Records that are already in the bag stay there, without refs to them.
        """
        del self.pending[max(0, count - self.appender.count) :]
        self.buffered = sum(map(len, self.pending)) + ENTRY * len(self.pending)
        self.count = len(self)

    def close(self, *, keep: bool = True) -> None:
        """Closes the bag. Can be called again after an error.

        Args:
            keep: False empties the bag.
        """
        super().close()
        if not keep and len(self):
            bag.Writer(self.path, self.options, mode='append', truncate_to=0).close()


def open_field(
    store: Store,
    folder: str,
    names: Collection[str],
    name: str,
    field_type: FieldType,
    how: FieldCompression | None,
    options: WriterOptions,
    **keywords: Any,
) -> FieldWriter:
    """Opens the bag of a field in a dataset folder, and reads or saves its dictionary.

    Args:
        store, folder, names: The folder, and the files in it.
        name, field_type: The field.
        how: The compression of a new bag; None for no compression. An existing bag keeps its own.
        options, **keywords: As in `bag.Writer`.

    Raises:
        CorruptError: There are two bags, or the bag or its dictionary cannot be read.
    """
    path = store.join(folder, name)
    begun = begun_suffix(name, names)  # Left by a killed writer.
    suffix = bag_suffix(folder, name, names.__contains__) or begun or ('.bagz' if how else '.bag')
    if suffix == '.bag':
        options.compression = CompressionNone()
        return FieldWriter(store, name, field_type, path + suffix, options, **keywords)
    how = how or FieldCompression()
    dictionary, dictionary_path = how.dictionary, f'{path}.zdict'
    if f'{name}.zdict' in names:
        dictionary = check_dictionary(store.read(dictionary_path), dictionary_path)
    elif dictionary:
        _save_dictionary(store, dictionary_path, dictionary)
    is_to_train = how.trained and not dictionary
    save = functools.partial(_save_dictionary, store, dictionary_path) if is_to_train else None
    options.compression, options.buffer_size = CompressionZstd(how.level, dictionary), MAX_TRAINING_BYTES
    return FieldWriter(store, name, field_type, path + suffix, options, save, dictionary, **keywords)


def _save_dictionary(store: Store, path: str, dictionary: bytes) -> None:
    """Writes a new dictionary. On an object store, never in place of another one, which records may need."""
    try:
        store.replace(path, dictionary, None)
    except FileExistsError:
        if store.read(path) != dictionary:  # Otherwise, an earlier call has failed after it was written.
            raise


class RefsWriter(FieldWriter):
    """Writes the refs of a dataset folder. Rows are buffered as integers and packed together.

    Args:
        store, path, options, **keywords: As in `FieldWriter`.
        refs_format: The format of the refs.
    """

    def __init__(
        self, store: Store, refs_format: RefsFormat, path: str, options: WriterOptions, **keywords: Any
    ) -> None:
        super().__init__(store, 'refs', parse_type('bytes'), path, options, **keywords)
        self.earlier: BackgroundClose | None = None
        """Closes the previous shard. Until it is on disk, refs are not written: a power cut must not
        keep these datapoints and lose earlier ones."""
        self._format = refs_format
        self._row_bytes = refs_format.stride + ENTRY

    def write_row(self, row: Sequence[int]) -> None:
        """Appends a row; see `RefsFormat`.

        Raises:
            EncodeError: The bag is full.
        """
        if self.count >= MAX_BAG_RECORDS:
            raise self.error(f'expected at most {MAX_BAG_RECORDS} records in a folder')
        self.pending.append(row)
        self.buffered += self._row_bytes
        self.count += 1

    def hold(self, rows: npt.NDArray[np.int64]) -> None:
        """Appends rows, shape (n, numbers of a row). The next `flush` writes them."""
        self.pending.extend(rows.tolist())
        self.buffered += self._row_bytes * len(rows)
        self.count += len(rows)

    def is_held(self) -> bool:
        """Returns whether `flush` would have to wait for the previous shard."""
        return self.earlier is not None and not self.earlier.finish_if_done()

    def flush(self) -> None:
        if self.earlier is not None:
            self.earlier.finish()
            self.earlier = None
        rows = self.pending
        if rows:
            data = self._format.pack(np.array(rows, np.int64))
            sizes = np.full(len(rows), self._format.stride)
            self.appender.append([([data], len(data))], sizes, rows)
        self.buffered = 0
        if self.syncs_flushes:
            self.appender.sync_flush()

    def rollback(self, count: int) -> None:
        del self.pending[max(0, count - self.appender.count) :]
        self.buffered = self._row_bytes * len(self.pending)
        self.count = len(self)
