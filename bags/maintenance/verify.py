"""Looking a dataset over for damage: every limit, every row of refs and, if asked, every value.

findings   damage, and notes of what is none
running    jobs in threads
records    the limits, sizes and frames of a bag
values     decoding
rows       refs
folders    a dataset folder
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bags.dataset.base import Dataset
from bags.dataset.schema import SchemaCache
from bags.errors import SpecError
from bags.maintenance.findings import Damage, Finding, Note
from bags.maintenance.sources import Source, find_source
from bags.maintenance.verify_folder import bag_job, folder_job, gaps
from bags.maintenance.verify_jobs import Job, at_once, run
from bags.progress import progress as show_progress
from bags.validation import at_least_or_none

__all__ = ['Damage', 'Finding', 'Note', 'verify']


def verify(
    source: Any,
    decode: bool = False,
    *,
    notes: bool = False,
    decoders: Mapping[str, Callable[..., Any]] | None = None,
    workers: int | None = None,
    progress: bool | None = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Looks for damage, and goes on where it finds some.

    What is looked at: all limits, all refs, the spec, the sizes of records of fixed-size types and, in local
    files, the headers of zstd frames and how media begin. What was changed such that it is whole again cannot
    be seen: bytes of a record that carries no checksum, or a ref that leads to another record.

    Args:
        source: The path of a dataset or a bag (or of several, as `name@*.bagz`), or an open dataset; of
            a view what it is a view of is looked at.
        decode: Also decode every value, which finds what checksums and decoders can tell.
        notes: Also yield notes: what was not closed, records that nothing refers to.
        decoders: As in `bags.open`, for `decode`.
        workers: Threads; as many as there are processors unless given.
        progress: Show a bar: True or False, or None: on terminals.
        filesystem, storage_options: As in `bags.open`.

    Yields:
        A `Damage` for each thing that cannot be right. Nothing if all is.

    Raises:
        FileNotFoundError: Nothing is there, or no dataset or bag.
        MissingDependencyError: To decode, a package is needed that is not installed.
    """
    workers = at_least_or_none('workers', workers, 1)
    if not isinstance(source, Dataset | str | os.PathLike):
        raise TypeError(f'verify: expected a dataset, or the path of one or of a bag, got {source!r:.80}')
    places = list(_places(source)) if isinstance(source, Dataset) else [os.fspath(source)]
    sources = [find_source(place, filesystem, storage_options) for place in places]
    return _verify(sources, decode, notes, SchemaCache(decoders, False), workers, progress)


def _verify(
    sources: list[Source],
    decode: bool,
    notes: bool,
    schemas: SchemaCache,
    workers: int | None,
    progress: bool | None,
) -> Iterator[Finding]:
    jobs = (job for source in sources for job in _jobs(source, decode, schemas))
    with show_progress('verifying', None, 'records', show=progress) as advance:
        for finding in run(jobs, workers or os.cpu_count() or 1, advance):
            if notes or isinstance(finding, Damage):
                yield finding


def _jobs(source: Source, decode: bool, schemas: SchemaCache) -> Iterator[Job]:
    store, options = source.store, source.options()
    if source.kind == 'bags':
        for path in source.parts:
            yield bag_job(store, path, options, decode)
        return
    if source.kind == 'shards':
        yield lambda: gaps(source.path, source.parts)
    first: list[dict[str, str] | None] = []

    def expected() -> dict[str, str] | None:
        if not first:
            try:
                path = store.join(source.parts[0], 'spec.json')
                types = schemas.get(store.read(path), path).types
                first.append({name: kind.text for name, kind in types.items()})
            except (OSError, SpecError):
                first.append(None)
        return first[0]

    for number, path in enumerate(source.parts):
        is_last = number == len(source.parts) - 1
        job = folder_job(store, path, options, schemas, decode, expected, is_last)
        # Of many shards each is one job, where that is quick.
        yield job if decode or len(source.parts) == 1 else at_once(job)


def _places(dataset: Dataset) -> Iterator[str]:
    """Yields the paths of the datasets that a dataset reads from."""
    directory = getattr(dataset, 'directory', None)
    if directory is not None:
        yield directory
        return
    under = [
        getattr(dataset, 'dataset', None),
        *getattr(dataset, 'parts', ()),
        *getattr(dataset, 'datasets', ()),
    ]
    seen = dict.fromkeys(path for part in under if part is not None for path in _places(part))
    yield from seen
