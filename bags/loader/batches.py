"""How a batch is made: its place in the order, its datapoints, their columns, and what is done to these.

A recipe is what all workers share. It has no state that matters: a step's batch is the same whoever makes
it, together with which others, and whenever.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bags.dataset.batch import Column, Ragged
from bags.dataset.selection import Fields
from bags.errors import BagsError, StackError
from bags.indexing import Int64s
from bags.loader.schedule import Step, Steps, Turns
from bags.memory import Pool
from bags.samplers import Sampler

__all__ = ['MASK', 'Made', 'Recipe', 'part_of', 'size_of']

Batch = dict[str, Any]

MASK = '_mask'
"""The column of a batch with repeats that is False for them."""
NUMBERS = ('int', 'uint', 'float', 'bool')
TOGETHER = 1 << 13  # Datapoints whose order is found together: a sampler has its costs by the call.
REMEMBERED = 4
SHOWN = 8  # Datapoints that a message lists.


@dataclasses.dataclass(slots=True)
class Made:
    """A batch, or why there is none."""

    batch: Any
    number: int
    """Of the step."""
    size: int = 0
    """Bytes, about."""
    error: BaseException | None = None

    def deliver(self, how: Callable[[Any], Any] | None) -> Any:
        """Returns the batch, after what is done to it last; or raises why there is none.

        The error stays with whoever catches it: its traceback has what it was raised from, and were it kept
        here too, that would be a cycle, with open files.
        """
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error
        return self.batch if how is None else how(self.batch)


class Recipe:
    """Makes the batches of steps, by number.

    Args:
        dataset: Where datapoints are read.
        fields: Which fields of them.
        sampler: Which datapoint is at a position.
        steps: Which positions a step has.
        seed: What random numbers of `transform` depend on, with the epoch and the position.
        transform: Takes a batch, and `rng` if it has a parameter of that name; returns one.
        collate: Takes what that returns.
        mask: A column for every batch that is False for repeats.
        memory: Where large columns are.
    """

    def __init__(
        self,
        dataset: Any,
        fields: Fields,
        sampler: Sampler,
        steps: Steps | Turns,
        seed: int,
        transform: Callable[..., Any] | None,
        collate: Callable[[Any], Any] | None,
        mask: str | None,
        memory: Pool,
    ) -> None:
        self.dataset, self.fields, self.sampler, self.steps = dataset, fields, sampler, steps
        self.seed, self.transform, self.collate, self.mask = seed, transform, collate, mask
        self.memory = memory
        self._takes_rng = transform is not None and takes_rng(transform)
        self._types = getattr(dataset, '_types', {})
        self._ahead = max(1, TOGETHER // steps.batch_size)
        self._planned: dict[int, tuple[Int64s, list[int]]] = {}

    def make(self, number: int, count: int) -> Iterator[Made]:
        """Makes the batches of consecutive steps, read together; the last one is that which fails."""
        while count > 0:
            block, within = divmod(number, self._ahead)
            here = min(count, self._ahead - within)
            try:
                indices, cuts = self._plan(block)
            except Exception as exc:
                exc.add_note('in sampler')
                yield Made(None, number, error=exc)
                return
            cuts = cuts[within : within + here + 1]
            for made in self._make_from(number, indices[cuts[0] : cuts[-1]], cuts):
                yield made
                if made.error is not None:
                    return
            number, count = number + here, count - here

    def _plan(self, block: int) -> tuple[Int64s, list[int]]:
        """Returns the datapoints of a block of steps, and where those of each begin."""
        known = self._planned.get(block)
        if known is not None:
            return known
        number, count = block * self._ahead, self._ahead
        if self.steps.total is not None:
            count = min(count, self.steps.total - number)
        parts, sizes = [], []
        for epoch, positions, lengths in self.steps.positions(number, count):
            parts.append(self.sampler.take(epoch, positions))
            sizes += lengths
        plan = np.concatenate(parts), [0, *itertools.accumulate(sizes)]
        if len(plan[0]) != plan[1][-1]:
            raise ValueError(
                f'{self.sampler!r:.200}: expected a datapoint for each of {plan[1][-1]} positions, '
                f'got {len(plan[0])}'
            )
        # What is remembered costs time only, where threads are in each other's way.
        while len(self._planned) >= REMEMBERED:
            self._planned.pop(next(iter(self._planned)), None)
        self._planned[block] = plan
        return plan

    def _make_from(self, number: int, indices: Int64s, cuts: list[int]) -> Iterator[Made]:
        columns = self._read_together(indices) if len(cuts) > 2 else None
        each = 0 if columns is None else sum(map(size_of, columns.values())) // (len(cuts) - 1)
        steps, finished = self.steps, self.transform is None and self.collate is None and self.mask is None
        begin = cuts[0]
        for start, stop in itertools.pairwise(cuts):
            start, stop = start - begin, stop - begin
            try:
                if columns is None:
                    batch = self._read(indices[start:stop])
                    each = sum(map(size_of, batch.values()))
                else:
                    batch = {name: part_of(column, start, stop) for name, column in columns.items()}
                if not finished or steps.wraps(number):
                    batch = self._finish(batch, steps[number], indices[start:stop])
                yield Made(batch, number, each)
            except Exception as exc:
                yield Made(None, number, error=exc)
                return
            number += 1

    def _read_together(self, indices: Int64s) -> dict[str, Column] | None:
        """Reads several batches as one; None if they had better be read one by one."""
        try:
            with self.memory.lent():
                columns: dict[str, Column] = self.dataset.batch(indices, self.fields)
        except Exception:
            return None  # The one that cannot be read is met again.
        for name, column in columns.items():
            kind = self._types.get(name)
            if isinstance(column, list) and kind is not None and kind.word in NUMBERS and not kind.optional:
                return None  # Of old datasets: numbers of one batch may fit an array, and another's not.
        return columns

    def _read(self, indices: Int64s) -> Batch:
        try:
            with self.memory.lent():
                batch: Batch = self.dataset.batch(indices, self.fields)
        except Exception as exc:
            raise self._located(indices, exc) from exc.__cause__
        return batch

    def _located(self, indices: Int64s, exc: Exception) -> Exception:
        """Returns the error of the first datapoint that cannot be read, saying which it is, and the field."""
        for index in indices.tolist():
            try:
                self.dataset.batch([index], self.fields)
            except Exception as found:
                return _placed(found, index, self._field_at(index))
        return _noted(exc, f'while datapoints {_some(indices)} were read, each of which can be by itself')

    def _field_at(self, index: int) -> str | None:
        """Returns the first field of a datapoint that cannot be read."""
        for name, items in self._selection().items():
            try:
                self.dataset.batch([index], {name: items})
            except Exception:
                return name
        return None

    def _selection(self) -> dict[str, Any]:
        from bags.dataset.selection import select_fields

        return select_fields(self.fields, self._types)

    def _finish(self, batch: Any, step: Step, indices: Int64s) -> Any:
        wrapped = step.stop > self.steps.length
        if self.mask is not None or wrapped:
            batch[self.mask or MASK] = np.arange(step.start, step.stop) < self.steps.length
        what = 'transform'
        try:
            if self.transform is not None:
                if self._takes_rng:
                    rng = np.random.default_rng([self.seed & (2**64 - 1), step.epoch, step.start])
                    batch = self.transform(batch, rng=rng)
                else:
                    batch = self.transform(batch)
                if batch is None:
                    raise TypeError('transform: expected it to return the batch, got None')
            what = 'collate'
            return batch if self.collate is None else self.collate(batch)
        except StackError as exc:
            if len(exc.shapes) != len(indices):
                raise
            raise StackError(exc.shapes, exc.field, indices.tolist()) from None
        except Exception as exc:
            exc.add_note(f'in {what} of the batch of datapoints {_some(indices)} (epoch {step.epoch})')
            raise


def takes_rng(transform: Callable[..., Any]) -> bool:
    """Tells whether a function has a parameter `rng`."""
    try:
        return 'rng' in inspect.signature(transform).parameters
    except (TypeError, ValueError):
        return False


def _some(indices: Int64s) -> str:
    shown = ', '.join(map(str, indices[:SHOWN].tolist()))
    return shown if len(indices) <= SHOWN else f'{shown}, … ({len(indices)} in all)'


def _noted(exc: Exception, note: str) -> Exception:
    exc.add_note(note)
    return exc


def _placed(exc: Exception, index: int, field: str | None) -> Exception:
    """Has an error say where it is from: in its message, or, if it is none of ours, in a note."""
    where = f'datapoint {index}' + (f', field {field!r}' if field is not None else '')
    if not isinstance(exc, BagsError):
        return _noted(exc, where)
    exc.args = (f'{where}: {exc}', *exc.args[1:])
    exc.__dict__['datapoint'] = index
    if field is not None:
        exc.__dict__['field'] = field
    return exc


def part_of(column: Column, start: int, stop: int) -> Column:
    """Returns consecutive rows of a column: of arrays, a view."""
    if isinstance(column, Ragged):
        offsets = column.offsets[start : stop + 1]
        present = None if column.present is None else column.present[start:stop]
        return Ragged(column.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0], present)
    return column[start:stop]


def size_of(column: Any) -> int:
    """Returns about how many bytes a column takes."""
    if isinstance(column, np.ndarray):
        return column.nbytes
    if isinstance(column, Ragged):
        return column.values.nbytes + column.offsets.nbytes
    if isinstance(column, list) and column:
        first = column[0]
        return len(column) * (first.nbytes if isinstance(first, np.ndarray) else 1000)
    return 0
