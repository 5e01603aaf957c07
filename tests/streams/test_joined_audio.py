"""The recordings of a sequence as one, and windows of the recordings of a sequence."""

import pickle

import numpy as np
import pytest

import bags
from bags.formats.audio import encode_flac
from bags.streams.joined_audio import JoinedAudio, join_audio

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
        sound = join_audio(recorded, index, 'sound')
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
        assert isinstance(sound.options(channels=1), JoinedAudio)


def test_clips_are_resampled_as_one_recording(recorded):
    whole = bags.Audio(encode_flac((SAMPLES, RATE)), rate=44_100, channels=1)
    for index in range(2):
        sound = join_audio(recorded, index, 'sound', rate=44_100, channels=1)
        assert len(sound) == len(whole)
        assert (sound[:] == whole[:]).all()
        assert (sound[48_000:52_000] == whole[48_000:52_000]).all()


def test_windows_read_samples_across_clips(recorded):
    windows = recorded.windows(every='tick', sound=bags.between(-0.25, 0.25), padding='drop')
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
    for index, message in enumerate(['stereo at 8000 Hz and stereo', 'mono at 16000']):
        with pytest.raises(ValueError, match=f"field 'sound': expected recordings of one rate .*{message}"):
            join_audio(dataset, index, 'sound')[:]
    for options in ({}, {'rate': 8000, 'channels': 1}):
        empty = join_audio(dataset, 2, 'sound', **options)
        assert (len(empty), empty.duration, empty[:].size, empty.times.size) == (0, 0, 0, 0)
        assert empty.between(0, 1).size == 0
        with pytest.raises(IndexError, match=r'datapoint 2.*no sample at 0.0 s'):
            empty.at(0)
    with pytest.raises(TypeError, match="field 'text' of type utf8: expected a type of recordings"):
        join_audio(dataset, 0, 'text')
    with pytest.raises(IndexError):
        join_audio(dataset, 3, 'sound')


def test_recordings_with_times_are_items(tmp_path):
    spec = {'sound': 'flac[]', 'at': 'float(8)[]'}
    facts = {'fields': {'sound': {'times': 'at'}}}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer:
        writer.append({'sound': [(SAMPLES, RATE), (SAMPLES[:9], RATE)], 'at': [0.0, 7.0]})
    windows = bags.open(tmp_path / 'x').windows(every='sound', sound=bags.times(0.0))
    assert [len(clip) for clip, _ in windows[1]['sound']] == [9]


@pytest.fixture
def three_blocks(tmp_path):
    """A datapoint of 3 recordings of 1,000 samples at 8 kHz, and 77 samples of a plain field."""
    spec = {'sound': 'flac[]', 'plain': 'flac'}
    with bags.DatasetWriter(tmp_path / 'blocks', spec) as writer:
        blocks = [(SAMPLES[start : start + 1000], 8000) for start in (0, 1000, 2000)]
        writer.append({'sound': blocks, 'plain': (SAMPLES[:77], 8000)})
    return bags.open(tmp_path / 'blocks')


def test_a_joined_recording_is_an_audio(three_blocks):
    sound = join_audio(three_blocks, 0, 'sound')
    assert isinstance(sound, bags.Audio)
    assert type(join_audio(three_blocks, 0, 'plain')) is bags.Audio
    assert len(join_audio(three_blocks, 0, 'plain')) == 77
    assert np.array_equal(sound.times, np.arange(3000) / 8000)
    numbers = [2999, 0, 1500, -1, 1500]
    assert (sound[numbers] == EXPECTED[:3000][numbers]).all()
    assert (sound.at([0.2, 0.0]) == EXPECTED[[1600, 0]]).all()
    assert sound.read(slice(990, 1010)).times.tolist() == (np.arange(990, 1010) / 8000).tolist()
    later = sound.with_start(100.0)
    assert (later.start, later.duration, sound.start) == (100.0, 0.375, 0.0)
    assert (pickle.loads(pickle.dumps(later)).between(100.1, 100.2) == EXPECTED[800:1600]).all()
    assert later.options(rate=16_000).start == 100.0


@pytest.mark.parametrize('format', ['audio', 'flac', 'wav', 'opus'])
def test_a_joined_recording_is_not_stored_as_its_first_block(three_blocks, tmp_path, format):
    sound = join_audio(three_blocks, 0, 'sound')
    with bags.DatasetWriter(tmp_path / 'again', {'m': format}) as writer:
        with pytest.raises(bags.EncodeError, match=r"'m' .*got JoinedAudio: pass .*, audio.rate"):
            writer.append({'m': sound})
        if format in ('audio', 'wav'):
            writer.append({'m': (sound[:], sound.rate)})
            samples = np.concatenate([block for block, _ in three_blocks[0]['sound']])
    if format in ('audio', 'wav'):
        assert (join_audio(bags.open(tmp_path / 'again'), 0, 'm')[:] == samples / np.float32(32768)).all()


def test_a_joined_recording_is_not_a_file(three_blocks):
    sound = join_audio(three_blocks, 0, 'sound')
    with pytest.raises(AttributeError, match="field 'sound': expected one file, got a joined recording"):
        _ = sound.tracks
    with pytest.raises(TypeError, match='expected a path, bytes or a record, got JoinedAudio'):
        bags.Audio(sound)
    with pytest.raises(TypeError, match='Link: expected the path of a file'):
        bags.Link(sound)


def test_appending_a_joined_recording_says_what_to_append(recorded, tmp_path):
    with bags.DatasetWriter(tmp_path / 'again', {'sound': recorded.spec['sound']}) as writer:
        with pytest.raises(
            bags.EncodeError, match=r"got JoinedAudio; pass a list of .* dataset\[0\]\['sound'\]"
        ):
            writer.append({'sound': recorded.stream(0, 'sound')})
        writer.append({'sound': recorded[0]['sound']})
    assert (bags.open(tmp_path / 'again').stream(0, 'sound')[:] == EXPECTED).all()
