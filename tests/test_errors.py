"""Messages that say where, what, expected and got, and that survive the way between processes."""

import copy
import pickle

import numpy as np
import pytest

import bags

ERRORS = [
    (
        bags.CorruptError('a/frames.bag', 81, 'limit 9 lies beyond the records (8 bytes)'),
        'a/frames.bag, record 81: limit 9 lies beyond the records (8 bytes)',
        {'path': 'a/frames.bag', 'record': 81},
        ValueError,
    ),
    (
        bags.CorruptError('a', None, 'is empty'),
        'a: is empty',
        {'record': None, 'detail': 'is empty'},
        ValueError,
    ),
    (
        bags.SpecError('x', 'a word', 3),
        "field 'x': expected a word, got 3",
        {'field': 'x', 'expected': 'a word', 'got': 3},
        ValueError,
    ),
    (bags.SpecError(None, 'a dict', []), 'spec: expected a dict, got []', {'field': None}, ValueError),
    (
        bags.SpecError('x', 'a word', '', 'a/spec.json'),
        "a/spec.json: field 'x': expected a word, got ''",
        {'got': ''},
        ValueError,
    ),
    (
        bags.EncodeError('x', 'int(8)', 'too large'),
        "field 'x' of type int(8): too large",
        {'field': 'x', 'type': 'int(8)'},
        ValueError,
    ),
    (
        bags.EncodeError('x', 'int(8)[]', 'too large', 3),
        "field 'x' of type int(8)[], item 3: too large",
        {'field': 'x', 'type': 'int(8)[]', 'item': 3},
        ValueError,
    ),
    (
        bags.DecodeError('x', 3, 'utf8', 'not text', 'a/x.bag'),
        "a/x.bag, field 'x' of type utf8, record 3: not text",
        {'field': 'x', 'index': 3, 'type': 'utf8'},
        ValueError,
    ),
    (
        bags.MissingDependencyError('av', 'video'),
        "av is needed for this: pip install 'bags[video]'",
        {'package': 'av', 'extra': 'video'},
        ImportError,
    ),
]


@pytest.mark.parametrize(('error', 'message', 'facts', 'base'), ERRORS)
@pytest.mark.parametrize('way', [lambda e: e, lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_what_an_error_says(error, message, facts, base, way):
    found = way(error)
    assert type(found) is type(error)
    assert str(found) == message
    assert {name: getattr(found, name) for name in facts} == facts
    assert isinstance(found, base)
    assert isinstance(found, bags.BagsError)


def test_the_tree():
    assert issubclass(bags.BagsError, Exception)
    assert not issubclass(bags.BagsError, ValueError)
    for name in bags.errors.__all__:
        assert issubclass(getattr(bags.errors, name), bags.BagsError)
        assert getattr(bags, name) is getattr(bags.errors, name)


@pytest.fixture
def numbers(tmp_path):
    with bags.DatasetWriter(tmp_path / 'numbers', {'id': 'int'}) as writer:
        for number in range(9):
            writer.append({'id': number})
    return bags.open(tmp_path / 'numbers')


@pytest.mark.parametrize(
    ('call', 'kind', 'message'),
    [
        (lambda d, path: bags.open(None), TypeError, 'open: expected a path, or several, got NoneType'),
        (lambda d, path: bags.open(b'x'), TypeError, 'open: expected a path, or several, got bytes'),
        (lambda d, path: bags.select(d, np.arange(9) > 4), TypeError, 'flatnonzero'),
        (lambda d, path: bags.concat(d), TypeError, 'expected several datasets, got a DatasetReader alone'),
        (lambda d, path: bags.Index(d), TypeError, 'Index: expected records'),
        (lambda d, path: bags.Loader(d, 3, shard=2), TypeError, 'shard: expected a pair'),
        (lambda d, path: bags.Loader(d, 3, transform=3), TypeError, 'transform: expected a function, got 3'),
        (lambda d, path: bags.copy(d, path, add={'x': len}), TypeError, "add: .* for field 'x'"),
        (lambda d, path: bags.copy(d, path, compression='id'), TypeError, 'compression: expected names'),
        (lambda d, path: bags.write([1], path, None), bags.SpecError, 'expected a mapping'),
        (lambda d, path: bags.write([1], path, {'a': 'int'}, transform=3), TypeError, 'transform: expected'),
        (lambda d, path: bags.from_numpy({'a': __file__}, path), ValueError, 'expected a .npy'),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named_before_anything_is_written(numbers, tmp_path, call, kind, message):
    with pytest.raises(kind, match=message):
        call(numbers, tmp_path / 'new')
    assert not (tmp_path / 'new').exists()


def test_a_wrong_argument_of_a_type_is_said_once(tmp_path):
    with pytest.raises(bags.SpecError, match=r"field 'a': expected a NumPy dtype, not 'floaty', got 'array"):
        bags.DatasetWriter(tmp_path / 'new', {'a': 'array(floaty,3)'})
