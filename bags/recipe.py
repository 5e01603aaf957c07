"""How a batch is made: its place in the order, its datapoints, their columns, and what is done to these.

A recipe is what all workers share. It has no state that matters: a step's batch is the same whoever makes
it, together with which others, and whenever.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.batch import Column, Ragged
from bags.errors import BagsError, StackError
from bags.samplers import Sampler
from bags.selection import Fields
from bags.steps import Place, Step, Steps, Turns

__all__ = ['MASK', 'Made', 'Recipe', 'part_of', 'size_of']

Int64s = npt.NDArray[np.int64]
Batch = dict[str, Any]

MASK = '_mask'
"""The column of a batch with repeats that is False for them."""
NUMBERS = ('int', 'uint', 'float', 'bool')
SHOWN = 8  # Datapoints that a message lists.


@dataclasses.dataclass
class Made:
    """A batch, or why there is none."""

    batch: Any
    after: Place
    size: int = 0
    """Bytes, about."""
    error: BaseException | None = None


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
    ) -> None:
        self.dataset, self.fields, self.sampler, self.steps = dataset, fields, sampler, steps
        self.seed, self.transform, self.collate, self.mask = seed, transform, collate, mask
        self._takes_rng = transform is not None and takes_rng(transform)
        self._types = getattr(dataset, 'types', {})

    def make(self, number: int, count: int) -> Iterator[Made]:
        """Makes the batches of consecutive steps, read together; the last one is that which fails."""
        steps = [self.steps[number + place] for place in range(count)]
        try:
            chosen = self._indices(steps)
        except Exception as exc:
            yield Made(None, steps[0].after, error=exc)
            return
        columns = self._read_together(chosen) if count > 1 else None
        start = 0
        for step, indices in zip(steps, chosen, strict=True):
            stop = start + len(indices)
            try:
                if columns is None:
                    batch = self._read(indices)
                else:
                    batch = {name: part_of(column, start, stop) for name, column in columns.items()}
                size = sum(map(size_of, batch.values()))
                yield Made(self._finish(batch, step, indices), step.after, size)
            except Exception as exc:
                yield Made(None, step.after, error=exc)
                return
            start = stop

    def _indices(self, steps: Sequence[Step]) -> list[Int64s]:
        """Returns the datapoints of steps."""
        found: list[Int64s] = []
        place = 0
        while place < len(steps):
            epoch, first = steps[place].epoch, place
            while place < len(steps) and steps[place].epoch == epoch:
                place += 1
            parts = [np.arange(step.start, step.stop) for step in steps[first:place]]
            positions = np.concatenate(parts) if len(parts) > 1 else parts[0]
            if int(positions[-1]) >= self.steps.length:
                positions %= self.steps.length
            indices = self.sampler.take(epoch, positions)
            cuts = np.cumsum([len(part) for part in parts[:-1]])
            found += np.split(indices, cuts) if len(parts) > 1 else [indices]
        return found

    def _read_together(self, chosen: Sequence[Int64s]) -> dict[str, Column] | None:
        """Reads several batches as one; None if they had better be read one by one."""
        try:
            columns: dict[str, Column] = self.dataset.batch(np.concatenate(chosen), self.fields)
        except Exception:
            return None  # The one that cannot be read is met again.
        for name, column in columns.items():
            kind = self._types.get(name)
            if isinstance(column, list) and kind is not None and kind.word in NUMBERS and not kind.optional:
                return None  # Of old datasets: numbers of one batch may fit an array, and another's not.
        return columns

    def _read(self, indices: Int64s) -> Batch:
        try:
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
        from bags.selection import select_fields

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
