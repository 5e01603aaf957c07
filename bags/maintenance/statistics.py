"""`bags.statistics`: counts, moments, quantiles and histograms of the numbers in a dataset."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from bags.bag.checksums import checksums_name
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.json_files import check_json, write_json
from bags.dataset.format.metadata import RENEW_STATISTICS, STATISTICS
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.batch import as_list
from bags.dataset.reading.fingerprint import fingerprint
from bags.dataset.reading.selection import Fields, select_whole
from bags.links.permission import PermittedPaths
from bags.maintenance.accumulator import QUANTILES, Accumulator
from bags.maintenance.field_statistics import (
    FieldStatistics,
    GroupedStatistics,
    Statistics,
    as_json,
    from_json,
)
from bags.maintenance.numeric_fields import (
    Array,
    chunks_of,
    fixed_of,
    numeric_fields,
    read_numbers,
    read_pixels,
)
from bags.progress.progress import Advance
from bags.progress.progress import progress as show_progress
from bags.storage import Store
from bags.storage.urls import plain_path
from bags.validation import at_least, with_advice, worker_count

STATISTICS_FORMAT = 'bags statistics 1'
BINS = 24
GROUPING = ('int', 'uint', 'bool', 'utf8')
"""Types of fields that can divide datapoints into groups."""

Read = Callable[[int, int], list[Array]]


class _StatisticsOptions(TypedDict, total=False):
    samples: int
    workers: int | None
    recompute: bool
    keep: bool
    progress: bool | None
    trust_links: PermittedPaths
    filesystem: Any
    storage_options: Mapping[str, Any] | None


@overload
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: None = None,
    **options: Unpack[_StatisticsOptions],
) -> Statistics: ...
@overload
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: str,
    **options: Unpack[_StatisticsOptions],
) -> GroupedStatistics: ...
@with_advice
def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    by: str | None = None,
    samples: int = 512,
    workers: int | None = None,
    recompute: bool = False,
    keep: bool = False,
    progress: bool | None = None,
    trust_links: PermittedPaths = (),
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Statistics | GroupedStatistics:
    """Returns the statistics of numeric fields, read in one pass.

    Numbers and arrays of one shape have statistics for each element; for sequences, over all items. Images
    and videos have statistics for each channel, from a sample of datapoints.

    For a path, `keep=True` saves the result beside the data in `statistics.json`, with the fingerprint of the
    dataset. While the fingerprint is unchanged, saved statistics are returned without reading the data.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        fields: A name or names. Default: all fields of numbers, arrays of a fixed shape, images and
            videos.
        by: A field of numbers or texts, such as `source` or `episode`: the result has separate
            statistics for each value of this field, in order. They are not saved.
        samples: Number of datapoints whose images are decoded, evenly spaced; with `by`, in each group.
        workers: Number of threads. Default: the number of processors.
        recompute: For a path, read the data even if saved statistics exist.
        keep: For a path, save the statistics in the dataset. By default, the dataset is not changed.
        progress: Whether to show a progress bar; None: if standard error is a terminal.
        trust_links, filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        KeyError, TypeError: A field does not exist, or is not numeric.
        ValueError: Arrays of a varying length have several shapes, in the dataset or a group. By default,
            arrays of a varying length are left out: `fields` must name them.
            Or `keep` with a reader or a view, or with `by`.
        CorruptError, DecodeError: A record, or the saved statistics, cannot be read.
        OSError: `statistics.json` cannot be written.

    Examples:
        >>> label = bags.statistics(dataset, 'label')['label']
        >>> label.mean, label.count
        (array(0.5), array(8))
    """
    samples = at_least('samples', samples, 1)
    workers = worker_count(workers)
    dataset = plain_path(dataset)
    if keep and (by is not None or not isinstance(dataset, str | os.PathLike)):
        raise ValueError('statistics: keep: expected the path of a dataset, without by, got another argument')
    if not isinstance(dataset, str | os.PathLike):
        check_dataset('statistics', dataset)
        if by is not None:
            return _grouped(dataset, fields, by, samples, workers, progress)
        return Statistics(_compute(dataset, numeric_fields(dataset, fields), samples, workers, progress))
    with open_dataset(
        dataset, trust_links=trust_links, filesystem=filesystem, storage_options=storage_options
    ) as opened:
        if by is not None:
            return _grouped(opened, fields, by, samples, workers, progress)
        names = numeric_fields(opened, fields)
        folder = opened.index_folder()
        store, file = folder.store, folder.store.join(folder.path, STATISTICS)
        made_from = {'format': STATISTICS_FORMAT, 'fingerprint': fingerprint(opened), 'bytes': opened.size}
        saved: Any = {}
        version = store.current_version(file) if keep else None
        if not recompute:
            with contextlib.suppress(FileNotFoundError):
                saved = _load(store, file)
        saved_fields: dict[str, Any] = {}
        if isinstance(saved, dict) and all(saved.get(key) == value for key, value in made_from.items()):
            saved_fields = saved.get('fields', {})
        by_field = dict(saved_fields)
        missing = [
            name
            for name in names
            if 'infinities' not in by_field.get(name, ())  # Earlier files do not have them.
            or by_field[name].get('sampled') not in (None, min(samples, len(opened)))
        ]
        if missing:
            for name, computed in _compute(opened, missing, samples, workers, progress).items():
                by_field[name] = as_json(computed)
        if keep and by_field != saved_fields:
            facts = {**made_from, 'datapoints': len(opened)}  # The page of `bags view` compares their number.
            data = json.dumps({**facts, 'fields': by_field}).encode()
            write_json(store, file, data, checksums_name('refs.bag') in folder.names, version)
        return Statistics((name, from_json(by_field[name])) for name in names)


def _grouped(
    dataset: Dataset, fields: Fields, by: str, samples: int, workers: int, progress: bool | None
) -> GroupedStatistics:
    select_whole(by, dataset.schema, 'statistics')
    if dataset.schema[by].sequence or dataset.schema[by].format not in GROUPING:
        raise TypeError(
            f'statistics: by={by!r}: expected a field of numbers or texts, got type {dataset.schema[by].text}'
        )
    rows: dict[Any, list[int]] = {}
    for row, value in enumerate(as_list(dataset.column(by))):
        rows.setdefault(value, []).append(row)
    names = [name for name in numeric_fields(dataset, fields) if fields is not None or name != by]
    groups = sorted(rows, key=lambda value: (value is None, value if value is not None else 0))
    groups_by_value = {}
    with show_progress('reading', len(groups), 'groups', show=progress) as advance:
        for value in groups:
            chosen = dataset.select(rows[value])
            groups_by_value[value] = Statistics(_compute(chosen, names, samples, workers, False))
            advance(1)
    return GroupedStatistics(by, groups_by_value)


def _load(store: Store, file: str) -> Any:
    """Returns the content of a statistics.json; an empty dict if it is not JSON."""
    data = store.read(file)
    check_json(store, file, data, RENEW_STATISTICS)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return {}


def _compute(
    dataset: Dataset, names: list[str], samples: int, workers: int, progress: bool | None
) -> dict[str, FieldStatistics]:
    sampled = np.unique(np.linspace(0, len(dataset) - 1, min(samples, len(dataset))).astype(np.int64))
    jobs: dict[str, tuple[Read, list[tuple[int, int]], Array]] = {}
    shapes = {name: fixed_of(dataset, name) for name in names}
    for name, fixed in shapes.items():
        read: Read = functools.partial(read_pixels, dataset, name)
        chunks, pivot = [(index, index + 1) for index in sampled.tolist()], np.full(1, 127.0)
        if fixed is not None:
            read = functools.partial(read_numbers, dataset, name, fixed)
            chunks = chunks_of(dataset, name, fixed)
            first = read(*chunks[0])[0][: 1 << 12] if chunks else ()
            pivot = np.median(first, 0).astype(np.float64) if len(first) else np.zeros(math.prod(fixed[1]))
        jobs[name] = read, chunks, pivot
    results = {}
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
            results[name] = _result(accumulator, shape, len(sampled) if fixed is None else None)
    return results


def _accumulate(
    read: Read, chunks: list[tuple[int, int]], pivot: Array, workers: int, advance: Advance
) -> dict[int, Accumulator]:
    """Merges all chunks, by the number of elements; the result does not depend on the number of threads."""

    def accumulate(chunk: tuple[int, int]) -> list[Accumulator]:
        parts = []
        for values in read(*chunk):
            parts.append(Accumulator(np.broadcast_to(pivot, values.shape[1:])))
            parts[-1].add(values)
        advance(1)
        return parts

    merged: dict[int, Accumulator] = {}
    for start in range(0, len(chunks), 4 * workers):  # Few parts in memory at a time: each has many buckets.
        for parts in map_concurrently(accumulate, chunks[start : start + 4 * workers], max_threads=workers):
            for part in parts:
                merged.setdefault(len(part.pivot), Accumulator(part.pivot)).merge(part)
    if set(merged) == {1, 3}:
        merged[3].merge(merged.pop(1))  # Grey is three equal channels.
    return merged


def _result(accumulator: Accumulator, shape: tuple[int, ...], sampled: int | None) -> FieldStatistics:
    def shaped(values: Array) -> Any:
        return values.reshape(shape)

    has_values = accumulator.count > 0
    quantiles: dict[float, Array] = {}
    if accumulator.bits:
        levels = accumulator.quantiles()
        quantiles = {level: shaped(levels[position]) for position, level in enumerate(QUANTILES)}
    return FieldStatistics(
        shaped(accumulator.count),
        shaped(accumulator.nans),
        shaped(accumulator.infinities),
        shaped(np.where(has_values, accumulator.low, np.nan)),
        shaped(np.where(has_values, accumulator.high, np.nan)),
        shaped(np.where(has_values, accumulator.mean + accumulator.pivot, np.nan)),
        shaped(np.where(has_values, accumulator.std(), np.nan)),
        quantiles,
        accumulator.quantile_error,
        shaped(accumulator.pivot),
        accumulator.histogram(BINS).reshape(*shape, BINS),
        sampled,
    )
