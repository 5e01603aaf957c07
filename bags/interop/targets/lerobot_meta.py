"""The files in meta/ of a LeRobot dataset of version 3."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bags.interop.targets.lerobot_features import COUNTERS

if TYPE_CHECKING:
    import pyarrow as pa

COUNTED = {
    'timestamp': {'dtype': 'float32', 'shape': [1], 'names': None},
    **{name: {'dtype': 'int64', 'shape': [1], 'names': None} for name in COUNTERS},
}
"""The features of every LeRobot dataset."""


def write_meta(
    write: Callable[[str, bytes], None],
    info: Mapping[str, Any],
    stats: Mapping[str, Any],
    tasks: Sequence[str],
    episodes: Sequence[Mapping[str, Any]],
) -> None:
    """Writes the files that describe the episodes.

    Args:
        write: Writes bytes to a path in the dataset.
        info: The content of info.json, except values that follow from the other arguments.
        stats: The statistics of each feature, as lists.
        tasks: The tasks in the order of their numbers.
        episodes: The columns of each episode, without statistics.
    """
    import pyarrow as pa

    table = pa.table({'task_index': list(range(len(tasks))), 'task': list(tasks)})
    # LeRobot looks tasks up in the index that pandas creates from the column.
    columns = [
        {'name': name, 'field_name': name, 'pandas_type': pandas_type, 'numpy_type': dtype, 'metadata': None}
        for name, pandas_type, dtype in (('task_index', 'int64', 'int64'), ('task', 'unicode', 'object'))
    ]
    pandas_metadata = {'index_columns': ['task'], 'column_indexes': [], 'columns': columns}
    table = table.replace_schema_metadata({'pandas': json.dumps(pandas_metadata)})
    write('meta/tasks.parquet', parquet_bytes(table))
    location = {'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0}
    rows = [{**episode, **location} for episode in episodes]
    write('meta/episodes/chunk-000/file-000.parquet', parquet_bytes(pa.Table.from_pylist(rows)))
    counts = {
        'codebase_version': 'v3.0', 'total_episodes': len(episodes),
        'total_frames': sum(episode['length'] for episode in episodes), 'total_tasks': len(tasks),
        'splits': {'train': f'0:{len(episodes)}'},
    }  # fmt: skip
    write('meta/stats.json', json.dumps(stats, indent=4).encode())
    write('meta/info.json', json.dumps({**counts, **info}, indent=4).encode())


def parquet_bytes(table: pa.Table) -> bytes:
    """Returns a Parquet file with checksums of its pages."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(table, file, write_page_checksum=True)
    return file.getvalue()
