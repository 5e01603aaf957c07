"""Translates storage options from the names of s3fs, gcsfs and obstore to those of the client in use."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
NAMES: dict[str, dict[str, str]] = {
    's3': S3_NAMES,
    'gs': {
        'project': 'project',
        'token': 'token',
        'endpoint_url': 'base_url',
        'anon': 'skip_signature',
    },
    'az': {
        'account_name': 'account_name',
        'account_key': 'account_key',
        'sas_token': 'sas_key',
        'tenant_id': 'tenant_id',
        'client_id': 'client_id',
        'client_secret': 'client_secret',
        'anon': 'skip_signature',
    },
    'http': {},
    'https': {},
}
"""obstore's names of options, by URL scheme and by those of fsspec; options that are not here need fsspec."""
FSSPEC_TUNING = {
    'asynchronous', 'cache_regions', 'cache_timeout', 'check_connection', 'default_block_size',
    'default_cache_type', 'default_fill_cache', 'listings_expiry_time', 'max_concurrency', 'max_paths',
    'skip_instance_cache', 'use_listings_cache', 'use_ssl',
}  # fmt: skip
"""Options that tune fsspec; obstore needs none of them."""
S3FS_NAMES = {known: name for name, known in reversed(S3_NAMES.items())}
"""s3fs's names of options, by those of obstore: the first of several in `S3_NAMES`."""


class ObstoreSettings(NamedTuple):
    """How obstore opens a bucket, a container, or a web server."""

    store_class: str
    """The class of `obstore.store`."""
    config: dict[str, Any]
    """Its arguments after the name of the bucket."""
    allow_http: bool = False


def obstore_settings(scheme: str, options: Mapping[str, Any]) -> ObstoreSettings | None:
    """Returns obstore's settings for a URL scheme; None if it does not know the scheme or an option."""
    names = NAMES.get(scheme)
    if names is None:
        return None
    if scheme == 's3':
        options = {**options, **(options.get('client_kwargs') or {}), 'client_kwargs': None}
    config = {
        names.get(name, name): value
        for name, value in options.items()
        if name not in FSSPEC_TUNING and value is not None
    }
    if not config.keys() <= set(names.values()):
        return None
    if scheme == 's3':
        return _s3_settings(config)
    if scheme == 'gs':
        return _gcs_settings(config)
    return ObstoreSettings('AzureStore' if scheme == 'az' else 'HTTPStore', config, scheme == 'http')


def _s3_settings(config: dict[str, Any]) -> ObstoreSettings:
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

    obstore itself only reads the environment and asks the machine's metadata service, which takes long if
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


def _gcs_settings(config: dict[str, Any]) -> ObstoreSettings | None:
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
        return None  # gcsfs knows more types of tokens.
    return ObstoreSettings('GCSStore', config, str(config.get('base_url')).startswith('http://'))


def hub_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of the Hugging Face hub, with `endpoint` and `token` as its own package finds them.

    A token that is False, or that is not found, is False.
    """
    environment = os.environ
    endpoint = options.get('endpoint') or environment.get('HF_ENDPOINT') or 'https://huggingface.co'
    token = options.get('token')
    if token in (None, True):
        token = environment.get('HF_TOKEN') or environment.get('HUGGING_FACE_HUB_TOKEN')
    if token is None:
        caches = environment.get('XDG_CACHE_HOME') or os.path.join('~', '.cache')
        home = environment.get('HF_HOME') or os.path.join(caches, 'huggingface')
        file = environment.get('HF_TOKEN_PATH') or os.path.join(home, 'token')
        with contextlib.suppress(OSError), open(os.path.expanduser(file), encoding='utf-8') as opened:
            token = opened.read()
    return {**options, 'endpoint': endpoint.rstrip('/'), 'token': (token or '').strip() or False}


def fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options by the names of s3fs and gcsfs, from those names or from obstore's."""
    if scheme == 's3':
        known = {S3_NAMES.get(name, name): value for name, value in options.items()}
        found = {S3FS_NAMES.get(name, name): value for name, value in known.items()}
        client = dict(found.pop('client_kwargs', None) or {})
        if 'region_name' in found:
            client['region_name'] = found.pop('region_name')
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
