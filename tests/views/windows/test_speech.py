"""Recordings of several formats and rates become one field, and windows of one array."""

import io

import numpy as np
import pytest

import bags
from bags.formats.audio import encode_flac, encode_opus, encode_wav

av = pytest.importorskip('av')


def encode_mp3(value):
    samples, rate = value
    file = io.BytesIO()
    with av.open(file, 'w', format='mp3') as output:
        stream = output.add_stream(
            'libmp3lame', rate=rate, layout='stereo' if samples.shape[1] == 2 else 'mono'
        )
        planes = np.ascontiguousarray(samples.reshape(1, -1))
        frame = av.AudioFrame.from_ndarray(planes, format='s16', layout=stream.layout.name)
        frame.sample_rate = rate
        for packed in av.AudioResampler(format=stream.format.name).resample(frame):
            output.mux(stream.encode(packed))
        output.mux(stream.encode(None))
    return file.getvalue()


FORMATS = {'flac': encode_flac, 'wav': encode_wav, 'opus': encode_opus, 'mp3': encode_mp3}
RATES = (8000, 16_000, 22_050, 44_100, 48_000)


def expected_of(data):
    """Returns the mono samples at 16 kHz by PyAV, of the whole file."""
    resampler = av.AudioResampler(format='flt', layout='mono', rate=16_000)
    to_float = av.AudioResampler(format='flt')
    found = []
    with av.open(io.BytesIO(data)) as container:
        frames = [each for frame in container.decode(audio=0) for each in to_float.resample(frame)]
        for frame in [*frames, None]:
            if frame is not None:
                frame.pts = None
            found += [each.to_ndarray().reshape(-1) for each in resampler.resample(frame)]
    return np.concatenate(found)


@pytest.mark.slow
def test_200_recordings_are_windows_of_one_rate(tmp_path):
    chance = np.random.default_rng(0)
    (tmp_path / 'in').mkdir()
    files = {}
    for number in range(200):
        extension, rate = list(FORMATS)[number % 4], RATES[number // 4 % 5]
        channels = 1 + number // 20 % 2
        shape = int(rate * chance.uniform(1.2, 2.5)), channels
        noise = chance.normal(0, 3000, shape)
        smooth = np.stack(
            [np.convolve(noise[:, each], np.ones(9) / 9, 'same') for each in range(channels)], 1
        )
        files[f'{number:03}.{extension}'] = bytes(FORMATS[extension]((smooth.astype(np.int16), rate)))
    for name, data in files.items():
        (tmp_path / 'in' / name).write_bytes(data)
    bags.convert(
        tmp_path / 'in', tmp_path / 'out', spec={'audio': 'audio(rate=16000,channels=1)'}, progress=False
    )
    dataset = bags.open(tmp_path / 'out')
    assert (len(dataset), dataset.spec['audio']) == (200, 'audio(rate=16000,channels=1)')
    windows = dataset.windows(every=0.5, audio=bags.between(0.0, 1.0), padding='drop')
    batch = windows.batch(range(len(windows)), 'audio')['audio']
    assert batch.shape == (len(windows), 16_000, 1)
    rows = windows.origins().datapoint
    assert sorted(set(rows.tolist())) == list(range(200))
    starts = (windows.anchor_times() * 16_000).round().astype(int)
    expected = [expected_of(data) for _, data in sorted(files.items())]
    for row, start, found in zip(rows.tolist(), starts.tolist(), batch[..., 0], strict=True):
        assert np.abs(found - expected[row][start : start + 16_000]).max() < 1e-6, list(files)[row]
