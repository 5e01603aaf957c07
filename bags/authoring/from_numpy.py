"""`bags.from_numpy`: writes arrays of any size, in memory or in files, in blocks."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.open import open as open_dataset
from bags.dataset.writing.field_writer import RecordRun
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import SpecError
from bags.formats.arrays import array_text, is_small_float, type_text
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog
from bags.progress.write_result import WriteResult
from bags.validation import merge

WRITTEN_BLOCK_BYTES = 1 << 23  # Bytes written at a time.
SAMPLED_TEXTS = 1000
"""Number of texts whose lengths estimate the size of a row."""


def from_numpy(
    arrays: Any,
    path: str | os.PathLike[str],
    *,
    check_source: bool = True,
    progress: bool | None = None,
    **options: Unpack[WriteOptions],
) -> WriteResult:
    """Writes arrays of one length to a new dataset: datapoint i has the elements at index i of each array.

    Arrays in files take little memory, whatever their size.

    Args:
        arrays: A mapping of field names to arrays, or to paths of `.npy` files, which are mapped into memory;
            or a table of pandas, polars or Arrow. Anything with a shape, a dtype and slices is an array. A
            single array becomes the field `data`.
        path: The folder of the dataset: str, path or URL.
        check_source: With `resume`, compare the datapoints already written with the arrays.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook.
        **options: As in `ShardedDatasetWriter`. `resume=True` resumes an earlier run, if there was one, with
            the same arrays.

    Raises:
        SpecError: An array has no dimension, or a dtype that fields do not support. An array of objects is
            supported if it has one dimension and all are str.
        ValueError: Arrays differ in length, or a file does not hold a single array; with `resume`, the
            dataset was made from another source.
        FileExistsError: The folder is not empty, and `resume` is not set.

    Examples:
        >>> done = bags.from_numpy({'x': np.eye(3, dtype=np.float32), 'y': np.arange(3)}, 'arrays')
        >>> bags.open('arrays')[1]
        {'x': array([0., 1., 0.], dtype=float32), 'y': 1}
    """
    settings = merge(WriterSettings, None, options, function=from_numpy)
    settings.refuse_links('from_numpy copies all records')
    shard_length: int | None = settings.shard_length
    fields = {name: _open(name, array) for name, array in _columns(arrays).items()}
    lengths = {name: int(array.shape[0]) for name, array in fields.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f'arrays: expected one length, got {lengths}')
    length = next(iter(lengths.values()), 0)
    spec = {name: _type_of(name, array) for name, array in fields.items()}
    row_size = sum(_row_size(array) for array in fields.values())
    block = max(1, min(WRITTEN_BLOCK_BYTES, settings.shard_size or WRITTEN_BLOCK_BYTES) // max(1, row_size))
    with (
        ShardedDatasetWriter(path, spec, **options) as writer,
        show_progress('writing', length - len(writer), 'datapoints', show=progress) as advance,
    ):
        ProgressLog(writer, {'kind': 'arrays', 'length': length, 'fields': spec}, settings.resume)
        start = len(writer)
        if start and check_source:
            with open_dataset(writer.path, **settings.storage) as written:
                _expect_equal(written, fields, start, block)
        while start < length:
            stop = min(start + block, length)
            if shard_length is not None:
                stop = min(stop, start + shard_length - start % shard_length)
            count = stop - start
            runs = {name: [_run(array, start, stop)] for name, array in fields.items()}
            writer.append_runs(runs, dict.fromkeys(fields, np.arange(count)))
            del runs
            for array in fields.values():
                _release_pages(array)
            advance(count, count * row_size)
            start = stop
    return WriteResult(length, writer.shards, writer.size, writer.spec)


def _expect_equal(written: Dataset, fields: Mapping[str, Any], length: int, block: int) -> None:
    """Compares the first datapoints of a dataset with arrays, byte by byte.

    Raises:
        ValueError: They differ.
    """
    for start in range(0, length, block):
        rows = range(start, min(start + block, length))
        for name, array in fields.items():
            old, new = written.batch(rows, name)[name], array[rows.start : rows.stop]
            if _has_texts(array):
                differ = np.array([text != other for text, other in zip(old, new, strict=True)])
            else:
                old = np.ascontiguousarray(old)
                pair = [
                    np.ascontiguousarray(part, old.dtype).reshape(-1).view(np.uint8).reshape(len(rows), -1)
                    for part in (old, new)
                ]
                differ = (pair[0] != pair[1]).any(1)
                del pair
            if differ.any():
                raise ValueError(
                    f'{name}: resume: the array has changed since the earlier run, at datapoint '
                    f'{start + int(differ.argmax())}: datapoints of both would be mixed '
                    '(check_source=False resumes anyway)'
                )
        del old, new
        for array in fields.values():
            _release_pages(array)


def _columns(arrays: Any) -> Mapping[str, Any]:
    """Returns arrays by name: the items of a mapping, the columns of a table, or a single array as `data`."""
    if isinstance(arrays, Mapping):
        return arrays
    # Arrow has `column_names`, other libraries have `columns`.
    names = getattr(arrays, 'column_names', None) or getattr(arrays, 'columns', None)
    return {'data': arrays} if names is None else {name: arrays[name] for name in names}


def _open(name: str, array: Any) -> Any:
    if isinstance(array, str | os.PathLike):
        try:
            loaded = np.load(array, mmap_mode='r', allow_pickle=False)
        except (ValueError, EOFError) as exc:
            expected = 'expected a .npy file with an array of a dtype that needs no pickle'
            raise ValueError(f'{os.fspath(array)}: {expected} ({exc})') from exc
        if not isinstance(loaded, np.ndarray):
            loaded.close()
            raise ValueError(f'{os.fspath(array)}: expected a .npy file, got an archive of several arrays')
        array = loaded
    elif hasattr(array, 'iloc'):  # Slices of a pandas Series may refer to labels.
        array = array.to_numpy()
    elif not (hasattr(array, 'shape') and hasattr(array, '__getitem__') and _has_dtype(array)):
        array = np.asarray(array)
        array = array.astype(object) if array.dtype.kind == 'U' and array.ndim == 1 else array
    if np.ma.is_masked(array):
        raise SpecError(name, 'an array without masked elements', 'masked elements')
    if not array.shape:
        raise SpecError(name, 'an array with at least one dimension', 'a single value')
    if _has_texts(array):
        for index, text in enumerate(array):
            if not isinstance(text, str):
                expected = f'an array of numbers, or of texts without missing values as in row {index}'
                raise SpecError(name, expected, f'{text!r:.80}')
    return array


def _has_texts(array: Any) -> bool:
    """Returns whether the elements of an array are texts of any length, as in the column of a table."""
    return np.dtype(array.dtype).kind in 'OT' and len(array.shape) == 1


def _has_dtype(array: Any) -> bool:
    """Returns whether an array has a NumPy dtype: tensors and table columns may have other dtypes."""
    try:
        np.dtype(array.dtype)
    except (AttributeError, TypeError):
        return False
    return True


def _type_of(name: str, array: Any) -> str:
    """Returns the type of the elements along the first dimension of an array."""
    if _has_texts(array):
        return 'utf8'
    dtype = np.dtype(array.dtype)
    if not (dtype.kind in 'biufcmMSU' or is_small_float(dtype)) or not dtype.itemsize:
        raise SpecError(name, 'an array of bool, numbers, times or strings of a fixed size', str(dtype))
    is_half = dtype == np.float16  # Its values stay scalars of NumPy.
    return (array_text if is_half else type_text)(dtype, array.shape[1:])


def _row_size(array: Any) -> int:
    if _has_texts(array):  # An estimate.
        some = array[:: max(1, len(array) // SAMPLED_TEXTS)]
        return sum(map(len, some)) // max(1, len(some)) + 1
    return int(np.dtype(array.dtype).itemsize * math.prod(array.shape[1:]))


def _run(array: Any, start: int, stop: int) -> RecordRun:
    if _has_texts(array):
        texts = [text.encode() for text in array[start:stop]]
        return RecordRun([b''.join(texts)], np.fromiter(map(len, texts), np.int64, len(texts)), False)
    # Little-endian and contiguous: for most arrays, a view.
    dtype = np.dtype(array.dtype).newbyteorder('<')
    block = np.ascontiguousarray(array[start:stop], dtype)
    data = block.reshape(-1).view(np.uint8) if block.nbytes else b''
    return RecordRun([data], np.full(stop - start, _row_size(array), np.int64), False)


def _release_pages(array: Any) -> None:
    """Drops the pages read from a mapped file, which would count as memory of this process."""
    mapped = array
    while isinstance(mapped, np.ndarray):
        mapped = mapped.base
    # Not for a private mapping, whose changes exist only in these pages.
    if isinstance(mapped, mmap.mmap) and getattr(array, 'mode', None) == 'r' and hasattr(mapped, 'madvise'):
        mapped.madvise(mmap.MADV_DONTNEED)
