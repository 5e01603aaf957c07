"""`split` and `unique`: views of datapoints selected by hashes of keys and records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bags.bag.checksums import digest_function
from bags.dataset.base import Dataset, Select
from bags.dataset.reading.key_values import KEY_TYPES, as_key, read_keys
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


def split_datapoints(dataset: Dataset, parts: Any, by: str | None, seed: int) -> dict[str, Select]:
    """Returns the views of `Dataset.split`; see there for errors."""
    if not isinstance(parts, Mapping) or not parts:
        raise TypeError(f'split: expected a mapping of names to shares, got {parts!r:.80}')
    for name in parts:
        if not isinstance(name, str):
            raise TypeError(f'split: expected the name of a part, got {name!r:.80}')
    if by is not None:
        check_key_types(dataset, by, 'split')
    if all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts.values()):
        return _split_by_hash(dataset, parts, by, integer('seed', seed) % HASHES)
    return _split_by_value(dataset, parts, by)


def _split_by_hash(
    dataset: Dataset, shares: Mapping[str, float], by: str | None, seed: int
) -> dict[str, Select]:
    from xxhash import xxh3_64_intdigest

    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f'split: {name!r}: expected a share from 0 to 1, got {share}')
    if not math.isclose(math.fsum(shares.values()), 1, abs_tol=1e-6):
        raise ValueError(f'split: expected shares that add up to 1, got {math.fsum(shares.values())}')
    keys: Iterator[bytes] = map(b'%d'.__mod__, range(len(dataset)))
    if by is not None:
        keys = _keys_of(dataset, by)
    hashes = np.empty(len(dataset), np.uint64)
    for index, key in enumerate(keys):
        hashes[index] = xxh3_64_intdigest(key, seed)
    # The bounds are integers: 2**64, the bound of a share of 1.0, exceeds 64 bits.
    bounds = [min(round(bound * HASHES), HASHES - 1) for bound in itertools.accumulate(shares.values())]
    numbers = np.searchsorted(np.array(bounds[:-1], np.uint64), hashes, 'right')
    views = {name: Select(dataset, np.flatnonzero(numbers == number)) for number, name in enumerate(shares)}
    for name, view in views.items():
        if shares[name] > 0 and not len(view) and len(dataset):
            keys_of = f'{len(np.unique(hashes)):,} different values of field {by!r}'
            what = f'{len(dataset):,} datapoints' if by is None else keys_of
            how = 'pass another seed' if by is None else f'name the values: {{{name!r}: [VALUE, …], …: ...}}'
            needed = sum(share > 0 for share in shares.values())
            if len(np.unique(hashes)) < needed:
                how = f'{needed} parts with a share above 0 need at least {needed}'
            raise ValueError(
                f'split: {name!r}: expected datapoints for a share of {shares[name]:g}, got none of {what}: '
                f'{how}'
            )
    return views


def _split_by_value(dataset: Dataset, parts: Mapping[str, Any], by: str | None) -> dict[str, Select]:
    if by is None:
        raise TypeError(f'split: expected shares, or by= with values of a field, got {parts!r:.200}')
    types = KEY_TYPES[dataset.schema[by].format]
    part_of: dict[bytes, str] = {}
    rest: str | None = None
    for name, values in parts.items():
        if values is ...:
            if rest is not None:
                raise ValueError(f'split: expected ... for one part, got it for {rest!r} and {name!r}')
            rest = name
            continue
        if isinstance(values, str | bytes | int | float) or not isinstance(values, Iterable):
            raise TypeError(
                f'split: {name!r}: expected values of field {by!r}, or ... for the rest, got {values!r:.80}; '
                'shares and values cannot be mixed'
            )
        for value in values:
            if not isinstance(value, types) or isinstance(value, bool):
                text = dataset.schema[by].text
                raise TypeError(f'split: {name!r}: expected values of type {text}, got {value!r:.80}')
            if part_of.setdefault(as_key(value), name) != name:
                raise ValueError(
                    f'split: {value!r:.80} is in two parts: {part_of[as_key(value)]!r}, {name!r}'
                )
    rows: dict[str, list[int]] = {name: [] for name in parts}
    missing = dict(part_of)
    for row, key in enumerate(_keys_of(dataset, by)):
        missing.pop(key, None)
        part = part_of.get(key, rest)
        if part is not None:
            rows[part].append(row)
    if missing:
        key, name = next(iter(missing.items()))
        others = f' and {len(missing) - 1:,} others' if len(missing) > 1 else ''
        value = key.decode(errors='replace')
        raise ValueError(f'split: {name!r}: expected values of field {by!r}, got {value!r:.80}{others}')
    if rest is not None and not rows[rest] and len(dataset):
        raise ValueError(f'split: {rest!r}: expected other values of field {by!r}, got none')
    return {name: Select(dataset, np.array(found, np.int64)) for name, found in rows.items()}


def _keys_of(dataset: Dataset, by: str) -> Iterator[bytes]:
    """Yields the key of each datapoint; raises ValueError for a datapoint without one."""
    keys = itertools.chain.from_iterable(chunk for _, chunk in read_keys(dataset, by))
    for index, key in enumerate(keys):
        if key is None:
            raise ValueError(
                f'split: field {by!r} has no value in datapoint {index}: filter such datapoints first'
            )
        yield key


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
