"""`bags copy --link`, and what `bags info` shows of its result."""

import json
import os

import pytest

import bags


@pytest.fixture
def source(tmp_path):
    with bags.DatasetWriter(tmp_path / 'base', {'id': 'int(8)', 'x': 'bytes', 'y': 'bytes'}) as writer:
        for index in range(10):
            writer.append({'id': index, 'x': bytes(1000), 'y': bytes(2000)})
    return str(tmp_path / 'base')


@pytest.mark.parametrize(('link', 'linked'), [('all', {'x', 'y'}), ('y', {'y'}), ('x, y', {'x', 'y'})])
def test_fields_are_linked(run, source, link, linked):
    run('copy', source, f'{source}-view', '--rows', '::3', '--link', link)
    names = os.listdir(f'{source}-view/000000')
    assert {name.partition('.')[0] for name in names if name.endswith('.links')} == linked
    assert [row['id'] for row in bags.open(f'{source}-view')] == [0, 3, 6, 9]
    sizes = [
        json.loads(run('info', path, '--json').output)['linked_bytes'] for path in (source, f'{source}-view')
    ]
    assert sizes == [0, sum({'x': 1000, 'y': 2000}[name] for name in linked) * 4]
    assert run('info', f'{source}-view').exit_code == 0


def test_another_field(run, source):
    assert "no field 'z'" in run('copy', source, f'{source}-view', '--link', 'z', code=2).output
