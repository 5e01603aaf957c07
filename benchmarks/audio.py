"""Slices of a long recording: bags beside torchcodec and a loop of seeking and decoding with PyAV.

The recording is 31 minutes of AAC in M4A, as ffmpeg's encoder writes it by default, with bands of noise that
the decoder makes up. Slices are half a second at 1, 10 and 30 minutes, by a decoder that is open, and by a
new one. torchcodec needs the libraries of FFmpeg.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import av
import numpy as np

from bags import Audio
from benchmarks.timing import Candidate, time_interleaved

RATE, MINUTES, LENGTH = 44_100, 31, 0.5
PLACES = (1, 10, 30)
"""Minutes."""


def long_recording(path):
    """Encodes a tone and noise, both of varying loudness."""
    time = np.arange(10 * RATE) / RATE
    noise = np.random.default_rng(0).standard_normal(len(time))
    left = 0.5 * np.sin(2 * np.pi * 440 * time)
    right = (0.3 * np.sin(2 * np.pi * 440 * time) + 0.1 * noise) * (np.sin(8 * np.pi * time) > 0)
    samples = np.stack([left, right]).astype(np.float32)
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('aac', rate=RATE, layout='stereo')
        for start in range(0, MINUTES * 60 * RATE, RATE):
            block = np.ascontiguousarray(samples[:, start % len(time) :][:, :RATE])
            frame = av.AudioFrame.from_ndarray(block, format='fltp', layout='stereo')
            frame.sample_rate, frame.pts = RATE, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


class Bags:
    def __init__(self, path):
        self.audio = Audio(path)

    def get(self, start, stop):
        return self.audio.between(start, stop)


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
            blocks.append(frame.to_ndarray())
        first = round((start - begin) * RATE)
        return np.concatenate(blocks, axis=1)[:, first : first + round((stop - start) * RATE)].T


class Torchcodec:
    def __init__(self, path):
        from torchcodec.decoders import AudioDecoder

        self.decoder = AudioDecoder(path)

    def get(self, start, stop):
        return self.decoder.get_samples_played_in_range(start, stop).data.numpy().T


DECODERS = {'bags': Bags, 'av, seek and decode': Loop, 'torchcodec': Torchcodec}


def main(output, *, quick):
    """Prints a table for each place, for open decoders and for new ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'recording.m4a')
        long_recording(path)
        opened = {}
        for name, make in DECODERS.items():
            try:
                opened[name] = make(path)
            except (ImportError, RuntimeError, OSError) as exc:
                print(f'{name} is left out: {str(exc).splitlines()[0]}')
        for minute in PLACES:
            start, stop = 60 * minute, 60 * minute + LENGTH
            lengths = {name: len(decoder.get(start, stop)) for name, decoder in opened.items()}
            if set(lengths.values()) != {int(LENGTH * RATE)}:
                raise AssertionError(f'expected {int(LENGTH * RATE)} samples, got {lengths}')
            candidates = {
                name: Candidate(
                    lambda _, decoder=decoder, start=start, stop=stop: decoder.get(start, stop), 1
                )
                for name, decoder in opened.items()
            }
            candidates |= {
                f'{name}, opened anew': Candidate(
                    lambda _, make=DECODERS[name], start=start, stop=stop: make(path).get(start, stop), 1
                )
                for name in opened
            }
            timings = time_interleaved(candidates, seconds=1 if quick else 3, min_rounds=5)
            output.compare(f'AAC, 0.5 s at {minute} min', timings, 'bags', {}, unit='ms')
