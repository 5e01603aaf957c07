"""PyTorch: columns as tensors that share memory with the arrays, and a loader as an iterable dataset."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bags.dataset.reading.batch import Ragged, convert
from bags.formats.arrays import is_small_float
from bags.loader.iterator import LoaderIterator, worker_shard
from bags.loader.loader import Loader, plan_of
from bags.loader.steps import Cursor
from bags.media.torchcodec import decode
from bags.validation import import_optional

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset as TorchIterableDataset

    Base: TypeAlias = TorchIterableDataset[Any]
else:
    Base = object

__all__ = ['IterableDataset', 'decode', 'to_torch']

MAX_ITERATIONS = 16
"""Maximum number of concurrent iterations by workers."""
LOCK_SECONDS = 60.0


def to_torch(
    batch: Any,
    device: torch.device | str | int | None = None,
    pin: bool = False,
    non_blocking: bool = True,
    *,
    nested: bool = False,
) -> Any:
    """Converts the arrays of a batch to tensors.

    A tensor on the CPU shares the array's memory: writing to one writes to the other. Arrays that PyTorch
    cannot share are copied: read-only arrays, and arrays of foreign byte order or negative strides.

    Args:
        batch: A dict of columns. Lists, tuples and dicts inside it are converted too. Strings, bytes,
            numbers, None and other values are unchanged.
        device: The device of the tensors. Default: the CPU.
        pin: Copy through page-locked memory, from which an accelerator copies while the program continues.
            Has no effect without an accelerator.
        non_blocking: Do not wait for copies from pinned memory to a device.
        nested: Convert a `Ragged` to a nested tensor of jagged layout, without its `present`. By default it
            stays a `Ragged`, with tensors for `values`, `offsets` and `present`.

    Raises:
        TypeError: PyTorch lacks the dtype of a field. The message names the field.
        MissingDependencyError: PyTorch is not installed.

    Examples:
        >>> import bags.torch
        >>> batch = dataset.batch([0, 1], ('id', 'state'))
        >>> bags.torch.to_torch(batch)['id']
        tensor([0, 1])
    """
    torch = import_optional('torch')
    pin = pin and getattr(torch, 'accelerator', torch.cuda).is_available()  # torch.accelerator: since 2.6

    def placed(tensor: Any) -> Any:
        is_pinned = pin and tensor.device.type == 'cpu'
        if is_pinned:
            tensor = tensor.pin_memory()
        # Unpinned memory may be freed before an asynchronous copy has read it.
        return tensor if device is None else tensor.to(device, non_blocking=non_blocking and is_pinned)

    def leaf(value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray):
            return placed(_tensor(torch, value, where))
        if isinstance(value, Ragged):
            values, offsets = leaf(value.values, where), leaf(value.offsets, where)
            if nested:
                return torch.nested.nested_tensor_from_jagged(values, offsets)
            return Ragged(values, offsets, leaf(value.present, where))
        return placed(value) if isinstance(value, torch.Tensor) else value

    return convert(batch, leaf)


class IterableDataset(Base):  # type: ignore[misc, unused-ignore]  # Any without PyTorch
    """The batches of a loader as a PyTorch iterable dataset, for a `DataLoader` with `batch_size=None`.

        batches = bags.torch.IterableDataset(bags.Loader(dataset, 64))
        training = DataLoader(batches, batch_size=None, num_workers=4)
        for epoch in range(10):
            for batch in training: ...

    With any number of workers, a `DataLoader` returns the batches of the loader in its order: each worker
    makes every n-th batch, in one thread. Each iteration is the next epoch, as with the loader; its
    `set_epoch` and `load_state_dict` also apply in workers. A `StatefulDataLoader` resumes at its position.
    Arrays become tensors, as with `to_torch`, in shared memory if they come from workers.

    Weights that `source.loader.set_weights` changes hold from the next iteration on if there are workers;
    `persistent_workers` then raise an error.

    Args:
        loader: The loader. If its `world_size` is 1, it gets the rank of this process.
        rank: Index of this process in a distributed run. Default: the rank in `torch.distributed`, if
            it is already initialised.
        world_size: Number of processes.
        tensors: Whether to convert arrays to tensors; False keeps NumPy arrays.

    Raises:
        TypeError: `loader` is not a `Loader`.
        ValueError: The loader has another rank, or `rank` is given without `world_size`.
        MissingDependencyError: PyTorch is not installed.

    Examples:
        >>> import bags.torch
        >>> from torch.utils.data import DataLoader
        >>> source = bags.torch.IterableDataset(
        ...     bags.Loader(dataset, 4, fields=('id', 'label'), seed=0)
        ... )
        >>> sum(len(batch['id']) for batch in DataLoader(source, batch_size=None))
        8
    """

    def __init__(
        self, loader: Loader, rank: int | None = None, world_size: int | None = None, *, tensors: bool = True
    ) -> None:
        plan_of(loader)  # Raises TypeError if it is not a loader.
        self._register()
        self.loader = _on_this_rank(loader, rank, world_size)
        self.tensors = tensors
        torch = import_optional('torch')
        # In shared memory, because only the workers see the start of an iteration, not the main process.
        plan = plan_of(self.loader)
        if not isinstance(plan.shared_numbers, torch.Tensor):
            plan.shared_numbers = torch.tensor(list(plan.shared_numbers)).share_memory_()
        self._begun = torch.zeros((MAX_ITERATIONS, 5), dtype=torch.int64).share_memory_()
        """For each of the latest iterations: the key, the number of workers that began it, and its cursor."""
        self._lock, self._iterations = _new_lock(), 0

    @classmethod
    def _register(cls) -> None:
        # Registered instead of derived: the class exists before PyTorch is imported.
        import_optional('torch').utils.data.IterableDataset.register(cls)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, as `Loader.set_epoch`."""
        self.loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        info, plan = import_optional('torch').utils.data.get_worker_info(), plan_of(self.loader)
        if info is None:
            batches = worker_shard(plan, 0, 1, plan.begin())
        else:
            cursor = self._begin(info)
            if cursor is None:
                return OutdatedWeights()
            batches = worker_shard(plan.without_workers(), info.id, info.num_workers, cursor)
        return Tensors(batches) if self.tensors else batches

    def _begin(self, info: Any) -> Cursor | None:
        """Returns the cursor at which a worker begins. The first worker of an iteration advances the loader.

        None if the weights were changed after the workers had started and before the iteration began. A
        worker that begins after the first one keeps the weights with which the iteration began.

        Raises:
            RuntimeError: Another worker was killed while it held the lock.
        """
        # Workers of one iteration share the base seed and the number of begun iterations. If the seed is set
        # again before each iteration, an iteration is new once all workers have begun the previous one.
        self._iterations += 1
        key = (info.seed - info.id + self._iterations) % (1 << 62) + 1
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise RuntimeError(
                'a worker was killed while it began an iteration: make the IterableDataset again'
            )
        try:
            rows = self._begun.tolist()
            number = next(
                (
                    position
                    for position, row in enumerate(rows)
                    if row[0] == key and row[1] < info.num_workers
                ),
                None,
            )
            if number is None:
                plan = plan_of(self.loader)
                if not plan.has_current_weights:
                    return None
                number = -1
                rows = [*rows[1:], [key, 0, *plan.begin()]]
            rows[number][1] += 1
            self._begun.copy_(self._begun.new_tensor(rows))
            return Cursor(*rows[number][2:])
        finally:
            self._lock.release()

    def __len__(self) -> int:
        """Returns the number of batches of an iteration on this rank.

        Raises:
            TypeError: The loader is endless.
        """
        return len(self.loader)

    def __getstate__(self) -> dict[str, Any]:
        # A lock can be pickled only for a process that is being spawned.
        is_starting = multiprocessing.context.get_spawning_popen() is not None
        return self.__dict__ | ({} if is_starting else {'_lock': None})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._register()
        self.__dict__.update(state)
        self._lock = self._lock or _new_lock()

    def __repr__(self) -> str:
        return f'bags.torch.IterableDataset({self.loader!r})'


class Tensors(Iterator[Any]):
    """Batches of an iterator as tensors."""

    def __init__(self, batches: LoaderIterator) -> None:
        self._batches = batches
        self.state_dict, self.load_state_dict = batches.state_dict, batches.load_state_dict
        self.close = batches.close

    def __next__(self) -> Any:
        return to_torch(next(self._batches))


class OutdatedWeights(Iterator[Any]):
    """Raises an error at the first batch: a `DataLoader` reports errors of batches, not of iterators."""

    def __next__(self) -> Any:
        raise RuntimeError(
            'weights were changed after the workers of the DataLoader started, which have the weights of '
            'before: iterate again (with persistent_workers=False, which starts workers for each iteration)'
        )


def _new_lock() -> Any:
    return multiprocessing.get_context('spawn').Lock()


def _on_this_rank(loader: Loader, rank: int | None, world_size: int | None) -> Loader:
    if (rank is None) != (world_size is None):
        raise ValueError(f'expected rank and world_size, got {rank} and {world_size}')
    if rank is None or world_size is None:
        distributed = import_optional('torch').distributed
        if loader.world_size > 1 or not (distributed.is_available() and distributed.is_initialized()):
            return loader
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    elif loader.world_size > 1 and (loader.rank, loader.world_size) != (rank, world_size):
        raise ValueError(
            f'expected a loader of rank {rank} of {world_size}, or without a rank, '
            f'got one of rank {loader.rank} of {loader.world_size}'
        )
    return loader.on_rank(rank, world_size)


def _tensor(torch: Any, array: np.ndarray[Any, Any], where: str) -> Any:
    """Returns a tensor over the memory of an array, or over a copy if PyTorch cannot share it."""
    dtype = array.dtype
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder('='))
    elif not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        if is_small_float(dtype) and hasattr(torch, dtype.name):
            return torch.from_numpy(array.view(f'i{dtype.itemsize}')).view(getattr(torch, dtype.name))
        return torch.from_numpy(array)
    except TypeError as exc:
        field = f'field {where!r}' if where else 'the array'
        raise TypeError(
            f'{field}: PyTorch has no dtype for {dtype}; leave the field out, or convert it before'
        ) from exc
