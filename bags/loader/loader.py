"""The loader: batches of any dataset, shuffled, divided over ranks, and made ahead."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bags.collate.columns import CollateField, collate_function
from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.spec import type_texts
from bags.dataset.reading.fingerprint import fingerprint
from bags.dataset.reading.selection import Fields, select_fields
from bags.indexing import Int64s, as_indices
from bags.loader.batches import MASK_COLUMN, BatchMaker, OnError, Skipped, retries_of
from bags.loader.iterator import LoaderIterator
from bags.loader.rows import MapStyle, RowBatches
from bags.loader.schedule import Cursor, LastBatch, Progress, Schedule, State, cursor_from, plan_steps
from bags.samplers import Sampler
from bags.samplers.orders import check_sampler, sampler_for
from bags.validation import at_least, at_least_or_none, integer, item_count, one_of, with_advice, worker_count
from bags.workers.processes import check_sendable

REMOTE_WORKERS = 16  # Default number of threads for a remote dataset, which mostly wait.


class Loader:
    """Batches of a dataset for training, on one or several ranks.

    Batches are dicts of columns, as `dataset.batch` returns them. Each iteration is the next epoch, even if
    the previous one was not finished, unless `set_epoch` or `load_state_dict` is called. The order depends
    only on `seed` and the epoch, not on the workers. Batches do not mix epochs.

    Args:
        dataset: A reader, a view, or any object with `__len__` and `__getitem__` such as a map-style dataset
            of PyTorch; its `__getitems__`, if it has one, is called with a list of indices.
        batch_size: Datapoints in a batch on this rank.
        fields: Fields and items of sequences to read, as in `dataset.batch`; by default all.
        shuffle: True: another random order in each epoch; False: the order of the dataset; 'shards': a random
            order, a few shards at a time, for datasets on an object store.
        seed: Seed of the order, and of the random numbers of `transform`.
        epochs: Number of epochs in an iteration; None for endless.
        rank: Index of this process in a distributed run, e.g. `jax.process_index()`.
        world_size: Number of processes of the run, e.g. `jax.process_count()`.
        last_batch: How to handle the last step of an epoch, if it has too few datapoints for full batches on
            all ranks. 'partial' (default on one rank): the ranks share it; their batches are smaller, and
            some ranks may have none (only in the last of `epochs`). 'pad' (default on several): full batches
            that wrap around to the beginning of the epoch; every batch has a column `_mask`, False for
            repeats. 'drop': no last step.
        sampler: The order, instead of `shuffle`; see `bags.samplers`.
        workers: Threads or processes that make batches ahead; 0 makes each batch on demand. The number of
            processors unless given; for a remote dataset, whose threads wait for the network, 16.
        processes: Workers are processes, for a `transform` that holds the GIL. All options must then be
            picklable, and a script needs `if __name__ == '__main__':`.
        prefetch: Maximum number of batches to make ahead. By default two for each worker, and more if a batch
            takes less than a millisecond.
        transform: Function from a batch to a batch, called by the workers. If it has a parameter `rng`, it
            gets a NumPy `Generator` that depends only on the seed, the epoch and the position.
        per: 'datapoint': `transform` takes and returns a single datapoint, with an `rng` that does not depend
            on the batch size. The results are collated to a batch: arrays of one shape are stacked.
        on_error: How to handle datapoints that are damaged or cannot be decoded; for a map-style dataset,
            those that raise any error. 'raise': the error is raised in place of the batch, and the iterator
            resumes after it. 'skip': the batch is made without them, and `skipped` lists them. In a batch
            with a mask, another datapoint is repeated instead, so that the size stays. A batch without a
            readable datapoint is left out, or with a mask raises. 'replace': each is replaced by the next
            readable datapoint of the epoch, which also stays in its own batch; False in a mask.
        skip: Datapoints to leave out in the same way; all others keep their batches.
        collate: Called with the result of `transform`: `bags.pad`, `bags.stack`, `bags.pack`, a mapping of
            fields to these or their names, or any function.
        to_device: Called last, in the thread that iterates, e.g. `bags.jax.device_put`.
        mask_column: Name of a column of every batch that is False for repeats.

    Raises:
        ValueError: An option is out of range, or the dataset is empty, or smaller than a batch with
            `last_batch='drop'`.
        KeyError: No such field.
        TypeError: Not a dataset, an option of the wrong type, or, for processes, one that cannot be pickled.

    Examples:
        >>> loader = bags.Loader(dataset, 4, fields=('id', 'label'), seed=0)
        >>> [batch['id'].tolist() for batch in loader]
        [[2, 4, 6, 7], [5, 3, 1, 0]]
        >>> state = loader.state_dict()  # For the checkpoint: load_state_dict continues there.
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
        self.dataset = dataset if isinstance(dataset, Dataset) else RowBatches(dataset)
        is_iterable = hasattr(fields, '__iter__') and not isinstance(fields, str | Mapping)
        self.fields: Any = tuple(fields) if is_iterable else fields  # type: ignore[arg-type]
        self.seed = integer('seed', seed)
        self.batch_size = item_count('batch_size', batch_size, 1)
        self.epochs = at_least_or_none('epochs', epochs, 1)
        self.prefetch = at_least_or_none('prefetch', prefetch, 1)
        if workers is None:
            waits = getattr(dataset, 'reads_wait', False) and not processes
            workers = REMOTE_WORKERS if waits else worker_count(None)
        self.workers = at_least('workers', workers, 0)
        self.processes = bool(processes)
        if last_batch is not None:
            one_of('last_batch', last_batch, get_args(LastBatch))
        self._last_batch = last_batch
        self.sampler = sampler_for(dataset, shuffle, self.seed) if sampler is None else sampler
        check_sampler(self.sampler, len(dataset))
        one_of('per', per, ('batch', 'datapoint'))
        one_of('on_error', on_error, get_args(OnError))
        if per == 'datapoint' and transform is None:
            raise ValueError("per='datapoint': expected a transform")
        left_out = as_indices(skip, len(dataset), 'skip')
        self._left_out = {index: Skipped(index, None, 'in skip') for index in left_out.tolist()}
        self.unreadable: dict[int, Skipped] = dict(self._left_out)
        """Datapoints to leave out, or that could not be read, by index."""
        self.to_device, self.mask_column = to_device, mask_column
        self._set_rank(rank, world_size)
        self._maker = BatchMaker(
            self.dataset, self.fields, self.sampler, self.schedule, self.seed, transform,
            collate_function(collate), per == 'datapoint', on_error,
        )  # fmt: skip
        self.cursor_numbers: MutableSequence[int] = [*Cursor()]
        """The numbers of `next_cursor`."""
        self.progress: Progress | None = None
        self.process_retries = -retries_of(self.dataset)
        """Requests retried by worker processes, less those that were retried before."""
        if self.processes and self.workers:
            check_sendable(dataset=self.dataset, sampler=self.sampler, transform=transform, collate=collate)

    def _set_rank(self, rank: int, world_size: int) -> None:
        """Sets the rank and the dependent attributes, after checking that batches can be made."""
        self.world_size = item_count('world_size', world_size, 1)
        self.rank = item_count('rank', rank, 0)
        self.last_batch: LastBatch = self._last_batch or ('pad' if self.world_size > 1 else 'partial')
        if not len(self.dataset):
            raise ValueError('dataset: expected datapoints to load, got none')
        self.schedule = Schedule(
            len(self.sampler), self.batch_size, self.rank, self.world_size, self.last_batch, self.epochs
        )
        self.schedule.check()
        self._mask = self.mask_column or (MASK_COLUMN if self.last_batch == 'pad' else None)
        if self._mask in self.spec:
            raise ValueError(f'mask_column: expected a name that is not a field, got {self._mask!r}')

    def __len__(self) -> int:
        """Returns the number of batches in a whole iteration on this rank.

        Raises:
            TypeError: The loader is endless.
        """
        total = self.schedule.total
        if total is None:
            raise TypeError('a loader with epochs=None has no end, and so no length')
        return total

    def __repr__(self) -> str:
        return (
            f'bags.Loader({self.dataset.expression}, {self.batch_size}, sampler={self.sampler!r}, '
            f'seed={self.seed}, rank={self.rank}, world_size={self.world_size}, '
            f'last_batch={self.last_batch!r})'
        )

    def on_rank(self, rank: int, world_size: int) -> Loader:
        """Returns this loader for another rank."""
        other = copy.copy(self)
        other.cursor_numbers, other.progress = [*self.next_cursor], None
        other.unreadable, other.process_retries = dict(self._left_out), -retries_of(self.dataset)
        other._set_rank(rank, world_size)
        return other

    def without_workers(self) -> Loader:
        """Returns this loader with `workers=0`; both have the same next epoch."""
        other = copy.copy(self)
        other.workers = 0
        return other

    # Iteration.

    def __iter__(self) -> LoaderIterator:
        return LoaderIterator(self, self.begin()).start()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin with this epoch; later iterations continue from there."""
        epoch = item_count('epoch', epoch, 0)
        self.next_cursor, self.progress = Cursor(epoch, 0, epoch), None

    @property
    def next_cursor(self) -> Cursor:
        """Returns where the next iteration begins."""
        return Cursor(*map(int, self.cursor_numbers))

    @next_cursor.setter
    def next_cursor(self, cursor: Cursor) -> None:
        for position, number in enumerate(cursor):
            self.cursor_numbers[position] = number

    def begin(self, cursor: Cursor | None = None) -> Cursor:
        """Returns where an iteration begins; the one after it begins with the next epoch."""
        begin = self.next_cursor if cursor is None else cursor
        epoch = begin.epoch + 1 if self.epochs is None else begin.first + self.epochs
        self.next_cursor = Cursor(epoch, 0, epoch)
        return begin

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field that is read; empty for a dataset without a `spec`."""
        types = getattr(self.dataset, 'types', {})
        return type_texts({name: types[name] for name in select_fields(self.fields, types)} if types else {})

    @property
    def skipped(self) -> list[Skipped]:
        """The unreadable datapoints of the batches delivered so far on this rank: datapoint, field, reason.

        Sorted by index, without duplicates. Datapoints skipped in workers of PyTorch or Grain are not here.
        """
        return [self.unreadable[index] for index in sorted(self.unreadable.keys() - self._left_out.keys())]

    @property
    def retries(self) -> int:
        """Number of requests to an object store that were retried since the loader was made.

        Requests of its worker processes are in it with their batches; those of other datasets on the same
        store in this process are in it too. The logger `bags.storage` says which requests they were.
        """
        return self.process_retries + retries_of(self.dataset)

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
        schedule = self.schedule._replace(begin=begin)
        if item_count('step', step, 0) >= schedule.epoch_steps():
            raise IndexError(f'step {step} out of range: an epoch has {schedule.epoch_steps()} on this rank')
        return plan_steps(self.sampler, schedule, step, 1)[0].indices

    def worker_shard(self, worker: int, workers: int, begin: Cursor | None = None) -> LoaderIterator:
        """Returns every `workers`-th batch, from batch `worker` on, for one worker of another library.

        One batch of each worker in turn gives the batches of the loader. Nothing is started before the first
        batch is asked for; with several workers, each makes its batches in its own thread.

        Args:
            worker, workers: The index of the worker, and the number of workers.
            begin: Where to begin; unless given, where the next iteration begins, which does not change.
        """
        loader = self if workers == 1 else self.without_workers()
        return LoaderIterator(loader, self.next_cursor if begin is None else begin, worker, workers)

    def batch_maker(self, schedule: Schedule) -> BatchMaker:
        """Returns the maker of the batches of a schedule."""
        maker = copy.copy(self._maker)
        maker.schedule, maker.mask, maker.unreadable = schedule, self._mask, dict(self.unreadable)
        maker.counts_retries = self.processes and self.workers > 0
        return maker

    # State.

    def state_dict(self) -> State:
        """Returns the state after the last batch that the newest iterator delivered: integers and strings.

        Batches made ahead do not count. Any number of ranks can resume from this one state, with any batch
        size and workers. After the last batch of an iteration, it is the beginning of the next one.
        """
        return self.state_at(self.next_cursor if self.progress is None else self.progress.cursor)

    def state_at(self, cursor: Cursor) -> State:
        """Returns the state at a cursor."""
        return {
            'seed': self.seed,
            'epoch': cursor.epoch,
            'consumed': cursor.consumed,
            'first_epoch': cursor.first,
            'batch_size': self.batch_size,
            'world_size': self.world_size,
            'last_batch': self.last_batch,
            'length': len(self.sampler),
            'sampler': repr(self.sampler),
            'dataset': self.fingerprint,
        }

    @cached_attribute
    def fingerprint(self) -> str:
        """The fingerprint of the dataset, or of the one that it is a copy of, with all datapoints."""
        dataset = self.dataset.rows if isinstance(self.dataset, RowBatches) else self.dataset
        return fingerprint(dataset, of_origin=True)

    def load_state_dict(self, state: State, *, check_dataset: bool = True) -> None:
        """Makes the next iteration resume from a state; later ones are the next epochs.

        Args:
            state: The state.
            check_dataset: Raise if the state was saved with another dataset. False resumes with it.

        Raises:
            ValueError: The state belongs to another dataset, seed or sampler, or is not a state.
        """
        cursor = self.cursor_from(state, check_dataset)
        is_end = self.epochs is not None and cursor[:2] == (cursor.first + self.epochs, 0)
        self.next_cursor = cursor._replace(first=cursor.epoch) if is_end else cursor
        self.progress = None

    def cursor_from(self, state: Any, check_dataset: bool = True) -> Cursor:
        """Returns the cursor of a state, after checking that it belongs to this run."""
        dataset = self.fingerprint if check_dataset else None
        own = {'seed': self.seed, 'sampler': repr(self.sampler), 'dataset': dataset}
        cursor = cursor_from(state, own, len(self.sampler), self.epochs)
        self.schedule._replace(begin=cursor).check()
        return cursor


def check_loader(loader: Any) -> None:
    """Raises TypeError if an argument is not a loader."""
    if not isinstance(loader, Loader):
        raise TypeError(f'expected a bags.Loader, got {type(loader).__name__}')
