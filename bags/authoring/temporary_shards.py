"""Datasets written by parallel tasks: shards with temporary names, which are renamed when all are written.

Each task writes to a temporary folder, under a unique name. A retried task writes under another name, and the
files of its first attempt are removed at the end. Renaming may be retried too.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bags.bag.temporary_files import remove_tree
from bags.dataset.format.journal import DATASET_JOURNAL_TEXT, JOURNAL
from bags.dataset.format.listing import shard_numbers
from bags.dataset.format.metadata import dump_metadata
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.format.spec import check_names, parse_spec
from bags.dataset.writing.encoder import bind_encoders
from bags.dataset.writing.field_writer import field_compressions
from bags.storage import Store
from bags.validation import merge

TEMPORARY = '.unfinished-'
"""The beginning of the name of a temporary folder."""
ANOTHER_WRITER = 'another writer has written or begun a dataset here since the tasks began: use another path'


def check_options(
    spec: Mapping[str, str],
    encoders: Mapping[str, Callable[..., Any]] | None,
    options: WriteOptions,
    function: Callable[..., Any],
) -> WriterSettings:
    """Checks the arguments of a function before any of its tasks is started, and returns its options.

    Raises:
        SpecError: The spec is invalid.
        TypeError, ValueError: An unknown or invalid option.
    """
    settings = merge(WriterSettings, None, options, function=function)
    if settings.resume:
        raise ValueError(
            'resume: expected False: tasks write whole shards, and a run that fails leaves none to resume; '
            'bags.concat adds the new dataset to another one'
        )
    if settings.mode == 'overwrite':
        raise ValueError(
            "mode: expected 'create', got 'overwrite': tasks on several machines cannot hold the lock of the "
            'dataset that is replaced; write to another folder, then replace this one'
        )
    schema = parse_spec(spec)
    check_names(schema)
    bind_encoders(schema, encoders)
    field_compressions(settings.compression, schema, settings.linked_fields)
    if settings.metadata is not None:
        dump_metadata(settings.metadata, schema)
    return settings


def check_absent(store: Store, folder: str) -> None:
    """Raises FileExistsError if the folder already contains a dataset."""
    if 'spec.json' in store.names(folder) or shard_numbers(store, folder):
        raise FileExistsError(errno.EEXIST, 'a dataset exists already', folder)


def shard_names(count: int) -> list[str]:
    """Returns the names of the shards of a dataset."""
    return [f'{number:06}' for number in range(count)]


def begin(store: Store, folder: str) -> str:
    """Creates a temporary folder in the output folder, and returns its path."""
    path = store.join(folder, f'{TEMPORARY}{uuid.uuid4().hex}')
    store.make_folder(path)
    return path


def commit(store: Store, unfinished: str, moves: Iterable[tuple[str, str]]) -> None:
    """Renames files or folders, and removes the rest of the temporary folder.

    If the outputs are shard folders, the dataset counts as unfinished until all of them are renamed.

    Args:
        store: The store of the files.
        unfinished: The temporary folder, as `begin` returned it.
        moves: Paths in the temporary folder, and their new paths.

    Raises:
        FileExistsError: A new path already exists, and an earlier attempt did not write it.
    """
    folder = os.path.dirname(unfinished)
    journal = store.join(folder, JOURNAL)
    pairs = list(moves)
    is_dataset = any(_names(store, path) is not None for path, _ in pairs)
    if is_dataset:
        _begin_commit(store, unfinished, journal, [target for _, target in pairs])
    for path, target in pairs:
        _move(store, path, target)
    store.sync_folder(folder)
    remove_tree(store, unfinished)
    if is_dataset or store.exists(journal):  # Possibly from an earlier attempt.
        store.remove(journal)
        store.sync_folder(folder)


def _begin_commit(store: Store, unfinished: str, journal: str, targets: Iterable[str]) -> None:
    """Writes the journal. On an object store, it has the name of the temporary folder.

    Raises:
        FileExistsError: The folder has a dataset, or a writer has begun one, since the tasks began.
    """
    data = DATASET_JOURNAL_TEXT
    if not store.is_remote:
        store.replace(journal, data)
        return
    data += f'writer {os.path.basename(unfinished)[len(TEMPORARY) :]}\n'.encode()
    try:
        store.replace(journal, data, None)
    except FileExistsError as exc:
        if store.read(journal) != data:  # Otherwise, an earlier attempt has begun.
            raise FileExistsError(errno.EEXIST, ANOTHER_WRITER, os.path.dirname(journal)) from exc
        return
    if any(_exists(store, target) for target in targets):
        store.remove(journal)
        raise FileExistsError(errno.EEXIST, ANOTHER_WRITER, os.path.dirname(journal))


def _move(store: Store, path: str, target: str) -> None:
    if not _exists(store, path):
        if not _exists(store, target):
            raise FileNotFoundError(errno.ENOENT, 'was removed before it was finalized', path)
        return
    names = _names(store, path)
    # On an object store, a file of the same size may be the copy from an earlier rename attempt.
    if _exists(store, target) and (
        not store.is_remote or (names is None and store.stat(target).size != store.stat(path).size)
    ):
        raise FileExistsError(errno.EEXIST, 'exists already', target)
    if names is None or not store.is_remote:
        store.rename(path, target)
        return
    # Object stores rename single files only: refs.bag last, without which a folder is not complete.
    for name in sorted(names, key=lambda name: (name != 'spec.json', name == 'refs.bag', name)):
        store.rename(store.join(path, name), store.join(target, name))


def _exists(store: Store, path: str) -> bool:
    return store.exists(path) or _names(store, path) is not None


def _names(store: Store, path: str) -> list[str] | None:
    """Lists a folder; returns None if the path is not a folder, or the folder is empty."""
    try:
        return store.names(path) or None
    except (FileNotFoundError, NotADirectoryError):
        return None
