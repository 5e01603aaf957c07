"""Files of several streams: one is chosen for a reader, and all can be read."""

import io

import av
import numpy as np
import pytest

import bags
from bags import Audio, Video
from bags.streams.joined_video import join_videos
from tests.media.samples import (
    HEVC,
    PARTS,
    SVT,
    VPX,
    decoded,
    film,
    number_of,
    packed_b_frames,
    several,
    with_decoding_times,
    x264,
)

LARGE, SMALL = (96, 128), (48, 64)
FILES = {
    'two sounds in MP4': ('mp4', [], [('aac', 44100, 440), ('aac', 44100, 880)]),
    'two rates in Matroska': ('matroska', [], [('aac', 44100, 440), ('aac', 22050, 880)]),
    'a film with two sounds in MP4': (
        'mp4', [('libx264', 25, 50, LARGE, 0)], [('aac', 44100, 440), ('aac', 22050, 880)]
    ),
    '1 and 25 fps in Matroska': (
        'matroska', [('libx264', 1, 2, LARGE, 100), ('libx264', 25, 50, LARGE, 0)],
        [('aac', 44100, 440), ('libopus', 48000, 880)],
    ),
    '25 and 1 fps in Matroska': (
        'matroska', [('libx264', 25, 50, LARGE, 0), ('libx264', 1, 2, LARGE, 100)], []
    ),
    'two sizes in AVI': ('avi', [('mpeg4', 25, 50, LARGE, 0), ('mpeg4', 25, 50, SMALL, 100)], []),
    'two sizes in MP4': (
        'mp4', [('libx264', 25, 50, SMALL, 0), ('libx264', 25, 50, LARGE, 100)], [('aac', 44100, 440)]
    ),
    'two codecs in a transport stream': (
        'mpegts', [('libx264', 25, 50, LARGE, 0), ('mpeg2video', 25, 50, SMALL, 100)],
        [('aac', 44100, 440), ('mp2', 44100, 880)],
    ),
}  # fmt: skip


def frequency(audio):
    samples = audio[audio.rate // 2 : audio.rate][:, 0]
    return round(int(np.abs(np.fft.rfft(samples)).argmax()) * audio.rate / len(samples))


@pytest.mark.parametrize('name', FILES)
def test_every_stream_is_read(name, tmp_path):
    format, videos, audios = FILES[name]
    data = several(format, videos, audios)
    streams = (Video if videos else Audio)(data).tracks
    assert [stream.type for stream in streams] == ['video'] * len(videos) + ['audio'] * len(audios)
    assert [stream.index for stream in streams] == list(range(len(streams)))
    for stream, (_, fps, count, size, first) in zip(streams, videos, strict=False):
        assert (stream.size, stream.rate, stream.format) == (size, fps, 'yuv420p')
        video = Video(data, track=stream.index)
        assert video.shape == (count, *size, 3)
        assert [number_of(frame) for frame in video] == list(range(first, first + count))
        assert [number_of(video[k]) for k in (-1, 0, count // 2)] == [
            first + count - 1, first, first + count // 2
        ]  # fmt: skip
    for stream, (_, rate, hertz) in zip(streams[len(videos) :], audios, strict=True):
        assert (stream.rate, stream.channels) == (rate, 1)
        audio = Audio(data, track=stream.index)
        assert (audio.rate, frequency(audio)) == (rate, hertz)
        assert audio.duration == pytest.approx(2, abs=0.1)
    # Without a choice, all frames are from one stream.
    if videos:
        first = number_of(Video(data)[0])
        assert [number_of(frame) for frame in Video(data)] == list(range(first, first + len(Video(data))))
        assert sum(clip.frames for clip in bags.cut_clips(data, 16)) == len(Video(data))
    if audios:
        assert frequency(Audio(data)) in {hertz for *_, hertz in audios}
    for kind, wrong in ((Video, len(videos)), (Video, 99), (Audio, 0 if videos else 99)):
        with pytest.raises(ValueError, match=rf'expected track {wrong} of (video|audio), got tracks: 0 '):
            len(kind(data, track=wrong))


def test_streams_of_a_dataset(tmp_path):
    data = several(*FILES['two sizes in MP4'])
    spec = {
        'first': 'video(track=0)', 'second': 'video(track=1)', 'default': 'video',
        'sound': 'audio(stream=2)'  # As in older specs.
    }  # fmt: skip
    with bags.DatasetWriter(tmp_path / 'it', spec) as writer:
        writer.append(dict.fromkeys(spec, data))
    with bags.open(tmp_path / 'it') as reader:
        row = reader[0]
        assert number_of(row['first'][3]) == 3
        assert number_of(row['second'][3]) == 103
        assert frequency(row['sound']) == 440
        assert number_of(reader[0, {'second': bags.frames(np.array([4, 2]))}]['second'][1]) == 102
        assert number_of(join_videos(reader, 0, 'second')[5]) == 105
        clips = list(bags.cut_clips(row['second'], 25))
        assert [number_of(Video(clip)[0]) for clip in clips] == [100, 125]
        assert frequency(row['default'].audio) == 440
        assert len(row['default'].tracks) == 3
        with pytest.raises(bags.DecodeError, match='expected track 7'):
            len(Video(row['default'].source, track=7))
    for wrong in ('video(track=-1)', 'video(track=a)', 'audio(track=1,stream=2)', 'audio(speed=3)'):
        with pytest.raises(ValueError, match='expected'):
            bags.DatasetWriter(tmp_path / 'wrong', {'x': wrong})
    for wrong in (-1, 1.5, 'a', True):
        with pytest.raises(ValueError, match='expected track to be an index'):
            Video(data, track=wrong)


def test_sound_has_the_clock_of_its_film():
    for name in ('a film with two sounds in MP4', 'two codecs in a transport stream'):
        video = Video(several(*FILES[name]))
        start = float(video.times[0])
        assert abs(video.audio.start - start) < 0.05
        assert len(video.audio.between(start + 0.5, start + 1)) == video.audio.rate / 2


def test_a_file_without_sound():
    video = Video(several('mp4', [('libx264', 25, 5, SMALL, 0)]))
    with pytest.raises(ValueError, match='expected audio, got tracks: 0 video'):
        len(video.audio)


CODED = {
    'H.264': lambda name: film(options=x264(), format=name),
    'H.264, open groups': lambda name: film(
        options=x264(open_gop=1, b_pyramid='normal', bframes=5, ref=4), format=name
    ),
    'HEVC': lambda name: film('libx265', options=HEVC, format=name),
    'MPEG-4': lambda name: film('mpeg4', options=PARTS, format=name),
    'MPEG-2': lambda name: film('mpeg2video', options=PARTS, format='matroska'),
    'VP9': lambda name: film('libvpx-vp9', options=VPX, format='webm'),
    'AV1': lambda name: film('libsvtav1', options=SVT, format='mp4'),
}
CONTAINERS = {
    'H.264': ('mp4', 'mov', 'matroska', 'mpegts', 'avi', 'flv'),
    'H.264, open groups': ('mp4', 'matroska', 'mpegts', 'avi'),
    'HEVC': ('mp4', 'matroska', 'mpegts'),
    'MPEG-4': ('mp4', 'matroska', 'avi'),
    'MPEG-2': ('mp4', 'matroska', 'mpegts'),
    'VP9': ('mp4', 'webm'),
    'AV1': ('mp4', 'matroska'),
}


@pytest.mark.slow(all_but='*-matroska-60')
@pytest.mark.parametrize('after', [0, 60])
@pytest.mark.parametrize(
    ('codec', 'format'), [(codec, format) for codec, formats in CONTAINERS.items() for format in formats]
)
def test_frames_of_decoding_times_are_in_order(codec, format, after):
    """As of `ffmpeg -c copy` from a container without presentation times; or from a packet on."""
    source = CODED[codec]('mpegts' if format == 'avi' and 'H.264' in codec else 'mp4')
    data = with_decoding_times(source, format, after)
    expected = [number_of(frame) for frame in decoded(data)[0]]
    assert expected == sorted(expected)
    video = Video(data)
    assert [number_of(frame) for frame in video] == expected
    chosen = [0, 61, 7, 119, 30, 62, 3]
    assert [number_of(frame) for frame in video[np.array(chosen) % len(video)]] == [
        expected[number % len(expected)] for number in chosen
    ]
    times = video.times
    assert (np.diff(times) > 0).all()
    for number in (2, 65):
        assert number_of(video.at(times[number])) == expected[number]
        assert len(video.between(times[number], times[number + 4])) == 4


@pytest.mark.parametrize('b_frames', [1, 2, 3])
@pytest.mark.parametrize('format', ['avi', 'matroska', 'mp4'])
def test_packed_b_frames(format, b_frames, tmp_path):
    data = packed_b_frames(format, b_frames=b_frames)
    frames = decoded(data)[0]
    video = Video(data)
    assert np.array_equal(video[:], frames)
    for number in range(len(frames)):
        assert np.array_equal(video[number], frames[number])
    # At the end of an AVI, libavformat of FFmpeg 7 repeats a time.
    assert np.allclose(np.diff(video.times)[:-1], 1 / 25)
    assert (np.diff(video.times) > 0).all()
    assert number_of(video.at(video.times[17] + 0.01)) == 17
    with bags.DatasetWriter(tmp_path / 'it', {'film': 'video'}) as writer:
        writer.append({'film': data})
    assert bags.verify(tmp_path / 'it', decode=True) == []


@pytest.mark.parametrize('format', ['avi', 'matroska', 'mp4'])
def test_packed_b_frames_that_are_cut(format):
    data = packed_b_frames(format, is_cut=True)
    frames = decoded(data)[0]
    video = Video(data)
    assert np.array_equal(video[:], frames)
    for number in range(len(frames) - 9, len(frames)):
        assert np.array_equal(video[number], frames[number])


def test_b_frames_that_are_called_key_frames():
    """As by `ffmpeg -c copy -bsf:v mpeg4_unpack_bframes` from AVI to MP4."""
    data = with_decoding_times(film('mpeg4', options=PARTS, format='mp4'), 'mp4', false_keys=True)
    frames = decoded(data)[0]
    video = Video(data)
    assert np.array_equal(video[:], frames)
    for number in range(len(frames)):
        assert np.array_equal(video[number], frames[number])


def test_frames_of_one_time():
    """They are in the order of the decoder, in which FFmpeg shows them."""
    film_, file = film(options=x264()), io.BytesIO()
    with av.open(io.BytesIO(film_)) as source, av.open(file, 'w', format='mp4') as target:
        stream = source.streams.video[0]
        copy = target.add_stream_from_template(stream, opaque=True)
        for packet in source.demux(stream):
            if packet.size:
                packet.pts -= packet.pts % 1024  # Two frames.
                packet.dts, packet.stream = packet.dts - 4096, copy
                target.mux(packet)
    video = Video(file.getvalue())
    assert [number_of(frame) for frame in video] == list(range(120))
    assert [number_of(video[k]) for k in (7, 60, 119)] == [7, 60, 119]
    times = video.times
    assert (np.diff(times) > 0).all()
    assert number_of(video.at(times[33])) == 33


def joined(name):
    codec, options = {
        'H.264': ('libx264', x264(open_gop=1)),
        'HEVC': ('libx265', HEVC),
        'MPEG-2': ('mpeg2video', PARTS),
        'MPEG-1 in MPEG-PS': ('mpeg1video', PARTS),
        'H.264 in M2TS': ('libx264', x264(open_gop=1)),
    }[name]
    format = 'mpeg' if 'PS' in name else 'mpegts'
    muxing = {'mpegts_m2ts_mode': '1'} if 'M2TS' in name else None
    return [
        film(codec, format=format, options=options, muxing=muxing, numbers=range(first, first + 40))
        for first in (0, 100, 0)
    ]


@pytest.mark.parametrize('name', ['H.264', 'HEVC', 'MPEG-2', 'MPEG-1 in MPEG-PS', 'H.264 in M2TS'])
def test_joined_streams(name):
    """As by `cat`: times begin again, and libavformat calls the packet before the join damaged."""
    data = b''.join(joined(name))
    video = Video(data)
    expected = [*range(40), *range(100, 140), *range(40)]
    assert [number_of(frame) for frame in decoded(data)[0]] == expected
    assert [number_of(frame) for frame in video] == expected
    assert [number_of(video[k]) for k in (-1, 0, 39, 40, 41, 79, 80)] == [39, 0, 39, 100, 101, 139, 0]
    times = video.times
    assert np.allclose(np.diff(times), 1 / 25, atol=0.05)
    assert (np.diff(times) > 0).all()
    assert number_of(video.at(times[45] + 0.001)) == 105
    with pytest.raises(ValueError, match='cannot be copied to MP4: its times go back'):
        bags.remux(data)


def test_joined_sound():
    data = film(count=40, format='mpegts', options=x264(), audio=True) * 2
    with av.open(io.BytesIO(data)) as container:
        samples = np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1).T
    audio = Video(data).audio
    assert np.array_equal(audio[:], samples)
    assert np.allclose(audio[20_000:20_100], samples[20_000:20_100], atol=1e-4)


def test_packets_that_are_missing_are_no_join():
    data = film(count=120, format='mpegts', options=x264(open_gop=1))
    frames = decoded(data)[0]
    for first in range(40, 160, 6):
        short = data[: first * 188] + data[(first + 3) * 188 :]
        if len(Video(short)) == len(frames):
            assert np.array_equal(Video(short)[:], frames)  # Only tables or padding are missing.
        else:
            with pytest.raises(ValueError, match='is damaged'):
                Video(short)[:]
