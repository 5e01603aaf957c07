"""Whole columns, and datapoints chosen by a function."""

import numpy as np
import pytest

import bags


@pytest.fixture(params=[False, True])
def dataset(request, kit, tmp_path):
    spec = {'score': 'float(4)', 'text': 'utf8', 'words': 'int(2)[]', 'never': 'jpeg'}
    kind = bags.ShardedDatasetWriter if request.param else bags.DatasetWriter
    options = {'shard_length': 300} if request.param else {}
    with kind(tmp_path / 'x', spec, **options) as writer:
        for index in range(1000):
            # The last field cannot be decoded: it must not be read.
            record = {
                'score': index / 4,
                'text': str(index),
                'words': range(index % 3),
                'never': b'\xff\xd8\xff\xd9',
            }
            writer.append(record)
    return bags.open(tmp_path / 'x')


def test_columns(dataset):
    assert dataset.column('score').tolist() == [index / 4 for index in range(1000)]
    assert dataset.column('score').dtype == np.float32
    assert dataset.column('text') == [str(index) for index in range(1000)]
    assert dataset.column('words').lengths.tolist() == [index % 3 for index in range(1000)]
    view = dataset.select(dataset.column('score') > 240)
    assert view.column('score').tolist() == [index / 4 for index in range(961, 1000)]
    with pytest.raises(KeyError):
        dataset.column('nothing')


@pytest.mark.parametrize('workers', [None, 1, 4])
def test_filter(dataset, workers):
    view = dataset.filter(
        lambda row: '7' in row['text'] and len(row['words']) == 2, ('text', 'words'), workers=workers
    )
    wanted = [str(index) for index in range(1000) if '7' in str(index) and index % 3 == 2]
    assert view.column('text') == wanted
    assert list(view.spec) == list(dataset.spec)
    assert len(dataset.filter(lambda row: False, 'text')) == 0
    assert view.filter(lambda row: row['score'] < np.float32(5), 'score').column('text') == ['17']


def test_functions_that_fail(dataset):
    with pytest.raises(TypeError, match='expected a bool for datapoint 0, got None'):
        dataset.filter(lambda row: None, 'text')

    def stop(row):
        if row['text'] == '400':
            raise StopIteration
        return True

    with pytest.raises((StopIteration, RuntimeError)) as caught:
        dataset.filter(stop, 'text')
    assert 'datapoint 400' in ' '.join(caught.value.__notes__)
