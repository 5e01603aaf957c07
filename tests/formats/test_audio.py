from __future__ import annotations

import contextlib
import io
import re
import struct
import wave

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bags
from bags.dataset.format.registry import decoders, encoders
from bags.formats import audio
from bags.media.wav_reader import as_float


def samples(dtype):
    shapes = st.tuples(st.integers(1, 40), st.integers(1, 8))
    shapes |= st.tuples(st.integers(1, 40))
    return hnp.arrays(dtype, shapes)


@given(
    array=samples('int16'),
    rate=st.sampled_from([8000, 16_000, 44_100, 96_000, 192_000]),
)
def test_flac_of_16_bits_is_exact(array, rate):
    decoded, decoded_rate = decoders['flac'](encoders['flac']((array, rate)))
    assert decoded_rate == rate
    assert decoded.dtype == np.int16
    assert np.array_equal(decoded, array.reshape(len(array), -1))


@given(array=samples('int32'))
def test_flac_of_24_bits_is_exact(array):
    decoded, _ = decoders['flac'](encoders['flac']((array & ~0xFF, 48_000)))
    assert decoded.dtype == np.int32
    assert np.array_equal(decoded, (array & ~0xFF).reshape(len(array), -1))


def test_flac_whose_samples_look_like_the_header_of_a_frame():
    array = np.zeros((4, 5), np.int32)
    array[0, 0], array[0, 2], array[3, 1] = -512, 1280, -256
    assert b'\xff\xf8\x10\0\0\x28' in encoders['flac']((array, 48_000))  # With a valid CRC-8.
    assert np.array_equal(decoders['flac'](encoders['flac']((array, 48_000)))[0], array)


def test_flac_written_to_a_pipe(sound):
    array = (sound * 30_000).astype(np.int16)
    data = encoders['flac']((array, 8000))
    length = int.from_bytes(data[18:26], 'big')
    assert length & (1 << 36) - 1 == len(array)
    piped = data[:18] + (length - len(array)).to_bytes(8, 'big') + data[26:]
    assert np.array_equal(decoders['flac'](piped)[0], array)
    with pytest.raises(ValueError):
        decoders['flac'](piped[:-1])


def test_flac_with_a_picture(sound):
    array = (sound * 30_000).astype(np.int16)
    data = encoders['flac']((array, 8000))
    picture = b'\x06' + (70_000).to_bytes(3, 'big') + bytes(70_000)
    assert np.array_equal(decoders['flac'](data[:42] + picture + data[42:])[0], array)


def test_flac_of_many_blocks(sound):
    array = (np.tile(sound, (20, 1)) * 30_000).astype(np.int16)
    data = encoders['flac']((array, 44_100))
    assert len(data) < array.nbytes
    assert np.array_equal(decoders['flac'](data)[0], array)


def test_flac_takes_integers_that_fit(sound):
    with pytest.raises(TypeError, match='int16 or int32'):
        encoders['flac']((sound, 8000))
    with pytest.raises(ValueError, match='24 bits'):
        encoders['flac']((np.array([256, 1], np.int32), 8000))
    with pytest.raises(ValueError, match='655350'):
        encoders['flac']((np.zeros(5, np.int16), 700_000))


@pytest.mark.parametrize('rate', [8000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000, 96_000, 1000])
@pytest.mark.parametrize('count', [1, 2, 50, 959, 960, 961, 20_011])
def test_opus_keeps_the_length(rate, count):
    time = np.arange(count) / rate
    array = (0.5 * np.sin(2 * np.pi * 300 * time)).astype(np.float32)
    decoded, decoded_rate = decoders['opus'](encoders['opus']((array, rate)))
    assert decoded_rate == audio.OPUS_RATE == 48_000
    assert decoded.dtype == np.float32
    assert decoded.shape == (-(-count * 48_000 // rate), 1)


@pytest.mark.parametrize('dtype', [np.float32, np.int16])
@pytest.mark.parametrize('rate', [8000, 44_100, 48_000])
def test_opus_keeps_the_sound_where_it_was(dtype, rate):
    time = np.arange(rate) / rate
    wave = (
        np.stack([np.sin(2 * np.pi * 330 * time), np.sin(2 * np.pi * 440 * time) * (time > 0.5)], axis=1)
        * 0.5
    )
    array = (wave * 32767).astype(np.int16) if dtype == np.int16 else wave.astype(np.float32)
    decoded, _ = decoders['opus'](encoders['opus']((array, rate), '192'))
    later = np.arange(48_000) / 48_000
    expected = (
        np.stack([np.sin(2 * np.pi * 330 * later), np.sin(2 * np.pi * 440 * later) * (later > 0.5)], axis=1)
        * 0.5
    )
    assert np.abs(decoded - expected)[2000:-2000].mean() < 0.02
    for shift in (-8, 8):  # A shift of 1/6 of a millisecond would be detected.
        shifted = np.roll(decoded, shift, axis=0)
        assert (
            np.abs(shifted - expected)[2000:-2000, 0].mean()
            > np.abs(decoded - expected)[2000:-2000, 0].mean()
        )


def test_opus_bitrate(sound):
    assert len(encoders['opus']((sound, 8000), '16')) < len(encoders['opus']((sound, 8000), '256'))
    with pytest.raises(ValueError, match='1 to 2 channels'):
        encoders['opus']((np.zeros((10, 3), np.float32), 48_000))


@pytest.mark.parametrize('format', ['wav', 'flac', 'opus'])
def test_masked_samples_are_refused(format):
    samples = np.ma.masked_equal(np.arange(480, dtype=np.int16), 3)
    with pytest.raises(ValueError, match='expected an array without masked elements'):
        encoders[format]((samples, 48_000))


@pytest.mark.parametrize('format', ['wav', 'flac', 'opus'])
def test_the_advice_for_a_recording_stores_it(format):
    samples = np.array([[-32768], [-5], [0], [32767]], np.int16)
    audio = bags.Audio(encoders['wav']((samples, 48_000)))
    with pytest.raises(TypeError) as caught:
        encoders[format](audio)
    advice = str(caught.value).partition(': pass ')[2]
    stored, rate = decoders[format](encoders[format](eval(advice, {'audio': audio})))
    assert (len(stored), rate) == (4, 48_000)
    if format != 'opus':
        assert np.array_equal(as_float(stored), audio[:])


@pytest.mark.parametrize(('format', 'dtype'), [('flac', 'float32'), ('flac', 'float64'), ('opus', 'float64')])
def test_the_advice_for_floats_stores_them(format, dtype):
    samples = np.array([[-1.0], [0.25], [1.0]], dtype)
    with pytest.raises(TypeError, match=f'got {dtype}: pass ') as caught:
        encoders[format]((samples, 48_000))
    converted = eval(str(caught.value).partition(': pass ')[2], {'samples': samples})
    assert len(decoders[format](encoders[format]((converted, 48_000)))[0]) == 3


@pytest.mark.parametrize('format', ['wav', 'flac', 'opus'])
def test_other_values(format):
    good = np.zeros((10, 1), np.int16)
    for value in (good, (good,), (good, 8000, 1), None, 5, {'samples': good}, (good, 8000.0), (good, '8000')):
        with pytest.raises(TypeError):
            encoders[format](value)
    for dtype in (np.uint8, np.int64, bool, object):
        with pytest.raises(TypeError, match='expected samples of'):
            encoders[format]((good.astype(dtype), 8000))
    for value in (
        (good[None], 8000),
        (good[:, :0], 8000),
        (good[0, 0], 8000),
        (good, 0),
        (good, -1),
        (good, 2**31),
    ):
        with pytest.raises(ValueError):
            encoders[format](value)


@pytest.mark.parametrize('format', ['flac', 'opus'])
def test_no_samples(format):
    with pytest.raises(ValueError, match='at least one sample'):
        encoders[format]((np.zeros((0, 2), np.int16), 8000))
    assert decoders['wav'](encoders['wav']((np.zeros((0, 2), np.int16), 8000)))[0].shape == (0, 2)


def wav_samples(dtype):
    shapes = st.tuples(st.integers(0, 40), st.integers(1, 4))
    shapes |= st.tuples(st.integers(0, 40))
    return hnp.arrays(dtype, shapes)


@pytest.mark.slow(all_but='int16')
@pytest.mark.parametrize('dtype', ['int16', 'int32', 'float32', 'float64', '>i2', '>f4'])
@given(data=st.data())
def test_wav_is_exact(dtype, data):
    array = data.draw(wav_samples(dtype))
    rate = data.draw(st.integers(1, 2**31 - 1))
    decoded, decoded_rate = decoders['wav'](memoryview(encoders['wav']((array, rate))))
    assert decoded_rate == rate
    assert type(decoded_rate) is int
    assert decoded.dtype == np.dtype(dtype).newbyteorder('=')
    assert decoded.tobytes() == array.astype(decoded.dtype).tobytes()
    assert decoded.shape == (len(array), array.shape[1] if array.ndim == 2 else 1)
    assert decoded.flags.owndata


def test_wav_as_the_standard_library_reads_and_writes_it(sound):
    pcm = (sound * 32767).astype(np.int16)
    with wave.open(io.BytesIO(encoders['wav']((pcm, 8000)))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 2, 2)
        assert file.readframes(file.getnframes()) == pcm.tobytes()
    for width in (1, 2, 3, 4):
        raw = np.random.default_rng(0).integers(0, 256, 60 * 2 * width, np.uint8)
        stream = io.BytesIO()
        with wave.open(stream, 'wb') as file:
            file.setparams((2, width, 44_100, 0, 'NONE', ''))
            file.writeframes(raw.tobytes())
        decoded, rate = decoders['wav'](stream.getvalue())
        assert rate == 44_100
        assert decoded.shape == (60, 2)
        assert decoded.dtype == (np.int16 if width <= 2 else np.int32)
        # Both widths are in the upper bits of 32.
        if width == 1:
            expected = (raw.astype(np.int64) - 128) << 24
        else:
            padded = np.zeros((120, 4), np.uint8)
            padded[:, 4 - width :] = raw.reshape(-1, width)
            expected = padded.view('<i4')[:, 0].astype(np.int64)
        found = decoded.astype(np.int64) << (16 if width <= 2 else 0)
        assert np.array_equal(found.ravel(), expected)


def test_wav_as_ffmpeg_reads_and_writes_it(sound):
    with av.open(io.BytesIO(encoders['wav']((sound, 8000)))) as container:
        found = np.concatenate([frame.to_ndarray().reshape(-1, 2) for frame in container.decode(audio=0)])
    assert np.array_equal(found, sound)
    file = io.BytesIO()
    with av.open(file, 'w', format='wav') as container:  # With a list of tags and an extensible header.
        stream = container.add_stream('pcm_s24le', rate=96_000, layout='stereo')
        frame = av.AudioFrame.from_ndarray((sound * 2**31).astype(np.int32).reshape(1, -1), 's32', 'stereo')
        frame.sample_rate = 96_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    decoded, rate = decoders['wav'](file.getvalue())
    assert rate == 96_000
    assert np.abs(decoded / 2**31 - sound).max() < 2**-22


def test_wavs_that_are_not_right(sound):
    data = encoders['wav']((sound, 8000))
    place = data.index(b'fmt ') + 8

    def with_format(*values):
        return data[:place] + struct.pack('<HHIIHH', *values) + data[place + 16 :]

    for values in [
        (1, 0, 8000, 0, 0, 16),
        (1, 2, 0, 0, 4, 16),
        (1, 2, 8000, 0, 5, 16),
        (2, 2, 8000, 0, 4, 4),
    ]:
        with pytest.raises(ValueError):
            decoders['wav'](with_format(*values))
    with pytest.raises(ValueError, match='format 0x0055'):
        decoders['wav'](with_format(0x55, 2, 8000, 0, 4, 16))
    with pytest.raises(ValueError, match='cut off'):
        decoders['wav'](data[:-1])
    with pytest.raises(ValueError, match='before its samples'):
        decoders['wav'](data[: data.index(b'data')])


def wav_header_of_no_samples(data, riff):
    start = data.index(b'data') + 4
    return data[:4] + struct.pack('<I', riff) + data[8:start] + bytes(4) + data[start + 4 :]


@pytest.mark.parametrize('riff', [0, 36, 38, 2_000, 1 << 20])
def test_wav_of_a_killed_recorder(sound, riff):
    pcm = (sound * 32_767).astype(np.int16)
    data = wav_header_of_no_samples(encoders['wav']((pcm, 8000)), riff)
    for cut in (0, 1, 3):  # The last sample may be incomplete.
        whole = len(pcm) - bool(cut)
        recorded = data[: len(data) - cut]
        assert np.array_equal(decoders['wav'](encoders['wav'](recorded))[0], pcm[:whole])
        assert np.array_equal(bags.Audio(recorded)[:], pcm[:whole].astype(np.float32) / 32_768)


@pytest.mark.parametrize('codec', ['pcm_u8', 'pcm_s16le', 'pcm_s24le', 'pcm_f64le'])
@pytest.mark.parametrize('extra', [1, 5])
@pytest.mark.parametrize('tail', [b'', b'LIST\4\0\0\0INFO'])
def test_wav_whose_data_end_inside_a_sample(sound, tmp_path, codec, extra, tail):
    file = io.BytesIO()
    with av.open(file, 'w', format='wav') as container:
        stream = container.add_stream(codec, rate=8000, layout='stereo')
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound.T), format='fltp', layout='stereo')
        frame.sample_rate = 8000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    whole, data = decoders['wav'](file.getvalue()), file.getvalue()
    start = data.index(b'data') + 8
    size = int.from_bytes(data[start - 4 : start], 'little') + extra
    cut = data[: start + size - extra] + bytes(extra + size % 2) + tail
    cut = (
        b'RIFF' + struct.pack('<I', len(cut) - 8) + cut[8 : start - 4] + struct.pack('<I', size) + cut[start:]
    )
    stride = int.from_bytes(data[32:34], 'little')
    length = len(sound) + extra // stride
    # FFmpeg before 8 refuses the last packet.
    with av.open(io.BytesIO(cut)) as container, contextlib.suppress(av.error.InvalidDataError):
        assert sum(frame.samples for frame in container.decode(audio=0)) == length
    with bags.DatasetWriter(tmp_path / 'it', {'wav': 'wav', 'wavs': 'wav[]', 'audio': 'audio'}) as writer:
        writer.append({'wav': cut, 'wavs': [cut, data], 'audio': cut})
    row = bags.open(tmp_path / 'it')[0]
    for samples, rate in (row['wav'], row['wavs'][0]):
        assert rate == 8000
        assert samples.shape == (length, 2)
        assert np.array_equal(samples[: len(sound)], whole[0])
    assert row['audio'].shape == (length, 2)
    assert not bags.verify(tmp_path / 'it', decode=True)
    with pytest.raises(ValueError, match='cut off'):
        decoders['wav'](cut[: start + size - extra])


def test_wav_of_a_killed_recorder_before_another_chunk(sound):
    """As FFmpeg, which takes all bytes behind such a header for samples."""
    pcm = (sound * 32_767).astype(np.int16)
    for samples in (pcm, np.zeros_like(pcm)):
        data = encoders['wav']((samples, 8000)) + b'LIST' + struct.pack('<I', 4) + b'INFO'
        data = wav_header_of_no_samples(data, len(data) - 8)
        found = decoders['wav'](data)[0]
        assert np.array_equal(found[: len(pcm)], samples)
        assert len(found) == len(bags.Audio(data)) == len(pcm) + 12 // (2 * pcm.shape[1])


def test_wav_without_samples_before_another_chunk():
    data = encoders['wav']((np.zeros((0, 2), np.int16), 8000))
    assert decoders['wav'](data)[0].shape == (0, 2)
    listed = (
        data[:4] + struct.pack('<I', len(data) + 12 - 8) + data[8:] + b'LIST' + struct.pack('<I', 4) + b'INFO'
    )
    assert decoders['wav'](listed)[0].shape == (0, 2)


@pytest.mark.parametrize('size', [0, 8, 15])
def test_wav_with_a_short_format(sound, size):
    data = encoders['wav']((sound, 8000))
    start = data.index(b'fmt ')
    short = (
        data[: start + 4] + struct.pack('<I', size) + data[start + 8 : start + 8 + size] + data[start + 24 :]
    )
    with pytest.raises(ValueError, match=f'a format of {size} bytes, expected at least 16'):
        decoders['wav'](short)
    with pytest.raises(ValueError, match='cannot be read as WAV'):
        len(bags.Audio(short))


def test_wav_without_chunks():
    for data in (b'RIFF\x04\0\0\0WAVE', b'RIFF\0\0\0\0WAVE', b'RIFF\x04\0\0\0WAVEfmt '):
        with pytest.raises(ValueError, match='cut off'):
            decoders['wav'](data)
        with pytest.raises(ValueError, match='cut off'):
            len(bags.Audio(data))


@pytest.mark.parametrize('format', ['wav', 'flac', 'opus', 'audio'])
@pytest.mark.parametrize('shape', [(1, 4800), (2, 4800), (64, 65)])
def test_samples_of_channels_and_time(format, shape):
    with pytest.raises(
        ValueError, match=re.escape(f'{shape}, which looks like (channels, time): pass samples.T')
    ):
        encoders[format]((np.zeros(shape, np.int16), 48_000))


def test_wav_of_many_channels():
    array = np.arange(128 * 200, dtype=np.int16).reshape(200, 128)
    assert np.array_equal(decoders['wav'](encoders['wav']((array, 8000)))[0], array)


def cut_by_copying(data, format, first, stop):
    """Returns the packets of a file from `first` to `stop`, as `ffmpeg -ss … -t … -c copy` writes them."""
    file = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(file, 'w', format=format) as target:
        stream = target.add_stream_from_template(source.streams.audio[0])
        for number, packet in enumerate(source.demux(source.streams.audio[0])):
            if packet.size and first <= number < stop:
                packet.stream = stream
                target.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize('format', ['flac', 'audio'])
def test_flac_cut_by_copying_is_refused(format):
    array = np.random.default_rng(0).integers(-9000, 9000, (40_000, 2)).astype(np.int16)
    whole = encoders['flac']((array, 44_100))
    with pytest.raises(ValueError, match='FLAC begins with sample 13824: it was cut from a longer file'):
        encoders[format](cut_by_copying(whole, 'flac', 3, 9))
    with pytest.raises(ValueError, match='FLAC is cut off: expected 40000 samples, got about 23040'):
        encoders[format](cut_by_copying(whole, 'flac', 0, 5))
    same = cut_by_copying(whole, 'flac', 0, 99)
    for data in (whole, same, whole + b'TAG' + bytes(125)):
        assert bytes(encoders[format](data)) == data


@pytest.mark.parametrize('format', ['flac', 'audio'])
def test_flac_joined_is_refused(format):
    array = np.random.default_rng(0).integers(-9000, 9000, (40_000, 2)).astype(np.int16)
    one, other = encoders['flac']((array, 44_100)), encoders['flac']((array[:30_000], 44_100))
    for joined in (one + one, one + other, other + one):
        with pytest.raises(ValueError, match='FLAC is joined from several files: another begins at byte'):
            encoders[format](joined)


def test_flac_of_frames_of_many_lengths():
    for count in (1, 15, 16, 192, 255, 256, 257, 4608, 70_000):
        for rate in (8000, 44_100, 655_350, 12_345):
            data = encoders['flac']((np.arange(count, dtype=np.int16), rate))
            assert bytes(encoders['flac'](data)) == data


@pytest.mark.parametrize('format', ['opus', 'audio'])
def test_joined_ogg_is_refused(format, sound):
    data = encoders['opus']((sound, 48_000))
    assert bytes(encoders[format](data)) == data
    with pytest.raises(ValueError, match=f'joined from several files: another begins at byte {len(data)}'):
        encoders[format](data + data)


def mp3_of(sound, metadata):
    file, array = io.BytesIO(), (sound[:, 0] * 30_000).astype(np.int16)
    with av.open(file, 'w', format='mp3') as container:
        container.metadata.update(metadata)
        stream = container.add_stream('libmp3lame', rate=48_000, layout='mono')
        frame = av.AudioFrame.from_ndarray(array[None], format='s16p', layout='mono')
        frame.sample_rate = 48_000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def test_joined_mp3_is_refused_where_a_tag_interrupts_it(sound, tmp_path):
    data = mp3_of(sound, {'title': 'a title'})
    tag = data[: 10 + int.from_bytes(data[8:10], 'big')]  # Less than 128 bytes.
    assert (tag[:3], tag[8]) == (b'ID3', 0)
    for whole in (data, data[len(tag) :], data[len(tag) :] * 2, data + b'TAG' + bytes(125)):
        assert bytes(encoders['audio'](whole)) == whole
        with bags.DatasetWriter(tmp_path / 'a', {'x': 'audio'}, mode='overwrite') as writer:
            writer.append({'x': io.BytesIO(whole)})
        assert len(bags.open(tmp_path / 'a')[0]['x'][:])
    for joined in (data + data, data * 200, data + tag):
        for value in (joined, io.BytesIO(joined)):
            with pytest.raises(ValueError, match=rf'second ID3v2 tag, at byte {len(data)}: it was joined'):
                encoders['audio'](value)


def test_wav_written_to_a_pipe(sound):
    data = encoders['wav']((sound, 8000))
    place = data.index(b'data') + 4
    piped = data[:4] + b'\xff' * 4 + data[8:place] + b'\xff' * 4 + data[place + 4 :]
    assert np.array_equal(decoders['wav'](piped)[0], sound)
