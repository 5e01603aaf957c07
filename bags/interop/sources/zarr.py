"""Zarr, versions 2 and 3: a datapoint an episode of a replay buffer of diffusion policy, or a group."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bags.errors import MissingDependencyError, SourceError
from bags.interop.arrays import Array, ArraySource, Shape, episode_groups, json_value
from bags.interop.source import list_paths

__all__ = ['ZarrSource', 'open_source']

ENDS = 'meta/episode_ends'


class Episode(NamedTuple):
    """Where the arrays of a datapoint are."""

    path: str
    group: str
    start: int | None = None
    """The first row, and the end of the rows, of the arrays of a replay buffer."""
    stop: int | None = None


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> ZarrSource:
    """Returns the datapoints of Zarr groups: folders, or zip files."""
    return ZarrSource(list_paths(paths, storage_options), storage_options)


class ZarrSource(ArraySource):
    """The rows of arrays in `data` between `meta/episode_ends`, or the arrays of groups, as datapoints.

    Args:
        paths: The outermost groups.
        storage_options: As in `bags.open`, for URLs.

    Raises:
        SourceError: A group cannot be read, or ends of episodes that do not fit the arrays.
    """

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._arrays: dict[str, dict[str, Any]] = {}
        episodes: list[Episode] = []
        metadata: dict[str, Any] = {}
        outside: list[str] = []
        for path in paths:
            with _errors(path):
                root = _open(path, storage_options)
                metadata = {**json_value(dict(root.attrs)), **metadata}
                members = dict(root.members(max_depth=None))
                self._arrays[path] = arrays = {
                    name: member for name, member in members.items() if hasattr(member, 'dtype')
                }
                _check(arrays)
                if ENDS in arrays:
                    episodes += _episodes(path, arrays)
                    outside += [name for name in arrays if not name.startswith('data/') and name != ENDS]
                else:
                    groups = episode_groups(functools.partial(_children, members))
                    episodes += [Episode(path, group) for group in groups]
        super().__init__('zarr', episodes)
        metadata.pop('fields', None)  # Of a dataset, they are facts of fields.
        self.metadata = metadata
        self.notes += [f'{name!r} is left out: it is not in data' for name in outside]

    def name(self, entry: Episode) -> str:
        rows = '' if entry.start is None else f', rows {entry.start} to {entry.stop}'
        return f'{entry.path}{rows}{", " * bool(entry.group)}{entry.group}'

    @contextmanager
    def open(self, record: Episode) -> Iterator[Mapping[str, Array]]:
        group = f'{record.group}/' if record.group else ''
        with _errors(record.path):
            yield {
                name.removeprefix(group): _Rows(array, record.start, record.stop)
                for name, array in self._arrays[record.path].items()
                if name.startswith(group)
            }


class _Rows:
    """Some rows of an array."""

    def __init__(self, array: Any, start: int | None, stop: int | None) -> None:
        self._array, self._start = array, start
        self.shape: Shape = array.shape if start is None or stop is None else (stop - start, *array.shape[1:])
        self.dtype = array.dtype

    def __getitem__(self, key: Any) -> Any:
        if self._start is None:
            return self._array[key]
        if isinstance(key, tuple):
            first = key[0] if key else slice(0, self.shape[0])
            if isinstance(first, slice):
                return self[first]
            return self._array[(self._start + first, *key[1:])]
        start, stop, _ = key.indices(self.shape[0])
        return self._array[self._start + start : self._start + stop]


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Converts errors of Zarr to ones that name the group."""
    try:
        yield
    except (SourceError, FileNotFoundError, MissingDependencyError):
        raise
    except Exception as exc:  # Codecs raise what they like.
        raise SourceError(path, f'cannot be read as Zarr: {type(exc).__name__}: {exc}') from exc


def _open(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    try:
        import zarr
    except ImportError as exc:
        raise MissingDependencyError('zarr', 'zarr') from exc
    if path.endswith('.zip'):
        return zarr.open_group(zarr.storage.ZipStore(path, mode='r'), mode='r')
    return zarr.open_group(path, mode='r', storage_options=dict(storage_options or {}) or None)


def _check(arrays: Mapping[str, Any]) -> None:
    """Refuses names that leave the folder, and values that are pickled."""
    for name, array in arrays.items():
        if any(part in ('', '.', '..') for part in name.split('/')) or '\\' in name:
            raise ValueError(f'expected a name without "..", got {name!r}')
        about = {key: value for key, value in array.metadata.to_dict().items() if key != 'attributes'}
        if 'pickle' in str(about):
            raise ValueError(f'{name}: expected values that are not pickled')


def _children(members: Mapping[str, Any], group: str) -> dict[str, bool]:
    start = f'{group}/' if group else ''
    below = {name.removeprefix(start): member for name, member in members.items() if name.startswith(start)}
    return {name: not hasattr(member, 'dtype') for name, member in below.items() if '/' not in name}


def _episodes(path: str, arrays: Mapping[str, Any]) -> list[Episode]:
    ends = np.asarray(arrays[ENDS][:])
    lengths = {
        name: array.shape[0] for name, array in arrays.items() if name.startswith('data/') and array.shape
    }
    cuts = [0, *ends.astype(np.int64).tolist()] if ends.ndim == 1 and ends.dtype.kind in 'iu' else [-1]
    if cuts[0] or any(stop < start for start, stop in itertools.pairwise(cuts)):
        raise ValueError(f'{ENDS}: expected integers that rise, got {str(ends)[:80]}')
    for name, length in lengths.items():
        if length < cuts[-1]:
            raise ValueError(f'{name}: expected {cuts[-1]} rows, as {ENDS} says, got {length}')
    return [Episode(path, 'data', start, stop) for start, stop in itertools.pairwise(cuts)]
