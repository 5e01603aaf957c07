"""Options of a wrong type or value raise an error with their name, what was expected and what was given."""

import inspect
import os
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.dataset.reading.fingerprint import fingerprint
from bags.validation import at_least, at_least_or_none, one_of, reject_unknown_options

SPEC = {'id': 'int(8)', 'words': 'utf8[]'}
ROWS = [{'id': number, 'words': ['x'] * (number % 3)} for number in range(6)]


@pytest.fixture(scope='module')
def made(kit, tmp_path_factory):
    return Path(kit.fill(tmp_path_factory.mktemp('arguments') / 'd', ROWS, SPEC, shard_length=4))


def test_integers():
    assert at_least('n', np.int16(3), 1) == at_least('n', 3.0, 3) == 3
    assert at_least('n', 5e9, 1) == 5_000_000_000
    assert at_least_or_none('n', None, 1) is None
    for wrong in ('3', 3.5, True, None, [3]):
        with pytest.raises(TypeError, match='n: expected an integer, got '):
            at_least('n', wrong, 1)
    with pytest.raises(ValueError, match='n: expected at least 1, got 0'):
        at_least('n', 0, 1)
    with pytest.raises(ValueError, match='n: expected at least 1 or None, got -1'):
        at_least_or_none('n', -1, 1)
    with pytest.raises(ValueError, match="n: expected 'a' or 'b', got 'c'"):
        one_of('n', 'c', ['a', 'b'])


RENAMED = {
    'shardsize': r'shard_size \(bytes\) or shard_length \(datapoints\)',
    'shardlen': r'shard_length \(datapoints\)',
    'shardstart': 'shard_start',
    'shardstep': 'shard_step',
    'shard_stop': 'shard_step',
}


OF_OTHERS = [
    (lambda d: bags.Loader(d, 4, num_workers=2), 'num_workers', 'workers'),
    (lambda d: bags.Loader(d, 4, persistent_workers=True), 'persistent_workers', 'epochs=None'),
    (
        lambda d: bags.Loader(d, 4, multiprocessing_context='spawn'),
        'multiprocessing_context',
        'processes=True',
    ),
    (lambda d: bags.Loader(d, 4, drop_last=True), 'drop_last', "last_batch='drop'"),
    (lambda d: bags.Loader(d, 4, collate_fn=list), 'collate_fn', 'collate'),
    (lambda d: bags.Loader(d, 4, num_replicas=2), 'num_replicas', 'world_size'),
    (lambda d: bags.consolidate(directory=d), 'directory', 'path'),
    (lambda d: bags.create_index(directory=d, field='x'), 'directory', 'path'),
    (lambda d: bags.export(d, d, overwrite=True), 'overwrite', "mode='overwrite'"),
    (lambda d: bags.statistics(d, num_workers=2), 'num_workers', 'workers'),
    (lambda d: bags.open(d, shard_stop=2), 'shard_stop', 'shard_step'),
    (lambda d: bags.copy(d, d, num_workers=2), 'num_workers', 'workers'),
]


@pytest.mark.parametrize(('call', 'option', 'ours'), OF_OTHERS)
def test_functions_advise_on_options_of_other_libraries(tmp_path, call, option, ours):
    with pytest.raises(TypeError, match=f"unexpected option '{option}': use {ours}"):
        call(tmp_path / 'd')
    with pytest.raises(TypeError, match=r"missing .* argument: 'path'"):
        bags.open(directory=tmp_path)


@pytest.mark.parametrize('function', [bags.Loader, bags.consolidate, bags.export, bags.open, bags.write])
def test_signatures_are_those_of_the_functions(function):
    parameters = inspect.signature(function).parameters
    assert next(iter(parameters)) in ('dataset', 'path', 'source')
    assert not {*parameters} & {'args', 'keywords', 'directory'}


@pytest.mark.parametrize('option', RENAMED)
def test_options_of_other_libraries_are_refused_with_the_name_of_ours(tmp_path, option):
    with pytest.raises(TypeError, match=f"unexpected option '{option}': use {RENAMED[option]}$"):
        bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, **{option: 1})
    assert not (tmp_path / 'd').exists()


def test_unknown_options_are_refused(tmp_path):
    for name, similar in {'shard_sise': 'shard_size', 'checksums': 'checksum', 'encoder': 'encoders'}.items():
        with pytest.raises(TypeError, match=f"unexpected option '{name}': did you mean '{similar}'"):
            bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, **{name: 1})
    assert not (tmp_path / 'd').exists()
    reject_unknown_options({'a': 1}, ['a', 'b'])
    with pytest.raises(TypeError, match=r"unexpected option 'c': expected one of a, b$"):
        reject_unknown_options({'a': 1, 'c': 1}, ['a', 'b'])
    with pytest.raises(TypeError, match=r"unexpected option 'shardstart': use shard_start$"):
        reject_unknown_options(['shardstart'], ['a', 'b'])


WRONG = {
    'cache_size': (lambda d, to: bags.open(d, cache=to, cache_size='1GB'), "integer or None, got '1GB'"),
    'cache_check': (lambda d, to: bags.open(d, cache=to, cache_check='no'), "'open' or 'never', got 'no'"),
    'cache': (lambda d, to: bags.open(d, cache=3), 'path of a folder or None, got 3'),
    'mapped': (lambda d, to: bags.open(d, mapped='no'), "expected True or False, got 'no'"),
    'filesystem': (lambda d, to: bags.open(d, filesystem=3), 'expected a file system of fsspec, got 3'),
    'max_record_size': (lambda d, to: bags.open(d, max_record_size='1GB'), "an integer, got '1GB'"),
    'max_value_size': (lambda d, to: bags.open(d, max_value_size='1GB'), "an integer, got '1GB'"),
    'shard_start': (lambda d, to: bags.open(d, shard_start='1'), "an integer, got '1'"),
    'shard_step': (lambda d, to: bags.ShardedDatasetWriter(to, SPEC, shard_step=0), 'at least 1, got 0'),
    'shard_length': (lambda d, to: bags.ShardedDatasetWriter(to, SPEC, shard_length='3'), "got '3'"),
    'encoders': (lambda d, to: bags.DatasetWriter(to, SPEC, [1]), r'a mapping of formats .* got \[1\]'),
    'write, shard_length': (lambda d, to: bags.write(ROWS, to, SPEC, shard_length='3'), "got '3'"),
    'write, shard_size': (lambda d, to: bags.write(ROWS, to, SPEC, shard_size='3GB'), "got '3GB'"),
    'write, workers': (lambda d, to: bags.write(ROWS, to, SPEC, workers='2'), "got '2'"),
    'write, compression': (lambda d, to: bags.write(ROWS, to, SPEC, compression=3), 'fields, .* got 3'),
    'copy, batch_size': (lambda d, to: bags.copy(d, to, batch_size='3'), "an integer, got '3'"),
    'copy, workers': (lambda d, to: bags.copy(d, to, workers='2'), "got '2'"),
    'copy, shard_length': (lambda d, to: bags.copy(d, to, shard_length='3'), "got '3'"),
    'copy, mode': (lambda d, to: bags.copy(d, to, mode='replace'), "'create' or 'overwrite', got 'replace'"),
    'from_numpy, resume': (lambda d, to: bags.from_numpy([1], to, resume='yes'), "True or False, got 'yes'"),
    'copy, on_error': (lambda d, to: bags.copy(d, to, on_error='x'), "'raise' or 'skip', got 'x'"),
    'copy, add': (lambda d, to: bags.copy(d, to, add='x'), "a mapping of fields .* got 'x'"),
    'convert, workers': (lambda d, to: bags.convert('.', to, workers='2'), "got '2'"),
    'convert, source': (lambda d, to: bags.convert(3, to), 'a path or several paths, got 3'),
    'convert, spec': (lambda d, to: bags.convert('.', to, spec='x'), "a mapping of fields .* got 'x'"),
    'export, shard_size': (lambda d, to: bags.export(d, to, shard_size='3'), "got '3'"),
    'export, format': (lambda d, to: bags.export(d, to, format='zip'), "'webdataset' or .*, got 'zip'"),
    'export, fields': (
        lambda d, to: bags.export(d, to, fields={'words': [0]}),
        r'as a whole, got items \[0\]',
    ),
    'from_numpy, shard_size': (lambda d, to: bags.from_numpy(np.arange(3), to, shard_size='3'), "got '3'"),
    'verify, workers': (lambda d, to: bags.verify(d, workers=0), 'at least 1 or None, got 0'),
    'windows, stride': (
        lambda d, to: bags.open(d).windows(every='words', stride='3', words=bags.steps(0, 1)),
        "an integer, got '3'",
    ),
    'zstd, level': (lambda d, to: bags.bag.CompressionZstd('3'), "an integer from .* got '3'"),
    'zstd, dictionary': (lambda d, to: bags.bag.CompressionZstd(3, 'x'), 'bytes or a buffer, got str'),
}


@pytest.mark.parametrize('what', WRONG)
def test_wrong_options_are_named(made, tmp_path, what):
    call, expected = WRONG[what]
    with pytest.raises((TypeError, ValueError), match=expected) as error:
        call(made, tmp_path / 'target')
    assert what.split(', ')[-1] in str(error.value)
    assert not (tmp_path / 'target').exists()


def _windows_of(path):
    with bags.open(path) as dataset:
        return len(dataset.windows(every='words', words=bags.steps(0, 1)))


TAKES = {
    'open': lambda path, to: len(bags.open(path)),
    'join': lambda path, to: len(bags.join([path, path], replace=True)),
    'fingerprint': lambda path, to: fingerprint(bags.open(path)),
    'windows': lambda path, to: _windows_of(path),
    'reader': lambda path, to: len(bags.ShardedDatasetReader(path)),
    'copy from': lambda path, to: bags.copy(path, to('copy')).datapoints,
    'export from': lambda path, to: bags.export(path, to('export')),
    'verify': lambda path, to: list(bags.verify(path, decode=True)),
    'recover': lambda path, to: [done.action for done in bags.recover(path)],
    'index': lambda path, to: bags.consolidate(path),
}
MAKES = {
    'writer': lambda path: bags.ShardedDatasetWriter(path, SPEC).close(),
    'folder writer': lambda path: bags.DatasetWriter(path, SPEC).close(),
    'write': lambda path: bags.write(ROWS, path, SPEC, workers=1),
    'copy': lambda path: bags.copy(bags.concat([bags.open(bags_at)]).select([2]), path),
    'from_numpy': lambda path: bags.from_numpy(np.arange(3), path),
}
KINDS = {
    'str': str,
    'path': Path,
    'url': lambda path: f'file://{path}',
    'url of fsspec': lambda path: f'local://{path}',
}
bags_at = None


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('what', TAKES)
def test_datasets_are_found_by_paths_of_any_kind(made, tmp_path, what, kind):
    wanted = TAKES[what](str(made), lambda name: str(tmp_path / f'{name}-a'))
    found = TAKES[what](KINDS[kind](made), lambda name: KINDS[kind](tmp_path / f'{name}-b'))
    assert found == wanted


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('what', MAKES)
def test_datasets_are_made_at_paths_of_any_kind(made, tmp_path, what, kind, monkeypatch):
    monkeypatch.setitem(globals(), 'bags_at', made)
    MAKES[what](KINDS[kind](tmp_path / 'target'))
    assert 'file:' not in os.listdir(tmp_path)
    assert len(bags.open(tmp_path / 'target')) == {'write': 6, 'copy': 1, 'from_numpy': 3}.get(what, 0)


@pytest.mark.parametrize('kind', KINDS)
def test_folders_and_tars_are_found_by_paths_of_any_kind(made, tmp_path, kind):
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'folder' / 'x.txt').write_text('x')
    at = KINDS[kind]
    assert bags.convert(at(tmp_path / 'folder'), at(tmp_path / 'd')).datapoints == 1
    bags.export(at(tmp_path / 'd'), at(tmp_path / 'tars'))
    assert bags.convert(at(tmp_path / 'tars'), at(tmp_path / 'e')).datapoints == 1
    tars = [at(tmp_path / 'tars' / '000000.tar')]
    assert bags.convert(tars, at(tmp_path / 'f')).datapoints == 1
    assert list(bags.open(tmp_path / 'f')) == list(bags.open(tmp_path / 'd'))


@pytest.mark.parametrize('kind', ['str', 'path'])
def test_caches_are_at_paths_of_any_kind(made, tmp_path, kind):
    with bags.open(f'local://{made}', cache=KINDS[kind](tmp_path / 'cache')) as dataset:
        assert bags.prefetch(dataset)
        assert list(dataset) == ROWS


@pytest.mark.parametrize('call', [bags.prefetch, bags.concat])
def test_paths_where_a_dataset_must_be_open(made, call):
    given = [str(made)] if call is bags.concat else str(made)
    with pytest.raises(TypeError, match=r'expected a dataset, got .*\(bags.open opens one\)'):
        call(given)


@pytest.mark.parametrize('call', [bags.open, bags.recover, bags.consolidate, bags.verify])
def test_invalid_paths(call):
    with pytest.raises(TypeError, match=r'expected a .*path.* got'):
        list(call(3))
