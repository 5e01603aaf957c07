"""Slices of recordings of ten minutes: bags beside PyAV and torchcodec.

Half a second and five seconds at four places of a tone and noise in AAC, MP3, Opus and FLAC, as PyAV encodes
them by default. Its encoder of AAC replaces bands of noise by their loudness; the decoder generates noise.

"The same packets" is the floor: PyAV decodes the packets that bags decodes, which were read before, into one
array, which equals the result of bags. It includes the packets before a slice that an equal slice needs, and
for AAC a new decoder for each slice, since only a new decoder generates the same noise. "Seek and decode" is
a plain loop, whose samples differ at the start of a slice of MP3 and Opus, and in the noise of AAC.
torchcodec needs the libraries of FFmpeg.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import av
import numpy as np

from bags import Audio
from bags.media.audio_decoder import PACKETS_BEFORE
from bags.media.priming import SKIP_MANUAL
from benchmarks.timing import Candidate, time_interleaved

MINUTES, STARTS = 10, (60, 180, 300, 480)
"""The length of the recordings, and the starts of the slices in seconds."""
CODECS = {
    'AAC': ('aac', 'm4a', 44_100),
    'MP3': ('libmp3lame', 'mp3', 44_100),
    'Opus': ('libopus', 'opus', 48_000),
    'FLAC': ('flac', 'flac', 44_100),
}
"""Encoders, file extensions and rates."""
LENGTHS = (0.5, 5)
"""Seconds."""
SAME_PACKETS = 'av, the same packets'
MAX_RATIO = 1.25
"""The floor: the time of bags over the time of PyAV for the same packets."""


def long_recording(path, encoder, rate):
    """Encodes a tone and noise, both of varying loudness."""
    time = np.arange(10 * rate) / rate
    noise = np.random.default_rng(0).standard_normal(len(time))
    left = 0.5 * np.sin(2 * np.pi * 440 * time)
    right = (0.3 * np.sin(2 * np.pi * 440 * time) + 0.1 * noise) * (np.sin(8 * np.pi * time) > 0)
    samples = np.stack([left, right]).astype(np.float32)
    with av.open(path, 'w') as container:
        stream = container.add_stream(encoder, rate=rate, layout='stereo')
        for start in range(0, MINUTES * 60 * rate, rate):
            block = np.ascontiguousarray(samples[:, start % len(time) :][:, :rate])
            frame = av.AudioFrame.from_ndarray(block, format='fltp', layout='stereo')
            frame.sample_rate, frame.pts = rate, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


class Bags:
    def __init__(self, path):
        self.audio = Audio(path)

    def get(self, start, stop):
        return self.audio.between(start, stop)


class SamePackets:
    """Decodes the packets that an equal slice needs into one array. All packets are read in advance.

    Args:
        path: The file.
        keeps_decoder: Whether one decoder serves all slices. Otherwise, AAC has a new one for each slice.
    """

    def __init__(self, path, keeps_decoder=False):
        with av.open(path) as container:
            stream = container.streams.audio[0]
            self.packets = [packet for packet in container.demux(stream) if packet.size]
            self.codec, self.extradata = stream.codec_context.name, stream.codec_context.extradata
        self.rate, self.keeps_decoder = stream.rate, keeps_decoder
        self.context = self.new_context()
        counts = [self.count(packet) for packet in self.packets]
        self.offsets = np.cumsum([0, *counts])
        self.context = self.new_context(flags=0)
        self.priming = sum(counts[:8]) - sum(self.count(packet) for packet in self.packets[:8])
        self.context = self.new_context()

    def new_context(self, flags=SKIP_MANUAL):
        context = av.CodecContext.create(self.codec, 'r')
        context.extradata, context.thread_count = self.extradata, 1
        context.flags2 |= flags
        return context

    def count(self, packet):
        return sum(frame.samples for frame in self.context.decode(packet))

    def get(self, start, stop):
        low, high = (round(time * self.rate) + self.priming for time in (start, stop))
        first = int(np.searchsorted(self.offsets, low, 'right')) - 1 - PACKETS_BEFORE[self.codec]
        position, context, array = int(self.offsets[first]), self.context, None
        if self.codec == 'aac' and not self.keeps_decoder:
            context = self.new_context()
        else:
            context.flush_buffers()
        for packet in self.packets[first:]:
            for frame in context.decode(packet):
                begin, position = position, position + frame.samples
                if position <= low:
                    continue
                if array is None:
                    array = np.empty((frame.layout.nb_channels, high - low), np.float32)
                    if not frame.format.is_planar:
                        array = array.reshape(high - low, -1).T
                samples = planar_samples(frame)[:, max(0, low - begin) : high - begin]
                target = array[:, max(0, begin - low) : position - low]
                if samples.dtype == np.float32:
                    target[:] = samples
                else:
                    np.multiply(samples, np.float32(2 / 256**samples.itemsize), out=target)
            if position >= high:
                return array.T
        raise AssertionError('expected more packets')


class Loop:
    """Seeks with PyAV, and decodes up to the end of the slice."""

    def __init__(self, path):
        self.container = av.open(path)
        self.stream = self.container.streams.audio[0]

    def get(self, start, stop):
        self.container.seek(round(start / self.stream.time_base), stream=self.stream)
        blocks, begin = [], None
        for frame in self.container.decode(self.stream):
            if frame.time >= stop:
                break
            begin = frame.time if begin is None else begin
            blocks.append(planar_samples(frame))
        first = round((start - begin) * self.stream.rate)
        samples = np.concatenate(blocks, axis=1)[:, first : first + round((stop - start) * self.stream.rate)]
        if samples.dtype != np.float32:
            samples = samples * np.float32(2 / 256**samples.itemsize)
        return samples.T


def planar_samples(frame):
    """Returns the samples of a frame, shape (channels, samples)."""
    array = frame.to_ndarray()
    return array if frame.format.is_planar else array.reshape(-1, frame.layout.nb_channels).T


class Torchcodec:
    def __init__(self, path):
        from torchcodec.decoders import AudioDecoder

        self.decoder = AudioDecoder(path)

    def get(self, start, stop):
        return self.decoder.get_samples_played_in_range(start, stop).data.numpy().T


DECODERS = {'bags': Bags, SAME_PACKETS: SamePackets, 'av, seek and decode': Loop, 'torchcodec': Torchcodec}


def read_slices(decoder, length):
    """Reads a slice at each place."""
    for start in STARTS:
        decoder.get(start, start + length)


def main(output, *, quick):
    """Prints a table for each codec and length, for open decoders and for new ones."""
    seconds = 1 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        for codec, (encoder, extension, rate) in CODECS.items():
            path = str(Path(folder) / f'recording.{extension}')
            long_recording(path, encoder, rate)
            decoders = dict(DECODERS)
            if codec == 'AAC':
                decoders['av, the same packets, one decoder'] = lambda path: SamePackets(path, True)
            opened = {}
            for name, make in decoders.items():
                try:
                    opened[name] = make(path)
                except (ImportError, RuntimeError, OSError) as exc:
                    print(f'{name} is left out: {str(exc).splitlines()[0]}')
            for length in LENGTHS:
                for start in STARTS:
                    slices = {name: decoder.get(start, start + length) for name, decoder in opened.items()}
                    if not np.array_equal(slices['bags'], slices[SAME_PACKETS]):
                        raise AssertionError(f'expected equal samples of {codec}')
                    shapes = {name: array.shape for name, array in slices.items()}
                    if set(shapes.values()) != {(round(length * rate), 2)}:
                        raise AssertionError(
                            f'expected {round(length * rate)} samples of {codec}, got {shapes}'
                        )
                candidates = {
                    name: Candidate(
                        lambda _, decoder=decoder, length=length: read_slices(decoder, length), len(STARTS)
                    )
                    for name, decoder in opened.items()
                }
                timings = time_interleaved(candidates, seconds=seconds, min_rounds=5, max_rounds=301)
                output.compare(
                    f'{codec}, {length:g} s', timings, 'bags', {SAME_PACKETS: 1 / MAX_RATIO}, unit='ms'
                )
            candidates = {
                name: Candidate(
                    lambda _, make=decoders[name], path=path: make(path).get(
                        STARTS[2], STARTS[2] + LENGTHS[0]
                    ),
                    1,
                )
                for name in opened
                if not name.startswith(SAME_PACKETS)
            }
            timings = time_interleaved(candidates, seconds=seconds, min_rounds=5)
            output.compare(f'{codec}, opening and {LENGTHS[0]} s', timings, 'bags', {}, unit='ms')
