"""`bags.recover`: closes bags and datasets that a killed writer left."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from bags.bag import Writer
from bags.bag.bag_file import BagFile
from bags.bag.open import limits_name, open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.folder import is_being_made
from bags.dataset.spec import load_spec
from bags.dataset.writer import DatasetWriter
from bags.maintenance.location import locate
from bags.storage import Store

__all__ = ['Recovery', 'recover', 'recover_each']

SENTINEL_BYTES = 1
"""What writers put behind the last record while a bag is not closed."""


@dataclasses.dataclass(frozen=True)
class Recovery:
    """What was done about a folder or a bag."""

    path: str
    action: Literal['closed', 'nothing', 'left']
    """`nothing`: it was closed already. `left`: it is unchanged, and `detail` says why."""
    kept: int
    """Datapoints, or records of a bag, that it has now."""
    dropped: int
    """Datapoints at its end whose records were missing."""
    bytes_dropped: int
    """Bytes behind the last whole record, which was being written when the writer was killed."""
    detail: str

    def __str__(self) -> str:
        return f'{self.path}: {self.detail}'


def recover(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Recovery]:
    """Closes what a killed writer left, as if it had been closed at its last flush.

    Nothing that was flushed is lost. What is closed already stays unchanged.

    Args:
        path: A dataset, or a bag (or several, as `name@*.bagz`).
        filesystem, storage_options: As in `bags.open`.

    Returns:
        What was done, for each folder or bag in order.

    Raises:
        FileNotFoundError: Nothing is there, or no dataset or bag.
        BlockingIOError: A writer is at work on it.
        CorruptError: It is damaged; see `bags.verify`.
        ValueError: Another library wrote it, and it cannot be closed.
    """
    return list(recover_each(path, filesystem, storage_options))


def recover_each(
    path: str | os.PathLike[str], filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> Iterator[Recovery]:
    """As `recover`, but yields each folder or bag when it is done."""
    location = locate(path, filesystem, storage_options)
    storage = {'filesystem': filesystem, 'storage_options': storage_options}
    for part in location.parts:
        yield (_recover_bag if location.kind == 'bags' else _recover_folder)(location.store, part, storage)


def _recover_bag(store: Store, path: str, storage: dict[str, Any]) -> Recovery:
    limits = limits_name(path)
    bag = open_bag(store, path, ReaderOptions(**storage))
    count = bag.count
    if not store.exists(limits):
        return Recovery(path, 'nothing', count, 0, 0, f'was closed, with {count:,} records')
    if count and bag.limits.path != bag.file.path and bag.file.size == _records_end(bag):
        # A bag with separate limits on purpose: our writers leave a sentinel in those they have not closed.
        detail = f'is complete, with its limits in {os.path.basename(limits)}, where its writer put them'
        return Recovery(path, 'left', count, 0, 0, detail)
    size = _unfinished_bytes(bag)
    del bag
    Writer(path, mode='append', **storage).close()
    return Recovery(path, 'closed', count, 0, size, f'closed, with {count:,} records{_dropped(0, size)}')


def _recover_folder(store: Store, path: str, storage: dict[str, Any]) -> Recovery:
    names = set(store.names(path))
    options = ReaderOptions(**storage)

    def count_refs() -> int:
        return open_bag(store, store.join(path, 'refs.bag'), options).count

    if not any(name.startswith('limits.') for name in names) and not is_being_made(names):
        if 'refs.bag' not in names:
            return Recovery(path, 'nothing', 0, 0, 0, 'was closed')
        count = count_refs()
        return Recovery(path, 'nothing', count, 0, 0, f'was closed, with {count:,} datapoints')
    if 'spec.json' not in names:
        return Recovery(path, 'left', 0, 0, 0, 'has no spec.json yet: nothing was written that could be kept')
    before = count_refs() if names & {'refs.bag', 'limits.refs.bag'} else 0
    size = sum(
        _unfinished_bytes(open_bag(store, store.join(path, name), options))
        for name in names
        if name.endswith(('.bag', '.bagz')) and f'limits.{name}' in names
    )
    file = store.join(path, 'spec.json')
    types = load_spec(store.read(file), file)
    spec = {name: kind.text for name, kind in types.items()}
    encoders = {kind.word: bytes for kind in types.values()}  # Nothing is appended.
    writer = DatasetWriter(path, spec, encoders, resume=True, **storage)
    writer.close()
    kept, dropped = len(writer), before - len(writer)
    detail = f'closed, with {kept:,} datapoints{_dropped(dropped, size)}'
    return Recovery(path, 'closed', kept, dropped, size, detail)


def _records_end(bag: BagFile) -> int:
    return int(bag.ends[bag.count - 1 : bag.count][0]) if bag.count else 0


def _unfinished_bytes(bag: BagFile) -> int:
    """Returns how many bytes are behind the last record of a bag that was not closed."""
    if bag.limits.path == bag.file.path:
        return 0
    return max(0, bag.file.size - _records_end(bag) - SENTINEL_BYTES)


def _dropped(datapoints: int, size: int) -> str:
    parts = []
    if datapoints:
        parts.append(f'{datapoints:,} at the end whose records were missing')
    if size:
        parts.append(f'{size:,} bytes of what was being written')
    return f'; dropped {" and ".join(parts)}' if parts else ''
