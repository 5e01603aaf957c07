"""Small zstd frames decompressed many at a time.

Frames one after the other are a stream to zstd. Read as one, a thousand of 100 B that hardly compress take
0.13 µs each, where a call for each takes 0.35 µs and as much again around it. Threads then hold the GIL only
to cut the records out, where a call for each record would hand it over as often.
"""

from __future__ import annotations

import itertools
import mmap
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import zstandard

from bags.bag.frames import BEHIND, whole_sizes
from bags.bag.heap import retain
from bags.bag.limits import Int64s
from bags.bag.threads import in_threads

__all__ = ['Bench', 'decompress']

PIECE = 1 << 17  # Bytes of frames and records that are handled at a time: they stay in the processor's cache.
WINDOW = 1 << 13  # Records of one size up to this are cut out by numpy, others sliced.
WORTH = 4e-4  # Seconds of work that are worth one more thread.
SENTINEL_RECORD = b'!'
SENTINEL = zstandard.ZstdCompressor().compress(SENTINEL_RECORD)


class Bench:
    """What a thread works with: a context to decompress, and memory that is not new at each piece."""

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        self.context = zstandard.ZstdDecompressor(dict_data=dictionary)
        self.scratch = memoryview(bytearray(2 * PIECE + 2))


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
    benches: Callable[[int], Sequence[Bench]],
    parallelism: int = 1,
) -> list[bytes] | None:
    """Decompresses frames of records of up to 128 KiB.

    Args:
        data: What holds the frames.
        starts, stops: Where they are there; none is empty.
        most: Bytes that a record may have.
        benches: Gives one for each of so many threads.
        parallelism: Most threads.

    Returns:
        The records; None if anything is out of the ordinary, and each frame has to be looked at by itself.
    """
    if int(starts.max()) + BEHIND > len(data):
        return None
    sizes = whole_sizes(data, starts, stops)
    if sizes is None or int(sizes.max()) > min(most, PIECE):
        return None
    retain(int(sizes.sum()))
    first, *rest = _pieces(Frames(data, starts, stops, sizes))
    begin = time.perf_counter()
    records = _decompress([first], benches(1)[0])
    if records is None:
        return None
    # The first piece tells how much work the others are.
    threads = min(parallelism, len(rest), 1 + int((time.perf_counter() - begin) * len(rest) / WORTH))
    cuts = [len(rest) * part // max(threads, 1) for part in range(threads + 1)]
    shares = [rest[start:stop] for start, stop in itertools.pairwise(cuts)]
    work = list(zip(shares, benches(threads), strict=True))
    for found in in_threads(lambda share: _decompress(*share), work, threads):
        if found is None:
            return None
        records += found
    return records


def _pieces(frames: Frames) -> list[Frames]:
    """Divides frames where their bytes and those of their records reach the next multiple of `PIECE`."""
    data, starts, stops, sizes = frames
    turns = np.cumsum(sizes + (stops - starts)) // PIECE
    cuts = [0, *(np.flatnonzero(turns[1:] != turns[:-1]) + 1).tolist(), len(turns)]
    parts = itertools.starmap(slice, itertools.pairwise(cuts))
    return [Frames(data, starts[part], stops[part], sizes[part]) for part in parts]


def _decompress(pieces: Sequence[Frames], bench: Bench) -> list[bytes] | None:
    records: list[bytes] = []
    for data, starts, stops, sizes in pieces:
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
            if stream.readinto(scratch) != total + 1 or scratch[total:-1] != SENTINEL_RECORD:
                return None
        except (zstandard.ZstdError, MemoryError):
            return None
        size = int(sizes[0])
        if size <= WINDOW and not np.count_nonzero(sizes != size):
            records += np.ndarray((len(sizes),), f'V{size}', scratch).tolist()
        else:
            ends = np.cumsum(sizes).tolist()
            records += [bytes(scratch[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    return records
