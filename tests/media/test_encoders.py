from __future__ import annotations

import io

import numpy as np
import pytest

import bags
from tests.media.samples import film

SAMPLES = np.arange(-50, 50, dtype=np.int16)


@pytest.mark.parametrize('args', [('30', '20', '10'), ('remux=5',), ('remux', 'remux'), ('fast',)])
def test_types_that_are_not(args):
    with pytest.raises(ValueError, match='expected'):
        bags.encoders['video'](b'', *args)


def test_files_of_the_caller_are_stored_as_they_are_and_stay_open(tmp_path):
    data = film(count=3)
    path = tmp_path / 'three.mp4'
    path.write_bytes(data)
    lent = io.BytesIO(data)
    for value in (data, path, lent):
        stored = bags.encoders['video'](value)
        assert (stored if isinstance(stored, bytes) else stored.read()) == data
        if not isinstance(stored, bytes):
            stored.close()
    assert not lent.closed


def test_lazy_values_are_stored_as_their_files(tmp_path):
    data, sound = film(count=3), bags.encoders['wav']((SAMPLES, 8000))
    (tmp_path / 'three.mp4').write_bytes(data)
    for source in (data, tmp_path / 'three.mp4'):
        with bags.DatasetWriter(
            tmp_path / 'a',
            {'film': 'video', 'depth': 'video(dtype=uint16,rotate=False)', 'sound': 'audio?'},
            mode='overwrite',
        ) as writer:
            writer.append({'film': bags.Video(source), 'depth': source, 'sound': bags.Audio(sound)})
            writer.append({'film': source, 'depth': source, 'sound': None})
        with bags.open(tmp_path / 'a') as first:
            done = bags.write(first, tmp_path / 'b', first.spec, mode='overwrite', shard_length=1)
            assert done.datapoints == 2
            with bags.open(tmp_path / 'b') as second:
                assert second.shards == 2
                for name in ('film', 'depth'):
                    assert [bytes(record) for record in second.records(name)] == [data, data]
                assert bytes(second.records('sound')[0]) == sound
                assert bags.verify(second, decode=True) == []


def test_lazy_values_of_other_options_are_frames():
    data = film(count=3)
    small = bags.Video(data).options(size=(16, 16))
    for video, args in ((small, ()), (bags.Video(data), ('rotate=False',)), (bags.Video(data, track=0), ())):
        stored = bags.encoders['video'](video, *args)
        assert stored != data
        assert bags.Video(stored).shape == video.shape
    with pytest.raises(TypeError, match=r'got Audio: pass \(.*, audio\.rate\)'):
        bags.encoders['audio'](bags.Audio(data, track=1))


def test_files_of_other_formats_are_rejected():
    sound = bags.encoders['flac']((SAMPLES, 8000))
    with pytest.raises(ValueError, match=r'expected MP4, .* or GIF, got FLAC'):
        bags.encoders['video'](io.BytesIO(sound))
    with pytest.raises(ValueError, match='got JPEG'):
        bags.encoders['audio'](b'\xff\xd8\xff')


def test_samples_become_flac_or_wav():
    assert bags.encoders['audio']((SAMPLES, 8000)) == bags.encoders['flac']((SAMPLES, 8000))
    floats = SAMPLES / np.float32(100)
    assert bags.encoders['audio']((floats, 8000)) == bags.encoders['wav']((floats, 8000))
