"""Paths in repositories of the Hugging Face hub. No I/O.

hf://[datasets/|spaces/]OWNER/NAME[@REVISION]/PATH    models have no prefix; the default revision is `main`
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from bags.storage.obstore_options import hub_options

HUB_URL = re.compile(
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
    """Owner and name of the repository."""
    revision: str
    """A branch, a tag, or a commit."""
    name: str
    """The path of a file or folder; empty for the repository itself."""

    @classmethod
    def of(cls, url: str) -> HubPath:
        """Parses a HUB_URL.

        Raises:
            ValueError: The HUB_URL does not name a repository.
        """
        match = HUB_URL.fullmatch(url)
        if match is None or match[3] in ('.', '..'):  # Clients would remove such a revision from an address.
            raise ValueError(f'expected hf://datasets/OWNER/NAME[@REVISION]/PATH, got {url!r:.200}')
        type, repository, revision, name = match.groups()
        return cls(type or 'models', repository, unquote(revision or 'main'), (name or '').strip('/'))

    @property
    def url(self) -> str:
        """The HUB_URL of the path, with the revision."""
        prefix = '' if self.type == 'models' else f'{self.type}/'
        name = f'/{self.name}' if self.name else ''
        return f'hf://{prefix}{self.repository}@{self.revision}{name}'

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, so that files do not change."""
        return COMMIT.fullmatch(self.revision) is not None

    def file_address(self) -> str:
        """Returns the HUB_URL path of the file on the hub, without the host."""
        prefix = '' if self.type == 'models' else f'{self.type}/'
        repository, revision = quote(self.repository), quote(self.revision, safe='')
        return f'/{prefix}{repository}/resolve/{revision}/{quote(self.name)}'

    def api_address(self, method: str) -> str:
        """Returns the HUB_URL path of a method of the API for the revision, without the host."""
        return f'/api/{self.type}/{quote(self.repository)}/{method}/{quote(self.revision, safe="")}'


def web_address(url: str) -> str:
    """Returns the HUB_URL at which browsers can read a path: on the hub for `hf://`, else the path itself.

    Raises:
        ValueError: An `hf://` HUB_URL does not name a repository.
    """
    if not url.startswith('hf://'):
        return url
    endpoint: str = hub_options({})['endpoint']
    return f'{endpoint}{HubPath.of(url).file_address()}'
