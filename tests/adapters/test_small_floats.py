"""Arrays of bfloat16 and float8: of numpy with ml_dtypes, of JAX, and tensors of PyTorch."""

from __future__ import annotations

import functools
import pickle

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import bags
import bags.jax
import bags.torch

NAMES = [
    'bfloat16',
    'float8_e4m3fn',
    'float8_e5m2',
    'float8_e4m3fnuz',
    'float8_e5m2fnuz',
    'float8_e4m3b11fnuz',
]
IN_TORCH = [name for name in NAMES if hasattr(torch, name)]


def values(name: str, *shape: int) -> np.ndarray:
    numbers = np.arange(np.prod(shape)).reshape(shape) % 7 - 3 + 0.5
    return numbers.astype(getattr(ml_dtypes, name))


def equal(found: np.ndarray, expected: np.ndarray) -> bool:
    return (
        found.dtype == expected.dtype
        and found.tobytes() == expected.tobytes()
        and found.shape == expected.shape
    )


def write(directory, name, compression=None, convert=lambda array: array):
    spec = {
        'any': 'array',
        'fixed': f'array({name},2,3)',
        'scalar': f'array({name})',
        'rows': f'array({name},3)[]',
        'maybe': f'array({name},3)?',
        'tree': 'tree',
    }
    data = []
    with bags.DatasetWriter(directory, spec, compression=compression) as writer:
        for i in range(20):
            rows = values(name, i % 4, 3)
            point = {
                'any': values(name, i % 3, 2),
                'fixed': values(name, 2, 3) if i else values(name, 3, 2).T,
                'scalar': values(name, 1)[0],
                'rows': list(rows),
                'maybe': values(name, 3) if i % 2 else None,
                'tree': {'a': values(name, 4)},
            }
            data.append(point)
            kept = {'tree': point['tree'], 'scalar': point['scalar']}
            turned = {'rows': [convert(row) for row in rows], 'any': convert(point['any'])}
            turned |= {'fixed': convert(point['fixed']), 'maybe': point['maybe']}
            writer.append({**kept, **turned})
    return data


@pytest.mark.parametrize('compression', [None, ['fixed', 'rows', 'any']])
@pytest.mark.parametrize('name', NAMES)
def test_rows_and_batches(tmp_path, name, compression):
    data = write(tmp_path / 'd', name, compression)
    for dataset in (bags.open(tmp_path / 'd'), pickle.loads(pickle.dumps(bags.open(tmp_path / 'd')))):
        for i, row in enumerate(dataset):
            assert equal(row['any'], data[i]['any'])
            assert equal(row['fixed'], data[i]['fixed'])
            assert equal(np.asarray(row['scalar']), np.asarray(data[i]['scalar']))
            assert equal(np.asarray(row['tree']['a']), data[i]['tree']['a'])
            assert len(row['rows']) == len(data[i]['rows'])
            assert all(equal(*pair) for pair in zip(row['rows'], data[i]['rows'], strict=True))
            assert row['maybe'] is None if data[i]['maybe'] is None else equal(row['maybe'], data[i]['maybe'])
        order = [3, 19, 0, 0, *range(20)]
        batch = dataset.batch(order)
        assert equal(batch['fixed'], np.stack([data[i]['fixed'] for i in order]))
        assert batch['scalar'].shape == (len(order),)
        assert batch['scalar'].dtype == data[0]['scalar'].dtype
        expected = np.concatenate([np.stack(data[i]['rows']) for i in order if data[i]['rows']])
        assert equal(batch['rows'].values, expected)
    joined = bags.concat([dataset, dataset]).batch([1, 21])
    assert equal(joined['fixed'][1], data[1]['fixed'])


@pytest.mark.parametrize(
    'workers', [{'workers': 0}, {'workers': 2}, {'workers': 1, 'processes': True}], ids=str
)
def test_loaders(tmp_path, workers):
    data = write(tmp_path / 'd', 'bfloat16')
    dataset = bags.open(tmp_path / 'd')
    collate = {'rows': functools.partial(bags.pad, length=4)}
    loader = bags.Loader(
        dataset, 10, fields=('fixed', 'rows'), shuffle=False, epochs=1, collate=collate, **workers
    )
    batches = list(loader)
    assert equal(np.concatenate([batch['fixed'] for batch in batches]), np.stack([p['fixed'] for p in data]))
    assert batches[0]['rows'].values.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize('name', IN_TORCH)
def test_tensors(tmp_path, name):
    def tensor(array):
        integers = np.ascontiguousarray(array).view(f'i{array.itemsize}')
        return torch.from_numpy(integers).view(getattr(torch, name))

    data = write(tmp_path / 'd', name, convert=tensor)
    batch = bags.open(tmp_path / 'd').batch(range(20))
    assert equal(batch['fixed'], np.stack([point['fixed'] for point in data]))
    tensors = bags.torch.to_torch(batch)
    for found in (tensors['fixed'], tensors['scalar'], tensors['rows'].values, tensors['any'][0]):
        assert found.dtype == getattr(torch, name)
    assert torch.equal(tensors['fixed'].float(), torch.from_numpy(batch['fixed'].astype('f4')))


def test_tensors_of_models(tmp_path):
    weights = torch.nn.Linear(3, 2).bfloat16().weight
    with bags.DatasetWriter(tmp_path / 'd', {'w': 'array(bfloat16,2,3)', 'x': 'array(float32,3)'}) as writer:
        writer.append({'w': weights, 'x': torch.arange(3.0)})
        with pytest.raises(
            bags.EncodeError, match=r"field 'w'.* expected an array of bfloat16, got Tensor of"
        ):
            writer.append({'w': weights.float().detach(), 'x': torch.zeros(3)})
        with pytest.raises(
            bags.EncodeError, match=r"field 'x'.* expected an array of float32, got Tensor of bf"
        ):
            writer.append({'w': weights, 'x': torch.zeros(3).bfloat16()})
    assert torch.equal(bags.torch.to_torch(bags.open(tmp_path / 'd')[0])['w'], weights)


def test_jax(tmp_path):
    with bags.DatasetWriter(
        tmp_path / 'd', {'x': 'array(bfloat16,3)', 'xs': 'array(bfloat16,3)[]'}
    ) as writer:
        for count in range(4):
            x = jax.numpy.arange(3, dtype='bfloat16')
            writer.append({'x': x, 'xs': [x] * count})
    batch = bags.jax.device_put(bags.open(tmp_path / 'd').batch(range(4)))
    assert batch['x'].dtype == batch['xs'].values.dtype == jax.numpy.bfloat16
    assert batch['xs'].values.shape == (6, 3)
    assert batch['x'][2].tolist() == [0, 1, 2]


def test_lists_of_numbers(tmp_path):
    encode, decode = (table['array'] for table in (bags.encoders, bags.decoders))
    assert decode(encode([1.0, -2.5, float('inf')], 'bfloat16', '3'), 'bfloat16', '3').tolist()[:2] == [
        1,
        -2.5,
    ]
    for number, got in ((1e39, 'larger ones'), (1000.0, '1000.0'), (float('-inf'), '-inf')):
        with pytest.raises(ValueError, match=f'expected numbers that fit float8_e4m3fn, got {got}'):
            encode([number], 'float8_e4m3fn', '1')
    with pytest.raises(ValueError, match="expected a NumPy dtype, got 'float8_none'"):
        encode([1.0], 'float8_none', '1')


def test_from_numpy_and_copy(tmp_path):
    x = values('bfloat16', 30, 4)
    bags.from_numpy({'x': x, 'y': values('float8_e5m2', 30)}, tmp_path / 'd', progress=False)
    bags.copy(bags.open(tmp_path / 'd'), tmp_path / 'e', compression=['x'], progress=False)
    dataset = bags.open(tmp_path / 'e')
    assert dataset.spec == {'x': 'array(bfloat16,4)', 'y': 'array(float8_e5m2)'}
    assert equal(dataset.batch(range(30))['x'], x)
    assert bags.verify(tmp_path / 'e', progress=False) == []
