"""`bags.push`: uploads a dataset into a repository of the Hugging Face hub."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.format.file_names import EARLIER_PROGRESS, PROGRESS, is_file_of_dataset, is_temporary
from bags.dataset.format.journal import is_journal
from bags.dataset.format.shard_index import INDEX
from bags.interop.hub.card import NOTE, card
from bags.interop.hub.repository import HubRepository
from bags.links.files import LINKED, is_url
from bags.links.link_table import read_entry
from bags.maintenance.consolidate import EXPECTED_FINISHED, consolidate, index_damage
from bags.maintenance.location import Location, locate
from bags.storage.hub_path import HubPath
from bags.storage.urls import options_of
from bags.validation import with_advice

README = 'README.md'
BESIDE = (README, 'LICENSE', 'LICENSE.md', 'LICENSE.txt')
"""Files beside a dataset that are uploaded as well."""


@with_advice
def push(
    path: str | os.PathLike[str],
    target: str,
    *,
    message: str | None = None,
    viewer: str | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Uploads a local dataset into a repository of the Hugging Face hub, in one commit.

    The files are uploaded first, and appear all at once. A push that was broken off is continued by the same
    call: a file that the hub has, also under another name, is not sent again. A sharded dataset gets its
    `shards.json` (`bags.consolidate`). Files of another dataset in the same folder are replaced, or removed
    if the dataset has none of that name; all other files stay, and earlier commits do.

    README.md is that of the local folder, or else the one that the repository has, or else `bags.card`, which
    later pushes renew. A LICENSE in the local folder is uploaded as well.

    Args:
        path: A finished dataset.
        target: `hf://datasets/OWNER/NAME[@BRANCH][/PATH]`, of a repository and a branch that exist; `main`
            unless given.
        message: The title of the commit.
        viewer: The URL of a page that `bags view --export` wrote, which the card links to.
        progress: Whether to show a bar; None: if standard error is a terminal.
        storage_options: `token` and `endpoint`, which are found as `huggingface_hub` does, and `timeout`, 600
            seconds unless given, and `retries`.

    Returns:
        The URL of the dataset at the commit, for `bags.open`.

    Raises:
        FileNotFoundError: No dataset at the path; no such repository or branch.
        ValueError: The target is not a branch of a repository, the dataset is unfinished, or it has links to
            local files.
        PermissionError: The token is missing, has expired, or may not write to the repository.
        OSError: A quota is used up, the branch changed meanwhile, or the hub does not answer.
        MissingDependencyError: huggingface_hub is not installed.

    Examples:
        >>> bags.push('episodes', 'hf://datasets/u/d')  # doctest: +SKIP
        'hf://datasets/u/d@5f1c0c8e0b6e4f8f9d4a3a0c1b2d3e4f5a6b7c8d'
    """
    place = _check_target(target)
    files = _files_of(locate(path))
    repository = HubRepository(place, options_of(storage_options or {}, target))
    head = repository.head()
    there = repository.tree(head)
    wanted: dict[str, str | bytes] = {posixpath.join(place.name, name): file for name, file in files.items()}
    readme = posixpath.join(place.name, README)
    if readme not in wanted and (readme not in there or NOTE in repository.read(readme, head)):
        url = place.url.replace('@main', '', 1)
        wanted[readme] = card(path, url=url, viewer=viewer).encode()
    gone = [name for name in there if name not in wanted and _is_of_dataset(name, place.name)]
    title = message or f'Push {os.path.basename(os.path.abspath(path))} with bags'
    commit = repository.commit(repository.upload(wanted, progress), gone, title, head)
    return place._replace(revision=commit).url


def _check_target(target: str) -> HubPath:
    place = HubPath.of(target) if target.startswith('hf://') else None
    if place is None or place.type == 'spaces' or place.is_pinned or '@' in place.name:
        raise ValueError(
            'target: expected hf://datasets/OWNER/NAME[@BRANCH][/PATH], the branch of a repository, got '
            f'{target!r:.200}'
        )
    return place


def _files_of(location: Location) -> dict[str, str]:
    """Returns the local files of a dataset by their names in its folder; consolidates a sharded one."""
    root = location.path
    if location.type == 'bags' or location.store.is_remote:
        got = 'a bag' if location.type == 'bags' else 'one at a URL (bags.copy makes a local one)'
        raise ValueError(f'{root}: expected a local dataset, got {got}')
    if location.type == 'shards' and (INDEX not in os.listdir(root) or index_damage(location) is not None):
        consolidate(root)
    files: dict[str, str] = {}
    for folder in dict.fromkeys([root, *location.parts]):
        names = sorted(os.listdir(folder))
        if any(map(is_journal, names)) or 'limits.refs.bag' in names:
            raise ValueError(f'{folder}: {EXPECTED_FINISHED}')
        is_root = folder == root
        for name in names:
            if name in (PROGRESS, EARLIER_PROGRESS) and is_root and location.type == 'shards':
                continue  # The progress of the writer, with paths of this machine.
            if (is_file_of_dataset(name) and not is_temporary(name)) or (is_root and name in BESIDE):
                files[name if is_root else f'{os.path.basename(folder)}/{name}'] = f'{folder}/{name}'
                if name.endswith(LINKED[1]):
                    _check_links(location, folder, name)
    return files


def _check_links(location: Location, folder: str, name: str) -> None:
    """Raises ValueError if a file of the entries of links leads to a local file."""
    field = name.removesuffix(LINKED[1])
    entries = open_bag(location.store, location.store.join(folder, name), ReaderOptions())
    assert isinstance(entries, BagFile)
    for number in range(1, entries.count + 1):
        entry = read_entry(entries, field, number)
        if not is_url(entry.path):
            raise ValueError(
                f'{folder}: field {field!r} has links to {entry.path}, which others cannot read: bags.copy '
                'makes a dataset without links'
            )


def _is_of_dataset(name: str, folder: str) -> bool:
    """Returns whether a file of a repository is one of the dataset in a folder of it, by its path."""
    inside = name[len(folder) + 1 :] if folder else name
    shard, _, base = inside.rpartition('/')
    return (not shard or (shard.isascii() and shard.isdigit())) and is_file_of_dataset(base)
