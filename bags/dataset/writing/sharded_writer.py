"""Writes datasets of many folders (shards), one after the other."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

from bags.dataset.format.file_names import EARLIER_PROGRESS, PROGRESS
from bags.dataset.format.identity import CopiedFrom
from bags.dataset.format.journal import ShardsJournal
from bags.dataset.format.json_files import remove_json
from bags.dataset.format.listing import dataset_of_shard
from bags.dataset.format.options import SHARD_SIZE, DatasetWriteOptions, WriterSettings
from bags.dataset.format.shard_index import INDEX
from bags.dataset.format.spec import count_text, some_fields
from bags.dataset.writing.background_close import BackgroundClose
from bags.dataset.writing.base_writer import BaseWriter
from bags.dataset.writing.encoder import close_files
from bags.dataset.writing.episode import Call, EpisodeOptions, OpenEpisode
from bags.dataset.writing.field_writer import MAX_BAG_RECORDS, RecordRun
from bags.dataset.writing.open_shards_for_writing import find_dictionaries, open_shards_for_writing
from bags.dataset.writing.resume import accept
from bags.dataset.writing.writer import DatasetWriter
from bags.links.link import Link
from bags.storage import store_for
from bags.validation import at_least, merge

MAX_DATAPOINT_RECORDS = 1 << 24
"""Maximum number of records of one datapoint: a shard is full if a bag cannot take this many more."""


MAX_OPEN_ATTEMPTS = 5
"""Maximum number of attempts to begin a shard in a dataset that was taken from another writer."""

MAX_LINK_BYTES = 1 << 10
"""Assumed maximum bytes of a link in a shard, including the entry of its file."""


class ShardedDatasetWriter(BaseWriter):
    """Writes a dataset of many folders (shards), one after the other. For one thread at a time.

    Args:
        path: The folder of the shard folders; created with its parents.
        spec, encoders: As in `DatasetWriter`.
        shard_size: Bytes at which a shard is full; None for no limit.
        shard_length: Datapoints at which a shard is full; None for no limit.
        shard_start, shard_step: Numbers of the shard folders: `shard_start`, `shard_start + shard_step`, …
            With `shard_start=w, shard_step=n` in worker w of n, each worker writes separate folders.
            Datapoints are in the order of the numbers. The dataset is `unfinished` until all n have ended.
        partial, partial_values: As in `DatasetWriter`.
        **options: As in `DatasetWriter`. `resume=True` appends to the last shard of this writer's numbers if
            it was not closed, else starts the next one. On an object store, an incomplete shard is written
            again. New shards may have optional fields that earlier shards do not have.

    While a shard is filled, the previous one is uploaded or written to disk in the background. Errors are
    raised by a later `append`, `flush` or `close`, which retry when they are called again. Datapoints of a
    local shard become readable once the previous shard is on disk: `flush` waits for that.

    Attributes:
        store: The store of the dataset.
        path: Path of the folder.

    Raises:
        FileExistsError: Without `resume`, the folder is not empty, or, with a `shard_step`, has shards with
            these numbers.
        SpecError, BlockingIOError, CorruptError: As in `DatasetWriter`.

    Examples:
        >>> spec = {'image': 'jpeg(90)', 'words': 'utf8[]', 'score': 'float(4)?'}
        >>> with bags.ShardedDatasetWriter('captions', spec, shard_length=2) as writer:
        ...     for name in ('000', '001', '002'):
        ...         writer.append(
        ...             {'image': f'photos/cats/{name}.jpg', 'words': ['a', 'cat'], 'score': None}
        ...         )
        0
        1
        2
        >>> writer.shards, bags.open('captions')[2]['image'].shape
        (2, (48, 64, 3))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        shard_size: int | None = SHARD_SIZE,
        shard_length: int | None = None,
        shard_start: int = 0,
        shard_step: int = 1,
        *,
        partial: Literal['keep', 'drop'] = 'keep',
        partial_values: Mapping[str, Any] | None = None,
        **options: Unpack[DatasetWriteOptions],
    ) -> None:
        known = DatasetWriteOptions.__annotations__
        settings = merge(WriterSettings, None, options, known, ShardedDatasetWriter)
        settings.shard_size, settings.shard_length = shard_size, shard_length
        self._number = at_least('shard_start', shard_start, 0)
        self._step = at_least('shard_step', shard_step, 1)
        if settings.mode == 'overwrite' and self._step > 1:
            raise ValueError("mode: expected 'create' with a shard_step, got 'overwrite'")
        store, folder = store_for(path, **settings.storage)
        if (whole := dataset_of_shard(store, folder)) is not None:
            raise FileExistsError(errno.EEXIST, f'the folder would be a shard of the dataset {whole}', folder)
        super().__init__(path, spec, encoders, settings)
        self._encoders = encoders
        self._of_partial: Any = {'partial': partial, 'partial_values': partial_values}
        self.origin: tuple[str, int] | None = None
        """The fingerprint and the length of the dataset whose datapoints are all copied, in order."""
        self._past_shards = self._past_size = self._past_length = 0
        self._closing = BackgroundClose()
        """Closes the shard before the current one."""
        self._journal = ShardsJournal(self.store, self.path, shard_start, shard_step)
        self._writer: DatasetWriter | None = None
        self._has_started = False
        """Whether this writer has begun a shard."""
        try:
            self._writer = self._open(settings.resume)
        except BaseException:
            self._remove_folder()
            with contextlib.suppress(OSError):  # The error of opening is raised.
                self._journal.leave()
            self.store.release()
            raise
        self.accept_links(self.linked_fields)
        self.closed = False

    def _open(self, resume: bool) -> DatasetWriter | None:
        """Counts existing shards. Opens the shard to write to, unless its first datapoint will create it."""
        start, attempts, removed = self._number, MAX_OPEN_ATTEMPTS, set[str]()
        while True:
            attempts -= 1
            try:
                begun = open_shards_for_writing(
                    self, self._journal, start, self._step, resume, self._of_partial, removed
                )
                self._number = begun.number
                self._past_shards, self._past_size, self._past_length = begun.shards, begun.size, begun.length
                if begun.unfinished is None and begun.shards:
                    return None  # The first datapoint creates the next shard.
                return self._start(begun.unfinished)
            except OSError as exc:
                is_changed = exc.errno in (errno.EEXIST, errno.EWOULDBLOCK, errno.ESTALE)
                if not is_changed or not attempts or not self._journal.was_taken_over:
                    raise
                # The writer from which the dataset was taken began or closed a shard in the same moment.
                self._journal.expect_own()

    def _start(self, unfinished: str | None = None) -> DatasetWriter:
        """Starts a shard, or resumes an unfinished one."""
        self.expect_folder()
        path = unfinished or self.store.join(self.path, f'{self._number:06}')
        was_set = self._journal.is_unfinished
        if self._has_started:
            self._journal.expect_own()
        self._journal.create()
        if not self._has_started:
            remove_json(self.store, self.store.join(self.path, INDEX))  # Outdated by the new shard.
            self._has_started = True
        options = self.settings.of_shard(
            compression=self.compressions, checksum=self.checksum, metadata=self.metadata,
            resume=unfinished is not None, mode='create', linked_fields=self.linked_fields,
        )  # fmt: skip
        try:
            writer = DatasetWriter(path, self.spec, self._encoders, **self._of_partial, **options)
        except BaseException:
            if not was_set:
                with contextlib.suppress(OSError):
                    self._journal.remove(accept)
            raise
        if not self.store.is_remote:
            writer.hold_refs(self._closing)
        return writer

    def take_remote_dataset(self) -> None:
        """Takes a dataset on an object store before a file beside the shards is changed.

        Raises:
            OSError: Another writer has the dataset open, or has taken it since.
        """
        if self.store.is_remote:
            self._journal.expect_own()
            self._journal.create()

    # Properties.

    @property
    def shards(self) -> int:
        """Number of shards so far, including those found by `resume`."""
        return self._past_shards + (self._writer is not None)

    @property
    def size(self) -> int:
        """Bytes so far, including those found by `resume`."""
        return self._past_size + (self._writer.size if self._writer is not None else 0)

    def __len__(self) -> int:
        return self._past_length + (len(self._writer) if self._writer is not None else 0)

    def __repr__(self) -> str:
        return (
            f'bags.ShardedDatasetWriter({self.path!r}, {self.shards} shards, '
            f'{count_text(len(self))}, {self.state}; {some_fields(self.schema)})'
        )

    # Writing.

    def begin_episode(self, call: Call, options: EpisodeOptions, offset: int) -> OpenEpisode:
        return self._next_writer().begin_episode(call, options, offset + self._past_length)

    def open_episode(self) -> OpenEpisode | None:
        return None if self._writer is None else self._writer.open_episode()

    def append_records(self, records: list[Any], flush: bool | None = None) -> int:
        with self._noting():
            try:
                writer = self._next_writer()
            except BaseException:
                close_files(records)
                raise
            return self._past_length + writer.append_records(records, flush)

    def append_block(self, rows: Sequence[list[Any]]) -> None:
        """Appends encoded datapoints; see `BaseWriter.append_block`. Shards end as with `append_records`."""
        writer = self._next_writer()
        size, length, records = writer.totals
        added = [sum(map(_stored_bytes, row)) for row in rows]
        most = max((len(each) for row in rows for each in row if type(each) is list), default=1)
        if self.is_full(size + sum(added), length + len(rows) - 1, records + most * len(rows)):
            for row in rows:
                self.append_records(row)
        else:
            with self._noting():
                writer.append_block(rows)

    def append_runs(self, runs: Mapping[str, Sequence[RecordRun]], refs: Mapping[str, Any]) -> None:
        """Appends many datapoints, all to one shard; see `DatasetWriter.append_runs`."""
        with self._noting():
            self._next_writer().append_runs(runs, refs)

    def _noting(self) -> contextlib.AbstractContextManager[None]:
        """Adds errors of closing as notes, for local datasets: writes to one disk often fail together."""
        return contextlib.nullcontext() if self.store.is_remote else self._closing.noted()

    def _next_writer(self) -> DatasetWriter:
        """Returns the writer of the shard for the next datapoint."""
        if self.closed:
            self.expect_open()
        self._closing.finish_if_done()
        if self._writer is not None:
            self._writer.expect_no_episode()
        if self._writer is not None and self.is_full(*self._writer.totals):
            # The next datapoint ends a full shard: if closing fails, that datapoint is not appended.
            self.end_shard()
        return self.shard_writer()

    def shard_writer(self) -> DatasetWriter:
        """Returns the writer of the current shard, even if it is full; starts a shard if there is none."""
        if self._writer is None:
            self._writer = self._start()
        if self.origin is not None:
            fingerprint, total = self.origin
            self._writer.copied_from = CopiedFrom(fingerprint, self._past_length, total)
        return self._writer

    @property
    def totals(self) -> tuple[int, int, int]:
        """Returns bytes, datapoints, and records of the largest bag of the current shard."""
        return (0, 0, 0) if self._writer is None else self._writer.totals

    def is_full(self, size: int, length: int, records: int) -> bool:
        """Returns whether a shard with these bytes, datapoints, and records of a field is full."""
        return self.settings.is_full(size, length) or records >= MAX_BAG_RECORDS - MAX_DATAPOINT_RECORDS

    def end_shard(self) -> None:
        """Ends the current shard, if there is one."""
        self.expect_open()
        writer = self._writer
        if writer is None:
            return
        self._closing.finish()
        in_background = self.store.is_remote or bool(self.store.durability)
        if in_background:
            writer.flush()
        else:
            writer.close()
        find_dictionaries(self, writer.path)
        self._past_shards += 1
        self._past_size += writer.size
        self._past_length += len(writer)
        self._number += self._step
        self._writer = None
        if in_background:
            self._closing.start(writer)

    def flush(self) -> None:
        self.expect_open()
        if not self.store.is_remote:
            self.expect_folder()
            self._closing.finish()
        if self._writer is not None:
            with self._noting():
                self._writer.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.expect_folder()
            self._closing.finish()
            if self._writer is not None:
                self._writer.close()
            self._journal.remove(accept)
            if self.replacement is not None:
                self.path = self.replacement.swap()
        except OSError:
            self.has_failed = True
            raise
        self.leave()

    def abandon(self) -> None:
        if self.closed:
            return
        try:
            if self.replacement is not None:
                with contextlib.suppress(OSError):
                    self._closing.finish_or_leave()
                if self._writer is not None:
                    self._writer.abandon(is_kept=False)
                return
            writer = self._writer
            if self.store.is_remote:
                self._closing.finish()
            else:
                self._finish_or_leave()
            has_episode = writer is not None and writer.episode is not None and not self.store.is_remote
            if writer is not None:
                writer.close() if len(writer) and not has_episode else writer.abandon()
            self.expect_folder()
            self._journal.expect_own()
            if not len(self) and not self._past_shards and not has_episode:
                for name in (PROGRESS, EARLIER_PROGRESS):
                    remove_json(self.store, self.store.join(self.path, name))
                self._journal.remove(accept)
                self._remove_folder()
            elif self.store.is_remote and not self._has_started:
                self._journal.leave()
        finally:
            self.leave()

    def release_locks(self) -> None:
        if self._writer is not None:
            self._writer.release_locks()
        self._journal.release()
        if self.replacement is not None:
            self.replacement.release()

    def set_continued(self) -> None:
        super().set_continued()
        if self._writer is not None:
            self._writer.set_continued()

    def leave(self) -> None:
        if self._writer is not None:
            self._writer.leave()
        super().leave()

    def _finish_or_leave(self) -> None:
        """Waits until the full shard is on disk; on an error, drops the current, unreadable shard."""
        try:
            self._closing.finish_or_leave()
        except OSError:
            if self._writer is not None:
                self._writer.abandon(is_kept=False)
            raise

    def _remove_folder(self) -> None:
        """Removes the folder if this writer created it, unless another one has shards in it."""
        if self.replacement is not None:
            self.replacement.release()
        elif self.made_folder:
            with contextlib.suppress(OSError):
                self.store.remove_folder(self.path)


def _stored_bytes(record: Any) -> int:
    """Returns the maximum bytes of a record, or of all items of a sequence."""
    if type(record) is bytes:
        return len(record)
    if isinstance(record, Link):
        return MAX_LINK_BYTES
    return sum(map(_stored_bytes, record or ()))
