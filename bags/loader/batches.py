"""Makes the batch of a step: finds its datapoints, reads their columns, transforms and collates them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import NUMBER_FORMATS
from bags.dataset.reading.batch import split
from bags.dataset.reading.columns import read_column
from bags.dataset.reading.selection import Fields, select_fields
from bags.errors import BagsError, CorruptError, DecodeError, StackError
from bags.indexing import Int64s, as_indices
from bags.loader.pieces import Streams, read_pieces
from bags.loader.rows import RowBatches, columns_of, rows_of
from bags.loader.steps import PLAN_STEPS, PlannedStep, Schedule, Step, plan_steps
from bags.loader.timing import SHORT_TASK_SECONDS, SHORT_TASKS, TaskClock
from bags.samplers import Sampler
from bags.samplers.pieces import Pieces, joined
from bags.storage.request_counter import RequestCounts
from bags.workers.outcome import PartialResult, WorkerDiedError

MASK_COLUMN = '_mask'
"""Default name of the column that marks repeats with False."""
DATAPOINT, BIN = '_datapoint', '_bin'
"""Columns of batches from a sampler of bins: the index of each datapoint, and its bin within the batch."""
START = '_start'
"""Column of batches from a sampler that cuts datapoints: the first element of each piece in its datapoint."""
SHOWN_DATAPOINTS = 8  # Maximum number of datapoints that an error note lists.

Batch = dict[str, Any]
OnError = Literal['raise', 'skip', 'replace']


class SkippedDatapoint(NamedTuple):
    """A datapoint that cannot be read."""

    datapoint: int
    field: str | None
    """None if the error is not specific to one field."""
    reason: str


class StepResult(NamedTuple):
    """The batch of a step."""

    epoch: int
    batch: Any
    """None if none of its datapoints can be read."""
    skipped: list[SkippedDatapoint]
    clock: TaskClock | None = None
    """The time of its task, if it was measured; the same for all steps of the task."""
    requests: RequestCounts = RequestCounts()
    """Requests of the worker process since its previous task, in the last step of a task."""


@dataclasses.dataclass(eq=False)
class BatchMaker:
    """Makes the batch of any step by its number. Batches do not depend on order, thread or process."""

    dataset: Dataset | RowBatches
    fields: Fields
    sampler: Sampler
    schedule: Schedule
    """The positions of the sampler at each step."""
    seed: int
    """Seed of the random numbers of `transform`, with the epoch and the position."""
    transform: Callable[..., Any] | None
    """Function from a batch to a batch; also takes `rng` if it has a parameter of that name."""
    collate: Callable[[Any], Any] | None
    """Called with the result of `transform`."""
    per_datapoint: bool
    """Whether `transform` takes a datapoint and returns one."""
    on_error: OnError
    """How to handle datapoints that cannot be read."""
    mask: str | None = None
    """A column of every batch that is False for repeats."""
    unreadable: dict[int, SkippedDatapoint] = dataclasses.field(default_factory=dict)
    """Datapoints to leave out, or that proved unreadable, by index."""
    counts_requests: bool = False
    """Whether it runs in a worker process, so that `StepResult` reports the requests of the process."""
    is_timed: bool = False
    """Whether `StepResult` reports the time of tasks."""
    _unmeasured_tasks: int = 0
    """Number of tasks until another one is measured."""
    _plan: tuple[int, list[PlannedStep]] = (-1, [])
    """The number of the first planned step, and the planned steps."""
    _streams: Streams = dataclasses.field(default_factory=dict)
    """The streams of fields of which pieces are read."""
    _counts: RequestCounts = dataclasses.field(default_factory=RequestCounts)
    """Numbers of requests reported so far; start at 0 in a worker process."""

    def __post_init__(self) -> None:
        self.schema = self.dataset.schema if isinstance(self.dataset, Dataset) else {}
        """Types of the fields of the dataset; empty for a map-style dataset."""
        self.takes_rng = self.transform is not None and _takes_rng(self.transform)
        """Whether `transform` has a parameter `rng`."""

    def with_sampler(self, sampler: Sampler) -> BatchMaker:
        """Returns a maker of the batches of another order."""
        other = copy.copy(self)
        other.sampler, other._plan = sampler, (-1, [])
        return other

    def make(self, numbers: range) -> list[StepResult] | PartialResult:
        """Returns the batches of consecutive steps within one block of `PLAN_STEPS` steps.

        Returns:
            A `StepResult` for each step; after an error, a `PartialResult` with the steps before it. The
            error names the datapoints, and says whether the sampler, the dataset, `transform` or `collate`
            raised it.
        """
        made: list[StepResult] = []
        clock = self._clock() if self.is_timed else None
        try:
            first, plan = self._plan
            if first != numbers.start // PLAN_STEPS * PLAN_STEPS:
                first = numbers.start // PLAN_STEPS * PLAN_STEPS
                plan = plan_steps(self.sampler, self.schedule, first)
                self._plan = first, plan  # One assignment, as other threads read it.
            planned = plan[numbers.start - first : numbers.stop - first]
            together = self._read_together(planned, clock) if len(planned) > 1 else None
            if clock is not None:
                clock.end_read()
            for number, step in enumerate(planned):
                made.append(self._make(*step, None if together is None else together[number], clock))
        except Exception as exc:
            return PartialResult(made, exc)
        if made and self.counts_requests:
            before, counts = self._counts, request_counts(self.dataset)
            made[-1] = made[-1]._replace(requests=counts.since(before))
            self._counts = counts
        if clock is not None:
            clock.end_collate()
            self._unmeasured_tasks = SHORT_TASKS - 1 if clock.seconds < SHORT_TASK_SECONDS else 0
        return made

    def _clock(self) -> TaskClock | None:
        """Returns the clock of a task; None if it is not measured, after a short task that was."""
        if self._unmeasured_tasks > 0:
            self._unmeasured_tasks -= 1  # Threads may count some of them twice, or not at all.
            return None
        return TaskClock()

    def _make(
        self,
        step: Step,
        indices: Int64s,
        bins: Int64s | None,
        pieces: Pieces | None,
        batch: Any,
        clock: TaskClock | None,
    ) -> StepResult:
        """Makes the batch of a step, as `PlannedStep` has it, from its columns if they are already read."""
        positions = np.arange(step.start, step.stop)
        positions = positions if bins is None else positions[bins]
        is_own = positions < self.schedule.length
        skipped: list[SkippedDatapoint] = []
        if batch is None:
            if self.on_error == 'replace' and bins is not None:
                detail = f'expected a sampler with one datapoint a position, got {self.sampler!r:.200}'
                raise ValueError(f"on_error='replace': {detail}")
            fills = self.on_error == 'replace' or (self.mask is not None and bins is None)
            readable, chosen, batch = self._read(indices, positions, step.epoch, fills, pieces, clock)
            if not readable.all():
                if batch is None and self.mask is not None:  # Other ranks have a batch at this step.
                    reason = self.unreadable[int(indices[0])]
                    raise ValueError(f'none of datapoints {_listed(indices)} can be read: {reason}')
                # Unreadable repeats are reported by the step and the rank whose datapoints they repeat.
                missed = np.unique(indices[~readable & is_own]).tolist()
                skipped = [self.unreadable[index] for index in missed]
                if batch is None:
                    return StepResult(step.epoch, None, skipped)
                kept_rows = slice(None) if fills else readable
                indices, positions, is_own = chosen, positions[kept_rows], (is_own & readable)[kept_rows]
                bins = None if bins is None else bins[kept_rows]
                pieces = None if pieces is None else pieces.at(readable)
            if clock is not None:
                clock.end_read()
        if self.per_datapoint:
            rows = self._transformed_each(batch, step, positions, bins, indices)
            if clock is not None:
                clock.end_transform()
            batch = columns_of(rows, indices.tolist())
        if bins is not None:
            _add_columns(batch, {DATAPOINT: indices.copy(), BIN: bins.astype(np.int32)}, 'sampler')
        if pieces is not None:
            _add_columns(batch, {START: pieces.starts.copy()}, 'sampler')
        if self.mask is not None:
            _add_columns(batch, {self.mask: is_own}, repr(self.mask))
        if self.collate is not None or (self.transform is not None and not self.per_datapoint):
            batch = self._transformed(batch, step, indices, clock)
        return StepResult(step.epoch, batch, skipped, clock)

    def _columns(self, indices: Int64s, pieces: Pieces | None, clock: TaskClock | None) -> Any:
        """Returns the columns of datapoints, or of pieces of them."""
        dataset, fields = self.dataset, self.fields
        if pieces is not None:
            read = functools.partial(read_pieces, dataset, pieces, fields, self._streams)
        elif isinstance(dataset, Dataset):
            selection = select_fields(fields, dataset.schema)
            read = functools.partial(dataset.read_selection, as_indices(indices, len(dataset)), selection)
        else:
            return dataset.batch(indices, fields)
        if clock is None or not isinstance(dataset, Dataset):
            return read(read_column)
        return clock.read_columns(dataset, read)

    def _read(
        self,
        indices: Int64s,
        positions: Int64s,
        epoch: int,
        fills: bool,
        pieces: Pieces | None,
        clock: TaskClock | None,
    ) -> tuple[npt.NDArray[np.bool_], Int64s, Any]:
        """Reads the columns of the datapoints at some positions of an epoch.

        With `fills`, unreadable datapoints are replaced: with `on_error='replace'`, by the next datapoints of
        the epoch, else by the first readable datapoint of the batch.

        Returns:
            A mask of the readable datapoints, the indices of the datapoints that were read, and their
            columns; None as columns if no datapoint can be read.
        """
        while True:
            readable = np.ones(len(indices), bool)
            if self.unreadable:
                readable[:] = [index not in self.unreadable for index in indices.tolist()]
            chosen = indices[readable]
            if self.on_error == 'replace':
                chosen = indices.copy()
                for row in np.flatnonzero(~readable).tolist():
                    chosen[row] = self._replacement(epoch, int(positions[row]))
            elif not len(chosen):
                return readable, chosen, None
            elif fills:
                chosen = np.where(readable, indices, chosen[0])
            kept = pieces.at(readable) if pieces is not None and self.unreadable else pieces
            try:
                return readable, chosen, self._columns(chosen, kept, clock)
            except Exception as exc:
                unreadable = {
                    index: error for index, error in self._errors(chosen, kept) if self._skips(error)
                }
                if not unreadable:
                    raise self._located(chosen, kept, exc) from exc.__cause__
                for index, error in unreadable.items():
                    self.unreadable[index] = SkippedDatapoint(
                        index, self._unreadable_field(index), str(error)
                    )

    def _replacement(self, epoch: int, position: int) -> int:
        """Returns the next datapoint in the order of an epoch that has not proved unreadable."""
        length = self.schedule.length
        for start in range(position + 1, position + length, PLAN_STEPS):
            stop = min(start + PLAN_STEPS, position + length)
            for index in np.asarray(self.sampler.take(epoch, np.arange(start, stop) % length)).tolist():
                if index not in self.unreadable:
                    return int(index)
        raise ValueError(f'no datapoint of an epoch can be read: {next(iter(self.unreadable.values()))}')

    def _skips(self, error: Exception) -> bool:
        """Returns whether a datapoint with this error is left out; False e.g. for a network error."""
        error_types = Exception if isinstance(self.dataset, RowBatches) else (CorruptError, DecodeError)
        is_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
        return self.on_error != 'raise' and isinstance(error, error_types) and not is_memory

    def _read_together(self, planned: list[PlannedStep], clock: TaskClock | None) -> list[Batch] | None:
        """Reads several batches with one call; None if they must be read one at a time."""
        parts = [step.indices for step in planned]
        indices = np.concatenate(parts)
        pieces = joined([step.pieces for step in planned if step.pieces is not None])
        if isinstance(self.dataset, RowBatches):
            return None  # The rows of each batch determine which columns are arrays.
        if not self.unreadable.keys().isdisjoint(indices.tolist()):
            return None
        try:
            columns = self._columns(indices, pieces, clock)
        except Exception:
            return None  # Reading the batches one at a time finds the unreadable batch.
        for name, column in columns.items():
            field_type = self.schema.get(name)
            if (
                isinstance(column, list)
                and field_type is not None
                and field_type.format in NUMBER_FORMATS
                and not field_type.optional
            ):
                return None  # Bags 0.x: only in some of the batches, the numbers fit an array.
        divided = [split(column, list(map(len, parts))) for column in columns.values()]
        return [dict(zip(columns, batch, strict=True)) for batch in zip(*divided, strict=True)] or None

    def _transformed_each(
        self, batch: Any, step: Step, positions: Int64s, bins: Int64s | None, indices: Int64s
    ) -> list[Any]:
        """Calls `transform` for each datapoint of a batch; returns the results."""
        # If a position has several datapoints, they are numbered.
        within = (
            np.zeros_like(positions) if bins is None else np.arange(len(bins)) - np.searchsorted(bins, bins)
        )
        rows = []
        for row, *key, index in zip(
            rows_of(batch, len(indices)), positions.tolist(), within.tolist(), indices.tolist(), strict=True
        ):
            try:
                rows.append(self._call_transform(row, step.epoch, *key))
            except Exception as exc:
                exc.add_note(f'in transform of datapoint {index}, in {self._batch_text(step)}')
                raise
        return rows

    def _call_transform(self, value: Any, *key: int) -> Any:
        assert self.transform is not None
        if self.takes_rng:
            transformed = self.transform(value, rng=np.random.default_rng([self.seed & (2**64 - 1), *key]))
        else:
            transformed = self.transform(value)
        if transformed is None:
            what = 'datapoint' if self.per_datapoint else 'batch'
            raise TypeError(f'transform: expected it to return the {what}, got None')
        return transformed

    def _transformed(self, batch: Any, step: Step, indices: Int64s, clock: TaskClock | None) -> Any:
        stage = 'transform'
        try:
            if self.transform is not None and not self.per_datapoint:
                batch = self._call_transform(batch, step.epoch, step.start)
                if clock is not None:
                    clock.end_transform()
            stage = 'collate'
            if self.collate is not None:
                batch = self.collate(batch)
                if clock is not None:
                    clock.end_collate()
            return batch  # noqa: TRY300 - an error of `collate` is one of this `try`
        except StackError as exc:
            if len(exc.shapes) != len(indices):
                raise
            raise StackError(exc.shapes, exc.field, indices.tolist()) from None
        except Exception as exc:
            exc.add_note(f'in {stage} of {self._batch_text(step)}: datapoints {_listed(indices)}')
            raise

    def _batch_text(self, step: Step) -> str:
        """Returns the batch and the epoch of a step as text, as `Loader.indices` counts them."""
        number = step.start // (self.schedule.batch_size * self.schedule.world_size)
        return f'batch {number} of epoch {step.epoch}'

    # Errors.

    def located(self, number: int, error: WorkerDiedError) -> RuntimeError:
        """Returns the error for a batch whose worker process died."""
        step, indices, *_ = plan_steps(self.sampler, self.schedule, number, 1)[0]
        detail = f'step {number}, the batch of datapoints {_listed(indices)} (epoch {step.epoch})'
        return WorkerDiedError(detail, error.how)

    def _located(self, indices: Int64s, pieces: Pieces | None, exc: Exception) -> Exception:
        """Returns the error for the first datapoint that cannot be read, with its index and field."""
        for index, error in self._errors(indices, pieces):
            return _placed(error, index, self._unreadable_field(index))
        exc.add_note(f'reading datapoints {_listed(indices)} together, each of which can be read by itself')
        return exc

    def _errors(self, indices: Int64s, pieces: Pieces | None) -> Iterator[tuple[int, Exception]]:
        """Reads datapoints one at a time; yields the unreadable datapoints, and their errors."""
        rows = np.arange(len(indices)) if pieces is not None else np.unique(indices, return_index=True)[1]
        for row in np.sort(rows).tolist():
            one = slice(row, row + 1)
            try:
                self._columns(indices[one], None if pieces is None else pieces.at(one), None)
            except Exception as exc:
                yield int(indices[row]), exc

    def _unreadable_field(self, index: int) -> str | None:
        for name, items in select_fields(self.fields, self.schema).items() if self.schema else ():
            try:
                self.dataset.batch([index], {name: items})
            except Exception:
                return name
        return None


def _add_columns(batch: Any, columns: Batch, whose: str) -> None:
    if not isinstance(batch, dict):
        raise TypeError(f'{whose}: expected rows that are dicts, to add {", ".join(columns)} to the batch')
    for name, column in columns.items():
        if name in batch:
            raise ValueError(f'{whose}: the batch needs a column {name!r}, which is a field of the dataset')
        batch[name] = column


def request_counts(dataset: Dataset | RowBatches) -> RequestCounts:
    """Returns numbers of requests of this process for a dataset."""
    return dataset.request_counts() if isinstance(dataset, Dataset) else RequestCounts()


def _takes_rng(transform: Callable[..., Any]) -> bool:
    """Returns whether a function has a parameter `rng`."""
    try:
        return 'rng' in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return False


def _listed(indices: Int64s) -> str:
    shown = ', '.join(map(str, indices[:SHOWN_DATAPOINTS].tolist()))
    return shown if len(indices) <= SHOWN_DATAPOINTS else f'{shown}, … ({len(indices)} in all)'


def _placed(exc: Exception, index: int, field: str | None) -> Exception:
    """Adds the datapoint and the field: to the message of an error of this library, else as a note."""
    where = f'datapoint {index}' + (f', field {field!r}' if field is not None else '')
    if not isinstance(exc, BagsError):
        exc.add_note(where)
        return exc
    exc.args = (f'{where}: {exc}', *exc.args[1:])
    exc.__dict__['datapoint'] = index
    if field is not None:
        exc.__dict__['field'] = field
    return exc
