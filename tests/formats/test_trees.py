from __future__ import annotations

import math
import tracemalloc

import granular.formats
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bags.dataset.format.registry import decoders, encoders

TEXT = st.text(st.characters(exclude_categories=['Cs']))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
KEYS = st.one_of(TEXT, st.binary(), st.integers(-(2**63), 2**63), st.booleans())


def nested(leaves, keys=TEXT):
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=10)


def marked(value):
    """Returns whether a list in the value looks like an array."""
    if isinstance(value, dict):
        return any(map(marked, value.values()))
    if isinstance(value, list):
        return (len(value) == 4 and isinstance(value[0], str) and value[0] == '_') or any(map(marked, value))
    return False


def same(first, second):
    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray)
            and first.dtype == second.dtype
            and first.shape == second.shape
            and first.tobytes() == second.tobytes()
        )
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


@given(nested(st.one_of(PLAIN, st.binary()), KEYS))
def test_msgpack(value):
    data = encoders['msgpack'](value)
    assert same(decoders['msgpack'](memoryview(data)), value)


@given(nested(PLAIN))
def test_json(value):
    data = encoders['json'](value)
    assert same(decoders['json'](memoryview(data)), value)


@given(nested(st.one_of(PLAIN, st.binary(), hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes())), KEYS))
def test_tree(value):
    if marked(value):
        with pytest.raises(ValueError, match="begins with '_'"):
            encoders['tree'](value)
        return
    data = encoders['tree'](value)
    for buffer in (data, memoryview(data), bytearray(data)):
        assert same(decoders['tree'](buffer), value)


@given(nested(st.one_of(PLAIN, hnp.arrays(hnp.integer_dtypes(endianness='<'), hnp.array_shapes()))))
def test_tree_has_the_same_bytes_as_granular(value):
    if not marked(value):
        data = encoders['tree'](value)
        assert data == granular.formats.encode_tree(value)
        assert same(granular.formats.decode_tree(data), value)


def test_tree_arrays_are_owned_and_writable():
    base = np.arange(6).reshape(2, 3)
    tree = decoders['tree'](encoders['tree']({'a': [base.T, {'b': base[:, ::2]}], 'c': (base,)}))
    assert np.array_equal(tree['a'][0], base.T)
    assert np.array_equal(tree['a'][1]['b'], base[:, ::2])
    assert isinstance(tree['c'], list)
    for array in (tree['a'][0], tree['a'][1]['b'], tree['c'][0]):
        assert array.flags.owndata
        assert array.flags.writeable


@pytest.mark.parametrize(
    'value',
    [['_', 1, 2, 3], ('_', 'f4', [1], b''), {'a': [['_', None, None, None]]}, [1, ['_', np.zeros(2), 0, 0]]],
)
def test_lists_that_look_like_arrays_are_refused_in_trees(value):
    with pytest.raises(ValueError, match="begins with '_'"):
        encoders['tree'](value)


def test_other_lists_with_the_mark_are_fine():
    for value in (['_'], ['_', 1, 2], ['_', 1, 2, 3, 4], [1, 2, 3, '_'], {'_': ['_', '_']}):
        assert decoders['tree'](encoders['tree'](value)) == value
    assert decoders['msgpack'](encoders['msgpack'](['_', 1, 2, 3])) == ['_', 1, 2, 3]


def test_tuples_as_keys_come_back():
    value = {(1, 2): 'a', ('x', (3, None)): [{(): 1}]}
    assert decoders['msgpack'](encoders['msgpack'](value)) == value


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
def test_numpy_scalars_become_plain(format):
    value = {'a': np.float32(0.5), 'b': [np.int64(-3), np.True_], 'c': np.str_('x'), 'd': np.float64(2)}
    decoded = decoders[format](encoders[format](value))
    assert decoded == {'a': 0.5, 'b': [-3, True], 'c': 'x', 'd': 2.0}
    assert decoded['b'][1] is True


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
@pytest.mark.parametrize(
    'value', [{1, 2}, object(), np.datetime64('2026-01-01'), np.timedelta64(3, 'ns'), 1j]
)
def test_unknown_values_raise(format, value):
    with pytest.raises(TypeError):
        encoders[format]({'x': [value]})


def test_arrays_belong_in_trees():
    for format in ('msgpack', 'json'):
        with pytest.raises(TypeError, match='tree'):
            encoders[format]([np.zeros(2)])


@pytest.mark.parametrize('value', [2**64, -(2**63) - 1])
def test_integers_beyond_64_bits(value):
    for format in ('msgpack', 'tree'):
        with pytest.raises(ValueError, match='64 bits'):
            encoders[format]([value])
    assert decoders['json'](encoders['json']([value])) == [value]


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
def test_values_that_contain_themselves(format):
    value = []
    value.append(value)
    with pytest.raises(ValueError):
        encoders[format](value)


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
def test_nesting(format):
    value = deep = []
    for _ in range(400):
        deep.append([])
        deep = deep[0]
    assert decoders[format](encoders[format](value)) == value


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
@pytest.mark.parametrize(
    'data', [b'\x91' * 100_000, b'[' * 100_000, b'\x81\xa0' * 100_000, b'', b'\xc1', b'{']
)
def test_nonsense_raises(format, data):
    if format != 'json' and data[:1] in b'[{' and data:
        data += b'\xc1'
    with pytest.raises(ValueError):
        decoders[format](data)


@pytest.mark.parametrize('format', ['msgpack', 'tree'])
def test_headers_that_claim_more_than_there_is(format):
    claims = [
        b'\xdd\xff\xff\xff\xff',
        b'\xdf\xff\xff\xff\xff',
        b'\xc6\xff\xff\xff\xff',
        b'\xdb\x7f\xff\xff\xff',
    ]
    tracemalloc.start()
    for data in [*claims, *(claim * 1000 for claim in claims), b'\xdd\x00\x00\x13\x88' * 1000]:
        with pytest.raises(ValueError):
            decoders[format](data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64e6


@pytest.mark.parametrize('format', ['msgpack', 'json', 'tree'])
@given(value=nested(PLAIN), data=st.data())
def test_damage_raises_or_gives_a_value(format, value, data):
    if format == 'tree' and marked(value):
        return
    record = bytearray(encoders[format](value))
    with pytest.raises(ValueError):
        decoders[format](bytes(record) + (b'x' if format == 'json' else b'\xc0'))
    place = data.draw(st.integers(0, len(record) - 1))
    if format != 'json':  # In JSON, 12 cut off is a valid number: 1.
        with pytest.raises(ValueError):
            decoders[format](record[:place])
    record[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoders[format](record)
    except ValueError:
        pass


@given(st.binary(max_size=60))
def test_garbage(data):
    for format in ('msgpack', 'json', 'tree'):
        try:
            decoders[format](data)
        except ValueError:
            pass


def test_json_is_json():
    assert encoders['json']({'a': [1, 'é', None]}) == '{"a":[1,"é",null]}'.encode()
    for value in (math.nan, math.inf, [-math.inf]):
        with pytest.raises(ValueError):
            encoders['json'](value)
    for value in ({1: 'a'}, [{None: 1}], {'a': {True: 1}}):
        with pytest.raises(TypeError, match='dict keys of str'):
            encoders['json'](value)
    with pytest.raises(ValueError):
        encoders['json']('\ud800')
    assert math.isnan(decoders['json'](b'NaN'))
    with pytest.raises(ValueError):
        decoders['json']('"é"'.encode('latin-1'))


def test_bytes_stay_bytes():
    assert decoders['msgpack'](msgpack.packb({'a': b'\xff', b'k': 'b'})) == {'a': b'\xff', b'k': 'b'}


@pytest.mark.parametrize('format', ['json', 'msgpack', 'tree'])
def test_what_is_nested_too_deep_to_be_read_is_refused_when_written(format):
    def nested(depth):
        value = 0
        for level in range(depth):
            value = [value] if level % 2 else {'a': value}
        return value

    for depth in (400, 500, 520, 987, 5000):
        value = nested(depth)
        try:
            data = encoders[format](value)
        except ValueError:
            assert depth > 500
        else:
            decoders[format](data)
            assert format != 'json' or depth <= 500
