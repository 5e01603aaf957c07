"""Makes videos of every kind, whose pictures say which frame they are."""

from __future__ import annotations

import io
import struct
from fractions import Fraction

import av
import numpy as np

HEIGHT, WIDTH = 96, 128
BITS = 12


def picture(number, height=HEIGHT, width=WIDTH):
    """A frame with its number in 12 black and white blocks, on which any codec agrees."""
    frame = np.full((height, width, 3), 16, np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            row, column = divmod(bit, 4)
            rows = slice(row * height // 3, (row + 1) * height // 3)
            frame[rows, column * width // 4 : (column + 1) * width // 4] = 235
    return frame


def number_of(frame):
    """Reads the number that is in a frame."""
    height, width = frame.shape[:2]
    number = 0
    for bit in range(BITS):
        row, column = divmod(bit, 4)
        top, left = row * height // 3, column * width // 4
        block = frame[top + height // 12 : top + height // 4, left + width // 16 : left + 3 * width // 16]
        number |= int(block.mean() > 120) << bit
    return number


def film(codec='libx264', count=120, format='mp4', *, times=None, options=None, size=(HEIGHT, WIDTH),
         muxing=None, numbers=None, pix_fmt='yuv420p', audio=False):  # fmt: skip
    """A video as bytes: frames of 1/25 s, or at `times` in milliseconds."""
    file = io.BytesIO()
    with av.open(file, 'w', format=format, options=muxing or {}) as container:
        stream = container.add_stream(codec, rate=25, options=options or {})
        stream.height, stream.width, stream.pix_fmt = *size, pix_fmt
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        if audio:
            sound = container.add_stream('aac', rate=8000, layout='mono')
        for index, number in enumerate(numbers or range(count)):
            frame = av.VideoFrame.from_ndarray(picture(number, *size), format='rgb24').reformat(
                format=pix_fmt
            )
            frame.pts, frame.time_base = (
                (index, Fraction(1, 25)) if times is None else (times[index], Fraction(1, 1000))
            )
            container.mux(stream.encode(frame))
            if audio:
                block = av.AudioFrame.from_ndarray(
                    np.zeros((1, 320), np.float32), format='fltp', layout='mono'
                )
                block.sample_rate, block.pts = 8000, 320 * index
                container.mux(sound.encode(block))
        container.mux(stream.encode(None))
        if audio:
            container.mux(sound.encode(None))
    return file.getvalue()


def x264(**options):
    settings = {'keyint': 24, 'min-keyint': 24, 'scenecut': 0, 'bframes': 3, 'b-adapt': 0, **options}
    return {'x264-params': ':'.join(f'{name.replace("_", "-")}={value}' for name, value in settings.items())}


def remuxed(data, format, *, skip=0, stop=None, shift=0, muxing=None):
    """The packets of a video in another container: without the first `skip`, or later by `shift` ticks."""
    file = io.BytesIO()
    with (
        av.open(io.BytesIO(data)) as source,
        av.open(file, 'w', format=format, options=muxing or {}) as target,
    ):
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream)
        for number, packet in enumerate(source.demux(stream)):
            if packet.size and skip <= number and (stop is None or number < stop):
                packet.stream = copy
                packet.pts += shift
                packet.dts = packet.dts + shift if packet.dts is not None else None
                target.mux(packet)
    return file.getvalue()


def boxes(data):
    start = 0
    while start < len(data):
        size, kind = struct.unpack_from('>I4s', data, start)
        yield kind, data[start + 8 : start + size]
        start += size


def box(kind, content):
    return struct.pack('>I4s', 8 + len(content), kind) + content


def with_edits(data, *edits):
    """An MP4 whose header comes last, with other edits: milliseconds, first time or -1, rate."""
    table = struct.pack('>II', 0, len(edits))
    table += b''.join(
        struct.pack('>Iii', duration, first, int(rate * 0x10000)) for duration, first, rate in edits
    )

    def change(kind, content):
        if kind == b'edts':
            return b''
        if kind == b'trak':
            content = box(b'edts', box(b'elst', table)) + b''.join(change(*part) for part in boxes(content))
        elif kind == b'moov':
            content = b''.join(change(*part) for part in boxes(content))
        return box(kind, content)

    return b''.join(change(kind, content) for kind, content in boxes(data))


def decoded(data):
    """All frames and their times, by decoding everything."""
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        times = [frame.pts * stream.time_base.numerator / stream.time_base.denominator for frame in frames]
    return np.stack([frame.to_ndarray(format='rgb24') for frame in frames]), np.array(times)


class Counting(io.BytesIO):
    """A file that knows which bytes of it were read."""

    def __init__(self, data):
        super().__init__(data)
        self.ranges = []

    def read(self, size=-1):
        start = self.tell()
        found = super().read(size)
        self.ranges.append((start, len(found)))
        return found


class Source:
    """What a handle opens: bytes, by a file that counts."""

    name = 'a film'

    def __init__(self, data):
        self.data = data
        self.files = []

    def open(self):
        self.files.append(Counting(self.data))
        return self.files[-1]

    def error(self, exc):
        return ValueError(f'{self.name}: {exc}')

    @property
    def count(self):
        return sum(size for file in self.files for _, size in file.ranges)
