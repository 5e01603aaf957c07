"""Storage options, as s3fs, gcsfs and obstore call them, for obstore's stores."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from bags.storage.retry import RetryPolicy

__all__ = ['Use', 'for_fsspec', 'store_maker']

Use = Literal['ask', 'send', 'stream']

S3 = {
    'key': 'access_key_id',
    'username': 'access_key_id',
    'aws_access_key_id': 'access_key_id',
    'access_key_id': 'access_key_id',
    'secret': 'secret_access_key',
    'password': 'secret_access_key',
    'aws_secret_access_key': 'secret_access_key',
    'secret_access_key': 'secret_access_key',
    'token': 'session_token',
    'aws_session_token': 'session_token',
    'session_token': 'session_token',
    'endpoint_url': 'endpoint',
    'endpoint': 'endpoint',
    'region': 'region',
    'region_name': 'region',
    'anon': 'skip_signature',
    'skip_signature': 'skip_signature',
    'profile': 'profile',
    'requester_pays': 'request_payer',
    'request_payer': 'request_payer',
}
"""What each option is called by obstore."""
GCS = {
    'project': 'project',
    'token': 'token',
    'endpoint_url': 'base_url',
    'base_url': 'base_url',
    'anon': 'skip_signature',
    'skip_signature': 'skip_signature',
}
AZURE = {
    'account_name': 'account_name',
    'account_key': 'account_key',
    'sas_token': 'sas_key',
    'sas_key': 'sas_key',
    'tenant_id': 'tenant_id',
    'client_id': 'client_id',
    'client_secret': 'client_secret',
    'anon': 'skip_signature',
    'skip_signature': 'skip_signature',
}
TUNING = {
    'asynchronous',
    'cache_regions',
    'cache_timeout',
    'check_connection',
    'default_block_size',
    'default_cache_type',
    'default_fill_cache',
    'listings_expiry_time',
    'max_concurrency',
    'max_paths',
    'skip_instance_cache',
    'use_listings_cache',
    'use_ssl',
}
"""Options of fsspec that say how it works and not with what: obstore needs none of them."""

FSSPEC = {
    'access_key_id': 'key',
    'secret_access_key': 'secret',
    'session_token': 'token',
    'endpoint': 'endpoint_url',
    'skip_signature': 'anon',
    'request_payer': 'requester_pays',
}


def for_fsspec(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options as s3fs and gcsfs call them, from those names or from obstore's."""
    if scheme == 's3':
        kept: dict[str, Any] = {}
        client: dict[str, Any] = dict(options.get('client_kwargs') or {})
        for name, value in options.items():
            known = S3.get(name)
            if name == 'client_kwargs':
                continue
            if known == 'region':
                client['region_name'] = value
            else:
                kept[FSSPEC.get(known, known) if known else name] = value
        return {**kept, 'client_kwargs': client} if client else kept
    if scheme == 'gs':
        kept = dict(options)
        if kept.pop('anon', False) or kept.pop('skip_signature', False):
            kept['token'] = 'anon'  # noqa: S105
        if 'base_url' in kept:
            kept['endpoint_url'] = kept.pop('base_url')
        token = kept.get('token')
        if isinstance(token, str) and token.endswith('.json') and not os.path.exists(token):
            # Else gcsfs would take it for a token, and ask Google what it thinks of it.
            raise FileNotFoundError(errno.ENOENT, 'storage option token: no such file', token)
        return kept
    return dict(options)


def store_maker(
    scheme: str, options: Mapping[str, Any], patience: RetryPolicy, use: Use = 'ask'
) -> Callable[[str], Any] | None:
    """Returns what makes obstore's store of a bucket; None if not all options mean something to it.

    Args:
        scheme, options, patience: As given.
        use: What requests it is for: those that ask for something; those that send an object; uploads of
            unknown size. The parts of those are known to obstore alone, which so tries them again itself;
            all else is tried again here, in the same way for all clients.
    """
    limits = {
        'client_options': {
            'timeout': timedelta(seconds=patience.attempt if use == 'ask' else patience.timeout),
            'connect_timeout': timedelta(seconds=patience.connect_timeout),
        },
        'retry_config': {
            'max_retries': patience.retries if use == 'stream' else 0,
            'retry_timeout': timedelta(seconds=patience.timeout),
        },
    }
    if scheme == 's3':
        return _s3_maker(options, limits)
    if scheme == 'gs':
        return _gcs_maker(options, limits)
    if scheme == 'az':
        return _azure_maker(options, limits)
    if scheme in ('http', 'https'):
        return _http_maker(options, limits)
    return None


def _translated(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name in TUNING or value is None:
            continue
        if name not in names:
            return None
        found[names[name]] = value
    return found


def _allow_http(limits: dict[str, Any], url: str | None) -> None:
    if url and url.startswith('http://'):
        limits['client_options']['allow_http'] = True


def _s3_maker(options: Mapping[str, Any], limits: dict[str, Any]) -> Callable[[str], Any] | None:
    flat = {**options, **(options.get('client_kwargs') or {})}
    flat.pop('client_kwargs', None)
    config = _translated(flat, S3)
    if config is None:
        return None
    config.setdefault('endpoint', os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get('AWS_ENDPOINT_URL'))
    endpoint = config['endpoint']
    if endpoint is None:
        del config['endpoint']
    _allow_http(limits, endpoint)
    profile = config.pop('profile', None)
    anonymous = config.get('skip_signature')
    config['skip_signature'] = bool(anonymous)
    if not anonymous and 'access_key_id' not in config:
        provider, region = _aws_chain(profile)
        if region and 'region' not in config:
            config['region'] = region
        if provider is not None:
            limits['credential_provider'] = provider

    def make(bucket: str) -> Any:
        from obstore.store import S3Store

        return S3Store(bucket, **config, **limits)

    return make


def _aws_chain(profile: str | None) -> tuple[Callable[[], Any] | None, str | None]:
    """Returns the credentials that AWS's own tools would use, as a function, and the region they would.

    obstore alone looks at the environment and asks the machine, which takes long where there is none to ask;
    it knows no profiles.
    """
    environment = os.environ
    if profile is None and 'AWS_PROFILE' not in environment and 'AWS_ACCESS_KEY_ID' in environment:
        return None, environment.get('AWS_REGION') or environment.get('AWS_DEFAULT_REGION')
    try:
        import botocore.session
    except ImportError:
        return None, None
    session = botocore.session.Session(profile=profile)

    def provider() -> Any:
        found = session.get_credentials()
        if found is None:
            raise PermissionError('no credentials found (storage option anon=True needs none)')
        frozen = found.get_frozen_credentials()
        return {
            'access_key_id': frozen.access_key,
            'secret_access_key': frozen.secret_key,
            'token': frozen.token,
            'expires_at': getattr(found, '_expiry_time', None),
        }

    return provider, session.get_config_variable('region')


def _gcs_maker(options: Mapping[str, Any], limits: dict[str, Any]) -> Callable[[str], Any] | None:
    config = _translated(options, GCS)
    if config is None:
        return None
    config.pop('project', None)  # Of use to those who make buckets.
    emulator = os.environ.get('STORAGE_EMULATOR_HOST')
    if 'base_url' not in config and emulator:
        config['base_url'] = emulator if '://' in emulator else f'http://{emulator}'
    _allow_http(limits, config.get('base_url'))
    token = config.pop('token', None)
    if token == 'anon' or config.get('skip_signature'):  # noqa: S105
        # To write, obstore wants credentials in any case; an emulator takes whatever it gets.
        config.pop('skip_signature', None)
        config.update({'bearer_token': 'anonymous'} if 'base_url' in config else {'skip_signature': True})
    elif isinstance(token, str) and os.path.exists(token):
        config['application_credentials'] = token
    elif token not in (None, 'google_default'):
        return None  # gcsfs knows more kinds.

    def make(bucket: str) -> Any:
        from obstore.store import GCSStore

        return GCSStore(bucket, **config, **limits)

    return make


def _azure_maker(options: Mapping[str, Any], limits: dict[str, Any]) -> Callable[[str], Any] | None:
    config = _translated(options, AZURE)
    if config is None:
        return None

    def make(bucket: str) -> Any:
        from obstore.store import AzureStore

        return AzureStore(bucket, **config, **limits)

    return make


def _http_maker(options: Mapping[str, Any], limits: dict[str, Any]) -> Callable[[str], Any] | None:
    if _translated(options, {}) is None:
        return None

    def make(host: str) -> Any:
        from obstore.store import HTTPStore

        _allow_http(limits, host)
        return HTTPStore.from_url(host, **limits)

    return make
