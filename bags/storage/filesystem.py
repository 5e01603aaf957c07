"""Creates fsspec file systems for URL schemes, and copies them for this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bags.errors import MissingDependencyError
from bags.storage.obstore_options import fsspec_options
from bags.storage.retry import RetryPolicy

ONE_ATTEMPT = {'total_max_attempts': 1}
"""The option of botocore that disables retries, since `with_retries` retries."""
FILESYSTEM_PACKAGES = {
    's3': ('s3fs', 's3fs'),
    'gs': ('gcsfs', 'gcsfs'),
    'az': ('adlfs', ''),
    'http': ('aiohttp', ''),
    'https': ('aiohttp', ''),
}
"""Maps URL schemes to the package of their fsspec file system, and the extra that installs it."""


def filesystem_options(scheme: str, options: Mapping[str, Any], policy: RetryPolicy) -> dict[str, Any]:
    """Returns the arguments of the fsspec file system of a URL scheme."""
    arguments = fsspec_options(scheme, options)
    if scheme == 's3':
        arguments['config_kwargs'] = {
            'connect_timeout': policy.connect_timeout,
            'read_timeout': policy.timeout,  # A single attempt is bounded by the client.
            'max_pool_connections': policy.concurrency,
            **(arguments.get('config_kwargs') or {}),
        }
    if scheme in ('http', 'https'):
        arguments.setdefault('get_client', _make_web_session)
    return arguments


HEADERS_OF_ANY_HOST = ('accept', 'accept-encoding', 'range', 'user-agent')
"""Headers that are also sent to the host of a redirect. Others may contain secrets."""


async def _make_web_session(**options: Any) -> Any:
    """Returns a session of aiohttp that sends secrets only to the scheme, host and port of a URL.

    aiohttp removes three headers from a redirect to another host. It keeps the others, and the password and
    cookies of the session, which are therefore passed as headers.
    """
    from aiohttp import ClientSession, TraceConfig

    headers = dict(options.pop('headers', None) or {})
    auth, cookies = options.pop('auth', None), options.pop('cookies', None)
    if auth is not None:
        headers['Authorization'] = auth.encode()
    if cookies:
        headers['Cookie'] = '; '.join(f'{name}={value}' for name, value in dict(cookies).items())
    tracing = TraceConfig()
    tracing.on_request_redirect.append(_drop_secrets)
    options['trace_configs'] = [*(options.get('trace_configs') or ()), tracing]
    return ClientSession(headers=headers, **options)


async def _drop_secrets(_session: Any, _context: Any, request: Any) -> None:
    """Removes headers from a request that is redirected to another scheme, host or port."""
    from yarl import URL

    try:
        target = request.url.join(URL(request.response.headers.get('Location', '')))
    except ValueError:
        return  # The redirect is not followed.
    if web_origin(target) != web_origin(request.url):
        for name in {*request.headers}:
            if name.lower() not in HEADERS_OF_ANY_HOST:
                request.headers.popall(name)


def web_origin(url: Any) -> tuple[str, str, int | None]:
    """Returns scheme, host and port of a URL of yarl."""
    return url.scheme, (url.host or '').lower(), url.port


def make_filesystem(scheme: str, options: Mapping[str, Any], policy: RetryPolicy) -> Any:
    """Returns a new fsspec file system for a URL scheme.

    Raises:
        MissingDependencyError: The package of the file system is not installed.
    """
    import fsspec

    options = filesystem_options(scheme, options, policy)
    if scheme == 's3':
        options['config_kwargs'].setdefault('retries', ONE_ATTEMPT)
    try:
        # Skips fsspec's instance cache, which shares a file system between all users of equal options.
        filesystem = fsspec.filesystem(scheme, **{**options, 'skip_instance_cache': True})
    except ImportError as exc:
        # fsspec wraps the error that names the package.
        missing = getattr(exc.__cause__, 'name', None) or exc.name or f'the fsspec package for {scheme}'
        raise MissingDependencyError(*FILESYSTEM_PACKAGES.get(scheme, (missing, ''))) from exc
    if scheme == 's3':
        filesystem.retries = 1
    return filesystem


def usable_here(filesystem: Any) -> Any:
    """Returns a file system, or a copy if it belongs to another process or to the caller's event loop."""
    try:
        if not filesystem.asynchronous and filesystem.loop is not None:
            return filesystem
    except RuntimeError:
        pass  # The file system was created before this process was forked.
    return copied(filesystem)


def copied(filesystem: Any, **options: Any) -> Any:
    """Returns a copy of a file system that belongs to this process, with `options` overriding its options."""
    options = {
        **filesystem.storage_options, 'asynchronous': False, 'skip_instance_cache': True, 'loop': None,
        **options,
    }  # fmt: skip
    return type(filesystem)(*filesystem.storage_args, **options)
