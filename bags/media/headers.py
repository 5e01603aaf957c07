"""Reads the length of media files from their headers. No I/O.

| format | bytes that tell the length |
| --- | --- |
| FLAC | the first 26: the stream info |
| WAV, RF64 | the headers of the chunks up to the samples, most often the first 44 |
| Ogg Opus, Ogg Vorbis | the first pages, and the last one: its number of samples ends the recording |
| MP3 | the first frame, after the tags: a Xing or VBRI header, with the delay and the padding |
| MP4, QuickTime | the `moov` box: its sample tables and edits |

Headers are believed: the file may be cut off or damaged after them. Where a header does not tell what
`bags.Audio` or `bags.Video` returns for the whole file, the length is unknown: of a FLAC from a pipe, of MP3
without such a header, of Matroska, of fragments of MP4.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.formats.audio import samples_of
from bags.formats.flac import FILE_START
from bags.formats.signatures import SIGNATURE_BYTES, box_header, identify
from bags.indexing import Int64s
from bags.media.audio_decoder import MAX_DELAY
from bags.media.b_frames import may_reorder
from bags.media.demux import HANDLERS, MAX_SKIPPED_VOP_BYTES, PLAIN_CODECS
from bags.media.mp4 import Mp4Track, find_track
from bags.media.timeline import Timeline, make_timeline

HEAD_BYTES = 44
"""The first bytes of a file that `parse_heads` needs."""
MAX_HEADER_BYTES = 1 << 24
"""Maximum bytes of one range of a file that a parser asks for. The tables of an hour of video take 1 MB."""
MAX_EQUAL_SAMPLES = 1 << 20
"""Maximum number of samples of equal size of an MP4. A header can claim any number."""
MAX_RANGES = 3
"""Maximum number of ranges that a parser asks for."""
NEXT_BYTES = 4096
"""Bytes to read of a header whose length is unknown."""
MAX_BOXES = 64
"""Maximum number of boxes, chunks or pages of a file that are visited."""
MAX_PAGE_BYTES = 27 + 255 + 255 * 255
"""Maximum bytes of a page of Ogg."""
MAX_PAGE_PACKETS = 255
"""Maximum number of packets that end in a page of Ogg."""
UNKNOWN = -1
"""The number of elements, in arrays, of a file whose header does not tell it."""
MAX_REORDERED = 16
"""Maximum number of packets before which the frame of a packet may be presented, in H.264 and HEVC."""
AAC_FRAME = 1024
"""Samples of a frame of AAC."""
MAX_IMPLICIT_RATE = 24_000
"""AAC with at most this rate may be decoded at twice the rate, without a mark in the header."""


class Header(NamedTuple):
    """The length of a recording or a video, according to its header."""

    elements: int
    """Samples of each channel, or frames."""
    rate: float
    """Samples per second, an int; or frames per second, on average."""
    seconds: float
    """Seconds from the first element to the end of the last one."""
    timeline: Timeline | None = None
    """The times of the frames of a video."""

    def part(self, first: int, stop: int) -> Header | None:
        """Returns the length of a range of elements, as a file of its own; None if it is out of range."""
        if not first < stop <= self.elements:
            return None
        if self.timeline is None:
            return recording(stop - first, int(self.rate))
        return video(self.timeline.part(first, stop))


Parser = Generator[tuple[int, int], bytes, Header | None]
"""Yields the range (start, stop) of the file that it needs next, is sent its bytes, and returns the header;
None if the length is unknown."""


def recording(samples: int, rate: int) -> Header:
    """Returns the length of a recording."""
    return Header(samples, rate, samples / rate)


def video(timeline: Timeline) -> Header:
    """Returns the length of a video."""
    numerator, denominator = timeline.time_base
    seconds = (timeline.end - int(timeline.ticks[0])) * numerator / denominator
    return Header(len(timeline), len(timeline) / seconds if seconds else 0.0, seconds, timeline)


def parse_heads(heads: npt.NDArray[np.uint8]) -> tuple[Int64s, Int64s]:
    """Parses many FLAC and WAV headers at once.

    Args:
        heads: The first bytes of each file, shape (n, bytes), at least `HEAD_BYTES`.

    Returns:
        The number of samples and the rate of each file, each of shape (n,); `UNKNOWN` and 1 for files of
        other formats, and for headers that need more bytes.
    """
    elements, rates = np.full(len(heads), UNKNOWN, np.int64), np.ones(len(heads), np.int64)
    words = np.ascontiguousarray(heads[:, :HEAD_BYTES]).view('<u4')  # (n, 11)
    for magic, parse in ((b'fLaC', _flac_columns), (b'RIFF', _wav_columns)):
        (number,) = struct.unpack('<I', magic)
        chosen = words[:, 0] == number
        if chosen.all():
            return parse(words)
        if chosen.any():
            elements[chosen], rates[chosen] = parse(words[chosen])
    return elements, rates


def _flac_columns(words: npt.NDArray[np.uint32]) -> tuple[Int64s, Int64s]:
    """Parses the stream info, which is always the first block: 20 bits of rate, 3 + 5 bits, 36 of samples."""
    bytes_of = words.view(np.uint8)
    packed = np.ascontiguousarray(bytes_of[:, 18:26]).view('>u8')[:, 0]
    rates = (packed >> np.uint64(44)).astype(np.int64)
    samples = (packed & np.uint64((1 << 36) - 1)).astype(np.int64)
    is_info = (words[:, 1] & np.uint32(0xFFFFFF7F)) == np.uint32(0x22000000)
    is_known = is_info & (rates > 0) & (samples > 0)
    return np.where(is_known, samples, UNKNOWN), np.where(is_known, rates, 1)


def _wav_columns(words: npt.NDArray[np.uint32]) -> tuple[Int64s, Int64s]:
    """Parses WAVs with a format of 16 bytes, followed by the samples."""
    wave, form, data = (struct.unpack('<I', name)[0] for name in (b'WAVE', b'fmt ', b'data'))
    halves = words.view('<u2')
    tags, channels, strides, bits = (halves[:, column].astype(np.int64) for column in (10, 11, 16, 17))
    rates, sizes = words[:, 6].astype(np.int64), words[:, 10].astype(np.int64)
    is_known = (words[:, 2] == wave) & (words[:, 3] == form) & (words[:, 4] == 16) & (words[:, 9] == data)
    is_pcm = (tags == 1) & np.isin(bits, (8, 16, 24, 32)) | (tags == 3) & np.isin(bits, (32, 64))
    is_known &= is_pcm & (channels > 0) & (rates > 0) & (strides == channels * bits // 8)
    is_known &= (sizes > 0) & (sizes < 0xFFFFFFFF)
    return np.where(is_known, sizes // np.maximum(strides, 1), UNKNOWN), np.where(is_known, rates, 1)


def parse_header(head: bytes, size: int, media_type: str, track: int | None = None) -> Parser:
    """Parses the header of a file of any format; see `Parser`.

    Args:
        head: The first bytes of the file; `SIGNATURE_BYTES` are enough for most formats.
        size: Bytes of the whole file.
        media_type: `video` or `audio`.
        track: The index of the track. By default, the track that players choose.
    """
    if len(head) < min(size, SIGNATURE_BYTES) and head[:4] != b'fLaC':
        head += yield len(head), min(size, NEXT_BYTES)
    data = _Bytes(head, size)
    name = identify(head)
    try:
        if name in ('MP4', 'QuickTime'):
            return (yield from _mp4(data, media_type, track))
        if media_type == 'video' or track:
            return None
        parse = _AUDIO_PARSERS.get(name)
        return None if parse is None else (yield from parse(data))
    except (struct.error, IndexError, ValueError, KeyError, OverflowError):
        return None  # Damaged: opening the file raises the error.


class _Bytes:
    """The known bytes of a file: its beginning, and the range that was read last."""

    def __init__(self, head: bytes, size: int) -> None:
        self.size = size
        self._parts = [(0, head)]
        self._ranges = 0

    def get(self, start: int, count: int) -> bytes | None:
        """Returns up to `count` bytes, fewer at the end of the file; None if they are not known."""
        count = min(count, self.size - start)
        if count <= 0:
            return b''
        for first, data in self._parts:
            if first <= start and start + count <= first + len(data):
                return data[start - first : start - first + count]
        return None

    def read(self, start: int, count: int, ahead: int = 0) -> Generator[tuple[int, int], bytes, bytes]:
        """Returns up to `count` bytes, and asks for them, and for bytes ahead, if they are not known.

        Raises:
            ValueError: The header needs too many bytes, or too many ranges.
        """
        known = self.get(start, count)
        if known is not None:
            return known
        stop = min(start + max(count, ahead), self.size)
        if self._ranges == MAX_RANGES or stop - start > MAX_HEADER_BYTES:
            raise ValueError('the header is scattered, or too large')
        self._ranges += 1
        data = yield start, stop
        self._parts = [self._parts[0], (start, data)]
        return data[:count]


def _flac(data: _Bytes) -> Parser:
    head = yield from data.read(0, HEAD_BYTES)
    if FILE_START.match(head) is None:
        return None
    elements, rates = parse_heads(np.frombuffer(head.ljust(HEAD_BYTES, b'\0'), np.uint8)[None])
    return recording(int(elements[0]), int(rates[0])) if elements[0] != UNKNOWN else None


def _wav(data: _Bytes) -> Parser:
    """Visits the chunks up to the samples, like `find_samples`."""
    riff, riff_size = struct.unpack('<4sI', (yield from data.read(0, 8)))
    form: tuple[Any, ...] | None = None
    long_size, start = None, 12
    for _ in range(MAX_BOXES):
        if start + 8 > data.size:
            return None
        head = yield from data.read(start, 48, NEXT_BYTES)
        chunk, size = struct.unpack_from('<4sI', head)
        start += 8
        if chunk == b'ds64' and riff == b'RF64':
            (long_size,) = struct.unpack_from('<Q', head, 16)
        elif chunk == b'fmt ':
            form = struct.unpack_from('<HHIIHH', head, 8)
            if form[0] == 0xFFFE and size >= 26:
                form = (*struct.unpack_from('<H', head, 32), *form[1:])
        elif chunk == b'data':
            if form is None:
                return None
            if size == 0xFFFFFFFF:
                size = data.size - start if long_size is None else long_size
            elif not size:
                if 8 + riff_size > start:
                    return None  # The file may have no samples, or a header that was not completed.
                size = data.size - start
            _, rate = samples_of(memoryview(b''), *form)
            return recording(size // form[4], rate) if size < 1 << 62 else None
        start += size + size % 2
    return None


def _ogg(data: _Bytes) -> Parser:
    """Reads the first pages, and the last one."""
    pages = [(yield from _page(data, 0))]
    while len(pages) < MAX_BOXES and pages[-1].end < data.size:
        if data.get(pages[-1].end, 27 + 255) is None:
            break
        pages.append((yield from _page(data, pages[-1].end)))
    first = pages[0]
    head = yield from data.read(first.body, 32)
    if not first.begins or any(page.begins or page.serial != first.serial for page in pages[1:]):
        return None  # Several streams.
    is_opus = head.startswith(b'OpusHead')
    audio, start = _audio_page(pages, 2 if is_opus else 3)
    guess = NEXT_BYTES if audio is None else min(max(NEXT_BYTES, audio.end - audio.start), MAX_PAGE_BYTES)
    last = yield from _last_page(data, guess)
    if last is None or last.serial != first.serial or last.granule < 0:
        return None
    if is_opus:
        rate, skip = 48_000, int.from_bytes(head[10:12], 'little')
        if not _is_usual_opus(data, audio, last):
            return None
    elif head.startswith(b'\x01vorbis'):
        rate, skip = int.from_bytes(head[12:16], 'little'), 0
        overlap = 1 << (head[28] >> 4) >> 1  # The most samples of a packet.
        if audio is not None and audio.granule > audio.packets * overlap:
            return None  # It begins later: it was cut from another file.
        if last.start == start or (start is None and last.granule <= MAX_PAGE_PACKETS * overlap):
            return None  # libavformat drops no samples at the end of the first page.
    else:
        return None
    samples = last.granule - skip
    return recording(samples, rate) if samples > 0 and rate else None


class _Page(NamedTuple):
    """A page of Ogg."""

    start: int
    body: int
    end: int
    """Offsets of the page, of its packets, and of its end."""
    granule: int
    """The number of samples up to the end of the last packet that ends in the page; -1 without one."""
    serial: int
    continues: bool
    """Whether the page begins with the rest of a packet."""
    begins: bool
    """Whether a stream begins with the page."""
    ends: bool
    """Whether the stream ends with the page."""
    lengths: bytes
    """The lengths of the segments of its packets. A packet ends with a segment shorter than 255 bytes."""

    @property
    def packets(self) -> int:
        """The number of packets that end in the page."""
        return len(self.lengths) - self.lengths.count(255)


def _page(data: _Bytes, start: int) -> Generator[tuple[int, int], bytes, _Page]:
    return _parse_page((yield from data.read(start, 27 + 255, NEXT_BYTES)), start)


def _parse_page(head: bytes, start: int) -> _Page:
    magic, _, flags, granule, serial, _, _, count = struct.unpack_from('<4sBBqIIIB', head)
    lengths = head[27 : 27 + count]
    if magic != b'OggS' or len(lengths) < count:
        raise ValueError('expected a page of Ogg')
    body = start + 27 + count
    continues, begins, ends = (bool(flags & bit) for bit in (1, 2, 4))
    return _Page(start, body, body + sum(lengths), granule, serial, continues, begins, ends, lengths)


def _audio_page(pages: list[_Page], headers: int) -> tuple[_Page | None, int | None]:
    """Returns the first page after that many packets of headers, and its offset; None if unknown."""
    start = None
    for page in pages:
        if headers <= 0:
            return page, page.start
        headers -= page.packets
        start = page.end if headers <= 0 else None
    return None, start


def _last_page(data: _Bytes, guess: int) -> Generator[tuple[int, int], bytes, _Page | None]:
    """Returns the page that ends at the end of the file; None if there is none."""
    for count in (guess, MAX_PAGE_BYTES):
        start = max(0, data.size - count)
        tail = yield from data.read(start, count)
        offset = len(tail)
        while (offset := tail.rfind(b'OggS', 0, offset)) >= 0:
            try:
                page = _parse_page(tail[offset : offset + 27 + 255], start + offset)
            except (ValueError, struct.error):
                continue
            if page.end == data.size:
                return page
        if not start:
            break
    return None


_EQUAL = re.compile(rb'stsz....(?!\0\0\0\0)....(....)', re.DOTALL)
"""Matches the number of samples of a track whose samples have one size, which no table limits."""

_OPUS_FRAMES = (
    *((480, 960, 1920, 2880) * 3), *((480, 960) * 2), *((120, 240, 480, 960) * 4),
)  # fmt: skip
"""Samples of a frame of Opus, by the five first bits of a packet (RFC 6716)."""


def _is_usual_opus(data: _Bytes, first: _Page | None, last: _Page) -> bool:
    """Returns whether the last page tells the number of samples.

    It does not if the first page with audio has more or fewer samples than its number says, as in a part of a
    stream. Nor if few samples are dropped at the end of speech: its decoder holds some back.

    Args:
        data: The file.
        first: The first page with audio; None if it is not known, and then assumed to begin at 0.
        last: The last page.
    """
    page = last if first is None else first
    if page.continues:
        return False
    offset, samples, length, is_speech, is_start = page.body, 0, 0, False, True
    for size in page.lengths:
        if is_start:
            head = data.get(offset, 2)
            if head:  # Where only the beginning of the page is known, the rest is assumed to be like it.
                frames = (1, 2, 2, head[-1] & 63)[head[0] & 3]
                length, is_speech = _OPUS_FRAMES[head[0] >> 3] * frames, is_speech or head[0] < 128
        offset += size
        is_start = size < 255
        if is_start:
            samples += length
    if not length:
        return False
    if first is not None and first.granule != samples and not (first.ends and first.granule < samples):
        return False
    dropped = -last.granule % length
    is_one_packet = last.packets == 1 and (first is None or first.ends)
    return not (is_speech and dropped and (dropped <= MAX_DELAY['opus'] or is_one_packet))


_MP3_RATES = (44_100, 48_000, 32_000)
_MP3_DELAY = 529
"""Samples by which decoders of MP3 are late."""
_WITH_DELAY = (b'LAME', b'Lavf', b'Lavc')
"""Encoders whose header states the delay and the padding."""


def _mp3(data: _Bytes) -> Parser:
    """Reads the header of the first frame, as libavformat does: it has no samples itself."""
    start = 0
    for _ in range(MAX_BOXES):
        tag = yield from data.read(start, 10, NEXT_BYTES)
        if tag[:3] != b'ID3':
            break
        size = sum((byte & 0x7F) << shift for byte, shift in zip(tag[6:10], (21, 14, 7, 0), strict=True))
        start += 10 + size + 10 * bool(tag[5] & 0x10)
    frame = yield from data.read(start, 256, NEXT_BYTES)
    (head,) = struct.unpack_from('>I', frame)
    version, layer, code = head >> 19 & 3, head >> 17 & 3, head >> 10 & 3
    if head >> 21 != 0x7FF or version == 1 or layer != 1 or code == 3 or head >> 12 & 15 in (0, 15):
        return None
    rate = _MP3_RATES[code] >> {3: 0, 2: 1, 0: 2}[version]
    samples = 1152 if version == 3 else 576
    is_mono = head >> 6 & 3 == 3
    offset = 4 + ((17 if is_mono else 32) if version == 3 else (9 if is_mono else 17))
    if frame[offset : offset + 4] in (b'Xing', b'Info'):
        (flags,) = struct.unpack_from('>I', frame, offset + 4)
        if not flags & 1:
            return None
        (count,) = struct.unpack_from('>I', frame, offset + 8)
        offset += 8 + sum(size for bit, size in ((1, 4), (2, 4), (4, 100), (8, 4)) if flags & bit)
        length = count * samples
        if frame[offset : offset + 4] in _WITH_DELAY:
            delays = int.from_bytes(frame[offset + 21 : offset + 24], 'big')
            length -= (delays >> 12) + _MP3_DELAY + max(0, (delays & 0xFFF) - _MP3_DELAY)
    elif frame[36:40] == b'VBRI':
        length = struct.unpack_from('>I', frame, 50)[0] * samples
    else:
        return None
    return recording(length, rate) if length > 0 else None


def _mp4(data: _Bytes, media_type: str, index: int | None) -> Parser:
    """Finds the moov box. After the frames it is usually the last box: the rest of the file is read."""
    start, box_type = 0, b''
    for _ in range(MAX_BOXES):
        if start + 8 > data.size:
            return None
        rest = data.size - start
        is_near = box_type == b'mdat' and rest <= MAX_HEADER_BYTES
        head = yield from data.read(start, 16, rest if is_near else NEXT_BYTES)
        box_type, header, length = box_header(head.ljust(16, b'\0'), 0, rest)
        if length < header or start + length > data.size:
            return None
        if box_type == b'moov':
            moov = (yield from data.read(start, length))[header:]
            if any(int.from_bytes(found[1], 'big') > MAX_EQUAL_SAMPLES for found in _EQUAL.finditer(moov)):
                return None
            track = find_track(moov, HANDLERS[media_type], index)
            if track is None or track.codec not in PLAIN_CODECS or not len(track.table.sizes):
                return None
            return _video_track(track) if media_type == 'video' else _audio_track(track, moov)
        start += length
    return None


def _video_track(track: Mp4Track) -> Header | None:
    """Returns the length of a video; None if only decoding tells which packets are frames.

    The times of packets may be those of decoding. They are the same times in another order, except for the
    duration of the frame that is presented last.
    """
    table = track.table
    if track.codec == b'mp4v' and int(table.sizes.min()) <= MAX_SKIPPED_VOP_BYTES:
        return None
    timeline = make_timeline(replace(table, shown=table.shown & (table.sizes > 0)))
    if not len(timeline) or timeline.count_doubtful() or not np.diff(timeline.ticks).all():
        return None
    ends = slice(-MAX_REORDERED - 1, None)
    in_order = bool((np.diff(table.times[ends]) > 0).all())
    if in_order and (table.durations[ends] != table.durations[-1]).any() and _may_reorder(track):
        return None
    return video(timeline)


def _may_reorder(track: Mp4Track) -> bool:
    """Returns whether the frames of a track may be in another order than its packets, by its header."""
    if track.codec in (b'avc1', b'avc3'):
        start = track.header.find(b'avcC')
        return start < 0 or may_reorder('h264', track.header[start + 4 :])
    return track.codec in (b'hvc1', b'hev1', b'mp4v')


def _audio_track(track: Mp4Track, moov: bytes) -> Header | None:
    """Returns the length of a recording; None if only decoding tells the samples of its packets.

    The samples before the edit are dropped, and the last packet of the edit is presented to its end.
    """
    table, scale = track.table, track.table.time_base[1]
    begin, first, length = track.edit or (0, 0, 0)
    times, durations = table.times - begin + first, table.durations  # As in `demux`.
    if (np.diff(times) != durations[:-1]).any() or int(table.sizes.min()) <= 0 or b'iTunSMPB' in moov:
        return None
    if first >= scale:
        return None  # libavformat seeks.
    lengths = durations
    if track.codec == b'mp4a':
        lengths = np.full(len(times), AAC_FRAME)
        if (durations[:-1] != AAC_FRAME).any():
            return None
    rate = _rate_of(track)
    if rate is None or rate != scale:
        return None
    stop = int(np.searchsorted(times, first + length, 'left')) if length else len(times)
    ends = np.cumsum(lengths)
    samples = int(ends[stop - 1]) - first if stop else 0
    return recording(samples, rate) if samples > 0 else None


def _rate_of(track: Mp4Track) -> int | None:
    """Returns the sample rate of the decoder of a track, by the header of the codec; None if unknown.

    Opus is unknown: libavformat does not drop the samples at the end of its last packet.
    """
    header = track.header
    if track.codec == b'mp4a':
        return _aac_rate(header)
    if track.codec == b'fLaC':
        start = header.find(b'dfLa') + 12  # After the version and the header of the stream info.
        return int.from_bytes(header[start + 10 : start + 14], 'big') >> 12
    if track.codec == b'alac':
        start = header.find(b'alac', header.find(b'alac') + 4) + 8
        return int.from_bytes(header[start + 20 : start + 24], 'big')
    return None


def _aac_rate(header: bytes) -> int | None:
    """Returns the rate in the header of AAC; None if the decoder may double it, or frames are not usual."""
    start = header.find(b'esds') + 8
    config = b''
    while start < len(header):
        tag, size, start = _descriptor(header, start)
        if tag == 3:
            start += 3  # The number of the stream, and flags, which are 0 in MP4.
        elif tag == 4:
            if header[start] != 0x40:
                return None
            start += 13
        else:
            config = header[start : start + size] if tag == 5 else b''
            break
    bits, count = int.from_bytes(config, 'big'), 8 * len(config)

    def field(position: int, width: int) -> int:
        if position + width > count:
            return -1
        return bits >> (count - position - width) & ((1 << width) - 1)

    code = field(5, 4)
    if field(0, 5) != 2 or not 0 <= code < len(_AAC_RATES) or field(13, 1):
        return None  # Another profile, or frames of 960 samples.
    rate, is_marked = _AAC_RATES[code], field(16, 11) == 0x2B7
    if is_marked and field(32, 1):
        return None
    return rate if is_marked or rate > MAX_IMPLICIT_RATE else None


_AAC_RATES = (
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350,
)  # fmt: skip


def _descriptor(data: bytes, start: int) -> tuple[int, int, int]:
    """Returns the tag and the size of a descriptor of MPEG-4, and the offset of its content."""
    tag, size = data[start], 0
    for offset in range(start + 1, start + 5):
        size = size << 7 | data[offset] & 0x7F
        if not data[offset] & 0x80:
            break
    return tag, size, offset + 1


_AUDIO_PARSERS = {
    'FLAC': _flac, 'WAV': _wav, 'RF64': _wav, 'Ogg Opus': _ogg, 'Ogg': _ogg, 'MP3': _mp3,
}  # fmt: skip
