"""`bags.statistics`: counts, moments, quantiles and histograms of the numbers in a dataset."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import checksums_name
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.batch import Ragged, as_list
from bags.dataset.columns import read_values
from bags.dataset.fingerprint import fingerprint
from bags.dataset.json_files import check_json, write_json
from bags.dataset.metadata import RENEW_STATISTICS, STATISTICS
from bags.dataset.open import open as open_dataset
from bags.dataset.registry import IMAGE_WORDS, VIDEO_WORDS, fixed_dtype
from bags.dataset.selection import FrameSelection, select_whole
from bags.dataset.spec import FieldType
from bags.formats.arrays import array_type
from bags.links.permission import PermittedPaths
from bags.maintenance.accumulator import QUANTILES, Accumulator
from bags.maintenance.field_statistics import (
    FieldStatistics,
    GroupedStatistics,
    Statistics,
    as_json,
    from_json,
)
from bags.runs.progress import Advance
from bags.runs.progress import progress as show_progress
from bags.storage import Store
from bags.storage.urls import plain_path
from bags.validation import at_least, with_advice, worker_count

FORMAT = 'bags statistics 1'
CHUNK_BYTES = 1 << 24
"""Bytes of values that a thread reads at once."""
FRAMES = 8
"""Frames of each sampled video."""
BINS = 24
GROUPING = ('int', 'uint', 'bool', 'utf8')
"""Types of fields that divide datapoints into groups."""

Array = npt.NDArray[Any]
Fixed = tuple[np.dtype[Any], tuple[int, ...]]
Read = Callable[[int, int], list[Array]]


class _Options(TypedDict, total=False):
    samples: int
    workers: int | None
    again: bool
    progress: bool | None
    links: PermittedPaths
    filesystem: Any
    storage_options: Mapping[str, Any] | None


@overload
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: None = None,
    **options: Unpack[_Options],
) -> Statistics: ...
@overload
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: str,
    **options: Unpack[_Options],
) -> GroupedStatistics: ...
@with_advice
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: str | None = None,
    samples: int = 512,
    workers: int | None = None,
    again: bool = False,
    progress: bool | None = None,
    links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Statistics | GroupedStatistics:
    """Returns the statistics of numeric fields, read in one pass.

    Numbers and arrays of one shape have statistics for each element, in plain fields and over all items of
    sequences. Images and videos have them for each channel, from a sample of datapoints.

    For a path, the result is saved beside the data in `statistics.json`, with the fingerprint of the dataset.
    While that is unchanged, the data are not read again. A warning is issued if the file cannot be written.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        fields: A name or names; all fields of numbers, arrays of a fixed shape, images and videos unless
            given.
        by: A field of numbers or texts, such as `source` or `episode`: the result has the statistics of the
            datapoints with each of its values, in order. They are not saved.
        samples: Number of datapoints whose images are decoded, evenly spaced; of each group with `by`.
        workers: Number of threads; the number of processors unless given.
        again: For a path, read the data even if saved statistics are there.
        progress: Whether to show a progress bar; None: if standard error is a terminal.
        links, filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        KeyError, TypeError: No such field, or one that is not numeric.
        ValueError: Arrays of a varying length have several shapes, in the dataset or a group. They are left
            out unless `fields` names them.
        CorruptError, DecodeError: A record, or the saved statistics, cannot be read.

    Examples:
        >>> found = bags.statistics(dataset, 'label')
        >>> found['label'].mean, found['label'].count
        (array(0.5), array(8))
    """
    samples = at_least('samples', samples, 1)
    workers = worker_count(workers)
    dataset = plain_path(dataset)
    if not isinstance(dataset, str | os.PathLike):
        check_dataset('statistics', dataset)
        if by is not None:
            return _grouped(dataset, fields, by, samples, workers, progress)
        return Statistics(_compute(dataset, _numeric_fields(dataset, fields), samples, workers, progress))
    with open_dataset(dataset, links=links, filesystem=filesystem, storage_options=storage_options) as opened:
        if by is not None:
            return _grouped(opened, fields, by, samples, workers, progress)
        names = _numeric_fields(opened, fields)
        folder = opened.index_folder()
        store, file = folder.store, folder.store.join(folder.path, STATISTICS)
        made_from = {'format': FORMAT, 'fingerprint': fingerprint(opened), 'bytes': opened.size}
        kept: Any = {}
        if not again:
            with contextlib.suppress(FileNotFoundError):
                kept = _load(store, file)
        known = {}
        if isinstance(kept, dict) and all(kept.get(key) == value for key, value in made_from.items()):
            known = kept.get('fields', {})
        missing = [
            name
            for name in names
            if name not in known or known[name].get('sampled') not in (None, min(samples, len(opened)))
        ]
        if missing:
            for name, found in _compute(opened, missing, samples, workers, progress).items():
                known[name] = as_json(found)
            data = json.dumps({**made_from, 'fields': known}).encode()
            try:
                write_json(store, file, data, checksums_name('refs.bag') in folder.names)
            except OSError as exc:
                warnings.warn(f'{file}: statistics are not kept: {exc}', stacklevel=2)
        return Statistics((name, from_json(known[name])) for name in names)


def _grouped(
    dataset: Dataset, fields: Any, by: str, samples: int, workers: int, progress: bool | None
) -> GroupedStatistics:
    select_whole(by, dataset.types, 'statistics')
    if dataset.types[by].sequence or dataset.types[by].word not in GROUPING:
        raise TypeError(
            f'statistics: by={by!r}: expected a field of numbers or texts, got type {dataset.types[by].text}'
        )
    rows: dict[Any, list[int]] = {}
    for row, value in enumerate(as_list(dataset.column(by))):
        rows.setdefault(value, []).append(row)
    names = [name for name in _numeric_fields(dataset, fields) if fields is not None or name != by]
    groups = sorted(rows, key=lambda value: (value is None, value if value is not None else 0))
    found = {}
    with show_progress('reading', len(groups), 'groups', show=progress) as advance:
        for value in groups:
            chosen = dataset.select(rows[value])
            found[value] = Statistics(_compute(chosen, names, samples, workers, False))
            advance(1)
    return GroupedStatistics(by, found)


def _load(store: Store, file: str) -> Any:
    """Returns the content of a statistics.json; nothing if it is not JSON."""
    data = store.read(file)
    check_json(store, file, data, RENEW_STATISTICS)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return {}


def _numeric_fields(dataset: Dataset, fields: Any) -> list[str]:
    chosen = select_whole(fields, dataset.types, 'statistics')
    found = []
    for name in chosen:
        field_type = dataset.types[name]
        is_one = field_type.word in (*IMAGE_WORDS, *VIDEO_WORDS) or _dtype_of(field_type) is not None
        if is_one or (fields is not None and _element_of(field_type) is not None):
            found.append(name)
        elif fields is not None:
            raise TypeError(
                f'statistics: field {name!r} of type {field_type.text} has no numbers of one shape'
            )
    return found


def _dtype_of(field_type: FieldType) -> Fixed | None:
    fixed = fixed_dtype(field_type.word, field_type.args)
    return fixed if fixed is not None and fixed[0].kind in 'biuf' else None


def _element_of(field_type: FieldType) -> np.dtype[Any] | None:
    """Returns the dtype of the numbers of arrays, also of a varying length; None for other types."""
    found = array_type(*field_type.args) if field_type.word == 'array' else None
    return found[0] if found is not None and found[0].kind in 'biuf' else None


def _fixed_of(dataset: Dataset, name: str) -> Fixed | None:
    """Returns dtype and shape of the values of a field; of a varying length, those of the first value."""
    field_type = dataset.types[name]
    fixed, dtype = _dtype_of(field_type), _element_of(field_type)
    if fixed is not None or dtype is None:
        return fixed
    for row in range(len(dataset)):
        value = dataset[row, name][name]
        if value is not None and len(value):
            return dtype, np.asarray(value).shape[field_type.sequence :]
    return dtype, (0,)


def _compute(
    dataset: Dataset, names: list[str], samples: int, workers: int, progress: bool | None
) -> dict[str, FieldStatistics]:
    sampled = np.unique(np.linspace(0, len(dataset) - 1, min(samples, len(dataset))).astype(np.int64))
    jobs: dict[str, tuple[Read, list[tuple[int, int]], Array]] = {}
    shapes = {name: _fixed_of(dataset, name) for name in names}
    for name, fixed in shapes.items():
        read: Read = functools.partial(_pixels, dataset, name)
        chunks, pivot = [(index, index + 1) for index in sampled.tolist()], np.full(1, 127.0)
        if fixed is not None:
            read, chunks = functools.partial(_values, dataset, name, fixed), _chunks(dataset, name, fixed)
            first = read(*chunks[0])[0][: 1 << 12] if chunks else ()
            pivot = np.median(first, 0).astype(np.float64) if len(first) else np.zeros(math.prod(fixed[1]))
        jobs[name] = read, chunks, pivot
    found = {}
    total = sum(len(chunks) for _, chunks, _ in jobs.values())
    with show_progress('reading', total, 'parts', show=progress) as advance:
        for name, job in jobs.items():
            fixed = shapes[name]
            merged = _accumulate(*job, workers, advance)
            if len(merged) > 1:
                text = f'expected one number of channels in all images, got {sorted(merged)}'
                raise ValueError(f'statistics: field {name!r}: {text}')
            accumulator = next(iter(merged.values()), Accumulator(job[2]))
            shape = accumulator.pivot.shape if fixed is None else fixed[1]
            found[name] = _result(accumulator, shape, len(sampled) if fixed is None else None)
    return found


def _accumulate(
    read: Read, chunks: list[tuple[int, int]], pivot: Array, workers: int, advance: Advance
) -> dict[int, Accumulator]:
    """Adds up all chunks, by the number of elements; the result does not depend on the number of threads."""

    def accumulate(chunk: tuple[int, int]) -> list[Accumulator]:
        parts = []
        for values in read(*chunk):
            parts.append(Accumulator(np.broadcast_to(pivot, values.shape[1:])))
            parts[-1].add(values)
        advance(1)
        return parts

    merged: dict[int, Accumulator] = {}
    for start in range(0, len(chunks), 4 * workers):  # Few parts in memory at a time, as each has buckets.
        for parts in map_concurrently(accumulate, chunks[start : start + 4 * workers], max_threads=workers):
            for part in parts:
                merged.setdefault(len(part.pivot), Accumulator(part.pivot)).merge(part)
    if set(merged) == {1, 3}:
        merged[3].merge(merged.pop(1))  # Grey is three equal channels.
    return merged


def _chunks(dataset: Dataset, name: str, fixed: Fixed) -> list[tuple[int, int]]:
    """Splits a dataset into ranges of datapoints with about `CHUNK_BYTES` of a field."""
    counts = np.ones(len(dataset), np.int64)
    if dataset.types[name].sequence:
        counts = dataset.item_counts(np.arange(len(dataset)), name)
    size = max(1, fixed[0].itemsize * math.prod(fixed[1]))
    numbers = (np.cumsum(counts) - counts) * size // CHUNK_BYTES
    bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1)).tolist()
    return list(itertools.pairwise(bounds))


def _values(dataset: Dataset, name: str, fixed: Fixed, start: int, stop: int) -> list[Array]:
    """Returns the values of some datapoints as an array (values, elements)."""
    column = dataset.batch(range(start, stop), name)[name]
    if isinstance(column, Ragged):
        column = column.values
    elif isinstance(column, list):  # Optional, of a varying length, or integers of Granular.
        present = [value for value in column if value is not None]
        if dataset.types[name].sequence:
            present = [item for items in present for item in items]
        other = next((each for each in map(np.shape, present) if each != fixed[1]), None)
        if other is not None:
            raise ValueError(
                f'statistics: field {name!r}: expected values of one shape, got {fixed[1]} and {other}; by='
                ' names a field that tells them apart'
            )
        column = np.array(present, fixed[0])
    return [column.reshape(len(column), math.prod(fixed[1]))]


def _pixels(dataset: Dataset, name: str, start: int, stop: int) -> list[Array]:
    """Returns the pixels of the images or frames of some datapoints, each as an array (pixels, channels)."""

    def read(asked: Any) -> Any:
        return dataset.read_selection(np.arange(start, stop), {name: asked}, read_values)[name]

    if dataset.types[name].word in VIDEO_WORDS:
        frames = [
            np.linspace(0, count - 1, FRAMES).astype(int) for count in read(FrameSelection(None)) if count
        ]
        values = read(FrameSelection(np.unique(frames))) if frames else []
    else:
        values = read(True) if dataset.types[name].sequence else [read(True)]
    images = [each for value in values if value is not None for each in value if each is not None]
    return [each.reshape(-1, each.shape[2] if each.ndim == 3 else 1) for each in images]


def _result(accumulator: Accumulator, shape: tuple[int, ...], sampled: int | None) -> FieldStatistics:
    def shaped(values: Array) -> Any:
        return values.reshape(shape)

    there = accumulator.count > 0
    quantiles: dict[float, Array] = {}
    if accumulator.bits:
        found = accumulator.quantiles()
        quantiles = {wanted: shaped(found[position]) for position, wanted in enumerate(QUANTILES)}
    return FieldStatistics(
        shaped(accumulator.count),
        shaped(accumulator.nans),
        shaped(np.where(there, accumulator.low, np.nan)),
        shaped(np.where(there, accumulator.high, np.nan)),
        shaped(np.where(there, accumulator.mean + accumulator.pivot, np.nan)),
        shaped(np.where(there, accumulator.std(), np.nan)),
        quantiles,
        accumulator.quantile_error,
        shaped(accumulator.pivot),
        accumulator.histogram(BINS).reshape(*shape, BINS),
        sampled,
    )
