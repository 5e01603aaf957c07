"""Trained zstd dictionaries: what small records have in common, kept once beside them.

A dictionary is in the format of zstd, so that `zstd -D` takes it too: `37 A4 30 EC`, an id, tables, content.
The id is a checksum of all that follows it, so that a damaged dictionary is told from a damaged frame. Each
frame that was made with the dictionary carries the id.

Frames made without it can lie between those: they are read with or without it alike. Only the three offsets
that a dictionary begins with could make a difference, and the trainer of zstd leaves them as they are in
frames without one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import zstandard

from bags.errors import CorruptError

__all__ = ['ENOUGH', 'FEWEST', 'check_dictionary', 'train_dictionary']

MAGIC = b'\x37\xa4\x30\xec'
SIZE = 1 << 15  # Larger ones make JSON of 200 B no smaller: 73 B with 4 KiB, 68 with 32 KiB, 68 with 110 KiB.
SAMPLE = 1 << 14  # Bytes of a record that are looked at.
ENOUGH = 1 << 20
"""Bytes of records that more of them make no better dictionary than."""
FEWEST = 64
"""Records that a dictionary is trained on at least."""
LEAST = 1 << 12  # Bytes of them.


def train_dictionary(records: Sequence[bytes]) -> bytes | None:
    """Returns a dictionary for records like these; None if they are too few, or have nothing in common."""
    samples: list[bytes | bytearray | memoryview] = [record[:SAMPLE] for record in records if record]
    total = sum(map(len, samples))
    if len(samples) < FEWEST or total < LEAST:
        return None
    try:
        # 20 ms for 200 KB, 90 ms for a megabyte.
        data = zstandard.train_dictionary(min(SIZE, max(1 << 10, total // 16)), samples).as_bytes()
    except zstandard.ZstdError:
        return None
    return MAGIC + _mark(data[8:]) + data[8:]


def _mark(content: bytes) -> bytes:
    # From 32,768 to 65,535: two bytes in a frame, and none of the ids that the format reserves.
    return (0x8000 | zlib.crc32(content) & 0x7FFF).to_bytes(4, 'little')


def check_dictionary(data: bytes, path: str) -> bytes:
    """Returns a dictionary.

    Raises:
        CorruptError: It is none, or not as it was when it was trained.
    """
    if data[:4] != MAGIC:
        raise CorruptError(path, None, f'expected a zstd dictionary, got {data[:4]!r} ({len(data)} bytes)')
    if data[4:8] != _mark(data[8:]):
        raise CorruptError(path, None, 'the zstd dictionary is damaged: its id is not that of its content')
    return data
