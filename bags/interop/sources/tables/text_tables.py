"""Tables of text, as CSV and JSONL: types are inferred, and values are read as the types of their fields."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bags.arrow.types import import_pyarrow, is_list
from bags.dataset.format.spec import FieldType
from bags.interop.sources.tables.text_values import MAX_EXACT
from bags.storage.base import A_LFS_POINTER, LFS_POINTER

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BATCH = 1024
"""Maximum number of rows that are converted at a time."""
MAX_BYTES = 1 << 31
"""Maximum size of a file, because it is parsed as a whole."""


class TextColumn(NamedTuple):
    """A column to read."""

    name: str
    arrow_type: pa.DataType
    """The type that was inferred from all files."""
    field_type: FieldType
    as_arrow: bool
    """Whether Arrow's parser reads the values of the field as they are."""


@dataclasses.dataclass
class Inference:
    """What was inferred from the rows of one or several files."""

    types: dict[str, pa.DataType]
    """The Arrow type of each column."""
    count: int
    """Number of rows."""
    nulls: set[str]
    """Columns that have nulls, or that some rows lack."""
    formats: dict[str, str] = dataclasses.field(default_factory=dict)
    """Columns whose values an Arrow type would change, and the format that holds them: utf8 or json."""
    negative: set[str] = dataclasses.field(default_factory=set)
    """Columns with integers below 0."""
    inexact: set[str] = dataclasses.field(default_factory=set)
    """Columns with integers that a float does not hold."""
    mixed: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Columns whose values have no type in common: the file, and how they differ."""
    notes: list[str] = dataclasses.field(default_factory=list)

    def add_range(self, name: str, integers: pa.ChunkedArray) -> None:
        """Notes the range of a column of integers."""
        import pyarrow.compute as pc

        lowest, highest = (value or 0 for value in pc.min_max(integers).as_py().values())
        self.negative |= {name} if lowest < 0 else set()
        self.inexact |= {name} if max(-lowest, highest) > MAX_EXACT else set()

    def add(self, path: str, other: Inference, *, as_text: bool) -> None:
        """Adds the columns of another file; `as_text` reads values of different types as text."""
        types = import_pyarrow().types
        self.nulls |= other.nulls
        self.nulls |= other.types.keys() - self.types.keys() if self.count else set()
        self.nulls |= self.types.keys() - other.types.keys() if other.count else set()
        self.count += other.count
        self.negative |= other.negative
        self.inexact |= other.inexact
        self.mixed = {**other.mixed, **self.mixed}
        for name, format in other.formats.items():
            self.formats[name] = 'json' if self.formats.get(name) == 'json' else format
        for name, type in other.types.items():
            known = self.types.setdefault(name, type)
            if name in self.mixed or known == type:
                continue
            if name in self.formats:
                if any(is_list(each) or types.is_struct(each) for each in (known, type)):
                    self.formats[name] = 'json'
                continue
            united = self._unite(name, known, type)
            if united is not None:
                self.types[name] = united
                continue
            self.types[name] = import_pyarrow().string()
            difference = f'expected {short(known)}, as in the files before, got {short(type)}'
            if as_text:
                self.formats[name] = 'utf8'
                self.notes.append(f'{path}: column {name!r} is text: {difference}')
            else:
                self.mixed[name] = path, difference

    def _unite(self, name: str, a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
        """Returns a type that holds the values of two types without loss; None if there is none."""
        pa = import_pyarrow()
        types = pa.types
        if a == b or types.is_null(b):
            return a
        if types.is_null(a):
            return b
        if types.is_integer(a) and types.is_integer(b):
            return None if name in self.negative else pa.uint64()
        if all(types.is_integer(each) or types.is_floating(each) for each in (a, b)):
            return None if name in self.inexact else pa.float64()
        if is_list(a) and is_list(b):
            item = self._unite(name, a.value_type, b.value_type)
            return None if item is None else pa.list_(item)
        if types.is_struct(a) and types.is_struct(b):
            return a  # Values of structs are not read by Arrow.
        if types.is_timestamp(a) and types.is_timestamp(b):
            return pa.timestamp('ns', a.tz) if a.tz == b.tz else None
        for one, other in ((a, b), (b, a)):
            if types.is_timestamp(one) and types.is_date(other) and one.tz is None:
                return one
            if types.is_timestamp(one) and types.is_string(other):
                return other
        return None


def short(type: pa.DataType) -> str:
    """Returns the name of an Arrow type, for messages."""
    text = str(type).replace('<element: ', '<item: ')
    return text if len(text) <= 200 else f'{text[:200]}…'


class TextTable(abc.ABC):
    """A file of rows as text, in memory.

    Args:
        path: The file.
        data: The content of the file.

    Raises:
        ValueError: The file is not UTF-8, or too large.
    """

    format: str

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        self.notes: list[str] = []
        if len(data) >= MAX_BYTES:
            raise ValueError(f'expected less than {MAX_BYTES:,} bytes, got {len(data):,}: split it')
        if data.startswith(LFS_POINTER):
            raise ValueError(f'expected a table, got {A_LFS_POINTER}')
        try:
            data.decode('utf-8')
        except UnicodeDecodeError as exc:
            line = data.count(b'\n', 0, exc.start) + 1
            raise ValueError(f'line {line}: expected UTF-8, got the byte {data[exc.start]:#04x}') from None

    @abc.abstractmethod
    def infer(self) -> Inference:
        """Infers the types from all rows.

        Raises:
            ValueError: A row cannot be parsed; names the line.
        """

    @abc.abstractmethod
    def read(self, columns: list[TextColumn]) -> Iterator[tuple[Any, ...]]:
        """Yields the values of each row; a value that does not fit its type is replaced by an error."""

    @abc.abstractmethod
    def lines(self) -> list[int]:
        """Returns the first line of each row, counted from 1, up to damage of the text."""

    def note_text(self, name: str, line: int, text: str, why: str, type: str = 'text') -> None:
        """Adds a sentence about a column that is text or json because of the value in a line."""
        self.notes.append(f'{self.path}: column {name!r} is {type}: line {line} has {text!r:.80}, {why}')
