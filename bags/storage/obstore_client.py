"""Client of S3, GCS, Azure and web servers through obstore, with little CPU time per request.

Each byte range is one request, on the condition that the object has the version that was opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import unquote

from bags.errors import MissingDependencyError
from bags.storage.base import Stat
from bags.storage.errors import (
    FSSPEC_HINT,
    CutResponseError,
    PreconditionError,
    TransientError,
    UnsupportedError,
    encoded_error,
    map_obstore_error,
)
from bags.storage.object_client import ObjectClient, web_version
from bags.storage.obstore_options import ObstoreSettings
from bags.storage.retry import RetryPolicy
from bags.storage.upload import PART_SIZE

try:
    import obstore
    from obstore import store as stores
except ImportError as exc:
    raise MissingDependencyError('obstore', 's3') from exc

UPLOAD_CHUNK_SIZE = 4 * PART_SIZE  # Bytes of each part of an upload of unknown size.
UPLOAD_CONCURRENCY = 4
REPLACING_STORES = ('S3Store', 'AzureStore')
"""Stores that compare the ETag of an object in the request that replaces it. GCS compares a generation, which
is not in its responses to obstore."""

Purpose = Literal['read', 'write', 'stream']


class ObstoreClient(ObjectClient):
    """An object store through obstore.

    For an upload of unknown size, the client checks that the object does not exist before and after the data
    is sent. The check is not atomic with the creation, as obstore lacks conditional multipart uploads.

    Args:
        settings: How obstore opens a bucket.
        policy: Retries and timeouts.
    """

    map_error = staticmethod(map_obstore_error)
    merge_gap = 1 << 16
    max_object_size = 10_000 * UPLOAD_CHUNK_SIZE  # S3 and GCS accept 10,000 parts.

    def __init__(self, settings: ObstoreSettings, policy: RetryPolicy) -> None:
        super().__init__(policy)
        self._settings = settings
        self.is_web = settings.store_class == 'HTTPStore'
        self.version_type, self.can_list = ('web', False) if self.is_web else ('etag', True)
        self.hashed_part_size = UPLOAD_CHUNK_SIZE if settings.store_class == 'S3Store' else None
        self._stores: dict[tuple[str, Purpose], Any] = {}

    def _store(self, path: str, purpose: Purpose = 'read') -> tuple[Any, str]:
        """Returns the obstore store of a path, and the key in it."""
        bucket, _, key = path.partition('://')[2].lstrip('/').partition('/')
        key = unquote(key) if self.is_web else key  # obstore quotes the key again.
        if '//' in f'/{key}':
            raise UnsupportedError(path, f"'//' in a key: {FSSPEC_HINT} to use such keys")
        store = self._stores.get((bucket, purpose))
        if store is None:
            store = self._stores[bucket, purpose] = self._make_store(path, bucket, purpose)
        return store, key

    def _make_store(self, path: str, bucket: str, purpose: Purpose) -> Any:
        policy = self.policy
        timeout = policy.attempt_timeout if purpose == 'read' else policy.timeout
        client_options: Any = {
            'timeout': timedelta(seconds=timeout),
            'connect_timeout': timedelta(seconds=policy.connect_timeout),
            'allow_http': self._settings.allow_http,
        }
        # Only obstore has the parts of a stream, so it does the retries.
        retry_config: Any = {
            'max_retries': policy.retries if purpose == 'stream' else 0,
            'retry_timeout': timedelta(seconds=policy.timeout),
        }
        make = getattr(stores, self._settings.store_class)
        if make is stores.HTTPStore:
            url = f'{path.partition("://")[0]}://{bucket}'
            client_options['default_headers'] = {'Accept-Encoding': 'identity'}
            return make.from_url(url, client_options=client_options, retry_config=retry_config)
        return make(bucket, **self._settings.config, client_options=client_options, retry_config=retry_config)

    def get_range(self, path: str, start: int | None, stop: int, version: str) -> tuple[Stat, bytes]:
        store, key = self._store(path)
        options: Any = {'range': {'suffix': stop} if start is None else (start, stop)}
        if version and not version.startswith('W/') and not self.is_web:
            options['if_match'] = f'"{version}"'
        with self.semaphore:
            result = obstore.get(store, key, options=options)
            if self.is_web:
                stat = self._web_stat(path, result)
                return stat, _read(path, stat, result)
            return _stat(result.meta), result.buffer().to_bytes()

    def get_stat(self, path: str) -> Stat:
        if self.is_web:
            return self._web_stat(path, obstore.get(*self._store(path)))
        return _stat(obstore.head(*self._store(path)))

    def _web_stat(self, path: str, found: Any) -> Stat:
        encoding = found.attributes.get('Content-Encoding', 'identity')
        if encoding != 'identity':
            raise encoded_error(path, encoding)
        meta = found.meta  # Without Last-Modified, `last_modified` is 1970-01-01.
        return Stat(meta['size'], web_version(meta['e_tag'], meta['last_modified']))

    def list_names(self, folder: str) -> list[str]:
        store, key = self._store(folder)
        level = obstore.list_with_delimiter(store, key or None)
        paths = [*level['common_prefixes'], *(item['path'] for item in level['objects'])]
        names = (path[len(key) :].lstrip('/') for path in paths)
        return [name for name in names if name]  # A console creates a folder as a key that ends with a slash.

    def list_files(self, folder: str) -> dict[str, Stat]:
        store, key = self._store(folder)
        stats = {}
        for page in obstore.list(store, key or None):
            for item in page:
                name = item['path'][len(key) :].lstrip('/')
                if name:
                    stats[name] = _stat(item)
        return stats

    def put_object(self, path: str, data: bytes, version: str | None) -> None:
        store, key = self._store(path, 'write')
        mode: Any = 'create' if version is None else 'overwrite'
        if version and self._settings.store_class in REPLACING_STORES:
            mode = {'e_tag': f'"{version}"'}
        elif version and self.get_stat(path).version != version:
            raise PreconditionError('has another version')
        obstore.put(store, key, data, mode=mode, use_multipart=False)

    def put_stream(self, path: str, parts: Iterable[bytes], create: bool) -> None:
        store, key = self._store(path, 'stream')
        obstore.put(store, key, parts, chunk_size=UPLOAD_CHUNK_SIZE, max_concurrency=UPLOAD_CONCURRENCY)

    def delete_object(self, path: str) -> None:
        obstore.delete(*self._store(path))

    def copy_object(self, path: str, target: str) -> None:
        store, key = self._store(path, 'write')
        obstore.copy(store, key, self._store(target)[1])


def _read(path: str, stat: Stat, found: Any) -> bytes:
    """Returns the bytes of a range. Stops reading if the server sends more.

    Raises:
        CutResponseError: The body ended early.
    """
    (start, stop), parts, size = found.range, [], 0
    try:
        for part in found.stream(min_chunk_size=1):  # Of larger chunks, an incomplete one would be lost.
            parts.append(part)
            size += len(part)
            if size > stop - start:
                raise TransientError(f'expected {stop - start} bytes, got more')
    except obstore.exceptions.BaseError as exc:
        error = map_obstore_error(path, exc)
        if isinstance(error, TransientError):
            error = CutResponseError(error, stat, b''.join(parts))
        raise error from exc
    return b''.join(parts)


def _stat(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta['size'], (meta['e_tag'] or meta['version'] or '').strip('"'))
