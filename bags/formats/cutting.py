"""A video that is cut: what its packets are, copying them, and decoding them from start to end."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bags.formats.containers import HEAD, identify
from bags.formats.ffmpeg import import_av
from bags.formats.media import BufferFile
from bags.formats.videos import Frames, rgb_pixels

__all__ = ['Decoded', 'Demuxed', 'Packets', 'name_of', 'open_video', 'scan_packets']

Int64s = npt.NDArray[np.int64]

COPIED = {'h264', 'hevc', 'vp9', 'av1', 'mpeg4', 'mjpeg'}
"""Codecs that MP4 holds, of which a packet is a frame."""

CONTAINERS = {
    'MP4': 'mp4',
    'QuickTime': 'mov',
    'Matroska': 'matroska',
    'WebM': 'matroska',
    'AVI': 'avi',
}
"""What libavformat calls them. (A probe could take the bytes for a playlist, and open what is in it.)"""


@dataclass(frozen=True)
class Packets:
    """What is known of a video without decoding it; of n packets, in the order of the file."""

    times: Int64s
    """(n,): when the frame of each is shown."""
    keys: npt.NDArray[np.bool_]
    """(n,): which can be decoded by themselves."""
    codec: str
    rate: Fraction
    """Frames a second, more or less."""
    unit: Fraction
    """Seconds of a tick."""
    doubt: str | None
    """Why packets are not as many frames, or cannot be moved to MP4; None if they are and can."""
    cut: str | None
    """What is missing at the end."""


@contextmanager
def open_video(source: Any) -> Iterator[tuple[Any, Any]]:
    """Opens a source, and yields its container and its video."""
    file: BinaryIO
    if isinstance(source, str | os.PathLike):
        file = open(source, 'rb')  # noqa: SIM115
    elif hasattr(source, 'read'):
        file = _Shared(source)  # type: ignore[assignment]
    else:
        file = BufferFile(source)  # type: ignore[assignment]
    try:
        file.seek(0)
        name = identify(file.read(HEAD))
        file.seek(0)
        if name not in CONTAINERS:
            raise ValueError(f'clips: {name_of(source)}: expected a video, got {name}')
        try:
            container = import_av().open(file, format=CONTAINERS[name], metadata_errors='replace')
        except import_av().FFmpegError as exc:
            raise ValueError(f'clips: {name_of(source)}: damaged {name}: {exc}') from exc
        with container:
            stream = container.streams.best('video')
            if stream is None or stream.codec_context is None:
                raise ValueError(f'clips: {name_of(source)}: expected video, got none that can be decoded')
            yield container, stream
    finally:
        file.close()


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
    name = getattr(source, 'name', None)
    return name if isinstance(name, str) else type(source).__name__


def scan_packets(container: Any, stream: Any) -> Packets:
    """Goes through the packets, decoding none."""
    codec = {'libdav1d': 'av1'}.get(stream.codec_context.name, stream.codec_context.codec.canonical_name)
    rows: list[tuple[Any, ...]] = []
    damaged = None
    try:
        for packet in container.demux(stream):
            if packet.size:
                if packet.is_corrupt:
                    damaged = f'packet {len(rows)} is damaged'
                    break
                rows.append((packet.pts, packet.is_keyframe, packet.is_discard))
    except import_av().FFmpegError as exc:
        damaged = f'cannot be read after packet {len(rows)}: {exc}'
    listed = len(stream.index_entries)
    if damaged is None and CONTAINERS['MP4'] in container.format.name and len(rows) < listed:
        damaged = f'cut off: {len(rows)} of {listed} packets are there'
    if not rows:
        raise ValueError(f'expected at least one frame, got none{f"; {damaged}" if damaged else ""}')
    doubt = None
    times = np.array([-1 if pts is None else pts for pts, _, _ in rows], np.int64)
    keys = np.array([key for _, key, _ in rows])
    if codec not in COPIED:
        doubt = f'MP4 holds no {codec}'
    elif any(pts is None for pts, _, _ in rows) or len(np.unique(times)) < len(times):
        doubt = 'not all of its frames have times'
    elif any(hidden for _, _, hidden in rows):
        doubt = 'some of its frames are not shown'
    elif not keys[0] or int(times.argmin()) != 0:
        doubt = 'its first frames are made of others that are not there'
    rate = stream.average_rate or stream.guessed_rate or Fraction(30)
    return Packets(times, keys, codec, min(rate, Fraction(1000)), stream.time_base, doubt, damaged)


class Demuxed:
    """The packets of a video, each taken once, in the order of the file."""

    def __init__(self, container: Any, stream: Any) -> None:
        self._stream = stream
        self._packets = (packet for packet in container.demux(stream) if packet.size)
        self._position = 0

    def copy(self, start: int, stop: int, end: int | None = None) -> bytes:
        """Returns packets as an MP4 whose frames begin at 0.

        Args:
            start, stop: Which packets, after those taken before.
            end: When the frame that is shown last ends; as its packet says unless given.
        """
        for _ in itertools.islice(self._packets, start - self._position):
            pass
        packets = list(itertools.islice(self._packets, stop - start))
        self._position = stop
        if len(packets) < stop - start or any(packet.is_corrupt for packet in packets):
            raise ValueError(f'cannot read packets {start} to {stop}')
        times = np.array([packet.pts for packet in packets])
        shown, last = np.sort(times), int(times.argmax())
        until = np.append(shown[1:], shown[-1] + max(1, packets[last].duration or 0) if end is None else end)
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

    def __init__(self, container: Any, stream: Any, times: Int64s) -> None:
        self._container = container
        self._stream = stream
        self._times = times
        self._frames = self._decode()
        self._position = 0

    def _decode(self) -> Iterator[tuple[Frames, int, int]]:
        convert = import_av().video.reformatter.VideoReformatter()
        before: tuple[Frames, int] | None = None
        lasting = 1
        for number, frame in enumerate(self._container.decode(self._stream)):
            if frame.is_corrupt:
                raise ValueError(f'frame {number} is damaged')
            time = frame.pts if frame.pts is not None else number * max(1, frame.duration or 1)
            if before is not None:
                yield *before, max(time, before[1] + 1)
                time = max(time, before[1] + 1)
            lasting = max(1, frame.duration or 0)
            before = rgb_pixels(convert.reformat(frame, format='rgb24')), time
        if before is not None:
            yield *before, before[1] + lasting

    def read(self, start: int, count: int) -> Iterator[tuple[Frames, int, int]]:
        """Yields frames, each with the ticks from which and until which it is shown; fewer at the end."""
        if start != self._position:
            time = int(self._times[start])
            for target in (time, int(self._times[0])):  # Some containers do not find what they are asked for.
                self._container.seek(target, stream=self._stream, backward=True)
                frames = itertools.dropwhile(lambda frame: frame[1] < time, self._decode())
                first = next(frames, None)
                if first is not None and first[1] == time:
                    self._frames = itertools.chain([first], frames)
                    break
            else:
                raise ValueError(f'frame {start} is missing')
        self._position = start + count
        return itertools.islice(self._frames, count)
