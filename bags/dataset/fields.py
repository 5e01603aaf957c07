"""The fields of a folder: opened when they are first read, several at the same time where that waits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY
from bags.concurrency import FifoCache, map_concurrently
from bags.dataset.field import Field
from bags.dataset.folder import Folder
from bags.dataset.refs import MISSING, RefsFormat
from bags.dataset.schema import Schema
from bags.dataset.selection import Selection
from bags.dataset.spec import FieldType
from bags.errors import CorruptError

__all__ = ['OpenFields']


class OpenFields(FifoCache[str, Field]):
    """Fields by name. What is wrong with one is met when it is first asked for.

    Args:
        folder: Where their bags are.
        schema: Their types.
        refs: What refers to their records, if there is such a bag.
        is_remote: Whether reads mostly wait, for a storage.
    """

    def __init__(self, folder: Folder, schema: Schema, refs: BagFile | None, is_remote: bool) -> None:
        super().__init__(_opener(folder, schema, refs, is_remote), len(schema.types) + 1)
        self.is_remote = is_remote
        self._format = schema.format
        self._refs = refs
        self._last_row: tuple[int, ...] | None = None

    def beside(self, names: Iterable[str], work: Callable[[], Any]) -> Any:
        """Does work, and opens at the same time those of the fields that are not open, where that waits."""
        closed = [name for name in names if name not in self] if self.is_remote else []
        if not closed:
            return work()
        works: list[Callable[[], Any]] = [work]
        works += [functools.partial(self.__getitem__, name) for name in closed]
        if self._last_row is None:
            works.append(lambda: _last_row(self._format, self._refs))
        found = map_concurrently(lambda work: work(), works, True)
        row = self._last_row = found[-1] if self._last_row is None else self._last_row
        for name in closed:
            _check_table(self._format, name, self[name].bag, row)
        return found[0]

    def row(self, refs: tuple[int, ...], selection: Selection) -> dict[str, Any]:
        """Returns the values of a row, read at the same time."""

        def work(name: str) -> Any:
            field, items = self[name], selection[name]
            return field.read(refs) if items is True else field.read_items(refs, items)

        return dict(zip(selection, map_concurrently(work, list(selection), self.is_remote), strict=True))


def _opener(folder: Folder, schema: Schema, refs: BagFile | None, is_remote: bool) -> Callable[[str], Field]:
    """Returns what opens a field. It refers to no reader, which else would be in a cycle with it."""

    def make(name: str) -> Field:
        decoder = schema.decoder(name, folder.path)
        bag = folder.open_bag(name)
        length = decoder.length
        if length and bag.codec is None and bag.count * length != bag.size - bag.count * ENTRY:
            _check_sizes(schema.types[name], bag, length)
        if not is_remote:
            _check_table(schema.format, name, bag, _last_row(schema.format, refs))
        return Field(name, schema.types[name], schema.format.places[name], bag, decoder)

    return make


# What a bag does not show by itself, but beside the refs and the type of its field.


def _last_row(format: RefsFormat, refs: BagFile | None) -> tuple[int, ...]:
    """Returns the last row of refs; empty if there is none."""
    if refs is None or not refs.count:
        return ()
    try:
        return format.unpack(refs.record(refs.count - 1))
    except (CorruptError, ValueError):
        return ()  # To be met where that datapoint is read.


def _check_table(format: RefsFormat, name: str, bag: BagFile, row: tuple[int, ...]) -> None:
    """Meets a last limit that is too large by a few limits' length.

    The table then seems to begin later: there are fewer records, and each is another one. What tells is the
    last datapoint, whose record is not there, and the number before the table, which is a limit by its size.
    """
    if not row:
        return
    place = format.places[name]
    count = row[place + 1] if format.spec[name].sequence else int(row[place] != MISSING)
    last = row[place] + count - 1
    if not count or last < bag.count or not bag.count or bag.limits is not bag.file or bag.offset < ENTRY:
        return
    before = int.from_bytes(bag.limits.read(bag.offset - ENTRY, bag.offset), 'little')
    if before <= int(bag.ends[0:1][0]):
        detail = f'has {bag.count} records, but the last datapoint refers to record {last}'
        raise CorruptError(bag.path, None, f'{detail}, and there is a limit before the first one')


def _check_sizes(kind: FieldType, bag: BagFile, length: int) -> None:
    """Meets limits cut off at the end of a bag, which would make other numbers of its last records."""
    if kind.word == 'int' and not kind.args:
        return  # Granular's integers differ in length.
    if bag.limits.path == bag.file.path:
        found = bag.size - bag.count * ENTRY
        raise CorruptError(
            bag.path, None, f'{bag.count} records of {length} bytes, but they take {found} bytes'
        )
