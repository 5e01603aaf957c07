"""Excerpts: their frames, decoded by bags and by PyAV alone, are those of the whole video."""

import io

import av
import numpy as np
import pytest

from bags import Video
from bags.media.b_frames import nal_length_size, recovery_frames
from bags.media.video_decoder import open_video
from tests.media.samples import KINDS, deep, example, film, packed_b_frames

OFTEN = (
    'open groups', 'a pyramid of B-frames', 'a picture that is restored bit by bit', 'HEVC', 'MPEG-4 in AVI',
    'WMV', 'H.264 in MPEG-TS', 'varying distances', 'two edits', 'one frame',
    'a beginning within a group', 'MPEG-1 in MPEG-PS',
)  # fmt: skip
"""The samples that differ in how they are copied; the others are slow variants."""


def decoded_in_order(data):
    """Returns the frames of a file by their times, decoded by PyAV without the index of bags."""
    with av.open(io.BytesIO(data)) as container:
        frames = [frame for packet in container.demux(video=0) for frame in packet.decode()]
    return {
        round(float(frame.pts * frame.time_base), 6): frame.to_ndarray(format='rgb24') for frame in frames
    }


def check(excerpt, frames):
    """Raises AssertionError if the wanted frames of an excerpt are others."""
    video = Video(excerpt.file)
    assert np.array_equal(video[excerpt.frames], frames)
    assert np.allclose(video.times[excerpt.frames], excerpt.file_times, atol=1e-9)
    in_order = decoded_in_order(excerpt.file)
    for time, frame in zip(excerpt.file_times.round(6).tolist(), frames, strict=True):
        assert np.array_equal(in_order[time], frame)


@pytest.mark.slow(*(kind for kind in KINDS if kind not in OFTEN))
@pytest.mark.parametrize('kind', KINDS)
def test_frames_of_excerpts(kind):
    data, frames, _ = example(kind)
    video, count = Video(data), len(frames)
    ranges = [(count // 3, count // 3 + 5), (count // 5, count // 5 + 1), (max(0, count - 3), count)]
    for start, stop in ranges if count > 5 else [(0, count)]:
        excerpt = video.excerpt(start, stop)
        assert np.array_equal(excerpt.times, video.times[start:stop])
        check(excerpt, frames[start:stop])


def test_an_excerpt_has_only_its_groups_of_pictures():
    data, frames, _ = example('open groups')
    excerpt = Video(data).excerpt(60, 76)
    assert len(excerpt.file) < len(data) / 2
    assert excerpt.frames.tolist() == list(range(16))
    assert excerpt.file_times[0] == 0
    # The last group is copied up to the last packet that the frames need, not to its end.
    assert len(Video(excerpt.file)) < len(frames[60:]) - 20
    check(excerpt, frames[60:76])


def test_excerpts_of_every_start_in_an_open_group():
    data, frames, _ = example('open groups')
    video = Video(data)
    for start in range(22, 50, 3):
        check(video.excerpt(start, start + 2), frames[start : start + 2])


@pytest.mark.parametrize('packed', [packed_b_frames, lambda: packed_b_frames('matroska')])
def test_packed_b_frames(packed):
    video = Video(packed())
    check(video.excerpt(20, 31), video[20:31])


def test_excerpts_of_depth_are_exact():
    values = np.random.default_rng(0).integers(0, 4096, (40, 32, 48)).astype(np.uint16)
    options = {'x265-params': 'lossless=1:bframes=2:keyint=8:log-level=none'}
    excerpt = Video(deep(values, 'gray12le', 'libx265', 'mp4', options)).excerpt(11, 22)
    assert np.array_equal(Video(excerpt.file)[excerpt.frames], values[11:22])


def test_a_rotation_is_kept():
    with av.open(io.BytesIO(film(count=30)), 'r') as source:
        stored = io.BytesIO()
        with av.open(stored, 'w', format='mp4') as target:
            copy = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = copy
                    target.mux(packet)
    at = stored.getvalue().index(b'tkhd') + 44
    matrix = np.array([0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30], '>i4').tobytes()
    video = Video(stored.getvalue()[:at] + matrix + stored.getvalue()[at + 36 :])
    assert video.rotation == 90
    excerpt = video.excerpt(5, 8)
    assert np.array_equal(Video(excerpt.file)[excerpt.frames], video[5:8])


def test_frames_with_a_hidden_frame_between_them():
    data, _, _ = example('two edits')
    with pytest.raises(ValueError, match=r'frames 0 to 50 have a hidden frame between them: expected'):
        Video(data).excerpt(0, 50)


@pytest.mark.parametrize(
    ('start', 'stop', 'error', 'message'),
    [
        (110, 121, IndexError, r'expected frames in range\(120\), got 110 to 121'),
        (-3, 2, IndexError, r'expected frames in range\(120\), got -3 to 2'),
        (56, 40, ValueError, 'expected a start before the stop, got 56 to 40'),
        (40, 40, ValueError, 'expected a start before the stop, got 40 to 40'),
        (1.5, 3, TypeError, 'float'),
    ],
)
def test_wrong_ranges(start, stop, error, message):
    with pytest.raises(error, match=message):
        Video(example('open groups')[0]).excerpt(start, stop)


def test_a_truncated_file_has_the_excerpts_before_the_damage():
    data, frames, _ = example('Matroska')
    cut = Video(data[: len(data) * 2 // 3])
    check(cut.excerpt(10, 20), frames[10:20])
    with pytest.raises(ValueError, match=r'expected \d+ bytes, got \d+; the first \d+ frames are available'):
        cut.excerpt(100, 110)
    with pytest.raises(ValueError, match='expected video, got JPEG'):
        Video(bytes.fromhex('ffd8ffe000104a464946') + bytes(100)).excerpt(0, 1)


def test_recovery_points_of_damaged_packets():
    data, *_ = example('a picture that is restored bit by bit')
    decoder = open_video(io.BytesIO(data))
    size = nal_length_size('h264', decoder.packets.new_context().extradata)
    key = int(decoder.timeline.keys[1])
    (packet,) = decoder.packets.read(key, key + 1)
    whole = bytes(packet)
    assert recovery_frames(whole, size) == 9
    assert all(recovery_frames(whole[:stop], size) in (0, 9) for stop in range(len(whole)))
    assert recovery_frames(b'\0\0\1\6' + b'\xff' * 300, 0) == 0
