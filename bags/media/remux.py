"""`remux`: rewrites a video for fast access, without encoding it again."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from typing import Any, BinaryIO

from bags.formats.encoded import BufferFile
from bags.formats.ffmpeg import import_av, open_container
from bags.formats.signatures import DEMUXERS, identify_file

__all__ = ['RemuxedFile', 'remux']


class RemuxedFile(io.BufferedReader):
    """A temporary file that `remux` returned; the writer that stores it closes it."""


def remux(source: Any) -> BinaryIO:
    """Copies the streams of a video to an MP4 whose header comes first, with an index of all frames.

    Packets are copied as they are and keep their timestamps. Streams other than video and audio are dropped.

    Args:
        source: A path, bytes, or a binary file that is open at its start, and stays open.

    Returns:
        A temporary file, open at its start, for a field of type `video`; closing it deletes it.

    Raises:
        ValueError: Not a video, or a codec that MP4 does not support.
        MissingDependencyError: av is not installed.
    """
    if isinstance(source, str | os.PathLike):
        with open(source, 'rb') as opened:
            return remux(opened)
    file: Any = BufferFile(source) if isinstance(source, bytes | bytearray | memoryview) else source
    name = identify_file(file)
    if name not in DEMUXERS:
        raise ValueError(f'expected a video, got {name}')
    # A path, since libavformat opens the output a second time to move the header to the front.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'remuxed.mp4')
        _copy_streams(file, name, path)
        if os.name != 'nt':
            return RemuxedFile(io.FileIO(path))  # An unlinked file exists until it is closed.
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        with open(path, 'rb') as written:
            shutil.copyfileobj(written, copy, 1 << 20)
        copy.seek(0)
        return copy


def _copy_streams(file: Any, name: str, path: str) -> None:
    av = import_av()
    with open_container(file, name) as source:
        streams = [stream for stream in source.streams if stream.type in ('video', 'audio')]
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
                        f'expected {stream.type} of a codec that MP4 supports, got {codec}: {exc}'
                    ) from exc
            for packet in source.demux(streams):
                if packet.size:
                    packet.stream = copies[packet.stream.index]
                    target.mux(packet)
