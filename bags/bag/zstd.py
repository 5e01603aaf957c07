"""Records as zstd frames, and back, with every frame checked and every size bounded.

A compressor or decompressor must not be shared by threads and costs 15 µs to make, so each thread keeps
one of each (measured: 0.26 µs for a frame of 100 B with a kept decompressor and positional arguments,
0.5 with keywords).
"""

from __future__ import annotations

import itertools
import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import zstandard

from bags.bag.options import Compression, CompressionAutoDetect, CompressionTrained, CompressionZstd
from bags.bag.zstd_batch import HEADER_BYTES, decompress_batch
from bags.concurrency import in_threads
from bags.indexing import Int64s

__all__ = ['Buffer', 'Zstd', 'codec_for']

Buffer = bytes | bytearray | memoryview

MAGIC = b'\x28\xb5\x2f\xfd'
PARALLEL_RECORDS = 64  # Records from which compressing uses threads.
PARALLEL_BYTES = 1 << 20  # Bytes of frames from which decompressing uses threads.
PARALLEL_FRAME = 1 << 10  # Smaller frames spend too much of their time holding the GIL.
MIN_BATCH = 128  # Fewer frames are decompressed one by one.
MAX_BATCH_FRAME = 1 << 11  # Mean size of frames above which a call for each is as quick.
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
        """Of each thread, once used: `compressor` and `decompressor`."""

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

    def _decompressor(self) -> zstandard.ZstdDecompressor:
        """Returns the decompressor of this thread."""
        try:
            found: zstandard.ZstdDecompressor = self.local.decompressor
        except AttributeError:
            found = self.local.decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
            self.local.decompress = found.decompress
        return found

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
                    record: bytes = self.local.decompress(frame, 0, False, False)
                except AttributeError:
                    record = self._decompressor().decompress(frame, 0, False, False)
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
        """Decodes frames in order: many small ones by one call, large ones in threads.

        Raises:
            ValueError: As `decode`, for one of the frames that fail.
        """
        count, total = len(frames), sum(map(len, frames))
        if count >= MIN_BATCH and total <= MAX_BATCH_FRAME * count:
            stops = np.cumsum(np.fromiter(map(len, frames), np.int64, count))
            starts = np.concatenate(([0], stops[:-1]))
            records = self.decode_batch(b''.join((*frames, bytes(HEADER_BYTES))), starts, stops)
            if records is not None:
                return records
        if parallelism < 2 or total <= max(PARALLEL_BYTES, PARALLEL_FRAME * count):
            return list(map(self.decode, frames))
        step = -(-count // parallelism)
        parts = [frames[start : start + step] for start in range(0, count, step)]
        found = in_threads(lambda part: list(map(self.decode, part)), parts, parallelism)
        return list(itertools.chain.from_iterable(found))

    def decode_batch(
        self, data: bytes | mmap.mmap, starts: Int64s, stops: Int64s, parallelism: int = 1
    ) -> list[bytes] | None:
        """Decodes many small frames where they lie; None if `decode` has to look at each."""
        count, total = len(starts), int((stops - starts).sum())
        if count < MIN_BATCH or not 0 < total <= MAX_BATCH_FRAME * count:
            return None
        present = stops > starts
        starts, stops = starts[present], stops[present]
        found = decompress_batch(self._decompressor(), data, starts, stops, self.max_record_size)
        if found is None or len(found) == count:
            return found
        records = iter(found)
        return [next(records) if full else b'' for full in present.tolist()]
