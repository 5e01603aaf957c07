"""`rename` and `update`: views with renamed fields and with new values.

An edit of an edit becomes one edit of the underlying dataset, so a hundred edits read as fast as one:

    dataset.update({2: {'a': 'x'}})[1:].rename({'a': 'b'}).update({0: {'b': 'y'}})

    Edited      names b → a, values of b {0: 'y', 1: 'x'}
    Select      rows 1, 2, …
    dataset     field a
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset, FieldOrigin, Select, View
from bags.dataset.format.metadata import Metadata, rename_metadata
from bags.dataset.format.spec import FieldType, check_names
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import ReadField
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import digest_of
from bags.dataset.reading.key_values import Matches, read_keys, sort_matches
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.row_reader import FolderFields, RecordRanges, RowReader
from bags.dataset.reading.selection import Asked, Selection, divide, select_fields
from bags.dataset.writing.encoder import Encoder, collect
from bags.indexing import Int64s, as_indices, check_index
from bags.links.link import Link
from bags.views.new_values import NewValues, NewValuesReader

CACHED = ('_readers', '_changed')
"""Attributes that are not pickled, and recomputed in another process."""


class RenamedReader:
    """A reader with renamed fields; `names` maps each new name to the name in the reader."""

    def __init__(self, reader: RowReader, names: Mapping[str, str]) -> None:
        self._reader, self._names = reader, names

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        renamed = {self._names[name]: items for name, items in selection.items()}
        columns = self._reader.read_selection(rows, renamed, read)
        return {name: columns[self._names[name]] for name in selection}

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        return self._reader.item_counts(rows, self._names[field], items)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        return self._reader.record_ranges(rows, self._names[field], items)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return self._reader.folders([self._names[name] for name in fields])


class Edited(View):
    """A view of the same datapoints with renamed fields and with new values in some rows.

    Args:
        dataset: The dataset.
        names: By field of the view, in its order, the name in the dataset.
        values: The new values, by field of the view.
    """

    names: dict[str, str]
    values: dict[str, NewValues]

    def __init__(self, dataset: Dataset, names: Mapping[str, str], values: Mapping[str, NewValues]) -> None:
        edited, rows = dataset, None
        if type(dataset) is Select and isinstance(dataset.datasets[0], Edited):
            edited, rows = dataset.datasets[0], dataset.indices
        if isinstance(edited, Edited):
            merged = {}
            for new, name in names.items():
                earlier = edited.values.get(name)
                if earlier is not None and rows is not None:
                    earlier = earlier.select(rows)
                both = earlier.merge(values.get(new)) if earlier is not None else values.get(new)
                if both is not None:
                    merged[new] = both
            names, values = {new: edited.names[name] for new, name in names.items()}, merged
            dataset = edited.datasets[0] if rows is None else Select(edited.datasets[0], rows)
        super().__init__([dataset], {new: dataset.schema[name] for new, name in names.items()})
        self.names, self.values = dict(names), dict(values)
        self._renamed = {new for new, name in names.items() if new != name}

    def __len__(self) -> int:
        return len(self.datasets[0])

    @property
    def new_names(self) -> dict[str, str]:
        """Maps fields of the dataset to their names in the view, if the view has them."""
        return {name: new for new, name in self.names.items()}

    @property
    def metadata(self) -> Metadata:
        return rename_metadata(self.datasets[0].metadata, self.new_names)

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        names = {name: self.names[name] for name in fields if name in self.names}
        underlying = self.datasets[0].fingerprint_of(tuple(sorted(names.values())), of_origin)
        digests = [(name, self.values[name].digest) for name in names if name in self.values]
        if not digests and self._renamed.isdisjoint(names):
            return underlying
        return digest_of(type(self).__name__, sorted(names.items()), sorted(digests), underlying)

    def part_lengths(self) -> list[int]:
        return self.datasets[0].part_lengths()

    def bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        names = tuple(self.names[name] for name in (self.schema if fields is None else fields))
        return self.datasets[0].bytes_before(index, names)

    def dataset_of(self, field: str) -> Dataset:
        return self.datasets[0]

    def field_origins(self, field: str | None) -> list[FieldOrigin]:
        return [
            origin._replace(new_names=(*origin.new_names, self.new_names))
            for origin in self.datasets[0].field_origins(self.names[field] if field is not None else None)
        ]

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        name = None if field is None else self.names[field]
        return self.datasets[0].origin_rows(name, indices)

    def open_field(self, name: str) -> FieldReader:
        return self.datasets[0].open_field(self.names[name])

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        owners, rows = self.datasets[0].match_keys(self.names[field], keys)
        if field not in self.values:
            return owners, rows
        owners_of: dict[bytes | None, list[int]] = {}
        for owner, key in enumerate(keys):
            owners_of.setdefault(key, []).append(owner)
        changed = self.values[field].rows
        is_old = ~np.isin(rows, changed)
        pairs = [
            (owner, row)
            for new_rows, new in read_keys(self, field, changed)
            for row, key in zip(new_rows.tolist(), new, strict=True)
            for owner in (owners_of.get(key, ()) if key is not None else ())
        ]
        new_matches = np.array(pairs, np.int64).reshape(-1, 2)
        return sort_matches(
            np.append(owners[is_old], new_matches[:, 0]), np.append(rows[is_old], new_matches[:, 1])
        )

    # Reads new values from memory, and all others from the underlying dataset under their original names.

    @cached_attribute
    def _readers(self) -> dict[str, NewValuesReader]:
        return {
            name: NewValuesReader(name, values, self.open_field(name)) for name, values in self.values.items()
        }

    @cached_attribute
    def _changed(self) -> set[int]:
        """The rows with new values."""
        return {row for values in self.values.values() for row in values.entries}

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        unchanged, groups = {}, list[RowGroup]()
        for name, items in selection.items():
            values = self.values.get(name)
            if values is None or not len(updated := values.find(indices)):
                unchanged[name] = items
                continue
            rest = np.delete(np.arange(len(indices)), updated)
            new, old = divide({name: items}, [updated, rest])
            rows = values.rows.searchsorted(indices[updated])
            groups.append(RowGroup(self._readers[name], rows, new, updated if len(rest) else None))
            if len(rest):
                groups += [group.within(rest) for group in self._below(indices[rest], old)]
        return [*groups, *self._below(indices, unchanged)] if unchanged or not groups else groups

    def _below(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        original = {self.names[name]: items for name, items in selection.items()}
        groups = self.datasets[0].plan_rows(indices, original)
        if self._renamed.isdisjoint(selection):
            return groups
        new = {self.names[name]: name for name in selection}
        return [
            group._replace(
                reader=RenamedReader(group.reader, self.names),
                selection={new[name]: items for name, items in group.selection.items()},
            )
            for group in groups
        ]

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        index = check_index(index, len(self))
        fields: Selection = dict.fromkeys(self.schema, True) if selection is None else selection
        if self.values and index in self._changed:
            return super().read_row(index, fields)
        underlying = self.datasets[0]
        if not self._renamed and (selection is not None or len(self.schema) == len(underlying.schema)):
            return underlying.read_row(index, selection)
        datapoint = underlying.read_row(index, {self.names[name]: items for name, items in fields.items()})
        return {name: datapoint[self.names[name]] for name in fields}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in CACHED}

    @property
    def expression(self) -> str:
        text, underlying_schema = self.datasets[0].expression, self.datasets[0].schema
        if len(self.schema) < len(underlying_schema):
            text += f'.drop(fields={[name for name in underlying_schema if name not in self.names.values()]})'
        if self._renamed:
            text += f'.rename({ {self.names[name]: name for name in self.schema if name in self._renamed} })'
        if self.values:
            mark = zlib.crc32(repr([(name, values.digest) for name, values in self.values.items()]).encode())
            text += f'.update({len(self._changed)} rows #{mark:08x}, fields={list(self.values)})'
        return text


def rename_fields(dataset: Dataset, names: Mapping[str, str]) -> Edited:
    """Returns the view of `Dataset.rename`; see there for errors."""
    if not isinstance(names, Mapping):
        raise TypeError(f'rename: expected a mapping of names to new names, got {names!r:.80}')
    select_fields(names.keys(), dataset.schema)
    for name, new in names.items():
        if not isinstance(new, str):
            raise TypeError(f'rename: expected a new name for field {name!r}, got {new!r:.80}')
    view: dict[str, str] = {}
    for name in dataset.schema:
        new = names.get(name, name)
        if new in view:
            raise ValueError(f'rename: fields {view[new]!r} and {name!r} would both be {new!r}')
        view[new] = name
    # Unchanged names are not checked: datasets of other libraries may have names that bags does not write.
    folded = {new.casefold() for name, new in names.items() if new != name}
    if folded:
        check_names({new: dataset.schema[name] for new, name in view.items() if new.casefold() in folded})
    return Edited(dataset, view, {})


def update_values(
    dataset: Dataset,
    values: Mapping[int, Mapping[str, Any]],
    encoders: Mapping[str, Callable[..., Any]] | None,
) -> Edited:
    """Returns the view of `Dataset.update`; see there for errors."""
    if not isinstance(values, Mapping):
        raise TypeError(f'update: expected a mapping of datapoints to new values, got {values!r:.80}')
    rows = as_indices(list(values), len(dataset), 'update').tolist()
    new: dict[str, dict[int, Any]] = {}
    encoder_of: dict[str, tuple[Encoder, bool]] = {}
    for row, changes in zip(rows, values.values(), strict=True):
        if not isinstance(changes, Mapping):
            raise TypeError(f'update: expected a mapping of fields for datapoint {row}, got {changes!r:.80}')
        for name in select_fields(changes.keys(), dataset.schema):
            if name not in encoder_of:
                encoder_of[name] = _encoder_of(dataset, name, encoders)
            try:
                entry = _encode(encoder_of[name][0], dataset.schema[name], name, changes[name])
            except Exception as exc:
                exc.add_note(f'update: datapoint {row}, field {name!r}')
                raise
            new.setdefault(name, {})[row] = entry
    held = {name: NewValues(dict(sorted(new[name].items())), encoder_of[name][1]) for name in new}
    return Edited(dataset, {name: name for name in dataset.schema}, held)


def _encoder_of(
    dataset: Dataset, name: str, encoders: Mapping[str, Callable[..., Any]] | None
) -> tuple[Encoder, bool]:
    """Returns the encoder of a field, and whether its integers are unsigned.

    Raises:
        TypeError: The values are computed when they are read.
    """
    ranges = dataset.record_ranges(np.arange(1), name)
    if ranges is None:
        raise TypeError(
            f'update: field {name!r} is computed from windows when it is read: update the underlying dataset'
        )
    field_type, unsigned = dataset.schema[name], ranges.sources[0].unsigned
    if unsigned and field_type.format == 'int':
        field_type = field_type._replace(format='uint')
    return Encoder({name: field_type}, encoders), unsigned


def _encode(encoder: Encoder, field_type: FieldType, name: str, value: Any) -> Any:
    """Returns the record of a value in memory; a list for a sequence, None for a missing value."""
    if value is None and field_type.optional:
        return None
    if isinstance(value, Link):
        raise TypeError(f'expected a value, got {value!r:.80}: only writers take links')
    (entry,) = collect([encoder.encode_field(name, value)])
    return entry
