"""Frames by number equal those of a full decode: over codecs, their options and containers."""

import random

import av
import numpy as np
import pytest

from bags import Video
from tests.media.samples import (
    HEVC,
    KINDS,
    PARTS,
    SVT,
    VPX,
    Counting,
    Source,
    decoded,
    film,
    number_of,
    picture,
    with_edits,
    x264,
)

LOW_DELAY = {**VPX, 'auto-alt-ref': '0', 'lag-in-frames': '0'}
HEVC_OPEN = {'x265-params': 'keyint=24:min-keyint=24:log-level=none:bframes=4:open-gop=1'}
MPEG4 = {'g': '40', 'b': '200k'}
ALL = {
    'h264': [
        ('libx264', x264(), 'mp4 mov matroska avi mpegts'),
        ('libx264', x264(open_gop=1), 'mp4 mov matroska avi mpegts edits'),
        ('libx264', x264(open_gop=1, b_pyramid='normal', bframes=5, ref=4), 'mp4 matroska avi mpegts'),
        ('libx264', x264(intra_refresh=1), 'mp4 mov matroska mpegts'),
        ('libx264', x264(open_gop=1, tff=1), 'mp4 mov matroska mpegts edits'),
    ],
    'hevc': [
        ('libx265', HEVC, 'mp4 mov matroska mpegts edits'),
        ('libx265', HEVC_OPEN, 'mp4 matroska mpegts edits'),
    ],
    'vp8': [('libvpx', VPX, 'webm matroska'), ('libvpx', LOW_DELAY, 'avi ogg')],
    'vp9': [('libvpx-vp9', VPX, 'webm matroska mp4')],
    'av1': [
        ('libsvtav1', SVT, 'webm matroska mp4'),
        ('libaom-av1', {'cpu-used': '8', 'g': '24'}, 'webm mp4'),
    ],
    'mpeg1': [('mpeg1video', PARTS, 'matroska mpegts mp4'), ('mpeg1video', {'g': '24'}, 'avi')],
    'mpeg2': [
        ('mpeg2video', PARTS, 'matroska mpegts mp4'),
        ('mpeg2video', {**PARTS, 'flags': '+ilme+ildct'}, 'matroska mpegts'),
    ],
    'mpeg4': [
        ('mpeg4', MPEG4, 'mp4 mov matroska avi mpegts'),
        ('mpeg4', {**MPEG4, 'bf': '2'}, 'mp4 matroska avi mpegts edits'),
        ('mpeg4', {**MPEG4, 'bf': '3', 'flags': '+qpel+mv4'}, 'mp4 avi'),
        ('mpeg4', {**MPEG4, 'bf': '2', 'flags': '+ilme+ildct'}, 'mp4'),
        ('msmpeg4', MPEG4, 'avi matroska'),
    ],
    'mjpeg': [('mjpeg', {}, 'mov avi matroska mp4')],
    'prores': [('prores_ks', {}, 'mov matroska')],
    'ffv1': [('ffv1', {'g': '10', 'level': '3'}, 'matroska avi'), ('ffv1', {'g': '1'}, 'mp4')],
    'theora': [('libtheora', {'g': '24'}, 'ogg matroska')],
    'gif': [('gif', {}, 'gif')],
    'png': [('png', {}, 'mov avi')],
}
PIXELS = {'mjpeg': 'yuvj420p', 'prores_ks': 'yuv422p10le', 'gif': 'rgb8', 'png': 'rgb24'}
CASES = [
    pytest.param(codec, options, format, id=f'{name} {number} {format}')
    for name, rows in ALL.items()
    for number, (codec, options, formats) in enumerate(rows)
    for format in formats.split()
]


def is_short(codec, _, format):
    return codec == 'mpeg4' or format in ('matroska', 'mpegts', 'edits', 'gif', 'ogg')


def noisy(number, height, width):
    """Returns a frame that shows its number, with moving noise, so that codecs use all their tools."""
    chance = np.random.default_rng(number)
    moving = np.roll(np.random.default_rng(0).integers(0, 64, (height, width, 3), np.uint8), 3 * number, 1)
    return picture(number, height, width) // 2 + moving + chance.integers(0, 24, (height, width, 3), np.uint8)


def made(codec, options, format, count):
    try:
        av.codec.Codec(codec, 'w')
    except av.codec.codec.UnknownCodecError:
        pytest.skip(f'the installed PyAV has no encoder {codec}')
    edits = format == 'edits'
    try:
        data = film(
            codec, count, 'mov' if edits else format, options=options, draw=noisy,
            pix_fmt=PIXELS.get(codec, 'yuv420p'),
        )  # fmt: skip
    except ValueError as exc:
        if 'format does not support' not in str(exc):
            raise
        pytest.skip(f'the installed PyAV does not write it: {exc}')
    # A pause, then from a frame within one group of pictures to a frame within another.
    return with_edits(data, (400, -1, 1), (40 * (count - 40), 512 * 17, 1)) if edits else data


def check(data, chance, alone, groups, has_times=True):
    """Compares frames alone, in pairs and in lists with a full decode; counts errors and differences."""
    frames, times = decoded(data)
    video, wrong = Video(data), {}
    assert len(video) == len(frames)
    if has_times:
        assert np.array_equal(np.sort(video.times), np.sort(times))
    count = len(frames)
    keys = [[number] for number in (range(count) if alone is None else chance.sample(range(count), alone))]
    for _ in range(groups):
        first = chance.randrange(count - 1)
        keys += [[first, first + 1], [first, chance.randrange(count)]]
        keys.append([chance.randrange(count) for _ in range(chance.randrange(3, 12))])
    for key in keys:
        try:
            if not np.array_equal(video[key], frames[key]):
                wrong[tuple(key)] = 'differs'
        except ValueError as exc:
            wrong[tuple(key)] = str(exc)
    assert not wrong


@pytest.mark.slow(all_but='[!v]* 0 matroska')
@pytest.mark.parametrize(('codec', 'options', 'format'), [case for case in CASES if is_short(*case.values)])
def test_some_frames_of_every_codec(codec, options, format):
    chance = random.Random(f'{codec} {format}')
    check(made(codec, options, format, 64), chance, 12, 3)


@pytest.mark.slow
@pytest.mark.parametrize(('codec', 'options', 'format'), CASES)
def test_every_frame_of_every_codec(codec, options, format):
    chance = random.Random(f'{codec} {format}')
    check(made(codec, options, format, 300), chance, None, 60)


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_every_frame_of_every_kind(kind):
    data = KINDS[kind]()
    groups = 60 if len(decoded(data)[0]) > 1 else 0
    # FFmpeg's times of two edits go back, and those of bags do not.
    check(data, random.Random(kind), None, groups, has_times=kind != 'two edits')


class Garbage(Source):
    """A source whose packets are read into buffers with garbage after them, as in any memory."""

    def open(self):
        return GarbageFile(self)

    begins, garbage = False, b''


class GarbageFile(Counting):
    def __init__(self, source):
        super().__init__(source.data)
        self.source = source

    def read(self, size=-1):
        found = super().read(size)
        return memoryview(found + self.source.garbage * 64)[: len(found)] if self.source.begins else found


@pytest.mark.slow(all_but='options2')
@pytest.mark.parametrize('options', [MPEG4, {**MPEG4, 'bf': '2'}, {'g': '12', 'bf': '4', 'flags': '+qpel'}])
def test_decoders_do_not_read_past_a_packet(options):
    """The bytes after a packet made about 1 frame in 100 of MPEG-4 look damaged."""
    data = film('mpeg4', 300, 'mp4', options=options, draw=noisy, size=(96, 160))
    frames, _ = decoded(data)
    source = Garbage(data)
    video = Video(source)
    source.begins = len(video) == 300
    for number in range(300):
        for source.garbage in (b'\0' + b'\xff' * 8, b'\xa5'):
            assert np.array_equal(video[number], frames[number]), number


def test_h264_in_avi_is_in_the_order_of_presentation():
    """AVI stores no presentation times: libavformat gives packets their decoding times."""
    video = Video(film(format='avi', options=x264()))
    assert [round(time * 25) for time in video.times - video.times[0]] == list(range(120))
    assert [number_of(video[k]) for k in range(120)] == list(range(120))
