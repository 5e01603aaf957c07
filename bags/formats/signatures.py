"""Detects the format of a media file from its first bytes, and truncation from its structure.

Decoders are lenient: at the end of a truncated file they may return fewer frames, or grey frames, without an
error. Most formats store their length, so truncation is detected before decoding.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

from bags.formats.flac import check_frames
from bags.formats.mp3 import check_one_file
from bags.formats.scalars import Buffer, Sliceable
from bags.storage.base import A_LFS_POINTER, LFS_POINTER, SeekableFile

SIGNATURE_BYTES = 512
"""Number of bytes from the start of a file that `identify` needs."""


_EBML = b'\x1a\x45\xdf\xa3'
_SEGMENT = b'\x18\x53\x80\x67'
_CLUSTER = b'\x1f\x43\xb6\x75'

SIGNATURES = {
    'JPEG': rb'\xff\xd8\xff',
    'PNG': rb'\x89PNG\r\n\x1a\n',
    'FLAC': rb'fLaC',
    'GIF': rb'GIF8',
    'BMP': rb'BM',
    'TIFF': rb'II\*\0|MM\0\*',
    'JPEG XL': rb'\xff\x0a|\0\0\0\x0cJXL ',
    'JPEG 2000': rb'\0\0\0\x0cjP  ',
    'MP3': rb'ID3|\xff[\xfb\xfa\xf3\xf2\xe3\xe2]',
    'AAC': rb'\xff[\xf1\xf9]',
    'RF64': rb'RF64',
    'FLV': rb'FLV',
    'MPEG-PS': rb'\0\0\x01\xba',
    'MPEG video': rb'\0\0\x01\xb3',  # Without a container.
    'ASF': rb'\x30\x26\xb2\x75\x8e\x66\xcf\x11',  # WMV and WMA.
    'AIFF': rb'FORM....AIF[FC]',
    'AU': rb'\.snd',
    'MPEG-TS': rb'\x47.{187}\x47',  # Packets of 188 bytes.
    'M2TS': rb'....\x47.{191}\x47',  # The same packets, each after a time of 4 bytes.
    'zstd': rb'\x28\xb5\x2f\xfd',
    'PDF': rb'%PDF',
    'WebP': rb'RIFF....WEBP',
    'WAV': rb'RIFF....WAVE',
    'AVI': rb'RIFF....AVI ',
    'RIFF': rb'RIFF',
    'Matroska': rb'\x1a\x45\xdf\xa3',
    'WebM': rb'\x1a\x45\xdf\xa3',
    'MP4': rb'....ftyp',
    'AVIF': rb'....ftyp',
    'HEIF': rb'....ftyp',
    # QuickTime files older than `ftyp` begin with another of these.
    'QuickTime': rb'....(?:ftyp|moov|mdat|wide|free|skip|pnot)',
    'Ogg Opus': rb'OggS',
    'Ogg': rb'OggS',
}
"""The magic bytes of each format, as a regular expression for `starts_with`.

Formats that share a container (Matroska and WebM; MP4, AVIF and others; Ogg) also share the magic bytes:
`identify` reads further.
"""

_FORMAT_NAMES = (*SIGNATURES,)
_ANY_SIGNATURE = re.compile(b'|'.join(b'(%b)' % pattern for pattern in SIGNATURES.values()), re.DOTALL)
"""Matches all magic bytes. The number of the matching group is the number of the format."""

EXTENSION_OF_FORMAT = {
    'JPEG': 'jpg', 'PNG': 'png', 'WebP': 'webp', 'AVIF': 'avif', 'GIF': 'gif', 'BMP': 'bmp', 'TIFF': 'tif',
    'HEIF': 'heic', 'JPEG XL': 'jxl', 'JPEG 2000': 'jp2', 'MP4': 'mp4', 'QuickTime': 'mov', 'WebM': 'webm',
    'Matroska': 'mkv', 'AVI': 'avi', 'MPEG-TS': 'ts', 'M2TS': 'm2ts', 'FLV': 'flv', 'MPEG-PS': 'mpg',
    'MPEG video': 'mpg', 'ASF': 'wmv', 'WAV': 'wav', 'RF64': 'wav', 'FLAC': 'flac', 'Ogg Opus': 'opus',
    'Ogg': 'ogg', 'MP3': 'mp3', 'AAC': 'aac', 'AIFF': 'aiff', 'AU': 'au', 'PDF': 'pdf',
}  # fmt: skip
"""The usual file name extension of each format."""

FORMAT_OF_TYPE = {
    'jpeg': 'JPEG', 'jpg': 'JPEG', 'png': 'PNG', 'webp': 'WebP', 'avif': 'AVIF', 'mp4': 'MP4', 'webm': 'WebM',
    'mkv': 'Matroska', 'wav': 'WAV', 'flac': 'FLAC', 'opus': 'Ogg Opus',
}  # fmt: skip
"""Maps types to the format of their records, for types with a single format."""

IMAGES = ('JPEG', 'PNG', 'WebP', 'AVIF', 'GIF', 'BMP', 'TIFF')
"""The formats of the type `image`."""

DEMUXERS = {
    'MP4': 'mp4', 'QuickTime': 'mov', 'Matroska': 'matroska', 'WebM': 'matroska', 'AVI': 'avi', 'WAV': 'wav',
    'RF64': 'wav', 'FLAC': 'flac', 'Ogg': 'ogg', 'Ogg Opus': 'ogg', 'MP3': 'mp3', 'AAC': 'aac',
    'MPEG-TS': 'mpegts', 'M2TS': 'mpegts', 'GIF': 'gif', 'FLV': 'flv', 'MPEG-PS': 'mpeg',
    'MPEG video': 'mpegvideo', 'ASF': 'asf', 'AIFF': 'aiff', 'AU': 'au',
}  # fmt: skip
"""The libavformat demuxer of each video and audio format. It is always passed explicitly: probing could
detect a playlist, and open the files and URLs in it."""

# Elements of Matroska: seek head, info, tracks, cues, tags, chapters, attachments.
_WITH_CHECKSUM = {
    _CLUSTER,
    *map(bytes.fromhex, ('114d9b74', '1549a966', '1654ae6b', '1c53bb6b', '1254c367', '1043a770', '1941a469')),
}
_ELEMENTS = {
    _EBML,
    _SEGMENT,
    *_WITH_CHECKSUM,
    # Void, checksum; in clusters: timestamp, silent tracks, position, previous size, blocks of three types.
    *map(bytes.fromhex, ('ec', 'bf', 'e7', '5854', 'a7', 'ab', 'a3', 'a0', 'af')),
}


def identify(head: Buffer) -> str:
    """Returns the format of a file, given its first `SIGNATURE_BYTES` bytes.

    Returns:
        A name in `SIGNATURES`, such as `JPEG`, `MP4` or `Ogg Opus`; for an unknown format, a description of
        its first bytes.
    """
    head = bytes(head[:SIGNATURE_BYTES])
    if (match := _ANY_SIGNATURE.match(head)) is not None:
        return _refined(_FORMAT_NAMES[(match.lastindex or 1) - 1], head)
    if head.startswith(LFS_POINTER):
        return A_LFS_POINTER
    return f'bytes that begin with {head[:8].hex(" ")}' if head else 'no bytes'


def identify_file(file: SeekableFile) -> str:
    """Returns the format of an open file, from its position on. Keeps the position."""
    start = file.tell()
    name = identify(file.read(SIGNATURE_BYTES))
    file.seek(start)
    return name


def starts_with(head: Buffer, name: str) -> bool:
    """Returns whether a file begins with the magic bytes of a format in `SIGNATURES`."""
    return re.match(SIGNATURES[name], head, re.DOTALL) is not None


def _refined(name: str, head: bytes) -> str:
    """Returns the name of the format, for formats that share a container."""
    if name == 'Matroska' and b'\x42\x82\x84webm' in head:
        return 'WebM'
    if name == 'Ogg Opus' and b'OpusHead' not in head:
        return 'Ogg'
    if name == 'MP4':
        size = int.from_bytes(head[:4], 'big')
        brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(size, len(head)) - 3, 4))}
        if brands & {b'avif', b'avis'}:
            return 'AVIF'
        if brands & {b'heic', b'heix', b'hevc', b'mif1', b'msf1'}:
            return 'HEIF'
        if head[8:12] == b'qt  ':
            return 'QuickTime'
    return name


def check_whole(data: Buffer, name: str) -> None:
    """Raises ValueError if the structure of a file shows that it is truncated.

    JPEG and FLAC do not store their length: only their decoders detect truncation. A Matroska or MP4 file
    that was written to a pipe may end after any of its parts.
    """
    _check(memoryview(data), name, _CHECKS.get(name))


def check_end(data: Sliceable, name: str) -> None:
    """Raises ValueError if the headers of an image, MP4, QuickTime or FLAC file show that it is cut off.

    Also raises if several Ogg or MP3 files were concatenated, or if a FLAC was cut from a longer file by
    copying, since decoders disagree on the samples of such files.
    """
    _check(data, name, _END_CHECKS.get(name))


def _check(data: Sliceable, name: str, check: Callable[[Any], object] | None) -> None:
    if check is not None:
        try:
            check(data)
        except (struct.error, IndexError, RecursionError):
            raise ValueError(f'{name} is cut off after {len(data)} bytes') from None


def _check_png(data: Sliceable, *, verify: bool = True) -> None:
    """Checks the chunks up to IEND. Verifying their checksums detects any damage, at 3 GB/s."""
    start, chunk_type = 8, b''
    while chunk_type != b'IEND':
        length, chunk_type = struct.unpack('>I4s', data[start : start + 8])
        if start + 12 + length > len(data):
            raise struct.error
        checksum = int.from_bytes(data[start + 8 + length : start + 12 + length], 'big')
        if verify and zlib.crc32(data[start + 4 : start + 8 + length]) != checksum:
            raise ValueError(f'PNG chunk {chunk_type!r} at byte {start} does not match its checksum')
        start += 12 + length


def _check_jpeg(data: Sliceable) -> None:
    """Searches for the end of the image after its last scan, as thumbnails in earlier segments also end."""
    start = 2
    while re.match(rb'\xff[\xe0-\xef]', head := bytes(data[start : start + 4])):
        start += 2 + int.from_bytes(head[2:], 'big')
    if start + 2 > len(data) or bytes(data[-2:]) != b'\xff\xd9':
        scans = bytes(data[start:])  # Bytes may follow the image, such as zeros, or the video of a phone.
        if not 0 <= scans.rfind(b'\xff\xda') < scans.rfind(b'\xff\xd9'):
            raise struct.error


def _check_riff(data: Sliceable) -> None:
    (size,) = struct.unpack('<I', data[4:8])
    if 8 + size > len(data):
        raise struct.error


def _check_boxes(data: Sliceable) -> set[bytes]:
    """Checks the top-level boxes, and returns their types."""
    start, types = 0, set()
    while start + 8 <= len(data):  # Fewer bytes are not a box. Some programs append zeros.
        box_type, header, size = box_header(data[start : start + 16], 0, len(data) - start)
        if size < header or start + size > len(data):
            raise struct.error
        types.add(box_type)
        start += size
    return types


def _check_movie(data: Sliceable) -> None:
    if b'moov' not in _check_boxes(data):  # Many programs write `moov` last.
        raise ValueError('expected a header (moov) in the MP4, got none: the file was not completed')


def box_header(data: Buffer, start: int, rest: int) -> tuple[bytes, int, int]:
    """Returns the type of the MP4 box at `start`, the size of its header, and the size of the box.

    A size of 1 is followed by a size of 64 bits. A size of 0 means the `rest` of the file.
    """
    size, box_type = struct.unpack_from('>I4s', data, start)
    if size == 1:
        return box_type, 16, struct.unpack_from('>Q', data, start + 8)[0]
    return box_type, 8, size or rest


def _check_ebml(data: memoryview, start: int = 0, stop: int | None = None) -> None:
    """Checks the elements of the file, and of its segment and clusters, which contain the frames.

    Each element must be known, since demuxers skip a cluster with a damaged name, and must not exceed its
    parent. Elements that begin with a checksum must match it: in Matroska all do, in WebM none.
    """
    stop = len(data) if stop is None else stop
    while start < stop:
        width = 9 - data[start].bit_length()
        element = bytes(data[start : start + width])
        size, body = ebml_number(data, start + width)
        end = body + size
        if element in (_SEGMENT, _CLUSTER) and size + 1 == 1 << 7 * (body - start - width):
            end = body  # The size is unknown, as the file was written to a pipe. The children follow.
        if end > stop:
            raise struct.error
        if element not in _ELEMENTS:
            raise ValueError(f'expected an element of Matroska at byte {start}, got {element.hex(" ")}')
        if element in _WITH_CHECKSUM and bytes(data[body : body + 2]) == b'\xbf\x84':
            checksum = int.from_bytes(data[body + 2 : body + 6], 'little')
            if zlib.crc32(data[body + 6 : end]) != checksum:
                raise ValueError(f'Matroska element at byte {start} does not match its checksum')
        if element in (_SEGMENT, _CLUSTER):
            _check_ebml(data, body, end)
        start = end


def ebml_number(data: Buffer, start: int) -> tuple[int, int]:
    """Returns the EBML number at `start`, and its end. Its leading zero bits encode its number of bytes.

    Raises:
        IndexError, struct.error: The data ends before the number.
    """
    width = 9 - data[start].bit_length()
    if width > 8 or start + width > len(data):
        raise struct.error
    return int.from_bytes(data[start : start + width], 'big') ^ 1 << 7 * width, start + width


def _check_ogg(data: memoryview, *, has_end: bool = True) -> None:
    """Checks the pages. Each page lists the lengths of its segments, and the last of a stream has flag 4."""
    start, flags = 0, 0
    while start < len(data):
        capture, flags, checksum, count = struct.unpack_from('<4sxB16xIB', data, start)
        if capture != b'OggS':
            raise ValueError(f'Ogg page expected at byte {start}')
        lengths = data[start + 27 : start + 27 + count]
        stop = start + 27 + count + sum(lengths)
        if len(lengths) < count or stop > len(data):
            raise struct.error
        if _ogg_checksum(data[start : start + 22], bytes(4), data[start + 26 : stop]) != checksum:
            raise ValueError(f'Ogg page at byte {start} does not match its checksum')
        start = stop
    if has_end and not flags & 4:
        raise struct.error


def _check_one_chain(data: Sliceable) -> None:
    """Checks that pages with flag 2, with which streams begin, precede all other pages."""
    start, has_begun = 0, False
    while len(header := bytes(data[start : start + 282])) > 26 and header[:4] == b'OggS':
        begins = bool(header[5] & 2)
        if begins and has_begun:
            raise ValueError(
                f'Ogg is joined from several files: another begins at byte {start}, and decoders disagree on '
                'the samples; expected one file'
            )
        has_begun = has_begun or not begins
        start += 27 + header[26] + sum(header[27 : 27 + header[26]])


def _ogg_checksum(*parts: Buffer) -> int:
    """Returns the CRC-32 of Ogg.

    It is zlib's CRC-32 with the bits of each byte and of the result reversed, and without the inversions at
    the beginning and at the end.
    """
    value = 0xFFFFFFFF
    for part in parts:
        value = zlib.crc32(bytes(part).translate(_MIRRORED), value)
    return int(f'{value ^ 0xFFFFFFFF:032b}'[::-1], 2)


_MIRRORED = bytes(int(f'{byte:08b}'[::-1], 2) for byte in range(256))

_BOTH_CHECKS: dict[str, Callable[[Any], object]] = {
    'WebP': _check_riff, 'AVIF': _check_boxes, 'MP4': _check_movie, 'QuickTime': _check_movie,
}  # fmt: skip
_CHECKS: dict[str, Callable[[Any], object]] = {
    **_BOTH_CHECKS, 'PNG': _check_png, 'WebM': _check_ebml, 'Matroska': _check_ebml, 'Ogg Opus': _check_ogg,
    'Ogg': functools.partial(_check_ogg, has_end=False),
}  # fmt: skip
_END_CHECKS: dict[str, Callable[[Any], object]] = {
    **_BOTH_CHECKS, 'JPEG': _check_jpeg, 'PNG': functools.partial(_check_png, verify=False),
    'FLAC': check_frames, 'MP3': check_one_file, 'Ogg': _check_one_chain, 'Ogg Opus': _check_one_chain,
}  # fmt: skip
