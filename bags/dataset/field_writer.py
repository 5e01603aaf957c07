"""One field of a dataset folder that is being written: its records, and the dictionary they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bags import bag
from bags.bag.options import CompressionZstd
from bags.bag.zstd import MAX_TRAINING_BYTES, MIN_TRAINING_RECORDS, train_dictionary
from bags.dataset.encoder import close_file
from bags.dataset.refs import MISSING
from bags.dataset.spec import FieldType
from bags.errors import EncodeError

__all__ = ['RECORDS', 'FieldWriter', 'Run', 'Trainer']

RECORDS = 0xFFFFFFFE
"""Most records of a field: the number after them stands for a missing value."""


class Run(NamedTuple):
    """Records that lie one after the other."""

    data: Sequence[Any] | BinaryIO
    """Their bytes, in buffers, or from where an open file is."""
    sizes: npt.NDArray[np.int64]
    """Bytes of each, shape (n,)."""
    held: bool
    """Whether they are what the bag holds: frames, if it is compressed."""


class Trainer:
    """Gathers the first records of a field until there are enough for a dictionary.

    Args:
        level: Of the compression.
        keep: Is called with the dictionary before it is used: puts it where readers look for it.
    """

    def __init__(self, level: int, keep: Callable[[bytes], None]) -> None:
        self._level = level
        self._keep = keep
        self._samples: list[bytes] = []
        self._size = 0

    def add(self, record: bytes) -> bool:
        """Takes a record in; tells if there are enough now."""
        self._samples.append(record)
        self._size += len(record)
        return self._size >= MAX_TRAINING_BYTES

    def is_ready(self) -> bool:
        """Tells if there are enough to begin with, where records have to be written now."""
        return len(self._samples) >= MIN_TRAINING_RECORDS

    def train(self) -> CompressionZstd | None:
        """Returns how to compress from now on; None if a dictionary would be of no use."""
        dictionary = train_dictionary(self._samples)
        self._samples = []
        if dictionary is None:
            return None
        self._keep(dictionary)
        return CompressionZstd(self._level, dictionary)


class FieldWriter:
    """Writes the records of one field."""

    def __init__(
        self, name: str, kind: FieldType, writer: bag.Writer, trainer: Trainer | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.writer = writer
        self.count = len(writer)
        """Records in the bag."""
        self._trainer = trainer

    def write(self, record: Any) -> int:
        """Writes a record, and closes it if it is a file.

        Returns:
            The ref of the record; that of a missing value for None.

        Raises:
            EncodeError: It is too large, or a file that ends early.
        """
        count = self.count
        if type(record) is not bytes or self._trainer is not None or count >= RECORDS:
            return self._write_other(record)
        try:
            self.writer.write(record)
        except ValueError as exc:
            raise EncodeError(self.name, self.kind.text, str(exc)) from exc
        self.count = count + 1
        return count

    def _write_other(self, record: Any) -> int:
        if record is None:
            return MISSING
        try:
            if self.count >= RECORDS:
                raise ValueError(f'expected at most {RECORDS} records in a folder')
            if type(record) is bytes:
                self.writer.write(record)
                if self._trainer is not None and self._trainer.add(record):
                    self._train()
            else:
                self.writer.write_file(record)
        except (ValueError, EOFError) as exc:
            raise EncodeError(self.name, self.kind.text, str(exc)) from exc
        finally:
            if type(record) is not bytes:
                close_file(record)
        self.count += 1
        return self.count - 1

    def write_items(self, records: Iterable[Any] | None) -> tuple[int, int]:
        """Writes the records of a sequence, one in memory at a time.

        Returns:
            The ref of the first and their number; those of a missing sequence for None.

        Raises:
            EncodeError: One of them cannot be encoded or written.
        """
        if records is None:
            return MISSING, 0
        first = self.count
        for record in records:
            self.write(record)
        return (first, self.count - first) if self.count > first else (0, 0)

    def write_runs(self, runs: Iterable[Run]) -> None:
        """Writes runs of records.

        Raises:
            EncodeError: One is too large, or they are too many.
            OSError, EOFError: Reading or writing failed. What was written by then nothing refers to.
        """
        try:
            for data, sizes, held in runs:
                if self.count + len(sizes) > RECORDS:
                    raise ValueError(f'expected at most {RECORDS} records in a folder')
                if not isinstance(data, Sequence):
                    self.writer.copy_run(data, sizes)
                elif held or self._trainer is None:
                    self.writer.write_run(list(data), sizes, stored=held)
                else:
                    self._write_samples(b''.join(data), sizes)
                self.count += len(sizes)
        except ValueError as exc:
            raise EncodeError(self.name, self.kind.text, str(exc)) from exc

    def _write_samples(self, data: bytes, sizes: npt.NDArray[np.int64]) -> None:
        start = 0
        for end in np.cumsum(sizes).tolist():
            record = data[start:end]
            self.writer.write(record)
            if self._trainer is not None and self._trainer.add(record):
                self._train()
            start = end

    def _train(self) -> None:
        trainer, self._trainer = self._trainer, None
        assert trainer is not None
        compression = trainer.train()
        if compression is not None:
            self.writer.compress_with(compression)

    def flush(self) -> None:
        """Makes the records readable; with a dictionary, if there are enough of them for one."""
        if self._trainer is not None and self._trainer.is_ready():
            self._train()
        self.writer.flush()

    def forget(self, count: int) -> None:
        """Drops the records after the first `count`, as far as they still wait in memory."""
        if self.count != count or len(self.writer) != count:
            self.writer.drop_buffered(count)
            self.count = len(self.writer)
