"""Beam transforms that read and write the datapoints of datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Unpack

import apache_beam as beam
import numpy as np
from apache_beam.io import iobase, range_trackers
from apache_beam.transforms.display import DisplayDataItem

from bags.authoring.temporary_shards import check_absent, check_options, shard_names
from bags.beam.bundles import BundleOutput, FolderSink, SequenceSource
from bags.dataset.format.options import OpenOptions, WriteOptions, WriterSettings
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.row_groups import Datapoint
from bags.dataset.reading.selection import Fields, select_fields
from bags.dataset.writing.writer import DatasetWriter
from bags.indexing import chunk_length
from bags.storage import Store
from bags.storage.urls import plain_path
from bags.validation import reject_unknown_options

BUNDLE_READ_BYTES = 1 << 22  # Approximate bytes of the datapoints read at a time.
MAX_READ_DATAPOINTS = 1024


class ReadDataset(beam.PTransform):  # type: ignore[misc]
    """Reads the datapoints of a dataset. Nothing is opened while the pipeline is built.

    Args:
        path: Path or URL of the dataset.
        fields: Which fields to read, as in `reader[i, fields]`. Default: all.
        **options: As in `bags.open`.

    Examples:
        >>> with beam.Pipeline() as pipeline:
        ...     _ = pipeline | bags.beam.ReadDataset('dataset', ('id', 'text')) | beam.Map(print)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Fields = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        super().__init__()
        reject_unknown_options(options, OpenOptions.__annotations__, ReadDataset)
        self._source = DatasetSource(os.fspath(plain_path(path)), fields, options)

    def expand(self, pbegin: Any) -> Any:
        return pbegin | iobase.Read(self._source)


class DatasetSource(SequenceSource):
    """A dataset as a source of datapoints."""

    def __init__(self, path: str, fields: Fields, options: Mapping[str, Any]) -> None:
        self._path, self._fields, self._options = path, fields, dict(options)

    def open(self) -> Any:
        return open_dataset(self._path, **self._options)

    def bytes_before(self, index: int) -> int:
        before: int = self.sequence().bytes_before(index)
        return before

    def read(self, range_tracker: range_trackers.OffsetRangeTracker) -> Iterator[Datapoint]:
        start, stop = range_tracker.start_position(), range_tracker.stop_position()
        dataset = self.sequence()
        selection = select_fields(self._fields, dataset.schema)
        step = chunk_length(len(dataset), dataset.size, BUNDLE_READ_BYTES, MAX_READ_DATAPOINTS)
        for first in range(start, stop, step):
            indices = np.arange(first, min(first + step, stop))
            for index, datapoint in enumerate(dataset.read_rows(indices, selection), first):
                if not range_tracker.try_claim(index):
                    return
                yield datapoint

    def display_data(self) -> dict[str, Any]:
        return {'path': DisplayDataItem(self._path, label='Dataset')}


class WriteDataset(beam.PTransform):  # type: ignore[misc]
    """Writes datapoints to a sharded dataset. The shards appear once all of them are written.

    Each bundle writes one shard, or several if it exceeds the size of a shard. The order of
    datapoints is arbitrary.

    Args:
        path: Path or URL of the dataset, which must not exist.
        spec, encoders: As in `bags.DatasetWriter`.
        **options: As in `bags.ShardedDatasetWriter`, but not `resume` and `mode='overwrite'`: the shards of a
            pipeline that fails do not appear, and a dataset can be replaced only by one process.

    Raises:
        SpecError: The spec is invalid.
        TypeError, ValueError: An unknown or invalid option.

    Examples:
        >>> with beam.Pipeline() as pipeline:
        ...     numbers = pipeline | beam.Create([{'n': 1}, {'n': 2}])
        ...     _ = numbers | bags.beam.WriteDataset('numbers', {'n': 'int'})
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        super().__init__()
        settings = check_options(spec, encoders, options, WriteDataset)
        self._sink = DatasetSink(os.fspath(plain_path(path)), dict(spec), encoders, settings)

    def expand(self, datapoints: Any) -> Any:
        return datapoints | iobase.Write(self._sink)


class DatasetSink(FolderSink):
    """A sharded dataset as a sink."""

    def __init__(
        self,
        path: str,
        spec: dict[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None,
        settings: WriterSettings,
    ) -> None:
        super().__init__(path, settings.storage)
        self._spec, self._encoders, self._settings = spec, encoders, settings

    def check_absent(self, store: Store, folder: str) -> None:
        check_absent(store, folder)

    def names(self, count: int) -> list[str]:
        return shard_names(count)

    def output(self, path: str) -> BundleOutput:
        writer = DatasetWriter(path, self._spec, self._encoders, **self._settings.of_shard())
        return BundleOutput(path, writer, writer.append, self._settings.is_full)

    def display_data(self) -> dict[str, Any]:
        return {'path': DisplayDataItem(self.folder, label='Dataset')}
