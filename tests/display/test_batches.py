"""`bags.describe`: what is in a batch, in a line for each column."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import bags

SPEC = {
    'image': 'array(uint8,4,3)', 'label': 'int(2)', 'boxes': 'array(float32,4)[]', 'text': 'utf8',
    'note': 'utf8?', 'mixed': 'array',
}  # fmt: skip


@pytest.fixture
def dataset(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer:
        for index in range(5):
            writer.append({
                'image': np.zeros((4, 3), np.uint8), 'label': index, 'text': 'a',
                'note': 'b' if index else None,
                'boxes': np.zeros((index, 4), np.float32), 'mixed': np.zeros(1 + index % 2),
            })  # fmt: skip
    return bags.open(tmp_path / 'x')


def test_a_batch(dataset):
    found = bags.describe(dataset.batch(range(5)))
    assert found == {
        'image': 'uint8 (5, 4, 3)',
        'label': 'int16 (5,)',
        'boxes': 'Ragged of 5 sequences, float32 (10, 4)',
        'text': 'list of 5 str',
        'note': 'list of 5 None or str',
        'mixed': 'list of 5 float64 (1,) or float64 (2,)',
    }
    assert list(found) == list(dataset.spec)
    assert bags.describe(next(iter(bags.Loader(dataset, 5, shuffle=False)))) == found


def test_datapoints_tuples_and_nested_columns(dataset):
    assert bags.describe(dataset[1]) == {
        'image': 'uint8 (4, 3)', 'label': 'int', 'boxes': 'float32 (1, 4)', 'text': 'str', 'note': 'str',
        'mixed': 'float64 (2,)',
    }  # fmt: skip
    assert bags.describe((np.zeros(3), {'a': {'b': [1, 'x', 2.0, None]}})) == {
        '0': 'float64 (3,)',
        '1.a.b': 'list of 4 None or float or int or …',
    }
    assert bags.describe({'none': []}) == {'none': 'list of 0'}
    with pytest.raises(TypeError, match='expected a batch'):
        bags.describe(np.zeros(3))


def test_a_description_is_a_table(dataset):
    found = bags.describe(dataset.batch([1, 2], ('label', 'boxes')))
    assert str(found) == 'label  int16 (2,)\nboxes  Ragged of 2 sequences, float32 (3, 4)'
    assert pickle.loads(pickle.dumps(found)) == dict(found)


METADATA = {'fields': {'label': {'classes': ['cat', '<dog>']}}}


@pytest.fixture
def media(tmp_path):
    pytest.importorskip('PIL')
    spec = {
        'photo': 'png', 'mask': 'png', 'label': 'int(2)', 'score': 'float', 'sound': 'wav', 'text': 'utf8',
        'curve': 'float(4)[]', 'state': 'array(float32,20,2)', 'bad': 'json',
    }  # fmt: skip
    with bags.DatasetWriter(tmp_path / 'media', spec, metadata=METADATA) as writer:
        for index in range(6):
            writer.append({
                'photo': np.full((12, 12, 3), 200, np.uint8), 'mask': np.eye(12, dtype=np.uint8),
                'label': index % 2, 'score': 1 / 7, 'sound': (np.zeros((800, 1), np.int16), 16000),
                'text': '<b>', 'curve': np.arange(9 + index, dtype=np.float32),
                'state': np.zeros((20, 2), np.float32), 'bad': {'a': [1]},
            })  # fmt: skip
    return bags.open(tmp_path / 'media')


def test_notebooks_show_the_values_of_a_batch(media):
    batch = next(iter(bags.Loader(media, 5, shuffle=False)))
    html = bags.describe(batch, media)._repr_html_()
    assert html.startswith('<p>Batch of 5</p><table><tr>')
    assert html.count('<img src="data:image/jpeg;base64,') == 4, 'of the first four datapoints'
    assert html.count('<img src="data:image/png;base64,') == 4, 'masks in colours'
    assert html.count('<audio controls preload="metadata" src="data:audio/wav;base64,') == 4
    assert '16,000 Hz, 0.05 s</td>' in html
    for text in (
        'cat (0)',
        '&lt;dog&gt; (1)',
        '0.142857',
        '&#x27;&lt;b&gt;&#x27;',
        '<code>int16 (5,)</code>',
    ):
        assert f'>{text}</td>' in html
    assert '</svg> 9 items, 0 to 8</td>' in html
    assert '</svg> 20 × 2, 0 to 0</td>' in html
    assert '>0</td>' in bags.describe(batch)._repr_html_(), 'without the dataset, a class has no name'
    assert '&#x27;&lt;b&gt;&#x27;' in bags.describe(media[0])._repr_html_()


def test_ipython_shows_a_described_batch_as_a_table(media):
    shell = pytest.importorskip('IPython.core.interactiveshell').InteractiveShell()
    batch = media.batch([0, 1])
    format = shell.display_formatter.format
    assert 'text/html' not in format(batch)[0]
    assert '<p>Batch of 2</p>' in format(bags.describe(batch))[0]['text/html']
    assert format(bags.describe(batch))[0]['text/plain'].startswith('photo  list of 2')
