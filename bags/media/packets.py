"""The packets of a media file: found once, then read by themselves, without what is between them.

An MP4 of the plain kind says in its header where they are (`bags.media.mp4`). In all other files
libavformat goes through them once, without decoding, and notes where they are. Either way a packet is then
a range of the file. Where it is not (a container that takes a part of each packet away, or puts several
together), libavformat looks for it again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import import_av
from bags.formats.signatures import HEAD, identify
from bags.indexing import Int64s
from bags.media.mp4 import Track, find_moov, read_tracks

__all__ = ['FORMATS', 'Demuxed', 'Packets', 'Table', 'best_stream', 'open_packets']

FORMATS = {
    'MP4': 'mp4',
    'QuickTime': 'mov',
    'Matroska': 'matroska',
    'WebM': 'matroska',
    'AVI': 'avi',
    'WAV': 'wav',
    'RF64': 'wav',
    'FLAC': 'flac',
    'Ogg': 'ogg',
    'Ogg Opus': 'ogg',
    'MP3': 'mp3',
    'AAC': 'aac',
}
"""What libavformat calls them. (A probe could take the bytes for a playlist, and open the addresses in
it.)"""

BRIEF = {'probesize': '32', 'analyzeduration': '0'}
"""Options that keep libavformat from decoding at the start of the file what it is not asked for."""

PLAIN = {
    b'avc1', b'avc3', b'hvc1', b'hev1', b'vp09', b'av01', b'mp4v', b'FFV1',
    b'mp4a', b'Opus', b'fLaC', b'alac',
}  # fmt: skip
"""Codecs of MP4 whose samples are packets as they are."""

PIECE = 1 << 22
"""Bytes that are announced at once."""
GAP = 1 << 16
"""Bytes between two packets that are cheaper read than left out."""


@dataclass(frozen=True)
class Table:
    """The packets of a stream, in the order in which they are decoded. Of `n` packets:

    Attributes:
        offsets, sizes: (n,): where each is in the file.
        times, durations: (n,): when what it holds is to be shown or heard, and how long; in ticks.
        keys, shown: (n,): whether decoding can begin there, and whether it is shown.
        unit: Seconds of a tick: numerator and denominator.
        certain: Whether each packet that is shown is known to hold one frame.
        timed: Whether all times are known; else they are those of decoding.
        cut: What is missing at the end; None if nothing is.
        skips: (n, 2): samples to leave out at the start and at the end of what a packet decodes to, or None.
    """

    offsets: Int64s
    sizes: Int64s
    times: Int64s
    durations: Int64s
    keys: npt.NDArray[np.bool_]
    shown: npt.NDArray[np.bool_]
    unit: tuple[int, int]
    certain: bool = True
    timed: bool = True
    cut: str | None = None
    skips: Int64s | None = None


class Packets:
    """The packets of one stream of a file, which are ranges of it.

    Args:
        file: The file.
        table: Where they are in it.
        format: What libavformat calls the file.
        kind: The stream, `video` or `audio`.
        header: A file with the header alone, if opening the whole one takes longer.
    """

    def __init__(
        self, file: BinaryIO, table: Table, format: str, kind: str, header: bytes | None = None
    ) -> None:
        self.file = file
        self.table = table
        self.format = format
        self.kind = kind
        self.header = header

    def over(self, file: BinaryIO) -> Packets:
        """Returns the same packets, read by way of another file."""
        return type(self)(file, self.table, self.format, self.kind, self.header)

    def context(self) -> Any:
        """Returns a new decoder, not open yet."""
        file: Any = self.file if self.header is None else io.BytesIO(self.header)
        file.seek(0)
        with import_av().open(
            file, format=self.format, options=BRIEF, metadata_errors='replace'
        ) as container:
            return best_stream(container, self.kind).codec_context

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yields packets by their numbers.

        Raises:
            ValueError: One that is not there.
        """
        packet, file = import_av().Packet, self.file
        offsets, sizes = self.table.offsets[start:stop].tolist(), self.table.sizes[start:stop].tolist()
        announced = 0
        for number, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            if number == announced:
                announced = _announce(file, offsets, sizes, number)
            file.seek(offset)
            data = file.read(size)
            if len(data) != size:
                where = f'{size} bytes at byte {offset}'
                raise ValueError(f'cut off: expected {where} for packet {start + number}, got {len(data)}')
            yield packet(data)


def _announce(file: BinaryIO, offsets: list[int], sizes: list[int], first: int) -> int:
    """Announces packets from the `first` on that lie close together, and returns which comes after them."""
    begin, end = offsets[first], offsets[first] + sizes[first]
    stop = first + 1
    while stop < len(offsets):
        if not 0 <= offsets[stop] - end <= GAP or offsets[stop] + sizes[stop] - begin > PIECE:
            break
        end = offsets[stop] + sizes[stop]
        stop += 1
    expect = getattr(file, 'expect', None)
    if expect is not None:
        expect(begin, end)
    return stop


class Demuxed(Packets):
    """Packets that libavformat has to take out of the file."""

    _container: Any = None

    def read(self, start: int, stop: int) -> Iterator[Any]:
        if self._container is None:
            self.file.seek(0)
            self._container = import_av().open(self.file, format=self.format, metadata_errors='replace')
        number = start
        for packet in self._from(start):
            if number == stop:
                return
            yield packet
            number += 1
        if number < stop:
            raise ValueError(f'cut off: expected packet {number}, got the end of the file')

    def _from(self, start: int) -> Iterator[Any]:
        """Yields packets from a number on: from where the container says they are, else from the first."""
        stream = best_stream(self._container, self.kind)
        table = self.table
        wanted = (int(table.offsets[start]), int(table.times[start]), int(table.sizes[start]))
        for time in (max(wanted[1], int(table.times.min())), None):
            if time is None:
                self._restart()
                stream = best_stream(self._container, self.kind)
            else:
                try:
                    self._container.seek(time, stream=stream)
                except import_av().FFmpegError:
                    continue
            packets = self._container.demux(stream)
            for packet in packets:
                if packet.size and (packet.pos, packet.pts, packet.size) == wanted:
                    yield packet
                    yield from (packet for packet in packets if packet.size)
                    return
                if packet.size and time is not None and packet.pos is not None and packet.pos > wanted[0]:
                    break

    def _restart(self) -> None:
        self._container.close()
        self.file.seek(0)
        self._container = import_av().open(self.file, format=self.format, metadata_errors='replace')

    def __del__(self) -> None:
        # A container and its streams know each other: else it would wait for the garbage collector.
        if self._container is not None:
            self._container.close()


def best_stream(container: Any, kind: str) -> Any:
    """Returns the stream of a kind that plays by default.

    Raises:
        ValueError: There is none, or none of a codec that is known.
    """
    stream = container.streams.best(kind)
    if stream is None:
        found = ' and '.join(sorted({str(other.type) for other in container.streams} - {kind}))
        found = f'{found} alone' if found else 'none of a codec that can be decoded'
        raise ValueError(f'expected {kind}, got {found}')
    # Decoding a stream without a context crashes av before 18.1.
    if stream.codec_context is None:
        raise ValueError(f'expected {kind}, got none of a codec that can be decoded')
    return stream


def open_packets(file: BinaryIO, kind: str) -> tuple[Packets, str]:
    """Finds the packets of a file's video or audio.

    Returns:
        The packets, and what the file is.

    Raises:
        ValueError: Not a media file, none of the kind, or a codec that is not known.
    """
    from bags.media.demux import scan

    file.seek(0)
    name = identify(file.read(HEAD))
    if name not in FORMATS:
        raise ValueError(f'expected {kind}, got {name}')
    if name in ('MP4', 'QuickTime'):
        tracks = read_tracks(find_moov(file))
        wanted = {'video': 'vide', 'audio': 'soun'}[kind]
        if tracks and None not in tracks:
            plain = [track for track in tracks if track is not None and track.kind == wanted]
            if len(plain) == 1 and plain[0].codec in PLAIN and len(plain[0].sizes):
                packets = _listed(file, plain[0], FORMATS[name], kind)
                if packets is not None:
                    return packets, name
    return scan(file, name, FORMATS[name], kind), name


def _listed(file: BinaryIO, track: Track, format: str, kind: str) -> Packets | None:
    if kind == 'audio':
        return _listed_audio(file, track, format)
    table = Table(
        offsets=track.offsets,
        sizes=track.sizes,
        times=track.times,
        durations=track.durations,
        keys=track.keys,
        shown=track.shown & (track.sizes > 0),
        unit=(1, track.scale),
    )
    return Packets(file, table, format, kind, track.header)


def _listed_audio(file: BinaryIO, track: Track, format: str) -> Packets | None:
    """Returns the packets that an edit leaves, if libavformat begins with them as is to be expected."""
    begin, first, length = track.edit or (0, 0, 0)
    times = track.times - begin + first  # As the track counts them.
    ends = times + track.durations
    kept = (ends > first - track.scale) & (times < first + length if length else True) & (track.sizes > 0)
    numbers = np.flatnonzero(kept)
    if not len(numbers):
        return None
    skips = np.zeros((len(numbers), 2), np.int64)
    found: list[tuple[Any, ...]] = []
    file.seek(0)
    with import_av().open(file, format=format, options=BRIEF, metadata_errors='replace') as container:
        stream = best_stream(container, 'audio')
        for packet in container.demux(stream):
            if packet.size:
                skip = packet.get_sidedata('skip_samples') if packet.has_sidedata('skip_samples') else None
                found.append((packet.pos, packet.size, packet.is_discard))
                if skip is not None:
                    skips[len(found) - 1] = int.from_bytes(bytes(skip)[:4], 'little'), 0
                if not packet.is_discard or len(found) == len(numbers):
                    break
    shown = np.ones(len(numbers), bool)
    shown[: len(found)] = [not row[2] for row in found]
    places = list(zip(track.offsets[numbers].tolist(), track.sizes[numbers].tolist(), strict=True))
    if not found or [row[:2] for row in found] != places[: len(found)]:
        return None
    table = Table(
        offsets=track.offsets[numbers],
        sizes=track.sizes[numbers],
        times=track.times[numbers],
        durations=track.durations[numbers],
        keys=np.ones(len(numbers), bool),
        shown=shown,
        unit=(1, track.scale),
        skips=skips,
    )
    return Packets(file, table, format, 'audio', track.header)
