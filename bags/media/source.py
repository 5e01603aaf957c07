"""Sources of lazy values (a record, a path or bytes), and decoders that open them on first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, NoReturn, Protocol, TypeVar, runtime_checkable

from bags.errors import BagsError
from bags.storage.range_file import BorrowedFile, BufferFile


@runtime_checkable
class MediaSource(Protocol):
    """An object that can be opened any number of times as a seekable binary file."""

    @property
    def name(self) -> str:
        """The name in error messages."""
        ...

    def open(self) -> BinaryIO: ...

    def error(self, exc: Exception) -> Exception:
        """Returns the exception to raise for an error in the content."""
        ...


@dataclass(frozen=True)
class MediaFile:
    """A file outside a dataset: a path, bytes, or an open file.

    Args:
        content: A path, bytes, or a seekable binary file, which stays open.
    """

    content: Any

    @property
    def name(self) -> str:
        if isinstance(self.content, str | os.PathLike):
            return os.fspath(self.content)
        if isinstance(self.content, bytes | bytearray | memoryview):
            return f'{len(self.content)} bytes'
        name = getattr(self.content, 'name', None)
        return name if isinstance(name, str) else type(self.content).__name__

    def open(self) -> BinaryIO:
        if isinstance(self.content, str | os.PathLike):
            return open(self.content, 'rb')
        is_bytes = isinstance(self.content, bytes | bytearray | memoryview)
        return BufferFile(self.content) if is_bytes else BorrowedFile(self.content)  # type: ignore[return-value]

    def error(self, exc: Exception) -> Exception:
        return ValueError(f'{self.name}: {exc}')


def _as_source(value: Any) -> MediaSource:
    if isinstance(value, str | os.PathLike):
        return MediaFile(os.path.abspath(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return MediaFile(value)
    if isinstance(value, MediaSource):
        return value
    raise TypeError(f'expected a path, bytes or a record, got {type(value).__name__}')


class Closable(Protocol):
    """An object with a method `close`."""

    def close(self) -> None: ...


T = TypeVar('T', bound=Closable)


class LazyDecoder(Generic[T]):
    """Opens a decoder on first use, and lets one thread at a time use it.

    Pickling keeps only the source; after a fork, the child opens it again.

    Args:
        source: A path, bytes or a record. Raises TypeError for another type.
        open: Function from a source and `track` to a decoder.
        track: The index of a track, or None. Raises ValueError for another value.
    """

    def __init__(self, source: Any, open: Callable[[MediaSource, int | None], T], track: int | None) -> None:
        if track is not None and (type(track) is not int or track < 0):
            raise ValueError(f'expected track to be an index from 0 on, got {track!r}')
        self.source, self.track = _as_source(source), track
        self._open = open
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._decoder: T | None = None

    def __reduce__(self) -> Any:
        return LazyDecoder, (self.source, self._open, self.track)

    def __del__(self) -> None:
        decoder = getattr(self, '_decoder', None)
        if decoder is not None:
            decoder.close()

    @contextmanager
    def use(self) -> Iterator[T]:
        """Opens the decoder if needed and holds its lock, so that one thread at a time uses it.

        Raises:
            DecodeError: The content cannot be decoded (`ValueError` if the source is not from a dataset).
        """
        if self._process != os.getpid():
            self._reset()  # A fork shares the file position with the parent, and loses decoder threads.
        with self._lock:
            try:
                if self._decoder is None:
                    self._decoder = self._open(self.source, self.track)
                yield self._decoder
            except Exception as exc:
                self.fail(exc)

    def get(self) -> T:
        """Returns the open decoder, for attributes that do not change."""
        with self.use() as decoder:
            return decoder

    def peek(self) -> T | None:
        """Returns the decoder for a repr; None if it is not open yet and its source is remote."""
        is_open = self._decoder is not None and self._process == os.getpid()
        return self.get() if is_open or not getattr(self.source, 'is_remote', False) else None

    def fail(self, exc: Exception) -> NoReturn:
        """Raises an error; adds the name of the source if the content caused the error."""
        is_av = type(exc).__module__.partition('.')[0] == 'av'
        if isinstance(exc, BagsError) or not (type(exc) in (ValueError, MemoryError) or is_av):
            raise exc
        raise self.source.error(exc) from exc
