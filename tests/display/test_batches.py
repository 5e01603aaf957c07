"""`bags.describe`: what is in a batch, in a line for each column."""

from __future__ import annotations

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
    assert bags.describe(next(iter(bags.Loader(dataset, 5, sampler=bags.samplers.Sequential(5))))) == found


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
