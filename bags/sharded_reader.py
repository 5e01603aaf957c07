"""Reading datasets of many folders: `000000`, `000001`, …, each a dataset by itself."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.files import Store, store_to_read
from bags.bag.gather import Closed, Kept, descriptors, overlapped
from bags.bag.options import ReaderOptions
from bags.bag.sharding import Concatenated
from bags.dataset import Rows
from bags.errors import CorruptError, SpecError
from bags.folder import Folder, is_being_made, reader_options
from bags.reader import DatasetReader
from bags.schema import Schemas
from bags.spec import Spec
from bags.views import Parts

__all__ = ['ShardedDatasetReader', 'shard_numbers']

Int64s = npt.NDArray[np.int64]


def shard_numbers(store: Store, directory: str) -> dict[int, str]:
    """Returns the shard folders by their numbers, in order.

    Raises:
        CorruptError: Two folders of one number.
    """
    numbers: dict[int, str] = {}
    for name in sorted(store.names(directory)):
        if name.isascii() and name.isdigit():
            if int(name) in numbers:
                raise CorruptError(
                    directory, None, f'shard {int(name)} is both {numbers[int(name)]} and {name}'
                )
            numbers[int(name)] = name
    return dict(sorted(numbers.items()))


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
        if shard_start < 0 or shard_step < 1:
            raise ValueError(
                f'expected shard_start >= 0 and shard_step >= 1, got {shard_start} and {shard_step}'
            )
        options |= {'filesystem': filesystem, 'storage_options': storage_options}
        store, path = store_to_read(directory, ReaderOptions(**options))
        self._begin(store, path, reader_options(store, cache_index, options), Schemas(decoders, raw))
        folders = [store.join(path, name) for name in shard_numbers(store, path).values()]
        while folders and is_being_made(store.names(folders[-1])):
            folders.pop()
        if not folders:
            raise FileNotFoundError(errno.ENOENT, 'no shard of a dataset', path)
        chosen = folders[shard_start::shard_step]
        lengths = overlapped(self._length_of, chosen, not store.appendable)
        # Of more workers than shards, some have nothing to read; they still know the spec.
        types = self._reader_of(folders[0]).types
        self._finish(chosen, lengths, types, folders[0], (shard_start, shard_step))

    def _begin(self, store: Store, path: str, options: ReaderOptions, schemas: Schemas) -> None:
        self._store, self.directory, self._options, self._schemas = store, path, options, schemas

    def _length_of(self, path: str) -> int:
        with _shard(path):
            return Folder(self._store, path, self._options).length(self._schemas)

    def _reader_of(self, path: str) -> DatasetReader:
        with _shard(path):
            return DatasetReader.over(Folder(self._store, path, self._options), self._schemas)

    def _finish(
        self, folders: list[str], lengths: list[int], types: Spec, first: str, share: tuple[int, int]
    ) -> None:
        self._folders = folders
        self.types = types
        self._first = first
        self._share = share
        self.layout = Concatenated(lengths)
        self._lengths = lengths
        self._sizes: int | None = None
        store, options, schemas = self._store, self._options, self._schemas

        def make(
            shard: int,
        ) -> DatasetReader:  # Without the reader itself, which would be in a cycle with it.
            with _shard(folders[shard]):
                reader = DatasetReader.over(Folder(store, folders[shard], options), schemas)
            if reader.types != types:
                texts = {name: kind.text for name, kind in types.items()}
                raise SpecError(None, f'that of the other shards, {texts}', reader.spec, folders[shard])
            reader.pin(lengths[shard])
            return reader

        self.parts = Kept(make, descriptors() // (len(types) + 1))

    def _any_part(self) -> Rows:
        if self._folders:
            return super()._any_part()
        return self._reader_of(self._first)

    @property
    def size(self) -> int:
        """Bytes of the dataset."""
        if self._sizes is None:
            self._sizes = sum(Folder(self._store, path, self._options).size() for path in self._folders)
        return self._sizes

    @property
    def shards(self) -> int:
        """The number of shard folders that are read."""
        return len(self._folders)

    def __repr__(self) -> str:
        start, step = self._share
        which = '' if (start, step) == (0, 1) else f' [{start}::{step}]'
        return (
            f'bags.ShardedDatasetReader({self.directory!r}, {self.spec}, {len(self._folders)} shards{which}, '
            f'{len(self)} datapoints)'
        )

    def close(self) -> None:
        self.parts = Closed(repr(self))

    def __getstate__(self) -> dict[str, Any]:
        return {
            'directory': self.directory,
            'options': self._options,
            'decoders': self._schemas.decoders,
            'raw': self._schemas.raw,
            'folders': self._folders,
            'lengths': self._lengths,
            'types': self.types,
            'first': self._first,
            'share': self._share,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = state['options']
        store, _ = store_to_read(state['directory'], options)
        self._begin(store, state['directory'], options, Schemas(state['decoders'], state['raw']))
        self._finish(state['folders'], state['lengths'], state['types'], state['first'], state['share'])
