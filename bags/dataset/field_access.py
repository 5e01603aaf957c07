"""Access to the fields of a dataset as columns, records, files and Arrow data, and by key."""

from __future__ import annotations

import io
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, SupportsIndex

import numpy as np

from bags.dataset.address import Addressable
from bags.dataset.columns import read_column
from bags.dataset.field import Record
from bags.dataset.late_binding import late
from bags.dataset.refs import MISSING
from bags.dataset.selection import Fields, PerRowItems, select_fields, select_items
from bags.dataset.spec import type_texts
from bags.indexing import Int64s, as_indices, check_index

if TYPE_CHECKING:
    import pyarrow as pa

Media = Literal['bytes', 'location'] | None
"""How images, videos and recordings are represented in Arrow."""


class Records(Sequence[Any]):
    """The records of one field over a dataset, read on demand.

    Args:
        dataset: A `bags.Dataset`.
        field: A plain field has one record per datapoint; a sequence field has one per item.
    """

    def __init__(self, dataset: Any, field: str) -> None:
        self._dataset = dataset
        self._field = field
        self._offsets = dataset._item_offsets(field) if dataset.types[field].sequence else None

    def __len__(self) -> int:
        return len(self._dataset) if self._offsets is None else int(self._offsets[-1])

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of an item, and the item's position in its sequence."""
        index = check_index(index, len(self))
        if self._offsets is None:
            return index, 0
        row = int(np.searchsorted(self._offsets, index, 'right')) - 1
        return row, index - int(self._offsets[row])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_indices(range(len(self))[index])
        return self.read_indices([check_index(index, len(self))])[0]

    def read_indices(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Returns records by index, read together."""
        chosen = as_indices(indices, len(self))
        rows, items = chosen, None
        if self._offsets is not None:
            rows = np.searchsorted(self._offsets, chosen, 'right') - 1
            items = chosen - self._offsets[rows]
        records: list[Any] = self._dataset._records(rows, self._field, items)
        return records

    def __iter__(self) -> Iterator[Any]:
        start, step = 0, 1
        while start < len(self):
            records = self.read_indices(range(start, min(start + step, len(self))))
            yield from records
            start += len(records)
            # About a megabyte at a time, as a record may be a whole video.
            size = sum(len(record) for record in records if record is not None)
            step = min(2 * step, 1024) if size < 1 << 20 else max(1, step // 2)

    def __repr__(self) -> str:
        return f'{self._dataset!r}[{self._field!r}]'


class FieldAccess(Addressable):
    """Base class of datasets: methods that access fields."""

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return type_texts(self.types)

    def batch(self, indices: Iterable[SupportsIndex], fields: Fields = None) -> dict[str, Any]:
        """Returns columns of values.

        Args:
            indices: The datapoints, in any order, with repeats; negative ones count from the end.
            fields: A name, names, or a mapping of names to True, False, or the items (a range, slice or
                list) of a sequence; all fields unless given.

        Returns:
            The columns in the order of `fields`. A type whose values have one size gives a new array
            (B, *shape), a sequence of it a `Ragged`, any other a list. Optional plain fields give a list.

        Raises:
            IndexError, KeyError, TypeError: No such datapoint, field or selection.
            CorruptError, DecodeError: Damaged data.
        """
        return self.read_selection(
            as_indices(indices, len(self)), select_fields(fields, self.types), read_column
        )

    def column(self, field: str) -> Any:
        """Returns the values of a field of all datapoints, as `batch` returns them."""
        self._expect_name(field)
        return self.batch(range(len(self)), field)[field]

    def lengths(self, field: str) -> Int64s:
        """Returns the number of items of a sequence field in each datapoint, int64 (len,), from the refs.

        It is 0 for a missing sequence.
        """
        self._expect(field, is_sequence=True)
        return self.item_counts(np.arange(len(self)), field)

    def field(self, field: str) -> Records:
        """Returns the records of a plain field as a sequence of bytes, one per datapoint (None: missing)."""
        self._expect(field, is_sequence=False)
        return Records(self, field)

    def items(self, field: str) -> Records:
        """Returns the records of all items of a sequence field as one sequence of bytes."""
        self._expect(field, is_sequence=True)
        return Records(self, field)

    def owner(self, field: str, item: SupportsIndex) -> int:
        """Returns the datapoint that contains an item. `item` is an index in `items(field)`."""
        return self.items(field).locate(item)[0]

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        """Opens a record as a seekable binary file, read on demand.

        Args:
            index: The datapoint.
            field: The field.
            item: The item, if the field is a sequence.

        Raises:
            IndexError, KeyError: No such datapoint, item or field.
            TypeError: `item` is given for a plain field, or missing for a sequence.
            ValueError: The value is missing.
        """
        select_fields(field, self.types)
        kind, number = self.types[field], check_index(index, len(self))
        if kind.sequence != (item is not None):
            what = 'an item, as it is a sequence' if kind.sequence else 'no item, as it is not a sequence'
            raise TypeError(f'field {field!r} of type {kind.text}: expected {what}')
        record = self._record(number, field, None if item is None else operator.index(item))
        if record is not None:
            return record.open()
        frames: Any = self._records(np.array([number]), field, None)[0]
        return io.BytesIO(frames)

    def _record(self, index: int, field: str, item: int | None) -> Record | None:
        """Returns the record of a field, or of an item of a sequence; None for frames of windows."""
        (address,) = self.resolve(np.array([index], np.int64), {field: True})
        items = address.selection[field]
        ranges = address.reader._ranges_of(address.rows, field, items)
        if ranges is None:
            if isinstance(items, PerRowItems) and items.are_frames:
                return None
            raise TypeError(f'field {field!r} is made of windows: it has values, but no records')
        first, count = int(ranges.firsts[0]), int(ranges.counts[0])
        if first == MISSING and not count:
            raise ValueError(f'datapoint {index}: field {field!r} has no value')
        if item is not None:
            first += select_items([item], count)[0]
        return Record(ranges.sources[0].bag, first, field, self.types[field].text)

    # Arrow.

    def to_arrow(
        self, fields: Fields = None, *, media: Media = None, batch_size: int | None = None
    ) -> pa.RecordBatchReader:
        """Returns an Arrow reader of record batches, each read on demand.

        `pa.table(dataset)`, `polars.DataFrame(dataset)` and DuckDB's `from dataset` read all fields. Pass
        `dataset.to_arrow(fields)` instead of the dataset to read only those fields.

        Numbers, bools, texts and times have Arrow's types; float16 becomes float32. Arrays are nested lists
        of a fixed size, or of any size for `?` in a shape, and sequences are lists. `array` without
        a dtype is a struct of dtype, shape and data, and `json` its text. Images, `bytes` and all other types
        are their records. Missing values are null. The dataset's decoders apply to numbers, bools, arrays.

        Args:
            fields: As in `batch`, without frames of videos.
            media: How images, videos and recordings are represented: 'bytes', or 'location', a struct of
                path, offset and length in bytes. By default, `video` and `audio`, which are lazy, are
                locations, and all others bytes.
            batch_size: Datapoints in a batch. By default about 16 MiB, and at most 65,536 datapoints.

        Raises:
            KeyError, TypeError: As `batch`.
            MissingDependencyError: pyarrow is not installed.
            ValueError: When a batch is read: locations in a compressed bag, or a value that Arrow does not
                support.
            CorruptError: When a batch is read: damaged data.
        """
        reader: pa.RecordBatchReader = late('read_batches')(self, fields, media, batch_size)
        return reader

    def to_arrow_dataset(self, *, media: Media = None) -> Any:
        """Returns a `pyarrow.dataset.Dataset`. Queries read only the fields that they use.

        With `table = dataset.to_arrow_dataset()`, DuckDB's `select max(score) from table` and
        `polars.scan_pyarrow_dataset(table)` read the field `score` alone.

        Args:
            media: As in `to_arrow`.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        return late('arrow_dataset')(self, media)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns an Arrow stream of all fields as a PyCapsule, Arrow's protocol between libraries."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def find(self, field: str, key: str | bytes | int) -> int:
        """Returns the index of the first datapoint that has a key, without reading the other datapoints.

        It needs the key index that `bags.create_index` writes, and opens it on first use. Slices, `select`,
        `concat` and `join` search the underlying datasets, and return the index in the view.

        Args:
            field: A field of type `utf8`, `bytes`, `int` or `uint`.
            key: A value of this type.

        Raises:
            KeyError: No datapoint has the key, or no such field.
            TypeError: The key is not of the field's type, the field is of a type without keys, or this is a
                view of windows, several of which share a key.
            FileNotFoundError: There is no index.
            CorruptError: The index is damaged, or the dataset has changed since it was made.
        """
        return int(late('find_keys')(self, field, [key])[0])

    def find_many(self, field: str, keys: Iterable[str] | Iterable[bytes] | Iterable[int]) -> Int64s:
        """Returns the index of the first datapoint that has each key, int64 (n,). Looks up all keys together.

        Raises:
            KeyError: No datapoint has one of the keys; names the first such key.
            TypeError, FileNotFoundError, CorruptError: As `find`; also TypeError for a single key.
        """
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f'find_many: expected several keys, got {keys!r:.80}')
        found: Int64s = late('find_keys')(self, field, keys)
        return found

    def _expect_name(self, field: Any) -> None:
        if not isinstance(field, str):
            raise TypeError(f'field: expected the name of a field, got {field!r:.80}')

    def _expect(self, field: str, *, is_sequence: bool) -> None:
        self._expect_name(field)
        select_fields(field, self.types)
        if self.types[field].sequence != is_sequence:
            what, instead = ('a sequence', 'field()') if is_sequence else ('a plain', 'items()')
            raise TypeError(
                f'field {field!r} of type {self.types[field].text}: expected {what} field; see {instead}'
            )
