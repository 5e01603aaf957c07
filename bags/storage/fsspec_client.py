"""Client of any fsspec file system, for URLs that obstore does not support, or if obstore cannot be used.

Only public methods are used. With conditional requests (s3fs, gcsfs), a byte range is one request on the
condition that the object has the version that was opened. With other file systems, the version is requested
after each range, and before and after the first one. Each response of a web server includes size and version.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import re
import secrets
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from fsspec.asyn import sync

from bags.concurrency import cached_attribute
from bags.storage.base import Stat
from bags.storage.errors import (
    CutResponseError,
    PreconditionError,
    RangeError,
    TransientError,
    UnsupportedError,
    encoded_error,
    map_fsspec_error,
    no_ranges_error,
)
from bags.storage.filesystem import ONE_ATTEMPT, copied, usable_here, web_origin
from bags.storage.object_client import ObjectClient, web_version
from bags.storage.retry import RetryPolicy, with_retries
from bags.storage.upload import PART_SIZE

VERSION_KEYS = (
    'generation', 'etag', 'ETag', 'e_tag', 'version', 'created', 'mtime', 'last_modified', 'LastModified',
    'Last-Modified',
)  # fmt: skip
"""Keys of fsspec's info about a file whose values change with the content, in order of precision."""

REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 10
OPTIONS_OF_ANY_HOST = ('proxy', 'proxy_auth', 'proxy_headers', 'ssl', 'timeout')
"""Options of requests that are also used for the host of a redirect. Others may contain secrets."""
CONTENT_RANGE = re.compile(r'bytes (\d{1,18})-(\d{1,18})/(\d{1,18})')


class FsspecClient(ObjectClient):
    """An object store, or another type of storage, through an fsspec file system.

    Methods of a synchronous file system are called one at a time, as it may not be thread-safe.

    Without conditional requests, a file is compared before it is created or replaced: a writer in another
    process may write it between these two steps.

    Args:
        filesystem: The file system.
        policy: Retries and timeouts.
    """

    map_error = staticmethod(map_fsspec_error)
    merge_gap = 1 << 18  # A request costs nearly a millisecond of CPU time.
    max_object_size = 5 << 40

    def __init__(self, filesystem: Any, policy: RetryPolicy) -> None:
        super().__init__(policy)
        self.is_async = self.sends_parts = getattr(filesystem, 'async_impl', False)
        if self.is_async:
            filesystem = usable_here(filesystem)
        else:
            self.semaphore = threading.Semaphore(1)
        self.filesystem = filesystem
        protocols = filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,)
        if hasattr(filesystem, 'call_s3'):
            self.version_type = 'etag'
            self.hashed_part_size = PART_SIZE if getattr(filesystem, 'fixed_upload_size', False) else 0
        elif 'gs' in protocols and hasattr(filesystem, 'call'):
            self.version_type = 'generation'
            self.hashed_part_size = self.max_object_size  # The checksum is of the whole object.
        elif not {'http', 'https'}.isdisjoint(protocols) and hasattr(filesystem, 'set_session'):
            self.version_type, self.is_web, self.can_list = 'web', True, False
        else:
            self.version_type = 'info'
        self.is_conditional = self.version_type in ('etag', 'generation')
        self._checked_puts = threading.Lock()
        """Held while an object is compared and then written, without conditional requests."""

    def _inner(self, path: str) -> str:
        """Returns a path in the form of the file system."""
        inner: str = self.filesystem._strip_protocol(path)
        return inner

    def _call(self, method: str, path: str, *args: Any, timeout: float = 0.0, **options: Any) -> Any:
        """Calls a method of the file system on a path."""
        filesystem, inner = self.filesystem, self._inner(path)
        with self.semaphore:
            if not self.is_async:
                return getattr(filesystem, method)(inner, *args, **options)
            options['timeout'] = timeout or self.policy.attempt_timeout
            return sync(filesystem.loop, getattr(filesystem, f'_{method}'), inner, *args, **options)

    def get_range(self, path: str, start: int | None, stop: int, version: str) -> tuple[Stat, bytes]:
        if self.is_web:
            byte_range = range(-stop, 0) if start is None else range(start, stop)
            return self.get_from_web(path, byte_range, {})[:2]
        if self.is_conditional:
            header = f'bytes=-{stop}' if start is None else f'bytes={start}-{stop - 1}'
            with self.semaphore:
                if self.version_type == 'etag':
                    return self._get_from_s3(path, header, version)
                return self._get_from_gcs(path, header, version)
        if start is None:
            head = self.get_stat(path)
            first = max(0, head.size - stop)
            data = bytes(self._call('cat_file', path, start=first, end=head.size)) if head.size else b''
            if self.get_stat(path) != head:
                raise TransientError('the object was replaced while it was opened')
            return head, data
        data = bytes(self._call('cat_file', path, start=start, end=stop))
        if len(data) > stop - start:
            raise no_ranges_error(path)
        return self.get_stat(path), data

    def _get_from_s3(self, path: str, byte_range: str, version: str) -> tuple[Stat, bytes]:
        filesystem, timeout = self.filesystem, self.policy.attempt_timeout
        bucket, key, _ = filesystem.split_path(path)
        condition = {'IfMatch': f'"{version}"'} if version else {}
        response = filesystem.call_s3(
            'get_object', Bucket=bucket, Key=key, Range=byte_range, **condition, timeout=timeout
        )
        data = sync(filesystem.loop, _read_body, response['Body'], timeout=timeout)
        size = int(response['ContentRange'].rpartition('/')[2]) if 'ContentRange' in response else len(data)
        return Stat(size, response.get('ETag', '').strip('"')), data

    def _get_from_gcs(self, path: str, byte_range: str, version: str) -> tuple[Stat, bytes]:
        condition = {'ifGenerationMatch': version} if version else {}
        url, headers = self.filesystem.url(path), {'Range': byte_range}
        timeout = self.policy.attempt_timeout
        headers, data = self.filesystem.call('GET', url, headers=headers, timeout=timeout, **condition)
        content_range = headers.get('Content-Range')
        if content_range is None and byte_range.startswith('bytes=-') and len(data) > int(byte_range[7:]):
            raise RangeError('the object store did not return a range')
        size = int(content_range.rpartition('/')[2]) if content_range is not None else len(data)
        return Stat(size, headers.get('x-goog-generation', '')), data

    def get_from_web(
        self, url: Any, byte_range: range | None, headers: Mapping[str, str]
    ) -> tuple[Stat, bytes, list[Any]]:
        """Requests bytes of a file on a web server; see `_request`."""
        filesystem, timeout = self.filesystem, self.policy.attempt_timeout
        with self.semaphore:
            response: tuple[Stat, bytes, list[Any]] = sync(
                filesystem.loop, _request, filesystem, url, byte_range, headers, timeout=timeout
            )
        return response

    def get_stat(self, path: str) -> Stat:
        if self.is_web:
            return self.get_from_web(path, None, {})[0]
        self.filesystem.invalidate_cache()
        info = self._call('info', path)
        if info['type'] == 'directory':
            raise FileNotFoundError(path)
        return _stat(info)

    def list_names(self, folder: str) -> list[str]:
        return list(self._list('ls', folder))

    def list_files(self, folder: str) -> dict[str, Stat]:
        entries = self._list('find', folder).items()
        return {name: _stat(entry) for name, entry in entries if entry['type'] != 'directory'}

    def _list(self, method: str, folder: str) -> dict[str, Any]:
        self.filesystem.invalidate_cache()
        try:
            listing = self._call(method, folder, detail=True)
        except FileNotFoundError:
            return {}  # Object stores have no empty folders; the caller decides whether this is an error.
        prefix = self._inner(folder).strip('/')
        prefix += '/' if prefix else ''
        # Some file systems also list the folder itself.
        entries = {
            entry['name'].strip('/'): entry for entry in (listing.values() if method == 'find' else listing)
        }
        return {name[len(prefix) :]: entry for name, entry in entries.items() if name.startswith(prefix)}

    def put_object(self, path: str, data: bytes, version: str | None) -> None:
        if version and self.version_type == 'generation':
            self._replace_in_gcs(path, data, version)
            return
        options: dict[str, Any] = {}
        if self.is_conditional:
            options = {'mode': 'create'} if version is None else {}
            options |= {'IfMatch': f'"{version}"'} if version else {}
        with contextlib.nullcontext() if self.is_conditional or version == '' else self._checked_puts:
            if not self.is_conditional and version != '':
                self._check_without_condition(path, version)
            self._make_parent(path)
            self._call('pipe_file', path, data, timeout=self.policy.timeout, **options)

    def _check_without_condition(self, path: str, version: str | None) -> None:
        try:
            found: str | None = self.get_stat(path).version
        except FileNotFoundError:
            found = None
        if found != version:
            raise PreconditionError('has another version' if version else 'already exists')

    def _replace_in_gcs(self, path: str, data: bytes, version: str) -> None:
        """Replaces an object of a generation. gcsfs has only the condition that an object does not exist."""
        filesystem = self.filesystem
        _, key, _ = filesystem.split_path(path)
        url = filesystem.url(path).replace('/download/', '/upload/', 1).rpartition('/o/')[0]
        boundary = secrets.token_hex(16)
        parts = [('application/json', json.dumps({'name': key}).encode()), ('application/octet-stream', data)]
        body = b''.join(
            f'--{boundary}\r\nContent-Type: {name}\r\n\r\n'.encode() + part + b'\r\n' for name, part in parts
        )
        with self.semaphore:
            filesystem.call(
                'POST', f'{url}/o', uploadType='multipart', ifGenerationMatch=version,
                data=body + f'--{boundary}--'.encode(), timeout=self.policy.timeout,
                headers={'Content-Type': f'multipart/related; boundary={boundary}'},
            )  # fmt: skip
        filesystem.invalidate_cache()

    def put_stream(self, path: str, parts: Iterable[bytes], create: bool) -> None:
        if self.is_conditional:
            # The object becomes visible when the file is closed; `discard` drops the parts that were sent.
            with self.semaphore:
                filesystem = self._upload_filesystem
                file = filesystem.open(self._inner(path), 'xb' if create else 'wb', block_size=PART_SIZE)
            try:
                for part in parts:
                    file.write(part)
                file.close()
            except BaseException:
                try:
                    file.discard()
                finally:
                    file.closed = True  # Otherwise deleting the Python object would complete the upload.
                raise
            return
        self._make_parent(path)
        folder, _, name = path.rpartition('/')
        temporary = f'{folder}/.{name}.{secrets.token_hex(4)}.new'
        size = 0
        try:
            with self.semaphore:
                file = self.filesystem.open(self._inner(temporary), 'wb')
            with file:
                for part in parts:
                    size += file.write(part)
            stored = self.get_stat(temporary).size
            if stored != size:
                raise OSError(errno.EIO, f'expected {size} bytes after writing, got {stored}', path)
            with self.semaphore:
                self.filesystem.mv(self._inner(temporary), self._inner(path))
        except BaseException:
            with contextlib.suppress(Exception):
                self.delete_object(temporary)
            raise

    @cached_attribute
    def _upload_filesystem(self) -> Any:
        """The file system for uploads in parts. It does its own retries, as only it has the parts."""
        filesystem = self.filesystem
        if getattr(filesystem, 'config_kwargs', {}).get('retries') != ONE_ATTEMPT:
            return filesystem
        retries = {'mode': 'standard', 'total_max_attempts': self.policy.retries + 1}
        return copied(filesystem, config_kwargs={**filesystem.config_kwargs, 'retries': retries})

    def get_checksum(self, path: str, head: Stat) -> str:
        if self.version_type != 'generation':
            return head.version
        self.filesystem.invalidate_cache()
        info = with_retries(self.policy, self.map_error, lambda path: self._call('info', path), path)
        is_same = str(info.get('generation')) == head.version
        return base64.b64decode(info.get('md5Hash') or '').hex() if is_same else ''

    def delete_object(self, path: str) -> None:
        self._call('rm_file', path)

    def copy_object(self, path: str, target: str) -> None:
        self._make_parent(target)
        self._call('cp_file', path, self._inner(target), timeout=self.policy.timeout)

    def _make_parent(self, path: str) -> None:
        parent = self._inner(path).rpartition('/')[0]
        if parent and not self.is_async:  # Object stores have no folders.
            self._call('makedirs', parent, exist_ok=True)


async def _read_body(body: Any) -> Any:
    async with body:
        return await body.read()


@contextlib.asynccontextmanager
async def send_get(
    filesystem: Any, url: Any, headers: Mapping[str, str], own_headers: Mapping[str, str]
) -> AsyncIterator[list[Any]]:
    """Sends a GET request, and follows redirects.

    A redirect to another scheme, host or port gets `own_headers` only, and so do the redirects after it: no
    headers, cookies, passwords or parameters that the user gave for the host of `url`. (aiohttp would remove
    only three headers.)

    Args:
        filesystem: The HTTP file system of fsspec, with the headers and other options of the user.
        url: The URL.
        headers: Headers to send in addition to the headers of the file system.
        own_headers: Headers that every host gets.

    Yields:
        The responses of aiohttp. The body of the last one has not been read.
    """
    from aiohttp import ClientResponseError, ClientSession, TooManyRedirects
    from yarl import URL

    session, options = await filesystem.set_session(), dict(filesystem.kwargs)
    headers = {**options.pop('headers', {}), **headers}
    follows = options.pop('allow_redirects', True)
    maximum = options.pop('max_redirects', MAX_REDIRECTS)
    url, responses, is_given_host = filesystem.encode_url(url), [], True
    async with contextlib.AsyncExitStack() as stack:
        while True:
            request = session.get(url, headers={**headers, **own_headers}, allow_redirects=False, **options)
            response = await stack.enter_async_context(request)
            responses.append(response)
            location = response.headers.get('Location')
            if not follows or response.status not in REDIRECTS or not location:
                break
            response.release()
            if len(responses) > maximum:
                raise TooManyRedirects(response.request_info, tuple(responses))
            try:
                target = url.join(URL(location, encoded=not session.requote_redirect_url))
            except ValueError:
                target = URL()
            if target.scheme not in ('http', 'https') or not target.host:
                message = 'the Location header is not an HTTP address'
                raise ClientResponseError(response.request_info, (), status=response.status, message=message)
            if web_origin(target) != web_origin(url):
                is_given_host = False
                headers = {}
                options = {name: options[name] for name in OPTIONS_OF_ANY_HOST if name in options}
                # The session of the user may have headers, cookies and a password too.
                new_session = ClientSession(
                    connector=session.connector, connector_owner=False, trust_env=session.trust_env,
                    timeout=session.timeout, requote_redirect_url=session.requote_redirect_url,
                )  # fmt: skip
                session = await stack.enter_async_context(new_session)
            elif url.user is not None and target.user is None:
                target = target.with_user(url.user).with_password(url.password)
            options.pop('params', None)  # The Location header includes the query.
            url = target
        if response.status in (401, 403) and not is_given_host and 'headers' in filesystem.kwargs:
            message = f'{response.reason}, at {url.host}: a redirect gets no headers of storage_options'
            raise ClientResponseError(
                response.request_info, (), status=response.status, message=message, headers=response.headers
            )
        yield responses


async def _request(
    filesystem: Any, url: Any, byte_range: range | None, headers: Mapping[str, str]
) -> tuple[Stat, bytes, list[Any]]:
    """Requests a byte range of a file on a web server, and reads no other bytes.

    Args:
        filesystem: The HTTP file system of fsspec.
        url: URL of the file.
        byte_range: The byte range. A negative start selects the last bytes. None reads no bytes.
        headers: Headers to send in addition to the headers of the file system.

    Returns:
        Size and version of the file, the bytes, and the response objects of aiohttp, the last one after
        those of redirects.
    """
    own_headers = {'Accept-Encoding': 'identity'}
    if byte_range is not None:
        stop = '' if byte_range.start < 0 else f'-{byte_range.stop - 1}'
        own_headers['Range'] = f'bytes={byte_range.start}{stop}'
    async with send_get(filesystem, url, headers, own_headers) as responses:
        response = responses[-1]
        headers, status = response.headers, response.status
        if status == 416 and headers.get('Content-Range') == 'bytes */0':
            return Stat(0), b'', responses
        response.raise_for_status()
        if status not in (200, 206):  # E.g. a redirect that must not be followed.
            from aiohttp import ClientResponseError

            raise ClientResponseError(response.request_info, (), status=status, message=response.reason or '')
        if headers.get('Content-Encoding', 'identity') != 'identity':
            raise encoded_error(url, headers['Content-Encoding'])
        modified = None
        with contextlib.suppress(ValueError):  # The header is missing, or not a date.
            modified = parsedate_to_datetime(headers.get('Last-Modified', ''))
        version = web_version(headers.get('ETag'), modified)
        if byte_range is None or (status == 200 and response.content_length == 0):
            if response.content_length is None:
                raise UnsupportedError(url, 'the server sends no Content-Length')
            return Stat(response.content_length, version), b'', responses
        if status == 200:
            raise no_ranges_error(url)
        match = CONTENT_RANGE.fullmatch(headers.get('Content-Range', ''))
        if match is None:
            content_range = headers.get('Content-Range')
            raise UnsupportedError(url, f'the response to a range has Content-Range {content_range!r:.80}')
        first, last, size = map(int, match.groups())
        expected = range(size)[byte_range.start : byte_range.stop or None]
        if (first, last) != (expected.start, expected.stop - 1):
            raise UnsupportedError(url, f'requested {expected}, got Content-Range {match[0]}')
        parts: list[bytes] = []
        missing = len(expected)
        try:
            while missing:
                parts.append(await response.content.read(missing))
                missing -= len(parts[-1])
                if not parts[-1]:
                    raise TransientError(f'expected {missing} more bytes, got none')
        except Exception as exc:
            error = map_fsspec_error('', exc)
            if isinstance(error, TransientError):
                raise CutResponseError(error, Stat(size, version), b''.join(parts)) from exc
            raise
        return Stat(size, version), b''.join(parts), responses


def _stat(info: Mapping[str, Any]) -> Stat:
    version = next((info[name] for name in VERSION_KEYS if info.get(name)), '')
    # A time may be a datetime in one response and a number in another.
    version = version.timestamp() if hasattr(version, 'timestamp') else version
    return Stat(int(info.get('size') or 0), str(version).strip('"'))
