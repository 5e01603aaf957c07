"""Paths in repositories of the Hugging Face hub. No I/O.

hf://[datasets/|spaces/]OWNER/NAME[@REVISION]/PATH    a model has no prefix; `main` unless a revision is given
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from bags.storage.obstore_options import hub_options

URL = re.compile(
    r'hf://(?:(datasets|spaces)/)?(?!(?:datasets|spaces)/)([^/@]+/[^/@]+)'
    r'(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(?:/(.*))?',
    re.DOTALL,
)
COMMIT = re.compile(r'[0-9a-f]{40}')


class HubPath(NamedTuple):
    """A path in a repository of the hub."""

    type: str
    """'datasets', 'spaces' or 'models'."""
    repository: str
    """Its owner and name."""
    revision: str
    """A branch, a tag, or a commit."""
    name: str
    """The path of a file or folder; empty for the repository itself."""

    @classmethod
    def of(cls, url: str) -> HubPath:
        """Parses a URL.

        Raises:
            ValueError: It names no repository.
        """
        found = URL.fullmatch(url)
        if found is None:
            raise ValueError(f'expected hf://datasets/OWNER/NAME[@REVISION]/PATH, got {url!r:.200}')
        type, repository, revision, name = found.groups()
        return cls(type or 'models', repository, unquote(revision or 'main'), (name or '').strip('/'))

    @property
    def url(self) -> str:
        """Its URL, with the revision."""
        prefix = '' if self.type == 'models' else f'{self.type}/'
        name = f'/{self.name}' if self.name else ''
        return f'hf://{prefix}{self.repository}@{self.revision}{name}'

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, whose files do not change."""
        return COMMIT.fullmatch(self.revision) is not None

    def file_address(self) -> str:
        """Returns the address of the file on the hub, after the host."""
        prefix = '' if self.type == 'models' else f'{self.type}/'
        return f'/{prefix}{self.repository}/resolve/{quote(self.revision, safe="")}/{quote(self.name)}'

    def api_address(self, method: str) -> str:
        """Returns the address of a method of the API for the revision, after the host."""
        return f'/api/{self.type}/{self.repository}/{method}/{quote(self.revision, safe="")}'


def web_address(url: str) -> str:
    """Returns the address by which browsers read a path: that of the hub for `hf://`, else the path itself.

    Raises:
        ValueError: It names no repository.
    """
    if not url.startswith('hf://'):
        return url
    endpoint: str = hub_options({})['endpoint']
    return f'{endpoint}{HubPath.of(url).file_address()}'
