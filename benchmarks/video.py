"""Frames of a long video: bags beside torchcodec and a loop of seeking and decoding with PyAV.

The video is ten minutes of H.264 of 640 x 360 pixels, with B-frames and a key frame every second: the
one of the examples, repeated. All decode with one thread, the default of torchcodec, which needs the
libraries of FFmpeg.
"""

from __future__ import annotations

import io
import random
import tempfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from bags import Video
from benchmarks import report
from benchmarks.timing import Candidate, time_interleaved

VIDEO = Path(__file__).parents[1] / 'examples/data/bunny.mp4'
FRAMES, RATE, GROUP = 15_000, 25, 25


def long_video(path, frames=FRAMES):
    """Encodes the video of the examples, and repeats its packets; by default for ten minutes."""
    with av.open(str(VIDEO)) as source:
        pictures = [frame.reformat(format='yuv420p') for frame in source.decode(video=0)][: 4 * GROUP]
    short = io.BytesIO()
    with av.open(short, 'w', format='mp4') as target:
        settings = {'x264-params': f'keyint={GROUP}:min-keyint={GROUP}:scenecut=0:bframes=3', 'b': '2500k'}
        stream = target.add_stream('libx264', rate=RATE, options=settings)
        stream.height, stream.width, stream.pix_fmt = 360, 640, 'yuv420p'
        for number, picture in enumerate(pictures):
            picture.pts, picture.time_base = number, Fraction(1, RATE)
            target.mux(stream.encode(picture))
        target.mux(stream.encode(None))
    short.seek(0)
    with av.open(short) as source, av.open(str(path), 'w') as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream)
        packets = [packet for packet in source.demux(stream) if packet.size]
        length = round(len(packets) / RATE / stream.time_base)
        for repeat in range(frames // len(packets)):
            for packet in packets:
                again = av.Packet(bytes(packet))
                again.pts, again.dts = packet.pts + repeat * length, packet.dts + repeat * length
                again.time_base, again.stream, again.is_keyframe = packet.time_base, copy, packet.is_keyframe
                target.mux(again)


class Bags:
    def __init__(self, path):
        self.video = Video(path, threads=1)

    def get(self, numbers):
        return self.video[numbers]


class Loop:
    """Loops over frames with PyAV: seeks to the key frame before each frame that is not ahead; decodes."""

    def __init__(self, path):
        self.container = av.open(path)
        self.stream = self.container.streams.video[0]
        self.stream.thread_count = 1
        self.step = round(1 / RATE / self.stream.time_base)

    def get(self, numbers):
        found, frames, last = {}, None, -1
        for number in sorted({*numbers}):
            if frames is None or number // GROUP != last // GROUP:
                self.container.seek(number * self.step, stream=self.stream)
                frames = self.container.decode(self.stream)
            for frame in frames:
                if frame.pts == number * self.step:
                    found[number] = frame.to_ndarray(format='rgb24')
                    break
            last = number
        return np.stack([found[number] for number in numbers])


class Torchcodec:
    mode = 'exact'

    def __init__(self, path):
        from torchcodec.decoders import VideoDecoder

        self.decoder = VideoDecoder(path, dimension_order='NHWC', seek_mode=self.mode)

    def get(self, numbers):
        return self.decoder.get_frames_at(list(numbers)).data.numpy()


class Approximate(Torchcodec):
    mode = 'approximate'


DECODERS = {
    'bags': Bags,
    'av, seek and decode': Loop,
    'torchcodec': Torchcodec,
    'torchcodec, approximate': Approximate,
}


def requests(count=12):
    """Yields the frames of each call, for a pattern of access."""
    chance = random.Random(0)
    starts = [chance.randrange(FRAMES - 16) for _ in range(count)]
    many = [[chance.randrange(FRAMES) for _ in range(32)] for _ in range(2)]
    near = [
        [start + chance.randrange(min(400, FRAMES - start)) for _ in range(32)]
        for start in starts[: count // 4]
    ]
    return {
        '16 frames in a row': [range(start, start + 16) for start in starts],
        'one frame': [[start] for start in starts],
        '32 frames, sorted': [sorted(numbers) for numbers in many],
        '32 frames, unsorted': many,
        '32 of 16 s, unsorted': near,
    }


def main(output, *, quick):
    """Prints one table a pattern of access."""
    report.heading('Video: ms a call, one thread each')
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'video.mp4')
        long_video(path)
        size = Path(path).stat().st_size
        print(f'{FRAMES} frames, {size / 1e6:.0f} MB, {8e-6 * size / FRAMES * RATE:.1f} Mbit/s')
        opened = {}
        for name, make in DECODERS.items():
            try:
                opened[name] = make(path)
            except (ImportError, RuntimeError, OSError) as exc:
                print(f'{name} is left out: {str(exc).splitlines()[0]}')
        opening = {
            name: Candidate(lambda _, make=DECODERS[name]: make(path).get(range(7500, 7516)), 1)
            for name in opened
        }
        timings = time_interleaved(opening, seconds=1 if quick else 3, min_rounds=3)
        output.compare('opening, and 16 frames', timings, 'bags', {}, unit='ms')
        for title, calls in requests().items():
            check(opened, calls[:2], title)
            candidates = {
                name: Candidate(
                    lambda _, made=made, calls=calls: [made.get(numbers) for numbers in calls], len(calls)
                )
                for name, made in opened.items()
            }
            timings = time_interleaved(candidates, seconds=1 if quick else 4, min_rounds=3)
            output.compare(title, timings, 'bags', {}, unit='ms')
        print(f'\nopening and a slice from the middle: bags reads {fraction_read(path):.2%} of the file')


def check(opened, calls, title):
    """Raises if a decoder returns other frames than bags; rounding of colours may differ."""
    for numbers in calls:
        expected = opened['bags'].get(numbers)[::5]
        for name, decoder in opened.items():
            difference = np.abs(decoder.get(numbers)[::5].astype(int) - expected).mean()
            if difference >= 2:
                raise AssertionError(f'{name}, {title}: frames differ by {difference}')


def fraction_read(path):
    """Returns the fraction of the file that a first slice from the middle reads."""
    total = 0

    class Counting(io.FileIO):
        def read(self, size=-1):
            nonlocal total
            data = super().read(size)
            total += len(data)
            return data

    class Source:
        name = path

        def open(self):
            return Counting(path)

        def error(self, exc):
            return exc

    Video(Source())[FRAMES // 2 : FRAMES // 2 + 16]
    return total / Path(path).stat().st_size
