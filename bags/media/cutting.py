"""A video that is cut: what can be copied of it, copying that, and decoding the rest."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from bags.formats.encoded import BufferFile
from bags.formats.ffmpeg import import_av
from bags.formats.signatures import HEAD, identify
from bags.formats.videos import Frames, rgb_pixels
from bags.indexing import Int64s
from bags.media.packets import FORMATS, best_stream
from bags.media.video import Video
from bags.media.video_decoder import Reel

__all__ = ['Decoded', 'Demuxed', 'name_of', 'open_file', 'open_video', 'why_not_copied']

COPIED = {'h264', 'hevc', 'vp9', 'av1', 'mpeg4', 'mjpeg'}
"""Codecs that MP4 holds, of which a packet is a frame."""


@contextmanager
def open_file(source: Any) -> Iterator[BinaryIO]:
    """Opens a source: a path, bytes, a file that stays open, or a video."""
    file: Any
    if isinstance(source, Video):
        file = source.source.open()
    elif isinstance(source, str | os.PathLike):
        file = open(source, 'rb')  # noqa: SIM115
    elif hasattr(source, 'read'):
        file = _Shared(source)
    else:
        file = BufferFile(source)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def open_video(source: Any) -> Iterator[tuple[Any, Any]]:
    """Opens a source that is known to have a video, and yields its container and that."""
    with open_file(source) as file:
        format = FORMATS[identify(file.read(HEAD))]
        file.seek(0)
        with import_av().open(file, format=format, metadata_errors='replace') as container:
            yield container, best_stream(container, 'video')


class _Shared(io.RawIOBase):
    """A file that others read too: it has a position of its own."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = self._file.seek(0, os.SEEK_END) if whence == os.SEEK_END else self._position
        self._position = offset if whence == os.SEEK_SET else base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        self._file.seek(self._position)
        data = self._file.read(-1 if size is None else size)
        self._position += len(data)
        return data


def name_of(source: Any) -> str:
    """Returns what messages call a source."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    if isinstance(source, Video):
        return source.source.name
    name = getattr(source, 'name', None)
    return name if isinstance(name, str) else type(source).__name__


def why_not_copied(reel: Reel) -> tuple[str, str | None]:
    """Returns the codec of a video, and why its packets cannot be moved to MP4; None if they can."""
    name = reel.packets.context().codec
    codec = {'libdav1d': 'av1'}.get(name.name, name.canonical_name)
    table = reel.packets.table
    if codec not in COPIED:
        return codec, f'MP4 holds no {codec}'
    if not table.certain:
        return codec, 'not every packet is a frame with a time'
    places = reel.timeline.places
    if table.cut and len(reel.timeline.keys):
        places = places[: reel.timeline.keys[-1]]  # What comes after is not cut into clips anyway.
    if (places < 0).any():
        return codec, 'some of its frames are not shown'
    if not table.keys[0] or int(table.times.argmin()):
        return codec, 'its first frames are made of others that are not there'
    return codec, None


class Demuxed:
    """The packets of a video, each taken once, in the order of the file."""

    def __init__(self, container: Any, stream: Any) -> None:
        self._stream = stream
        self._packets = (packet for packet in container.demux(stream) if packet.size)
        self._position = 0

    def copy(self, start: int, stop: int, length: int) -> bytes:
        """Returns packets as an MP4 whose frames begin at 0.

        Args:
            start, stop: Which packets, after those taken before.
            length: Ticks from when the first of the frames is shown until the last one ends.
        """
        for _ in itertools.islice(self._packets, start - self._position):
            pass
        packets = list(itertools.islice(self._packets, stop - start))
        self._position = stop
        if len(packets) < stop - start or any(packet.is_corrupt for packet in packets):
            raise ValueError(f'cannot read packets {start} to {stop}')
        times = np.array([packet.pts for packet in packets])
        shown = np.sort(times)
        until = np.append(shown[1:], max(shown[0] + length, shown[-1] + 1))
        decoded = _decode_times(times, shown, int(until[-1]))
        lasting = dict(zip(shown.tolist(), (until - shown).tolist(), strict=True))
        file = io.BytesIO()
        with import_av().open(file, 'w', format='mp4') as container:
            stream = container.add_stream_from_template(self._stream, opaque=True)
            for packet, time in zip(packets, decoded.tolist(), strict=True):
                packet.duration = lasting[packet.pts]
                packet.dts = time - int(shown[0])
                packet.pts -= int(shown[0])
                packet.stream = stream
                container.mux(packet)
        return file.getvalue()


def _decode_times(times: Int64s, shown: Int64s, end: int) -> Int64s:
    """Returns when packets are decoded: rising, and none after its frame is shown.

    In MP4 a frame lasts from its own time of decoding to that of the next packet. For the frame that is shown
    last, and so for the whole, that should be right.
    """
    decoded = shown - int((shown - times).max())
    last = int(times.argmax())
    if last + 1 < len(times):
        wrong = int(decoded[last + 1] - decoded[last]) - (end - int(shown[-1]))
        decoded[: last + 1] += min(wrong, 0)
        decoded[last + 1 :] -= max(wrong, 0)
    return decoded


class Decoded:
    """The frames of a video, decoded one after the other."""

    def __init__(self, reel: Reel) -> None:
        self._reel = reel
        self._ticks = np.append(reel.timeline.ticks, max(reel.timeline.end, int(reel.timeline.ticks[-1]) + 1))
        self._frames: Iterator[Frames] = iter(())
        self._position = -1

    def read(self, start: int, stop: int) -> Iterator[tuple[Frames, int, int]]:
        """Yields frames, each with the ticks from which and until which it is shown."""
        if start != self._position:
            self._frames = self._from(start)
        self._position = stop
        ticks = self._ticks[start : stop + 1].tolist()
        for frame, (begin, end) in zip(self._frames, itertools.pairwise(ticks), strict=False):
            yield frame, begin, end
            if end == ticks[-1]:
                return

    def _from(self, start: int) -> Iterator[Frames]:
        convert = import_av().video.reformatter.VideoReformatter()
        waiting: dict[int, Frames] = {}
        for number, frame in self._reel.frames(np.arange(start, len(self._ticks) - 1)):
            waiting[number] = rgb_pixels(convert.reformat(frame, format='rgb24'))
            while start in waiting:
                yield waiting.pop(start)
                start += 1
