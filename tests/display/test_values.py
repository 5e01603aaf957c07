"""Values as text and as JSON."""

import numpy as np
import pytest

import bags
from bags.display.values import open_to_show, show_value


def test_parts_of_linked_files(tmp_path):
    path = tmp_path / 'session.mp4'
    path.write_bytes(b'never opened')
    spec = {'clip': 'video?', 'sound': 'audio'}
    with bags.DatasetWriter(tmp_path / 'data', spec, linked_fields=['clip', 'sound']) as writer:
        sound = bags.Link(path, frames=(0, 44_100))
        writer.append({'clip': bags.Link(path, frames=(10, 50)), 'sound': sound})
        writer.append({'clip': None, 'sound': sound})
    with open_to_show(tmp_path / 'data') as dataset:
        shown = show_value(dataset, 0, 'clip')
        assert shown.text == f'40 frames, 10 to 50 of {path}'
        assert shown.json == {'frames': 40, 'first': 10, 'stop': 50, 'path': str(path)}
        assert show_value(dataset, 1, 'clip').text == 'None'
        assert show_value(dataset, 1, 'sound').text == f'44,100 samples, 0 to 44,100 of {path}'


def test_digits_of_floats(tmp_path):
    with bags.DatasetWriter(
        tmp_path / 'x', {'half': 'float(2)', 'single': 'float(4)?', 'double': 'float'}
    ) as writer:
        writer.append({'half': 0.1, 'single': 0.1, 'double': 0.1 + 0.2})
        writer.append({'half': float('inf'), 'single': None, 'double': 1.0})
    with open_to_show(tmp_path / 'x') as dataset:
        shown = [
            [show_value(dataset, row, name).text for name in ('half', 'single', 'double')] for row in (0, 1)
        ]
    assert shown == [['0.1', '0.1', '0.30000000000000004'], ['inf', 'None', '1.0']]


def test_formats_of_one_codec(tmp_path):
    pytest.importorskip('av')
    with bags.DatasetWriter(tmp_path / 'x', {'sound': 'flac'}) as writer:
        writer.append({'sound': (np.zeros(1600, np.int16), 16_000)})
    with open_to_show(tmp_path / 'x') as dataset:
        assert show_value(dataset, 0, 'sound').text.startswith('FLAC, 16,000 Hz × 1, 0.1 s, ')
