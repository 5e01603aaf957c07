"""Options of readers and writers of bags, as dataclasses and as the types of keyword arguments."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, TypeVar

from bags.storage import Store, store_for
from bags.storage.base import AccessPattern, CachePolicy, Choice
from bags.validation import at_least, at_least_or_none

__all__ = [
    'AccessPattern',
    'CachePolicy',
    'Compression',
    'CompressionAutoDetect',
    'CompressionNone',
    'CompressionTrained',
    'CompressionZstd',
    'LimitsPlacement',
    'LimitsStorage',
    'ReaderKeywords',
    'ReaderOptions',
    'ShardingLayout',
    'StorageKeywords',
    'WriterKeywords',
    'WriterOptions',
    'merge',
]

GiB = 1 << 30


class LimitsPlacement(Choice):
    """Where a bag's limits are. All but IDX can be written."""

    TAIL = 0
    """After the records: n end offsets."""
    SEPARATE = 1
    """In `limits.NAME` beside `NAME`: n end offsets."""
    STARTS = 2
    """After the records: n starts and the final end (Bags 0.x)."""
    IDX = 3
    """In `STEM.idx` beside `STEM.bag`: n end offsets (Granular)."""


class LimitsStorage(Choice):
    """Where limits are kept when they are not mapped from a local file."""

    ON_DISK = 0
    """Read in blocks, each when first needed."""
    IN_MEMORY = 1
    """Read as a whole at open."""


class ShardingLayout(Choice):
    """The order in which the records of several shards form one sequence."""

    CONCATENATED = 0
    """All of the first shard, then all of the second."""
    INTERLEAVED = 1
    """The first record of every shard, then the second of every shard."""


@dataclasses.dataclass(frozen=True)
class CompressionAutoDetect:
    """zstd for a `.bagz`, none for any other name."""


@dataclasses.dataclass(frozen=True)
class CompressionNone:
    """Records are not compressed."""


@dataclasses.dataclass(frozen=True)
class CompressionZstd:
    """Every non-empty record is one zstd frame with its content size and a checksum."""

    level: int = 3
    """From -131072 (fastest) to 22 (smallest); 0 means zstd's default, 3. Ignored when reading."""
    dictionary: bytes = b''
    """A trained dictionary, or any bytes that the records have in common. Reading needs it too."""

    def __post_init__(self) -> None:
        if not isinstance(self.level, int):
            raise TypeError(f'zstd level: expected an integer from -131072 to 22, got {self.level!r}')
        if not -131072 <= self.level <= 22:
            raise ValueError(f'zstd level: expected -131072 to 22, got {self.level}')
        try:
            # Copied, so that later changes to a mutable buffer have no effect.
            object.__setattr__(self, 'dictionary', bytes(memoryview(self.dictionary)))
        except TypeError:
            raise TypeError(
                f'zstd dictionary: expected bytes or a buffer, got {type(self.dictionary).__name__}'
            ) from None


@dataclasses.dataclass(frozen=True)
class CompressionTrained(CompressionZstd):
    """`CompressionZstd` with a dictionary that is stored in a file."""

    path: str = ''
    """The path of that file, for error messages. It need not exist."""


Compression = CompressionAutoDetect | CompressionNone | CompressionZstd


class StorageKeywords(TypedDict, total=False):
    """Keyword arguments that select the file system or object store of a path."""

    filesystem: Any
    """The fsspec file system of the path."""
    storage_options: Mapping[str, Any] | None
    """Options of the storage behind a URL, such as credentials, retries and timeouts."""


class ReaderKeywords(StorageKeywords, total=False):
    """Keyword arguments of readers. Enums are also given by name, in any case, or by number."""

    sharding_layout: ShardingLayout | int | Literal['concatenated', 'interleaved']
    """The order in which the records of several shards form one sequence: 'concatenated' by default."""
    limits_placement: LimitsPlacement | int | Literal['tail', 'separate', 'starts', 'idx']
    """Where the limits are: 'tail' by default, after the records."""
    compression: Compression | Literal['auto', 'none', 'zstd'] | None
    """How records are compressed: 'auto' by default, by the name of the file."""
    limits_storage: LimitsStorage | int | Literal['on_disk', 'in_memory']
    """Whether limits that are not mapped are read when needed ('on_disk', the default) or at open."""
    max_parallelism: int
    """Maximum number of threads that one call uses to read and to decompress: 100 by default."""
    access_pattern: AccessPattern | int | Literal['system', 'random', 'sequential']
    """The order of reads announced to the kernel, for local files: 'system' by default, none."""
    cache_policy: CachePolicy | int | Literal['system', 'drop_after_read', 'direct_io']
    """How local files use the page cache: 'system' by default, as usual."""
    read_ahead_bytes: int
    """Bytes on disk that iterators read at a time: 1 MiB by default; 16 times as many over a network."""
    mapped: bool
    """Whether local files are memory-mapped (the default) or read with `pread`: for network file
    systems, where access to a map can fault."""
    max_record_size: int
    """Maximum size of a record that a zstd frame may announce, in bytes: 1 GiB by default."""
    cache: str | os.PathLike[str] | None
    """A local folder that caches the files that are read from remote storage."""
    cache_size: int | None
    """Maximum size of that folder in bytes; None, the default, is unlimited."""
    checksum: bool
    """Compare every record that is read with its checksum (see `bags.bag.Writer`); False by default."""


class WriterKeywords(StorageKeywords, total=False):
    """Keyword arguments of `bags.bag.Writer`. Enums are also given by name, in any case, or by number."""

    limits_placement: LimitsPlacement | int | Literal['tail', 'separate', 'starts']
    """Where the limits are written: 'tail' by default, after the records."""
    compression: Compression | Literal['auto', 'none', 'zstd'] | None
    """How records are compressed: 'auto' by default, by the name of the file."""
    max_record_size: int
    """Maximum size of a record that is compressed, in bytes: 1 GiB by default, as in readers."""
    buffer_size: int
    """Bytes of records and limits that are buffered before an automatic flush: 4 MiB by default."""
    checksum: bool
    """Write a checksum of each record to `NAME.xxh3` beside the bag; False by default. A bag that has them
    keeps them in mode 'append'."""


def _set_option(options: Any, name: str, value: Any) -> None:
    """Sets an option, checked and converted to the type of its default."""
    field = options.__dataclass_fields__.get(name)
    if field is None:
        raise AttributeError(f'{type(options).__name__} has no option {name!r}')
    default = field.default
    if value is default:
        pass
    elif isinstance(default, Choice):
        try:
            value = type(default)(value)
        except ValueError:
            known = ' or '.join(repr(choice.lower()) for choice in type(default).__members__)
            raise ValueError(f'{name}: expected {known}, got {value!r}') from None
    elif name == 'compression':
        value = _compression(value)
    elif name == 'cache':
        if not isinstance(value, str | os.PathLike):
            raise TypeError(f'{name}: expected the path of a folder or None, got {value!r}')
        value = os.path.abspath(os.path.expanduser(os.fspath(value)))
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise TypeError(f'{name}: expected True or False, got {value!r:.80}')
    elif name == 'cache_size':
        value = at_least_or_none(name, value, 1)
    elif type(default) is int:
        value = at_least(name, value, 1)
    object.__setattr__(options, name, value)


def _compression(value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    match value.lower() if isinstance(value, str) else value:
        case 'auto':
            return CompressionAutoDetect()
        case 'none' | None:
            return CompressionNone()
        case 'zstd':
            return CompressionZstd()
    raise ValueError(f"compression: expected a Compression object or 'auto', 'none' or 'zstd', got {value!r}")


@dataclasses.dataclass
class ReaderOptions:
    """Options of readers, documented in `ReaderKeywords`. The first five are in bagz's order."""

    sharding_layout: ShardingLayout = ShardingLayout.CONCATENATED
    limits_placement: LimitsPlacement = LimitsPlacement.TAIL
    compression: Compression = CompressionAutoDetect()
    limits_storage: LimitsStorage = LimitsStorage.ON_DISK
    max_parallelism: int = 100
    access_pattern: AccessPattern = AccessPattern.SYSTEM
    cache_policy: CachePolicy = CachePolicy.SYSTEM
    read_ahead_bytes: int = 1 << 20
    mapped: bool = True
    max_record_size: int = GiB
    cache: str | os.PathLike[str] | None = None
    cache_size: int | None = None
    checksum: bool = False
    filesystem: Any = None
    storage_options: Mapping[str, Any] | None = None

    __setattr__ = _set_option

    def store_of(self, path: str) -> Store:
        """Returns the store that a path is read from."""
        return store_for(path, self.filesystem, self.storage_options, self.cache, self.cache_size)[0]


@dataclasses.dataclass
class WriterOptions:
    """Options of writers, documented in `WriterKeywords`. The first two are in bagz's order."""

    limits_placement: LimitsPlacement = LimitsPlacement.TAIL
    compression: Compression = CompressionAutoDetect()
    max_record_size: int = GiB
    buffer_size: int = 1 << 22
    checksum: bool = False
    filesystem: Any = None
    storage_options: Mapping[str, Any] | None = None

    __setattr__ = _set_option


_DEFAULTS: Any = {ReaderOptions: ReaderOptions(), WriterOptions: WriterOptions()}

Options = TypeVar('Options', ReaderOptions, WriterOptions)


def merge(kind: type[Options], options: Options | None, keywords: Mapping[str, object]) -> Options:
    """Returns a copy of `options` updated with the keyword arguments.

    Raises:
        TypeError: A keyword that is not an option.
    """
    if options is not None and not isinstance(options, kind):
        raise TypeError(f'options: expected {kind.__name__}, got {type(options).__name__}')
    merged = copy.copy(options or _DEFAULTS[kind])
    for name, value in keywords.items():
        if name not in vars(merged):
            raise TypeError(f'{name!r} is not an option; the options are: {", ".join(vars(merged))}')
        if value is not vars(merged)[name]:
            setattr(merged, name, value)
    return merged
