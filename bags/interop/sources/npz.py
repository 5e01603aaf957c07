""".npz files of NumPy: a datapoint is a file. Pickled values are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from bags.interop.arrays import ArraySource, natural_order
from bags.interop.extensions import KEY
from bags.interop.files import read_npy_header
from bags.interop.records import open_file
from bags.interop.source import check_claim, list_paths, reading
from bags.interop.zip_files import check_zip


class NpzSource(ArraySource):
    """The arrays of each file as a datapoint."""

    def __init__(
        self,
        paths: list[str],
        storage_options: Mapping[str, Any] | None = None,
        left_out: Iterable[str] = (),
    ) -> None:
        self._storage_options = storage_options
        self._others: dict[str, None] = {}
        paths = sorted(list_paths(paths, storage_options), key=natural_order)
        super().__init__('npz', paths, left_out=left_out)
        self.notes += [f'{name!r} is left out: it is no .npy file' for name in self._others]

    @contextmanager
    def open(self, record: str) -> Iterator[dict[str, Any]]:
        with (
            reading(record, '.npz'),
            open_file(record, self._storage_options) as file,
            np.lib.npyio.NpzFile(file) as arrays,
        ):
            archive: Any = arrays.zip
            check_zip(archive, file)
            members = archive.infolist()
            stored = file.seek(0, 2)
            check_claim(sum(member.file_size for member in members), stored, 'the archive')
            found: dict[str, Any] = {KEY: np.asarray(record.rpartition('/')[2].rpartition('.')[0])}
            for member in members:
                name = member.filename.removesuffix('.npy')
                if name != member.filename:
                    found[name] = _open_member(arrays, name)
                elif not member.is_dir():
                    self._others[member.filename] = None
            yield found


open_source = NpzSource


def _open_member(arrays: Any, name: str) -> _Member | Exception:
    """Returns an array, or the reason why it cannot be read."""
    try:
        return _Member(arrays, name)
    except ValueError as exc:
        return exc


class _Member:
    """An array in a file, whose rows are read in order if it is stored in C order."""

    def __init__(self, arrays: Any, name: str) -> None:
        self._arrays, self._name = arrays, name
        self._file: Any = None
        with arrays.zip.open(f'{name}.npy') as file:
            size = arrays.zip.getinfo(f'{name}.npy').file_size
            self.shape, self._is_fortran, self.dtype = read_npy_header(file, size)
            self._start = file.tell()
        if self.dtype.hasobject:
            raise ValueError('expected values that are not pickled (allow_pickle=False)')

    def __getitem__(self, key: Any) -> Any:
        if key == () or not self.shape or self._is_fortran:
            return self._arrays[self._name][key]
        start, stop, _ = key.indices(self.shape[0])
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        offset = self._start + start * row
        if self._file is None or self._file.tell() > offset:
            self._file = self._arrays.zip.open(f'{self._name}.npy')
        self._file.read(offset - self._file.tell())  # `seek` would skip the comparison of the checksum.
        data = self._file.read((stop - start) * row)
        return np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])
