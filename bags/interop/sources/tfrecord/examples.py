"""`tf.train.Example` and `SequenceExample` as datapoints, in files of any record format.

Types come from `features.json` of TensorFlow Datasets in the same folder, or else from the first records.
"""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bags.dataset.format.spec import parse_type
from bags.errors import MissingDependencyError, SourceError
from bags.formats.signatures import identify
from bags.interop.files import MEDIA_FORMATS, checked_value
from bags.interop.records import FileRecord, RawRecordSource, ReadRecords, RecordSource, array_from
from bags.interop.source import Source, name_fields
from bags.interop.sources.tfrecord.tfds_features import ExampleColumn, read_features
from bags.links.sources import OpenedLink

SAMPLES = 1000
"""Maximum number of records from which types are inferred."""
SAMPLE_BYTES = 1 << 25
"""Bytes of records after which no more are read to infer types."""
_MAX_INFLATED = 1 << 30
_SPLIT = re.compile(r'.*?-([A-Za-z0-9_]+)\.(?:tfrecord|array_record)[^/]*')
_TEXT = re.compile(r'[^\x00-\x08\x0b\x0c\x0e-\x1f]*')

Example = dict[tuple[bool, str], list[Sequence[Any]]]
"""The values of each feature: one list, or a list for each step. The key is whether the feature has steps,
and its name. Values are bytes, ints or floats."""
_MESSAGES = {
    'Bytes': 'value: BYTES*',
    'Floats': 'value: FLOAT*',
    'Ints': 'value: INT64*',
    'Feature': 'bytes: Bytes, floats: Floats, ints: Ints',
    'Entry': 'key: STRING, value: Feature',
    'Features': 'entries: Entry*',
    'Steps': 'features: Feature*',
    'StepsEntry': 'key: STRING, value: Steps',
    'StepsFeatures': 'entries: StepsEntry*',
    'SequenceExample': 'context: Features, steps: StepsFeatures',
}
"""Fields in the order of their numbers, as in tensorflow/core/example; `*` marks repeated ones."""


def open_examples(
    format: str, files: Mapping[str, int], read: ReadRecords, storage_options: Mapping[str, Any] | None
) -> Source:
    """Returns a source of examples, or of bytes if the records are not examples."""
    notes: list[str] = []
    folder = next(iter(files), '').rpartition('/')[0] or '.'
    found = read_features(folder, storage_options, notes)
    if found is not None:
        columns, metadata = found
        source = ExampleSource('tfds', files, read, columns, None)
        source.metadata = metadata
        source.add_splits()
    else:
        each = max(1, SAMPLES // max(1, len(files)))
        records = (data for path, count in files.items() for data in read(path, 0, min(count, each)))
        where = next(iter(files)) if len(files) == 1 else folder
        inferred, looked_at = _infer(where, (data for data in records if isinstance(data, bytes)), notes)
        if not inferred:
            return RawRecordSource(format, files, read)
        source = ExampleSource(format, files, read, inferred, looked_at)
        if source.count > looked_at:
            notes.append(f'types are inferred from {looked_at} of {source.count} records; spec= changes them')
    source.notes += notes
    return source


class ExampleSource(RecordSource):
    """Examples in the records of files.

    The columns come from the first `looked_at` records. With None, records may have other features too.
    """

    def __init__(
        self,
        format: str,
        files: Mapping[str, int],
        read: ReadRecords,
        columns: Mapping[str, ExampleColumn],
        looked_at: int | None,
    ) -> None:
        super().__init__(format, {field: column.field_type for field, column in columns.items()}, files, read)
        self._columns = columns
        self._looked_at = looked_at
        self._splits: dict[str, str] = {}

    def add_splits(self) -> None:
        """Adds a field `split`, if the files belong to several splits."""
        splits = {path: match[1] for path in self.files if (match := _SPLIT.fullmatch(path))}
        if len(set(splits.values())) > 1 and 'split' not in self.spec:
            self._splits = splits
            self.spec['split'] = 'utf8'
            names = ', '.join(sorted(set(splits.values())))
            self.notes.append(f"field 'split' is the split of each datapoint: {names}")

    def decode(self, entry: FileRecord, data: bytes | OpenedLink) -> Mapping[str, Any]:
        assert isinstance(data, bytes)  # No field of an example can be linked.
        example = _parse_example(data)
        if self._looked_at is not None:
            keys = {(column.in_steps, column.key) for column in self._columns.values()}
            for _, key in (each for each in example.keys() - keys if any(example[each])):
                raise ValueError(
                    f'feature {key!r}: expected only features of the first {self._looked_at} records, '
                    "whose features are the fields; on_error='skip' leaves this record out"
                )
        values: dict[str, Any] = {'split': self._splits[entry.path]} if self._splits else {}
        for field, column in self._columns.items():
            if field in self.spec:
                field_type = parse_type(self.spec[field])
                where = f'field {field!r}'
                try:
                    value = _value(example, column, field_type.format, f'{self.name(entry)}, {where}')
                except SourceError:
                    raise
                except (ValueError, TypeError, OverflowError, zlib.error) as exc:
                    raise ValueError(f'{where}: {exc}') from exc
                if value is None and not field_type.optional:
                    raise ValueError(f'{where}: expected a value, got none; a type with ? may have none')
                values[field] = value
        return values


def _value(example: Example, column: ExampleColumn, type_format: str, name: str) -> Any:
    """Returns the value of a feature, for a field whose type has this format; None if it is missing."""
    found = example.get((column.in_steps, column.key))
    if not column.in_steps or found is None:
        return _decoded(found[0], column, type_format, name) if found else None
    one = column._replace(is_sequence=False)
    return [_decoded(values, one, type_format, f'{name}, item {i}') for i, values in enumerate(found)]


def _decoded(values: Sequence[Any], column: ExampleColumn, type_format: str, name: str) -> Any:
    """Decodes a list of bytes, ints or floats to a value: None if an empty list means a missing value."""
    dtype = np.dtype(column.dtype or 'V')
    expected = bytes if column.word or column.encoding else float if dtype.kind == 'f' else int
    if values and not isinstance(values[0], expected):
        raise ValueError(f'expected {expected.__name__}, got {type(values[0]).__name__}')
    if column.word:
        items = [checked_value(f'{name}, item {i}', type_format, each) for i, each in enumerate(values)]
    elif column.encoding:
        inflate = column.encoding == 'zlib'
        plain = [zlib.decompressobj().decompress(each, _MAX_INFLATED) if inflate else each for each in values]
        items = [array_from(each, dtype, column.shape) for each in plain]
    else:
        data = np.asarray(values, dtype).tobytes()
        if column.is_sequence:
            items = list(array_from(data, dtype, (-1, *column.shape)))
        else:
            items = [array_from(data, dtype, column.shape)] if values or -1 in column.shape else []
    if column.is_sequence:
        return items
    if len(items) > 1:
        raise ValueError(f'expected one value, got {len(items)}; a type with [] takes them')
    return items[0] if items else None


def _infer(where: str, records: Iterable[bytes], notes: list[str]) -> tuple[dict[str, ExampleColumn], int]:
    """Infers columns from records; returns none if they are not examples, and the number of records used."""
    seen: dict[tuple[bool, str], list[list[Sequence[Any]]]] = defaultdict(list)
    count = size = 0
    for data in itertools.islice(records, SAMPLES):
        try:
            example = _parse_example(data)
        except ValueError:
            return {}, count
        for each, values in example.items():
            seen[each].append(values)
        count, size = count + 1, size + len(data)
        if size > SAMPLE_BYTES:
            break
    keys = sorted(seen)
    names = name_fields(
        (f'steps.{key}' if steps and (False, key) in seen else key for steps, key in keys), notes
    )
    columns = {}
    for (in_steps, key), name in zip(keys, names.values(), strict=True):
        lists = seen[in_steps, key]
        found = [values for each in lists for values in each if values]
        if not found:
            notes.append(f'feature {key!r}, without a value in the first records, is left out')
            continue
        types = {type(values[0]).__name__ for values in found}
        if len(types) > 1:
            got = ', '.join(sorted(types))
            raise SourceError(
                where, f'feature {key!r}: expected values of one type in all records, got {got}'
            )
        column = _column(key, found, in_steps)
        may_be_empty = column.is_sequence or -1 in column.shape
        is_missing = len(lists) < count or (len(found) < count and not may_be_empty)
        columns[name] = column._replace(optional=is_missing)
    return columns, count


def _column(key: str, found: list[Sequence[Any]], in_steps: bool) -> ExampleColumn:
    """Returns the column of a feature, from its non-empty values in some records."""
    lengths = set(map(len, found))
    if isinstance(found[0][0], bytes):
        word = _word([each for values in found for each in values])
        return ExampleColumn(key, word, is_sequence=lengths != {1} or in_steps, in_steps=in_steps)
    shape = () if lengths == {1} else tuple(lengths) if len(lengths) == 1 else (-1,)
    dtype = 'float32' if isinstance(found[0][0], float) else 'int64'
    return ExampleColumn(key, '', dtype, shape, in_steps, in_steps=in_steps)


def _word(values: list[bytes]) -> str:
    """Returns the type of byte values: a media format by their first bytes, text, or bytes."""
    formats = set(map(identify, values))
    for word in ('jpeg', 'png', 'webp', 'avif', 'image', 'video', 'audio'):
        if formats <= set(MEDIA_FORMATS[word]):
            return word
    try:
        return 'utf8' if all(_TEXT.fullmatch(each.decode()) for each in values) else 'bytes'
    except UnicodeDecodeError:
        return 'bytes'


# Messages, without TensorFlow.


def _parse_example(data: bytes) -> Example:
    """Parses a SequenceExample, or an Example, which is a SequenceExample without feature lists."""
    try:
        message = _message().FromString(data)
    except Exception as exc:  # google.protobuf.message.DecodeError
        raise ValueError(f'expected a tf.train.Example: {exc}') from exc
    example: Example = {(False, each.key): [_values(each.value)] for each in message.context.entries}
    for each in message.steps.entries:
        example[True, each.key] = [_values(step) for step in each.value.features]
    if not example and data not in (b'', b'\n\0'):  # An Example without features.
        raise ValueError('expected a tf.train.Example with features')
    return example


def _values(feature: Any) -> Sequence[Any]:
    values: Sequence[Any] = feature.bytes.value or feature.floats.value or feature.ints.value
    return values


@functools.cache
def _message() -> Any:
    """Returns the class of SequenceExample, in its own pool, because TensorFlow uses the default pool."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as exc:
        raise MissingDependencyError('protobuf', 'tfrecord') from exc
    file = descriptor_pb2.FileDescriptorProto(name='bags.proto', package='bags', syntax='proto3')
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(', '), 1):
            word, _, scalar_type = field.partition(': ')
            scalar = scalar_type.strip('*') not in _MESSAGES
            message.field.add(
                name=word,
                number=number,
                label='LABEL_REPEATED' if scalar_type.endswith('*') else 'LABEL_OPTIONAL',
                type=f'TYPE_{scalar_type.strip("*")}' if scalar else 'TYPE_MESSAGE',
                type_name=None if scalar else f'.bags.{scalar_type.strip("*")}',
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName('bags.SequenceExample'))
