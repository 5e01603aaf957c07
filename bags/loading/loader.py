"""From a dataset to batches: in an order that three numbers tell, divided over hosts, read ahead."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from bags.fingerprint import fingerprint
from bags.loading.collate import collator
from bags.loading.pace import keep_memory
from bags.loading.recipe import MASK, Recipe
from bags.loading.steps import Place, Steps, Turns
from bags.loading.worker_threads import Inline, Threads
from bags.samplers import Sampler, Sequential, ShardShuffled, Shuffled, shard_lengths
from bags.selection import Fields, select_fields

__all__ = ['Loader', 'LoaderIterator']

WORKERS = 16
State = dict[str, Any]


class Loader:
    """Batches of a dataset, in an order that the seed determines, on one or several hosts.

    Iterating over it gives dicts of columns, as `dataset.batch` does. It begins where `load_state_dict` says,
    else at the beginning, each time; batches do not mix epochs. The batches are the same for any number
    and kind of workers.

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
        prefetch: Batches that are made ahead, at most; two for each worker unless given, or more of small
            ones.
        transform: Done to each batch by the workers: takes the dict, and returns one or anything else. If it
            has a parameter `rng`, it gets a numpy `Generator` that depends on the seed and the place only.
        collate: Done to what `transform` returns: `bags.pad`, `bags.stack` or `bags.pack`, or a mapping of
            fields to these, or any function.
        deliver: Done last, by the thread that iterates: `jax.device_put`, say.
        mask: Name of a column for every batch that is False for repeats.

    Raises:
        ValueError: More datapoints a batch than there are, a dataset without any, or fewer than hosts.
        KeyError: No such field.
        TypeError: What is no dataset; for processes, what cannot be pickled.
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
        for name, function in (('transform', transform), ('deliver', deliver)):
            if function is not None and not callable(function):
                raise TypeError(f'{name}: expected a function, got {function!r}')
        if not hasattr(shard, '__len__') or len(shard) != 2:
            raise TypeError(f'shard: expected a pair of host and hosts, got {shard!r}')
        self.dataset = dataset
        self.fields: Any = fields if fields is None or isinstance(fields, str | Mapping) else tuple(fields)
        self.seed = int(seed)
        self.sampler = _sampler(dataset, shuffle, self.seed) if sampler is None else sampler
        self.batch_size, self.epochs = int(batch_size), epochs
        self.shard, self.even = (int(shard[0]), int(shard[1])), even
        if workers is None:
            # Threads that wait for a network need no core each.
            waits = getattr(dataset, 'waits', False) and not processes
            workers = WORKERS if waits else min(WORKERS, os.cpu_count() or 1)
        self.workers = int(workers)
        self.processes, self.prefetch = processes, prefetch
        self.transform, self.collate, self.deliver, self.mask = transform, collator(collate), deliver, mask
        self.check()
        self.begin = Place()
        self._standing = _Standing(self._steps(self.begin, epochs))
        self._fingerprint: str | None = None
        if processes and self.workers:
            from bags.loading.worker_processes import check_picklable

            check_picklable(self.recipe(self.begin, epochs))

    def check(self) -> None:
        """Raises what the class says it raises."""
        length, (host, hosts) = len(self.sampler), self.shard
        if self.batch_size < 1:
            raise ValueError(f'batch_size: expected at least 1, got {self.batch_size}')
        if hosts < 1 or not 0 <= host < hosts:
            raise ValueError(f'shard: expected a number below that of hosts, got {self.shard}')
        if self.even not in ('pad', 'drop', False) or self.even is True:
            raise ValueError(f"even: expected 'pad', 'drop' or False, got {self.even!r}")
        if not len(self.dataset) or not length:
            raise ValueError(f'{self.dataset!r}: expected datapoints to load, got none')
        if length < hosts:
            raise ValueError(f'shard: expected at most as many hosts as the {length} datapoints, got {hosts}')
        most = length // hosts if self.even == 'drop' else length
        if self.batch_size > most:
            each = f' for each of {hosts} hosts' if hosts > 1 and self.even == 'drop' else ''
            raise ValueError(
                f'batch_size: expected at most the {most} datapoints there are{each}, got {self.batch_size}'
            )
        for name, value, least in (
            ('epochs', self.epochs, 0),
            ('workers', self.workers, 0),
            ('prefetch', self.prefetch, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f'{name}: expected at least {least}, got {value}')
        types = getattr(self.dataset, 'types', None)
        fields = select_fields(self.fields, types) if types is not None else {}
        mask = self.mask or (MASK if self.even == 'pad' else None)
        if mask in fields:
            raise ValueError(
                f'mask: expected a name that is no field, got {mask!r}; choose another with mask='
            )

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
        other.shard = (host, hosts)
        other.check()
        return other

    # Iterating.

    def __iter__(self) -> LoaderIterator:
        return LoaderIterator(self, self.begin, self.epochs)

    def epoch(self, number: int) -> LoaderIterator:
        """Returns an iterator over one epoch."""
        if number < 0:
            raise ValueError(f'epoch: expected at least 0, got {number}')
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
        )

    def start(
        self, begin: Place, epochs: int | None, turns: tuple[int, int] = (0, 1)
    ) -> tuple[Any, _Standing]:
        """Starts workers at a place; returns them, and what keeps the place that was come to.

        With `turns` they leave out so many batches first, and then make one of so many.
        """
        recipe = self.recipe(begin, epochs, turns)
        keep_memory()
        self._standing = _Standing(recipe.steps)
        if not self.workers:
            return Inline(recipe), self._standing
        if self.processes:
            from bags.loading.worker_processes import Processes

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
        return {
            'seed': self.seed,
            'epoch': place.epoch,
            'consumed': place.consumed,
            'sampler': _name(self.sampler),
            'dataset': self.fingerprint,
        }

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
        self._standing = _Standing(self._steps(self.begin, self.epochs))

    def place_of(self, state: Any) -> Place:
        """Returns the place that a state tells, once it is found to be one of this loader."""
        own = self.state_at(Place())
        if not isinstance(state, Mapping) or not own.keys() <= state.keys():
            raise ValueError(f'state: expected a dict of {", ".join(own)}, got {state!r:.200}')
        for key, what in (
            ('dataset', 'fingerprint of the dataset'),
            ('seed', 'seed'),
            ('sampler', 'sampler'),
        ):
            if state[key] != own[key]:
                raise ValueError(
                    f'state of another {"dataset" if key == "dataset" else "run"}: expected the {what} '
                    f'{own[key]!r} of this loader, got {state[key]!r}'
                )
        epoch, consumed = int(state['epoch']), int(state['consumed'])
        if epoch < 0 or not 0 <= consumed <= len(self.sampler):
            raise ValueError(
                f'state: expected an epoch of at least 0 and at most {len(self.sampler)} datapoints '
                f'consumed, got {epoch} and {consumed}'
            )
        return Place(epoch, consumed)


class _Standing:
    """How far an iterator has come; all that a loader keeps of it."""

    def __init__(self, steps: Steps | Turns) -> None:
        self._steps = steps
        self.number = -1
        """The last step that was delivered."""

    @property
    def place(self) -> Place:
        return self._steps.begin if self.number < 0 else self._steps[self.number].after


class LoaderIterator(Iterator[Any]):
    """Batches, one after the other, from a place on.

    Its threads or processes end with it: at the end, with `close`, on an error, or when nobody has it.
    """

    def __init__(self, loader: Loader, begin: Place, epochs: int | None) -> None:
        self._loader = loader
        self._epochs = epochs
        self._start(begin)

    def _start(self, begin: Place) -> None:
        self._workers, self._standing = self._loader.start(begin, self._epochs)
        # Also at the end of the interpreter, before what the workers need is gone.
        self._closer = weakref.finalize(self, self._workers.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        made = self._workers.get()
        if made is None:
            self.close()
            raise StopIteration
        try:
            batch = made.deliver(self._loader.deliver)
        except BaseException:
            self.close()
            raise
        self._standing.number = made.number
        return batch

    def close(self) -> None:
        """Ends the workers; there are no more batches."""
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns where this has come to, as `Loader.state_dict`."""
        return self._loader.state_at(self._standing.place)

    def load_state_dict(self, state: State) -> None:
        """Goes on from where another iterator had come to.

        Raises:
            ValueError: As `Loader.load_state_dict`.
        """
        place = self._loader.place_of(state)
        self.close()
        self._start(place)

    get_state = state_dict
    set_state = load_state_dict


def _sampler(dataset: Any, shuffle: bool | str, seed: int) -> Sampler:
    if shuffle == 'shards':
        return ShardShuffled(shard_lengths(dataset), seed)
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle: expected True, False or 'shards', got {shuffle!r}")
    return Shuffled(len(dataset), seed) if shuffle else Sequential(len(dataset))


def _name(sampler: Sampler) -> str:
    return repr(sampler)
