"""Manifests read as Lhotse and NeMo read them: see `make_golden_manifests.py`."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bags

GOLDEN = Path(__file__).parents[1] / 'golden' / 'manifests'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text())


def digest(samples):
    samples = np.ascontiguousarray(samples.T, '<f4')
    return [list(samples.shape), hashlib.sha256(samples.tobytes()).hexdigest()]


def supervisions_of(row):
    names = {'id': 'supervision_id', 'start': 'start', 'end': 'stop', 'text': 'text', 'speaker': 'speaker',
             'language': 'language'}  # fmt: skip
    columns = [[*row[field]] for field in names.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def as_here(supervisions):
    return [{key: '' if value is None else value for key, value in each.items()} for each in supervisions]


@pytest.fixture(params=[True, False], ids=['link', 'copy'])
def read(request, tmp_path):
    def read(sources, format):
        paths = [GOLDEN / name for name in sources]
        done = bags.convert(paths, tmp_path / 'out', format=format, link=request.param, workers=1)
        assert not done.skipped
        if not request.param:
            assert not done.parents
        return bags.open(tmp_path / 'out', trust_links=GOLDEN)

    return read


def test_nemo(read):
    with read(['nemo.json'], 'nemo') as dataset:
        lines = [json.loads(line) for line in (GOLDEN / 'nemo.json').read_text().splitlines()]
        assert len(dataset) == len(lines)
        for row, line, expected in zip(dataset, lines, EXPECTED['nemo'], strict=True):
            assert digest(row['audio'][:]) == expected, line
            for key in ('text', 'lang', 'offset', 'duration'):
                assert row[key] == line.get(key)


def test_cuts_of_lhotse(read):
    with read(['cuts.jsonl.gz'], 'lhotse') as dataset:
        assert [*dataset.column('id')] == [*EXPECTED['lhotse']['cuts']]
        for row in dataset:
            expected = EXPECTED['lhotse']['cuts'][row['id']]
            assert row['channels'].tolist() == expected['channels']
            channels = row['channels'] if row['audio'].channels > 1 else [0]
            assert digest(row['audio'][:][:, channels]) == expected['audio'], row['id']
            for key in ('offset', 'duration', 'recording_id', 'custom'):
                assert row[key] == expected[key]
            assert supervisions_of(row) == as_here(expected['supervisions'])


def test_recordings_of_lhotse(read):
    with read(['recordings.jsonl.gz', 'supervisions.jsonl'], 'lhotse') as dataset:
        assert [*dataset.column('id')] == [*EXPECTED['lhotse']['recordings']]
        for row in dataset:
            expected = EXPECTED['lhotse']['recordings'][row['id']]
            assert digest(row['audio'][:]) == expected['audio']
            assert supervisions_of(row) == as_here(expected['supervisions'])
            assert row['supervision_custom'] == [{'snr': 3.5}, None, None]
            assert row['alignment'][1]['word'][0][0] == 'text'
        assert dataset.metadata['fields']['text'] == {'times': 'start'}


def test_a_manifest_elsewhere_with_a_root(tmp_path):
    shutil.copy(GOLDEN / 'nemo.json', tmp_path)
    done = bags.convert(tmp_path / 'nemo.json', tmp_path / 'out', format='nemo', root=GOLDEN, link=True)
    with bags.open(tmp_path / 'out', trust_links=done.parents) as dataset:
        assert digest(dataset[0]['audio'][:]) == EXPECTED['nemo'][0]
