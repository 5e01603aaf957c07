"""Parses URLs, local paths, and path objects of other libraries. No I/O.

s3://bucket/key   s3:/bucket/key   /s3:/bucket/key       the last two are the first as pathlib changes it
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

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
