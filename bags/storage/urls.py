"""Parses URLs, local paths, and path objects of other libraries. No I/O.

s3://bucket/key   s3:/bucket/key   /s3:/bucket/key       the last two are the first, changed by pathlib
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
"""Schemes that are recognized with any number of slashes, and their usual names; others need two slashes."""

ARCHIVES = ('zip', 'tar', 'libarchive')
"""Schemes of fsspec whose paths are in an archive, which the URL or an option names."""


_REVISION = re.compile(
    r'(hf://(?:(?:datasets|spaces)/)?(?!(?:datasets|spaces)/)[^/@]+/[^/@]+)@(?:refs/(?:convert|pr)/)?[^/]+'
)


def without_revision(url: str) -> str:
    """Returns a URL of a hub without the revision of its repository, and any other path as it is."""
    return _REVISION.sub(r'\1', url, count=1) if url.startswith('hf://') else url


def locate(text: str) -> tuple[str, str]:
    """Returns the scheme of a URL in lower case, and the URL in its usual form.

    A local path has the scheme 'file' and is unchanged. In a URL, pathlib may have merged slashes.

    Raises:
        ValueError: The URL names no bucket or host, or files in an archive.
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
    if scheme in ARCHIVES and len(slashes) > 1:
        raise ValueError(
            f'{scheme}:// is not supported: unpack the archive, or open a dataset in it with '
            f'filesystem=fsspec.filesystem({scheme!r}, fo=ARCHIVE); got {text!r:.200}'
        )
    if len(slashes) < 2 and not rest.startswith(':'):
        return 'file', text
    return scheme, text.lstrip('/').rstrip('/')


def options_of(options: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    """Returns the storage options of a URL: `options`, or, if these are by prefix, those of the longest one.

    {'s3://bucket': {'anon': True}, 's3://bucket/private/': {'profile': 'mine'}}

    A prefix without a revision is one of all revisions of a hub.
    """
    if not options or not all('://' in name for name in options):
        return options
    forms = [f'{form}/' for form in (url, without_revision(url))]
    prefixes = [
        prefix for prefix in options if any(form.startswith(f'{prefix.rstrip("/")}/') for form in forms)
    ]
    found: Mapping[str, Any] = options[max(prefixes, key=len)] if prefixes else {}
    return found


def plain_path(value: Any) -> Any:
    """Returns a path object of another library as str: one with `open`, such as `elements.Path`.

    Anything else is returned as it is: str, `os.PathLike`, and what is no path.
    """
    if isinstance(value, str | os.PathLike) or not callable(getattr(value, 'open', None)):
        return value
    return str(value)
