"""Views over several datasets: `concat`, and the join of datasets of one length."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from bags.bag.sharding import Concatenated
from bags.dataset.address import (
    Address,
    Datapoint,
    MissingFields,
    OptionalReader,
    divide_fields,
    group_by_part,
    optional_field,
    row_of_part,
)
from bags.dataset.base import Dataset, View, check_dataset
from bags.dataset.field import Field
from bags.dataset.key_values import INTEGERS, KEY_TYPES, Matches, read_keys, sort_matches
from bags.dataset.metadata import Metadata, merge_metadata, metadata_of_fields
from bags.dataset.selection import Selection
from bags.dataset.spec import reordered, unite, with_optional
from bags.indexing import Int64s, check_index, offsets_of
from bags.validation import one_of

CommonFields = Literal['same', 'union', 'common']

KEYS_AT_ONCE = 1 << 13
"""Number of values of a field in two datasets that are compared at once."""
SHOWN_DATASETS = 3
"""Maximum number of datasets that a `repr` names."""
INTEGER_WORDS = {word for word, types in KEY_TYPES.items() if types is INTEGERS}


class Concat(View):
    """The datapoints of several datasets, one after the other, as `bags.concat` returns them."""

    def __init__(self, datasets: Sequence[Dataset], fields: CommonFields = 'same') -> None:
        self._fields = fields
        specs = [dataset.types for dataset in datasets]
        if fields == 'union':
            specs = with_optional(specs)
        named = ((f'dataset {number}', types) for number, types in enumerate(specs))
        types = unite(named, 'the datasets before it')
        super().__init__(datasets, reordered(types, specs))
        self._made_optional = [
            {name for name, each in dataset.types.items() if self.types[name].optional > each.optional}
            for dataset in datasets
        ]
        """The fields of each dataset that are optional only here."""
        self._layout = Concatenated([len(dataset) for dataset in datasets])

    def __len__(self) -> int:
        return self._layout.total

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        if not len(indices):
            owners = {
                name: next(part for part, each in enumerate(self.datasets) if name in each.types)
                for name in selection
            }
            return [
                address
                for name, part in owners.items()
                for address in self._resolve_part(part, indices, {name: selection[name]})
            ]
        addresses = []
        for part, within, share, positions in group_by_part(self._layout, indices, selection):
            there, rest = divide_fields(share, self.datasets[part].types)
            if there or not rest:
                addresses += [address.at(positions) for address in self._resolve_part(part, within, there)]
            if rest:
                addresses.append(Address(MissingFields(self.open_field), within, rest, positions))
        return addresses

    def _resolve_part(self, part: int, rows: Int64s, selection: Selection) -> list[Address]:
        found = self.datasets[part].resolve(rows, selection)
        optional = self._made_optional[part] & selection.keys()
        if not optional:
            return found
        return [each._replace(reader=OptionalReader(each.reader, optional)) for each in found]

    def open_field(self, name: str) -> Field:
        field = super().open_field(name)
        return optional_field(field) if self.types[name].optional else field

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        parts = []
        for dataset, start in zip(self.datasets, offsets_of(np.array(self.part_lengths())), strict=False):
            if field in dataset.types:
                owners, rows = dataset.match_keys(field, keys)
                parts.append((owners, rows + start))
        return sort_matches(*map(np.concatenate, zip(*parts, strict=True)))

    def part_lengths(self) -> list[int]:
        return [len(dataset) for dataset in self.datasets]

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        dataset = self.datasets[part]
        if len(dataset.types) == len(self.types):
            return dataset.read_row(within, selection)
        return row_of_part(dataset, within, selection, self.types)

    @property
    def expression(self) -> str:
        fields = '' if self._fields == 'same' else f', fields={self._fields!r}'
        return f'bags.concat([{_expressions(self.datasets)}]{fields})'


class Join(View):
    """The fields of several datasets of one length, as `bags.join` returns them.

    Without `replace`, a field that several datasets have must have equal values in them, which are read here.
    """

    def __init__(self, datasets: Sequence[Dataset], replace: bool) -> None:
        self._replace = replace
        self._owners: dict[str, Dataset] = {}
        """The dataset that each field is read from."""
        for number, dataset in enumerate(datasets):
            if len(dataset) != len(datasets[0]):
                raise ValueError(
                    f'join: expected datasets of one length, got {len(datasets[0])} datapoints in the first '
                    f'and {len(dataset)} in dataset {number} (on= joins by a field of keys)'
                )
            for name in dataset.types:
                if name in self._owners and not replace:
                    _expect_equal(name, self._owners[name], dataset, number)
                self._owners[name] = dataset
        types = {name: owner.types[name] for name, owner in self._owners.items()}
        super().__init__(datasets, reordered(types, [dataset.types for dataset in datasets]))

    @property
    def metadata(self) -> Metadata:
        owned = {
            id(dataset): [name for name in self._owners if self._owners[name] is dataset]
            for dataset in self.datasets
        }
        return merge_metadata(metadata_of_fields(each.metadata, owned[id(each)]) for each in self.datasets)

    def __len__(self) -> int:
        return len(self.datasets[0])

    def fingerprint_options(self) -> object:
        numbers = {id(dataset): number for number, dataset in enumerate(self.datasets)}
        return [(name, numbers[id(owner)]) for name, owner in self._owners.items()]

    def _shares(self, selection: Selection) -> list[tuple[Dataset, Selection]]:
        """Divides a selection by the dataset that each field is read from."""
        shares: dict[int, tuple[Dataset, Selection]] = {}
        for name, items in selection.items():
            owner = self._owners[name]
            shares.setdefault(id(owner), (owner, {}))[1][name] = items
        return list(shares.values())

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        return [
            address for owner, share in self._shares(selection) for address in owner.resolve(indices, share)
        ]

    def dataset_of(self, field: str) -> Dataset:
        return self._owners[field]

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        return self._owners[field].match_keys(field, keys)

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        if self.is_remote:
            return super().read_row(index, selection)  # All datasets at once.
        index = check_index(index, len(self))
        asked = dict.fromkeys(self.types, True) if selection is None else selection
        found: Datapoint = {}
        for owner, share in self._shares(asked):
            found |= owner.read_row(index, share)
        return {name: found[name] for name in asked}

    @property
    def expression(self) -> str:
        return f'bags.join([{_expressions(self.datasets)}], replace={self._replace})'


def _expect_equal(field: str, first: Dataset, second: Dataset, number: int) -> None:
    """Compares a field that two datasets have.

    Raises:
        ValueError: The values differ, or are of types that are not compared. `number` is of the second.
    """
    again = 'replace=True takes the later'
    words = {first.types[field].word, second.types[field].word}
    is_plain = not (first.types[field].sequence or second.types[field].sequence)
    if not is_plain or not (words == {'utf8'} or words <= INTEGER_WORDS):
        raise ValueError(f'join: field {field!r} of dataset {number} is in an earlier one too ({again})')
    for start in range(0, len(first), KEYS_AT_ONCE):
        rows = np.arange(start, min(start + KEYS_AT_ONCE, len(first)))
        one, other = (
            [key for _, keys in read_keys(dataset, field, rows, KEYS_AT_ONCE) for key in keys]
            for dataset in (first, second)
        )
        if one == other:
            continue
        index = next(index for index, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1)
        got, before = (
            'no value' if key is None else f'{key.decode(errors="backslashreplace")!r:.80}'
            for key in (other[index], one[index])
        )
        raise ValueError(
            f'join: field {field!r} differs at datapoint {start + index}: expected {before}, as in an '
            f'earlier dataset, got {got} in dataset {number} (on= joins by a field of keys, {again})'
        )


def concat(datasets: Iterable[Dataset], fields: CommonFields = 'same') -> Concat:
    """Returns a view of the datapoints of several datasets, one after the other.

    Their specs may differ in optional fields, whose values are missing in datasets without the field.

    Args:
        datasets: The datasets.
        fields: 'same': all datasets have the same other fields. 'union': the view has the fields of all;
            those that a dataset lacks, or has as optional, are optional. 'common': it has the fields that
            all have.

    Raises:
        SpecError: The specs differ in other fields, or in the type of a field.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> len(both), both[8, 'id']
        (10, {'id': 0})
    """
    found = check_datasets('concat', datasets)
    one_of('fields', fields, get_args(CommonFields))
    if fields == 'common':
        common = [name for name in found[0].types if all(name in dataset.types for dataset in found)]
        found = [dataset.select(fields=common) for dataset in found]
    return Concat(found, 'union' if fields == 'common' else fields)


def check_datasets(what: str, datasets: Iterable[Any]) -> list[Dataset]:
    """Returns the datasets as a list, which is not empty; errors name the function `what`."""
    if isinstance(datasets, Dataset):
        raise TypeError(f'{what}: expected several datasets, got a {type(datasets).__name__} alone')
    if isinstance(datasets, str | os.PathLike) or not isinstance(datasets, Iterable):
        raise TypeError(f'{what}: expected several datasets, got {datasets!r}')
    found = list(datasets)
    for number, dataset in enumerate(found):
        check_dataset(f'{what}, dataset {number}', dataset)
    if not found:
        raise ValueError(f'{what}: expected at least one dataset, got none')
    return found


def _expressions(datasets: Sequence[Dataset]) -> str:
    """Returns the expressions of the first datasets, and the number of others."""
    shown = [dataset.expression for dataset in datasets[:SHOWN_DATASETS]]
    more = len(datasets) - len(shown)
    return ', '.join(shown) + (f', … {more} more' if more else '')
