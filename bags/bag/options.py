"""Options of readers and writers of bags, as dataclasses and as types of keyword arguments."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from bags.storage import Store, store_for
from bags.storage.base import AccessPattern, CachePolicy, Choice, Durability
from bags.storage.urls import locate, plain_path
from bags.validation import (
    Option,
    Options,
    boolean,
    boolean_or_none,
    made_from,
    one_of,
    positive,
    positive_or_none,
    unchecked,
)

GiB = 1 << 30


class LimitsPlacement(Choice):
    """The placement of the limits of a bag. Writers support all values except IDX.

    Examples:
        >>> with bags.bag.Writer(
        ...     'words.bag', limits_placement=bags.bag.LimitsPlacement.SEPARATE
        ... ) as writer:
        ...     writer.write(b'word')
        >>> sorted(path.name for path in Path().glob('*words.bag'))
        ['limits.words.bag', 'words.bag']
    """

    TAIL = 0
    """After the records: n end offsets."""
    SEPARATE = 1
    """In `limits.NAME` beside `NAME`: n end offsets."""
    STARTS = 2
    """After the records: n starts and the final end (Bags 0.x)."""
    IDX = 3
    """In `STEM.idx` beside `STEM.bag`: n end offsets (Granular)."""


class LimitsStorage(Choice):
    """Where limits are kept if they are not memory-mapped from a local file.

    Examples:
        >>> in_memory = bags.bag.LimitsStorage.IN_MEMORY  # or its name, 'in_memory'
        >>> bags.bag.Reader('episodes/000000/task.bag', limits_storage=in_memory)[0]
        b'reach 0'
    """

    ON_DISK = 0
    """Read in blocks, each on first use."""
    IN_MEMORY = 1
    """Read as a whole on open."""


class ShardingLayout(Choice):
    """The order in which the records of several shards form one sequence.

    Examples:
        >>> interleaved = bags.bag.ShardingLayout.INTERLEAVED  # or its name, 'interleaved'
        >>> shards = ['episodes/000000/task.bag', 'episodes/000001/task.bag']
        >>> len(bags.bag.Reader(shards, sharding_layout=interleaved))
        8
    """

    CONCATENATED = 0
    """All records of the first shard, then all records of the second shard, and so on."""
    INTERLEAVED = 1
    """The first record of every shard, then the second record of every shard, and so on."""


@dataclasses.dataclass(frozen=True)
class CompressionAutoDetect:
    """zstd for names that end in `.bagz`, no compression for other names.

    Examples:
        >>> detected = bags.bag.CompressionAutoDetect()  # zstd for names that end in .bagz
        >>> bags.bag.Reader('episodes/000000/task.bag', compression=detected)[0]
        b'reach 0'
    """


@dataclasses.dataclass(frozen=True)
class CompressionNone:
    """Records are not compressed.

    Examples:
        >>> with bags.bag.Writer('plain.bagz', compression=bags.bag.CompressionNone()) as writer:
        ...     writer.write(b'one')
        >>> from pathlib import Path
        >>> Path('plain.bagz').read_bytes()[:3]
        b'one'
    """


@dataclasses.dataclass(frozen=True)
class CompressionZstd:
    """Each non-empty record is one zstd frame with its content size and a checksum.

    Examples:
        >>> with bags.bag.Writer(
        ...     'small.bagz', compression=bags.bag.CompressionZstd(level=9)
        ... ) as writer:
        ...     writer.write(b'one')
    """

    level: int = 3
    """From -131072 (fastest) to 22 (smallest); 0 is the default of zstd, 3. Ignored by readers."""
    dictionary: bytes = b''
    """A trained dictionary, or any bytes that the records have in common. Readers need it, too."""

    def __post_init__(self) -> None:
        if not isinstance(self.level, int):
            raise TypeError(f'zstd level: expected an integer from -131072 to 22, got {self.level!r}')
        if not -131072 <= self.level <= 22:
            raise ValueError(f'zstd level: expected -131072 to 22, got {self.level}')
        try:
            # A copy, so that later changes to a mutable buffer have no effect.
            object.__setattr__(self, 'dictionary', bytes(memoryview(self.dictionary)))
        except TypeError:
            raise TypeError(
                f'zstd dictionary: expected bytes or a buffer, got {type(self.dictionary).__name__}'
            ) from None


@dataclasses.dataclass(frozen=True)
class CompressionTrained(CompressionZstd):
    """`CompressionZstd` with a dictionary that is stored in a file."""

    path: str = ''
    """The path of the dictionary, for error messages. The file need not exist."""


Compression = CompressionAutoDetect | CompressionNone | CompressionZstd


def _choice(choices: type[Choice]) -> Callable[[str, Any], Choice]:
    """Returns a check for an option whose value is a member of an enum, its name, or its number."""

    def check(name: str, value: Any) -> Choice:
        try:
            return choices(value)
        except ValueError:
            names = ' or '.join(repr(choice.lower()) for choice in choices.__members__)
            raise ValueError(f'{name}: expected {names}, got {value!r}') from None

    return check


def _compression(name: str, value: Any) -> Compression:
    if isinstance(value, Compression):
        return value
    match value.lower() if isinstance(value, str) else value:
        case 'auto':
            return CompressionAutoDetect()
        case 'none' | None:
            return CompressionNone()
        case 'zstd':
            return CompressionZstd()
    raise ValueError(f"{name}: expected a Compression object or 'auto', 'none' or 'zstd', got {value!r}")


def _folder(name: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f'{name}: expected the path of a folder or None, got {value!r}')
    text = os.fspath(plain_path(value))
    scheme, path = locate(text) if ':' in text else ('file', text)
    if scheme != 'file' and not os.path.isdir(text):
        detail = 'expected a local folder for copies of files of object stores, such as ~/cache'
        raise ValueError(f'{name}: {detail}, got {text!r:.200}')
    return os.path.abspath(os.path.expanduser(path if scheme == 'file' else text))


def _cache_check(name: str, value: Any) -> str:
    one_of(name, value, ('open', 'never'))
    return str(value)


# Each option is declared once, with its default and its check. The classes named Keywords are the types of
# keyword arguments. The dataclasses at the end are generated from them.


class StorageKeywords(TypedDict, total=False):
    """Keyword arguments that select the file system or object store of a path."""

    filesystem: Annotated[Any, Option(None, unchecked)]
    """The fsspec file system of the path."""
    storage_options: Annotated[Mapping[str, Any] | None, Option(None, unchecked)]
    """Options of the object store of a URL, named as in s3fs, gcsfs or obstore: credentials, retries, …"""


class ReadingKeywords(StorageKeywords, total=False):
    """Keyword arguments of the readers of bags and of datasets."""

    max_parallelism: Annotated[int, Option(100, positive)]
    """Maximum number of threads with which one call reads and decompresses: 100 by default."""
    access_pattern: Annotated[
        AccessPattern | int | Literal['system', 'random', 'sequential'],
        Option(AccessPattern.SYSTEM, _choice(AccessPattern)),
    ]
    """The order of reads of local files to announce to the kernel: by default, 'system', which is none."""
    cache_policy: Annotated[
        CachePolicy | int | Literal['system', 'drop_after_read', 'direct_io'],
        Option(CachePolicy.SYSTEM, _choice(CachePolicy)),
    ]
    """How reads of local files use the page cache: by default, 'system', the usual behaviour."""
    mapped: Annotated[bool, Option(True, boolean)]
    """Whether local files are memory-mapped (the default). If False, they are read with `pread`: for network
    file systems, where accessing a memory map can fault."""
    max_record_size: Annotated[int, Option(GiB, positive)]
    """Maximum size of a record that a zstd frame may announce, in bytes: 1 GiB by default."""
    cache: Annotated[str | os.PathLike[str] | None, Option(None, _folder)]
    """A local folder that caches the files that are read from an object store."""
    cache_size: Annotated[int | None, Option(None, positive_or_none)]
    """Maximum size of the cache folder, in bytes. None, the default, is unlimited."""
    cache_check: Annotated[Literal['open', 'never'], Option('open', _cache_check)]
    """When to ask the object store whether cached files have changed: by default, 'open', when a reader first
    uses them. 'never' is for files that do not change: the store is asked only for what the cache does not
    have, and what was read or prefetched before is read offline."""
    checksum: Annotated[bool, Option(False, boolean)]
    """Whether to compare each record that is read with its checksum, and raise CorruptError if it differs:
    False by default. The checksums must have been written."""


class ReaderKeywords(ReadingKeywords, total=False):
    """Keyword arguments of readers of bags. Enums may be passed by name, in any case, or by number."""

    sharding_layout: Annotated[
        ShardingLayout | int | Literal['concatenated', 'interleaved'],
        Option(ShardingLayout.CONCATENATED, _choice(ShardingLayout)),
    ]
    """The order in which the records of several shards form one sequence: by default, 'concatenated'."""
    limits_placement: Annotated[
        LimitsPlacement | int | Literal['tail', 'separate', 'starts', 'idx'],
        Option(LimitsPlacement.TAIL, _choice(LimitsPlacement)),
    ]
    """The placement of the limits: by default, 'tail', after the records."""
    compression: Annotated[
        Compression | Literal['auto', 'none', 'zstd'] | None, Option(CompressionAutoDetect(), _compression)
    ]
    """The compression of the records: by default, 'auto', which depends on the name of the file."""
    limits_storage: Annotated[
        LimitsStorage | int | Literal['on_disk', 'in_memory'],
        Option(LimitsStorage.ON_DISK, _choice(LimitsStorage)),
    ]
    """Whether limits that are not mapped are read on first use ('on_disk', the default) or on open."""
    read_ahead_bytes: Annotated[int, Option(1 << 20, positive)]
    """Bytes on disk that iterators read at a time: 1 MiB by default; 16 times as many over a network."""


class WritingKeywords(StorageKeywords, total=False):
    """Keyword arguments of the writers of bags and of datasets."""

    checksum: Annotated[bool | None, Option(None, boolean_or_none)]
    """Whether to write a checksum of each record, 8 bytes, to `NAME.xxh3` beside each bag. Readers with
    `checksum=True` and `verify` compare them. None, the default, writes checksums only if the bag that is
    appended to, the dataset that is resumed, or the source of `bags.copy` has checksums. With False, an
    existing bag or dataset keeps its checksums, but a copy has none."""
    durability: Annotated[
        Durability | int | Literal['none', 'close', 'flush'],
        Option(Durability.CLOSE, _choice(Durability)),
    ]
    """When local files are synced to disk, so that they survive a power cut: 'close', the default, before
    `close` returns; 'flush', also before each `flush` returns; 'none', whenever the system writes them. On
    object stores, the three are equivalent: files are stored when they are closed."""


class WriterKeywords(WritingKeywords, total=False):
    """Keyword arguments of `bags.bag.Writer`. Enums may be passed by name, in any case, or by number."""

    limits_placement: Annotated[
        LimitsPlacement | int | Literal['tail', 'separate', 'starts'],
        Option(LimitsPlacement.TAIL, _choice(LimitsPlacement)),
    ]
    """The placement of the limits: by default, 'tail', after the records."""
    compression: Annotated[
        Compression | Literal['auto', 'none', 'zstd'] | None, Option(CompressionAutoDetect(), _compression)
    ]
    """The compression of the records: by default, 'auto', which depends on the name of the file."""
    max_record_size: Annotated[int, Option(GiB, positive)]
    """Maximum size of a record to compress, in bytes: 1 GiB by default, as in readers."""
    buffer_size: Annotated[int, Option(1 << 22, positive)]
    """Bytes of records and limits to buffer before an automatic flush: 4 MiB by default."""


@made_from(
    ReaderKeywords, 'sharding_layout', 'limits_placement', 'compression', 'limits_storage', 'max_parallelism'
)
class ReaderOptions(Options):
    """Options of readers, documented in `ReaderKeywords`. The first five have the order of bagz."""

    if TYPE_CHECKING:

        def __init__(self, *positional: Any, **keywords: Unpack[ReaderKeywords]) -> None: ...

    def store_of(self, path: str) -> Store:
        """Returns the store of a path."""
        return store_for(
            path, self.filesystem, self.storage_options, self.cache, self.cache_size, self.cache_check
        )[0]


@made_from(WriterKeywords, 'limits_placement', 'compression')
class WriterOptions(Options):
    """Options of writers, documented in `WriterKeywords`. The first two have the order of bagz."""

    if TYPE_CHECKING:

        def __init__(self, *positional: Any, **keywords: Unpack[WriterKeywords]) -> None: ...
