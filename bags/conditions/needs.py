"""Finds the datapoints that pass a condition. Reads only the data that the condition needs, in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.concurrency import map_concurrently
from bags.conditions.columns import Block, Bools, Column, as_floats, column_of_sequences, column_of_values
from bags.conditions.comparison import COMPARED, Measure, Need
from bags.conditions.grammar import Condition, parse_condition
from bags.conditions.paths import MAX_EXPLAINED, add_paths, check_types, wrong_path
from bags.dataset import above
from bags.dataset.base import DATAPOINTS_AT_ONCE, Dataset
from bags.dataset.format.refs import Refs, is_missing
from bags.dataset.format.registry import NUMBER_FORMATS
from bags.dataset.format.spec import FieldType
from bags.dataset.reading import batch
from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.columns import choose_records, read_column, read_values
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Asked, Selection
from bags.indexing import Int64s, offsets_of

MAX_BLOCK = 1 << 16
"""Maximum datapoints of a block of numbers."""
MAX_BLOCK_ITEMS = 1 << 20
"""Maximum items of the sequences of a block, unless a datapoint has more."""


def matching(dataset: Dataset, text: str, workers: int) -> Int64s:
    """Returns the datapoints that pass a condition, in ascending order.

    Raises:
        ValueError: The condition violates the grammar, names no field, compares values of different types,
            or needs a value inside a field that no datapoint has.
    """
    condition = parse_condition(text, dataset.schema, dataset.metadata.get('fields'))
    length = _block_length(dataset, condition, workers)
    read = [name for name, need in condition.needs.items() if need == 'value']
    measured = [name for name, _ in condition.measures.values()]
    counted = [name for name in {*read, *measured} if dataset.schema[name].sequence]

    def split(indices: Int64s) -> list[Int64s]:
        """Divides datapoints into blocks of at most `MAX_BLOCK_ITEMS` items."""
        if length <= DATAPOINTS_AT_ONCE or not counted:
            return [indices]
        items = np.cumsum(sum(dataset.item_counts(indices, name) for name in counted)) // MAX_BLOCK_ITEMS
        return np.split(indices, np.flatnonzero(items[1:] != items[:-1]) + 1)

    def match(start: int) -> Int64s:
        indices = np.arange(start, min(start + length, len(dataset)))
        return np.concatenate([_match_block(dataset, condition, part, types) for part in split(indices)])

    types: dict[str, set[str]] = {key: set() for key in condition.paths}
    blocks = [*map_concurrently(match, range(0, len(dataset), length), max_threads=workers)]
    for key, path in condition.paths.items():
        if not check_types(types[key], condition.expected[key]):
            values = _some_values(dataset, path.field)
            raise ValueError(wrong_path(path, types[key], condition.expected[key], values))
    return np.concatenate([np.empty(0, np.int64), *blocks])


def _match_block(
    dataset: Dataset, condition: Condition, indices: Int64s, types: Mapping[str, set[str]]
) -> Int64s:
    """Returns the datapoints of a block that pass a condition. Adds the types of paths to `types`."""
    block, found = _read_block(dataset, condition, indices)
    for key, types_of_block in found.items():
        types[key].update(types_of_block)
    try:
        matches: Int64s = indices[condition.test(block)]
    except Exception:
        _raise_first(dataset, condition, block, int(indices[0]))
        raise
    return matches


def _raise_first(dataset: Dataset, condition: Condition, block: Block, start: int) -> None:
    """Raises the error of the first datapoint of a block whose test fails, with a note that names it."""
    for row in range(block.length):
        try:
            condition.test(block.take(np.array([row])))
        except Exception as exc:
            exc.add_note(f'filter: the condition raised this for datapoint {start + row} of {dataset!r}')
            raise exc from None


def _block_length(dataset: Dataset, condition: Condition, workers: int) -> int:
    """Returns the number of datapoints to read together: many if they are numbers, counts or sizes."""
    values = [dataset.schema[name].format for name, need in condition.needs.items() if need == 'value']
    if not all(format in NUMBER_FORMATS for format in values):
        return DATAPOINTS_AT_ONCE
    return max(DATAPOINTS_AT_ONCE, min(MAX_BLOCK, -(-len(dataset) // workers)))


def _some_values(dataset: Dataset, field: str) -> list[Any]:
    """Returns the values of the first datapoints that have one."""
    for start in range(0, len(dataset), DATAPOINTS_AT_ONCE):
        column = dataset.batch(range(start, min(start + DATAPOINTS_AT_ONCE, len(dataset))), field)[field]
        values = [value for value in column if value is not None]
        if values:
            return values[:MAX_EXPLAINED]
    return []


def _read_block(dataset: Dataset, condition: Condition, indices: Int64s) -> tuple[Block, dict[str, set[str]]]:
    """Reads the data that a condition needs of some datapoints. Counting a sequence reads no records.

    Returns:
        The columns, and the types of the values of each path.
    """
    needs: Mapping[str, Need] = condition.needs
    measures: Mapping[str, tuple[str, Measure]] = condition.measures
    inside = {path.field for path in condition.paths.values()}
    columns: dict[str, Column] = {}
    values: Selection = {name: True for name, need in needs.items() if need == 'value'}
    for name, column in (dataset.read_selection(indices, values, _read_values) if values else {}).items():
        field_type = dataset.schema[name]
        if field_type.format in NUMBER_FORMATS and _is_inexact(field_type, column):
            (column,) = dataset.read_selection(indices, {name: True}, read_values).values()
        columns[name] = _as_column(field_type, column, len(indices))
        is_compared = field_type.format in COMPARED or name in inside
        if is_compared and isinstance(_first(columns[name]), bytes | memoryview):
            raise ValueError(
                f'filter: a condition compares values: open {dataset.expression} without raw=True'
            )
    for name, need in needs.items():
        if need != 'value':
            counts = dataset.item_counts(indices, name) if need == 'count' else None
            columns[name] = Column(np.empty(0), _presence(dataset, name, indices), counts)
    for key, (name, measure) in measures.items():
        if measure == 'size':
            columns[key] = _sizes(dataset, name, indices)
        else:
            columns[key] = _of_stream(dataset, name, measure, indices)
    types = add_paths(columns, condition.paths)
    return Block(len(indices), columns), types


def _first(column: Column) -> object:
    """Returns the first value or item of a column; None if it has none."""
    values, present, counts = column
    if present is not None and counts is None:
        values = values[np.argmax(present) :] if present.any() else values[:0]
    return values[0] if len(values) else None


class _OptionalNumbers(Ragged):
    """The numbers of an optional field; a sequence of 0 or 1 numbers for each datapoint."""

    def __getitem__(self, index: int) -> Any:
        numbers = super().__getitem__(index)
        return None if numbers is None else numbers[0].item()


def _read_values(field: FieldReader, refs: Refs, items: Asked) -> batch.Column:
    """Returns numbers as arrays, also of optional fields, and other values as Python values."""
    if items is not True or field.type.sequence:
        return read_column(field, refs, items)
    dtype = field.decoder.dtype
    if dtype is None or field.decoder.shape or field.type.format not in NUMBER_FORMATS:
        return read_values(field, refs, items)
    if not field.type.optional:
        return read_column(field, refs, items)
    chosen = choose_records(field, refs, items)
    assert chosen.present is not None
    values = field.values(chosen.records)
    if not isinstance(values, np.ndarray):  # Integers of Granular, whose records differ in length.
        return read_values(field, refs, items)
    return _OptionalNumbers(values, offsets_of(chosen.present.astype(np.int64)), chosen.present)


def _is_inexact(field_type: FieldType, column: batch.Column) -> bool:
    """Returns whether integers were converted to floats, to merge signed and unsigned ones."""
    values = column.values if isinstance(column, Ragged) else column
    return field_type.format != 'float' and isinstance(values, np.ndarray) and values.dtype.kind == 'f'


def _as_column(field_type: FieldType, column: batch.Column, length: int) -> Column:
    """Returns the column of a field from what was read."""
    if isinstance(column, Ragged):
        if field_type.sequence:
            return Column(column.values, column.present, column.lengths)
        assert column.present is not None
        values = np.zeros(length, column.values.dtype)
        values[column.present] = column.values
        return Column(as_floats(values), column.present)
    if field_type.sequence:
        return column_of_sequences(list(column))
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in 'biuf':
        return Column(as_floats(column))
    return column_of_values(list(column))


def _presence(dataset: Dataset, name: str, indices: Int64s) -> Bools | None:
    """Returns which datapoints have a value, from the refs; None if all have one."""
    return dataset.are_present(indices, name) if dataset.schema[name].optional else None


def _sizes(dataset: Dataset, name: str, indices: Int64s) -> Column:
    """Returns the stored bytes of a field of each datapoint, without reading records."""
    ranges = dataset.record_ranges(indices, name)
    if ranges is None:
        raise ValueError(f'filter: field {name!r} has computed values, which are not stored')
    return Column(ranges.sizes(), ~is_missing(ranges.firsts, ranges.counts))


def _of_stream(dataset: Dataset, name: str, measure: Measure, indices: Int64s) -> Column:
    """Returns the seconds, or the number of elements, of the stream of each datapoint."""
    stream = above.StreamField(dataset, name)
    found = stream.durations(indices) if measure == 'duration' else stream.counts(indices)
    return Column(found, dataset.are_present(indices, name))
