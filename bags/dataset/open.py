"""`bags.open`: opens a dataset of one folder, or of shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Unpack

from bags.dataset.base import Dataset
from bags.dataset.format.folder import Folder
from bags.dataset.format.listing import list_remote_shards
from bags.dataset.format.options import ReadOptions, dataset_path
from bags.dataset.format.registry import decoders as builtin_decoders
from bags.dataset.reader import DatasetReader
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.storage.urls import plain_path


def open(
    path: str | os.PathLike[str],
    decoders: Mapping[str, Callable[..., Any]] | None = None,
    *,
    cache_index: bool = True,
    shard_start: int = 0,
    shard_step: int = 1,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Opens a dataset: one folder, or a folder of shard folders.

    Args:
        path: The folder: str, path or URL. `bags.join` takes several.
        decoders: Decoders by format, which replace all of `bags.decoders`, the default.
        cache_index: Read limits that are not memory-mapped, e.g. on an object store, as a whole when the
            dataset is opened, and keep them, instead of reading blocks of limits on demand.
        shard_start, shard_step: Read only the shards `shard_start`, `shard_start + shard_step`, …, so that
            each of `shard_step` workers reads a separate part.
        **options: `raw=True` returns undecoded records, as buffers that may alias the files, instead of
            values. `filesystem`: an fsspec file system that `path` belongs to. `storage_options`:
            options of the object store behind a URL, with the names of s3fs, gcsfs or obstore. `cache`: a
            local folder, of at most `cache_size` bytes, that keeps the files that are read from an object
            store; with `cache_check='never'`, the store is not asked whether they have changed.
            `checksum=True` compares every record that is read with its checksum, which the dataset must
            have; one that differs raises CorruptError. `max_value_size`: maximum bytes of a record that is
            read as a whole, and of its decoded value, 1 GiB by default (SECURITY.md lists the types).
            `access_pattern`, `cache_policy`, `mapped`, `max_parallelism` and `max_record_size` are options
            of `bags.bag.Reader`.

    Raises:
        FileNotFoundError: No such folder, or no dataset in it.
        NotADirectoryError: A file. `bags.bag.Reader` opens single bags.
        SpecError, CorruptError: Damaged, or not a dataset.
        TypeError, ValueError: Not a single path, an unknown option, or an option without effect here.

    Examples:
        >>> dataset = bags.open('episodes')
        >>> len(dataset), dataset.spec['state']
        (8, 'array(float32,2)[]')
        >>> dataset[3, ('id', 'task')]
        {'id': 3, 'task': 'reach 3'}
        >>> dataset.batch([5, 1, 5], 'id')['id']
        array([5, 1, 5])
    """
    root: object = plain_path(path)
    if not isinstance(root, str | os.PathLike):
        is_several = isinstance(root, Iterable) and not isinstance(root, bytes)
        advice = ' (bags.join([…]) opens several, and joins their fields)' if is_several else ''
        raise TypeError(f'open: expected a path, got {root!r:.80}{advice}')
    at, shards = dataset_path(root, decoders, cache_index, options, open), None
    if at.store.is_remote:
        shards = list_remote_shards(at.store, at.path, at.options.checksum)
        is_folder = 'spec.json' in shards.beside.sizes
    else:
        is_folder = at.store.exists(at.store.join(at.path, 'spec.json'))
    if not is_folder:
        return ShardedDatasetReader.of_shards(at, shards, shard_start, shard_step)
    if (shard_start, shard_step) != (0, 1):
        raise ValueError(f'{at.path}: shard_start and shard_step have no effect on a dataset of one folder')
    folder = Folder(at.store, at.path, at.options, shards and shards.beside)
    return DatasetReader.of_folder(folder, at.decoders)


class _KnownDecoders(dict[str, Any]):
    """Decoders by format. The decoder of an unknown format returns the record."""

    def __missing__(self, format: str) -> Any:
        return _undecoded


def _undecoded(data: Any, *_args: str) -> bytes:
    return bytes(data)


def open_with_known_decoders(
    path: str | os.PathLike[str],
    undecoded: Collection[str] = (),
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Opens a dataset in which values of unknown types, defined by its author, are bytes.

    Args:
        path: The dataset.
        undecoded: Formats of built-in types whose values are also bytes.
        **options: As in `open`.
    """
    decoders = _KnownDecoders(
        {format: function for format, function in builtin_decoders.items() if format not in undecoded}
    )
    return open(path, decoders, **options)
