"""The interface of a peer, and what its adapters share."""

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.data import Row

Columns = dict[str, Any]
Indices = Sequence[int] | np.ndarray


class Reader(Protocol):
    """An open dataset of some library."""

    def row(self, index: int) -> Row:
        """One datapoint, decoded."""

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        """Columns of some fields of several datapoints."""

    def scan(self, field: str) -> Any:
        """All values of an int field."""

    def close(self) -> None:
        """Closes the files."""


class Peer(Protocol):
    """A library.

    Attributes:
        module: What is imported; the peer is absent where that cannot be found.
        columnar: Whether fields are stored apart, rather than a datapoint as one record.
        rows_per_run: How many rows are read in one timed run, for about ten milliseconds.
    """

    module: str
    columnar: bool
    rows_per_run: int

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        """Writes a dataset, of one shard or of shards of so many datapoints."""

    def open(self, path: Path) -> Reader:
        """Opens what `write` wrote."""


def columns(rows: Iterable[Row], fields: tuple[str, ...]) -> Columns:
    """Datapoints as columns, for libraries that only know rows."""
    found = list(rows)
    return {field: [row[field] for row in found] for field in fields}


def chunks(rows: Iterable[Row], length: int) -> Iterator[list[Row]]:
    """Rows in lists of `length`."""
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == length:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def is_installed(module: str) -> bool:
    """Whether a library is installed and its import works."""
    if importlib.util.find_spec(module) is None:
        return False
    try:
        importlib.import_module(module)
    except Exception as error:
        print(f'skipped: import {module} failed, {type(error).__name__}: {error}')
        return False
    return True
