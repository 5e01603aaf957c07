"""Forms of a URL, and what each of them names. No I/O.

s3://bucket/key   s3:/bucket/key   /s3:/bucket/key       the last two are what pathlib makes of the first
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ['SCHEMES', 'Location', 'join', 'locate', 'split', 'unquoted']

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
"""Those that are known with any number of slashes; others need two."""


class Location(NamedTuple):
    """A place in a storage."""

    scheme: str
    """In lower case; 'file' for a local path."""
    path: str
    """The URL in the form in which it is passed on; a local path as it is."""


def locate(text: str) -> Location:
    """Tells a URL from a local path, whatever form pathlib gave it."""
    match = URL.fullmatch(text)
    if match is None or len(match['scheme']) < 2:
        return Location('file', text)
    scheme, slashes, rest = match['scheme'].lower(), match['slashes'], match['rest']
    if scheme in ('posix', 'file'):
        return Location('file', '/' * bool(slashes) + rest)
    if scheme in SCHEMES and slashes:
        scheme = SCHEMES[scheme]
        path = rest.lstrip('/')
        # What is in memory has no bucket: its paths begin with a slash.
        return Location(scheme, f'{scheme}://{"/" if scheme == "memory" else ""}{path.rstrip("/")}')
    if len(slashes) < 2 and not rest.startswith(':'):
        return Location('file', text)
    return Location(scheme, text.lstrip('/').rstrip('/'))


def split(url: str) -> tuple[str, str]:
    """Returns the bucket of a URL and the key in it, the key perhaps empty."""
    bucket, _, key = url.partition('://')[2].lstrip('/').partition('/')
    return bucket, key


def join(folder: str, name: str) -> str:
    """Returns the URL of something in a folder."""
    return f'{folder.rstrip("/")}/{name}'


def unquoted(version: str | None) -> str:
    """Returns an ETag as a version: without quotes, but for a weak one."""
    version = version or ''
    return version[1:-1] if version[:1] == '"' == version[-1:] else version
