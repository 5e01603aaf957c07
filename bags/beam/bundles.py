"""Bases of sources and sinks: sources are split into bundles, and sinks join the outputs of bundles.

Each bundle of a sink writes to a temporary folder, under a name of its own. One that is retried writes under
another name, and what its first attempt left is removed in the end. Renaming may be retried too.
"""

from __future__ import annotations

import abc
import errno
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apache_beam.io import iobase, range_trackers

from bags.storage import Store, store_for

__all__ = ['FolderSink', 'Output', 'SequenceSource', 'split']

PREFIX = '.unfinished-'


class SequenceSource(iobase.BoundedSource, abc.ABC):  # type: ignore[misc]
    """Base of the sources of records and of datapoints. Pickled without the open sequence."""

    _sequence: Any = None

    @abc.abstractmethod
    def open(self) -> Any:
        """Opens the sequence: it has a length and a `size` in bytes."""

    @abc.abstractmethod
    def bytes_before(self, index: int) -> int:
        """Returns the bytes of the sequence before an index."""

    def sequence(self) -> Any:
        """Returns the sequence, opened once in each process."""
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
        for first, last, size in split(start_position or 0, stop, desired_bundle_size, self.bytes_before):
            yield iobase.SourceBundle(size, self, first, last)

    def get_range_tracker(
        self, start_position: int | None, stop_position: int | None
    ) -> range_trackers.OffsetRangeTracker:
        stop = len(self.sequence()) if stop_position is None else stop_position
        return range_trackers.OffsetRangeTracker(start_position or 0, stop)


def split(
    start: int, stop: int, bundle_size: int, bytes_before: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Splits a range of indices into bundles of about equal bytes, also where records differ in length.

    Args:
        start, stop: The range.
        bundle_size: Bytes of a bundle, about: the bytes of the range are divided evenly.
        bytes_before: Returns the bytes before an index, which grow with it; called a few times a bundle.

    Yields:
        Start, stop and bytes of each bundle, none of them empty.
    """
    if start >= stop:
        return
    first = bytes_before(start)
    total = bytes_before(stop) - first
    count = max(1, min(stop - start, round(total / max(1, bundle_size))))
    begin, size = start, first
    for number in range(1, count + 1):
        goal = first + total * number // count
        # The index nearest to the goal.
        end = stop if number == count else bisect_left(range(stop), goal, begin, stop, key=bytes_before)
        if begin < end < stop and goal - bytes_before(end - 1) < bytes_before(end) - goal:
            end -= 1
        if end > begin:
            reached = bytes_before(end)
            yield begin, end, reached - size
            begin, size = end, reached


class FolderSink(iobase.Sink, abc.ABC):  # type: ignore[misc]
    """Base of the sinks: the outputs of bundles become files or folders with consecutive numbers.

    Args:
        folder: Where they go: path or URL.
        options: Of the writers, among them `filesystem` and `storage_options`.
    """

    def __init__(self, folder: str, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._folder, self._options = folder, dict(options)

    @abc.abstractmethod
    def check_absent(self, store: Store, folder: str) -> None:
        """Raises FileExistsError where a target exists already."""

    @abc.abstractmethod
    def names(self, count: int) -> list[str]:
        """Returns the names of so many outputs."""

    @abc.abstractmethod
    def output(self, path: str) -> Output:
        """Opens an output."""

    def moves(self, path: str, target: str) -> list[tuple[str, str]]:
        """Returns which files or folders of an output are renamed, and their new paths."""
        return [(path, target)]

    def _store(self) -> tuple[Store, str]:
        options = {name: self._options.get(name) for name in ('filesystem', 'storage_options')}
        return store_for(self._folder, **options)

    def initialize_write(self) -> str:
        store, folder = self._store()
        store.make_folder(folder)
        self.check_absent(store, folder)
        path = store.join(folder, f'{PREFIX}{uuid.uuid4().hex}')
        store.make_folder(path)
        return path

    def open_writer(self, init_result: str, uid: str) -> iobase.Writer:
        store, _ = self._store()
        return self.output(store.join(init_result, uid))

    def pre_finalize(self, init_result: str, writer_results: list[str]) -> None:
        pass

    def finalize_write(self, init_result: str, writer_results: Any, pre_finalize_result: Any) -> list[str]:
        """Renames the outputs, and removes all else in the temporary folder.

        Raises:
            FileExistsError: A path exists, and is not from an earlier attempt.
        """
        store, folder = self._store()
        paths = sorted(writer_results)
        targets = [store.join(folder, name) for name in self.names(len(paths))]
        for output in zip(paths, targets, strict=True):
            for path, target in self.moves(*output):
                _move(store, path, target)
        _remove_folder(store, init_result)
        return targets


class Output(iobase.Writer):  # type: ignore[misc]
    """One output of a bundle: a bag or a dataset, full from `max_size` bytes on."""

    def __init__(
        self, path: str, writer: Any, append: Callable[[Any], Any], max_size: int | None = None
    ) -> None:
        self._path, self._writer, self._max_size = path, writer, max_size
        self.write = append

    def at_capacity(self) -> bool:
        return self._max_size is not None and self._writer.size >= self._max_size

    def close(self) -> str:
        self._writer.close()
        return self._path


def _move(store: Store, path: str, target: str) -> None:
    if not _exists(store, path):
        if not _exists(store, target):
            raise FileNotFoundError(errno.ENOENT, 'was removed before it was finalized', path)
        return
    names = _names(store, path)
    # On an object store, a file of the same size may be the copy that an earlier attempt made to rename it.
    if _exists(store, target) and (
        not store.is_remote or (names is None and store.stat(target).size != store.stat(path).size)
    ):
        raise FileExistsError(errno.EEXIST, 'exists already', target)
    if names is None or not store.is_remote:
        store.rename(path, target)
        return
    # Object stores rename single files only: refs.bag last, without which a folder is not complete.
    for name in sorted(names, key=lambda name: (name != 'spec.json', name == 'refs.bag', name)):
        store.rename(store.join(path, name), store.join(target, name))


def _exists(store: Store, path: str) -> bool:
    return store.exists(path) or _names(store, path) is not None


def _names(store: Store, path: str) -> list[str] | None:
    """Lists a folder; None if it is not one, or empty."""
    try:
        return store.names(path) or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove_folder(store: Store, folder: str) -> None:
    for name in _names(store, folder) or ():
        path = store.join(folder, name)
        if _names(store, path) is None and store.exists(path):
            store.remove(path)
        else:
            _remove_folder(store, path)
    store.remove_folder(folder)
