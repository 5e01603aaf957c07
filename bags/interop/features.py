"""The features of Hugging Face's datasets: the types that they stand for, and those of a dataset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bags.dataset.arrow_types import MEDIA, array_text, import_pyarrow, shape_of, type_of
from bags.dataset.metadata import Metadata
from bags.dataset.selection import VIDEO_WORDS
from bags.dataset.spec import FieldType, Spec
from bags.interop.extensions import PICTURE_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ['read_features', 'type_of_feature', 'write_features']

KEY = b'huggingface'
"""In the metadata of an Arrow schema."""
_MEDIA = {'Image': 'image', 'Audio': 'audio', 'Video': 'video'}
_SEQUENCES = ('List', 'LargeList', 'Sequence')
_NAMES = {'halffloat': 'float16', 'float': 'float32', 'double': 'float64', 'date32[day]': 'date32'}
"""Of Arrow's types, where these features have others."""


def read_features(schema: pa.Schema) -> dict[str, Any]:
    """Returns the features by column that the metadata of a schema has; none if there are none."""
    try:
        features = json.loads((schema.metadata or {})[KEY])['info']['features']
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def type_of_feature(feature: Any, type: pa.DataType) -> tuple[str, list[str] | None]:
    """Returns the type of field for a column, and the names of its classes.

    Args:
        feature: The feature of the column; a type for the Arrow type alone if there is none.
        type: The Arrow type of the column.
    """
    pa = import_pyarrow()
    if isinstance(feature, list) and len(feature) == 1:  # As written before version 4.
        feature = {'_type': 'List', 'feature': feature[0]}
    kind = feature.get('_type') if isinstance(feature, dict) else None
    if kind in _MEDIA:
        return _MEDIA[kind], None
    if kind == 'ClassLabel' and isinstance(feature.get('names'), list):
        return type_of(type), feature['names']
    if kind in ('Array2D', 'Array3D', 'Array4D', 'Array5D'):
        shape = tuple(-1 if length is None else int(length) for length in feature['shape'])
        return array_text(str(feature['dtype']), shape), None
    is_list = pa.types.is_list(type) or pa.types.is_large_list(type)
    if kind in _SEQUENCES and is_list and isinstance(feature.get('feature'), dict):
        inner, classes = type_of_feature(feature['feature'], type.value_type)
        if '_type' in feature['feature'] and feature['feature']['_type'] not in _SEQUENCES:
            return f'{inner}[]', classes
    return type_of(type), None


def write_features(schema: pa.Schema, types: Spec, metadata: Metadata) -> bytes:
    """Returns the features of the columns of a schema, as its metadata have them.

    Args:
        schema: Of fields with the bytes of pictures, videos and recordings.
        types: The types of the fields.
        metadata: Of the dataset; the `classes` of a field make it a `ClassLabel`.
    """
    features = {}
    for column in schema:
        kind, facts = types[column.name], metadata.get('fields', {}).get(column.name, {})
        is_list = kind.sequence
        item = _feature_of(kind, column.type.value_type if is_list else column.type, facts.get('classes'))
        features[column.name] = {'feature': item, '_type': 'List'} if is_list else item
    return json.dumps({'info': {'features': features}}).encode()


def _feature_of(kind: FieldType, type: pa.DataType, classes: Any) -> Any:
    if kind.word in MEDIA:
        is_picture = kind.word in (*PICTURE_TYPES, 'jpg')
        return {'_type': 'Image' if is_picture else 'Video' if kind.word in VIDEO_WORDS else 'Audio'}
    pa = import_pyarrow()
    if isinstance(classes, list) and pa.types.is_integer(type):
        return {'names': list(map(str, classes)), '_type': 'ClassLabel'}
    found = shape_of(kind)
    if found is not None and found[0].kind in 'biuf' and 2 <= len(found[1]) <= 5:
        dtype, shape = found
        if 0 not in shape and -1 not in shape[1:]:
            lengths = [None if length == -1 else length for length in shape]
            name = 'float32' if dtype.kind == 'f' and dtype.itemsize == 2 else dtype.newbyteorder('=').name
            return {'shape': lengths, 'dtype': name, '_type': f'Array{len(shape)}D'}
    return _of_arrow(type)


def _of_arrow(type: pa.DataType) -> Any:
    pa = import_pyarrow()
    if pa.types.is_struct(type):
        return {part.name: _of_arrow(part.type) for part in type}
    if pa.types.is_fixed_size_list(type):
        return {'feature': _of_arrow(type.value_type), 'length': type.list_size, '_type': 'List'}
    if pa.types.is_list(type):
        return {'feature': _of_arrow(type.value_type), '_type': 'List'}
    name = 'binary' if pa.types.is_fixed_size_binary(type) else str(type)
    return {'dtype': _NAMES.get(name, name), '_type': 'Value'}
