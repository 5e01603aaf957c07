"""Manifests of Lhotse: lines that contradict themselves, each other or their files."""

import re

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source
from tests.interop.sources.manifests.manifests import (
    RATE,
    cut,
    recording,
    supervision,
    write_lines,
    write_sound,
)


@pytest.fixture
def folder(tmp_path):
    write_sound(tmp_path / 'a.wav')
    write_sound(tmp_path / 'b.wav', seed=1)
    return tmp_path


def source_of(type, source='echo', **changes):
    return recording('a', sources=[{'type': type, 'channels': [0], 'source': source}], **changes)


A = recording('a')
BAD_CUTS = [
    (cut('x', source_of('command', 'touch executed')), r'recording.sources\[0\].type: expected file or url'),
    (cut('x', source_of('memory', 'UklGRg==')), r"sources\[0\].type: expected file or url.*got 'memory'"),
    (cut('x', source_of('shar', '')), r"sources\[0\].type: expected file or url.*got 'shar'"),
    (cut('x', source_of('shar_ptr', 'a.tar?o=0&e=9')), r'sources\[0\].type: expected file or url'),
    (cut('x', source_of('url', 'a.wav')), 'source: expected a URL'),
    (cut('x', source_of('url', 'http://localhost:1/a.wav')), 'is not below'),
    (cut('x', source_of('file', '../a.wav')), 'a.wav is not below'),
    (cut('x', source_of('file', 7)), r'recording.sources\[0\].source: expected a text, got 7'),
    (cut('x', source_of('file', 'none.wav')), 'No such file'),
    (cut('x', recording('a', sources=[])), 'recording.sources: expected one file, got 0'),
    (cut('x', recording('a', sources=None)), 'recording.sources: expected one file, got 0'),
    (cut('x', recording('a', sampling_rate=8000, num_samples=8000)), 'sampling_rate: expected 16000'),
    (cut('x', recording('a', num_samples=99)), 'recording.duration: expected 0.0061875 s'),
    (cut('x', recording('a', samples=2 * RATE)), 'num_samples: expected 16,000, as in the file, got 32,000'),
    (cut('x', recording('a', transforms=[{'name': 'Speed'}])), 'recording.transforms: expected none'),
    (cut('x', recording('a', sampling_rate=0)), 'recording.sampling_rate: expected an integer above 0'),
    (cut('x', None), 'recording: expected a recording, got nothing'),
    (cut('x', A, start=0.8, duration=0.5), 'duration: expected a cut of the 1 s of its recording'),
    (cut('x', A, start=-0.1), 'start: expected a number of seconds from 0 on, got -0.1'),
    (cut('x', A, start='0'), "start: expected a number of seconds from 0 on, got '0'"),
    (cut('x', A, duration=0), 'duration: expected a number of seconds above 0'),
    (cut('x', A, duration=True), 'duration: expected a number of seconds'),
    (cut('x', A, channel=1), r'channel: expected channels among \[0\], got \[1\]'),
    (cut(5, A), 'id: expected a text, got 5'),
    (cut('first', A), "id: expected each id once, got 'first', as in .*line 1"),
    (
        cut('x', A, supervisions=[supervision('s', 'b')]),
        r"supervisions\[0\].recording_id: expected 'a', got 'b'",
    ),
    (cut('x', A, supervisions=[supervision('s', 'a', duration=-1)]), r'supervisions\[0\].duration: expected'),
    (cut('x', A, supervisions=[supervision('s', 'a', text=5)]), r'supervisions\[0\].text: expected a text'),
    (
        cut('x', A, supervisions=[supervision('s', 'a')] * 2),
        "supervisions: expected each id once, got 's' twice",
    ),
    (cut('x', A, supervisions=[7]), r'supervisions\[0\]: expected an object, got 7'),
    ({**cut('x', A), 'type': 'MixedCut', 'tracks': []}, 'type: expected one of MonoCut, MultiCut, Cut, got'),
    (recording('c'), 'expected one of cuts'),
    ('{"a": NaN}', 'expected a finite number, got NaN'),
    ('[1, 2]', 'expected a JSON object'),
    ('{"id": ', 'Expecting value'),
    ('[' * 100_000, 'nesting'),
]


def test_bad_cuts_are_named(folder):
    bad = [
        {**line, 'id': f'x{number}'} if isinstance(line, dict) and line['id'] == 'x' else line
        for number, (line, _) in enumerate(BAD_CUTS)
    ]
    lines = [cut('first', A), '', *bad, cut('last', recording('b'))]
    manifest = write_lines(folder / 'cuts.jsonl', lines)
    done = bags.convert(manifest, folder / 'out', format='lhotse', link=True, on_error='skip')
    assert done.datapoints == 2
    assert len(done.skipped) == len(BAD_CUTS)
    for number, (skipped, (_, message)) in enumerate(zip(done.skipped, BAD_CUTS, strict=True)):
        assert skipped.datapoint == f'{manifest}, line {number + 3}, row {number + 1}'
        assert re.search(message, skipped.error), skipped.error
    assert not (folder / 'executed').exists()
    write_lines(manifest, [cut('first', A), BAD_CUTS[0][0]])
    for link in (True, False):
        with pytest.raises(bags.SourceError, match=f'{manifest}, line 2, row 1: recording.sources'):
            bags.convert(manifest, folder / 'out', format='lhotse', link=link, mode='overwrite')
    write_lines(manifest, [BAD_CUTS[0][0]])
    with pytest.raises(bags.SourceError, match=f'{manifest}, line 1, row 0: recording.sources'):
        bags.convert(manifest, folder / 'out', format='lhotse', link=True, mode='overwrite')


def test_supervisions_may_overlap_and_leave_the_cut(folder):
    supervisions = [
        supervision('late', 'a', start=0.4, duration=0.5, text='b'),
        supervision('early', 'a', start=-0.2, duration=0.7, text='a'),
    ]
    manifest = write_lines(folder / 'cuts.jsonl.gz', [cut('x', A, 0.2, 0.5, supervisions), cut('y', A)])
    bags.convert(manifest, folder / 'out', format='lhotse', link=True)
    with bags.open(folder / 'out', trust_links=folder) as dataset:
        assert dataset[0]['text'] == ['a', 'b']
        assert dataset[0]['start'].tolist() == [-0.2, 0.4]
        assert dataset[0]['stop'].tolist() == [0.5, 0.9]
        assert dataset[1]['text'] == []
        assert dataset[0]['audio'].shape == (8000, 1)
        windows = dataset.windows(every='text', audio=bags.between(0.0, 0.01), padding='edge')
        assert len(windows) == 2


@pytest.mark.parametrize(
    ('lines', 'message'),
    [
        ([supervision('s', 'none')], "line 1: recording_id: expected the id of a recording, got 'none'"),
        ([supervision('s', 'a', start=-1)], 'line 1: start: expected a number of seconds from 0 on'),
        ([supervision('s', 'a', start=None)], 'line 1: start: expected a number of seconds.*got nothing'),
        ([supervision('s', 'a'), '{}'], 'line 2: expected a cut, a recording or a supervision'),
        ([supervision('s', 'a'), A], 'line 2: expected a supervision, got'),
    ],
)
def test_bad_supervisions_are_named(folder, lines, message):
    recordings = write_lines(folder / 'recordings.jsonl', [A, recording('b')])
    supervisions = write_lines(folder / 'supervisions.jsonl', lines)
    with pytest.raises(bags.SourceError, match=f'{supervisions}, {message}'):
        open_source([recordings, supervisions], format='lhotse')


def test_recordings_that_contradict_their_supervisions(folder):
    recordings = write_lines(folder / 'recordings.jsonl', [A, recording('b')])
    supervisions = write_lines(folder / 's.jsonl', [supervision('s', 'b', start=0.9, duration=0.2)])
    message = f'{recordings}, line 2, row 1: .*got 0.9 to 1.1 s in {supervisions}, line 1'
    with pytest.raises(bags.SourceError, match=message):
        bags.convert([recordings, supervisions], folder / 'out', format='lhotse')
    cuts = write_lines(folder / 'cuts.jsonl', [cut('x', A)])
    for paths, text in (
        ([supervisions], 'expected manifests of cuts, or of recordings, got supervisions'),
        ([recordings, cuts], 'got cuts and recordings'),
        ([cuts, supervisions], 'expected manifests of cuts, which have their supervisions'),
    ):
        with pytest.raises(bags.SourceError, match=text):
            open_source(paths, format='lhotse')


def test_manifests_that_grow(folder):
    keywords = {'format': 'lhotse', 'link': True, 'update': True}
    cuts = [cut(f'c{i}', recording('ab'[i % 2]), start=i / 100) for i in range(9)]
    manifest = write_lines(folder / 'cuts.jsonl', cuts[:4])
    bags.convert(manifest, folder / 'out', **keywords)
    write_lines(manifest, cuts)
    assert bags.convert(manifest, folder / 'out', **keywords).datapoints == 9
    with bags.open(folder / 'out', trust_links=folder) as dataset:
        assert [*dataset.column('id')] == [f'c{i}' for i in range(9)]
        expected = bags.Audio(folder / 'a.wav')[1280 : 1280 + 8000]
        np.testing.assert_array_equal(dataset[8]['audio'][:], expected)
    write_lines(manifest, cuts[1:] + cuts[:1] + [cut('new', A)])
    with pytest.raises(ValueError, match="datapoint 8 of the dataset, field 'audio'"):
        bags.convert(manifest, folder / 'out', **keywords)
