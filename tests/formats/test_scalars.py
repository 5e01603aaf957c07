from __future__ import annotations

import math
import struct

import granular.formats
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.dataset.format import registry
from bags.dataset.format.registry import bind_decoder, bind_encoder, decoders, encoders
from bags.formats import scalars

SIZES = [1, 2, 3, 4, 5, 8, 12, 16]


@pytest.mark.parametrize('buffer', [bytes, bytearray, memoryview])
@given(value=st.binary())
def test_bytes(buffer, value):
    decoded = bind_decoder('bytes')(buffer(encoders['bytes'](buffer(value))))
    assert type(decoded) is bytes
    assert decoded == value


def test_encoded_bytes_do_not_change_with_the_value():
    value = bytearray(b'before')
    encoded = encoders['bytes'](value)
    value[:] = b'after.'
    assert encoded == b'before'


@pytest.mark.parametrize('value', ['text', 5, None, [1], np.zeros(3, np.uint8)])
def test_bytes_take_nothing_else(value):
    with pytest.raises(TypeError):
        encoders['bytes'](value)


@given(st.text(st.characters(exclude_categories=['Cs'])))
def test_utf8(value):
    assert decoders['utf8'](memoryview(encoders['utf8'](value))) == value


def test_utf8_is_strict():
    with pytest.raises(ValueError, match='surrogates'):
        encoders['utf8']('\ud800')
    for data in (b'\xff', b'\xed\xa0\x80', b'\xc0\x80', b'ab\xe2\x82'):
        with pytest.raises(ValueError):
            decoders['utf8'](data)
    with pytest.raises(TypeError):
        encoders['utf8'](b'bytes')


@pytest.mark.parametrize('value', [True, False, np.True_, np.False_, np.array(True)])
def test_bool(value):
    encoded = encoders['bool'](value)
    assert encoded == bytes([bool(value)])
    assert decoders['bool'](memoryview(encoded)) is bool(value)


@pytest.mark.parametrize('value', [0, 1, 'True', None, 1.0, np.int8(1)])
def test_bool_takes_nothing_else(value):
    with pytest.raises(TypeError, match='expected bool'):
        encoders['bool'](value)


@pytest.mark.parametrize('data', [b'', b'\x02', b'\xff', b'\x00\x00'])
def test_bool_is_a_byte_of_zero_or_one(data):
    with pytest.raises(ValueError, match='expected one byte'):
        decoders['bool'](data)


@pytest.mark.parametrize('size', SIZES)
@given(data=st.data())
def test_int(size, data):
    value = data.draw(st.integers(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1))
    encoded = bind_encoder('int', (str(size),))(value)
    assert encoded == value.to_bytes(size, 'little', signed=True) == encoders['int'](value, str(size))
    assert bind_decoder('int', (str(size),))(memoryview(encoded)) == value
    assert decoders['int'](encoded, str(size)) == value


@pytest.mark.parametrize('size', SIZES)
@given(data=st.data())
def test_uint(size, data):
    value = data.draw(st.integers(0, 2 ** (8 * size) - 1))
    encoded = bind_encoder('uint', (str(size),))(value)
    assert encoded == value.to_bytes(size, 'little')
    assert bind_decoder('uint', (str(size),))(memoryview(encoded)) == value


@pytest.mark.parametrize('format', ['int', 'uint'])
@pytest.mark.parametrize('size', SIZES)
def test_ints_out_of_range(format, size):
    low, high = (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1)) if format == 'int' else (0, 2 ** (8 * size))
    for value in (low - 1, high, 10**100, -(10**5000)):
        with pytest.raises(ValueError, match='expected an integer from'):
            encoders[format](value, str(size))


@pytest.mark.parametrize('value', ['1', 1.0, True, np.True_, None, np.float32(1), np.array([1])])
def test_ints_take_integers_only(value):
    with pytest.raises(TypeError, match='expected an integer'):
        encoders['int'](value)


@pytest.mark.parametrize('value', [np.int8(-5), np.int64(-5), np.array(-5), np.array(-5, '>i4')])
def test_numpy_integers(value):
    assert decoders['int'](encoders['int'](value, '4'), '4') == -5


@pytest.mark.parametrize('format', ['int', 'uint'])
@pytest.mark.parametrize('size', SIZES)
def test_a_record_of_another_size_than_told_raises(format, size):
    for length in {0, 1, size - 1, size + 1, 2 * size} - {size}:
        with pytest.raises(ValueError, match=f'expected {size} bytes, got {length}'):
            bind_decoder(format, (str(size),))(bytes(length))


def test_ints_without_a_size():
    assert encoders['int'](-2) == b'\xfe' + b'\xff' * 7
    assert decoders['int'](b'\xfe' + b'\xff' * 7) == -2
    for length in (1, 2, 3, 4, 7, 9, 16):  # As Granular writes them.
        assert decoders['int'](b'\xff' * length) == 256**length - 1
    with pytest.raises(ValueError):
        decoders['uint'](b'\xff')


@given(st.integers(0, 2**63 - 1))
def test_granular_ints_are_read(value):
    try:
        data = granular.formats.encode_int(value)
    except OverflowError:
        return
    assert decoders['int'](data) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_i64_as_in_granular(value):
    data = encoders['i64'](value)
    assert data == granular.formats.encoders['i64'](value)
    assert bind_decoder('i64')(data) == decoders['i64'](data) == value


@given(st.integers(0, 2**64 - 1))
def test_u64_as_in_granular(value):
    data = bind_encoder('u64')(value)
    assert data == granular.formats.encode_int(value, 8, signed=False)
    assert bind_decoder('u64')(data) == decoders['u64'](data) == value


def test_ints_of_old_bags_are_unsigned_and_of_any_length():
    table = {**decoders, 'int': scalars.decode_legacy_int}
    decode = bind_decoder('int', ('4',), table)
    assert [decode(memoryview(b'\xff' * length)) for length in (0, 1, 4, 8)] == [0, 255, 2**32 - 1, 2**64 - 1]
    assert registry.fixed_dtype('int', ('4',), table) == (np.dtype('<u4'), ())


@pytest.mark.parametrize(('size', 'code'), [(2, '<e'), (4, '<f'), (8, '<d')])
@given(data=st.data())
def test_float(size, code, data):
    value = data.draw(st.floats(width=8 * size))
    encoded = bind_encoder('float', (str(size),))(value)
    assert encoded == encoders['float'](value, str(size))
    decoded = bind_decoder('float', (str(size),))(memoryview(encoded))
    assert type(decoded) is float
    assert struct.pack(code, decoded) == encoded
    assert decoded == value or (math.isnan(decoded) and math.isnan(value))


@pytest.mark.parametrize('value', [3, np.float32(3), np.float16(3), np.int8(3), np.array(3.0), 3.0])
def test_numbers_as_floats(value):
    assert decoders['float'](encoders['float'](value, '4'), '4') == 3.0


@pytest.mark.parametrize('value', [True, '1.0', None, 1j, np.zeros(1), np.timedelta64(3, 'ns')])
def test_floats_take_numbers_only(value):
    with pytest.raises(TypeError, match='expected a number'):
        encoders['float'](value)


@pytest.mark.parametrize(('value', 'size'), [(1e300, '4'), (65520.0, '2'), (1 << 1024, '8')])
def test_floats_too_large(value, size):
    with pytest.raises(ValueError, match='fits a float'):
        encoders['float'](value, size)


def test_float_of_another_length():
    for size in ('2', '4', '8'):
        with pytest.raises(ValueError, match='bytes, got 3'):
            bind_decoder('float', (size,))(bytes(3))
