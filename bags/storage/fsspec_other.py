"""Single requests through any asynchronous fsspec file system, by what all of them have in common."""

from __future__ import annotations

import errno
from typing import Any

from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, by_status
from bags.storage.urls import unquoted

__all__ = ['OtherBackend', 'fault_of', 'head_of', 'names_of']

VERSIONS = (
    'generation', 'etag', 'ETag', 'e_tag', 'version', 'created', 'mtime', 'last_modified', 'LastModified'
)  # fmt: skip


def head_of(info: Any) -> Stat:
    """Returns which object it is, from what fsspec tells of one."""
    version = next((info[name] for name in VERSIONS if info.get(name)), '')
    # One and the same time may be a datetime here and a number there.
    version = version.timestamp() if hasattr(version, 'timestamp') else version
    return Stat(int(info.get('size') or 0), unquoted(str(version)))


def names_of(folder: str, entries: Any) -> dict[str, Stat | None]:
    """Returns what fsspec lists in a folder, by path in it."""
    prefix = folder.strip('/') + '/' if folder.strip('/') else ''
    names: dict[str, Stat | None] = {}
    for entry in entries:
        name = entry['name'].strip('/')
        if name.startswith(prefix):  # Some list the folder itself as well, or an object of its name.
            names[name[len(prefix) :]] = None if entry['type'] == 'directory' else head_of(entry)
    return names


def fault_of(path: str, exc: Exception) -> Exception:
    """Returns the error that one of an fsspec file system stands for."""
    if isinstance(exc, FileNotFoundError):
        return by_status(path, 404, '')
    if isinstance(exc, PermissionError):
        return by_status(path, 403, str(exc))
    if isinstance(exc, FileExistsError):
        return Precondition(str(exc))
    if isinstance(exc, IsADirectoryError | NotADirectoryError):
        return type(exc)(exc.errno or errno.EISDIR, str(exc), path)
    # What the file system cannot do, or was asked for wrongly: another try would end alike.
    if isinstance(exc, ValueError | TypeError | NotImplementedError | AttributeError):
        return OSError(errno.EINVAL, f'{type(exc).__name__}: {exc}', path)
    return Transient(f'{type(exc).__name__}: {exc}', isinstance(exc, TimeoutError))


class OtherBackend:
    """An asynchronous file system of which only fsspec's interface is known.

    It has no conditional reads, so whether the object is still the same is asked after each range.
    """

    ordered = True
    versions = 'info'

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem

    async def _call(self, method: str, path: str, *args: Any, **keywords: Any) -> Any:
        try:
            return await getattr(self.filesystem, method)(
                self.filesystem._strip_protocol(path),
                *args,
                **keywords,
            )
        except Exception as exc:
            raise fault_of(path, exc) from exc

    async def get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        if start is None:
            head = await self.head(path)
            start, stop = max(0, head.size - stop), head.size
            data = bytes(await self._call('_cat_file', path, start=start, end=stop)) if stop else b''
            return head, data
        data = bytes(await self._call('_cat_file', path, start=start, end=stop))
        return await self.head(path), data

    async def head(self, path: str) -> Stat:
        self.filesystem.invalidate_cache()
        return head_of(await self._call('_info', path))

    async def put(self, path: str, data: bytes, create: bool) -> None:
        if create:
            await self._check_absent(path)
        await self._call('_pipe_file', path, data)

    async def _check_absent(self, path: str) -> None:
        try:
            await self.head(path)
        except FileNotFoundError:
            return
        raise Precondition('is there already')

    async def begin(self, path: str, create: bool) -> Any:
        if create:
            await self._check_absent(path)
        return path, bytearray()

    async def part(self, token: Any, number: int, offset: int, data: bytes) -> None:
        token[1][offset:] = data

    async def complete(self, token: Any, receipts: list[Any], offset: int, last: bytes, create: bool) -> None:
        await self.put(token[0], bytes(token[1]) + last, create)

    def version_of(self, receipts: list[Any]) -> str | None:
        return None

    async def abort(self, token: Any) -> None:
        token[1].clear()

    async def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        self.filesystem.invalidate_cache()
        try:
            if deep:
                found = (await self._call('_find', folder, detail=True)).values()
            else:
                found = await self._call('_ls', folder, detail=True)
        except FileNotFoundError:
            return {}  # A store says what that means: where there are no folders, there is no empty one.
        return names_of(self.filesystem._strip_protocol(folder), found)

    async def remove(self, path: str) -> None:
        await self._call('_rm_file', path)

    async def copy(self, path: str, target: str) -> None:
        await self._call('_cp_file', path, self.filesystem._strip_protocol(target))
