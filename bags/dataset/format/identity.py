"""The identity of a dataset folder, in its `source.json`.

    {"id": "0f8c…", "datapoints": 40, "sizes": {"id.bag": 640, "refs.bag": 1160},
     "copied_from": {"fingerprint": "5e1b…", "first": 0, "total": 100}}

A writer creates an id when it closes a new or changed folder. The file is written after the bags are closed,
and removed before a closed folder is changed: an unfinished folder does not have one. `datapoints` and
`sizes` describe the closed folder. If they differ from the folder, an earlier version, which does not know
the file, has changed it, and the id is ignored.

A folder that was copied from a dataset has `copied_from`: the fingerprint of the dataset, the number of its
datapoints, and the index of the first one in this folder.

Earlier versions know a file of this name beside shards, where they log progress; they overwrite and resume
datasets with this file. New datasets log progress in `progress.json` (`bags.progress.progress_log`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from bags.concurrency import map_concurrently
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY
from bags.dataset.format.shard_index import Shard
from bags.errors import CorruptError
from bags.storage import Store

REMOVE_IDENTITY = 'remove it, and its checksum: the dataset is then identified by its data'
MAX_IDENTITY_BYTES = 1 << 20


class CopiedFrom(NamedTuple):
    """The datapoints of another dataset that a folder was copied from."""

    fingerprint: str
    """The fingerprint of the other dataset."""
    first: int
    """The index of the first datapoint in the other dataset."""
    total: int
    """The number of datapoints of the other dataset."""


class Identity(NamedTuple):
    """The identity of a closed dataset folder."""

    id: str
    datapoints: int
    sizes: Mapping[str, int]
    """Bytes of each bag."""
    copied_from: CopiedFrom | None = None

    def dump(self) -> bytes:
        """Returns the content of the file."""
        found = {'id': self.id, 'datapoints': self.datapoints, 'sizes': dict(sorted(self.sizes.items()))}
        if self.copied_from is not None:
            found['copied_from'] = self.copied_from._asdict()
        return json.dumps(found).encode() + b'\n'


def new_id() -> str:
    """Returns a random id."""
    return uuid.uuid4().hex


def read_id(store: Store, folder: str) -> str | None:
    """Returns the id of a dataset folder; None without one."""
    try:
        found = _load(store.read(store.join(folder, IDENTITY)))
    except FileNotFoundError:
        return None
    return None if found is None else found.id


def read_identity(store: Store, folder: str, length: int, known: Shard | None = None) -> Identity | None:
    """Returns the identity of a dataset folder; None without a valid one, or if the folder has changed since.

    Args:
        store, folder: The folder.
        length: Number of its datapoints.
        known: The entry of the folder in a listing, if it was listed, with the sizes of its files.
    """
    path = store.join(folder, IDENTITY)
    try:
        found = _load(store.read(path, MAX_IDENTITY_BYTES))
    except (FileNotFoundError, CorruptError):
        return None
    if found is None or found.datapoints != length:
        return None

    def size_of(name: str) -> int | None:
        if known is not None and name in known.sizes:
            return known.sizes[name]
        try:
            return store.stat(store.join(folder, name)).size
        except FileNotFoundError:
            return None

    sizes = map_concurrently(size_of, list(found.sizes), store.is_remote)
    return found if sizes == list(found.sizes.values()) else None


def _load(data: bytes) -> Identity | None:
    """Parses the content of the file; returns None if it is invalid."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get('id'), str):
        return None
    datapoints, sizes, copied = found.get('datapoints'), found.get('sizes'), found.get('copied_from')
    if type(datapoints) is not int or not isinstance(sizes, dict):
        return None
    if not all(_is_bag(name) and type(size) is int for name, size in sizes.items()):
        return None
    copied_from = None
    if isinstance(copied, dict):
        fingerprint, first, total = (copied.get(name) for name in CopiedFrom._fields)
        if isinstance(fingerprint, str) and type(first) is int and type(total) is int:
            copied_from = CopiedFrom(fingerprint, first, total)
    return Identity(found['id'], datapoints, sizes, copied_from)


def _is_bag(name: str) -> bool:
    return name.endswith(BAG_SUFFIXES) and not {'/', '\\', '\0'} & {*name}
