"""The bags of a dataset folder while a datapoint is written to them item by item.

The journal of the folder stores the number of records in each bag before the datapoint. If the writer is
killed, the later records are the items of the episode, and `keep_partial` turns them into a datapoint.

After each flush, the journal also gets the number of records that readers may see (`reopen(partial=True)`). A
flush is between two calls, so that readers see all items of a call, or none. Frames are not there before they
are encoded: as in `keep_partial`, fields with times are cut to the shortest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bags.bag.journal import Journal
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.format.metadata import Metadata
from bags.dataset.format.refs import MISSING
from bags.dataset.format.registry import frames_of
from bags.dataset.format.spec import Schema
from bags.dataset.reading.field_reader import Record
from bags.dataset.writing.encoder import close_files
from bags.dataset.writing.episode import Call, PartialEpisode
from bags.dataset.writing.field_writer import FieldWriter, RefsWriter
from bags.errors import BagsError
from bags.links.files import LINKED
from bags.storage import Durability, Store


class EpisodeBags:
    """The bags of a folder, to which an episode writes. Not thread-safe.

    Args:
        store: The store of the folder.
        refs, bags: The refs, and all bags, the refs first; the last bag of a field stores its records.
        journal: The journal of the folder.
        metadata: The metadata, whose `times` ties fields with one item for each time.
    """

    def __init__(
        self,
        store: Store,
        refs: RefsWriter,
        bags: Sequence[FieldWriter],
        journal: Journal,
        metadata: Metadata,
    ) -> None:
        self._store = store
        self._refs = refs
        self._bags = bags
        self._journal = journal
        self._fields = {bag.name: bag for bag in bags[1:]}
        self.schema: Schema = {name: bag.type for name, bag in self._fields.items()}
        self._rows = dict.fromkeys(self.schema, (MISSING, 0))
        """First record and number of records of each field: has all keys, as other threads read `counts`."""
        self._has_new = False
        """Whether records were written since the last flush. Large records are written without buffering."""
        self._tied = _tied_fields(self.schema, metadata)
        self._firsts: dict[str, int] = {}
        """Number of records of each field before the episode."""
        self._saves_counts = False
        """Whether the journal gets the number of records at each flush."""
        self._time_counts: dict[str, list[int]] = {}
        """Number of times of the first n records of the episode, by tied field whose records have frames."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of items written so far, by sequence field."""
        return {name: count for name, (_, count) in self._rows.items() if self.schema[name].sequence}

    def begin(self) -> None:
        """Marks the folder: records written from now on belong to an open episode."""
        if not self._store.is_remote:
            self._firsts = {name: field.count for name, field in self._fields.items()}
            self._saves_counts = True
            self._journal.set_open([bag.count for bag in self._bags])

    def write(self, call: Call) -> None:
        """Writes the records of one call; on an error, rolls back those already written, if possible."""
        fields = {name: self._fields[name] for name, _ in call}
        counts = {name: field.count for name, field in fields.items()}
        rows = {name: self._rows[name] for name in fields}
        self._has_new = True
        try:
            for name, record in call:
                index = fields[name].write_record(record)
                first, count = self._rows[name]
                is_next = self.schema[name].sequence and count
                self._rows[name] = (first, count + 1) if is_next else (index, 1)
        except BaseException:
            for name, field in fields.items():
                field.rollback(counts[name])
            self._rows.update(rows)
            raise

    def flush(self) -> None:
        """Makes the records survive a kill of this process; with `durability='flush'`, syncs them to disk."""
        self._store.expect_held()
        has_new = self._has_new
        for field in self._fields.values():
            if field.pending:
                has_new = True
                field.flush()
        if has_new and self._saves_counts:
            self._save_flushed()
        if has_new and self._store.durability is Durability.FLUSH:
            self._journal.sync()
        self._has_new = False

    def _save_flushed(self) -> None:
        """Saves the number of records that readers may see. All of them are flushed."""
        counts = {}
        for name, (first, count) in self._rows.items():
            stop = first + count if first != MISSING else self._firsts[name]
            counts[name] = stop - self._firsts[name]  # Of a plain field, the last record is the value.
        self._cut_to_times(counts)
        self._journal.set_flushed(
            [
                self._firsts[bag.name] + counts[bag.name] if self._fields.get(bag.name) is bag else bag.count
                for bag in self._bags
            ]
        )

    def commit(self) -> int:
        """Writes the refs of the episode, and returns the index of its datapoint."""
        row: list[int] = []
        for name, field_type in self.schema.items():
            first, count = self._rows[name]
            if field_type.sequence:
                row += [first, count] if count or field_type.optional else [0, 0]
            else:
                row.append(first)
        index = self._refs.count
        self._end(row)
        return index

    def discard(self) -> None:
        """Ends the episode without a datapoint."""
        for field in self._fields.values():
            field.rollback(field.appender.count)
        self._end(None)

    def leave(self) -> None:
        """Leaves the files in the state after a kill. They can no longer be written to."""
        try:
            self.flush()
            if self._store.durability:
                self._journal.sync()
        finally:
            for bag in self._bags:
                bag.appender.release_lock()

    def keep_partial(self, encode: Callable[[str], Any]) -> PartialEpisode | None:
        """Turns the open episode of an earlier writer into a datapoint; returns None if none of it is kept.

        Fields that `times` in the metadata ties are cut to the shortest.

        Args:
            encode: Returns the record of a plain field that is not set; raises KeyError without a value.
        """
        assert self._journal.open_counts is not None
        opened = self._journal.open_counts.before
        before = dict(zip((bag.name for bag in self._bags), opened, strict=True))
        counts = {name: field.count - before[name] for name, field in self._fields.items()}
        self._firsts = before
        if not any(counts.values()):
            self._journal.set_open(None)
            return None
        self._cut_to_times(counts)
        if not any(counts.values()):  # E.g. no clip was complete.
            self._end(None)
            return None
        row: list[int] = []
        # All are encoded before any is written: after an error, a written record would count as set.
        records, unset = self._encode_unset(counts, encode)
        for name, field_type in self.schema.items():
            first, count, field = before[name], counts[name], self._fields[name]
            if field_type.sequence:
                row += [first, count] if count else [MISSING if field_type.optional else 0, 0]
            elif count:
                row.append(field.count - 1)
            else:
                row.append(field.write_record(records[name]))
        partial = PartialEpisode(None if unset else self._refs.count, unset)
        self.flush()
        self._end(None if unset else row)
        return partial

    def _encode_unset(
        self, counts: Mapping[str, int], encode: Callable[[str], Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """Returns the records of the plain fields that are not set, and the fields that need a value."""
        records: dict[str, Any] = {}
        unset: list[str] = []
        try:
            for name, field_type in self.schema.items():
                if not field_type.sequence and not counts[name]:
                    records[name] = None
                    try:
                        records[name] = encode(name)
                    except KeyError:
                        unset += [] if field_type.optional else [name]
        except BaseException:
            close_files(records.values())
            raise
        return records, unset

    def _end(self, row: list[int] | None) -> None:
        index = self._refs.count
        try:
            if row is not None:
                self._refs.write_row(row)
            self.flush()
            self._refs.flush()
        except BaseException:
            self._refs.rollback(index)
            raise
        if not self._store.is_remote:
            self._journal.set_open(None)

    def _cut_to_times(self, counts: dict[str, int]) -> None:
        """Cuts sequences to the number of their times, and the times to the shortest of these sequences.

        An item has one time; a video has one time for each frame, and is kept or removed as a whole.
        """
        for names in self._tied:
            ends = {name: self._times_of(name, counts[name]) for name in names}
            shortest = min(counts[name] if totals is None else totals[-1] for name, totals in ends.items())
            videos, before = {name: totals for name, totals in ends.items() if totals is not None}, -1
            while shortest != before:
                before = shortest
                for totals in videos.values():
                    shortest = totals[bisect_right(totals, shortest) - 1]
            for name in names:
                counts[name] = bisect_right(videos[name], shortest) - 1 if name in videos else shortest

    def _times_of(self, name: str, count: int) -> list[int] | None:
        """Returns the number of times of the first n of `count` flushed records, for each n up to `count`.

        None if each record has one time. The frames of a record are counted once. At a video that cannot be
        read, the list ends.
        """
        field, field_type = self._fields[name], self.schema[name]
        open_frames = frames_of(field_type.format)
        if open_frames is None or field.path.endswith(LINKED[0]):
            return None
        totals = self._time_counts.setdefault(name, [0])
        if count >= len(totals):
            bag = open_bag(self._store, field.path, ReaderOptions())
            for index in range(len(totals) - 1, count):
                record = Record(bag, self._firsts[name] + index, name, field_type.text)
                try:
                    totals.append(totals[-1] + len(open_frames(record, *field_type.args)))
                except (BagsError, ValueError):
                    break  # This and later videos are cut off.
        return totals[: count + 1]


def _tied_fields(schema: Schema, metadata: Metadata) -> list[list[str]]:
    """Returns the sequences that have the same times, each group with the field of the times first."""
    tied: dict[str, list[str]] = {}
    for name, facts in metadata.get('fields', {}).items():
        times = facts.get('times') if isinstance(facts, dict) else None
        pair = {name, times}
        if isinstance(times, str) and pair <= schema.keys() and all(schema[field].sequence for field in pair):
            tied.setdefault(times, [times]).append(name)
    return list(tied.values())
