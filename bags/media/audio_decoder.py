"""Audio that is open: from sample numbers to samples.

    packet    0        1            2            3
    decoded   [........][..........][..........][..........]
    heard          [....][..........][..........][....]        sample 0 is the first that is heard

What encoders put before and after the sound is cut away as the file says, as a decoder of all of it does.

A packet is decoded with the help of those before it, whose sound reaches into it. How many that are is a
matter of the codec; with those in `BEFORE` its samples are what they are when all is decoded:

| codec | packets before | samples |
| --- | --- | --- |
| FLAC, ALAC, PCM | 0 | equal |
| Vorbis | 2 | equal |
| MP3 | 32: its bits may lie in packets before | equal |
| AAC | 4 | equal; see `Tape.exact` for noise |
| Opus | 128: what it predicts from fades away | equal for music, within 3e-5 for speech |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from bags.formats.audio import CHECKED, decode_flac
from bags.formats.ffmpeg import import_av
from bags.formats.signatures import HEAD, identify
from bags.formats.wav import find_samples, samples_of
from bags.indexing import Int64s
from bags.media.packets import Packets, Table, open_packets

__all__ = ['Sound', 'Tape', 'WavTape', 'WholeTape', 'open_tape']

Sound = npt.NDArray[np.float32]

BEFORE = {
    'flac': 0, 'alac': 0, 'vorbis': 2, 'mp3float': 32, 'mp3': 32, 'aac': 4, 'opus': 128, 'libopus': 128,
}  # fmt: skip
OTHERS = 64
"""Packets to decode before those of a codec that is not known here."""
SKIP_MANUAL = 1 << 29
"""Flag of libavcodec: samples before and after the sound are cut away here, and not by the decoder."""


class Playable(Protocol):
    """Open audio. One thread at a time may use it."""

    rate: int
    channels: int
    length: int
    begin: float
    cut: str | None

    def read(self, start: int, stop: int, exact: bool = True) -> Sound: ...

    def close(self) -> None: ...


class WavTape:
    """A WAV of samples as they are: what is asked for is read, and nothing else.

    Attributes:
        rate: Samples a second.
        channels: How many there are.
        length: Samples of each.
        begin: When the first is heard, in seconds.
        cut: What is missing at the end; None if nothing is.
    """

    begin = 0.0
    cut: str | None = None

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._form, self._start, stop = find_samples(file)
        self._stride = self._form[4]
        empty, self.rate = samples_of(memoryview(b''), *self._form)
        self.channels = empty.shape[1]
        self.length = (stop - self._start) // self._stride

    def close(self) -> None:
        self.file.close()

    def read(self, start: int, stop: int, exact: bool = True) -> Sound:
        """Returns samples, shape (stop - start, channels)."""
        self.file.seek(self._start + start * self._stride)
        data = self.file.read((stop - start) * self._stride)
        return as_float(samples_of(memoryview(data), *self._form)[0])


@dataclass(frozen=True)
class Cuts:
    """What is heard of the packets of a recording. Of `n` packets:

    Attributes:
        counts: (n,): samples that each decodes to.
        lows, highs: (n,): which of them are heard.
        firsts: (n + 1,): the number of the first that is heard; at the end how many there are.
    """

    counts: Int64s
    lows: Int64s
    highs: Int64s
    firsts: Int64s


class WholeTape:
    """Audio whose samples are all in memory. Attributes as of `WavTape`."""

    begin = 0.0
    cut: str | None = None

    def __init__(self, samples: npt.NDArray[Any], rate: int) -> None:
        self._samples, self.rate = samples, rate
        self.length, self.channels = samples.shape

    def close(self) -> None:
        self._samples = self._samples[:0]

    def read(self, start: int, stop: int, exact: bool = True) -> Sound:
        """Returns samples, shape (stop - start, channels)."""
        return as_float(self._samples[start:stop])


class Tape:
    """Packets of audio, and which samples each holds.

    Args:
        file: The file, which it closes in the end.
        packets: The packets of its audio.
    """

    def __init__(self, file: BinaryIO, packets: Packets) -> None:
        self.file = file
        self.packets = packets
        self._context = self._new_context()
        self._true: tuple[Any, int] | None = None
        self.cut = packets.table.cut
        self.rate = 0
        self.channels = 0
        self._cuts = self._measure()
        self.length = int(self._cuts.firsts[-1])
        heard = np.flatnonzero(self._cuts.highs > self._cuts.lows)
        if not len(heard):
            raise ValueError('expected at least one sample, got none')
        table, first = packets.table, int(heard[0])
        self.begin = 0.0
        if packets.format in ('mp4', 'mov', 'matroska'):
            unit = table.unit[0] / table.unit[1]
            self.begin = int(table.times[first]) * unit + int(self._cuts.lows[first]) / self.rate
            if abs(self.begin) < unit:
                self.begin = 0.0

    def close(self) -> None:
        self._true = None
        self.file.close()

    def _new_context(self) -> Any:
        context = self.packets.context()
        context.thread_count = 1
        context.flags2 |= SKIP_MANUAL
        if context.name == 'flac':
            context.options = CHECKED
        return context

    def _measure(self) -> Cuts:
        """Finds how many samples each packet has: as many as its duration says, if that is so where it is
        tried.

        The last may last shorter than it is, and the first tell what the header may not: rate and channels.
        """
        table = self.packets.table
        count = len(table.sizes)
        few = min(4, count)
        head = [len(samples) for samples in self._decode(0, few)]
        durations = table.durations * table.unit[0] * self.rate
        counts = durations // table.unit[1]
        fixed = self._context.name in ('aac', 'mp3float', 'mp3') and len(set(head)) == 1
        if fixed:
            counts = np.full(count, head[0], np.int64)
        elif bool((durations % table.unit[1]).any()) or not durations[:-1].all():
            return self._count_all()
        start = max(0, count - 1 - BEFORE.get(self._context.name, OTHERS))
        counts[-1] = [len(samples) for samples in self._decode(start, count)][-1]
        if counts[:few].tolist() != head:
            return self._count_all()
        return self._cut(counts)

    def _count_all(self) -> Cuts:
        counts = [len(samples) for samples in self._decode(0, len(self.packets.table.sizes))]
        return self._cut(np.array(counts, np.int64))

    def _cut(self, counts: Int64s) -> Cuts:
        """Cuts as libavcodec does: what is to be skipped at first goes on until enough is skipped."""
        table = self.packets.table
        lows, highs = np.zeros_like(counts), counts.copy()
        highs[~table.shown] = 0
        skips = table.skips if table.skips is not None else np.zeros((len(counts), 2), np.int64)
        left = 0
        for number in np.flatnonzero(skips.any(axis=1)).tolist():
            before, after = skips[number].tolist()
            if before:
                left, other = before, number
                while left > 0 and other < len(counts):
                    lows[other] = min(left, counts[other])
                    left -= int(lows[other])
                    other += 1
            if after:
                highs[number] = max(0, min(int(highs[number]), int(counts[number]) - after))
        heard = np.maximum(highs - lows, 0)
        firsts = np.concatenate([[0], np.cumsum(heard)])
        return Cuts(counts, lows, highs, firsts)

    def read(self, start: int, stop: int, exact: bool = True) -> Sound:
        """Returns samples, shape (stop - start, channels).

        Args:
            start, stop: In `range(length)`.
            exact: AAC may leave it to the decoder to fill bands with noise of its own, which differs with
                all that was decoded before. If it does, everything from the start on is decoded for this.

        Raises:
            ValueError: One of them is damaged.
        """
        if stop <= start:
            return np.empty((0, self.channels), np.float32)
        cuts = self._cuts
        first = int(np.searchsorted(cuts.firsts, start, 'right')) - 1
        last = int(np.searchsorted(cuts.firsts, stop, 'left'))
        name = self._context.name
        before = max(0, first - BEFORE.get(name, OTHERS))
        found = self._heard(before, first, last)
        if name == 'aac' and exact and not np.array_equal(found, self._heard(before, first, last)):
            # Twice the same packets, and not the same samples: so there is noise in them.
            found = self._from_the_start(first, last)
        offset = start - int(cuts.firsts[first])
        return found[offset : offset + stop - start]

    def _heard(self, before: int, first: int, last: int) -> Sound:
        self._context.flush_buffers()
        return self._join(self._decode(before, last), before, first)

    def _from_the_start(self, first: int, last: int) -> Sound:
        """Decodes all that comes before, or what has come since this was done last."""
        context, done = self._true or (None, 0)
        if context is None or done > first:
            context, done = self._new_context(), 0
        self._true = None
        found = self._join(self._decode(done, last, context), done, first)
        self._true = context, last
        return found

    def _join(self, blocks: Iterator[Sound], begin: int, first: int) -> Sound:
        cuts, parts = self._cuts, []
        for number, block in enumerate(blocks, begin):
            if len(block) != cuts.counts[number]:
                raise ValueError(
                    f'packet {number} is damaged: expected {cuts.counts[number]} samples, got {len(block)}'
                )
            if number >= first:
                parts.append(block[cuts.lows[number] : cuts.highs[number]])
        return np.concatenate(parts)

    def _decode(self, start: int, stop: int, context: Any = None) -> Iterator[Sound]:
        """Yields what each packet decodes to, shape (samples, channels)."""
        av = import_av()
        context = context or self._context
        for number, packet in enumerate(self.packets.read(start, stop), start):
            try:
                frames = context.decode(packet)
            except av.FFmpegError as exc:
                raise ValueError(f'packet {number} is damaged: {exc}') from exc
            blocks = [_samples_of(frame) for frame in frames]
            for frame, block in zip(frames, blocks, strict=True):
                if not self.rate:
                    self.rate, self.channels = frame.sample_rate, block.shape[1]
                if (frame.sample_rate, block.shape[1]) != (self.rate, self.channels):
                    found = f'{block.shape[1]} channels at {frame.sample_rate} Hz'
                    raise ValueError(f'expected {self.channels} channels at {self.rate} Hz, got {found}')
            yield np.concatenate(blocks) if blocks else np.empty((0, self.channels), np.float32)


def _samples_of(frame: Any) -> Sound:
    block = frame.to_ndarray()
    return as_float(block.T if frame.format.is_planar else block.reshape(-1, frame.layout.nb_channels))


def as_float(samples: npt.NDArray[Any]) -> Sound:
    """Returns samples as float32, of full scale from -1 to 1."""
    kind = samples.dtype.name
    if kind == 'uint8':
        return (samples.astype(np.float32) - 128) / np.float32(128)
    if kind in ('int16', 'int32'):
        return samples.astype(np.float32) / np.float32(2 ** (8 * samples.dtype.itemsize - 1))
    return samples.astype(np.float32)


def _is_unbroken(file: BinaryIO, table: Table) -> bool:
    """Tells if each packet of a FLAC begins where the one before ended, and they have all of its samples.

    Packets that were cut apart in the wrong places, at damage or (rarely) at samples that look like the
    header of a frame, do not. Which it is, a decode of everything tells.
    """
    file.seek(18)
    expected = int.from_bytes(file.read(8), 'big') & (1 << 36) - 1
    ends = table.times + table.durations
    if int(table.times[0]) or not np.array_equal(ends[:-1], table.times[1:]):
        return False
    return not expected or int(ends[-1]) == expected  # A tick is a sample.


def open_tape(file: BinaryIO) -> Playable:
    """Opens audio, and finds out which samples it has.

    Raises:
        ValueError: None, or no sample in it.
    """
    file.seek(0)
    if identify(file.read(HEAD)) == 'WAV':
        try:
            return WavTape(file)
        except ValueError as exc:
            if 'cut off' in str(exc):
                raise
    packets, _ = open_packets(file, 'audio')
    if packets.format == 'flac' and not _is_unbroken(file, packets.table):
        file.seek(0)
        return WholeTape(*decode_flac(file.read()))
    return Tape(file, packets)
