"""`split` and `unique`: views of datapoints selected by hashes of keys and records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bags.bag.checksums import digest_function
from bags.dataset.base import Dataset, Select
from bags.dataset.reading.key_values import KEY_TYPES, read_keys
from bags.dataset.reading.selection import check_name, select_whole
from bags.indexing import Int64s, chunk_length
from bags.validation import integer

COMPARED_CHUNK_BYTES = 1 << 24
"""Approximate bytes of records compared at a time."""
MAX_COMPARED_CHUNK = 1 << 16
HASHES = 1 << 64
Value = bytes | tuple[bytes, ...] | None
"""The record of a value, or the records of a sequence."""


def check_key_types(dataset: Dataset, field: str, what: str) -> None:
    """Raises KeyError or TypeError if a field cannot have keys; errors name the function `what`."""
    check_name(field)
    select_whole(field, dataset.schema, what)
    field_type = dataset.schema[field]
    if field_type.sequence or field_type.format not in KEY_TYPES:
        raise TypeError(f'{what}: field {field!r}: expected utf8, bytes, int or uint, got {field_type.text}')


def split_datapoints(dataset: Dataset, shares: Any, by: str | None, seed: int) -> dict[str, Select]:
    """Returns the views of `Dataset.split`; see there for errors."""
    from xxhash import xxh3_64_intdigest

    if not isinstance(shares, Mapping) or not shares:
        raise TypeError(f'split: expected a mapping of names to shares, got {shares!r:.80}')
    shares_by_name: Mapping[Any, Any] = shares
    for name, share in shares_by_name.items():
        if not isinstance(name, str) or not isinstance(share, int | float) or isinstance(share, bool):
            raise TypeError(f'split: expected a name and a share, got {name!r} and {share!r}')
        if not 0 <= share <= 1:
            raise ValueError(f'split: {name!r}: expected a share from 0 to 1, got {share}')
    if not math.isclose(math.fsum(shares.values()), 1, abs_tol=1e-6):
        raise ValueError(f'split: expected shares that add up to 1, got {math.fsum(shares.values())}')
    seed = integer('seed', seed) % HASHES
    keys: Iterator[bytes | None] = map(b'%d'.__mod__, range(len(dataset)))
    if by is not None:
        check_key_types(dataset, by, 'split')
        keys = itertools.chain.from_iterable(chunk for _, chunk in read_keys(dataset, by))
    hashes = np.empty(len(dataset), np.uint64)
    for index, key in enumerate(keys):
        if key is None:
            raise ValueError(
                f'split: field {by!r} has no value in datapoint {index}: filter such datapoints first'
            )
        hashes[index] = xxh3_64_intdigest(key, seed)
    # The bounds are integers: 2**64, the bound of a share of 1.0, exceeds 64 bits.
    bounds = [min(round(bound * HASHES), HASHES - 1) for bound in itertools.accumulate(shares.values())]
    views = np.searchsorted(np.array(bounds[:-1], np.uint64), hashes, 'right')
    return {name: Select(dataset, np.flatnonzero(views == number)) for number, name in enumerate(shares)}


def unique_datapoints(dataset: Dataset, field: str) -> Select:
    """Returns the view of `Dataset.unique`; see there for errors."""
    check_name(field)
    select_whole(field, dataset.schema, 'unique')
    digest = digest_function()
    rows_of: dict[int, list[int]] = {}
    """The first datapoint of each distinct value, by the hash of the value."""
    unique_rows: list[int] = []
    for rows, values in read_values(dataset, np.arange(len(dataset)), field):
        first_of: dict[Value, int] = {}
        for row, value in zip(rows.tolist(), values, strict=True):
            first_of.setdefault(value, row)
        hashes = {value: digest(_hashed(value)) for value in first_of}
        candidates = {value: list(rows_of.get(hashes[value], ())) for value in first_of}
        while other_of := {value: others.pop() for value, others in candidates.items() if others}:
            others = np.fromiter(other_of.values(), np.int64, len(other_of))
            other_values = itertools.chain.from_iterable(
                chunk for _, chunk in read_values(dataset, others, field)
            )
            for value, other in zip(other_of, other_values, strict=True):
                if value == other:
                    del candidates[value], first_of[value]
        for value, row in first_of.items():
            rows_of.setdefault(hashes[value], []).append(row)
            unique_rows.append(row)
    return Select(dataset, np.array(sorted(unique_rows), np.int64))


def _hashed(value: Any) -> bytes:
    """Returns the bytes to hash for a record, the records of a sequence, or a missing value."""
    if isinstance(value, tuple):
        digest = digest_function()
        return b''.join(digest(record).to_bytes(8, 'little') for record in value)
    return value or b''


def read_values(dataset: Dataset, rows: Int64s, field: str) -> Iterator[tuple[Int64s, list[Value]]]:
    """Yields chunks of rows and their records; tuples for sequences, None for missing values."""
    start, step = 0, 1
    while start < len(rows):
        some = rows[start : start + step]
        records: list[Any] = dataset.read_records(some, field)
        values = [tuple(record) if isinstance(record, list) else record for record in records]
        yield some, values
        start += len(some)
        size = sum(
            sum(map(len, value)) if isinstance(value, tuple) else len(value or b'') for value in values
        )
        step = chunk_length(len(some), size, COMPARED_CHUNK_BYTES, MAX_COMPARED_CHUNK, 8)
