"""`concat`: the datapoints of several datasets in succession. Specs may differ."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from bags.bag.sharding import Concatenated
from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset, FieldOrigin, View, check_dataset, row_of_part
from bags.dataset.format.spec import (
    Schema,
    advice,
    check_names,
    differing_fields,
    renames,
    reordered,
    unite,
    with_optional,
)
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.key_values import Matches, sort_matches
from bags.dataset.reading.origins import Origins, groups_of
from bags.dataset.reading.row_groups import Datapoint, RowGroup, divide_fields, group_by_part
from bags.dataset.reading.selection import Selection
from bags.errors import SpecError
from bags.indexing import Int64s, check_index, offsets_of
from bags.validation import one_of
from bags.views.mixed_specs import (
    SOURCE_TYPE,
    ArrayReader,
    MissingValues,
    SourceField,
    array_windows,
    as_arrays,
    items_of,
    rows_of_source,
    varying_column,
    varying_field,
    with_common_shapes,
)
from bags.views.optional import Change, ChangedReader, list_column, optional_column, optional_field

CommonFields = Literal['same', 'union', 'common']

SHOWN_DATASETS = 3
"""Maximum number of datasets in a `repr`."""
NO_FIELDS: Selection = {}


class Concat(View):
    """The datapoints of several datasets in succession, the result of `bags.concat`."""

    def __init__(
        self, datasets: Sequence[Dataset], fields: CommonFields = 'same', source: SourceField | None = None
    ) -> None:
        self._fields, self._source = fields, source
        schemas = [dataset.schema for dataset in datasets]
        self._arrays = set[str]()
        """The fields whose windows are arrays of several types."""
        if fields == 'union':
            self._arrays = array_windows(datasets)
            schemas = with_common_shapes(
                with_optional([as_arrays(schema, self._arrays) for schema in schemas])
            )
        names = [f'dataset {number}' for number in range(len(datasets))]
        if source is not None:
            names = [f'dataset {name!r}' for name in source.sources]
        advise = _advise_same if fields == 'same' else _advise_union
        schema = unite(zip(names, schemas, strict=True), 'the datasets before it', advise)
        super().__init__(datasets, reordered(schema, schemas))
        self._changes: list[dict[str, Change]] = []
        """For each dataset, the changes of columns in the view, by field."""
        self._varying = set[str]()
        """The fields whose arrays differ in one dimension."""
        self._lists = {name for name, field_type in self.schema.items() if not field_type.sequence}
        """The fields whose columns are lists for datasets without the field."""
        for dataset in datasets:
            changes: dict[str, Change] = {}
            for name, before in dataset.schema.items():
                after = self.schema[name]
                if name in self._arrays:
                    continue
                if after.args != before.args:
                    self._varying.add(name)
                    changes[name] = functools.partial(varying_column, after)
                    self._lists.add(name)
                elif after.optional > before.optional:
                    change = optional_column if after.sequence else list_column
                    changes[name] = functools.partial(change, after)
            self._changes.append(changes)
        self._layout = Concatenated([len(dataset) for dataset in datasets])
        if source is not None:
            self.schema[source.name] = SOURCE_TYPE

    def __len__(self) -> int:
        return self._layout.total

    @property
    def partial(self) -> Int64s:
        starts = self._layout.starts
        parts = [start + dataset.partial for start, dataset in zip(starts, self.datasets, strict=False)]
        return np.concatenate(parts)

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        if self._source is None or self._source.name not in selection:
            return self._plan_rows(indices, selection)
        source_selection, rest = self._source.split(selection)
        source_group = RowGroup(self._source, self._layout.many(indices)[0], source_selection, None)
        return [source_group, *self._plan_rows(indices, rest)] if rest else [source_group]

    def _plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        if not len(indices):
            owners = {
                name: next(part for part, dataset in enumerate(self.datasets) if name in dataset.schema)
                for name in selection
            }
            return [
                group
                for name, part in owners.items()
                for group in self._plan_part(part, indices, {name: selection[name]})
            ]
        groups = []
        for part, within, share, positions in group_by_part(self._layout, indices, selection):
            present, rest = share, NO_FIELDS
            if not self.datasets[part].schema.keys() >= share.keys():
                present, rest = divide_fields(share, self.datasets[part].schema)
            if present or not rest:
                groups += [group.within(positions) for group in self._plan_part(part, within, present)]
            if rest:
                missing = MissingValues(self.open_field, self._lists)
                groups.append(RowGroup(missing, within, rest, positions))
        return groups

    def _plan_part(self, part: int, rows: Int64s, selection: Selection) -> list[RowGroup]:
        groups = self.datasets[part].plan_rows(rows, selection)
        changes = self._changes[part]
        if not self._arrays.isdisjoint(selection):
            groups = [RowGroup(ArrayReader(group.reader, self._arrays), *group[1:]) for group in groups]
        if not changes.keys().isdisjoint(selection):
            groups = [RowGroup(ChangedReader(group.reader, changes), *group[1:]) for group in groups]
        return groups

    def fingerprint_options(self) -> object:
        return () if self._source is None else (self._source.name, self._source.sources)

    def field_origins(self, field: str | None) -> list[FieldOrigin]:
        if self._is_source(field):
            return [FieldOrigin(self, field)]
        if field not in self._known_origins:
            self._known_origins[field] = [
                origin._replace(datasets=(number, *origin.datasets))
                for number in self._parts_with(field)
                for origin in self.datasets[number].field_origins(field)
            ]
        return self._known_origins[field]

    @cached_attribute
    def _known_origins(self) -> dict[str | None, list[FieldOrigin]]:
        """The results of `field_origins` by field: a concat may have thousands of datasets."""
        return {}

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        which, rows = np.zeros_like(indices), np.full_like(indices, -1)
        if self._is_source(field):
            return which, indices
        parts, within = self._layout.many(indices)
        numbers = np.array([origin.datasets[0] for origin in self.field_origins(field)], np.int64)
        for part, chosen in groups_of(parts):
            if field is None or field in self.datasets[part].schema:
                found, rows[chosen] = self.datasets[part].origin_rows(field, within[chosen])
                which[chosen] = found + np.searchsorted(numbers, part)
        return which, rows

    def trace_rows(self, field: str | None, rows: Int64s) -> Origins:
        # The field of the names of datasets, whose origin is this view.
        return self.trace(None, rows)

    def _is_source(self, field: str | None) -> bool:
        return self._source is not None and field == self._source.name

    def _parts_with(self, field: str | None) -> list[int]:
        """Returns the datasets that have a field, by their positions; all for None."""
        return [number for number, part in enumerate(self.datasets) if field is None or field in part.schema]

    def open_field(self, name: str) -> FieldReader:
        if self._source is not None and name == self._source.name:
            return self._source.field
        field = super().open_field(name)
        if name in self._varying:
            field = varying_field(field, self.schema[name])
        return optional_field(field) if self.schema[name].optional else field

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        if self._source is not None and field == self._source.name:
            rows_of_keys = rows_of_source(self._source, self._layout.starts, keys)
            return np.repeat(np.arange(len(keys)), list(map(len, rows_of_keys))), np.concatenate(rows_of_keys)
        parts = []
        for dataset, start in zip(self.datasets, offsets_of(np.array(self.part_lengths())), strict=False):
            if field in dataset.schema:
                owners, rows = dataset.match_keys(field, keys)
                parts.append((owners, rows + start))
        return sort_matches(*map(np.concatenate, zip(*parts, strict=True)))

    def part_lengths(self) -> list[int]:
        return [len(dataset) for dataset in self.datasets]

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        dataset = self.datasets[part]
        if len(dataset.schema) == len(self.schema) and not self._varying:
            return dataset.read_row(within, selection)
        datapoint = row_of_part(dataset, within, selection, self.schema)
        for name in self._varying & datapoint.keys():
            if self.schema[name].sequence:
                datapoint[name] = items_of(datapoint[name])
        if self._source is not None and self._source.name in datapoint:
            datapoint[self._source.name] = self._source.sources[part]
        return datapoint

    @property
    def expression(self) -> str:
        fields = '' if self._fields == 'same' else f', fields={self._fields!r}'
        if self._source is None:
            return f'bags.concat([{expressions(self.datasets)}]{fields})'
        name = '' if self._source.name == 'source' else f', source={self._source.name!r}'
        return f'bags.concat({{{expressions(self.datasets, self._source.sources)}}}{fields}{name})'


def concat(
    datasets: Iterable[Dataset] | Mapping[str, Dataset],
    fields: CommonFields = 'same',
    *,
    source: str | None = None,
) -> Concat:
    """Returns a view of the datapoints of several datasets in succession.

    Specs may differ in optional fields, whose values are missing for datasets without the field.

    Args:
        datasets: The datasets; or a mapping of names to datasets, which adds a field with the name of the
            dataset of each datapoint.
        fields: 'same': all datasets have the same required fields. 'union': the view has the fields of all
            datasets; fields that are missing or optional in a dataset are optional. 'common': the view has
            the fields that all datasets have. With 'union' and 'common', arrays may differ in one length:
            `array(float32,7)` and `array(float32,14)` become `array(float32,?)`, which `bags.pad` converts to
            one array.
        source: The name of the field of names, of type `utf8`. Default: 'source'.

    Raises:
        SpecError: The specs differ in required fields, or in the type of a field.
        ValueError: A dataset already has a field `source`; or `source` is given for datasets without names.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> len(both), both[8, 'id']
        (10, {'id': 0})
        >>> bags.concat({'all': dataset, 'first': dataset[:2]}).batch([0, 8], ('source', 'id'))
        {'source': ['all', 'first'], 'id': array([0, 0])}
    """
    members = check_datasets('concat', datasets.values() if isinstance(datasets, Mapping) else datasets)
    one_of('fields', fields, get_args(CommonFields))
    source_field = None
    if isinstance(datasets, Mapping):
        source = 'source' if source is None else source
        for name, dataset in datasets.items():
            if not isinstance(name, str):
                raise TypeError(f'concat: expected texts as names of datasets, got {name!r:.80}')
            if source in dataset.schema:
                raise ValueError(
                    f'concat: dataset {name!r} has a field {source!r} already: source= names another field, '
                    f'or rename({{{source!r}: …}}) that one'
                )
        check_names({source: SOURCE_TYPE})
        source_field = SourceField(source, list(datasets))
    elif source is not None:
        detail = f'expected datasets by name for the field {source!r}, such as {{"a": dataset, "b": other}}'
        raise ValueError(f'concat: source: {detail}, got {len(members)} datasets without names')
    if fields == 'common':
        common = list(members[0].schema)
        for number, dataset in enumerate(members):
            shared = [name for name in common if name in dataset.schema]
            if not shared:
                fits = renames({name: members[0].schema[name] for name in common}, dataset.schema)
                expected = f'a field of the datasets before it, {common} (rename({fits or "{…: …}"}) of one)'
                which = number if source_field is None else repr(source_field.sources[number])
                raise SpecError(None, expected, list(dataset.schema), f'dataset {which}')
            common = shared
        members = [dataset.select(fields=common) for dataset in members]
    return Concat(members, 'union' if fields == 'common' else fields, source_field)


def _advise_same(first: Schema, other: Schema) -> str:
    """Returns advice to make a spec compatible with the spec of the previous datasets."""
    return f"{advice(first, other)}; fields='union' takes the fields of all datasets, 'common' the shared"


def _advise_union(first: Schema, other: Schema) -> str:
    """Returns advice to make a spec compatible with the previous datasets, with fields='union'."""
    names = differing_fields(first, other)
    renamed = ', '.join(f'{name!r}: …' for name in names)
    rest = 'arrays may differ in one length, of one dtype'
    return f'to fit: rename({{{renamed}}}) or drop(fields={names}) of one of them; {rest}'


def check_datasets(what: str, datasets: Iterable[Any]) -> list[Dataset]:
    """Returns the datasets as a non-empty list; errors name the function `what`."""
    if isinstance(datasets, Dataset):
        raise TypeError(f'{what}: expected several datasets, got a single {type(datasets).__name__}')
    if isinstance(datasets, str | os.PathLike) or not isinstance(datasets, Iterable):
        raise TypeError(f'{what}: expected several datasets, got {datasets!r}')
    checked = list(datasets)
    for number, dataset in enumerate(checked):
        check_dataset(f'{what}, dataset {number}', dataset)
    if not checked:
        raise ValueError(f'{what}: expected at least one dataset, got none')
    return checked


def expressions(datasets: Sequence[Dataset], names: Sequence[str] | None = None) -> str:
    """Returns the expressions of the first datasets, with their names, and the number of further datasets."""
    shown = [dataset.expression for dataset in datasets[:SHOWN_DATASETS]]
    if names is not None:
        shown = [f'{name!r}: {expression}' for name, expression in zip(names, shown, strict=False)]
    more = len(datasets) - len(shown)
    return ', '.join(shown) + (f', … {more} more' if more else '')
