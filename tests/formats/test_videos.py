from __future__ import annotations

import io
import struct
from fractions import Fraction

import av
import numpy as np
import pytest

from bags.dataset.format.registry import decoders, encoders

WORDS = ['mp4', 'webm', 'mkv']


def difference(first, second):
    assert first.shape == second.shape
    assert first.dtype == second.dtype == np.uint8
    return np.abs(first.astype(int) - second).mean()


@pytest.mark.parametrize(('format', 'tolerance'), [('mp4', 6), ('webm', 8), ('mkv', 1e-9)])
def test_frames_come_back_in_order(format, tolerance, film):
    decoded = decoders[format](memoryview(encoders[format](film)))
    assert difference(decoded, film) < tolerance
    # Each frame is most similar to its original.
    for index, frame in enumerate(decoded.astype(int)):
        assert np.abs(film - frame).mean(axis=(1, 2, 3)).argmin() == index


@pytest.mark.parametrize('format', WORDS)
@pytest.mark.parametrize('size', [(1, 1), (2, 2), (3, 5), (1, 64), (63, 47), (64, 47), (33, 64), (16, 16)])
def test_any_size(format, size, film):
    frames = film[:3, : size[0], : size[1]]
    decoded = decoders[format](encoders[format](frames))
    assert difference(decoded, frames) < (20 if format != 'mkv' else 1e-9)


@pytest.mark.parametrize('format', ['mp4', 'webm'])
@pytest.mark.parametrize('width', [1, 5, 33, 47])
def test_the_last_column_of_an_odd_width(format, width):
    colour = np.array([200, 40, 60], np.uint8)
    frames = np.broadcast_to(colour, (2, 8, width, 3)).copy()
    for _ in range(10):
        # Conversions must not read memory behind the pixels, which may hold anything.
        unrelated = [np.full(size, 255, np.uint8) for size in range(64, 8192, 64)]
        del unrelated
        decoded = decoders[format](encoders[format](frames))
        assert difference(decoded[:, :, -1:], frames[:, :, -1:]) < 8


@pytest.mark.parametrize('format', WORDS)
@pytest.mark.parametrize('count', [1, 2, 31, 32, 33, 70])
def test_any_length(format, count):
    frames = np.zeros((count, 16, 16, 3), np.uint8)
    frames += (np.arange(count) * 3).astype(np.uint8)[:, None, None, None]
    decoded = decoders[format](encoders[format](frames))
    assert difference(decoded, frames) < 4


@pytest.mark.parametrize(
    ('format', 'bits', 'size'),
    [('mp4', 12, (33, 47)), ('mp4', 12, (48, 64)), ('mkv', 16, (1, 1)), ('mkv', 16, (33, 47))],
)
def test_grey_of_uint16_is_lossless(format, bits, size):
    values = np.random.default_rng(0).integers(0, 1 << bits, (5, *size)).astype(np.uint16)
    values[0, 0, 0], values[1, 0, 0] = (1 << bits) - 1, 0
    for frames in (values, values[..., None], list(values), iter(values)):
        data = encoders[format](frames)
        if not isinstance(data, bytes):
            with data as file:
                data = file.read()
        decoded = decoders[format](data)
        assert decoded.dtype == np.uint16
        assert np.array_equal(decoded, values)


def test_grey_of_uint16_with_loss():
    ramp = np.linspace(500, 4000, 5 * 64 * 64).reshape(5, 64, 64).astype(np.uint16)
    ramp += np.random.default_rng(0).integers(0, 16, ramp.shape).astype(np.uint16)
    data = encoders['mp4'](ramp, '30', '28')
    assert len(data) < len(encoders['mp4'](ramp)) / 2
    decoded = decoders['mp4'](data)
    assert decoded.dtype == np.uint16
    assert 0 < np.abs(decoded.astype(int) - ramp).mean() < 40
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].codec_context.format.name == 'gray12le'


@pytest.mark.parametrize(
    ('format', 'value', 'error'),
    [
        ('mp4', np.full((2, 16, 16), 4096, np.uint16), 'values from 0 to 4095, got 4096; mkv and png'),
        ('mp4', np.zeros((4, 4), np.uint16), r'or \(time, height, width\) of uint16, got uint16 \(4, 4\)'),
        (
            'mp4',
            np.zeros((2, 4, 4, 3), np.uint16),
            r'grey frames of uint16, shape \(height, width\)',
        ),
        ('mp4', np.zeros((2, 0, 4), np.uint16), 'expected grey frames of uint16'),
        ('mp4', np.zeros((2, 4, 4), np.uint16), 'frames of 16 pixels a side or more'),
        ('mp4', np.zeros((2, 4, 4), np.int16), r'got int16 \(2, 4, 4\)'),
        ('mkv', [np.zeros((4, 4), np.uint16), np.zeros((4, 4, 3), np.uint8)], 'frames of one shape'),
        ('webm', np.zeros((2, 4, 4), np.uint16), 'libvpx-vp9 has no grey of more than 8 bits; mp4 has 12'),
    ],
)
def test_grey_that_cannot_be_encoded(format, value, error):
    with pytest.raises((TypeError, ValueError), match=error):
        encoders[format](value)


COLOURS = [
    (255, 0, 0),
    (0, 255, 0),
    (0, 0, 255),
    (255, 255, 0),
    (0, 255, 255),
    (255, 0, 255),
    (255,) * 3,
    (0,) * 3,
]


@pytest.mark.parametrize(('format', 'tolerance'), [('mp4', 4), ('webm', 4), ('mkv', 0)])
def test_colours(format, tolerance):
    picture = np.repeat(np.array(COLOURS, np.uint8), 32, axis=0)[None].repeat(64, axis=0)
    frames = np.stack([picture] * 3)
    data = encoders[format](frames)
    decoded = decoders[format](data)
    centres = decoded[1, 32, 16::32].astype(int)
    assert np.abs(centres - COLOURS).max() <= tolerance
    with av.open(io.BytesIO(data)) as container:
        frame = next(container.decode(video=0))
        assert (frame.colorspace, frame.color_range) == ((0, 2) if format == 'mkv' else (1, 1))


def write(frames, codec, format='mp4', pix_fmt='yuv420p', rate=15):
    """A file as other programs write it: without colour tags."""
    file = io.BytesIO()
    with av.open(file, 'w', format=format) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pix_fmt
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format='rgb24')))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_files_of_old_bags_and_others(film):
    for codec in ('mpeg4', 'libx264', 'libx265'):
        data = write(film, codec)
        assert encoders['mp4'](data) == data
        assert difference(decoders['mp4'](data), film) < 12
    assert difference(decoders['mkv'](write(film, 'mpeg4', 'matroska')), film) < 12


@pytest.mark.parametrize(
    ('format', 'fps'), [('mp4', '25'), ('webm', '29.97'), ('mkv', '30000/1001'), ('mp4', '1/2')]
)
def test_frames_a_second(format, fps, film):
    with av.open(io.BytesIO(encoders[format](film, fps))) as container:
        times = [float(frame.time) for frame in container.decode(video=0)]
        assert np.allclose(np.diff(times), float(1 / Fraction(fps)), atol=1.1e-3)


def test_crf(film):
    for format in ('mp4', 'webm'):
        assert len(encoders[format](film, '30', '45')) < len(encoders[format](film, '30', '10'))


@pytest.mark.parametrize('format', WORDS)
def test_frames_one_by_one(format, film):
    taken = []

    def frames():
        for index, frame in enumerate(film):
            taken.append(index)
            yield frame

    with encoders[format](frames()) as file:
        assert taken == list(range(len(film)))
        data = file.read()
    # libx264 does not encode equal frames to equal bytes each time.
    for encoded in (data, encoders[format](list(film))):
        assert difference(decoders[format](encoded), film) < (8 if format != 'mkv' else 1e-9)


@pytest.mark.parametrize('format', WORDS)
def test_no_frame(format):
    for value in (np.zeros((0, 4, 4, 3), np.uint8), [], iter([])):
        with pytest.raises(ValueError, match='at least one frame'):
            encoders[format](value)


@pytest.mark.parametrize('format', WORDS)
def test_masked_frames_are_refused(format, film):
    masked = np.ma.masked_array(film, film > film.mean())
    for value in (masked, list(masked)):
        with pytest.raises(ValueError, match='expected an array without masked elements'):
            encoders[format](value)


@pytest.mark.parametrize('format', WORDS)
def test_other_values(format, film):
    with pytest.raises(TypeError, match='uint8'):
        encoders[format](film.astype(np.float32))
    for value in (film[0], film[..., 0], film[..., :2], film[:, :0], 5, [film[0], film[1, 1:]]):
        with pytest.raises(ValueError, match='expected frames of'):
            encoders[format](value)


def test_the_generator_s_own_error_comes_through(film):
    def frames():
        yield film[0]
        raise LookupError('mine')

    with pytest.raises(LookupError, match='mine'):
        encoders['mp4'](frames())


def boxes(data):
    start, found = 0, {}
    while start < len(data):
        size, kind = struct.unpack_from('>I4s', data, start)
        found[kind] = data[start : start + size]
        start += size
    return found


def test_cut_off_between_boxes(film):
    data = encoders['mp4'](film)
    parts = boxes(data)
    for order in ([b'ftyp', b'moov'], [b'ftyp', b'mdat'], [b'ftyp']):
        with pytest.raises(ValueError):
            decoders['mp4'](b''.join(parts[kind] for kind in order))


def test_a_header_that_claims_more_frames(film):
    data = encoders['mp4'](film)
    place = data.index(b'stsz') + 12
    assert struct.unpack_from('>I', data, place) == (12,)
    for count in (13, 1000, 2**31):
        try:
            decoded = decoders['mp4'](data[:place] + struct.pack('>I', count) + data[place + 4 :])
        except ValueError:
            continue
        assert np.array_equal(decoded, decoders['mp4'](data))


def test_a_hole_in_the_frames(film):
    for format in ('mp4', 'mkv'):
        data = bytearray(encoders[format](film))
        middle = len(data) // 3
        data[middle : middle + 200] = np.random.default_rng(0).bytes(200)
        with pytest.raises(ValueError):
            decoders[format](data)


def test_sound_alone_is_no_video(sound):
    file = io.BytesIO()
    with av.open(file, 'w', format='mp4') as container:
        stream = container.add_stream('aac', rate=8000, layout='stereo')
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound.T), format='fltp', layout='stereo')
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(ValueError, match='expected video'):
        decoders['mp4'](file.getvalue())


@pytest.mark.parametrize(('format', 'tag'), [('mp4', b'avc1'), ('webm', b'V_VP9')])
def test_a_codec_that_nobody_knows(format, tag, film):
    start, _, end = encoders[format](film).rpartition(tag)
    with pytest.raises(ValueError, match='expected video'):
        decoders[format](start + b'ZZZZZ'[: len(tag)] + end)


def test_a_cluster_whose_name_is_damaged(film):
    for format in ('mkv', 'webm'):
        start, _, end = encoders[format](film).rpartition(b'\x1f\x43\xb6\x75')
        with pytest.raises(ValueError, match='expected an element of Matroska'):
            decoders[format](start + b'\x1f\x43\xb6\x71' + end)


def test_frames_of_several_sizes(film):
    file = io.BytesIO()
    with av.open(file, 'w', format='matroska') as container:
        stream = container.add_stream('mjpeg', rate=10)
        stream.width, stream.height, stream.pix_fmt = 80, 64, 'yuvj420p'
        for frame in (film[0], film[1][:32, :40]):
            single = av.CodecContext.create('mjpeg', 'w')
            single.height, single.width = frame.shape[:2]
            single.pix_fmt = 'yuvj420p'
            single.time_base = Fraction(1, 10)
            converted = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format='rgb24').reformat(
                format='yuvj420p'
            )
            packets = single.encode(converted) + single.encode(None)
            for packet in packets:
                packet.stream, packet.pts, packet.dts = (
                    stream,
                    int(frame is not film[0]),
                    int(frame is not film[0]),
                )
                container.mux(packet)
    with pytest.raises(ValueError, match='pixels as in earlier frames, got'):
        decoders['mkv'](file.getvalue())
