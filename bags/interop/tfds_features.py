"""`features.json` of TensorFlow Datasets: the columns of its examples, and the types of their fields.

The steps of an episode (RLDS: the feature `steps`, a `Dataset`) are sequences, named without `steps`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.metadata import Metadata
from bags.errors import SourceError
from bags.interop.records import open_file, size_of
from bags.interop.source import name_fields

__all__ = ['ExampleColumn', 'read_features']

_MAX_BYTES = 1 << 26


class ExampleColumn(NamedTuple):
    """A feature of `tf.train.Example`, or of each step of a `SequenceExample`."""

    key: str
    """In the example."""
    word: str
    """The type of a bytes value: utf8, bytes, jpeg, …; empty for numbers."""
    dtype: str = ''
    """Of numbers."""
    shape: tuple[int, ...] = ()
    """Of a value; -1 is a length that varies."""
    levels: int = 0
    """How many sequences it is in: 0, 1, or 2 with `ragged_row_lengths_0` beside the values."""
    encoding: str = ''
    """Of numbers: 'bytes' or 'zlib' if they are stored as such."""
    in_steps: bool = False
    """Whether it is a feature list of a SequenceExample."""

    @property
    def kind(self) -> str:
        """The type of the field."""
        if self.levels == 2:  # Numbers of one step are an array, of which the first length varies.
            return f'array({",".join(map(str, (self.dtype, "?", *self.shape)))})[]'
        if self.word:
            kind = self.word
        elif not self.shape:
            kind = {'b': 'bool', 'i': 'int', 'u': 'uint', 'f': 'float'}[np.dtype(self.dtype).kind]
            kind += '' if kind == 'bool' else f'({np.dtype(self.dtype).itemsize})'
        elif self.shape.count(-1) > 1:
            kind = 'array'
        else:
            kind = f'array({",".join([self.dtype, *map(str, self.shape)]).replace("-1", "?")})'
        return kind + '[]' * self.levels


def read_features(
    folder: str, storage_options: Mapping[str, Any] | None, notes: list[str]
) -> tuple[dict[str, ExampleColumn], Metadata] | None:
    """Returns the column of each field, and the metadata: names of classes; None without `features.json`.

    Args:
        folder: Of the files.
        storage_options: As in `bags.open`.
        notes: Get a sentence for each feature that is renamed or left out.

    Raises:
        SourceError: A `features.json` that is damaged.
    """
    path = f'{folder}/features.json'
    size = size_of(path, storage_options)
    if size is None:
        return None
    if size > _MAX_BYTES:
        raise SourceError(path, f'expected at most {_MAX_BYTES} bytes, got {size}')
    columns: dict[str, ExampleColumn] = {}
    facts: dict[str, dict[str, Any]] = {}
    try:
        with open_file(path, storage_options) as file:
            for key, feature, levels in _leaves(json.load(file), '', 0):
                column = _column(key, feature, levels)
                if column is None:
                    kind = str(feature.get('pythonClassName', 'feature')).rpartition('.')[2]
                    notes.append(f'feature {key!r}, a {kind} in {levels} sequences, is left out')
                    continue
                columns[key] = column
                if 'classLabel' in feature:
                    facts[key] = _classes(folder, key, storage_options)
                if 'audio' in feature and feature['audio'].get('sampleRate'):
                    facts[key] = {'sample_rate': int(feature['audio']['sampleRate'])}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise SourceError(path, f'expected the features of TensorFlow Datasets: {exc!r}') from exc
    short = {key: key.removeprefix('steps/').replace('/', '.') for key in columns}
    if len(set(short.values())) < len(short):
        short = {key: key.replace('/', '.') for key in columns}
    elif any(key.startswith('steps/') for key in columns):
        notes.append('fields of steps are named without the steps before: observation.image')
    names = name_fields(short.values(), notes)
    fields = {names[short[key]]: column for key, column in columns.items()}
    found = {names[short[key]]: fact for key, fact in facts.items() if fact}
    return fields, {'fields': found} if found else {}


def _leaves(
    feature: Mapping[str, Any], key: str, levels: int
) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yields the key of each feature that has no others in it, and how many sequences it is in."""
    if 'featuresDict' in feature or 'translation' in feature:
        inner = feature.get('featuresDict', {}).get('features') or {
            language: {'text': {}} for language in feature['translation']['languages']
        }
        for name, each in inner.items():
            yield from _leaves(each, f'{key}/{name}' if key else name, levels)
    elif 'sequence' in feature:
        yield from _leaves(feature['sequence']['feature'], key, levels + 1)
    elif 'video' in feature:
        yield key, feature, levels + 1
    else:
        yield key, feature, levels


def _column(key: str, feature: Mapping[str, Any], levels: int) -> ExampleColumn | None:
    """Returns the column of a feature; None if it cannot be a field."""
    column = None
    if 'text' in feature:
        column = ExampleColumn(key, 'utf8', levels=levels)
    elif 'classLabel' in feature:
        column = ExampleColumn(key, '', 'int64', levels=levels)
    elif 'boundingBox' in feature:
        column = ExampleColumn(key, '', 'float32', (4,), levels)
    elif 'image' in feature or 'video' in feature:
        facts = feature.get('image') or feature['video']
        word = {'jpeg': 'jpeg', 'png': 'png'}.get(facts.get('encodingFormat') or '', 'image')
        # Pixels of floats are the bytes of a PNG of four channels.
        column = None if facts.get('dtype') == 'float32' else ExampleColumn(key, word, levels=levels)
    elif 'tensor' in feature or 'audio' in feature:
        facts = feature.get('tensor') or feature['audio']
        shape = tuple(map(int, facts.get('shape', {}).get('dimensions', ())))
        encoding = str(facts.get('encoding', '')).lower().replace('none', '')
        if facts.get('lazyDecode'):
            column = ExampleColumn(key, 'audio', levels=levels)
        elif facts['dtype'] == 'string':
            column = ExampleColumn(key, 'bytes', levels=levels + len(shape)) if len(shape) < 2 else None
        elif np.dtype(facts['dtype']).kind in 'biuf' and (not levels or -1 not in shape):
            column = ExampleColumn(key, '', facts['dtype'], shape, levels, encoding)
    if column is None or column.levels > 2 or (column.levels == 2 and (column.word or -1 in column.shape)):
        return None
    return column


def _classes(folder: str, key: str, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the names of classes, one a line of a file beside `features.json`."""
    path = f'{folder}/{key.replace("/", "-")}.labels.txt'
    size = size_of(path, storage_options)
    if size is None or size > _MAX_BYTES:
        return {}
    with open_file(path, storage_options) as file:
        return {'classes': file.read().decode().splitlines()}
