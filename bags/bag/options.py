"""What can be chosen when a bag is read or written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bags.storage.options import AccessPattern, CacheMode, CachePolicy, Choice
from bags.validation import at_least, at_least_or_none

__all__ = [
    'AccessPattern',
    'CacheMode',
    'CachePolicy',
    'Compression',
    'CompressionAutoDetect',
    'CompressionNone',
    'CompressionTrained',
    'CompressionZstd',
    'LimitsPlacement',
    'LimitsStorage',
    'ReaderOptions',
    'ShardingLayout',
    'WriterOptions',
    'as_compression',
    'merge',
]

GiB = 1 << 30


class LimitsPlacement(Choice):
    """Where a bag's limits are; the first three can be written."""

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
    """Read in blocks, when first needed."""
    IN_MEMORY = 1
    """Read as a whole at open."""


class ShardingLayout(Choice):
    """In which order the records of several shards form one sequence."""

    CONCATENATED = 0
    """All of the first shard, then all of the second."""
    INTERLEAVED = 1
    """The first record of every shard, then the second of every shard."""


@dataclasses.dataclass(frozen=True)
class CompressionAutoDetect:
    """zstd for a `.bagz`, none for any other name."""


@dataclasses.dataclass(frozen=True)
class CompressionNone:
    """Records are held as they are."""


@dataclasses.dataclass(frozen=True)
class CompressionZstd:
    """Every non-empty record is one zstd frame, with its content size and a checksum in it."""

    level: int = 3
    """From -131072 (fastest) to 22 (smallest); 0 stands for zstd's default, 3. Not used for reading."""
    dictionary: bytes = b''
    """A trained dictionary or any bytes that records have in common; needed for reading too."""

    def __post_init__(self) -> None:
        if not isinstance(self.level, int):
            raise TypeError(f'zstd level: expected an integer from -131072 to 22, got {self.level!r}')
        if not -131072 <= self.level <= 22:
            raise ValueError(f'zstd level: expected -131072 to 22, got {self.level}')
        try:
            # Any buffer will do; what is kept is the object's own.
            object.__setattr__(self, 'dictionary', bytes(memoryview(self.dictionary)))
        except TypeError:
            raise TypeError(
                f'zstd dictionary: expected bytes or a buffer, got {type(self.dictionary).__name__}'
            ) from None


@dataclasses.dataclass(frozen=True)
class CompressionTrained(CompressionZstd):
    """As `CompressionZstd`, with a dictionary that is kept in a file."""

    path: str = ''
    """Where it is, or would be, for errors to name."""


Compression = CompressionAutoDetect | CompressionNone | CompressionZstd

_COMPRESSIONS: Mapping[str, type[Compression]] = {
    'auto': CompressionAutoDetect,
    'none': CompressionNone,
    'zstd': CompressionZstd,
}


def as_compression(value: object) -> Compression:
    """Returns a compression for itself, for 'auto', 'none' or 'zstd', or for None (none)."""
    if isinstance(value, CompressionAutoDetect | CompressionNone | CompressionZstd):
        return value
    kind = _COMPRESSIONS.get(value.lower() if isinstance(value, str) else 'none' if value is None else '')
    if kind is None:
        names = ', '.join(map(repr, _COMPRESSIONS))
        raise ValueError(f'compression: expected a Compression object or one of {names}, got {value!r}')
    return kind()


@dataclasses.dataclass(slots=True)
class ReaderOptions:
    """How bags are read; the first five in bagz's order. Enums also take their names and numbers."""

    sharding_layout: ShardingLayout = ShardingLayout.CONCATENATED
    limits_placement: LimitsPlacement = LimitsPlacement.TAIL
    compression: Compression = CompressionAutoDetect()
    limits_storage: LimitsStorage = LimitsStorage.ON_DISK
    max_parallelism: int = 100
    """Most threads, for reads and for decompression, that one call uses."""
    access_pattern: AccessPattern = AccessPattern.SYSTEM
    cache_policy: CachePolicy = CachePolicy.SYSTEM
    read_ahead_bytes: int = 1 << 20
    """Bytes on disk that iterators read at a time; from a storage that is waited for, 16 times as many."""
    mapped: bool = True
    """Read local files through a map. False reads with `pread`: for network file systems, where a
    map can fault."""
    max_record_size: int = GiB
    """Most bytes that a zstd frame may announce."""
    cache: str | os.PathLike[str] | None = None
    """A local folder that keeps what is read from a storage that is not local."""
    cache_size: int | None = None
    """Most bytes that folder may take; None for no bound."""
    cache_mode: CacheMode = CacheMode.FILES
    filesystem: Any = None
    """An fsspec file system that paths belong to."""
    storage_options: Mapping[str, Any] | None = None
    """Options of the storage behind a URL."""

    def __setattr__(self, name: str, value: Any) -> None:
        convert = _CONVERSIONS.get(name)
        object.__setattr__(self, name, convert(name, value) if convert else value)


@dataclasses.dataclass(slots=True)
class WriterOptions:
    """How a bag is written, in bagz's order."""

    limits_placement: LimitsPlacement = LimitsPlacement.TAIL
    compression: Compression = CompressionAutoDetect()
    max_record_size: int = GiB
    """Largest record that is compressed (`ReaderOptions.max_record_size` would refuse it)."""
    buffer_size: int = 1 << 22
    """Bytes of records and limits that wait in memory before they are written by themselves."""
    filesystem: Any = None
    storage_options: Mapping[str, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        convert = _CONVERSIONS.get(name)
        object.__setattr__(self, name, convert(name, value) if convert else value)


def _folder(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f'{name}: expected the path of a folder or None, got {value!r}')
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def _positive(name: str, value: Any) -> int:
    return at_least(name, value, 1)


def _choice(kind: type[Choice]) -> Callable[[str, Any], Choice]:
    def convert(name: str, value: Any) -> Choice:
        try:
            return kind(value)
        except ValueError:
            known = ' or '.join(repr(choice.lower()) for choice in kind.__members__)
            raise ValueError(f'{name}: expected {known}, got {value!r}') from None

    return convert


_CONVERSIONS: Mapping[str, Callable[[str, Any], Any]] = {
    'sharding_layout': _choice(ShardingLayout),
    'limits_placement': _choice(LimitsPlacement),
    'compression': lambda _name, value: as_compression(value),
    'limits_storage': _choice(LimitsStorage),
    'max_parallelism': _positive,
    'access_pattern': _choice(AccessPattern),
    'cache_policy': _choice(CachePolicy),
    'read_ahead_bytes': _positive,
    'cache': _folder,
    'cache_size': lambda name, value: at_least_or_none(name, value, 1),
    'cache_mode': _choice(CacheMode),
    'max_record_size': _positive,
    'buffer_size': _positive,
}

Options = TypeVar('Options', ReaderOptions, WriterOptions)


def merge(kind: type[Options], options: Options | None, keywords: dict[str, Any]) -> Options:
    """Returns a copy of `options` with the keywords set over them.

    Raises:
        TypeError: A keyword that is no option.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    for name in keywords:
        if name not in names:
            raise TypeError(f'{name!r} is not an option; those there are: {", ".join(names)}')
    if options is not None and not isinstance(options, kind):
        raise TypeError(f'options: expected {kind.__name__}, got {type(options).__name__}')
    return dataclasses.replace(options, **keywords) if options is not None else kind(**keywords)
