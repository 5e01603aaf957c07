"""Messages that say where, what, expected and got, and that survive the way between processes."""

import copy
import pickle

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
