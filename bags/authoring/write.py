"""Writing a dataset with many workers: they transform and encode, one process writes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from bags.authoring.progress_log import note_source
from bags.authoring.tasks import LONG, Inputs, Ledger
from bags.authoring.workers import Crew, Outcome, Processes, Task, Threads, can_be_sent
from bags.dataset.base import Dataset
from bags.dataset.compression import Compression
from bags.dataset.encoder import Encoder, collect
from bags.dataset.fingerprint import fingerprint
from bags.dataset.sharded_writer import GB, ShardedDatasetWriter
from bags.dataset.spec import parse_spec
from bags.progress import Advance
from bags.progress import progress as show_progress
from bags.validation import at_least_or_none

__all__ = ['Written', 'write']

BUDGET = 1 << 28  # Bytes of records that wait for others before them.
WINDOW = 1 << 8  # Tasks that may be done before the first of them is.
SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Written:
    """What `write` wrote."""

    datapoints: int
    """Datapoints of the dataset, with those of an earlier run."""
    shards: int
    size: int
    """Bytes of it."""


class Encode:
    """What a worker does: from inputs to records."""

    def __init__(
        self,
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None,
        transform: Callable[[Any], Mapping[str, Any]] | None,
        dataset: Dataset | None,
    ) -> None:
        self._spec = spec
        self._encoders = encoders
        self._transform = transform
        self._dataset = dataset
        self._encoder = Encoder(parse_spec(spec), encoders)

    def __call__(self, task: Task) -> tuple[list[list[Any]], Exception | None]:
        found: list[list[Any]] = []
        for number, value in enumerate(task.inputs, task.first):
            try:
                value = value if self._dataset is None else self._dataset[value]
                datapoint = value if self._transform is None else self._transform(value)
                found.append(collect(self._encoder.encode(datapoint)))
            except Exception as exc:
                exc.add_note(f'at input {number}')
                return found, exc
        return found, None

    def __getstate__(self) -> tuple[Any, ...]:
        return self._spec, self._encoders, self._transform, self._dataset

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Encode.__init__(self, *state)


def write(
    source: Any,
    directory: str | os.PathLike[str],
    spec: Mapping[str, str],
    *,
    transform: Callable[[Any], Mapping[str, Any]] | None = None,
    workers: int | None = None,
    processes: bool | None = None,
    ordered: bool = True,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    compression: Compression = None,
    shard_size: int | None = 10 * GB,
    shard_length: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Written:
    """Writes a dataset with many workers, which transform and encode what one process then writes.

    Args:
        source: The inputs: a dataset, a sequence, or anything to iterate over. Of a dataset the workers read
            the datapoints themselves.
        directory: Where the dataset goes: str, path or URL.
        spec: Type by field.
        transform: From an input to its datapoint; unless given, the inputs are the datapoints.
        workers: How many; as many as there are processors unless given. One is this process itself.
        processes: True for processes, which are started afresh, so that `transform` and `encoders` must be
            importable there; False for threads. Unless given, processes where that is possible.
        ordered: Keep the order of the inputs. If not, no input waits for a slower one before it. (Order is
            kept also on storages whose files do not grow.)
        encoders, compression: As in `DatasetWriter`. Encoders run in the workers.
        shard_size, shard_length: Bytes, or datapoints, from which on a shard is full.
        resume: Go on where an earlier run ended, of the same inputs in the same order: no datapoint is lost
            or there twice. It may also be the first run.
        progress: Show a bar: True, False, or None for on terminals.
        filesystem, storage_options: As in `DatasetWriter`.

    Raises:
        FileExistsError: Something is there, and `resume` is not set.
        EncodeError: A datapoint that does not fit; a note says which input. Those before it are written.
        RuntimeError: A worker died, and so did those that tried again; likewise.
        ValueError: With `resume`, what is there is made from something else.
    """
    dataset = source if isinstance(source, Dataset) else None
    if dataset is None and not isinstance(source, Iterable):
        raise TypeError(
            f'write: expected a dataset or something to iterate over, got {type(source).__name__}'
        )
    workers = at_least_or_none('workers', workers, 1)
    if transform is not None and not callable(transform):
        raise TypeError(f'transform: expected a function, got {transform!r}')
    parse_spec(spec)
    work = Encode(dict(spec), encoders, transform, dataset)
    start = _crew(work, workers or os.cpu_count() or 1, processes)
    made_from: dict[str, Any] = {
        'kind': 'write',
        'spec': dict(sorted(spec.items())),
        'length': len(source) if isinstance(source, Sized) else None,
        'fingerprint': fingerprint(dataset) if dataset is not None else None,
    }
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            ShardedDatasetWriter(
                directory, spec, encoders, shard_size, shard_length,
                compression=compression, resume=resume,
                filesystem=filesystem, storage_options=storage_options,
            )
        )  # fmt: skip
        provenance = note_source(writer, made_from, resume)
        ordered = (ordered or writer.store.is_remote) and not provenance.state.get('ledger')
        ledger = None if ordered else Ledger(provenance, len(writer))
        done = [(0, len(writer))] if ledger is None else ledger.done
        total = made_from['length']
        advance = stack.enter_context(
            show_progress('writing', total and total - len(writer), 'datapoints', show=progress)
        )
        crew = start()
        if crew is not None:
            stack.callback(crew.close)
        inputs = Inputs(source if dataset is None else range(len(dataset)), done)
        outcomes = _inline(inputs, work) if crew is None else _outcomes(inputs, crew, ordered)
        _write_all(outcomes, writer, ledger, advance)
    return Written(len(writer), writer.shards, writer.size)


def _crew(work: Encode, workers: int, processes: bool | None) -> Callable[[], Crew | None]:
    """Returns what starts the workers; None if this process does it all."""
    if workers == 1 and not processes:
        return lambda: None
    obstacle = can_be_sent(work) if processes is not False else None
    if processes and obstacle is not None:
        raise TypeError(
            f'processes: expected a transform and encoders that can be sent to other processes, such as '
            f'functions of a module; or processes=False ({obstacle})'
        ) from obstacle
    if processes is False or obstacle is not None or (processes is None and not _main_is_importable(work)):
        return lambda: Threads(work, workers)
    return lambda: Processes(work, workers)


def _main_is_importable(work: Encode) -> bool:
    """Tells if what is defined in the main module would be found by a process that is started afresh."""
    import pickle
    import sys

    if b'__main__' not in pickle.dumps(work):
        return True
    main = sys.modules['__main__']
    return getattr(main, '__spec__', None) is not None or os.path.exists(
        getattr(main, '__file__', None) or ''
    )


def _inline(inputs: Inputs, work: Encode) -> Iterator[tuple[Outcome, int]]:
    """Does all in this process: each input is written before the next is looked at."""
    while (task := inputs.next()) is not None:
        outcome = Outcome(task, *work(task), LONG)
        yield outcome, _size_of(outcome)


def _outcomes(inputs: Inputs, crew: Crew, ordered: bool) -> Iterator[tuple[Outcome, int]]:
    """Has tasks done, and returns them with the bytes of their records, in order if so wished.

    Behind the first that failed none are begun, and those that come before it are still returned.
    """
    waiting: dict[int, tuple[Outcome, int]] = {}
    finished: set[int] = set()
    begun: collections.deque[int] = collections.deque()
    """First inputs of tasks, from the first on that is not finished."""
    held, ends = 0, False
    error: tuple[Outcome, int] | None = None
    while True:
        while not ends and crew.has_room() and held < BUDGET and len(begun) < WINDOW:
            task = inputs.next()
            if task is None:
                ends = True
                break
            begun.append(task.first)
            crew.submit(task)
        if not begun:
            break
        for outcome in crew.wait():
            size = _size_of(outcome)
            inputs.took(outcome, size)
            finished.add(outcome.task.first)
            ends = ends or outcome.error is not None
            if ordered:
                waiting[outcome.task.first] = outcome, size
                held += size
            elif outcome.error is None:
                yield outcome, size
            else:
                error = error or (outcome, size)
        while begun and begun[0] in finished:
            first = begun.popleft()
            finished.discard(first)
            if ordered:
                found = waiting.pop(first)
                held -= found[1]
                yield found
    if error is not None:
        yield error


def _size_of(outcome: Outcome) -> int:
    """Returns the bytes of the records of a task."""
    total = 0
    for records in outcome.result or ():
        for record in records:
            if type(record) is bytes:
                total += len(record)
            elif record is not None:
                total += sum(map(len, record))
    return total


def _write_all(
    outcomes: Iterator[tuple[Outcome, int]],
    writer: ShardedDatasetWriter,
    ledger: Ledger | None,
    advance: Advance,
) -> None:
    """Writes what is done.

    Raises:
        Exception: The error of the first task that failed, once all before it is written.
    """
    flushed = time.monotonic()

    def checkpoint() -> None:
        if ledger is not None:
            ledger.save()
        writer.flush()
        if ledger is not None:
            ledger.flushed()

    try:
        for outcome, size in outcomes:
            for number, records in enumerate(outcome.result or (), outcome.task.first):
                if ledger is not None and writer.is_due:
                    checkpoint()  # A shard that ends is flushed.
                writer.append_records(records, False if ledger is not None else None)
                if ledger is not None:
                    ledger.wrote(number, 1)
            advance(len(outcome.result or ()), size)
            if outcome.error is not None:
                checkpoint()
                raise outcome.error
            if ledger is not None and time.monotonic() - flushed >= SECONDS:
                checkpoint()
                flushed = time.monotonic()
        if ledger is not None:
            checkpoint()
    except BaseException:
        if ledger is not None:
            ledger.save()  # The writer flushes what it has when it is closed.
        raise
