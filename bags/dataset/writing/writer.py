"""Writes a dataset folder: each datapoint is appended as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np

from bags.bag.journal import BAG_JOURNAL_TEXT, Journal
from bags.dataset import above
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY
from bags.dataset.format.identity import CopiedFrom, Identity, new_id
from bags.dataset.format.journal import JOURNAL, RemoteJournal, of_writer
from bags.dataset.format.json_files import write_checksum, write_json
from bags.dataset.format.options import DatasetWriteOptions, WriterSettings
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import count_text, some_fields
from bags.dataset.writing.background_close import BackgroundClose
from bags.dataset.writing.base_writer import BaseWriter
from bags.dataset.writing.encoder import close_files
from bags.dataset.writing.episode import Call, EpisodeOptions, OpenEpisode, PartialEpisode
from bags.dataset.writing.field_writer import FieldCompression, FieldWriter, RecordRun, RefsWriter, open_field
from bags.dataset.writing.open_folder_for_writing import open_folder_for_writing, take_folder
from bags.dataset.writing.resume import remove_files
from bags.validation import at_least_or_none, merge, one_of

MAX_BUFFERED_BYTES = 8 << 20
MAX_UNFLUSHED_SECONDS = 1.0


class DatasetWriter(BaseWriter):
    """Writes a dataset folder. For one thread at a time; a second writer of the folder is refused.

    A `with` block that ends with an exception keeps the datapoints so far and leaves the dataset unfinished,
    as a killed process does: readers, `bags.info` and `bags.verify` say so, and `resume=True` continues it. A
    writer to a local folder that is never closed does the same when it is deleted or the process ends.

    Args:
        path: The folder; created with its parents. It may exist if it is empty.
        spec: The type of each field.
        encoders: Functions by format. Default: `bags.encoders`, which a mapping replaces as a whole. They
            return bytes, a buffer, or an open binary file, which is copied in chunks and closed.
        truncate_to: With `resume`, the number of datapoints to keep; None keeps all.
        partial: With `resume`, how to treat an episode that was open when its writer was killed, or that an
            exception ended: 'keep' makes it a datapoint, 'drop' leaves it out.
        partial_values: Values of plain fields that are not set in this episode. Without them, it is left out.
        **options: `compression`: fields to compress with zstd, or a mapping of fields to levels, to
            'dictionary' or to `('dictionary', level)`. A dictionary is trained on the first records and saved
            as `FIELD.zdict`; it makes many small, similar records much smaller.
            `checksum=True`: write a checksum of each record, 8 bytes, to a file beside each bag,
            `FIELD.bag.xxh3`. `verify` and readers with `checksum=True` compare them. With `resume`, a dataset
            keeps its checksums.
            `resume=True`: append to the dataset in the folder, whether it was closed or not. The folder may
            also be new.
            `metadata`: JSON values by name, which readers return as `metadata`; facts of fields are under
            `'fields'`. With `resume`, it replaces the metadata of the folder, or of all shards; None keeps
            the stored metadata.
            `id`: the id of the dataset, from which its fingerprint is computed: a text of up to 200
            characters. Equal datapoints with the same id give equal files. Default: a random
            id, which changes with each change of the dataset.
            `mode='overwrite'`: replace the dataset in a local folder: the new one is written beside it and
            moved into place at `close`. After an exception, the old one stays.
            `linked_fields`: the fields whose values may be `bags.Link`: records that stay in other files.
            Fixed when the folder is created, and kept by `resume`.
            `durability`: when a local dataset is on disk, so that it survives a power cut: 'close', the
            default, before `close` returns; 'flush', also before each `flush` returns; 'none', whenever the
            system writes it. After a power cut, `resume=True` and `bags.recover` keep the data on disk.
            `filesystem`, `storage_options`: as in `bags.open`.

    Attributes:
        path: Path of the folder; with `mode='overwrite'`, of the temporary folder beside it until `close`.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is False; or, with 'overwrite', it holds files
            that do not belong to a dataset.
        SpecError: The spec is invalid, or, with `resume`, differs from the spec of the folder.
        TypeError, ValueError: JSON cannot hold the metadata, or it names fields that do not exist.
        BlockingIOError: Another writer has the folder open. On an object store: it began at the same moment.
        CorruptError: With `resume`, the folder cannot be read.
        OSError: On an object store, `close` raises it if another writer has resumed the dataset meanwhile.

    Examples:
        >>> with bags.DatasetWriter(
        ...     'pairs', {'text': 'utf8', 'vector': 'array(float32,2)'}
        ... ) as writer:
        ...     writer.append({'text': 'a cup', 'vector': [0, 1]})
        0
        >>> bags.open('pairs')[0]
        {'text': 'a cup', 'vector': array([0., 1.], dtype=float32)}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        *,
        truncate_to: int | None = None,
        partial: Literal['keep', 'drop'] = 'keep',
        partial_values: Mapping[str, Any] | None = None,
        **options: Unpack[DatasetWriteOptions],
    ) -> None:
        settings = merge(WriterSettings, None, options, DatasetWriteOptions.__annotations__, DatasetWriter)
        resume: bool = settings.resume
        truncate_to = at_least_or_none('truncate_to', truncate_to, 0)
        if truncate_to is not None and not resume:
            raise ValueError(f'truncate_to: expected resume=True with it, got resume={resume!r}')
        one_of('partial', partial, ('keep', 'drop'))
        super().__init__(path, spec, encoders, settings)
        self._format = RefsFormat(self.schema)
        self._fields: list[FieldWriter] = []
        """The writers of the fields, sorted by field, the order of the refs."""
        self._bags: list[FieldWriter] = []
        """All open bags: refs, then fields."""
        self._is_new = False
        """Whether the folder was empty."""
        self._keeps_records = False
        """Whether the bags have records of earlier writers."""
        self._found_identity: tuple[int, bytes] | None = None
        """With `resume` of a closed folder, its number of datapoints and its identity file."""
        self.copied_from: CopiedFrom | None = None
        """The origin of the datapoints, if all were copied from another dataset."""
        self.episode: OpenEpisode | None = None
        """The open episode, or an episode that an error ended."""
        self.partial: PartialEpisode | None = None
        """With `resume`, the result of recovering an open episode; None without one, or if it was dropped."""
        journal = self.store.join(self.path, JOURNAL)
        self._journal = Journal(self.store, journal)
        self.remote_journal: RemoteJournal | None = None
        """The journal on an object store."""
        if self.store.is_remote:
            self.remote_journal = RemoteJournal(self.store, journal, of_writer(BAG_JOURNAL_TEXT))
        self._lock = self.replacement or self.store.lock(self.path)
        try:
            self._open(resume, truncate_to, partial == 'keep')
            if self._journal.open_counts is not None:
                self.partial = self._episode_bags().keep_partial(
                    lambda name: self.encode_item(name, (partial_values or {})[name], None)
                )
        except BaseException:
            # Closing releases the locks of the bags even while the caller keeps this error, which is more
            # informative than an error of closing.
            with contextlib.suppress(OSError):
                if self._is_new:
                    self._discard()
                if self.remote_journal is not None:
                    self.remote_journal.leave()
            for bag in self._bags:
                with contextlib.suppress(OSError):
                    if self.store.is_remote:
                        bag.discard()
                    elif self._journal.open_counts is None:
                        bag.close()
                # Closing the bags would lose an open episode; the next writer recovers it.
                bag.appender.release_lock()
            self._lock.release()
            self.store.release()
            raise
        self._flush_time = time.monotonic() + MAX_UNFLUSHED_SECONDS
        """Time at which buffered records are flushed."""
        self._check_time = self._flush_time
        """Time at which `append` with `flush=True` compares the folder with its path."""
        self.closed = False

    def _open(self, resume: bool, truncate_to: int | None, keeps_partial: bool) -> None:
        """Opens the bags. `resume` relies on the order of creation: spec.json, journal, refs, fields."""
        store, path = self.store, self.path
        names = set(store.names(path))
        if self.remote_journal is not None:
            names = take_folder(self, self.remote_journal, names, resume)
        self._is_new = not names
        begun = open_folder_for_writing(
            self, names, self._format, self._journal, resume, truncate_to, keeps_partial
        )
        kept, self._found_identity = begun.kept, begun.identity
        self._keeps_records = begun.mode == 'append'
        refs_path = store.join(path, 'refs.bag')
        spec = store.read(store.join(path, 'spec.json')) if self.checksum else b''

        def open_refs() -> None:
            options = self.settings.of_bags(buffer_size=1 << 62, checksum=self.checksum)
            self._refs = RefsWriter(
                store,
                self._format,
                refs_path,
                options,
                companion=spec,
                mode=begun.mode,
                truncate_to=kept.limit('refs'),
            )
            self._bags.insert(0, self._refs)

        def open_fields() -> None:
            for name in self.schema:
                options = self.settings.of_bags(buffer_size=MAX_BUFFERED_BYTES, checksum=self.checksum)
                if name in self.linked_fields:
                    from bags.dataset.writing.linked_field_writer import open_linked_field

                    self._bags += open_linked_field(
                        store, path, name, self.schema[name], options, self.settings.storage_options,
                        not self.has_own_encoders, begun.mode, kept,
                    )  # fmt: skip
                    continue
                field = open_field(
                    store, path, names, name, self.schema[name], self.compressions.get(name), options,
                    mode=begun.mode, truncate_to=kept.limit(name),
                )  # fmt: skip
                self._bags.append(field)

        # Existing refs get checksums last: if they have checksums, all fields have them.
        for open_some in (open_fields, open_refs) if 'refs.bag' in names else (open_refs, open_fields):
            open_some()
        last = {bag.name: bag for bag in self._bags[1:]}  # The links of a field come after its other bags.
        self._fields = list(last.values())
        self._journal.track([bag.appender for bag in self._bags], begun.counts)

    # Properties.

    def __len__(self) -> int:
        return self._refs.count

    @property
    def size(self) -> int:
        """Bytes of the dataset so far; buffered records are counted uncompressed."""
        return self.totals[0]

    @property
    def totals(self) -> tuple[int, int, int]:
        """Returns bytes, datapoints, and records of the largest bag. A shard limits each of them."""
        size, records = 0, self._refs.count
        for field in self._bags:
            size += field.size
            records = max(records, field.count)
        return size, self._refs.count, records

    @property
    def shards(self) -> int:
        """1: a folder is one shard."""
        return 1

    def __repr__(self) -> str:
        count, fields = count_text(len(self)), some_fields(self.schema)
        return f'bags.DatasetWriter({self.path!r}, {count}, {self.state}; {fields})'

    # Writing.

    def append_records(self, records: list[Any], flush: bool | None = None) -> int:
        refs, index = self._refs, self._refs.count
        before: list[int] = []
        row: list[int] = []
        buffered = refs.buffered
        try:
            if self.closed or self.episode is not None:
                self.expect_no_episode()
            for field, record in zip(self._fields, records, strict=True):
                before.append(field.count)
                if field.type.sequence:
                    row += field.write_items(record)
                else:
                    row.append(field.write_record(record))
                buffered += field.buffered
            refs.write_row(row)
            if flush is None:
                self._flush_if_due(buffered)
            elif flush:
                self._flush()
        except BaseException:
            close_files(records[len(before) :])
            self._rollback(index, before)
            raise
        return index

    def append_block(self, rows: Sequence[list[Any]]) -> None:
        """Appends encoded datapoints: all of them, or none if this raises."""
        index = self._refs.count
        before: list[int] = []
        columns: list[Sequence[int]] = []
        try:
            self.expect_no_episode()
            for field, records in zip(self._fields, zip(*rows, strict=True), strict=True):
                before.append(field.count)
                columns += field.write_column(records)
            for numbers in zip(*columns, strict=True):
                self._refs.write_row(numbers)
            self._flush_if_due(sum(each.buffered for each in self._bags))
        except BaseException:
            for row in rows:
                close_files(row)
            self._rollback(index, before)
            raise

    def _rollback(self, index: int, before: list[int]) -> None:
        """Drops the datapoints from `index` on; `before`: the number of records before them, by field."""
        self._refs.rollback(index)
        for field, count in zip(self._fields, before, strict=False):
            field.rollback(count)

    def stores_as(self, compressions: Mapping[str, FieldCompression]) -> bool:
        """Returns whether the fields have these compressions. An existing folder keeps its own."""
        return all(
            field.name in self.linked_fields or field.stores_as(compressions.get(field.name))
            for field in self._fields
        )

    def append_runs(self, runs: Mapping[str, Sequence[RecordRun]], refs: Mapping[str, Any]) -> None:
        """Appends many datapoints, given as runs of records.

        They are flushed, unless the previous shard is being closed.

        Args:
            runs: The new records of each field.
            refs: For each field, an int64 array (n,) of records; for a sequence two arrays, first records and
                counts. Records are relative to the first new record: earlier records are negative.
                `MISSING` is a missing value.
        """
        self.expect_no_episode()
        firsts = {}
        for field in self._fields:
            firsts[field.name] = field.count
            field.write_runs(runs[field.name])
        rows = self._format.rows_after(firsts, refs)
        if self._holds_refs():
            self._refs.hold(rows)
            return
        sizes = np.full(len(rows), self._format.stride)
        self._refs.write_runs([RecordRun([self._format.pack(rows)], sizes, stored=True)])
        self._flush_time = time.monotonic() + MAX_UNFLUSHED_SECONDS

    def flush(self) -> None:
        self.expect_open()
        self.expect_folder()
        if self.episode is not None and self.episode.state == 'open':
            self.episode.flush()
            return
        self._flush()

    def _flush(self) -> None:
        for field in self._fields:
            if field.pending:
                field.flush()
        self._refs.flush()  # Last: if the refs of a datapoint can be read, its records can.
        now = time.monotonic()
        self._flush_time = now + MAX_UNFLUSHED_SECONDS
        if now >= self._check_time:
            self._check_time = now + MAX_UNFLUSHED_SECONDS
            self.expect_folder()

    def _flush_if_due(self, buffered: int) -> None:
        """Flushes old or large buffers; while refs are held, not the refs."""
        if buffered >= MAX_BUFFERED_BYTES or time.monotonic() >= self._flush_time:
            if not self._holds_refs():
                self.flush()
                return
            for field in self._fields:
                if field.pending:
                    field.flush()

    def _holds_refs(self) -> bool:
        """Returns whether refs stay in memory because the previous shard is being written to disk."""
        is_small = self._refs.buffered < MAX_BUFFERED_BYTES // 2
        return self._refs.is_held() and is_small and time.monotonic() < self._flush_time

    def hold_refs(self, earlier: BackgroundClose) -> None:
        """Holds the refs in memory until the previous shard is on disk."""
        self._refs.earlier = earlier

    # Writing an episode. While it is open, only its thread uses the bags.

    def begin_episode(self, call: Call, options: EpisodeOptions, offset: int) -> OpenEpisode:
        self.expect_no_episode()
        self.flush()
        bags, metadata = self._episode_bags(), self.metadata or {}
        on_end = weakref.WeakMethod(self._end_episode)  # The threads of the episode do not keep the writer.
        self.episode = above.QueuedEpisode(
            bags,
            self.encoder,
            metadata,
            call,
            self.path,
            offset,
            options,
            on_end,
        )
        return self.episode

    def _episode_bags(self) -> Any:
        """Returns the bags for an episode to write to."""
        return above.EpisodeBags(self.store, self._refs, self._bags, self._journal, self.metadata or {})

    def _end_episode(self) -> None:
        self.episode = None

    def expect_no_episode(self) -> None:
        """Raises ValueError if the writer is closed, an episode is open, or an error ended an episode."""
        self.expect_open()
        if self.episode is not None and self.episode.state == 'open':
            raise ValueError(f'{self!r}: an episode is open: commit or discard it first')
        if self.episode is not None:
            detail = (
                'an error ended an episode: close the writer; resume=True keeps or drops the written items'
            )
            raise ValueError(f'{self!r}: {detail}')

    def close(self) -> None:
        if not self.closed and self.episode is not None:
            if self.episode.state == 'open':
                self.expect_no_episode()
            self.abandon()
            return
        try:
            self._close(is_finished=True)
        except OSError:
            self.has_failed = True
            raise

    def _close(self, is_finished: bool) -> None:
        if self.closed:
            return
        self._expect_own()
        self.flush()
        for bag in self._bags[1:]:
            bag.finish()
        self._expect_own()  # Again, as uploading bags may take long.
        self._finish_refs()  # On object stores, refs imply all records.
        self.store.sync_folder(self.path)  # Before the limits beside the bags are removed.
        for field in self._fields:
            # Without datapoints, all records are from failed appends. They are dropped, because readers treat
            # empty refs beside records as damage.
            field.close(keep=len(self) > 0)
        self._refs.close()
        self._save_identity()  # Syncs the folder: all bags must be closed before the journal is removed.
        if is_finished:
            # The data are complete: a writer that takes the folder from here on finds all of them.
            self._expect_own()
            self._journal.remove()
        self.store.sync_folder(self.path)
        if is_finished and self.replacement is not None:
            self.path = self.replacement.swap()
        self.leave()

    def _finish_refs(self) -> None:
        """Finishes the refs. If an object store has refs of another writer, removes the bags of this one."""
        try:
            self._refs.finish()
        except OSError as exc:
            if self.store.is_remote and not self._keeps_records and exc.errno in (errno.EEXIST, errno.ESTALE):
                for bag in self._bags[1:]:  # Otherwise, the refs would be read with these bags.
                    with contextlib.suppress(OSError):
                        self.store.remove(bag.path)
            raise

    def _expect_own(self) -> None:
        """Raises OSError, and ends this writer, if another one has taken the folder on an object store."""
        try:
            if self.remote_journal is not None:
                self.remote_journal.expect_own()
        except OSError as exc:
            if exc.errno == errno.ESTALE:
                self.leave()
            raise

    def _save_identity(self) -> None:
        """Saves a new id for the closed folder if it has changed since it was opened, else its earlier id."""
        store, path, length = self.store, self.path, len(self)
        id = self.settings.id
        if self._found_identity is not None and self._found_identity[0] == length and id is None:
            data = self._found_identity[1]
        else:
            sizes = {os.path.basename(bag.path): bag.size if length else 0 for bag in self._bags}
            data = Identity(id or new_id(), length, sizes, self.copied_from).dump()
        write_json(store, store.join(path, IDENTITY), data, self.checksum)
        if self.checksum:
            write_checksum(store, store.join(path, 'spec.json'))

    def abandon(self, is_kept: bool = True) -> None:
        if self.closed:
            return
        try:
            if self.episode is not None:
                self.episode.leave()
            self.expect_folder()
            is_kept = is_kept and self.replacement is None
            if self.episode is not None and is_kept and not self.store.is_remote:
                self._episode_bags().leave()
                return
            self.episode = None
            if is_kept and (len(self) or not self._is_new):
                self._close(is_finished=False)
            else:
                self._discard()
        finally:
            self.leave()

    def release_locks(self) -> None:
        for bag in self._bags:
            bag.appender.release_lock()
        self._lock.release()

    def set_inherited(self) -> None:
        super().set_inherited()
        if self.is_inherited and self.episode is not None:
            self.episode.is_inherited = True

    def open_episode(self) -> OpenEpisode | None:
        return self.episode

    def __del__(self) -> None:
        super().__del__()
        if not self.closed and self.process_id == os.getpid() and self.store.is_remote:
            warnings.warn(f'{self!r} was not closed: its datapoints are lost', RuntimeWarning, stacklevel=1)

    def _discard(self) -> None:
        while self._bags:
            self._bags.pop().discard()
        if self.remote_journal is None:
            remove_files(self.store, self.path)
        elif self.remote_journal.is_held:
            self._remove_remote_files(self.remote_journal)
        if self.made_folder:
            self.store.remove_folder(self.path)

    def _remove_remote_files(self, journal: RemoteJournal) -> None:
        """Removes the files that this writer has written, unless another writer has taken the folder.

        The folder was empty, and bags appear when they are closed: a bag in it may be of another writer.
        """
        journal.expect_own()
        if not any(name.endswith(BAG_SUFFIXES) for name in self.store.names(self.path)):
            remove_files(self.store, self.path)
            journal.is_held = False
