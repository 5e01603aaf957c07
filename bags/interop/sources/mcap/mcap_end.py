"""The header of MCAP files, and the index at their end, which a recorder writes last. rosbags needs both.

The index is missing if the recorder lost power, and may be incomplete. https://mcap.dev/spec describes the
records.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from typing import Any, BinaryIO, NamedTuple

import zstandard

from bags.interop.sources.mcap.mcap_records import (
    ATTACHMENT,
    CHANNEL,
    CHUNK,
    CHUNK_INDEX,
    DATA_END,
    FOOTER,
    HEAD,
    HEADER,
    MAGIC,
    MESSAGE,
    MESSAGE_HEAD,
    READ_BYTES,
    SCHEMA,
    SCHEMAS,
    STATISTICS,
    McapChunk,
    make_head,
    make_record,
    parse_channel,
    read_attachment,
    read_chunk,
    read_chunk_head,
    walk,
)

_FOOTER = struct.Struct('<QQI')
MAX_CODE, MIN_PRIVATE_CODE = 15, 128
"""Record codes between these are not assigned."""
MIN_ZEROS = 64
"""Minimum number of zeros at the end of a file without index that are not data."""
_END_BYTES = HEAD.size + _FOOTER.size + len(MAGIC)


class Survey(NamedTuple):
    """The contents of an MCAP file."""

    size: int
    head: bytes
    """Replacement for the beginning of the file; empty if the file has the profile of ROS 2."""
    stop: int
    """Offset of the end of the data: the record for it, or the first incomplete record."""
    is_whole: bool
    """Whether the file has a record for the end of the data, so that no data are missing."""
    checksum: int
    """The CRC-32 of the data, or 0 if the recorder computed none."""
    messages: int
    """Number of messages; only with `end`."""
    attachments: list[str]
    """Names of attached files."""
    left_out: list[str]
    """Topics whose messages are not of ROS 2, with their encodings; only with `end`."""
    end: bytes | None
    """Replacement for the file from `stop` on; None if its own index lists all messages."""


def survey(file: BinaryIO) -> Survey:
    """Surveys an MCAP file, and verifies the checksums of attachments.

    Raises:
        ValueError: Not an MCAP file, or damaged before its end.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError('File magic is invalid: expected an MCAP file')
    file.seek(max(0, size - len(MAGIC)))
    has_magic = file.read() == MAGIC
    written = size if has_magic else _written(file, size)
    chunks: list[McapChunk] = []
    attachments, stop, is_whole, checksum = [], len(MAGIC), False, 0
    head, index = b'', _Index()
    for code, start, length in walk(file, len(MAGIC), written):
        if code in (DATA_END, FOOTER):
            is_whole = True
            checksum = int.from_bytes(file.read(4), 'little') if code == DATA_END else 0
            stop = start
            break
        if code == HEADER and start == len(MAGIC):
            head = make_head(file.read(length))
        elif code == CHUNK:
            chunks.append(read_chunk_head(file, start, length))
        elif code == ATTACHMENT:
            attachments.append(read_attachment(file, length))
        elif code in (SCHEMA, CHANNEL):
            index.add(code, file.read(length))
        elif code == MESSAGE:
            index.count(file.read(MESSAGE_HEAD.size))
        elif MAX_CODE < code < MIN_PRIVATE_CODE:
            raise ValueError(f'expected a record at byte {start}, got one of unknown code {code}')
        stop = start + HEAD.size + length
    if has_magic and not is_whole:
        raise ValueError(f'expected a record at byte {stop}, got other bytes')
    if is_whole and _lists_all(file, size, chunks):
        return Survey(size, head, stop, is_whole, checksum, 0, attachments, [], None)
    whole = 0
    for chunk in chunks:
        try:
            index.add_chunk(chunk, read_chunk(file, chunk))
        except (ValueError, struct.error, zstandard.ZstdError, RuntimeError) as exc:
            if is_whole:
                raise ValueError(f'chunk at byte {chunk.start}: {exc}') from exc
            stop = chunk.start
            break
        whole += 1
    del chunks[whole:]
    end = index.end(stop)
    return Survey(size, head, stop, is_whole, checksum, index.total, attachments, index.left_out, end)


def check_data(file: BinaryIO, found: Survey) -> None:
    """Reads all data, and verifies their checksum.

    Raises:
        ValueError: The checksum differs.
    """
    if not found.checksum:
        return
    file.seek(0)
    checksum, left = 0, found.stop
    while left and (block := file.read(min(READ_BYTES, left))):
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    if checksum != found.checksum:
        raise ValueError(f'expected data with CRC {found.checksum:08x}, got {checksum:08x}')


def with_ends(file: BinaryIO, found: Survey) -> BinaryIO:
    """Returns an MCAP file with the header and index that rosbags needs; `file` if it has both."""
    if found.end is None and not found.head:
        return file
    stop, end = (found.size, b'') if found.end is None else (found.stop, found.end)
    return io.BufferedReader(_JoinedFile(file, found.head, stop, end))


class _JoinedFile(io.RawIOBase):
    """A file whose beginning is replaced, and whose end after `stop` is replaced."""

    def __init__(self, file: BinaryIO, head: bytes, stop: int, end: bytes) -> None:
        self._file, self._head, self._stop, self._end, self._position = file, head, stop, end, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stop + len(self._end)}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast('B')
        if self._position < len(self._head):
            data = self._head[self._position : self._position + len(view)]
        elif self._position < self._stop:
            self._file.seek(self._position)
            data = self._file.read(min(len(view), self._stop - self._position))
        else:
            begin = self._position - self._stop
            data = self._end[begin : begin + len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Index:
    """The index for the end of a file."""

    def __init__(self) -> None:
        self.total = 0
        self.left_out: list[str] = []
        self._schemas: dict[int, bytes] = {}
        self._channels: dict[int, bytes] = {}
        self._chunks: list[bytes] = []
        self._counts: Counter[int] = Counter()
        self._times: list[int] = []

    def add(self, code: int, record: bytes) -> None:
        (number,) = struct.unpack_from('<H', record)
        (self._schemas if code == SCHEMA else self._channels).setdefault(number, record)

    def count(self, head: bytes) -> tuple[int, int]:
        channel, _, time, _ = MESSAGE_HEAD.unpack(head)
        self._counts[channel] += 1
        self.total += 1
        self._times = [min([time, *self._times]), max([time, *self._times])]
        return channel, time

    def add_chunk(self, chunk: McapChunk, content: bytes) -> None:
        """Adds a chunk; raises ValueError if a record in it is incomplete.

        rosbags derives the number of messages of a channel from the offsets of its message index, and never
        reads that index, so these offsets need not exist in the file.
        """
        counts: Counter[int] = Counter()
        times = []
        file = io.BytesIO(content)
        stop = 0
        for code, start, length in walk(file, 0, len(content)):
            stop = start + HEAD.size + length
            if code in (SCHEMA, CHANNEL):
                self.add(code, file.read(length))
            elif code == MESSAGE:
                channel, time = self.count(file.read(MESSAGE_HEAD.size))
                counts[channel] += 1
                times.append(time)
        if stop != len(content):
            raise ValueError(f'expected whole records up to byte {len(content)}, got records up to {stop}')
        offset = chunk.start + chunk.length
        offsets = b''
        for channel, count in counts.items():
            offsets += struct.pack('<HQ', channel, offset)
            offset += 15 + 16 * count
        codec = chunk.codec.encode()
        self._chunks.append(
            struct.pack('<QQQQ', min(times, default=0), max(times, default=0), chunk.start, chunk.length)
            + struct.pack('<I', len(offsets))
            + offsets
            + struct.pack('<QI', offset - chunk.start - chunk.length, len(codec))
            + codec
            + struct.pack('<QQ', chunk.stored, chunk.size)
        )

    def end(self, stop: int) -> bytes:
        """Returns the bytes that end a file whose data end at offset `stop`."""
        channels = {}
        for number, record in self._channels.items():
            topic, encoding, language = parse_channel(record, self._schemas)
            if encoding == 'cdr' and language in SCHEMAS:
                channels[number] = record
            else:
                self.left_out.append(f'{topic} ({encoding})')
        used = {struct.unpack_from('<H', record, 2)[0] for record in channels.values()}
        schemas = {number: record for number, record in self._schemas.items() if number in used}
        if not schemas:  # Without a schema, rosbags reads all messages.
            schemas = {1: struct.pack('<HIII', 1, 0, 0, 0)}
        counts = b''.join(struct.pack('<HQ', number, self._counts[number]) for number in channels)
        first, last = self._times or (0, 0)
        statistics = struct.pack(
            '<QHIIIIQQI', sum(map(self._counts.__getitem__, channels)), len(schemas), len(channels), 0, 0,
            len(self._chunks), first, last, len(counts),
        )  # fmt: skip
        data_end = make_record(DATA_END, bytes(4))
        return b''.join(
            [
                data_end,
                *(make_record(SCHEMA, record) for record in schemas.values()),
                *(make_record(CHANNEL, record) for record in channels.values()),
                *(make_record(CHUNK_INDEX, record) for record in self._chunks),
                make_record(STATISTICS, statistics + counts),
                make_record(FOOTER, _FOOTER.pack(stop + len(data_end), 0, 0)),
                MAGIC,
            ]
        )


def _written(file: BinaryIO, size: int) -> int:
    """Returns the end of the data in a truncated file: after a power cut, zeros may follow."""
    stop = size
    while stop:
        start = max(0, stop - READ_BYTES)
        file.seek(start)
        block = file.read(stop - start).rstrip(b'\0')
        stop = start + len(block)
        if block:
            break
    return stop if size - stop >= MIN_ZEROS else size


def _lists_all(file: BinaryIO, size: int, chunks: list[McapChunk]) -> bool:
    """Returns whether the index of a file lists all its chunks, and only messages of ROS.

    Raises:
        ValueError: The index lists a missing chunk.
    """
    file.seek(max(0, size - _END_BYTES))
    end = file.read()
    if len(end) < _END_BYTES or end[:9] != HEAD.pack(FOOTER, _FOOTER.size) or end[-len(MAGIC) :] != MAGIC:
        return False
    start, _, checksum = _FOOTER.unpack_from(end, HEAD.size)
    if not 0 < start <= size - _END_BYTES:
        return False
    file.seek(start)
    summary = file.read(size - len(MAGIC) - 4 - start)
    if checksum and zlib.crc32(summary) != checksum:
        return False
    content = io.BytesIO(summary)
    listed, has_statistics = set(), False
    schemas: dict[int, bytes] = {}
    channels = []
    for code, _, length in walk(content, 0, len(summary)):
        record = content.read(length)
        has_statistics |= code == STATISTICS
        if code == CHUNK_INDEX:
            begin, offsets = struct.unpack_from('<QQI', record, 16)[::2]
            if not offsets:
                return False  # rosbags treats a chunk without message index as empty.
            listed.add(begin)
        elif code == SCHEMA:
            schemas[struct.unpack_from('<H', record)[0]] = record
        elif code == CHANNEL:
            channels.append(record)
    starts = {chunk.start for chunk in chunks}
    if missing := sorted(listed - starts):
        raise ValueError(f'expected a chunk at byte {missing[0]}, as the index at the end says, got none')
    if not has_statistics or listed != starts:
        return False
    found = (parse_channel(record, schemas) for record in channels)
    return all(encoding == 'cdr' and language in SCHEMAS for _, encoding, language in found)
