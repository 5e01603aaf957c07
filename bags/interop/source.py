"""The base of everything that `bags.convert` reads: what it asks of a source, and names of fields."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.metadata import Metadata
from bags.dataset.spec import NAME, is_reserved
from bags.errors import CorruptError, MissingDependencyError, SourceError

__all__ = [
    'RECORD_ENCODERS',
    'Collecting',
    'Damaged',
    'Source',
    'list_paths',
    'name_fields',
    'reading',
    'type_of_numbers',
]

RECORD_ENCODERS = dict.fromkeys(('json', 'msgpack', 'tree'), lambda value, *_args: bytes(value))
"""Encoders of values that are records already: encoding again would change spaces or the order of keys."""

_NOT_IN_NAMES = re.compile(r'[^A-Za-z0-9_.-]+')


class Damaged(NamedTuple):
    """Datapoints in a row of a source that cannot be read."""

    error: SourceError
    length: int = 1


class Source(abc.ABC):
    """Data of another format that can become a dataset.

    A subclass sets the attributes when it is made, so that they can be shown and changed before a value is
    read. Each format has one, in `bags.interop.sources`, over a library that reads the format.
    """

    format: str
    """Name of the format."""
    spec: dict[str, str]
    """The type of each field; `convert` drops the fields that are removed here."""
    count: int
    """Datapoints."""
    metadata: Metadata
    """Metadata of the dataset: names of classes, rates, units."""
    notes: list[str]
    """What the import changes, a sentence each: fields that are renamed, types that are replaced."""
    damaged: list[tuple[str, str]]
    """Files that are left out because they are damaged, and why; `open_source` raises for the first unless it
    is to skip them."""
    loads_in_threads: bool = True
    """Whether `load` takes long, so that several threads are worth their start."""
    records: Sequence[Any] = ()
    """What `load` needs for each datapoint, if it is known beforehand."""
    encoders: Mapping[str, Callable[..., Any]]
    """Encoders by type in place of those of bags, for values that are records already."""

    def __init__(self, format: str, spec: dict[str, str], count: int) -> None:
        self.format = format
        self.spec = spec
        self.count = count
        self.metadata = {}
        self.notes = []
        self.damaged = []
        self.encoders = {}

    def entries(self, start: int = 0) -> Iterator[Any]:
        """Yields what `load` needs for each datapoint, from the datapoint `start` on, in one thread.

        In place of datapoints that cannot be read, it yields a `Damaged`.
        """
        return iter(self.records[start:])

    @abc.abstractmethod
    def load(self, entry: Any) -> Mapping[str, Any]:
        """Returns a datapoint; several threads call this.

        Raises:
            SourceError: A value that is damaged, or not of the type of its field.
        """

    def name(self, entry: Any) -> str:
        """Returns the file and the record of an entry, for errors."""
        return str(entry)


def list_paths(paths: Iterable[str], storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Returns paths and URLs, globs of them replaced by what they match, in sorted order."""
    import fsspec

    files: list[str] = []
    for each in paths:
        fs, path = fsspec.core.url_to_fs(each, **(storage_options or {}))
        is_glob = any(letter in path for letter in '*?[') and not fs.exists(path)
        found = sorted(fs.glob(path)) if is_glob else [path]
        files += found if 'file' in fs.protocol else map(fs.unstrip_protocol, found)
    return files


class Collecting:
    """A block whose SourceError is added to a list of damaged files; what follows the block is done."""

    def __init__(self, damaged: list[tuple[str, str]]) -> None:
        self._damaged = damaged

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> bool:
        if isinstance(exc, SourceError):
            self._damaged.append((exc.name, exc.detail))
        return isinstance(exc, SourceError)


@contextmanager
def reading(path: str, format: str) -> Iterator[None]:
    """Converts the errors of a library that reads a file to a SourceError."""
    try:
        yield
    except (SourceError, FileNotFoundError, MissingDependencyError):
        raise
    except Exception as exc:  # Of a damaged file, libraries raise also KeyError, RuntimeError, MemoryError, …
        detail = exc.detail if isinstance(exc, CorruptError) else str(exc) or type(exc).__name__
        raise SourceError(path, f'cannot be read as {format}: {detail}') from exc


def type_of_numbers(dtype: np.dtype[Any], shape: Sequence[int] = ()) -> str:
    """Returns the type of a field of numbers, or of arrays with a shape; -1 is a length that varies."""
    word = {'b': 'bool', 'i': 'int', 'u': 'uint', 'f': 'float'}.get(dtype.kind)
    if word and not shape and dtype.itemsize <= 8:
        return word if word == 'bool' else f'{word}({dtype.itemsize})'
    return f'array({",".join((dtype.name, *map(str, shape)))})'.replace('-1', '?')


def name_fields(names: Iterable[str], notes: list[str]) -> dict[str, str]:
    """Returns the names of fields by the names in a source: letters, digits and `_.-`, each once.

    A slash becomes a dot. The notes get a sentence for each that is renamed.
    """
    fields: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        field = _NOT_IN_NAMES.sub('_', name.strip('/').replace('/', '.')).rstrip('.') or '_'
        if not NAME.fullmatch(field) or is_reserved(field):
            field = f'_{field}'
        first, number = field, 2
        while field.lower() in taken:
            field, number = f'{first}_{number}', number + 1
        taken.add(field.lower())
        fields[name] = field
        if field != name:
            notes.append(f'field {name!r} is named {field!r}')
    return fields
