"""`bags edit`, `bags split` and `bags diff`, and renaming by `bags copy` and `bags import`."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bags

SPEC = {
    'id': 'int(8)', 'task': 'utf8', 'length': 'int', 'words': 'utf8[]', 'image': 'jpeg',
    'observation.x': 'bytes?',
}  # fmt: skip
COUNT = 10


def hashes(root):
    paths = [path for path in sorted(Path(root).rglob('*')) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A dataset in the working directory, which no command changes."""
    monkeypatch.chdir(tmp_path)
    with bags.ShardedDatasetWriter('source', SPEC, shard_length=4) as writer:
        for index in range(COUNT):
            image = np.random.default_rng(index).integers(0, 255, (32, 32, 3), np.uint8)
            writer.append(
                {
                    'id': index,
                    'task': 'test' if index % 2 else 'fold',
                    'length': index,
                    'words': ['a'] * index,
                    'image': image,
                    'observation.x': None if index == 3 else b'x' * index,
                }
            )
    before = hashes('source')
    yield 'source'
    assert hashes('source') == before


def ids(path):
    with bags.open(path) as dataset:
        return dataset.column('id').tolist()


def test_all_edits_together(run, source):
    (Path.cwd() / 'other.jpg').write_bytes(bags.encoders['jpeg'](np.zeros((8, 8, 3), np.uint8)))
    options = (
        '--drop', '4,-1', '--drop-field', 'length', '--rename', 'image=camera', '--rename', 'observation.x=x',
        '--set', '5:task=hold = still', '--set', '5:words=["b"]', '--set', '-2:observation.x=null',
        '--set', '6:image=@other.jpg', '--where', 'length > 2',
    )  # fmt: skip
    printed = run('edit', source, 'clean', *options, '--dry-run').output
    assert "5  task           'test'" in printed
    assert not Path('clean').exists()
    facts = json.loads(run('edit', source, 'clean', *options, '--json').output)
    assert facts['datapoints'] == 5
    assert facts['left_out'] == 5
    assert [change['row'] for change in facts['changes']] == [5, 5, 8, 6]
    with bags.open('clean') as clean, bags.open(source) as before:
        assert clean.column('id').tolist() == [3, 5, 6, 7, 8]
        assert list(clean.schema) == ['id', 'task', 'words', 'camera', 'x']
        assert (clean[1]['task'], clean[1]['words']) == ('hold = still', ['b'])
        assert clean[4]['x'] is None
        assert clean[2]['camera'].shape == (8, 8, 3)
        assert clean.records('camera')[3] == before.records('image')[7]
    assert Path('clean/000000/camera.links').exists()
    run('edit', source, 'whole', *options, '--copy')
    assert not Path('whole/000000/camera.links').exists()


CONDITIONS = {
    'length >= 3 and task == "test"': [3, 5, 7, 9],
    'not length < 7 or id in (0, 1)': [0, 1, 7, 8, 9],
    '2 < length <= 4': [3, 4],
    'len(words) == 2': [2],
    'len(observation.x) == 0': [0, 3],
    'task != "fold" and id not in [1, 3]': [5, 7, 9],
    '-length > -2': [0, 1],
    'fold and length > 5 or length in [3, 5]': [3, 5, 6, 8],
}


@pytest.mark.parametrize('condition', CONDITIONS)
def test_conditions(run, source, condition):
    run('edit', source, 'some', '--where', condition)
    assert ids('some') == CONDITIONS[condition]


REFUSED = [
    (['--drop', '10'], 1, 'no datapoint 10'),
    (['--drop', 'x'], 2, 'expected rows'),
    (['--drop-field', 'depth'], 2, "no field 'depth'"),
    (['--drop-field', ','.join(SPEC)], 1, 'at least one field to stay'),
    (['--rename', 'depth=x'], 2, "no field 'depth'"),
    (['--rename', 'image'], 2, 'expected OLD=NEW'),
    (['--rename', 'image=task'], 1, "both be 'task'"),
    (['--rename', 'image=Task'], 1, 'in more than case'),
    (['--rename', 'image=../x'], 1, 'a letter or _'),
    (['--set', '10:task=x'], 1, 'no datapoint 10'),
    (['--set', '1:depth=x'], 2, "no field 'depth'"),
    (['--set', 'task=x'], 2, 'expected ROW:FIELD=VALUE'),
    (['--set', '0:3:task=x'], 2, "no field '3:task'"),
    (['--set', '1:length=long'], 2, 'expected JSON or @FILE'),
    (['--set', '1:length="long"'], 1, 'expected an integer'),
    (['--set', '1:image=@none.jpg'], 1, 'no such file'),
    (['--where', 'depth > 3'], 2, "no field 'depth'"),
    (['--where', 'length >'], 2, 'expected a condition'),
    (['--where', 'print(length)'], 2, 'expected a condition'),
    (['--where', 'length.__class__ == 3'], 2, "no field 'length.__class__'"),
    (['--where', '1 < 2'], 2, '1 < 2 names no field'),
    (['--where', 'length > "a"'], 2, 'length is int: expected a number, got a'),
    (['--drop', 'image,task'], 2, '--drop-field image,task leaves out fields'),
]


@pytest.mark.parametrize(('options', 'code', 'message'), REFUSED)
def test_wrong_edits_write_nothing(run, source, options, code, message):
    assert message in run('edit', source, 'target', *options, code=code).output
    assert not Path('target').exists()


def test_a_dataset_without_large_records_is_copied(run, source):
    shown = run('edit', source, 'small', '--drop-field', 'image', '--drop', '0').output
    assert 'all records were copied: links are for fields' in shown
    facts = json.loads(run('edit', source, 'again', '--drop-field', 'image', '--json').output)
    assert 'all records were copied' in facts['notes'][0]
    assert ids('small') == [*range(1, COUNT)]
    assert not list(Path('small').glob('*/*.links'))
    assert 'links are for' not in run('edit', source, 'large', '--drop', '0').output


def test_a_comparison_by_index_names_the_option_for_keys(run, source):
    run('edit', source, 'fewer', '--drop', '0')
    assert '--on FIELD matches them by key' in run('diff', source, 'fewer').output
    assert '--on' not in run('diff', source, 'fewer', '--on', 'id').output
    assert run('diff', source, source).output.startswith('no difference in 10 datapoints')


def test_no_target(run, source):
    assert 'expected a target' in run('edit', source, '--drop', '1', code=2).output
    assert '9 datapoints' in run('edit', source, '--drop', '1', '--dry-run').output


def test_parts(run, source):
    line = ['split', source, 'parts', 'train=0.6', 'val=0.4']
    shown = run(*line, '--dry-run').output
    assert not Path('parts').exists()
    assert run(*line).output == f'{shown}to read it: --trust-links {source}\n'
    assert sorted(ids('parts/train') + ids('parts/val')) == list(range(COUNT))
    tasks = bags.open(source).unique('task').column('task')
    values = [f'a={tasks[0]}', 'b=...', '--by', 'task']
    facts = json.loads(run('split', source, 'tasks', *values, '--json').output)
    assert {row['task'] for row in bags.open('tasks/a', trust_links=source)} == {tasks[0]}
    assert sum(part['datapoints'] for part in facts.values()) == COUNT
    facts = json.loads(run('split', source, 'ids', 'a=1,3', 'b=...', '--by', 'id', '--json').output)
    assert [part['datapoints'] for part in facts.values()] == [2, COUNT - 2]
    assert 'not empty' in run(*line, code=1).output
    (Path.cwd() / 'new/b').mkdir(parents=True)
    (Path.cwd() / 'new/b/file').write_text('x')
    assert 'not empty' in run('split', source, 'new', 'a=0.5', 'b=0.5', code=1).output
    assert not Path('new/a').exists()


@pytest.mark.parametrize(
    ('shares', 'code', 'message'),
    [
        (['a=0.5'], 1, 'add up to 1'),
        (['a'], 2, 'expected the name of a folder'),
        (['a=x'], 2, 'expected NAME=SHARE as train=0.9, or --by and values as val=a,b train=..., got'),
        (['a=x', 'b=...', '--by', 'id'], 2, "a: expected integers of field 'id', got 'x'"),
        (['a=400', 'b=...', '--by', 'id'], 1, "expected values of field 'id', got '400'"),
        (['../a=1'], 2, 'the name of a folder'),
        (['a=1', '--by', 'depth'], 2, "no field 'depth'"),
        (['a=1', '--by', 'words'], 1, 'expected utf8'),
    ],
)
def test_wrong_parts_write_nothing(run, source, shares, code, message):
    assert message in run('split', source, 'parts', *shares, code=code).output
    assert not Path('parts').exists()


def test_differences(run, source):
    run('edit', source, 'clean', '--drop', '0', '--set', '3:task=x', '--rename', 'words=text')
    lines = run('diff', source, 'clean', '--on', 'id').output.splitlines()
    assert lines == [
        'words: utf8[] → no such field',
        'text: no such field → utf8[]',
        '1 datapoint removed: 0',
        'task: 1 datapoint changed: 3',
    ]
    facts = json.loads(run('diff', source, 'clean', '--on', 'id', '--json').output)
    assert facts['changed'] == {'task': [[3, 2]]}
    assert facts['removed'] == [0]
    assert run('diff', source, source).output == 'no difference in 10 datapoints\n'
    assert "no field 'depth'" in run('diff', source, 'clean', '--on', 'depth', code=1).output


def test_names_of_a_copy(run, source):
    run(
        'copy',
        source,
        'copy',
        '--fields',
        'id,image,task',
        '--drop-field',
        'task',
        '--rename',
        'image=camera',
    )
    with bags.open('copy') as copy, bags.open(source) as before:
        assert copy.spec == {'id': 'int(8)', 'camera': 'jpeg'}
        assert list(copy.records('camera')) == list(before.records('image'))
    assert "no field 'depth'" in run('copy', source, 'c', '--drop-field', 'depth', code=2).output
    assert "no field 'depth'" in run('copy', source, 'c', '--rename', 'depth=x', code=2).output


def test_names_of_an_import(run, work):
    line = [
        'import',
        'photos',
        'imported',
        '--drop-field',
        'json',
        '--rename',
        'jpg=image',
        '--rename',
        'cls=label',
    ]
    assert '  image' in run(*line, '--dry-run').output
    assert not Path('imported').exists()
    run(*line)
    with bags.open('imported') as imported:
        assert sorted(imported.spec) == ['__key__', 'image', 'label']
        assert imported.file(1, 'image').read() == Path('photos/1.jpg').read_bytes()
    run(*line, '--resume')
    run('import', 'photos', 'keys', '--rename', '__key__=key')
    run('import', 'photos', 'keys', '--rename', '__key__=key', '--resume')
    with bags.open('keys') as keys:
        assert keys.column('key') == ['0', '1', '2']
    assert "no field 'png'" in run('import', 'photos', 'x', '--rename', 'png=image', code=2).output
    assert not Path('x').exists()


def test_files_that_have_moved(run, source):
    run('edit', source, 'view', '--drop', '1')
    shutil.copytree(source, 'elsewhere')
    (Path('elsewhere/000001/image.bag')).rename('hidden')
    moved = f'{source}=elsewhere'
    assert (
        'elsewhere/000001/image.bag: expected a file of'
        in run('edit', 'view', 'new', '--relink', moved, code=1).output
    )
    data = bytearray(Path('hidden').read_bytes())
    data[0] ^= 1
    Path('elsewhere/000001/image.bag').write_bytes(data)
    assert 'has changed since it was linked' in run('edit', 'view', 'new', '--relink', moved, code=1).output
    output = run('edit', 'view', 'new', '--relink', 'x=y', code=1).output
    assert f'expected paths of linked files, which are in {Path(source).absolute()}; got x' in output
    assert 'expected OLD=NEW' in run('edit', 'view', 'new', '--relink', 'x', code=2).output
    assert not Path('new').exists()
    Path('hidden').replace('elsewhere/000001/image.bag')
    facts = json.loads(run('edit', 'view', 'new', '--relink', moved, '--set', '0:task=x', '--json').output)
    assert facts['datapoints'] == COUNT - 1
    Path(source).rename('away')
    with bags.open('new') as new, bags.open('elsewhere') as elsewhere:
        assert list(new.records('image')) == list(elsewhere.drop([1]).records('image'))
        assert new[0]['task'] == 'x'
    Path('away').rename(source)


def test_the_output_has_the_options_to_read_a_dataset_elsewhere(run, source):
    Path('away').mkdir()
    trusted = ['--trust-links', source]
    for command, *options in (('edit', '--drop', '0'), ('copy', '--link', 'image')):
        target = f'away/{command}'
        *_, last = run(command, source, target, *options).output.splitlines()
        assert last == f'to read it: {" ".join(trusted)}'
        assert '--trust-links' in run('show', target, '--rows', '3', code=1).output
        assert 'image' in run('show', target, '--rows', '3', *trusted).output
    facts = json.loads(run('split', source, 'away/parts', 'a=0.5', 'b=0.5', '--json').output)
    assert facts['a']['trust_links'] == [str(Path(source).absolute())]
    assert 'to read it' not in run('edit', source, 'beside', '--drop', '0').output


def test_values_by_the_names_of_classes(run, tmp_path):
    metadata = {'fields': {'label': {'classes': ['left', 'right']}}}
    with bags.DatasetWriter(tmp_path / 'd', {'label': 'int(1)'}, metadata=metadata) as writer:
        for _ in range(3):
            writer.append({'label': 0})
    run('edit', tmp_path / 'd', tmp_path / 'e', '--set', '1:label=right', '--set', '2:label=1')
    assert bags.open(tmp_path / 'e').column('label').tolist() == [0, 1, 1]
    failed = run('edit', tmp_path / 'd', tmp_path / 'f', '--set', '1:label=up', code=2)
    assert "field 'label' of type int(1): expected one of the classes left, right, got 'up'" in failed.output


def test_a_row_as_an_argument_names_the_option(run, source):
    assert 'too many arguments: 12; --rows 12 selects datapoints' in run('show', source, '12', code=2).output
    assert 'too many arguments: x (bags' in run('show', source, 'x', code=2).output


def test_conditions_on_values_inside_fields(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{'id': index, 'meta': {'score': index / 4, 'place': {'name': 'lab'}}} for index in range(4)]
    bags.write(rows, 'clips', {'id': 'int(8)', 'meta': 'json'})
    run('edit', 'clips', 'good', '--where', 'meta.score >= 0.5 and meta.place.name == lab')
    assert ids('good') == [2, 3]
    printed = run('edit', 'clips', 'none', '--where', 'meta.scroe > 0.5', code=1).stderr
    assert 'no datapoint has meta.scroe: meta has score, place' in printed
    assert not Path('none').exists()
