"""Opens the links of a field of a dataset folder, and the bags that they lead to."""

from __future__ import annotations

import functools
from typing import Any

from bags.bag.checksums import Checksums
from bags.bag.open import open_bag
from bags.bag.options import CompressionNone, LimitsStorage, ReaderOptions
from bags.dataset.late_binding import late
from bags.dataset.resume import LINKED
from bags.dataset.spec import FieldType
from bags.errors import CorruptError
from bags.links.linked_files import LinkedFiles
from bags.links.records import LinkedRecords
from bags.links.segments import Segment
from bags.storage import Hints, Store
from bags.validation import merge


def open_links(
    store: Store,
    folder: str,
    field: str,
    options: ReaderOptions,
    linked: LinkedFiles,
    field_type: FieldType | None = None,
) -> LinkedRecords:
    """Opens the links of a field, then the bags that they lead to, which had the records of all of them.

    Args:
        store, folder, field, options: As of a bag.
        linked: The linked files of the dataset.
        field_type: The type of the field, with which segments are read.

    Raises:
        CorruptError: A bag is missing or damaged.
    """
    plain = merge(
        ReaderOptions,
        options,
        {'compression': CompressionNone(), 'checksum': False, 'limits_storage': LimitsStorage.ON_DISK},
    )
    try:
        links, files, values = (
            open_bag(store, store.join(folder, field + suffix), plain) for suffix in LINKED
        )
    except FileNotFoundError as exc:
        raise CorruptError(folder, None, f'field {field!r}: is missing {exc.filename}') from exc
    records = LinkedRecords(field, folder, links, files, values, linked, field_type, _copy_segment)
    records.options = options
    records.reopen = functools.partial(_reopen, folder, field, field_type, options, linked.root)
    if options.checksum:
        try:
            is_closed = links.limits is links.file
            records.checksums = Checksums(store, links.path, links.count, Hints(), is_closed)
        except FileNotFoundError:
            raise CorruptError(links.path, None, 'has no checksums, but refs.bag has') from None
        records.checksums.check_companion(b'', 'what the links need')
    return records


def _copy_segment(segment: Segment) -> bytes:
    data: bytes = late('copy_segment')(segment)
    return data


def _reopen(
    folder: str, field: str, field_type: FieldType | None, options: ReaderOptions, root: str, **changes: Any
) -> LinkedRecords:
    """Opens links again, also in another process, with some other options. Permission is checked again."""
    options = merge(ReaderOptions, options, changes)
    store = options.store_of(folder)
    return open_links(store, folder, field, options, LinkedFiles(store, root, options), field_type)
