"""Writes `tokens.bin` and `tokens.idx` for Megatron-LM; see `megatron_index`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import array_rows, has_varying_rows
from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.columns import read_column
from bags.dataset.reading.selection import PerRowItems
from bags.errors import SourceError
from bags.indexing import Int64s
from bags.interop.targets.megatron_index import DATA, DTYPES, HEADER, INDEX, MAGIC, VERSION
from bags.interop.targets.target import Target
from bags.progress.progress import Advance
from bags.streams.field import StreamField

NAME = 'tokens'
"""The name of the files, and of the field."""
BLOCK = 1 << 14
"""Number of documents that are read at a time."""
BLOCK_BYTES = 1 << 25
"""Approximate bytes of tokens that are read at a time."""
MAX_TOKENS = (1 << 31) - 1
"""Maximum number of tokens of a sequence, whose length is an int32."""
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}
INTEGERS = ('int', 'uint')


class _Fields(NamedTuple):
    """The fields that are written."""

    tokens: str
    dtype: np.dtype[np.generic]
    modes: str | None
    """The field with the mode of each sequence of a document, or of a sequence."""
    document: str | None
    """The field with the document of a sequence; None if each datapoint is a document."""


def write_megatron(folder: Target, dataset: Dataset, names: Sequence[str], advance: Advance) -> None:
    """Writes the tokens of a dataset, and the index of its documents.

    Args:
        folder: The target.
        dataset: The dataset.
        names: The fields. Those that Megatron has no place for are left out, with a note.
        advance: Reports progress.

    Raises:
        SourceError: A datapoint has no tokens, too many, or several modes.
        TypeError: The fields have no tokens, or of a dtype that Megatron does not have.
    """
    fields = _find_fields(dataset, names)
    used = {fields.tokens, fields.modes, fields.document}
    folder.notes += [
        f'field {name!r} is left out: Megatron has tokens, modes and documents'
        for name in names
        if name not in used
    ]
    lengths, modes = list[npt.NDArray[np.int32]](), list[npt.NDArray[np.int8]]()
    documents = list[Int64s]()
    """The first sequence of each document."""
    sequences = 0
    previous: int | None = None
    with folder.create(NAME + DATA) as file:
        for start in range(0, len(dataset), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(dataset)))
            counts = _counts(dataset, fields.tokens, rows)
            _write_tokens(file, dataset, fields, rows, counts)
            has_sequence = np.ones(len(rows), bool)
            if fields.modes is not None:
                values, has_sequence = _modes(dataset, fields.modes, rows, counts)
                modes.append(values)
            lengths.append(counts[has_sequence].astype(np.int32))
            firsts = sequences + np.cumsum(has_sequence) - has_sequence
            if fields.document is not None:
                numbers = np.asarray(dataset.batch(rows, fields.document)[fields.document])
                is_first = np.append(previous is None or numbers[0] != previous, np.diff(numbers) != 0)
                firsts, previous = firsts[is_first], int(numbers[-1])
            documents.append(firsts)
            sequences += int(has_sequence.sum())
            advance(len(rows), int(counts.sum()) * fields.dtype.itemsize)
    with folder.create(NAME + INDEX) as file:
        _write_index(file, fields.dtype, lengths, [*documents, np.array([sequences])], modes)


def _find_fields(dataset: Dataset, names: Sequence[str]) -> _Fields:
    """Returns the fields with tokens, modes and documents."""
    arrays = [name for name in names if has_varying_rows(dataset.schema[name])]
    found = [NAME] if NAME in arrays else [name for name in arrays if name != 'modes']
    if len(found) != 1:
        given = ', '.join(f'{name!r} of type {dataset.schema[name].text}' for name in names)
        raise TypeError(
            f"megatron: expected a field 'tokens', or one field of type array(DTYPE,?), got {given}: "
            'fields=NAME (--fields) chooses one'
        )
    (tokens,) = found
    field_type = dataset.schema[tokens]
    rows = array_rows(field_type.format, field_type.args)
    assert rows is not None
    dtype, shape = rows
    if shape or dtype.newbyteorder('<') not in CODES:
        known = ', '.join(known.name for known in CODES)
        raise TypeError(
            f'megatron: field {tokens!r} of type {field_type.text}: expected an array of one dimension, of '
            f'{known}'
        )
    schema = dataset.schema
    plain = [name for name in names if schema[name].format in INTEGERS and not schema[name].sequence]
    document = 'document' if 'document' in plain else None
    modes = 'mode' if document and 'mode' in plain else None
    if document is None and 'modes' in arrays and tokens != 'modes':
        modes = 'modes'
    for name in filter(None, (document, modes)):
        if schema[name].optional:
            raise TypeError(f'megatron: field {name!r}: expected a type without ?, got {schema[name].text}')
    return _Fields(tokens, dtype.newbyteorder('<'), modes, document)


def _counts(dataset: Dataset, field: str, rows: Int64s) -> Int64s:
    """Returns the number of tokens of datapoints."""
    present = dataset.are_present(rows, field)
    if not present.all():
        raise SourceError(f'datapoint {rows[~present][0]}', f'field {field!r}: expected tokens, got no value')
    counts = StreamField(dataset, field).counts(rows)
    if len(counts) and int(counts.max()) > MAX_TOKENS:
        longest = int(counts.argmax())
        detail = f'field {field!r}: expected at most {MAX_TOKENS} tokens, got {counts[longest]}'
        raise SourceError(f'datapoint {rows[longest]}', detail)
    return counts


def _parts(counts: Int64s, most: int) -> Iterator[tuple[Int64s, Int64s, Int64s]]:
    """Yields datapoints, and the first token and the number of tokens of each, of about `most` tokens."""
    first = 0
    ends = np.cumsum(counts)
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, 'right')))
        if last == first + 1 and int(counts[first]) > most:
            for start in range(0, int(counts[first]), most):
                count = min(most, int(counts[first]) - start)
                yield np.array([first]), np.array([start]), np.array([count])
        else:
            chosen = np.arange(first, last)
            yield chosen, np.zeros(len(chosen), np.int64), counts[first:last]
        first = last


def _write_tokens(file: BinaryIO, dataset: Dataset, fields: _Fields, rows: Int64s, counts: Int64s) -> None:
    for chosen, starts, lengths in _parts(counts, BLOCK_BYTES // fields.dtype.itemsize):
        asked = PerRowItems(starts, lengths)
        column = dataset.read_selection(rows[chosen], {fields.tokens: asked}, read_column)[fields.tokens]
        values = column.values if isinstance(column, Ragged) else np.concatenate(list(column))
        file.write(np.ascontiguousarray(values, fields.dtype).view(np.uint8).data)


def _modes(
    dataset: Dataset, field: str, rows: Int64s, counts: Int64s
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Returns the modes of the sequences of datapoints, and which datapoints have a sequence."""
    if not has_varying_rows(dataset.schema[field]):
        values = np.asarray(dataset.batch(rows, field)[field])
        return _as_modes(values, rows, field), np.ones(len(rows), bool)
    column = dataset.batch(rows, {field: slice(None)})[field]
    numbers = column.lengths
    bad = (numbers > 1) | ((numbers == 0) & (counts > 0))
    if bad.any():
        position = int(bad.argmax())
        raise SourceError(
            f'datapoint {rows[position]}',
            f'field {field!r}: expected the mode of one sequence, got {numbers[position]}: '
            "by='sequence' (--by sequence) imports each sequence as a datapoint",
        )
    return _as_modes(column.values, rows, field), numbers > 0


def _as_modes(values: npt.NDArray[np.generic], rows: Int64s, field: str) -> npt.NDArray[np.int8]:
    modes = values.astype(np.int8)
    if (modes != values).any():
        where = f'datapoints {rows[0]} to {rows[-1]}'
        raise SourceError(where, f'field {field!r}: expected modes in [-128, 127]')
    return modes


def _write_index(
    file: BinaryIO,
    dtype: np.dtype[np.generic],
    lengths: Sequence[npt.NDArray[np.int32]],
    documents: Sequence[Int64s],
    modes: Sequence[npt.NDArray[np.int8]],
) -> None:
    """Writes the index.

    Args:
        file: The file.
        dtype: The dtype of tokens.
        lengths: The number of tokens of each sequence, in blocks.
        documents: The first sequence of each document, and the number of sequences, in blocks.
        modes: The modes of sequences, in blocks; none without modes.
    """
    counts = sum(map(len, lengths)), sum(map(len, documents))
    file.write(HEADER.pack(MAGIC, VERSION, CODES[dtype], *counts))
    file.writelines(part.astype('<i4').tobytes() for part in lengths)
    offset = 0
    for part in lengths:
        ends = offset + np.cumsum(part, dtype=np.int64) * dtype.itemsize
        file.write((ends - part.astype(np.int64) * dtype.itemsize).astype('<i8').tobytes())
        offset = int(ends[-1]) if len(ends) else offset
    file.writelines(indices.astype('<i8').tobytes() for indices in documents)
    file.writelines(values.tobytes() for values in modes)
