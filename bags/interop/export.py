"""From a dataset to files that others read: WebDataset tars, or a folder."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bags.dataset.base import Dataset, check_dataset
from bags.dataset.columns import read_column
from bags.dataset.open import open_with_known_decoders
from bags.dataset.selection import Fields, select_whole
from bags.formats.signatures import HEAD, identify
from bags.interop.extensions import CONTAINERS, KEY, WRITTEN, extension_of, type_of
from bags.interop.targets import Files, Tars
from bags.progress import progress as show_progress
from bags.validation import at_least, at_least_or_none, one_of

__all__ = ['export']

TEXTS = ('int', 'uint', 'float', 'bool', 'i64', 'u64')
MOST = 1 << 24  # Bytes that are read together, about.


def export(
    dataset: Any,
    target: str | os.PathLike[str],
    *,
    format: str = 'webdataset',
    fields: Fields = None,
    shard_size: int = 1 << 30,
    shard_length: int | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes the datapoints of a dataset as files, their records untouched.

    Files are called by the field `__key__`, or by the number of the datapoint, then the field, then an
    extension that fits the type. Numbers become text, arrays `.npy`. Missing values have no file. An export
    that fails takes back what it wrote.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        target: A folder, which must be new or empty: path or URL.
        format: 'webdataset' for tars `000000.tar`, …, or 'files' for a folder of files.
        fields: Which; all unless given.
        shard_size, shard_length: Bytes and datapoints from which on a tar is full.
        progress: Show a bar; unless told, on a terminal.
        storage_options: Of the storage behind a URL.

    Returns:
        The number of files that were written.

    Raises:
        FileExistsError: Something is in the target.
        ValueError: A key that is no name for files, or that two datapoints have: in a row, for tars.
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
    chosen = [name for name in select_whole(fields, dataset._types, 'export') if name not in (KEY, WRITTEN)]
    import fsspec

    fs, root = fsspec.core.url_to_fs(os.fspath(target), **(storage_options or {}))
    if fs.exists(root) and fs.ls(root):
        raise FileExistsError(errno.EEXIST, 'something is there already', os.fspath(target))
    fs.makedirs(root, exist_ok=True)
    samples = _samples(dataset, chosen)
    out: Files | Tars = Files(fs, root)
    if format == 'webdataset':
        out = Tars(fs, root, shard_size, shard_length)
    count, before, complete = 0, None, False
    try:
        with show_progress('exporting', len(dataset), 'datapoints', show=progress) as advance:
            for key, files, are_named in samples:
                if key == before:
                    raise ValueError(
                        f'{KEY}: expected another key for each datapoint, got {key!r} twice in a row'
                    )
                before = key
                out.add(key, files, are_named)
                count += len(files)
                advance(1, sum(len(data) for _, data in files))
        out.close(True)
        complete = True
    except OSError as exc:
        if exc.filename is None and exc.errno is not None:
            exc.filename = os.fspath(target)
        raise
    finally:
        if not complete:
            out.close(False)
    return count


def _samples(dataset: Dataset, fields: list[str]) -> Iterator[tuple[str, list[tuple[str, bytes]], bool]]:
    """Yields each datapoint's key, its files, and if these have the names that were noted.

    Of each file it is what follows the key in its name, and its content.
    """
    start, step = 0, 1
    while start < len(dataset):
        indices = np.arange(start, _stop(dataset, start, step))
        columns = {name: _column(dataset, name, indices) for name in fields}
        keys: list[Any] = [f'{index:09}' for index in indices.tolist()]
        if KEY in dataset._types:
            keys = dataset._read(indices, {KEY: True}, read_column)[KEY]  # type: ignore[assignment]
        noted: list[Any] = [None] * len(indices)
        if WRITTEN in dataset._types:
            noted = list(dataset._read(indices, {WRITTEN: True}, read_column)[WRITTEN])
        size = 0
        for place, key in enumerate(keys):
            names = noted[place] or {}
            files = [
                (names.get(field, name), data)
                for field, column in columns.items()
                for name, data in column[place]
            ]
            if 'label' in dataset._types:
                # The label of a class folder is the first part of the key already.
                files = [
                    (name, data)
                    for name, data in files
                    if (name, data) != ('label.txt', key.split('/')[0].encode())
                ]
            size += sum(len(data) for _, data in files)
            yield key, sorted(files), bool(names)
        start += len(indices)
        step = min(2 * step, 4096) if size < MOST else max(1, step // 2)


def _stop(dataset: Dataset, start: int, step: int) -> int:
    """Returns the end of a run of at most `step` datapoints, few enough bytes where that is known."""
    before = getattr(dataset, 'bytes_before', None)
    if before is None:
        return min(start + min(step, 64), len(dataset))
    stop, first = min(start + step, len(dataset)), before(start)
    while stop - start > 1 and before(stop) - first > MOST:
        stop = (start + stop) // 2
    return stop


def _column(dataset: Dataset, field: str, indices: Any) -> list[list[tuple[str, bytes]]]:
    """Returns the files that a field becomes, for each datapoint."""
    kind = dataset._types[field]
    name = extension_of(field, kind.word)
    if kind.sequence:
        stem, dot, extension = (name or field).rpartition('.')
        counts = dataset._lengths(indices, field)
        rows = np.repeat(indices, counts)
        items = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = iter(_contents(dataset, field, rows, items))
        if _is_unnamed(name, kind.word):
            return [
                [_named(f'{name}.{item:06}', next(found) or b'', kind.word) for item in range(count)]
                for count in counts.tolist()
            ]
        return [
            [(f'{stem}{dot}{item:06}.{extension}', next(found) or b'') for item in range(count)]
            for count in counts.tolist()
        ]
    contents = _contents(dataset, field, indices, None)
    if _is_unnamed(name, kind.word):
        return [[] if data is None else [_named(name, data, kind.word)] for data in contents]
    return [[] if data is None else [(name, data)] for data in contents]


def _is_unnamed(name: str, word: str) -> bool:
    """Tells if the files of a field hold media of which neither its name nor its type says the format."""
    return word in ('video', 'audio') and type_of(name) != word


def _named(name: str, data: bytes, word: str) -> tuple[str, bytes]:
    extension = CONTAINERS.get(identify(data[:HEAD]))
    if word == 'audio' and extension in ('mp4', 'mov'):
        extension = 'm4a'
    return f'{name}.{extension}' if extension else name, data


def _contents(dataset: Dataset, field: str, rows: Any, items: Any) -> list[bytes | None]:
    word = dataset._types[field].word
    if word not in TEXTS and word != 'array':
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
