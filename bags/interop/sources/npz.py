""".npz files of NumPy: a datapoint a file, without pickle."""

from __future__ import annotations

import functools
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.errors import SourceError
from bags.interop.arrays import Array, ArraySource, Shape, natural_order
from bags.interop.extensions import KEY
from bags.interop.source import list_paths

__all__ = ['NpzSource', 'open_source']


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> NpzSource:
    """Returns the datapoints of .npz files."""
    return NpzSource(sorted(list_paths(paths, storage_options), key=natural_order), storage_options)


class NpzSource(ArraySource):
    """The arrays of each file as a datapoint.

    Args:
        paths: The files.
        storage_options: As in `bags.open`, for URLs.

    Raises:
        SourceError: No file can be read.
    """

    def __init__(self, paths: list[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._storage_options = dict(storage_options or {})
        super().__init__('npz', paths)

    def name(self, entry: str) -> str:
        return entry

    @contextmanager
    def open(self, record: str) -> Iterator[Mapping[str, Array]]:
        import fsspec

        fs, path = fsspec.core.url_to_fs(record, **self._storage_options)
        try:
            with fs.open(path, 'rb') as file, zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if name.endswith('.npy')]
                key = np.asarray(record.rpartition('/')[2].rpartition('.')[0])
                yield {KEY: key, **{name.removesuffix('.npy'): _Member(archive, name) for name in names}}
        except FileNotFoundError:
            raise
        except (
            OSError,
            RuntimeError,
            ValueError,
            EOFError,
            NotImplementedError,
            zipfile.BadZipFile,
            zlib.error,
        ) as exc:
            if isinstance(exc, SourceError):
                raise
            raise SourceError(record, f'cannot be read as .npz: {exc}') from exc


class _Member:
    """An array in a file, which is read whole when a part of it is."""

    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            self.shape, _, self.dtype = read(file)
            size = archive.getinfo(name).file_size - file.tell()
        expected = math.prod(self.shape) * self.dtype.itemsize
        if size != expected and not self.dtype.hasobject:
            raise ValueError(f'{name}: expected {expected} bytes for shape {self.shape}, got {size}')

    @functools.cached_property
    def _array(self) -> npt.NDArray[Any]:
        with self._archive.open(self._name) as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array

    def __getitem__(self, key: Any) -> Any:
        return self._array[key]
