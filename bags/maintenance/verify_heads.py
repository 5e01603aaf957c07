"""Whether media begin with the magic bytes of their format: many records at once, without decoding.

If a limit between two records is wrong, the second begins with the wrong bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.formats.signatures import SIGNATURES
from bags.indexing import Int64s

__all__ = ['HEADS', 'wrong_heads']

HEADS = {
    'jpeg': ('JPEG',), 'jpg': ('JPEG',), 'png': ('PNG',), 'webp': ('WebP',), 'avif': ('AVIF',),
    'mp4': ('MP4',), 'webm': ('WebM',), 'mkv': ('Matroska',),
    'wav': ('WAV', 'RF64'), 'flac': ('FLAC',), 'opus': ('Ogg Opus',),
}  # fmt: skip
"""The formats of the records of each type."""


def wrong_heads(word: str, buffer: Any, starts: Int64s, stops: Int64s) -> npt.NDArray[np.bool_]:
    """Returns which records do not begin with the magic bytes of their format.

    Args:
        word: A key of `HEADS`.
        buffer: A file as a buffer.
        starts, stops: Records in it.
    """
    data = np.frombuffer(buffer, np.uint8)
    wrong = np.ones(len(starts), bool)
    for marks in (marks for name in HEADS[word] for marks in SIGNATURES[name]):
        places = np.flatnonzero(stops - starts >= max(offset + len(mark) for offset, mark in marks))
        same = np.ones(len(places), bool)
        for offset, mark in marks:
            for number, byte in enumerate(mark, offset):
                same &= data[starts[places] + number] == byte
        wrong[places[same]] = False
    return wrong
