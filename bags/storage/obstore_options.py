"""Translates storage options between the names of s3fs, gcsfs and obstore."""

from __future__ import annotations

import configparser
import contextlib
import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from bags.errors import MissingDependencyError

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
"""Maps option names of s3fs and boto3 to option names of obstore."""
OBSTORE_NAMES: dict[str, dict[str, str]] = {
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
"""Maps option names of fsspec to option names of obstore, by URL scheme. Other options need fsspec."""
FSSPEC_TUNING = {
    'asynchronous', 'cache_regions', 'cache_timeout', 'check_connection', 'default_block_size',
    'default_cache_type', 'default_fill_cache', 'listings_expiry_time', 'max_concurrency', 'max_paths',
    'skip_instance_cache', 'use_listings_cache', 'use_ssl',
}  # fmt: skip
"""Options that tune fsspec; obstore needs none of them."""
S3FS_NAMES = {target: name for name, target in reversed(S3_NAMES.items())}
"""Maps option names of obstore to option names of s3fs: the first of several in `S3_NAMES`."""

HUB = 'https://huggingface.co'
"""The endpoint of the Hugging Face hub."""
_ORIGIN_OPTIONS = ('endpoint_url', 'endpoint', 'base_url', 'account_name', 'account_host')
_ORIGIN_VARIABLES = {
    's3': ('AWS_ENDPOINT_URL_S3', 'AWS_ENDPOINT_URL'),
    'gs': ('STORAGE_EMULATOR_HOST',),
    'az': ('AZURE_STORAGE_ACCOUNT_NAME',),
}
"""Options and variables with the endpoint or the account of a store."""

AWS_KEYS = {
    'aws_access_key_id': 'access_key_id',
    'aws_secret_access_key': 'secret_access_key',
    'aws_session_token': 'session_token',
}
"""Maps the keys in a profile of AWS to option names of obstore."""
AWS_WAYS = ('role_arn', 'sso_', 'credential_process', 'web_identity_token_file')
"""Beginnings of the settings of a profile by which botocore obtains keys."""


class ObstoreSettings(NamedTuple):
    """The class and arguments with which obstore opens a bucket, a container, or a web server."""

    store_class: str
    """The class of `obstore.store`."""
    config: dict[str, Any]
    """Its arguments after the bucket name."""
    allow_http: bool = False


def obstore_settings(scheme: str, options: Mapping[str, Any]) -> ObstoreSettings | None:
    """Returns the settings of obstore for a URL scheme; None if obstore lacks the scheme or an option."""
    names = OBSTORE_NAMES.get(scheme)
    if names is None or unsupported_options(scheme, options):
        return None
    config = {names.get(name, name): value for name, value in _given(scheme, options).items()}
    if scheme == 's3':
        return _s3_settings(config)
    if scheme == 'gs':
        return _gcs_settings(config)
    return ObstoreSettings('AzureStore' if scheme == 'az' else 'HTTPStore', config, scheme == 'http')


def unsupported_options(scheme: str, options: Mapping[str, Any]) -> list[str]:
    """Returns the names of options that obstore lacks."""
    names, given = OBSTORE_NAMES[scheme], _given(scheme, options)
    lacks = [name for name in given if names.get(name, name) not in names.values()]
    if scheme == 'gs' and not lacks and not _is_gcs_token(given.get('token')):
        return ['token']
    return lacks


def _given(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options that concern obstore, with the arguments of a client of boto3 among them."""
    if scheme == 's3':
        options = {**options, **(options.get('client_kwargs') or {}), 'client_kwargs': None}
    return {name: each for name, each in options.items() if name not in FSSPEC_TUNING and each is not None}


def _is_gcs_token(token: Any) -> bool:
    """Returns whether obstore can use a token of gcsfs, which supports more types of tokens."""
    return token in (None, 'anon', 'google_default') or (isinstance(token, str) and os.path.exists(token))


def _s3_settings(config: dict[str, Any]) -> ObstoreSettings:
    endpoint = config.pop('endpoint', None)
    endpoint = endpoint or os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get('AWS_ENDPOINT_URL')
    if endpoint is not None:
        config['endpoint'] = endpoint
    profile = config.pop('profile', None)
    config['skip_signature'] = bool(config.get('skip_signature'))
    if not config['skip_signature'] and 'access_key_id' not in config:
        config = {**_aws_credentials(profile), **config}
    return ObstoreSettings('S3Store', config, str(endpoint).startswith('http://'))


def _aws_credentials(profile: str | None) -> dict[str, Any]:
    """Returns the arguments of obstore for the credentials and the region that botocore finds.

    obstore itself reads only the environment and the metadata service of the machine, which takes long where
    that service is missing. It does not read profiles.
    """
    environment = os.environ
    if profile is None and 'AWS_PROFILE' not in environment and 'AWS_ACCESS_KEY_ID' in environment:
        region = environment.get('AWS_REGION') or environment.get('AWS_DEFAULT_REGION')
        return {'region': region} if region else {}
    try:
        import botocore.session
    except ImportError:
        return _read_aws_profile(profile)
    session = botocore.session.Session(profile=profile)

    def provider() -> Any:
        credentials = session.get_credentials()
        if credentials is None:
            raise PermissionError('no credentials found (storage option anon=True needs none)')
        frozen = credentials.get_frozen_credentials()
        return {
            'access_key_id': frozen.access_key,
            'secret_access_key': frozen.secret_key,
            'token': frozen.token,
            'expires_at': getattr(credentials, '_expiry_time', None),
        }

    region = session.get_config_variable('region')
    return {'credential_provider': provider, **({'region': region} if region else {})}


def _read_aws_profile(profile: str | None) -> dict[str, Any]:
    """Returns the keys and the region of a profile in the files of `aws configure`.

    Raises:
        ValueError: There is no such profile, or a file cannot be parsed.
        MissingDependencyError: The profile has no keys, but describes how to obtain them.
    """
    environment = os.environ
    name = profile or environment.get('AWS_PROFILE') or 'default'
    in_config = name if name == 'default' else f'profile {name}'
    files = {
        environment.get('AWS_CONFIG_FILE') or '~/.aws/config': in_config,
        environment.get('AWS_SHARED_CREDENTIALS_FILE') or '~/.aws/credentials': name,
    }
    found: dict[str, str] = {}
    is_known = name == 'default'
    for file, section in files.items():
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(file), encoding='utf-8')
        except (configparser.Error, UnicodeDecodeError) as exc:
            raise ValueError(f'{file}: expected profiles of AWS: {exc}') from exc
        if parser.has_section(section):
            is_known = True
            found |= dict(parser.items(section))
    if not is_known:
        raise ValueError(f'profile {name!r:.80} of AWS: expected it in {" or ".join(files)}, got none')
    is_in_environment = profile is None and 'AWS_ACCESS_KEY_ID' in environment
    ways = [key for key in found if key.startswith(AWS_WAYS)]
    if ways and 'aws_access_key_id' not in found and not is_in_environment:
        reason = f'profile {name!r:.80} of AWS has {ways[0]}, and no keys'
        raise MissingDependencyError('botocore', '', reason)
    names = {} if is_in_environment else AWS_KEYS
    region = environment.get('AWS_REGION') or environment.get('AWS_DEFAULT_REGION') or found.get('region')
    keys = {target: found[key] for key, target in names.items() if found.get(key)}
    return {**keys, **({'region': region} if region else {})}


def _gcs_settings(config: dict[str, Any]) -> ObstoreSettings:
    config.pop('project', None)  # Needed only to create buckets.
    emulator = os.environ.get('STORAGE_EMULATOR_HOST')
    if emulator:
        config.setdefault('base_url', emulator if '://' in emulator else f'http://{emulator}')
    token = config.pop('token', None)
    if token == 'anon' or config.get('skip_signature'):  # noqa: S105
        # obstore requires credentials to write; an emulator accepts any.
        config.pop('skip_signature', None)
        config.update({'bearer_token': 'anonymous'} if 'base_url' in config else {'skip_signature': True})
    elif token not in (None, 'google_default'):
        config['application_credentials'] = token
    return ObstoreSettings('GCSStore', config, str(config.get('base_url')).startswith('http://'))


def origin_of(scheme: str, options: Mapping[str, Any], filesystem: Any = None) -> str:
    """Returns the endpoint and the account of a store, which its URLs lack; empty for the usual endpoint.

    Args:
        scheme: The URL scheme.
        options: Storage options.
        filesystem: The fsspec file system to use; None for one with these options.
    """
    if filesystem is not None:
        options = getattr(filesystem, 'storage_options', {})
    if scheme == 'hf' and filesystem is None:
        return str(hub_options(options)['endpoint']).removeprefix(HUB)
    options = {**options, **(options.get('client_kwargs') or {})}
    given = [str(options[name]).rstrip('/') for name in _ORIGIN_OPTIONS if options.get(name)]
    variables = [os.environ[name] for name in _ORIGIN_VARIABLES.get(scheme, ()) if os.environ.get(name)]
    return '\0'.join(given) or ''.join(variables[:1]).rstrip('/')


def hub_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Completes options of the Hugging Face hub with `endpoint` and `token`, as huggingface_hub finds them.

    If the token is False or cannot be found, it becomes False.
    """
    environment = os.environ
    endpoint = options.get('endpoint') or environment.get('HF_ENDPOINT') or HUB
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
    """Translates options with the names of s3fs, gcsfs or obstore to the names of s3fs and gcsfs."""
    if scheme == 's3':
        obstore_names = {S3_NAMES.get(name, name): value for name, value in options.items()}
        renamed = {S3FS_NAMES.get(name, name): value for name, value in obstore_names.items()}
        client = dict(renamed.pop('client_kwargs', None) or {})
        if 'region_name' in renamed:
            client['region_name'] = renamed.pop('region_name')
        return {**renamed, 'client_kwargs': client} if client else renamed
    if scheme == 'gs':
        renamed = dict(options)
        if renamed.pop('anon', False) or renamed.pop('skip_signature', False):
            renamed['token'] = 'anon'  # noqa: S105
        if 'base_url' in renamed:
            renamed['endpoint_url'] = renamed.pop('base_url')
        token = renamed.get('token')
        if isinstance(token, str) and token.endswith('.json') and not os.path.exists(token):
            # gcsfs would use the path as a token, and send it to Google.
            raise FileNotFoundError(errno.ENOENT, 'storage option token: no such file', token)
        return renamed
    return dict(options)
