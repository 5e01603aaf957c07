"""Base of the sources that `bags.convert` reads, and the naming of fields."""

from __future__ import annotations

import abc
import contextlib
import itertools
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from bags.dataset.format.metadata import Metadata
from bags.dataset.format.spec import MAX_NAME_LENGTH, NAME, is_reserved
from bags.dataset.writing.field_writer import RecordRun
from bags.errors import BagsError, CorruptError, MissingDependencyError, SourceError
from bags.links.link_builder import LinkRun
from bags.links.sources import LinkOpener, OpenedLink
from bags.storage import Store

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    E = TypeVar('E', default=Any)  # So that a plug-in may derive from `Source` without a type.
else:
    from typing import TypeVar

    E = TypeVar('E')

MAX_EXPANDED_BYTES = 1 << 30
"""Maximum bytes of a value that is compressed or sparse in its source."""
MAX_RATIO = 1 << 12
"""Maximum ratio of the bytes of all values to the bytes of their files, above `MAX_EXPANDED_BYTES`."""
MEASURED_DATAPOINTS = 100
"""Number of datapoints, from the first, that are measured to select the linked fields."""
RECORD_ENCODERS = dict.fromkeys(('json', 'msgpack', 'tree'), lambda value, *_args: bytes(value))
"""Encoders for values that are already records. Encoding could change whitespace or the order of keys."""

_SIZED = (bytes, str, OpenedLink)
_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9_.-]+')


class DamagedEntries(NamedTuple):
    """Consecutive datapoints of a source that cannot be read."""

    error: SourceError
    length: int = 1


class RecordBlock(NamedTuple):
    """Consecutive datapoints of plain fields, as runs of records."""

    length: int
    """Number of datapoints."""
    runs: Mapping[str, LinkRun | RecordRun]
    """The records of each field: links, or bytes."""


class Source(abc.ABC, Generic[E]):
    """Data of another format that can become a dataset.

    Each format has a subclass in `bags.interop.sources`, over a library that reads the format. The
    constructor sets the attributes, so that they can be shown and changed before values are read.
    `E` is the type of an entry, the argument of `load` for a datapoint.
    """

    format: str
    """Name of the format."""
    spec: dict[str, str]
    """The type of each field; `convert` drops the fields that are removed here."""
    count: int
    """Number of datapoints."""
    path: str = ''
    """The path or paths that `open_source` was called with."""
    metadata: Metadata
    """Metadata of the dataset: names of classes, rates, units."""
    notes: list[str]
    """Sentences about changes by the import, such as renamed fields and replaced types."""
    damaged: list[tuple[str, str]]
    """Damaged files, which are left out, and the reasons. Without `on_error='skip'`, `open_source` raises an
    error for the first."""
    encode: bool = False
    """Whether `load` may encode media again that cannot be stored as they are."""
    left_out: Collection[str] = ()
    """Fields that the import leaves out in any case. `spec={field: None}` accepts them."""
    opened_from: tuple[list[str], Mapping[str, Any] | None] | None = None
    """The files and folders that `open_source` was called with, and its `storage_options`."""
    stores: Sequence[Store] = ()
    """The stores of these files, whose connections stay open while they are referenced."""
    loads_in_threads: bool = True
    """Whether `load` takes long enough for several threads to pay off."""
    records: Sequence[E] = ()
    """The argument of `load` for each datapoint, if known when the source is opened."""
    encoders: Mapping[str, Callable[..., Any]]
    """Encoders by type that replace the built-in encoders, for values that are already records."""
    linked: Collection[str] = ()
    """The fields for which `load` returns links (`bags.Link`) to records that are ranges of files."""
    opener: LinkOpener
    """Opens the files of these links."""
    from_text: Collection[str] = ()
    """Fields whose values are parsed from text as the type that `spec` has, so that any type may be given.

    Fields without values are among them, but not in `spec`."""
    undecided: dict[str, SourceError]
    """Fields whose values have no type in common, and the error that `open_source` raises without a type.

    Without any field that has values, these are the fields without values."""
    ambiguity: SourceError | None = None
    """The error of `open_source` without a layout, if another one would complete datapoints."""
    is_layout_given: bool = False
    """Whether the user gave the layout."""
    facts: Mapping[str, Any] = {}
    """Options that decide what the datapoints are, as JSON values: a resumed import must have the same."""
    beside: Collection[str] = ()
    """Files that the source reads besides the files and folders that `open_source` was called with."""
    rewrites_files: bool = False
    """Whether linked files are rewritten as the source grows, so that an update creates all links again."""

    def __init__(self, format: str, spec: dict[str, str], count: int) -> None:
        self.format = format
        self.spec = spec
        self.count = count
        self.metadata = {}
        self.notes = []
        self.damaged = []
        self.undecided = {}
        self.encoders = {}

    def entries(self, start: int = 0) -> Iterator[E | DamagedEntries]:
        """Yields the argument of `load` for each datapoint, from the datapoint `start` on, in one thread.

        Yields a `DamagedEntries` for datapoints that cannot be read.
        """
        return iter(self.records[start:])

    def blocks(self, start: int, digests: bool) -> Iterator[RecordBlock] | None:
        """Yields the datapoints from `start` on in blocks, instead of `entries` and `load`; None by default.

        A source of a hundred million small records has these, so that no record is an object of its own.

        Args:
            start: The first datapoint.
            digests: Whether links have checksums.

        Raises:
            SourceError: A file cannot be read.
        """
        return None

    @abc.abstractmethod
    def load(self, entry: E) -> Mapping[str, Any]:
        """Returns a datapoint; several threads call this.

        Raises:
            SourceError: A value is damaged, or not of the type of its field.
        """

    def size(self, entry: E) -> int:
        """Returns the bytes of a datapoint, as far as they are known before `load`."""
        return 0

    def linkable(self) -> dict[str, float | str]:
        """Returns the mean bytes of a record of each field, or why its records cannot be linked."""
        return dict.fromkeys(self.spec, f'{self.format} does not store records that can be linked')

    def measured(self, fields: Collection[str]) -> dict[str, float | str]:
        """Returns the result of `linkable`, given the fields that can be linked, from the first datapoints.

        Raises:
            SourceError: None of these datapoints can be read.
        """
        damaged: list[tuple[str, str]] = []
        sizes: dict[str, list[int]] = {field: [] for field in fields}
        linked = set()
        self.linked = fields
        for entry in itertools.islice(self.entries(), MEASURED_DATAPOINTS):
            with collect_errors(damaged):
                if isinstance(entry, DamagedEntries):
                    raise entry.error
                datapoint = self.load(entry)
                for field in datapoint.keys() & sizes.keys():
                    value = datapoint[field]
                    items = value if isinstance(value, list) else [value]
                    sizes[field] += [
                        len(item) for item in items if isinstance(item, bytes | str | OpenedLink)
                    ]
                    linked |= {field for item in items if isinstance(item, OpenedLink)}
        self.linked = ()
        if damaged and not linked:
            raise SourceError(*damaged[0])
        return {
            field: sum(sizes[field]) / len(sizes[field])
            if field in linked
            else f'no value of type {text} is stored as its record'
            for field, text in self.spec.items()
        }

    def readings(self) -> list[tuple[str, int]]:
        """Returns each layout that fits, with its number of datapoints: first that of the source."""
        return [(str(getattr(self, 'layout', self.format)), self.count)]

    def name(self, entry: E) -> str:
        """Returns the file and the record of an entry, for error messages."""
        return str(entry)


def check_expanded(size: int, what: str) -> None:
    """Raises ValueError if a value has more than `MAX_EXPANDED_BYTES`; `what` names the value."""
    if size > MAX_EXPANDED_BYTES:
        raise ValueError(f'expected at most {MAX_EXPANDED_BYTES} bytes for {what}, got {size}')


def check_claim(claimed: int, stored: int, what: str) -> None:
    """Raises ValueError if a file claims to contain more bytes of values than its size allows.

    Args:
        claimed: Bytes of all values, as the file states.
        stored: Bytes of the file.
        what: The part of the file that states them.
    """
    limit = MAX_EXPANDED_BYTES + MAX_RATIO * stored
    if claimed > limit:
        raise ValueError(f'expected up to {limit} bytes of values in {stored} bytes, got {claimed} in {what}')


def list_some(names: list[str], most: int = 5) -> str:
    """Returns the first `most` names as text, and the number of further names."""
    rest = len(names) - most
    return ', '.join(map(repr, names[:most])) + (f' and {rest:,} more' if rest > 0 else '')


class collect_errors:  # noqa: N801 - used as a function, as `naming`.
    """A context that adds a SourceError to a list of damaged files instead of raising it."""

    def __init__(self, damaged: list[tuple[str, str]]) -> None:
        self._damaged = damaged

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> bool:
        if isinstance(exc, SourceError):
            self._damaged.append((exc.name, exc.detail))
        return isinstance(exc, SourceError)


DAMAGE = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RuntimeError,
    MemoryError, EOFError, struct.error,
)  # fmt: skip
"""Errors that a library or a parser may raise for a damaged source."""


class naming:  # noqa: N801 - used as a function; one made by `contextmanager` takes three times as long.
    """A context that converts `DAMAGE` to a SourceError that names the path, except BagsError and OSError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, DAMAGE) and not isinstance(exc, BagsError | OSError):
            detail = f'does not match its format: {type(exc).__name__}: {exc}'
            raise SourceError(self._path, detail) from exc


@contextlib.contextmanager
def as_source_errors(path: str, format: str) -> Iterator[None]:
    """A context that converts errors of the library that reads a file to a SourceError."""
    try:
        yield
    except (SourceError, FileNotFoundError, MissingDependencyError):
        raise
    except Exception as exc:  # Libraries raise KeyError, RuntimeError, MemoryError and others.
        detail = exc.detail if isinstance(exc, CorruptError) else str(exc) or type(exc).__name__
        raise SourceError(path, f'cannot be read as {format}: {detail}') from exc


def name_fields(names: Iterable[str], notes: list[str]) -> dict[str, str]:
    """Maps names in a source to unique field names of letters, digits and `_.-`.

    A slash becomes a dot, and names that are too long are truncated. A sentence for each renamed field is
    added to the notes.
    """
    fields: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        field = _NOT_IN_NAMES.sub('_', name.strip('/').replace('/', '.')).rstrip('.') or '_'
        if not NAME.fullmatch(field) or is_reserved(field):
            field = f'_{field}'
        field = field[: MAX_NAME_LENGTH - 8].rstrip('.') if len(field) > MAX_NAME_LENGTH else field
        first, number = field, 2
        while field.lower() in taken:
            field, number = f'{first}_{number}', number + 1
        taken.add(field.lower())
        fields[name] = field
        if field != name:
            notes.append(f'field {name!r} is named {field!r}')
    return fields
