"""Where a video is cut, and which of its clips can be copied as they are. No I/O.

    source     I . . . . . I . . . . . I . . . . . I . . .       I: a key frame
    size 6     |copied     |copied     |copied     |copied       every cut is at a key frame
    size 8     |encoded        |encoded        |encoded          none is but the first
    copy       |copied     |copied     |copied     |copied       of 8, moved to the nearest key frames

A clip is copied where its packets hold exactly the frames between its two cuts. That takes more than key
frames: of an open group of pictures, the first frames are made of the group before as well.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['Piece', 'plan_pieces']


class Piece(NamedTuple):
    """Frames that become a clip."""

    start: int
    stop: int
    copied: bool
    """Whether it is copied: packets of the same numbers, in the order of the file."""


def plan_pieces(
    times: Int64s, keys: npt.NDArray[np.bool_], size: int, gop: int | None = None, copy: bool = False
) -> list[Piece]:
    """Divides a video into pieces that are copied or encoded.

    Args:
        times: When the frame of each packet is shown, in the order of the file; no two at the same time.
        keys: Which packets are key frames.
        size: Frames of a piece.
        gop: The most frames from key frame to key frame in what is copied.
        copy: Copy everything.
    """
    count = len(times)
    packets = np.argsort(times, kind='stable')  # By frame.
    places = np.empty(count, np.int64)  # Frames, by packet.
    places[packets] = np.arange(count)
    # A cut is clean at a key frame with all earlier frames before it in the file, and all later ones behind.
    latest = np.maximum.accumulate(places)
    clean = keys & (places == np.arange(count)) & (np.concatenate([[-1], latest[:-1]]) == places - 1)
    cuts = np.append(np.flatnonzero(clean), count)  # There, the number of a frame is that of its packet.
    if copy:
        wanted = np.arange(0, count, size)
        right = np.clip(np.searchsorted(cuts, wanted), 1, len(cuts) - 1)
        nearest = np.where(cuts[right] - wanted < wanted - cuts[right - 1], cuts[right], cuts[right - 1])
        ends = np.unique(np.concatenate([cuts[:1], nearest, cuts[-1:]])).tolist()
    else:
        ends = [*range(0, count, size), count]
    at_keys = set(cuts.tolist())
    gaps = np.append(np.flatnonzero(keys), count)
    pieces = []
    for start, stop in itertools.pairwise(ends):
        whole = start in at_keys and stop in at_keys
        if whole and gop is not None and not copy:
            within = gaps[(gaps >= start) & (gaps <= stop)]
            whole = int(np.diff(within, append=stop).max(initial=0)) <= gop
        pieces.append(Piece(start, stop, whole))
    return pieces
