"""Whether media begin as media of their format do, for many records at once and without decoding any.

A limit between two such records that was moved makes the second begin with the wrong bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['HEADS', 'wrong_heads']

_JPEG = (0, (b'\xff\xd8\xff',))
_RIFF = (0, (b'RIFF',))
_EBML = (0, (b'\x1a\x45\xdf\xa3',))
_BOXES = (4, (b'ftyp',))
HEADS = {
    'jpeg': _JPEG,
    'jpg': _JPEG,
    'png': (0, (b'\x89PNG',)),
    'webp': _RIFF,
    'avif': _BOXES,
    'mp4': _BOXES,
    'webm': _EBML,
    'mkv': _EBML,
    'wav': (0, (b'RIFF', b'RF64')),
    'flac': (0, (b'fLaC',)),
    'opus': (0, (b'OggS',)),
}
"""By the word of a type: where in a record its mark is, and what it can be."""


def wrong_heads(word: str, buffer: Any, starts: Int64s, stops: Int64s) -> npt.NDArray[np.bool_]:
    """Returns which records do not begin as their format does.

    Args:
        word: A word in `HEADS`.
        buffer: A file as a buffer.
        starts, stops: Records in it.
    """
    offset, marks = HEADS[word]
    data = np.frombuffer(buffer, np.uint8)
    wrong = stops - starts < offset + len(marks[0])
    places = np.flatnonzero(~wrong)
    fits = np.zeros(len(places), bool)
    for mark in marks:
        same = np.ones(len(places), bool)
        for number, byte in enumerate(mark, offset):
            same &= data[starts[places] + number] == byte
        fits |= same
    wrong[places[~fits]] = True
    return wrong
