"""An object store as a `Store`. Nearby ranges of a batch are merged, and requested concurrently."""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO, TypeVar

import numpy as np

from bags.storage.base import MAX_SMALL_FILE_BYTES, Buffer, Durability, Hints, Offsets, Output, Stat
from bags.storage.connect import Clients
from bags.storage.errors import UnsupportedError, condition_error, replaced_error, too_large_error
from bags.storage.object_client import ObjectClient
from bags.storage.range_file import read_pieces
from bags.storage.ranges import merge
from bags.storage.request_counter import RequestCounter
from bags.storage.retry import with_retries
from bags.storage.upload import PART_SIZE, StreamedUpload, part_size
from bags.storage.urls import WEB_SCHEMES, join_url

Listing = TypeVar('Listing', list[str], dict[str, Stat])

TAIL_SIZE = 1 << 16  # Bytes read on open: includes small bags, or their limits, in the request of the size.
REQUEST_SIZE = 1 << 22  # Ranges more than twice as long are requested in pieces of this size.


class RemoteFile:
    """An object as of the time when it was opened. Reads raise CorruptError if it was replaced since.

    Args:
        clients: The clients of the store.
        path: URL of the object.
        head: Size and version of the object.
        tail: The last bytes of the object, which are not requested again.
    """

    buffer: mmap.mmap | bytes | None = None
    is_remote = True

    def __init__(self, clients: Clients, path: str, head: Stat, tail: bytes) -> None:
        self.clients = clients
        self.path = path
        self.head = head
        self.size = head.size
        self.version = head.version
        self.tail = tail
        self.cached_from = head.size - len(tail)
        self._version_type = clients.reader().version_type

    def read(self, start: int, stop: int) -> Buffer:
        first = self.cached_from
        if first <= start and stop <= self.size:
            return self.tail[start - first : stop - first]
        return self.read_many(np.array([start]), np.array([stop]))[0]

    fetch = read

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if not len(starts):
            return []
        if len(starts) == 1:  # One request takes 70 us of CPU time; with a plan it takes 150 us.
            start, stop = int(starts[0]), int(stops[0])
            if start < stop <= min(self.cached_from, start + REQUEST_SIZE):
                if self.head.version:
                    return self._client().fetch(self.path, [start], [stop], self.head)
                return self._request([start], [stop])
        last = int(stops.max())
        if last > self.size:
            raise EOFError(f'{self.path}: expected {last} bytes, got {self.size}')
        first = self.cached_from
        records = [b''] * len(starts)
        is_filled = stops > starts
        remote = np.flatnonzero(is_filled & (starts < first))
        if len(remote):
            ranges = self._fetch(starts[remote], np.minimum(stops[remote], first))
            for index, data in zip(remote.tolist(), ranges, strict=True):
                records[index] = data
        for index in np.flatnonzero(is_filled & (stops > first)).tolist():
            records[index] += self.tail[max(0, int(starts[index]) - first) : int(stops[index]) - first]
        return records

    def _fetch(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        """Requests merged ranges concurrently, and long ranges in pieces."""
        client = self._client()
        runs = merge(starts, stops, client.merge_gap, REQUEST_SIZE)
        firsts: list[int] = []
        lasts: list[int] = []
        counts = []
        for start, stop in zip(runs.starts.tolist(), runs.stops.tolist(), strict=True):
            size = REQUEST_SIZE if stop - start > 2 * REQUEST_SIZE else stop - start
            cuts = [*range(start, stop, size), stop]
            firsts += cuts[:-1]
            lasts += cuts[1:]
            counts.append(len(cuts) - 1)
        if self.head.version:
            pieces = iter(client.fetch(self.path, firsts, lasts, self.head))
        else:
            pieces = iter(self._request(firsts, lasts))
        # Joining a single `bytes` object, or slicing all of it, does not copy.
        data = [b''.join(itertools.islice(pieces, count)) for count in counts]
        return runs.cut(data, starts, stops)

    def _request(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Requests ranges of a file opened without a request, in the version of the first response."""
        found: set[Stat] = set()
        data = self._client().fetch(self.path, starts, stops, self.head, found)
        for stat in found:
            if not self.head.version:
                self.head = stat
            elif stat != self.head:
                raise replaced_error(self.path, self.head, stat)
        return data

    def _client(self) -> ObjectClient:
        client = self.clients.reader()
        if client.version_type != self._version_type:
            # A forked child uses another client, with another type of versions.
            head = client.head(self.path)
            if head.size != self.size:
                raise replaced_error(self.path, Stat(self.size), Stat(head.size))
            self.head, self._version_type = head, client.version_type
        return client

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        pass  # This class has no cache to read ahead into; `RangeFile` has one.


class RemoteStore:
    """An object store: files become visible as a whole, folders are prefixes of names, locks do nothing."""

    is_remote = True
    durability = Durability.NONE
    join: Callable[..., str]

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self._folders: set[str] = set()
        """Folders created by this store, which exist even while they are empty."""
        self.join = join_url if clients.scheme in WEB_SCHEMES else posixpath.join
        self._expected: dict[str, Mapping[str, Stat]] = {}
        """The versions in which files are read, by folder and name; see `expect_versions`."""
        self._expected_type = ''
        """The type of these versions."""

    @property
    def request_counter(self) -> RequestCounter:
        return self.clients.policy.counter

    @property
    def is_web(self) -> bool:
        return self.clients.reader().is_web

    @property
    def can_list(self) -> bool:
        return self.clients.reader().can_list

    @property
    def version_type(self) -> str:
        return self.clients.reader().version_type

    def pinned(self, path: str) -> str:
        return self.clients.reader().pinned(path)

    def expect_versions(self, folder: str, versions: Mapping[str, Stat], version_type: str) -> None:
        self._expected_type = version_type
        self._expected[folder.rstrip('/')] = versions

    def _compare(self, path: str, head: Stat) -> None:
        """Compares the size and version of a requested file with the expected ones.

        Raises:
            CorruptError: The file was replaced since it was listed, or first requested from a web server.
        """
        folder, _, name = path.rpartition('/')
        expected = self._expected.get(folder, {}).get(name)
        if expected == head:
            return
        if expected is None:
            if not self.can_list:  # A web server, whose files are only read.
                versions = {**self._expected.get(folder, {}), name: head}
                self.expect_versions(folder, versions, self.version_type)
            return
        # A forked child may use another client, with another type of versions.
        is_comparable = expected.version and head.version and self._expected_type == self.version_type
        if expected.size != head.size or (is_comparable and expected.version != head.version):
            raise replaced_error(path, expected, head)

    def open(self, path: str, hints: Hints) -> RemoteFile:
        head, tail = self.clients.reader().tail(path, TAIL_SIZE)
        folder, _, name = path.rpartition('/')
        if self._expected.get(folder, {}).get(name) != head:
            self._compare(path, head)
        return RemoteFile(self.clients, path, head, tail)

    def open_known(self, path: str, size: int) -> RemoteFile:
        """Opens an object of known size without a request.

        Reads raise CorruptError if its size or its version differs from the first response.
        """
        return RemoteFile(self.clients, path, Stat(size), b'')

    def create(self, path: str) -> RemoteOutput:
        self._check_writable(path)
        return RemoteOutput(self.clients, path, None)

    def resume(self, path: str, size: int) -> RemoteOutput:
        """Continues a file by rewriting it, starting with a copy of its first `size` bytes."""
        self._check_writable(path)
        output = RemoteOutput(self.clients, path, self.current_version(path))
        if size:
            self._copy_to(output, path, size)
        return output

    def clone(self, path: str, target: str, size: int) -> None:
        output = self.create(target)
        self._copy_to(output, path, size)
        output.close()

    def _copy_to(self, output: Output, path: str, size: int) -> None:
        file = self.open(path, Hints())
        for start in range(0, size, REQUEST_SIZE):
            output.write([file.read(start, min(start + REQUEST_SIZE, size))])

    def read(self, path: str, max_size: int = MAX_SMALL_FILE_BYTES) -> bytes:
        head, data = self.clients.reader().tail(path, REQUEST_SIZE)
        if head.size > max_size:
            raise too_large_error(path, head.size, max_size)
        folder, _, name = path.rpartition('/')
        if self._expected.get(folder, {}).get(name) != head:
            self._compare(path, head)
        return bytes(RemoteFile(self.clients, path, head, data).read(0, head.size))

    def current_version(self, path: str) -> str | None:
        # Not from the reader, whose versions may be of another type.
        return self.clients.writer().current_version(path)

    def replace(self, path: str, data: bytes, version: str | None = '') -> None:
        self._check_writable(path)
        client = self.clients.writer()
        client.put(path, data, version)
        if version is None and not client.is_conditional and self.read(path) != data:
            raise condition_error(path, None)  # Another process has created it at the same moment.

    def rename(self, path: str, target: str) -> None:
        self._check_writable(path)
        client = self.clients.writer()
        with_retries(client.policy, client.map_error, client.copy_object, path, target)
        self.remove(path)

    def remove(self, path: str) -> None:
        self._check_writable(path)
        client = self.clients.writer()
        # Already deleted: by another process, or by an earlier attempt whose response was lost.
        with contextlib.suppress(FileNotFoundError):
            with_retries(client.policy, client.map_error, client.delete_object, path)

    def exists(self, path: str) -> bool:
        try:
            self.clients.reader().head(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> Stat:
        head = self.clients.reader().head(path)
        self._compare(path, head)
        return head

    def walk(self, folder: str) -> dict[str, Stat]:
        return self._list(self.clients.reader().list_files, folder)

    def names(self, folder: str) -> list[str]:
        return self._list(self.clients.reader().list_names, folder)

    def _list(self, list_once: Callable[[str], Listing], folder: str) -> Listing:
        if not self.can_list:
            raise UnsupportedError(folder, 'a web server does not list its files')
        client = self.clients.reader()
        listing = with_retries(client.policy, client.map_error, list_once, folder)
        if not listing and folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, 'no such folder: no object has a name below it', folder)
        return listing

    def hold(self, folder: str) -> RemoteStore:
        return self

    def expect_held(self, moved_to: str | None = None) -> None:
        pass

    def release(self) -> None:
        pass

    def make_folder(self, folder: str) -> None:
        self._check_writable(folder)
        self._folders.add(folder)

    def _check_writable(self, path: str) -> None:
        if not self.can_list:
            raise UnsupportedError(path, 'a web server is read-only')

    def remove_folder(self, folder: str) -> None:
        pass  # The folder disappeared with the last object in it.

    def exchange(self, path: str, other: str) -> bool:
        return False

    def sync(self, path: str) -> None:
        pass  # Objects are stored when they are closed.

    sync_folder = sync

    def is_locked(self, path: str) -> bool:
        return False

    def lock(self, folder: str) -> NoLock:
        return NoLock()


class NoLock:
    """A lock that does nothing: locks of object stores would not end with the process that holds them."""

    def release(self) -> None:
        pass


class RemoteOutput:
    """An object that is being written: sent in parts as it grows, and visible when it is closed.

    Sent parts cannot be taken back: setting a lower `size` discards only bytes that were not sent yet.

    Args:
        clients: The clients of the store.
        path: URL of the object.
        version: The version that is replaced; None if the object must not exist.
    """

    def __init__(self, clients: Clients, path: str, version: str | None) -> None:
        self.path = path
        self.closed = False
        self._clients = clients
        self._version = version
        self._pending: list[bytes] = []
        self._sent = 0
        self._size = 0
        self._part_count = 0
        self._upload: StreamedUpload | None = None

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        if size < self._size:
            data = b''.join(self._pending)[: max(0, size - self._sent)]
            self._pending = [data] if data else []
            self._size = self._sent + len(data)

    def write(self, buffers: Iterable[Buffer]) -> None:
        before = self._size
        try:
            for buffer in buffers:
                self._add(buffer)
        except BaseException:
            self.size = before
            raise

    def _add(self, buffer: Buffer) -> None:
        """Adds a buffer, one part at a time, so that a large buffer is not copied as a whole."""
        start, size = 0, len(buffer)
        remaining = part_size(self._part_count) - (self._size - self._sent)
        if size > remaining:
            view = memoryview(buffer)
            while size - start > remaining:
                self._send(view[start : start + remaining])
                start += remaining
                remaining = part_size(self._part_count)
            buffer = view[start:]
        if size > start:
            self._pending.append(buffer if type(buffer) is bytes else bytes(buffer))
            self._size += size - start

    def _send(self, last: memoryview) -> None:
        """Sends a part: the pending bytes, followed by `last`."""
        part = b''.join([*self._pending, last])
        client = self._clients.writer()
        if self._sent + len(part) > client.max_object_size:
            raise OSError(
                errno.EFBIG, f'expected at most {client.max_object_size} bytes (write shards)', self.path
            )
        if self._upload is None:
            self._upload = client.upload(self.path, self._version)
        self._upload.send(part)
        self._part_count += 1
        self._sent += len(part)
        self._size = self._sent
        self._pending = []

    def copy(self, source: BinaryIO, size: int) -> None:
        self.write(read_pieces(source, size))

    def read(self, start: int, stop: int) -> bytes:
        raise NotImplementedError('an object that is being written cannot be read')

    def stored(self) -> int:
        return self.size

    def sync(self) -> None:
        pass  # An object is stored when it is closed.

    def close(self) -> None:
        if self.closed:
            return
        data = b''.join(self._pending)
        client = self._clients.writer()
        if self._upload is None and len(data) <= PART_SIZE:
            client.put(self.path, data, self._version)
        else:
            if self._upload is None:
                self._upload = client.upload(self.path, self._version)
            self._upload.complete(data)
        self.closed = True
        self._pending = []

    def is_in_place(self) -> bool:
        return self.closed or self._version in ('', self._clients.writer().current_version(self.path))

    def discard(self) -> None:
        self.closed = True
        self._pending = []
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
