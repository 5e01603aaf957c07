"""Grain: the batches of a loader as Grain datasets, for random access and for iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from bags.collate.columns import CollateField
from bags.dataset.base import Dataset
from bags.dataset.reading.selection import Fields
from bags.loader.iterator import worker_shard
from bags.loader.loader import Loader, plan_of
from bags.loader.rows import MapStyle
from bags.loader.steps import Cursor, LastBatch
from bags.samplers import Sampler
from bags.validation import import_optional, integer
from bags.workers.outcome import Outcome, do

if TYPE_CHECKING:
    import grain

__all__ = ['batches', 'iter_dataset']


def batches(
    dataset: Dataset | MapStyle,
    batch_size: int,
    *,
    fields: Fields = None,
    shuffle: bool | Literal['shards'] = True,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    last_batch: LastBatch | None = None,
    sampler: Sampler | None = None,
    transform: Callable[..., Any] | None = None,
    collate: Callable[[Any], Any] | Mapping[str, CollateField] | None = None,
    to_device: Callable[[Any], Any] | None = None,
    mask_column: str | None = None,
) -> grain.MapDataset[Any]:
    """Returns a `grain.MapDataset` of batches, the fastest way to read a dataset with Grain.

    An element is a dict of columns, read with one call: the batch of this step in a `bags.Loader` with the
    same options. Elements beyond the length belong to later epochs, in other orders, so `repeat()` and
    other methods of Grain work. Any step is computed from its number alone, so resuming is immediate.

        training = bags.grain.batches(dataset, 64, fields=('image', 'label')).repeat()
        training = training.to_iter_dataset(
            grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)
        )

    Pass `ReadOptions`: Grain buffers 500 elements by default, and each element is a batch in memory.

    Args:
        dataset: A reader, a view, or another map-style dataset.
        batch_size: Number of datapoints in a batch on this rank.
        fields: As for `bags.Loader`, as are all other options.

    Raises:
        MissingDependencyError: Grain is not installed.
        ValueError, KeyError, TypeError: As for `bags.Loader`.

    Examples:
        >>> import bags.grain
        >>> source = bags.grain.batches(dataset, 4, fields=('id', 'label'), seed=0)
        >>> len(list(source))
        2
    """
    return _map_dataset(
        Loader(
            dataset, batch_size, fields=fields, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size,
            last_batch=last_batch, sampler=sampler, workers=0, transform=transform, collate=collate,
            to_device=to_device, mask_column=mask_column,
        )
    )  # fmt: skip


def _map_dataset(loader: Loader) -> grain.MapDataset[Any]:
    grain, plan = import_optional('grain'), plan_of(loader)

    class Batches(grain.MapDataset):  # type: ignore[misc, name-defined, unused-ignore]
        """Batches, indexed by the number of the step."""

        def __init__(self) -> None:
            super().__init__()
            self._maker = plan.batch_maker(plan.schedule._replace(epochs=None))

        def __len__(self) -> int:
            return len(loader)

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                return self.slice(index)
            number = integer('index', index)
            number += len(self) if number < 0 else 0
            if number < 0:
                raise IndexError(f'index {index} out of range: there are {len(self)} batches')
            task = range(number, number + 1)
            (made,) = Outcome(task, True, *do(self._maker.make, task)).get()
            batch = made.batch
            return batch if plan.to_device is None else plan.to_device(batch)

        def __reduce__(self) -> Any:
            return _map_dataset, (loader,)

        def __str__(self) -> str:
            return f'bags.grain.batches({loader!r})'

    return Batches()


def iter_dataset(loader: Loader) -> grain.IterDataset[Any]:
    """Returns a loader as a `grain.IterDataset`.

    Its iterators have the state of the loader, integers and strings, which Grain's checkpoints store.
    `mp_prefetch` divides the batches over processes; each makes its batches in one thread. As with every
    Grain dataset, each iteration is the same: it begins at the current position of the loader. Set the
    `epochs` of the loader to the epochs of the run, or to None for an endless run.

    Raises:
        MissingDependencyError: Grain is not installed.
        TypeError: `loader` is not a `Loader`.

    Examples:
        >>> import bags.grain
        >>> source = bags.grain.iter_dataset(bags.Loader(dataset, 4, fields='id', seed=0))
        >>> len(list(source))
        2
    """
    return _iter_dataset(loader, 0, 1, plan_of(loader).next_cursor)


def _iter_dataset(loader: Loader, worker: int, workers: int, begin: Cursor) -> grain.IterDataset[Any]:
    """Returns the batches of one of several workers as a `grain.IterDataset`."""
    grain = import_optional('grain')

    class Batches(grain.IterDataset):  # type: ignore[misc, name-defined, unused-ignore]
        """Iterates over batches in order."""

        def __init__(self) -> None:
            super().__init__()
            self._shard = worker, workers

        def __iter__(self) -> Any:
            return Iterator(*self._shard)

        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            """Leaves the batches of other processes to them. Grain calls this on a copy."""
            first, stride = self._shard
            self._shard = first + (sl.start or 0) * stride, stride * (sl.step or 1)

        def __reduce__(self) -> Any:
            return _iter_dataset, (loader, *self._shard, begin)

        def __str__(self) -> str:
            return f'bags.grain.iter_dataset({loader!r})'

    class Iterator(grain.DatasetIterator):  # type: ignore[misc, name-defined, unused-ignore]
        """Iterates over the batches; its state is the state of the loader."""

        def __init__(self, worker: int, workers: int) -> None:
            super().__init__()
            self._batches = worker_shard(plan_of(loader), worker, workers, begin)

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
            return f'iterator of bags.grain.iter_dataset({loader!r})'

    return Batches()
