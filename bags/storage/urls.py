"""Parses URLs and local paths. No I/O.

s3://bucket/key   s3:/bucket/key   /s3:/bucket/key       the last two are what pathlib makes of the first
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ['SCHEMES', 'Location', 'locate']

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


class Location(NamedTuple):
    """A local path or a URL."""

    scheme: str
    """In lower case; 'file' for a local path."""
    path: str
    """The URL in its usual form; a local path as it is."""


def locate(text: str) -> Location:
    """Returns whether a text is a URL or a local path; pathlib may have merged slashes of a URL."""
    match = URL.fullmatch(text)
    if match is None or len(match['scheme']) < 2:
        return Location('file', text)
    scheme, slashes, rest = match['scheme'].lower(), match['slashes'], match['rest']
    if scheme in ('posix', 'file'):
        return Location('file', '/' * bool(slashes) + rest)
    if scheme in SCHEMES and slashes:
        scheme = SCHEMES[scheme]
        path = rest.lstrip('/')
        # fsspec's memory file system has no buckets: its paths begin with a slash.
        return Location(scheme, f'{scheme}://{"/" if scheme == "memory" else ""}{path.rstrip("/")}')
    if len(slashes) < 2 and not rest.startswith(':'):
        return Location('file', text)
    return Location(scheme, text.lstrip('/').rstrip('/'))
