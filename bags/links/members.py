"""The names of the members of tars and zips to which links refer."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable

BLOCK = tarfile.BLOCKSIZE
LOCAL_HEADER = b'PK\x03\x04'
MAX_HEADER_BYTES = 4096
"""Maximum bytes before a member of a zip that are read to find its header."""
UTF8_FLAG = 1 << 11


def member_name(path: str, start: int, read: Callable[[int, int], bytes]) -> str:
    """Returns the name of the member of a tar or zip whose data begin at `start`; empty if there is none.

    Args:
        path: The path of the file.
        start: The offset of the data.
        read: Returns the bytes of the file from an offset to another.
    """
    if path.lower().endswith('.tar'):
        return _name_in_tar(start, read)
    return _name_in_zip(start, read) if path.lower().endswith('.zip') else ''


def _name_in_tar(start: int, read: Callable[[int, int], bytes]) -> str:
    for size in (3 * BLOCK, BLOCK):  # A long name has a header of its own, before the header of the member.
        if size <= start and start % BLOCK == 0:
            try:
                with tarfile.open(fileobj=io.BytesIO(read(start - size, start)), mode='r:') as tar:
                    member = tar.next()
            except tarfile.TarError:
                continue
            if member is not None and member.offset_data == size:
                return member.name
    return ''


def _name_in_zip(start: int, read: Callable[[int, int], bytes]) -> str:
    data = read(max(0, start - MAX_HEADER_BYTES), start)
    at = data.rfind(LOCAL_HEADER)
    while at >= 0:
        if at + 30 <= len(data):
            flags, name_size, extra_size = (
                *struct.unpack_from('<H', data, at + 6),
                *struct.unpack_from('<HH', data, at + 26),
            )
            if at + 30 + name_size + extra_size == len(data):
                encoding = 'utf-8' if flags & UTF8_FLAG else 'cp437'
                return data[at + 30 : at + 30 + name_size].decode(encoding, 'replace')
        at = data.rfind(LOCAL_HEADER, 0, at)
    return ''
