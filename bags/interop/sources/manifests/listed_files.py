"""`ListedFiles`: finds, checks and opens the files that a manifest lists.

A manifest is untrusted: it may name any file of the machine, or any host. Paths may lead to files below the
root, which is the folder of the manifest by default, and to paths that the user permits, as for links.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping
from typing import Any

from bags.concurrency import FifoCache
from bags.interop.sources.files.folders import FolderFiles
from bags.interop.sources.manifests.manifest_options import ManifestOptions
from bags.interop.stores import find_store
from bags.links.permission import VARIABLE, Permission
from bags.links.sources import LinkOpener, OpenedLink
from bags.storage.local import real_path
from bags.storage.urls import has_dot_names, locate

MAX_FOLDERS = 1 << 12
"""Maximum number of folders that are kept: their permissions and their stores."""


class ListedFiles:
    """The files that a manifest lists. Thread-safe.

    Args:
        manifest: The path or URL of the manifest.
        options: The root and the permitted paths.
        storage_options: As in `bags.open`, for URLs.
    """

    def __init__(
        self, manifest: str, options: ManifestOptions, storage_options: Mapping[str, Any] | None
    ) -> None:
        store, path = find_store(manifest if options.root is None else options.root, storage_options)
        self._is_local = not store.is_remote
        path = os.path.abspath(path) if self._is_local else path.rstrip('/')
        self.root = path if options.root is not None else posixpath.dirname(path)
        """The folder that paths are relative to."""
        storage_options = options.options_by_bucket([manifest], storage_options)
        self._permission = Permission(store, self.root, options.trust_links)
        self._local_folders: FifoCache[str, tuple[str, bool]] = FifoCache(self._find_folder, MAX_FOLDERS)
        """The absolute path of each folder that paths begin with, and whether its files are permitted."""
        self._folders: FifoCache[str, FolderFiles] = FifoCache(
            lambda folder: FolderFiles(folder, storage_options), MAX_FOLDERS
        )

    def locate(self, text: object) -> str:
        """Returns the absolute path, or the URL, of a file.

        Args:
            text: The path in the manifest.

        Raises:
            ValueError: It is not a path, or leads to a file that the manifest may not name.
        """
        if not isinstance(text, str) or not text or '\0' in text:
            raise ValueError(f'expected the path of a file, got {text!r:.80}')
        if not text.isascii() and _has_surrogates(text):
            raise ValueError(f'expected the path of a file, got {text!r:.80}')
        scheme, path = locate(text) if ':' in text else ('file', text)
        if scheme != 'file':
            return self._permitted(path, path)
        if not self._is_local and not os.path.isabs(path):
            if '\\' in path or any(part in ('', '.', '..') for part in path.split('/')):
                raise ValueError(f'expected a path below {self.root}, got {text!r:.200}')
            return self._permitted(f'{self.root}/{path}', text)
        above, _, name = (path if os.sep == '/' else path.replace(os.sep, '/')).rpartition('/')
        if name in ('', '.', '..'):
            raise ValueError(f'expected the path of a file, got {text!r:.80}')
        is_absolute = path.startswith('/') or os.path.isabs(path)
        folder, is_permitted = self._local_folders[f'{above}/' if is_absolute else above]
        path = f'{folder}/{name}' if folder != '/' else f'/{name}'
        if not is_permitted:
            return self._permitted(path, path)  # The path may be the one that the user permits.
        try:
            mode = os.lstat(path).st_mode
        except OSError as exc:
            raise ValueError(f'{path} cannot be read: {exc.strerror}') from exc
        return self._permitted(path, path) if stat.S_ISLNK(mode) else path  # Also where a link leads.

    def _find_folder(self, text: str) -> tuple[str, bool]:
        path = os.path.normpath(os.path.join(self.root, text) if self._is_local else text)
        return path, self._permission.check_folder(path) is not None

    def _permitted(self, path: str, text: str) -> str:
        if '://' in path and has_dot_names(path):
            raise ValueError(f'expected a URL without dots as names, got {text!r:.200}')
        if self._permission.check_folder(path) is None:
            raise self._not_permitted(path)
        return path

    def _not_permitted(self, path: str) -> ValueError:
        resolved = path if '://' in path else real_path(path)
        folder = resolved.rpartition('/')[0] or '/'
        return ValueError(
            f'{resolved} is not below {self.root}: if the manifest is trusted, trust_links=[{folder!r}] '
            f'(--trust-links {folder}) or {VARIABLE}={folder} permits it; root= (--root) sets another folder'
        )

    def read(self, path: str, type_format: str) -> Any:
        """Returns the value that `checked_value` makes of a file, or the path of a local video or recording.

        Raises:
            SourceError: The file cannot be read, is damaged, or not of its type.
        """
        if '://' not in path and not os.path.isfile(path):  # To open a pipe would wait.
            raise ValueError(f'{path} is a folder' if os.path.isdir(path) else f'{path} is not a file')
        folder, _, name = path.rpartition('/')
        return self._folders[folder or '/'].read(name, type_format)

    def link(self, path: str, type_format: str, opener: LinkOpener) -> OpenedLink:
        """Returns a link to a whole file.

        Raises:
            SourceError: The file cannot be read, or its first bytes are not of its type.
            ValueError: The file cannot be linked.
        """
        folder, _, name = path.rpartition('/')
        return self._folders[folder or '/'].link(name, type_format, opener)


def _has_surrogates(text: str) -> bool:
    """Returns whether a text cannot be UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
