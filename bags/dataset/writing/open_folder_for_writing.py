"""Begins to write a dataset folder, or continues one: checks it, and writes its spec, metadata and journal."""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import Literal, NamedTuple

from bags.bag.checksums import SUFFIX
from bags.bag.journal import Journal
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY, bag_files, is_temporary, linked_fields
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.json_files import has_checksums, remove_json
from bags.dataset.format.metadata import read_metadata
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import dump_spec, load_spec, type_texts
from bags.dataset.writing.base_writer import BaseWriter, remove_derived
from bags.dataset.writing.resume import Kept, records_to_keep
from bags.errors import CorruptError, SpecError


class Begun(NamedTuple):
    """A folder whose bags can be opened."""

    mode: Literal['create', 'append', 'overwrite']
    """That of its bags."""
    kept: Kept
    """What is kept of an earlier writer."""
    counts: list[int]
    """Number of records that are kept of each bag."""
    identity: tuple[int, bytes] | None
    """Of a closed folder, the number of datapoints, and its identity file."""


def begin_folder(
    writer: BaseWriter,
    names: Collection[str],
    format: RefsFormat,
    journal: Journal,
    resume: bool,
    truncate_to: int | None,
    keeps_partial: bool,
) -> Begun:
    """Prepares a folder, so that its bags can be opened.

    Args:
        writer: Its writer, which learns what the folder has: metadata, checksums and links.
        names: The files in it.
        format: The format of its refs.
        journal: Its journal.
        resume, truncate_to: As in `DatasetWriter`.
        keeps_partial: Whether an open episode is kept.
    """
    store, path = writer.store, writer.path
    # A killed writer may have added checksums to some fields, not to the refs yet, or to metadata alone.
    is_begun = JOURNAL in names or 'refs.bag' not in names
    is_adding = is_begun and any(name.endswith(SUFFIX) for name in names)
    writer.checksum = writer.checksum or is_adding or has_checksums(names)
    has_shards = 'spec.json' not in names and any(name.isdigit() for name in names)
    if has_shards or (names and not resume):
        detail = 'the folder is not empty (resume=True appends to a dataset)'
        if has_shards:
            detail = 'the folder has shards (ShardedDatasetWriter appends to them)'
        raise FileExistsError(errno.EEXIST, detail, path)
    spec_path = store.join(path, 'spec.json')
    if 'spec.json' in names:
        found = load_spec(store.read(spec_path), spec_path)
        if found != writer.types:
            raise SpecError(None, f'that of the folder, {type_texts(found)}', writer.spec, path)
    elif any(name.endswith(BAG_SUFFIXES) for name in names):
        raise CorruptError(path, None, 'has bags, but no spec.json')
    else:
        store.replace(spec_path, dump_spec(writer.types))
    writer.write_metadata([path], read_metadata(store, path, names) if 'spec.json' in names else None)
    mode: Literal['create', 'append', 'overwrite'] = 'create'
    kept = None
    if resume:
        mode, kept = 'append', records_to_keep(store, path, format, names, writer.settings.storage)
        if kept is None and store.is_remote:
            mode = 'overwrite'  # Bags without refs, left by a killed writer.
        elif kept is not None and truncate_to is not None and truncate_to < kept.counts['refs']:
            kept = kept.truncated(truncate_to)
            remove_derived(store, path)
    kept = kept or Kept({})
    writer.accept_links(linked_fields(path, writer.types, names, writer.links))
    for name in filter(is_temporary, names):
        store.remove(store.join(path, name))  # Left by a killed writer, as the folder is locked.
    bags = bag_files(path, writer.types, names, writer.links)
    counts = [kept.counts.get(name, 0) for name in bags]
    before = [kept.before.get(name, count) for name, count in zip(bags, counts, strict=True)]
    if resume and keeps_partial and truncate_to is None and not store.is_remote:
        journal.find_open(counts)
    journal.create(counts, before if kept.before else None)
    identity = None
    if IDENTITY in names:
        if truncate_to is None and not kept.dropping:
            identity = counts[0], store.read(store.join(path, IDENTITY))
        remove_json(store, store.join(path, IDENTITY))
    return Begun(mode, kept, counts, identity)
