"""Parses URLs, local paths, and path objects of other libraries. No I/O.

s3://bucket/key   s3:/bucket/key   /s3:/bucket/key       the last two are the first as pathlib changes it
"""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

URL = re.compile(r'/?(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)(?P<rest>.*)', re.DOTALL)

SCHEMES = {
    's3': 's3',
    's3a': 's3',
    's3n': 's3',
    'gs': 'gs',
    'gcs': 'gs',
    'az': 'az',
    'abfs': 'abfs',
    'abfss': 'abfss',
    'http': 'http',
    'https': 'https',
    'hf': 'hf',
    'memory': 'memory',
}
"""Maps schemes recognized with any number of slashes to their usual names. Other schemes need two slashes."""

ARCHIVE_SCHEMES = ('zip', 'tar', 'libarchive')
"""Schemes of fsspec for paths inside an archive, which is named by the URL or an option."""


_REVISION = re.compile(
    r'(hf://(?:(?:datasets|spaces)/)?(?!(?:datasets|spaces)/)[^/@]+/[^/@]+)@(?:refs/(?:convert|pr)/)?[^/]+'
)


WEB_SCHEMES = ('http', 'https')
WEB = ('http://', 'https://')
"""The prefixes of URLs whose servers decode escapes."""
MAX_DECODINGS = 8
_SPECIAL = re.compile(r'[%?#\x00-\x1f\x7f]')
"""Characters of a file name that have another meaning in a URL, or that clients remove from it."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9._~!$&'()*+,=:@/-]")
"""Characters that some servers do not read as they are."""
_OVERLONG = {b'\xc0\xae': b'.', b'\xe0\x80\xae': b'.', b'\xc0\xaf': b'/', b'\xe0\x80\xaf': b'/'}
"""Invalid forms of '.' and '/' in UTF-8, which old servers decode."""
_DEFAULT_PORTS = {'http': ':80', 'https': ':443'}


def join_url(folder: str, *names: str) -> str:
    """Returns the URL of a file in a folder. On web servers, names are escaped: they are names of files."""
    if folder.startswith(WEB):
        names = tuple(map(escape_name, names))
    return posixpath.join(folder, *names)


def escape_name(name: str) -> str:
    """Escapes the characters of a relative path that have another meaning in a URL."""
    return _SPECIAL.sub(lambda match: f'%{ord(match[0]):02X}', name)


def decodings(path: str) -> Iterator[str]:
    """Yields what servers may read as the path of a URL: with escapes, and decoded once or several times.

    Raises:
        ValueError: The path has escapes of escapes of escapes.
    """
    for _ in range(MAX_DECODINGS):
        yield path
        data = unquote_to_bytes(re.sub('%u([0-9A-Fa-f]{4})', lambda match: chr(int(match[1], 16)), path))
        for form, character in _OVERLONG.items():
            data = data.replace(form, character)
        before, path = path, data.decode('utf-8', 'replace')
        if path == before:
            return
    raise ValueError(f'expected at most {MAX_DECODINGS} levels of escapes, got {path!r:.200}')


def has_dot_names(path: str) -> bool:
    """Returns whether a server may read a path of a URL as one with a name '.' or '..'.

    Besides decoding escapes, clients, proxies and servers may remove control characters, cut names at
    semicolons, and take backslashes or Unicode characters for slashes and full stops.
    """
    if not _UNUSUAL.search(path):
        return not {'.', '..'}.isdisjoint(path.split('/'))
    try:
        for text in decodings(path):
            text = unicodedata.normalize('NFKC', re.sub(r'[\x00-\x20\x7f-\xa0]', '', text))
            for name in re.split(r'[/\\]', text):
                if re.split('[;?#]', name, maxsplit=1)[0] in ('.', '..'):
                    return True
    except ValueError:
        return True
    return False


def web_form(url: str) -> str:
    """Returns the URL of a file on a web server in the form in which URLs are compared.

    The host is in lower case and without the default port, and equal names have equal escapes. A query stays.
    """
    scheme, _, rest = url.partition('://')
    host, slash, path = rest.partition('/')
    user, at, host = host.rpartition('@')
    host = host.lower().removesuffix(_DEFAULT_PORTS[scheme])
    path, *query = re.split('(?=[?#])', path, maxsplit=1)
    names = [quote(unquote_to_bytes(name), safe=":@!$&'()*+,;=") for name in path.split('/')]
    return f'{scheme}://{user}{at}{host}{slash}{"/".join(names)}{"".join(query)}'


def is_plain_name(name: str) -> bool:
    """Returns whether all servers read a name of a URL as the name of one file or folder."""
    try:
        return not any(re.search(r'[/\\;?#\x00-\x1f\x7f]', text) for text in decodings(name))
    except ValueError:
        return False


def without_revision(url: str) -> str:
    """Removes the revision from an `hf://` URL. Returns other paths unchanged."""
    return _REVISION.sub(r'\1', url, count=1) if url.startswith('hf://') else url


def locate(text: str) -> tuple[str, str]:
    """Returns the scheme of a URL in lower case, and the URL in its usual form.

    A local path has the scheme 'file' and is unchanged. In a URL, pathlib may have merged slashes.

    Raises:
        ValueError: The URL has no bucket or host, or refers to files in an archive.
    """
    match = URL.fullmatch(text)
    if match is None or len(match['scheme']) < 2:
        return 'file', text
    scheme, slashes, rest = match['scheme'].lower(), match['slashes'], match['rest']
    if scheme in ('posix', 'file'):
        return 'file', '/' * bool(slashes) + rest
    if scheme in SCHEMES and slashes:
        scheme = SCHEMES[scheme]
        path = rest.lstrip('/')
        if not path and scheme != 'memory':
            raise ValueError(f'expected {scheme}://… with a bucket or host, got {text!r}')
        # fsspec's memory file system has no buckets: its paths begin with a slash.
        return scheme, f'{scheme}://{"/" if scheme == "memory" else ""}{path.rstrip("/")}'
    if scheme in ARCHIVE_SCHEMES and len(slashes) > 1:
        raise ValueError(
            f'{scheme}:// is not supported: unpack the archive, or open a dataset in it with '
            f'filesystem=fsspec.filesystem({scheme!r}, fo=ARCHIVE); got {text!r:.200}'
        )
    if len(slashes) < 2 and not rest.startswith(':'):
        return 'file', text
    return scheme, text.lstrip('/').rstrip('/')


def options_of(options: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    """Returns the storage options of a URL: `options`, or, if they are keyed by prefix, the longest match.

    {'s3://bucket': {'anon': True}, 's3://bucket/private/': {'profile': 'mine'}}

    A prefix without a revision matches all revisions of a hub repository.
    """
    if not options or not all('://' in name for name in options):
        return options
    forms = [f'{form}/' for form in (url, without_revision(url))]
    prefixes = [
        prefix for prefix in options if any(form.startswith(f'{prefix.rstrip("/")}/') for form in forms)
    ]
    longest: Mapping[str, Any] = options[max(prefixes, key=len)] if prefixes else {}
    return longest


def plain_path(value: Any) -> Any:
    """Converts a path object of another library, i.e. one with `open` such as `elements.Path`, to str.

    Returns other values unchanged: str, `os.PathLike`, and values that are not paths.
    """
    if isinstance(value, str | os.PathLike) or not callable(getattr(value, 'open', None)):
        return value
    return str(value)
