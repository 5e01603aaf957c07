"""Manifests of NeMo: parts of recordings, and lines that contradict their files."""

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.manifests.manifests import RATE, write_lines, write_sound


@pytest.fixture
def write(tmp_path):
    def write(lines, name='m.json'):
        return write_lines(tmp_path / name, [{'audio_filepath': 'a.wav', **line} for line in lines])

    write.samples = write_sound(tmp_path / 'a.wav')
    return write


def test_parts_overlap(write, tmp_path):
    lines = [{'offset': i / 10, 'duration': 0.5, 'text': f'{i}'} for i in range(5)]
    done = bags.convert(write(lines, 'm.json.gz'), tmp_path / 'out', format='nemo', link=True, checksum=True)
    with bags.open(tmp_path / 'out', trust_links=tmp_path) as dataset:
        for index, row in enumerate(dataset):
            first = int(index / 10 * RATE)
            np.testing.assert_array_equal(row['audio'][:], write.samples[first : first + RATE // 2])
        assert not bags.verify(dataset)
    assert done.notes[-1].startswith("linked fields: 'audio'")


@pytest.mark.parametrize('format', ['flac', 'opus'])
def test_parts_of_compressed_recordings(write, tmp_path, format):
    write_sound(tmp_path / f'b.{format}', samples=48_000, rate=48_000, format=format)
    manifest = write([{'audio_filepath': f'b.{format}', 'offset': 0.2, 'duration': 0.3}])
    for link in (True, False):
        bags.convert(manifest, tmp_path / 'out', format='nemo', link=link, mode='overwrite')
        with bags.open(tmp_path / 'out', trust_links=tmp_path) as dataset:
            expected = bags.Audio(tmp_path / f'b.{format}', exact=True)[9600:24_000]
            audio = dataset[0]['audio'].options(exact=True)
            np.testing.assert_array_equal(audio[:], expected)


def test_repeated_lines_are_noted(write, tmp_path):
    lines = [
        {'offset': 0.5, 'duration': 0.1},
        {'offset': 0.0, 'duration': 0.1},
        {'offset': 0.5, 'duration': 0.1},
    ]
    manifest = write(lines)
    source = open_source(manifest, format='nemo')
    note = 'a line repeats the part of a recording of an earlier line, the first is'
    assert f'{note} {manifest}, line 3, row 2' in source.notes
    assert bags.convert(source, tmp_path / 'out').datapoints == 3


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ({'offset': 0.5, 'duration': 0.6}, 'expected a part of the 1 s of the recording, got 0.5 to 1.1 s'),
        ({'offset': 1.0, 'duration': 0.1}, 'expected a part of the 1 s of the recording, got 1 to 1.1 s'),
        ({'offset': 3.0, 'duration': None}, 'expected a part of the 1 s of the recording, got 3 to'),
        ({'offset': 0.5, 'duration': 0.00001}, 'expected a part of the 1 s'),
        ({'offset': -0.5, 'duration': 0.5}, 'offset: expected a number of seconds from 0 on, got -0.5'),
        ({'offset': 0.5, 'duration': -1}, 'duration: expected a number of seconds from 0 on, got -1'),
        ({'offset': 0.5, 'duration': 1e300}, 'duration: expected a number of seconds'),
        ({'audio_filepath': None, 'offset': 0.5, 'duration': 0.5}, 'expected the path of a file, got None'),
        ({'audio_filepath': 'sox a.wav - |', 'offset': 0.5, 'duration': 0.5}, 'No such file'),
    ],
)
def test_bad_lines_are_named(write, tmp_path, line, message):
    good = {'offset': 0.25, 'duration': 0.5}
    manifest = write([good, line, good])
    where = f"{manifest}, line 2, row 1: field 'audio': .*{message}"
    for link in (True, False):
        with pytest.raises(bags.SourceError, match=where):
            bags.convert(manifest, tmp_path / 'out', format='nemo', link=link, mode='overwrite')
    done = bags.convert(
        manifest, tmp_path / 'out', format='nemo', link=True, mode='overwrite', on_error='skip'
    )
    assert (done.datapoints, len(done.skipped)) == (2, 1)


def test_bad_files(write, tmp_path):
    with pytest.raises(bags.SourceError, match='line 2'):
        open_source(write_lines(tmp_path / 'x.json', ['{"audio_filepath": "a.wav"}', '7']), format='nemo')
    write_lines(tmp_path / 'x.json', ['{"audio_filepath": "a.wav", "duration": NaN}'])
    with pytest.raises(bags.SourceError, match=r"row 0: field 'audio': duration: .*got nan"):
        bags.convert(tmp_path / 'x.json', tmp_path / 'out', format='nemo')
    with pytest.raises(bags.SourceError, match="expected a key 'audio_filepath' in each line, got text"):
        open_source(write_lines(tmp_path / 'x.json', [{'text': 'x'}]), format='nemo')
    with pytest.raises(bags.SourceError, match="line 1, row 0: field 'audio': offset: expected a number"):
        bags.convert(write([{'offset': '0.5', 'duration': 1}]), tmp_path / 'out', format='nemo')
    with pytest.raises(bags.SourceError, match="line 1, row 0: field 'audio': offset: expected a number"):
        bags.convert(write([{'offset': [0.5], 'duration': 1}]), tmp_path / 'out', format='nemo')
    with pytest.raises(bags.SourceError, match=r"file: .*'audio', which is a column"):
        open_source(write([{'audio': 'x'}]), format='nemo')
    with pytest.raises(ValueError, match="file: expected none for the format 'nemo'"):
        open_source(write([{}]), format='nemo', file={'text': 'x'})


def test_a_manifest_that_grows(write, tmp_path):
    lines = [{'offset': i / 10, 'duration': 0.1, 'text': str(i)} for i in range(9)]
    keywords = {'format': 'nemo', 'link': True, 'update': True}
    bags.convert(write(lines[:4]), tmp_path / 'out', **keywords)
    assert bags.convert(write(lines), tmp_path / 'out', **keywords).datapoints == 9
    with bags.open(tmp_path / 'out', trust_links=tmp_path) as dataset:
        np.testing.assert_array_equal(dataset[8]['audio'][:], write.samples[12_800:14_400])
    with pytest.raises(ValueError, match="datapoint 8 of the dataset, field 'audio'"):
        bags.convert(
            write([*lines[:2], {'offset': 0.0, 'duration': 0.7}, *lines[2:]]), tmp_path / 'out', **keywords
        )
