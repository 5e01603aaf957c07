"""Objects of a storage as files: ranges of a batch are merged where that is cheap, and read at once."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from bags.storage.base import Buffer, Hints, Offsets, Stat
from bags.storage.connect import Clients
from bags.storage.errors import changed
from bags.storage.heap import retain
from bags.storage.object_client import PART, Client, Upload, part_size
from bags.storage.ranges import merge
from bags.storage.urls import join

__all__ = ['NoLock', 'RemoteFile', 'RemoteOutput', 'RemoteStore']

TAIL = 1 << 16  # Bytes read when a file is opened: the limits of small bags come with its size.
RUN = 1 << 22  # Longer ranges are read in pieces, several at a time.
PIECE = 1 << 22


class RemoteFile:
    """An object as it was when it was opened: reads of another one raise CorruptError.

    Args:
        clients: The way to the storage.
        path: Its URL.
        head: Which object it is.
        tail: Its last bytes, which are not asked for again.
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
        self.at_hand = head.size - len(tail)
        self._versions = clients.client().versions

    def read(self, start: int, stop: int) -> Buffer:
        first = self.at_hand
        if start >= first:
            self._check(stop)
            return self.tail[start - first : stop - first]
        return self.read_many(np.array([start]), np.array([stop]))[0]

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if not len(starts):
            return []
        self._check(int(stops.max()))
        first = self.at_hand
        absent = np.flatnonzero((starts < first) & (stops > starts))
        parts: list[bytes] = [b''] * len(starts)
        for index in np.flatnonzero((starts >= first) & (stops > starts)).tolist():
            parts[index] = self.tail[int(starts[index]) - first : int(stops[index]) - first]
        if len(absent):
            ends = stops[absent]
            found = self._fetch(starts[absent], np.minimum(ends, first))
            for index, part, over in zip(absent.tolist(), found, (ends - first).tolist(), strict=True):
                parts[index] = part if over <= 0 else part + self.tail[:over]
        return parts

    def _fetch(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        client = self.clients.client()
        if client.versions != self._versions:
            self._adopt(client)
        runs = merge(starts, stops, client.gap, RUN)
        retain(int((stops - starts).sum()))
        pieces = self._pieces(runs.starts.tolist(), runs.stops.tolist())
        offsets = runs.starts[runs.owner]
        places = zip(
            runs.owner.tolist(), (starts - offsets).tolist(), (stops - offsets).tolist(), strict=True
        )
        # A slice of all of a `bytes` is the same object.
        return [pieces[run][start:stop] for run, start, stop in places]

    def _pieces(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Asks for ranges that are apart from each other, long ones in pieces."""
        client = self.clients.client()
        if all(stop - start <= 2 * RUN for start, stop in zip(starts, stops, strict=True)):
            return client.fetch(self.path, starts, stops, self.head)
        cuts = [
            (number, first, min(first + RUN, stop))
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
            for first in range(start, stop, RUN)
        ]
        found = client.fetch(self.path, [cut[1] for cut in cuts], [cut[2] for cut in cuts], self.head)
        whole: list[list[bytes]] = [[] for _ in starts]
        for (number, _, _), piece in zip(cuts, found, strict=True):
            whole[number].append(piece)
        return [b''.join(parts) for parts in whole]

    def _adopt(self, client: Client) -> None:
        """Goes on, in a forked child, with a client that has versions of another kind."""
        head = client.head(self.path)
        if head.size != self.size:
            raise changed(self.path, f'{self.size} bytes', f'{head.size}')
        self.head, self._versions = head, client.versions

    def _check(self, stop: int) -> None:
        if stop > self.size:
            raise EOFError(f'{self.path}: expected {stop} bytes, there are {self.size}')

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        pass  # Nothing keeps what would be read ahead; `RecordFile` does, and asks for it itself.


class RemoteStore:
    """A storage of objects: files appear as a whole, folders are what names begin with, and nothing locks."""

    is_remote = True

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self._folders: set[str] = set()
        """Those that were asked for: they are there without anything in them."""

    def open(self, path: str, hints: Hints) -> RemoteFile:
        head, tail = self.clients.client().tail(path, TAIL)
        return RemoteFile(self.clients, path, head, tail)

    def create(self, path: str) -> RemoteOutput:
        return RemoteOutput(self.clients, path, True)

    def resume(self, path: str, size: int) -> RemoteOutput:
        """Goes on with a file by writing it anew, beginning with what it has."""
        output = RemoteOutput(self.clients, path, False)
        file = self.open(path, Hints()) if size else None
        for start in range(0, size, RUN):
            assert file is not None
            output.write([bytes(file.read(start, min(start + RUN, size)))])
        return output

    def clone(self, path: str, target: str, size: int) -> None:
        file = self.open(path, Hints())
        output = self.create(target)
        for start in range(0, size, RUN):
            output.write([bytes(file.read(start, min(start + RUN, size)))])
        output.close()

    def read(self, path: str) -> bytes:
        client = self.clients.client()
        head, data = client.tail(path, RUN)
        if len(data) < head.size:
            data = RemoteFile(self.clients, path, head, data).read_many(np.array([0]), np.array([head.size]))[
                0
            ]
        return data

    def replace(self, path: str, data: bytes) -> None:
        self.clients.client().put(path, data, False)

    def rename(self, path: str, target: str) -> None:
        client = self.clients.client()
        client.copy(path, target)
        client.remove(path)

    def remove(self, path: str) -> None:
        self.clients.client().remove(path)

    def exists(self, path: str) -> bool:
        try:
            self.clients.client().head(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return self.stat(path).size

    def stat(self, path: str) -> Stat:
        return self.clients.client().head(path)

    def walk(self, folder: str) -> dict[str, Stat]:
        found = self._listing(folder, True)
        return {name: stat for name, stat in found.items() if stat is not None}

    def names(self, folder: str) -> list[str]:
        return list(self._listing(folder, False))

    def _listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        found = self.clients.client().listing(folder, deep)
        if not found and folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, 'no such folder: no name of an object begins so', folder)
        return found

    def make_folder(self, folder: str) -> None:
        self._folders.add(folder)

    def remove_folder(self, folder: str) -> None:
        pass  # It went with the last object in it.

    def join(self, folder: str, name: str) -> str:
        return join(folder, name)

    def lock(self, folder: str) -> NoLock:
        return NoLock()


class NoLock:
    """No claim at all: a storage of objects has none that would end with its holder."""

    def release(self) -> None:
        pass


class RemoteOutput:
    """An object that is being written: sent in parts as it grows, there when it is closed.

    What was sent cannot be taken back: a `size` that is set lower goes down to what was sent, no further.
    """

    def __init__(self, clients: Clients, path: str, create: bool) -> None:
        self.path = path
        self.closed = False
        self._clients = clients
        self._create = create
        self._waiting: list[bytes] = []
        self._sent = 0
        self._size = 0
        self._parts = 0
        self._upload: Upload | None = None

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        if size < self._size:
            kept = b''.join(self._waiting)[: max(0, size - self._sent)]
            self._waiting = [kept] if kept else []
            self._size = self._sent + len(kept)

    def write(self, buffers: Sequence[Buffer]) -> None:
        before = self._size
        try:
            for buffer in buffers:
                self._add(buffer)
        except BaseException:
            self.size = before
            raise

    def _add(self, buffer: Buffer) -> None:
        """Takes a buffer in pieces of a part each: a large one is not copied as a whole."""
        size = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        start, room = 0, part_size(self._parts) - (self._size - self._sent)
        if size > room:
            view = memoryview(buffer).cast('B')
            while size - start > room:
                self._send(view[start : start + room])
                start += room
                room = part_size(self._parts)
            buffer = view[start:]
        if size > start:
            self._waiting.append(buffer if type(buffer) is bytes else bytes(buffer))
            self._size += size - start

    def _send(self, last: memoryview) -> None:
        """Sends a part: what waits, and this behind it."""
        part = b''.join([*self._waiting, last])
        if self._upload is None:
            self._upload = self._clients.client().upload(self.path, self._create)
        self._upload.send(part)
        self._parts += 1
        self._sent += len(part)
        self._size = self._sent
        self._waiting = []

    def copy(self, source: BinaryIO, size: int) -> None:
        before, left = self._size, size
        try:
            while left:
                piece = source.read(min(PIECE, left))
                if not piece:
                    name = getattr(source, 'name', source)
                    raise EOFError(f'{name}: expected {left} more bytes, got none')
                self.write([piece])
                left -= len(piece)
        except BaseException:
            self.size = before
            raise

    def read(self, start: int, stop: int) -> bytes:
        raise NotImplementedError('what was sent to a storage of objects is not read back')

    def cut(self) -> None:
        pass  # Behind `size` there is nothing.

    def close(self) -> None:
        if self.closed:
            return
        data = b''.join(self._waiting)
        if self._upload is None and len(data) <= PART:
            self._clients.client().put(self.path, data, self._create)
        else:
            if self._upload is None:
                self._upload = self._clients.client().upload(self.path, self._create)
            self._upload.complete(data)
        self.closed = True
        self._waiting = []

    def discard(self) -> None:
        self.closed = True
        self._waiting = []
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
