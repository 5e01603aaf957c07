""".npz files of NumPy: a datapoint is a file. Pickled values are refused.

Arrays can be linked if they are uncompressed, in C order and little-endian. Links do not verify the checksums
of members.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from bags.dataset.format.spec import FieldType, parse_type
from bags.interop.files import open_unchanged, read_npy_header
from bags.interop.records import open_file
from bags.interop.source import as_source_errors, check_claim
from bags.interop.sources.arrays.arrays import Arrays, ArraySource, StoredArray
from bags.interop.sources.files.zip_files import LOCAL_SIZES, check_zip
from bags.links.sources import OpenedLink


class NpzSource(ArraySource[str]):
    """The arrays of each file as a datapoint."""

    name_of_format = 'npz'

    def find(self, paths: list[str]) -> list[str]:
        return paths

    def key(self, record: str) -> str:
        return record.rpartition('/')[2].rpartition('.')[0]

    @contextmanager
    def open(self, record: str) -> Iterator[Arrays]:
        with (
            as_source_errors(record, '.npz'),
            open_file(record, self.storage_options) as file,
            zipfile.ZipFile(file) as archive,
        ):
            check_zip(archive, file)
            members = archive.infolist()
            stored = file.seek(0, 2)
            check_claim(sum(member.file_size for member in members), stored, 'the archive')
            arrays: dict[str, StoredArray | Exception] = {}
            for member in members:
                name = member.filename.removesuffix('.npy')
                if name != member.filename:
                    arrays[name] = _open_member(archive, name, stored)
                elif not member.is_dir():
                    note = f'{member.filename!r} is left out: it is no .npy file'
                    if note not in self.notes:
                        self.notes.append(note)
            yield arrays

    def linkable(self) -> dict[str, float | str]:
        return self.measured(self.spec.keys())

    def link(self, record: str, field: str, array: StoredArray) -> OpenedLink | list[OpenedLink] | None:
        field_type = parse_type(self.spec[field])
        if (
            field not in self.linked
            or not isinstance(array, _NpzArray)
            or not array.has_records_of(field_type)
        ):
            return None
        whole = open_unchanged(self.opener, record, array.archive_size)
        names = LOCAL_SIZES.unpack(bytes(whole[array.header : array.header + LOCAL_SIZES.size]))
        start = array.header + LOCAL_SIZES.size + sum(names) + array.start
        rows = array.shape[0] if field_type.sequence else 1
        size = array.dtype.itemsize * math.prod(array.shape[field_type.sequence :])
        links = [whole.part(start + row * size, start + (row + 1) * size) for row in range(rows)]
        return links if field_type.sequence else links[0]


open_source = NpzSource


def _open_member(archive: zipfile.ZipFile, name: str, size: int) -> _NpzArray | Exception:
    """Opens an array; returns the error if it cannot be read."""
    try:
        return _NpzArray(archive, name, size)
    except ValueError as exc:
        return exc


class _NpzArray:
    """An array in a file. Rows of an array in C order are read in order, others with the whole array."""

    def __init__(self, archive: zipfile.ZipFile, name: str, size: int) -> None:
        self._archive, self._name, self.archive_size = archive, name, size
        self._file: IO[bytes] | None = None
        with archive.open(f'{name}.npy') as file:
            info = archive.getinfo(f'{name}.npy')
            self.shape, self._is_fortran, self.dtype = read_npy_header(file, info.file_size)
            self.start = file.tell()
            """Bytes of the header of the array, before its elements."""
            self.header = info.header_offset
            """The offset of the member in the archive."""
            self._is_stored = info.compress_type == zipfile.ZIP_STORED
        if self.dtype.hasobject:
            raise ValueError('expected values that are not pickled (allow_pickle=False)')

    def __getitem__(self, key: Any) -> Any:
        if key == () or not self.shape or self._is_fortran:
            data = self._read(0, self.dtype.itemsize * math.prod(self.shape))
            return np.ndarray(self.shape, self.dtype, data, order='F' if self._is_fortran else 'C')[key]
        start, stop, _ = key.indices(self.shape[0])
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        return np.ndarray((stop - start, *self.shape[1:]), self.dtype, self._read(start * row, stop * row))

    def has_records_of(self, field_type: FieldType) -> bool:
        """Returns whether the stored elements, of the array or of a row, equal a record of the type."""
        shape = self.shape[field_type.sequence :]
        fits = len(shape) + 1 == len(field_type.args) and all(
            text in ('?', str(length)) for text, length in zip(field_type.args[1:], shape, strict=True)
        )
        is_same = field_type.format == 'array' and fits and field_type.args[0] == self.dtype.name
        is_plain = self._is_stored and self.dtype.newbyteorder('<') == self.dtype
        return is_same and is_plain and not self._is_fortran

    def _read(self, start: int, stop: int) -> bytes:
        """Reads a range of the bytes of the elements."""
        offset = self.start + start
        if self._file is None or self._file.tell() > offset:
            self._file = self._archive.open(f'{self._name}.npy')
        self._file.read(offset - self._file.tell())  # `seek` would skip the checksum.
        data = self._file.read(stop - start)
        if len(data) != stop - start:
            raise ValueError(f'expected {stop - start} bytes of elements, got {len(data)}')
        return data
