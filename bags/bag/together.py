"""Small zstd frames decompressed many at a time.

One call of zstandard decompresses any number of frames, without the GIL: a thousand of 100 B that hardly
compress take 0.13 us each, where a call for each takes 0.35 and as much again around it, and threads that
make such calls are in each other's way.

That call is not one for bytes of any origin: zstandard 0.25 ends the process if there is no frame, or one
that announces no content; it stops at the end of a frame without a word about what follows; and it takes
whatever memory is announced. So all of that is looked at before, in the headers of all frames at once. For
what else may be wrong with a frame it has an error.
"""

from __future__ import annotations

import itertools
import mmap
import threading
import time
from collections import deque
from typing import NamedTuple

import numpy as np
import zstandard

from bags.bag.frames import BEHIND, whole_sizes
from bags.concurrency import map_in_threads
from bags.indexing import Int64s

__all__ = ['Together']

LARGEST = 1 << 17  # Bytes of a record in a frame of one block, at most.
PIECE = 1 << 20  # Of work that is done at a time, so that what it handles stays in the cache of a processor:
FRAME = 1 << 10  # bytes of frames and records, and as much as so many for each frame.
WORTH = 2e-4  # Seconds of work, most of it without the GIL, that are worth one more thread.


class Frames(NamedTuple):
    """Frames in a buffer, none of them empty, and the sizes of their records."""

    data: bytes | mmap.mmap
    starts: Int64s
    stops: Int64s
    sizes: Int64s


class Together:
    """Decompresses frames of records of up to 128 KiB.

    Args:
        dictionary: Of the frames.
    """

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        self._dictionary = dictionary
        self._local = threading.local()
        self._pace = 0.0
        """Seconds that the last work has taken, by what `PIECE` counts; 0 as long as it is not known."""

    def decompress(
        self, data: bytes | mmap.mmap, starts: Int64s, stops: Int64s, most: int, parallelism: int = 1
    ) -> list[bytes] | None:
        """Returns the records of frames, at least one.

        Args:
            data: What holds the frames.
            starts, stops: Where they are there; none is empty.
            most: Bytes that a record may have.
            parallelism: Most threads.

        Returns:
            None if anything is out of the ordinary, and each frame has to be looked at by itself.
        """
        if int(starts.max()) + BEHIND > len(data) or zstandard.backend != 'cext':
            return None
        sizes = whole_sizes(data, starts, stops)
        if sizes is None or int(sizes.max()) > min(most, LARGEST):
            return None
        done = np.cumsum(sizes + (stops - starts) + FRAME)
        threads = max(1, min(parallelism, 1 + int(done[-1] * self._pace / WORTH)))
        pieces = deque(enumerate(_pieces(Frames(data, starts, stops, sizes), done, threads)))
        found: list[list[bytes] | None] = [None] * len(pieces)

        def work(_: int) -> None:
            while True:
                try:
                    place, piece = pieces.popleft()
                except IndexError:
                    return
                found[place] = records = self._decompress(piece)
                if records is None:
                    pieces.clear()

        threads = min(threads, len(pieces))
        map_in_threads(work, range(threads), threads)
        records: list[bytes] = []
        for share in found:
            if share is None:
                return None
            records += share
        return records

    def _decompress(self, frames: Frames) -> list[bytes] | None:
        try:
            context = self._local.context
        except AttributeError:
            context = self._local.context = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        places = np.empty((len(frames.starts), 2), np.uint64)
        places[:, 0] = frames.starts
        places[:, 1] = frames.stops - frames.starts
        work = int(frames.sizes.sum() + places[:, 1].sum()) + FRAME * len(places)
        try:
            view = memoryview(frames.data)
            segments = zstandard.BufferWithSegments(view, places.reshape(-1).data.cast('B'))
            begin = time.perf_counter()
            found = context.multi_decompress_to_buffer(segments, frames.sizes.data.cast('B'))
            self._pace = (time.perf_counter() - begin) / work
        except (zstandard.ZstdError, MemoryError):
            return None
        return list(map(zstandard.BufferSegment.tobytes, found))


def _pieces(frames: Frames, done: Int64s, threads: int) -> list[Frames]:
    """Divides frames into parts of about the same work, at most `PIECE`, as many for each thread.

    Args:
        frames: What to divide.
        done: The work that is done by the end of each frame.
        threads: How many threads there are.
    """
    count = threads * -(-int(done[-1]) // (threads * PIECE))
    turns = done * count // (int(done[-1]) + 1)
    cuts = [0, *(np.flatnonzero(turns[1:] != turns[:-1]) + 1).tolist(), len(turns)]
    return [
        Frames(frames.data, frames.starts[start:stop], frames.stops[start:stop], frames.sizes[start:stop])
        for start, stop in itertools.pairwise(cuts)
    ]
