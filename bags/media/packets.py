"""Reads the packets of a stream by their numbers.

In most containers a packet is a range of the file. In other containers (which strip a part of each packet, or
store several packets as one), libavformat extracts the packet again.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bags.formats.ffmpeg import import_av, open_container
from bags.indexing import Int64s
from bags.media.timeline import PacketTable
from bags.storage.base import SeekableFile
from bags.storage.range_file import BorrowedFile, PositionedFile

NO_PROBING = {'probesize': '32', 'analyzeduration': '0'}
"""Options of libavformat to open a file without decoding its start."""

MAX_READ_BYTES = 1 << 22
"""Maximum number of bytes to read with one request."""
MAX_GAP_BYTES = 1 << 16
"""Maximum number of bytes between two packets that are read with one request."""


def new_context(file: SeekableFile, name: str, stream: int, codec: str | None) -> Any:
    """Returns a new, unopened codec context of a stream. The arguments are attributes of `Packets`."""
    for options in (NO_PROBING, {}):
        file.seek(0)
        with open_container(file, name, **options) as container:
            # Without probing, some formats have fewer streams or an unknown codec.
            if stream < len(container.streams):
                context = container.streams[stream].codec_context
                if context is not None and codec in (None, context.name):
                    return context
    raise ValueError(f'expected a stream {stream} with a codec that can be decoded')


@dataclass(eq=False)
class Packets:
    """The packets of one stream, as ranges of a file."""

    file: PositionedFile
    table: PacketTable
    name: str
    """The name of the format of the file in `identify`."""
    stream: int
    """The index of the stream in the file."""
    codec: str | None = None
    """The name of the decoder in libavcodec."""
    header: bytes | None = None
    """A short file with only the header of this stream, which opens faster: opening ten minutes of video and
    reading a frame takes 12 ms instead of 21 ms."""

    def new_context(self) -> Any:
        """Returns a new, unopened codec context."""
        if self.header is not None:
            return new_context(io.BytesIO(self.header), self.name, 0, self.codec)
        return new_context(self.file, self.name, self.stream, self.codec)

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yields packets by their numbers; nearby packets are read with one request.

        Raises:
            ValueError: A packet is missing.
        """
        from av import Packet

        table = self.table
        offsets, sizes = table.offsets[start:stop].tolist(), table.sizes[start:stop].tolist()
        keys = table.keys[start:stop].tolist()
        for numbers, begin, end in self.ranges(start, stop):
            data: Any = memoryview(self.file.read_at(begin, end - begin))
            for number in numbers:
                offset, size = offsets[number - start], sizes[number - start]
                part = data[offset - begin : offset - begin + size]
                if len(part) != size:
                    expected = f'{size} bytes at byte {offset}'
                    raise ValueError(f'cut off: expected {expected} for packet {number}, got {len(part)}')
                # Allocated by size, which adds padding: decoders read a little beyond the end of a packet.
                packet = Packet(size)
                packet.update(part)
                # Without this flag, PNG adds the previous image.
                packet.is_keyframe = keys[number - start]
                yield packet

    def ranges(self, start: int, stop: int) -> Iterator[tuple[range, int, int]]:
        """Yields the packets of each request, and the byte range (begin, end) of the request."""
        offsets, sizes = self.table.offsets[start:stop].tolist(), self.table.sizes[start:stop].tolist()
        number, count = 0, len(offsets)
        while number < count:
            first, begin = number, offsets[number]
            end = begin + sizes[number]
            number += 1
            while (
                number < count
                and 0 <= offsets[number] - end <= MAX_GAP_BYTES
                and offsets[number] + sizes[number] - begin <= MAX_READ_BYTES
            ):
                end = offsets[number] + sizes[number]
                number += 1
            yield range(start + first, start + number), begin, end


@dataclass(eq=False)
class DemuxedPackets(Packets):
    """Packets that libavformat extracts from the file."""

    stored_times: Int64s | None = None
    """(n,): times of the packets in the file. After a join, the times in the table differ from them."""
    _container: Any = field(default=None, init=False, repr=False)

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yields packets by their numbers."""
        number = start
        for packet in itertools.islice(self._from(start), stop - start):
            yield packet
            number += 1
        if number < stop:
            raise ValueError(f'cut off: expected packet {number}, got the end of the file')

    def _from(self, start: int) -> Iterator[Any]:
        """Yields packets from a number on: after a seek, or by demuxing from the start if the seek misses."""
        table = self.table
        times = table.times if self.stored_times is None else self.stored_times
        wanted = (int(table.offsets[start]), int(times[start]), int(table.sizes[start]))
        if wanted[0] < 0 and not np.array_equal(times, table.times):
            # After a join, times are not unique.
            yield from itertools.islice(self._demux(None), start, None)
            return
        # After a seek in Ogg, audio times are estimates, so packets are counted from the first of the page.
        if self._container is None:
            self._open()
        media_type = self._container.streams[self.stream].type
        is_counted = media_type == 'audio' and self.name.startswith('Ogg')
        ahead = start - int(np.searchsorted(table.offsets, wanted[0]))
        for time in (wanted[1], None):
            packets, left = self._demux(time), ahead
            for packet in packets:
                if is_counted and packet.pos == wanted[0]:
                    left -= 1
                # An MPEG-TS packet holds several packets of audio, of which only the first has a position.
                pos = -1 if packet.pos is None else packet.pos
                if left < 0 if is_counted else (pos, packet.pts, packet.size) == wanted:
                    yield packet
                    yield from packets
                    return
                if time is not None and packet.pos is not None and packet.pos > wanted[0]:
                    break

    def _demux(self, time: int | None) -> Iterator[Any]:
        """Yields packets after a seek to a time, or nothing if the seek fails. Without a time, yields all."""
        if time is None:
            self._open()
        stream = self._container.streams[self.stream]
        if time is not None:
            try:
                self._container.seek(time, stream=stream)
            except import_av().FFmpegError:
                return
        yield from (packet for packet in self._container.demux(stream) if packet.size)

    def _open(self) -> None:
        self.close()
        self.file.seek(0)
        # A borrowed file has its own position: `new_context` also reads the file.
        self._container = open_container(BorrowedFile(self.file), self.name)

    def close(self) -> None:
        """Closes the container now. Its streams refer to it, so the garbage collector would close it late."""
        if self._container is not None:
            self._container.close()

    __del__ = close
