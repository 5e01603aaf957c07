"""Client of the Hugging Face hub. Reads repositories with plain HTTP, like a web server that lists its files.

The hub responds to a request for a large file with a redirect to a signed URL on another host. The URL is
cached while it is valid, so that a byte range is one request. The token is not sent to that host.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from fsspec.asyn import sync

from bags.errors import MissingDependencyError
from bags.storage.base import Stat
from bags.storage.errors import error_for_status, map_fsspec_error, retry_after
from bags.storage.filesystem import make_filesystem
from bags.storage.fsspec_client import FsspecClient, send_get
from bags.storage.hub_path import HubPath
from bags.storage.retry import RetryPolicy, with_retries

try:
    import aiohttp
except ImportError as exc:
    raise MissingDependencyError('aiohttp', 'hf') from exc

MAX_REDIRECTS = 20_000
"""Maximum number of cached signed URLs, of about a kilobyte each."""
EXPIRED = (400, 401, 403, 404, 410)
"""Statuses of responses for an expired signed URL."""
ACCESS_HINT = 'a private or gated repository needs a token: HF_TOKEN, or the storage option token'


class Redirect(NamedTuple):
    """The URL to which the hub has redirected requests for a file."""

    url: Any
    version: str
    """The version of the file at that URL."""


class HubClient(FsspecClient):
    """Reads repositories of the Hugging Face hub. `Clients.writer` uses the file system of huggingface_hub.

    Args:
        options: `token` and `endpoint`; see `hub_options`.
        policy: Retries and timeouts.
    """

    def __init__(self, options: Mapping[str, Any], policy: RetryPolicy) -> None:
        # Signed URLs must be requested without requoting.
        session = {'client_kwargs': {'requote_redirect_url': False}}
        super().__init__(make_filesystem('https', session, policy), policy)
        self.version_type, self.can_list = 'hub', True
        self._endpoint, token = options['endpoint'], options['token']
        self._headers = {'Authorization': f'Bearer {token}'} if token else {}
        self._redirects: dict[str, Redirect] = {}

    @staticmethod
    def map_error(path: str, exc: Exception) -> Exception:
        if not isinstance(exc, aiohttp.ClientResponseError):
            return map_fsspec_error(path, exc)
        headers: Mapping[str, str] = exc.headers or {}
        # The text of the error is not used, as it contains the signed URL.
        reason = headers.get('X-Error-Message') or exc.message
        if exc.status in (401, 403):
            reason = f'{reason} ({ACCESS_HINT})'
        if exc.status == 404:
            return FileNotFoundError(errno.ENOENT, reason, path)
        return error_for_status(path, exc.status, reason, retry_after(headers))

    def pinned(self, path: str) -> str:
        folder = HubPath.of(path)
        if folder.is_pinned:
            return path
        address = folder.api_address('revision')
        info, _ = with_retries(self.policy, self.map_error, self._get_json, path, f'{address}?expand=sha')
        return folder._replace(revision=info['sha']).url

    def get_range(self, path: str, start: int | None, stop: int, version: str) -> tuple[Stat, bytes]:
        byte_range = range(-stop, 0) if start is None else range(start, stop)
        file, redirect = HubPath.of(path), self._redirects.get(path)
        if redirect is not None and (file.is_pinned or version == redirect.version):
            try:
                stat, data, _ = self.get_from_web(redirect.url, byte_range, {})
                return Stat(stat.size, redirect.version), data
            except aiohttp.ClientResponseError as exc:
                if exc.status not in EXPIRED:
                    raise
                self._redirects.pop(path, None)
        address = f'{self._endpoint}{file.file_address()}'
        stat, data, responses = self.get_from_web(address, byte_range, self._headers)
        response = responses[-1]
        etags = [answer.headers.get('X-Linked-Etag', '') for answer in responses]
        version = next(filter(None, etags), response.headers.get('ETag', ''))
        version = version.removeprefix('W/').strip('"')
        if response.url.origin() != responses[0].url.origin():
            if len(self._redirects) >= MAX_REDIRECTS:
                self._redirects.clear()
            self._redirects[path] = Redirect(response.url, version)
        return Stat(stat.size, version), data

    def get_stat(self, path: str) -> Stat:
        return self.get_range(path, 0, 1, '')[0]

    def list_names(self, folder: str) -> list[str]:
        return [name for name, _ in self._entries(folder, '')]

    def list_files(self, folder: str) -> dict[str, Stat]:
        entries = self._entries(folder, '?recursive=true')
        return {name: _stat(entry) for name, entry in entries if entry['type'] == 'file'}

    def _entries(self, path: str, query: str) -> list[tuple[str, dict[str, Any]]]:
        folder = HubPath.of(path)
        address: Any = f'{folder.api_address("tree")}/{quote(folder.name)}'.rstrip('/') + query
        entries: list[dict[str, Any]] = []
        while address:
            try:
                page, address = self._get_json(path, address)
            except aiohttp.ClientResponseError as exc:
                if exc.status == 404 and exc.headers and exc.headers.get('X-Error-Code') == 'EntryNotFound':
                    return []
                raise
            entries += page
        start = len(folder.name) + bool(folder.name)
        return [(entry['path'][start:], entry) for entry in entries]

    def _get_json(self, _path: str, address: str) -> tuple[Any, str | None]:
        """Returns a JSON response of the API, and the path of its next page; None if it is the last page."""
        filesystem, url = self.filesystem, f'{self._endpoint}{address}'
        with self.semaphore:
            page: tuple[Any, str | None] = sync(
                filesystem.loop, _get_json, filesystem, url, self._headers,
                timeout=self.policy.attempt_timeout,
            )  # fmt: skip
        return page


async def _get_json(filesystem: Any, url: str, headers: Mapping[str, str]) -> tuple[Any, str | None]:
    async with send_get(filesystem, url, headers, {}) as (*_, response):
        response.raise_for_status()
        following = response.links.get('next', {}).get('url')
        return await response.json(), following and following.path_qs


def _stat(entry: Mapping[str, Any]) -> Stat:
    return Stat(entry['size'], (entry.get('lfs') or entry)['oid'])
