"""Base classes of sources, which are split into bundles, and of sinks, which join the outputs of bundles."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apache_beam.io import iobase, range_trackers

from bags.authoring.temporary_shards import begin, commit
from bags.bag.writer import Writer
from bags.dataset.writing.writer import DatasetWriter
from bags.indexing import split_by_bytes
from bags.storage import Store, store_for


class SequenceSource(iobase.BoundedSource, abc.ABC):  # type: ignore[misc]
    """Base of the sources of records and datapoints. Pickled without the open sequence."""

    _sequence: Any = None

    @abc.abstractmethod
    def open(self) -> Any:
        """Opens the sequence, which has a length and a `size` in bytes."""

    @abc.abstractmethod
    def bytes_before(self, index: int) -> int:
        """Returns the number of bytes in the sequence before an index."""

    def sequence(self) -> Any:
        """Returns the sequence, which is opened once per process."""
        if self._sequence is None:
            self._sequence = self.open()
        return self._sequence

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != '_sequence'}

    def estimate_size(self) -> int:
        size: int = self.sequence().size
        return size

    def split(
        self, desired_bundle_size: int, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[iobase.SourceBundle]:
        stop = len(self.sequence()) if stop_position is None else stop_position
        for first, last, size in split_by_bytes(
            start_position or 0, stop, desired_bundle_size, self.bytes_before
        ):
            yield iobase.SourceBundle(size, self, first, last)

    def get_range_tracker(
        self, start_position: int | None, stop_position: int | None
    ) -> range_trackers.OffsetRangeTracker:
        stop = len(self.sequence()) if stop_position is None else stop_position
        return range_trackers.OffsetRangeTracker(start_position or 0, stop)


class FolderSink(iobase.Sink, abc.ABC):  # type: ignore[misc]
    """Base of the sinks: the outputs of bundles become consecutively numbered files or folders.

    Args:
        folder: Path or URL of the folder for the outputs.
        options: Options of the writers, including `filesystem` and `storage_options`.
    """

    def __init__(self, folder: str, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.folder, self.options = folder, dict(options)

    @abc.abstractmethod
    def check_absent(self, store: Store, folder: str) -> None:
        """Raises FileExistsError if a target exists already."""

    @abc.abstractmethod
    def names(self, count: int) -> list[str]:
        """Returns the names of `count` outputs."""

    @abc.abstractmethod
    def output(self, path: str) -> BundleOutput:
        """Opens an output."""

    def moves(self, path: str, target: str) -> list[tuple[str, str]]:
        """Returns the files or folders of an output to rename, and their new paths."""
        return [(path, target)]

    def _store(self) -> tuple[Store, str]:
        filesystem, options = self.options.get('filesystem'), self.options.get('storage_options')
        return store_for(self.folder, filesystem, options)

    def initialize_write(self) -> str:
        store, folder = self._store()
        store.make_folder(folder)
        self.check_absent(store, folder)
        return begin(store, folder)

    def open_writer(self, init_result: str, uid: str) -> iobase.Writer:
        store, _ = self._store()
        return self.output(store.join(init_result, uid))

    def pre_finalize(self, init_result: str, writer_results: list[str]) -> None:
        pass

    def finalize_write(self, init_result: str, writer_results: Any, pre_finalize_result: Any) -> list[str]:
        """Renames the outputs, and removes the rest of the temporary folder.

        Raises:
            FileExistsError: A path exists that is not from an earlier attempt.
        """
        store, folder = self._store()
        paths = sorted(writer_results)
        targets = [store.join(folder, name) for name in self.names(len(paths))]
        outputs = zip(paths, targets, strict=True)
        commit(store, init_result, itertools.chain.from_iterable(itertools.starmap(self.moves, outputs)))
        return targets


class BundleOutput(iobase.Writer):  # type: ignore[misc]
    """One output of a bundle, a bag or a dataset. `is_full(size, count)` says when a new output begins."""

    def __init__(
        self,
        path: str,
        writer: Writer | DatasetWriter,
        append: Callable[[Any], Any],
        is_full: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._path, self._writer, self._is_full = path, writer, is_full
        self.write = append

    def at_capacity(self) -> bool:
        return self._is_full is not None and self._is_full(self._writer.size, len(self._writer))

    def close(self) -> str:
        self._writer.close()
        return self._path
