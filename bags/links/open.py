"""Opens the links of a field of a dataset folder."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from bags.bag.checksums import Checksums
from bags.bag.open import open_bag
from bags.bag.options import CompressionNone, LimitsStorage, ReaderOptions
from bags.errors import CorruptError
from bags.links.files import is_url, parse_file
from bags.links.linked_files import LinkedFiles
from bags.links.records import LinkedRecords
from bags.links.segments import LinkedType, Segment
from bags.storage import Hints, Store
from bags.storage.local import LocalStore
from bags.validation import merge


def open_links(
    store: Store,
    folder: str,
    field: str,
    options: ReaderOptions,
    linked: LinkedFiles,
    field_type: LinkedType | None = None,
    copy_segment: Callable[[Segment], bytes] | None = None,
) -> LinkedRecords:
    """Opens the bags `FIELD.links`, `FIELD.files` and `FIELD.values` of a field.

    Args:
        store, folder, field, options: As for opening a bag.
        linked: The linked files of the dataset.
        field_type: Type of the field. Required for segments.
        copy_segment: Copies a segment into a file of its own. Required for segments.

    Raises:
        CorruptError: A bag is missing or damaged.
    """
    plain = merge(
        ReaderOptions,
        options,
        {'compression': CompressionNone(), 'checksum': False, 'limits_storage': LimitsStorage.ON_DISK},
    )
    try:
        links = open_bag(store, store.join(folder, f'{field}.links'), plain)
        files = open_bag(store, store.join(folder, f'{field}.files'), plain)
        values = open_bag(store, store.join(folder, f'{field}.values'), plain)
    except FileNotFoundError as exc:
        raise CorruptError(folder, None, f'field {field!r}: is missing {exc.filename}') from exc
    records = LinkedRecords(field, folder, links, files, values, linked, field_type, copy_segment)
    records.options = options
    records.reopen = functools.partial(_reopen, folder, field, field_type, copy_segment, options, linked.root)
    if options.checksum:
        try:
            is_closed = links.limits is links.file
            records.checksums = Checksums(store, links.path, links.count, Hints(), is_closed)
        except FileNotFoundError:
            raise CorruptError(links.path, None, 'has no checksums, but refs.bag has') from None
        records.checksums.check_companion(b'', 'what the links need')
    return records


def _reopen(
    folder: str,
    field: str,
    field_type: LinkedType | None,
    copy_segment: Callable[[Segment], bytes] | None,
    options: ReaderOptions,
    root: str,
    **changes: Any,
) -> LinkedRecords:
    """Opens the links again with some options changed, also in another process. Rechecks permission."""
    options = merge(ReaderOptions, options, changes)
    store = options.store_of(folder)
    linked = LinkedFiles(store, root, options)
    return open_links(store, folder, field, options, linked, field_type, copy_segment)


def first_url(path: str) -> str | None:
    """Returns the URL of a linked file of a local dataset, for an error message; None if none is found."""
    store = LocalStore()
    with contextlib.suppress(OSError, ValueError):
        shards = sorted(name for name in store.names(path) if name.isdecimal())[:1]
        for folder in (path, *(store.join(path, name) for name in shards)):
            for name in sorted(store.names(folder)):
                if name.endswith('.files'):
                    options = ReaderOptions(compression=CompressionNone())
                    files = open_bag(store, store.join(folder, name), options)
                    file = parse_file(files.record(0)).path if files.count else ''
                    if is_url(file):
                        return file
    return None
