"""Columns made into single arrays."""

import numpy as np
import pytest

import bags
from bags.collate.columns import collate_function

RAGGED = bags.Ragged(np.arange(6, dtype='f4').reshape(6, 1), np.array([0, 2, 2, 6]))


def test_pad():
    padded = bags.pad(RAGGED, value=-1)
    assert padded.values[..., 0].tolist() == [[0, 1, -1, -1], [-1] * 4, [2, 3, 4, 5]]
    assert (padded.values.dtype, padded.values.shape) == (np.float32, (3, 4, 1))
    assert (padded.lengths.tolist(), padded.lengths.dtype) == ([2, 0, 4], np.int32)
    assert bags.pad(RAGGED, 7).values.shape == (3, 7, 1)
    assert bags.pad(RAGGED, multiple=8).values.shape == (3, 8, 1)
    assert bags.pad([[1, 2], [3], []]).values.tolist() == [[1, 2], [3, 0], [0, 0]]
    assert bags.pad([np.ones((2, 3)), None]).lengths.tolist() == [2, 0]
    with pytest.raises(ValueError, match='at most 3 items, got 4 at 2 of the batch'):
        bags.pad(RAGGED, 3)
    with pytest.raises(bags.StackError, match=r'\(2, 3\) at values 0 and \(2, 4\) at values 1'):
        bags.pad([np.ones((2, 3)), np.ones((2, 4))])
    with pytest.raises(TypeError, match='single numbers'):
        bags.pad([1, 2])
    with pytest.raises(TypeError, match="expected sequences, got single values, such as 'x'"):
        bags.pad(['x'])


@pytest.mark.parametrize(
    ('values', 'value'),
    [
        ([1, 2], float('nan')),
        ([1, 2], 0.5),
        (np.ones(2, np.uint8), 300),
        (np.ones(2, np.uint8), -1),
        (np.ones(2, bool), 2),
        (['a', 'b'], 'long'),
        ([1, 2], 'x'),
        ([1, 2], None),
        ([1.0, 2.0], 'x'),
    ],
)
def test_pad_refuses_values_that_do_not_fit(values, value):
    with pytest.raises(ValueError, match=r'pad: expected a value that .* can hold, got'):
        bags.pad([values, values[:1]], value=value)


def test_pad_with_values_that_fit():
    for values, value in (
        ([1.0, 2.0], float('nan')),
        (np.ones(2, np.float32), 0.1),
        ([1, 2], 3.0),
        ([1, 2], -100),
        (np.ones(2, np.uint8), 255),
        (np.ones(2, bool), True),
        (['aa', 'b'], '-'),
        (np.ones(2, 'M8[ns]'), np.datetime64('NaT', 'ns')),
    ):
        padded = bags.pad([values, values[:1]], value=value).values
        assert np.array_equal(padded[1, 1], np.array(value, padded.dtype), equal_nan=value != '-')
    for wrong in (0, -1):
        with pytest.raises(ValueError, match='multiple'):
            bags.pad([[1]], multiple=wrong)
    with pytest.raises(TypeError, match='length: expected an integer'):
        bags.pad([[1]], '3')


def test_pack():
    packed = bags.pack(RAGGED)
    assert packed.values is RAGGED.values
    assert (packed.offsets.tolist(), packed.offsets.dtype) == ([0, 2, 2, 6], np.int32)
    assert (packed.positions.tolist(), packed.positions.dtype) == ([0, 1, 0, 1, 2, 3], np.int32)
    assert bags.pack(RAGGED, dtype='int64').offsets.dtype == np.int64
    assert bags.pack([[1, 2], [3]]).values.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match='at most 127 items, got 200'):
        bags.pack([np.ones(200)], dtype='int8')


def test_stack():
    assert bags.stack([np.ones((2, 3)), np.zeros((2, 3))]).shape == (2, 2, 3)
    assert bags.stack([1, 2]).tolist() == [1, 2]
    assert bags.stack(bags.Ragged(np.arange(6), np.array([0, 3, 6]))).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(bags.StackError, match='none at values 1') as caught:
        bags.stack([np.ones(2), None])
    assert caught.value.shapes == [(2,), None]


def test_of_a_batch_those_columns_that_are_no_arrays_yet():
    batch = {
        'x': np.ones(3),
        'text': ['a', 'b', 'c'],
        's': RAGGED,
        'meta': [{}, {}, {}],
        'n': [[1], [2], [3]],
    }
    done = bags.pad(batch)
    assert [name for name in batch if done[name] is not batch[name]] == ['s', 'n']
    images = {'image': [np.ones((2, 2, 3)), np.ones((2, 3, 3))], 'name': ['a', 'b']}
    with pytest.raises(bags.StackError, match="field 'image'"):
        bags.stack(images)
    images['image'][1] = np.ones((2, 2, 3))
    assert bags.stack(images)['image'].shape == (2, 2, 2, 3)
    with pytest.raises(ValueError, match='at most 1') as caught:
        bags.pad(batch, 1)
    assert "field 's'" in caught.value.__notes__


def test_by_field():
    collate = collate_function({'s': 'pad', 'n': bags.pack})
    done = collate({'s': RAGGED, 'n': [[1], [2, 3]], 'other': 5})
    assert done['s'].values.shape == (3, 4, 1)
    assert done['n'].offsets.tolist() == [0, 1, 3]
    assert done['other'] == 5
    with pytest.raises(KeyError, match="no field 's'"):
        collate({'n': [[1]]})
    with pytest.raises(bags.StackError, match="field 's'"):
        collate_function({'s': 'stack'})({'s': RAGGED})
    with pytest.raises(TypeError, match='expected a function'):
        collate_function(5)
    with pytest.raises(TypeError, match="'pad', 'stack' or 'pack' for 's', got 'sum'"):
        collate_function({'s': 'sum'})


def test_stacking_equals_numpy_and_copies_no_ragged():
    block = np.arange(48).reshape(4, 3, 4)
    ragged = bags.Ragged(block.reshape(12, 4), np.array([0, 3, 6, 9, 12]))
    assert np.array_equal(bags.stack(ragged), block)
    assert np.shares_memory(bags.stack(ragged), block)
    assert bags.stack(bags.Ragged(block[0, :0], np.zeros(3, np.int64))).shape == (2, 0, 4)
    values = list(block)
    for chosen in (
        *(values, values[1:3], values[::-1], values[::2], values[:1], [values[0], values[0]]),
        list(block[:, :, ::2]),
        list(block.transpose(1, 0, 2)),
        [values[0], values[1].view(float)],
    ):
        assert np.array_equal(bags.stack(chosen), np.stack(chosen))
    empty = list(np.empty((3, 0, 2)))
    assert bags.stack(empty).shape == (3, 0, 2)
    other = np.arange(12).reshape(3, 4)
    assert np.array_equal(bags.stack([values[0], other]), np.stack([values[0], other]))


def test_pad_fills_texts_with_the_empty_text():
    assert bags.pad([['zero'], ['0', 'one']]).values.tolist() == [['zero', ''], ['0', 'one']]
    assert bags.pad([['a'], []], value='-').values.tolist() == [['a'], ['-']]


def test_pad_to_one_shape_with_a_mask():
    column = [np.ones((2, 3), np.float32), None, np.full((1, 5), 2, np.float32), np.empty((0, 4), np.float32)]
    found = bags.pad(column, mask=True, value=-1)
    assert found.values.shape == found.mask.shape == (4, 2, 5)
    assert found.values.dtype == np.float32
    assert found.mask.sum((1, 2)).tolist() == [6, 0, 5, 0]
    assert (found.values[~found.mask] == -1).all()
    assert (found.values[0, :2, :3] == 1).all()
    assert (found.values[2, 0] == 2).all()
    assert bags.pad(column, (4, None), mask=True).values.shape == (4, 4, 5)
    assert bags.pad(column, (None, 8), mask=True, multiple=3).values.shape == (4, 3, 8)
    assert bags.pad(column, 2, mask=True).values.shape == (4, 2, 5)
    assert bags.pad(np.ones((2, 3)), (4,), mask=True).mask.tolist() == [[True] * 3 + [False]] * 2
    ragged = bags.Ragged(np.arange(3), np.array([0, 1, 3]))
    assert bags.pad(ragged, mask=True).mask.tolist() == [[True, False], [True, True]]
    assert bags.pad([None, None], (7,), mask=True).values.shape == (2, 7)
    assert bags.pad([[np.ones(2)], [np.ones(3), np.ones(3)]], mask=True).values.shape == (2, 2, 3)


def test_masks_are_columns_of_a_batch():
    batch = {'id': np.arange(2), 'state': [np.ones(2), np.ones(3)], 'text': ['a', 'b']}
    loader = bags.Loader([{'state': np.ones(2)}, {'state': np.ones(3)}], 2, collate={'state': 'mask'})
    assert next(iter(loader))['state_mask'].shape == (2, 3)
    found = bags.pad(batch, mask=True)
    assert list(found) == ['id', 'state', 'text', 'state_mask']
    with pytest.raises(ValueError, match="needs the column name 'state_mask', which the batch already"):
        bags.pad({**batch, 'state_mask': 1}, mask=True)


@pytest.mark.parametrize(
    ('column', 'length', 'message'),
    [
        ([np.ones(3)], 2, r'expected arrays of at most \(2,\), got some of \(3,\)'),
        ([np.ones((2, 3))], (None, 2), r'at most \(…, 2\), got some of \(2, 3\)'),
        ([np.ones(3)], (4, 4), 'length: expected at most 1 numbers for these arrays, got 2'),
        ([np.ones(3)], (-1,), 'length: expected at least 0, got -1'),
        ([np.ones(3), np.ones((2, 2))], None, r'\(3,\)'),
    ],
)
def test_arrays_that_do_not_fit(column, length, message):
    with pytest.raises(ValueError, match=message):
        bags.pad(column, length, mask=True)
