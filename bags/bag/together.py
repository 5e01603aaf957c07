"""Small zstd frames decompressed many at a time.

Frames one after the other are a stream to zstd. Read as one, a thousand of 100 B that hardly compress take
0.13 µs each, where a call for each takes 0.35 µs and as much again around it. Threads then hold the GIL only
to cut the records out, where a call for each record would hand it over as often.
"""

from __future__ import annotations

import itertools
import mmap
import time
from collections import deque
from typing import NamedTuple

import numpy as np
import zstandard

from bags.bag.frames import BEHIND, whole_sizes
from bags.bag.heap import retain
from bags.bag.limits import Int64s
from bags.bag.threads import at_once

__all__ = ['Shelf', 'decompress']

LARGEST = 1 << 17  # Bytes of a record in a frame of one block, at most.
PIECE = 1 << 19  # Of work that is done at a time, so that what it handles stays in the cache of a processor:
FRAME = 1 << 10  # bytes of frames and records, and as much as so many for each frame.
WINDOW = 1 << 13  # Records of one size up to this are cut out by numpy, others sliced.
WORTH = 6e-4  # Seconds of work, most of it without the GIL, that are worth one more thread.
SENTINEL_RECORD = b'!'
SENTINEL = zstandard.ZstdCompressor().compress(SENTINEL_RECORD)


class Bench:
    """What a thread works with: a context to decompress, and memory that is not new at each piece."""

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        self.context = zstandard.ZstdDecompressor(dict_data=dictionary)
        self.scratch = np.empty(PIECE + 2 * LARGEST, np.uint8).data  # Memory as far as it is used.
        self.pace = 0.0
        """Seconds that the last work has taken to decompress, by what `PIECE` counts."""


class Shelf:
    """The benches that are not in use, for one thread and those that help it."""

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        self._dictionary = dictionary
        self._free: list[Bench] = []
        self.pace = 0.0
        """That of the last call; 0, so that one thread is enough, as long as it is not known."""

    def take(self, count: int) -> list[Bench]:
        # Not left on the shelf: a call that is interrupted may end before its threads do.
        return [self._free.pop() if self._free else Bench(self._dictionary) for _ in range(count)]

    def put(self, benches: list[Bench]) -> None:
        self.pace = min((bench.pace for bench in benches if bench.pace), default=self.pace)
        self._free += benches


class Frames(NamedTuple):
    """Frames in a buffer, none of them empty, and the sizes of their records."""

    data: bytes | mmap.mmap
    starts: Int64s
    stops: Int64s
    sizes: Int64s


def decompress(
    data: bytes | mmap.mmap,
    starts: Int64s,
    stops: Int64s,
    most: int,
    shelf: Shelf,
    parallelism: int = 1,
) -> list[bytes] | None:
    """Decompresses frames of records of up to 128 KiB.

    Args:
        data: What holds the frames.
        starts, stops: Where they are there; none is empty.
        most: Bytes that a record may have.
        shelf: What holds the calling thread's benches.
        parallelism: Most threads.

    Returns:
        The records; None if anything is out of the ordinary, and each frame has to be looked at by itself.
    """
    if int(starts.max()) + BEHIND > len(data):
        return None
    sizes = whole_sizes(data, starts, stops)
    if sizes is None or int(sizes.max()) > min(most, LARGEST):
        return None
    retain(int(sizes.sum()))
    done = np.cumsum(sizes + (stops - starts) + FRAME)
    pieces = deque(enumerate(_pieces(Frames(data, starts, stops, sizes), done)))
    found: list[list[bytes] | None] = [None] * len(pieces)

    def work(bench: Bench) -> None:
        while True:
            try:
                place, piece = pieces.popleft()
            except IndexError:
                return
            found[place] = records = _decompress(piece, bench)
            if records is None:
                pieces.clear()

    benches = shelf.take(max(1, min(parallelism, len(pieces), 1 + int(done[-1] * shelf.pace / WORTH))))
    at_once(work, benches)
    shelf.put(benches)
    records: list[bytes] = []
    for share in found:
        if share is None:
            return None
        records += share
    return records


def _pieces(frames: Frames, done: Int64s) -> list[Frames]:
    """Divides frames where the work that is done by then reaches the next multiple of `PIECE`."""
    turns = done // PIECE
    cuts = [0, *(np.flatnonzero(turns[1:] != turns[:-1]) + 1).tolist(), len(turns)]
    return [
        Frames(frames.data, frames.starts[start:stop], frames.stops[start:stop], frames.sizes[start:stop])
        for start, stop in itertools.pairwise(cuts)
    ]


def _decompress(frames: Frames, bench: Bench) -> list[bytes] | None:
    data, starts, stops, sizes = frames
    if np.count_nonzero(starts[1:] != stops[:-1]):
        places = zip(starts.tolist(), stops.tolist(), strict=True)
        joined = b''.join([*(data[start:stop] for start, stop in places), SENTINEL])
    else:
        joined = b''.join((data[int(starts[0]) : int(stops[-1])], SENTINEL))
    total = int(sizes.sum())
    scratch = bench.scratch[: total + 2]
    try:
        # The sentinel comes out only if the frame before it has ended well.
        stream = bench.context.stream_reader(joined, read_size=len(joined), read_across_frames=True)
        begin = time.perf_counter()
        count = stream.readinto(scratch)
        bench.pace = (time.perf_counter() - begin) / (total + len(joined) + FRAME * len(sizes))
    except (zstandard.ZstdError, MemoryError):
        return None
    if count != total + 1 or scratch[total:-1] != SENTINEL_RECORD:
        return None
    size = int(sizes[0])
    if size <= WINDOW and not np.count_nonzero(sizes != size):
        records: list[bytes] = np.ndarray((len(sizes),), f'V{size}', scratch).tolist()
        return records
    ends = np.cumsum(sizes).tolist()
    return [bytes(scratch[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
