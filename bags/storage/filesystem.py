"""fsspec file systems: made for the scheme of a URL, or copied for this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bags.errors import MissingDependencyError
from bags.storage.obstore_options import fsspec_options
from bags.storage.retry import RetryPolicy

ONE_ATTEMPT = {'total_max_attempts': 1}
"""Botocore's option for no retries, since `with_retries` retries."""
PACKAGES = {
    's3': ('s3fs (or obstore)', 's3'),
    'gs': ('gcsfs (or obstore)', 'gcs'),
    'az': ('adlfs (or obstore)', 'all'),
    'http': ('aiohttp', 'all'),
    'https': ('aiohttp', 'all'),
}
"""The package that a URL scheme needs, and the extra that installs it."""


def filesystem_options(scheme: str, options: Mapping[str, Any], policy: RetryPolicy) -> dict[str, Any]:
    """Returns the arguments of the fsspec file system of a URL scheme."""
    found = fsspec_options(scheme, options)
    if scheme == 's3':
        found['config_kwargs'] = {
            'connect_timeout': policy.connect_timeout,
            'read_timeout': policy.timeout,  # A single attempt is bounded by the client.
            'max_pool_connections': policy.concurrency,
            **(found.get('config_kwargs') or {}),
        }
    return found


def make_filesystem(scheme: str, options: Mapping[str, Any], policy: RetryPolicy) -> Any:
    """Returns a new fsspec file system for a URL scheme.

    Raises:
        MissingDependencyError: Its package is not installed.
    """
    import fsspec

    options = filesystem_options(scheme, options, policy)
    if scheme == 's3':
        options['config_kwargs'].setdefault('retries', ONE_ATTEMPT)
    try:
        # Not fsspec's cached instance, which is shared by all users of equal options.
        filesystem = fsspec.filesystem(scheme, **{**options, 'skip_instance_cache': True})
    except ImportError as exc:
        # fsspec wraps the error that names the package.
        missing = getattr(exc.__cause__, 'name', None) or exc.name or f'the fsspec package for {scheme}'
        raise MissingDependencyError(*PACKAGES.get(scheme, (missing, ''))) from exc
    if scheme == 's3':
        filesystem.retries = 1
    return filesystem


def usable_here(filesystem: Any) -> Any:
    """Returns a file system, or a copy if it belongs to another process or to an event loop of the caller."""
    try:
        if not filesystem.asynchronous and filesystem.loop is not None:
            return filesystem
    except RuntimeError:
        pass  # Made before this process was forked.
    return copied(filesystem)


def copied(filesystem: Any, **options: Any) -> Any:
    """Returns a file system with the same options, except for those given, that belongs to this process."""
    options = {
        **filesystem.storage_options, 'asynchronous': False, 'skip_instance_cache': True, 'loop': None,
        **options,
    }  # fmt: skip
    return type(filesystem)(*filesystem.storage_args, **options)
