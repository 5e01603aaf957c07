"""Writing a sharded dataset from Ray Data: tasks write shards, which appear once all are written."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from ray.data import Datasink
from ray.data.block import BlockAccessor

from bags.authoring.temporary_shards import begin, check_absent, check_options, commit, shard_names
from bags.bag.temporary_files import remove_tree
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.format.spec import parse_spec
from bags.dataset.writing.writer import DatasetWriter
from bags.ray.columns import as_datapoint
from bags.storage import Store, store_for
from bags.storage.urls import plain_path
from bags.validation import positive_or_none


def write(
    path: str | os.PathLike[str],
    spec: Mapping[str, str],
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    *,
    min_rows_per_shard: int | None = None,
    **options: Unpack[WriteOptions],
) -> BagsDatasink:
    """Returns a datasink that writes a sharded dataset: `data.write_datasink(bags.ray.write('out', spec))`.

    Each task writes one shard, or several if its output exceeds `shard_size`, under temporary names. The
    shards appear once all are written; a retried task leaves no files behind. The order of datapoints
    is arbitrary, unless `DataContext.execution_options.preserve_order` is set.

    Args:
        path: Path or URL of the dataset, which must not exist. All nodes of a cluster must have access to it.
        spec, encoders: As in `bags.DatasetWriter`.
        min_rows_per_shard: Approximate number of datapoints that Ray collects for a task. Default: a task
            gets one of Ray's blocks of 128 MiB.
        **options: As in `bags.ShardedDatasetWriter`, but not `resume` and `mode='overwrite'`: the shards of a
            job that fails do not appear, and a dataset can be replaced only by one process.

    Raises:
        SpecError: The spec is invalid.
        TypeError, ValueError: An unknown or invalid option.

    Examples:
        >>> data = bags.ray.read('dataset', 'id')
        >>> data.write_datasink(bags.ray.write('ids', {'id': 'int(8)'}))
    """
    settings = check_options(spec, encoders, options, write)
    min_rows = positive_or_none('min_rows_per_shard', min_rows_per_shard)
    store, folder = store_for(path, **settings.storage)
    # Workers may have a different working directory.
    folder = os.fspath(plain_path(path)) if store.is_remote else os.path.abspath(folder)
    return BagsDatasink(folder, dict(spec), encoders, min_rows, settings)


class BagsDatasink(Datasink):  # type: ignore[misc]
    """A sharded dataset as a sink."""

    def __init__(
        self,
        folder: str,
        spec: dict[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None,
        min_rows: int | None,
        settings: WriterSettings,
    ) -> None:
        self._folder, self._spec, self._encoders = folder, spec, encoders
        self._min_rows, self._settings = min_rows, settings
        self._unfinished: str | None = None
        """The temporary folder of a running job."""

    def get_name(self) -> str:
        return 'Bags'

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def _store(self) -> tuple[Store, str]:
        return store_for(self._folder, **self._settings.storage)

    def on_write_start(self, schema: Any = None) -> None:
        store, folder = self._store()
        store.make_folder(folder)
        check_absent(store, folder)
        self._unfinished = begin(store, folder)

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[str]:
        """Writes blocks as shards, and returns their paths in the temporary folder."""
        schema, paths = parse_spec(self._spec), []
        with contextlib.ExitStack() as shard:
            writer = None
            for block in blocks:
                for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True):
                    if writer is None:
                        writer = shard.enter_context(self._new_shard())
                        paths.append(writer.path)
                    writer.append(as_datapoint(row, schema))
                    if self._settings.is_full(writer.size, len(writer)):
                        shard.close()
                        writer = None
        return paths

    def _new_shard(self) -> DatasetWriter:
        store, _ = self._store()
        assert self._unfinished is not None
        path = store.join(self._unfinished, uuid.uuid4().hex)
        return DatasetWriter(path, self._spec, self._encoders, **self._settings.of_shard())

    def on_write_complete(self, write_result: Any) -> None:
        """Renames the shards to consecutive numbers."""
        paths = [path for task in write_result.write_returns for path in task]
        if self._unfinished is None:
            self.on_write_start()
        if not paths:
            with self._new_shard() as writer:
                paths.append(writer.path)
        store, folder = self._store()
        targets = [store.join(folder, name) for name in shard_names(len(paths))]
        # From here on, an error leaves the shards in place, because some of them are already renamed.
        unfinished, self._unfinished = self._unfinished, None
        assert unfinished is not None
        commit(store, unfinished, zip(paths, targets, strict=True))

    def on_write_failed(self, error: Exception) -> None:
        """Removes the temporary folder as far as possible: tasks may still be running."""
        if self._unfinished is not None:
            with contextlib.suppress(OSError):
                remove_tree(self._store()[0], self._unfinished)
            self._unfinished = None
