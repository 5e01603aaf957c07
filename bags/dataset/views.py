"""Views over several datasets: `concat`, and the join of datasets of one length."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bags.bag.sharding import Concatenated
from bags.dataset.address import Address, Datapoint, MissingFields, divide_fields, group_by_part, row_of_part
from bags.dataset.base import Dataset, View, check_dataset
from bags.dataset.key_values import INTEGERS, KEY_TYPES, Matches, read_keys, sort_matches
from bags.dataset.metadata import Metadata, merge_metadata, metadata_of_fields
from bags.dataset.selection import Selection
from bags.dataset.spec import reordered, unite
from bags.indexing import Int64s, check_index, offsets_of

KEYS_AT_ONCE = 1 << 13
"""Number of values of a field in two datasets that are compared at once."""
SHOWN_DATASETS = 3
"""Maximum number of datasets that a `repr` names."""
INTEGER_WORDS = {word for word, types in KEY_TYPES.items() if types is INTEGERS}


class Concat(View):
    """The datapoints of several datasets, one after the other, as `bags.concat` returns them."""

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        named = ((f'dataset {number}', dataset.types) for number, dataset in enumerate(datasets))
        types = unite(named, 'the datasets before it')
        super().__init__(datasets, reordered(types, [dataset.types for dataset in datasets]))
        self._layout = Concatenated([len(dataset) for dataset in datasets])

    def __len__(self) -> int:
        return self._layout.total

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        if not len(indices):
            asked = [(self.dataset_of(name), {name: items}) for name, items in selection.items()]
            return [address for owner, share in asked for address in owner.resolve(indices, share)]
        addresses = []
        for part, within, share, positions in group_by_part(self._layout, indices, selection):
            there, rest = divide_fields(share, self.datasets[part].types)
            if there or not rest:
                found = self.datasets[part].resolve(within, there)
                addresses += [address.at(positions) for address in found]
            if rest:
                addresses.append(Address(MissingFields(self.open_field), within, rest, positions))
        return addresses

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
        return f'bags.concat([{_expressions(self.datasets)}])'


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


def concat(datasets: Iterable[Dataset]) -> Concat:
    """Returns a view of the datapoints of several datasets, one after the other.

    Their specs may differ in optional fields, whose values are missing in datasets without the field.

    Raises:
        SpecError: The specs differ in other fields.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> len(both), both[8, 'id']
        (10, {'id': 0})
    """
    return Concat(check_datasets('concat', datasets))


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
