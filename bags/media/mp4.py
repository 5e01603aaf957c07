"""What MP4 and QuickTime say about their samples: where each lies, when it is shown, what it is decoded from.

    moov
      mvhd                 units of a second, for edits
      trak                 one for video, one for audio
        edts/elst          which part of the track is shown, and when
        mdia
          mdhd             units of a second, for samples
          hdlr             what kind of track it is
          minf/stbl
            stsd           the codec
            stts, ctts     times of samples: how far apart, and how long until each is shown
            stss           which can be decoded by themselves
            stsz           their sizes
            stsc, stco     how they are put together to chunks, and where those are

Each table is a few numbers a run or a sample, so that all of an hour of video is read in milliseconds.
Where a file is none of the plain kind (in fragments, or with several edits), there is nothing here, and it
has to be read from start to end once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['Track', 'find_moov', 'header_of', 'read_tracks']

HEAD = 1 << 14
"""Bytes read at first, and at least: what comes before the moov, and a small one."""
MOST = 1 << 30
"""Bytes a moov may have."""
MANY = 1 << 24
"""Samples of one size; there are more if each is one of sound."""


class Unusual(Exception):
    """A track that is not of the plain kind."""


@dataclass(frozen=True)
class Track:
    """A track of one codec, all of it described in the moov.

    Of `n` samples in the order in which they are decoded:
    """

    kind: str
    """`vide` or `soun`, or that of another handler."""
    codec: bytes
    """The four letters of the codec."""
    scale: int
    """Units of time a second."""
    offsets: Int64s
    """(n,): where each begins in the file."""
    sizes: Int64s
    """(n,): bytes of each."""
    times: Int64s
    """(n,): when each is shown, in units; the first edit begins at 0, or later if it says so."""
    durations: Int64s
    """(n,): how long each lasts until the next is decoded."""
    keys: npt.NDArray[np.bool_]
    """(n,): which can be decoded by themselves."""
    shown: npt.NDArray[np.bool_]
    """(n,): which lie in the part that is shown."""
    edit: tuple[int, int, int] | None
    """The edit: when it begins, in units; which time of the track is shown then; for how many units.
    None if there is none."""
    header: bytes
    """A moov of this track without its samples: what a decoder has to know."""


def find_moov(file: BinaryIO) -> bytes:
    """Returns the moov of a file, without its own header.

    Raises:
        ValueError: There is none, or not all of it.
    """
    size = file.seek(0, 2)
    file.seek(0)
    head, base, start = file.read(HEAD), 0, 0
    while start + 8 <= size:
        if not base <= start <= base + len(head) - 16:
            # The last box is the moov, more often than not, and small.
            file.seek(start)
            head, base = file.read(HEAD), start
        within = start - base
        length, kind = struct.unpack_from('>I4s', head, within)
        begin = start + 8
        if length == 1 and within + 16 <= len(head):
            length, begin = struct.unpack_from('>Q', head, within + 8)[0], start + 16
        elif length == 0:
            length = size - start
        if length < begin - start:
            raise ValueError(
                f'expected a box of MP4 at byte {start}, got {head[within : within + 8].hex(" ")}'
            )
        stop = start + length
        if kind == b'moov':
            if stop > size or stop - begin > MOST:
                raise ValueError(f'MP4 is cut off after {size} bytes, within the header')
            found = head[begin - base : stop - base]
            if len(found) < stop - begin:
                file.seek(begin + len(found))
                found += file.read(stop - begin - len(found))
            return bytes(found)
        start = stop
    if start > size:
        raise ValueError(f'MP4 is cut off after {size} bytes, before the header')
    raise ValueError('MP4 has no header (moov)')


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview, memoryview]]:
    """Yields the kind, the content and the whole of each box."""
    start = 0
    while start + 8 <= len(data):
        length, kind = struct.unpack_from('>I4s', data, start)
        begin = start + 8
        if length == 1:
            length, begin = struct.unpack_from('>Q', data, begin)[0], start + 16
        elif length == 0:
            length = len(data) - start
        if length < begin - start or start + length > len(data):
            return
        yield kind, data[begin : start + length], data[start : start + length]
        start += length


def _children(data: memoryview) -> dict[bytes, memoryview]:
    found: dict[bytes, memoryview] = {}
    for kind, content, _ in _boxes(data):
        found.setdefault(kind, content)
    return found


def read_tracks(moov: bytes) -> list[Track | None]:
    """Reads all tracks of a moov; None for one that is not of the plain kind.

    Raises:
        ValueError: Tables that contradict each other.
    """
    view = memoryview(moov)
    top = _children(view)
    fragmented = b'mvex' in top
    movie = _scale(top[b'mvhd']) if b'mvhd' in top else 0
    tracks: list[Track | None] = []
    for kind, content, _ in _boxes(view):
        if kind == b'trak':
            try:
                tracks.append(None if fragmented else _track(view, content, movie))
            except (Unusual, KeyError):
                tracks.append(None)
            except (struct.error, IndexError) as exc:
                raise ValueError(f'the header of the MP4 is damaged: {exc}') from None
    return tracks


def _scale(content: memoryview) -> int:
    """The units a second of mvhd and mdhd."""
    found: int = struct.unpack_from('>I', content, 20 if content[0] == 1 else 12)[0]
    return found


def _table(content: memoryview, dtype: str, columns: int, start: int = 8) -> Any:
    """Rows behind a count of them."""
    count = struct.unpack_from('>I', content, start - 4)[0]
    if count > (len(content) - start) // (columns * int(dtype[2])):
        raise ValueError(f'the header of the MP4 is damaged: a table of {count} rows in {len(content)} bytes')
    return np.frombuffer(content, dtype, count * columns, start).reshape(count, columns).astype(np.int64)


def _track(moov: memoryview, content: memoryview, movie: int) -> Track:
    trak = _children(content)
    mdia = _children(trak[b'mdia'])
    stbl = _children(_children(mdia[b'minf'])[b'stbl'])
    entries = list(_boxes(stbl[b'stsd'][8:]))
    sizes = _sizes(stbl)
    count = len(sizes)
    scale = _scale(mdia[b'mdhd'])
    if len(entries) != 1 or not scale:
        raise Unusual
    durations = _runs(_table(stbl[b'stts'], '>u4', 2), count)
    durations[durations > 0x7FFFFFFF] = 1  # A negative one, as ffmpeg takes it.
    decoded = np.zeros(count, np.int64)
    np.cumsum(durations[:-1], out=decoded[1:])
    times = decoded
    if b'ctts' in stbl:
        shifts = _runs(_table(stbl[b'ctts'], '>i4', 2), count)
        times = decoded + shifts
    keys = np.ones(count, bool)
    if b'stss' in stbl:
        numbers = _table(stbl[b'stss'], '>u4', 1)[:, 0] - 1
        keys = np.zeros(count, bool)
        keys[numbers[(numbers >= 0) & (numbers < count)]] = True
    edit = _edit(trak, movie, scale)
    shown = np.ones(count, bool)
    if edit is not None:
        begin, first, length = edit
        shown = (times >= first) & (times < first + length)
        # As libavformat has it: the first that is shown is so when the edit begins.
        late = int(times[shown].min()) - first if shown.any() else 0
        times = times - first - late + begin
    return Track(
        kind=bytes(mdia[b'hdlr'][8:12]).decode('latin-1'),
        codec=entries[0][0],
        scale=scale,
        offsets=_offsets(stbl, sizes),
        sizes=sizes,
        times=times,
        durations=durations,
        keys=keys,
        shown=shown,
        edit=edit,
        header=header_of(moov, content),
    )


def _edit(trak: dict[bytes, memoryview], movie: int, scale: int) -> tuple[int, int, int] | None:
    """Reads the list of edits: parts that are empty, then one that is shown at its normal speed."""
    lists = _children(trak[b'edts']) if b'edts' in trak else {}
    if b'elst' not in lists:
        return None
    content = lists[b'elst']
    wide = content[0] == 1
    count = struct.unpack_from('>I', content, 4)[0]
    begin, found = 0, None
    for number in range(count):
        length, first, rate = struct.unpack_from(
            '>QqI' if wide else '>IiI', content, 8 + number * (20 if wide else 12)
        )
        if rate != 0x10000 or found is not None or not movie:
            raise Unusual
        # In units of the track, rounded as ffmpeg does.
        length = (length * scale + movie // 2) // movie
        if first == -1:
            begin += length
        elif first < 0 or not length:
            raise Unusual
        else:
            found = (begin, first, length)
    if found is None and count:
        raise Unusual
    return found


def _runs(table: Int64s, count: int) -> Int64s:
    """Spreads (how many, value) over all samples; those that are left out have the last value."""
    if not len(table):
        return np.zeros(count, np.int64)
    if int(table[:, 0].sum()) > 2 * count + 1024:
        # As many as there are samples, whatever the counts say.
        table = table.copy()
        ends = np.minimum(np.cumsum(np.minimum(table[:, 0], count)), count)
        table[:, 0] = np.diff(ends, prepend=0)
    values = np.repeat(table[:, 1], table[:, 0])[:count]
    return np.concatenate([values, np.full(count - len(values), table[-1, 1], np.int64)])


def _sizes(stbl: dict[bytes, memoryview]) -> Int64s:
    content = stbl[b'stsz']
    each, count = struct.unpack_from('>II', content, 4)
    if each:
        if count > MANY:
            raise Unusual
        return np.full(count, each, np.int64)
    sizes: Int64s = _table(content, '>u4', 1, 12)[:, 0]
    return sizes


def _offsets(stbl: dict[bytes, memoryview], sizes: Int64s) -> Int64s:
    """Where samples begin: a chunk's samples follow one another."""
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
    each = np.minimum(np.repeat(runs[:, 1], counts), len(sizes))
    ends = np.cumsum(each)
    if int(ends[-1]) < len(sizes):
        raise ValueError(
            f'the header of the MP4 is damaged: {len(sizes)} samples, but chunks of {int(ends[-1])}'
        )
    before = np.concatenate([[0], np.cumsum(sizes)])  # Bytes before each sample, were they all together.
    used = np.minimum(ends - each, len(sizes))
    each = np.minimum(each, len(sizes) - used)
    offsets: Int64s = np.repeat(chunks - before[used], each) + before[:-1]
    return offsets


_EMPTY = (
    b'\0\0\0\x10stts'
    + bytes(8)
    + b'\0\0\0\x10stsc'
    + bytes(8)
    + b'\0\0\0\x14stsz'
    + bytes(12)
    + b'\0\0\0\x10stco'
    + bytes(8)
)


def header_of(moov: memoryview, track: memoryview) -> bytes:
    """Returns a file of the header alone: the movie, and one track without samples.

    To open it takes the same time however long the track is.
    """

    def box(kind: bytes, content: bytes) -> bytes:
        return struct.pack('>I4s', 8 + len(content), kind) + content

    def rebuild(content: memoryview, path: tuple[bytes, ...]) -> bytes:
        parts = []
        for kind, inner, whole in _boxes(content):
            if kind == path[0]:
                parts.append(box(kind, rebuild(inner, path[1:]) if len(path) > 1 else sample_table(inner)))
            elif kind not in (b'edts', b'udta', b'meta', b'tref', b'uuid', b'free'):
                parts.append(bytes(whole))
        return b''.join(parts)

    def sample_table(content: memoryview) -> bytes:
        return b''.join(bytes(whole) for kind, _, whole in _boxes(content) if kind == b'stsd') + _EMPTY

    trak = box(b'trak', rebuild(track, (b'mdia', b'minf', b'stbl')))
    mvhd = b''.join(bytes(whole) for kind, _, whole in _boxes(moov) if kind == b'mvhd')
    return box(b'ftyp', b'isom\0\0\x02\0isomiso2') + box(b'moov', mvhd + trak)
