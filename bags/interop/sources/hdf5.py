"""HDF5: a datapoint a file, as ALOHA has them, or a numbered group, as robomimic has them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bags.errors import MissingDependencyError, SourceError
from bags.interop.arrays import Array, ArraySource, episode_groups, json_value, natural_order
from bags.interop.extensions import KEY
from bags.interop.source import list_paths

__all__ = ['HDF5Source', 'open_source']

MAX_ATTRIBUTE_BYTES = 1 << 16
"""Of attributes of a whole file, which become metadata."""


class Episode(NamedTuple):
    """Where the arrays of a datapoint are."""

    path: str
    group: str
    key: str


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> HDF5Source:
    """Returns the datapoints of HDF5 files."""
    return HDF5Source(sorted(list_paths(paths, storage_options), key=natural_order), storage_options)


class HDF5Source(ArraySource):
    """The datasets and attributes of files, or of their groups `data/demo_0`, …, as datapoints.

    Attributes of a file that has several datapoints become metadata.

    Args:
        paths: The files.
        storage_options: As in `bags.open`, for URLs.

    Raises:
        SourceError: No file can be read.
    """

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage_options = dict(storage_options or {})
        episodes: list[Episode] = []
        outside: dict[str, None] = {}
        metadata: dict[str, Any] = {}
        for path in paths:
            stem = path.rpartition('/')[2].rpartition('.')[0]
            try:
                with self._file(path) as file:
                    groups = episode_groups(functools.partial(_children, file))
                    if groups != ['']:
                        metadata = {**_describe(file), **metadata}
                        found = _datasets(file)
                        outside |= dict.fromkeys(
                            name for name in found if name.rpartition('/')[0] != 'mask'
                            and not any(name.startswith(f'{group}/') for group in groups)
                        )  # fmt: skip
            except SourceError:
                groups = ['']  # It is among the damaged ones later.
            prefix = f'{stem}/' if groups != [''] and len(paths) > 1 else stem * (groups == [''])
            episodes += [Episode(path, group, prefix + group.rpartition('/')[2]) for group in groups]
        super().__init__('hdf5', episodes)
        self.metadata = metadata
        self.notes += [f'{name!r} is left out: it is in none of the numbered groups' for name in outside]

    def name(self, entry: Episode) -> str:
        return f'{entry.path}, {entry.group}' if entry.group else entry.path

    @contextmanager
    def open(self, record: Episode) -> Iterator[Mapping[str, Array]]:
        with self._file(record.path) as file:
            group = file[record.group or '/']
            arrays: dict[str, Any] = dict(_datasets(group))
            for name, value in group.attrs.items():
                if (found := np.asarray(value)).dtype.kind != 'O':
                    arrays[f'{name}_attribute' if name in arrays else name] = found
            yield {KEY: np.asarray(record.key), **arrays}

    @contextmanager
    def _file(self, path: str) -> Iterator[Any]:
        """Opens a file; errors in it name it."""
        try:
            import h5py
        except ImportError as exc:
            raise MissingDependencyError('h5py', 'hdf5') from exc
        import fsspec

        fs, local = fsspec.core.url_to_fs(path, **self._storage_options)
        try:
            if 'file' in fs.protocol:
                with h5py.File(local, 'r', locking=False) as file:
                    yield file
            else:
                with fs.open(local, 'rb') as remote, h5py.File(remote, 'r') as file:
                    yield file
        except FileNotFoundError:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as exc:
            if isinstance(exc, SourceError):
                raise
            raise SourceError(path, f'cannot be read as HDF5: {exc}') from exc


def _children(file: Any, path: str) -> dict[str, bool]:
    """Returns the members of a group, and if they are groups; links to elsewhere are left out."""
    import h5py

    group = file[path or '/']
    return {
        name: group.get(name, getclass=True) is h5py.Group
        for name in group
        if isinstance(group.get(name, getlink=True), h5py.HardLink)
    }


def _datasets(group: Any) -> dict[str, Any]:
    """Returns the datasets below a group by path.

    Raises:
        SourceError: The values of one are in another file.
    """
    import h5py

    found: dict[str, Any] = {}

    def visit(name: str | bytes, value: Any) -> None:  # Links to elsewhere are not visited.
        if isinstance(value, h5py.Dataset) and value.shape is not None:
            if value.external or (
                value.is_virtual and {part.file_name for part in value.virtual_sources()} - {'.'}
            ):
                raise SourceError(
                    value.file.filename, f'expected values in this file, {value.name!r} refers to others'
                )
            found[name if isinstance(name, str) else name.decode(errors='replace')] = value

    group.visititems(visit)
    return found


def _describe(file: Any) -> dict[str, Any]:
    """Returns the attributes of a file and its `data`, and the names of datapoints in `mask`, as metadata."""
    found: dict[str, Any] = {}
    for group in (file, file.get('data')):
        for name, value in group.attrs.items() if group is not None else ():
            if np.asarray(value).nbytes <= MAX_ATTRIBUTE_BYTES and np.asarray(value).dtype.kind != 'O':
                found[name] = json_value(value)
    masks = {
        name.removeprefix('mask/'): [json_value(key) for key in dataset[:]]
        for name, dataset in _datasets(file).items()
        if name.startswith('mask/') and dataset.ndim == 1 and dataset.dtype.itemsize * dataset.size <= 1 << 20
    }
    found.pop('fields', None)  # Of a dataset, they are facts of fields.
    return {**found, 'mask': masks} if masks else found
