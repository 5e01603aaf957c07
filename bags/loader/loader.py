"""From a dataset to batches: in an order that three numbers tell, divided over hosts, read ahead."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bags.dataset.fingerprint import fingerprint
from bags.dataset.selection import Fields
from bags.loader.batches import Recipe
from bags.loader.collate import collator
from bags.loader.iterator import LoaderIterator, Standing
from bags.loader.options import check_counts, check_fields, check_functions, check_sampler, host_of
from bags.loader.schedule import Place, Steps, Turns
from bags.loader.state import State, place_of, state_of
from bags.loader.threads import Inline, Threads
from bags.memory import Pool
from bags.samplers import Sampler, Sequential, ShardShuffled, Shuffled, shard_lengths
from bags.validation import at_least, at_least_or_none, integer

__all__ = ['Loader', 'check_loader']

WORKERS = 16


class Loader:
    """Batches of a dataset, in an order that the seed determines, on one or several hosts.

    Iterating over it gives dicts of columns, as `dataset.batch` does. It begins where `load_state_dict` says,
    else at the beginning, each time; batches do not mix epochs. The batches are the same for any number
    and kind of workers. Of large arrays that nobody has any more it keeps the memory of a few for the next
    ones, as long as it lives.

    Args:
        dataset: A reader or a view.
        batch_size: Datapoints of a batch on this host.
        fields: Which fields, and items of sequences, as in `dataset.batch`; all unless given.
        shuffle: True takes datapoints in a random order, another one in each epoch; False in theirs;
            'shards' a few shards at a time, for data far away.
        seed: Of the order, and of what `transform` draws.
        epochs: After how many to end; None for never.
        shard: Which host of how many this is: `(jax.process_index(), jax.process_count())`, say.
        even: What becomes of the last step of an epoch, which has too few datapoints. 'pad': hosts go on at
            the beginning of the epoch, and the column `_mask` of such a batch is False for what is repeated.
            'drop': left out. False: the hosts share it; their batches are smaller, and some may have none.
        sampler: The order, instead of `shuffle`; see `bags.samplers`.
        workers: Threads or processes that make batches ahead; 0 makes them when they are asked for. Unless
            given one a core, and 16 threads for a dataset that is read over a network.
        processes: Workers are processes, for a `transform` that holds the GIL. It must be picklable, and a
            script needs `if __name__ == '__main__':`.
        prefetch: Batches that are made ahead, at most. Unless given, three for two threads, two for each
            process, and more of small ones.
        transform: Done to each batch by the workers: takes the dict, and returns one or anything else. If it
            has a parameter `rng`, it gets a numpy `Generator` that depends on the seed and the place only.
        collate: Done to what `transform` returns: `bags.pad`, `bags.stack` or `bags.pack`, or a mapping of
            fields to these, or any function.
        deliver: Done last, by the thread that iterates: `jax.device_put`, say.
        mask: Name of a column for every batch that is False for repeats.

    Raises:
        ValueError: More datapoints a batch than there are, a dataset without any, or fewer than hosts.
        KeyError: No such field.
        TypeError: What is no dataset, or an option of the wrong kind; for processes, what cannot be pickled.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        fields: Fields = None,
        shuffle: bool | str = True,
        seed: int = 0,
        epochs: int | None = None,
        shard: tuple[int, int] = (0, 1),
        even: str | bool = 'pad',
        sampler: Sampler | None = None,
        workers: int | None = None,
        processes: bool = False,
        prefetch: int | None = None,
        transform: Callable[..., Any] | None = None,
        collate: Callable[[Any], Any] | Mapping[str, Any] | None = None,
        deliver: Callable[[Any], Any] | None = None,
        mask: str | None = None,
    ) -> None:
        if not hasattr(dataset, 'batch') or not hasattr(dataset, '__len__'):
            raise TypeError(f'dataset: expected a reader or a view, got {type(dataset).__name__}')
        check_functions(transform=transform, deliver=deliver)
        if not isinstance(processes, bool | np.bool_):
            raise TypeError(
                f'processes: expected True or False, got {processes!r:.200}; how many says workers='
            )
        self.dataset = dataset
        as_given = isinstance(fields, str | Mapping) or not hasattr(fields, '__iter__')
        self.fields: Any = fields if as_given else tuple(fields)  # type: ignore[arg-type]
        self.seed = integer('seed', seed)
        self.batch_size = at_least('batch_size', batch_size, 1)
        self.epochs = at_least_or_none('epochs', epochs, 0)
        self.prefetch = at_least_or_none('prefetch', prefetch, 1)
        if workers is None:
            # Threads that wait for a network need no core each.
            waits = getattr(dataset, 'is_remote', False) and not processes
            workers = WORKERS if waits else min(WORKERS, os.cpu_count() or 1)
        self.workers = at_least('workers', workers, 0)
        self.processes = bool(processes)
        self.shard, self.even = host_of(shard), even
        self.sampler = _sampler(dataset, shuffle, self.seed) if sampler is None else sampler
        self.transform, self.collate, self.deliver, self.mask = transform, collator(collate), deliver, mask
        check_sampler(self.sampler, len(dataset))
        self.check()
        check_fields(self.fields, getattr(dataset, '_types', None), mask, even)
        self._memory = Pool(2 * self.workers + 2)
        self.begin = Place()
        self._standing = Standing(self._steps(self.begin, self.epochs))
        self._fingerprint: str | None = None
        if self.processes and self.workers:
            from bags.loader.processes import check_picklable

            check_picklable(self.recipe(self.begin, self.epochs))

    def check(self) -> None:
        """Raises ValueError where no batch could be made."""
        check_counts(len(self.dataset), len(self.sampler), self.batch_size, self.shard[1], self.even)

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch on this host."""
        return self._steps(Place(), None).each

    def __repr__(self) -> str:
        return (
            f'bags.Loader({self.dataset!r}, {self.batch_size}, sampler={self.sampler!r}, seed={self.seed}, '
            f'shard={self.shard}, even={self.even!r})'
        )

    def on_shard(self, host: int, hosts: int) -> Loader:
        """Returns this loader as another host has it."""
        other = copy.copy(self)
        other.shard = host_of((host, hosts))
        other.check()
        return other

    # Iterating.

    def __iter__(self) -> LoaderIterator:
        return LoaderIterator(self, self.begin, self.epochs)

    def epoch(self, number: int) -> LoaderIterator:
        """Returns an iterator over one epoch."""
        number = at_least('epoch', number, 0)
        return LoaderIterator(self, Place(number), number + 1)

    def _steps(self, begin: Place, epochs: int | None) -> Steps:
        return Steps(len(self.sampler), self.batch_size, self.shard, self.even, epochs, begin)

    def recipe(self, begin: Place, epochs: int | None, turns: tuple[int, int] = (0, 1)) -> Recipe:
        """Returns what makes the batches from a place on."""
        steps = self._steps(begin, epochs)
        return Recipe(
            self.dataset,
            self.fields,
            self.sampler,
            Turns(steps, *turns) if turns != (0, 1) else steps,
            self.seed,
            self.transform,
            self.collate,
            self.mask,
            self._memory,
        )

    def start(
        self, begin: Place, epochs: int | None, turns: tuple[int, int] = (0, 1)
    ) -> tuple[Any, Standing]:
        """Starts workers at a place; returns them, and what keeps the place that was come to.

        With `turns` they leave out so many batches first, and then make one of so many.
        """
        recipe = self.recipe(begin, epochs, turns)
        self._standing = Standing(recipe.steps)
        if not self.workers:
            return Inline(recipe), self._standing
        if self.processes:
            from bags.loader.processes import Processes

            return Processes(recipe, self.workers, self.prefetch), self._standing
        return Threads(recipe, self.workers, self.prefetch), self._standing

    # State.

    def state_dict(self) -> State:
        """Returns where the iterator that was started last has come to: integers and strings.

        Any number of hosts can go on from there, each with this same state, with any batch size and workers.
        What counts is what was delivered, not what was made ahead.
        """
        return self.state_at(self._standing.place)

    def state_at(self, place: Place) -> State:
        return state_of(place, seed=self.seed, sampler=repr(self.sampler), dataset=self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """Tells the dataset from others: by its fields, its length, and a few of its records."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.dataset)
        return self._fingerprint

    def load_state_dict(self, state: State) -> None:
        """Has the next iterators begin where another one had come to.

        Raises:
            ValueError: The state of a run with another dataset, seed or sampler, or what is no state.
        """
        self.begin = self.place_of(state)
        self._standing = Standing(self._steps(self.begin, self.epochs))

    def place_of(self, state: Any) -> Place:
        """Returns the place that a state tells, once it is found to be one of this loader."""
        return place_of(state, self.state_at(Place()), len(self.sampler))


def _sampler(dataset: Any, shuffle: bool | str, seed: int) -> Sampler:
    if shuffle == 'shards':
        return ShardShuffled(shard_lengths(dataset), seed)
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle: expected True, False or 'shards', got {shuffle!r}")
    return Shuffled(len(dataset), seed) if shuffle else Sequential(len(dataset))


def check_loader(loader: Any) -> None:
    """Raises TypeError for what is no loader."""
    if not isinstance(loader, Loader):
        raise TypeError(f'expected a bags.Loader, got {type(loader).__name__}')
