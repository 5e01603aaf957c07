"""Closing what a killed writer left: bags, dataset folders and datasets of many."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NoReturn

from bags.bag import Writer
from bags.bag.bag_file import BagFile
from bags.bag.open import limits_name, open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.folder import is_being_made
from bags.dataset.spec import load_spec
from bags.dataset.writer import DatasetWriter
from bags.maintenance.sources import Source, find_source
from bags.storage import Store

__all__ = ['Recovery', 'recover']


SEAL = 1  # Byte that writers put behind what they write.


@dataclasses.dataclass(frozen=True)
class Recovery:
    """What was done about a folder or a bag."""

    path: str
    action: Literal['closed', 'nothing', 'left']
    """`nothing`: it was closed already. `left`: it is as it was, and `detail` says why."""
    kept: int
    """Datapoints, or records of a bag, that it has now."""
    dropped: int
    """Datapoints at its end whose records were not there."""
    bytes_dropped: int
    """Bytes behind the last whole record: of what was being written when the writer was killed."""
    detail: str

    def __str__(self) -> str:
        return f'{self.path}: {self.detail}'


def recover(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Recovery]:
    """Closes what a killed writer left, so that it is as if the writer had been closed at its last flush.

    Nothing that was flushed is lost. What is closed is left as it is.

    Args:
        path: A dataset, or a bag (or several, as `name@*.bagz`).
        filesystem, storage_options: As in `bags.open`.

    Yields:
        What was done, for each folder or bag in order.

    Raises:
        FileNotFoundError: Nothing is there, or no dataset or bag.
        BlockingIOError: A writer is at work on it.
        CorruptError: It is damaged; see `bags.verify`.
        ValueError: Another library wrote it, and it cannot be closed.
    """
    source = find_source(path, filesystem, storage_options)
    storage = {'filesystem': filesystem, 'storage_options': storage_options}
    return _recover(source, storage)


def _recover(source: Source, storage: dict[str, Any]) -> Iterator[Recovery]:
    for part in source.parts:
        yield (_bag if source.kind == 'bags' else _folder)(source.store, part, storage)


def _bag(store: Store, path: str, storage: dict[str, Any]) -> Recovery:
    beside = limits_name(path)
    bag = open_bag(store, path, ReaderOptions(**storage))
    if not store.exists(beside):
        return Recovery(path, 'nothing', bag.count, 0, 0, f'was closed, with {bag.count:,} records')
    last = int(bag.ends[bag.count - 1 : bag.count][0]) if bag.count else 0
    if bag.count and bag.limits.path != bag.file.path and bag.file.size == last:
        # What our writers leave unclosed has a byte behind the last record.
        detail = f'is whole, with its limits in {os.path.basename(beside)}, where its writer put them'
        return Recovery(path, 'left', bag.count, 0, 0, detail)
    behind, count = _behind(bag), bag.count
    del bag
    Writer(path, mode='append', **storage).close()
    return Recovery(path, 'closed', count, 0, behind, f'closed, with {count:,} records{_dropped(0, behind)}')


def _folder(store: Store, path: str, storage: dict[str, Any]) -> Recovery:
    names = set(store.names(path))
    options = ReaderOptions(**storage)
    refs = store.join(path, 'refs.bag')
    if not any(name.startswith('limits.') for name in names) and not is_being_made(names):
        count = open_bag(store, refs, options).count if 'refs.bag' in names else 0
        said = f'was closed, with {count:,} datapoints' if 'refs.bag' in names else 'was closed'
        return Recovery(path, 'nothing', count, 0, 0, said)
    if 'spec.json' not in names:
        return Recovery(path, 'left', 0, 0, 0, 'has no spec.json yet: nothing was written that could be kept')
    file = store.join(path, 'spec.json')
    spec = load_spec(store.read(file), file)
    before = open_bag(store, refs, options).count if names & {'refs.bag', 'limits.refs.bag'} else 0
    less = sum(
        _behind(open_bag(store, store.join(path, name), options))
        for name in names
        if name.endswith(('.bag', '.bagz'))
        and not name.startswith(('limits.', '.'))
        and f'limits.{name}' in names
    )
    encoders = {kind.word: _encode for kind in spec.values()}
    texts = {name: kind.text for name, kind in spec.items()}
    writer = DatasetWriter(path, texts, encoders, resume=True, **storage)
    writer.close()
    dropped = before - len(writer)
    return Recovery(
        path,
        'closed',
        len(writer),
        dropped,
        less,
        f'closed, with {len(writer):,} datapoints{_dropped(dropped, less)}',
    )


def _encode(*_args: Any) -> NoReturn:
    raise AssertionError('nothing is appended')


def _behind(bag: BagFile) -> int:
    """Returns how many bytes are behind the last record of a bag that was not closed."""
    last = int(bag.ends[bag.count - 1 : bag.count][0]) if bag.count else 0
    return max(0, bag.file.size - last - SEAL) if bag.limits.path != bag.file.path else 0


def _dropped(datapoints: int, size: int) -> str:
    said = []
    if datapoints:
        said.append(f'{datapoints:,} at the end whose records were not there')
    if size:
        said.append(f'{size:,} bytes of what was being written')
    return f'; dropped {" and ".join(said)}' if said else ''
