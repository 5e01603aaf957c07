from __future__ import annotations

import io

import numpy as np
import pytest

import bags
from bags import Video
from bags.media.remux import copy_frames
from bags.media.video_decoder import open_video
from tests.media.samples import (
    DATA,
    HEVC,
    PARTS,
    SVT,
    VPX,
    decoded,
    deep,
    example,
    film,
    packed_b_frames,
    with_decoding_times,
    with_edits,
    x264,
)


@pytest.mark.parametrize(
    'kind',
    [
        'Matroska',
        'VP9 with hidden frames',
        'fragments',
        'audio beside it, in Matroska',
        'varying distances in Matroska',
    ],
)
def test_remux(kind, tmp_path):
    data, frames, times = example(kind)
    with bags.remux(data) as file:
        stored = file.read()
    assert stored.index(b'moov') < stored.index(b'mdat')
    video = Video(stored)
    assert np.array_equal(video[:], frames)
    assert np.allclose(video.times, times, atol=1e-3)
    with bags.DatasetWriter(tmp_path / 'it', {'film': 'video(remux=True)', 'other': 'video'}) as writer:
        writer.append({'film': data, 'other': bags.remux(data)})
    with bags.open(tmp_path / 'it') as reader:
        assert np.array_equal(reader[0]['film'][5:9], frames[5:9])
        assert bytes(reader.records('other')[0]).index(b'moov') < 100


def test_what_cannot_be_remuxed():
    with pytest.raises(ValueError, match='MP4'):
        bags.remux(example('VP8 with hidden frames')[0])
    with pytest.raises(ValueError, match='expected a video, got JPEG'):
        bags.remux(DATA / 'cat.jpg')


@pytest.mark.parametrize(
    'data',
    [film(count=40, options=x264(keyint=12, bframes=0)), film(count=40, options=x264(keyint=12, bframes=2)),
     film('libsvtav1', 40)],
    ids=['h264', 'b-frames', 'av1'],
)  # fmt: skip
@pytest.mark.parametrize('span', [(0, 40), (12, 24), (24, 40), (5, 22), (17, 40), (23, 24)])
def test_copied_frames_begin_at_0(data, span):
    start, stop = span
    whole, part = bags.Video(data), bags.Video(copy_frames(open_video(io.BytesIO(data)), start, stop))
    assert len(part) == stop - start
    assert np.array_equal(part[:], whole[start:stop])
    assert np.allclose(part.times, whole.times[start:stop] - whole.times[start], atol=1e-4)


def test_copied_depth_is_exact():
    values = np.random.default_rng(0).integers(0, 4096, (20, 32, 48)).astype(np.uint16)
    options = {'x265-params': 'lossless=1:open-gop=0:bframes=0:keyint=8:log-level=none'}
    data = deep(values, 'gray12le', 'libx265', 'mp4', options)
    for start, stop in ((0, 8), (8, 20), (3, 11)):
        part = bags.Video(copy_frames(open_video(io.BytesIO(data)), start, stop))
        assert np.array_equal(part[:], values[start:stop])


def test_frames_that_need_a_later_one_are_not_copied():
    decoder = open_video(io.BytesIO(film(count=40, options=x264(keyint=12, bframes=2))))
    with pytest.raises(
        ValueError, match=r'frames 0 to 20 cannot be copied: .* refer to a frame after frame 19'
    ):
        copy_frames(decoder, 0, 20)


WRAPPED = {
    'H.264 in MPEG-TS': lambda: film(options=x264(open_gop=1), format='mpegts'),
    'H.264 in MPEG-TS, with sound': lambda: film(options=x264(open_gop=1), format='mpegts', audio=True),
    'H.264 in FLV': lambda: film(options=x264(open_gop=1), format='flv'),
    'H.264 in M2TS': lambda: film(options=x264(), format='mpegts', muxing={'mpegts_m2ts_mode': '1'}),
    'AV1': lambda: film('libsvtav1', options=SVT),
    'AV1 in WebM': lambda: film('libsvtav1', options=SVT, format='webm'),
    'VP9': lambda: film('libvpx-vp9', options=VPX),
    'MPEG-4 in MP4': lambda: film('mpeg4', options=PARTS),
    'MPEG-4 in AVI': lambda: film('mpeg4', options=PARTS, format='avi'),
    'packed B-frames': packed_b_frames,
    'packed B-frames in Matroska': lambda: packed_b_frames('matroska'),
    'H.264 in AVI': lambda: with_decoding_times(film(options=x264(), format='mpegts'), 'avi'),
    'decoding times in Matroska': lambda: with_decoding_times(film(options=x264()), 'matroska'),
    'decoding times in MPEG-TS': lambda: with_decoding_times(film(options=x264(open_gop=1)), 'mpegts'),
    'HEVC, decoding times': lambda: with_decoding_times(film('libx265', options=HEVC), 'matroska'),
    'MPEG-4, decoding times': lambda: with_decoding_times(film('mpeg4', options=PARTS), 'matroska'),
    'decoding times from a packet on': lambda: with_decoding_times(film(options=x264()), 'mp4', 60),
}


@pytest.mark.slow('*decoding times*', '* in Matroska', 'AV1 in WebM', 'H.264 in M2TS', 'MPEG-4 in MP4', 'VP9')
@pytest.mark.parametrize('name', WRAPPED)
def test_copies_have_the_frames_and_increasing_times(name):
    """Also for FFmpeg: `decoded` sorts nothing."""
    data = WRAPPED[name]()
    frames = Video(data)[:]
    with bags.remux(data) as file:
        whole = bytes(file)
    clips = [bytes(clip) for clip in bags.cut_clips(data, 40, copy=True)]
    chosen = copy_frames(open_video(io.BytesIO(data)), 0, len(frames))
    for copy in ([whole], clips, [chosen]):
        found = [decoded(part) for part in copy]
        assert np.array_equal(np.concatenate([pixels for pixels, _ in found]), frames)
        assert np.array_equal(np.concatenate([Video(part)[:] for part in copy]), frames)
        for part, (_, times) in zip(copy, found, strict=True):
            assert (np.diff(times) > 0).all()
            assert np.allclose(Video(part).times, times)


def test_an_end_that_is_cut_away_is_not_copied():
    data = with_edits(film(options=x264(bframes=0)), (2000, 0, 1))
    assert len(Video(data)) == 50
    with bags.remux(data) as file:
        assert np.array_equal(decoded(bytes(file))[0], Video(data)[:])


def test_what_cannot_be_copied_is_refused():
    # Decoding times before 0 hide the first frames in decoding order, some of them between others.
    hidden = with_decoding_times(film(options=x264()), 'mp4')
    late = with_edits(film(options=x264()), (2000, 1024, 1))  # Its last frames are hidden between others.
    cut = film(options=x264(), format='matroska')[:-2000]
    for data, expected in (
        (hidden, 'cannot be copied to MP4: some of its frames are not shown'),
        (late, 'cannot be copied to MP4: 50 frames would become 52'),
        (cut, 'cut off'),
    ):
        with pytest.raises(ValueError, match=expected):
            bags.remux(data)
        with pytest.raises(ValueError, match=r'not shown|cut off'):
            list(bags.cut_clips(data, 40, copy=True))
