"""Opens a new or existing sharded dataset for writing: counts its shards, and finds the unfinished one."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from bags.bag.checksums import SUFFIX
from bags.bag.compression import check_dictionary
from bags.dataset.format.file_names import bag_suffix, begun_suffix, is_linked, is_temporary
from bags.dataset.format.journal import ShardsJournal
from bags.dataset.format.listing import is_being_made
from bags.dataset.format.shard_index import numbered
from bags.dataset.format.sizes import folder_size
from bags.dataset.format.spec import load_spec, union
from bags.dataset.reader import DatasetReader
from bags.dataset.writing.base_writer import BaseWriter
from bags.dataset.writing.open_folder_for_writing import expect_no_refs, read_earlier_metadata
from bags.dataset.writing.reopen import reopen
from bags.dataset.writing.resume import remove_files
from bags.errors import CorruptError, SpecError
from bags.storage import Store


class OpenedShards(NamedTuple):
    """The shards of earlier writers."""

    number: int
    """The number of the shard to write next."""
    unfinished: str | None
    """The path of that shard, if it was not closed."""
    shards: int
    """Number of complete shards."""
    size: int
    """Bytes of the complete shards."""
    length: int
    """Number of datapoints in the complete shards."""


def open_shards_for_writing(
    writer: BaseWriter,
    journal: ShardsJournal,
    start: int,
    step: int,
    resume: bool,
    of_partial: dict[str, Any],
    removed: set[str],
) -> OpenedShards:
    """Prepares the folder of the shards: completes and counts existing shards.

    Args:
        writer: Its writer, which adopts the metadata, checksums, links and dictionaries of the dataset.
        journal: Its journal.
        start, step: The numbers of the writer's shards: `start`, `start + step`, …
        resume: As in `ShardedDatasetWriter`.
        of_partial: The options `partial` and `partial_values`.
        removed: The incomplete shards that an earlier call has removed from an object store; this call adds
            others. Their writer may have uploaded more files since.

    Raises:
        FileExistsError: Without `resume`, shards with these numbers, or other files, exist.
        SpecError, CorruptError: A shard has another spec, or cannot be read.
    """
    store, number = writer.store, start
    names = store.names(writer.path)
    for name in filter(is_temporary, list(names) if resume and step == 1 else ()):
        store.remove(store.join(writer.path, name))
        names.remove(name)
    if 'spec.json' in names or (names and not resume and step == 1):
        raise FileExistsError(
            errno.EEXIST, 'the folder is not empty (resume=True appends to its shards)', writer.path
        )
    journal.find(names)
    if store.is_remote:
        names = _take_dataset(writer, journal, names, start, step, resume)
    shards = [
        (each, store.join(writer.path, name))
        for each, name in numbered(names, writer.path).items()
        if each >= start and (each - start) % step == 0
    ]
    if shards and not resume:
        raise FileExistsError(errno.EEXIST, 'the shard exists already', shards[0][1])
    stored = read_earlier_metadata(store, shards[0][1], _names_in(store, shards[0][1])) if shards else None
    incomplete: list[str] = []
    while shards and store.is_remote and not _is_complete(store, shards[-1][1], removed):
        number, path = shards.pop()
        incomplete.append(path)
    if incomplete:
        journal.create()
    unfinished = None
    if shards:
        last, path = shards[-1]
        find_dictionaries(writer, path)
        names = store.names(path)
        writer.linked_fields |= linked_and_copied(store, [path for _, path in shards], writer.schema)[0]
        checksums = store.join(shards[0][1], f'refs.bag{SUFFIX}')  # The last shard may not have them yet.
        writer.checksum = writer.checksum or f'refs.bag{SUFFIX}' in names or store.exists(checksums)
        if store.is_remote or ('refs.bag' in names and 'limits.refs.bag' not in names):
            number = last + step
        else:
            file = store.join(path, 'spec.json')
            schema = load_spec(store.read(file), file) if 'spec.json' in names else writer.schema
            if schema != writer.schema and union(schema, writer.schema) == writer.schema:
                # An existing shard cannot get new fields: the next shard has them.
                _close_again(writer, journal, path, of_partial)
                number = last + step
            else:
                number, unfinished = shards.pop()
    size = length = 0
    for _, path in shards:
        more = _count(writer, journal, path, of_partial)
        size, length = size + more[0], length + more[1]
    if journal.is_unfinished:
        journal.create()
    writer.write_metadata((path for _, path in shards), stored)
    for path in incomplete:  # Last: after an error, the writer of these shards may still close them.
        if path not in removed:
            expect_no_refs(store, path)
        journal.set_changed()
        removed.add(path)
        remove_files(store, path, is_foreign=True)
    return OpenedShards(number, unfinished, len(shards), size, length)


def _names_in(store: Store, shard: str) -> list[str]:
    """Returns the files of a shard; none if another process has removed it since it was listed."""
    try:
        return store.names(shard)
    except FileNotFoundError:
        return []


def _is_complete(store: Store, shard: str, removed: Collection[str]) -> bool:
    """Returns whether a shard on an object store has its refs, which are uploaded last."""
    if 'refs.bag' not in _names_in(store, shard):
        return False
    return shard not in removed or store.exists(store.join(shard, 'spec.json'))


def _take_dataset(
    writer: BaseWriter, journal: ShardsJournal, names: list[str], start: int, step: int, resume: bool
) -> list[str]:
    """Takes a dataset on an object store for a writer, before its shards are counted.

    The writer of a finished dataset takes it with its first new shard.

    Args:
        writer, journal, start, step, resume: As in `open_shards_for_writing`.
        names: The files and shards that were listed.

    Returns:
        The files and shards of the dataset now.
    """
    store, path = writer.store, writer.path
    has_shards = any(number >= start and (number - start) % step == 0 for number in numbered(names, path))
    if not resume and (has_shards or journal.is_unfinished):
        detail = 'shards with these numbers exist, or a writer has begun them (resume=True appends to them)'
        raise FileExistsError(errno.EEXIST, detail, path)
    if has_shards and not journal.is_unfinished:
        return names
    journal.create()
    listed = store.names(path)
    if journal.remote is not None:
        journal.remote.expect_listed(listed)
    if 'spec.json' in listed or (not resume and step == 1 and len(listed) > 1):
        raise FileExistsError(errno.EEXIST, 'the folder is no longer empty: another writer was here', path)
    return listed


def linked_and_copied(
    store: Store, shards: Sequence[str], fields: Collection[str]
) -> tuple[set[str], set[str]]:
    """Returns the fields that are linked in existing shards, and the fields that are not.

    Looks at the last shards, back to a closed one with datapoints: after a kill, others may lack the bags of
    some fields. Fields of a closed shard without datapoints may still become linked in the next shard.
    """
    linked: set[str] = set()
    copied: set[str] = set()
    for path in reversed(shards):
        names = store.names(path)
        is_closed = 'refs.bag' in names and 'limits.refs.bag' not in names
        is_empty = is_closed and not store.stat(store.join(path, 'refs.bag')).size
        linked |= {name for name in fields if is_linked(name, names)}
        if not is_empty:
            copied |= {
                name
                for name in fields
                if bag_suffix(path, name, names.__contains__) or begun_suffix(name, names)
            }
        if is_closed and not is_empty:
            break
    return linked, copied - linked


def find_dictionaries(writer: BaseWriter, shard: str) -> None:
    """Reuses the dictionaries that were trained for a shard."""
    for name, how in writer.compressions.items():
        path = writer.store.join(shard, f'{name}.zdict')
        if how.trained and not how.dictionary and writer.store.exists(path):
            dictionary = check_dictionary(writer.store.read(path), path)
            writer.compressions[name] = how._replace(dictionary=dictionary)


def _close_again(writer: BaseWriter, journal: ShardsJournal, shard: str, of_partial: dict[str, Any]) -> None:
    """Closes a shard of an earlier writer, so that it is on disk."""
    journal.create()
    file = writer.store.join(shard, 'spec.json')
    schema = load_spec(writer.store.read(file), file)
    options = {
        'encoders': writer.encoder.functions,
        'linked_fields': (writer.linked_fields & schema.keys())
        - linked_and_copied(writer.store, [shard], schema)[1],
        'durability': writer.settings.durability,
        **writer.settings.storage,
    }
    reopen(shard, schema, *of_partial.values(), **options).close()


def _count(
    writer: BaseWriter, journal: ShardsJournal, shard: str, of_partial: dict[str, Any]
) -> tuple[int, int]:
    """Returns the bytes and the datapoints of a complete shard."""
    names = () if writer.store.is_remote else writer.store.names(shard)
    if 'limits.refs.bag' in names or ('spec.json' in names and is_being_made(names)):
        _close_again(
            writer, journal, shard, of_partial
        )  # It was being closed while the next one was written.
    try:
        reader = DatasetReader(shard, raw=True, **writer.settings.storage)
    except FileNotFoundError as exc:
        raise CorruptError(shard, None, 'shard without spec.json') from exc
    if union(writer.schema, reader.schema) != writer.schema:
        expected = f'the spec of the other shards, {reader.spec}, and any optional fields'
        raise SpecError(None, expected, writer.spec, shard)
    if reader.unfinished:
        journal.add_shard(shard)
    return folder_size(reader.folder, linked=False), len(reader)
