"""FFmpeg's libraries, by way of av: importing them, and opening a file of any origin with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bags.errors import MissingDependencyError
from bags.formats.encoded import BufferFile
from bags.formats.scalars import Buffer

__all__ = ['import_av', 'open_stream']


def import_av() -> Any:
    """The package av.

    Raises:
        MissingDependencyError: It is not installed.
    """
    try:
        import av
        import av.video.reformatter
    except ImportError as exc:
        raise MissingDependencyError('av', 'video') from exc
    return av


@contextmanager
def open_stream(data: Buffer, format: str, kind: str) -> Iterator[tuple[Any, Any]]:
    """Opens a file, and closes it in the end.

    Args:
        data: The whole file.
        format: What libavformat names it. A probe could take the bytes for a playlist, and open the files and
            addresses in it.
        kind: The stream that is wanted, `video` or `audio`.

    Yields:
        The container, and its best stream of the kind.

    Raises:
        ValueError: There is none, or none of a codec that is known.
    """
    with import_av().open(BufferFile(data), format=format, metadata_errors='replace') as container:
        stream = container.streams.best(kind)
        # Decoding a stream without a context crashes av before 18.1.
        if stream is None or stream.codec_context is None:
            raise ValueError(f'expected {kind}, got none in the file that can be decoded')
        yield container, stream
