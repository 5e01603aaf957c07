"""The fields of a folder, opened when they are first read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY
from bags.concurrency import map_concurrently
from bags.dataset.field import Field
from bags.dataset.folder import Folder
from bags.dataset.refs import MISSING, RefsFormat
from bags.dataset.schema import DecoderCache, Schema
from bags.dataset.spec import FieldType
from bags.errors import CorruptError

__all__ = ['OpenFields']


class OpenFields(dict[str, Field]):
    """Fields by name. Damage of a field raises when it is first read. `refs` is None in a Granular folder."""

    def __init__(self, folder: Folder, schema: Schema, decoders: DecoderCache, refs: BagFile | None) -> None:
        self._folder = folder
        self._schema = schema
        self._decoders = decoders
        self._refs = refs
        self._last_row: tuple[int, ...] | None = None

    def __missing__(self, name: str) -> Field:
        schema, kind = self._schema, self._schema.types[name]
        decoder = self._decoders.get(name, kind, self._folder.starts, self._folder.path)
        bag = self._folder.open_bag(name)
        length = decoder.length
        if length and bag.codec is None and bag.count * length != bag.size - bag.count * ENTRY:
            _check_size(kind, bag, length)
        if not self._folder.store.is_remote:
            _check_last_ref(schema.format, name, bag, _last_row(schema.format, self._refs))
        field = self[name] = Field(name, kind, schema.format.places[name], bag, decoder)
        return field

    def while_opening(self, names: Iterable[str], work: Callable[[], Any]) -> Any:
        """Does work, at the same time as the fields of a remote folder that are not open yet are opened."""
        closed = sorted(set(names) - self.keys()) if self._folder.store.is_remote else []
        if not closed:
            return work()
        works: list[Callable[[], Any]] = [work]
        works += [functools.partial(self.__getitem__, name) for name in closed]
        if self._last_row is None:
            works.append(lambda: _last_row(self._schema.format, self._refs))
        found = map_concurrently(lambda work: work(), works, True)
        row = self._last_row = found[-1] if self._last_row is None else self._last_row
        for name in closed:
            _check_last_ref(self._schema.format, name, self[name].bag, row)
        return found[0]


# Damage of a bag that shows only beside the refs and the type of its field.


def _last_row(format: RefsFormat, refs: BagFile | None) -> tuple[int, ...]:
    """Returns the last row of refs; empty if there is none."""
    if refs is None or not refs.count:
        return ()
    try:
        return format.unpack(refs.record(refs.count - 1))
    except (CorruptError, ValueError):
        return ()  # Raises where that datapoint is read.


def _check_last_ref(format: RefsFormat, name: str, bag: BagFile, row: tuple[int, ...]) -> None:
    """Finds a last limit that is too large by the size of a few limits.

    The table then seems to begin later: there are fewer records, and each is another one. It shows in the
    last datapoint, whose record is missing, and in the number before the table, which is a limit by its size.

    Raises:
        CorruptError: The bag is damaged so.
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


def _check_size(kind: FieldType, bag: BagFile, length: int) -> None:
    """Finds limits cut off at the end of a bag, which would change the last records of a fixed-size field.

    Raises:
        CorruptError: The bag is damaged so.
    """
    if kind.word == 'int' and not kind.args:
        return  # Granular's integers differ in length.
    if bag.limits.path == bag.file.path:
        found = bag.size - bag.count * ENTRY
        raise CorruptError(
            bag.path, None, f'{bag.count} records of {length} bytes, but they take {found} bytes'
        )
