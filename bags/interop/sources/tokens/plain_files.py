"""Files of tokens without an index: of llm.c, `.npy`, and files that are all tokens.

The user says where documents end. A file of llm.c begins with 256 int32: first a magic number, a version
and the number of tokens; see `dev/data/data_common.py` of llm.c.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from bags.errors import SourceError
from bags.indexing import Int64s
from bags.interop.files import read_npy_header
from bags.interop.source import Source, naming
from bags.interop.sources.tokens.token_file import TokenOptions, Values, check_token_dtype
from bags.interop.sources.tokens.token_source import open_files
from bags.interop.stores import find_store, list_paths, open_in
from bags.storage import File

LLM_C_HEADER_BYTES = 1024
LLM_C = {20240520: (1, 'uint16'), 20240801: (7, 'uint32')}
"""The version, and the dtype of tokens, by the magic number."""
LLM_C_EVALUATION = 20240522
"""The magic number of files of multiple-choice questions."""
NPY_MAGIC = b'\x93NUMPY'
MAX_NPY_HEADER_BYTES = 1 << 16
SCAN_BYTES = 1 << 24
"""Bytes that are searched for the ends of documents at a time."""
WAYS = 'end=50256 (--end), offsets=FILE (--offsets) or length=1048576 (--length)'


class Layout(NamedTuple):
    """Where the tokens of a file are."""

    dtype: np.dtype[Any]
    start: int
    """Offset of the first token, in bytes."""
    tokens: int
    """Number of tokens."""
    row: int | None = None
    """Tokens of a row, in an array of two dimensions, whose rows are documents."""


class Cuts(Protocol):
    """Where documents begin and end, in tokens."""

    count: int

    def bounds(self, start: int, stop: int) -> Int64s:
        """Returns the first token of documents, and the end of the last one, shape (n + 1,)."""
        ...


class EqualCuts:
    """Documents of `length` tokens; the last one has the rest."""

    def __init__(self, total: int, length: int) -> None:
        self._total, self._length = total, length
        self.count = -(-total // length)

    def bounds(self, start: int, stop: int) -> Int64s:
        return np.minimum(np.arange(start, stop + 1) * self._length, self._total)


class ListedCuts:
    """Documents that begin at `starts`, up to the end at the last of them, shape (n + 1,)."""

    def __init__(self, starts: Int64s) -> None:
        self._starts = starts
        self.count = len(starts) - 1

    def bounds(self, start: int, stop: int) -> Int64s:
        return self._starts[start : stop + 1]


class PlainFile:
    """The documents of a file of tokens without an index.

    Args:
        path: The file.
        storage_options: As in `bags.open`.
        options: The dtype of a file without a header, and where documents end.

    Raises:
        SourceError: The header contradicts the file or the options, or the tokens do not fill the file.
        ValueError: An option is missing.
    """

    def __init__(self, path: str, storage_options: Mapping[str, Any] | None, options: TokenOptions) -> None:
        self.path, self.notes = path, list[str]()
        self.spec: dict[str, str] = {}
        store, file_path = find_store(path, storage_options)
        self.file: File = open_in(store, file_path, storage_options)
        layout = _read_layout(path, self.file, options.dtype)
        self.dtype, self._start, self.tokens = layout.dtype, layout.start, layout.tokens
        self._cuts = self._cut(layout, options, storage_options)
        self.count = self._cuts.count

    def ranges(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        bounds = self._start + self._cuts.bounds(start, stop) * self.dtype.itemsize
        return bounds[:-1], bounds[1:]

    def values(self, start: int, stop: int) -> dict[str, Values]:
        return {}

    def _cut(self, layout: Layout, options: TokenOptions, storage_options: Mapping[str, Any] | None) -> Cuts:
        given = [name for name in ('end', 'offsets', 'length') if name in options.given]
        if layout.row is not None:
            if given:
                detail = f'is an array of two dimensions, whose rows are documents: expected no {given[0]}'
                raise SourceError(self.path, detail)
            return EqualCuts(layout.tokens, layout.row)
        if options.length is not None:
            return EqualCuts(layout.tokens, options.length)
        if options.offsets is not None:
            return ListedCuts(self._offsets(options.offsets, storage_options))
        if options.end is not None:
            return ListedCuts(self._find_ends(options.end))
        raise SourceError(self.path, f'expected where documents end: {WAYS}')

    def _offsets(self, path: str, storage_options: Mapping[str, Any] | None) -> Int64s:
        """Reads the first token of each document from a file, and appends the end of the last one."""
        store, file_path = find_store(path, storage_options)
        file = open_in(store, file_path, storage_options)
        head = bytes(file.read(0, min(len(NPY_MAGIC), file.size)))
        layout = _read_layout(path, file, None if head == NPY_MAGIC else 'int64')
        if layout.row is not None:
            raise SourceError(path, 'expected an array of one dimension')
        end = layout.start + layout.tokens * layout.dtype.itemsize
        offsets = np.frombuffer(bytes(file.read(layout.start, end)), layout.dtype).astype(np.int64)
        if not len(offsets) or offsets[0] != 0:
            found = offsets[0] if len(offsets) else 'none'
            raise SourceError(path, f'expected 0, the first token of document 0, got {found}')
        bad = np.flatnonzero((np.diff(offsets) < 0) | (offsets[1:] > self.tokens))
        if len(bad):
            document = int(bad[0]) + 1
            raise SourceError(
                path,
                f'document {document}: expected its first token in [{offsets[document - 1]}, {self.tokens}], '
                f'the tokens of {self.path}, got {offsets[document]}',
            )
        if int(offsets[-1]) == self.tokens and len(offsets) > 1:
            return offsets
        return np.append(offsets, self.tokens)

    def _find_ends(self, end: int) -> Int64s:
        """Finds the end of each document, which is the token `end` and belongs to the document."""
        limits = np.iinfo(self.dtype)
        if not limits.min <= end <= limits.max:
            raise SourceError(
                self.path, f'expected the token at the end of documents in {self.dtype}, got {end}'
            )
        size = self.dtype.itemsize
        step = SCAN_BYTES // size
        ends = [np.zeros(1, np.int64)]
        for first in range(0, self.tokens, step):
            last = min(first + step, self.tokens)
            data = self.file.read(self._start + first * size, self._start + last * size)
            ends.append(first + 1 + np.flatnonzero(np.frombuffer(bytes(data), self.dtype) == end))
        bounds = np.concatenate(ends)
        if len(bounds) == 1 and self.tokens:
            detail = f'expected the token {end} at the end of documents, got none in {self.tokens:,} tokens'
            raise SourceError(self.path, f'{detail} of {self.dtype}')
        if int(bounds[-1]) != self.tokens:
            self.notes.append(f'{self.path}: the last document does not end with the token {end}')
            bounds = np.append(bounds, self.tokens)
        return bounds


def open_source(
    paths: list[str], storage_options: Mapping[str, Any] | None, tokens: TokenOptions
) -> Source[Any]:
    """Returns the documents of files of tokens without an index."""
    if tokens.by != 'document':
        detail = f"by: expected 'document' for tokens without an index of Megatron, got {tokens.by!r}"
        raise SourceError(paths[0], detail)
    files = [path for path in list_paths(paths, storage_options) if not path.endswith('.idx')]
    if tokens.offsets is not None and len(files) > 1:
        detail = f'offsets: expected one file of tokens, got {len(files)}: import them one by one'
        raise SourceError(tokens.offsets, detail)
    beside = [] if tokens.offsets is None else [tokens.offsets]
    return open_files('tokens', files, tokens, beside, lambda path: PlainFile(path, storage_options, tokens))


def is_llm_c(head: bytes) -> bool:
    """Returns whether a file begins as a file of tokens of llm.c."""
    return len(head) >= 4 and struct.unpack('<i', head[:4])[0] in (*LLM_C, LLM_C_EVALUATION)


def _read_layout(path: str, file: File, dtype: str | None) -> Layout:
    """Finds the tokens of a file.

    Args:
        path, file: The file.
        dtype: The dtype that the user gave; required without a header.

    Raises:
        SourceError: The header is invalid, or the file is cut.
    """
    head = bytes(file.read(0, min(LLM_C_HEADER_BYTES, file.size)))
    if head.startswith(NPY_MAGIC):
        layout = _read_npy(path, file)
    elif is_llm_c(head):
        layout = _read_llm_c(path, file, head)
    elif dtype is None:
        raise SourceError(
            path,
            'expected the header of llm.c or .npy, got none: dtype (--dtype uint16) is the dtype of tokens '
            f'without a header, and {WAYS} says where documents end',
        )
    else:
        layout = Layout(check_token_dtype(dtype), 0, 0)
        layout = layout._replace(tokens=file.size // layout.dtype.itemsize)
        if file.size % layout.dtype.itemsize:
            size = layout.dtype.itemsize
            raise SourceError(
                path, f'expected tokens of {size} bytes, got {file.size} bytes: the last token is cut'
            )
        return layout
    if dtype is not None and check_token_dtype(dtype) != layout.dtype:
        raise SourceError(path, f'its header says {layout.dtype}, got dtype {dtype}')
    return layout


def _read_llm_c(path: str, file: File, head: bytes) -> Layout:
    if len(head) < LLM_C_HEADER_BYTES:
        raise SourceError(
            path, f'expected a header of llm.c of {LLM_C_HEADER_BYTES} bytes, got {len(head)}: it is cut'
        )
    magic, version, count = struct.unpack('<iii', head[:12])
    if magic == LLM_C_EVALUATION:
        raise SourceError(path, 'expected tokens, got multiple-choice questions of llm.c')
    known, text = LLM_C[magic]
    if version != known:
        raise SourceError(
            path, f'expected version {known} of the magic number {magic} of llm.c, got {version}'
        )
    dtype = check_token_dtype(text)
    expected = LLM_C_HEADER_BYTES + count * dtype.itemsize
    if count < 0 or file.size != expected:
        got = (file.size - LLM_C_HEADER_BYTES) / dtype.itemsize
        raise SourceError(path, f'expected {count} tokens of {text}, as its header says, got {got:g}')
    return Layout(dtype, LLM_C_HEADER_BYTES, count)


def _read_npy(path: str, file: File) -> Layout:
    head = io.BytesIO(bytes(file.read(0, min(MAX_NPY_HEADER_BYTES, file.size))))
    with naming(path):
        shape, is_fortran, dtype = read_npy_header(head, file.size)
    if dtype.kind not in 'iu' or len(shape) not in (1, 2) or (is_fortran and len(shape) == 2):
        order = ' in Fortran order' if is_fortran else ''
        raise SourceError(
            path,
            f'expected integers in one dimension, or in rows of two, got {dtype} of shape {shape}{order}',
        )
    if len(shape) == 2 and not shape[1]:
        raise SourceError(path, f'expected rows of one token or more, got shape {shape}')
    return Layout(dtype, head.tell(), math.prod(shape), shape[1] if len(shape) == 2 else None)
