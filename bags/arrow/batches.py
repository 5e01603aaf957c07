"""Conversion of datasets to Arrow record batches, which pyarrow and other libraries read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bags.arrow.types import arrow_schema, element_type, import_pyarrow, item_type, shape_of, stores_location
from bags.bag.memory_records import MemoryRecords
from bags.dataset.base import Dataset, Media
from bags.dataset.format.refs import Refs
from bags.dataset.format.registry import INTEGER_FORMATS, bind_decoder
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.columns import read_column, read_records, read_values, read_with
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Asked, Fields, FrameSelection, Selection, select_fields
from bags.formats.arrays import array_parts
from bags.indexing import Int64s, chunk_length, offsets_of
from bags.validation import at_least_or_none, one_of

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_BATCH_BYTES = 1 << 24
"""Approximate bytes of a record batch."""
MAX_RECORD_BATCH = 1 << 16
"""Maximum number of datapoints in a record batch."""
GROWTH = 8
"""Maximum growth of a batch over the previous batch, whose size determines the length of the next."""


def read_batches(
    dataset: Dataset, fields: Fields, media: Media, batch_size: int | None
) -> pa.RecordBatchReader:
    """Returns an Arrow reader of the record batches of a dataset; see `Dataset.to_arrow`."""
    pa = import_pyarrow()
    if media is not None:
        one_of('media', media, ('bytes', 'location'))
    batch_size = at_least_or_none('batch_size', batch_size, 1)
    selection = select_fields(fields, dataset.schema)
    for name, items in selection.items():
        if isinstance(items, FrameSelection):
            raise TypeError(f'to_arrow: expected fields, or items of sequences, got frames of {name!r}')
    schema = arrow_schema({name: dataset.schema[name] for name in selection}, media, dataset.metadata)
    batches = _batches(dataset, selection, schema, media, batch_size)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _batches(
    dataset: Dataset, selection: Selection, schema: pa.Schema, media: Media, batch_size: int | None
) -> Iterator[pa.RecordBatch]:
    pa = import_pyarrow()
    start, step = 0, batch_size or 1
    while start < len(dataset):
        indices = np.arange(start, min(start + step, len(dataset)))
        columns = [_read_column(dataset, indices, name, items, media) for name, items in selection.items()]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        yield batch
        start += len(indices)
        if batch_size is None:
            step = chunk_length(len(indices), batch.nbytes, RECORD_BATCH_BYTES, MAX_RECORD_BATCH, GROWTH)


def _read_column(dataset: Dataset, indices: Int64s, name: str, items: Asked, media: Media) -> pa.Array:
    """Returns the values of a field as an Arrow array."""
    field_type: FieldType = dataset.schema[name]
    read: Callable[..., Any] = read_records
    dtype_and_shape = shape_of(field_type)
    if stores_location(field_type, media):
        read = _read_locations
    elif dtype_and_shape is not None and -1 not in dtype_and_shape[1]:
        read = read_column
    elif field_type.format in ('array', *INTEGER_FORMATS):
        read = read_values
    column = dataset.read_selection(indices, {name: items}, read)[name]
    try:
        return _as_arrow(column, field_type, media)
    # The exceptions of pyarrow are subclasses of these exceptions.
    except (ValueError, TypeError, OverflowError, NotImplementedError) as exc:
        detail = f'{type(exc).__name__}: {exc}'
        raise ValueError(
            f'{dataset!r}, field {name!r} of type {field_type.text}, '
            f'datapoints {indices[0]} to {indices[-1]}: cannot be Arrow: {detail}'
        ) from exc


def _read_locations(field: FieldReader, refs: Refs, items: Asked) -> list[Any]:
    def locate(indices: Int64s) -> list[dict[str, Any]]:
        rows: list[Any] = [None] * len(indices)
        for run in field.bag.locate(indices):
            is_held = isinstance(field.bag, MemoryRecords)
            if is_held or not run.are_stored:
                what = 'segments' if run.are_segments else 'compressed records'
                what = 'records in memory' if is_held else what
                raise ValueError(
                    f"{run.file.path}: {what} cannot be read by their location: pass media='bytes'"
                )
            positions = range(len(indices)) if run.positions is None else run.positions.tolist()
            bounds = zip(positions, run.starts.tolist(), run.stops.tolist(), strict=True)
            for position, start, stop in bounds:
                rows[position] = {'path': run.file.path, 'offset': start, 'length': stop - start}
        return rows

    return read_with(field, refs, items, locate)


# Conversion.


def _as_arrow(column: Any, field_type: FieldType, media: Media) -> pa.Array:
    """Converts a column from `read_column`, or a list of values or of sequences, to an Arrow array."""
    pa = import_pyarrow()
    values: npt.NDArray[Any] | list[Any]
    if isinstance(column, Ragged):
        values, offsets, present = column.values, column.offsets, column.present
    elif isinstance(column, np.ndarray):
        return _items(column, field_type, media)
    else:
        present = np.fromiter((value is not None for value in column), bool, len(column))
        if not field_type.sequence:
            converted = _items([value for value in column if value is not None], field_type, media)
            positions = pa.array(np.cumsum(present) - 1, mask=~present)
            return converted if present.all() else converted.take(positions)
        offsets = offsets_of(np.array([len(value or ()) for value in column], np.int64))
        values = [item for value in column if value is not None for item in value]
    mask = None if present is None or present.all() else pa.array(~present)
    converted = _items(values, field_type, media)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), converted, mask=mask)


def _items(values: npt.NDArray[Any] | list[Any], field_type: FieldType, media: Media) -> pa.Array:
    """Converts values to an Arrow array. No value may be missing."""
    pa = import_pyarrow()
    dtype_and_shape = shape_of(field_type)
    if isinstance(values, np.ndarray) and dtype_and_shape is None and field_type.format == 'array':
        values = list(values)  # Windows of a video, whose type has no shape.
    if isinstance(values, np.ndarray):
        return _nest(values.reshape(-1), len(values), values.shape[1:], [])
    arrow_type = item_type(field_type, media)
    if stores_location(field_type, media):
        return pa.array(values, arrow_type)
    if dtype_and_shape is None and field_type.format not in ('array', *INTEGER_FORMATS):
        return pa.array(values, pa.binary()).cast(arrow_type)  # Checks UTF-8.
    if values and type(values[0]) in (bytes, memoryview):  # From a reader with `raw=True`.
        values = list(map(bind_decoder(field_type.format, field_type.args), values))
    if dtype_and_shape is not None:
        dtype, shape = dtype_and_shape
        if not shape:
            return _nest(np.array(values, dtype), len(values), shape, [])
        arrays: list[npt.NDArray[Any]] = [np.asarray(value, dtype) for value in values]
        lengths = [array.shape[shape.index(-1)] for array in arrays] if -1 in shape else []
        flat = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0, dtype)
        return _nest(flat, len(arrays), shape, lengths)
    if field_type.format == 'array':
        parts = [dict(zip(('dtype', 'shape', 'data'), array_parts(value), strict=True)) for value in values]
        return pa.array(parts, arrow_type)
    return pa.array(list(map(str, values)) if pa.types.is_string(arrow_type) else values, arrow_type)


def _nest(flat: npt.NDArray[Any], count: int, shape: Sequence[int], lengths: Sequence[int]) -> pa.Array:
    """Converts arrays to nested Arrow lists.

    Args:
        flat: The elements of all arrays, concatenated.
        count: Number of arrays.
        shape: The shape of the arrays; -1 for a varying length.
        lengths: The varying length of each array.
    """
    pa = import_pyarrow()
    nested = _elements(flat)
    for axis in reversed(range(len(shape))):
        outer = [length for length in shape[:axis] if length != -1]
        rows = math.prod(outer) * (sum(lengths) if len(outer) < axis else count)
        if shape[axis] < 1:
            sizes = np.asarray(lengths if shape[axis] else np.zeros(rows), np.int64)
            offsets = offsets_of(np.repeat(sizes, math.prod(outer) if shape[axis] else 1))
            nested = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), nested)
        else:
            list_type = pa.list_(nested.type, shape[axis])
            nested = pa.Array.from_buffers(list_type, rows, [None], children=[nested])
    return nested


def _elements(flat: npt.NDArray[Any]) -> pa.Array:
    pa = import_pyarrow()
    arrow_type = element_type(flat.dtype)
    dtype = np.dtype('f4') if pa.types.is_float32(arrow_type) else flat.dtype.newbyteorder('=')
    flat = np.ascontiguousarray(flat, dtype)
    if dtype.kind == 'c':
        numbers = pa.array(flat.view(f'f{dtype.itemsize // 2}'))
        return pa.Array.from_buffers(arrow_type, len(flat), [None], children=[numbers])
    if pa.types.is_date32(arrow_type):
        days = flat.view(np.int64)
        # The cast checks the range, unlike datetime64.
        return pa.array(days, pa.int32(), mask=np.isnat(flat)).cast(arrow_type)
    if pa.types.is_fixed_size_binary(arrow_type):
        return pa.Array.from_buffers(arrow_type, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])
    if dtype.kind in 'SU':
        return pa.array(flat.tolist(), arrow_type)  # From an array, pyarrow truncates texts at a NUL.
    return pa.array(flat, arrow_type)


# Queries.


class Scan:
    """Scanner of columns and rows of a dataset, read on demand. Query engines call its methods.

    It replaces `pyarrow.dataset.Scanner`, which reads ahead in its own thread. If the process ends while that
    thread waits for Python, the process is aborted.

    Args:
        dataset: The dataset.
        columns: Names of the columns. Default: all.
        filter: A pyarrow expression that selects rows; it may use columns that are not in `columns`.
        media: As in `Dataset.to_arrow`.
    """

    def __init__(self, dataset: Dataset, columns: Sequence[str] | None, filter: Any, media: Media) -> None:
        if not isinstance(columns, list | tuple | None):
            raise TypeError(f'columns: expected a list of names, got {columns!r:.80}')
        names = list(dataset.schema) if columns is None else list(select_fields(columns, dataset.schema))
        # The text of an expression contains the names of all columns that it uses.
        used = [] if filter is None else [name for name in dataset.schema if name in str(filter)]
        self._dataset, self._names, self._filter, self._media = dataset, names, filter, media
        self._read = list(dict.fromkeys([*names, *used])) or list(dataset.schema)[:1]
        field_types = {name: dataset.schema[name] for name in names}
        self.projected_schema = arrow_schema(field_types, media, dataset.metadata)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields record batches."""
        pa = import_pyarrow()
        for batch in read_batches(self._dataset, self._read, self._media, None):
            if self._filter is None:
                yield batch.select(self._names)
                continue
            table = pa.Table.from_batches([batch]).filter(self._filter)
            yield from table.select(self._names).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows as a reader of record batches."""
        schema = self.projected_schema
        batches = (batch.replace_schema_metadata(schema.metadata) for batch in self.to_batches())
        return import_pyarrow().RecordBatchReader.from_batches(schema, batches)

    def to_table(self) -> pa.Table:
        """Returns the rows as a table."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Returns the first rows as a table."""
        pa, batches, count = import_pyarrow(), [], 0
        for batch in self.to_reader():
            batches.append(batch.slice(0, num_rows - count))
            count += len(batches[-1])
            if count >= num_rows:
                break
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Returns the number of rows."""
        if self._filter is None:
            return len(self._dataset)
        return sum(batch.num_rows for batch in self.to_batches())


def arrow_dataset(dataset: Dataset, media: Media) -> Any:
    """Returns a pyarrow dataset; queries read only the fields they use. See `Dataset.to_arrow_dataset`."""
    import_pyarrow()
    from pyarrow import dataset as pyarrow_dataset

    class ArrowDataset(pyarrow_dataset.Dataset):  # type: ignore[misc, unused-ignore]
        """A dataset from which DuckDB and Polars read only the required columns."""

        def __init__(self) -> None:
            pass  # The base class cannot be instantiated.

        @property
        def schema(self) -> pa.Schema:
            return arrow_schema(dataset.schema, media, dataset.metadata)

        def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
            return Scan(dataset, columns, filter, media)

        def __reduce__(self) -> Any:
            return arrow_dataset, (dataset, media)

        def __repr__(self) -> str:
            return f'{dataset!r}.to_arrow_dataset(media={media!r})'

    return ArrowDataset()
