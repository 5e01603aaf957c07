"""Writes Parquet files with the features of Hugging Face datasets; converts features and types."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.arrow.types import MEDIA_TYPES, dtype_of, import_pyarrow, is_list, shape_of, type_of
from bags.dataset.base import Dataset
from bags.dataset.format.metadata import Metadata
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.dataset.format.spec import FieldType, Schema
from bags.formats.arrays import array_text
from bags.interop.file_extensions import IMAGE_TYPES
from bags.interop.targets.target import Target
from bags.progress.progress import Advance

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b'huggingface'
"""Key in the metadata of an Arrow schema."""
ROW_GROUP_BYTES = 1 << 25
"""Approximate bytes of a row group."""
PAGE_BYTES = 1 << 20
_MEDIA = {'Image': 'image', 'Audio': 'audio', 'Video': 'video'}
_SEQUENCES = ('List', 'LargeList', 'Sequence')
_NAMES = {'halffloat': 'float16', 'float': 'float32', 'double': 'float64', 'date32[day]': 'date32'}
"""Names in features of Arrow types that have another name there."""


def read_features(schema: pa.Schema) -> dict[str, Any]:
    """Returns the features in the metadata of a schema, by column; empty if there are none."""
    try:
        features = json.loads((schema.metadata or {})[KEY])['info']['features']
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def type_of_feature(feature: Any, type: pa.DataType) -> tuple[str, list[str] | None]:
    """Returns the field type for a column, from its feature if it has one, and the names of its classes."""
    pa = import_pyarrow()
    if isinstance(feature, list) and len(feature) == 1:  # As before version 4 of `datasets`.
        feature = {'_type': 'List', 'feature': feature[0]}
    feature_type = feature.get('_type') if isinstance(feature, dict) else None
    if not isinstance(feature_type, str):
        return type_of(type), None
    if feature_type in _MEDIA:
        return _MEDIA[feature_type], None
    if feature_type == 'ClassLabel' and isinstance(feature.get('names'), list):
        return type_of(type), feature['names']
    if feature_type in ('Array2D', 'Array3D', 'Array4D', 'Array5D'):
        text = _array_type(feature.get('shape'), type)
        return (type_of(type) if text is None else text), None
    is_list = pa.types.is_list(type) or pa.types.is_large_list(type)
    if feature_type in _SEQUENCES and is_list and isinstance(feature.get('feature'), dict):
        inner, classes = type_of_feature(feature['feature'], type.value_type)
        if '_type' in feature['feature'] and feature['feature']['_type'] not in _SEQUENCES:
            return f'{inner}[]', classes
    return type_of(type), None


def _array_type(shape: Any, type: pa.DataType) -> str | None:
    """Returns the type of `Array2D` and others; None if the shape is invalid, or differs from the column."""
    lengths: list[int] = []
    type = getattr(type, 'storage_type', type)  # Extension type, if `datasets` is imported.
    for length in shape if isinstance(shape, list) else [0]:
        is_length = (
            length is None if isinstance(length, bool | None) else isinstance(length, int) and length > 0
        )
        if not is_length or not is_list(type) or (length is None and lengths):
            return None
        lengths.append(length or -1)
        type = type.value_type
    dtype = dtype_of(type)
    return None if dtype is None else array_text(np.dtype(dtype), lengths)


def write_parquet(
    target: Target,
    dataset: Dataset,
    fields: list[str],
    shard_size: int,
    shard_length: int | None,
    advance: Advance,
) -> int:
    """Writes the given fields to files 000000.parquet, …; returns the number of files."""
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    field_types = {name: dataset.schema[name] for name in fields}
    remaining = dataset[target.start :] if target.start else dataset
    reader = remaining.to_arrow(fields, media='bytes')
    schema = _with_features(reader.schema, field_types, dataset.metadata)
    batches = (
        pa.RecordBatch.from_arrays(list(map(_as_stored, batch.columns, schema.types)), schema=schema)
        for batch in reader
    )
    # Media bytes do not repeat and do not compress.
    plain = [name for name in fields if field_types[name].format not in MEDIA_TYPES]
    count, stop, batch = len(target.shards), target.start, next(batches, None)
    while batch is not None or not count:
        rows = 0
        # Readers hold a whole page, which by default has at least 1024 rows.
        mean = 1 if batch is None else batch.nbytes // batch.num_rows
        page = max(1, min(1024, PAGE_BYTES // max(1, mean)))
        with (
            target.create(f'{count:06}.parquet') as file,
            pq.ParquetWriter(
                file,
                schema,
                use_dictionary=plain,
                write_statistics=plain,
                write_batch_size=page,
                write_page_checksum=True,
            ) as writer,
        ):
            group: list[Any] = []
            while batch is not None:
                size = sum(part.nbytes for part in group)
                mean = max(1, batch.nbytes // batch.num_rows)
                left = (shard_size - file.tell() - size) // mean + 1
                limit = min(batch.num_rows, max(1, left), (shard_length or sys.maxsize) - rows)
                group.append(batch.slice(0, limit))
                rows += limit
                advance(limit, group[-1].nbytes)
                batch = batch.slice(limit) if limit < batch.num_rows else next(batches, None)
                size += group[-1].nbytes
                is_full = rows == shard_length or file.tell() + size >= shard_size
                if size >= ROW_GROUP_BYTES or is_full or batch is None:
                    writer.write_table(pa.Table.from_batches(group))
                    group = []
                if is_full:
                    break
        count, stop = count + 1, stop + rows
        target.end_shard(stop)
    return count


def _with_features(schema: pa.Schema, field_types: Schema, metadata: Metadata) -> pa.Schema:
    """Returns the schema that Hugging Face datasets would store, with the features as metadata.

    The `classes` of a field in the metadata make it a `ClassLabel`. A feature is used only if the library
    would have written the same Arrow type.
    """
    pa = import_pyarrow()
    features, columns = {}, []
    for column in schema:
        field_type, facts = field_types[column.name], metadata.get('fields', {}).get(column.name, {})
        classes = facts.get('classes') if isinstance(facts, dict) else None
        item = column.type.value_type if field_type.sequence else column.type
        feature, stored = _feature_of(field_type, item, classes)
        extension = None
        if field_type.sequence:
            feature, stored = {'feature': feature, '_type': 'List'}, pa.list_(stored)
        elif '_type' in feature and 'shape' in feature:
            name = f'datasets.features.features.{feature["_type"]}ExtensionType'
            arguments = json.dumps([feature['shape'], feature['dtype']])
            extension = {'ARROW:extension:name': name, 'ARROW:extension:metadata': arguments}
        features[column.name] = feature
        columns.append(pa.field(column.name, stored, metadata=extension))
    return pa.schema(columns, {**schema.metadata, KEY: json.dumps({'info': {'features': features}})})


def _as_stored(column: pa.Array, type: pa.DataType) -> pa.Array:
    """Converts a column to the form of Hugging Face datasets: media become structs of bytes and path."""
    pa = import_pyarrow()
    if (
        pa.types.is_list(type)
        and pa.types.is_struct(type.value_type)
        and pa.types.is_binary(column.type.value_type)
    ):
        files = _as_stored(column.values, type.value_type)
        return pa.ListArray.from_arrays(column.offsets, files, mask=column.is_null())
    if pa.types.is_struct(type) and pa.types.is_binary(column.type):
        paths = pa.nulls(len(column), pa.string())
        return pa.StructArray.from_arrays([column, paths], ['bytes', 'path'], mask=column.is_null())
    return column.cast(type)


def _feature_of(field_type: FieldType, type: pa.DataType, classes: Any) -> tuple[dict[str, Any], pa.DataType]:
    """Returns the feature of a value or item, and the Arrow type that stores it."""
    pa = import_pyarrow()
    if field_type.format in MEDIA_TYPES:
        is_image = field_type.format in (*IMAGE_TYPES, 'jpg')
        name = 'Image' if is_image else 'Video' if field_type.format in VIDEO_FORMATS else 'Audio'
        return {'_type': name}, pa.struct({'bytes': pa.binary(), 'path': pa.string()})
    if isinstance(classes, list) and pa.types.is_integer(type):
        return {'names': list(map(str, classes)), '_type': 'ClassLabel'}, pa.int64()
    if (shape := _array_shape(field_type)) is not None:
        element = type
        while is_list(element):
            element = element.value_type
        lengths = [None if length == -1 else length for length in shape]
        feature = {'shape': lengths, 'dtype': _name(element), '_type': f'Array{len(shape)}D'}
        return feature, functools.reduce(lambda nested, _: pa.list_(nested), shape, element)
    return _of_arrow(type), pa.binary() if pa.types.is_fixed_size_binary(type) else type


def _array_shape(field_type: FieldType) -> tuple[int, ...] | None:
    """Returns the shape of arrays that have a feature, such as `Array2D`; None for other types."""
    fixed = shape_of(field_type)
    if fixed is None or field_type.sequence:
        return None
    dtype, shape = fixed
    if dtype.kind not in 'biuf' or not 2 <= len(shape) <= 5:
        return None
    return None if 0 in shape or -1 in shape[1:] else shape


def _of_arrow(type: pa.DataType) -> dict[str, Any]:
    pa = import_pyarrow()
    if pa.types.is_struct(type):
        return {part.name: _of_arrow(part.type) for part in type}
    if pa.types.is_fixed_size_list(type):
        return {'feature': _of_arrow(type.value_type), 'length': type.list_size, '_type': 'List'}
    if pa.types.is_list(type):
        return {'feature': _of_arrow(type.value_type), '_type': 'List'}
    return {'dtype': 'binary' if pa.types.is_fixed_size_binary(type) else _name(type), '_type': 'Value'}


def _name(type: pa.DataType) -> str:
    return _NAMES.get(str(type), str(type))
