"""The cards of datasets, as the Hugging Face hub reads them."""

import re

import numpy as np
import pytest
import yaml

import bags

SPEC = {'id': 'int(8)', 'photo': 'png', 'words': 'utf8[]', 'state': 'array(float32,7)[]'}


def write(path, count=3, **metadata):
    with bags.DatasetWriter(path, SPEC, metadata=metadata) as writer:
        for index in range(count):
            writer.append({
                'id': index, 'photo': np.zeros((4, 4, 3), np.uint8), 'words': ['a'] * index,
                'state': np.zeros((2, 7), np.float32),
            })  # fmt: skip
    return path


def front_matter(text):
    return yaml.safe_load(re.match(r'---\n(.*?)\n---\n', text, re.DOTALL)[1])


def test_front_matter_and_text(tmp_path):
    facts = {
        'name': 'Arms: "seven"', 'licence': 'CC BY 4.0', 'description': 'Two arms.\n\nThey fold shirts.',
        'task_categories': ['robotics'], 'language': 'en', 'tags': ['arms', 'bags'], 'site': 'a | b',
        'fields': {'state': {'rate': 50, 'unit': 'rad'}},
    }  # fmt: skip
    text = bags.card(write(tmp_path / 'arms', **facts), url='hf://datasets/u/arms')
    assert front_matter(text) == {
        'pretty_name': 'Arms: "seven"', 'license': 'cc-by-4.0', 'task_categories': ['robotics'],
        'language': ['en'], 'tags': ['bags', 'image', 'text', 'arms'], 'size_categories': ['n<1K'],
        'viewer': False,
    }  # fmt: skip
    assert '\n# Arms: "seven"\n\nTwo arms.\n\nThey fold shirts.\n\n3 datapoints in 1 shard' in text
    assert '| `words` | `utf8[]` | 27 B | 1 B | 0 … 2 |  |' in text
    assert '| `state` | `array(float32,7)[]` | 216 B | 28 B | 2 | rate: 50, unit: rad |' in text
    assert '| licence | CC BY 4.0 |\n| site | a \\| b |' in text
    assert "dataset = bags.open('hf://datasets/u/arms')" in text
    assert "pip install 'bags[hf]>=" in text
    assert 'browser' not in text


def test_a_card_without_facts(tmp_path):
    text = bags.card(write(tmp_path / 'arms'))
    assert front_matter(text)['pretty_name'] == 'arms'
    assert 'license' not in front_matter(text)
    assert '## Facts' not in text
    with bags.bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write(b'a')
    with pytest.raises(ValueError, match='expected a dataset, got a bag'):
        bags.card(tmp_path / 'x.bag')


@pytest.mark.parametrize(
    ('licence', 'known', 'name'),
    [
        ('mit', 'mit', None),
        ('Apache 2.0', 'apache-2.0', None),
        ('CC0 1.0', 'cc0-1.0', None),
        ('Research only, v2', 'other', 'research-only-v2'),
        ('?', 'other', 'other'),
    ],
)
def test_licences(tmp_path, licence, known, name):
    matter = front_matter(bags.card(write(tmp_path / 'arms', license=licence)))
    assert (matter['license'], matter.get('license_name')) == (known, name)


def test_the_number_of_datapoints_as_a_class(tmp_path):
    for count, expected in ((999, 'n<1K'), (1000, '1K<n<10K'), (12_000, '10K<n<100K')):
        with bags.DatasetWriter(tmp_path / str(count), {'id': 'int(8)'}) as writer:
            for index in range(count):
                writer.append({'id': index})
        assert front_matter(bags.card(tmp_path / str(count)))['size_categories'] == [expected]


def test_a_link_to_the_viewer(tmp_path, monkeypatch):
    monkeypatch.setenv('HF_ENDPOINT', 'https://hub.example')
    path, viewer = write(tmp_path / 'arms'), 'https://page.example/index.html'
    text = bags.card(path, url='hf://datasets/u/d@v1/arms', viewer=viewer)
    address = 'https://hub.example/datasets/u/d/resolve/v1/arms'
    assert f']({viewer}?data={address})' in text
    text = bags.card(path, url='https://other.example/a b', viewer=viewer)
    assert f']({viewer}?data=https://other.example/a%20b)' in text
