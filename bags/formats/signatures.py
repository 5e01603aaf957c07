"""What the bytes of a media file are, by their first few, and whether they are all there, by their structure.

Decoders are lenient: one that runs out of bytes may hand out fewer frames, or grey, and call it success. Most
formats say how long they are, so a file that was cut off is known before it is decoded.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from bags.formats.scalars import Buffer

__all__ = ['HEAD', 'START', 'check_whole', 'identify']

HEAD = 512
"""As many bytes of a file, from its start, as `identify` wants to see."""

_STARTS = {
    b'\xff\xd8\xff': 'JPEG',
    b'\x89PNG\r\n\x1a\n': 'PNG',
    b'fLaC': 'FLAC',
    b'GIF8': 'GIF',
    b'BM': 'BMP',
    b'II*\0': 'TIFF',
    b'MM\0*': 'TIFF',
    b'\xff\x0a': 'JPEG XL',
    b'\0\0\0\x0cJXL ': 'JPEG XL',
    b'\0\0\0\x0cjP  ': 'JPEG 2000',
    b'ID3': 'MP3',
    **dict.fromkeys((b'\xff\xfb', b'\xff\xfa', b'\xff\xf3', b'\xff\xf2', b'\xff\xe3', b'\xff\xe2'), 'MP3'),
    b'\xff\xf1': 'AAC',
    b'\xff\xf9': 'AAC',
    b'RF64': 'RF64',
    b'FLV': 'FLV',
    b'\x28\xb5\x2f\xfd': 'zstd',
    b'%PDF': 'PDF',
}
START = {name: start for start, name in _STARTS.items()}
"""What files of a format begin with, or some of them, and no others."""
_RIFF = {b'WEBP': 'WebP', b'WAVE': 'WAV', b'AVI ': 'AVI'}
_ATOMS = {b'moov', b'mdat', b'wide', b'free', b'skip', b'pnot'}
"""What QuickTime files begin with that are older than `ftyp`."""
_EBML = b'\x1a\x45\xdf\xa3'
_SEGMENT = b'\x18\x53\x80\x67'
_CLUSTER = b'\x1f\x43\xb6\x75'
# Seek head, info, tracks, cues, tags, chapters, attachments.
_WITH_CHECKSUM = {
    _CLUSTER,
    *map(bytes.fromhex, ('114d9b74', '1549a966', '1654ae6b', '1c53bb6b', '1254c367', '1043a770', '1941a469')),
}
_KNOWN = {
    _EBML,
    _SEGMENT,
    *_WITH_CHECKSUM,
    # Void, checksum; in clusters: timestamp, silent tracks, position, previous size, blocks of three kinds.
    *map(bytes.fromhex, ('ec', 'bf', 'e7', '5854', 'a7', 'ab', 'a3', 'a0', 'af')),
}


def identify(head: Buffer) -> str:
    """Names the format that a file begins like.

    Args:
        head: The first `HEAD` bytes of it, or all if it has fewer.

    Returns:
        Such as `JPEG`, `MP4` or `Ogg Opus`; if it is not known, what it begins with.
    """
    head = bytes(head[:HEAD])
    for start, name in _STARTS.items():
        if head.startswith(start):
            return name
    if head.startswith(b'RIFF'):
        return _RIFF.get(head[8:12], 'RIFF')
    if head.startswith(_EBML):
        return 'WebM' if b'\x42\x82\x84webm' in head else 'Matroska'
    if head[4:8] == b'ftyp':
        return _identify_boxes(head)
    if head[4:8] in _ATOMS:
        return 'QuickTime'
    if head.startswith(b'OggS'):
        return 'Ogg Opus' if b'OpusHead' in head else 'Ogg'
    return f'bytes that begin with {head[:8].hex(" ")}' if head else 'no bytes'


def _identify_boxes(head: bytes) -> str:
    size = int.from_bytes(head[:4], 'big')
    brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(size, len(head)) - 3, 4))}
    if brands & {b'avif', b'avis'}:
        return 'AVIF'
    if brands & {b'heic', b'heix', b'hevc', b'mif1', b'msf1'}:
        return 'HEIF'
    return 'QuickTime' if head[8:12] == b'qt  ' else 'MP4'


def check_whole(data: Buffer, name: str) -> None:
    """Raises ValueError if the structure of a file shows that bytes of it are missing.

    What a format does not say cannot be seen: JPEG and FLAC are left to their decoders, and a Matroska or MP4
    file that was written to a pipe may end anywhere between its parts.

    Args:
        data: The whole file.
        name: The format, as `identify` names it.
    """
    check = _CHECKS.get(name)
    if check is not None:
        try:
            check(memoryview(data))
        except (struct.error, IndexError, RecursionError):
            raise ValueError(f'{name} is cut off after {len(data)} bytes') from None


def _check_png(data: memoryview) -> None:
    """Walks the chunks to IEND. Each has a checksum, so this sees any damage, at 3 GB/s."""
    start, kind = 8, b''
    while kind != b'IEND':
        length, kind = struct.unpack_from('>I4s', data, start)
        (checksum,) = struct.unpack_from('>I', data, start + 8 + length)
        if zlib.crc32(data[start + 4 : start + 8 + length]) != checksum:
            raise ValueError(f'PNG chunk {kind!r} at byte {start} does not match its checksum')
        start += 12 + length


def _check_riff(data: memoryview) -> None:
    (size,) = struct.unpack_from('<I', data, 4)
    if 8 + size > len(data):
        raise struct.error


def _check_boxes(data: memoryview) -> None:
    """Walks the outermost boxes: `size kind`, with a size of 1 before one of 64 bits and 0 for the rest of
    the file.
    """
    start = 0
    while start < len(data):
        size, _ = struct.unpack_from('>I4s', data, start)
        if size == 1:
            (size,) = struct.unpack_from('>Q', data, start + 8)
        elif size == 0:
            return
        if size < 8 or start + size > len(data):
            raise struct.error
        start += size


def _check_ebml(data: memoryview) -> None:
    """Walks the elements of the file, and those of its segment and clusters, which hold the frames.

    Each must be known, since a reader skips a cluster whose name is damaged, and end where its parent does or
    before. Those that begin with a checksum must match it: in Matroska all do, in WebM none.
    """
    _check_elements(data, 0, len(data))


def _check_elements(data: memoryview, start: int, stop: int) -> None:
    while start < stop:
        width = 9 - data[start].bit_length()
        kind = bytes(data[start : start + width])
        size, body = _ebml_size(data, start + width)
        end = body + size
        if kind in (_SEGMENT, _CLUSTER) and size + 1 == 1 << 7 * (body - start - width):
            end = body  # Written to a pipe, before its size was known: what is in it follows.
        if end > stop:
            raise struct.error
        if kind not in _KNOWN:
            raise ValueError(f'expected an element of Matroska at byte {start}, got {kind.hex(" ")}')
        if kind in _WITH_CHECKSUM and bytes(data[body : body + 2]) == b'\xbf\x84':
            checksum = int.from_bytes(data[body + 2 : body + 6], 'little')
            if zlib.crc32(data[body + 6 : end]) != checksum:
                raise ValueError(f'Matroska element at byte {start} does not match its checksum')
        if kind in (_SEGMENT, _CLUSTER):
            _check_elements(data, body, end)
        start = end


def _ebml_size(data: memoryview, start: int) -> tuple[int, int]:
    """Reads a number whose leading zero bits say how many bytes it has; returns it and where it ends."""
    width = 9 - data[start].bit_length()
    if width > 8 or start + width > len(data):
        raise struct.error
    return int.from_bytes(data[start : start + width], 'big') ^ 1 << 7 * width, start + width


def _check_ogg(data: memoryview) -> None:
    """Walks the pages: each lists the lengths of its segments, and the last of a stream has the flag 4."""
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
    if not flags & 4:
        raise struct.error


def _ogg_checksum(*parts: Buffer) -> int:
    """Ogg's CRC-32 is zlib's with all bits in the other order, and without the inversions before and
    after.
    """
    value = 0xFFFFFFFF
    for part in parts:
        value = zlib.crc32(bytes(part).translate(_MIRRORED), value)
    return int(f'{value ^ 0xFFFFFFFF:032b}'[::-1], 2)


_MIRRORED = bytes(int(f'{byte:08b}'[::-1], 2) for byte in range(256))

_CHECKS: dict[str, Callable[[memoryview], None]] = {
    'PNG': _check_png,
    'WebP': _check_riff,
    'AVIF': _check_boxes,
    'MP4': _check_boxes,
    'WebM': _check_ebml,
    'Matroska': _check_ebml,
    'Ogg Opus': _check_ogg,
}
