"""`bags.verify`: finds damage in all limits, refs and specs, and with `decode` in all values."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bags.bag.options import ReaderOptions
from bags.bag.temporary_files import leftovers
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format.file_names import is_temporary
from bags.dataset.format.folder import Folder
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.journal import describe_not_begun, is_journal, shards_not_begun
from bags.dataset.format.listing import names_in, root_names
from bags.dataset.format.options import FolderOptions
from bags.dataset.format.shard_index import INDEX
from bags.dataset.format.spec import Schema, load_spec
from bags.errors import CorruptError, SpecError
from bags.keys.index import INDEX_SUFFIX, KeyIndex
from bags.links.permission import PermittedPaths
from bags.maintenance.consolidate import index_damage
from bags.maintenance.location import Location, locate, locate_folder
from bags.maintenance.verify_bag import MAX_FINDINGS, Check, Damage, Finding, Note, Result, unreadable
from bags.maintenance.verify_folder import (
    TEMPORARY,
    UNFINISHED_NOTE,
    folder_checks,
    lone_bag_checks,
    missing_shards,
)
from bags.progress.progress import progress as show_progress
from bags.storage import Hints
from bags.storage.cache.store import CachedStore
from bags.storage.urls import plain_path
from bags.validation import with_advice, worker_count

STEPS_PER_WORKER = 8
"""Number of checks handed to each thread at a time."""


@with_advice
def verify(
    dataset: Any,
    *,
    decode: bool = False,
    notes: bool = False,
    decoders: Mapping[str, Callable[..., Any]] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    trust_links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Checks datasets and bags for damage, and continues after damage.

    Checks all limits, all refs, the spec, and the sizes of records of fixed-size types. In local files, also
    checks that compressed records can be decompressed, that media begin with the signature of their format,
    and that records match their checksums, if they were written with `checksum=True`. Checksums reveal any
    flipped bit. Without checksums, changes that leave valid data are not detected: a changed record, or a ref
    that points to another record. On an object store, records are read only with `decode`, which downloads
    all of them.

    Args:
        dataset: The path of a dataset, or of one or several bags (`name@*.bagz`), or an open dataset. For a
            view, the underlying datasets are checked.
        decode: Also read and decode every value, to find all damage that checksums and decoders detect.
        notes: Also return notes: datasets that were not closed, records that no datapoint refers to.
        decoders: As in `bags.open`, for `decode`.
        workers: Number of threads. Default: the number of processors.
        progress: Whether to show a progress bar; None: on a terminal.
        trust_links: As in `bags.open`: the files that links may reach. Links to other files are damage.
        filesystem, storage_options: As in `bags.open`. For an open dataset, the default of these options and
            of `trust_links` are the values it was opened with.

    Returns:
        A `Damage` for each problem, and with `notes` a `Note` for each finding that is not damage. Of much
        damage in a file, the first 999 problems are returned, and then one with the number of the others.

    Raises:
        FileNotFoundError: The path has no dataset or bag.
        MissingDependencyError: A package required for decoding is not installed.
        OSError: The dataset cannot be listed, or the object store does not respond. A single file that cannot
            be read, e.g. for lack of permission, is damage.

    Examples:
        >>> bags.verify('episodes', decode=True)
        []
    """
    dataset = plain_path(dataset)
    if not isinstance(dataset, Dataset | str | os.PathLike):
        raise TypeError(f'verify: expected a dataset, or the path of one or of a bag, got {dataset!r:.80}')
    given = {'trust_links': trust_links, 'filesystem': filesystem, 'storage_options': storage_options}
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    if isinstance(dataset, Dataset):
        checked = [_folder_to_check(folder, given) for folder in dataset.roots()]
    else:
        checked = [(locate(dataset, filesystem, storage_options), FolderOptions(**given))]
    findings = find_damage(checked, Decoders(decoders), decode, workers, progress)
    return [finding for finding in findings if notes or not isinstance(finding, Note)]


def _folder_to_check(folder: Folder, given: Mapping[str, Any]) -> tuple[Location, FolderOptions]:
    """Returns the location of an open dataset, and the options to check it with: by default, its own."""
    own = {name: getattr(folder.options, name) for name in ('trust_links', 'filesystem', 'storage_options')}
    options = FolderOptions(**{**own, **given})
    if given.keys() - {'trust_links'}:
        return locate(folder.path, options.filesystem, options.storage_options), options
    store = folder.store
    # The store itself is checked, even if the dataset is read through a cache.
    return locate_folder(store.inner if isinstance(store, CachedStore) else store, folder.path), options


def find_damage(
    checked: Sequence[tuple[Location, FolderOptions]],
    decoders: Decoders,
    decode: bool,
    workers: int | None,
    progress: bool | None,
) -> Iterator[Finding]:
    """Yields damage and notes as soon as they are found. Much damage of a field ends as one finding."""
    workers = worker_count(workers)
    steps = itertools.chain.from_iterable(
        _steps(location, decode, decoders, options) for location, options in checked
    )
    shown, more = collections.Counter[tuple[str, str | None]](), dict[tuple[str, str | None], Damage]()
    with show_progress('verifying', None, 'records', show=progress) as advance:
        while batch := list(itertools.islice(steps, STEPS_PER_WORKER * workers)):
            for result in map_concurrently(_do, batch, max_threads=workers):
                for finding in result.findings:
                    key = finding.path, finding.field
                    shown[key] += 1
                    if isinstance(finding, Note) or shown[key] <= MAX_FINDINGS:
                        yield finding
                    else:
                        first = more.get(key, dataclasses.replace(finding, count=0))
                        more[key] = dataclasses.replace(first, count=first.count + finding.count)
                advance(result.records, result.size)
    yield from more.values()


def _do(step: Finding | Check) -> Result:
    return step() if callable(step) else Result([step])


def _do_all(steps: Iterable[Finding | Check]) -> Result:
    """Runs several checks as one: on an object store, opening a shard takes longer than its checks."""
    results = list(map(_do, steps))
    findings = [finding for result in results for finding in result.findings]
    return Result(findings, sum(result.records for result in results), sum(result.size for result in results))


def _steps(
    location: Location, decode: bool, decoders: Decoders, options: ReaderOptions
) -> Iterator[Finding | Check]:
    """Yields findings, and further checks to run."""
    store = location.store
    beside = location.parts if location.type == 'bags' else [location.path]
    for path in itertools.chain.from_iterable(leftovers(store, path) for path in beside):
        yield Note(path, None, TEMPORARY)
    if location.type == 'bags':
        for path in location.parts:
            yield from lone_bag_checks(store, path, options, decode)
        return
    if location.type == 'shards':
        detail = index_damage(location)
        if detail is not None:
            yield Damage(store.join(location.path, INDEX), None, None, detail)
        yield from missing_shards(location.path, location.parts)
        names = sorted(root_names(store, location.path))
        for name in filter(is_temporary, names):
            yield Note(store.join(location.path, name), None, TEMPORARY)
        if any(map(is_journal, names)):
            not_begun = describe_not_begun(shards_not_begun(names))
            detail = f'{UNFINISHED_NOTE.format("unfinished")}{not_begun and f"; {not_begun}"}'
            yield Note(location.path, None, detail)
    if not store.is_remote or decode:
        yield from _key_index_damage(location)
    first_schema = _first_schema(location)
    whole = Folder(store, location.path, options)
    for path in location.parts:
        folder = Folder(store, path, options, whole=whole)
        steps = _to_the_end(
            folder_checks(folder, decoders, decode, first_schema, path == location.parts[-1]), path
        )
        if store.is_remote and not decode:
            yield functools.partial(_do_all, steps)
        else:
            yield from steps


def _to_the_end(steps: Iterator[Finding | Check], path: str) -> Iterator[Finding | Check]:
    """Yields steps; an error for a whole folder, such as a folder that cannot be listed, is damage."""
    try:
        yield from steps
    except OSError as exc:
        yield unreadable(exc, path)


def _first_schema(location: Location) -> Schema | None:
    """Returns the schema of the first shard; None if it has no valid spec."""
    path = location.store.join(location.parts[0], 'spec.json')
    try:
        return load_spec(location.store.read(path), path)
    except (OSError, CorruptError, SpecError):
        return None


def _key_index_damage(location: Location) -> Iterator[Damage]:
    """Yields the damage of the key indexes of a dataset. A stale index is not damaged."""
    store, folder = location.store, location.parts[0]
    try:
        names = names_in(store, folder, 'index')
    except OSError:  # The checks of the folder report it.
        return
    for name in sorted(name for name in names if name.endswith(INDEX_SUFFIX)):
        path = store.join(folder, name)
        try:
            KeyIndex(store.open(path, Hints())).check()
        except CorruptError as exc:
            yield Damage(path, None, None, exc.detail)
        except OSError as exc:
            yield unreadable(exc, path)
