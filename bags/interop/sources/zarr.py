"""Zarr, versions 2 and 3: a datapoint is an episode of a replay buffer (diffusion policy), or a group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bags.interop.arrays import ArraySource, Episode, split_episodes
from bags.interop.source import Collecting, list_paths, reading

__all__ = ['ZarrSource', 'open_source']

ENDS = 'meta/episode_ends'


class ZarrSource(ArraySource):
    """The rows of arrays in `data` between `meta/episode_ends`, or the arrays of groups, as datapoints."""

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._arrays: dict[str, dict[str, Any]] = {}
        episodes: list[Episode] = []
        metadata: dict[str, Any] = {}
        left_out: list[str] = []
        notes: list[str] = []
        damaged: list[tuple[str, str]] = []
        for path in list_paths(paths, storage_options):
            with Collecting(damaged), reading(path, 'Zarr'):
                root = _open(path, storage_options)
                metadata = {**root.attrs, **metadata}
                members = root.members(max_depth=None)
                self._arrays[path] = arrays = {
                    name: member for name, member in members if hasattr(member, 'dtype')
                }
                _check(arrays)
                if ENDS in arrays:
                    rows = _rows_of_episodes(arrays)
                    episodes += [Episode(path, 'data', rows=each) for each in rows]
                    end = rows[-1][1] if rows else 0
                    lengths = (array.shape[0] for name, array in arrays.items() if name.startswith('data/'))
                    count = max(lengths, default=0)
                    if end < count:
                        notes.append(
                            f'{path}: rows {end} to {count - 1} are left out: {ENDS} ends before them'
                        )
                    outside = [name for name in arrays if not name.startswith('data/') and name != ENDS]
                else:
                    groups, outside = split_episodes(arrays)
                    episodes += [Episode(path, group) for group in groups]
                left_out += outside
        super().__init__('zarr', episodes, damaged, metadata)
        self.notes += [*notes, *(f'{name!r} is left out: it is in no datapoint' for name in left_out)]

    @contextmanager
    def open(self, record: Episode) -> Iterator[dict[str, Any]]:
        group = f'{record.group}/' if record.group else ''
        with reading(self.name(record), 'Zarr'):
            yield {
                name.removeprefix(group): _Rows(array, *record.rows) if record.rows else array
                for name, array in self._arrays[record.path].items()
                if name.startswith(group)
            }


open_source = ZarrSource


class _Rows:
    """Some rows of an array."""

    def __init__(self, array: Any, start: int, stop: int) -> None:
        self._array, self._start = array, start
        self.shape: tuple[int, ...] = (stop - start, *array.shape[1:])
        self.dtype = array.dtype

    def __getitem__(self, key: Any) -> Any:
        start, stop, _ = (key if isinstance(key, slice) else slice(None)).indices(self.shape[0])
        return self._array[self._start + start : self._start + stop]


def _open(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    import zarr

    if path.endswith('.zip'):
        root = zarr.open(zarr.storage.ZipStore(path, mode='r'), mode='r')
    else:
        root = zarr.open(path, mode='r', storage_options=dict(storage_options or {}) or None)
    if not isinstance(root, zarr.Group):
        raise ValueError(f'expected a group of arrays, got an array of shape {root.shape}')
    return root


def _check(arrays: Mapping[str, Any]) -> None:
    """Refuses names outside of the folder, and pickled values."""
    for name, array in arrays.items():
        if any(part in ('', '.', '..') for part in name.split('/')) or '\\' in name:
            raise ValueError(f'expected a name without "..", got {name!r}')
        about = {key: value for key, value in array.metadata.to_dict().items() if key != 'attributes'}
        if 'pickle' in str(about):
            raise ValueError(f'{name}: expected values that are not pickled')


def _rows_of_episodes(arrays: Mapping[str, Any]) -> list[tuple[int, int]]:
    rows = list(itertools.pairwise([0, *arrays[ENDS][:].tolist()]))
    if any(start > stop for start, stop in rows):
        raise ValueError(f'{ENDS}: expected integers that rise, got {str(arrays[ENDS][:])[:80]}')
    for name, array in arrays.items():
        if name.startswith('data/') and rows and array.shape[0] < rows[-1][1]:
            raise ValueError(f'{name}: expected {rows[-1][1]} rows, as {ENDS} says, got {array.shape[0]}')
    return rows
