"""A hash that identifies a dataset by a few of its records, independent of its location."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bags.concurrency import map_concurrently

__all__ = ['fingerprint', 'sample']

DATAPOINTS = 8
HEAD_BYTES = 256
MIN_RECORDS_FOR_THREADS = 64
THREADS = 16


def sample(length: int) -> list[int]:
    """Returns the indices of the datapoints that a fingerprint is computed from."""
    return sorted({step * (length - 1) // (DATAPOINTS - 1) for step in range(DATAPOINTS)}) if length else []


def fingerprint(dataset: Any, fields: Sequence[str] | None = None) -> str:
    """Returns a hash of the spec, the length, and the first bytes of a few records of a dataset.

    With `fields`, only these fields are used.

    Copies of a dataset have the same hash, even if their shards differ. Datasets that differ only in records
    that are not sampled also have the same hash.
    """
    digest = hashlib.blake2b(digest_size=12)
    length = len(dataset)
    if getattr(dataset, '_types', None) is None:
        digest.update(repr((type(dataset).__name__, length)).encode())
        return digest.hexdigest()
    spec = dataset.spec if fields is None else {name: dataset.spec[name] for name in fields}
    digest.update(repr((spec, length)).encode())
    records = [(index, name) for name in spec for index in sample(length)]
    is_slow = len(records) > MIN_RECORDS_FOR_THREADS or getattr(dataset, 'is_remote', False)
    for head in map_concurrently(
        lambda record: _head(dataset, *record), records, max_threads=THREADS if is_slow else 1
    ):
        digest.update(head)
    return digest.hexdigest()


def _head(dataset: Any, index: int, field: str) -> bytes:
    """Returns size and first bytes of a record; for a sequence, its length, then those of its first item."""
    head = b''
    # A record that is missing or cannot be read adds nothing.
    with contextlib.suppress(Exception):
        item = None
        if dataset._types[field].sequence:
            count = int(dataset._lengths(np.array([index]), field)[0])
            head = b'%d:' % count
            if not count:
                return head
            item = 0
        with contextlib.closing(dataset.file(index, field, item)) as file:
            size = file.seek(0, 2)
            file.seek(0)
            head += b'%d:' % size + bytes(file.read(min(HEAD_BYTES, size)))
    return head
