"""Counts as text: bytes with a unit, other counts with a noun."""

from __future__ import annotations


def byte_count(size: float) -> str:
    """Returns a number of bytes in three digits and a unit: 999 B, 1.2 MB."""
    for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
        if size < 999.5:
            return f'{size:.0f} {unit}' if unit == 'B' or size >= 99.95 else f'{size:.1f} {unit}'
        size /= 1000
    return f'{size:,.0f} PB'


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun: 1 shard, 2 shards."""
    return f'{number:,} {noun}{"" if number == 1 else "s"}'
