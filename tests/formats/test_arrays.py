from __future__ import annotations

import tracemalloc

import granular.formats
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bags
from bags.dataset.format.registry import bind_decoder, bind_encoder, decoders, encoders
from bags.formats.arrays import invalid_row

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness='?'),
    hnp.unsigned_integer_dtypes(endianness='?'),
    hnp.floating_dtypes(endianness='?', sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness='?', sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness='?'),
    hnp.timedelta64_dtypes(endianness='?'),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(min_len=1),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))


def same(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def own(array):
    return array.flags.owndata and array.flags.writeable and array.flags.c_contiguous


@given(ARRAYS)
def test_any_array(array):
    data = encoders['array'](array)
    for buffer in (data, memoryview(data), bytearray(data)):
        decoded = decoders['array'](buffer)
        assert same(decoded, array)
        assert own(decoded)


@given(ARRAYS)
def test_fixed_array(array):
    args = (array.dtype.str, *map(str, array.shape))
    data = bind_encoder('array', args)(array)
    assert data == array.tobytes() == encoders['array'](array, *args)
    decoded = bind_decoder('array', args)(memoryview(data))
    assert same(decoded, array)
    assert own(decoded)


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=1)))
def test_same_bytes_as_granular(array):
    if array.dtype.kind in 'mM':  # Granular cannot store these.
        array = array.view(np.int64)
    data = encoders['array'](array)
    assert data == granular.formats.encode_array(array)
    assert granular.formats.decode_array(data).tobytes() == array.tobytes()


def test_arrays_that_do_not_lie_in_c_order():
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (
        base.T,
        base[:, ::-1],
        base[..., 1],
        np.asfortranarray(base),
        np.broadcast_to(base, (5, 2, 3, 4)),
    ):
        assert np.array_equal(decoders['array'](encoders['array'](array)), array)
        args = ('float32', *map(str, array.shape))
        assert np.array_equal(decoders['array'](encoders['array'](array, *args), *args), array)


def test_other_byte_orders_are_converted():
    array = np.array([1, 2, 3], '>i4')
    assert encoders['array'](array, 'int32', '3') == array.astype('<i4').tobytes()
    assert encoders['array'](array, '>i4', '3') == array.tobytes()


def test_lists_are_converted_where_nothing_is_lost():
    assert encoders['array']([1, 2], 'uint8', '2') == b'\x01\x02'
    assert decoders['array'](encoders['array']([0.1, 2], 'float32', '2'), 'float32', '2')[0] == np.float32(
        0.1
    )
    assert encoders['array'](7, 'int16') == b'\x07\x00'
    assert encoders['array']([], 'float32', '0') == b''
    for value, dtype in [
        ([300], 'uint8'),
        ([-1], 'uint8'),
        ([1.5], 'int8'),
        (['a'], 'int8'),
        ([1j], 'float32'),
    ]:
        with pytest.raises(TypeError):
            encoders['array'](value, dtype, '1')


def test_another_dtype_or_shape_raises():
    with pytest.raises(TypeError, match=r"float64; np.asarray\(value, 'float32'\) converts"):
        encoders['array'](np.zeros(3), 'float32', '3')
    with pytest.raises(ValueError, match=r'expected shape \(3, 2\), got \(2, 3\)'):
        encoders['array'](np.zeros((2, 3)), 'float64', '3', '2')
    for length in (0, 11, 13):
        with pytest.raises(ValueError, match='expected 12 bytes'):
            bind_decoder('array', ('float32', '3'))(bytes(length))


def test_masked_elements_are_refused():
    masked = np.ma.masked_array(np.arange(3, dtype='f4'), [False, True, False])
    for format, args in (('array', ('float32', '3')), ('array', ()), ('tree', ())):
        with pytest.raises(ValueError, match='expected an array without masked elements'):
            encoders[format](masked, *args)
        whole = encoders[format](np.ma.masked_array(masked.data), *args)
        assert whole == encoders[format](masked.data, *args)
        assert encoders[format](masked.filled(1), *args) == whole
    for format in ('float', 'int', 'bool'):
        with pytest.raises(TypeError, match='got MaskedConstant'):
            encoders[format](masked[1])


@pytest.mark.parametrize(
    'array',
    [
        np.array([None, 'x']),
        np.zeros(2, 'f4,i4'),
        np.zeros(2, 'V8'),
        np.zeros(2, np.dtypes.StringDType()),
        np.array([{}, []], dtype=object),
    ],
)
def test_objects_and_structures_are_refused(array):
    with pytest.raises(ValueError, match='expected a dtype of'):
        encoders['array'](array)
    with pytest.raises(ValueError, match='expected a dtype of'):
        encoders['tree']({'x': array})


@pytest.mark.parametrize(
    'parts',
    [
        ['O', [1], bytes(8)],
        ['|O8', [1], bytes(8)],
        ['f4,i4', [1], bytes(8)],
        ['(2,)f4', [1], bytes(8)],
        ['V8', [1], bytes(8)],
        ['S0', [2**40], b''],
        ['<U0', [3], b''],
        ['<f4', [-1], b''],
        ['<f4', [-1, -1], bytes(4)],
        ['<f4', [True], bytes(4)],
        ['<f4', [1.0], bytes(4)],
        ['<f4', ['1'], bytes(4)],
        ['<f4', 1, bytes(4)],
        ['<f4', [2], bytes(4)],
        ['<f4', [1] * 65, bytes(4)],
        ['<f4', [2**61, 2**61, 0], b''],
        ['<f4', [2**62, 4], b''],
        ['<f4', [2**63], b''],
        ['nonsense', [1], bytes(4)],
        [b'<f4', [1], bytes(4)],
        ['<f4', [1], 'text'],
        ['<f4', [1], [0, 0, 0, 0]],
        ['|b1', [2], b'\x01\x02'],
        ['<U1', [1], b'\xff\xff\xff\xff'],
        ['<f4', [1]],
        ['<f4', [1], bytes(4), None],
        [],
    ],
)
def test_parts_that_do_not_fit_together_raise(parts):
    tracemalloc.start()
    with pytest.raises(ValueError):
        decoders['array'](msgpack.packb(parts))
    if len(parts) == 3:
        with pytest.raises(ValueError):
            decoders['tree'](msgpack.packb({'x': ['_', *parts]}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6


@given(ARRAYS, st.data())
def test_damaged_records_raise_or_give_an_array(array, data):
    record = bytearray(encoders['array'](array))
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(ValueError):
        decoders['array'](record[:cut])
    with pytest.raises(ValueError):
        decoders['array'](bytes(record) + b'\0')
    record[cut] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert isinstance(decoders['array'](record), np.ndarray)
    except ValueError:
        pass


@given(st.binary(max_size=100))
def test_garbage(data):
    try:
        assert isinstance(decoders['array'](data), np.ndarray)
    except ValueError:
        pass


def test_bools_of_another_byte_raise():
    with pytest.raises(ValueError, match='bools'):
        bind_decoder('array', ('bool', '2'))(b'\x01\x02')
    with pytest.raises(ValueError, match='characters'):
        bind_decoder('array', ('U1',))(b'\xff\xff\xff\xff')


def test_invalid_row():
    values = np.zeros((4, 3), np.uint8)
    assert invalid_row(values.view(bool)) is None
    values[2, 1] = values[3, 0] = 2
    assert invalid_row(values.view(bool)) == 2
    assert invalid_row(values[:, 0].view(bool)) == 3
    assert invalid_row(values[:0].view(bool)) is None
    assert invalid_row(np.zeros((0, 3), bool)) is None
    assert invalid_row(np.full((2, 3), np.nan)) is None
    for order in '<>':
        codes = np.array([[65, 66], [65, 0x110000]], f'{order}u4')
        assert invalid_row(codes.view(f'{order}U1')) == 1
        assert invalid_row(codes.view(f'{order}U2')[:, 0]) == 1
        assert invalid_row(codes[:1].view(f'{order}U2')) is None


def test_small_floats_need_a_package(tmp_path, without):
    without('ml_dtypes')
    for use in (
        lambda: encoders['array']([1.0], 'bfloat16', '1'),
        lambda: decoders['array'](b'', 'float8_e5m2', '0'),
    ):
        with pytest.raises(bags.MissingDependencyError, match='pip install ml_dtypes'):
            use()
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'array(float16,2)', 'y': 'int'}) as writer:
        writer.append({'x': np.zeros(2, np.float16), 'y': 5})
    spec = tmp_path / 'd/spec.json'
    spec.write_text(spec.read_text().replace('float16', 'bfloat16'))
    dataset = bags.open(tmp_path / 'd')
    assert dataset[0, 'y'] == {'y': 5}
    assert dataset.batch([0], 'y')['y'].tolist() == [5]
    assert bytes(bags.open(tmp_path / 'd', raw=True)[0]['x']) == bytes(4)
    for read in (lambda: dataset[0], lambda: dataset.batch([0])):
        with pytest.raises(bags.MissingDependencyError, match='pip install ml_dtypes'):
            read()


@given(
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=1, min_side=1, max_side=4)), st.integers(0, 3), st.booleans()
)
def test_a_length_that_varies(array, axis, empty):
    axis %= array.ndim
    array = array.take([], axis) if empty else array
    args = [array.dtype.str, *map(str, array.shape)]
    args[1 + axis] = '?'
    data = bind_encoder('array', tuple(args))(array)
    assert data == array.tobytes()
    for buffer in (data, memoryview(data)):
        decoded = bind_decoder('array', tuple(args))(buffer)
        assert same(decoded, array)
        assert own(decoded)
    with pytest.raises(ValueError, match='expected a multiple of'):
        bind_decoder('array', ('float32', '?', '3'))(bytes(13))


def test_shapes_that_do_not_fit_a_length_that_varies():
    encode = bind_encoder('array', ('float32', '?', '4'))
    for shape in ((4,), (2, 5), (4, 2), (1, 2, 4)):
        with pytest.raises(ValueError, match=r'expected shape \(\?, 4\), got'):
            encode(np.zeros(shape, np.float32))
    for args in (('float32', '?', '?'), ('float32', '?', '0')):
        with pytest.raises(ValueError, match=r'expected one \? at most'):
            bind_encoder('array', args)
    with pytest.raises(ValueError, match='expected bools that are 0 or 1'):
        bind_decoder('array', ('bool', '?'))(b'\2')
