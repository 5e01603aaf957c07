"""`bags.export`: writes a dataset as WebDataset tars or as a folder of files."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from bags.dataset.base import Dataset, check_dataset
from bags.dataset.columns import read_column
from bags.dataset.open import open_with_known_decoders
from bags.dataset.selection import Fields, select_whole
from bags.formats.signatures import EXTENSIONS, HEAD, identify
from bags.indexing import Int64s
from bags.interop.extensions import KEY, WRITTEN_EXTENSIONS, extension_of, type_of
from bags.interop.targets import Files, Tars
from bags.progress import progress as show_progress
from bags.validation import at_least, at_least_or_none, one_of

__all__ = ['export']

NUMBERS = ('int', 'uint', 'float', 'bool', 'i64', 'u64')
BATCH_BYTES = 1 << 24
"""Bytes that are read at a time, about."""
MAX_BATCH = 4096
MAX_BATCH_OF_UNKNOWN_SIZE = 64

File = tuple[str, bytes]
"""What follows the key in the name of a file, and its content."""


def export(
    dataset: Any,
    target: str | os.PathLike[str],
    *,
    format: Literal['webdataset', 'files'] = 'webdataset',
    fields: Fields = None,
    shard_size: int = 1 << 30,
    shard_length: int | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes the datapoints of a dataset as files, their records unchanged.

    File names are the field `__key__`, or the index of the datapoint, then the field, then an extension that
    fits the type. Numbers become text, arrays `.npy`. Missing values have no file. An export that fails
    removes what it wrote.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        target: A folder, which must be new or empty: path or URL.
        format: 'webdataset' for tars `000000.tar`, …, or 'files' for a folder of files.
        fields: Which fields; all unless given.
        shard_size, shard_length: Bytes and datapoints from which on a tar is full.
        progress: Show a bar: True, False, or None for on terminals.
        storage_options: As in `bags.open`, for a URL.

    Returns:
        The number of files that were written.

    Raises:
        FileExistsError: The target is not empty.
        ValueError: A key that is no valid file name, or the key of two datapoints (in tars: in a row).
    """
    if isinstance(dataset, str | os.PathLike):
        with open_with_known_decoders(dataset) as opened:
            return export(
                opened, target, format=format, fields=fields, shard_size=shard_size,
                shard_length=shard_length, progress=progress, storage_options=storage_options,
            )  # fmt: skip
    check_dataset('export', dataset)
    one_of('format', format, ('webdataset', 'files'))
    shard_size = at_least('shard_size', shard_size, 1)
    shard_length = at_least_or_none('shard_length', shard_length, 1)
    names = [
        name
        for name in select_whole(fields, dataset._types, 'export')
        if name not in (KEY, WRITTEN_EXTENSIONS)
    ]
    import fsspec

    fs, root = fsspec.core.url_to_fs(os.fspath(target), **(storage_options or {}))
    if fs.exists(root) and fs.ls(root):
        raise FileExistsError(errno.EEXIST, 'something is there already', os.fspath(target))
    fs.makedirs(root, exist_ok=True)
    is_tars = format == 'webdataset'
    out: Files | Tars = Tars(fs, root, shard_size, shard_length) if is_tars else Files(fs, root)
    count, previous, is_complete = 0, None, False
    try:
        with show_progress('exporting', len(dataset), 'datapoints', show=progress) as advance:
            for key, files, are_named in _samples(dataset, names):
                if key == previous:
                    raise ValueError(
                        f'{KEY}: expected another key for each datapoint, got {key!r} twice in a row'
                    )
                previous = key
                out.add(key, files, are_named)
                count += len(files)
                advance(1, _size(files))
        out.close(True)
        is_complete = True
    except OSError as exc:
        if exc.filename is None and exc.errno is not None:
            exc.filename = os.fspath(target)
        raise
    finally:
        if not is_complete:
            out.close(False)
    return count


def _size(files: list[File]) -> int:
    return sum(len(data) for _, data in files)


def _samples(dataset: Dataset, fields: list[str]) -> Iterator[tuple[str, list[File], bool]]:
    """Yields each datapoint's key, its files, and whether these have their original names."""
    start, step = 0, 1
    while start < len(dataset):
        indices = np.arange(start, _stop(dataset, start, step))
        columns = {name: _column(dataset, name, indices) for name in fields}
        keys: list[Any] = [f'{index:09}' for index in indices.tolist()]
        if KEY in dataset._types:
            keys = list(dataset._read(indices, {KEY: True}, read_column)[KEY])
        extensions: list[Any] = [None] * len(indices)
        if WRITTEN_EXTENSIONS in dataset._types:
            extensions = list(
                dataset._read(indices, {WRITTEN_EXTENSIONS: True}, read_column)[WRITTEN_EXTENSIONS]
            )
        size = 0
        for position, key in enumerate(keys):
            original = extensions[position] or {}
            files = [
                (original.get(field, name), data)
                for field, column in columns.items()
                for name, data in column[position]
            ]
            if 'label' in dataset._types:
                # The label of a class folder is the first part of the key already.
                label = 'label.txt', key.split('/')[0].encode()
                files = [file for file in files if file != label]
            size += _size(files)
            yield key, sorted(files), bool(original)
        start += len(indices)
        step = min(2 * step, MAX_BATCH) if size < BATCH_BYTES else max(1, step // 2)


def _stop(dataset: Dataset, start: int, step: int) -> int:
    """Returns the end of a batch of at most `step` datapoints, limited by bytes where these are known."""
    bytes_before = getattr(dataset, '_bytes_before', None)
    if bytes_before is None:
        return min(start + min(step, MAX_BATCH_OF_UNKNOWN_SIZE), len(dataset))
    stop, first = min(start + step, len(dataset)), bytes_before(start)
    while stop - start > 1 and bytes_before(stop) - first > BATCH_BYTES:
        stop = (start + stop) // 2
    return stop


def _column(dataset: Dataset, field: str, indices: Int64s) -> list[list[File]]:
    """Returns the files of a field, for each datapoint."""
    kind = dataset._types[field]
    name = extension_of(field, kind.word)
    # Of video and audio, only the content tells the format, unless the field is named after it.
    is_media = kind.word in ('video', 'audio') and type_of(name) != kind.word

    def file(name: str, data: bytes) -> File:
        extension = EXTENSIONS.get(identify(data[:HEAD])) if is_media else None
        if kind.word == 'audio' and extension in ('mp4', 'mov'):
            extension = 'm4a'
        return f'{name}.{extension}' if extension else name, data

    if not kind.sequence:
        contents = _contents(dataset, field, indices, None)
        return [[] if data is None else [file(name, data)] for data in contents]
    # `frames` of jpeg is frames.000003.jpg, `jpg` is 000003.jpg; video and audio get their extension later.
    stem, dot, extension = (name, '.', '') if is_media else (name or field).rpartition('.')
    ending = f'.{extension}' if extension else ''
    counts = dataset._lengths(indices, field)
    rows = np.repeat(indices, counts)
    items = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = iter(_contents(dataset, field, rows, items))
    return [
        [file(f'{stem}{dot}{item:06}{ending}', next(found) or b'') for item in range(count)]
        for count in counts.tolist()
    ]


def _contents(dataset: Dataset, field: str, rows: Int64s, items: Int64s | None) -> list[bytes | None]:
    """Returns contents of files: records, or of some items of a sequence."""
    word = dataset._types[field].word
    if word not in NUMBERS and word != 'array':
        return dataset._records(rows, field, items)
    if items is None:
        values: Any = dataset._read(rows, {field: True}, read_column)[field]
    else:
        values = [
            dataset._row(row, {field: [item]})[field][0]
            for row, item in zip(rows.tolist(), items.tolist(), strict=True)
        ]
    return [None if value is None else _as_file(value, word) for value in values]


def _as_file(value: Any, word: str) -> bytes:
    if word == 'array':
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()
    return str(value.item() if isinstance(value, np.generic) else value).encode()
