"""New fields of a dataset, which functions compute from batches of it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bags.bag.checksums import digest_function
from bags.dataset.base import Dataset
from bags.dataset.format import registry
from bags.dataset.format.refs import MISSING, Refs
from bags.dataset.format.spec import FieldType, Schema, parse_spec
from bags.dataset.reading.batch import Column
from bags.dataset.reading.columns import read_column
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Asked
from bags.dataset.writing.encoder import Encoder, collect
from bags.dataset.writing.field_writer import RecordRun
from bags.formats.signatures import FORMAT_OF_TYPE
from bags.indexing import Int64s

ComputeField = Callable[[Mapping[str, Any]], Any]
"""A function from a batch, a mapping of fields to columns, to the values of its datapoints."""
AddedFields = Mapping[str, tuple[str, ComputeField]]
"""The option `add`: by field, its type, and a function from a batch to the values of its datapoints."""

ENCODED_TYPES = {*FORMAT_OF_TYPE, 'image'}
"""Types whose values change when they are encoded. `video` and `audio` store files as they are."""


@dataclasses.dataclass(eq=False)
class ComputedFields:
    """New fields, which functions compute from batches of the dataset."""

    dataset: Dataset
    schema: Schema
    functions: Mapping[str, ComputeField]
    """The function of each field from a batch to values; called by one thread at a time."""
    encoder: Encoder
    batch_size: int
    """Maximum number of datapoints in a batch."""
    has_own_encoders: bool
    """Whether the caller passed the encoders, which are then called for every value."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def compute(self, indices: Int64s) -> dict[str, tuple[list[RecordRun], Any]]:
        """Returns the records of each new field, and their refs, relative to the first record.

        Raises:
            ValueError: A function does not return one value for each datapoint.
            EncodeError: A value cannot be encoded.
        """
        encoded: dict[str, list[Any]] = {name: [] for name in self.schema}
        for start in range(0, len(indices), self.batch_size):
            for name, entries in self.encode_batch(indices[start : start + self.batch_size]).items():
                encoded[name] += entries
        return {name: join_entries(entries, self.schema[name].sequence) for name, entries in encoded.items()}

    def encode_batch(self, indices: Int64s) -> dict[str, list[Any]]:
        """Returns the records of each new field, computed from one batch.

        A record is bytes, for a sequence a list of bytes, and None for a missing value.

        Raises:
            ValueError, EncodeError: As `compute`.
        """
        batch = LazyBatch(self.dataset, indices)
        return {name: self._encode(name, batch, indices) for name in self.schema}

    def _encode(self, name: str, batch: LazyBatch, indices: Int64s) -> list[Any]:
        where = f'datapoints {int(indices[0])} to {int(indices[-1])}'
        try:
            with self._lock:
                values = self.functions[name](batch)
        except Exception as exc:
            exc.add_note(f'in the function of field {name!r}, on {where}{self._failing(name, indices)}')
            raise
        if not hasattr(values, '__len__') or len(values) != len(indices):
            got = f'{len(values)}' if hasattr(values, '__len__') else type(values).__name__
            raise ValueError(
                f'field {name!r}: expected {len(indices)} values from its function for {where}, got {got}'
            )
        optional = self.schema[name].optional
        stored_records = {} if self.has_own_encoders else batch.records_of(self.schema[name], values)
        records = []
        for position, (index, value) in enumerate(zip(indices.tolist(), values, strict=True)):
            try:
                if position in stored_records:
                    records.append(stored_records[position])
                    continue
                record = None if value is None and optional else self.encoder.encode_field(name, value)
                records += collect([record])
            except Exception as exc:
                exc.add_note(f'from the function of field {name!r}, for datapoint {index}')
                raise
        return records

    def _failing(self, name: str, indices: Int64s) -> str:
        """Returns which datapoint of a batch the function of a field fails for, for a note.

        The batch is halved, so the function is called for at most twice the datapoints of the batch.
        """
        part = indices
        while len(part) > 1:
            half = len(part) // 2
            halves = part[:half], part[half:]
            part = next((each for each in halves if self._raises(name, each)), part[:0])
        if not len(part):
            return ', but it raises no error for smaller batches of them'
        return f'; it also fails for datapoint {int(part[0])} alone' if len(indices) > 1 else ''

    def _raises(self, name: str, indices: Int64s) -> bool:
        try:
            with self._lock:
                self.functions[name](LazyBatch(self.dataset, indices))
        except Exception:
            return True
        return False


def added_fields(add: AddedFields | None) -> tuple[Schema, dict[str, ComputeField]]:
    """Returns the types and the functions of new fields."""
    if not isinstance(add, Mapping | None):
        raise TypeError(f'add: expected a mapping of fields to a type and a function, got {add!r:.80}')
    pairs: Mapping[str, Any] = add or {}
    for name, pair in pairs.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[1])):
            raise TypeError(f'add: expected a type and a function for field {name!r}, got {pair!r}')
    schema = parse_spec({name: field_type for name, (field_type, _) in pairs.items()})
    return schema, {name: function for name, (_, function) in pairs.items()}


class LazyBatch(Mapping[str, Column]):
    """The fields of some datapoints as columns, each read on first use."""

    def __init__(self, dataset: Dataset, indices: Int64s) -> None:
        self._dataset = dataset
        self._indices = indices
        self._columns: dict[str, Column] = {}
        self._media: dict[str, list[tuple[Any, Any]]] = {}
        """Media values as they were read, each with a digest of its arrays."""

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            if name not in self._dataset.schema:
                raise KeyError(f'no field {name!r}; there are {", ".join(map(repr, self._dataset.schema))}')
            are_built_in = []

            def read(field: FieldReader, refs: Refs, items: Asked) -> Column:
                are_built_in.append(field.decoder.accepts_view)
                return read_column(field, refs, items)

            self._columns |= self._dataset.read_selection(self._indices, {name: True}, read)
            # Custom decoders may return values that differ from the record, such as smaller images.
            if self._dataset.schema[name].format in ENCODED_TYPES and are_built_in and all(are_built_in):
                self._media[name] = [(value, _digest(value)) for value in self._columns[name]]
        return self._columns[name]

    def records_of(self, field_type: FieldType, values: Sequence[Any]) -> dict[int, Any]:
        """Returns the stored records of values that are unchanged media of the same datapoint, by position.

        A new field of this type reuses these records: encoding the medium again would change it.
        """
        stored_records: dict[int, Any] = {}
        for name, media in self._media.items():
            if not _is_stored_alike(self._dataset.schema[name], field_type):
                continue
            positions = [
                position
                for position, (value, (before, digest)) in enumerate(zip(values, media, strict=True))
                if value is before and value is not None and _digest(value) == digest
            ]
            if positions:
                records = self._dataset.read_records(self._indices[positions], name)
                stored_records.update(zip(positions, records, strict=True))
        return stored_records

    def __contains__(self, name: object) -> bool:
        return name in self._dataset.schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._dataset.schema)

    def __len__(self) -> int:
        return len(self._dataset.schema)

    def __repr__(self) -> str:
        return f'{len(self._indices)} datapoints of {", ".join(self._dataset.schema)}'


def _is_stored_alike(source: FieldType, new: FieldType) -> bool:
    """Returns whether a new field can reuse the records of a source field, such as `jpeg` of `jpeg(95)`."""
    encoders: Any = registry.encoders
    is_same_format = source.format == new.format or encoders.get(source.format) is encoders.get(new.format)
    return is_same_format and source.sequence == new.sequence and new.args in ((), source.args)


def _digest(value: Any) -> Any:
    """Returns a digest of the arrays in a value, which a function may change in place."""
    if isinstance(value, list | tuple):
        return [_digest(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.shape, digest_function()(np.ascontiguousarray(value))
    return None


def join_entries(entries: Sequence[Any], sequence: bool) -> tuple[list[RecordRun], Any]:
    """Returns the records of some datapoints as a run, and their refs, relative to the first record.

    Args:
        entries: For each datapoint, its record, or the list of its records in a sequence; None if missing.
        sequence: Whether the field is a sequence.
    """
    present = np.fromiter((entry is not None for entry in entries), bool, len(entries))
    if not sequence:
        refs = np.where(present, np.cumsum(present) - 1, MISSING)
        return [run_of([entry for entry in entries if entry is not None])], refs
    counts = np.fromiter((len(entry or ()) for entry in entries), np.int64, len(entries))
    firsts = np.where(present, np.cumsum(counts) - counts, MISSING)
    return [run_of([record for entry in entries for record in entry or ()])], (firsts, counts)


def run_of(records: Sequence[Any], stored: bool = False) -> RecordRun:
    """Returns records as a run; `stored` if they are in stored form."""
    return RecordRun(records, np.fromiter(map(len, records), np.int64, len(records)), stored)
