"""Messages that say where, what, expected and got, also after passing between processes."""

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
        (lambda d, path: bags.open(None), TypeError, 'open: expected a path, got None'),
        (lambda d, path: bags.open(b'x'), TypeError, "open: expected a path, got b'x'"),
        (lambda d, path: d.select(np.ones(4, bool)), IndexError, 'mask of shape'),
        (lambda d, path: bags.concat(d), TypeError, 'expected several datasets, got a single DatasetReader'),
        (lambda d, path: bags.bag.Index(d), TypeError, 'Index: expected records'),
        (lambda d, path: bags.Loader(d, 3, rank=2), ValueError, 'rank: expected less than world_size'),
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


# Frequent mistakes: each message is a sentence that says what was expected.


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """Makes a dataset of one folder, one of shards, and a bag."""
    path = tmp_path_factory.mktemp('made')
    with bags.DatasetWriter(path / 'one', {'id': 'int', 'words': 'utf8[]'}) as writer:
        writer.append({'id': 1, 'words': ['a', 'b']})
    with bags.ShardedDatasetWriter(path / 'shards', {'id': 'int'}, shard_length=1) as writer:
        for number in range(2):
            writer.append({'id': number})
    with bags.bag.Writer(path / 'texts.bag') as writer:
        writer.write('text')
    return path


MISTAKES = {
    'a bag for a dataset': (lambda at: bags.open(at / 'texts.bag'), NotADirectoryError, 'bags.bag.Reader'),
    'a bag for a reader': (lambda at: bags.DatasetReader(at / 'texts.bag'), OSError, 'bags.bag.Reader'),
    'a bag of a dataset': (lambda at: bags.open(at / 'one' / 'id.bag'), OSError, 'bags.bag.Reader'),
    'another file': (lambda at: bags.open(at / 'one' / 'spec.json'), NotADirectoryError, 'got a file'),
    'a dataset for a bag': (lambda at: bags.bag.Reader(at / 'one'), IsADirectoryError, 'bags.open'),
    'by descriptor': (lambda at: bags.bag.Reader(at / 'one', mapped=False), OSError, 'bags.open'),
    'shards for a bag': (lambda at: bags.bag.Reader(at / 'shards'), IsADirectoryError, 'bags.open'),
    'shards for one': (lambda at: bags.DatasetReader(at / 'shards'), FileNotFoundError, 'shard folders'),
    'one for shards': (lambda at: bags.ShardedDatasetReader(at / 'one'), OSError, 'of one folder'),
    'no paths': (lambda at: bags.open([]), TypeError, 'open: expected a path'),
    'nothing to join': (lambda at: bags.join([]), ValueError, 'join: expected at least one dataset'),
    'no path': (lambda at: bags.bag.Reader(None), TypeError, 'file_spec: expected a path'),
    'an option': (lambda at: bags.open(at / 'one', row=True), TypeError, "unexpected option 'row'"),
    'decoders': (lambda at: bags.open(at / 'one', decoders=['int']), TypeError, 'functions by format'),
    'fields': (lambda at: bags.open(at / 'one')[0, 'id', 'words'], TypeError, 'several in a tuple'),
    'a column': (lambda at: bags.open(at / 'one')['id'], TypeError, 'reads a whole column'),
    'bytes': (lambda at: bags.open(at / 'one')[0, b'id'], TypeError, 'expected names, got 105'),
    'a large index': (lambda at: bags.open(at / 'one').batch([1 << 80]), IndexError, 'more than 64 bits'),
    'an array': (lambda at: bags.bag.Reader(at / 'texts.bag')[np.array([0])], TypeError, 'got ndarray'),
    'no number': (
        lambda at: bags.open(at / 'one').records('id')['a'],
        TypeError,
        'index: expected an integer',
    ),
    'a range': (lambda at: bags.bag.Reader(at / 'texts.bag').read_range(0, 1.0), TypeError, 'got 0 and 1.0'),
    'indices': (
        lambda at: bags.bag.Reader(at / 'texts.bag').read_indices_iter(5),
        TypeError,
        'indices: expected several integers, got 5',
    ),
    'an index': (lambda at: bags.bag.Index(5), TypeError, 'Index: expected records'),
    'two columns': (lambda at: bags.open(at / 'one').column(['id']), TypeError, "field, got ['id']"),
    'two lengths': (lambda at: bags.open(at / 'one').lengths(['words']), TypeError, "field, got ['words']"),
    'a filter': (
        lambda at: bags.open(at / 'one').filter(3),
        TypeError,
        'a function of a datapoint, got 3',
    ),
    'a span': (lambda at: bags.open(at / 'one').windows(every='words', strid=1), TypeError, "field 'strid'"),
}


@pytest.mark.parametrize('mistake', MISTAKES)
def test_mistakes_are_a_sentence(made, mistake):
    work, kind, said = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        work(made)
    assert said in str(caught.value)


def test_a_writer_of_one_folder_does_not_hide_shards(made):
    for resume in (False, True):
        with pytest.raises(FileExistsError, match='ShardedDatasetWriter'):
            bags.DatasetWriter(made / 'shards', {'id': 'int'}, resume=resume)
    assert len(bags.open(made / 'shards')) == 2
