"""Records as zstd frames, and back, with every frame checked and every size bounded.

A compressor or decompressor must not be shared by threads and costs 15 µs to make, so each thread keeps
one of each (measured: 0.26 µs for a frame of 100 B with a kept decompressor and positional arguments,
0.5 with keywords). `multi_decompress_to_buffer` is not used: crafted frames abort the process in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zstandard

from bags.bag.frames import are_whole, content_sizes, cut
from bags.bag.limits import Int64s
from bags.bag.options import Compression, CompressionAutoDetect, CompressionTrained, CompressionZstd
from bags.bag.threads import dealt, in_threads

__all__ = ['MANY', 'SMALL_FRAME', 'Buffer', 'Zstd', 'codec_for']

Buffer = bytes | bytearray | memoryview

MAGIC = b'\x28\xb5\x2f\xfd'
PARALLEL_BYTES = 1 << 18  # Below this, starting threads costs more than it saves.
PARALLEL_RECORDS = 64
PARALLEL_FRAME = 1 << 10  # Smaller frames spend too much of their time holding the GIL.
WORTH = 1.5e-3  # Seconds of work, by how long a part of it took, that are worth a second thread.
MANY = 16  # Fewer frames, or larger ones, are not worth the steps of decompressing them together.
HALVED = 768  # From as many small frames on, two threads share them.
SMALL_FRAME = 1 << 11  # Larger ones gain little: the memory of the whole is new at each call.
LITTLE = 1 << 16
PIECE = 1 << 18  # Bytes of frames that are decompressed together: with their records they stay in the cache.
TOGETHER = 1 << 25  # Bytes of records that are decompressed together, at most.
SENTINEL = zstandard.ZstdCompressor().compress(b'!')
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
        """Of each thread, once used: `compressor`, `context` to decompress, and its `decompress`."""

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
        context = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        self.local.context, self.local.decompress = context, context.decompress
        decompress: Callable[..., bytes] = context.decompress
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
            ValueError: As `decode`, for the first frame that fails.
        """
        count, total = len(frames), sum(map(len, frames))
        if count >= MANY and total <= SMALL_FRAME * count:
            sizes = np.fromiter(map(len, frames), np.int64, count)
            together = self._decode_pieces(lambda a, b: frames[a:b], sizes, parallelism)
            if together is not None:
                return together
        if parallelism < 2 or total <= PARALLEL_BYTES or total <= PARALLEL_FRAME * count:
            return list(map(self.decode, frames))
        begin, head = time.perf_counter(), -(-count // 8)
        records = list(map(self.decode, frames[:head]))
        if (time.perf_counter() - begin) * (count / head - 1) < WORTH:
            return records + list(map(self.decode, frames[head:]))
        rest = frames[head:]
        return records + dealt(lambda part: list(map(self.decode, rest[part])), len(rest), parallelism)

    def decode_run(self, data: Buffer, sizes: Int64s, parallelism: int = 1) -> list[bytes] | None:
        """Decodes small frames that lie one after the other, many at once.

        Args:
            data: The frames.
            sizes: Of the frames; 0 for an empty record.
            parallelism: Most threads.

        Returns:
            The records; None if anything is out of the ordinary, and `decode` has to look at each frame.
        """
        places = [0, *np.cumsum(sizes).tolist()]
        return self._decode_pieces(lambda a, b: [data[places[a] : places[b]]], sizes, parallelism)

    def _decode_pieces(
        self, take: Callable[[int, int], Sequence[Buffer]], sizes: Int64s, parallelism: int
    ) -> list[bytes] | None:
        """Decodes frames in pieces that stay in the processor's cache; the first tells if threads pay off."""
        count, total = len(sizes), int(sizes.sum())
        if total <= 2 * PIECE:
            return self._decode_piece(take(0, count), sizes, parallelism)
        ends = np.cumsum(sizes)
        cuts = [*np.searchsorted(ends, np.arange(PIECE, total, PIECE)).tolist(), count]
        pieces = [(a, b) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]

        def work(part: Sequence[tuple[int, int]]) -> list[bytes] | None:
            records: list[bytes] = []
            for a, b in part:
                found = self._decode_piece(take(a, b), sizes[a:b])
                if found is None:
                    return None
                records += found
            return records

        begin = time.perf_counter()
        first = work(pieces[:1])
        if first is None:
            return None
        rest = pieces[1:]
        if parallelism < 2 or len(rest) < 2 or (time.perf_counter() - begin) * len(rest) < WORTH:
            parts = [work(rest)]
        else:
            half = len(rest) // 2
            parts = in_threads(work, [rest[:half], rest[half:]], 2)
        for part in parts:
            if part is None:
                return None
            first += part
        return first

    def _decode_piece(
        self, frames: Sequence[Buffer], sizes: Int64s, parallelism: int = 1
    ) -> list[bytes] | None:
        """Decodes frames all at once; in two threads where that pays off."""
        present = sizes > 0
        if not bool(present.all()):
            found = self._decode_piece(frames, sizes[present], parallelism) if present.any() else []
            records = iter(found or ())
            return None if found is None else [next(records) if there else b'' for there in present.tolist()]
        joined = b''.join((*frames, SENTINEL, bytes(24)))
        ends = np.cumsum(sizes)
        contents = content_sizes(joined, ends - sizes)
        total = int(contents.sum())
        if int(contents.min()) < 1 or int(contents.max()) > self.max_record_size or total > TOGETHER:
            return None
        # Behind a frame a skippable one is bytes too many, but a stream is read on over it.
        # Of little data that is told sooner by its bytes, of much by the headers of its frames.
        sure = len(joined) > LITTLE and are_whole(joined, ends - sizes, ends)
        if not sure and may_skip(joined):
            return None
        whole = memoryview(joined)[:-24]
        if parallelism < 2 or len(sizes) < HALVED or total < int(ends[-1]):
            # Too little, or hardly compressed: no work to share.
            return self._decode_stream((whole, contents))
        half = len(sizes) // 2
        cut_at = int(ends[half - 1])
        first = b''.join((whole[:cut_at], SENTINEL))
        pieces = [(memoryview(first), contents[:half]), (whole[cut_at:], contents[half:])]
        front, back = in_threads(self._decode_stream, pieces, 2)
        return None if front is None or back is None else front + back

    def _decode_stream(self, piece: tuple[memoryview, Int64s]) -> list[bytes] | None:
        """Decodes frames and, last, the sentinel, which comes out only if the one before ended well."""
        source, contents = piece
        total = int(contents.sum())
        try:
            context = self.local.context
        except AttributeError:
            self._decompressor()
            context = self.local.context
        try:
            stream = context.stream_reader(source, read_size=len(source), read_across_frames=True)
            result: bytes = stream.read(total + 2)
        except (zstandard.ZstdError, MemoryError):
            return None
        return cut(result, contents) if len(result) == total + 1 and result[-1:] == b'!' else None


def may_skip(data: bytes) -> bool:
    """Tells whether there may be a skippable frame: `5? 2A 4D 18` and a size.

    Behind a frame it is bytes too many, but zstd reads over it. (0.02 µs a frame of 100 B.)
    """
    values = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(values == 0x18)
    places = places[values[places - 1] == 0x4D]
    return bool((values[places - 2] == 0x2A).any())
