"""`HubRepository`: uploads files to a branch on the Hugging Face hub, and converts errors of its client."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from bags.progress.progress import progress as show_progress
from bags.storage import store_for
from bags.storage.base import MAX_SMALL_FILE_BYTES
from bags.storage.errors import (
    PreconditionError,
    TransientError,
    error_for_status,
    no_connection_error,
    no_connection_reason,
    retry_after,
)
from bags.storage.hub_path import HubPath
from bags.storage.obstore_options import hub_options
from bags.storage.retry import RetryPolicy, with_retries
from bags.validation import import_optional

Result = TypeVar('Result')

DEFAULTS = {'timeout': 600.0, 'retries': 30}
"""Default storage options. Retries last longer than the five minutes of a rate limit of the hub."""
GROUP_FILES = 256
GROUP_BYTES = 1 << 30
"""Number and bytes of files that are uploaded before the bar advances. One file may have more bytes."""
GIT_DIGITS = 40
"""Length of the digest of a small file, a SHA-1 of git. Large files have a SHA-256."""
QUOTA = re.compile('storage|quota|payment|billing', re.IGNORECASE)
"""Matches messages of status 403 for an account whose storage is full."""
CLIENTS = ('httpcore', 'httpcore2', 'httpx', 'httpx2', 'requests', 'urllib3')
"""Packages with which the installed huggingface_hub makes requests."""


class BranchChangedError(OSError):
    """Another commit was made on the branch meanwhile."""


class HubRepository:
    """A folder in a branch of a repository.

    Args:
        location: The folder.
        options: Storage options.

    Raises:
        MissingDependencyError: huggingface_hub is not installed.
    """

    def __init__(self, location: HubPath, options: Mapping[str, Any]) -> None:
        self._hub = import_optional('huggingface_hub', 'hf')
        self._location, self._options = location, options
        self._policy, client_options = RetryPolicy.from_options(hub_options({**DEFAULTS, **options}))
        self._endpoint, self._token = client_options['endpoint'], client_options['token']
        self._api = self._hub.HfApi(self._endpoint, self._token, library_name='bags')
        self._names = {'repo_id': location.repository, 'repo_type': location.type.removesuffix('s')}

    def head(self) -> str:
        """Returns the commit of the branch.

        Raises:
            FileNotFoundError: The repository or branch does not exist.
            PermissionError: The token is missing, has expired, or may not read the repository.
        """
        commit: str = self._call(self._api.repo_info, revision=self._location.revision).sha
        return commit

    def tree(self, commit: str) -> dict[str, str]:
        """Returns the digest of each file in the folder by path: SHA-256, or SHA-1 of git if it is small."""

        def listed(**options: Any) -> list[Any]:
            try:
                return list(self._api.list_repo_tree(**options))
            except self._hub.errors.EntryNotFoundError:
                return []

        folder = self._location.name or None
        entries = self._call(listed, path_in_repo=folder, recursive=True, revision=commit)
        files = [entry for entry in entries if hasattr(entry, 'blob_id')]
        return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files}

    def url_of(self, name: str, commit: str) -> str:
        """Returns the URL of a file at a commit."""
        return self._location._replace(revision=commit, name=name).url

    def read(self, name: str, commit: str, max_size: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """Returns the content of a file of the repository.

        Raises:
            CorruptError: The file has more than `max_size` bytes.
        """
        store, path = store_for(self.url_of(name, commit), None, self._options)
        return store.read(path, max_size)

    def upload(self, files: Mapping[str, str | bytes], progress: bool | None) -> list[Any]:
        """Uploads the large files whose content the hub does not have yet.

        Args:
            files: Local paths or contents, by their paths in the repository.
            progress: Whether to show a bar.

        Returns:
            The operations that add the files with a commit.
        """
        additions: list[Any] = []
        with self._without_bars(), show_progress('pushing', len(files), 'files', show=progress) as advance:
            for group in _groups(files):
                added = [self._hub.CommitOperationAdd(name, files[name]) for name in group]
                self._call(
                    self._api.preupload_lfs_files,
                    additions=added, revision=self._location.revision, free_memory=False,
                )  # fmt: skip
                additions += added
                advance(len(group), sum(addition.upload_info.size for addition in added))
        return additions

    def commit(self, additions: list[Any], removed: list[str], title: str, parent: str) -> str:
        """Creates a commit that adds uploaded files and removes other files. Returns the commit.

        If the branch has all files already, returns its last commit.

        Raises:
            BranchChangedError: The branch has another commit than the parent.
            ValueError: The repository ignores some of the files.
        """
        operations = [*additions, *(self._hub.CommitOperationDelete(name, False) for name in removed)]
        attempts = itertools.count()

        def find_commit() -> str | None:
            """Returns the commit of an attempt that created it and then raised an error."""
            head = self.head()
            return head if head != parent and not self._missing(additions, head) else None

        def commit(**options: Any) -> str:
            if next(attempts) and (found := find_commit()) is not None:
                return found
            try:
                with self._without_bars():
                    created: str = self._api.create_commit(**options).oid
            except ValueError:
                # huggingface_hub parses the address of the new commit, which may be at another endpoint than
                # its own.
                if (found := find_commit()) is None:
                    raise
                return found
            return created

        created = self._call(
            commit,
            operations=operations, commit_message=title, revision=self._location.revision,
            parent_commit=parent,
        )  # fmt: skip
        if missing := self._missing(additions, created):
            where = self._location._replace(revision=created).url
            raise ValueError(f'{where}: the .gitignore of the repository leaves out {missing[0]}')
        return created

    def _missing(self, additions: list[Any], commit: str) -> list[str]:
        """Returns the paths of the added files that a commit does not have, or has with other content."""
        tree = self.tree(commit)
        return [
            addition.path_in_repo
            for addition in additions
            if not _has_digest(addition, tree.get(addition.path_in_repo, ''))
        ]

    def _call(self, work: Callable[..., Result], **options: Any) -> Result:
        """Calls a function of huggingface_hub, with retries after transient errors."""

        def call(_path: str) -> Result:
            return work(**options, **self._names)

        return with_retries(self._policy, self._map_error, call, self._location.url)

    @contextlib.contextmanager
    def _without_bars(self) -> Iterator[None]:
        """Hides the progress bars of huggingface_hub, one for each file."""
        utils = self._hub.utils
        if utils.are_progress_bars_disabled():
            yield
            return
        utils.disable_progress_bars()
        try:
            yield
        finally:
            utils.enable_progress_bars()

    def _map_error(self, path: str, exc: Exception) -> Exception:
        """Converts an error of huggingface_hub to an error of this library that says what to do."""
        cause: Any = exc
        if isinstance(exc, RuntimeError) and exc.__cause__ is not None:
            cause = exc.__cause__  # The error of the upload of a file.
        message = ' '.join(str(getattr(cause, 'server_message', None) or cause).split())[:300]
        response = getattr(cause, 'response', None)
        if response is None:
            if isinstance(cause, ValueError) and QUOTA.search(message):  # The error of one of several files.
                return self._quota_error(path, message)
            is_of_client = type(cause).__module__.partition('.')[0] in CLIENTS
            if not is_of_client and not isinstance(cause, ConnectionError):
                return exc
            reason = no_connection_reason(cause)
            if reason is not None:
                return no_connection_error(urllib.parse.urlsplit(self._endpoint).netloc, reason)
            return TransientError(message)
        status, code = response.status_code, response.headers.get('X-Error-Code')
        if status in (402, 413, 507) or (status == 403 and QUOTA.search(message)):
            return self._quota_error(path, message)
        if status in (401, 403):
            return self._access_error(path, status, message)
        if code in ('RepoNotFound', 'RevisionNotFound'):
            return self._missing_error(path, code)
        error = error_for_status(path, status, message, retry_after(response.headers))
        if isinstance(error, PreconditionError):
            detail = 'the branch has changed since the push began: push again; no file is sent twice'
            return BranchChangedError(errno.EIO, detail, path)
        return error

    def _quota_error(self, path: str, message: str) -> Exception:
        detail = (
            f'no more storage: {message}; {self._endpoint}/settings/billing shows the quota. Push again when '
            'there is space: no file is sent twice'
        )
        return OSError(errno.ENOSPC, detail, path)

    def _access_error(self, path: str, status: int, message: str) -> Exception:
        repository, tokens = self._location.repository, f'{self._endpoint}/settings/tokens'
        if status == 403:
            detail = f'the token may not write to {repository}: change its permissions at {tokens}'
        elif self._token:
            detail = f'the token is not valid, or has expired: create a new one at {tokens}'
        else:
            detail = f'a push needs a token that may write to {repository}: create one at {tokens}'
        detail += '. Set it by `hf auth login`, HF_TOKEN or the storage option token'
        return PermissionError(errno.EACCES, f'{detail} ({message})', path)

    def _missing_error(self, path: str, code: str) -> Exception:
        repository, type = self._location.repository, self._names['repo_type']
        if code == 'RevisionNotFound':
            branch = self._location.revision
            call = f'huggingface_hub.create_branch({repository!r}, branch={branch!r}, repo_type={type!r})'
            detail = f'no such branch: {call} creates it'
        else:
            call = f'huggingface_hub.create_repo({repository!r}, repo_type={type!r})'
            detail = f'no such repository, or the token may not read it: {call} creates it'
        return FileNotFoundError(errno.ENOENT, detail, path)


def _has_digest(addition: Any, digest: str) -> bool:
    """Returns whether an added file has a digest of the hub: SHA-256, or the digest of git."""
    if not is_git_digest(digest):
        sha256: str = addition.upload_info.sha256.hex()
        return sha256 == digest
    with addition.as_file() as file:
        return git_digest(file.read()) == digest


def is_git_digest(digest: str) -> bool:
    """Returns whether the digest of a file is the digest of git, which small files have."""
    return len(digest) == GIT_DIGITS


def git_digest(data: bytes) -> str:
    """Returns the digest of a file in git."""
    return hashlib.sha1(b'blob %d\0' % len(data) + data, usedforsecurity=False).hexdigest()


def _groups(files: Mapping[str, str | bytes]) -> Iterator[list[str]]:
    """Yields the names of files in groups of at most `GROUP_FILES` and about `GROUP_BYTES`."""
    group: list[str] = []
    size = 0
    for name, content in files.items():
        added = len(content) if isinstance(content, bytes) else os.path.getsize(content)
        if group and (len(group) == GROUP_FILES or size + added > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(name)
        size += added
    if group:
        yield group
