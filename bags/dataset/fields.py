"""The fields of a folder, opened when they are first read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY
from bags.concurrency import cached_attribute, map_concurrently
from bags.dataset.field import Field
from bags.dataset.folder import Folder
from bags.dataset.refs import MISSING, RefsFormat
from bags.dataset.schema import Decoders, Schema
from bags.dataset.spec import FieldType
from bags.errors import CorruptError


class OpenFields(dict[str, Field]):
    """Fields by name, opened on first read. Opening a damaged field raises. Granular has no `refs`."""

    def __init__(self, folder: Folder, schema: Schema, decoders: Decoders, refs: BagFile | None) -> None:
        self._folder = folder
        self._schema = schema
        self._decoders = decoders
        self._refs = refs

    def __missing__(self, name: str) -> Field:
        schema, field_type = self._schema, self._schema.types[name]
        decoder = self._decoders.get(name, field_type, self._folder.starts, self._folder.path)
        bag = self._folder.open_bag(name)
        length = decoder.length
        if length and length != bag.length and bag.codec is None:
            _check_size(field_type, bag, length)
        if not self._folder.store.is_remote:
            _check_last_ref(schema.format, name, bag, self._last_row)
        field = self[name] = Field(name, field_type, schema.format.positions[name], bag, decoder)
        return field

    def while_opening(self, names: Iterable[str], work: Callable[[], Any]) -> Any:
        """Calls `work`. In a remote folder, opens fields that are not open yet concurrently with it."""
        closed = sorted(set(names) - self.keys()) if self._folder.store.is_remote else []
        if not closed:
            return work()
        works: list[Callable[[], Any]] = [work, lambda: self._last_row]
        works += [functools.partial(self.__getitem__, name) for name in closed]
        found = map_concurrently(lambda work: work(), works, True)
        for name in closed:
            _check_last_ref(self._schema.format, name, self[name].bag, self._last_row)
        return found[0]

    @cached_attribute
    def _last_row(self) -> tuple[int, ...]:
        """The last row of refs; empty if there are no rows."""
        if self._refs is None or not self._refs.count:
            return ()
        try:
            return self._schema.format.unpack(self._refs.get(self._refs.count - 1))
        except (CorruptError, ValueError):
            return ()  # Reading that datapoint raises the error.


# Damage of a bag that is found only by its refs or by the type of its field.


def _check_last_ref(format: RefsFormat, name: str, bag: BagFile, row: tuple[int, ...]) -> None:
    """Detects a last limit that is too large by the size of a few limits.

    The table of limits then seems to begin later and to have fewer records, all of them wrong. Signs of it:
    the record of the last datapoint is missing, and the number before the table could be a limit.

    Raises:
        CorruptError: The bag is damaged in this way.
    """
    if not row:
        return
    place = format.positions[name]
    count = row[place + 1] if format.spec[name].sequence else int(row[place] != MISSING)
    last = row[place] + count - 1
    if not count or last < bag.count or not bag.count or bag.limits is not bag.file or bag.offset < ENTRY:
        return
    before = int.from_bytes(bag.limits.read(bag.offset - ENTRY, bag.offset), 'little')
    if before <= int(bag.ends[0:1][0]):
        detail = f'has {bag.count} records, but the last datapoint refers to record {last}'
        raise CorruptError(bag.path, None, f'{detail}, and there is a limit before the first one')


def _check_size(kind: FieldType, bag: BagFile, length: int) -> None:
    """Detects a bag whose last limits are cut off, which would change the last records of fixed size.

    Raises:
        CorruptError: The bag is damaged in this way.
    """
    if kind.word == 'int' and not kind.args:
        return  # Granular's integers differ in length.
    found = bag.size - bag.count * ENTRY
    if found != bag.count * length and bag.limits.path == bag.file.path:
        raise CorruptError(
            bag.path, None, f'{bag.count} records of {length} bytes, but they take {found} bytes'
        )
