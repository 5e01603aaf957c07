"""Makes videos of every kind, whose frames show their numbers."""

from __future__ import annotations

import functools
import io
import random
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

HEIGHT, WIDTH = 96, 128
BITS = 12


def picture(number, height=HEIGHT, width=WIDTH):
    """Returns a frame that shows its number as 12 black and white blocks, which any codec keeps."""
    frame = np.full((height, width, 3), 16, np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            row, column = divmod(bit, 4)
            rows = slice(row * height // 3, (row + 1) * height // 3)
            frame[rows, column * width // 4 : (column + 1) * width // 4] = 235
    return frame


def number_of(frame):
    """Reads the number that a frame shows."""
    height, width = frame.shape[:2]
    number = 0
    for bit in range(BITS):
        row, column = divmod(bit, 4)
        top, left = row * height // 3, column * width // 4
        block = frame[top + height // 12 : top + height // 4, left + width // 16 : left + 3 * width // 16]
        number |= int(block.mean() > 120) << bit
    return number


def film(codec='libx264', count=120, format='mp4', *, times=None, options=None, size=(HEIGHT, WIDTH),
         muxing=None, numbers=None, pix_fmt='yuv420p', audio=False, draw=picture):  # fmt: skip
    """Returns a video as bytes: frames of 1/25 s, or at `times` in milliseconds."""
    file = io.BytesIO()
    with av.open(file, 'w', format=format, options=muxing or {}) as container:
        stream = container.add_stream(codec, rate=25, options=options or {})
        stream.height, stream.width, stream.pix_fmt = *size, pix_fmt
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        if audio:
            sound = container.add_stream('aac', rate=8000, layout='mono')
        for index, number in enumerate(numbers or range(count)):
            frame = av.VideoFrame.from_ndarray(draw(number, *size), format='rgb24').reformat(format=pix_fmt)
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


def several(format, videos=(), audios=()):
    """Returns a file of videos (codec, fps, frames, size, first number) and audios (codec, rate, Hz).

    Each audio stream lasts two seconds.
    """
    file = io.BytesIO()
    with av.open(file, 'w', format=format) as container:
        streams = [container.add_stream(codec, rate=fps) for codec, fps, *_ in videos]
        for stream, (*_, size, _) in zip(streams, videos, strict=True):
            (stream.height, stream.width), stream.pix_fmt = size, 'yuv420p'
        sounds = [container.add_stream(codec, rate=rate, layout='mono') for codec, rate, _ in audios]
        for stream, (_, fps, count, size, first) in zip(streams, videos, strict=True):
            for index in range(count):
                image = av.VideoFrame.from_ndarray(picture(first + index, *size), format='rgb24')
                frame = image.reformat(format='yuv420p')
                frame.pts, frame.time_base = index, Fraction(1, fps)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        for sound, (_, rate, frequency) in zip(sounds, audios, strict=True):
            wave = np.sin(2 * np.pi * frequency * np.arange(2 * rate) / rate).astype(np.float32) / 2
            for start in range(0, len(wave) - 1023, 1024):
                block = av.AudioFrame.from_ndarray(
                    wave[None, start : start + 1024], format='fltp', layout='mono'
                )
                block.sample_rate, block.pts, block.time_base = rate, start, Fraction(1, rate)
                container.mux(sound.encode(block))
            container.mux(sound.encode(None))
    return file.getvalue()


def deep(values, pix_fmt, codec='ffv1', format='matroska', options=None):
    """Returns the stored frames as uint16, shape (time, height, width) or (time, height, width, 3)."""
    file = io.BytesIO()
    with av.open(file, 'w', format=format) as container:
        stream = container.add_stream(codec, rate=25, options=options or {})
        (stream.height, stream.width), stream.pix_fmt = values.shape[1:3], pix_fmt
        for index, value in enumerate(values):
            frame = av.VideoFrame.from_ndarray(value, format=pix_fmt if value.ndim == 2 else 'rgb48le')
            frame = frame.reformat(format=pix_fmt)
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def x264(**options):
    settings = {'keyint': 24, 'min-keyint': 24, 'scenecut': 0, 'bframes': 3, 'b-adapt': 0, **options}
    return {'x264-params': ':'.join(f'{name.replace("_", "-")}={value}' for name, value in settings.items())}


def remuxed(data, format, *, skip=0, stop=None, shift=0, muxing=None):
    """Copies the packets of a video to another container, `shift` ticks later or without the first `skip`."""
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
    """Returns an MP4 whose header is at its end, with other edits: milliseconds, first time or -1, rate."""
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
    """Returns all frames and their times, by decoding everything.

    FFmpeg 7 also returns frames of HEVC before the first key frame, with gray in place of missing ones.
    """
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        packets = list(container.demux(stream))
        if stream.codec_context.name == 'hevc':
            packets = packets[[packet.is_keyframe for packet in packets].index(True) :]
        frames = [frame for packet in packets for frame in packet.decode()]
        times = [frame.pts * stream.time_base.numerator / stream.time_base.denominator for frame in frames]
    return np.stack([frame.to_ndarray(format='rgb24') for frame in frames]), np.array(times)


class Counting(io.BytesIO):
    """A file that records which of its bytes were read."""

    def __init__(self, data):
        super().__init__(data)
        self.ranges = []

    def read(self, size=-1):
        start = self.tell()
        found = super().read(size)
        self.ranges.append((start, len(found)))
        return found


class Source:
    """The source of a lazy video or audio: bytes, in a file that records reads."""

    name = 'a film'
    is_remote = True

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


DATA = Path(__file__).parents[2] / 'examples/data'
HEVC = {'x265-params': 'keyint=24:min-keyint=24:log-level=none:bframes=4'}
VPX = {
    'deadline': 'good',
    'cpu-used': '8',
    'g': '24',
    'auto-alt-ref': '1',
    'lag-in-frames': '16',
    'b': '100k',
}
SVT = {'preset': '10', 'g': '24', 'crf': '20'}
PARTS = {'g': '24', 'bf': '2'}


@functools.cache
def varied():
    """Returns times in milliseconds, at varying distances."""
    chance = random.Random(0)
    return np.cumsum([0, *(chance.choice([7, 10, 33, 40, 100]) for _ in range(119))]).tolist()


@functools.cache
def open_gops(format='mp4'):
    return film(format=format, options=x264(open_gop=1))


KINDS = {
    'closed groups': lambda: film(options=x264()),
    'open groups': open_gops,
    'a pyramid of B-frames': lambda: film(options=x264(open_gop=1, b_pyramid='normal', bframes=5, ref=4)),
    'a picture that is restored bit by bit': lambda: film(options=x264(intra_refresh=1)),
    'interlaced': lambda: film(options=x264(open_gop=1, tff=1)),
    'HEVC': lambda: film('libx265', options=HEVC),
    'VP8 with hidden frames': lambda: film('libvpx', format='webm', options=VPX),
    'VP9 with hidden frames': lambda: film('libvpx-vp9', format='webm', options=VPX),
    'VP9 in MP4': lambda: film('libvpx-vp9', options=VPX),
    'AV1': lambda: film('libsvtav1', options=SVT),
    'AV1 with forward key frames': lambda: film(
        'libsvtav1', options=SVT | {'svtav1-params': 'irefresh-type=1'}
    ),
    'MPEG-4': lambda: film('mpeg4', options=PARTS),
    'MPEG-4 in AVI': lambda: film('mpeg4', format='avi', options=PARTS),
    'MPEG-2': lambda: film('mpeg2video', format='matroska', options=PARTS),
    'FFV1': lambda: film('ffv1', format='matroska'),
    'MPEG-1 in MPEG-PS': lambda: film('mpeg1video', format='mpeg', options=PARTS),
    'MPEG-2 in MPEG-PS': lambda: film('mpeg2video', format='vob', options=PARTS),
    'MPEG-2 without a container': lambda: film('mpeg2video', format='mpeg2video', options=PARTS),
    'H.264 in MPEG-TS': lambda: film(format='mpegts', options=x264(open_gop=1)),
    'H.264 in M2TS': lambda: film(
        format='mpegts', options=x264(open_gop=1), muxing={'mpegts_m2ts_mode': '1'}
    ),
    'H.264 in FLV': lambda: film(format='flv', options=x264(open_gop=1)),
    'Sorenson in FLV': lambda: film('flv', format='flv', options={'g': '24'}),
    'WMV': lambda: film('wmv2', format='asf', options={'g': '24'}),
    'Motion JPEG': lambda: film('mjpeg', format='mov', pix_fmt='yuvj420p'),
    'odd sizes': lambda: film(options=x264(), size=(97, 131), pix_fmt='yuv444p'),
    'varying distances': lambda: film(times=varied(), options=x264(open_gop=1)),
    'varying distances in Matroska': lambda: film(
        times=varied(), format='matroska', options=x264(open_gop=1)
    ),
    'a late start': lambda: film(times=range(5000, 9800, 40), options=x264(open_gop=1)),
    'a late start in Matroska': lambda: film(times=range(5000, 9800, 40), format='matroska'),
    'an edit': lambda: with_edits(open_gops(), (2000, 1024 + 512 * 30, 1)),
    'an edit within a frame': lambda: with_edits(open_gops(), (2000, 1024 + 512 * 30 + 100, 1)),
    'an edit after a pause': lambda: with_edits(open_gops(), (500, -1, 1), (2310, 1024 + 512 * 5, 1)),
    'two edits': lambda: with_edits(open_gops(), (1000, 1024 + 512 * 60, 1), (1000, 1024, 1)),
    'no edit': lambda: with_edits(open_gops()),
    'fragments': lambda: film(options=x264(open_gop=1), muxing={'movflags': 'frag_keyframe+empty_moov'}),
    'QuickTime': lambda: open_gops('mov'),
    'Matroska': lambda: open_gops('matroska'),
    'audio beside it': lambda: film(options=x264(open_gop=1), audio=True),
    'audio beside it, in Matroska': lambda: film(format='matroska', options=x264(open_gop=1), audio=True),
    'a beginning that is cut away': lambda: remuxed(open_gops(), 'mp4', skip=24),
    'a beginning within a group': lambda: remuxed(open_gops(), 'mp4', skip=10),
    'a beginning that is cut away, HEVC': lambda: remuxed(film('libx265', options=HEVC), 'mp4', skip=24),
    'a beginning before 0': lambda: remuxed(open_gops(), 'mp4', shift=-5000),
    'one frame': lambda: film(count=1),
    'two frames': lambda: film(count=2, options=x264()),
    'the demo': (DATA / 'bunny.mp4').read_bytes,
}


@functools.cache
def example(kind):
    data = KINDS[kind]()
    return data, *decoded(data)


def with_decoding_times(data, format, after=0, false_keys=False):
    """Copies a video to another container, with decoding times as presentation times from a packet on.

    With `false_keys`, the second packet after a key frame is called one too, as by `mpeg4_unpack_bframes`.
    """
    file = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(file, 'w', format=format) as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream, opaque=True)
        key = 0
        for number, packet in enumerate(source.demux(stream)):
            if packet.size:
                if packet.is_keyframe:
                    key = number
                packet.is_keyframe |= false_keys and 0 < key == number - 2
                if format == 'avi':  # Its only time of a packet is its number.
                    packet.dts, packet.duration, packet.time_base = number, 1, Fraction(1, 25)
                if number >= after:
                    packet.pts = packet.dts
                packet.stream = copy
                target.mux(packet)
    return file.getvalue()


def packed_b_frames(format='avi', count=60, b_frames=2, is_cut=False):
    """Returns MPEG-4 as XviD and DivX stored it: B-frames in the packet of the frame that they refer to.

    encoded    I   P   b   b   P   b   b        coded one by one
    stored     I   Pb  b   n   Pb  b   n        n: a frame that is not coded

    With `is_cut`, it ends with a packet of several frames, as XviD ends where its encoder is not flushed.
    """
    data = film('mpeg4', count, 'avi', options={'g': '12', 'bf': str(b_frames), 'b_strategy': '0'})
    with av.open(io.BytesIO(data)) as source:
        stream = source.streams.video[0]
        frames = [bytes(packet) for packet in source.demux(stream) if packet.size]
        types = [frame[frame.index(b'\0\0\1\xb6') + 4] >> 6 for frame in frames]
        mark = b'\0\0\1\xb2DivX503b1393p'
        # Type P, modulo 0, marker, 5 bits of the time, marker, not coded, stuffing.
        empty = b'\0\0\1\xb6' + int('0101000011001111', 2).to_bytes(2, 'big')
        stored, number = [], 0
        while number < len(frames):
            run = 1
            while number + run < len(frames) and types[number + run] == 2:
                run += 1
            if run == 1:
                stored.append(frames[number])
            else:
                stored += [
                    frames[number] + frames[number + 1],
                    *frames[number + 2 : number + run],
                    empty,
                ]
            number += run
        while is_cut and stored[-1].count(b'\0\0\1\xb6') == 1:
            stored.pop()
        stored[0] = stored[0].replace(b'\0\0\1\xb6', mark + b'\0\0\1\xb6', 1)
        file = io.BytesIO()
        with av.open(file, 'w', format=format) as target:
            copy = target.add_stream_from_template(stream, opaque=True)
            for index, content in enumerate(stored):
                packet = av.Packet(content)
                packet.pts = packet.dts = index
                packet.duration, packet.time_base = 1, Fraction(1, 25)
                packet.is_keyframe = content[content.index(b'\0\0\1\xb6') + 4] >> 6 == 0
                packet.stream = copy
                target.mux(packet)
    return file.getvalue()
