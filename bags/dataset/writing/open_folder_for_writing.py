"""Opens a new or existing dataset folder for writing: checks it, writes spec, metadata and journal."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Collection
from typing import Literal, NamedTuple

from bags.bag.checksums import SUFFIX
from bags.bag.journal import Journal
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY, bag_files, is_temporary, linked_fields
from bags.dataset.format.journal import JOURNAL, RemoteJournal
from bags.dataset.format.json_files import has_checksums, remove_json
from bags.dataset.format.metadata import METADATA, Metadata, read_metadata
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import dump_spec, load_spec, type_texts
from bags.dataset.writing.base_writer import BaseWriter, remove_derived
from bags.dataset.writing.resume import ResumeState, records_to_keep
from bags.errors import CorruptError, SpecError
from bags.storage import Store


class OpenedFolder(NamedTuple):
    """A folder whose bags can be opened."""

    mode: Literal['create', 'append', 'overwrite']
    """The mode in which its bags are opened."""
    kept: ResumeState
    """The records that are kept of an earlier writer."""
    counts: list[int]
    """Number of kept records of each bag."""
    identity: tuple[int, bytes] | None
    """The number of datapoints of a closed folder, and its identity file; else None."""


def open_folder_for_writing(
    writer: BaseWriter,
    names: Collection[str],
    refs_format: RefsFormat,
    journal: Journal,
    resume: bool,
    truncate_to: int | None,
    keeps_partial: bool,
) -> OpenedFolder:
    """Prepares a folder so that its bags can be opened.

    Args:
        writer: Its writer, which adopts the metadata, checksums and links of the folder.
        names: The files in it.
        format: The format of its refs.
        journal: Its journal.
        resume, truncate_to: As in `DatasetWriter`.
        keeps_partial: Whether an open episode is kept.
    """
    store, path = writer.store, writer.path
    expect_openable(path, names, resume)
    # A killed writer may have added checksums to some fields but not yet to the refs, or only to metadata.
    is_begun = JOURNAL in names or 'refs.bag' not in names
    is_adding = is_begun and any(name.endswith(SUFFIX) for name in names)
    writer.checksum = writer.checksum or is_adding or has_checksums(names)
    spec_path = store.join(path, 'spec.json')
    if 'spec.json' in names:
        found = load_spec(store.read(spec_path), spec_path)
        if found != writer.schema:
            raise SpecError(None, f'the spec of the folder, {type_texts(found)}', writer.spec, path)
    elif any(name.endswith(BAG_SUFFIXES) for name in names):
        raise CorruptError(path, None, 'has bags, but no spec.json')
    elif METADATA in names:  # Of a writer that was killed before it has written the spec.
        remove_json(store, store.join(path, METADATA))
    # Before spec.json: it has the order of the fields, which `recover` needs once there is a spec.
    writer.write_metadata([path], read_earlier_metadata(store, path, names))
    if 'spec.json' not in names:
        store.replace(spec_path, dump_spec(writer.schema), None)
    mode: Literal['create', 'append', 'overwrite'] = 'create'
    kept = None
    if resume:
        mode = 'append'
        kept = records_to_keep(store, path, refs_format, names, writer.linked_fields, writer.settings.storage)
        if kept is None and store.is_remote:
            mode = 'overwrite'  # Bags without refs, left by a killed writer.
            expect_no_refs(store, path)
        elif kept is not None and truncate_to is not None and truncate_to < kept.counts['refs']:
            kept = kept.truncated(truncate_to)
            remove_derived(store, path)
    kept = kept or ResumeState({})
    writer.accept_links(linked_fields(path, writer.schema, names, writer.linked_fields))
    for name in filter(is_temporary, names):
        store.remove(store.join(path, name))  # Left by a killed writer, as the folder is locked.
    bags = bag_files(path, writer.schema, names, writer.linked_fields)
    counts = [kept.counts.get(name, 0) for name in bags]
    before = [kept.before.get(name, count) for name, count in zip(bags, counts, strict=True)]
    if resume and keeps_partial and truncate_to is None and not store.is_remote:
        journal.find_open(counts)
    if not store.is_remote:  # Otherwise the writer has created the journal before it listed the folder.
        journal.create(counts, before if kept.before else None)
    identity = None
    if IDENTITY in names:
        if truncate_to is None and not kept.dropping:
            # On an object store, a writer from which the folder was just taken may have removed it.
            with contextlib.suppress(FileNotFoundError):
                identity = counts[0], store.read(store.join(path, IDENTITY))
        remove_json(store, store.join(path, IDENTITY))
    return OpenedFolder(mode, kept, counts, identity)


def read_earlier_metadata(store: Store, folder: str, names: Collection[str]) -> Metadata | None:
    """Returns the metadata of a folder; None if no writer has written any.

    It is written before the spec. Earlier versions wrote it after the spec and before the first bag.
    """
    is_whole = METADATA in names or any(name.endswith(BAG_SUFFIXES) for name in names)
    if 'spec.json' not in names or not is_whole:
        return None
    return read_metadata(store, folder, names)


def expect_openable(path: str, names: Collection[str], resume: bool) -> None:
    """Raises FileExistsError if a folder with files of these names cannot be written by `DatasetWriter`."""
    has_shards = 'spec.json' not in names and any(name.isdigit() for name in names)
    if has_shards or (names and not resume):
        detail = 'the folder is not empty (resume=True appends to a dataset)'
        if has_shards:
            detail = 'the folder has shards (ShardedDatasetWriter appends to them)'
        raise FileExistsError(errno.EEXIST, detail, path)


def take_folder(writer: BaseWriter, journal: RemoteJournal, names: set[str], resume: bool) -> set[str]:
    """Takes a folder on an object store for a writer, and lists it again.

    Args:
        writer: The writer.
        journal: The journal of the folder.
        names: The files that were listed in it.
        resume: As in `DatasetWriter`.

    Returns:
        The files in the folder now, without the journal if there was none before.

    Raises:
        FileExistsError, BlockingIOError: The folder cannot be written, or another writer has just begun.
        OSError: The listing is wrong.
    """
    store, path = writer.store, writer.path
    expect_openable(path, names, resume)
    journal.take(JOURNAL in names)
    listed = set(store.names(path))
    journal.expect_listed(listed)
    if resume and 'refs.bag' not in listed and store.exists(store.join(path, 'refs.bag')):
        listed = set(store.names(path))  # The writer that had the folder was just closing it.
    if JOURNAL not in names:
        listed.discard(JOURNAL)
    expect_openable(path, listed, resume)
    return listed


def expect_no_refs(store: Store, folder: str) -> None:
    """Raises OSError if a folder on an object store has refs, although a listing does not have them."""
    path = store.join(folder, 'refs.bag')
    if store.exists(path):
        detail = 'exists, but is missing in the listing of its folder, which may be out of date: try again'
        raise OSError(errno.ESTALE, detail, path)
