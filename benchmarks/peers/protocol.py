"""The interface of a peer, and what the peers share."""

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
        """Returns one datapoint, decoded."""

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        """Returns columns of some fields of several datapoints."""

    def scan(self, field: str) -> Any:
        """Returns all values of an int field."""

    def close(self) -> None:
        """Closes the files."""


class Peer(Protocol):
    """A library.

    Attributes:
        module: The module to import; the peer is left out if it is not installed.
        columnar: Whether fields are stored separately, rather than a datapoint as one record.
        rows_per_run: Number of rows read in one timed run, which takes about ten milliseconds.
    """

    module: str
    columnar: bool
    rows_per_run: int

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        """Writes a dataset, of one shard or of shards of `shard_length` datapoints."""

    def open(self, path: Path) -> Reader:
        """Opens what `write` wrote."""


def columns(rows: Iterable[Row], fields: tuple[str, ...]) -> Columns:
    """Makes columns of datapoints, for libraries that only read rows."""
    found = list(rows)
    return {field: [row[field] for row in found] for field in fields}


def chunks(rows: Iterable[Row], length: int) -> Iterator[list[Row]]:
    """Splits rows into lists of `length`."""
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == length:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def is_installed(module: str) -> bool:
    """Returns whether a library is installed and can be imported."""
    if importlib.util.find_spec(module) is None:
        return False
    try:
        importlib.import_module(module)
    except Exception as error:
        print(f'skipped: import {module} failed, {type(error).__name__}: {error}')
        return False
    return True
