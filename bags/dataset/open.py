"""Opening a dataset, whatever its form."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable
from typing import Any

from bags.bag.options import ReaderOptions
from bags.dataset.base import Rows
from bags.dataset.reader import DatasetReader
from bags.dataset.registry import decoders
from bags.dataset.shard_list import list_shards
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.dataset.views import join
from bags.storage import store_to_read

__all__ = ['open', 'open_as_far_as_known']


def open(
    directory: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *args: Any, **keywords: Any
) -> Rows:
    """Opens a dataset: a folder with a spec.json, or one of shard folders.

    Args:
        directory: The folder, or several: these are joined, later ones adding fields or replacing those of
            earlier ones, as `bags.join([...], replace=True)` does.
        *args, **keywords: As in `DatasetReader` or `ShardedDatasetReader`.

    Raises:
        FileNotFoundError: No such folder, or no dataset in it.
        NotADirectoryError: A file. `bags.bag.Reader` opens a bag alone.
        SpecError, CorruptError: As the readers.
    """
    if isinstance(directory, bytes) or not isinstance(directory, str | os.PathLike | Iterable):
        raise TypeError(f'open: expected a path, or several, got {type(directory).__name__}')
    if not isinstance(directory, str | os.PathLike):
        parts = [open(part, *args, **keywords) for part in directory]
        if not parts:
            raise ValueError('open: expected a path, or several, got none')
        return join(parts, replace=True)
    names = {field.name for field in dataclasses.fields(ReaderOptions)}
    options = ReaderOptions(**{name: value for name, value in keywords.items() if name in names})
    store, path = store_to_read(directory, options)
    if not store.is_remote:
        single = store.exists(store.join(path, 'spec.json'))
        return (DatasetReader if single else ShardedDatasetReader)(directory, *args, **keywords)
    shards = list_shards(store, path)
    if shards.single:
        return DatasetReader(directory, *args, **keywords)
    return ShardedDatasetReader.over(store, path, shards, *args, **keywords)


class _Known(dict[str, Any]):
    """Decoders by word; of a word that is not there, one that returns the record."""

    def __missing__(self, word: str) -> Any:
        return _undecoded

    def get(self, word: str, default: Any = None) -> Any:
        return self[word]


def _undecoded(data: Any, *_args: str) -> bytes:
    return bytes(data)


def open_as_far_as_known(
    directory: str | os.PathLike[str], but: Collection[str] = (), **keywords: Any
) -> Rows:
    """Opens a dataset also where there are types that only their author can decode: their values are bytes.

    Args:
        directory: The dataset.
        but: Words of built-in types whose values are to be bytes as well.
        **keywords: As in `open`.
    """
    known = _Known({word: function for word, function in decoders.items() if word not in but})
    return open(directory, known, **keywords)
