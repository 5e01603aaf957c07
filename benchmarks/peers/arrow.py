"""Libraries that store Arrow tables: Lance and Hugging Face datasets."""

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Row
from benchmarks.peers.protocol import Columns, Indices, Reader, chunks, columns

FIELDS = ('id', 'text', 'vector', 'blob')


class HuggingFace:
    """Hugging Face datasets, memory-mapped Arrow; `arrow` takes Arrow tables and converts them by hand."""

    module, columnar, rows_per_run = 'datasets', True, 300

    def __init__(self, *, arrow: bool = False) -> None:
        self.arrow = arrow

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        datasets = hugging_face()
        features = datasets.Features(
            id=datasets.Value('int64'),
            text=datasets.Value('string'),
            vector=datasets.List(datasets.Value('float32'), length=256),
            blob=datasets.Value('binary'),
        )
        dataset = datasets.Dataset.from_generator(
            lambda: iter(rows), features=features, cache_dir=str(path), fingerprint='bench'
        )
        if shard_length is not None:
            shards = -(-len(dataset) // shard_length)
            dataset.save_to_disk(str(path / 'saved'), num_shards=shards, num_proc=1)

    def open(self, path: Path) -> Reader:
        datasets = hugging_face()
        make = ArrowReader if self.arrow else HuggingFaceReader
        if (path / 'saved').exists():
            return make(datasets.load_from_disk(str(path / 'saved')))
        files = sorted(path.rglob('*.arrow'))
        return make(datasets.concatenate_datasets([datasets.Dataset.from_file(str(file)) for file in files]))


def hugging_face() -> Any:
    """Imports the library, quiet and offline."""
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    import datasets

    datasets.disable_progress_bars()
    return datasets


class HuggingFaceReader:
    """Values as Python objects, or by the numpy format where that is faster: not for text and bytes."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.chosen = functools.cache(self.choose)

    def choose(self, fields: tuple[str, ...]) -> Any:
        chosen = self.dataset.select_columns(list(fields))
        return chosen if 'text' in fields else chosen.with_format('numpy')

    def row(self, index: int) -> Row:
        return self.dataset[index]

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return self.chosen(fields)[indices]

    def scan(self, field: str) -> Any:
        return self.chosen((field,))[:][field]

    def close(self) -> None:
        self.dataset = self.chosen = None


class ArrowReader(HuggingFaceReader):
    """Reads values as Arrow tables and converts them to Python values and arrays, without the library."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset.with_format('arrow'))

    def choose(self, fields: tuple[str, ...]) -> Any:
        return self.dataset.select_columns(list(fields))

    def row(self, index: int) -> Row:
        return {field: values[0] for field, values in arrow_columns(self.dataset[index]).items()}

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return arrow_columns(self.chosen(fields)[indices])

    def scan(self, field: str) -> Any:
        return self.chosen((field,))[:][field].to_numpy()


class Lance:
    """Lance, random access by `take` with columns, scans by `to_table`."""

    module, columnar, rows_per_run = 'lance', True, 30

    def write(self, path: Path, rows: Iterable[Row], shard_length: int | None = None) -> None:
        import lance
        import pyarrow as pa

        kinds = [pa.int64(), pa.string(), pa.list_(pa.float32(), 256), pa.binary()]
        schema = pa.schema(zip(FIELDS, kinds, strict=True))

        def batches() -> Iterator[Any]:
            for chunk in chunks(rows, 1024):
                values = columns(chunk, FIELDS)
                flat = np.concatenate(values['vector'])
                values['vector'] = pa.FixedSizeListArray.from_arrays(flat, 256)
                yield pa.record_batch([pa.array(values[field]) for field in FIELDS], schema=schema)

        limit = {} if shard_length is None else {'max_rows_per_file': shard_length}
        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(path), **limit)

    def open(self, path: Path) -> Reader:
        import lance

        return LanceReader(lance.dataset(str(path)))


class LanceReader:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def row(self, index: int) -> Row:
        return {field: values[0] for field, values in arrow_columns(self.dataset.take([index])).items()}

    def batch(self, indices: Indices, fields: tuple[str, ...]) -> Columns:
        return arrow_columns(self.dataset.take(indices, columns=list(fields)))

    def scan(self, field: str) -> Any:
        return self.dataset.to_table(columns=[field])[field].to_numpy()

    def close(self) -> None:
        self.dataset = None


def arrow_columns(table: Any) -> Columns:
    """Converts an Arrow table to arrays for numbers and vectors, and to lists for text and bytes."""
    values: Columns = {}
    for field in table.column_names:
        column = table[field]
        if field == 'vector':
            values[field] = column.combine_chunks().flatten().to_numpy().reshape(len(column), -1)
        else:
            values[field] = column.to_numpy() if field == 'id' else column.to_pylist()
    return values
