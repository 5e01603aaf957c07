"""`bags.write`: many workers transform and encode inputs, and one process writes the records."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Unpack

from bags.authoring.tasks import MAX_INPUTS, Inputs, Task, fingerprint_of_inputs
from bags.dataset.base import Dataset
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.format.spec import parse_spec
from bags.dataset.reading.fingerprint import source_fingerprints
from bags.dataset.writing.encoder import Encoder, collect
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.progress.progress import Advance
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog
from bags.progress.write_result import WriteResult
from bags.validation import merge, worker_count
from bags.workers.outcome import Outcome, PartialResult
from bags.workers.pool import WorkerPool
from bags.workers.processes import check_main, check_sendable

MAX_HELD_RECORD_BYTES = 1 << 28
"""Maximum bytes of finished records that wait for the records of earlier inputs."""
MAX_TASKS_AHEAD = 256
TABLE_PACKAGES = ('pandas', 'polars', 'pyarrow')
"""Packages whose tables are iterated by column."""


@dataclasses.dataclass(eq=False)
class Encode:
    """The function of a worker: transforms the inputs of a task to datapoints, and encodes them."""

    spec: Mapping[str, str]
    encoders: Mapping[str, Callable[..., Any]] | None
    transform: Callable[[Any], Mapping[str, Any]] | None
    linked_fields: frozenset[str]
    """The fields whose values may be links."""
    dataset: Any
    """The dataset that the inputs index; None if the inputs are the values themselves."""

    def __post_init__(self) -> None:
        self._encoder = Encoder(parse_spec(self.spec), self.encoders, self.linked_fields)

    def __call__(self, task: Task) -> list[list[Any]] | PartialResult:
        """Returns the records of each datapoint."""
        encoded: list[list[Any]] = []
        for number, value in enumerate(task.inputs, task.first):
            try:
                value = value if self.dataset is None else self.dataset[value]
                datapoint = value if self.transform is None else self.transform(value)
                encoded.append(collect(self._encoder.encode(datapoint)))
            except Exception as exc:
                exc.add_note(f'at input {number}')
                return PartialResult(encoded, exc)
        return encoded

    def __reduce__(self) -> tuple[Any, ...]:
        return Encode, (self.spec, self.encoders, self.transform, self.linked_fields, self.dataset)


def write(
    source: Any,
    path: str | os.PathLike[str],
    spec: Mapping[str, str],
    *,
    transform: Callable[[Any], Mapping[str, Any]] | None = None,
    workers: int | None = None,
    processes: bool | None = None,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    check_source: bool = True,
    progress: bool | None = None,
    **options: Unpack[WriteOptions],
) -> WriteResult:
    """Writes a dataset: many workers transform and encode inputs, and this process writes the records.

    Args:
        source: The inputs: a dataset, a sequence, any other iterable, or a map-style dataset of PyTorch
            (any object with `__len__` and `__getitem__`). Workers read the datapoints of datasets themselves.
        path: The folder of the dataset: str, path or URL.
        spec: The type of each field.
        transform: Function from an input to its datapoint. By default, the inputs are the datapoints.
        workers: Number of workers. Default: the number of processors. 1 uses only this process.
        processes: True for spawned processes, which must be able to import `transform` and `encoders`; False
            for threads. By default, processes if there is a `transform`, `encoders` or a map-style dataset,
            and they can be pickled.
        encoders: As in `DatasetWriter`. They run in the workers.
        check_source: With `resume`, raise if the source has changed since the earlier run. False continues
            with the remaining inputs. The check compares the contents of a dataset, or the first 64 MiB of a
            list, range or array of plain values: numbers, strings, paths, arrays, and lists and mappings of
            them. For any other source, it compares only the length, if the source has one. Files that inputs
            name are not read.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook.
        **options: As in `ShardedDatasetWriter`. `resume=True` resumes an earlier run, if there was one, with
            the same inputs in the same order: no datapoint is lost or written twice.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is not set.
        EncodeError: A datapoint does not fit the spec; a note names its input. Datapoints of earlier inputs
            are written.
        RuntimeError: A script starts processes outside of `if __name__ == '__main__':`; nothing is written.
            Or several workers in a row died during the same task; earlier datapoints are written.
        ValueError: With `resume`, the dataset was written from another source.

    Examples:
        >>> done = bags.write(
        ...     range(100), 'squares', {'n': 'int(4)'}, transform=lambda i: {'n': i * i}
        ... )
        >>> done.datapoints, bags.open('squares')[9]
        (100, {'n': 81})
    """
    dataset = source if isinstance(source, Dataset) else None
    indexed: Any = dataset
    """The dataset that the inputs index. Iterating over it may never end."""
    if dataset is None and not isinstance(source, Iterable):
        if not (isinstance(source, Sized) and hasattr(source, '__getitem__')):
            raise TypeError(
                f'write: expected a dataset or an iterable of inputs, got {type(source).__name__}'
            )
        indexed = source
    is_table = hasattr(source, 'columns') and type(source).__module__.partition('.')[0] in TABLE_PACKAGES
    if transform is None and (is_table or isinstance(source, Mapping)):
        detail = 'bags.from_numpy writes arrays by name, and tables of numbers'
        raise TypeError(f'write: expected datapoints, got a {type(source).__name__} of columns; {detail}')
    settings = merge(WriterSettings, None, options, function=write)
    workers = worker_count(workers)
    if transform is not None and not callable(transform):
        raise TypeError(f'transform: expected a function, got {transform!r}')
    parse_spec(spec)
    work = Encode(dict(spec), encoders, transform, settings.linked_fields, indexed)
    if workers == 1 and not processes:
        workers = 0  # In this thread: each input is written before the next one is taken.
    elif processes is None and transform is None and encoders is None and indexed is dataset:
        processes = False  # Built-in encoders take less time than sending the values, or release the GIL.
    elif processes is not False:
        try:
            check_sendable(transform=transform, encoders=encoders, source=indexed)
        except TypeError:
            if processes:
                raise
            processes = False
        else:
            processes = True
            check_main()
    made_from: dict[str, Any] = {
        'kind': 'write',
        'spec': dict(sorted(spec.items())),
        'length': len(source) if isinstance(source, Sized) else None,
        **({'fingerprint': None} if dataset is None else source_fingerprints(dataset)),
    }
    if dataset is None and (identity := fingerprint_of_inputs(source)) is not None:
        made_from['identity'] = identity
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(ShardedDatasetWriter(path, spec, encoders, **options))
        ProgressLog(writer, made_from, settings.resume, check_source)
        total = made_from['length']
        advance = stack.enter_context(
            show_progress('writing', total and total - len(writer), 'datapoints', show=progress)
        )
        inputs = Inputs(
            source if indexed is None else range(len(indexed)), len(writer), MAX_INPUTS if workers else 1
        )
        pool = stack.enter_context(
            WorkerPool(work, workers, processes=bool(processes), name='bags-write', size_of=_size_of)
        )
        outcomes = pool.run(inputs, ahead=MAX_TASKS_AHEAD, max_held_bytes=MAX_HELD_RECORD_BYTES)
        _write_all(outcomes, inputs, writer, advance)
    return WriteResult(len(writer), writer.shards, writer.size, writer.spec)


def _size_of(datapoints: list[list[Any]]) -> int:
    """Returns the record bytes of some datapoints, without linked records, which are not in memory."""
    return sum(
        sum(len(item) for item in (record if type(record) is list else [record]) if type(item) is bytes)
        for records in datapoints
        for record in records
    )


def _write_all(
    outcomes: Iterator[Outcome], inputs: Inputs, writer: ShardedDatasetWriter, advance: Advance
) -> None:
    """Writes the results of tasks.

    Raises:
        Exception: The error of the first task that failed, after all earlier results are written.
    """
    for outcome in outcomes:
        inputs.learn(outcome)
        for records in outcome.result or ():
            writer.append_records(records)
        advance(len(outcome.result or ()), outcome.size)
        if outcome.error is not None:
            writer.flush()
            outcome.get()
