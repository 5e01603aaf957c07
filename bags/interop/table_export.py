"""Parquet files of a dataset, which `bags.convert` and Hugging Face's datasets read with its types."""

from __future__ import annotations

import posixpath
import sys
from typing import Any

from bags.dataset.arrow_types import MEDIA, import_pyarrow
from bags.dataset.base import Dataset
from bags.interop.features import as_stored, schema_with_features
from bags.progress import Advance

__all__ = ['write_parquet']

ROW_GROUP_BYTES = 1 << 25
"""Bytes of a row group, about."""
PAGE_BYTES = 1 << 20


def write_parquet(
    fs: Any,
    root: str,
    dataset: Dataset,
    fields: list[str],
    shard_size: int,
    shard_length: int | None,
    written: set[str],
    advance: Advance,
) -> int:
    """Writes files 000000.parquet, …, and adds their paths to `written`; returns how many there are.

    Each gets its name when it is complete.
    """
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    types = {name: dataset._types[name] for name in fields}
    reader = dataset.to_arrow(fields, media='bytes')
    schema = schema_with_features(reader.schema, types, dataset.metadata)
    batches = (
        pa.RecordBatch.from_arrays(list(map(as_stored, batch.columns, schema.types)), schema=schema)
        for batch in reader
    )
    # Bytes of media are neither repeated nor compressible.
    plain = [name for name in fields if types[name].word not in MEDIA]
    count, batch = 0, next(batches, None)
    while batch is not None or not count:
        path = posixpath.join(root, f'{count:06}.parquet')
        written |= {path, path + '.new'}
        rows = 0
        # Readers hold a page, which by default has 1024 rows at least.
        mean = 1 if batch is None else batch.nbytes // batch.num_rows
        page = max(1, min(1024, PAGE_BYTES // max(1, mean)))
        with (
            fs.open(path + '.new', 'wb') as file,
            pq.ParquetWriter(
                file, schema, use_dictionary=plain, write_statistics=plain, write_batch_size=page
            ) as writer,
        ):
            group: list[Any] = []
            while batch is not None:
                size = sum(part.nbytes for part in group)
                mean = max(1, batch.nbytes // batch.num_rows)
                left = (shard_size - file.tell() - size) // mean + 1
                limit = min(batch.num_rows, max(1, left), (shard_length or sys.maxsize) - rows)
                group.append(batch.slice(0, limit))
                rows += limit
                advance(limit, group[-1].nbytes)
                batch = batch.slice(limit) if limit < batch.num_rows else next(batches, None)
                size += group[-1].nbytes
                is_full = rows == shard_length or file.tell() + size >= shard_size
                if size >= ROW_GROUP_BYTES or is_full or batch is None:
                    writer.write_table(pa.Table.from_batches(group))
                    group = []
                if is_full:
                    break
        fs.mv(path + '.new', path)
        count += 1
    return count
