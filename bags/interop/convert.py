"""From files of other kinds to a dataset."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from bags.dataset.compression import Compression
from bags.dataset.open import open as open_dataset
from bags.dataset.registry import encoders
from bags.dataset.sharded_writer import GB, ShardedDatasetWriter
from bags.errors import EncodeError
from bags.interop.extensions import KEY
from bags.interop.source import Damaged, Source, open_source
from bags.progress import progress as show_progress
from bags.validation import at_least, one_of

__all__ = ['Converted', 'convert']

WINDOW = 64  # Datapoints that are loaded ahead, at most.
MOST = 1 << 26  # Bytes of them, about; few are ahead where they are large.


@dataclasses.dataclass(frozen=True)
class Converted:
    """What a conversion did."""

    spec: dict[str, str]
    datapoints: int
    """Datapoints that the dataset has now."""
    size: int
    """Bytes that it takes."""
    skipped: list[tuple[str, str]]
    """Files that could not be taken, and why; their datapoints were left out."""


def convert(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Source,
    directory: str | os.PathLike[str],
    *,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    on_error: str = 'raise',
    workers: int = 4,
    compression: Compression = None,
    shard_size: int | None = 10 * GB,
    shard_length: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> Converted:
    """Makes a dataset of a folder of media or of WebDataset tars. Files go in byte for byte.

    Their names are the fields and the spec (`open_source` shows it beforehand): `x.jpg` and `x.txt` are a
    datapoint with fields `jpg` and `txt`; the field `__key__` says `x`. A file that is missing in some of the
    datapoints makes its field optional.

    Args:
        source: A folder, a tar, several tars, or what `open_source` returned.
        directory: The dataset, which is a sharded one.
        layout, spec: As in `open_source`.
        on_error: 'raise' ends with the first file that is damaged, 'skip' leaves its datapoint out. Of a
            damaged tar, it takes what stands before the damage.
        workers: Threads that read files ahead.
        compression, shard_size, shard_length, filesystem, storage_options: As in `ShardedDatasetWriter`.
        resume: Go on with a conversion that was interrupted.
        progress: Show a bar; unless told, on a terminal.
        source_options: Of the storage behind a source that is a URL.

    Raises:
        FileNotFoundError: No source.
        FileExistsError: Something is in the directory.
        Damaged: A file that is not what its name says; names it. What came before can be resumed.
        SpecError: A type that cannot be.
    """
    one_of('on_error', on_error, ('raise', 'skip'))
    workers = at_least('workers', workers, 1)
    if not isinstance(source, Source):
        source = open_source(
            source, layout=layout, spec=spec, storage_options=source_options, on_error=on_error
        )
    kept = dict.fromkeys(('json', 'msgpack', 'tree'), _as_it_is)
    skipped = list(source.damaged)
    storage: dict[str, Any] = {'filesystem': filesystem, 'storage_options': storage_options}
    with ShardedDatasetWriter(
        directory,
        source.spec,
        {**encoders, **kept},
        shard_size,
        shard_length,
        compression=compression,
        resume=resume,
        **storage,
    ) as writer:
        entries = source.entries()
        if len(writer):
            writer.flush()
            entries = _after(entries, len(writer), directory, storage)
        with show_progress('importing', source.count - len(writer), 'datapoints', show=progress) as advance:
            for loaded in _ahead(source.load, entries, workers):
                before = writer.size
                try:
                    _append(writer, loaded)
                except Damaged as exc:
                    if on_error == 'raise':
                        raise
                    skipped.append((exc.name, exc.detail))
                advance(1, writer.size - before)
    return Converted(writer.spec, len(writer), writer.size, skipped)


def _append(writer: ShardedDatasetWriter, loaded: Callable[[], dict[str, Any]]) -> None:
    datapoint = loaded()
    try:
        writer.append(datapoint)
    except EncodeError as exc:
        name = str(datapoint[KEY]).encode('utf-8', 'backslashreplace').decode()
        raise Damaged(name, str(exc)) from exc


def _as_it_is(value: Any, *_args: str) -> bytes:
    """The encoder of what is already encoded."""
    return bytes(value)


def _after(entries: Iterator[Any], count: int, directory: Any, storage: dict[str, Any]) -> Iterator[Any]:
    """Returns the entries behind the last one that was converted. Some before it may have been skipped."""
    with open_dataset(directory, **storage) as dataset:
        last = dataset[count - 1, KEY][KEY]
    for number, entry in enumerate(entries, 1):
        if number >= count and last in entry[:2]:
            return entries
    raise ValueError(f'resume: expected a source with the datapoint {last!r}, the last in {directory}')


def _size(loaded: Future[dict[str, Any]]) -> int:
    """Returns about how many bytes a datapoint takes in memory."""
    if loaded.exception() is not None:
        return 0
    return sum(len(value) for value in loaded.result().values() if isinstance(value, bytes | str))


def _ahead(
    load: Callable[[Any], dict[str, Any]], entries: Iterator[Any], workers: int
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yields in order what gives each entry's datapoint, or its error, with some loaded ahead in threads."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers, 'bags-import') as threads:
        pending: deque[Future[dict[str, Any]]] = deque()
        limit = 1  # More when it is known how large they are.
        try:
            for entry in entries:
                pending.append(threads.submit(load, entry))
                while len(pending) >= limit:
                    loaded = pending.popleft()
                    size = _size(loaded)
                    yield loaded.result
                    limit = max(1, min(2 * limit, 4 * workers, WINDOW, MOST // max(1, size)))
            yield from (pending.popleft().result for _ in itertools.repeat(None, len(pending)))
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
