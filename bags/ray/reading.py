"""Reading a dataset into Ray Data, in blocks of about equal bytes."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any, Unpack, cast

import numpy as np
import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.options import OpenOptions
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.selection import Fields, select_whole
from bags.indexing import split_by_bytes
from bags.ray.columns import to_table
from bags.storage import store_for
from bags.storage.urls import plain_path
from bags.validation import reject_unknown_options

TASK_READ_BYTES = 1 << 24
"""Approximate bytes on disk that a task reads at a time. Ray divides the data into blocks."""
SIZE_SAMPLES = 16


def read(
    dataset: str | os.PathLike[str] | Dataset,
    fields: Fields = None,
    *,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    **options: Unpack[OpenOptions],
) -> ray.data.Dataset:
    """Returns a dataset as a `ray.data.Dataset`, whose columns are the fields.

    Tasks read about equal bytes, and only the bags of the fields selected here or by `select_columns`.
    Numbers and texts become Arrow columns, sequences become lists, arrays of one shape tensors, missing
    values nulls, and trees Python objects. Images, video and audio remain encoded bytes: `bags.decoders`,
    `bags.Video` and `bags.Audio` read them, and `write` stores them unchanged.

    Args:
        dataset: A path or URL, or an open dataset or view. All nodes of a cluster must have access to its
            files.
        fields: A name or names. Default: all fields.
        override_num_blocks, concurrency: As in `ray.data.read_datasource`: the number of tasks, and of
            concurrent tasks.
        **options: As in `bags.open`, for a path; not `raw`.

    Raises:
        FileNotFoundError, SpecError, CorruptError: As `bags.open`.
        KeyError: A field does not exist.
        TypeError: Items of a sequence are selected, or options are given for an open dataset.

    Examples:
        >>> data = bags.ray.read('dataset', ('id', 'text'))
        >>> data.count()
        100
    """
    reject_unknown_options(options, OpenOptions.__annotations__, read)
    if 'raw' in options:
        raise TypeError("unexpected option 'raw': columns have values, and media as the bytes of their files")
    dataset = plain_path(dataset)
    if isinstance(dataset, str | os.PathLike):
        store, path = store_for(dataset, options.get('filesystem'), options.get('storage_options'))
        # Workers may have a different working directory.
        opened = open_dataset(dataset if store.is_remote else os.path.abspath(path), **options)
    else:
        check_dataset('dataset', dataset)
        if options:
            raise TypeError(f'bags.ray.read: {next(iter(options))} has no effect on a dataset that is open')
        opened = dataset
    names = tuple(select_whole(fields, opened.schema, 'bags.ray.read'))
    ray_dataset = ray.data.read_datasource(
        BagsDatasource(opened, names), override_num_blocks=override_num_blocks, concurrency=concurrency
    )
    return cast('ray.data.Dataset', ray_dataset)


class BagsDatasource(Datasource):  # type: ignore[misc]
    """A dataset as a source of blocks."""

    def __init__(self, dataset: Dataset, fields: tuple[str, ...]) -> None:
        super().__init__()
        self._dataset, self._all_fields = dataset, fields
        self._projection_map: dict[str, str] | None = None
        """The columns of `select_columns`; set by Ray."""
        self._samples: dict[tuple[str, ...], tuple[int, pa.Schema]] = {}

    @property
    def _fields(self) -> tuple[str, ...]:
        return self._all_fields if self._projection_map is None else tuple(self._projection_map)

    def supports_projection_pushdown(self) -> bool:
        return True

    def get_name(self) -> str:
        return 'Bags'

    def estimate_inmemory_data_size(self) -> int:
        return self._sample(self._fields)[0]

    def _sample(self, fields: tuple[str, ...]) -> tuple[int, pa.Schema]:
        """Returns the size of all datapoints in blocks, estimated from a few datapoints, and the schema."""
        if fields not in self._samples:
            length = len(self._dataset)
            indices = np.unique(np.linspace(0, max(0, length - 1), SIZE_SAMPLES).astype(np.int64))[:length]
            table = to_table(self._dataset, indices, fields)
            self._samples[fields] = table.nbytes * length // max(1, len(indices)), table.schema
        return self._samples[fields]

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        fields, dataset = self._fields, self._dataset
        (size, schema), shared = self._sample(fields), ray.put(dataset)
        before = functools.partial(dataset.bytes_before, fields=fields)
        length = len(dataset)
        total = max(1, before(length))
        tasks = []
        parts = split_by_bytes(0, length, -(-total // max(1, parallelism)), before)
        for start, stop, part in parts if length else [(0, 0, 0)]:
            metadata = BlockMetadata(stop - start, size * part // total, input_files=None, exec_stats=None)
            function = functools.partial(_read, shared, fields, start, stop)
            limit = {} if per_task_row_limit is None else {'per_task_row_limit': per_task_row_limit}
            tasks.append(ReadTask(function, metadata, schema, **limit))
        return tasks


def _read(shared: Any, fields: tuple[str, ...], start: int, stop: int) -> Iterator[pa.Table]:
    dataset: Dataset = ray.get(shared)
    before = functools.partial(dataset.bytes_before, fields=fields)
    for first, last, _ in split_by_bytes(start, stop, TASK_READ_BYTES, before) if stop else [(0, 0, 0)]:
        yield to_table(dataset, np.arange(first, last), fields)
