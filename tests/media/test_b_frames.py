import io

import av
import numpy as np
import pytest

from bags.media.b_frames import is_b_frame, may_reorder, nal_length_size, split_vops
from tests.media.samples import film, packed_b_frames, x264

FILMS = {
    'H.264': ('h264', 'mp4', 'libx264', x264()),
    'H.264 in several slices': ('h264', 'mp4', 'libx264', x264(slices=4)),
    'H.264 with start codes': ('h264', 'mpegts', 'libx264', x264()),
    'HEVC': ('hevc', 'mp4', 'libx265', {'x265-params': 'bframes=3:b-adapt=0:keyint=24:log-level=none'}),
    'HEVC with start codes': (
        'hevc', 'mpegts', 'libx265', {'x265-params': 'bframes=3:b-adapt=0:keyint=24:log-level=none'}
    ),
    'MPEG-4': ('mpeg4', 'mp4', 'mpeg4', {'bf': '3', 'b_strategy': '0', 'g': '24'}),
    'MPEG-2': ('mpeg2video', 'matroska', 'mpeg2video', {'bf': '3', 'b_strategy': '0', 'g': '24'}),
    'MPEG-1': ('mpeg1video', 'matroska', 'mpeg1video', {'bf': '3', 'b_strategy': '0', 'g': '24'}),
}  # fmt: skip


def packets(data):
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        found = [(bytes(packet), packet.pts) for packet in container.demux(stream) if packet.size]
        return found, bytes(stream.codec_context.extradata or b'')


@pytest.mark.parametrize('name', FILMS)
def test_b_frames_are_those_that_precede_an_earlier_packet(name):
    codec, format, encoder, options = FILMS[name]
    found, extradata = packets(film(encoder, 60, format, options=options))
    times = np.array([time for _, time in found])
    size = nal_length_size(codec, extradata)
    assert size == (4 if format == 'mp4' and codec in ('h264', 'hevc') else 0)
    expected = times < np.maximum.accumulate(times)
    assert expected.any()
    assert [is_b_frame(codec, data, size) for data, _ in found] == expected.tolist()


def test_there_are_no_b_frames():
    for codec, encoder, options in (
        ('h264', 'libx264', x264(bframes=0)),
        ('mpeg4', 'mpeg4', {}),
        ('av1', 'libsvtav1', {'preset': '12'}),
    ):
        found, extradata = packets(film(encoder, 20, options=options))
        assert not any(is_b_frame(codec, data, nal_length_size(codec, extradata)) for data, _ in found)


def test_damaged_packets_have_no_b_frame():
    for codec in ('h264', 'hevc', 'mpeg4', 'mpeg2video', 'vp9'):
        for data in (b'', b'\0', b'\0\0\1', b'\0\0\1\xb6', b'\0\0\1\0\0', b'\0\0\0\1\1', b'\xff' * 9):
            for size in (0, 1, 2, 4):
                assert is_b_frame(codec, data, size) in (False, True)
    assert nal_length_size('h264', b'\1\0\0') == nal_length_size('hevc', None) == 0


def test_packed_frames_are_split():
    found, _ = packets(packed_b_frames())
    starts = [split_vops(data) for data, _ in found]
    assert {len(each) for each in starts} == {1, 2}
    for (data, _), each in zip(found, starts, strict=True):
        assert all(data[start : start + 4] == b'\0\0\1\xb6' for start in each[1:])


@pytest.mark.parametrize(
    'options',
    [{}, {'crop_rect': '2,2,2,2'}, {'sar': '4/3'}, {'nal_hrd': 'vbr', 'vbv_maxrate': 900, 'vbv_bufsize': 900},
     {'overscan': 'show', 'fullrange': 'on', 'colorprim': 'bt709', 'chromaloc': 1}, {'interlaced': 1}],
    ids=['plain', 'cropped', 'aspect', 'buffer', 'signal', 'interlaced'],
)  # fmt: skip
def test_the_header_of_h264_says_whether_frames_are_reordered(options):
    for b_frames in (0, 1, 3):
        _, extradata = packets(film(count=10, options=x264(bframes=b_frames, **options)))
        assert may_reorder('h264', extradata) == (b_frames > 0)
    for stop in range(len(extradata)):
        assert may_reorder('h264', extradata[:stop])
    assert may_reorder('hevc', extradata)
    assert may_reorder('h264', None)
