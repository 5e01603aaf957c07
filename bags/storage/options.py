"""How files are read and cached."""

from __future__ import annotations

import enum

__all__ = ['AccessPattern', 'CacheMode', 'CachePolicy', 'Choice']


class Choice(enum.IntEnum):
    """An enum that is also called by its name in any case: `ShardingLayout('interleaved')`."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        if isinstance(value, str):
            return cls.__members__.get(value.upper().replace('-', '_'))
        return None

    def __repr__(self) -> str:
        return f'{type(self).__name__}.{self.name}'


class AccessPattern(Choice):
    """What the kernel is told about the order of reads from local files."""

    SYSTEM = 0
    RANDOM = 1
    """No read-ahead (`MADV_RANDOM`, `POSIX_FADV_RANDOM`)."""
    SEQUENTIAL = 2
    """More read-ahead (`MADV_SEQUENTIAL`, `POSIX_FADV_SEQUENTIAL`)."""


class CachePolicy(Choice):
    """What becomes of the page cache of local files."""

    SYSTEM = 0
    DROP_AFTER_READ = 1
    """Read with `pread`, then tell the kernel that the pages are not needed again. Where
    `posix_fadvise` is missing, plain `pread`."""
    DIRECT_IO = 2
    """Read past the page cache with `O_DIRECT` (`F_NOCACHE` on macOS). Where a file system refuses, as
    `DROP_AFTER_READ`."""


class CacheMode(Choice):
    """What of a remote file a cache keeps."""

    FILES = 0
    """The whole of each file that is opened: fetched once, then mapped as a local one is."""
    BLOCKS = 1
    """The blocks that were read, of 64 KiB: for a few records out of much."""
