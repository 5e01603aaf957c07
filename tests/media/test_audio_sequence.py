"""`AudioSequence` and windows of the recordings of a sequence."""

import pickle

import numpy as np
import pytest

import bags
from bags.formats.audio import encode_flac

pytest.importorskip('av')

RATE = 16_000
SAMPLES = np.random.default_rng(0).integers(-9000, 9000, (5 * RATE + 77, 2)).astype(np.int16)
EXPECTED = SAMPLES.astype(np.float32) / 32768


@pytest.fixture(params=['flac', 'wav', 'audio'])
def recorded(request, tmp_path):
    """Two episodes of one recording, in clips of 1.1 s and of 0.3 s."""
    spec = {'sound': f'{request.param}[]', 'tick': 'int(8)[]'}
    facts = {'fields': {'sound': {'rate': RATE}, 'tick': {'rate': 10}}}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer:
        for seconds in (1.1, 0.3):
            with writer.begin(clip_seconds=seconds) as episode:
                for start in range(0, len(SAMPLES), 1234):
                    episode.append({'sound': SAMPLES[start : start + 1234]})
                for number in range(50):
                    episode.append({'tick': number})
    return bags.open(tmp_path / 'x')


def test_clips_join_to_the_recording(recorded):
    for index, count in enumerate((5, 17)):
        assert len(recorded[index]['sound']) == count
        sound = bags.AudioSequence(recorded, index, 'sound')
        assert sound.shape == EXPECTED.shape
        assert (sound.rate, sound.channels, sound.start) == (RATE, 2, 0.0)
        assert sound.duration == len(SAMPLES) / RATE
        assert (sound[:] == EXPECTED).all()
        for start, stop in np.random.default_rng(1).integers(0, len(SAMPLES), (20, 2)).tolist():
            assert (sound[start:stop] == EXPECTED[start:stop]).all()
        assert (sound[-1] == EXPECTED[-1]).all()
        assert (sound.between(1.05, 1.35) == EXPECTED[int(1.05 * RATE) : int(1.35 * RATE)]).all()
        assert (np.concatenate(list(sound.blocks(30_000))) == EXPECTED).all()
        again = pickle.loads(pickle.dumps(sound))
        assert (again[17_000:18_000] == EXPECTED[17_000:18_000]).all()
        assert isinstance(sound.options(channels=1), bags.AudioSequence)


def test_clips_are_resampled_as_one_recording(recorded):
    whole = bags.Audio(encode_flac((SAMPLES, RATE)), rate=44_100, channels=1)
    for index in range(2):
        sound = bags.AudioSequence(recorded, index, 'sound', rate=44_100, channels=1)
        assert len(sound) == len(whole)
        assert (sound[:] == whole[:]).all()
        assert (sound[48_000:52_000] == whole[48_000:52_000]).all()


def test_windows_read_samples_across_clips(recorded):
    windows = recorded.windows(every='tick', sound=bags.times(-0.25, 0.25), padding='drop')
    assert len(windows) == 2 * 45
    batch = windows.batch(range(len(windows)))
    assert batch['sound'].shape == (90, 8000, 2)
    assert not batch['sound_is_pad'].any()
    for number in range(90):
        start = (number % 45 + 3) * 1600 - 4000
        assert (batch['sound'][number] == EXPECTED[start : start + 8000]).all()


def test_recordings_that_do_not_join(tmp_path):
    spec = {'sound': 'flac[]', 'text': 'utf8'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for clips in ([(SAMPLES, RATE), (SAMPLES, 8000)], [(SAMPLES, RATE), (SAMPLES[:, :1], RATE)], []):
            writer.append({'sound': clips, 'text': ''})
    dataset = bags.open(tmp_path / 'x')
    for index, message in enumerate(['stereo at 8000 Hz and stereo', 'mono at 16000', 'got none']):
        with pytest.raises(ValueError, match=f"field 'sound': expected recordings of one rate .*{message}"):
            len(bags.AudioSequence(dataset, index, 'sound'))
    with pytest.raises(TypeError, match="field 'text' of type utf8 is not audio"):
        bags.AudioSequence(dataset, 0, 'text')
    with pytest.raises(IndexError):
        bags.AudioSequence(dataset, 3, 'sound')


def test_recordings_with_times_are_items(tmp_path):
    spec = {'sound': 'flac[]', 'at': 'float(8)[]'}
    facts = {'fields': {'sound': {'times': 'at'}}}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer:
        writer.append({'sound': [(SAMPLES, RATE), (SAMPLES[:9], RATE)], 'at': [0.0, 7.0]})
    windows = bags.open(tmp_path / 'x').windows(every='sound', sound=bags.times(0.0))
    assert [len(clip) for clip, _ in windows[1]['sound']] == [9]
