"""PyTorch: columns as tensors that share their memory, and a loader as an iterable dataset."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from bags.dataset.batch import Ragged, convert
from bags.errors import MissingDependencyError
from bags.loader.loader import Loader, check_loader
from bags.loader.worker_shard import Turn
from bags.validation import at_least

__all__ = ['IterableDataset', 'to_torch']

VIEWED = {'bfloat16': 'i2', 'float8_e4m3fn': 'i1', 'float8_e5m2': 'i1'}
"""Dtypes of ml_dtypes that PyTorch has, by integers of their size."""


def to_torch(
    batch: Any,
    device: Any = None,
    pin: bool = False,
    non_blocking: bool = True,
    *,
    nested: bool = False,
) -> Any:
    """Returns a batch with tensors in place of its arrays.

    A tensor on the CPU is the array's memory, not a copy: writing to one writes to the other. (Copied are
    arrays that PyTorch cannot share: read-only ones, and those of foreign byte order or negative strides.)

    Args:
        batch: A dict of columns; lists, tuples and dicts inside it are gone through. Texts, bytes, numbers,
            None and whatever else is no array stay what they are.
        device: Where the tensors go; on the CPU unless given.
        pin: By way of page-locked memory, which a copy to an accelerator can be read from while the program
            goes on. It is a copy by itself. Without an accelerator nothing is pinned.
        non_blocking: Does not wait for copies from pinned memory to a device.
        nested: A `Ragged` becomes a nested tensor of jagged layout, which has no place for `present`.
            Otherwise it stays a `Ragged`, with tensors for `values`, `offsets` and `present`.

    Raises:
        TypeError: PyTorch has no such dtype; the message names the field.
        MissingDependencyError: PyTorch is not installed.
    """
    torch = import_torch()
    pin = pin and getattr(torch, 'accelerator', torch.cuda).is_available()  # torch.accelerator: from 2.6 on

    def placed(tensor: Any) -> Any:
        is_pinned = pin and tensor.device.type == 'cpu'
        if is_pinned:
            tensor = tensor.pin_memory()
        # From memory that is not pinned only some accelerators copy in time, and this may be gone soon.
        return tensor if device is None else tensor.to(device, non_blocking=non_blocking and is_pinned)

    def leaf(value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray):
            return placed(share(torch, value, where))
        if isinstance(value, Ragged):
            values, offsets = leaf(value.values, where), leaf(value.offsets, where)
            if nested:
                return torch.nested.nested_tensor_from_jagged(values, offsets)
            return Ragged(values, offsets, leaf(value.present, where))
        return placed(value) if isinstance(value, torch.Tensor) else value

    return convert(batch, leaf)


class IterableDataset:
    """The batches of a loader as an iterable dataset of PyTorch, for its `DataLoader` with `batch_size=None`.

        batches = bags.torch.IterableDataset(bags.Loader(dataset, 64, epochs=1))
        for batch in DataLoader(batches, batch_size=None, num_workers=4): ...

    The workers of a `DataLoader` take turns, so that any number of them gives the batches of the loader in
    its order; each makes its own, by itself, and has no threads. A `StatefulDataLoader` goes on where it
    was. Arrays arrive as tensors, as `to_torch` makes them, in shared memory if they come from workers.

    Args:
        loader: Whose batches. If it has no `shard`, it gets that of this process.
        rank: Which process of a distributed run this is; unless given, what `torch.distributed` says now,
            if it is initialised.
        world_size: Of how many.
        tensors: False leaves the arrays of numpy.

    Raises:
        TypeError: What is no loader.
        ValueError: A loader with a shard of its own, and another rank; or one without the other.
        MissingDependencyError: PyTorch is not installed.
    """

    def __init__(
        self, loader: Loader, rank: int | None = None, world_size: int | None = None, *, tensors: bool = True
    ) -> None:
        check_loader(loader)
        self._adopt()
        self.loader = _on_this_rank(loader, rank, world_size)
        self.tensors = tensors
        # In shared memory, as workers that stay for several epochs are to see it change.
        self._epoch = import_torch().full((), -1).share_memory_()

    @classmethod
    def _adopt(cls) -> None:
        # Registered, not derived: the class is there, with its documentation, before PyTorch is imported.
        import_torch().utils.data.IterableDataset.register(cls)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterators give this one epoch, from its beginning."""
        self._epoch.fill_(at_least('epoch', epoch, 0))

    def __iter__(self) -> Iterator[Any]:
        info = import_torch().utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        epoch = int(self._epoch)
        loader = self.loader
        if info is not None:
            loader = copy.copy(loader)
            loader.workers = 0
        kind = Tensors if self.tensors else Turn
        return kind(loader, worker, workers, None if epoch < 0 else epoch)

    def __len__(self) -> int:
        """Returns the number of batches on this rank, from the first epoch on.

        Raises:
            TypeError: There is no end.
        """
        if int(self._epoch) >= 0:
            return len(self.loader)
        if self.loader.epochs is None:
            raise TypeError('the loader has no end: give it epochs, or call set_epoch')
        return self.loader.epochs * len(self.loader)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._adopt()
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f'bags.torch.IterableDataset({self.loader!r})'


class Tensors(Turn):
    """Batches as tensors."""

    def __next__(self) -> Any:
        return to_torch(super().__next__())


def _on_this_rank(loader: Loader, rank: int | None, world_size: int | None) -> Loader:
    if (rank is None) != (world_size is None):
        raise ValueError(f'expected rank and world_size, got {rank} and {world_size}')
    if rank is None or world_size is None:
        distributed = import_torch().distributed
        if loader.shard != (0, 1) or not (distributed.is_available() and distributed.is_initialized()):
            return loader
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    elif loader.shard not in ((0, 1), (rank, world_size)):
        raise ValueError(
            f'expected a loader without a shard, or of ({rank}, {world_size}), got {loader.shard}'
        )
    return loader.on_shard(rank, world_size)


def share(torch: Any, array: np.ndarray[Any, Any], where: str) -> Any:
    """Returns a tensor over the memory of an array, or of a copy where PyTorch cannot share it."""
    dtype = array.dtype
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder('='))
    elif not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        if dtype.name in VIEWED:
            return torch.from_numpy(array.view(VIEWED[dtype.name])).view(getattr(torch, dtype.name))
        return torch.from_numpy(array)
    except TypeError as exc:
        field = f'field {where!r}' if where else 'the array'
        raise TypeError(
            f'{field}: PyTorch has no dtype for {dtype}; leave the field out, or convert it before'
        ) from exc


def import_torch() -> Any:
    """Imports PyTorch, or says how to install it."""
    try:
        import torch
    except ImportError as exc:
        raise MissingDependencyError('torch', 'torch') from exc
    return torch
