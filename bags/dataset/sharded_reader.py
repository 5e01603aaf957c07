"""Reading datasets of many folders: `000000`, `000001`, …, each a dataset by itself."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack

from bags.bag.options import ReaderOptions
from bags.bag.sharding import Concatenated
from bags.concurrency import ClosedHandle, FifoCache, map_concurrently, max_open_bags
from bags.dataset.absent import Absent, Widened
from bags.dataset.address import Address, group_by_part
from bags.dataset.base import Datapoint, Dataset
from bags.dataset.folder import Folder, ReadOptions, open_store
from bags.dataset.metadata import Metadata, read_metadata
from bags.dataset.reader import DatasetReader
from bags.dataset.refs import RefsFormat
from bags.dataset.schema import SchemaCache
from bags.dataset.selection import Selection
from bags.dataset.shard_index import INDEX, Shard
from bags.dataset.shard_list import ShardList, length_by_size, list_shards
from bags.dataset.spec import Spec, union
from bags.errors import CorruptError, SpecError
from bags.indexing import Int64s, check_index
from bags.storage import Hints, Store, store_to_read
from bags.validation import at_least

__all__ = ['ShardedDatasetReader']


@contextlib.contextmanager
def _missing_is_damage(path: str) -> Iterator[None]:
    """Turns files that are missing in a shard into a CorruptError."""
    try:
        yield
    except FileNotFoundError as exc:
        name = os.path.basename(exc.filename or 'spec.json')
        raise CorruptError(path, None, f'shard without {name}') from exc


class ShardedDatasetReader(Dataset):
    """A dataset of many folders, as they were when it was opened. Folders are opened when first read.

    Args:
        directory: The folder of the shard folders: str, path or URL.
        decoders, cache_index: As in `DatasetReader`.
        shard_start, shard_step: Read the shards `shard_start`, `shard_start + shard_step`, … only, so that
            each of `shard_step` workers reads a part of its own.
        raw, filesystem, storage_options, **options: As in `DatasetReader`.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        CorruptError: A shard without spec or refs that is not the last one (which is being written).
        SpecError: Shards of different specs; raises when such a shard is first read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        shard_start: int = 0,
        shard_step: int = 1,
        *,
        raw: bool = False,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        store, path, made = open_store(directory, cache_index, filesystem, storage_options, options)
        self._start(
            store, path, made, SchemaCache(decoders, raw, made.max_value_size), None, shard_start, shard_step
        )

    @classmethod
    def _over(
        cls,
        store: Store,
        path: str,
        options: ReaderOptions,
        schemas: SchemaCache,
        listed: ShardList | None,
        shard_start: int,
        shard_step: int,
    ) -> ShardedDatasetReader:
        """Returns the reader of shards that may be listed already."""
        reader = cls.__new__(cls)
        reader._start(store, path, options, schemas, listed, shard_start, shard_step)
        return reader

    def _start(
        self,
        store: Store,
        path: str,
        options: ReaderOptions,
        schemas: SchemaCache,
        listed: ShardList | None,
        shard_start: int,
        shard_step: int,
    ) -> None:
        shard_start = at_least('shard_start', shard_start, 0)
        shard_step = at_least('shard_step', shard_step, 1)
        self._store, self.directory, self._options, self._schemas = store, path, options, schemas
        listed = list_shards(store, path) if listed is None else listed
        if not listed.shards:
            detail = 'no dataset here: expected spec.json, or shard folders 000000, 000001, …'
            if store.exists(store.join(path, 'spec.json')):
                detail = 'expected folders of shards, got a dataset of one folder (bags.open opens either)'
            elif store.is_remote and path.endswith(('.bag', '.bagz')):
                detail += ' (bags.bag.Reader opens a bag alone)'
            raise FileNotFoundError(errno.ENOENT, detail, path)
        self._unfinished = listed.is_unfinished or None
        chosen = listed.shards[shard_start::shard_step]
        # With more workers than shards, some have none to read; they still have the spec.
        first, share = listed.shards[0], (shard_start, shard_step)
        if listed.types is not None:
            lengths = [shard.length or 0 for shard in chosen]
            self._finish(chosen, lengths, listed.types, first, listed.after, share, listed.shards[-1])
            return
        works: list[Callable[[], Any]] = [lambda: self._open_shard(first)]
        last = listed.shards[-1]
        # Later shards may have more fields, which are optional; then their spec.json is longer.
        if last.sizes.get('spec.json', -1) != first.sizes.get('spec.json'):
            works.append(lambda: self._types_of(last))
        opened, *found = map_concurrently(lambda work: work(), works, self._store.is_remote)
        types = opened._types
        for other in filter(None, found):
            types = union(types, other) or types  # Other differences raise where the shard is read.
        lengths = self._lengths_of(chosen, opened, types)
        self._finish(chosen, lengths, types, first, None, share, listed.shards[-1])
        if shard_start == 0 and types == opened._types:
            self._readers[0] = opened

    def _folder(self, shard: Shard) -> Folder:
        return Folder(self._store, self._store.join(self.directory, shard.name), self._options, shard)

    def _types_of(self, shard: Shard) -> Spec | None:
        """Returns the spec of a shard; None if it cannot be read, which raises where the shard is read."""
        with contextlib.suppress(OSError, SpecError):
            return self._folder(shard).schema(self._schemas).types
        return None

    def _lengths_of(self, shards: list[Shard], opened: DatasetReader, types: Spec) -> list[int]:
        """Returns the datapoints of each shard: by the sizes of its files if they tell, else by its refs."""
        lengths: dict[str, int | None] = {os.path.basename(opened.directory): len(opened)}
        if self._store.is_remote and types == opened._types:
            format = RefsFormat(types)
            # Whether rows have one length is seen in a shard that has some.
            sample = next((shard for shard in shards if shard.sizes.get('refs.bag')), None)
            if sample is not None and sample is not opened._folder.known:
                opened = self._open_shard(sample)
            if sample is None or (
                not opened._folder.starts and len(opened) == length_by_size(sample, format)
            ):
                lengths |= {shard.name: length_by_size(shard, format) for shard in shards}
        rest = [shard for shard in shards if lengths.get(shard.name) is None]

        def count(shard: Shard) -> int:
            folder = self._folder(shard)
            with _missing_is_damage(folder.path):
                return folder.length(self._schemas)

        counts = map_concurrently(count, rest, self._store.is_remote)
        lengths |= zip((shard.name for shard in rest), counts, strict=True)
        return [lengths[shard.name] or 0 for shard in shards]

    def _open_shard(self, shard: Shard) -> DatasetReader:
        folder = self._folder(shard)
        with _missing_is_damage(folder.path):
            return DatasetReader._over(folder, self._schemas)

    def _finish(
        self,
        shards: list[Shard],
        lengths: list[int],
        types: Spec,
        first: Shard,
        after: str | None,
        share: tuple[int, int],
        last: Shard,
    ) -> None:
        self._shards = shards
        self._last = last
        self._types = types
        self._first = first
        self._after = after
        self._share = share
        self._layout = Concatenated(lengths)
        self._lengths_of_shards = lengths
        self.is_remote = self._store.is_remote
        self._sizes: dict[tuple[str, ...] | None, list[int]] = {}
        store, path, options, schemas = self._store, self.directory, self._options, self._schemas
        unseen = [after] if after is not None else []
        root = self._folder(first)
        if not store.is_remote:
            root.pin()

        def find(_field: str) -> DatasetReader:
            return DatasetReader._over(Folder(store, store.join(path, last.name), options, last), schemas)

        def make(number: int) -> DatasetReader | Widened:  # Not a method: a cycle would keep files open.
            folder = Folder(store, store.join(path, shards[number].name), options, shards[number])

            def work(look: bool) -> DatasetReader | None:
                if look:
                    _check_after(store, path, unseen)
                    return None
                with _missing_is_damage(folder.path):
                    return DatasetReader._over(folder, schemas)

            # The look for a shard after the last goes with the first requests of another.
            reader, *_ = map_concurrently(work, [False, True] if unseen else [False], True)
            assert reader is not None
            root.check_pinned()
            if union(types, reader._types) != types:
                texts = {name: kind.text for name, kind in types.items()}
                raise SpecError(None, f'that of the other shards, {texts}', reader.spec, folder.path)
            if store.is_remote and len(reader) != lengths[number]:
                folder.refuse(f'expected {lengths[number]} datapoints, got {len(reader)}')
            reader._pin(lengths[number])
            return reader if len(reader._types) == len(types) else Widened(reader, Absent(find))

        self._metadata: Metadata | None = None
        self._readers: Any = FifoCache(make, max_open_bags() // (len(types) + 1))

    def __len__(self) -> int:
        return self._layout.total

    @property
    def size(self) -> int:
        return sum(self._shard_sizes())

    def _shard_sizes(self, fields: tuple[str, ...] | None = None) -> list[int]:
        if fields not in self._sizes:
            self._sizes[fields] = [self._folder(shard).size(fields) for shard in self._shards]
        return self._sizes[fields]

    @property
    def shards(self) -> int:
        return len(self._shards)

    @property
    def metadata(self) -> Metadata:
        if self._metadata is None:
            self._metadata = read_metadata(self._store, self._store.join(self.directory, self._first.name))
        return copy.deepcopy(self._metadata)

    def _directories(self) -> list[str]:
        return [self.directory]

    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        if not len(indices):  # Any shard knows what an empty column of a type is.
            reader = self._open_shard(self._last)
            if self._shards and self._readers[0]._types == self._types:
                reader = self._readers[0]
            return [Address(reader, indices, selection, None)]
        return [
            Address(_Shard(self, part), within, share, places)
            for part, within, share, places in group_by_part(self._layout, indices, selection)
        ]

    def _part_lengths(self) -> list[int]:
        return self._lengths_of_shards

    def _row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        reader = self._readers[part]
        if type(reader) is Widened and selection is None:
            selection = dict.fromkeys(self._types, True)
        row: Datapoint = reader._row(within, selection)
        return row

    def _bytes_before(self, index: int, fields: tuple[str, ...] | None = None) -> int:
        sizes = self._shard_sizes(fields)
        if index >= len(self):
            return sum(sizes)
        shard, within = self._layout.one(index)
        reader = self._readers[shard]
        # A shard may lack optional fields.
        own = None if fields is None else tuple(name for name in fields if name in reader._types)
        before: int = reader._bytes_before(within, own)
        return sum(sizes[:shard]) + before

    def __repr__(self) -> str:
        start, step = self._share
        which = '' if (start, step) == (0, 1) else f' [{start}::{step}]'
        return (
            f'bags.ShardedDatasetReader({self.directory!r}, {self.spec}, {len(self._shards)} shards{which}, '
            f'{len(self)} datapoints{", unfinished" if self.unfinished else ""})'
        )

    def _is_unfinished(self) -> bool:
        return any(self._folder(shard).is_unfinished() for shard in (self._first, *self._shards))

    def _index_place(self) -> tuple[Store, str, Hints]:
        if self._share != (0, 1):
            raise TypeError(f'find: {self!r:.200}: expected all shards, as the index of a field is of all')
        # Beside the first shard, Bags 0.x and Granular would take it for a shard.
        folder = self._store.join(self.directory, self._first.name)
        hints = Hints(mapped=self._options.mapped, max_parallelism=self._options.max_parallelism)
        return self._store, folder, hints

    def close(self) -> None:
        self._readers = self._key_indexes = ClosedHandle(f'bags.ShardedDatasetReader({self.directory!r})')

    def __getstate__(self) -> dict[str, Any]:
        return {
            'directory': self.directory,
            'options': self._options,
            'schemas': self._schemas,
            'shards': self._shards,
            'lengths': self._lengths_of_shards,
            'types': self._types,
            'first': self._first,
            'after': self._after,
            'share': self._share,
            'last': self._last,
            'unfinished': self._unfinished,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.directory, self._options = state['directory'], state['options']
        self._store, _ = store_to_read(self.directory, self._options)
        self._schemas = state['schemas']
        self._unfinished = state['unfinished']
        self._finish(
            *(state[name] for name in ('shards', 'lengths', 'types', 'first', 'after', 'share', 'last')),
        )


class _Shard:
    """The reader of a shard, opened when something is read from it: in the thread that reads."""

    def __init__(self, dataset: ShardedDatasetReader, number: int) -> None:
        self._dataset = dataset
        self._number = number

    def __len__(self) -> int:
        return self._dataset._lengths_of_shards[self._number]

    def __repr__(self) -> str:
        return repr(self._dataset._readers[self._number])

    @property
    def _folder(self) -> Folder:
        return self._dataset._folder(self._dataset._shards[self._number])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset._readers[self._number], name)


def _check_after(store: Store, path: str, unseen: list[str]) -> None:
    """Makes sure, once, that there is no shard after the last of an index."""
    for name in list(unseen):
        if store.exists(store.join(store.join(path, name), 'spec.json')):
            detail = f'is stale, as it does not have shard {name}: run bags consolidate'
            raise CorruptError(store.join(path, INDEX), None, detail)
    unseen.clear()
