"""Clips: every frame of the source is in one of them, for any source."""

import io
import pickle
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.media.clips import plan_clips

COUNT = 50
BITS = 6
QUIET = 'log-level=none:scenecut=0:keyint=10'


def picture(number):
    """Returns a frame that shows its number as black and white blocks: uint8, shape (64, 64, 3)."""
    frame = np.full((64, 64, 3), 40, np.uint8)
    for bit in range(BITS):
        frame[8:56, 2 + 10 * bit : 12 + 10 * bit] = 255 * (number >> bit & 1)
    return frame


def numbers(frames):
    """Returns the numbers that frames show."""
    return [
        sum(int(f[32, 4 + 10 * bit : 10 + 10 * bit].mean() > 128) << bit for bit in range(BITS))
        for f in frames
    ]


SOURCES = {
    'h264': ('mp4', 'libx264', {'g': '10', 'bf': '2', 'sc_threshold': '0'}),
    'h264 open': ('mp4', 'libx264', {'g': '10', 'bf': '2', 'sc_threshold': '0', 'x264-params': 'open-gop=1'}),
    'h264 in matroska': ('matroska', 'libx264', {'g': '10', 'bf': '2', 'sc_threshold': '0'}),
    'hevc': ('mp4', 'libx265', {'x265-params': f'{QUIET}:open-gop=0'}),
    'hevc open': ('mp4', 'libx265', {'x265-params': f'{QUIET}:open-gop=1'}),
    'vp9': ('webm', 'libvpx-vp9', {'g': '10', 'deadline': 'realtime', 'cpu-used': '8'}),
    'mpeg4': ('mp4', 'mpeg4', {'g': '10', 'bf': '2', 'flags': '+cgop', 'sc_threshold': '1000000000'}),
    'ffv1': ('matroska', 'ffv1', {}),
}


def write(format, codec, options, steady=True, start=0):
    file = io.BytesIO()
    with av.open(file, 'w', format=format) as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width = stream.height = 64
        stream.pix_fmt = 'yuv420p'
        stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(COUNT):
            frame = av.VideoFrame.from_ndarray(picture(number), format='rgb24')
            frame.pts = start + 40 * number + (0 if steady else 7 * (number % 3))
            frame.time_base = Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.fixture(scope='module')
def sources():
    made = {name: write(*how) for name, how in SOURCES.items()}
    made['uneven'] = write(*SOURCES['h264'], steady=False, start=3000)
    return made


def decoded(clips):
    return [bags.decoders['mp4'](clip) for clip in clips]


@pytest.mark.parametrize('size', [10, 20, 16, 7, 50, 90])
@pytest.mark.parametrize('name', [*SOURCES, 'uneven'])
def test_every_frame_is_in_one_clip(sources, name, size):
    clips = list(bags.cut_clips(sources[name], size))
    assert [clip.frames for clip in clips] == [min(size, COUNT - start) for start in range(0, COUNT, size)]
    assert [len(frames) for frames in decoded(clips)] == [clip.frames for clip in clips]
    assert [number for frames in decoded(clips) for number in numbers(frames)] == list(range(COUNT))
    if size % 10 == 0 and 'open' not in name and name != 'ffv1':
        assert all(clip.copied for clip in clips)
    if size in (16, 7) or name == 'ffv1':
        assert not any(clip.copied for clip in clips[:1])


def packets(data):
    with av.open(io.BytesIO(data)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


@pytest.mark.parametrize(
    'name', ['h264', 'h264 open', 'hevc open', 'h264 in matroska', 'vp9', 'mpeg4', 'uneven']
)
def test_copies_are_cut_at_the_nearest_key_frames(sources, name):
    clips = list(bags.cut_clips(io.BytesIO(sources[name]), 16, copy=True))
    assert all(clip.copied for clip in clips)
    assert sum(clip.frames for clip in clips) == COUNT
    if 'open' not in name:
        assert [clip.frames for clip in clips] == [20, 10, 20]
    assert [number for frames in decoded(clips) for number in numbers(frames)] == list(range(COUNT))
    if name != 'mpeg4':  # In MPEG-4, the first packet gets the header in front.
        assert [part for clip in clips for part in packets(clip)] == packets(sources[name])


def times(data):
    """Returns the times of frames, in seconds."""
    with av.open(io.BytesIO(data)) as container:
        return [frame.time for frame in container.decode(video=0)]


@pytest.mark.parametrize('size', [10, 7])
def test_frames_are_shown_as_long_as_they_were(sources, size):
    found, end = [], 3.0
    for clip in bags.cut_clips(sources['uneven'], size):
        shown = times(clip)
        assert shown[0] == 0
        found += [end + time for time in shown]
        end += bags.Video(clip).duration
    assert np.abs(np.array(found) - times(sources['uneven'])).max() < 1e-3


def test_codec_and_gop(sources):
    for codec in ('h264', 'hevc', 'vp9'):
        clips = list(bags.cut_clips(sources['h264'], 20, codec=codec))
        assert {clip.copied for clip in clips} == {codec == 'h264'}
        with av.open(io.BytesIO(clips[0])) as container:
            assert container.streams.video[0].codec_context.name == codec
        assert [number for frames in decoded(clips) for number in numbers(frames)] == list(range(COUNT))
    for gop in (5, 10, 20):
        clips = list(bags.cut_clips(sources['h264'], 20, gop=gop))
        assert {clip.copied for clip in clips} == {gop >= 10}
        for clip in clips:
            with av.open(io.BytesIO(clip)) as container:
                keys = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
            distances = np.diff([*np.flatnonzero(keys), len(keys)])
            assert distances.max() <= gop
    small, large = (sum(map(len, bags.cut_clips(sources['h264'], 16, crf=crf))) for crf in (45, 10))
    assert small < large


def test_frames_one_by_one():
    taken = []

    def frames():
        for number in range(COUNT):
            taken.append(number)
            yield picture(number)

    clips = bags.cut_clips(frames(), 20, fps=10)
    assert not taken
    assert next(clips).frames == 20
    assert len(taken) == 20
    assert [clip.frames for clip in clips] == [20, 10]
    whole = list(bags.cut_clips(np.stack([picture(number) for number in range(COUNT)]), 20, fps='10'))
    assert [number for frames in decoded(whole) for number in numbers(frames)] == list(range(COUNT))
    assert np.allclose(times(whole[1]), np.arange(20) / 10)


def test_kinds_of_sources(sources, tmp_path):
    path = tmp_path / 'a.mp4'
    path.write_bytes(sources['h264'])
    wanted = list(bags.cut_clips(sources['h264'], 20))
    with open(path, 'rb') as file:
        for source in (path, str(path), memoryview(sources['h264']), file):
            assert list(bags.cut_clips(source, 20)) == wanted
        assert list(bags.cut_clips(bags.Video(path), 20)) == wanted
        mixed = list(bags.cut_clips(file, 25))
        assert [number for frames in decoded(mixed) for number in numbers(frames)] == list(range(COUNT))


def test_clips_in_a_dataset(sources, tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'frames': 'mp4[]'}) as writer:
        writer.append({'frames': bags.cut_clips(sources['h264'], 20)})
    reader = bags.open(tmp_path / 'a')
    assert reader.lengths('frames').tolist() == [3]
    assert list(reader.records('frames')) == list(bags.cut_clips(sources['h264'], 20))
    assert numbers(np.concatenate(reader[0]['frames'])) == list(range(COUNT))
    again = list(bags.cut_clips(reader.file(0, 'frames', 1), 10))
    assert [number for frames in decoded(again) for number in numbers(frames)] == list(range(20, 40))


def test_a_clip_says_what_it_is(sources):
    clip = next(bags.cut_clips(sources['h264'], 20))
    assert repr(clip) == f'EncodedClip(20 frames, {len(clip):,} bytes, copied)'
    again = pickle.loads(pickle.dumps(clip))
    assert (again, again.frames, again.copied) == (clip, 20, True)


def test_what_cannot_be_cut(sources, tmp_path):
    for wrong in (0, -3, 2.5, None):
        with pytest.raises((ValueError, TypeError), match='frames'):
            bags.cut_clips(sources['h264'], wrong)
    with pytest.raises(ValueError, match='codec of h264, hevc, vp9, av1'):
        bags.cut_clips(sources['h264'], 10, codec='x')
    with pytest.raises(TypeError, match='copy from, got ndarray'):
        bags.cut_clips(np.zeros((3, 8, 8, 3), np.uint8), 10, copy=True)
    with pytest.raises(TypeError, match='no fps'):
        bags.cut_clips(sources['h264'], 10, fps=30)
    with pytest.raises(ValueError, match='expected video, got bytes that begin with'):
        next(bags.cut_clips(b'no video', 10))
    (tmp_path / 'b.mp4').write_text('no video')
    with pytest.raises(ValueError, match=r'b\.mp4: expected video, got'):
        next(bags.cut_clips(tmp_path / 'b.mp4', 10))
    with pytest.raises(FileNotFoundError):
        next(bags.cut_clips(tmp_path / 'c.mp4', 10))
    with pytest.raises(ValueError, match='MP4 does not support ffv1'):
        next(bags.cut_clips(sources['ffv1'], 10, copy=True))
    with pytest.raises(ValueError, match='it is h264, not hevc'):
        next(bags.cut_clips(sources['h264'], 10, codec='hevc', copy=True))
    with pytest.raises(ValueError, match='at least one frame'):
        next(bags.cut_clips([], 10))
    with pytest.raises(TypeError, match='uint8'):
        next(bags.cut_clips(np.zeros((3, 8, 8, 3)), 10))


@pytest.mark.parametrize('name', ['h264 in matroska', 'vp9'])
@pytest.mark.parametrize('size', [10, 7])
def test_what_is_cut_off_gives_the_clips_before(sources, name, size):
    found = []
    clips = bags.cut_clips(sources[name][: len(sources[name]) * 2 // 3], size)
    with pytest.raises(ValueError, match=r'cut_clips: \d+ bytes: .*cut off'):
        found.extend(clips)
    assert 0 < len(found) < 8
    got = [number for frames in decoded(found) for number in numbers(frames)]
    assert got == list(range(len(got)))


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 20),
    st.none() | st.integers(1, 15),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_plans_take_every_frame_once(groups, size, gop, copy, chance):
    """Of groups of pictures, some open: they have frames that are shown before their key frame."""
    times, keys = [], []
    for number, length in enumerate(groups):
        start = len(times)
        own = list(range(start, start + length))
        lead = chance.randint(0, min(3, length - 1)) if number else 0
        times += [own[lead], *own[:lead], *own[lead + 1 :]]
        keys += [True] + [False] * (length - 1)
    pieces = plan_clips(np.array(times), np.array(keys), size, gop, copy)
    assert [frame for piece in pieces for frame in range(piece.start, piece.stop)] == list(range(len(times)))
    for piece in pieces:
        if piece.copied:
            assert keys[piece.start]
            assert times[piece.start] == piece.start
            assert sorted(times[piece.start : piece.stop]) == list(range(piece.start, piece.stop))
    if copy:
        assert all(piece.copied for piece in pieces)
    else:
        assert [piece.start for piece in pieces] == list(range(0, len(times), size))
