"""Columns as tensors: when memory is shared, and what happens to columns that PyTorch cannot represent."""

import ml_dtypes
import numpy as np
import pytest
import torch

import bags
from bags.torch import to_torch


@pytest.fixture
def batch(make):
    dataset, _ = make('views')
    return dataset.batch(range(6))


def test_tensors_are_the_memory_of_the_arrays(batch):
    found = to_torch(batch)
    assert list(found) == list(batch)
    arrays = [name for name, column in batch.items() if isinstance(column, np.ndarray)]
    assert arrays
    for name in arrays:
        assert found[name].data_ptr() == batch[name].ctypes.data
        assert np.array_equal(found[name].numpy(), batch[name])
    found['id'][0] = 77
    assert batch['id'][0] == 77


def test_sequences_are_values_and_offsets(batch):
    column, found = batch['nums'], to_torch(batch)['nums']
    assert isinstance(column, bags.Ragged)
    assert found.values.data_ptr() == column.values.ctypes.data
    assert found.offsets.data_ptr() == column.offsets.ctypes.data
    assert found.lengths.tolist() == column.lengths.tolist()
    assert [part.tolist() for part in found] == [part.tolist() for part in column]
    assert 'torch' in repr(found)


def test_sequences_as_a_nested_tensor(batch):
    column, found = batch['nums'], to_torch(batch, nested=True)['nums']
    assert found.layout is torch.jagged
    assert found.values().data_ptr() == column.values.ctypes.data
    assert [part.tolist() for part in found.unbind()] == [part.tolist() for part in column]


def test_missing_sequences():
    column = bags.Ragged(np.arange(3.0), np.array([0, 2, 2, 3]), np.array([True, False, True]))
    found = to_torch({'maybe': column})['maybe']
    assert found.present.tolist() == [True, False, True]
    assert found[1] is None
    assert found[2].tolist() == [2]


def test_what_is_no_array_stays(batch):
    found = to_torch(batch)
    for name, column in batch.items():
        if not isinstance(column, np.ndarray | bags.Ragged) and name != 'any':
            assert found[name] == column
    assert [tensor.tolist() for tensor in found['any']] == [array.tolist() for array in batch['any']]
    tree = {'pose': [{'joints': np.ones(2)}, None], 'pair': (np.zeros(1), 'text')}
    converted = to_torch(tree)
    assert converted['pose'][0]['joints'].tolist() == [1, 1]
    assert converted['pose'][1] is None
    assert converted['pair'][1] == 'text'


def test_arrays_that_cannot_be_shared_are_copied():
    constant = np.arange(4)
    constant.flags.writeable = False
    for array in (constant, np.arange(4)[::-1], np.arange(4, dtype='>i4')):
        found = to_torch({'x': array})['x']
        assert found.tolist() == array.tolist()
        found[0] = 9
        assert array.tolist() in ([0, 1, 2, 3], [3, 2, 1, 0])


@pytest.mark.parametrize('name', ['bfloat16', 'float8_e4m3fn', 'float8_e5m2'])
def test_dtypes_of_ml_dtypes(name):
    array = np.arange(4).astype(getattr(ml_dtypes, name))
    found = to_torch({'x': array})['x']
    assert found.dtype is getattr(torch, name)
    assert found.float().tolist() == [0, 1, 2, 3]
    assert found.data_ptr() == array.ctypes.data


@pytest.mark.parametrize('dtype', ['datetime64[ns]', 'longdouble', 'U3', 'S3', 'O', 'int4'])
def test_dtypes_that_it_lacks_name_the_field(dtype):
    array = np.zeros(3, getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(TypeError, match=r"field 'meta\.when'.*no dtype for"):
        to_torch({'meta': {'when': array}})


def test_devices_and_pinning():
    column = bags.Ragged(np.arange(3.0), np.array([0, 2, 3]))
    batch = {'x': np.ones(3), 'y': torch.ones(2), 'z': column, 'text': ['a']}
    found = to_torch(batch, 'meta')
    assert {found['x'].device.type, found['y'].device.type, found['z'].values.device.type} == {'meta'}
    assert found['text'] == ['a']
    # Without an accelerator, pinning has no effect: the same script runs.
    pinned = to_torch(batch, pin=True)
    assert pinned['x'].is_pinned() == torch.accelerator.is_available()
