"""Libraries that store each field as a column and read datapoints: bags, Granular, MosaicML Streaming."""

import atexit
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.data import Row
from benchmarks.peers.protocol import Columns, Indices, Reader, columns


class Bags:
    """bags, an unsharded dataset unless there is a shard length.

    Args:
        durability: Of what it writes.
        **options: Of the reader.
    """

    module, columnar, rows_per_run = 'bags', True, 2000

    def __init__(self, durability: Any = 'none', **options: Any) -> None:
        self.durability = durability
        self.options = options

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        import bags

        spec = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,256)', 'blob': 'bytes'}
        writer = (
            bags.DatasetWriter(str(path), spec, durability=self.durability)
            if shard_length is None
            else bags.ShardedDatasetWriter(
                str(path), spec, shard_length=shard_length, durability=self.durability
            )
        )
        with writer:
            for row in rows:
                writer.append(row)

    def open(self, path: Path) -> Reader:
        return BagsReader(path, self.options)


class BagsReader:
    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        import bags

        self.reader: Any = bags.open(str(path), **options)
        self.row = self.reader.__getitem__
        self.batch = self.reader.batch
        self.close = self.reader.close

    def scan(self, field: str) -> Any:
        return self.reader.batch(range(len(self.reader)), field)[field]


class Granular:
    """Granular, one bag a field, with cached indexes; `cache_keys` holds small fields in memory."""

    module, columnar, rows_per_run = 'granular', True, 500

    def __init__(self, **options: Any) -> None:
        self.options = options

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        import granular

        spec = {'id': 'i64', 'text': 'utf8', 'vector': 'array', 'blob': 'bytes'}
        arguments = (path, spec, granular.encoders)
        writer = (
            granular.DatasetWriter(*arguments)
            if shard_length is None
            else granular.ShardedDatasetWriter(*arguments, shard_length)
        )
        with writer:
            for index, row in enumerate(rows):
                writer.append(row, flush=index % 100 == 99)

    def open(self, path: Path) -> Reader:
        import granular

        single = (path / 'spec.json').exists()
        make = granular.DatasetReader if single else granular.ShardedDatasetReader
        return GranularReader(make(path, granular.decoders, **self.options))


class GranularReader:
    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.row = reader.__getitem__

    def close(self) -> None:
        self.reader.close()
        # Its shared memory would hold a descriptor for each field and shard until the process ends.
        shards = self.reader.readers if isinstance(self.reader.readers, list) else [self.reader]
        for bag in [bag for shard in shards for bag in shard.readers.values()]:
            for source in (bag.idx_source, bag.bag_source):
                if hasattr(source, 'shm'):
                    atexit.unregister(source.close)
                    source.shm.close()

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return columns((self.reader[index, fields] for index in indices), fields)

    def scan(self, field: str) -> Any:
        return self.reader[range(len(self.reader)), (field,)][field]


class Mosaic:
    """MosaicML Streaming (MDS), reading from local disk."""

    module, columnar, rows_per_run = 'streaming', True, 500

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        from streaming import MDSWriter

        spec = {'id': 'int', 'text': 'str', 'vector': 'ndarray:float32:256', 'blob': 'bytes'}
        limit = {} if shard_length is None else {'size_limit': shard_length * 31_250}
        with MDSWriter(out=str(path), columns=spec, **limit) as writer:
            for row in rows:
                writer.write(row)

    def open(self, path: Path) -> Reader:
        from streaming import LocalDataset

        return MosaicReader(LocalDataset(str(path)))


class MosaicReader:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.row = dataset.__getitem__

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return columns((self.dataset[index] for index in indices), fields)

    def scan(self, field: str) -> Any:
        return [self.dataset[index][field] for index in range(len(self.dataset))]

    def close(self) -> None:
        self.dataset = None
