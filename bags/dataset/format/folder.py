"""The files of a dataset folder: their names, the library that wrote them, and the bag of each field."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Set as AbstractSet
from typing import NoReturn

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.compression import check_dictionary, codec_for
from bags.bag.journal_recovery import check_certain
from bags.bag.open import open_bag
from bags.bag.options import (
    CompressionAutoDetect,
    CompressionTrained,
    LimitsPlacement,
    LimitsStorage,
    ReaderOptions,
)
from bags.bag.records import StoredRecords
from bags.concurrency import cached_attribute, map_concurrently
from bags.dataset import above
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY, bag_files, bag_suffix
from bags.dataset.format.folder_layout import FolderLayout, parse_layout
from bags.dataset.format.identity import read_id
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.listing import is_being_made, list_folder, names_in, not_a_folder
from bags.dataset.format.metadata import METADATA, Metadata, in_order, read_metadata, without_order
from bags.dataset.format.shard_index import INDEX, Shard
from bags.dataset.format.spec import Schema, load_spec
from bags.errors import BagsError, CorruptError, SpecError
from bags.links.files import LINKED
from bags.links.linked_files import LinkedFiles
from bags.links.open import open_links
from bags.links.segments import Segment
from bags.storage import Hints, Store
from bags.storage.base import MAX_SMALL_FILE_BYTES
from bags.storage.memory_file import MemoryFile
from bags.validation import merge


class Folder:
    """The files of a dataset folder: its spec, its refs, and the bag of each field.

    Args:
        store, path, options: The folder, and the options of its bags.
        known: The entry of the folder in a listing or in shards.json, if it was read.
        whole: The folder of the dataset, if this is one of its shards.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        options: ReaderOptions,
        known: Shard | None = None,
        whole: Folder | None = None,
    ) -> None:
        self.store = store
        self.path = path
        self.options = options
        self._whole = whole
        self.listed = known
        """The entry of the folder in a listing or in shards.json, if it was read; maybe without all files."""
        self.known: Shard | None = None
        """The same, if it has all files."""
        if known is not None:
            if not known.name or (known.sizes and (known.counts is not None or store.can_list)):
                self.known = known
                if store.is_remote:
                    self.names = known.sizes.keys()
            # The files are read in the versions in which they were listed.
            if known.versions:
                store.expect_versions(path, known.versions, known.version_type)
        self.unlisted: list[str] = []
        """Names of the files that were opened, and whose versions were not listed."""
        self.confirmed = 0
        """The number of these files that `confirm` has found to be of this folder."""
        self._spec: bytes | None = None
        self.refs: BagFile | None = None
        """The refs of a remote folder, once they are open."""
        self.version: str | None = None
        """The version of a local spec.json that `load` has read."""
        self._has_begun = False
        """Whether a writer has created the refs, but has not written a datapoint yet."""
        self.starts = options.limits_placement is LimitsPlacement.STARTS
        """Whether Bags 0.x wrote the folder; known after `open_refs`."""

    @cached_attribute
    def linked(self) -> LinkedFiles:
        """The linked files of all folders of the dataset."""
        if self._whole is not None:
            return self._whole.linked
        return LinkedFiles(self.store, self.path, self.options)

    @cached_attribute
    def metadata(self) -> Metadata:
        """The metadata of the author, from metadata.json."""
        return without_order(self.stored_metadata)

    @cached_attribute
    def stored_metadata(self) -> Metadata:
        """The content of metadata.json, including the author's order of fields."""
        if not self.store.is_remote:
            return read_metadata(self.store, self.path, self.names)
        listed = {} if self.listed is None else self.listed.versions
        try:
            metadata = read_metadata(self.store, self.path, self.names)
            is_listed = METADATA in listed or not metadata
        except CorruptError:
            self._expect_no_metadata()
            metadata, is_listed = read_metadata(self.store, self.path, self.names), False
        if not is_listed and IDENTITY in listed:
            try:  # After the metadata: a writer that replaces the folder removes the identity first.
                self.store.read(self.store.join(self.path, IDENTITY))
            except FileNotFoundError:
                self._expect_unlisted(IDENTITY)
        if metadata or METADATA in self.names:  # Written after shards.json, it is not in `names`.
            self._expect_id(METADATA, '')
            self.confirm()
        return metadata

    def _expect_no_metadata(self) -> None:
        """Makes the store read the present metadata, if the identity shows whether the folder was replaced.

        `bags.set_metadata` may have written metadata since the folder was listed.
        """
        from bags.storage.cache.store import CachedStore

        listed = self.listed
        if listed is None or (listed.id is None and IDENTITY not in listed.versions):
            return
        changed = (METADATA, checksums_name(METADATA))
        versions = {name: stat for name, stat in listed.versions.items() if name not in changed}
        self.listed = listed._replace(versions=versions)
        if isinstance(self.store, CachedStore):
            for name in (*changed, IDENTITY):
                self.store.forget(self.store.join(self.path, name))
        elif listed.versions:
            self.store.expect_versions(self.path, versions, listed.version_type)

    def in_order(self, schema: Schema) -> Schema:
        """Returns a schema in the order of fields in metadata.json; sorted if it cannot be read."""
        with contextlib.suppress(OSError, BagsError):
            return in_order(schema, self.stored_metadata)
        return schema

    def has(self, name: str) -> bool:
        """Returns whether the folder has a file; in a remote folder, whether it was in the listing."""
        if self.store.is_remote:
            return name in self.names
        return self.store.exists(self.store.join(self.path, name))

    @cached_attribute
    def names(self) -> AbstractSet[str]:
        """Names of the files in the folder; of a remote folder, as of its listing."""
        return names_in(self.store, self.path)

    def load(self, refs: bool = True, order: bool = True) -> None:
        """Reads the files needed to open the folder, once. Errors are raised when the content is used.

        The spec is always read: `check_pinned` later compares its version, to detect that another dataset has
        replaced this one. In a remote folder, the refs and, for the order of fields, the metadata are read
        concurrently, unless `refs` or `order` is False.
        """
        if self._spec is not None:
            return
        if self.store.is_remote:
            names = ['spec.json', 'refs.bag'] if refs else ['spec.json']
            if self.known is None:
                names.append('')
            elif order and METADATA in self.names:
                names.append(METADATA)
            if self.options.cache is not None:
                self.learn()
            map_concurrently(self._load_file, names, max_threads=len(names))
            if self.listed is None and self.known is not None:
                self.listed = listed = self.known
                if listed.versions:
                    self.store.expect_versions(self.path, listed.versions, listed.version_type)
            return
        with contextlib.suppress(OSError):
            file = self.store.open(self.store.join(self.path, 'spec.json'), Hints(mapped=False))
            if file.size <= MAX_SMALL_FILE_BYTES:  # Else `layout` raises.
                self._spec, self.version = bytes(file.fetch(0, file.size)), file.version

    def _load_file(self, name: str) -> None:
        path = self.store.join(self.path, name)
        with contextlib.suppress(OSError, BagsError):
            if name == 'refs.bag':
                # Only readers of the whole folder need all limits in memory.
                options = merge(ReaderOptions, self.options, {'limits_storage': LimitsStorage.ON_DISK})
                self.refs = open_bag(self.store, path, options)
            elif name == METADATA:
                _ = self.stored_metadata
            elif name:
                self._spec = self.store.read(path)
            else:
                self.known = list_folder(self.store, self.path)
                self.names = self.known.sizes.keys()

    def check_pinned(self) -> None:
        """Raises CorruptError if another dataset has replaced this one in a local folder."""
        with contextlib.suppress(FileNotFoundError):
            path = self.store.join(self.path, 'spec.json')
            if self.version is not None and self.version != self.store.stat(path).version:
                raise CorruptError(self.path, None, 'was replaced by another since the dataset was opened')

    @property
    def granular(self) -> bool:
        """Whether Granular wrote the folder."""
        return not self.has('refs.bag') and any(name.endswith('.idx') for name in self.names)

    def layout(self) -> FolderLayout:
        """Returns the schema, and the format of the refs.

        Raises:
            SpecError: The spec.json is invalid, or has types that Granular does not have.
        """
        path = self.store.join(self.path, 'spec.json')
        data = self.store.read(path) if self._spec is None else self._spec
        try:
            layout = parse_layout(data)
        except SpecError:
            load_spec(data, path)  # Raises an error with the path.
            raise
        for name, field_type in layout.schema.items():
            if (field_type.sequence or field_type.optional) and self.granular:
                raise SpecError(name, 'a plain type, as in all specs of Granular', field_type.text, self.path)
        return layout

    def open_refs(self) -> BagFile | None:
        """Opens the refs, and determines which library wrote them; returns None for Granular, which has no
        refs.

        Raises:
            FileNotFoundError: The folder does not exist, or does not contain a dataset.
            CorruptError: The refs are missing although a spec exists, or the refs are damaged.
        """
        path = self.store.join(self.path, 'refs.bag')
        if self.options.cache is not None:
            self.learn()
        try:
            refs = self.refs or open_bag(self.store, path, self.options)
            if self.store.is_remote:
                self._check_known(refs)
        except NotADirectoryError:
            raise not_a_folder(self.path) from None
        except FileNotFoundError:
            self._expect_unlisted('refs.bag')
            if 'spec.json' in self.names and self.granular:
                self.options = merge(ReaderOptions, self.options, {'limits_placement': LimitsPlacement.IDX})
                return None
            raise self._without_refs(path) from None
        if not self.store.is_remote and self.has(JOURNAL):
            self._check_certain()
        is_legacy = refs.count > 0
        if refs.count > 1:
            # The last limits were read with the size. If they imply `count` rows of one length, the table
            # does not begin with a start: with a start, it would have one row fewer.
            before, last = refs.ends[refs.count - 2 : refs.count].tolist()
            is_legacy = not last or last != (last - before) * refs.count
        if is_legacy and not int(refs.ends[0:1][0]):
            # Refs records are never empty, so this table begins with a start: Bags 0.x wrote it.
            self.options = merge(ReaderOptions, self.options, {'limits_placement': LimitsPlacement.STARTS})
            self.starts = True
            refs = open_bag(self.store, path, self.options)
            if self.store.is_remote:
                self.refs = refs
        if not refs.count:
            # Uses the files opened above: the writer may have closed the folder since.
            if refs.limits.path != refs.file.path or self.names & {'limits.refs.bag', JOURNAL}:
                self._has_begun = True
            elif not refs.end:
                self._check_empty(refs)
        if refs.checksums is not None:
            spec = self._spec or self.store.read(self.store.join(self.path, 'spec.json'))
            refs.checksums.check_companion(spec, 'spec.json')
        return refs

    def _check_certain(self) -> None:
        """Raises CorruptError if a power cut may have damaged an unclosed folder."""
        layout = self.layout()
        names = names_in(self.store, self.path)
        paths = [
            self.store.join(self.path, name) for name in bag_files(self.path, layout.schema, names).values()
        ]
        check_certain(self.store, self.store.join(self.path, JOURNAL), paths, self.path)

    def _without_refs(self, path: str) -> Exception:
        """Returns the error for a folder that has neither refs nor the files of Granular."""
        if 'spec.json' not in self.names:
            detail = 'no spec.json'
            if any(name.isdigit() for name in self.names):
                detail += ', but shard folders (bags.open opens both)'
            return FileNotFoundError(errno.ENOENT, detail, self.store.join(self.path, 'spec.json'))
        if is_being_made(self.names, self.store.is_remote):
            return FileNotFoundError(errno.ENOENT, 'no refs yet: the dataset is being created', path)
        return CorruptError(self.path, None, 'has a spec.json, but neither refs.bag nor the .idx of Granular')

    def length(self) -> int:
        """Returns the number of datapoints with as few reads as possible."""
        refs = self.open_refs()
        return self.shortest(self.layout().schema) if refs is None else refs.count

    def shortest(self, schema: Schema) -> int:
        """Returns the number of records of the field with the fewest records."""
        return min((self.open_bag(name).count for name in schema), default=0)

    def _check_empty(self, refs: BagFile) -> None:
        """Raises CorruptError if a bag is not empty; called if the refs of a closed dataset are empty."""
        for name in self.names:
            if name.endswith(BAG_SUFFIXES) and self.store.stat(self.store.join(self.path, name)).size:
                # A writer that has opened the folder since has a journal, or, after closing it, more refs.
                is_begun = self.store.exists(self.store.join(self.path, JOURNAL))
                if is_begun or self.store.stat(refs.path).size > refs.file.size:
                    self._has_begun = True
                    return
                raise CorruptError(refs.path, None, f'is empty, but {name} is not')

    def open_bag(self, field: str) -> StoredRecords:
        """Opens the bag of a field, or its links, once the refs are open.

        Raises:
            CorruptError: The bag is missing or damaged, or the field has two bags.
        """
        options = self.options
        suffix = bag_suffix(self.path, field, self.has)
        if suffix is None:
            # The bag may have been created after the folder was listed.
            self.names = names_in(self.store, self.path)
            suffix = bag_suffix(self.path, field, self.has)
        path = self.store.join(self.path, field + (suffix or '.bag'))
        if suffix == LINKED[0]:
            return self._open_links(field)
        if suffix is None:
            if not self._has_begun:
                detail = f'field {field!r}: has neither {field}.bag nor {field}.bagz'
                raise CorruptError(self.path, None, detail)
            # The writer has not created the bag yet: the dataset is empty.
            empty = MemoryFile(path, b'')
            return BagFile(path, empty, empty, 0, 0, 0, None, False)
        if options.checksum and not self.store.exists(checksums_name(path)):
            raise CorruptError(path, None, 'has no checksums, but refs.bag has')
        try:
            bag = open_bag(self.store, path, options)
        except FileNotFoundError as exc:
            detail = f'field {field!r}: is missing {exc.filename}'
            self._expect_unlisted(os.path.basename(path), detail)
            raise CorruptError(self.path, None, detail) from exc
        if self.store.is_remote:
            self._check_known(bag)
        else:
            self.check_pinned()
        if bag.codec is not None and isinstance(options.compression, CompressionAutoDetect):
            # Read after the bag: a dictionary is written before the first frame that needs it.
            dictionary_path = self.store.join(self.path, f'{field}.zdict')
            dictionary = b''
            if self.has(f'{field}.zdict'):
                with contextlib.suppress(FileNotFoundError):  # Frames that need it raise.
                    dictionary = check_dictionary(self.store.read(dictionary_path), dictionary_path)
            zstd = CompressionTrained(dictionary=dictionary, path=dictionary_path)
            bag.codec = codec_for(path, zstd, options.max_record_size)
            bag.reopen = bag.reopen and functools.partial(bag.reopen, compression=zstd)
            if bag.checksums is not None and bag.count:
                bag.checksums.check_companion(zstd.dictionary, zstd.path)
        elif bag.checksums is not None:
            bag.checksums.check_companion(b'', 'what the bag needs')
        return bag

    def _open_links(self, field: str) -> StoredRecords:
        """Opens the links of a field."""
        field_type = self.layout().schema[field]
        records = open_links(
            self.store, self.path, field, self.options, self.linked, field_type, _copy_segment
        )
        for bag in records.own_bags if self.store.is_remote else ():
            self._check_known(bag)
        self.check_pinned()
        return records

    def learn(self) -> None:
        """Lists the folder with one request, which tells the cache the versions of all files."""
        from bags.storage.cache.store import CachedStore

        if isinstance(self.store, CachedStore):
            self.store.learn(self.path)

    def _check_known(self, bag: BagFile) -> None:
        """Compares the size and number of records of a bag with shards.json or a listing.

        Raises:
            CorruptError: They differ.
        """
        name = os.path.basename(bag.path)
        if self.listed is not None and self.listed.id is not None:
            self._expect_id(name, bag.file.version)
        if self.known is None:
            return
        size = self.known.sizes.get(name)
        if size != bag.file.size:
            self.raise_changed(f'expected {size} bytes of {name}, got {bag.file.size}')
        before, version = self.known.versions.get(name), bag.file.version
        if before is not None and version and version != before.version and self._are_comparable():
            self.raise_changed(f'expected version {before.version:.80} of {name}, got {version:.80}')
        count = None if self.known.counts is None else self.known.counts.get(name)
        if count is not None and count != bag.count and not self.starts:
            self.raise_changed(f'expected {count} records of {name}, got {bag.count}')

    def _expect_unlisted(self, name: str, detail: str = '') -> None:
        """Raises CorruptError for a file that is missing now, if it was listed in this remote folder."""
        listed = self.known or self.listed
        if self.store.is_remote and listed is not None and name in listed.sizes:
            self.raise_changed(detail or f'is missing {name}')

    def _are_comparable(self) -> bool:
        """Returns whether the listing has versions of the type that the store has in this process."""
        return self.known is not None and self.known.version_type == self.store.version_type

    def _expect_id(self, name: str, version: str) -> None:
        """Notes that a file was opened, unless it was listed with its version."""
        # Once the id was confirmed, all files of a listing that was made before are of this folder.
        listed = self.known if self.confirmed and self.known is not None else self.listed
        if listed is not None and not (version and name in listed.versions):
            self.unlisted.append(name)

    def confirm(self) -> None:
        """Compares the id in source.json with shards.json, or with source.json when the dataset was opened.

        Called before data of files are returned whose versions were not listed. The id is requested after
        these files were opened; writers remove it before they change a folder.

        Raises:
            CorruptError: The folder was replaced.
        """
        count = len(self.unlisted)  # Other threads may open files from now on.
        if count <= self.confirmed or self.listed is None or self.listed.id is None:
            return
        expected, id = self.listed.id, read_id(self.store, self.path)
        if id != expected:
            detail = f'was replaced since the dataset was opened: expected id {expected:.80} in {IDENTITY}, '
            detail += f'got {"none" if id is None else id:.80}; open the dataset again'
            if self.options.cache_check == 'never':
                detail += " without cache_check='never', which takes versions from the cache"
            if self.listed.counts is not None:
                detail += f'; if this remains, {INDEX} is stale: run bags consolidate'
            raise CorruptError(self.path, None, detail)
        self.confirmed = count

    def raise_changed(self, detail: str) -> NoReturn:
        """Raises CorruptError: the folder differs from shards.json, or from the listing at open."""
        detail += ': it was replaced since the dataset was opened; open it again'
        if self.known is not None and self.known.counts is not None:
            detail += f'; if this remains, {INDEX} is stale: run bags consolidate'
        raise CorruptError(self.path, None, detail)


def _copy_segment(segment: Segment) -> bytes:
    return above.copy_segment(segment)
