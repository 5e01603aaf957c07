"""Finds the numeric fields of a dataset, and reads their values as arrays of numbers or pixels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import IMAGE_FORMATS, VIDEO_FORMATS, fixed_dtype
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.selection import Fields, FrameSelection, select_whole
from bags.formats.arrays import array_type

VALUE_CHUNK_BYTES = 1 << 24
"""Bytes of values that a thread reads at a time."""
FRAMES = 8
"""Number of frames read from each sampled video."""

Array = npt.NDArray[Any]
Fixed = tuple[np.dtype[Any], tuple[int, ...]]


def numeric_fields(dataset: Dataset, fields: Fields) -> list[str]:
    """Returns the names of numeric fields, in `fields` or all; arrays of varying length only if named.

    Raises:
        KeyError, TypeError: A field does not exist, or is not numeric.
    """
    chosen = select_whole(fields, dataset.schema, 'statistics')
    names = []
    for name in chosen:
        field_type = dataset.schema[name]
        is_one = field_type.format in (*IMAGE_FORMATS, *VIDEO_FORMATS) or _dtype_of(field_type) is not None
        if is_one or (fields is not None and _element_of(field_type) is not None):
            names.append(name)
        elif fields is not None:
            raise TypeError(
                f'statistics: field {name!r} of type {field_type.text} has no numbers of one shape'
            )
    return names


def _dtype_of(field_type: FieldType) -> Fixed | None:
    fixed = fixed_dtype(field_type.format, field_type.args)
    return fixed if fixed is not None and fixed[0].kind in 'biuf' else None


def _element_of(field_type: FieldType) -> np.dtype[Any] | None:
    """Returns the dtype of an array type, of fixed or varying length; None for other types."""
    array = array_type(*field_type.args) if field_type.format == 'array' else None
    return array[0] if array is not None and array[0].kind in 'biuf' else None


def fixed_of(dataset: Dataset, name: str) -> Fixed | None:
    """Returns dtype and shape of the values of a field; of a varying length, of the first value."""
    field_type = dataset.schema[name]
    fixed, dtype = _dtype_of(field_type), _element_of(field_type)
    if fixed is not None or dtype is None:
        return fixed
    for row in range(len(dataset)):
        value = dataset[row, name][name]
        if value is not None and len(value):
            return dtype, np.asarray(value).shape[field_type.sequence :]
    return dtype, (0,)


def chunks_of(dataset: Dataset, name: str, fixed: Fixed) -> list[tuple[int, int]]:
    """Splits a dataset into ranges of datapoints with about `VALUE_CHUNK_BYTES` of a field."""
    counts = np.ones(len(dataset), np.int64)
    if dataset.schema[name].sequence:
        counts = dataset.item_counts(np.arange(len(dataset)), name)
    size = max(1, fixed[0].itemsize * math.prod(fixed[1]))
    numbers = (np.cumsum(counts) - counts) * size // VALUE_CHUNK_BYTES
    bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1)).tolist()
    return list(itertools.pairwise(bounds))


def read_numbers(dataset: Dataset, name: str, fixed: Fixed, start: int, stop: int) -> list[Array]:
    """Returns the values of some datapoints as an array (values, elements)."""
    column = dataset.batch(range(start, stop), name)[name]
    if isinstance(column, Ragged):
        column = column.values
    elif isinstance(column, list):  # Optional values, arrays of varying length, or integers of Granular.
        present = [value for value in column if value is not None]
        if dataset.schema[name].sequence:
            present = [item for items in present for item in items]
        other = next((shape for shape in map(np.shape, present) if shape != fixed[1]), None)
        if other is not None:
            raise ValueError(
                f'statistics: field {name!r}: expected values of one shape, got {fixed[1]} and {other}; by='
                ' names a field that tells them apart'
            )
        column = np.array(present, fixed[0])
    return [column.reshape(len(column), math.prod(fixed[1]))]


def read_pixels(dataset: Dataset, name: str, start: int, stop: int) -> list[Array]:
    """Returns the pixels of the images or frames of some datapoints, each as an array (pixels, channels)."""

    def read(selection: Any) -> Any:
        return dataset.read_selection(np.arange(start, stop), {name: selection}, read_values)[name]

    if dataset.schema[name].format in VIDEO_FORMATS:
        frames = [
            np.linspace(0, count - 1, FRAMES).astype(int) for count in read(FrameSelection(None)) if count
        ]
        values = read(FrameSelection(np.unique(frames))) if frames else []
    else:
        values = read(True) if dataset.schema[name].sequence else [read(True)]
    images = [image for value in values if value is not None for image in value if image is not None]
    return [image.reshape(-1, image.shape[2] if image.ndim == 3 else 1) for image in images]
