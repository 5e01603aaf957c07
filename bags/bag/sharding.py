"""Shards: expands file specs, and maps indices of a sequence to shards. No I/O.

The indices 0 to 16 in four *concatenated* shards of 8, 4, 0 and 5 records:

    00000-of-00004 |  0  1  2  3  4  5  6  7
    00001-of-00004 |  8  9 10 11
    00002-of-00004 |
    00003-of-00004 | 12 13 14 15 16

and in three *interleaved* shards of 6, 6 and 5 records:

    00000-of-00003 |  0  3  6  9 12 15
    00001-of-00003 |  1  4  7 10 13 16
    00002-of-00003 |  2  5  8 11 14
"""

from __future__ import annotations

import fnmatch
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bags.indexing import Int64s

SPECIAL = re.compile(r'[@*?[]')
SHARDED = re.compile(r'(?P<stem>.*)@(?P<count>[0-9]+|\*)(?P<suffix>\.[^@/]*)?')


def shard_name(stem: str, shard: int, count: int, suffix: str = '') -> str:
    """Returns the name of a shard, such as `name-00002-of-00008.bagz`."""
    return f'{stem}-{shard:05}-of-{count:05}{suffix}'


def expand(
    specs: Sequence[str | os.PathLike[str]],
    exists: Callable[[str], bool],
    names: Callable[[str], Iterable[str]],
) -> tuple[list[str], str]:
    """Expands file specs. Returns the paths, and the specs as one string.

    Args:
        specs: Each spec is a path; `stem@8.bagz` or `stem@*.bagz` for numbered shards; a glob; or several of
            these, separated by commas. `@ * [ ?` are special only in the last component. A path that exists
            literally is not interpreted.
        exists: Returns whether a file exists.
        names: Lists the names in a folder.

    Raises:
        FileNotFoundError: A glob or `@*` has no match, or a shard of `@*` is missing.
        ValueError: No paths, zero shards, or `@*` matches shards with different counts.
    """
    texts = [os.fspath(spec) for spec in specs]
    text = ','.join(texts)
    parts = [
        part for text in texts for part in ([text] if ',' not in text or exists(text) else text.split(','))
    ]
    paths = [path for part in parts for path in _expand_part(part, exists, names)]
    if not paths:
        raise ValueError(f'file spec {text!r}: expected at least one path, got none')
    return paths, text


def _expand_part(
    part: str, exists: Callable[[str], bool], names: Callable[[str], Iterable[str]]
) -> list[str]:
    cut = max(part.rfind('/'), part.rfind(os.sep)) + 1
    folder, name = part[:cut], part[cut:]
    if not SPECIAL.search(name) or exists(part):
        return [part]
    sharded = SHARDED.fullmatch(name)
    if sharded is None:
        if not SPECIAL.search(name.replace('@', '')):
            return [part]
        matches = sorted(fnmatch.filter(names(folder), name))
        hidden = ('limits.',) if name.startswith('.') else ('limits.', '.')
        matches = [entry for entry in matches if not entry.startswith(hidden)]
        if not matches:
            raise FileNotFoundError(f'{part}: no file matches')
        return [folder + entry for entry in matches]
    stem, suffix = sharded['stem'], sharded['suffix'] or ''
    count = (
        _count_shards(part, stem, suffix, names(folder)) if sharded['count'] == '*' else int(sharded['count'])
    )
    if not count:
        raise ValueError(f'file spec {part!r}: expected at least one shard, got 0')
    return [folder + shard_name(stem, shard, count, suffix) for shard in range(count)]


def _count_shards(part: str, stem: str, suffix: str, names: Iterable[str]) -> int:
    pattern = re.compile(re.escape(stem) + r'-([0-9]{5,})-of-([0-9]{5,})' + re.escape(suffix))
    matches = [match for match in map(pattern.fullmatch, names) if match]
    if not matches:
        raise FileNotFoundError(f'{part}: no shard {shard_name(stem, 0, 0, suffix)!r} of any count')
    counts = sorted({int(match[2]) for match in matches})
    if len(counts) > 1:
        raise ValueError(f'{part}: expected shards of one count, got counts {counts}')
    missing = sorted(set(range(counts[0])) - {int(match[1]) for match in matches})
    if missing:
        raise FileNotFoundError(f'{part}: missing shard {shard_name(stem, missing[0], counts[0], suffix)}')
    return counts[0]


class Concatenated:
    """The records of each shard follow the records of the previous shard."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.starts: list[int] = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        """The first index of each shard, and the total number of records."""
        self.total = self.starts[-1]
        self._table = np.array(self.starts, np.int64)

    def one(self, index: int) -> tuple[int, int]:
        """Returns the shard of an index in `range(total)`, and the index within the shard."""
        shard = bisect_right(self.starts, index) - 1
        return shard, index - self.starts[shard]

    def many(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the shards of many indices, and the indices within the shards."""
        shards = np.searchsorted(self._table, indices, 'right') - 1
        return shards, indices - self._table[shards]


class Interleaved:
    """The first record of every shard, then the second record of every shard, and so on.

    Raises:
        ValueError: The lengths are not n for the first shards and n or n - 1 for the rest. Usually a shard is
            missing or incomplete.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        for shard, length in enumerate(lengths):
            if not lengths[0] >= length >= lengths[0] - 1 or length > lengths[shard - 1 if shard else 0]:
                raise ValueError(
                    f'interleaved shards: expected lengths that decrease by at most 1 in total, got '
                    f'{lengths[0]} for shard 0 and {length} for shard {shard}'
                )
        self.count = len(lengths)
        self.total = sum(lengths)

    def one(self, index: int) -> tuple[int, int]:
        """Returns the shard of an index in `range(total)`, and the index within the shard."""
        turn, shard = divmod(index, self.count)
        return shard, turn

    def many(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the shards of many indices, and the indices within the shards."""
        return indices % self.count, indices // self.count
