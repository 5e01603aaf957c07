"""What every dataset can be asked: readers and views alike."""

from __future__ import annotations

import abc
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol, SupportsIndex, runtime_checkable

import numpy as np

from bags.dataset.batch import Column
from bags.dataset.record_ranges import RecordRanges
from bags.dataset.selection import Fields, Selection, select_fields
from bags.dataset.spec import Spec
from bags.indexing import Int64s, as_indices, check_index, offsets_of

__all__ = ['Datapoint', 'Dataset', 'Records', 'Rows', 'check_dataset']

Datapoint = dict[str, Any]


@runtime_checkable
class Dataset(Protocol):
    """A sequence of datapoints that can be asked for parts of them.

    Readers and views are datasets: random-access sources for Grain, and map-style datasets for PyTorch.
    All are thread-safe, fork-safe and picklable, and their `repr` tells them apart.
    """

    @property
    def spec(self) -> dict[str, str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Any: ...

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]: ...

    def batch(self, indices: Iterable[SupportsIndex], fields: Fields = None) -> dict[str, Column]: ...

    def lengths(self, field: str) -> Int64s: ...

    def field(self, field: str) -> Sequence[bytes]: ...

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO: ...

    def close(self) -> None: ...


class Rows(abc.ABC):
    """The forms of access, over a few primitives that take checked indices and selections."""

    types: Spec
    """Types by field, taken apart."""
    is_remote = False
    """Whether reads mostly wait, for a storage, so that several are done at the same time."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        """Returns a datapoint, or the selected part of it; any index Python takes."""

    @abc.abstractmethod
    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        """Returns datapoints, read together."""

    @abc.abstractmethod
    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        """Returns columns, in the order of the selection."""

    @abc.abstractmethod
    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        """Returns items of a sequence field in some datapoints (None: in all), reading no payload."""

    @abc.abstractmethod
    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        """Returns records undecoded: of a plain field, or one item of a sequence for each index."""

    def spans(self, indices: Int64s, field: str) -> RecordRanges | None:
        """Returns where the records of a field lie, of some datapoints; None if they are in no bag."""
        return None

    @abc.abstractmethod
    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        """Opens a record as a seekable binary file, read as it is asked.

        Args:
            index: The datapoint.
            field: Its field.
            item: Which item, if the field is a sequence.

        Raises:
            IndexError, KeyError: No such datapoint, item or field.
            TypeError: An item of a plain field, or none of a sequence.
            ValueError: The value is missing.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of the files; what was read stays."""

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return {name: kind.text for name, kind in self.types.items()}

    def __getitem__(self, key: Any) -> Any:
        """Returns datapoints by index.

        - `dataset[3]`: a datapoint, a dict of its fields.
        - `dataset[3, 'image']`, `dataset[3, ('id', 'image')]`, `dataset[3, {'id': True, 'words': range(2)}]`:
          some fields of it, and some items of sequences.
        - `dataset[10:20]`: a view, which reads nothing.
        - `dataset[[5, 1, 5]]`: a batch, as `dataset.batch([5, 1, 5])`; with fields behind it, of those.
        """
        if type(key) is int:
            return self.row(key, None)
        if type(key) is tuple:
            if len(key) != 2:
                raise TypeError(
                    f'expected an index, or an index and fields (several in a tuple), got {len(key)} things'
                )
            key, fields = key
            if not _are_many(key):
                return self.row(check_index(key, len(self)), select_fields(fields, self.types))
            if isinstance(key, slice):
                key = range(len(self))[key]
            return self.batch(key, fields)
        if isinstance(key, slice):
            from bags.dataset.views import select

            return select(self, range(len(self))[key])
        if _are_many(key):
            return self.batch(key)
        if isinstance(key, str):
            raise TypeError(
                f'index: expected an integer, got {key!r} '
                f'(dataset.batch(range(len(dataset)), {key!r}) reads a whole column)'
            )
        return self.row(check_index(key, len(self)), None)

    def __iter__(self) -> Iterator[Datapoint]:
        return map(self.row, range(len(self)), itertools.repeat(None))

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """Returns datapoints as a list, read together (what PyTorch's fetchers call)."""
        return self.rows(as_indices(indices, len(self)), select_fields(None, self.types))

    def _getitems(self, indices: Iterable[SupportsIndex]) -> list[Datapoint]:
        """The same, by the name that Grain calls."""
        return self.__getitems__(indices)

    def batch(self, indices: Iterable[SupportsIndex], fields: Fields = None) -> dict[str, Column]:
        """Returns columns of values.

        Args:
            indices: The datapoints, in any order, with repeats; negative ones count from the end.
            fields: A name, names, or a mapping of names to True, False, or the items (a range, slice or
                list) of a sequence; all fields unless given.

        Returns:
            The columns in the order asked. Of types whose values have one size, a new array (B, *shape);
            of sequences of those, a `Ragged`; else a list. An optional plain field gives a list with None.

        Raises:
            IndexError, KeyError, TypeError: No such datapoint, field or selection.
            CorruptError, DecodeError: What is read cannot be right.
        """
        return self.columns(as_indices(indices, len(self)), select_fields(fields, self.types))

    def lengths(self, field: str) -> Int64s:
        """Returns the number of items in each datapoint of a sequence field, int64 (len,), without payload.

        A missing sequence has none.
        """
        self._expect(field, True)
        return self.lengths_at(None, field)

    def field(self, field: str) -> Records:
        """Returns the records of a plain field as a sequence of bytes, one a datapoint (None: missing)."""
        self._expect(field, False)
        return Records(self, field)

    def items(self, field: str) -> Records:
        """Returns the records of all items of a sequence field as one sequence of bytes."""
        self._expect(field, True)
        return Records(self, field)

    def item_offsets(self, field: str) -> Int64s:
        """Returns which item, counted over all datapoints, is the first of each; kept, for the next time."""
        kept: dict[str, Int64s] = vars(self).setdefault('_item_offsets', {})
        if field not in kept:
            kept[field] = offsets_of(self.lengths(field))
        return kept[field]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != '_item_offsets'}

    def owner(self, field: str, item: SupportsIndex) -> int:
        """Returns the datapoint that an item, counted over all datapoints as in `items`, belongs to."""
        return self.items(field).locate(item)[0]

    def _expect(self, field: str, sequence: bool) -> None:
        select_fields(field, self.types)
        if self.types[field].sequence != sequence:
            what, instead = ('a sequence', 'field()') if sequence else ('a plain', 'items()')
            raise TypeError(
                f'field {field!r} of type {self.types[field].text}: expected {what} field; see {instead}'
            )

    def __str__(self) -> str:
        """What people are shown: how many datapoints, and a line for each field. `repr` is on one line."""
        width = max(map(len, self.types), default=0)
        lines = [f'  {name:<{width}}  {kind.text}' for name, kind in self.types.items()]
        return '\n'.join([f'{self._heading()}:', *lines])

    def _heading(self) -> str:
        count = len(self)
        shards = getattr(self, 'shards', 1)
        return (
            f'{type(self).__name__} of {count:,} datapoint{"" if count == 1 else "s"}'
            f'{f" in {shards:,} shards" if shards != 1 else ""}'
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # What IPython shows.

    def _repr_html_(self) -> str:
        """What notebooks show."""
        from html import escape

        rows = ''.join(
            f'<tr><td style="text-align:left">{escape(name)}</td>'
            f'<td style="text-align:left"><code>{escape(kind.text)}</code></td></tr>'
            for name, kind in self.types.items()
        )
        return f'<p>{escape(self._heading())}</p><table>{rows}</table>'

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _are_many(key: Any) -> bool:
    """Tells whether a key asks for several datapoints. (An array without dimensions is one number.)"""
    return isinstance(key, slice | list | range) or (isinstance(key, np.ndarray) and key.ndim > 0)


class Records(Sequence[Any]):
    """Records of one field over a dataset, read when asked for."""

    def __init__(self, dataset: Rows, field: str) -> None:
        self._dataset = dataset
        self._field = field
        self._offsets = dataset.item_offsets(field) if dataset.types[field].sequence else None

    def __len__(self) -> int:
        return len(self._dataset) if self._offsets is None else int(self._offsets[-1])

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of an item, and the item's place in it."""
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
        if self._offsets is None:
            return self._dataset.records_at(chosen, self._field, None)
        rows = np.searchsorted(self._offsets, chosen, 'right') - 1
        return self._dataset.records_at(rows, self._field, chosen - self._offsets[rows])

    def __iter__(self) -> Iterator[Any]:
        start, step = 0, 1
        while start < len(self):
            records = self.read_indices(range(start, min(start + step, len(self))))
            yield from records
            start += len(records)
            # Together as many as take about a megabyte: a record may be a film.
            size = sum(len(record) for record in records if record is not None)
            step = min(2 * step, 1024) if size < 1 << 20 else max(1, step // 2)

    def __repr__(self) -> str:
        return f'{self._dataset!r}[{self._field!r}]'


def check_dataset(what: str, value: Any) -> None:
    """Raises TypeError for what is no dataset; it says so for `what`."""
    if not isinstance(value, Rows):
        advice = ' (bags.open opens one)' if isinstance(value, str | os.PathLike) else ''
        raise TypeError(f'{what}: expected a dataset, got {value!r:.80}{advice}')
