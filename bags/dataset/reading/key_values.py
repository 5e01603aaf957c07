"""Keys: converts values to bytes that are equal for equal values, and reads the keys of a dataset."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from bags.bag.options import LimitsPlacement
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.refs import Refs
from bags.dataset.format.registry import INTEGER_FORMATS
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.row_reader import SizedRowReader
from bags.dataset.reading.selection import Asked
from bags.indexing import Int64s, chunk_length

INTEGER_CLASSES = (int, np.integer)
KEY_TYPES = {
    'bytes': (bytes, bytearray, memoryview),
    'utf8': (str,),
    **dict.fromkeys(INTEGER_FORMATS, INTEGER_CLASSES),
}
KEY_CHUNK_BYTES = 1 << 22
"""Bytes of keys that are read at a time."""
MAX_KEY_CHUNK = 1 << 15  # Maximum number of keys that are read at a time.

Matches = tuple[Int64s, Int64s]
"""Positions in a list of keys, and datapoints with these keys, both (n,); sorted by position, datapoint."""


def sort_matches(positions: Int64s, rows: Int64s) -> Matches:
    """Returns matches in sorted order."""
    order = np.lexsort((rows, positions))
    return positions[order], rows[order]


def as_key(value: Any) -> bytes:
    """Returns the bytes of a value: its UTF-8, or the decimal text of an integer."""
    if isinstance(value, str):
        return value.encode()
    return b'%d' % operator.index(value) if isinstance(value, INTEGER_CLASSES) else bytes(value)


def _read_built_in(field: FieldReader, refs: Refs, items: Asked) -> list[Any]:
    """Reads values as `read_values`, but with the built-in decoders."""
    options = field.bag.options
    is_legacy = options is not None and options.limits_placement is LimitsPlacement.STARTS
    decoder = Decoders(None).get(field.name, field.type, is_legacy, field.bag.path)
    return read_values(FieldReader(field.name, field.type, field.position, field.bag, decoder), refs, items)


def read_keys(
    dataset: SizedRowReader, field: str, rows: Int64s | None = None, step: int = 256
) -> Iterator[tuple[Int64s, list[bytes | None]]]:
    """Yields chunks of `rows` (default: all) and their keys, None if missing. The first has `step` rows."""
    rows, start = np.arange(len(dataset)) if rows is None else rows, 0
    while start < len(rows):
        chunk = rows[start : start + step]
        values: Any = dataset.read_selection(chunk, {field: True}, _read_built_in)[field]
        keys = [None if value is None else as_key(value) for value in values]
        yield chunk, keys
        start += len(chunk)
        size = sum(len(key) for key in keys if key is not None)
        step = chunk_length(len(chunk), size, KEY_CHUNK_BYTES, MAX_KEY_CHUNK, 4)
