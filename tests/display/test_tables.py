"""`str` of what `bags.info` and `bags.statistics` return: a line for each field."""

from __future__ import annotations

import numpy as np
import pytest

import bags


@pytest.fixture
def path(tmp_path):
    spec = {'id': 'int(8)', 'vector': 'array(float32,20)', 'words': 'utf8[]'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for index in range(20):
            vector = np.full(20, index, np.float32)
            writer.append({'id': index, 'vector': vector, 'words': ['a'] * (index % 5)})
    return str(tmp_path / 'x')


def test_info(path):
    found = bags.info(path)
    first, second, _, heading, *lines = str(found).split('\n')
    assert (first, second[:26]) == (path, '20 datapoints in 1 shard, ')
    assert heading.split() == ['field', 'type', 'bytes', 'bytes', 'a', 'record', 'items']
    assert [line.split()[:4] for line in lines[:2]] == [
        ['id', 'int(8)', '320', 'B'],
        ['vector', 'array(float32,20)', '1.8', 'kB'],
    ]
    assert lines[2].startswith('words')
    assert lines[2].endswith('4')
    assert lines[3].startswith('(refs)')
    assert repr(found) == f'<DatasetInfo of {path!r}: 20 datapoints; str() has all fields>'


def test_statistics(path):
    found = bags.statistics(path)
    heading, *lines = str(found).split('\n')
    assert heading.split() == ['field', 'values', 'min', 'median', 'max', 'mean', 'std', 'histogram']
    assert lines[0].split()[:7] == ['id', '20', '0', '8.998', '19', '9.5', '5.766']
    assert [line.split()[0] for line in lines[1:17]] == [f'vector[{number}]' for number in range(16)]
    assert lines[17:] == ['… 4 more of vector']
    assert str(bags.statistics(bags.open(path)[:0], 'id')).split()[8:10] == ['id', '0']
