"""Makes links to existing records: records of a bag, or records that another dataset links to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import digest_function
from bags.bag.memory_records import MemoryRecords
from bags.bag.records import StoredRecords
from bags.concurrency import MAX_OPEN_BAGS, FifoCache
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.links.files import Dictionary, LinkedFile, is_url, resolved_path, sample_of, sample_ranges
from bags.links.link_table import LinkTable
from bags.links.linked_files import CheckedObject, LinkedFiles
from bags.links.records import MAX_ENTRIES, LinkedRecords
from bags.links.rows import VALUES_FILE, ranges_of
from bags.validation import merge

CHECKED_LINKS_AT_ONCE = 1 << 18
"""Number of links that are checked at a time."""


class LinkRun(NamedTuple):
    """Records of one field to link to."""

    files: Sequence[LinkedFile | MemoryRecords]
    """Files, with absolute paths or URLs; or records in memory, which are written before they are linked."""
    which: Int64s
    """Index in `files` of the file of each record, shape (n,)."""
    starts: Int64s
    stops: Int64s
    digests: Any = None
    """Checksums of the records, an array of u64; None if the copy has no checksums."""
    frames: Any = None
    """First frame and end of each segment, shape (n, 2), zeros for other records; None without segments."""

    @property
    def sizes(self) -> Int64s:
        """Number of bytes of each record."""
        return self.stops - self.starts


class LinkBuilder:
    """Makes links to stored records. Opens only those linked files that have moved.

    Args:
        moves: Maps old prefixes of the paths of linked files to new ones.
    """

    def __init__(self, moves: Mapping[str, str] | None = None) -> None:
        self._bags: FifoCache[BagFile, LinkedFile] = FifoCache(_entry_of_bag, MAX_OPEN_BAGS)
        prefixes = {_absolute(old): _absolute(new) for old, new in (moves or {}).items()}
        self._moved: FifoCache[tuple[LinkedRecords, LinkedFile], LinkedFile] = FifoCache(
            lambda key: _moved(*key, prefixes), MAX_ENTRIES
        )
        self._has_moves = bool(prefixes)

    def check_moves(self, bag: LinkedRecords) -> int:
        """Checks all linked files of a field at their new paths, and returns how many have moved.

        Raises:
            EOFError: A file is missing, or differs from the linked file.
        """
        numbers = range(1, bag.files.count + 1)
        return sum(self._file_of(bag, number).path != _path_of(bag, number) for number in numbers)

    def link(self, bag: StoredRecords, indices: Int64s) -> LinkRun:
        """Returns links to records of a bag.

        Raises:
            CorruptError: Limits or links are damaged.
            ValueError: The records are compressed with a dictionary that is not stored in a file.
        """
        if isinstance(bag, MemoryRecords):
            ((_, _, _, starts, stops, *_),) = bag.locate(indices)
            return LinkRun([bag], np.zeros(len(indices), np.int64), starts, stops)
        if isinstance(bag, BagFile):
            ((_, _, _, starts, stops, *_),) = bag.locate(indices)
            return LinkRun([self.entry_of(bag)], np.zeros(len(indices), np.int64), starts, stops)
        assert isinstance(bag, LinkedRecords)
        numbers, starts, stops, frames = bag.link_rows(indices)
        unique, firsts, which = np.unique(numbers, return_index=True, return_inverse=True)
        pairs = zip(unique.tolist(), indices[firsts].tolist(), strict=True)
        files = [self._file_of(bag, number, index) for number, index in pairs]
        sizes = np.array([file.size for file in files], np.int64)[which]
        if np.count_nonzero(stops > sizes):
            bad = int((stops > sizes).argmax())
            raise bag.beyond_error(int(indices[bad]), int(numbers[bad]), int(stops[bad]), int(sizes[bad]))
        return LinkRun(files, which, starts, stops, frames=frames)

    def entry_of(self, bag: BagFile) -> LinkedFile:
        """Returns the entry of a bag.

        Raises:
            ValueError: The records are compressed with a dictionary that is not stored in a file.
        """
        return self._bags[bag]

    def files_of(self, bag: StoredRecords) -> Iterator[LinkedFile]:
        """Yields the linked files of a field, with absolute paths; nothing for a bag without links."""
        if isinstance(bag, LinkedRecords):
            yield from (self._file_of(bag, number) for number in range(1, bag.files.count + 1))

    def _file_of(self, bag: LinkedRecords, number: int, index: int | None = None) -> LinkedFile:
        if number == VALUES_FILE:
            return self._bags[bag.values]
        entry = bag.entry(number, index)
        dictionary = entry.dictionary
        if dictionary is not None:
            dictionary = dictionary._replace(path=resolved_path(dictionary.path, bag.folder))
        entry = entry._replace(path=_path_of(bag, number), dictionary=dictionary)
        return self._moved[bag, entry] if self._has_moves else entry


def _path_of(bag: LinkedRecords, number: int) -> str:
    return resolved_path(bag.entry(number).path, bag.folder)


def _absolute(path: str) -> str:
    return path.rstrip('/') if is_url(path) else os.path.abspath(path)


def _moved(bag: LinkedRecords, entry: LinkedFile, prefixes: Mapping[str, str]) -> LinkedFile:
    """Returns the entry of a file with its new path. If it has moved, compares size and sample first."""

    def new(path: str) -> str:
        return next(
            (
                to + path[len(old) :]
                for old, to in prefixes.items()
                if path == old or path.startswith(f'{old}/')
            ),
            path,
        )

    dictionary = entry.dictionary and entry.dictionary._replace(path=new(entry.dictionary.path))
    moved = entry._replace(path=new(entry.path), dictionary=dictionary)
    if moved != entry:
        options: Any = merge(type(bag.options), bag.options, {'trust_links': True})  # type: ignore[type-var]
        file = LinkedFiles(options.store_of(moved.path), moved.path, options).open('/', moved).file
        if isinstance(file, CheckedObject):
            file.check()
    return moved


def _entry_of_bag(bag: BagFile) -> LinkedFile:
    ranges = np.array(sample_ranges(bag.end), np.int64)
    sample = sample_of(bag.file.read_many(ranges[:, 0], ranges[:, 1]))
    dictionary = None
    if bag.codec is not None and bag.codec.options.dictionary:
        data, path = bag.codec.options.dictionary, getattr(bag.codec.options, 'path', '')
        if not path:
            raise ValueError(f'{bag.path}: link: expected a dictionary that is stored in a file')
        dictionary = Dictionary(path, len(data), digest_function()(data))
    return LinkedFile(bag.path, bag.end, sample, bag.codec is not None, dictionary)


def join_links(runs: Sequence[LinkRun], positions: Sequence[Int64s]) -> LinkRun:
    """Concatenates runs, with their links reordered.

    Args:
        runs: The runs.
        positions: The position in the result of each link, for each run.
    """
    if len(runs) == 1:
        return runs[0]
    if not runs:
        empty = np.empty(0, np.int64)
        return LinkRun([], empty, empty, empty)
    order = np.concatenate(positions)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    files: list[LinkedFile | MemoryRecords] = []
    which = []
    for run in runs:
        which.append(run.which + len(files))
        files += run.files
    frames = None
    if any(run.frames is not None for run in runs):
        zeros = [np.zeros((len(run.which), 2), np.int64) for run in runs]
        parts = [none if run.frames is None else run.frames for run, none in zip(runs, zeros, strict=True)]
        frames = np.concatenate(parts)[inverse]
    return LinkRun(
        files,
        np.concatenate(which)[inverse],
        np.concatenate([run.starts for run in runs])[inverse],
        np.concatenate([run.stops for run in runs])[inverse],
        frames=frames,
    )


def first_lost(links: BagFile, values: BagFile, files: int) -> int:
    """Returns the index of the first link whose record or file is missing; else the number of links.

    An interrupted recovery may have dropped records and file entries before the links to them.

    Args:
        links, values: The bags of link rows of a field, and of its records that are not links.
        files: Number of file entries.
    """
    end = int(values.ends[values.count - 1 : values.count][0]) if values.count else 0
    table = LinkTable(links)
    for start in range(0, links.count, CHECKED_LINKS_AT_ONCE):
        try:
            rows = table.rows(range(start, min(start + CHECKED_LINKS_AT_ONCE, links.count)))
        except CorruptError:
            continue  # Damaged links do not count as links to lost records.
        numbers, _, ends = ranges_of(rows)
        lost = np.where(numbers == VALUES_FILE, ends > end, numbers > files)
        if lost.any():
            return start + int(lost.argmax())
    return links.count
