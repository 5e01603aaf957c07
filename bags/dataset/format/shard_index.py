"""The list of shards in `shards.json`, so that a sharded dataset opens with one request. No I/O.

    {"format": "bags shards 1",
     "spec": {"id": "int(8)", "words": "utf8[]"},
     "shards": [
      {"name": "000000", "length": 40,
       "sizes": {"id.bag": 640, "refs.bag": 1160, "spec.json": 35, "words.bag": 4096},
       "counts": {"id.bag": 40, "refs.bag": 40, "words.bag": 160}, "id": "0f8c…"},
      …]}

`length` is the number of datapoints, `sizes` the bytes of each file, `counts` the records of each bag, `id`
the id in source.json (missing if the shard has none). The content is not trusted: names must be names of
shard folders, never paths, and lengths, sizes, counts and ids are compared with the shard when it is first
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from bags.dataset.format.json_files import check_no_lfs_pointer
from bags.dataset.format.spec import Schema, parse_spec, type_texts
from bags.errors import CorruptError
from bags.indexing import MAX_INT64
from bags.storage import Stat

INDEX = 'shards.json'
INDEX_FORMAT = 'bags shards 1'
MAX_INDEX_BYTES = 1 << 30
"""Maximum bytes of shards.json: millions of shards."""


class Shard(NamedTuple):
    """The description of a shard folder in a listing or in shards.json."""

    name: str
    """Name of the folder; empty for a dataset of one folder, whose description has all its files."""
    sizes: Mapping[str, int] = {}
    """Bytes of each file; empty if unknown."""
    length: int | None = None
    """Number of datapoints; None without shards.json."""
    counts: Mapping[str, int] | None = None
    """Number of records of each bag; None without shards.json."""
    versions: Mapping[str, Stat] = {}
    """Sizes and versions of files in a listing. The files are read in these versions."""
    version_type: str = ''
    """The type of these versions, as in `Store`."""
    id: str | None = None
    """The id of the folder, if it was read: it identifies files whose versions were not listed."""


def numbered(names: Iterable[str], where: object) -> dict[int, str]:
    """Maps numbers to names of shard folders, in order; other names in the folder are ignored.

    Raises:
        CorruptError: Two shards have the same number.
    """
    numbers: dict[int, str] = {}
    for name in sorted(names):
        if name.isascii() and name.isdigit():
            if int(name) in numbers:
                raise CorruptError(where, None, f'shard {int(name)} is both {numbers[int(name)]} and {name}')
            numbers[int(name)] = name
    return dict(sorted(numbers.items()))


def dump_index(schema: Schema, shards: Iterable[Shard]) -> bytes:
    """Returns the content of shards.json."""
    spec = type_texts(schema)
    lines = []
    for shard in shards:
        entry = {'name': shard.name, 'length': shard.length, 'sizes': shard.sizes, 'counts': shard.counts}
        if shard.id is not None:
            entry['id'] = shard.id
        lines.append(json.dumps(entry, ensure_ascii=False))
    texts = json.dumps(INDEX_FORMAT), json.dumps(spec, ensure_ascii=False)
    head = f'{{"format": {texts[0]},\n "spec": {texts[1]},\n "shards": ['
    return (head + '\n  ' + ',\n  '.join(lines) + ']}\n').encode()


def load_index(data: bytes, where: object) -> tuple[Schema, list[Shard]]:
    """Parses the content of shards.json; returns the spec, and the shards in the order of their numbers.

    Raises:
        CorruptError: The content is invalid.
        SpecError: The spec in it is invalid.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as exc:
        check_no_lfs_pointer(where, data)
        raise CorruptError(where, None, f'is not JSON: {exc}') from None
    if not isinstance(found, dict) or found.get('format') != INDEX_FORMAT:
        raise CorruptError(where, None, f'expected an object with "format": "{INDEX_FORMAT}"')
    spec, entries = found.get('spec'), found.get('shards')
    if not isinstance(spec, dict) or not isinstance(entries, list) or not entries:
        raise CorruptError(where, None, 'expected a "spec" and a list of "shards"')
    shards = {shard.name: shard for shard in (_shard(entry, where) for entry in entries)}
    names = numbered(shards, where)
    if len(names) != len(entries):
        raise CorruptError(where, None, 'expected names of shard folders, each once')
    schema = parse_spec(spec, where)
    return {name: schema[name] for name in spec}, [shards[name] for name in names.values()]


def _shard(entry: Any, where: object) -> Shard:
    if not isinstance(entry, dict) or not isinstance(entry.get('name'), str):
        raise CorruptError(where, None, f'expected an object with a "name" for each shard, got {entry!r:.80}')
    name = entry['name']
    length, sizes, counts = entry.get('length'), entry.get('sizes'), entry.get('counts')
    if not _is_number(length) or not _are_numbers(sizes) or not _are_numbers(counts):
        raise CorruptError(
            where, None, f'shard {name!r:.80}: expected numbers for "length" and in "sizes" and "counts"'
        )
    id = entry.get('id')
    if id is not None and not isinstance(id, str):
        raise CorruptError(where, None, f'shard {name!r:.80}: expected a string for "id", got {id!r:.80}')
    return Shard(name, sizes, length, counts, id=id)


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_INT64


def _are_numbers(value: Any) -> TypeGuard[dict[str, int]]:
    return isinstance(value, dict) and all(map(_is_number, value.values()))
