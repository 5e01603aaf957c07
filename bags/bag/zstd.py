"""Records as zstd frames, and back, with every frame checked and every size bounded.

A compressor or decompressor must not be shared by threads and costs 15 µs to make, so each thread keeps
one of each (measured: 0.26 µs for a frame of 100 B with a kept decompressor and positional arguments,
0.5 with keywords).
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zstandard

from bags.bag.frames import BEHIND
from bags.bag.options import Compression, CompressionAutoDetect, CompressionTrained, CompressionZstd
from bags.bag.together import Together
from bags.concurrency import map_in_threads
from bags.indexing import Int64s

__all__ = ['Buffer', 'Zstd', 'codec_for']

Buffer = bytes | bytearray | memoryview

MAGIC = b'\x28\xb5\x2f\xfd'
PARALLEL_BYTES = 1 << 18  # Below this, starting threads costs more than it saves.
PARALLEL_RECORDS = 64
PARALLEL_FRAME = 1 << 10  # Smaller frames spend too much of their time holding the GIL.
WORTH = 1.5e-3  # Seconds of work, by how long a part of it took, that are worth a second thread.
SHARES = 8  # Parts that a thread does of what is divided, so that all end at about the same time.
MANY = 128  # Fewer frames are not worth the steps of decompressing them together.
SMALL_FRAME = 1 << 11  # Larger ones gain little.
STEP = 1 << 10  # A block of zstd holds at most 128 KiB and takes at least 4 bytes: 1 KiB is at most 32 MiB.


def codec_for(name: str, compression: Compression, max_record_size: int) -> Zstd | None:
    """Returns the codec of a bag with this name, or None for records held as they are."""
    if isinstance(compression, CompressionAutoDetect):
        compression = CompressionZstd() if name.endswith('.bagz') else compression
    if isinstance(compression, CompressionZstd):
        return Zstd(compression, max_record_size)
    return None


class Zstd:
    """One zstd frame a record; an empty record is an empty frame."""

    def __init__(self, options: CompressionZstd, max_record_size: int) -> None:
        self.options = options
        self.max_record_size = max_record_size
        dictionary = options.dictionary
        self._dictionary = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._is_prepared = False
        self.local = threading.local()
        """Of each thread, once used: `compressor` and `decompress`."""
        self._together = Together(self._dictionary)
        self._pace = 0.0  # Seconds that the last bytes of frames took, each.

    def encode_many(self, records: Sequence[bytes]) -> list[Any]:
        """Returns the frames of records, as buffers, with content sizes and checksums; empty for empty ones.

        All are compressed in one call (0.6 µs a record of 100 B, where a call for each takes 1.0), and
        many of them in threads of zstd's own.
        """
        try:
            compressor = self.local.compressor
        except AttributeError:
            compressor = self.local.compressor = self.compressor()
        full = records if all(records) else list(filter(None, records))
        if not full:
            return [b''] * len(records)
        if not hasattr(compressor, 'multi_compress_to_buffer'):  # A build of zstandard without its C part.
            frames = iter(list(map(compressor.compress, full)))
        else:
            threads = -1 if len(full) >= PARALLEL_RECORDS else 0
            frames = iter(compressor.multi_compress_to_buffer(full, threads=threads))
        return list(frames) if full is records else [next(frames) if record else b'' for record in records]

    def compressor(self) -> zstandard.ZstdCompressor:
        """Returns a new compressor, for one thread."""
        level = self.options.level or 3
        if self._dictionary is not None and not self._is_prepared:
            self._dictionary.precompute_compress(level=level)  # 1.0 µs a record of 200 B, else 1.2.
            self._is_prepared = True
        return zstandard.ZstdCompressor(
            level, dict_data=self._dictionary, write_checksum=True, write_content_size=True
        )

    def _decompressor(self) -> Callable[..., bytes]:
        decompress: Callable[..., bytes] = zstandard.ZstdDecompressor(dict_data=self._dictionary).decompress
        self.local.decompress = decompress
        return decompress

    def decode(self, frame: Buffer) -> bytes:
        """Returns the record of a frame.

        Raises:
            ValueError: Not exactly one whole, sound frame, or one of more than `max_record_size`
                bytes; says which.
        """
        if not frame:
            return b''
        try:
            # An announced size is what decompress allocates, so it is looked at first.
            if 0 < zstandard.frame_content_size(frame) <= self.max_record_size:
                try:
                    decompress = self.local.decompress
                except AttributeError:
                    decompress = self._decompressor()
                record: bytes = decompress(frame, 0, False, False)
                return record
            return self._decode_unsized(frame)
        except zstandard.ZstdError as exc:
            raise ValueError(self._describe(frame, exc)) from exc
        except MemoryError as exc:
            raise ValueError('the zstd frame takes more memory than there is') from exc

    def _decode_unsized(self, frame: Buffer) -> bytes:
        """Decodes what announces no content, none at all, or too much: in steps, up to the bound."""
        announced = zstandard.frame_content_size(frame)
        if announced > self.max_record_size:
            raise ValueError(f'the zstd frame announces {announced} bytes, more than {self.max_record_size}')
        if bytes(frame[:4]) != MAGIC:
            raise ValueError(f'expected a zstd frame, got {bytes(frame[:4])!r}')
        stream = zstandard.ZstdDecompressor(dict_data=self._dictionary).decompressobj()
        parts, total = [], 0
        for start in range(0, len(frame), STEP):
            part = stream.decompress(frame[start : start + STEP])
            total += len(part)
            if total > self.max_record_size:
                raise ValueError(
                    f'the zstd frame holds more than max_record_size, {self.max_record_size} bytes'
                )
            parts.append(part)
            if stream.eof:
                extra = len(frame) - start - STEP + len(stream.unused_data)
                if extra > 0 or stream.unused_data:
                    raise ValueError('bytes follow the zstd frame')
                return b''.join(parts)
        raise ValueError('the zstd frame ends early')

    def _describe(self, frame: Buffer, exc: Exception) -> str:
        if bytes(frame[:4]) != MAGIC:
            return f'expected a zstd frame, got {bytes(frame[:4])!r} ({len(frame)} bytes)'
        try:
            wanted = zstandard.get_frame_parameters(frame).dict_id
        except zstandard.ZstdError:
            wanted = 0
        had = self._dictionary.dict_id() if self._dictionary is not None else 0
        if wanted and wanted != had:
            path = self.options.path if isinstance(self.options, CompressionTrained) else ''
            found = (
                f'that is {had}' if had else 'there is none' if self._dictionary is None else 'it has no id'
            )
            return f'the zstd frame needs dictionary {wanted}{path and f" in {path}"}, but {found}'
        return f'damaged zstd frame of {len(frame)} bytes: {exc}'

    def decode_many(self, frames: Sequence[Buffer], parallelism: int = 1) -> list[bytes]:
        """Decodes frames in order: small ones together, large ones in threads (zstd runs without the GIL).

        Raises:
            ValueError: As `decode`, for one of the frames that fail.
        """
        count, total = len(frames), sum(map(len, frames))
        if count >= MANY and total <= SMALL_FRAME * count:
            joined = b''.join((*frames, bytes(BEHIND)))
            stops = np.cumsum(np.fromiter(map(len, frames), np.int64, count))
            starts = np.concatenate(([0], stops[:-1]))
            together = self.decode_together(joined, starts, stops, parallelism)
            if together is not None:
                return together
        if total <= PARALLEL_BYTES or total <= PARALLEL_FRAME * count:
            return list(map(self.decode, frames))
        if parallelism < 2:
            return self._decode_in_threads(frames, 1)
        records: list[bytes] = []
        if not self._pace:
            head = -(-count // 32)
            records, frames = self._decode_each(frames[:head]), frames[head:]
        if sum(map(len, frames)) * self._pace < WORTH:
            return records + self._decode_each(frames)
        return records + self._decode_in_threads(frames, min(parallelism, len(frames)))

    def _decode_each(self, frames: Sequence[Buffer]) -> list[bytes]:
        begin = time.perf_counter()
        records = list(map(self.decode, frames))
        total = sum(map(len, frames))
        if total:
            self._pace = (time.perf_counter() - begin) / total
        return records

    def _decode_in_threads(self, frames: Sequence[Buffer], threads: int) -> list[bytes]:
        step = -(-len(frames) // (SHARES * threads))
        left = deque(range(0, len(frames), step))
        found: list[list[bytes] | None] = [None] * len(left)

        def work(_: int) -> None:
            while True:
                try:
                    first = left.popleft()
                except IndexError:
                    return
                try:
                    found[first // step] = self._decode_each(frames[first : first + step])
                except BaseException:
                    left.clear()
                    raise

        map_in_threads(work, range(threads), threads)
        records: list[bytes] = []
        for part in found:
            assert part is not None
            records += part
        return records

    def decode_together(
        self, data: bytes | mmap.mmap, starts: Int64s, stops: Int64s, parallelism: int = 1
    ) -> list[bytes] | None:
        """Decodes many small frames where they are; None if `decode` has to look at each."""
        count, total = len(starts), int((stops - starts).sum())
        if count < MANY or not 0 < total <= SMALL_FRAME * count:
            return None
        present = stops > starts
        if np.count_nonzero(present) == count:
            return self._together.decompress(data, starts, stops, self.max_record_size, parallelism)
        starts, stops = starts[present], stops[present]
        found = self._together.decompress(data, starts, stops, self.max_record_size, parallelism)
        records = iter(found or ())
        return None if found is None else [next(records) if full else b'' for full in present.tolist()]
