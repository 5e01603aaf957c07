"""The loader: batches of any dataset, shuffled, divided over ranks, and made ahead."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bags.collate.columns import CollateField, collate_function
from bags.dataset.base import Dataset, expect_committed
from bags.dataset.format.spec import Schema, type_texts
from bags.dataset.reading.selection import Fields, select_fields
from bags.indexing import Int64s, as_indices
from bags.loader.batches import MASK_COLUMN, BatchMaker, OnError, SkippedDatapoint, request_counts
from bags.loader.iterator import ITERATORS, LoaderIterator
from bags.loader.plan import LoaderPlan
from bags.loader.rows import MapStyle, RowBatches
from bags.loader.steps import Cursor, LastBatch, Schedule, State, plan_steps
from bags.loader.timing import LoaderTiming, Timer
from bags.loader.weights_file import weights_of, write_weights
from bags.samplers import Sampler
from bags.samplers.orders import check_sampler, sampler_for
from bags.validation import at_least, at_least_or_none, integer, item_count, one_of, with_advice, worker_count
from bags.workers.processes import check_sendable

REMOTE_WORKERS = 16  # Default number of threads for a remote dataset: threads mostly wait.


class Loader:
    """Batches of a dataset for training, on one or several ranks.

    Batches are dicts of columns, as `dataset.batch` returns them. Each iteration is the next epoch, even if
    the previous epoch was not finished; `set_epoch` and `load_state_dict` change this. The order depends
    only on `seed` and the epoch, not on the workers. Batches do not mix epochs.

    Args:
        dataset: A reader, a view, or any object with `__len__` and `__getitem__`, such as a map-style dataset
            of PyTorch; its `__getitems__`, if it has one, is called with a list of indices.
        batch_size: Datapoints in a batch on this rank.
        fields: Fields, and items of sequences or rows of arrays, as in `dataset.batch`. Default: all fields.
        shuffle: True: a new random order in each epoch; False: the order of the dataset; 'shards': a random
            order, a few shards at a time, for datasets on an object store.
        seed: Seed of the order, and of the random numbers of `transform`.
        epochs: Number of epochs in an iteration; None for endless.
        rank: Index of this process in a distributed run, e.g. `jax.process_index()`.
        world_size: Number of processes of the run, e.g. `jax.process_count()`.
        last_batch: How to handle the last step of an epoch, if it has too few datapoints for full batches on
            all ranks. 'partial' (default on one rank): the ranks share it; their batches are smaller, and
            some ranks may have none (only in the last of `epochs`). 'pad' (default on several ranks): full
            batches that wrap around to the beginning of the epoch; every batch has a column `_mask`, False
            for repeats. 'drop': no last step.
        sampler: The order, instead of `shuffle`; see `bags.samplers`.
        workers: Threads or processes that make batches ahead; 0 makes each batch on demand. Default:
            the number of processors; for a remote dataset, whose threads wait for the network, 16.
        processes: Workers are processes, for a `transform` that holds the GIL. All options must then be
            picklable, and a script needs `if __name__ == '__main__':`.
        prefetch: Maximum number of batches to make ahead. Default: two for each worker, and more if a batch
            takes less than a millisecond.
        transform: Function from a batch to a batch, called by the workers. If it has a parameter `rng`, it
            gets a NumPy `Generator` that depends only on the seed, the epoch and the position.
        per: 'datapoint': `transform` takes and returns a single datapoint, with an `rng` that does not depend
            on the batch size. The results are collated to a batch: arrays of one shape are stacked.
        on_error: How to handle datapoints that are damaged or cannot be decoded; for a map-style dataset,
            datapoints that raise any error. 'raise': the error is raised in place of the batch, and the
            iterator resumes after it. 'skip': the batch is made without them, and `skipped` lists them. In a
            batch with a mask, another datapoint is repeated instead, so that the batch size is constant. A
            batch without readable datapoints is left out; with a mask, it raises. 'replace': each is replaced
            by the next readable datapoint of the epoch, which also stays in its own batch; False in a mask.
        skip: Datapoints to leave out in the same way; all other datapoints keep their batches.
        collate: Called with the result of `transform`: `bags.pad`, `bags.stack`, `bags.pack`, `bags.bins(…)`,
            a mapping of fields to the first three or their names, or any function.
        to_device: Called last, in the thread that iterates, e.g. `bags.jax.device_put`.
        mask_column: Name of a column of every batch that is False for repeats.
        partial: Whether the dataset may have partial datapoints, as of `reopen(partial=True)`.
        timing: Measure where the time goes, for the attribute `timing`. Takes about 1 us a step.

    Raises:
        ValueError: An option is out of range, or the dataset is empty, or smaller than a batch with
            `last_batch='drop'`. Or it has partial datapoints, without `partial`.
        KeyError: A field does not exist.
        TypeError: The dataset or an option has the wrong type or, for processes, cannot be pickled.

    Examples:
        >>> loader = bags.Loader(dataset, 4, fields=('id', 'label'), seed=0)
        >>> [batch['id'].tolist() for batch in loader]
        [[2, 4, 6, 7], [5, 3, 1, 0]]
        >>> state = loader.state_dict()  # For the checkpoint: load_state_dict resumes from it.
    """

    @with_advice
    def __init__(
        self,
        dataset: Dataset | MapStyle,
        batch_size: int,
        *,
        fields: Fields = None,
        shuffle: bool | Literal['shards'] = True,
        seed: int = 0,
        epochs: int | None = 1,
        rank: int = 0,
        world_size: int = 1,
        last_batch: LastBatch | None = None,
        sampler: Sampler | None = None,
        workers: int | None = None,
        processes: bool = False,
        prefetch: int | None = None,
        transform: Callable[..., Any] | None = None,
        per: Literal['batch', 'datapoint'] = 'batch',
        on_error: OnError = 'raise',
        skip: Sequence[int] | npt.NDArray[np.integer[Any]] = (),
        collate: Callable[[Any], Any] | Mapping[str, CollateField] | None = None,
        to_device: Callable[[Any], Any] | None = None,
        mask_column: str | None = None,
        partial: bool = False,
        timing: bool = False,
    ) -> None:
        for name, function in (('transform', transform), ('to_device', to_device)):
            if function is not None and not callable(function):
                raise TypeError(f'{name}: expected a function, got {function!r:.200}')
        if mask_column is not None and not isinstance(mask_column, str):
            raise TypeError(f'mask_column: expected the name of a column, got {mask_column!r:.200}')
        if not isinstance(processes, bool | np.bool_):
            raise TypeError(
                f'processes: expected True or False, got {processes!r:.200}; workers= is their number'
            )
        rows = dataset if isinstance(dataset, Dataset) else RowBatches(dataset)
        if isinstance(dataset, Dataset) and not partial:
            expect_committed('dataset', dataset)
        is_iterable = hasattr(fields, '__iter__') and not isinstance(fields, str | Mapping)
        chosen: Fields = tuple(fields) if is_iterable else fields  # type: ignore[arg-type]
        seed = integer('seed', seed)
        batch_size = item_count('batch_size', batch_size, 1)
        epochs = at_least_or_none('epochs', epochs, 1)
        prefetch = at_least_or_none('prefetch', prefetch, 1)
        if workers is None:
            waits = getattr(dataset, 'reads_wait', False) and not processes
            workers = REMOTE_WORKERS if waits else worker_count(None)
        workers, processes = at_least('workers', workers, 0), bool(processes)
        if last_batch is not None:
            one_of('last_batch', last_batch, get_args(LastBatch))
        self._last_batch, self._mask_column = last_batch, mask_column
        if sampler is None:
            sampler = sampler_for(dataset, shuffle, seed)
        check_sampler(sampler, dataset)
        one_of('per', per, ('batch', 'datapoint'))
        one_of('on_error', on_error, get_args(OnError))
        if per == 'datapoint' and transform is None:
            raise ValueError("per='datapoint': expected a transform")
        left_out = as_indices(skip, len(dataset), 'skip')
        if not len(rows):
            raise ValueError('dataset: expected datapoints to load, got none')
        schedule = self._schedule(len(sampler), batch_size, epochs, rank, world_size)
        maker = BatchMaker(
            rows, chosen, sampler, schedule, seed, transform, collate_function(collate), per == 'datapoint',
            on_error,
        )  # fmt: skip
        maker.mask = self._mask(maker)
        self._plan = LoaderPlan(
            maker,
            {index: SkippedDatapoint(index, None, 'in skip') for index in left_out.tolist()},
            workers,
            processes,
            prefetch,
            to_device,
            bool(timing),
        )
        if processes and workers:
            check_sendable(dataset=rows, sampler=sampler, transform=transform, collate=collate)

    def _schedule(
        self, length: int, batch_size: int, epochs: int | None, rank: int, world_size: int
    ) -> Schedule:
        """Returns the steps of a rank, after checking that there are batches."""
        world_size, rank = item_count('world_size', world_size, 1), item_count('rank', rank, 0)
        last_batch: LastBatch = self._last_batch or ('pad' if world_size > 1 else 'partial')
        schedule = Schedule(length, batch_size, rank, world_size, last_batch, epochs)
        schedule.check()
        return schedule

    def _mask(self, maker: BatchMaker) -> str | None:
        """Returns the column of the mask; None for batches without one."""
        mask = self._mask_column or (MASK_COLUMN if maker.schedule.last_batch == 'pad' else None)
        if mask in _schema_of(maker):
            raise ValueError(f'mask_column: expected a name that is not a field, got {mask!r}')
        return mask

    def __len__(self) -> int:
        """Returns the number of batches in a whole iteration on this rank.

        Raises:
            TypeError: The loader is endless.
        """
        total = self._plan.schedule.total
        if total is None:
            raise TypeError('a loader with epochs=None is endless, so it has no length')
        return total

    def __repr__(self) -> str:
        return repr(self._plan)

    def on_rank(self, rank: int, world_size: int) -> Loader:
        """Returns this loader for another rank."""
        other, maker = copy.copy(self), copy.copy(self._plan.maker)
        was = maker.schedule
        maker.schedule = self._schedule(was.length, was.batch_size, was.epochs, rank, world_size)
        maker.mask = self._mask(maker)
        other._plan = self._plan.on_rank(maker)
        return other

    # Options.

    @property
    def dataset(self) -> Dataset | MapStyle:
        """The dataset."""
        dataset = self._plan.maker.dataset
        return dataset.rows if isinstance(dataset, RowBatches) else dataset

    @property
    def sampler(self) -> Sampler:
        """The order of the datapoints, even if `shuffle` determines it."""
        return self._plan.maker.sampler

    @property
    def batch_size(self) -> int:
        """Datapoints in a batch on this rank."""
        return self._plan.schedule.batch_size

    @property
    def seed(self) -> int:
        """Seed of the order."""
        return self._plan.maker.seed

    @property
    def epochs(self) -> int | None:
        """Number of epochs in an iteration; None for endless."""
        return self._plan.schedule.epochs

    @property
    def rank(self) -> int:
        """Index of this process."""
        return self._plan.schedule.rank

    @property
    def world_size(self) -> int:
        """Number of processes of the run."""
        return self._plan.schedule.world_size

    @property
    def last_batch(self) -> LastBatch:
        """How the last step of an epoch is handled: 'pad', 'drop' or 'partial'."""
        return self._plan.schedule.last_batch

    @property
    def workers(self) -> int:
        """Number of threads or processes that make batches ahead."""
        return self._plan.workers

    # Iteration.

    def __iter__(self) -> LoaderIterator:
        return ITERATORS[self._plan.timing](self._plan, self._plan.begin()).start()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin with this epoch; later iterations follow it."""
        epoch = item_count('epoch', epoch, 0)
        self._plan.next_cursor, self._plan.progress = Cursor(epoch, 0, epoch), None

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field that is read; empty for a dataset without a `spec`."""
        return type_texts(_schema_of(self._plan.maker))

    @property
    def skipped(self) -> list[SkippedDatapoint]:
        """The unreadable datapoints of the batches delivered so far on this rank: datapoint, field, reason.

        Sorted by index, without duplicates. Excludes datapoints skipped in workers of PyTorch or Grain.
        """
        unreadable = self._plan.unreadable
        return [unreadable[index] for index in sorted(unreadable.keys() - self._plan.left_out.keys())]

    @property
    def retries(self) -> int:
        """Number of requests to an object store that were retried since the loader was made.

        Requests of its worker processes are included with their batches, and requests of other datasets
        on the same store in this process. The logger `bags.storage` logs these requests.
        """
        return self._plan.process_retries + request_counts(self._plan.maker.dataset).retries

    def indices(self, epoch: int, step: int) -> Int64s:
        """Returns the datapoints of a step of an epoch on this rank, int64, in the order of the batch.

        For other ranks, use `loader.on_rank(rank, world_size).indices(epoch, step)`. Repeats in the last step
        and skipped datapoints are included.

        Args:
            epoch: From 0.
            step: From 0, counted from the beginning of the epoch.

        Raises:
            IndexError: The epoch has fewer steps.
        """
        begin = Cursor(item_count('epoch', epoch, 0), 0, epoch)
        schedule = self._plan.schedule._replace(begin=begin)
        if item_count('step', step, 0) >= schedule.epoch_steps():
            raise IndexError(f'step {step} out of range: an epoch has {schedule.epoch_steps()} on this rank')
        return plan_steps(self.sampler, schedule, step, 1)[0].indices

    # State.

    @property
    def timing(self) -> LoaderTiming:
        """Where the time went since this was last read, or since the newest iteration started.

        Excludes iterations in workers of PyTorch or Grain.

        Raises:
            AttributeError: The loader was made without `timing=True`.
        """
        plan = self._plan
        if not plan.timing:
            raise AttributeError('timing: this loader does not measure it: pass timing=True to bags.Loader')
        counts = request_counts(plan.maker.dataset)
        timer = Timer(plan.workers, plan.processes, 0, counts) if plan.timer is None else plan.timer
        return timer.report(counts)

    def state_dict(self) -> State:
        """Returns the state after the last batch that the newest iterator delivered: integers and strings.

        Batches made ahead do not count. Any number of ranks can resume from this one state, with any batch
        size and workers. After the last batch, the state is the beginning of the next iteration.
        """
        return self._plan.state_at(self._plan.cursor)

    def load_state_dict(
        self,
        state: State,
        *,
        check_dataset: bool = True,
        weights: str | os.PathLike[str] | Mapping[int, Any] | None = None,
    ) -> None:
        """Makes the next iteration resume from a state; later iterations are the next epochs.

        Args:
            state: The state.
            check_dataset: Raise if the state was saved with another dataset. False resumes anyway.
            weights: The weights that the run of the state has changed: the path of `save_weights`, or
                `weights` of its loader. Later changes are left out. Not needed if this loader has them.

        Raises:
            ValueError: The state belongs to another dataset, seed, sampler or weights, or is not a state.
            CorruptError: The file of weights is damaged.
        """
        cursor = self._plan.load_state(state, check_dataset, weights)
        is_end = self.epochs is not None and cursor[:2] == (cursor.first + self.epochs, 0)
        self._plan.next_cursor = cursor._replace(first=cursor.epoch) if is_end else cursor
        self._plan.progress = None

    def set_weights(self, weights: Any, *, position: int | None = None) -> int:
        """Changes the weights of the sampler, `Weighted` or `Mixture`, from a position of the run on.

        Earlier positions stay the same. Batches that were made ahead with other weights are made again. Call
        it with the same weights on each rank, after the same step. `state_dict` then has the position and a
        digest of the weights; the weights are in `weights` and `save_weights`.

        Args:
            weights: As for the sampler: a weight of each datapoint, or of each source of a mixture. In the
                schedule of a mixture, they hold until its next entry.
            position: The first position, counted over all epochs and ranks. Default: the first one that no
                rank has been given.

        Returns:
            The first position.

        Raises:
            TypeError: The sampler has no weights, or these are not numbers.
            ValueError: The batch of the position has been delivered; or the weights are not finite numbers of
                at least 0, are all 0, or are too few or too many.

        Examples:
            >>> sampler = bags.samplers.Weighted(np.ones(8), seed=0, samples=16)
            >>> loader = bags.Loader(dataset, 8, fields='id', sampler=sampler)
            >>> batches = iter(loader)
            >>> _ = next(batches)
            >>> loader.set_weights([0, 0, 0, 0, 0, 1, 1, 1])
            8
            >>> next(batches)['id']
            array([6, 7, 5, 7, 5, 7, 6, 5])
        """
        return self._plan.set_weights(weights, position)

    @property
    def weights(self) -> dict[int, npt.NDArray[np.float64]]:
        """The weights that the run has changed, by the position from which they hold."""
        return weights_of(self.sampler)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes `weights` to a file, beside a checkpoint, for `load_state_dict(state, weights=path)`.

        Args:
            path: The path or URL of the file, which is replaced at once.
        """
        write_weights(path, self.weights)


def _schema_of(maker: BatchMaker) -> Schema:
    """Returns the type of each field that is read; empty for a map-style dataset."""
    schema = maker.schema
    return {name: schema[name] for name in select_fields(maker.fields, schema)} if schema else {}


def plan_of(loader: Loader) -> LoaderPlan:
    """Returns the plan of a loader, for adapters that iterate over it.

    Raises:
        TypeError: The object is not a loader.
    """
    if not isinstance(loader, Loader):
        raise TypeError(f'expected a bags.Loader, got {type(loader).__name__}')
    return loader._plan
