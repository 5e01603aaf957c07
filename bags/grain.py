"""Grain: batches of a loader as its datasets, for random access and for iteration."""

from __future__ import annotations

from typing import Any

from bags.errors import MissingDependencyError
from bags.loader.loader import Loader, check_loader
from bags.loader.schedule import Place
from bags.loader.worker_shard import Turn
from bags.validation import integer

__all__ = ['batches', 'iter_dataset']


def batches(dataset: Any, batch_size: int, **options: Any) -> Any:
    """Returns a `grain.MapDataset` of batches: the fast way from a dataset into Grain.

    An element is a dict of columns, read with one call. It is the batch that a `bags.Loader` with the same
    options gives at that step, computed from its number: reading starts at once at any step, and where
    Grain reads from is all its state. Elements beyond the length belong to the next epochs, in other
    orders; so `repeat()` and all else of Grain do what they should.

        training = bags.grain.batches(dataset, 64, fields=('image', 'label')).repeat()
        training = training.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=8))

    Each batch that Grain holds ready is one in memory, and it holds 500 unless told: give `ReadOptions`.

    Args:
        dataset: A reader or a view.
        batch_size: Datapoints of a batch on this host.
        **options: As for `bags.Loader`: `fields`, `shuffle`, `seed`, `shard`, `even`, `sampler`, `transform`,
            `collate`, `mask`. Those about workers have no meaning here.

    Raises:
        MissingDependencyError: Grain is not installed.
        ValueError, KeyError, TypeError: As for `bags.Loader`.
    """
    grain = import_grain()
    loader = Loader(dataset, batch_size, **{**options, 'workers': 0})

    class Batches(grain.MapDataset):  # type: ignore[misc, name-defined, unused-ignore]
        """Batches by the number of the step."""

        def __init__(self) -> None:
            super().__init__()
            self._recipe = loader.recipe(Place(), None)

        def __len__(self) -> int:
            return len(loader)

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                return self.slice(index)
            number = integer('index', index)
            number += len(self) if number < 0 else 0
            if number < 0:
                raise IndexError(f'index {index} out of range: there are {len(self)} batches')
            (made,) = self._recipe.make(number, 1)
            if made.error is not None:
                raise made.error
            return made.batch if loader.deliver is None else loader.deliver(made.batch)

        def __reduce__(self) -> Any:
            return rebuilt, (dataset, batch_size, options)

        def __str__(self) -> str:
            return f'bags.grain.batches({loader!r})'

    return Batches()


def rebuilt(dataset: Any, batch_size: int, options: dict[str, Any]) -> Any:
    """Returns `batches` of a pickle."""
    return batches(dataset, batch_size, **options)


def iter_dataset(loader: Loader) -> Any:
    """Returns a loader as a `grain.IterDataset`.

    Its iterators have the state of the loader, integers and texts, which Grain's checkpoints keep as they
    are; `mp_prefetch` divides the batches over processes, in each of which they are made one by one.

    Raises:
        MissingDependencyError: Grain is not installed.
        TypeError: What is no loader.
    """
    check_loader(loader)
    return sliced(loader, 0, 1)


def sliced(loader: Loader, worker: int, workers: int) -> Any:
    """Returns `iter_dataset`, or the part of it that falls to one of several workers."""
    grain = import_grain()

    class Iterated(grain.IterDataset):  # type: ignore[misc, name-defined, unused-ignore]
        """Batches one after the other."""

        def __init__(self) -> None:
            super().__init__()
            self._turn = worker, workers

        def __iter__(self) -> Any:
            return Batches(*self._turn)

        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            """Leaves the batches of other processes to them (Grain asks for that in a copy)."""
            first, each = self._turn
            self._turn = first + (sl.start or 0) * each, each * (sl.step or 1)

        def __reduce__(self) -> Any:
            return sliced, (loader, *self._turn)

        def __str__(self) -> str:
            return f'bags.grain.iter_dataset({loader!r})'

    class Batches(grain.DatasetIterator):  # type: ignore[misc, name-defined, unused-ignore]
        """The iterator, whose state is that of the loader."""

        def __init__(self, worker: int, workers: int) -> None:
            super().__init__()
            self._batches = Turn(loader, worker, workers)

        def __next__(self) -> Any:
            self._assert_not_closed()
            return next(self._batches)

        def get_state(self) -> dict[str, Any]:
            return self._batches.state_dict()

        def set_state(self, state: dict[str, Any]) -> None:
            self._batches.load_state_dict(state)

        def close(self) -> None:
            super().close()
            self._batches.close()

        def __str__(self) -> str:
            return f'the iterator of bags.grain.iter_dataset({loader!r})'

    return Iterated()


def import_grain() -> Any:
    """Imports Grain, or says how to install it."""
    try:
        import grain
    except ImportError as exc:
        raise MissingDependencyError('grain', 'grain') from exc
    return grain
