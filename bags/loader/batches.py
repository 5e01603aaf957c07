"""Makes the batch of a step: finds its datapoints, reads their columns, then transforms and collates them."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from bags.dataset.selection import Fields, select_fields
from bags.errors import BagsError, StackError
from bags.indexing import Int64s
from bags.loader.schedule import Schedule, Step
from bags.samplers import Sampler

__all__ = ['MASK', 'BatchMaker']

MASK = '_mask'
"""Column that marks repeats with False, in batches that have any."""
PLAN_STEPS = 64  # Sampled with one call, which takes 50 us however few positions it samples.
MAX_PLANS = 4
SHOWN_DATAPOINTS = 8  # Listed in an error's note.

Plan = list[tuple[Step, Int64s]]
"""Steps, each with its datapoints."""


class BatchMaker:
    """Makes batches by the number of their step: the same ones in any order, thread or process.

    Args:
        dataset: Where datapoints are read.
        fields: Which fields of them.
        sampler: Which datapoint is at a position.
        schedule: Which positions a step has.
        seed: Of the random numbers of `transform`, with the epoch and the position.
        transform: Takes a batch, and `rng` if it has a parameter of that name; returns a batch.
        collate: Takes what `transform` returns.
        mask_column: A column of every batch that is False for repeats.
    """

    def __init__(
        self,
        dataset: Any,
        fields: Fields,
        sampler: Sampler,
        schedule: Schedule,
        seed: int,
        transform: Callable[..., Any] | None,
        collate: Callable[[Any], Any] | None,
        mask_column: str | None,
    ) -> None:
        self.dataset, self.fields, self.sampler, self.schedule = dataset, fields, sampler, schedule
        self.seed, self.transform, self.collate, self.mask_column = seed, transform, collate, mask_column
        self._takes_rng = transform is not None and _takes_rng(transform)
        self._plans: dict[int, Plan] = {}

    def make(self, number: int) -> Any:
        """Returns the batch of a step.

        Raises:
            Exception: What the sampler, the dataset, `transform` or `collate` raises, with a note or message
                that says which, and of which datapoints.
        """
        block, within = divmod(number, PLAN_STEPS)
        step, indices = (self._plans.get(block) or self._plan(block))[within]
        try:
            batch = self.dataset.batch(indices, self.fields)
        except Exception as exc:
            raise self._located(indices, exc) from exc.__cause__
        length = self.schedule.length
        if self.mask_column is not None or step.stop > length:
            batch[self.mask_column or MASK] = np.arange(step.start, step.stop) < length
        if self.transform is None and self.collate is None:
            return batch
        return self._transformed(batch, step, indices)

    def _plan(self, block: int) -> Plan:
        """Samples the datapoints of consecutive steps, and remembers them."""
        stop, total = (block + 1) * PLAN_STEPS, self.schedule.total
        stop = stop if total is None else min(stop, total)
        steps = [self.schedule[number] for number in range(block * PLAN_STEPS, stop)]
        plan: Plan = []
        for epoch, group in itertools.groupby(steps, operator.attrgetter('epoch')):
            plan += self._sampled(epoch, list(group))
        while len(self._plans) >= MAX_PLANS:  # Several threads may be here: each forgets one plan at least.
            self._plans.pop(next(iter(self._plans), -1), None)
        self._plans[block] = plan
        return plan

    def _sampled(self, epoch: int, steps: list[Step]) -> Plan:
        positions = np.concatenate([np.arange(step.start, step.stop) for step in steps])
        try:
            indices = self.sampler.take(epoch, positions % self.schedule.length)
            if len(indices) != len(positions):
                raise ValueError(
                    f'{self.sampler!r:.200}: expected a datapoint for each of {len(positions)} positions, '
                    f'got {len(indices)}'
                )
        except Exception as exc:
            exc.add_note('in sampler')
            raise
        ends = np.cumsum([step.stop - step.start for step in steps])
        return list(zip(steps, np.split(indices, ends[:-1]), strict=True))

    def _transformed(self, batch: Any, step: Step, indices: Int64s) -> Any:
        stage = 'transform'
        try:
            if self.transform is not None:
                if self._takes_rng:
                    rng = np.random.default_rng([self.seed & (2**64 - 1), step.epoch, step.start])
                    batch = self.transform(batch, rng=rng)
                else:
                    batch = self.transform(batch)
                if batch is None:
                    raise TypeError('transform: expected it to return the batch, got None')
            stage = 'collate'
            return batch if self.collate is None else self.collate(batch)
        except StackError as exc:
            if len(exc.shapes) != len(indices):
                raise
            raise StackError(exc.shapes, exc.field, indices.tolist()) from None
        except StopIteration as exc:  # Raised as it is, it would end the loop over the loader without a word.
            raise RuntimeError(f'{stage} raised StopIteration') from exc
        except Exception as exc:
            exc.add_note(f'in {stage} of the batch of datapoints {_listed(indices)} (epoch {step.epoch})')
            raise

    # Errors.

    def _located(self, indices: Int64s, exc: Exception) -> Exception:
        """Returns the error of the first datapoint that cannot be read, which names it and the field."""
        for index in indices.tolist():
            try:
                self.dataset.batch([index], self.fields)
            except Exception as found:
                return _placed(found, index, self._unreadable_field(index))
        exc.add_note(f'reading datapoints {_listed(indices)} together, each of which can be read by itself')
        return exc

    def _unreadable_field(self, index: int) -> str | None:
        for name, items in select_fields(self.fields, getattr(self.dataset, 'types', {})).items():
            try:
                self.dataset.batch([index], {name: items})
            except Exception:
                return name
        return None


def _takes_rng(transform: Callable[..., Any]) -> bool:
    try:
        return 'rng' in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return False


def _listed(indices: Int64s) -> str:
    shown = ', '.join(map(str, indices[:SHOWN_DATAPOINTS].tolist()))
    return shown if len(indices) <= SHOWN_DATAPOINTS else f'{shown}, … ({len(indices)} in all)'


def _placed(exc: Exception, index: int, field: str | None) -> Exception:
    """Adds the datapoint and the field: to the message of our own errors, as a note to all others."""
    where = f'datapoint {index}' + (f', field {field!r}' if field is not None else '')
    if not isinstance(exc, BagsError):
        exc.add_note(where)
        return exc
    exc.args = (f'{where}: {exc}', *exc.args[1:])
    exc.__dict__['datapoint'] = index
    if field is not None:
        exc.__dict__['field'] = field
    return exc
