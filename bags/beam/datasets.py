"""Beam transforms that read and write the datapoints of datasets."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io import iobase, range_trackers
from apache_beam.transforms.display import DisplayDataItem

from bags.beam.finalize import finalize, make_temporary_folder
from bags.beam.source import SequenceSource
from bags.dataset.base import Datapoint
from bags.dataset.encoder import bind_encoders
from bags.dataset.field_writer import Compression, field_compressions
from bags.dataset.open import open as open_dataset
from bags.dataset.selection import Fields, select_fields
from bags.dataset.shard_list import shard_numbers
from bags.dataset.sharded_writer import GB
from bags.dataset.spec import check_names, parse_spec
from bags.dataset.writer import DatasetWriter
from bags.storage import store_for
from bags.validation import at_least

__all__ = ['ReadDataset', 'WriteDataset']

READ_BYTES = 1 << 22  # Of datapoints that are read at a time, about.
MAX_READ_DATAPOINTS = 1024


class ReadDataset(beam.PTransform):  # type: ignore[misc]
    """Reads the datapoints of a dataset. Nothing is opened while the pipeline is built.

    Args:
        directory: The dataset: path or URL.
        fields: Which fields to read, as in `reader[i, fields]`; all unless given.
        **options: As in `bags.open`.
    """

    def __init__(self, directory: str | os.PathLike[str], fields: Fields = None, **options: Any) -> None:
        super().__init__()
        self._source = DatasetSource(os.fspath(directory), fields, options)

    def expand(self, pbegin: Any) -> Any:
        return pbegin | iobase.Read(self._source)


class DatasetSource(SequenceSource):
    """A dataset as a source of datapoints."""

    def __init__(self, directory: str, fields: Fields, options: Mapping[str, Any]) -> None:
        self._directory, self._fields, self._options = directory, fields, dict(options)

    def open(self) -> Any:
        return open_dataset(self._directory, **self._options)

    def read(self, range_tracker: range_trackers.OffsetRangeTracker) -> Iterator[Datapoint]:
        start, stop = range_tracker.start_position(), range_tracker.stop_position()
        dataset = self.sequence()
        selection = select_fields(self._fields, dataset._types)
        mean = dataset.size // max(1, len(dataset))
        step = max(1, min(MAX_READ_DATAPOINTS, READ_BYTES // max(1, mean)))
        for first in range(start, stop, step):
            indices = np.arange(first, min(first + step, stop))
            for index, datapoint in enumerate(dataset._rows(indices, selection), first):
                if not range_tracker.try_claim(index):
                    return
                yield datapoint

    def display_data(self) -> dict[str, Any]:
        return {'directory': DisplayDataItem(self._directory, label='Dataset')}


class WriteDataset(beam.PTransform):  # type: ignore[misc]
    """Writes datapoints to a sharded dataset, whose shards appear when all are written.

    Each bundle writes a shard, or several if it is larger than one. The order of datapoints is arbitrary.

    Args:
        directory: The dataset, which must not exist: path or URL.
        spec, encoders, compression, filesystem, storage_options: As in `bags.DatasetWriter`.
        shard_size: Bytes from which on a shard is full.

    Raises:
        SpecError: The spec is invalid.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        shard_size: int = 10 * GB,
        *,
        compression: Compression = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        shard_size = at_least('shard_size', shard_size, 1)
        types = parse_spec(spec)
        check_names(types)
        bind_encoders(types, encoders)
        field_compressions(compression, types)
        options = {
            'compression': compression,
            'filesystem': filesystem,
            'storage_options': storage_options,
        }
        self._sink = DatasetSink(os.fspath(directory), dict(spec), encoders, shard_size, options)

    def expand(self, datapoints: Any) -> Any:
        return datapoints | iobase.Write(self._sink)


class DatasetSink(iobase.Sink):  # type: ignore[misc]
    """A sharded dataset as a sink."""

    def __init__(
        self, directory: str, spec: dict[str, str], encoders: Any, shard_size: int, options: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._directory, self._spec, self._encoders = directory, spec, encoders
        self._shard_size, self._options = shard_size, dict(options)

    def _store(self) -> Any:
        return store_for(self._directory, self._options['filesystem'], self._options['storage_options'])

    def initialize_write(self) -> str:
        store, path = self._store()
        store.make_folder(path)
        if 'spec.json' in store.names(path) or shard_numbers(store, path):
            raise FileExistsError(errno.EEXIST, 'a dataset exists already', path)
        return make_temporary_folder(store, path)

    def open_writer(self, init_result: str, uid: str) -> ShardWriter:
        store, _ = self._store()
        return ShardWriter(
            store.join(init_result, uid), self._spec, self._encoders, self._shard_size, self._options
        )

    def pre_finalize(self, init_result: str, writer_results: list[str]) -> None:
        pass

    def finalize_write(self, init_result: str, writer_results: Any, pre_finalize_result: Any) -> list[str]:
        store, path = self._store()
        paths = sorted(writer_results)
        targets = [store.join(path, f'{number:06}') for number in range(len(paths))]
        finalize(store, init_result, list(zip(paths, targets, strict=True)))
        return targets

    def display_data(self) -> dict[str, Any]:
        return {'directory': DisplayDataItem(self._directory, label='Dataset')}


class ShardWriter(iobase.Writer):  # type: ignore[misc]
    """Writes datapoints of one bundle to a shard folder."""

    def __init__(
        self, path: str, spec: dict[str, str], encoders: Any, shard_size: int, options: Mapping[str, Any]
    ) -> None:
        self._path, self._shard_size = path, shard_size
        self._writer = DatasetWriter(path, spec, encoders, **options)

    def write(self, value: Mapping[str, Any]) -> None:
        self._writer.append(value)

    def at_capacity(self) -> bool:
        return self._writer.size >= self._shard_size

    def close(self) -> str:
        self._writer.close()
        return self._path
