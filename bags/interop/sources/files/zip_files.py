"""The files of zips: their contents or locations. Adds checks that zipfile lacks."""

from __future__ import annotations

import contextlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, cast

from bags.concurrency import map_concurrently
from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES
from bags.interop.files import checked_link, checked_value, open_unchanged
from bags.interop.ignored_files import is_hidden
from bags.interop.records import open_file, path_beside, read_range
from bags.interop.source import as_source_errors, check_claim, check_expanded
from bags.interop.sources.files.folders import FolderFiles, SourceFiles
from bags.interop.stores import find_store, without_tail
from bags.links.sources import LinkOpener
from bags.storage import File, Hints
from bags.storage.range_file import PositionedFile

LOCAL_SIZES = struct.Struct('<26x2H')
"""The local header of a zip member; its last numbers are the lengths of the name and the extra field."""
_END = b'PK\x05\x06'
_END_BYTES = (1 << 16) + 22
"""Maximum size of the end record of a zip, including its comment."""
_HEADER = b'PK\x03\x04'
_EXTRA_BYTES = 256
"""Bytes that are read for the extra field of a header; a longer field costs another read."""
_ENCRYPTED, _UTF8 = 1 << 0, 1 << 11
MAX_ZIPS = 32
"""Maximum number of zips on an object store whose directories are read concurrently."""


def is_zip(name: str) -> bool:
    """Returns whether a file name has the extension of a zip."""
    return name.lower().endswith('.zip')


def check_zip(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Compares the directory of a zip with the local headers of its files, and with the number of files.

    Raises:
        ValueError, zipfile.BadZipFile: The directory of the zip is damaged.
    """
    _check_count(archive, file)
    for member in archive.infolist():
        archive.open(member).close()


class ZipFiles:
    """The files of a zip, local or at a URL: the directory is read once, and each file with one read."""

    def __init__(self, path: str, storage_options: Mapping[str, Any] | None = None) -> None:
        """Reads the directory.

        Raises:
            SourceError: Not a zip, a damaged directory, two files of the same name, names that lead out
                of the folder, or sizes that are too large for the zip.
        """
        self.root = path
        self._storage_options = storage_options
        self._remote: File | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._stops: dict[str, int] = {}
        """For each member, the offset of the next member, or of the directory."""
        self.others: list[str] = []
        """Names of symbolic links, which are left out."""
        with as_source_errors(path, '.zip'), self._open() as file, zipfile.ZipFile(file) as archive:
            _check_count(archive, file)
            self._size = file.seek(0, 2)
            stop = archive.start_dir
            members = archive.infolist()
            check_claim(sum(member.file_size for member in members), self._size, 'the archive')
            for member in sorted(members, key=lambda member: member.header_offset, reverse=True):
                name = member.orig_filename.removeprefix('./')
                if name.endswith('/') and member.file_size:
                    raise ValueError(f'expected a folder, got a file of the name {name!r:.200}')
                if not name.endswith('/'):
                    path_beside('', name)  # Raises if the path leads out of the folder.
                    if name in self._members:
                        raise ValueError(f'expected one file of each name, got two of {name!r:.200}')
                    self._members[name], self._stops[name] = member, stop
                stop = member.header_offset
        self.others = sorted(name for name, each in self._members.items() if _is_symbolic_link(each))
        self.names = sorted(self._members.keys() - set(self.others))
        stored = zipfile.ZIP_STORED
        self.compressed = {name for name in self.names if self._members[name].compress_type != stored}

    def sizes(self) -> Mapping[str, int]:
        return {name: self._members[name].file_size for name in self.names}

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def head(self, name: str, size: int | None = None) -> bytes:
        member = self._members[name]
        with self._naming(name):
            _check_supported(member)
            return self._content(name, member.file_size if size is None else min(size, member.file_size))

    def read(self, name: str, type_format: str) -> Any:
        return checked_value(f'{self.root}/{name}', type_format, self.head(name))

    def link(self, name: str, type_format: str, opener: LinkOpener) -> Any:
        member = self._members[name]
        if member.compress_type != zipfile.ZIP_STORED:
            return self.read(name, type_format)
        with self._naming(name):
            _check_supported(member)
            whole = open_unchanged(opener, self.root, self._size)
            around = whole.part(member.header_offset, self._stops[name])
            around = around.read_ahead(_header_bytes(member) + SIGNATURE_BYTES)
            start = self._start(name, bytes(around[: _header_bytes(member)]))
            link = around.part(start, start + member.file_size)
        return checked_link(f'{self.root}/{name}', type_format, link)

    def _content(self, name: str, size: int) -> bytes:
        """Returns the first bytes of a file; verifies the checksum if these are all bytes."""
        member = self._members[name]
        is_stored = member.compress_type == zipfile.ZIP_STORED
        stored = size if is_stored else member.compress_size
        count = min(_header_bytes(member) + stored, self._stops[name] - member.header_offset)
        data = read_range(self.root, member.header_offset, count, self._remote)
        start = self._start(name, data)
        if start + stored > len(data):
            begin = member.header_offset + start
            start, data = 0, read_range(self.root, begin, stored, self._remote)
        data = data[start : start + stored]
        is_whole = size == member.file_size
        if not is_stored:
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            data = inflate.decompress(data, size + is_whole)
            if len(data) != size or (is_whole and not inflate.eof):
                raise ValueError(f'expected {size} bytes after decompression, got {len(data)} or more')
        if is_whole and zlib.crc32(data) != member.CRC:
            raise ValueError('the checksum of its content differs from the one in the directory')
        return data

    def _start(self, name: str, header: bytes) -> int:
        """Checks the local header of a file; returns the offset of its content from the header."""
        member = self._members[name]
        stored = member.orig_filename.encode('utf-8' if member.flag_bits & _UTF8 else 'cp437')
        stored_name = header[LOCAL_SIZES.size : LOCAL_SIZES.size + len(stored)]
        if header[:4] != _HEADER or stored_name != stored:
            raise ValueError(
                f'expected its header at byte {member.header_offset} of the zip, got other bytes'
            )
        start = LOCAL_SIZES.size + int(sum(LOCAL_SIZES.unpack_from(header)))
        if member.header_offset + start + member.compress_size > self._stops[name]:
            raise ValueError(f'expected {member.compress_size} bytes before the next file, got fewer')
        return start

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except (OSError, ValueError, zlib.error, struct.error) as exc:
            raise SourceError(f'{self.root}/{name}', f'cannot be read: {exc}') from exc

    def _open(self) -> contextlib.AbstractContextManager[BinaryIO]:
        if '://' not in self.root:
            return open_file(self.root)
        store, path = find_store(self.root, self._storage_options)
        file = store.open(path, Hints())
        self._remote = without_tail(file)
        return cast(BinaryIO, _Directory(file))


class FolderWithZips:
    """A folder whose zips are read as folders: `a/x.zip` as `a/x`.

    If all files of `x.zip` are in a folder `x`, paths contain `x` only once.
    """

    def __init__(
        self,
        folder: FolderFiles,
        names: Iterable[str],
        zips: Iterable[str],
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        """Reads the directories of the zips.

        Args:
            folder: The folder.
            names: The paths of all files in the folder.
            zips: The paths of the zips among them.
            storage_options: As in `ZipFiles`.

        Raises:
            SourceError: Two files have the same path.
        """
        self.root = folder.root
        self.damaged: list[tuple[str, str]] = []
        """Zips that cannot be read, and the reasons."""
        self.others: list[str] = []
        """Names of symbolic links in zips, which are left out."""
        zips = sorted(zips)
        beside = set(names) - set(zips)
        self._files: dict[str, tuple[SourceFiles, str]] = {name: (folder, name) for name in beside}
        self.compressed: set[str] = set()

        def open_zip(name: str) -> ZipFiles | SourceError:
            try:
                return ZipFiles(f'{self.root}/{name}' if self.root else name, storage_options)
            except SourceError as exc:
                return exc

        opened = map_concurrently(open_zip, zips, '://' in self.root, MAX_ZIPS)
        for name, archive in zip(zips, opened, strict=True):
            if isinstance(archive, SourceError):
                self.damaged.append((archive.name, archive.detail))
            else:
                self._add(name[: -len('.zip')], archive)
        self.names = sorted(self._files)

    def _add(self, folder: str, archive: ZipFiles) -> None:
        own = f'{folder.rpartition("/")[2]}/'
        is_nested = all(name.startswith(own) for name in archive.names if not is_hidden(name))
        for inner in archive.names:
            name = f'{folder}/{inner.removeprefix(own) if is_nested else inner}'
            if name in self._files:
                other = self._files[name][0].root
                detail = f'expected one file of the name {name!r:.200}, got another one in {other}'
                raise SourceError(archive.root, detail)
            self._files[name] = archive, inner
            if inner in archive.compressed:
                self.compressed.add(name)
        self.others += [f'{folder}.zip/{name}' for name in archive.others]

    def sizes(self) -> Mapping[str, int]:
        sizes = dict[SourceFiles, Mapping[str, int]]()
        for files, _ in self._files.values():
            if files not in sizes:
                sizes[files] = files.sizes()
        return {name: sizes[files][inner] for name, (files, inner) in self._files.items()}

    def size(self, name: str) -> int:
        files, inner = self._files[name]
        return files.size(inner)

    def head(self, name: str, size: int | None = None) -> bytes:
        files, inner = self._files[name]
        return files.head(inner, size)

    def read(self, name: str, type_format: str) -> Any:
        files, inner = self._files[name]
        return files.read(inner, type_format)

    def link(self, name: str, type_format: str, opener: LinkOpener) -> Any:
        files, inner = self._files[name]
        return files.link(inner, type_format, opener)


class _Directory(PositionedFile):
    """A zip on an object store. Its end is read once; a longer directory needs another request."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = max(0, file.size - 2 * _END_BYTES)
        self._data = bytes(file.read(self._start, file.size)) if file.size else b''

    def size(self) -> int:
        return self._file.size

    def read_at(self, start: int, count: int | None) -> bytes:
        stop = self.size() if count is None else min(start + count, self.size())
        if start < self._start:
            return bytes(self._file.read(start, max(start, stop)))
        return self._data[start - self._start : max(start, stop) - self._start]


def _check_count(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    file.seek(max(0, file.seek(0, 2) - _END_BYTES))
    end = file.read()
    start = end.rfind(_END) + 10
    count, members = int.from_bytes(end[start : start + 2], 'little'), len(archive.infolist())
    if count not in (members, 0xFFFF):  # 65535 means that the number is stored elsewhere.
        raise ValueError(f'expected {count} files in the zip, got {members}')


def _check_supported(member: zipfile.ZipInfo) -> None:
    if member.flag_bits & _ENCRYPTED:
        raise ValueError('is encrypted')
    if member.compress_type == zipfile.ZIP_STORED:
        if member.compress_size != member.file_size:
            raise ValueError(f'expected {member.file_size} stored bytes, got {member.compress_size}')
    elif member.compress_type != zipfile.ZIP_DEFLATED:
        raise ValueError(f'expected no compression or deflate, got method {member.compress_type} of zip')
    else:
        check_expanded(member.file_size, 'a compressed file')


def _header_bytes(member: zipfile.ZipInfo) -> int:
    """Estimates the size of the local header of a file, whose extra field has an unknown length."""
    return LOCAL_SIZES.size + len(member.orig_filename.encode('utf-8', 'replace')) + _EXTRA_BYTES


def _is_symbolic_link(member: zipfile.ZipInfo) -> bool:
    return member.create_system == 3 and stat.S_ISLNK(member.external_attr >> 16)
