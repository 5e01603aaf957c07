"""The paths of a source: braces are expanded, branches of hubs become commits, and folders are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bags.interop.detect import detect_file, format_of
from bags.interop.sources.files.webdataset import is_tar
from bags.interop.sources.files.zip_files import is_zip
from bags.interop.stores import is_present, list_files
from bags.storage import store_for

_BRACES = re.compile(r'\{(?:(\d+)\.\.(\d+)(?:\.\.(-?\d+))?|([^{},]*(?:,[^{},]*)+))\}')
MAX_FILES = 1_000_000
"""Maximum number of files that braces expand to."""


def expand_braces(path: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Expands braces in the notation of WebDataset: `train-{000..099}.tar`, `{train,val}-0.tar`.

    A path that exists, with braces in its name, is left as it is.
    """
    if _BRACES.search(path) is None:
        return [path]
    if is_present(path, storage_options):
        return [path]
    paths = _expand(path)
    if len(paths) > MAX_FILES:
        raise ValueError(f'source: expected at most {MAX_FILES} files, got {path!r:.200}')
    return paths


def _expand(path: str) -> list[str]:
    if (found := _BRACES.search(path)) is None:
        return [path]
    first, last, step, words = found.groups()
    parts = words.split(',') if words else []
    if not words:
        start, stop, by = int(first), int(last), max(1, abs(int(step or 1)))
        if abs(stop - start) // by >= MAX_FILES:
            raise ValueError(f'source: expected at most {MAX_FILES} files, got {path!r:.200}')
        numbers = range(start, stop + 1, by) if start <= stop else range(start, stop - 1, -by)
        parts = [f'{number:0{len(first)}}' for number in numbers]
    paths: list[str] = []
    for part in parts:
        paths += _expand(f'{path[: found.start()]}{part}{path[found.end() :]}')
        if len(paths) > MAX_FILES:
            break
    return paths


def at_commit(path: str, storage_options: Mapping[str, Any] | None) -> str:
    """Returns a URL of a hub with the commit that its branch is at, and any other path as it is.

    Links then lead to files that do not change, and all files of a source are of one commit.
    """
    if not path.startswith('hf://') or path.startswith('hf://buckets/'):
        return path
    store, url = store_for(path, None, storage_options)
    return store.pinned(url)


def list_source(
    paths: list[str], storage_options: Mapping[str, Any] | None
) -> tuple[str, list[str], list[str]]:
    """Returns a folder, and the paths in it of the files, and of empty and linked folders.

    The list of files is empty if the only path is not a folder.
    """
    if len(paths) == 1:
        root = paths[0].rstrip('/')
        is_file = is_tar(root) or (root.startswith(('http://', 'https://')) and detect_file(root))
        return (root, [], []) if is_file else (root, *list_files(root or '/', storage_options))
    root = paths[0].rpartition('/')[0]
    while root and not all(path.startswith(f'{root}/') for path in paths):
        root = root.rpartition('/')[0]
    names, others = [], []
    for path in paths:
        name = (path.removeprefix(f'{root}/') if root else path).rstrip('/')
        is_file = format_of(path) or (is_zip(path) and '://' in path)
        below, empty = ([], []) if is_file else list_files(path.rstrip('/'), storage_options)
        names += [f'{name}/{each}' for each in below] or [name]
        others += [f'{name}/{each}' for each in empty]
    return root, names, others
