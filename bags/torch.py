"""PyTorch: columns as tensors that share their memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.batch import Ragged, convert
from bags.errors import MissingDependencyError

__all__ = ['to_torch']

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
        if pin and tensor.device.type == 'cpu':
            tensor = tensor.pin_memory()
        return tensor if device is None else tensor.to(device, non_blocking=non_blocking)

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
