"""What can go wrong with a storage, as this library's errors: foreign ones are mapped here, once."""

from __future__ import annotations

import errno
import re
from typing import Any

from bags.errors import CorruptError

__all__ = [
    'Late',
    'Precondition',
    'Transient',
    'Unsatisfiable',
    'Unsupported',
    'by_status',
    'changed',
    'given_up',
]

REGION = re.compile(r"expecting '([a-z0-9-]+)'|x-amz-bucket-region: ([a-z0-9-]+)")


class Transient(Exception):
    """A failure that may pass: to be tried again."""

    def __init__(self, reason: str, late: bool = False) -> None:
        self.reason = reason
        self.late = late
        """Whether it is that nothing came in time."""
        super().__init__(reason)


class Late(TimeoutError):
    """A storage did not answer in time. (Of a plain TimeoutError asyncio makes one without the path.)"""


class Precondition(Exception):
    """An object is not the one that was asked for (412), or it is there and should not be."""


class Unsatisfiable(Exception):
    """A range that the object does not have (416)."""


class Unsupported(OSError):
    """What a storage cannot do, such as ranges."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EOPNOTSUPP, reason, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.filename, self.strerror)


def by_status(path: str, status: int, reason: str) -> Exception:
    """Returns the error that an HTTP status stands for."""
    if status in (404, 410):
        return FileNotFoundError(errno.ENOENT, _told('no such file, or no such bucket', reason), path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, _told('access denied', reason), path)
    if status in (409, 412):
        return Precondition(reason)
    if status == 416:
        return Unsatisfiable(reason)
    if status == 501:
        return Unsupported(path, _told('status 501', reason))
    if status in (408, 425, 429) or status >= 500:
        return Transient(_told(f'status {status}', reason))
    region = REGION.search(reason)
    if status in (301, 302, 307) or region is not None:
        # Only some of the answers say which one.
        where = f'region {next(filter(None, region.groups()))}' if region is not None else 'another region'
        reason = _told(f'the bucket is in {where} (storage option region)', reason)
    return OSError(errno.EIO, _told(f'status {status}', reason), path)


def given_up(path: str, fault: Transient, tries: int) -> OSError:
    """Returns the error of a request that was tried often enough."""
    often = f'{tries} tries' if tries > 1 else 'one try'
    kind, number = (Late, errno.ETIMEDOUT) if fault.late else (OSError, errno.EIO)
    return kind(number, f'{fault.reason} (after {often})', path)


def changed(path: str, expected: str, got: str) -> CorruptError:
    """Returns the error of an object that is another one than was opened."""
    return CorruptError(path, None, f'has changed since it was opened: expected {expected}, got {got}')


def _told(what: str, reason: str) -> str:
    reason = ' '.join(reason.split())
    return f'{what}: {reason[:300]}' if reason else what
