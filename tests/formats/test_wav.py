from __future__ import annotations

import io
import struct
import wave

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bags.dataset.registry import decoders, encoders


def samples(dtype):
    shapes = st.tuples(st.integers(0, 40), st.integers(1, 4))
    shapes |= st.tuples(st.integers(0, 40))
    return hnp.arrays(dtype, shapes)


@pytest.mark.parametrize('dtype', ['int16', 'int32', 'float32', 'float64', '>i2', '>f4'])
@given(data=st.data())
def test_wav_is_exact(dtype, data):
    array = data.draw(samples(dtype))
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
        # Both in the upper bits of 32.
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


def test_wav_written_to_a_pipe(sound):
    data = encoders['wav']((sound, 8000))
    place = data.index(b'data') + 4
    piped = data[:4] + b'\xff' * 4 + data[8:place] + b'\xff' * 4 + data[place + 4 :]
    assert np.array_equal(decoders['wav'](piped)[0], sound)
