"""Single requests to S3, through the client that s3fs holds."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

from bags.storage.base import Stat
from bags.storage.errors import Precondition, Transient, by_status
from bags.storage.retry import RetryPolicy
from bags.storage.urls import split, unquoted

__all__ = ['S3Backend']

MD5 = re.compile('[0-9a-f]{32}')


class S3Backend:
    """S3 through s3fs."""

    ordered = False
    versions = 'etag'

    def __init__(self, filesystem: Any, patience: RetryPolicy) -> None:
        self.filesystem = filesystem

    async def _call(self, method: str, path: str, **arguments: Any) -> Any:
        bucket, key = split(path if '://' in path else f's3://{path}')
        names = {'Bucket': bucket, **({} if method.startswith('list') else {'Key': key})}
        try:
            return await self.filesystem._call_s3(method, **names, **arguments)
        except Exception as exc:
            raise _fault(path, exc) from exc

    async def get(self, path: str, start: int | None, stop: int, head: Stat | None) -> tuple[Stat, bytes]:
        wanted = f'bytes=-{stop}' if start is None else f'bytes={start}-{stop - 1}'
        condition = {'IfMatch': f'"{head.version}"'} if head is not None and head.version else {}
        found = await self._call('get_object', path, Range=wanted, **condition)
        try:
            async with found['Body'] as body:
                data = await body.read()
        except Exception as exc:
            raise _fault(path, exc) from exc
        size = int(found['ContentRange'].rpartition('/')[2]) if 'ContentRange' in found else len(data)
        return Stat(size, unquoted(found.get('ETag'))), data

    async def head(self, path: str) -> Stat:
        found = await self._call('head_object', path)
        return Stat(found['ContentLength'], unquoted(found.get('ETag')))

    async def put(self, path: str, data: bytes, create: bool) -> None:
        await self._call('put_object', path, Body=data, **({'IfNoneMatch': '*'} if create else {}))

    async def begin(self, path: str, create: bool) -> tuple[str, str]:
        return path, (await self._call('create_multipart_upload', path))['UploadId']

    async def part(self, token: Any, number: int, offset: int, data: bytes) -> str:
        found = await self._call('upload_part', token[0], UploadId=token[1], PartNumber=number + 1, Body=data)
        etag: str = found['ETag']
        return etag

    async def complete(self, token: Any, receipts: list[Any], offset: int, last: bytes, create: bool) -> None:
        parts = [{'ETag': etag, 'PartNumber': number + 1} for number, etag in enumerate(receipts)]
        condition = {'IfNoneMatch': '*'} if create else {}
        await self._call(
            'complete_multipart_upload',
            token[0],
            UploadId=token[1],
            MultipartUpload={'Parts': parts},
            **condition,
        )

    def version_of(self, receipts: list[Any]) -> str | None:
        digests = [unquoted(etag) for etag in receipts]
        if not all(map(MD5.fullmatch, digests)):
            return None
        whole = hashlib.md5(b''.join(map(bytes.fromhex, digests)), usedforsecurity=False)
        return f'{whole.hexdigest()}-{len(digests)}'

    async def abort(self, token: Any) -> None:
        await self._call('abort_multipart_upload', token[0], UploadId=token[1])

    async def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        key = split(folder if '://' in folder else f's3://{folder}')[1]
        prefix = f'{key}/' if key else ''
        names: dict[str, Stat | None] = {}
        more: dict[str, str] = {} if deep else {'Delimiter': '/'}
        while True:
            found = await self._call('list_objects_v2', folder, Prefix=prefix, **more)
            for entry in found.get('CommonPrefixes', ()):
                names[entry['Prefix'][len(prefix) :].rstrip('/')] = None
            for entry in found.get('Contents', ()):
                if entry['Key'] != prefix:
                    names[entry['Key'][len(prefix) :]] = Stat(entry['Size'], unquoted(entry.get('ETag')))
            if not found.get('IsTruncated'):
                return names
            more['ContinuationToken'] = found['NextContinuationToken']

    async def remove(self, path: str) -> None:
        await self._call('delete_object', path)

    async def copy(self, path: str, target: str) -> None:
        bucket, key = split(path if '://' in path else f's3://{path}')
        await self._call('copy_object', target, CopySource={'Bucket': bucket, 'Key': key})


def _fault(path: str, exc: BaseException) -> Exception:
    """Returns the error that one of botocore, aiohttp or s3fs stands for."""
    cause = exc.__cause__ if exc.__cause__ is not None else exc
    response = getattr(cause, 'response', None)
    if isinstance(response, dict):
        error = response.get('Error', {})
        about = response.get('ResponseMetadata', {})
        status = about.get('HTTPStatusCode') or 500
        if error.get('Code') in ('SlowDown', 'RequestTimeout', 'InternalError'):
            status = 503
        region = about.get('HTTPHeaders', {}).get('x-amz-bucket-region') if status in (301, 400) else None
        reason = f'{error.get("Code", "")} {error.get("Message", "")}'
        return by_status(path, status, reason + (f', x-amz-bucket-region: {region}' if region else ''))
    name = type(cause).__name__
    if 'Credentials' in name or 'Profile' in name or 'TokenRetrieval' in name:
        return PermissionError(13, f'no credentials (anon=True needs none): {cause}', path)
    if isinstance(exc, FileNotFoundError):
        return by_status(path, 404, '')
    if isinstance(exc, PermissionError):
        return by_status(path, 403, str(exc))
    if isinstance(exc, FileExistsError):
        return Precondition(str(exc))
    if isinstance(exc, ValueError | TypeError | asyncio.CancelledError) or 'ParamValidation' in name:
        return ValueError(f'{path}: {exc}')
    return Transient(f'{name}: {cause}', 'imeout' in name)
