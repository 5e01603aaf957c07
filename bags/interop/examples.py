"""`tf.train.Example` and `SequenceExample` as datapoints, in files of any format of records.

Their types come from `features.json` of TensorFlow Datasets, if it is beside the files, else from the first
records.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bags.dataset.spec import parse_type
from bags.errors import SourceError
from bags.formats.signatures import PICTURES, identify
from bags.interop.columns import array_from
from bags.interop.example_message import parse_example
from bags.interop.files import checked_value
from bags.interop.records import Bytes, Record, RecordSource
from bags.interop.source import Source, name_fields
from bags.interop.tfds_features import ExampleColumn, read_features
from bags.media.stored import AUDIO_FORMATS, VIDEO_FORMATS

__all__ = ['open_examples']

SAMPLES = 1000
"""Records from which types are inferred, unless fewer have this many bytes:"""
SAMPLE_BYTES = 1 << 25
_SPLIT = re.compile(r'.*?-([A-Za-z0-9_]+)\.(?:tfrecord|array_record)[^/]*')
_CONTROL = re.compile(r'[\x00-\x08\x0b\x0c\x0e-\x1f]')

Count = Callable[[str, Mapping[str, Any] | None], tuple[int, tuple[str, str] | None]]
Read = Callable[[str, int, int, Mapping[str, Any] | None], Iterator[bytes | SourceError]]


def open_examples(
    format: str, paths: list[str], count: Count, read: Read, storage_options: Mapping[str, Any] | None
) -> Source:
    """Returns the source of some files: examples, or records of bytes if they are none.

    Args:
        format: Of the files.
        paths: Of the files.
        count: Returns the number of records of a file, and what is wrong after them.
        read: Yields the records of a file from one to another, or an error for each that is damaged.
        storage_options: As in `bags.open`.
    """
    files, damaged = [], []
    for path in paths:
        length, problem = count(path, storage_options)
        files.append((path, length))
        damaged += [problem] if problem else []
    counts = dict(files)

    def read_file(path: str, start: int) -> Iterator[bytes | SourceError]:
        return read(path, start, counts[path], storage_options)

    notes: list[str] = []
    found = read_features(paths[0].rpartition('/')[0] or '.', storage_options, notes)
    source: Source
    if found is not None:
        columns, metadata = found
        source = ExampleSource(
            'tfds', files, read_file, {name: (each, False) for name, each in columns.items()}
        )
        source.metadata = metadata
        splits = {path: match[1] for path in paths if (match := _SPLIT.fullmatch(path.rpartition('/')[2]))}
        if len(set(splits.values())) > 1 and 'split' not in source.spec:
            source.splits = splits
            source.spec['split'] = 'utf8'
            notes.append(
                f"field 'split' is the split of each datapoint: {', '.join(sorted(set(splits.values())))}"
            )
    else:
        each = max(1, SAMPLES // max(1, len(files)))
        records = (
            data
            for path, _ in files
            for data in itertools.islice(read_file(path, 0), each)
            if isinstance(data, bytes)
        )
        inferred, looked_at = _infer(itertools.islice(records, SAMPLES), notes)
        if inferred is None:
            source = Bytes(format, files, read_file)
        else:
            source = ExampleSource(format, files, read_file, inferred, looked_at)
            if source.count > looked_at:
                notes.append(
                    f'types are inferred from {looked_at} of {source.count} records; spec= changes them'
                )
    source.notes += notes
    source.damaged = damaged
    return source


class ExampleSource(RecordSource):
    """Examples in the records of files.

    Args:
        format: Its name.
        files: Path and number of records of each file.
        read: As `RecordSource.read`.
        columns: By field, and whether some examples are without it.
        looked_at: Number of records from which these come; None if examples may have more features.
    """

    def __init__(
        self,
        format: str,
        files: list[tuple[str, int]],
        read: Callable[[str, int], Iterator[bytes | SourceError]],
        columns: Mapping[str, tuple[ExampleColumn, bool]],
        looked_at: int | None = None,
    ) -> None:
        spec = {field: column.kind + '?' * optional for field, (column, optional) in columns.items()}
        super().__init__(format, spec, files)
        self._read = read
        self._columns = {field: column for field, (column, _) in columns.items()}
        self._keys = {column.key for column in self._columns.values()}
        self._looked_at = looked_at
        self.splits: Mapping[str, str] = {}

    def read(self, path: str, start: int) -> Iterator[bytes | SourceError]:
        return self._read(path, start)

    def decode(self, entry: Record) -> Mapping[str, Any]:
        assert isinstance(entry.data, bytes)
        example = parse_example(entry.data)
        if self._looked_at is not None:
            self._check_keys(example)
        values: dict[str, Any] = {'split': self.splits[entry.path]} if self.splits else {}
        for field, column in self._columns.items():
            if field in self.spec:
                kind = parse_type(self.spec[field])
                try:
                    value = _value(example, column, kind.word, f'{self.name(entry)}, field {field!r}')
                except (ValueError, KeyError, TypeError, zlib.error) as exc:
                    if isinstance(exc, SourceError):
                        raise
                    raise ValueError(f'field {field!r}: {exc}') from exc
                if value is None and not kind.optional:
                    raise ValueError(
                        f'field {field!r}: expected a value, got none; a type with ? may have none'
                    )
                values[field] = value
        return values

    def _check_keys(self, example: Any) -> None:
        found = {*example.context.feature, *example.feature_lists.feature_list} - self._keys
        for key in found:
            if key not in example.context.feature or _values_of(example.context.feature[key]):
                raise ValueError(
                    f'feature {key!r}: expected only those of the first {self._looked_at} records, '
                    "whose features are the fields; on_error='skip' leaves this record out"
                )


def _value(example: Any, column: ExampleColumn, word: str, name: str) -> Any:
    """Returns the value of a feature; None if the example does not have it.

    Args:
        example: A `SequenceExample`.
        column: Where and what it is.
        word: Of the field's type.
        name: Of the record and field.
    """
    if column.in_steps:
        if column.key not in example.feature_lists.feature_list:
            return None
        steps = example.feature_lists.feature_list[column.key].feature
        one = column._replace(levels=0)
        return [_decoded(_values_of(step), one, word, f'{name}, item {i}') for i, step in enumerate(steps)]
    features, key = example.context.feature, column.key
    if column.levels == 2:
        lengths = _values_of(features[f'{key}/ragged_row_lengths_0'])
        array = np.asarray(_values_of(features[f'{key}/ragged_flat_values']), column.dtype)
        array = array_from(array.tobytes(), array.dtype, (-1, *column.shape))
        ends = np.cumsum(lengths, dtype=np.int64)
        if min(lengths, default=0) < 0 or (ends[-1] if len(ends) else 0) != len(array):
            raise ValueError(f'expected {sum(lengths)} values of all items, got {len(array)}')
        return np.split(array, ends[:-1]) if len(ends) else []
    if column.shape.count(-1) > 1 and column.encoding:
        column = column._replace(shape=tuple(_values_of(features[f'{key}/shape'])))
        key = f'{key}/value'
    if key not in features:
        return None
    return _decoded(_values_of(features[key]), column, word, name)


def _decoded(values: Sequence[Any], column: ExampleColumn, word: str, name: str) -> Any:
    """Returns the value of a list of bytes, ints or floats: None if an empty one is no value."""
    is_bytes = bool(values) and isinstance(values[0], bytes)
    if is_bytes != bool(column.word or column.encoding) and values:
        raise ValueError(
            f'expected {"bytes" if column.word else column.dtype}, got {type(values[0]).__name__}'
        )
    if column.word or column.encoding:
        if column.word:
            items = [
                checked_value(f'{name}, item {i}' if column.levels else name, word, each)
                for i, each in enumerate(values)
            ]
        else:
            size = np.dtype(column.dtype).itemsize * abs(int(np.prod(column.shape, dtype=object)))
            limit = -1 if -1 in column.shape else size
            inflated = [_inflate(each, limit) if column.encoding == 'zlib' else each for each in values]
            items = [array_from(each, np.dtype(column.dtype), column.shape) for each in inflated]
        if column.levels:
            return items
        if len(items) > 1:
            raise ValueError(f'expected one value, got {len(items)}; a type with [] takes them')
        return items[0] if items else None
    if not values and not column.levels and -1 not in column.shape:
        return None
    array = np.asarray(values, column.dtype)
    if not column.levels:
        return array_from(array.tobytes(), array.dtype, column.shape)
    return list(array_from(array.tobytes(), array.dtype, (-1, *column.shape)))


def _inflate(data: bytes, size: int) -> bytes:
    """Returns decompressed bytes, as many as an array of known shape has; else at most 1 GiB."""
    return zlib.decompressobj().decompress(data, size + 1 if size >= 0 else 1 << 30)


def _values_of(feature: Any) -> Sequence[Any]:
    kind = feature.WhichOneof('kind')
    values: Sequence[Any] = getattr(feature, kind).value if kind else ()
    return values


def _infer(
    records: Iterator[bytes], notes: list[str]
) -> tuple[dict[str, tuple[ExampleColumn, bool]] | None, int]:
    """Returns the columns of some records, and whether some are without it; None if they are no examples.

    The second value is how many records it has looked at.
    """
    seen: dict[tuple[str, bool], list[list[Sequence[Any]]]] = defaultdict(list)
    count = size = 0
    for data in records:
        try:
            example = parse_example(data)
        except ValueError:
            return None, count
        for key, feature in example.context.feature.items():
            seen[key, False].append([_values_of(feature)])
        for key, steps in example.feature_lists.feature_list.items():
            seen[key, True].append(list(map(_values_of, steps.feature)))
        count, size = count + 1, size + len(data)
        if size > SAMPLE_BYTES:
            break
    if not seen:
        return None, count
    keys = sorted(seen, key=lambda each: (each[1], each[0]))
    names = name_fields(
        (f'steps.{key}' if steps and (key, False) in seen else key for key, steps in keys), notes
    )
    columns: dict[str, tuple[ExampleColumn, bool]] = {}
    for (key, in_steps), name in zip(keys, names.values(), strict=True):
        found = [values for each in seen[key, in_steps] for values in each if values]
        if not found:
            notes.append(f'feature {key!r}, without a value in the first records, is left out')
            continue
        kinds = {type(values[0]) for values in found}
        if len(kinds) > 1:
            types = ', '.join(sorted(kind.__name__ for kind in kinds))
            raise SourceError(f'feature {key!r}', f'expected values of one type in all records, got {types}')
        column = _column(key, found, in_steps)
        present = sum(any(len(values) for values in each) or in_steps for each in seen[key, in_steps])
        may_be_empty = column.levels or -1 in column.shape
        is_optional = len(seen[key, in_steps]) < count or (present < count and not may_be_empty)
        columns[name] = column, is_optional
    return columns, count


def _column(key: str, found: list[Sequence[Any]], in_steps: bool) -> ExampleColumn:
    """Returns the column of a feature, by its values in some records, none of which are empty."""
    lengths = set(map(len, found))
    if isinstance(found[0][0], bytes):
        levels = int(lengths != {1} or in_steps)
        return ExampleColumn(
            key, _word(each for values in found for each in values), levels=levels, in_steps=in_steps
        )
    shape = () if lengths == {1} else tuple(lengths) if len(lengths) == 1 else (-1,)
    dtype = 'float32' if isinstance(found[0][0], float) else 'int64'
    return ExampleColumn(key, '', dtype, shape, int(in_steps), in_steps=in_steps)


def _word(values: Iterator[bytes]) -> str:
    """Returns the type of bytes by their first bytes: a format of media, text, or bytes."""
    words = set(map(_word_of, values))
    if len(words) > 1 and words <= {*_WORDS.values(), 'image'} - {'video', 'audio'}:
        return 'image'
    return words.pop() if len(words) == 1 else 'bytes'


_WORDS = {
    **dict.fromkeys(PICTURES, 'image'),
    **dict.fromkeys(VIDEO_FORMATS, 'video'),
    **dict.fromkeys(AUDIO_FORMATS, 'audio'),
    **{format: format.lower() for format in ('JPEG', 'PNG', 'WEBP', 'AVIF')},
}


def _word_of(data: bytes) -> str:
    word = _WORDS.get(identify(data))
    if word is not None:
        try:
            checked_value('', word, data)
        except SourceError:
            pass  # Text may begin as a BMP does: BM.
        else:
            return word
    return 'utf8' if _is_text(data) else 'bytes'


def _is_text(data: bytes) -> bool:
    try:
        return not _CONTROL.search(data.decode())
    except UnicodeDecodeError:
        return False
