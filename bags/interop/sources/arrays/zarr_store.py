"""A store of this library as a store of zarr, to read arrays in buckets and on web servers."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype

from bags.interop.stores import find_store, list_files, open_in, read_in, size_in


class ReadOnlyStore(Store):
    """The files below a URL. zarr calls it in one thread, so requests wait in other threads.

    Args:
        url: The folder.
        storage_options: As in `bags.open`.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        super().__init__(read_only=True)
        self._store, self._url = find_store(url, storage_options)
        self._storage_options = storage_options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReadOnlyStore) and self._url == other._url

    __hash__ = None  # type: ignore[assignment]  # As of other stores of zarr.

    def __str__(self) -> str:
        return self._url

    def _path(self, key: str) -> str:
        return posixpath.join(self._url, key.strip('/')).rstrip('/')

    def _read(self, key: str, byte_range: ByteRequest | None) -> bytes:
        if byte_range is None:
            return read_in(self._store, self._path(key), self._storage_options)
        file = open_in(self._store, self._path(key), self._storage_options)
        if isinstance(byte_range, RangeByteRequest):
            start, stop = byte_range.start, min(byte_range.end, file.size)
        elif isinstance(byte_range, OffsetByteRequest):
            start, stop = byte_range.offset, file.size
        else:
            start, stop = max(0, file.size - byte_range.suffix), file.size
        return bytes(file.read(start, max(start, stop)))

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        try:
            return prototype.buffer.from_bytes(await asyncio.to_thread(self._read, key, byte_range))
        except FileNotFoundError:
            return None

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        size = await asyncio.to_thread(size_in, self._store, self._path(key), self._storage_options)
        return size is not None

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError('this store is read-only')

    async def delete(self, key: str) -> None:
        raise NotImplementedError('this store is read-only')

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix('')

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in await asyncio.to_thread(self._files, ''):
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        list_names: Callable[[str], Iterable[str]] = self._names if self._store.can_list else self._files
        names = await asyncio.to_thread(list_names, prefix)
        for name in dict.fromkeys(name.partition('/')[0] for name in names):
            yield name

    def _files(self, folder: str) -> Iterable[str]:
        return list_files(self._path(folder), self._storage_options)[0]

    def _names(self, folder: str) -> Iterable[str]:
        try:
            return self._store.names(self._path(folder))
        except FileNotFoundError:
            return []
