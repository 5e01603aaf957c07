"""Options of `bags.open` and of the readers of datasets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

from bags.bag.options import LimitsStorage, ReaderOptions, merge
from bags.formats.scalars import MAX_VALUE_SIZE
from bags.storage import Store, store_for
from bags.storage.base import AccessPattern, CachePolicy
from bags.validation import refuse_unknown

__all__ = ['ReadOptions', 'open_store']


@dataclasses.dataclass
class FolderOptions(ReaderOptions):
    """Options of the readers of bags, and those that only datasets have."""

    max_value_size: int = MAX_VALUE_SIZE


DEFAULTS = FolderOptions()
SPELLED_OUT = ('decoders', 'cache_index', 'raw', 'filesystem', 'storage_options')
"""Options in the signature of `bags.open` and the readers, for error messages."""


class ReadOptions(TypedDict, total=False):
    """Options of `bags.open` and the readers for reading the bags of a dataset."""

    access_pattern: AccessPattern | Literal['system', 'random', 'sequential']
    """The order of reads announced to the kernel, for local files."""
    cache_policy: CachePolicy | Literal['system', 'drop_after_read', 'direct_io']
    """The use of the page cache for local files."""
    mapped: bool
    """Read local files through a map (the default); False reads with `pread`, for network file systems."""
    max_parallelism: int
    """Maximum number of threads that one call uses to read and decompress."""
    max_record_size: int
    """Maximum bytes of a record that a zstd frame may announce; 1 GiB unless given."""
    max_value_size: int
    """Maximum bytes of a decoded image, video, recording or tree; 1 GiB unless given."""
    cache: str | os.PathLike[str] | None
    """A local folder that keeps the files that are read from an object store."""
    cache_size: int | None
    """Maximum bytes of this folder; None for no limit."""
    checksum: bool
    """Compare every record that is read with its checksum; False unless given."""


def open_store(
    directory: str | os.PathLike[str],
    cache_index: bool,
    filesystem: Any,
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> tuple[Store, str, FolderOptions]:
    """Returns the store of a dataset, its path in the store, and the options for its bags.

    Raises:
        TypeError: Not an option of datasets.
        ValueError: An option of the cache without a cache.
    """
    if options:
        refuse_unknown(options, [*SPELLED_OUT, *ReadOptions.__annotations__])
    if 'cache_size' in options and options.get('cache') is None:
        raise ValueError('cache_size: has no effect without cache')
    keywords = {**options, 'filesystem': filesystem, 'storage_options': storage_options}
    made = cast('FolderOptions', merge(ReaderOptions, DEFAULTS, keywords))
    store, path = store_for(directory, filesystem, storage_options, made.cache, made.cache_size)
    is_local = not store.is_remote or made.cache is not None
    if cache_index and not (is_local and made.mapped):
        made.limits_storage = LimitsStorage.IN_MEMORY
    return store, path, made
