"""Going through a media file once, without decoding, to note where its packets are."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import numpy as np

from bags.formats.ffmpeg import import_av
from bags.media.packets import Demuxed, Packets, Table, best_stream

__all__ = ['scan']

LEAST, MOST = 1 << 16, 1 << 22
"""Bytes read at once: more and more, as long as they follow one another."""
PAGE = 27 + 255 + 255 * 255
"""Bytes of a page of Ogg at most."""
TRIVIAL = 16
"""Bytes of a packet of MPEG-4 that may say no more than that nothing is shown."""


class Ahead:
    """A file that is read in large pieces, of which one is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._position = 0
        self._base = 0
        self._piece = b''
        self._step = LEAST

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        within = self._position - self._base
        if not 0 <= within < len(self._piece):
            follows = self._position == self._base + len(self._piece)
            self._step = min(2 * self._step, MOST) if follows else LEAST
            self._piece, self._base, within = self.at(self._position, self._step), self._position, 0
        data = self._piece[within : within + size]
        self._position += len(data)
        return data

    def at(self, start: int, size: int) -> bytes:
        """Returns bytes from anywhere, without moving."""
        within = start - self._base
        if within >= 0 and within + size <= len(self._piece):
            return self._piece[within : within + size]
        stop = min(start + size, self._size)
        if start >= stop:
            return b''
        expect = getattr(self._file, 'expect', None)
        if expect is not None:
            expect(start, stop)
        self._file.seek(start)
        return self._file.read(stop - start)


def scan(file: BinaryIO, name: str, format: str, kind: str) -> Packets:
    """Notes the packets of a stream.

    Args:
        file: The file, from start to end.
        name: What `identify` calls it.
        format: What libavformat calls it.
        kind: `video` or `audio`.

    Raises:
        ValueError: No such stream, or no packet in it.
    """
    av = import_av()
    ahead = Ahead(file)
    rows: list[tuple[Any, ...]] = []
    skips: list[tuple[int, int]] = []
    shift: int | None = None  # From where libavformat says that a packet is to where it is; -1: nowhere.
    cut = _missing(ahead, name)
    try:
        with av.open(ahead, format=format, metadata_errors='replace') as container:
            stream = best_stream(container, kind)
            codec = stream.codec_context.name
            unit = stream.time_base.numerator, stream.time_base.denominator
            for packet in container.demux(stream):
                if not packet.size:
                    continue
                if packet.is_corrupt:
                    cut = cut or f'packet {len(rows)} is damaged'
                    break
                data = bytes(packet)
                if shift != -1:
                    shift = _find(ahead, packet, data, shift)
                shown = not packet.is_discard and (codec != 'vp8' or bool(data[0] & 0x10))
                row = (
                    packet.pos,
                    packet.size,
                    packet.pts,
                    packet.dts,
                    packet.duration,
                    packet.is_keyframe,
                    shown,
                )
                rows.append(row)
                skips.append(_skips(packet) if packet.has_sidedata('skip_samples') else (0, 0))
    except av.FFmpegError as exc:
        if not rows:
            raise ValueError(f'cannot be read as {name}: {exc}') from exc
        cut = cut or f'damaged after packet {len(rows) - 1}: {exc}'
    if not rows:
        raise ValueError(cut or f'expected {kind}, got no packet of it')
    return _packets(file, format, kind, codec, rows, skips, shift or 0, unit, cut)


def _packets(
    file: BinaryIO,
    format: str,
    kind: str,
    codec: str,
    rows: list[tuple[Any, ...]],
    skips: list[tuple[int, int]],
    shift: int,
    unit: tuple[int, int],
    cut: str | None,
) -> Packets:
    offsets, sizes, times, decoded, durations, keys, shown = zip(*rows, strict=True)
    certain = None not in times and len(set(times)) == len(times)
    if codec == 'mpeg4':
        certain = certain and min(sizes) > TRIVIAL
    if cut:
        # What is missing is decoded later than all that is there, and so shown later than this.
        horizon = max((time for time in decoded if time is not None), default=None)
        if horizon is not None and None not in times:
            shown = tuple(is_shown and time <= horizon for is_shown, time in zip(shown, times, strict=True))
    known_times = times
    if None in times:
        known = decoded if None not in decoded else range(len(rows))
        times = tuple(time if time is not None else other for time, other in zip(times, known, strict=True))
    table = Table(
        offsets=np.array([-1 if place is None else place for place in offsets], np.int64) + max(shift, 0),
        sizes=np.array(sizes, np.int64),
        times=np.array(times, np.int64),
        durations=np.array([duration or 0 for duration in durations], np.int64),
        keys=np.array(keys, bool),
        shown=np.array(shown, bool),
        unit=unit,
        certain=certain,
        timed=None not in known_times,
        cut=cut,
        skips=np.array(skips, np.int64),
    )
    return (Demuxed if shift < 0 else Packets)(file, table, format, kind)


def _find(file: Ahead, packet: Any, data: bytes, shift: int | None) -> int:
    """Returns how far behind the place that libavformat tells the packet begins; -1 if it is not there."""
    if (
        packet.pos is None
        or packet.pos < 0
        or packet.has_sidedata('new_extradata')
        or packet.has_sidedata('palette')
    ):
        return -1
    if shift is None:
        return file.at(packet.pos, len(data) + 32).find(data)
    return shift if file.at(packet.pos + shift, len(data)) == data else -1


def _skips(packet: Any) -> tuple[int, int]:
    """Samples to leave out at the start and the end of a packet: two numbers of 32 bits each."""
    data = bytes(packet.get_sidedata('skip_samples'))
    return int.from_bytes(data[:4], 'little'), int.from_bytes(data[4:8], 'little')


def _missing(file: Ahead, name: str) -> str | None:
    """Returns what is missing of a file that says how long it is; None if nothing is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    end = 0
    head = file.at(0, 64)
    if name in ('WAV', 'AVI'):
        end = 8 + int.from_bytes(head[4:8], 'little')
        end = end if end < 1 << 32 else 0
    elif name in ('WebM', 'Matroska'):
        start = _element(head, 4)  # Behind the header of EBML.
        segment = file.at(sum(start), 12)
        if segment[:4] == b'\x18\x53\x80\x67':
            length, begin = _element(segment, 4)
            width = begin - 4
            end = sum(start) + begin + length if length + 1 != 1 << 7 * width else 0
    elif name.startswith('Ogg') and not _ends_with_page(file.at(max(0, size - PAGE), PAGE)):
        return f'cut off: expected the end of a page of Ogg, got that of the file at {size} bytes'
    return f'cut off: expected {end} bytes, got {size}' if end > size else None


def _ends_with_page(tail: bytes) -> bool:
    """Tells if the last page of an Ogg, which lists the lengths of its segments, ends where the file does."""
    place = len(tail)
    while (place := tail.rfind(b'OggS', 0, place)) >= 0:
        count = tail[place + 26] if place + 26 < len(tail) else 255
        lengths = tail[place + 27 : place + 27 + count]
        if len(lengths) == count and place + 27 + count + sum(lengths) == len(tail):
            return True
    return False


def _element(data: bytes, start: int) -> tuple[int, int]:
    """Reads the number at a place, whose leading zero bits say how many bytes it has, and where it ends."""
    width = 9 - (data[start] if start < len(data) else 0).bit_length()
    return int.from_bytes(data[start : start + width], 'big') & ~(1 << 7 * width), start + width
