"""Decodes samples of a recording by their numbers.

    packet    0        1            2            3
    decoded   [........][..........][..........][..........]
    presented      [....][..........][..........][....]        sample 0 is the first one presented

Priming and padding are dropped as the file specifies, as when the whole file is decoded.

The samples of a packet also depend on earlier packets. The number of earlier packets depends on the codec.
After decoding the number in `PACKETS_BEFORE`, the samples equal a decode of the whole file:

| codec | earlier packets | samples |
| --- | --- | --- |
| FLAC, ALAC, WavPack, TTA, PCM, ADPCM in WAV | 0 | equal |
| Vorbis | 2 | equal |
| MP3 | 32: bits of a packet may be stored in earlier packets | equal |
| AAC | 4 | equal, except for noise that the decoder generates: its generator restarts at each slice |
| Opus | 128: its prediction fades out | equal for music, within 3e-5 for speech |
| MP2 | 64 | within 3e-5: the decoder dithers |

A slice of a codec that is not in the table is decoded from the start of the file: other decoders, such as
Speex, G.722 and AC-3, keep state for a long time, and some do not reset it when flushed. An exact slice is
also decoded from the start, except for the codecs marked "equal". The state of a decoder cannot be copied, so
some decoders are kept at the ends of earlier slices, and a slice continues with the nearest decoder before
it.

The decoder of Opus returns speech later than its packets: it holds back 24 samples of each packet, until the
next packet or the end of the file.

    packet     0            1            2            end
    returned   [.........][............][............][..]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from bags.formats.audio import VERIFY_CHECKSUMS
from bags.formats.ffmpeg import import_av
from bags.indexing import Int64s
from bags.media.audio_layout import find_layout
from bags.media.packets import DemuxedPackets, Packets
from bags.media.priming import SKIP_MANUAL
from bags.media.wav_reader import Samples, as_float

EQUAL_SLICES = {
    'flac': 0, 'alac': 0, 'wavpack': 0, 'tta': 0, 'adpcm_ms': 0, 'adpcm_ima_wav': 0, 'vorbis': 2,
    'mp3float': 32,
}  # fmt: skip
"""Codecs, besides PCM, whose slices equal a decode of the whole file, bit for bit."""
PACKETS_BEFORE = {
    **EQUAL_SLICES, 'aac': 4, 'mp2float': 64, 'mp2': 64, 'mp3': 32, 'opus': 128, 'libopus': 128,
}  # fmt: skip
"""Number of packets to decode before a slice, by codec."""
WITH_VIDEO = ('MP4', 'QuickTime', 'Matroska', 'WebM', 'MPEG-TS', 'M2TS', 'MPEG-PS', 'FLV', 'ASF')
"""Formats whose audio shares the clock of the video. In other formats, audio begins at 0."""
MAX_DELAY = {'opus': 120}
"""Maximum number of samples that a decoder holds back until the next packet, by codec. For Opus, this is the
length of the shortest packet, and the lengths of all packets are multiples of it."""
MAX_PACKET_SAMPLES = 1 << 20
"""Packets with longer durations are decoded to count their samples: slices allocate what durations claim."""
MAX_PACKETS_TO_COUNT = 64
"""Packets to decode before the last one to count its samples, for codecs outside `PACKETS_BEFORE`."""
MAX_KEPT_CONTEXTS = 8
"""Maximum number of kept decoders per file. An AAC decoder holds about 0.3 MB."""


class AudioDecoder:
    """Decodes audio from its packets: an `AnyAudioDecoder`. Not thread-safe.

    Args:
        file: The file; `close` closes it.
        packets: The packets of the audio stream.
    """

    def __init__(self, file: BinaryIO, packets: Packets) -> None:
        self.file = file
        self.packets = packets
        self._context = self._new_context()
        self._max_delay = MAX_DELAY.get(self._context.name, 0)
        self._from_start: list[tuple[int, int, Any]] = []
        self.truncation = packets.table.truncation
        self.rate = 0
        self.channels = 0
        self.layout = ''
        counts = self._count_samples()
        self._layout = find_layout(packets.table, counts, self._delay, self._context.name == 'vorbis')
        offsets, starts, _, firsts = self._layout
        self.length = int(firsts[-1])
        if not self.length:
            raise ValueError('expected at least one sample, got none')
        table = packets.table
        first = min(int(np.searchsorted(offsets, starts[0], 'right')), len(table.sizes)) - 1
        self.begin = 0.0
        if packets.name in WITH_VIDEO:
            tick = table.time_base[0] / table.time_base[1]
            self.begin = int(table.times[first]) * tick + int(starts[0] - offsets[first]) / self.rate
            if abs(self.begin) < tick:
                self.begin = 0.0

    def close(self) -> None:
        """Closes the file."""
        self._from_start = []
        self.file.close()

    def _new_context(self) -> Any:
        context = self.packets.new_context()
        context.thread_count = 1
        context.flags2 |= SKIP_MANUAL
        if context.name == 'flac':
            context.options = VERIFY_CHECKSUMS
        return context

    def _restart(self) -> None:
        """Prepares the context to decode from another packet."""
        if self._context.name != 'aac':
            self._context.flush_buffers()
            return
        # Flushing keeps the state of the noise generator, so a slice would differ on each read.
        # Creating a context takes 5 µs.
        old, self._context = self._context, import_av().CodecContext.create('aac', 'r')
        self._context.extradata = old.extradata
        self._context.thread_count, self._context.flags2 = 1, old.flags2

    def _count_samples(self) -> Int64s:
        """Returns the number of samples of each packet, and of the samples at the end of the file.

        Durations are used if the checked durations are right. The first packets and the last one are decoded.
        The last packet may be shorter than its duration, and the first packets give the rate and channels,
        which may differ from the header.
        """
        table, name = self.packets.table, self._context.name
        total = len(table.sizes)
        head = [_count(frames) for frames in self._decode(0, min(4, total))]
        if name in ('aac', 'mp3float', 'mp3') and len(set(head)) == 1:
            counts, is_known = np.full(total, head[0], np.int64), True
        else:
            counts, rest = np.divmod(table.durations * table.time_base[0] * self.rate, table.time_base[1])
            # Durations of Vorbis are wrong after some page breaks.
            is_known = name != 'vorbis' and bool(counts[:-1].all()) and not rest.any()
            if self._max_delay and (counts[:-1] % self._max_delay).any():
                is_known = False  # Durations are rounded to ticks.
            if int(counts.max()) > MAX_PACKET_SAMPLES:
                is_known = False
        if is_known:
            if self._max_delay:
                counts[-1], held = sum(self._decode_alone(total - 1)), 0
            else:
                self._context.flush_buffers()
                start = max(0, total - 1 - PACKETS_BEFORE.get(name, MAX_PACKETS_TO_COUNT))
                counts[-1], held = [_count(frames) for frames in self._decode(start, total + 1)][-2:]
            delays = np.cumsum(counts[: len(head)]) - np.cumsum(head)
            if ((delays >= 0) & (delays <= self._max_delay)).all():
                return np.append(counts, held)
        if self._max_delay:
            return np.array([*map(sum, self._each_alone(0, total)), 0], np.int64)
        context = self._new_context()  # Some decoders keep state when flushed.
        return np.array([_count(frames) for frames in self._decode(0, total + 1, context)], np.int64)

    def _each_alone(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Decodes each packet without others; yields the numbers of samples returned and held back."""
        for number, packet in enumerate(self.packets.read(start, stop), start):
            self._context.flush_buffers()
            yield (
                _count(self._frames_of(packet, number, self._context)),
                _count(self._frames_of(None, number, self._context)),
            )

    def _decode_alone(self, number: int) -> tuple[int, int]:
        """Decodes one packet without others; see `_each_alone`."""
        (counts,) = self._each_alone(number, number + 1)
        return counts

    def _delay(self, number: int) -> int:
        """Returns the number of samples that the decoder holds back after a packet."""
        return self._decode_alone(number)[1] if self._max_delay else 0

    def read(self, start: int, stop: int, exact: bool = False) -> Samples:
        """Returns samples, shape (stop - start, channels).

        Args:
            start, stop: In `range(length)`.
            exact: Decode from the start of the file if the samples could differ otherwise.

        Raises:
            ValueError: A sample is damaged.
        """
        if stop <= start:
            return np.empty((0, self.channels), np.float32)
        name, parts = self._context.name, self._layout.decoded_ranges(start, stop)
        low, high = parts[0][0], parts[-1][1]
        if not name.startswith('pcm_') and name not in (EQUAL_SLICES if exact else PACKETS_BEFORE):
            decoded = self._read_from_start(low, high)
        else:
            before, last = self._packets_of(low, high)
            self._restart()
            position = int(self._layout.offsets[before])
            decoded, _, _ = self._join(self._context, before, last, position, low, high)
        if len(parts) == 1:
            return decoded
        return np.concatenate([decoded[first - low : end - low] for first, end in parts])

    def _packets_of(self, low: int, high: int) -> tuple[int, int]:
        """Returns the range of packets to decode for decoded samples.

        Its end is beyond the last packet for samples that the decoder returns at the end of the file.
        """
        offsets, name = self._layout.offsets, self._context.name
        first = int(np.searchsorted(offsets, low, 'right')) - 1
        before = max(0, first - PACKETS_BEFORE.get(name, 0 if name.startswith('pcm_') else first))
        last = int(np.searchsorted(offsets, high + self._max_delay, 'left'))
        return before, min(last, len(offsets) - 1)

    def ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the byte ranges to read for samples; empty if libavformat reads the packets."""
        if isinstance(self.packets, DemuxedPackets) or stop <= start:
            return []
        parts = self._layout.decoded_ranges(start, stop)
        before, last = self._packets_of(parts[0][0], parts[-1][1])
        return [(begin, end) for _, begin, end in self.packets.ranges(before, last)]

    def _read_from_start(self, low: int, high: int) -> Samples:
        """Decodes from the start of the file, or continues from the nearest earlier call."""
        contexts = self._from_start
        nearest = max(
            (entry for entry in contexts if entry[1] <= low), key=lambda entry: entry[1], default=None
        )
        if nearest is None:
            nearest = 0, 0, self._new_context()
        else:
            contexts.remove(nearest)  # Even if the next packet turns out to be damaged.
        done, position, context = nearest
        _, last = self._packets_of(low, high)
        samples, done, position = self._join(context, done, last, position, low, high)
        if done <= len(self.packets.table.sizes):  # Otherwise the decoder has returned its last samples.
            self._from_start = [*contexts[-MAX_KEPT_CONTEXTS + 1 :], (done, position, context)]
        return samples

    def _join(
        self, context: Any, number: int, stop: int, position: int, low: int, high: int
    ) -> tuple[Samples, int, int]:
        """Decodes packets, and joins their samples.

        Args:
            context: The decoder.
            number, stop: The range of packets, as for `_decode`.
            position: The first decoded sample of packet `number`.
            low, high: The decoded samples to return.

        Returns:
            The samples; the next packet; and the next decoded sample.
        """
        joined: _JoinedFrames | None = None
        ends = self._layout.offsets[number + 1 : stop + 1].tolist()
        for frames, end in zip(self._decode(number, stop, context), ends, strict=False):
            start = position
            for frame in frames:
                position += frame.samples
            if not 0 <= end - position <= self._max_delay:
                if end > low:  # The first decoded Vorbis packet may have another number of samples.
                    counts = f'expected {end - start} samples, got {position - start}'
                    raise ValueError(f'packet {number} is damaged: {counts}')
                position = end
            elif position > low:
                joined = joined or _JoinedFrames(frames[0], high - low)
                for frame in frames:
                    joined.write(frame, start - low)
                    start += frame.samples
            number += 1
            if position >= high:
                break
        if position < high or joined is None:
            raise ValueError(f'packet {number - 1} is damaged: {high - position} samples are missing')
        return joined.samples(), number, position

    def _decode(self, start: int, stop: int, context: Any = None) -> Iterator[list[Any]]:
        """Yields the frames of each packet.

        If `stop` is beyond the last packet, also yields the frames that the decoder returns at the end.
        """
        context, total = context or self._context, len(self.packets.table.sizes)
        for number, packet in enumerate(self.packets.read(start, min(stop, total)), start):
            yield self._frames_of(packet, number, context)
        if stop > total:
            yield self._frames_of(None, total, context)

    def _frames_of(self, packet: Any, number: int, context: Any) -> list[Any]:
        """Returns the frames that a decoder returns for a packet, or for None at the end of the file."""
        try:
            frames: list[Any] = context.decode(packet)
        except import_av().FFmpegError as exc:
            raise ValueError(f'packet {number} is damaged: {exc}') from exc
        for frame in frames:
            rate, channels = frame.sample_rate, frame.layout.nb_channels
            if not self.rate:
                self.rate, self.channels, self.layout = rate, channels, frame.layout.name
            if rate != self.rate or channels != self.channels:
                actual = f'{channels} channels at {rate} Hz'
                raise ValueError(f'expected {self.channels} channels at {self.rate} Hz, got {actual}')
        return frames


def _count(frames: list[Any]) -> int:
    """Returns the number of samples of frames."""
    return sum(frame.samples for frame in frames)


class _JoinedFrames:
    """Joins the samples of frames in one array, in the layout and the dtype of the frames.

    Planes are copied as bytes, which takes 2 µs for a frame of AAC; `to_ndarray` and a copy take 4.5 µs.

    Args:
        frame: A frame with the format of all frames.
        count: The number of samples of the result.
    """

    def __init__(self, frame: Any, count: int) -> None:
        self._format = frame.format.name
        self._channels = frame.layout.nb_channels
        array = frame.to_ndarray()  # Shape (channels, samples), or (1, samples * channels) if interleaved.
        self._array = np.empty((len(array), count * self._channels // len(array)), array.dtype)
        self._planes = [memoryview(plane).cast('B') for plane in self._array]
        self._size = len(self._planes[0])
        self._stride = self._size // count

    def write(self, frame: Any, position: int) -> None:
        """Copies the samples of a frame whose first sample is sample `position` of the result.

        Samples before the start or after the end of the result are left out.
        """
        if frame.format.name != self._format:
            raise ValueError(f'expected samples in {self._format}, got {frame.format.name}')
        begin, stop = position * self._stride, frame.samples * self._stride
        start = 0 if begin >= 0 else -begin
        if begin + stop > self._size:
            stop = self._size - begin
        if start < stop:
            for joined, plane in zip(self._planes, frame.planes, strict=True):
                joined[begin + start : begin + stop] = memoryview(plane)[start:stop]

    def samples(self) -> Samples:
        """Returns the samples, shape (count, channels)."""
        is_planar = len(self._planes) == self._channels
        samples = self._array.T if is_planar else self._array.reshape(-1, self._channels)
        return samples if samples.dtype == np.float32 else as_float(samples)
