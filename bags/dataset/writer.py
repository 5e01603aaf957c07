"""Writing a dataset folder, datapoint by datapoint, each of them wholly or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from bags import bag
from bags.bag.options import CompressionNone, CompressionZstd
from bags.bag.zstd import MAX_TRAINING_BYTES, check_dictionary
from bags.dataset.compression import Compressed, Compression, field_compressions
from bags.dataset.encoder import Encoder, close_file
from bags.dataset.field_writer import FieldWriter, Run, Trainer
from bags.dataset.refs import MISSING, RefsFormat
from bags.dataset.resume import bag_suffix, sound_rows
from bags.dataset.spec import FieldType, Spec, check_names, dump_spec, load_spec, parse_spec
from bags.errors import CorruptError, SpecError
from bags.indexing import Int64s
from bags.storage import store_for

__all__ = ['DatasetWriter', 'close_at_exit']

BUFFERED = 8 << 20
SECONDS = 1.0


def close_at_exit(self: Any, *error: object) -> None:
    """Ends a `with` of a writer."""
    try:
        self.close()
    except OSError:
        if error[0] is None:
            raise  # Else the first error tells more; what was flushed can be resumed.


class DatasetWriter:
    """Writes a dataset folder. For one thread at a time; another writer in the same folder is refused.

    Args:
        directory: The folder; made, with those above it. It may exist if it is empty.
        spec: Type by field.
        encoders: The functions by word; `bags.encoders` unless given. A mapping is the whole set. They return
            bytes, a buffer, or an open binary file, which is copied a piece at a time and closed.
        compression: Fields whose records are held as zstd, or a mapping of them to levels, or to
            'dictionary' or `('dictionary', level)`: with a dictionary, trained on the first records and kept
            in `FIELD.zdict`, which makes many small records alike much smaller.
        resume: Go on with what is there, whether it was closed or not. The folder may also be new.
        at_most: With `resume`, how many of the datapoints that are there are kept.
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
        at_most: int | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._at_most = at_most
        self._closed = True  # Until it is open.
        self.types: Spec = parse_spec(spec)
        check_names(self.types)
        self._compressions = field_compressions(compression, self.types)
        self._encoder = Encoder(self.types, encoders)
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
        names = store.names(path)
        shards = 'spec.json' not in names and any(name.isdigit() for name in names)
        if shards or (not resume and names):
            lock.release()
            detail = 'something is there already (resume=True goes on with a dataset)'
            if shards:
                detail = 'folders of shards are there already (ShardedDatasetWriter goes on with them)'
            raise FileExistsError(errno.EEXIST, detail, path)
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
        if keep is not None and self._at_most is not None:
            keep = min(keep, self._at_most)
        mode: Literal['create', 'append', 'overwrite'] = 'append' if resume else 'create'
        if resume and keep is None and store.is_remote:
            mode = 'overwrite'  # Bags that came before the refs, which a killed writer did not get to.
        self._refs = bag.Writer(
            store.join(path, 'refs.bag'), mode=mode, buffer_size=1 << 62, truncate_to=keep, **self._storage
        )
        try:
            for name, kind in self.types.items():
                self._fields.append(self._open_field(name, kind, names, mode))
        except BaseException:
            # Their locks go with them, however long the error is held on to.
            for writer in (*(field.writer for field in self._fields), self._refs):
                try:
                    writer.close()
                except OSError:
                    pass  # The error on its way tells more.
            raise

    def _open_field(
        self,
        name: str,
        kind: FieldType,
        names: set[str],
        mode: Literal['create', 'append', 'overwrite'],
    ) -> FieldWriter:
        store = self._store
        path = store.join(self.directory, name)
        how = self._compressions.get(name)
        suffix = bag_suffix(self.directory, name, names) or ('.bagz' if how else '.bag')
        if suffix == '.bag':
            plain = CompressionNone()
            writer = bag.Writer(
                path + suffix, mode=mode, compression=plain, buffer_size=BUFFERED, **self._storage
            )
            return FieldWriter(name, kind, writer)
        how = how or Compressed()
        dictionary, keep = how.dictionary, self._dictionary_keeper(name)
        if f'{name}.zdict' in names:
            dictionary = check_dictionary(store.read(f'{path}.zdict'), f'{path}.zdict')
        elif dictionary:
            keep(dictionary)
        trains = how.trained and not dictionary
        writer = bag.Writer(
            path + suffix,
            mode=mode,
            compression=CompressionZstd(how.level, dictionary),
            buffer_size=2 * MAX_TRAINING_BYTES if trains else MAX_TRAINING_BYTES,
            **self._storage,
        )
        return FieldWriter(name, kind, writer, Trainer(how.level, keep) if trains else None)

    def _dictionary_keeper(self, name: str) -> Callable[[bytes], None]:
        store, path = self._store, self._store.join(self.directory, f'{name}.zdict')
        known = self._compressions

        def keep(dictionary: bytes) -> None:
            store.replace(path, dictionary)
            if name in known:
                known[name] = known[name]._replace(dictionary=dictionary)

        return keep

    @property
    def compressions(self) -> dict[str, Compressed]:
        """How fields are compressed, with the dictionaries there are by now."""
        return self._compressions

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
        return self.append_records(self._encoder.encode(datapoint), flush)

    def append_records(self, records: list[Any], flush: bool | None = None) -> int:
        """Appends a datapoint that is encoded already, as `Encoder.encode` returns it; see `append`."""
        if self._closed:
            raise ValueError(f'{self!r} is closed')
        index, fields = len(self._refs), self._fields
        before = [field.count for field in fields]
        left = zip(fields, records, strict=True)
        try:
            row: list[int] = []
            for field, record in left:
                if field.kind.sequence:
                    row += field.write_items(record)
                else:
                    row.append(field.write(record))
            self._refs.write(self._format.pack(row))
            if flush or (flush is None and self._is_due()):
                self.flush()
        except BaseException:
            for _, record in left:
                close_file(record)
            self._refs.drop_buffered(index)
            for field, count in zip(fields, before, strict=True):
                field.forget(count)
            raise
        return index

    def append_runs(self, runs: Mapping[str, Sequence[Run]], refs: Mapping[str, Any]) -> None:
        """Appends many datapoints, from runs of records.

        Args:
            runs: By field, the records that are to be written.
            refs: By field, an int64 array (n,), for a sequence two, of firsts and counts. They count from the
                first of the new records, so that those written before are negative. `MISSING` stands for
                what is missing.
        """
        columns: list[Int64s] = []
        for field in self._fields:
            first = field.count
            field.write_runs(runs[field.name])
            if field.kind.sequence:
                firsts, counts = refs[field.name]
                columns += [
                    np.where(counts > 0, firsts + first, np.where(firsts == MISSING, MISSING, 0)),
                    counts,
                ]
            else:
                found = refs[field.name]
                columns.append(np.where(found == MISSING, MISSING, found + first))
        table = self._format.pack_many(np.stack(columns, 1))
        for field in self._fields:
            field.flush()
        self._refs.write_run(table, np.full(len(table), self._format.stride))
        self._flushed = time.monotonic()

    def _is_due(self) -> bool:
        if time.monotonic() - self._flushed >= SECONDS:
            return True
        buffered = self._refs.buffered
        for field in self._fields:  # A third of the time that `sum` takes over a generator.
            buffered += field.writer.buffered
        return buffered >= BUFFERED

    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe from the end of this one.

        The refs go last: a datapoint whose refs can be read is there as a whole.
        """
        for field in self._fields:
            if (
                self._closed or not field.writer.closed
            ):  # Some are if `close` failed before, and is tried again.
                field.flush()
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
                field.writer = bag.Writer(field.writer.path, mode='append', truncate_to=0, **self._storage)
                field.writer.close()
        self._refs.close()
        self._closed = True
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    __exit__ = close_at_exit
