"""Checks of zips that zipfile leaves out."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

_END = b'PK\x05\x06'
_END_BYTES = (1 << 16) + 22
"""Maximum bytes of the end of a zip, with a comment."""


def check_zip(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Compares the names of all files, at their start and in the directory, and their number.

    Raises:
        ValueError, zipfile.BadZipFile: The directory of the zip is damaged.
    """
    file.seek(max(0, file.seek(0, 2) - _END_BYTES))
    end = file.read()
    start = end.rfind(_END) + 10
    count, members = int.from_bytes(end[start : start + 2], 'little'), archive.infolist()
    if count not in (len(members), 0xFFFF):  # 65535 stands for a number that is stored elsewhere.
        raise ValueError(f'expected {count} files in the zip, got {len(members)}')
    for member in members:
        archive.open(member).close()
