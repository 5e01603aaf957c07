from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import pickle
import random
import struct
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import av
import numpy as np
import pytest

import bags
from bags import Video
from bags.formats.ffmpeg import has_side_data
from tests.media import samples as films
from tests.media.samples import (
    DATA,
    KINDS,
    PARTS,
    Source,
    decoded,
    deep,
    example,
    film,
    number_of,
    open_gops,
    remuxed,
    varied,
    with_edits,
    x264,
)


def asked(chance, count):
    """Requests to a video."""
    first = chance.randrange(count)
    return chance.choice(
        [
            first,
            first - count,
            slice(first, first + chance.randrange(1, 24)),
            slice(first, None, chance.choice([2, 5, 10])),
            slice(first, None, -1),
            [chance.randrange(-count, count) for _ in range(chance.randrange(1, 9))],
        ]
    )


@pytest.mark.slow('the demo', 'AV1 with forward key frames')
@pytest.mark.parametrize('kind', KINDS)
def test_frames_are_those_of_decoding_everything(kind):
    data, frames, times = example(kind)
    video, chance = Video(data), random.Random(kind)
    assert video.shape == frames.shape
    assert len(video) == len(frames)
    # At the second edit, times of FFmpeg go back by 80 ms.
    assert kind == 'two edits' or np.array_equal(video.times, times)
    assert np.allclose(video.times, np.maximum.accumulate(times), atol=1e-3)
    assert (np.diff(video.times) > 0).all()
    for _ in range(25):
        key = asked(chance, len(frames))
        found = video[key]
        assert type(found) is np.ndarray
        assert np.array_equal(found, frames[key]), key
    assert all(np.array_equal(*pair) for pair in zip(video, frames, strict=True))
    assert np.array_equal(np.asarray(video), frames)


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_many_keys_of_each(kind):
    data, frames, _ = example(kind)
    video, chance = Video(data), random.Random(kind)
    count = len(frames)
    for _ in range(150):  # Compares each frame about 30 times.
        first = chance.randrange(count)
        few = [chance.randrange(-count, count) for _ in range(8)]
        for key in (first, slice(first, first + chance.randrange(1, 32)), few):
            assert np.array_equal(video[key], frames[key]), key


@pytest.mark.parametrize(
    'kind', ['open groups', 'HEVC', 'VP9 with hidden frames', 'AV1', 'MPEG-4', 'Matroska']
)
def test_the_picture_says_which_frame_it_is(kind):
    video = Video(example(kind)[0])
    assert [number_of(frame) for frame in video] == list(range(120))
    assert [number_of(frame) for frame in video[[70, 3, 23, 24, 3, -1]]] == [70, 3, 23, 24, 3, 119]
    assert number_of(video.at(2.02)) == 50


def test_times():
    video = Video(example('varying distances')[0])
    times = np.array(varied()) / 1000
    assert np.allclose(video.times, times)
    for index, time in enumerate(video.times):
        assert number_of(video.at(time)) == index
    assert number_of(video.at(times[40] + 0.006)) == 40
    start, stop = times[[20, 50]]
    assert video.span(start, stop) == slice(20, 50)
    assert [number_of(frame) for frame in video.between(start, stop)] == list(range(20, 50))
    assert len(video.between(start + 0.001, stop + 0.001)) == 30
    assert video.between(7, 3).shape == (0, films.HEIGHT, films.WIDTH, 3)
    found = video.read([5, 3])
    assert np.array_equal(found.values, video[[5, 3]])
    assert np.array_equal(found.times, times[[5, 3]])
    for time in (-0.01, times[-1] + 1, float('nan')):
        with pytest.raises(IndexError, match='nothing is shown'):
            video.at(time)


def test_a_late_start_is_not_0():
    video = Video(example('a late start')[0])
    assert video.times[0] == 5.0
    assert number_of(video.at(5.05)) == 1
    assert video.duration == pytest.approx(4.8)
    assert video.rate == pytest.approx(25)


def test_rate_and_duration():
    video = Video(example('open groups')[0])
    assert (video.rate, video.duration) == (25, 4.8)


def test_sizes_and_colours():
    data, frames, _ = example('the demo')
    video = Video(data)
    small = video.options(size=(90, 160))
    assert small.shape == (132, 90, 160, 3)
    assert np.abs(small[7].astype(int) - frames[7].reshape(90, 4, 160, 4, 3).mean((1, 3))).mean() < 3
    gray = small.options(color='gray', threads=2)
    assert gray.shape == (132, 90, 160, 1)
    assert gray[3:5].shape == (2, 90, 160, 1)
    assert gray[3].shape == (90, 160, 1)
    assert np.abs(gray[3][..., 0] - small[3] @ [0.299, 0.587, 0.114]).mean() < 3
    assert np.array_equal(video.options(threads=4)[10:90], frames[10:90])
    assert next(iter(gray)).shape == (90, 160, 1)
    for wrong in (
        {'size': (0, 5)},
        {'size': (5, 1 << 20)},
        {'color': 'blue'},
        {'threads': -1},
        {'threads': 'all'},
    ):
        with pytest.raises(ValueError, match='expected'):
            video.options(**wrong)


def test_sizes_say_what_is_expected():
    for wrong in (64, '64', (64,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r'expected a size of \(height, width\), got'):
            Video(b'').options(size=wrong)


@pytest.mark.parametrize('bits', [10, 12, 16])
def test_deep_grey_keeps_its_values(bits, tmp_path):
    top = (1 << bits) - 1
    values = np.random.default_rng(0).integers(0, top + 1, (6, 32, 48)).astype(np.uint16)
    values[0, 0, :3] = 0, 40_000 & top, top
    data = deep(values, f'gray{bits}le')
    video = Video(data)
    assert (video.dtype, video.shape) == (np.uint16, (6, 32, 48))
    assert '6 frames, 32 x 48' in repr(video)
    assert video.tracks[0].format == f'gray{bits}le'
    assert np.array_equal(video[:], values)
    assert np.array_equal(video[[4, 2]], values[[4, 2]])
    assert np.array_equal(np.stack(list(video)), values)
    assert video.options(dtype='uint8')[0].shape == (32, 48)
    assert video.options(size=(16, 24))[0].shape == (16, 24)
    assert video[[]].shape == (0, 32, 48)
    colors = video.options(color='rgb')
    assert colors.shape == (6, 32, 48, 3)
    assert np.array_equal(colors[:], np.repeat(values[..., None], 3, axis=3))
    assert np.array_equal(colors.options(color=None)[1], values[1])
    gray = video.options(color='gray')
    assert np.array_equal(gray[[4, 2]][..., 0], values[[4, 2]])
    assert np.array_equal(gray.options(dtype='uint16')[:], gray[:])
    assert gray[[]].dtype == gray.between(9, 9).dtype == np.uint16
    assert gray.options(size=(16, 24))[0].dtype == np.uint16
    eight = gray.options(dtype=np.uint8)
    assert eight.dtype == eight[3].dtype == np.uint8
    assert np.abs(eight[:][..., 0] / 255 - values / top).max() < 0.01
    assert np.array_equal(bags.decoders['mkv'](data), values)
    assert bags.decoders['mkv'](data, 'dtype=uint8').dtype == np.uint8
    assert bags.decoders['mkv'](data, 'color=rgb').shape == (6, 32, 48, 3)
    spec = {'depth': 'video', 'clips': 'mkv[]', 'rgb': 'video(color=rgb)'}
    with bags.DatasetWriter(tmp_path / 'it', spec) as writer:
        writer.append({'depth': data, 'clips': [data, data], 'rgb': data})
    with bags.open(tmp_path / 'it') as reader:
        both = reader[0, {'depth': bags.frames(2, 4), 'clips': bags.frames([8, 1])}]
        assert np.array_equal(both['depth'], values[2:4])
        assert np.array_equal(both['clips'], values[[2, 1]])
        assert reader[0]['rgb'][:2].shape == (2, 32, 48, 3)
        joined = reader.stream(0, 'clips')
        assert joined.shape == (12, 32, 48)
        assert np.array_equal(joined[5:8], values[[5, 0, 1]])


def test_clips_of_deep_grey():
    values = np.random.default_rng(0).integers(0, 4096, (6, 32, 48)).astype(np.uint16)
    for source in (deep(values, 'gray12le'), values, values[..., None]):
        clips = list(bags.cut_clips(source, 4))
        assert [clip.copied for clip in clips] == [False, False]
        assert np.array_equal(np.concatenate([Video(clip)[:] for clip in clips]), values)
    assert len(b''.join(bags.cut_clips(values, 4, crf=30))) < len(b''.join(clips)) / 2
    with pytest.raises(ValueError, match=r'frame 0: expected frames of uint8, got uint16: .*copy=True'):
        list(bags.cut_clips(deep(values, 'gray12le'), 4, codec='h264'))
    with pytest.raises(ValueError, match='expected grey of 12 bits, values from 0 to 4095, got'):
        list(bags.cut_clips(deep(values * 15, 'gray16le'), 4))


def test_deep_colours_on_request(tmp_path):
    values = np.random.default_rng(0).integers(0, 1 << 16, (4, 32, 48, 3)).astype(np.uint16)
    for data in (deep(values, 'rgb48be', 'png', 'mov'), deep(values, 'gbrp16le')):
        video = Video(data)
        assert video.dtype == video[0].dtype == np.uint8
        full = video.options(dtype='uint16')
        assert (full.dtype, full[1:3].dtype) == (np.uint16, np.uint16)
        assert np.array_equal(full[:], values)
        assert np.abs(video[:].astype(int) - values / 257).max() < 2
    with bags.DatasetWriter(
        tmp_path / 'it', {'x': 'mkv(dtype=uint16)', 'y': 'video(dtype=uint16)'}
    ) as writer:
        writer.append({'x': data, 'y': data})
    with bags.open(tmp_path / 'it') as reader:
        assert np.array_equal(reader[0]['x'], values)
        assert np.array_equal(reader[0]['y'][2], values[2])
    eight = Video(example('closed groups')[0])
    assert np.abs(eight.options(dtype='uint16')[5] / 257 - eight[5]).max() < 3
    for wrong in ('int16', 'float32', np.int64, 8):
        with pytest.raises(ValueError, match='expected a dtype of uint8 or uint16'):
            video.options(dtype=wrong)


def rotated(degrees, mirrored=False):
    """Returns an MP4 with a display matrix."""
    matrix = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[degrees]
    a, b, c, d = (value << 16 for value in matrix)
    data = bytearray(film(options=x264(), count=48))
    place = data.index(b'tkhd') + 44
    data[place : place + 36] = struct.pack(
        '>9i', -a if mirrored else a, -b if mirrored else b, 0, c, d, 0, 0, 0, 1 << 30
    )
    return bytes(data)


@pytest.mark.slow(all_but='90-*')
@pytest.mark.parametrize('mirrored', [False, True])
@pytest.mark.parametrize('degrees', [0, 90, 180, 270])
def test_frames_are_turned_as_players_do(degrees, mirrored):
    data = rotated(degrees, mirrored)
    stored, _ = decoded(data)
    left = stored[:, :, ::-1] if mirrored else stored
    expected = np.rot90(left, -degrees // 90, axes=(1, 2))
    with bags.remux(data) as again:
        files = [data, again.read()]
    for file in files:
        video = Video(file)
        assert video.rotation == degrees
        assert video.shape == expected.shape
        for key in (5, slice(20, 30), [40, 3]):
            assert np.array_equal(Video(file)[key], expected[key])
        assert np.array_equal(np.stack(list(video)), expected)
        assert np.array_equal(bags.decoders['mp4'](file), expected)
        as_stored = video.options(rotate=False)
        assert (as_stored.shape, as_stored.rotation) == (stored.shape, degrees)
        assert np.array_equal(as_stored[:], stored)
        assert np.array_equal(bags.decoders['mp4'](file, 'rotate=False'), stored)
        small = video.options(size=(30, 60), color='gray')
        assert small.shape[1:] == small[3].shape == (30, 60, 1)
    for copied, clips in ((True, bags.cut_clips(data, 24)), (False, bags.cut_clips(data, 20))):
        shown = [frame for clip in clips for frame in Video(clip)]
        assert len(shown) == 48
        assert np.abs(np.stack(shown).astype(int) - expected).mean() < (0.01 if copied else 3)


def test_several_times_at_once():
    video = Video(example('open groups')[0])
    for times in ([2.02, 0.0, 4.79, 2.02], (1.0, 0.5), np.array([3.0]), np.arange(4)):
        found = video.at(times)
        assert np.array_equal(found, [video.at(time) for time in times])
    assert video.at([]).shape == (0, films.HEIGHT, films.WIDTH, 3)
    with pytest.raises(IndexError, match='nothing is shown at 7'):
        video.at([1.0, 7.0])
    for wrong in ([[1.0]], ['a'], None):
        with pytest.raises(TypeError, match='expected a time'):
            video.at(wrong)


def test_a_relative_path_is_that_of_when_it_was_made(tmp_path, monkeypatch):
    (tmp_path / 'film.mp4').write_bytes(example('open groups')[0])
    monkeypatch.chdir(tmp_path)
    video = Video('film.mp4')
    monkeypatch.chdir('/')
    assert len(video) == len(Video(tmp_path / 'film.mp4'))


def test_it_says_how_long_it_is(tmp_path):
    (tmp_path / 'film.mp4').write_bytes(example('open groups')[0])
    text = repr(Video(tmp_path / 'film.mp4'))
    assert text.endswith("film.mp4', 120 frames, 96 x 128, 25 fps, 4.8 s)")
    assert '60 x 80' in repr(Video(tmp_path / 'film.mp4', size=(60, 80)))
    assert 'cannot be read: ValueError' in repr(Video(b'hello'))
    assert 'cannot be read: FileNotFoundError' in repr(Video(tmp_path / 'nowhere.mp4'))
    far = Source(example('open groups')[0])
    video = Video(far)
    assert repr(video) == "bags.Video('a film')"
    assert not far.files
    assert len(video) == 120
    assert '120 frames' in repr(video)


def test_indices():
    video = Video(example('open groups')[0])
    assert video[500:].shape == (0, films.HEIGHT, films.WIDTH, 3)
    assert video[[]].shape == (0, films.HEIGHT, films.WIDTH, 3)
    assert number_of(video[np.int64(-2)]) == 118
    assert [number_of(frame) for frame in video[np.array([7, 5], np.uint8)]] == [7, 5]
    for wrong in (120, -121, [3, 120], np.array([-121])):
        with pytest.raises(IndexError, match=r'frame -?12[01] out of range \[-120, 120\)'):
            video[wrong]
    for wrong in (2**63, 2**64 - 1, 2**64, np.uint64(2**64 - 1)):  # The last of them is 0 - 1, as uint64.
        for key in (wrong, [wrong], np.array([wrong])):
            with pytest.raises(IndexError, match=rf'frame {wrong} out of range \[-120, 120\)'):
                video[key]
    for wrong in (1.0, 'x', [1.5], [[1, 2]], np.zeros(120, bool), None):
        with pytest.raises(TypeError):
            video[wrong]


# Which bytes are read.


def test_creating_one_reads_nothing():
    source = Source(example('open groups')[0])
    video = Video(source)
    assert not source.files
    assert 'a film' in repr(video.options(color='gray'))
    assert not source.files


@functools.cache
def long_film():
    """Returns ten minutes of video: the packets of ten seconds of 2 Mbit/s, repeated."""
    chance = np.random.default_rng(0)
    noise = chance.integers(0, 255, (8, 256, 256, 3), np.uint8)
    file = io.BytesIO()
    with av.open(file, 'w', format='mp4') as container:
        settings = {
            'x264-params': 'keyint=50:min-keyint=50:scenecut=0:bframes=2',
            'b': '2400k',
            'preset': 'ultrafast',
        }
        stream = container.add_stream('libx264', rate=25, options=settings)
        stream.height = stream.width = 256
        stream.pix_fmt = 'yuv420p'
        for number in range(100):
            frame = av.VideoFrame.from_ndarray(noise[number % 8], format='rgb24').reformat(format='yuv420p')
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.seek(0)
    longer = io.BytesIO()
    with av.open(file) as source, av.open(longer, 'w', format='mp4') as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream)
        packets = [(bytes(packet), packet) for packet in source.demux(stream) if packet.size]
        length = 100 * 512
        for turn in range(150):
            for data, packet in packets:
                again = av.Packet(data)
                again.pts, again.dts = packet.pts + turn * length, packet.dts + turn * length
                again.time_base, again.stream, again.is_keyframe = packet.time_base, copy, packet.is_keyframe
                again.duration = packet.duration  # PyAV before 18.1 leaves out the last one otherwise
                target.mux(again)
    return longer.getvalue()


def test_a_slice_reads_its_group_of_pictures_alone():
    data = long_film()
    assert len(data) * 8 / 600 > 2e6
    source = Source(data)
    video = Video(source)
    assert video.shape == (15_000, 256, 256, 3)
    header = source.count
    middle = video[7510:7526]
    assert source.count < len(data) * 0.02
    first, last = Source(data), Source(data)
    before = Video(first)[10:26], Video(last)[14_910:14_926]
    assert np.array_equal(*before)
    assert np.array_equal(middle, before[0])
    assert abs(first.count - last.count) < 1 << 16
    # The next read reads nothing of the header, and no byte twice.
    count, reads = source.count, len(source.files[0].ranges)
    video[7710:7726]
    assert source.count - count < count
    assert len(source.files) == 1
    assert all(start > header for start, _ in source.files[0].ranges[reads:])
    total = source.count
    video[[8020, 8003, 8040, 8003]]
    assert source.count - total < 60 * len(data) / 15_000 * 2


def test_the_packets_of_a_slice_are_read_at_once():
    data, frames, _ = example('open groups')
    source = Source(data)
    video = Video(source)
    assert len(video) == 120
    before = len(source.files[0].ranges)
    assert np.array_equal(video[50:60], frames[50:60])
    assert len(source.files[0].ranges) == before + 1
    again = len(source.files[0].ranges)
    assert np.array_equal(video[55:60], frames[55:60])
    assert len(source.files[0].ranges) == again + 1


# Lifetimes.


def test_handles_of_a_dataset(tmp_path):
    data, frames, _ = example('open groups')
    (tmp_path / 'film.mp4').write_bytes(data)
    spec = {'one': 'video', 'few': 'video[]', 'maybe': 'video?', 'packed': 'video'}
    with bags.DatasetWriter(tmp_path / 'films', spec, compression=['packed']) as writer, \
            open(tmp_path / 'film.mp4', 'rb') as file:  # fmt: skip
        writer.append({'one': tmp_path / 'film.mp4', 'few': [data, frames[:5]], 'packed': data})
        writer.append({'one': file, 'few': [], 'maybe': data, 'packed': str(tmp_path / 'film.mp4')})
        assert not file.closed
    with bags.open(tmp_path / 'films') as reader:
        assert reader.records('one')[0] == reader.records('one')[1] == data
        row, batch = reader[0], reader.batch([1, 0])
        assert row['maybe'] is None
        assert [video.shape[0] for video in row['few']] == [120, 5]
        for video in (
            row['one'],
            row['packed'],
            batch['one'][0],
            batch['maybe'][0],
            batch['packed'][1],
            reader[0]['one'],
        ):
            assert np.array_equal(video[30:40], frames[30:40])
        unopened = reader[1]['one']
        assert reader[0, {'few': [1]}]['few'][0].shape == (5, 96, 128, 3)
    # Each keeps the file open.
    assert np.array_equal(unopened[[3, 1]], frames[[3, 1]])
    for video in (unopened, row['packed']):
        again = pickle.loads(pickle.dumps(video.options(color='gray')))
        assert np.array_equal(again.options(color='rgb')[7], frames[7])
    with bags.open(tmp_path / 'films', raw=True) as reader:
        assert bytes(reader[0]['one']) == data
    with pytest.raises(
        IndexError, match=r"one\.bag, field 'one' of type video, record 1: frame 120 out of range"
    ):
        unopened[120]


def test_a_decoder_of_one_s_own_may_open_its_record(tmp_path):
    def decode(record, *args):
        with record.open() as file:
            file.seek(4)
            return args, file.read(3)

    decode.lazy = True
    with bags.DatasetWriter(
        tmp_path / 'it', {'x': 'bytes', 'y': 'peek(5)[]'}, {**bags.encoders, 'peek': lambda value, _: value}
    ) as writer:
        writer.append({'x': b'', 'y': [b'abcdefghij', b'0123456789']})
    with bags.open(tmp_path / 'it', {**bags.decoders, 'peek': decode}) as reader:
        assert reader[0]['y'] == [(('5',), b'efg'), (('5',), b'456')]
        assert reader.batch([0])['y'] == [reader[0]['y']]


def test_threads_share_a_handle():
    data, frames, _ = example('open groups')
    video = Video(data)

    def work(seed):
        chance = random.Random(seed)
        for _ in range(10):
            key = asked(chance, len(frames))
            if not np.array_equal(video[key], frames[key]):
                return key
        return None

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [None] * 8


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork')
@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_a_fork_opens_its_own(tmp_path):
    data, frames, _ = example('open groups')
    (tmp_path / 'film.mp4').write_bytes(data)
    video = Video(tmp_path / 'film.mp4')
    _ = video[0]
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(video[60:70], frames[60:70]) else 1)
    assert np.array_equal(video[10:50], frames[10:50])
    assert os.waitpid(child, 0)[1] == 0


def descriptors(path):
    """Returns how many descriptors of a file this process has; earlier tests may close others meanwhile."""
    found = 0
    for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd') else ():
        with contextlib.suppress(OSError):
            found += os.readlink(f'/proc/self/fd/{name}') == str(path)
    return found


@pytest.mark.slow
def test_nothing_leaks(tmp_path):
    data, _, _ = example('open groups')
    (tmp_path / 'film.mp4').write_bytes(data)
    gc.collect()
    gc.disable()
    try:
        videos = [Video(tmp_path / 'film.mp4') for _ in range(8)]
        for video in videos:
            _ = video[5]
            _ = next(iter(video))
        del video, videos
        threads = threading.active_count()
        video = Video(tmp_path / 'film.mp4')
        tracemalloc.start()
        for turn in range(900):
            _ = video[turn % 100 : turn % 100 + 4]
            if turn in (700, 899) and not has_side_data():
                gc.collect()  # In av 15, a pixel format and its components refer to one another.
            if turn == 700:  # Python keeps up to 2,000 freed tuples of each length.
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] < before + 50_000
        tracemalloc.stop()
        del video
        assert not descriptors(tmp_path / 'film.mp4')
        assert threading.active_count() <= threads
    finally:
        gc.enable()


# Damaged files.


def test_not_a_video(tmp_path):
    for data, found in (
        (b'', 'no bytes'),
        (b'hello', 'bytes that begin with'),
        ((DATA / 'cat.jpg').read_bytes(), 'JPEG'),
    ):
        with pytest.raises(ValueError, match=f'expected video, got {found}'):
            len(Video(data))
        with pytest.raises(ValueError, match=f'got {found}'):
            bags.encoders['video'](data)
    with pytest.raises(FileNotFoundError):
        len(Video(tmp_path / 'nowhere.mp4'))
    with pytest.raises(TypeError, match='a path, bytes or a record'):
        Video(5)


def test_no_video_in_it():
    file = io.BytesIO()
    with av.open(file, 'w', format='mp4') as container:
        stream = container.add_stream('aac', rate=8000, layout='mono')
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), format='fltp', layout='mono')
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(ValueError, match='expected video, got tracks: 0 audio'):
        len(Video(file.getvalue()))


def test_no_frame_in_it():
    data = open_gops()
    place = data.index(b'stsz') + 12
    for empty in (data[:place] + bytes(4) + data[place + 4 :], with_edits(data, (0, 0, 1))):
        with pytest.raises(ValueError):
            len(Video(empty))


def test_a_codec_that_nobody_knows():
    for format, tag in (('mp4', b'avc1'), ('matroska', b'V_MPEG4/ISO/AVC')):
        start, _, end = open_gops(format).rpartition(tag)
        with pytest.raises(ValueError, match=r'expected video, got tracks: (none|0 video .unknown codec)'):
            len(Video(start + b'Z' * len(tag) + end))


def test_errors_say_where(tmp_path):
    data = bytearray(open_gops())
    unchecked = {**bags.encoders, 'video': bytes}
    with bags.DatasetWriter(tmp_path / 'films', {'film': 'video'}, unchecked) as writer:
        writer.append({'film': bytes(data)})
        writer.append({'film': bytes(data[:500])})
    with bags.open(tmp_path / 'films') as reader:
        with pytest.raises(bags.DecodeError, match='cut off') as caught:
            len(reader[1]['film'])
        assert (caught.value.field, caught.value.index, caught.value.type) == ('film', 1, 'video')
        assert 'film.bag' in str(caught.value)


@pytest.mark.parametrize('format', ['mp4', 'matroska', 'avi'])
def test_a_file_that_was_cut_off_gives_what_is_there(format):
    codec, options = ('libx264', x264(open_gop=1)) if format != 'avi' else ('mpeg4', PARTS)
    whole = film(codec, format=format, options=options)
    if format == 'mp4':
        with bags.remux(whole) as file:
            whole = file.read()
    frames = decoded(whole)[0]
    # In the middle of the frames, wherever the header is.
    short = whole[: (len(whole) + max(whole.find(b'mdat'), 0)) // 2]
    video = Video(short)
    seen = []
    with pytest.raises(ValueError, match='cut off'):  # noqa: PT012 - what came before it counts
        for frame in video:
            seen.append(frame)  # noqa: PERF402
    assert 20 < len(seen) < 119
    assert np.array_equal(seen, frames[: len(seen)])
    assert np.array_equal(video[10:20], frames[10:20])
    for key in (slice(None), slice(20, None), slice(-5, None)):
        with pytest.raises(ValueError, match='cut off'):
            video[key]
    times = video.times
    assert np.array_equal(video.between(times[10], times[12]), frames[10:12])
    with pytest.raises(ValueError, match='cut off'):
        video.between(times[10], 1000)


@pytest.mark.parametrize('wrong', [1.5, 'a', None, object()])
def test_what_is_no_number_of_a_frame(wrong):
    video = Video(film(count=3))
    with pytest.raises(TypeError, match='expected a frame number, a slice or a list of frame numbers, got'):
        video[wrong]
    for use in (video.at, lambda time: video.between(time, 1), lambda time: video.between(0, time)):
        if wrong != 1.5:
            with pytest.raises(TypeError, match='expected a time in seconds, got'):
                use(wrong)


def test_a_hole_gives_no_wrong_frame():
    data = open_gops()
    moov = data.index(b'moov')
    chance = random.Random(0)
    for _ in range(12):
        hole = chance.randrange(100, moov - 300)
        damaged = data[:hole] + chance.randbytes(60) + data[hole + 60 :]
        video, wrong = Video(damaged), 0
        for index in range(0, 120, 7):
            try:
                wrong += number_of(video[index]) != index
            except ValueError:
                continue
        assert not wrong


def test_headers_that_claim_nonsense():
    data = open_gops()
    chance = random.Random(0)
    moov = data.index(b'moov')
    for _ in range(150):
        damaged = bytearray(data)
        place = chance.randrange(moov, len(data) - 4)
        damaged[place : place + 4] = struct.pack(
            '>I', chance.choice([0, 1, 2**31 - 1, 2**32 - 1, chance.randrange(2**32)])
        )
        video = Video(bytes(damaged))
        try:
            assert len(video) < 10_000
            _ = video[[0, len(video) // 2]]
        except (ValueError, IndexError):
            continue


def test_frames_of_another_size():
    sizes = [film(count=8, options=x264(keyint=8)), film(count=8, options=x264(keyint=8), size=(48, 64))]
    file = io.BytesIO()
    with av.open(file, 'w', format='matroska') as target:
        copy = None
        for part, data in enumerate(sizes):
            with av.open(io.BytesIO(remuxed(data, 'h264'))) as source:
                stream = source.streams.video[0]
                copy = copy or target.add_stream_from_template(stream)
                for number, packet in enumerate(source.demux(stream)):
                    if packet.size:
                        packet.pts = packet.dts = 8 * part + number
                        packet.stream = copy
                        target.mux(packet)
    video = Video(file.getvalue())
    with pytest.raises(ValueError, match=r'expected 96 x 128 pixels as in earlier frames, got 48 x 64'):
        _ = video[:]
