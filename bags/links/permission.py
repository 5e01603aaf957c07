"""Permission: which files the links of a dataset may reach.

An untrusted dataset must not make its reader open arbitrary files or send credentials to arbitrary hosts.
By default, links may reach files below the folder of the dataset, and bags of datasets beside it, in the same
parent folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Literal

from bags.links.files import RECORD_SUFFIXES, is_url
from bags.storage import Store
from bags.storage.local import real_path
from bags.storage.urls import WEB, is_plain_name, locate, plain_path, web_form, without_revision

VARIABLE = 'BAGS_TRUST_LINKS'
"""The environment variable with additional permitted paths, separated by commas."""
FORMER_VARIABLE = 'BAGS_LINKS'
"""The former name of the variable, whose paths are permitted too."""

PermittedPaths = bool | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""The option `trust_links`: paths of files or folders, or True for all paths."""

TrustedPaths = Literal[True] | tuple[str, ...]
"""Permitted paths of files or folders; True for all paths."""

_OF_DATASETS = (*RECORD_SUFFIXES, '.zdict')


def permitted_paths(name: str, value: Any) -> TrustedPaths:
    """Returns the checked value of the option `trust_links`.

    Raises:
        TypeError: The value is not a bool, a path, or an iterable of paths.
    """
    if isinstance(value, bool):
        return True if value else ()
    value = plain_path(value)
    paths = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(paths, Iterable) or isinstance(paths, bytes):
        raise TypeError(f'{name}: expected paths, or True for all, got {value!r:.80}')
    paths = list(map(plain_path, paths))
    if not all(isinstance(path, str | os.PathLike) and os.fspath(path) for path in paths):
        raise TypeError(f'{name}: expected paths, or True for all, got {value!r:.80}')
    return tuple(_absolute(os.fspath(path)) for path in paths)


class Permission:
    """Checks which files the links of a dataset may reach.

    Args:
        store: The store of the dataset.
        root: The folder of the dataset; of a sharded dataset, the folder of its shards.
        trust_links: Additional permitted paths.
    """

    def __init__(self, store: Store, root: str, trust_links: TrustedPaths) -> None:
        self._store = store
        self._root = _resolved(root)
        self._above = _parent(self._root)
        self._trusted = trust_links
        self._prefixes: dict[str, str] = {}
        """Maps permitted paths to their form without symbolic links. These links are the reader's own."""
        self._datasets: dict[str, bool] = {}
        """Maps the paths of folders beside the dataset to whether they are datasets."""

    def check(self, path: str) -> str:
        """Returns the path at which to open a linked file. A local path is resolved, without symbolic links.

        Args:
            path: Absolute path or URL of the file.

        Raises:
            PermissionError: Links may not reach the file.
        """
        resolved = _resolved(path)
        if self._is_permitted(resolved) or self.is_of_dataset(resolved):
            return path if is_url(path) else resolved
        path = path if is_url(path) else resolved
        folder = _parent(path)
        raise PermissionError(
            f'links to {path} are not permitted: if the dataset is trusted, '
            f'bags.open(…, trust_links=[{folder!r}]), --trust-links {folder} or {VARIABLE}={folder}'
        )

    def check_folder(self, path: str) -> str | None:
        """Returns the resolved path of a local folder if links may reach all files in it, else None."""
        path = _resolved(path)
        return path if self._is_permitted(path) else None

    def _is_permitted(self, path: str) -> bool:
        """Returns whether links may reach a file, or all files of a folder, at a resolved path."""
        if self._trusted is True:
            return True
        is_web = path.startswith(WEB)
        if _is_below(path, self._root) and not (is_web and _has_query(path.removeprefix(self._root))):
            return True
        variables = f'{os.environ.get(VARIABLE, "")},{os.environ.get(FORMER_VARIABLE, "")}'
        from_environment = [text.strip() for text in variables.split(',')]
        for prefix in [*self._trusted, *(_absolute(text) for text in from_environment if text)]:
            if prefix not in self._prefixes:
                self._prefixes[prefix] = _resolved(prefix)
            if _is_below(path, self._prefixes[prefix]):
                return True
        return False

    def is_of_dataset(self, path: str, exists: bool = True) -> bool:
        """Returns whether a file is a bag of a dataset beside this one, or of one of its shards.

        Args:
            path: The resolved path of the file.
            exists: Whether the dataset must exist. If not, the path need not be resolved.
        """
        path = path if exists else _resolved(path)
        folder = _parent(path)
        if not path.endswith(_OF_DATASETS) or is_url(path) != self._store.is_remote:
            return False
        name = folder[len(_parent(folder)) :].strip('/')
        is_shard = name.isascii() and name.isdigit() and _parent(_parent(folder)) == self._above
        if not is_shard and _parent(folder) != self._above:
            return False
        if path.startswith(WEB):
            names = path.removeprefix(self._above)
            if not all(map(is_plain_name, names.split('/'))):
                return False  # E.g. `x.txt%00.bag`, or `sub%2Fx.bag`.
        if exists and folder not in self._datasets:
            self._datasets[folder] = self._store.exists(f'{folder}/spec.json')
        return not exists or self._datasets[folder]


def _absolute(path: str) -> str:
    """Returns an absolute path, or a URL in its usual form."""
    scheme, url = locate(path) if ':' in path else ('file', path)
    return os.path.abspath(url) if scheme == 'file' else url


def _resolved(path: str) -> str:
    """Returns the form in which a path is compared: without symbolic links, or as a web server reads it."""
    if path.startswith(WEB):
        return web_form(path)
    return path if is_url(path) else real_path(path)


def _has_query(url: str) -> bool:
    """Returns whether a part of a URL has a query or a fragment, with which servers have other files."""
    return re.search('[?#]', url) is not None


def _parent(path: str) -> str:
    """Returns the folder of a path; of a root, or of a bucket or host, the path itself."""
    if is_url(path):
        folder = path.rstrip('/').rpartition('/')[0]
        return path if folder.endswith('/') else folder
    return os.path.dirname(path)


def _is_below(path: str, prefix: str) -> bool:
    """Returns whether a path is in the folder `prefix`, or equals it."""
    separator = '/' if is_url(prefix) else os.sep
    forms = {path, without_revision(path)}  # A repository without a revision permits all revisions.
    return any(form == prefix or form.startswith(prefix.rstrip(separator) + separator) for form in forms)
