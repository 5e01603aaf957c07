"""JAX: columns as arrays on devices, copied ahead of use."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from bags.dataset.reading.batch import Ragged, convert
from bags.validation import at_least, import_optional

if TYPE_CHECKING:
    import jax

    Placement: TypeAlias = jax.Device | jax.sharding.Sharding

__all__ = ['Prefetch', 'device_put', 'prefetch']


def device_put(batch: Any, sharding: Placement | None = None) -> Any:
    """Converts the arrays of a batch to JAX arrays.

    The copies to the device are asynchronous. On the CPU, JAX may share the memory of an array: do not write
    to the array afterwards. Strings, bytes, lists of numbers and other values are unchanged. A `Ragged` stays
    a `Ragged`, with JAX arrays for `values`, `offsets` and `present`; it is a pytree, which jitted functions
    accept.

    Args:
        batch: A dict of columns. Lists, tuples and dicts inside it are converted too.
        sharding: A device or a sharding. Default: the default device of JAX. If it spans the devices of
            several hosts, the batch is this host's part of the global batch.

    Raises:
        OverflowError: Integers do not fit the 32 bits that JAX uses without `jax_enable_x64`.
        TypeError: JAX lacks the dtype, or a `Ragged` would be divided over devices: `pad` or `pack` it first.
        MissingDependencyError: JAX is not installed.

    Examples:
        >>> import bags.jax
        >>> bags.jax.device_put(dataset.batch([0, 1], ('id', 'label')))['label']
        Array([0, 1], dtype=int8)
    """
    jax = import_jax()
    wide = bool(jax.config.jax_enable_x64)
    if sharding is None or getattr(sharding, 'is_fully_addressable', True):
        put = functools.partial(jax.device_put, device=sharding)
    else:
        put = functools.partial(jax.make_array_from_process_local_data, sharding)

    def leaf(value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray):
            return put(_supported(value, where, wide))
        if isinstance(value, Ragged):
            if not getattr(sharding, 'is_fully_replicated', True):
                raise TypeError(
                    f'field {where!r}: sequences of different lengths cannot be divided over devices'
                )
            return Ragged(leaf(value.values, where), leaf(value.offsets, where), leaf(value.present, where))
        return put(value) if isinstance(value, jax.Array) else value

    return convert(batch, leaf)


def _supported(array: np.ndarray[Any, Any], where: str, wide: bool) -> np.ndarray[Any, Any]:
    """Returns an array that JAX stores without loss; JAX itself would truncate 64-bit integers silently."""
    dtype = array.dtype
    field = f'field {where!r}' if where else 'the array'
    if dtype.kind not in 'biufcV' or dtype.names or dtype.char in 'gG':  # g: long doubles
        raise TypeError(f'{field}: JAX has no dtype for {dtype}; leave the field out, or convert it before')
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder('='))
    if not wide and dtype.kind in 'iu' and dtype.itemsize == 8 and array.size:
        limits = np.iinfo('i4' if dtype.kind == 'i' else 'u4')
        least, most = array.min(), array.max()
        if least < limits.min or most > limits.max:
            number = least if least < limits.min else most
            raise OverflowError(
                f'{field}: {number} does not fit the {limits.dtype} that JAX makes of {dtype}; '
                'see jax_enable_x64, or convert it before'
            )
    return array


def prefetch(batches: Iterable[Any], size: int = 2, sharding: Placement | None = None) -> Prefetch:
    """Iterates over batches on devices, and copies the next ones to the devices ahead.

    Args:
        batches: A `bags.Loader`, a dataset of Grain, or any iterable of batches.
        size: Number of batches to copy ahead.
        sharding: As for `device_put`.

    Returns:
        An iterator. Its `get_state` and `set_state` call the iterator of `batches`, after the last
        delivered batch: batches copied ahead do not count.

    Examples:
        >>> import bags.jax
        >>> loader = bags.Loader(dataset, 4, fields='label', seed=0)
        >>> len(list(bags.jax.prefetch(loader)))
        2
    """
    if not isinstance(batches, Iterable):
        raise TypeError(f'batches: expected a Loader or another iterable, got {batches!r:.200}')
    return Prefetch(iter(batches), at_least('size', size, 0), sharding)


class Prefetch(Iterator[Any]):
    """Batches on devices, returned by `prefetch`.

    Examples:
        >>> type(bags.jax.prefetch(bags.Loader(dataset, 4, fields='label'))).__name__
        'Prefetch'
    """

    def __init__(self, source: Iterator[Any], size: int, sharding: Placement | None) -> None:
        self._source = source
        self._size = size
        self._sharding = sharding
        self._ahead: collections.deque[tuple[Any, Any]] = collections.deque()
        self._stateful = hasattr(source, 'get_state')
        self._state = copy.deepcopy(self._source_state())

    def _source_state(self) -> Any:
        return self._source.get_state() if self._stateful else None  # type: ignore[attr-defined]

    def __next__(self) -> Any:
        while len(self._ahead) <= self._size:
            try:
                batch = next(self._source)
            except StopIteration:
                break
            self._ahead.append((device_put(batch, self._sharding), copy.deepcopy(self._source_state())))
        if not self._ahead:
            raise StopIteration
        batch, self._state = self._ahead.popleft()
        return batch

    def __iter__(self) -> Self:
        return self

    def get_state(self) -> Any:
        """Returns the state of the iterator of `batches` after the last delivered batch."""
        self._expect_state()
        return copy.deepcopy(self._state)

    def set_state(self, state: Any) -> None:
        """Resumes from a state."""
        self._expect_state()
        self._ahead.clear()
        self._source.set_state(state)  # type: ignore[attr-defined]
        self._state = copy.deepcopy(state)

    def _expect_state(self) -> None:
        if not self._stateful:
            name = type(self._source).__name__
            raise TypeError(f'{name} has no get_state and set_state: give a Loader, or a dataset of Grain')


@functools.cache
def import_jax() -> Any:
    """Imports JAX, and registers `Ragged` as a pytree.

    Raises:
        MissingDependencyError: JAX is not installed; says how to install it.
    """
    jax = import_optional('jax')
    jax.tree_util.register_pytree_node(
        Ragged,
        lambda ragged: ((ragged.values, ragged.offsets, ragged.present), None),
        lambda _, parts: Ragged(*parts),
    )
    return jax
