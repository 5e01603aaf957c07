"""Writing a dataset folder, datapoint by datapoint, each of them wholly or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Self

from bags import bag, formats
from bags.bag.files import store_for
from bags.bag.opened import OpenBag
from bags.bag.opening import open_bag
from bags.bag.options import CompressionNone, CompressionZstd, ReaderOptions
from bags.errors import BagsError, CorruptError, EncodeError, SpecError
from bags.refs import MISSING, RefsFormat
from bags.spec import FieldType, Spec, check_names, dump_spec, load_spec, parse_spec

__all__ = ['RECORDS', 'Compression', 'DatasetWriter', 'bind_encoders', 'compression_levels']

RECORDS = 0xFFFFFFFE
"""Most records of a field: the number after them stands for a missing value."""
BUFFERED = 8 << 20
SECONDS = 1.0

Compression = Iterable[str] | Mapping[str, int] | None


class DatasetWriter:
    """Writes a dataset folder. For one thread at a time; another writer in the same folder is refused.

    Args:
        directory: The folder; made, with those above it. It may exist if it is empty.
        spec: Type by field.
        encoders: The functions by word; `bags.encoders` unless given. A mapping is the whole set. They return
            bytes, a buffer, or an open binary file, which is copied a piece at a time and closed.
        compression: Fields whose records are held as zstd, or a mapping of them to levels.
        resume: Go on with what is there, whether it was closed or not. The folder may also be new.
        filesystem, storage_options: As in `DatasetReader`.

    Raises:
        FileExistsError: Something is there, and `resume` is not set.
        SpecError: A spec that breaks the rules, or, with `resume`, another one than the folder has.
        BlockingIOError: Another writer is at work in the folder.
        CorruptError: With `resume`, a folder that cannot be read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        *,
        compression: Compression = None,
        resume: bool = False,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._closed = True  # Until it is open.
        self.types: Spec = parse_spec(spec)
        check_names(self.types)
        self._levels = compression_levels(compression, self.types)
        self._encoders = bind_encoders(self.types, formats.encoders if encoders is None else encoders)
        self._format = RefsFormat(self.types)
        self._storage = {'filesystem': filesystem, 'storage_options': storage_options}
        self._store, self.directory = store_for(directory, filesystem, storage_options)
        self._plain = [(name, kind) for name, kind in self.types.items() if not kind.sequence]
        self._sequences = [(name, kind) for name, kind in self.types.items() if kind.sequence]
        self._bags: dict[str, bag.Writer] = {}
        self._lock = self._claim(resume)
        try:
            self._open(resume)
        except BaseException:
            self._lock.release()
            raise
        self._flushed = time.monotonic()
        self._closed = False

    def _claim(self, resume: bool) -> Any:
        store, path = self._store, self.directory
        store.make_folder(path)
        lock = store.lock(path)
        if not resume and store.names(path):
            lock.release()
            raise FileExistsError(17, 'something is there already (resume=True goes on with a dataset)', path)
        return lock

    def _open(self, resume: bool) -> None:
        store, path = self._store, self.directory
        names = set(store.names(path))
        spec_path = store.join(path, 'spec.json')
        if 'spec.json' not in names:
            if any(name.endswith(('.bag', '.bagz')) for name in names):
                raise CorruptError(path, None, 'has bags, but no spec.json')
            # The spec is first, then the refs: a folder without refs is one that is being made.
            store.replace(spec_path, dump_spec(self.types))
        else:
            found = load_spec(store.read(spec_path), spec_path)
            if found != self.types:
                texts = {name: kind.text for name, kind in found.items()}
                raise SpecError(None, f'that of the folder, {texts}', self.spec, path)
        keep = self._sound_rows(names) if resume else None
        mode = 'append' if resume else 'create'
        self._refs = bag.Writer(
            store.join(path, 'refs.bag'), mode=mode, buffer_size=1 << 62, at_most=keep, **self._storage
        )
        try:
            for name in self.types:
                suffix, compression = self._kind_of_bag(name, names)
                self._bags[name] = bag.Writer(
                    store.join(path, name + suffix), mode=mode, compression=compression, **self._storage
                )
        except BaseException:
            # Their locks go with them, however long the error is held on to.
            for writer in (*self._bags.values(), self._refs):
                try:
                    writer.close()
                except OSError:
                    pass  # The error on its way tells more.
            raise

    def _kind_of_bag(self, name: str, names: set[str]) -> tuple[str, Any]:
        found = [suffix for suffix in ('.bag', '.bagz') if name + suffix in names]
        if len(found) == 2:
            raise CorruptError(self.directory, None, f'field {name!r}: has both {name}.bag and {name}.bagz')
        suffix = found[0] if found else '.bagz' if name in self._levels else '.bag'
        return suffix, CompressionZstd(self._levels.get(name, 3)) if suffix == '.bagz' else CompressionNone()

    def _sound_rows(self, names: set[str]) -> int | None:
        """Returns how many refs there are before the first of those at the end that lead nowhere."""
        store, path = self._store, self.directory
        if any(name.endswith('.idx') for name in names) and 'refs.bag' not in names:
            raise ValueError(f'{path}: was written by Granular, and can be read but not resumed')
        if 'refs.bag' not in names:
            if any(name.endswith(('.bag', '.bagz')) for name in names - {'limits.refs.bag'}):
                # The refs are made before all other bags, so this is no writer's doing.
                raise CorruptError(path, None, 'has bags, but no refs.bag')
            return None
        refs = open_bag(store, store.join(path, 'refs.bag'), ReaderOptions(**self._storage))
        if refs.count and not int(refs.ends[0:1][0]):
            raise ValueError(f'{path}: was written by Bags 0.x, and can be read but not resumed')
        if refs.count:
            for name in self.types:
                if not {f'{name}.bag', f'{name}.bagz'} & names:
                    # All bags are made before the first datapoint, so this is no writer's doing.
                    raise CorruptError(path, None, f'field {name!r}: has neither {name}.bag nor {name}.bagz')
        counts = {name: self._count(name, names) for name in self.types}
        keep = refs.count
        while keep and not self._is_sound(refs, keep - 1, counts):
            keep -= 1
        if keep < refs.count and 'limits.refs.bag' not in names:
            # After a crash such rows are cut off; a dataset that was closed has none.
            raise CorruptError(refs.path, keep, 'leads to records that are not there')
        return keep

    def _count(self, name: str, names: set[str]) -> int:
        path = self._store.join(self.directory, name + self._kind_of_bag(name, names)[0])
        try:
            return open_bag(self._store, path, ReaderOptions(**self._storage)).count
        except FileNotFoundError:
            return 0

    def _is_sound(self, refs: OpenBag, index: int, counts: dict[str, int]) -> bool:
        try:
            row = self._format.unpack(refs.get(index))
        except (CorruptError, ValueError):
            return False
        for name, kind in self.types.items():
            place = self._format.places[name]
            first, count = row[place], row[place + 1] if kind.sequence else 1
            if count and first + count > counts[name] and not (kind.optional and first == MISSING):
                return False
        return True

    # What it is.

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return {name: kind.text for name, kind in self.types.items()}

    def __len__(self) -> int:
        return len(self._refs)

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """Bytes of the dataset so far."""
        return self._refs.size + sum(writer.size for writer in self._bags.values())

    @property
    def shards(self) -> int:
        """1: a folder is one shard."""
        return 1

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def largest(self) -> int:
        """Records of the field that has the most."""
        return max(len(self._refs), *map(len, self._bags.values()))

    def __repr__(self) -> str:
        state = 'closed' if self._closed else 'open'
        return f'bags.DatasetWriter({self.directory!r}, {self.spec}, {len(self)} datapoints, {state})'

    # Writing.

    def append(self, datapoint: Mapping[str, Any], flush: bool | None = None) -> int:
        """Appends a datapoint: wholly, or, if this raises, not at all.

        Args:
            datapoint: A value for each field; for a sequence field anything that can be iterated over, one
                item in memory at a time. An optional field may be None or left out.
            flush: True makes the datapoint readable by other processes, and safe from the end of this
                one, at once. None (the default) does so every 8 MiB and every second; False only when
                buffers are full.

        Returns:
            The index of the datapoint.

        Raises:
            EncodeError: A field that is missing or unknown, or a value that cannot be encoded.
            OSError: The disk is full, say; then too nothing was appended.
        """
        if self._closed:
            raise ValueError(f'{self!r} is closed')
        index = len(self._refs)
        before = {name: len(writer) for name, writer in self._bags.items()}
        records: dict[str, Any] = {}
        try:
            self._check_keys(datapoint)
            for name, kind in self._plain:
                records[name] = self._encode(name, kind, datapoint.get(name))
            row: list[int] = [0] * (len(self._plain) + 2 * len(self._sequences))
            for name, _ in self._plain:
                row[self._format.places[name]] = self._write(name, records.pop(name))
            for name, kind in self._sequences:
                place = self._format.places[name]
                row[place : place + 2] = self._write_sequence(name, kind, datapoint.get(name))
            self._refs.write(self._format.pack(row))
            if flush or (flush is None and self._is_due()):
                self.flush()
        except BaseException:
            for record in records.values():
                close_file(record)
            self._refs.forget(index)
            for name, count in before.items():
                self._bags[name].forget(count)
            raise
        return index

    def _is_due(self) -> bool:
        if time.monotonic() - self._flushed >= SECONDS:
            return True
        return self._refs.buffered + sum(writer.buffered for writer in self._bags.values()) >= BUFFERED

    def _check_keys(self, datapoint: Any) -> None:
        if not isinstance(datapoint, Mapping):
            raise TypeError(
                f'datapoint: expected a mapping of fields to values, got {type(datapoint).__name__}'
            )
        for name, kind in self.types.items():
            if name not in datapoint and not kind.optional:
                raise EncodeError(
                    name, kind.text, f'is missing; the datapoint has {", ".join(map(repr, datapoint))}'
                )
        for name in datapoint:
            if name not in self.types:
                raise EncodeError(
                    str(name), '?', f'is not in the spec, which has {", ".join(map(repr, self.types))}'
                )

    def _encode(self, name: str, kind: FieldType, value: Any) -> Any:
        """Returns the record of a value; None for a missing one."""
        if value is None and kind.optional and not kind.sequence:
            return None
        try:
            record = self._encoders[name](value)
        except BagsError:
            raise
        except Exception as exc:
            raise EncodeError(name, kind.text, f'{type(exc).__name__}: {exc}') from exc
        if isinstance(record, bytes) or hasattr(record, 'read'):
            return record
        try:
            return bytes(memoryview(record))
        except TypeError:
            got = type(record).__name__
            raise EncodeError(name, kind.text, f'expected bytes from the encoder, got {got}') from None

    def _write(self, name: str, record: Any) -> int:
        """Writes a record, and returns its index; None stands for a missing value."""
        if record is None:
            return MISSING
        writer = self._bags[name]
        index = len(writer)
        try:
            if index >= RECORDS:
                raise ValueError(f'expected at most {RECORDS} records in a folder')
            if isinstance(record, bytes):
                writer.write(record)
            else:
                writer.write_file(record)
        except (ValueError, EOFError) as exc:
            raise EncodeError(name, self.types[name].text, str(exc)) from exc
        finally:
            close_file(record)
        return index

    def _write_sequence(self, name: str, kind: FieldType, values: Any) -> tuple[int, int]:
        if values is None and kind.optional:
            return MISSING, 0
        try:
            if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
                raise TypeError
            items = iter(values)
        except TypeError:
            raise EncodeError(
                name, kind.text, f'expected several values to iterate over, got {type(values).__name__}'
            ) from None
        first = len(self._bags[name])
        for value in items:
            self._write(name, self._encode(name, kind, value))
        count = len(self._bags[name]) - first
        return (first, count) if count else (0, 0)

    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe from the end of this one.

        The refs go last: a datapoint whose refs can be read is there as a whole.
        """
        for writer in self._bags.values():
            if self._closed or not writer.closed:  # Some are if `close` failed before, and is tried again.
                writer.flush()
        self._refs.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes, and closes all bags; the refs last."""
        if self._closed:
            return
        self.flush()
        for name, writer in self._bags.items():
            writer.close()
            if len(writer) and not len(self._refs):
                # Records of a datapoint that failed, or whose writer was killed, and not one datapoint
                # beside them: empty refs beside records would be taken for damage.
                self._bags[name] = bag.Writer(writer.path, mode='append', at_most=0, **self._storage)
                self._bags[name].close()
        self._refs.close()
        self._closed = True
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except OSError:
            if kind is None:
                raise  # Else the first error tells more; what was flushed can be resumed.


def compression_levels(compression: Compression, spec: Spec) -> dict[str, int]:
    """Returns the zstd level of each field that is compressed.

    Raises:
        SpecError: No such field.
    """
    levels = dict(compression) if isinstance(compression, Mapping) else dict.fromkeys(compression or (), 3)
    for name, level in levels.items():
        if name not in spec:
            raise SpecError(name, f'one of the fields {", ".join(spec)} to compress', name)
        CompressionZstd(level)
    return levels


def bind_encoders(spec: Spec, encoders: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[[Any], Any]]:
    """Returns the encoder of each field.

    Raises:
        SpecError: A word without a function, or arguments that a built-in type cannot have.
    """
    bound = {}
    for name, kind in spec.items():
        try:
            bound[name] = formats.bind_encoder(kind.word, kind.args, encoders)
        except KeyError:
            raise SpecError(name, f'a type of {", ".join(sorted(encoders))}', kind.text) from None
        except ValueError as exc:
            raise SpecError(name, str(exc), kind.text) from exc
    return bound


def close_file(record: bytes | BinaryIO | None) -> None:
    """Closes what an encoder opened."""
    if record is not None and not isinstance(record, bytes):
        record.close()
