"""Tokens of Megatron-LM: `data.bin` has the tokens, and `data.idx` the sequences and documents.

The index is read in blocks: an index of 100,000,000 documents takes no more memory than a small one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.errors import SourceError
from bags.indexing import Int64s
from bags.interop.source import Source
from bags.interop.sources.tokens.token_file import TokenOptions, Values
from bags.interop.sources.tokens.token_source import open_files
from bags.interop.stores import find_store, list_paths, open_in, size_in
from bags.interop.targets.megatron_index import DATA, DTYPES, HEADER, INDEX, MAGIC, VERSION
from bags.storage import File

BLOCK = 1 << 20
"""Number of sequences or documents that are read at a time."""


def open_source(
    paths: list[str], storage_options: Mapping[str, Any] | None, tokens: TokenOptions
) -> Source[Any]:
    """Returns the documents, or sequences, of `.bin` files with an `.idx` beside each."""
    for name in ('dtype', 'end', 'offsets', 'length'):
        if name in tokens.given:
            detail = f"{name}: expected none for Megatron, whose index says it; format='tokens' takes it"
            raise SourceError(paths[0], detail)
    paths = list_paths(paths, storage_options)
    files = dict.fromkeys(path.removesuffix(INDEX) + DATA if path.endswith(INDEX) else path for path in paths)
    beside = [index_of(path) for path in files if index_of(path) not in paths]
    return open_files(
        'megatron', [*files], tokens, beside, lambda path: MegatronFile(path, storage_options, tokens.by)
    )


def index_of(path: str) -> str:
    """Returns the path of the index of a file of tokens."""
    return path.removesuffix(DATA) + INDEX


class Gaps(NamedTuple):
    """What lies between the sequences of a file."""

    before: Int64s
    """The sequences that do not follow the previous one in the file."""
    used: int
    """Bytes of all sequences."""


class MegatronFile:
    """The documents, or the sequences, of a `.bin` with its `.idx`.

    Args:
        path: The `.bin`.
        storage_options: As in `bags.open`.
        by: What a datapoint is.

    Raises:
        SourceError: The index is missing, cut, or contradicts itself or the file of tokens.
    """

    def __init__(
        self, path: str, storage_options: Mapping[str, Any] | None, by: Literal['document', 'sequence']
    ) -> None:
        self.path, self.notes = path, list[str]()
        self._by = by
        store, data_path = find_store(path, storage_options)
        self.file: File = open_in(store, data_path, storage_options)
        store, index_path = find_store(index_of(path), storage_options)
        if size_in(store, index_path, storage_options) is None:
            name = index_path.rpartition('/')[2]
            raise SourceError(path, f'expected {name} beside it, the index of its documents, got none')
        self._index_path = index_path
        self._index = open_in(store, index_path, storage_options)
        self.dtype, self._sequences, documents = self._read_header()
        self._documents = documents - 1
        self._lengths_at = HEADER.size
        self._pointers_at = self._lengths_at + 4 * self._sequences
        self._indices_at = self._pointers_at + 8 * self._sequences
        modes_at = self._indices_at + 8 * documents
        self._modes_at = modes_at if self._sequences and self._index.size > modes_at else None
        end = modes_at + (self._sequences if self._index.size > modes_at else 0)
        if self._index.size != end:
            raise self._error(
                f'expected {modes_at} bytes for {self._sequences} sequences and {documents} document '
                f'indices, or {modes_at + self._sequences} with modes, got {self._index.size}: it is cut, '
                'or its counts are wrong'
            )
        gaps = self._check_sequences()
        self._check_documents(gaps)
        self.tokens = gaps.used // self.dtype.itemsize
        if unused := self.file.size - gaps.used:
            self.notes.append(f'{path}: {unused:,} bytes belong to no sequence')
        self.count = self._documents if by == 'document' else self._sequences
        self.spec: dict[str, str] = {} if by == 'document' else {'document': 'int(8)'}
        if self._modes_at is not None:
            self.spec |= {'modes': 'array(int8,?)'} if by == 'document' else {'mode': 'int(1)'}

    def ranges(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        if self._by == 'sequence':
            return self._sequence_ranges(start, stop)
        bounds = self._document_bounds(start, stop)
        firsts, ends = bounds[:-1], bounds[1:]
        first, end = int(bounds[0]), int(bounds[-1])
        if end - first > 2 * BLOCK and stop - start > 1:
            middle = (start + stop) // 2
            parts = self.ranges(start, middle), self.ranges(middle, stop)
            return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        starts, stops = np.zeros(len(firsts), np.int64), np.zeros(len(firsts), np.int64)
        filled = ends > firsts
        if end - first > 2 * BLOCK:  # A document of many sequences, which follow each other.
            starts[:], stops[:] = (
                self._sequence_ranges(first, first + 1)[0],
                self._sequence_ranges(end - 1, end)[1],
            )
        else:
            of_sequences = self._sequence_ranges(first, end)
            starts[filled] = of_sequences[0][firsts[filled] - first]
            stops[filled] = of_sequences[1][ends[filled] - 1 - first]
        return starts, stops

    def values(self, start: int, stop: int) -> dict[str, Values]:
        if self._by == 'sequence':
            size = np.full(stop - start, 8)
            found = {'document': Values(self._documents_of(start, stop).astype('<i8').tobytes(), size)}
            if self._modes_at is not None:
                modes = self._read(self._modes_at, 'i1', start, stop)
                found['mode'] = Values(modes.tobytes(), np.ones(stop - start, np.int64))
            return found
        if self._modes_at is None:
            return {}
        bounds = self._document_bounds(start, stop)
        modes = self._read(self._modes_at, 'i1', int(bounds[0]), int(bounds[-1]))
        return {'modes': Values(modes.tobytes(), np.diff(bounds))}

    # The index.

    def _read_header(self) -> tuple[np.dtype[Any], int, int]:
        head = bytes(self._index.read(0, min(HEADER.size, self._index.size)))
        if not head.startswith(MAGIC):
            raise self._error(f'expected an index of Megatron, which begins with {MAGIC!r}, got {head[:9]!r}')
        if len(head) < HEADER.size:
            raise self._error(f'expected a header of {HEADER.size} bytes, got {len(head)}: it is cut')
        _, version, code, sequences, documents = HEADER.unpack(head)
        if version != VERSION:
            raise self._error(f'expected version {VERSION}, got {version}')
        if code not in DTYPES:
            raise self._error(f'expected the code of a dtype, 1 to {max(DTYPES)}, got {code}')
        for what, count in (('sequences', sequences), ('document indices', documents)):
            if count > self._index.size:
                raise self._error(
                    f'got {count} {what} in {self._index.size} bytes: it is cut, or a count is wrong'
                )
        if not documents:
            raise self._error('expected at least one document index, got none')
        return np.dtype(DTYPES[code]), sequences, documents

    def _read(self, offset: int, dtype: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Reads a part of a table of the index."""
        size = np.dtype(dtype).itemsize
        try:
            data = self._index.read(offset + size * start, offset + size * stop)
        except EOFError as exc:
            raise self._error(str(exc)) from exc
        return np.frombuffer(bytes(data), dtype)

    def _sequence_ranges(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Returns the first byte and the end of sequences."""
        lengths = self._read(self._lengths_at, '<i4', start, stop).astype(np.int64)
        starts: Int64s = self._read(self._pointers_at, '<i8', start, stop).astype(np.int64)
        return starts, starts + lengths * self.dtype.itemsize

    def _document_bounds(self, start: int, stop: int) -> Int64s:
        """Returns the first sequence of documents, and the end of the last one, shape (n + 1,)."""
        bounds: Int64s = self._read(self._indices_at, '<i8', start, stop + 1).astype(np.int64)
        return bounds

    def _documents_of(self, start: int, stop: int) -> Int64s:
        """Returns the document of each sequence."""
        first = self._document_of(start) if stop > start else 0
        documents = np.empty(stop - start, np.int64)
        done = start
        while done < stop:
            bounds = self._document_bounds(first, min(first + BLOCK, self._documents))
            end = min(int(bounds[-1]), stop)
            sequences = np.arange(done, end)
            documents[done - start : end - start] = first + np.searchsorted(bounds, sequences, 'right') - 1
            first, done = first + len(bounds) - 1, max(done, end)
        return documents

    def _document_of(self, sequence: int) -> int:
        """Returns the document of a sequence: the last one that begins at it or before."""
        low, high = 0, self._documents
        while high - low > 1:
            middle = (low + high) // 2
            first = int(self._read(self._indices_at, '<i8', middle, middle + 1)[0])
            low, high = (middle, high) if first <= sequence else (low, middle)
        return low

    # Checks of the whole index, in blocks.

    def _blocks(self, count: int) -> Iterator[tuple[int, int]]:
        return ((start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))

    def _check_sequences(self) -> Gaps:
        """Checks that sequences are in the file, in order, and do not overlap."""
        size, end, used, gaps = self.file.size, 0, 0, list[Int64s]()
        for first, last in self._blocks(self._sequences):
            starts, stops = self._sequence_ranges(first, last)
            before = np.concatenate(([end], stops[:-1]))
            bad = (stops < starts) | (starts < before) | (stops > size)
            if bad.any():
                sequence = first + int(bad.argmax())
                raise self._sequence_error(sequence, int(before[bad.argmax()]))
            gaps.append(first + np.flatnonzero(starts != before))
            used += int((stops - starts).sum())
            end = int(stops[-1])
        return Gaps(np.concatenate([np.empty(0, np.int64), *gaps]), used)

    def _sequence_error(self, sequence: int, end: int) -> SourceError:
        length = int(self._read(self._lengths_at, '<i4', sequence, sequence + 1)[0])
        start = int(self._read(self._pointers_at, '<i8', sequence, sequence + 1)[0])
        where = f'sequence {sequence}'
        if self._documents > 0:
            where += f', in document {self._document_of(sequence)}'
        if length < 0:
            return self._error(f'{where}: expected a number of tokens, got {length}')
        if start < end:
            detail = f'expected a pointer of at least {end}, the end of the sequence before it, got {start}'
            return self._error(f'{where}: {detail}: sequences are not in order, or overlap')
        name = self.file.path.rpartition('/')[2]
        return self._error(
            f'{where}: has {length} tokens of {self.dtype} from byte {start} on, but {name} has '
            f'{self.file.size} bytes'
        )

    def _check_documents(self, gaps: Gaps) -> None:
        """Checks that documents have all sequences in order, and that those of a document are adjacent."""
        before, joined, empty = 0, 0, 0
        for first, last in self._blocks(self._documents + 1):
            bounds = self._read(self._indices_at, '<i8', first, last)
            steps = np.diff(bounds, prepend=before)
            if not first and int(bounds[0]) != 0:
                raise self._error(f'expected document 0 to begin at sequence 0, got {int(bounds[0])}')
            is_bad = (steps < 0) | (bounds < 0) | (bounds > self._sequences)
            if is_bad.any():
                bad = int(is_bad.argmax())
                least = int(bounds[bad - 1]) if bad else before
                raise self._error(
                    f'document {first + bad}: expected its first sequence in [{least}, {self._sequences}], '
                    f'got {bounds[bad]}'
                )
            of_documents = steps[1:] if not first else steps
            joined += int((of_documents > 1).sum())
            empty += int((of_documents == 0).sum())
            if self._by == 'document' and len(gaps.before):
                low, high = np.searchsorted(gaps.before, [before, int(bounds[-1])])
                inside = np.setdiff1d(gaps.before[low:high], np.append(bounds, before))
                if len(inside):
                    self._raise_gap(int(inside[0]))
            before = int(bounds[-1])
        if before != self._sequences:
            raise self._error(
                f'expected the documents to end at sequence {self._sequences}, got {before}: the last '
                'document index is the number of sequences'
            )
        if joined and self._by == 'document':
            self.notes.append(
                f'{self.path}: {joined:,} documents of several sequences are joined: '
                "by='sequence' (--by sequence) keeps sequences apart"
            )
        if empty and self._by == 'sequence':
            self.notes.append(f'{self.path}: {empty:,} documents without sequences are left out')

    def _raise_gap(self, sequence: int) -> None:
        ends = self._sequence_ranges(sequence - 1, sequence)[1]
        starts = self._sequence_ranges(sequence, sequence + 1)[0]
        raise self._error(
            f'document {self._document_of(sequence)}: expected sequence {sequence} to follow the one before '
            f'it at byte {ends[0]}, got {starts[0]}: a document is one range of the file; '
            "by='sequence' (--by sequence) imports each sequence"
        )

    def _error(self, detail: str) -> SourceError:
        return SourceError(self._index_path, detail)
