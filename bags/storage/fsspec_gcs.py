"""Single requests to GCS, through the session that gcsfs holds."""

from __future__ import annotations

import io
import json
import secrets
from typing import Any
from urllib.parse import quote

from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, Unsatisfiable, by_status
from bags.storage.retry import RetryPolicy
from bags.storage.urls import split

__all__ = ['GcsBackend']


class GcsBackend:
    """GCS through gcsfs: the JSON interface, with gcsfs's credentials."""

    ordered = True
    versions = 'generation'

    def __init__(self, filesystem: Any, patience: RetryPolicy) -> None:
        self.filesystem = filesystem
        self.patience = patience

    async def _request(
        self,
        method: str,
        path: str,
        url: str,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
        **parameters: Any,
    ) -> tuple[Any, bytes]:
        filesystem = self.filesystem
        try:
            await filesystem._set_session()
            async with filesystem.session.request(
                method,
                url if '://' in url else f'{filesystem._location}{url}',
                headers=filesystem._get_headers(headers),
                params=filesystem._get_params(parameters),
                data=None if data is None else io.BytesIO(data),
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
                status, found = answer.status, answer.headers
        except Exception as exc:
            raise _fault(path, exc) from exc
        if status >= 400:
            raise by_status(path, status, content.decode('utf-8', 'replace'))
        return found, content

    async def get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        bucket, key = _split(path)
        wanted = f'bytes=-{stop}' if start is None else f'bytes={start}-{stop - 1}'
        parameters: Any = {'alt': 'media'}
        if head is not None and head.version:
            parameters['ifGenerationMatch'] = head.version
        url = f'/download/storage/v1/b/{quote(bucket)}/o/{quote(key, safe="")}'
        found, data = await self._request('GET', path, url, {'Range': wanted}, **parameters)
        version = found.get('x-goog-generation', '')
        ranges = found.get('Content-Range')
        if ranges is None and (start is None and len(data) > stop):
            raise Unsatisfiable('the storage answered no range')
        size = int(ranges.rpartition('/')[2]) if ranges is not None else len(data)
        return Stat(size, version), data

    async def head(self, path: str) -> Stat:
        bucket, key = _split(path)
        url = f'/storage/v1/b/{quote(bucket)}/o/{quote(key, safe="")}'
        found = json.loads((await self._request('GET', path, url))[1])
        return _stat(found)

    async def put(self, path: str, data: bytes, create: bool) -> None:
        bucket, key = _split(path)
        condition = {'ifGenerationMatch': '0'} if create else {}
        mark = secrets.token_hex(16)
        about = f'--{mark}\r\nContent-Type: application/json\r\n\r\n{json.dumps({"name": key})}\r\n'
        begin = f'{about}--{mark}\r\nContent-Type: application/octet-stream\r\n\r\n'
        body = b''.join((begin.encode(), data, f'\r\n--{mark}--\r\n'.encode()))
        url = f'/upload/storage/v1/b/{quote(bucket)}/o'
        headers = {'Content-Type': f'multipart/related; boundary={mark}'}
        await self._request('POST', path, url, headers, body, uploadType='multipart', **condition)

    async def begin(self, path: str, create: bool) -> tuple[str, str]:
        bucket, key = _split(path)
        condition = {'ifGenerationMatch': '0'} if create else {}
        headers = {'X-Upload-Content-Type': 'application/octet-stream', 'Content-Type': 'application/json'}
        url = f'/upload/storage/v1/b/{quote(bucket)}/o'
        data = json.dumps({'name': key}).encode()
        found, _ = await self._request(
            'POST', path, url, headers, data, uploadType='resumable', name=key, **condition
        )
        return path, found['Location']

    async def part(self, token: Any, number: int, offset: int, data: bytes) -> None:
        await self._send(token, offset, data, '*')

    async def complete(self, token: Any, receipts: list[Any], offset: int, last: bytes, create: bool) -> None:
        await self._send(token, offset, last, str(offset + len(last)))

    async def _send(self, token: Any, offset: int, data: bytes, total: str) -> None:
        path, url = token
        where = f'{offset}-{offset + len(data) - 1}' if data else '*'
        found, _ = await self._request('PUT', path, url, {'Content-Range': f'bytes {where}/{total}'}, data)
        stop = offset + len(data)
        if total == '*' and 'Range' in found and int(found['Range'].rpartition('-')[2]) + 1 != stop:
            # Only the beginning arrived: the next try says what is there.
            arrived = int(found['Range'].rpartition('-')[2]) + 1
            await self._send(token, arrived, data[arrived - offset :], total)

    def version_of(self, receipts: list[Any]) -> str | None:
        return None

    async def abort(self, token: Any) -> None:
        try:
            await self._request('DELETE', token[0], token[1])
        except Exception as exc:
            if not isinstance(exc, OSError) or 'status 499' not in str(exc):  # What success is called there.
                raise

    async def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        bucket, key = _split(folder)
        prefix = f'{key}/' if key else ''
        names: dict[str, Stat | None] = {}
        more: Any = {} if deep else {'delimiter': '/'}
        while True:
            _, data = await self._request(
                'GET', folder, f'/storage/v1/b/{quote(bucket)}/o', prefix=prefix, **more
            )
            found = json.loads(data)
            for name in found.get('prefixes', ()):
                names[name[len(prefix) :].rstrip('/')] = None
            for entry in found.get('items', ()):
                if entry['name'] != prefix:
                    names[entry['name'][len(prefix) :]] = _stat(entry)
            if not found.get('nextPageToken'):
                return names
            more['pageToken'] = found['nextPageToken']

    async def remove(self, path: str) -> None:
        bucket, key = _split(path)
        await self._request('DELETE', path, f'/storage/v1/b/{quote(bucket)}/o/{quote(key, safe="")}')

    async def copy(self, path: str, target: str) -> None:
        bucket, key = _split(path)
        other, name = _split(target)
        source = f'/storage/v1/b/{quote(bucket)}/o/{quote(key, safe="")}'
        await self._request(
            'POST', target, f'{source}/rewriteTo/b/{quote(other)}/o/{quote(name, safe="")}', data=b''
        )


def _split(path: str) -> tuple[str, str]:
    return split(path if '://' in path else f'gs://{path}')


def _stat(found: Any) -> Stat:
    return Stat(int(found.get('size', 0)), found.get('generation', ''))


def _fault(path: str, exc: Exception) -> Exception:
    name = type(exc).__name__
    if isinstance(exc, Precondition | Transient):
        return exc
    if 'Credentials' in name or 'RefreshError' in name or 'TransportError' in name:
        return PermissionError(13, f"no credentials (token='anon' needs none): {exc}", path)
    if isinstance(exc, ValueError | TypeError):
        return ValueError(f'{path}: {exc}')
    return Transient(f'{name}: {exc}', 'imeout' in name)
