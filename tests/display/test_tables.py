"""`str` of what `bags.info` and `bags.statistics` return: a line for each field."""

from __future__ import annotations

import numpy as np
import pytest

import bags
from bags.display.tables import statistics_table


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
    assert [line.split()[:7] for line in lines[1:]] == [
        ['vector[20]', '400', '0', '19', '9.5', '5.766', lines[1].split()[-1]]
    ]
    assert str(bags.statistics(bags.open(path)[:0], 'id')).split()[8:10] == ['id', '0']


@pytest.mark.filterwarnings('ignore:.*encountered in')
def test_statistics_of_wide_values_are_those_of_all_numbers(tmp_path):
    rng = np.random.default_rng(0)
    spec = {'wide': 'array(float32,3,5)', 'none': 'array(float32,9)', 'narrow': 'array(float32,8)'}
    values = rng.normal(rng.uniform(-9, 9, (3, 5)), rng.uniform(0.1, 4, (3, 5)), (50, 3, 5)).astype(
        np.float32
    )
    values[:7, 1, 2] = np.nan
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for value in values:
            writer.append({'wide': value, 'none': np.full(9, np.nan, 'f4'), 'narrow': np.zeros(8, 'f4')})
    found = bags.statistics(tmp_path / 'x')
    _, wide, none, *narrow = str(found).split('\n')
    numbers = np.nanmin(values), np.nanmax(values), np.nanmean(values), np.nanstd(values)
    assert wide.split()[:7] == ['wide[3×5]', '743', '7', *(f'{number:.4g}' for number in numbers)]
    assert none.split() == ['none[9]', '0', '450', *['nan'] * 4]
    assert [line.split()[0] for line in narrow] == [f'narrow[{number}]' for number in range(8)]

    columns = statistics_table(found, each=True)
    names = [f'wide[{row},{column}]' for row in range(3) for column in range(5)]
    assert columns[0].cells[:15] == names
    assert [column.heading for column in columns[:4]] == ['field', 'values', 'NaN', 'min']
    assert columns[3].cells[7] == f'{np.nanmin(values[:, 1, 2]):.4g}'
    assert len(columns[0].cells) == 15 + 9 + 8


def test_the_bars_of_wide_values_are_over_the_range_of_all(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'wide': 'array(float64,9)'}) as writer:
        for number in np.linspace(0, 1, 24):
            writer.append({'wide': np.array([number] * 8 + [11 + number])})
    heading, line = str(bags.statistics(tmp_path / 'x')).split('\n')
    bars = line[heading.index('histogram') :]
    assert len(bars) == 12
    assert bars[1:11] == ' ' * 10
    assert bars[0] != bars[11] != ' '
