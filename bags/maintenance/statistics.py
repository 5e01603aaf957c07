"""`bags.statistics`: counts, moments, quantiles and histograms of the numbers in a dataset."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.concurrency import CPU_COUNT, map_in_threads
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.batch import Ragged
from bags.dataset.fingerprint import fingerprint
from bags.dataset.metadata import STATISTICS
from bags.dataset.open import open as open_dataset
from bags.dataset.registry import fixed_dtype
from bags.dataset.selection import VIDEO_WORDS, FrameSelection, select_whole
from bags.dataset.shard_list import shard_numbers
from bags.dataset.spec import FieldType
from bags.maintenance.accumulator import QUANTILES, Accumulator
from bags.progress import Advance
from bags.progress import progress as show_progress
from bags.storage import store_for
from bags.validation import at_least, at_least_or_none

__all__ = ['FieldStatistics', 'as_json', 'statistics']

FORMAT = 'bags statistics 1'
IMAGES = ('avif', 'image', 'jpeg', 'png', 'webp')
CHUNK_BYTES = 1 << 24
"""Bytes of values that a thread reads at once."""
FRAMES = 8
"""Frames of each sampled video."""
BINS = 24

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class FieldStatistics:
    """Statistics of a field: of each element of its values, or of each channel of its pictures.

    All arrays are float64 and have the shape of a value, (channels,) for pictures. NaNs are not counted.
    """

    count: npt.NDArray[np.int64]
    """Values; of pictures, pixels."""
    nans: npt.NDArray[np.int64]
    min: Array
    max: Array
    mean: Array
    std: Array
    """Of the population, as `numpy.std` has it."""
    quantiles: dict[float, Array]
    """At 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99; empty for values of more than 512 elements."""
    quantile_error: float
    """Largest error of a quantile, as a part of its distance from `pivot`; NaN without quantiles."""
    pivot: Array
    """A value near the median."""
    histogram: npt.NDArray[np.int64]
    """Values in ranges of equal width from `min` to `max`, shape (*shape, ranges)."""
    sampled: int | None = None
    """Datapoints of which pictures were decoded; None where all values were read."""


def statistics(
    dataset: Dataset | str | os.PathLike[str],
    fields: str | Iterable[str] | None = None,
    *,
    samples: int = 512,
    workers: int | None = None,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, FieldStatistics]:
    """Returns the statistics of numeric fields, read in one pass.

    Numbers and arrays of one shape are counted element by element, in plain fields and over all items of
    sequences. Pictures and videos are counted by channel, in a sample of datapoints.

    Of a path, the statistics are kept beside the data in `statistics.json`, with a fingerprint of the
    dataset. Those of an unchanged dataset are returned without reading it again. Where nothing can be
    written, a warning says so.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        fields: A name or names; all fields of numbers, arrays of a fixed shape, pictures and videos unless
            given.
        samples: Datapoints of which pictures are decoded, evenly spaced.
        workers: Threads; the number of processors unless given.
        progress: Whether to show a progress bar; None: if standard error is a terminal.
        filesystem, storage_options: As in `bags.open`, for a path.

    Raises:
        KeyError, TypeError: No such field, or one that is not numeric.
        CorruptError, DecodeError: A record cannot be read.
    """
    samples = at_least('samples', samples, 1)
    workers = at_least_or_none('workers', workers, 1) or CPU_COUNT
    if not isinstance(dataset, str | os.PathLike):
        check_dataset('statistics', dataset)
        return _compute(dataset, _numeric_fields(dataset, fields), samples, workers, progress)
    store, path = store_for(dataset, filesystem, storage_options)
    with open_dataset(dataset, filesystem=filesystem, storage_options=storage_options) as opened:
        names = _numeric_fields(opened, fields)
        shards = list(shard_numbers(store, path).values()) if opened.shards > 1 else []
        if not store.exists(store.join(path, 'spec.json')):
            shards = shards or list(shard_numbers(store, path).values())
        file = store.join(store.join(path, shards[0]) if shards else path, STATISTICS)
        made_from = {'format': FORMAT, 'fingerprint': fingerprint(opened), 'bytes': opened.size}
        try:
            kept = json.loads(store.read(file))
        except (FileNotFoundError, ValueError):
            kept = {}
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
            try:
                store.replace(file, json.dumps({**made_from, 'fields': known}).encode())
            except OSError as exc:
                warnings.warn(f'{file}: statistics are not kept: {exc}', stacklevel=2)
        return {name: _from_json(known[name]) for name in names}


def _numeric_fields(dataset: Dataset, fields: Any) -> list[str]:
    chosen = select_whole(fields, dataset._types, 'statistics')
    found = []
    for name in chosen:
        kind = dataset._types[name]
        if _is_picture(kind) or _dtype_of(kind) is not None:
            found.append(name)
        elif fields is not None:
            raise TypeError(f'statistics: field {name!r} of type {kind.text} has no numbers of one shape')
    return found


def _is_picture(kind: FieldType) -> bool:
    return kind.word in IMAGES or kind.word in VIDEO_WORDS


def _dtype_of(kind: FieldType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    fixed = fixed_dtype(kind.word, kind.args)
    return fixed if fixed is not None and fixed[0].kind in 'biuf' else None


def _compute(
    dataset: Dataset, names: list[str], samples: int, workers: int, progress: bool | None
) -> dict[str, FieldStatistics]:
    found = {}
    sampled = np.unique(np.linspace(0, len(dataset) - 1, min(samples, len(dataset))).astype(np.int64))
    with show_progress('reading', len(names) * len(dataset), 'values', show=progress) as advance:
        for name in names:
            kind = dataset._types[name]
            if _is_picture(kind):
                accumulator, shape = _accumulate_pictures(dataset, name, sampled, workers, advance)
            else:
                fixed = _dtype_of(kind)
                assert fixed is not None
                shape = fixed[1]
                accumulator = _accumulate(dataset, name, fixed, workers, advance)
            found[name] = _result(accumulator, shape, len(sampled) if _is_picture(kind) else None)
    return found


def _accumulate(
    dataset: Dataset, name: str, fixed: tuple[np.dtype[Any], tuple[int, ...]], workers: int, advance: Advance
) -> Accumulator:
    """Reads all values of a field in chunks; the result does not depend on the number of threads."""
    size = max(1, fixed[0].itemsize * int(np.prod(fixed[1], dtype=np.int64)))
    counts = np.ones(len(dataset), np.int64)
    if dataset._types[name].sequence:
        counts = dataset._lengths(np.arange(len(dataset)), name)
    ends = np.cumsum(counts) * size
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.unique(ends.searchsorted(np.arange(CHUNK_BYTES, total + CHUNK_BYTES, CHUNK_BYTES)) + 1)
    bounds = [0, *np.minimum(cuts, len(dataset)).tolist()]
    chunks = [(start, stop) for start, stop in itertools.pairwise(bounds) if start < stop]

    def read(chunk: tuple[int, int]) -> Array:
        return _values(dataset.batch(range(*chunk), name)[name], fixed)

    first = read((0, min(len(dataset), max(1, int(ends.searchsorted(1 << 16)) + 1)))) if chunks else None
    pivot = np.zeros(size // fixed[0].itemsize)
    if first is not None and len(first):
        pivot = np.median(first[: 1 << 12], 0).astype(np.float64)

    def accumulate(chunk: tuple[int, int]) -> Accumulator:
        part = Accumulator(pivot)
        part.add(read(chunk))
        advance(chunk[1] - chunk[0], (int(ends[chunk[1] - 1]) - (int(ends[chunk[0] - 1]) if chunk[0] else 0)))
        return part

    merged = Accumulator(pivot)
    for start in range(0, len(chunks), 4 * workers):  # Few parts in memory: each has buckets of its own.
        for part in map_in_threads(accumulate, chunks[start : start + 4 * workers], workers):
            merged.merge(part)
    return merged


def _values(column: Any, fixed: tuple[np.dtype[Any], tuple[int, ...]]) -> Array:
    """Returns a column as an array (values, elements)."""
    if isinstance(column, Ragged):
        column = column.values
    elif isinstance(column, list):  # Optional, or integers of Granular.
        there = [value for value in column if value is not None]
        column = np.array(there, fixed[0]).reshape(len(there), *fixed[1])
    return np.asarray(column).reshape(len(column), -1) if len(column) else np.empty((0, 1), fixed[0])


def _accumulate_pictures(
    dataset: Dataset, name: str, sampled: npt.NDArray[np.int64], workers: int, advance: Advance
) -> tuple[Accumulator, tuple[int, ...]]:
    kind = dataset._types[name]

    def read(index: int) -> list[Array]:
        if kind.word in VIDEO_WORDS:
            counts: Any = dataset._rows(np.array([index]), {name: FrameSelection(None)})[0][name]
            if not counts:
                return []
            chosen = np.unique(np.linspace(0, counts - 1, FRAMES).astype(np.int64))
            frames = dataset._rows(np.array([index]), {name: FrameSelection(chosen)})[0][name]
            return list(frames)
        value = dataset[index, name][name]
        pictures = value if kind.sequence else [value]
        return [picture for picture in pictures or [] if picture is not None]

    merged: dict[int, Accumulator] = {}
    step = 4 * workers
    for start in range(0, len(sampled), step):
        for pictures in map_in_threads(read, sampled[start : start + step].tolist(), workers):
            for picture in pictures:
                channels = picture.shape[2] if picture.ndim == 3 else 1
                accumulator = merged.setdefault(channels, Accumulator(np.full(channels, 127.0)))
                accumulator.add(picture.reshape(-1, channels))
        advance(len(dataset) * min(step, len(sampled) - start) // max(1, len(sampled)))
    if set(merged) == {1, 3}:
        merged[3].merge(merged.pop(1))  # Grey is three equal channels.
    if len(merged) > 1:
        raise ValueError(
            f'statistics: field {name!r}: expected pictures of as many channels, got {sorted(merged)}'
        )
    channels = next(iter(merged), 3)
    return merged.get(channels, Accumulator(np.full(channels, 127.0))), (channels,)


def _result(accumulator: Accumulator, shape: tuple[int, ...], sampled: int | None) -> FieldStatistics:
    def shaped(values: Array) -> Any:
        return values.reshape(shape)

    there = accumulator.count > 0
    quantiles: dict[float, Array] = {}
    if accumulator.bits:
        found = accumulator.quantiles()
        quantiles = {wanted: shaped(found[place]) for place, wanted in enumerate(QUANTILES)}
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


def as_json(found: FieldStatistics) -> dict[str, Any]:
    """Returns statistics as values of JSON."""
    quantiles = {str(key): value.tolist() for key, value in found.quantiles.items()}
    values = {name: np.asarray(value).tolist() for name, value in vars(found).items()}
    return {**values, 'quantiles': quantiles}


def _from_json(kept: Mapping[str, Any]) -> FieldStatistics:
    arrays: dict[str, Any] = {
        name: np.array(kept[name], np.int64 if name in ('count', 'nans', 'histogram') else np.float64)
        for name in ('count', 'nans', 'min', 'max', 'mean', 'std', 'pivot', 'histogram')
    }
    quantiles = {float(key): np.array(value, np.float64) for key, value in kept['quantiles'].items()}
    error = float(kept['quantile_error'])
    return FieldStatistics(**arrays, quantiles=quantiles, quantile_error=error, sampled=kept['sampled'])
