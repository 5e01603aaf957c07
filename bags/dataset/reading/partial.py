"""Partial datapoints: the items so far of an episode that is being recorded, or whose writer was killed.

The journal of a folder has the number of records of each bag before the open episode, and after its last
flush. The records in between are the items of a datapoint after the committed ones. Its refs, which are not
written yet, are made here.

    refs.bag          row 0, row 1
    journal           state 200 → 350, state_time 200 → 350, task 2 → 3, success 1 → 1
    partial row       state [200, 150], state_time [200, 150], task 2, success missing
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.journal import read_open
from bags.dataset.format.file_names import bag_files
from bags.dataset.format.folder import Folder
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.listing import names_in
from bags.dataset.format.refs import MISSING, RefsFormat
from bags.dataset.format.spec import Schema, as_optional
from bags.errors import CorruptError
from bags.storage.memory_file import MemoryFile


class PartialDatapoint(NamedTuple):
    """The datapoint of an open episode, as of its last flush when it was read."""

    committed: int
    """The number of committed datapoints of the folder, which is its index."""
    items: dict[str, tuple[int, int]]
    """The first record of each field and the number of its records; of a plain field, the last one is the
    value."""


def read_partial(folder: Folder) -> PartialDatapoint | None:
    """Returns the partial datapoint of a local folder; None without an open episode.

    Raises:
        CorruptError: The journal is invalid.
    """
    if not folder.has(JOURNAL):
        return None
    schema = folder.layout().schema
    bags = list(bag_files(folder.path, schema, names_in(folder.store, folder.path)))
    counts = read_open(folder.store, folder.store.join(folder.path, JOURNAL), len(bags))
    if counts is None:
        return None
    if max(counts.flushed) > MISSING:
        detail = f'{JOURNAL}: expected fewer than {MISSING} records of a bag, got {max(counts.flushed)}'
        raise CorruptError(folder.path, None, detail)
    items = {
        name: (before, flushed - before)
        for name, before, flushed in zip(bags, counts.before, counts.flushed, strict=True)
        if name in schema
    }
    return PartialDatapoint(counts.before[0], items)


def unset_fields(schema: Schema, partial: PartialDatapoint) -> frozenset[str]:
    """Returns the plain fields without a value in the partial datapoint, which are optional for readers."""
    return frozenset(
        name
        for name, field_type in schema.items()
        if not (field_type.sequence or field_type.optional or partial.items[name][1])
    )


def with_optional_fields(schema: Schema, names: frozenset[str]) -> Schema:
    """Returns a schema in which some fields are optional."""
    return {
        name: as_optional(field_type) if name in names else field_type for name, field_type in schema.items()
    }


def with_partial_row(refs: BagFile, refs_format: RefsFormat, partial: PartialDatapoint) -> BagFile:
    """Returns the refs of the committed datapoints and the row of the partial one, in memory.

    Raises:
        CorruptError: Checksums are compared, and a row differs from its checksum.
    """
    row: list[int] = []
    for name, field_type in refs_format.schema.items():
        first, count = partial.items[name]
        if field_type.sequence:
            row += [first, count] if count else [MISSING if field_type.optional else 0, 0]
        else:
            row.append(first + count - 1 if count else MISSING)
    end = int(refs.ends[partial.committed - 1 : partial.committed][0]) if partial.committed else 0
    if refs.checksums is None:
        data = bytes(refs.file.read(0, end))
    else:
        data = b''.join(refs.read(np.arange(partial.committed)))
    data += refs_format.pack(np.array([row], np.int64))
    ends = np.append(refs.ends[: partial.committed], len(data)).astype('<i8')
    file = MemoryFile(refs.path, data + ends.tobytes())
    return BagFile(refs.path, file, file, len(data), len(ends), len(data), None, False)
