"""HDF5: a datapoint is a file, as in ALOHA, or a numbered group, as in robomimic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from bags.errors import SourceError
from bags.interop.arrays import ArraySource, Episode, natural_order, split_episodes
from bags.interop.extensions import KEY
from bags.interop.records import open_file
from bags.interop.source import list_paths, reading

__all__ = ['HDF5Source', 'open_source']

MAX_MASK_BYTES = 1 << 20
MAX_NAMES = 1 << 20
MAX_DEPTH = 64
"""Limits on the names in a file and their depth: links can make them exceed the bytes of the file."""


class HDF5Source(ArraySource):
    """The datasets and attributes of files, or of their groups `data/demo_0`, …, as datapoints.

    Attributes of a file with several datapoints, and of its `data`, become metadata, as do the names of
    datapoints in its `mask`.
    """

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage_options = storage_options
        episodes: list[Episode] = []
        metadata: dict[str, Any] = {}
        left_out: dict[str, None] = {}
        paths = sorted(list_paths(paths, storage_options), key=natural_order)
        for path in paths:
            stem = path.rpartition('/')[2].rpartition('.')[0]
            try:
                with self._file(path) as file:
                    found = _datasets(file)
                    masks = {name: found.pop(name) for name in list(found) if name.startswith('mask/')}
                    groups, outside = split_episodes(found)
                    if groups != ['']:
                        left_out |= dict.fromkeys(outside)
                        for group in (file, file[groups[0]].parent):
                            about = {name: value.tolist() for name, value in _attributes(group).items()}
                            metadata = {**about, **metadata}
                        for name, keys in masks.items():
                            if keys.size * keys.dtype.itemsize <= MAX_MASK_BYTES:
                                names = keys.asstr()[:].tolist()
                                metadata.setdefault('mask', {})[name.removeprefix('mask/')] = names
            except SourceError:
                groups = ['']  # Reported as damaged later.
            for group in groups:
                parts = stem if not group or len(paths) > 1 else '', group.rpartition('/')[2]
                episodes.append(Episode(path, group, '/'.join(filter(None, parts))))
        super().__init__('hdf5', episodes, metadata=metadata)
        self.notes += [f'{name!r} is left out: it is in none of the numbered groups' for name in left_out]

    @contextmanager
    def open(self, record: Episode) -> Iterator[dict[str, Any]]:
        with self._file(record.path) as file:
            group = file[record.group or '/']
            arrays: dict[str, Any] = dict(_datasets(group))
            for name, value in _attributes(group).items():
                arrays[f'{name}_attribute' if name in arrays else name] = value
            yield {KEY: np.asarray(record.key), **arrays}

    @contextmanager
    def _file(self, path: str) -> Iterator[Any]:
        import h5py

        with (
            reading(path, 'HDF5'),
            open_file(path, self._storage_options) as stream,
            h5py.File(stream, 'r') as file,
        ):
            yield file


open_source = HDF5Source


def _datasets(group: Any) -> dict[str, Any]:
    """Returns the datasets below a group by path; links out of the file or to groups above are left out.

    Raises:
        SourceError: The values of a dataset are in another file, or there are too many datasets.
    """
    import h5py

    found: dict[str, Any] = {}
    visited = 0

    def visit(above: list[Any], prefix: str) -> None:
        nonlocal visited
        for name in above[-1]:
            visited += 1
            if visited > MAX_NAMES or len(above) > MAX_DEPTH:
                raise ValueError(
                    f'expected up to {MAX_NAMES} names, {MAX_DEPTH} deep, those behind links too'
                )
            if isinstance(above[-1].get(name, getlink=True), h5py.ExternalLink):
                continue
            value = above[-1].get(name)
            if isinstance(value, h5py.Group) and value not in above:
                visit([*above, value], f'{prefix}{name}/')
            elif isinstance(value, h5py.Dataset) and value.shape is not None:
                if value.external or value.is_virtual:
                    raise ValueError(f'expected values in this file, {value.name!r} refers to others')
                found[prefix + name] = value

    visit([group], '')
    return found


def _attributes(group: Any) -> dict[str, Any]:
    """Returns attributes that are numbers or texts, as arrays."""
    found = {name: np.asarray(value) for name, value in group.attrs.items()}
    return {
        name: np.char.decode(value, errors='replace') if value.dtype.kind == 'S' else value
        for name, value in found.items()
        if value.dtype.kind in 'biufSU'
    }
