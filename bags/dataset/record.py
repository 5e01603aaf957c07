"""One record of a field, to be opened as a file when something of it is needed."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from bags.bag.bag_file import BagFile
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.errors import DecodeError
from bags.storage.range_file import RangeFile

__all__ = ['Record', 'open_record']


class Record:
    """What a decoder with the attribute `lazy` is given instead of the record's bytes.

    Creating it reads nothing. It keeps the files of the bag open, also when the dataset is closed. A
    pickled one opens them again, by their path.

    Args:
        bag: The bag.
        index: Which of its records.
        field: The field that is read.
        type: Its type.
    """

    __slots__ = ('_again', 'bag', 'field', 'index', 'type')

    def __init__(self, bag: BagFile, index: int, field: str, type: str) -> None:
        if not 0 <= index < bag.count:
            raise IndexError(index)
        self.bag: BagFile | None = bag
        self.index = index
        self.field = field
        self.type = type
        self._again: tuple[str, ReaderOptions | None] = bag.path, bag.options

    @property
    def name(self) -> str:
        """What messages call it."""
        return f'{self._again[0]}, field {self.field!r} of type {self.type}, record {self.index}'

    @property
    def is_remote(self) -> bool:
        """Whether reading it may wait for a network: it is not known of a pickled one."""
        return self.bag is None or self.bag.is_remote

    def open(self) -> BinaryIO:
        """Opens it: its bytes on disk, or in memory if it is compressed; at a position of its own."""
        path, options = self._again
        if self.bag is None:
            assert options is not None
            self.bag = open_bag(options.store_of(path), path, options)
        return open_record(self.bag, self.index)

    def error(self, exc: Exception) -> DecodeError:
        """Returns the error to raise for what went wrong with its content."""
        return DecodeError(self.field, self.index, self.type, str(exc) or type(exc).__name__, self._again[0])

    def __repr__(self) -> str:
        return f'Record({self.name!r})'

    def __getstate__(self) -> dict[str, Any]:
        return {'again': self._again, 'index': self.index, 'field': self.field, 'type': self.type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.bag = None
        self._again = state['again']
        self.index, self.field, self.type = state['index'], state['field'], state['type']


def open_record(bag: BagFile, index: int) -> BinaryIO:
    """Opens a record as a seekable file."""
    if bag.codec is not None:
        return io.BytesIO(bag.get(index))
    bag.check_record(index)
    start, stop = bag.where(index)
    return RangeFile(bag.file, start, stop, f'{bag.path}, record {index}')  # type: ignore[return-value]
