"""Single requests to a web server, through the session of fsspec's HTTP file system. Reading only."""

from __future__ import annotations

import errno
from typing import Any

from bags.storage.base import Stat
from bags.storage.errors import Transient, Unsatisfiable, by_status
from bags.storage.urls import unquoted

__all__ = ['HttpBackend']


class HttpBackend:
    """A web server that answers ranges."""

    ordered = True
    versions = 'etag'

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem

    async def _request(self, method: str, path: str, wanted: str | None) -> tuple[int, Any, bytes]:
        filesystem = self.filesystem
        options = dict(filesystem.kwargs)
        headers = {**options.pop('headers', {}), 'Accept-Encoding': 'identity'}
        if wanted is not None:
            headers['Range'] = wanted
        try:
            session = await filesystem.set_session()
            async with session.request(
                method, filesystem.encode_url(path), headers=headers, allow_redirects=True, **options
            ) as answer:
                data = await answer.read()
                status, found = answer.status, answer.headers
        except Exception as exc:
            name = type(exc).__name__
            raise Transient(f'{name}: {exc}', 'imeout' in name) from exc
        if status >= 400:
            raise by_status(path, status, answer.reason or '')
        return status, found, data

    async def get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        wanted = f'bytes=-{stop}' if start is None else f'bytes={start}-{stop - 1}'
        status, found, data = await self._request('GET', path, wanted)
        if status != 206:  # It answers no ranges, but with all there is.
            whole = Stat(len(data), _version(found))
            if start is None:
                return whole, data[max(0, len(data) - stop) :]
            return whole, data[start:stop]
        total = found.get('Content-Range', '').rpartition('/')[2]
        if not total.isdigit():
            raise Unsatisfiable('the server does not say how large the file is')
        return Stat(int(total), _version(found)), data

    async def head(self, path: str) -> Stat:
        _, found, _ = await self._request('HEAD', path, None)
        if 'Content-Length' not in found:
            _, found, data = await self._request('GET', path, None)
            return Stat(len(data), _version(found))
        return Stat(int(found['Content-Length']), _version(found))

    async def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        if deep:
            raise OSError(errno.EOPNOTSUPP, 'a web server does not list all files below a folder', folder)
        try:
            found = await self.filesystem._ls(folder + '/', detail=True)
        except FileNotFoundError as exc:
            raise by_status(folder, 404, 'or the server does not list it') from exc
        names: dict[str, Stat | None] = {}
        for entry in found:
            inner = entry['name'].removeprefix(folder + '/')
            if inner != entry['name'] and inner.strip('/') and '/' not in inner.rstrip('/'):
                # Of what is in a folder, its listing says no more than the names.
                names[inner.rstrip('/')] = None
        return names

    async def put(self, path: str, data: bytes, create: bool) -> None:
        raise _only_reads(path)

    async def begin(self, path: str, create: bool) -> Any:
        raise _only_reads(path)

    async def part(self, token: Any, number: int, offset: int, data: bytes) -> Any:
        raise _only_reads(str(token))

    async def complete(self, token: Any, receipts: list[Any], offset: int, last: bytes, create: bool) -> None:
        raise _only_reads(str(token))

    def version_of(self, receipts: list[Any]) -> str | None:
        return None

    async def abort(self, token: Any) -> None:
        pass  # There is none to end: none can begin.

    async def remove(self, path: str) -> None:
        raise _only_reads(path)

    async def copy(self, path: str, target: str) -> None:
        raise _only_reads(path)


def _version(headers: Any) -> str:
    return unquoted(headers.get('ETag') or headers.get('Last-Modified'))


def _only_reads(path: str) -> Exception:
    return OSError(errno.EROFS, 'a web server is only read', path)
