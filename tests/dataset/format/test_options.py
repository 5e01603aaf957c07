"""Options of readers and writers: every function that has them takes the same set, with the same effect."""

import ast
import inspect
import json

import numpy as np
import pytest

import bags
from bags.dataset.format import options as module
from bags.dataset.format.options import WriteOptions, WriterSettings

SPEC = {'id': 'int(8)', 'text': 'utf8'}
ROWS = [{'id': index, 'text': f'text {index}'} for index in range(6)]
FUNCTIONS = {
    'write': lambda target, **options: bags.write(ROWS, target, SPEC, workers=1, **options),
    'copy': lambda target, **options: bags.copy(target.parent / 'source', target, **options),
    'convert': lambda target, **options: bags.convert(target.parent / 'tars', target, **options),
    'from_numpy': lambda target, **options: bags.from_numpy({'id': np.arange(6)}, target, **options),
    'ShardedDatasetWriter': lambda target, **options: write_all(
        bags.ShardedDatasetWriter(target, SPEC, **options)
    ),
    'DatasetWriter': lambda target, **options: write_all(bags.DatasetWriter(target, SPEC, **options)),
}


def write_all(writer):
    with writer:
        for row in ROWS[len(writer) :]:
            writer.append(row)


@pytest.fixture
def target(tmp_path):
    with bags.DatasetWriter(tmp_path / 'source', SPEC) as writer:
        for row in ROWS:
            writer.append(row)
    bags.export(tmp_path / 'source', tmp_path / 'tars', progress=False)
    return tmp_path / 'target'


@pytest.mark.parametrize('function', FUNCTIONS)
def test_options_of_writers_have_one_effect_in_every_function(function, target):
    write = FUNCTIONS[function]
    sharded = {} if function == 'DatasetWriter' else {'shard_length': 2, 'shard_size': None}
    common = {'compression': ['id'], 'checksum': True, 'metadata': {'made': 'here'}, 'storage_options': None}
    write(target, **common, **sharded)
    write(target, **common, **sharded, resume=True)
    with bags.open(target, checksum=True) as dataset:
        assert dataset.metadata['made'] == 'here'
        assert dataset.shards == (3 if sharded else 1)
        assert list(dataset.column('id')) == list(range(6))
    assert list(target.rglob('id.bagz'))
    write(target, mode='overwrite', filesystem=None)
    with bags.open(target) as dataset:
        assert (dataset.shards, len(dataset)) == (1, 6)
        assert 'made' not in dataset.metadata
    assert not list(target.rglob('*.xxh3'))


@pytest.mark.parametrize('function', FUNCTIONS)
def test_wrong_options_are_refused_before_anything_is_written(function, target):
    write = FUNCTIONS[function]
    for name, expected in {
        'compresion': "did you mean 'compression'",
        'shardsize': r'use shard_size \(bytes\)',
        'overwrite': "use mode='overwrite'",
        'nonsense': 'expected one of .*checksum',
    }.items():
        with pytest.raises(TypeError, match=f"unexpected option '{name}': {expected}"):
            write(target, **{name: True})
    for options, expected in [
        ({'checksum': 1}, 'checksum: expected True or False, got 1'),
        ({'mode': 'append'}, "mode: expected 'create' or 'overwrite', got 'append'"),
        ({'resume': True, 'mode': 'overwrite'}, 'mode: expected'),
        ({'metadata': {'fields': {'nope': {}}}}, 'nope'),
    ]:
        with pytest.raises((TypeError, ValueError), match=expected):
            write(target, **options)
    assert not target.exists()


def test_every_option_is_documented_and_has_a_default():
    for node in ast.parse(inspect.getsource(module)).body:
        if getattr(node, 'name', '') in ('ReadOptions', 'DatasetWriteOptions', 'WriteOptions'):
            kinds = [type(item) for item in node.body[1:]]  # Skips the docstring of the class.
            assert kinds == [ast.AnnAssign, ast.Expr] * (len(kinds) // 2)
    settings = WriterSettings()
    assert vars(settings).keys() == WriteOptions.__annotations__.keys()
    assert settings.shard_size == 10 << 30


def test_the_command_has_the_defaults_of_the_library(target):
    signature = inspect.signature(bags.export)
    assert signature.parameters['shard_size'].default == WriterSettings().shard_size


def test_metadata_of_a_copy_replaces_that_of_its_source(target):
    bags.set_metadata(target.parent / 'source', {'old': 1, 'fields': {'id': {'unit': 'm'}}})
    bags.copy(target.parent / 'source', target)
    bags.copy(target.parent / 'source', target.parent / 'other', metadata={'new': 2})
    with bags.open(target) as kept, bags.open(target.parent / 'other') as replaced:
        assert kept.metadata == {'old': 1, 'fields': {'id': {'unit': 'm'}}}
        assert replaced.metadata == {'new': 2}
    assert json.loads((target / '000000/metadata.json').read_text())['old'] == 1
