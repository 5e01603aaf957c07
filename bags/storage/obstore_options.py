"""Storage options: translated from the names of s3fs, gcsfs and obstore to those of the client in use."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ['ObstoreSettings', 'fsspec_options', 'obstore_settings']

S3_NAMES = {
    'key': 'access_key_id',
    'username': 'access_key_id',
    'aws_access_key_id': 'access_key_id',
    'secret': 'secret_access_key',
    'password': 'secret_access_key',
    'aws_secret_access_key': 'secret_access_key',
    'token': 'session_token',
    'aws_session_token': 'session_token',
    'endpoint_url': 'endpoint',
    'region_name': 'region',
    'anon': 'skip_signature',
    'profile': 'profile',
    'requester_pays': 'request_payer',
}
"""obstore's names of options, by those of s3fs and boto3."""
GCS_NAMES = {
    'project': 'project',
    'token': 'token',
    'endpoint_url': 'base_url',
    'anon': 'skip_signature',
}
AZURE_NAMES = {
    'account_name': 'account_name',
    'account_key': 'account_key',
    'sas_token': 'sas_key',
    'tenant_id': 'tenant_id',
    'client_id': 'client_id',
    'client_secret': 'client_secret',
    'anon': 'skip_signature',
}
FSSPEC_TUNING = {
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
"""Options that tune fsspec; obstore needs none of them."""

S3FS_NAMES = {
    'access_key_id': 'key',
    'secret_access_key': 'secret',
    'session_token': 'token',
    'endpoint': 'endpoint_url',
    'skip_signature': 'anon',
    'request_payer': 'requester_pays',
}
"""Names that s3fs has for options, by those of obstore."""


class ObstoreSettings(NamedTuple):
    """How obstore opens a bucket, a container, or a web server."""

    kind: str
    """The class of `obstore.store`."""
    config: dict[str, Any]
    """Its arguments after the name of the bucket."""
    allow_http: bool = False


def obstore_settings(scheme: str, options: Mapping[str, Any]) -> ObstoreSettings | None:
    """Returns obstore's settings for a URL scheme; None if it does not know the scheme or an option."""
    if scheme == 's3':
        return _s3_settings(options)
    if scheme == 'gs':
        return _gcs_settings(options)
    if scheme == 'az':
        config = _translate(options, AZURE_NAMES)
        return None if config is None else ObstoreSettings('AzureStore', config)
    if scheme in ('http', 'https'):
        config = _translate(options, {})
        return None if config is None else ObstoreSettings('HTTPStore', {}, scheme == 'http')
    return None


def _translate(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns options by obstore's names, from those or the given ones; None if one is unknown."""
    found = {
        names.get(name, name): value
        for name, value in options.items()
        if name not in FSSPEC_TUNING and value is not None
    }
    return found if found.keys() <= set(names.values()) else None


def _s3_settings(options: Mapping[str, Any]) -> ObstoreSettings | None:
    flat = {**options, **(options.get('client_kwargs') or {})}
    flat.pop('client_kwargs', None)
    config = _translate(flat, S3_NAMES)
    if config is None:
        return None
    endpoint = config.pop('endpoint', None)
    endpoint = endpoint or os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get('AWS_ENDPOINT_URL')
    if endpoint is not None:
        config['endpoint'] = endpoint
    profile = config.pop('profile', None)
    config['skip_signature'] = bool(config.get('skip_signature'))
    if not config['skip_signature'] and 'access_key_id' not in config:
        provider, region = _aws_credentials(profile)
        if region:
            config.setdefault('region', region)
        if provider is not None:
            config['credential_provider'] = provider
    return ObstoreSettings('S3Store', config, str(endpoint).startswith('http://'))


def _aws_credentials(profile: str | None) -> tuple[Callable[[], Any] | None, str | None]:
    """Returns a provider of the credentials that AWS's own tools find, and the region that they use.

    obstore alone looks at the environment and asks the machine's metadata service, which takes long where
    there is none; it does not read profiles.
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


def _gcs_settings(options: Mapping[str, Any]) -> ObstoreSettings | None:
    config = _translate(options, GCS_NAMES)
    if config is None:
        return None
    config.pop('project', None)  # Only needed to create buckets.
    emulator = os.environ.get('STORAGE_EMULATOR_HOST')
    if emulator:
        config.setdefault('base_url', emulator if '://' in emulator else f'http://{emulator}')
    token = config.pop('token', None)
    if token == 'anon' or config.get('skip_signature'):  # noqa: S105
        # obstore requires credentials to write; an emulator accepts any.
        config.pop('skip_signature', None)
        config.update({'bearer_token': 'anonymous'} if 'base_url' in config else {'skip_signature': True})
    elif isinstance(token, str) and os.path.exists(token):
        config['application_credentials'] = token
    elif token not in (None, 'google_default'):
        return None  # gcsfs knows more kinds of tokens.
    return ObstoreSettings('GCSStore', config, str(config.get('base_url')).startswith('http://'))


def fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options by the names of s3fs and gcsfs, from those names or from obstore's."""
    if scheme == 's3':
        names = {name: S3_NAMES.get(name, name) for name in options}
        found = {S3FS_NAMES.get(known, known): options[name] for name, known in names.items()}
        client = dict(found.pop('client_kwargs', None) or {})
        if 'region' in found:
            client['region_name'] = found.pop('region')
        return {**found, 'client_kwargs': client} if client else found
    if scheme == 'gs':
        found = dict(options)
        if found.pop('anon', False) or found.pop('skip_signature', False):
            found['token'] = 'anon'  # noqa: S105
        if 'base_url' in found:
            found['endpoint_url'] = found.pop('base_url')
        token = found.get('token')
        if isinstance(token, str) and token.endswith('.json') and not os.path.exists(token):
            # gcsfs would take the path for a token, and send it to Google.
            raise FileNotFoundError(errno.ENOENT, 'storage option token: no such file', token)
        return found
    return dict(options)
