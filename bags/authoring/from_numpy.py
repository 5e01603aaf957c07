"""Arrays of any size, in memory or in files, as a dataset: written in blocks, at the speed of the disk."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.authoring.progress_log import open_progress_log
from bags.dataset.compression import Compression
from bags.dataset.field_writer import Run
from bags.dataset.sharded_writer import GB, ShardedDatasetWriter
from bags.errors import SpecError
from bags.progress import progress
from bags.validation import at_least_or_none

__all__ = ['from_numpy']

BLOCK = 1 << 23  # Bytes that are written at a time.


def from_numpy(
    arrays: Any,
    directory: str | os.PathLike[str],
    *,
    shard_size: int | None = 10 * GB,
    shard_length: int | None = None,
    compression: Compression = None,
    resume: bool = False,
    show: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes arrays to a new dataset: what is at index i of each of them is datapoint i.

    Memory stays the same however large they are, if they are not in it already.

    Args:
        arrays: A mapping of field names to arrays of one length, or to paths of `.npy` files, which are
            mapped. Anything with a shape, a dtype and slices will do. A single one becomes the field `data`.
        directory: The dataset, of shard folders.
        shard_size, shard_length, compression, filesystem, storage_options: As for `ShardedDatasetWriter`.
        resume: Go on with what was interrupted, with the same arrays.
        show: A bar of progress; unless given, if standard error is a terminal.

    Returns:
        The number of datapoints.

    Raises:
        SpecError: An array that has no length, or of a dtype that no field can have.
        ValueError: Arrays of different lengths, or a file that holds no array; with `resume`, what is there
            is made from something else.
        FileExistsError: Something is there, and `resume` is not set.
    """
    shard_size = at_least_or_none('shard_size', shard_size, 1)
    shard_length = at_least_or_none('shard_length', shard_length, 1)
    fields = {
        name: _opened(name, array)
        for name, array in (arrays if isinstance(arrays, Mapping) else {'data': arrays}).items()
    }
    lengths = {name: int(array.shape[0]) for name, array in fields.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f'arrays: expected one length, got {lengths}')
    length = next(iter(lengths.values()), 0)
    spec = {name: _type_of(name, array) for name, array in fields.items()}
    row = sum(_row_size(array) for array in fields.values())
    block = max(1, min(BLOCK, shard_size or BLOCK) // max(1, row))
    with (
        ShardedDatasetWriter(
            directory,
            spec,
            shard_size=shard_size,
            shard_length=shard_length,
            compression=compression,
            resume=resume,
            filesystem=filesystem,
            storage_options=storage_options,
        ) as writer,
        contextlib.ExitStack() as stack,
    ):
        open_progress_log(writer, {'kind': 'arrays', 'length': length, 'fields': spec}, resume)
        start = len(writer)
        advance = stack.enter_context(progress('writing', length - start, 'datapoints', show=show))
        while start < length:
            stop = min(start + block, length)
            if shard_length is not None:
                stop = min(stop, start + shard_length - start % shard_length)
            count = stop - start
            runs = {name: [_run(array, start, stop)] for name, array in fields.items()}
            writer.append_runs(runs, dict.fromkeys(fields, np.arange(count)))
            del runs
            for array in fields.values():
                _let_go(array)
            advance(count, count * row)
            start = stop
    return length


def _opened(name: str, array: Any) -> Any:
    if isinstance(array, str | os.PathLike):
        try:
            found = np.load(array, mmap_mode='r', allow_pickle=False)
        except (ValueError, EOFError) as exc:
            expected = 'expected a .npy file with an array of a dtype that needs no pickle'
            raise ValueError(f'{os.fspath(array)}: {expected} ({exc})') from exc
        if not isinstance(found, np.ndarray):
            found.close()
            raise ValueError(f'{os.fspath(array)}: expected a .npy file with one array, got one with several')
        array = found
    elif not all(hasattr(array, part) for part in ('shape', 'dtype', '__getitem__')):
        array = np.asarray(array)
    if not array.shape:
        raise SpecError(name, 'an array with a length', 'a single value')
    return array


def _type_of(name: str, array: Any) -> str:
    """Returns the type of what is at one index of an array."""
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or dtype.kind not in 'biufcSU' or not dtype.itemsize:
        expected = 'an array of bool, numbers or strings of a fixed size (times as a view of int64)'
        raise SpecError(name, expected, str(dtype))
    if (
        not array.shape[1:]
        and dtype.kind in 'biuf'
        and not (dtype.kind == 'f' and dtype.itemsize not in (4, 8))
    ):
        words = {'b': 'bool', 'i': f'int({dtype.itemsize})', 'u': f'uint({dtype.itemsize})'}
        return words.get(dtype.kind, f'float({dtype.itemsize})')
    text = dtype.str[1:] if dtype.kind in 'SU' else dtype.newbyteorder('=').name
    return f'array({",".join([text, *map(str, array.shape[1:])])})'


def _row_size(array: Any) -> int:
    return int(np.dtype(array.dtype).itemsize * math.prod(array.shape[1:]))


def _run(array: Any, start: int, stop: int) -> Run:
    # Little-endian, and one after the other: of most arrays a view.
    dtype = np.dtype(array.dtype).newbyteorder('<')
    block = np.ascontiguousarray(array[start:stop], dtype)
    data = block.reshape(-1).view(np.uint8) if block.nbytes else b''
    return Run([data], np.full(stop - start, _row_size(array), np.int64), False)


def _let_go(array: Any) -> None:
    """Has the system forget that pages of a mapped file were read, which else count as memory in use."""
    mapped = getattr(array, '_mmap', None)
    # Not of a map that is private: what was written to it is nowhere else.
    if isinstance(mapped, mmap.mmap) and getattr(array, 'mode', None) == 'r' and hasattr(mapped, 'madvise'):
        mapped.madvise(mmap.MADV_DONTNEED)
