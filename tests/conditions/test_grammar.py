"""Conditions as text: the cases that the viewer's filter shares, and `Dataset.filter` with them."""

import json
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.conditions.grammar import parse_condition

TABLE = json.loads(Path(__file__).with_name('conditions.json').read_text(encoding='utf-8'))
SPEC = TABLE['spec']
PHOTO = np.zeros((2, 2, 3), np.uint8)


def with_arrays(value):
    """Returns a tree in which lists are arrays."""
    if isinstance(value, dict):
        return {key: with_arrays(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    return np.array(value, 'M8[us]' if value and isinstance(value[0], str) else None)


def as_values(row):
    """Returns a row of the table with arrays and images."""
    return {
        **row,
        'state': np.array(row['state'], np.float32),
        'stamps': np.array(row['stamps'], np.int64),
        'raw': None if row['raw'] is None else bytes(row['raw']),
        'sound': None if row['sound'] is None else (np.zeros((row['sound'], 1), np.int16), 8000),
        'photo': None if row['photo'] is None else PHOTO,
        'plan': with_arrays(row['plan']),
        'frames': None if row['frames'] is None else [PHOTO] * len(row['frames']),
    }


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp('conditions') / 'dataset'
    with bags.ShardedDatasetWriter(
        path, SPEC, shard_length=2, metadata={'fields': TABLE['fields']}
    ) as writer:
        for row in TABLE['rows']:
            writer.append(as_values(row))
    with bags.open(path) as dataset:
        yield dataset


@pytest.mark.parametrize(('text', 'expected'), TABLE['cases'], ids=[text for text, _ in TABLE['cases']])
def test_cases(dataset, text, expected):
    assert dataset.filter(text).indices.tolist() == expected


@pytest.mark.parametrize(('text', 'message'), TABLE['errors'])
def test_errors(dataset, text, message):
    with pytest.raises(ValueError) as caught:
        dataset.filter(text)
    assert message in str(caught.value)


def test_what_is_not_compared_is_not_decoded(dataset):
    needs = parse_condition('len(frames) > 1 and photo is none and id > 3', dataset.schema).needs
    assert needs == {'frames': 'count', 'photo': 'presence', 'id': 'value'}
    assert parse_condition('size(photo) > 3', dataset.schema).needs == {}


def test_views_and_long_texts(tmp_path):
    texts = ['x' * 4090 + ' late', 'x' * 4100 + ' late', 'é' * 2045 + ' late', 'é' * 2060 + ' late']
    with bags.DatasetWriter(tmp_path / 'long', {'id': 'int(8)', 'text': 'utf8'}) as writer:
        for index, text in enumerate(texts):
            writer.append({'id': index, 'text': text})
    with bags.open(tmp_path / 'long') as dataset:
        assert dataset.filter('late').indices.tolist() == [0, 2]
        assert dataset.filter('text ~ late').indices.tolist() == [0, 1, 2, 3]
        view = dataset.rename({'id': 'number'}).select([3, 1, 0]).filter('number > 0')
        assert [row['number'] for row in view] == [3, 1]
    with bags.open(tmp_path / 'long', raw=True) as raw, pytest.raises(ValueError, match='without raw=True'):
        raw.filter('text ~ late')


def test_sizes_of_views(dataset):
    joined = bags.concat([dataset[3:], dataset[:2]])
    assert joined.filter('size(boxes) >= 8').indices.tolist() == [0, 2]
    view = joined.select([3, 2, 0]).filter('duration(sound) > 0.9')
    assert [row['id'] for row in view] == [0, 3]
    edited = dataset.update({1: {'raw': b'123'}})
    assert edited.filter('size(raw) in (2, 3)').indices.tolist() == [0, 1]


def test_words_of_a_dataset_without_texts(tmp_path):
    bags.write([{'id': 1}], tmp_path / 'numbers', {'id': 'int'})
    with bags.open(tmp_path / 'numbers') as dataset, pytest.raises(ValueError, match='no field has texts'):
        dataset.filter('owl')


def test_a_condition_names_its_fields(dataset):
    with pytest.raises(TypeError, match='expected no fields beside a condition'):
        dataset.filter('id > 3', 'id')


def test_many_signs_and_digits(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)', 'text': 'utf8'}) as writer:
        for number in range(-2, 3):
            writer.append({'id': number, 'text': 'x'})
    dataset = bags.open(tmp_path / 'd')
    for signs in (1, 2, 3, 4999, 5000):
        sign = '-' * signs
        wanted = [number for number in range(-2, 3) if number < (-1) ** signs]
        assert dataset.filter(f'id < {sign} 1').column('id').tolist() == wanted
        wanted = [number for number in range(-2, 3) if (-1) ** signs * number < 1]
        assert dataset.filter(f'{sign}id < 1').column('id').tolist() == wanted
        with pytest.raises(ValueError, match='text'):
            dataset.filter(f'{sign}text < 1')
    assert len(dataset.filter(f'id < {"9" * 4000}')) == 5
    with pytest.raises(ValueError, match='expected a number of at most 4000 digits, not one of 5000'):
        dataset.filter(f'id < {"9" * 5000}')


def test_raw_texts_after_a_missing_one(tmp_path):
    bags.write([{'text': None}, {'text': 'late'}], tmp_path / 'd', {'text': 'utf8?'})
    with bags.open(tmp_path / 'd', raw=True) as raw, pytest.raises(ValueError, match='without raw=True'):
        raw.filter('text ~ late')
