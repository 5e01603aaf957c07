"""Writing a dataset folder, datapoint by datapoint, each of them wholly or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from bags import bag
from bags.bag.files import store_for
from bags.bag.options import CompressionNone, CompressionZstd
from bags.errors import CorruptError, EncodeError, SpecError
from bags.field_writer import FieldWriter, bind_encoders, close_file
from bags.refs import RefsFormat
from bags.resume import bag_suffix, sound_rows
from bags.spec import Spec, check_names, dump_spec, load_spec, parse_spec

__all__ = ['Compression', 'DatasetWriter', 'bind_encoders', 'compression_levels']

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
        self._encoders = bind_encoders(self.types, encoders)
        self._format = RefsFormat(self.types)
        self._storage = {'filesystem': filesystem, 'storage_options': storage_options}
        self._store, self.directory = store_for(directory, filesystem, storage_options)
        self._fields: list[FieldWriter] = []
        """In sorted order, the order of refs."""
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
        keep = sound_rows(store, path, self._format, names, self._storage) if resume else None
        mode = 'append' if resume else 'create'
        self._refs = bag.Writer(
            store.join(path, 'refs.bag'), mode=mode, buffer_size=1 << 62, at_most=keep, **self._storage
        )
        try:
            for name, kind in self.types.items():
                suffix = bag_suffix(path, name, names) or ('.bagz' if name in self._levels else '.bag')
                zstd = CompressionZstd(self._levels.get(name, 3)) if suffix == '.bagz' else CompressionNone()
                writer = bag.Writer(
                    store.join(path, name + suffix), mode=mode, compression=zstd, **self._storage
                )
                self._fields.append(FieldWriter(name, kind, self._encoders[name], writer))
        except BaseException:
            # Their locks go with them, however long the error is held on to.
            for writer in (*(field.writer for field in self._fields), self._refs):
                try:
                    writer.close()
                except OSError:
                    pass  # The error on its way tells more.
            raise

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
        return self._refs.size + sum(field.writer.size for field in self._fields)

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
        return max(len(self._refs), *(field.count for field in self._fields))

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
        index, fields = len(self._refs), self._fields
        before = [field.count for field in fields]
        records: list[Any] = []
        try:
            self._check_keys(datapoint)
            # What can be refused is, before anything is written. (Sequences are written item by item.)
            records.extend(
                None if field.kind.sequence else field.encode(datapoint.get(field.name)) for field in fields
            )
            row: list[int] = []
            for number, field in enumerate(fields):
                if field.kind.sequence:
                    row += field.write_items(datapoint.get(field.name))
                else:
                    record, records[number] = records[number], None
                    row.append(field.write(record))
            self._refs.write(self._format.pack(row))
            if flush or (flush is None and self._is_due()):
                self.flush()
        except BaseException:
            for record in records:
                close_file(record)
            self._refs.forget(index)
            for field, count in zip(fields, before, strict=True):
                field.forget(count)
            raise
        return index

    def _is_due(self) -> bool:
        if time.monotonic() - self._flushed >= SECONDS:
            return True
        return self._refs.buffered + sum(field.writer.buffered for field in self._fields) >= BUFFERED

    def _check_keys(self, datapoint: Any) -> None:
        if type(datapoint) is dict and datapoint.keys() == self.types.keys():
            return
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

    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe from the end of this one.

        The refs go last: a datapoint whose refs can be read is there as a whole.
        """
        for field in self._fields:
            if (
                self._closed or not field.writer.closed
            ):  # Some are if `close` failed before, and is tried again.
                field.writer.flush()
        self._refs.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flushes, and closes all bags; the refs last."""
        if self._closed:
            return
        self.flush()
        for field in self._fields:
            field.writer.close()
            if len(field.writer) and not len(self._refs):
                # Records of a datapoint that failed, or whose writer was killed, and not one datapoint
                # beside them: empty refs beside records would be taken for damage.
                field.writer = bag.Writer(field.writer.path, mode='append', at_most=0, **self._storage)
                field.writer.close()
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
