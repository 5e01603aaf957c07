""".npz files of NumPy: a datapoint a file, without pickle."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.interop.arrays import ArraySource, natural_order
from bags.interop.extensions import KEY
from bags.interop.files import read_npy_header
from bags.interop.source import list_paths, reading

__all__ = ['NpzSource', 'open_source']


class NpzSource(ArraySource):
    """The arrays of each file as a datapoint."""

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage_options = dict(storage_options or {})
        super().__init__('npz', sorted(list_paths(paths, storage_options), key=natural_order))

    @contextmanager
    def open(self, record: str) -> Iterator[dict[str, Any]]:
        import fsspec

        with (
            reading(record, '.npz'),
            fsspec.open(record, 'rb', **self._storage_options) as file,
            np.lib.npyio.NpzFile(file) as arrays,
        ):
            key = np.asarray(record.rpartition('/')[2].rpartition('.')[0])
            yield {KEY: key, **{name: _Member(arrays, name) for name in arrays.files}}


open_source = NpzSource


class _Member:
    """An array in a file, which is read whole when a part of it is."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, arrays: Any, name: str) -> None:
        self._arrays, self._name = arrays, name
        try:
            with arrays.zip.open(f'{name}.npy') as file:
                size = arrays.zip.getinfo(f'{name}.npy').file_size
                self.shape, _, self.dtype = read_npy_header(file, size)
        except ValueError as exc:
            raise ValueError(f'{name}: {exc}') from exc

    @functools.cached_property
    def _array(self) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._arrays[self._name]
        return array

    def __getitem__(self, key: Any) -> Any:
        return self._array[key]
