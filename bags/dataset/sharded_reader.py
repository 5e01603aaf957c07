"""Reading datasets of many folders: `000000`, `000001`, …, each a dataset by itself."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bags.bag.options import ReaderOptions, merge
from bags.bag.sharding import Concatenated
from bags.concurrency import ClosedHandle, FifoCache, map_concurrently, max_open_bags
from bags.dataset.base import Rows
from bags.dataset.concat import Parts
from bags.dataset.folder import Folder, reader_options
from bags.dataset.reader import DatasetReader
from bags.dataset.refs import RefsFormat
from bags.dataset.schema import SchemaCache
from bags.dataset.shard_index import INDEX, Shard
from bags.dataset.shard_list import ShardList, length_by_size, list_shards
from bags.dataset.spec import Spec
from bags.errors import CorruptError, SpecError
from bags.storage import Store, store_to_read
from bags.validation import at_least

__all__ = ['ShardedDatasetReader']


@contextlib.contextmanager
def _shard(path: str) -> Iterator[None]:
    """Has files that are missing in a shard be damage: they are not the caller's mistake."""
    try:
        yield
    except FileNotFoundError as exc:
        name = os.path.basename(exc.filename or 'spec.json')
        raise CorruptError(path, None, f'shard without {name}') from exc


class ShardedDatasetReader(Parts):
    """A dataset of many folders, as they were when it was opened. Folders are opened when first read.

    Args:
        directory: The folder of the shard folders: str, path or URL.
        decoders, cache_index: As in `DatasetReader`.
        shard_start, shard_step: Which of the shards, counted in order: `shard_start`,
            `shard_start + shard_step`, … So each of n workers reads a part of its own.
        raw, filesystem, storage_options, **options: As in `DatasetReader`.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        CorruptError: A shard without spec or refs that is not the last one (that one is being made).
        SpecError: Shards of different specs; met when a shard is first read.
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
        **options: Any,
    ) -> None:
        options |= {'filesystem': filesystem, 'storage_options': storage_options}
        store, path = store_to_read(directory, merge(ReaderOptions, None, options))
        made = reader_options(store, cache_index, options)
        listed = list_shards(store, path)
        self.start(store, path, listed, made, SchemaCache(decoders, raw), shard_start, shard_step)

    @classmethod
    def over(
        cls,
        store: Store,
        path: str,
        listed: ShardList,
        decoders: Mapping[str, Callable[..., Any]] | None = None,
        cache_index: bool = True,
        shard_start: int = 0,
        shard_step: int = 1,
        *,
        raw: bool = False,
        **options: Any,
    ) -> ShardedDatasetReader:
        """Returns the reader of shards that are known already."""
        reader = cls.__new__(cls)
        made = reader_options(store, cache_index, options)
        reader.start(store, path, listed, made, SchemaCache(decoders, raw), shard_start, shard_step)
        return reader

    def start(
        self,
        store: Store,
        path: str,
        listed: ShardList,
        options: ReaderOptions,
        schemas: SchemaCache,
        shard_start: int,
        shard_step: int,
    ) -> None:
        shard_start, shard_step = (
            at_least('shard_start', shard_start, 0),
            at_least('shard_step', shard_step, 1),
        )
        self._begin(store, path, options, schemas)
        if not listed.shards:
            detail = 'no dataset here: expected spec.json, or shard folders 000000, 000001, …'
            if store.exists(store.join(path, 'spec.json')):
                detail = 'expected folders of shards, got a dataset of one folder (bags.open opens either)'
            elif store.is_remote and path.endswith(('.bag', '.bagz')):
                detail += ' (bags.bag.Reader opens a bag alone)'
            raise FileNotFoundError(errno.ENOENT, detail, path)
        chosen = listed.shards[shard_start::shard_step]
        # Of more workers than shards, some have nothing to read; they still know the spec.
        first, types = listed.shards[0], listed.types
        opened: DatasetReader | None = None
        if types is None and store.is_remote:
            opened = self._reader_of(first)
        lengths = self._lengths_of(chosen, first, opened)
        if types is None:
            types = self._reader_of(first).types if opened is None else opened.types
        self._finish(chosen, lengths, types, first, listed.after, (shard_start, shard_step))
        if opened is not None and chosen and chosen[0] is first:
            self.parts[0] = opened

    def _begin(self, store: Store, path: str, options: ReaderOptions, schemas: SchemaCache) -> None:
        self._store, self.directory, self._options, self._schemas = store, path, options, schemas
        self.is_remote = store.is_remote

    def _folder(self, shard: Shard) -> Folder:
        return Folder(self._store, self._store.join(self.directory, shard.name), self._options, shard)

    def _lengths_of(self, shards: list[Shard], first: Shard, opened: DatasetReader | None) -> list[int]:
        """Returns the datapoints of each shard: as its index says or its sizes tell, else as its refs do."""
        lengths: list[int | None] = [shard.length for shard in shards]
        if opened is not None:
            format = RefsFormat(opened.types)
            # Whether rows have one length is seen in a shard that has some.
            sample = next((shard for shard in shards if shard.sizes.get('refs.bag')), None)
            if sample is not None and sample is not first:
                opened = self._reader_of(sample)
            if sample is None or (opened.has_even_refs and len(opened) == length_by_size(sample, format)):
                lengths = [length_by_size(shard, format) for shard in shards]
        unknown = [place for place, length in enumerate(lengths) if length is None]

        def work(place: int) -> int:
            folder = self._folder(shards[place])
            with _shard(folder.path):
                return folder.length(self._schemas)

        for place, length in zip(unknown, map_concurrently(work, unknown, self.is_remote), strict=True):
            lengths[place] = length
        return [length for length in lengths if length is not None]

    def folder(self, number: int) -> Folder:
        """Returns the files of a shard."""
        return self._folder(self._shards[number])

    def _reader_of(self, shard: Shard) -> DatasetReader:
        folder = self._folder(shard)
        with _shard(folder.path):
            return DatasetReader.over(folder, self._schemas)

    def _finish(
        self,
        shards: list[Shard],
        lengths: list[int],
        types: Spec,
        first: Shard,
        after: str | None,
        share: tuple[int, int],
    ) -> None:
        self._shards = shards
        self.types = types
        self._first = first
        self._after = after
        self._share = share
        self.layout = Concatenated(lengths)
        self._lengths = lengths
        store, path, options, schemas = self._store, self.directory, self._options, self._schemas
        unseen = [after] if after is not None else []

        def make(number: int) -> DatasetReader:  # Without the reader, which would be in a cycle with it.
            folder = Folder(store, store.join(path, shards[number].name), options, shards[number])

            def work(look: bool) -> DatasetReader | None:
                if look:
                    _check_after(store, path, unseen)
                    return None
                with _shard(folder.path):
                    return DatasetReader.over(folder, schemas)

            # The look for a shard after the last goes with the first requests for another.
            reader, *_ = map_concurrently(work, [False, True] if unseen else [False], True)
            assert reader is not None
            if reader.types != types:
                texts = {name: kind.text for name, kind in types.items()}
                raise SpecError(None, f'that of the other shards, {texts}', reader.spec, folder.path)
            if store.is_remote and len(reader) != lengths[number]:
                folder.refuse(f'expected {lengths[number]} datapoints, got {len(reader)}')
            reader.pin(lengths[number])
            return reader

        self.parts = FifoCache(make, max_open_bags() // (len(types) + 1))

    def _any_part(self) -> Rows:
        if self._shards:
            return super()._any_part()
        return self._reader_of(self._first)

    @property
    def size(self) -> int:
        """Bytes of the dataset."""
        return sum(self._shard_sizes)

    @functools.cached_property
    def _shard_sizes(self) -> list[int]:
        return [self._folder(shard).size() for shard in self._shards]

    @property
    def shards(self) -> int:
        """The number of shard folders that are read."""
        return len(self._shards)

    def bytes_before(self, index: int) -> int:
        """Returns about how many bytes the datapoints before an index take on disk."""
        if index >= len(self):
            return self.size
        shard, within = self.layout.one(index)
        before: int = self.parts[shard].bytes_before(within)
        return sum(self._shard_sizes[:shard]) + before

    def __repr__(self) -> str:
        start, step = self._share
        which = '' if (start, step) == (0, 1) else f' [{start}::{step}]'
        return (
            f'bags.ShardedDatasetReader({self.directory!r}, {self.spec}, {len(self._shards)} shards{which}, '
            f'{len(self)} datapoints)'
        )

    def close(self) -> None:
        self.parts = ClosedHandle(f'bags.ShardedDatasetReader({self.directory!r})')

    def __getstate__(self) -> dict[str, Any]:
        return {
            'directory': self.directory,
            'options': self._options,
            'decoders': self._schemas.decoders,
            'raw': self._schemas.raw,
            'shards': self._shards,
            'lengths': self._lengths,
            'types': self.types,
            'first': self._first,
            'after': self._after,
            'share': self._share,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = state['options']
        store, _ = store_to_read(state['directory'], options)
        self._begin(store, state['directory'], options, SchemaCache(state['decoders'], state['raw']))
        self._finish(
            *(state[name] for name in ('shards', 'lengths', 'types', 'first', 'after', 'share')),
        )


def _check_after(store: Store, path: str, unseen: list[str]) -> None:
    """Makes sure, once, that there is no shard after the last of an index."""
    for name in list(unseen):
        if store.exists(store.join(store.join(path, name), 'spec.json')):
            detail = f'is stale, as it does not have shard {name}: run bags consolidate'
            raise CorruptError(store.join(path, INDEX), None, detail)
    unseen.clear()
