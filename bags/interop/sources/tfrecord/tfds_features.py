"""`features.json` of TensorFlow Datasets: the columns of its examples, and the types of their fields.

The steps of an episode (RLDS: the feature `steps`, a `Dataset`) are sequences, named without `steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.format.metadata import Metadata
from bags.formats.arrays import type_text
from bags.interop.records import open_file, read_json, size_of
from bags.interop.source import name_fields

_MAX_LABELS_BYTES = 1 << 26


class ExampleColumn(NamedTuple):
    """A feature of `tf.train.Example`, or of each step of a `SequenceExample`."""

    key: str
    """Key of the feature in the example."""
    word: str = ''
    """The type of a bytes value: utf8, bytes, jpeg, …; empty for numbers."""
    dtype: str = ''
    """Dtype of numbers."""
    shape: tuple[int, ...] = ()
    """Shape of a value; -1 marks a variable length."""
    is_sequence: bool = False
    encoding: str = ''
    """'bytes' or 'zlib' for numbers stored in this form; else empty."""
    in_steps: bool = False
    """Whether the feature is a feature list of a SequenceExample."""
    optional: bool = False
    """Whether some examples lack the feature."""

    @property
    def field_type(self) -> str:
        """The type of the field."""
        text = self.word or type_text(np.dtype(self.dtype), self.shape)
        return text + '[]' * self.is_sequence + '?' * self.optional


def read_features(
    folder: str, storage_options: Mapping[str, Any] | None, notes: list[str]
) -> tuple[dict[str, ExampleColumn], Metadata] | None:
    """Returns the column of each field, and metadata with class names; None without `features.json`."""
    path = f'{folder}/features.json'
    if size_of(path, storage_options) is None:
        return None
    return read_json(path, lambda content: _fields(content, folder, storage_options, notes), storage_options)


def _fields(
    content: Any, folder: str, storage_options: Mapping[str, Any] | None, notes: list[str]
) -> tuple[dict[str, ExampleColumn], Metadata]:
    leaves = list(_leaves(content, '', 0))
    short = {column.key: column.key.removeprefix('steps/').replace('/', '.') for column, _ in leaves}
    if len(set(short.values())) < len(short):
        short = {key: key.replace('/', '.') for key in short}
    elif any(key.startswith('steps/') for key in short):
        notes.append('fields of steps are named without the steps before: observation.image')
    names = name_fields(short.values(), notes)
    columns: dict[str, ExampleColumn] = {}
    facts: dict[str, Any] = {}
    for column, feature in leaves:
        field = names[short[column.key]]
        columns[field] = column
        if 'audio' in feature and feature['audio'].get('sampleRate'):
            facts[field] = {'sample_rate': int(feature['audio']['sampleRate'])}
        labels = f'{folder}/{column.key.replace("/", "-")}.labels.txt'
        if 'classLabel' in feature and 0 < (size_of(labels, storage_options) or 0) <= _MAX_LABELS_BYTES:
            with open_file(labels, storage_options) as file:
                facts[field] = {'classes': file.read().decode().splitlines()}
    return columns, {'fields': facts} if facts else {}


def _leaves(
    feature: Mapping[str, Any], key: str, levels: int
) -> Iterator[tuple[ExampleColumn, Mapping[str, Any]]]:
    """Yields each leaf feature and its column; `levels` is the number of sequences around it."""
    if 'featuresDict' in feature:
        for name, each in feature['featuresDict']['features'].items():
            yield from _leaves(each, f'{key}/{name}' if key else name, levels)
    elif 'sequence' in feature:
        yield from _leaves(feature['sequence']['feature'], key, levels + 1)
    else:
        yield _column(key, feature, levels), feature


def _column(key: str, feature: Mapping[str, Any], levels: int) -> ExampleColumn:
    word = dtype = encoding = ''
    shape: tuple[int, ...] = ()
    if 'text' in feature:
        word = 'utf8'
    elif 'classLabel' in feature:
        dtype = 'int64'
    elif 'boundingBox' in feature:
        dtype, shape = 'float32', (4,)
    elif facts := feature.get('image') or feature.get('video'):
        levels += 'video' in feature
        if facts.get('dtype') != 'float32':  # Stored as the bytes of a PNG with four channels.
            word = {'jpeg': 'jpeg', 'png': 'png'}.get(facts.get('encodingFormat'), 'image')
    elif facts := feature.get('tensor') or feature.get('audio'):
        shape = tuple(map(int, facts.get('shape', {}).get('dimensions', ())))
        encoding = str(facts.get('encoding', '')).lower().replace('none', '')
        if facts.get('lazyDecode'):
            word, shape = 'audio', ()
        elif facts['dtype'] == 'string' and len(shape) < 2:
            word, levels, shape = 'bytes', levels + len(shape), ()
        elif np.dtype(facts['dtype']).kind in 'biuf':
            dtype = facts['dtype']
    if not (word or dtype) or levels > 1 or shape.count(-1) > (levels == 0):
        name = str(feature.get('pythonClassName', 'feature')).rpartition('.')[2]
        raise ValueError(
            f'feature {key!r}: a {name} of shape {shape} in {levels} sequences cannot be a field; '
            'to import the other features, remove it from this file'
        )
    return ExampleColumn(key, word, dtype, shape, levels == 1, encoding)
