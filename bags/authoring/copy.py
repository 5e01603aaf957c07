"""`bags.copy`: writes a dataset or a view as a new dataset, without decoding records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

from bags.authoring.save import NO_LINKS, save
from bags.dataset.base import check_dataset
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.open import open as open_dataset
from bags.dataset.reader import DatasetReader
from bags.dataset.reading.selection import Fields
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.progress.source_options import advise_source_options
from bags.progress.write_result import WriteResult
from bags.storage.urls import plain_path
from bags.validation import merge
from bags.views.computed_fields import AddedFields


def copy(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    fields: Fields = None,
    add: AddedFields | None = None,
    batch_size: int = 256,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
    check_source: bool = True,
    progress: bool | None = None,
    workers: int | None = None,
    source_options: Mapping[str, Any] | None = None,
    partial: bool = False,
    **options: Unpack[WriteOptions],
) -> WriteResult:
    """Copies a dataset or a view of one to a new dataset, which needs no other files.

    Records are copied without decoding, and recompressed only if the copy has a different compression.
    Records shared by consecutive datapoints are shared in the copy too; others are copied for each datapoint.
    `dataset.save` writes links to large records instead of copying them.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        path: The folder of the copy: str, path or URL.
        fields: Names of the fields to copy. Default: all fields.
        add: New fields: their type, and a function from a batch to the values of its datapoints, an array or
            a list. The batch is a mapping of the dataset's fields to columns; each column is read on first
            use. An existing field of the same name is replaced. Functions are called by one thread at a
            time. An image, video or recording that a function returns unchanged keeps its bytes, if the
            types match.
        batch_size: Maximum number of datapoints in a batch for the functions of `add`.
        encoders: Encoders of the new fields. Default: `bags.encoders`.
        on_error: 'raise', or 'skip' to leave out unreadable datapoints and list them in the result. 'skip' is
            slower, because it decompresses all compressed records.
        check_source: With `resume`, raise if the dataset has changed since the earlier run. False continues
            after the last copied datapoint.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook.
        workers: Number of threads that read ahead. Default: the number of processors.
        source_options: Like `storage_options`, but for the source dataset, if it is a URL.
        partial: Whether partial datapoints, as of `reopen(partial=True)`, are copied too, as far as the
            dataset has them. A dataset at a path is opened with them.
        **options: As in `ShardedDatasetWriter`, for the copy. `compression`: by default, each field keeps its
            compression. A level other than 3 recompresses fields that are already compressed. `checksum`: by
            default, the copy has checksums if the dataset has checksums. Records are then read into memory
            and compared with the checksums of the dataset. `metadata`: by default, the metadata of the
            dataset. `resume=True` resumes an earlier run, if there was one, after its last datapoint.
            `mode='overwrite'` may overwrite the source.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is not set.
        KeyError: No such field.
        CorruptError: A record cannot be read. `resume` continues after the datapoints before it.
        ValueError: With `resume`, the folder is not a copy of this dataset, or the dataset has changed. Or it
            has partial datapoints, without `partial`.

    Examples:
        >>> done = bags.copy(dataset.select([0, 2]), 'some', fields=('id', 'task'))
        >>> done.datapoints, bags.open('some').column('id')
        (2, array([0, 2]))
    """
    settings = merge(WriterSettings, None, options, function=copy)
    settings.refuse_links(NO_LINKS)
    dataset = plain_path(dataset)
    source = dataset
    if isinstance(dataset, str | os.PathLike):
        with advise_source_options('copy', [dataset], path, settings.storage_options, source_options):
            source = open_dataset(dataset, raw=not add, storage_options=source_options)
            if partial and isinstance(source, DatasetReader | ShardedDatasetReader):
                source = source.reopen(partial=True)
    elif source_options:
        raise ValueError('source_options: have no effect for a dataset that is open already')
    check_dataset('copy', source)
    return save(
        source, path, fields, add, batch_size, encoders, False, None, on_error, check_source, progress,
        workers, options, partial,
    )  # fmt: skip
