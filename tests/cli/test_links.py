"""`--trust-links`, of the commands that read records of datasets."""

import os

import numpy as np
import pytest

import bags


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """A dataset whose records are in a folder beside it."""
    raw, path = tmp_path / 'raw', tmp_path / 'linked'
    raw.mkdir()
    spec = {'clip': 'bytes', 'key': 'utf8', 'number': 'float(4)'}
    with bags.DatasetWriter(path, spec, linked_fields=list(spec)) as writer:
        for index in range(3):
            values = {
                'clip': b'clip' * 300,
                'key': f'key {index}'.encode(),
                'number': np.float32(index).tobytes(),
            }
            for name, data in values.items():
                (raw / f'{index}.{name}').write_bytes(data)
            writer.append({name: bags.Link(raw / f'{index}.{name}') for name in spec})
    monkeypatch.chdir(tmp_path)
    return path


COMMANDS = {
    'cat': ['cat', 'linked', '1', 'clip'],
    'copy': ['copy', 'linked', 'copied'],
    'create-index': ['create-index', 'linked', 'key'],
    'diff': ['diff', 'linked', 'other'],
    'edit': ['edit', 'linked', 'edited', '--where', 'number > 1'],
    'export': ['export', 'linked', 'tars'],
    'split': ['split', 'linked', 'parts', 'a=1', '--by', 'key', '--copy'],
    'statistics': ['statistics', 'linked'],
    'verify': ['verify', 'linked'],
}


@pytest.mark.parametrize('command', COMMANDS)
def test_commands_follow_links_that_are_permitted(linked, command, run):
    with bags.DatasetWriter('other', bags.open('linked').spec) as writer:
        for index in range(3):
            writer.append({'clip': b'another', 'key': f'key {index}', 'number': index})
    folder = linked.parent / 'raw'
    result = run(*COMMANDS[command], code=1)
    assert f'links to {folder / "0"}' in result.output or f'links to {folder / "1"}' in result.output
    assert f'--trust-links {folder} or BAGS_TRUST_LINKS={folder}' in result.output
    assert 'not permitted' in run(*COMMANDS[command], '--trust-links', 'elsewhere', code=1).output
    assert not [name for name in ('copied', 'edited', 'tars') if os.path.exists(name) and os.listdir(name)]
    run(*COMMANDS[command], '--trust-links', 'elsewhere', '--trust-links', 'raw')


def test_records_and_values_are_those_of_the_files(linked, run):
    assert run('cat', 'linked', '1', 'key', '--trust-links', 'raw').stdout == 'key 1'
    assert "'key 2'" in run('show', 'linked', '--rows', '2', '--trust-links', 'all').stdout
    assert 'not permitted' in run('show', 'linked', code=1).stderr
    run('copy', 'linked', 'whole', '--trust-links', 'all')
    assert [row['number'] for row in bags.open('whole')] == [0, 1, 2]
    assert bags.statistics('linked', trust_links='raw')['number'].max == 2
    assert bags.create_index('linked', 'key', trust_links=['raw']) == 3
    assert bags.open('linked', trust_links=True).find('key', 'key 2') == 2


def test_prefetch(linked, run):
    url = f'local://{linked.parent}'
    command = ['prefetch', f'{url}/linked', '--cache', 'cache']
    assert f'--trust-links {url}/raw' in run(*command, code=1).stderr
    run(*command, '--trust-links', f'{url}/raw')
    with bags.open(f'{url}/linked', cache='cache', trust_links=f'{url}/raw') as cached:
        assert cached[2]['key'] == 'key 2'


def test_no_prefix(linked, run):
    assert '--trust-links: expected paths' in run('verify', 'linked', '--trust-links', '', code=1).stderr
