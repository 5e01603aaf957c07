"""Arguments, binding and fixed sizes, for every type."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import bags
from bags.dataset.format.registry import (
    bind_decoder,
    bind_encoder,
    check_type,
    decoders,
    encoders,
    fixed_dtype,
)

GOOD = [
    'bytes', 'utf8', 'bool', 'int', 'int(1)', 'int(3)', 'int(16)', 'uint', 'uint(8)', 'float', 'float(2)',
    'float(8)', 'i64', 'u64', 'msgpack', 'json', 'tree', 'array', 'array(float32)', 'array(float32,3,4)',
    'array(<u2,0)', 'array(>f8,1)', 'array(bool,2)', 'array(datetime64[ns],2)', 'array(U10)', 'array(S3,2)',
    'array(complex64)', 'jpeg', 'jpeg(1)', 'jpg(100)', 'png', 'webp', 'webp(80)', 'webp(lossless)',
    'avif(50)', 'mp4', 'mp4(30)', 'mp4(29.97)', 'mp4(30000/1001,23)', 'webm(1/2,51)', 'mkv(24)', 'wav',
    'flac', 'opus', 'opus(64)',
]  # fmt: skip
BAD = [
    'bytes(1)', 'utf8(8)', 'bool(1)', 'int(0)', 'int(17)', 'int(x)', 'int(-1)', 'int(4.0)', 'int(4,False)',
    'int()', 'int(٤)', 'uint(0)', 'float(3)', 'float(x)', 'float(16)', 'float(4,4)', 'i64(8)', 'u64(8)',
    'msgpack(1)', 'json(2)', 'tree(1)', 'array(notadtype)', 'array(object)', 'array(O)', 'array(float32,-1)',
    'array(float32,x)', 'array(float32,1.5)', 'array(V8)', 'array(void)', 'array(U)', 'array(str)',
    'array(S0)', 'array(T)', 'array()', 'array(a5)', 'array(float32,)', f'array(f4,{2**62},2)',
    f'array(f4,{2**63})', 'array(f4,' + '1,' * 64 + '1)', 'array(f4,' + '9' * 10_000 + ')',
    'jpeg(0)', 'jpeg(101)', 'jpeg(x)', 'jpeg(95,1)', 'jpeg(lossless)', 'png(9)', 'webp(0)', 'webp(lossy)',
    'avif(101)', 'mp4(0)',
    'mp4(x)', 'mp4(-5)', 'mp4(30,52)', 'mp4(30,20,1)', 'mp4(1/0)', 'mp4(1e9)', 'mp4(inf)', 'mkv(30,20)',
    'wav(2)', 'flac(5)', 'opus(5)', 'opus(1000)',
]  # fmt: skip


def split(text):
    format, _, args = text.partition('(')
    return format, tuple(args[:-1].split(',')) if args else ()


@pytest.mark.parametrize('text', GOOD)
def test_types_that_are(text):
    check_type(*split(text))
    check_type(*split(text), decoders)
    bind_encoder(*split(text))
    bind_decoder(*split(text))


@pytest.mark.parametrize('text', BAD)
def test_types_that_are_not(text):
    format, args = split(text)
    for check in (check_type, bind_encoder, bind_decoder):
        with pytest.raises(ValueError, match='expected'):
            check(format, args)
    if format in ('int', 'array', 'float', 'bool', 'i64'):
        with pytest.raises(ValueError, match='expected'):
            fixed_dtype(format, args)


def test_every_word_has_both_functions():
    assert encoders.keys() == decoders.keys()
    assert ' '.join(encoders) == (
        'bytes utf8 bool int uint float i64 u64 msgpack json array tree '
        'jpeg jpg png webp avif image mp4 webm mkv video wav flac opus audio'
    )


def test_every_function_is_documented():
    for function in {*encoders.values(), *decoders.values()}:
        assert function.__doc__


def test_functions_of_the_user_get_bytes_and_their_arguments():
    calls = []
    table = {**decoders, 'depth': lambda *args: calls.append(args), 'png': lambda *args: calls.append(args)}
    bind_decoder('depth', ('a', '2'), table)(memoryview(b'xy'))
    bind_decoder('png', ('5',), table)(bytearray(b'xy'))  # A user's decoder, so its argument is not checked.
    assert calls == [(b'xy', 'a', '2'), (b'xy', '5')]
    assert type(calls[0][0]) is type(calls[1][0]) is bytes
    assert bind_encoder('depth', ('3',), {'depth': lambda value, *args: (value, args)})(7) == (7, ('3',))


def test_built_in_functions_under_another_word():
    table = {'label': decoders['int'], 'picture': decoders['png']}
    assert fixed_dtype('label', ('2',), table) == (np.dtype('<i2'), ())
    assert bind_decoder('label', ('2',), table)(memoryview(b'\xff\xff')) == -1
    assert fixed_dtype('int', ('2',), {'int': lambda data, *args: None}) is None


def test_words_that_are_not():
    with pytest.raises(KeyError):
        bind_encoder('nothing')
    with pytest.raises(KeyError):
        bind_decoder('nothing')
    check_type('nothing', ('1',))
    assert fixed_dtype('nothing') is None


@pytest.mark.parametrize(
    ('text', 'dtype', 'shape'),
    [
        ('bool', '?', ()),
        ('int', '<i8', ()),
        ('int(1)', 'i1', ()),
        ('int(4)', '<i4', ()),
        ('uint', '<u8', ()),
        ('uint(2)', '<u2', ()),
        ('float', '<f8', ()),
        ('float(2)', '<f2', ()),
        ('float(4)', '<f4', ()),
        ('i64', '<i8', ()),
        ('u64', '<u8', ()),
        ('array(float32)', '<f4', ()),
        ('array(int16,2,3)', '<i2', (2, 3)),
        ('array(>i4,5)', '>i4', (5,)),
    ],
)
def test_fixed_dtype(text, dtype, shape):
    format, args = split(text)
    assert fixed_dtype(format, args) == (np.dtype(dtype), shape)
    # The dtype reads what the encoder wrote.
    value = np.ones(shape, dtype)[()]
    data = bind_encoder(format, args)(value)
    assert np.array_equal(np.frombuffer(data, dtype).reshape(shape), value)
    assert np.array_equal(bind_decoder(format, args)(data), value)


@pytest.mark.parametrize(
    'text', ['int(3)', 'uint(16)', 'array', 'bytes', 'utf8', 'tree', 'jpeg', 'png', 'mp4']
)
def test_types_without_a_fixed_dtype(text):
    assert fixed_dtype(*split(text)) is None


def test_arguments_read_ahead_change_nothing():
    for text in GOOD:
        format, args = split(text)
        for data in (b'', bytes(1), bytes(2), bytes(4), bytes(8), bytes(48)):
            outcomes = []
            for decode in (bind_decoder(format, args), lambda data, w=format, a=args: decoders[w](data, *a)):
                try:
                    outcomes.append(repr(decode(data)))
                except ValueError as exc:
                    outcomes.append(str(exc))
            assert outcomes[0] == outcomes[1]


def test_import_costs_no_optional_package():
    code = (
        'import sys, bags.dataset.format.registry as _; print({"PIL", "av", "simplejpeg"} & {*sys.modules})'
    )
    found = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == 'set()'


@pytest.mark.parametrize(
    ('kind', 'nearest'),
    [
        ('str', 'utf8'), ('string[]?', 'utf8[]?'), ('int32', 'int(4)'), ('uint8[]', 'uint(1)[]'),
        ('float32', 'float(4)'), ('float32(3,4)?', 'array(float32,3,4)?'), ('jpgg', 'jpg'),
        ('Dict', 'msgpack'), ('depth_of_mine', None),
    ],
)  # fmt: skip
def test_an_unknown_type_suggests_the_nearest(tmp_path, kind, nearest):
    for write in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        with pytest.raises(bags.SpecError, match='expected a type of ') as error:
            write(tmp_path / 'd', {'x': kind})
        assert (f'(perhaps {nearest}), got' in str(error.value)) == (nearest is not None)
        assert ('perhaps' in str(error.value)) == (nearest is not None)
    assert not (tmp_path / 'd').exists()
