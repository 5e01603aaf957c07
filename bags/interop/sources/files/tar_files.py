"""The files of a tar, compressed or not: their contents or locations. The tar is verified up to its end."""

from __future__ import annotations

import contextlib
import pickle
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES, identify
from bags.interop.files import checked_link, checked_value, open_unchanged
from bags.interop.records import open_file, read_range
from bags.interop.source import as_source_errors, check_expanded
from bags.interop.sources.files.compressed import DecompressedFile, codec_of
from bags.interop.stores import find_store, without_tail
from bags.links.sources import LinkOpener
from bags.storage import File, Hints
from bags.storage.range_file import PositionedFile

MAX_HELD_BYTES = 256
"""Files of a remote tar up to this size are read with their headers, without another request."""
_HEADER_BYTES = 1 << 13
"""Bytes of a remote tar that are read at a time: a header, the beginning of its file, and small files with
their headers."""
_END_BYTES = 1 << 16
"""Bytes after the last file that are compared with zeros at a time."""


class StoredFile(NamedTuple):
    """The location of a file in a tar that is not compressed."""

    start: int
    size: int
    """Bytes of the file."""
    parts: tuple[tuple[int, int], ...] | None = None
    """Position and size of each stored part of a sparse file; the bytes between them are zeros."""
    format: str = ''
    """The format of the content, from `identify`, in a tar on an object store; otherwise empty."""


Content = bytes | StoredFile | SourceError
"""The content of a file, its location, or an error if it has no content."""


def content_size(content: Content, *, only_expanded: bool = False) -> int:
    """Returns the bytes of a file. If `only_expanded`, a `StoredFile` that is not sparse counts as 0."""
    if isinstance(content, StoredFile):
        return 0 if only_expanded and content.parts is None else content.size
    return 0 if isinstance(content, SourceError) else len(content)


class Tar:
    """A tar, local or at a URL. The first bytes determine its compression, not its name."""

    def __init__(
        self,
        path: str,
        storage_options: Mapping[str, Any],
        is_label: Callable[[str, int], bool],
        is_left_out: Callable[[str], bool],
    ) -> None:
        """Opens nothing.

        Args:
            path: The tar.
            storage_options: As in `bags.open`.
            is_label: Whether the content of a file with this name and size is read with its header.
            is_left_out: Whether a file with this name is left out.
        """
        self.path = path
        self._storage_options = storage_options
        self._is_label, self._is_left_out = is_label, is_left_out
        self.is_compressed = False
        """Set when the first member is read."""
        self.left_out: Counter[str] = Counter()
        """Number of members that are left out, by a description of them."""
        self.is_remote = '://' in path
        self._remote: File | None = None
        self.size: int | None = None
        """Size of the tar in bytes when its headers were read."""
        self._targets: dict[str, Content] | None = None
        self._listing = b''
        self._damage: Exception | None = None

    def read_headers(self) -> None:
        """Reads the headers of a tar on an object store, so that `files` yields its files from memory."""
        if self.is_remote and not self._listing:
            files = []
            try:
                for file in self._files():
                    if self.is_compressed:
                        return  # Listing it would read all of its content.
                    files.append(file)
            except (ValueError, OSError) as exc:
                self._damage = exc
            self._listing = zlib.compress(pickle.dumps(files), 1)

    def files(self) -> Iterator[tuple[str, Content]]:
        """Yields the name and content of each file. A hard link has the content of its target.

        Raises:
            ValueError: The tar is damaged. The content of a compressed tar is verified only at the end,
                by its checksum.
        """
        self.read_headers()
        if not self._listing:
            yield from self._files()
            return
        yield from pickle.loads(zlib.decompress(self._listing))  # noqa: S301 - made above
        if self._damage is not None:
            raise self._damage

    def _files(self) -> Iterator[tuple[str, Content]]:
        left_out: Counter[str] = Counter()
        for member, read in self._members():
            if member.islnk():
                if self._targets is None:
                    self._targets = self._find_targets()
                content = self._targets.get(member.linkname)
                if content is None:
                    detail = f'is a link to {member.linkname!r:.200}, which is not in the tar'
                    content = SourceError(f'{self.path}: {member.name}', detail)
                yield member.name, content
            elif member.isdir():
                continue
            elif not member.isfile():
                left_out['symbolic links' if member.issym() else 'devices and pipes'] += 1
            elif self._is_left_out(member.name):
                left_out['hidden files, files of operating systems and metadata of WebDataset'] += 1
            else:
                yield member.name, read()
        self.left_out = left_out

    def head(self, content: Content, size: int) -> bytes:
        """Returns the first bytes of a file; empty if it has no content."""
        if isinstance(content, StoredFile) and content.parts is None:
            return self._read(content.start, min(size, content.size))
        return content[:size] if isinstance(content, bytes) else b''

    def read(self, content: Content) -> bytes:
        """Returns the content of a file; raises its error if it has no content."""
        if isinstance(content, SourceError):
            raise content
        if isinstance(content, bytes):
            return content
        if content.parts is None:
            return self._read(content.start, content.size)
        start, data = content.start, bytearray(content.size)
        for position, size in content.parts:
            data[position : position + size] = self._read(start, size)
            start += size
        return bytes(data)

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, Callable[[], Content]]]:
        """Yields each member, and a function that returns its content; it is valid until the next member."""
        with contextlib.ExitStack() as stack:
            if self.is_remote:
                store, path = find_store(self.path, self._storage_options)
                file = store.open(path, Hints())
                stored: BinaryIO = _Headers(file)  # type: ignore[assignment]
                self._remote = without_tail(file)
            else:
                stored = stack.enter_context(open_file(self.path))
            self.size = stored.seek(0, 2)
            stored.seek(0)
            head = stored.read(tarfile.BLOCKSIZE)
            stored.seek(0)
            codec = '' if _is_header(head) else codec_of(head)
            self.is_compressed = bool(codec)
            if codec and self.is_remote:
                stored = stack.enter_context(open_file(self.path, self._storage_options))  # Reads ahead.
            opened: Any = DecompressedFile(stored, codec) if codec else stored
            try:
                with tarfile.open(fileobj=opened, mode='r:') as members:
                    while (member := members.next()) is not None:
                        members.members = []  # type: ignore[attr-defined]  # Otherwise tarfile keeps all.
                        _check(member, members.offset)
                        yield member, lambda member=member: self._content(members, member)  # type: ignore[misc]
                    _check_end(opened, members.offset)
            except (tarfile.TarError, EOFError) as exc:
                raise ValueError(str(exc)) from exc

    def _content(self, members: tarfile.TarFile, member: tarfile.TarInfo) -> Content:
        if self.is_compressed or member.issparse():
            check_expanded(member.size, f'{member.name!r:.200}')
        is_held = self.is_remote and member.size <= MAX_HELD_BYTES
        is_read = (is_held or self._is_label(member.name, member.size)) and not member.issparse()
        if self.is_compressed or is_read:
            file = members.extractfile(member)
            assert file is not None
            try:
                return file.read()
            except tarfile.TarError as exc:
                raise ValueError(str(exc)) from exc
        format = ''
        if self.is_remote and members.fileobj is not None:  # Already read with the header.
            members.fileobj.seek(member.offset_data)
            format = identify(members.fileobj.read(min(SIGNATURE_BYTES, member.size)))
        return StoredFile(member.offset_data, member.size, _parts(member), format)

    def _find_targets(self) -> dict[str, Content]:
        """Returns the content of the files that hard links refer to, by name."""
        names = {member.linkname for member, _ in self._members() if member.islnk()}
        targets: dict[str, Content] = {}
        held = 0
        for member, read in self._members():
            if member.name in names and member.isfile():
                targets[member.name] = content = read()
                held += len(content) if isinstance(content, bytes) else 0
                check_expanded(held, 'the files that links refer to')
            elif member.name in names and member.islnk() and member.linkname in targets:
                targets[member.name] = targets[member.linkname]
        return targets

    def _read(self, start: int, size: int) -> bytes:
        return read_range(self.path, start, size, self._remote)


class TarFiles:
    """The files of a tar by their paths, as in a folder. The headers are read once."""

    others: Collection[str] = ()

    def __init__(self, tar: Tar, max_held: int | None = None) -> None:
        """Reads the headers, and the content of a compressed tar, except files of more than `max_held` bytes.

        Raises:
            SourceError: The tar is damaged, has two files of the same name, or holds too much to expand.
        """
        self.root = tar.path
        self._tar = tar
        self._contents: dict[str, Content] = {}
        size = 0
        with as_source_errors(tar.path, 'tar'):
            for name, content in tar.files():
                name = name.removeprefix('./')
                if name in self._contents:
                    raise ValueError(f'expected one file of each name, got two of {name!r:.200}')
                if max_held is not None and content_size(content, only_expanded=True) > max_held:
                    content = b''
                size += content_size(content, only_expanded=True)
                check_expanded(size, 'all files of a compressed tar, which is read as a folder: unpack it')
                self._contents[name] = content
        self.names = sorted(self._contents)
        self.compressed = frozenset(self._contents if tar.is_compressed else ())

    def sizes(self) -> Mapping[str, int]:
        return {name: content_size(content) for name, content in self._contents.items()}

    def size(self, name: str) -> int:
        return content_size(self._contents[name])

    def head(self, name: str, size: int | None = None) -> bytes:
        content = self._contents[name]
        return self._tar.read(content) if size is None else self._tar.head(content, size)

    def read(self, name: str, type_format: str) -> Any:
        return checked_value(f'{self.root}: {name}', type_format, self.head(name))

    def link(self, name: str, type_format: str, opener: LinkOpener) -> Any:
        return link_in_tar(f'{self.root}: {name}', type_format, self._tar, self._contents[name], opener)


def link_in_tar(name: str, type_format: str, tar: Tar, content: Content, opener: LinkOpener) -> Any:
    """Returns a link to a file of a tar, or its content if it is compressed, sparse, or already in memory."""
    if not isinstance(content, StoredFile) or content.parts is not None:
        return checked_value(name, type_format, tar.read(content))
    whole = open_unchanged(opener, tar.path, tar.size)
    with as_source_errors(tar.path, 'tar'):
        link = whole.part(content.start, content.start + content.size)
    return checked_link(name, type_format, link, content.format)


class _Headers(PositionedFile):
    """A tar on an object store. At most `_HEADER_BYTES` are read at a time."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start, self._data = 0, b''

    def size(self) -> int:
        return self._file.size

    def read_at(self, start: int, count: int | None) -> bytes:
        stop = self.size() if count is None else min(start + count, self.size())
        if not self._start <= start <= stop <= self._start + len(self._data):
            end = min(max(stop, start + _HEADER_BYTES), self.size())
            self._start, self._data = start, bytes(self._file.read(start, max(start, end)))
        return self._data[start - self._start : stop - self._start]


def _is_header(block: bytes) -> bool:
    """Returns whether a block is a tar header: a tar that begins with it is not compressed."""
    try:
        tarfile.TarInfo.frombuf(block, 'utf-8', 'surrogateescape')
    except tarfile.HeaderError:
        return False
    return True


def _parts(member: tarfile.TarInfo) -> tuple[tuple[int, int], ...] | None:
    """Returns the position and size of each part of a sparse file; None for other files."""
    sparse: Any = member.sparse
    return None if sparse is None else tuple(part for part in sparse if part[1])


def _check(member: tarfile.TarInfo, stop: int) -> None:
    """Raises ValueError if the sizes in a header are impossible, which tarfile accepts."""
    parts = _parts(member) or ()
    ends = [0, *(position + size for position, size in parts)]
    is_sorted = all(end <= position for end, (position, _) in zip(ends, parts, strict=False))
    if member.size < 0 or stop <= member.offset or not is_sorted or ends[-1] > member.size:
        raise ValueError(f'expected another size of {member.name!r:.200} at byte {member.offset}')


def _check_end(file: DecompressedFile | BinaryIO, offset: int) -> None:
    """Raises ValueError unless zeros follow from `offset` to the end of the file, at least a block.

    tarfile treats a damaged or incomplete header as the end, like a block of zeros.
    """
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block != bytes(tarfile.BLOCKSIZE):
        raise ValueError(f'expected a file or the end of the archive at byte {offset}, got neither')
    while block := file.read(_END_BYTES):
        offset = file.tell() - len(block)
        if rest := block.lstrip(b'\0'):
            start = offset + len(block) - len(rest)
            raise ValueError(f'expected zeros after the end of the archive, got other bytes at byte {start}')
    if isinstance(file, DecompressedFile):
        file.finish()
