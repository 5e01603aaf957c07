"""`bags.recover`: closes bags and datasets that killed writers left open."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from bags.bag import Writer
from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.journal import journal_name
from bags.bag.journal_recovery import placement_in
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.temporary_files import remove_leftovers, remove_tree
from bags.dataset.format.file_names import BAG_SUFFIXES, is_temporary
from bags.dataset.format.journal import JOURNAL, describe_not_begun, is_journal, shards_not_begun
from bags.dataset.format.json_files import remove_json
from bags.dataset.format.listing import is_being_made
from bags.dataset.format.metadata import METADATA
from bags.dataset.format.shard_index import INDEX
from bags.dataset.format.spec import load_spec
from bags.dataset.writing.open_shards_for_writing import linked_and_copied
from bags.dataset.writing.reopen import reopen
from bags.dataset.writing.resume import accept
from bags.display.counts import plural
from bags.errors import CorruptError
from bags.maintenance.location import locate
from bags.maintenance.recover_cut import keep_readable as keep_readable_datapoints
from bags.maintenance.recover_cut import ranges_of
from bags.storage import Store, store_for
from bags.validation import one_of, with_advice

ACCEPTED = 'was unfinished, and is accepted as it is'
SENTINEL_BYTES = 1
"""Bytes that writers append after the last record while a bag is not closed."""


@dataclasses.dataclass(frozen=True)
class Recovery:
    """The result of recovering a folder or a bag.

    Examples:
        >>> [(recovery.action, recovery.kept) for recovery in bags.recover('episodes')]
        [('nothing', 4), ('nothing', 4)]
    """

    path: str
    action: Literal['closed', 'nothing', 'left', 'removed', 'kept']
    """`closed`: it is closed now. `nothing`: it was closed already. `left`: it is unchanged, and `detail`
    says why. `removed`: a temporary file or folder of a killed writer was removed. `kept`: it was cut off,
    and rewritten with the datapoints that can be read."""
    kept: int
    """Number of datapoints, or records of a bag, after the recovery."""
    dropped: int
    """Number of datapoints that were dropped because their records were missing."""
    bytes_dropped: int
    """Bytes after the last whole record: the writer was killed while it wrote them."""
    detail: str
    lost: list[int] = dataclasses.field(default_factory=list)
    """With `keep_readable`, the datapoints that were dropped."""
    partial: int | None = None
    """The index of the datapoint that was an open episode (`writer.begin`); None if none was kept."""
    unset: list[str] = dataclasses.field(default_factory=list)
    """The plain fields that were not set in an open episode, which was left out because of them."""

    def __str__(self) -> str:
        return f'{self.path}: {self.detail}'


@with_advice
def recover(
    path: str | os.PathLike[str],
    *,
    keep_readable: bool = False,
    partial: Literal['keep', 'drop'] = 'keep',
    partial_values: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Recovery]:
    """Closes the files of a killed writer, as if it had closed them at its last flush.

    No flushed record is lost. An unfinished dataset is marked as finished, and temporary files of killed
    writers are removed. Closed folders and bags stay unchanged.

    Args:
        path: A dataset, or one or several bags (`name@*.bagz`).
        keep_readable: Also rewrite local folders whose files were cut off at the end: keep the datapoints
            that can be read, and list the lost ones. A bag has its limits at the end, so they are lost first.
            The records can then be located if they have one size or checksums, if they are compressed and of
            a type without empty records, or if only a part of the limits was cut off.
        partial: How to handle an open episode (`writer.begin`): 'keep' makes it a datapoint with the flushed
            items, 'drop' leaves it out. Fields tied by `times` in the metadata are cut to the shortest.
        partial_values: Values for plain fields that are not set in the open episode. If a field has no
            value and is not optional, the episode is left out.
        filesystem, storage_options: As in `bags.open`.

    Returns:
        The result for each folder or bag, in order.

    Raises:
        FileNotFoundError: No dataset or bag at the path.
        BlockingIOError: A writer has the dataset or bag open. On an object store, this is unknown, and the
            writer raises OSError when it is closed.
        CorruptError: The data are damaged; see `bags.verify`.
        KeyError: `partial_values` names a field that is not a plain field of the dataset.
        ValueError: Another library wrote the data, and they cannot be closed; or, with `keep_readable`, a
            field is linked.

    Examples:
        >>> writer = bags.DatasetWriter('killed', {'n': 'int(4)'})
        >>> writer.append({'n': 1}, flush=True)
        0
        >>> writer.abandon()  # Like an exception in its with block.
        >>> bags.open('killed').unfinished
        True
        >>> [(done.action, done.kept) for done in bags.recover('killed')]
        [('closed', 1)]
    """
    one_of('partial', partial, ('keep', 'drop'))
    return list(recover_each(path, filesystem, storage_options, keep_readable, partial, partial_values))


def recover_each(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    keep_readable: bool = False,
    partial: Literal['keep', 'drop'] = 'keep',
    partial_values: Mapping[str, Any] | None = None,
) -> Iterator[Recovery]:
    """Like `recover`, but yields the result of each folder or bag as soon as it is recovered."""
    storage = {'filesystem': filesystem, 'storage_options': storage_options}
    store, where = store_for(path, **storage)
    removed = remove_leftovers(store, where)
    location = locate(path, filesystem, storage_options)
    if location.type == 'shards':
        removed += _remove_temporary(store, where, store.names(where))
    for other in removed:
        yield Recovery(other, 'removed', 0, 0, 0, 'removed: a writer that was killed left it')
    journals, not_begun = [], ''
    if location.type == 'shards':
        # Locked until the shards are recovered.
        names = store.names(where)
        not_begun = describe_not_begun(shards_not_begun(names))
        journals = [store.join(where, name) for name in names if is_journal(name)]
    locks = [store.lock(journal) for journal in journals]
    kept = 0
    for part in location.parts:
        if location.type == 'bags':
            recovery = _recover_bag(location.store, part, storage)
        else:
            recover_part = _recover_cut_folder if keep_readable else _recover_folder
            recovery = recover_part(location.store, part, storage, partial, partial_values, location.parts)
        if recovery.action == 'kept':
            remove_json(store, store.join(where, INDEX))
        kept += recovery.kept
        yield recovery
    for journal in journals:
        store.remove(journal)
    for lock in locks:
        lock.release()
    if journals:
        store.sync_folder(where)
        detail = f'{ACCEPTED}, with {plural(kept, "datapoint")}{not_begun and f"; {not_begun}"}'
        yield Recovery(where, 'closed', kept, 0, 0, detail)


def _recover_bag(store: Store, path: str, storage: dict[str, Any]) -> Recovery:
    limits = limits_name(path)
    placement = placement_in(store, path)
    if placement is not None:
        return _recover_with_journal(store, path, placement, storage)
    bag = open_bag(store, path, ReaderOptions(**storage))
    count = bag.count
    if not store.exists(limits):
        return Recovery(path, 'nothing', count, 0, 0, f'was closed, with {count:,} records')
    if count and bag.limits.path != bag.file.path and bag.file.size == _records_end(bag):
        # Limits are separate on purpose: an unclosed bag of this library would end with a sentinel.
        detail = f'is complete, with its limits in {os.path.basename(limits)}, where its writer put them'
        return Recovery(path, 'left', count, 0, 0, detail)
    size = _unfinished_bytes(bag)
    del bag
    Writer(path, mode='append', **storage).close()
    return Recovery(path, 'closed', count, 0, size, f'closed, with {count:,} records{_dropped(0, size)}')


def _recover_with_journal(
    store: Store, path: str, placement: LimitsPlacement, storage: dict[str, Any]
) -> Recovery:
    """Closes a bag whose journal has the placement of its limits and the number of durable records."""
    before, size = 0, 0
    with contextlib.suppress(CorruptError, FileNotFoundError):  # After a power cut.
        bag = open_bag(store, path, ReaderOptions(limits_placement=placement, **storage))
        before, size = bag.count, _unfinished_bytes(bag)
        del bag
    if store.exists(limits_name(path)):
        writer = Writer(path, mode='append', limits_placement=placement, **storage)
        writer.close()
        count = len(writer)
    else:
        store.remove(journal_name(path))
        store.sync_folder(os.path.dirname(path))
        count = before
    dropped = max(0, before - count)
    detail = f'closed, with {count:,} records{_dropped(dropped, size, "records")}'
    return Recovery(path, 'closed', count, dropped, size, detail)


def _recover_folder(
    store: Store,
    path: str,
    storage: dict[str, Any],
    partial: Any,
    partial_values: Any,
    shards: Sequence[str],
) -> Recovery:
    names = set(store.names(path))
    options = ReaderOptions(**storage)

    def count_refs() -> int:
        return open_bag(store, store.join(path, 'refs.bag'), options).count

    is_unclosed = any(name.startswith('limits.') and not is_temporary(name) for name in names)
    if not is_unclosed and not is_being_made(names):
        if 'refs.bag' not in names:
            return Recovery(path, 'nothing', 0, 0, 0, 'was closed')
        count = count_refs()
        if JOURNAL not in names and not any(map(is_temporary, names)):
            return Recovery(path, 'nothing', count, 0, 0, f'was closed, with {plural(count, "datapoint")}')
        lock = store.lock(path)
        try:
            removed = _remove_temporary(store, path, names)
            accept(store, path)
        finally:
            lock.release()
        parts = [ACCEPTED] * (JOURNAL in names)
        parts += [f'removed {plural(len(removed), "file")} of a killed writer'] * bool(removed)
        return Recovery(path, 'closed', count, 0, 0, f'{", ".join(parts)}, with {plural(count, "datapoint")}')
    before_spec = {METADATA, checksums_name(METADATA)}
    if 'spec.json' not in names and not all(is_temporary(name) or name in before_spec for name in names):
        return Recovery(path, 'left', 0, 0, 0, 'has no spec.json yet: nothing was written that could be kept')
    if 'spec.json' not in names:
        store.lock(path).release()  # Raises while a writer has it open.
        remove_tree(store, path)
        return Recovery(path, 'removed', 0, 0, 0, 'removed: a writer that was killed left it')
    before = 0
    if 'refs.bag' in names:  # A writer creates the limits of refs.bag first.
        with contextlib.suppress(CorruptError):  # After a power cut.
            before = count_refs()
    size = 0
    for name in names:
        if name.endswith(BAG_SUFFIXES) and f'limits.{name}' in names:
            with contextlib.suppress(CorruptError):  # After a power cut.
                size += _unfinished_bytes(open_bag(store, store.join(path, name), options))
    file = store.join(path, 'spec.json')
    schema = load_spec(store.read(file), file)
    # A power cut may lose all files of a linked field; earlier shards have them.
    linked = linked_and_copied(store, shards[: shards.index(path) + 1], schema)[0]
    linked -= linked_and_copied(store, [path], schema)[1]
    writer = reopen(path, schema, partial, partial_values, linked_fields=linked, **storage)
    writer.close()
    index, unset = writer.partial or (None, [])
    kept = len(writer)
    dropped = max(0, before - kept + (index is not None))
    detail = f'closed, with {plural(kept, "datapoint")}{_dropped(dropped, size)}'
    if index is not None:
        detail += f'; datapoint {index:,} is what was written of an open episode'
    if unset:
        detail += (
            f'; left out an open episode, in which {", ".join(unset)} is not set (partial_values= sets it)'
        )
    return Recovery(path, 'closed', kept, dropped, size, detail, partial=index, unset=unset)


def _recover_cut_folder(
    store: Store,
    path: str,
    storage: dict[str, Any],
    partial: Any,
    partial_values: Any,
    shards: Sequence[str],
) -> Recovery:
    """Like `_recover_folder`; also rewrites a folder whose bags were cut off."""
    error = None
    try:
        recovery = _recover_folder(store, path, storage, partial, partial_values, shards)
    except CorruptError as exc:
        error = exc
    result = keep_readable_datapoints(store, path, storage)
    if not result.reasons:
        if error is not None:
            raise error
        return recovery
    reasons = '; '.join(f'{field}: {reason}' for field, reason in result.reasons.items())
    if not result.kept:
        detail = f'none of {len(result.lost):,} datapoints can be read: {reasons}'
        return Recovery(path, 'left', 0, 0, 0, detail)
    detail = f'was cut off, and written again with {plural(result.kept, "datapoint")} that can be read'
    if result.lost:
        detail += f'; lost {len(result.lost):,}: {ranges_of(result.lost)}'
    return Recovery(path, 'kept', result.kept, len(result.lost), 0, f'{detail} ({reasons})', result.lost)


def _remove_temporary(store: Store, folder: str, names: Iterable[str]) -> list[str]:
    removed = [store.join(folder, name) for name in sorted(names) if is_temporary(name)]
    for path in removed:
        store.remove(path)
    if removed:
        store.sync_folder(folder)
    return removed


def _records_end(bag: BagFile) -> int:
    return int(bag.ends[bag.count - 1 : bag.count][0]) if bag.count else 0


def _unfinished_bytes(bag: BagFile) -> int:
    """Returns the number of bytes after the last record of a bag that was not closed."""
    if bag.limits.path == bag.file.path:
        return 0
    return max(0, bag.file.size - _records_end(bag) - SENTINEL_BYTES)


def _dropped(count: int, size: int, what: str = '') -> str:
    parts = []
    if count and what:
        parts.append(f'{count:,} {what} that a power cut may have damaged')
    elif count:
        parts.append(f'{count:,} at the end whose records were missing')
    if size:
        parts.append(f'{size:,} bytes of what was being written')
    return f'; dropped {" and ".join(parts)}' if parts else ''
