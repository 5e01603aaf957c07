"""Rewriting a video for quick access, without encoding it again."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any, BinaryIO

from bags.formats.encoded import BufferFile
from bags.formats.ffmpeg import import_av
from bags.formats.signatures import HEAD, identify
from bags.media.packets import FORMATS

__all__ = ['Remuxed', 'remux']

KINDS = ('video', 'audio')


class Remuxed(io.BufferedReader):
    """A file that `remux` made, for whoever writes it to close."""


def remux(source: Any) -> BinaryIO:
    """Copies the streams of a video into an MP4 whose header comes first, with an index of all frames.

    Packets are copied as they are, and keep their times. What is neither video nor audio is left out.

    Args:
        source: A path, bytes, or a binary file that is open at its start. It stays open.

    Returns:
        A temporary file, open at its start, for a field of type `video`; it is gone when it is closed.

    Raises:
        ValueError: Not a video, or of a codec that MP4 does not hold.
        MissingDependencyError: av is not installed.
    """
    opened: Any = None
    file: Any
    if isinstance(source, str | os.PathLike):
        opened = file = open(source, 'rb')  # noqa: SIM115 - closed below, if it was opened here
    else:
        file = BufferFile(source) if isinstance(source, bytes | bytearray | memoryview) else source
    try:
        start = file.tell()
        name = identify(file.read(HEAD))
        file.seek(start)
        if name not in FORMATS:
            raise ValueError(f'expected a video, got {name}')
        # libavformat goes back to the start when all is written, and opens the file by its name for that.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'remuxed.mp4')
            _copy(file, FORMATS[name], path)
            return _opened(path)
    finally:
        if opened is not None:
            opened.close()


def _opened(path: str) -> BinaryIO:
    if os.name != 'nt':
        return Remuxed(io.FileIO(path))  # It stays, without a name, until it is closed.
    import shutil

    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for it closes it
    with open(path, 'rb') as written:
        shutil.copyfileobj(written, file, 1 << 20)
    file.seek(0)
    return file


def _copy(file: Any, format: str, path: str) -> None:
    av = import_av()
    with av.open(file, format=format, metadata_errors='replace') as source:
        streams = [stream for stream in source.streams if stream.type in KINDS]
        if not any(stream.type == 'video' for stream in streams):
            raise ValueError('expected a video, got a file without one')
        with av.open(path, 'w', format='mp4', options={'movflags': '+faststart'}) as target:
            copies: dict[int, Any] = {}
            for stream in streams:
                try:
                    copies[stream.index] = target.add_stream_from_template(stream)
                except (ValueError, av.FFmpegError) as exc:
                    codec = getattr(stream.codec_context, 'name', 'unknown')
                    raise ValueError(
                        f'expected {stream.type} of a codec that MP4 holds, got {codec}: {exc}'
                    ) from exc
            for packet in source.demux(streams):
                if packet.size:
                    packet.stream = copies[packet.stream.index]
                    target.mux(packet)
