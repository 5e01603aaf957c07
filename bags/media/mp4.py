"""Parses the sample tables of MP4 and QuickTime: offsets, sizes and times of samples, and key frames.

    moov
      mvhd                 ticks per second, for edits
      trak                 one per stream
        edts/elst          the part of the track that is shown, and its time
        mdia
          mdhd             ticks per second, for samples
          hdlr             the type of the track
          minf/stbl
            stsd           the codec
            stts, ctts     durations of samples, and the delay from decoding to presentation
            stss           key frames
            stsz           sizes
            stsc, stco     samples per chunk, and offsets of chunks

Parsing the tables of an hour of video takes milliseconds. Unusual tracks (in fragmented files, or with
several edits) are not supported: such files are demuxed once from start to end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from bags.formats.signatures import box_header
from bags.indexing import Int64s
from bags.media.timeline import Bools, PacketTable

MAX_MOOV_BYTES = 1 << 30
MAX_EQUAL_SAMPLES = 1 << 24
"""Maximum number of samples of equal size, since a header can claim any number. PCM audio has more."""


class UnusualTrackError(Exception):
    """A track that this module does not support."""


@dataclass(frozen=True)
class Mp4Track:
    """A track with one codec and at most one edit."""

    codec: bytes
    """Four characters."""
    table: PacketTable
    """The samples of the track, with presentation times after the edit."""
    edit: tuple[int, int, int] | None
    """The edit in ticks: its start in presentation time, its start in track time, and its duration; None
    if the track has no edit."""
    header: bytes
    """A short file with only the header of this track, without samples."""
    index: int
    """The index among all tracks; the streams of libavformat have the same order."""


def find_moov(file: BinaryIO) -> bytes:
    """Reads the content of the moov box of a file.

    Raises:
        ValueError: The moov box is missing or cut off.
    """
    size, start = file.seek(0, 2), 0
    while start + 8 <= size:
        file.seek(start)
        head = file.read(16)
        box_type, header, length = box_header(head.ljust(16, b'\0'), 0, size - start)
        if length < header:
            raise ValueError(f'expected a box of MP4 at byte {start}, got {head[:8].hex(" ")}')
        if box_type == b'moov':
            if start + length > size or length > MAX_MOOV_BYTES:
                raise ValueError(f'MP4 is cut off after {size} bytes, within the header')
            file.seek(start + header)
            return file.read(length - header)
        start += length
    if start > size:
        raise ValueError(f'MP4 is cut off after {size} bytes, before the header')
    raise ValueError('MP4 has no header (moov)')


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview, memoryview]]:
    """Yields the type, the content, and all bytes of each box."""
    start = 0
    while start + 8 <= len(data):
        box_type, header, length = box_header(data, start, len(data) - start)
        if length < header or start + length > len(data):
            return
        yield box_type, data[start + header : start + length], data[start : start + length]
        start += length


def _children(data: memoryview) -> dict[bytes, memoryview]:
    children: dict[bytes, memoryview] = {}
    for box_type, content, _ in _boxes(data):
        children.setdefault(box_type, content)
    return children


def find_track(moov: bytes, handler: bytes, index: int | None = None) -> Mp4Track | None:
    """Parses a track; None if it is unusual.

    Args:
        moov: The content of the box.
        handler: The type of the track, `vide` or `soun`.
        index: The index among all tracks. By default, the only track of the type; the result is None if
            there are several.

    Raises:
        ValueError: The tables of the track contradict each other.
    """
    view = memoryview(moov)
    try:
        top = _children(view)
        if b'mvex' in top:
            return None  # Fragmented.
        tracks = [content for box_type, content, _ in _boxes(view) if box_type == b'trak']
        matches = [
            number
            for number, content in enumerate(tracks)
            if index in (None, number) and _children(_children(content)[b'mdia'])[b'hdlr'][8:12] == handler
        ]
        if len(matches) != 1:
            return None
        return _track(view, tracks[matches[0]], matches[0], _scale(top[b'mvhd']) if b'mvhd' in top else 0)
    except (UnusualTrackError, KeyError):
        return None
    except (struct.error, IndexError) as exc:
        raise ValueError(f'the header of the MP4 is damaged: {exc}') from None


def _scale(content: memoryview) -> int:
    """Returns the ticks per second in an mvhd or mdhd box."""
    scale: int = struct.unpack_from('>I', content, 20 if content[0] == 1 else 12)[0]
    return scale


def _table(content: memoryview, dtype: str, columns: int, start: int = 8) -> Any:
    """Parses a table: the number of rows, then the rows."""
    count = struct.unpack_from('>I', content, start - 4)[0]
    if count > (len(content) - start) // (columns * int(dtype[2])):
        raise ValueError(f'the header of the MP4 is damaged: a table of {count} rows in {len(content)} bytes')
    return np.frombuffer(content, dtype, count * columns, start).reshape(count, columns).astype(np.int64)


def _track(moov: memoryview, content: memoryview, index: int, movie: int) -> Mp4Track:
    trak = _children(content)
    mdia = _children(trak[b'mdia'])
    stbl = _children(_children(mdia[b'minf'])[b'stbl'])
    entries = list(_boxes(stbl[b'stsd'][8:]))
    sizes = _sizes(stbl)
    scale = _scale(mdia[b'mdhd'])
    if len(entries) != 1 or not scale:
        raise UnusualTrackError
    times, durations = _times(stbl, len(sizes))
    shown = np.ones(len(sizes), bool)
    edit = _edit(trak, movie, scale)
    if edit is not None:
        begin, first, length = edit
        shown = (times >= first) & (times < first + length)
        # As in libavformat, the first presented sample starts when the edit starts.
        late = int(times[shown].min()) - first if shown.any() else 0
        times = times - first - late + begin
    return Mp4Track(
        codec=entries[0][0],
        table=PacketTable(
            _offsets(stbl, sizes), sizes, times, durations, _keys(stbl, len(sizes)), shown, (1, scale)
        ),
        edit=edit,
        header=_header(moov, content),
        index=index,
    )


def _times(stbl: dict[bytes, memoryview], count: int) -> tuple[Int64s, Int64s]:
    """Returns the presentation times of samples before the edit, and their durations."""
    durations = _runs(_table(stbl[b'stts'], '>u4', 2), count)
    durations[durations > 0x7FFFFFFF] = 1  # Negative durations, as in FFmpeg.
    times = np.cumsum(durations) - durations
    if b'ctts' in stbl:
        times += _runs(_table(stbl[b'ctts'], '>i4', 2), count)
    return times, durations


def _keys(stbl: dict[bytes, memoryview], count: int) -> Bools:
    """Returns which samples are key frames; without an stss box, all of them."""
    if b'stss' not in stbl:
        return np.ones(count, bool)
    return np.isin(np.arange(1, count + 1), _table(stbl[b'stss'], '>u4', 1))


def _edit(trak: dict[bytes, memoryview], movie: int, scale: int) -> tuple[int, int, int] | None:
    """Parses the edit list: any number of empty edits, then one edit at normal speed."""
    lists = _children(trak[b'edts']) if b'edts' in trak else {}
    if b'elst' not in lists:
        return None
    content = lists[b'elst']
    wide = content[0] == 1
    count = struct.unpack_from('>I', content, 4)[0]
    begin, media_edit = 0, None
    for number in range(count):
        length, first, rate = struct.unpack_from(
            '>QqI' if wide else '>IiI', content, 8 + number * (20 if wide else 12)
        )
        if rate != 0x10000 or media_edit is not None or not movie:
            raise UnusualTrackError
        # In ticks of the track, rounded as in FFmpeg.
        length = (length * scale + movie // 2) // movie
        if first == -1:
            begin += length
        elif first < 0 or not length:
            raise UnusualTrackError
        else:
            media_edit = (begin, first, length)
    if media_edit is None and count:
        raise UnusualTrackError
    return media_edit


def _runs(table: Int64s, count: int) -> Int64s:
    """Expands run-length rows (count, value) to `count` values; the last value fills the rest."""
    if not len(table):
        return np.zeros(count, np.int64)
    if int(table[:, 0].sum()) > 2 * count + 1024:
        # Limit the memory that wrong counts can allocate.
        table = table.copy()
        ends = np.minimum(np.cumsum(np.minimum(table[:, 0], count)), count)
        table[:, 0] = np.diff(ends, prepend=0)
    values = np.repeat(table[:, 1], table[:, 0])[:count]
    return np.concatenate([values, np.full(count - len(values), table[-1, 1], np.int64)])


def _sizes(stbl: dict[bytes, memoryview]) -> Int64s:
    content = stbl[b'stsz']
    size, count = struct.unpack_from('>II', content, 4)
    if size:
        if count > MAX_EQUAL_SAMPLES:
            raise UnusualTrackError
        return np.full(count, size, np.int64)
    sizes: Int64s = _table(content, '>u4', 1, 12)[:, 0]
    return sizes


def _offsets(stbl: dict[bytes, memoryview], sizes: Int64s) -> Int64s:
    """Returns the offsets of samples; the samples of a chunk are consecutive."""
    wide = b'co64' in stbl
    chunks = _table(stbl[b'co64' if wide else b'stco'], '>u8' if wide else '>u4', 1)[:, 0]
    runs = _table(stbl[b'stsc'], '>u4', 3)
    if not len(sizes):
        return sizes
    if not len(runs) or not len(chunks) or runs[0, 0] != 1:
        raise ValueError('the header of the MP4 is damaged: samples without chunks')
    counts = np.diff(np.append(runs[:, 0] - 1, len(chunks)))
    if int(counts.min()) < 0 or len(runs) > len(chunks):
        raise ValueError('the header of the MP4 is damaged: its chunks are out of order')
    chunk_lengths = np.minimum(np.repeat(runs[:, 1], counts), len(sizes))
    ends = np.cumsum(chunk_lengths)
    if int(ends[-1]) < len(sizes):
        raise ValueError(
            f'the header of the MP4 is damaged: {len(sizes)} samples, but chunks of {int(ends[-1])}'
        )
    before = np.concatenate([[0], np.cumsum(sizes)])  # Total size of the samples before each sample.
    used = np.minimum(ends - chunk_lengths, len(sizes))
    chunk_lengths = np.minimum(chunk_lengths, len(sizes) - used)
    offsets: Int64s = np.repeat(chunks - before[used], chunk_lengths) + before[:-1]
    return offsets


def _box(box_type: bytes, content: bytes) -> bytes:
    return struct.pack('>I4s', 8 + len(content), box_type) + content


_NO_SAMPLES = b''.join(
    _box(box_type, bytes(size))
    for box_type, size in ((b'stts', 8), (b'stsc', 8), (b'stsz', 12), (b'stco', 8))
)


def _header(moov: memoryview, track: memoryview) -> bytes:
    """Returns a short file with the header of one track and without samples, which opens fast."""

    def rebuild(content: memoryview) -> bytes:
        parts = []
        for box_type, inner, whole in _boxes(content):
            if box_type in (b'mdia', b'minf'):
                parts.append(_box(box_type, rebuild(inner)))
            elif box_type == b'stbl':
                parts.append(_box(box_type, only(inner, b'stsd') + _NO_SAMPLES))
            elif box_type not in (b'edts', b'udta', b'meta', b'tref', b'uuid', b'free'):
                parts.append(bytes(whole))
        return b''.join(parts)

    def only(content: memoryview, wanted: bytes) -> bytes:
        return b''.join(bytes(whole) for box_type, _, whole in _boxes(content) if box_type == wanted)

    trak = _box(b'trak', rebuild(track))
    return _box(b'ftyp', b'isom\0\0\x02\0isomiso2') + _box(b'moov', only(moov, b'mvhd') + trak)
