"""Libraries that store a datapoint as one record: bagz, Säckli and ArrayRecord, with msgpack in it."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from benchmarks.data import Row
from benchmarks.peers.protocol import Columns, Indices, Reader, chunks, columns


class OneRecord:
    """bagz and Säckli, with the whole datapoint in one msgpack record."""

    columnar, rows_per_run = False, 1000

    def __init__(self, module: str) -> None:
        self.module = module

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        library = importlib.import_module(self.module)
        path.mkdir()
        if shard_length is None:
            shards = {'data.bag': rows}
        else:
            parts = list(chunks(rows, shard_length))
            shards = {f'data-{index:05}-of-{len(parts):05}.bag': part for index, part in enumerate(parts)}
        for name, shard in shards.items():
            with library.Writer(str(path / name)) as writer:
                for row in shard:
                    writer.write(pack(row))

    def open(self, path: Path) -> Reader:
        library = importlib.import_module(self.module)
        single = path / 'data.bag'
        return OneRecordReader(library.Reader(str(single if single.exists() else path / 'data@*.bag')))


class OneRecordReader:
    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.close = getattr(reader, 'close', lambda: None)

    def row(self, index: int) -> Row:
        return unpack(self.reader[index])

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return columns(map(unpack, self.reader.read_indices(indices)), fields)

    def scan(self, field: str) -> Any:
        return [unpack(record)[field] for record in self.reader]


class ArrayRecord:
    """ArrayRecord, unsharded, with the whole datapoint in one msgpack record, and one record a group."""

    module, columnar, rows_per_run = 'array_record', False, 200

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        from array_record.python import array_record_module as library

        path.mkdir()
        writer = library.ArrayRecordWriter(str(path / 'data'), 'group_size:1,uncompressed')
        for row in rows:
            writer.write(pack(row))
        writer.close()

    def open(self, path: Path) -> Reader:
        from array_record.python import array_record_module as library

        return ArrayRecordReader(library.ArrayRecordReader(str(path / 'data'), 'readahead_buffer_size:0'))


class ArrayRecordReader:
    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.close = reader.close

    def row(self, index: int) -> Row:
        return unpack(self.reader.read([index])[0])

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return columns(map(unpack, self.reader.read(indices)), fields)

    def scan(self, field: str) -> Any:
        return [unpack(record)[field] for record in self.reader.read_all()]


def pack(row: Row) -> bytes:
    """Packs a datapoint into one msgpack record, its vector as raw bytes."""
    return msgpack.packb({**row, 'vector': row['vector'].data})


def unpack(record: bytes) -> Row:
    """Unpacks a msgpack record; its vector is read-only and not copied again."""
    row = msgpack.unpackb(record)
    row['vector'] = np.frombuffer(row['vector'], np.float32)
    return row
