"""Imports files of tokens: a datapoint is a document, with the field `tokens`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.checksums import digest_function
from bags.dataset.format.registry import bind_decoder
from bags.dataset.format.spec import parse_type
from bags.dataset.writing.field_writer import RecordRun
from bags.errors import SourceError, SpecError
from bags.indexing import Int64s, offsets_of
from bags.interop.files import open_unchanged
from bags.interop.source import DamagedEntries, RecordBlock, Source, collect_errors
from bags.interop.sources.tokens.token_file import FIELD, TokenFile, TokenOptions, type_of_tokens
from bags.links.link import MIN_LINKED_BYTES
from bags.links.link_builder import LinkRun
from bags.storage.ranges import merge

BLOCK = 1 << 16
"""Maximum number of documents that are appended at a time."""
BLOCK_BYTES = 1 << 26
"""Approximate bytes of tokens that are copied at a time; a longer document is copied alone."""
MAX_GAP_BYTES = 1 << 14


class Document(NamedTuple):
    """A document: a datapoint."""

    file: int
    number: int
    """The number of the document in the file."""


class TokenSource(Source[Document]):
    """The documents of files of tokens, in the order of the files.

    Args:
        format: Name of the format.
        files: The files. All have tokens of one dtype, and the same fields.
        options: What the user said.
        damaged: Files that cannot be read, and why.
    """

    loads_in_threads = False

    def __init__(
        self,
        format: str,
        files: Sequence[TokenFile],
        options: TokenOptions,
        damaged: Sequence[tuple[str, str]],
        beside: Sequence[str],
    ) -> None:
        for file in files[1:]:
            for what, first, other in (
                ('tokens of', files[0].dtype.name, file.dtype.name),
                ('the fields', [FIELD, *files[0].spec], [FIELD, *file.spec]),
            ):
                if first != other:
                    raise SourceError(
                        file.path, f'expected {what} {first}, as {files[0].path} has, got {other}'
                    )
        self._own = {FIELD: type_of_tokens(files[0].dtype), **files[0].spec} if files else {}
        super().__init__(format, dict(self._own), sum(file.count for file in files))
        self._files = files
        self._starts = offsets_of(np.array([file.count for file in files], np.int64))
        self.damaged = list(damaged)
        self.notes = [note for file in files for note in file.notes]
        self.facts = options.given
        self.beside = beside

    def linkable(self) -> dict[str, float | str]:
        tokens = sum(file.tokens * file.dtype.itemsize for file in self._files)
        # However short documents are, links to them are made: the files are large.
        mean = max(tokens / max(self.count, 1), MIN_LINKED_BYTES + 1.0)
        return {**dict.fromkeys(self.spec, 'its values are created by the import'), FIELD: mean}

    def entries(self, start: int = 0) -> Iterator[Document | DamagedEntries]:
        for number, file in enumerate(self._files):
            first = max(0, start - int(self._starts[number]))
            yield from (Document(number, document) for document in range(first, file.count))

    def name(self, entry: Document) -> str:
        return f'{self._files[entry.file].path}, document {entry.number}'

    def load(self, entry: Document) -> dict[str, Any]:
        file = self._files[entry.file]
        datapoint: dict[str, Any] = {}
        for name, run in self._block(file, entry.number, entry.number + 1, False).runs.items():
            if isinstance(run, LinkRun):
                start, stop = int(run.starts[0]), int(run.stops[0])
                datapoint[name] = open_unchanged(self.opener, file.path, file.file.size).part(start, stop)
            else:
                field_type = parse_type(self._own[name])
                assert isinstance(run.data, Sequence)
                datapoint[name] = bind_decoder(field_type.format, field_type.args)(b''.join(run.data))
        return datapoint

    def blocks(self, start: int, digests: bool) -> Iterator[RecordBlock]:
        for name, text in self.spec.items():
            if text != self._own[name]:
                raise SpecError(name, f'the type of the tokens of the source, {self._own[name]}', text)
        return self._blocks(start, digests)

    def _blocks(self, start: int, digests: bool) -> Iterator[RecordBlock]:
        for number, file in enumerate(self._files):
            first = max(0, start - int(self._starts[number]))
            while first < file.count:
                last = min(first + BLOCK, file.count)
                if FIELD in self.spec and FIELD not in self.linked:
                    starts, stops = file.ranges(first, last)
                    last = first + max(1, int(np.searchsorted(np.cumsum(stops - starts), BLOCK_BYTES)))
                yield self._block(file, first, last, digests)
                first = last

    def _block(self, file: TokenFile, start: int, stop: int, digests: bool) -> RecordBlock:
        runs: dict[str, LinkRun | RecordRun] = {
            name: RecordRun([values.data], values.sizes, False)
            for name, values in file.values(start, stop).items()
            if name in self.spec
        }
        if FIELD in self.spec:
            starts, stops = file.ranges(start, stop)
            if FIELD not in self.linked:
                runs[FIELD] = RecordRun(self._read(file, starts, stops), stops - starts, False)
            else:
                entry = open_unchanged(self.opener, file.path, file.file.size).entry
                sums = np.array(self._digests(file, starts, stops), np.uint64) if digests else None
                runs[FIELD] = LinkRun([entry], np.zeros(len(starts), np.int64), starts, stops, sums)
        return RecordBlock(stop - start, runs)

    def _read(self, file: TokenFile, starts: Int64s, stops: Int64s) -> list[bytes]:
        """Returns the bytes of documents, of which those that follow each other are read together."""
        filled = np.flatnonzero(stops > starts)
        if not len(filled):
            return []
        runs = merge(starts[filled], stops[filled], 0)
        try:
            return [bytes(part) for part in file.file.read_many(runs.starts, runs.stops)]
        except EOFError as exc:
            raise SourceError(file.path, str(exc)) from exc

    def _digests(self, file: TokenFile, starts: Int64s, stops: Int64s) -> list[int]:
        digest = digest_function()
        found = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            found.append(digest(file.file.read(start, stop)))
        return found


def open_files(
    format: str,
    paths: list[str],
    tokens: TokenOptions,
    beside: list[str],
    open_file: Callable[[str], TokenFile],
) -> TokenSource:
    """Opens files of tokens with `open_file`. Damaged files are listed, and left out.

    Args:
        format: Name of the format.
        paths: The files.
        tokens: What the user said.
        beside: Other files that are read.
        open_file: Opens a file, or raises SourceError.

    Raises:
        SourceError: No file can be opened, or files differ in dtype or fields.
    """
    files: list[TokenFile] = []
    damaged: list[tuple[str, str]] = []
    for path in paths:
        with collect_errors(damaged):
            files.append(open_file(path))
    if not files:
        raise SourceError(*(damaged[0] if damaged else (format, 'expected files of tokens, got none')))
    return TokenSource(format, files, tokens, damaged, beside)
