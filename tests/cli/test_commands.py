"""What the commands print, as text and as JSON."""

import inspect
import json
import os
import re
import shutil
import typing

import numpy as np
import pytest

import bags
from bags.cli.app import build_app
from tests.interop.test_linking import make_photos

CREATED = {'import': 'dataset', 'export': 'photos'}
"""The folder that the examples of these commands create."""


def commands():
    return {info.name: info.callback for info in build_app().registered_commands}


def examples():
    for name, function in commands().items():
        if name in ('bench', 'push', 'view'):
            continue  # Of seconds, of a hub, endless: test_bench.py, test_push.py, test_view.py.
        for line in (function.__doc__ or '').splitlines():
            if line.strip().startswith('Example: '):
                yield name, line.strip().removeprefix('Example: ')


@pytest.mark.parametrize('name', sorted(commands()))
def test_help_has_an_example_and_json(name, run):
    shown = run(name, '--help').output
    assert f'Example: bags {name} ' in shown
    assert '--json' in shown
    assert not re.search(r'<(str|int|float|bool)\b', shown), 'types are words of Python'


@pytest.mark.parametrize(('name', 'line'), list(examples()), ids=lambda each: each)
def test_examples_run(name, line, work, run_line):
    assert line.startswith(f'bags {name} ')
    if name in CREATED:
        shutil.rmtree(CREATED[name])
    # The bucket of the examples is this folder.
    done = run_line(line.replace('s3://bucket/', f'local://{work}/'))
    assert done.code == 0
    if name == 'import' and '--dry-run' not in line:
        assert done.stderr.startswith('bags: read as ')
        assert done.stderr.count('\n') == 1
    else:
        assert done.stderr == ''


@pytest.fixture
def halves(tmp_path):
    """A folder whose files may be read in several ways, with a backup of an editor."""
    for name in ('audio/0.txt', 'audio/1.txt', 'text/0.json', 'text/1.json', 'text/1.json~'):
        (tmp_path / 'halves' / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'halves' / name).write_text('1')
    return tmp_path / 'halves'


def test_an_import_says_what_it_takes_files_for(halves, run_line):
    done = run_line(f'bags import {halves} {halves}-out')
    assert done.code == 1
    assert "layout='fields': 2 datapoints" in done.stderr
    assert '(--layout NAME)' in done.stderr
    done = run_line(f'bags import {halves} {halves}-out --layout fields')
    said = (
        "read as fields: 2 datapoints, a folder, prefix or suffix for each field; 1 left out: 'text/1.json~'"
    )
    assert (done.code, done.stderr) == (0, f'bags: {said}\n')
    assert 'read as' not in done.stdout
    done = run_line(f'bags import {halves} {halves}-out --resume --json')
    assert (done.code, json.loads(done.stdout)['datapoints']) == (0, 2)


def test_a_dry_run_shows_each_layout_that_fits(halves, run_line):
    done = run_line(f'bags import {halves} --dry-run')
    assert done.code == 0
    lines = done.stdout.splitlines()
    start = lines.index('layouts that fit:')
    found = [' '.join(line.split()).partition(', ')[0] for line in lines[start + 1 :]]
    wanted = ['classes 4', 'files 4', 'stems 4', 'fields 2', 'episodes 2']
    assert found == [f'--layout {each} datapoints' for each in wanted]
    assert any('may be read in several ways' in line for line in lines[:start])
    done = run_line(f'bags import {halves} --dry-run --json --layout fields')
    facts = json.loads(done.stdout)
    assert (facts['layout'], facts['datapoints']) == ('fields', 2)
    assert {'layout': 'fields', 'datapoints': 2} in facts['readings']


def keywords(function):
    names = set()
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        is_options = parameter.kind is parameter.VAR_KEYWORD
        found = typing.get_args(parameter.annotation)[0].__annotations__ if is_options else [parameter.name]
        names.update(found)
    return names


@pytest.mark.parametrize('name', sorted({*commands()} - {'bench', 'cat', 'edit', 'show', 'metadata'}))
def test_options_have_the_names_of_keywords(name):
    home = bags.Dataset if name in ('copy', 'diff', 'split') else bags
    names = {'copy': 'save', 'import': 'convert', 'create-index': 'create_index'}
    function = getattr(home, names.get(name, name))
    selection = {'rows', 'fields', 'drop_field', 'rename'}
    of_open = {'cache', 'cache_check', 'cache_size', 'trust_links'}
    only_here = {'json', 'dry_run', 'each', 'browser', 'export', 'with_data', 'copy'}
    only_here |= {'storage'}  # Another function: `bags.lerobot.export`.
    only_here |= {'bound', 'fail_on', 'fragment', 'scores'}  # One of `bounds=`; and a dataset of scores.
    parameters = inspect.signature(commands()[name]).parameters.values()
    options = {each.name for each in parameters if each.default is not each.empty}
    assert options - selection - of_open - only_here <= keywords(function)


def test_help_lists_all(run):
    shown = run('--help').output
    for name in (
        'append',
        'cat',
        'consolidate',
        'copy',
        'create-index',
        'diff',
        'edit',
        'info',
        'prefetch',
        'push',
        'recover',
        'show',
        'split',
        'verify',
    ):
        assert f' {name} ' in shown
    assert run('--version').output == f'bags {bags.__version__}\n'


def test_info(work, run):
    shown = run('info', 'episodes').output
    assert '20 datapoints in 4 shards' in shown
    lines = {line.split()[0]: line for line in shown.splitlines()[3:] if line}
    assert 'array(float32,2)[]' in lines['actions']
    assert '8 B' in lines['actions']
    assert lines['actions'].rstrip().endswith('4')
    assert '×' in lines['meta']
    assert 'Not closed' not in shown


def test_info_as_json(work, run):
    facts = json.loads(run('info', 'episodes', '--json').stdout)
    assert facts['kind'] == 'dataset'
    assert (facts['datapoints'], facts['shards'], facts['sampled_shards']) == (20, 4, 4)
    with bags.open('episodes') as dataset:
        assert facts['bytes'] == dataset.size
        assert {name: field['type'] for name, field in facts['fields'].items()} == dataset.spec
    fields = facts['fields']
    assert facts['refs_bytes'] + sum(field['bytes'] for field in fields.values()) == facts['bytes']
    assert fields['actions']['items']['max'] == 4
    assert fields['actions']['items']['count'] == 20
    assert sum(fields['actions']['items']['counts']) == 20
    assert (fields['id']['record_bytes']['min'], fields['id']['record_bytes']['max']) == (8, 8)
    assert (fields['clip']['missing'], fields['id']['missing']) == (15, 0)
    assert (fields['meta']['compressed'], fields['id']['compressed']) == (True, False)
    assert fields['id']['ratio'] is None


def test_info_of_bags(work, run):
    assert '100 records' in run('info', 'texts.bagz').output
    os.rename('texts.bagz', 'texts-00000-of-00001.bagz')
    facts = json.loads(run('info', 'texts@*.bagz', '--json').stdout)
    assert (facts['kind'], facts['records'], facts['bags'], facts['compressed']) == ('bag', 100, 1, True)


def test_info_of_an_empty_dataset(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with bags.DatasetWriter('empty', {'x': 'int(8)', 'y': 'utf8[]'}):
        pass
    assert '0 datapoints' in run('info', 'empty').output
    assert json.loads(run('info', 'empty', '--json').stdout)['fields']['x']['record_bytes'] is None
    run('show', 'empty')
    run('verify', 'empty', '--decode')


def test_show(work, run):
    shown = run('show', 'episodes', '--rows', '4').output
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert 'datapoint 4' in shown
    assert lines['id'].split() == ['id', '4']
    assert '4 items: float32 (2,) [' in lines['actions']
    assert 'MP4 16×16 h264, 4 frames' in lines['clip']
    assert 'JPEG 32×24 RGB' in lines['image']
    assert '8,000 Hz × 1, 0.1 s' in lines['sound']
    assert "'maskmaskmaskmask'" in lines['mask']
    assert "{'source': 'simulation', 'index': 4}" in lines['meta']
    assert "4 items: 'this'; 'is'" in lines['words']
    assert '1 item: PNG 5×4 RGB' in lines['views']


def test_show_ranges_and_fields(work, run):
    def ids(*args):
        lines = run('show', 'episodes', *args, '--fields', 'id', '--json').stdout.splitlines()
        return [json.loads(line)['fields']['id'] for line in lines]

    assert ids() == [0]
    assert ids('--rows', '-1') == [19]
    assert ids('--rows', '3:6') == [3, 4, 5]
    assert ids('--rows', '::5') == [0, 5, 10, 15]
    assert ids('--rows', '7,1:3,-2') == [7, 1, 2, 18]
    assert ids('--rows', '0:3') == [0, 1, 2]
    assert ids('--rows', '-2:') == [18, 19]
    assert ids('--rows', ':99') == list(range(20))
    assert run('show', 'texts.bagz', '--rows', '-1:').output.split(maxsplit=1) == ['99', "7 B 'text 99'\n"]
    shown = run('show', 'episodes', '--rows', '0', '-f', 'meta,id').output
    assert [line.split()[0] for line in shown.splitlines()] == ['datapoint', 'meta', 'id']


def test_show_as_json(work, run):
    line = json.loads(run('show', 'episodes', '--rows', '1', '--json').stdout)
    assert line['index'] == 1
    fields = line['fields']
    assert fields['clip'] is None
    assert fields['meta'] == {'source': 'simulation', 'index': 1}
    assert fields['words'] == ['this', 'is', 'episode', '1']
    assert fields['image']['format'] == 'JPEG'
    assert (fields['image']['width'], fields['image']['height']) == (32, 24)
    assert fields['actions'][0]['shape'] == [2]
    assert len(str(fields['actions'][0]['values'][0])) < 13


def test_save(work, run):
    run('show', 'episodes', '--rows', '8', '--save', 'out')
    assert sorted(os.listdir('out')) == [
        '000008.clip.mp4',
        '000008.image.jpg',
        '000008.mask.bin',
        '000008.sound.wav',
        '000008.views.0000.png',
        '000008.views.0001.png',
    ]
    with bags.open('episodes', raw=True) as dataset, open('out/000008.image.jpg', 'rb') as file:
        assert file.read() == dataset[8, 'image']['image']
    shown = run('show', 'episodes', '--rows', '8', '--save', 'out', code=1).stderr
    assert '000008' in shown
    assert 'exists' in shown


def test_cat(work, run):
    with bags.open('episodes', raw=True) as dataset:
        row = dataset[2]
    assert run('cat', 'episodes', '2', 'image').stdout_bytes == row['image']
    assert run('cat', 'episodes', '2', 'words[3]').stdout_bytes == row['words'][3]
    assert run('cat', 'episodes', '-18', 'words', '--item', '-1').stdout_bytes == row['words'][3]
    assert run('cat', 'episodes', '2', 'meta').stdout_bytes == row['meta']
    assert run('cat', 'texts.bagz', '-1').stdout_bytes == b'text 99'
    facts = json.loads(run('cat', 'episodes', '2', 'image', '--json').stdout)
    assert (facts['format'], facts['bytes']) == ('JPEG', len(row['image']))


@pytest.mark.parametrize(
    ('args', 'said'),
    [
        (['copy', 'texts.bagz', 'x'], 'expected a dataset, which is a folder, got a single bag'),
        (['export', 'photos', 'x'], 'no dataset here: expected spec.json, or shard folders 000000'),
        (['export', 'episodes', 'photos'], 'the folder is not empty; choose another place'),
        (['import', 'nowhere', 'x'], 'no such file or folder'),
        (['import', 'nowhere'], 'nowhere: no such file or folder'),
        (['info', 'nowhere'], 'nowhere: no such dataset or bag'),
        (['info', '.'], 'such as texts.bagz'),
        (['show', 'episodes', '--rows', '20'], 'no datapoint 20: there are 20'),
        (['cat', 'episodes', '0', 'words[9]'], '9'),
        (['cat', 'episodes', '1', 'clip'], 'has no value'),
        (['cat', 'texts.bagz', '100'], 'no record 100: there are 100'),
        (['verify', 'nowhere'], 'nowhere'),
        (['recover', 'nowhere'], 'nowhere'),
    ],
)
def test_errors_are_one_line(args, said, work, run):
    check_line(run(*args, code=1), said)


@pytest.mark.parametrize(
    ('args', 'said'),
    [
        (['show', 'episodes', '--rows', 'x'], 'expected rows'),
        (['show', 'episodes', '--fields', 'nope'], "no field 'nope'; the fields are actions, "),
        (['show', 'texts.bagz', '--fields', 'id'], 'a bag has no fields'),
        (['show', 'episodes', '--fields', ','], "no field in ','"),
        (['cat', 'episodes', '0'], 'expected a field: one of'),
        (['cat', 'episodes', '0', 'nope'], "no field 'nope'"),
        (['cat', 'episodes', '0', 'words'], 'expected an item'),
        (['cat', 'episodes', '0', 'id', '--item', '0'], 'expected no item'),
        (['copy', 'episodes', 'x', '--rows', '3:x'], 'a range as 10:20'),
        (['copy', 'episodes', 'x', '--fields', 'nope'], "no field 'nope'"),
        (['copy', 'episodes', 'x', '--compression', 'nope'], "no field 'nope'"),
        (['copy', 'episodes', 'x', '--compression', 'meta=fast'], "or 'dictionary', got 'fast'"),
        (['copy', 'episodes', 'x', '--compression', 'meta=99'], "or 'dictionary', got '99'"),
        (['copy', 'episodes', 'x', '--shard-size', 'many'], 'number of bytes'),
        (['export', 'episodes', 'x', '--fields', 'nope'], "no field 'nope'"),
        (['export', 'episodes', 'x', '--shard-size', '0'], 'at least one byte'),
        (['import', 'photos'], 'the dataset to create'),
        (['import', 'photos', 'x', '--spec', 'cls'], 'FIELD=TYPE'),
        (['import', 'photos', 'x', '--spec', 'cls=nope'], "field 'cls': expected a type of "),
        (['import', 'photos', 'x', '--compression', 'nope'], "no field 'nope'"),
        (['import', 'photos', 'x', '--shard-size', '0'], 'at least one byte'),
        (['import', 'photos', 'x', '--spec', 'nope=utf8'], "field 'nope': expected one of the fields"),
        (['prefetch', 'episodes', '--cache', 'x', '--cache-size', 'many'], 'number of bytes'),
    ],
)
def test_invalid_arguments_are_one_line(args, said, work, run):
    check_line(run(*args, code=2), said)
    assert not os.path.exists('x')


def check_line(result, said):
    assert said in result.stderr
    assert result.stderr.startswith('bags: ')
    assert result.stderr.count('\n') == 1
    assert not result.stdout


@pytest.mark.parametrize(
    'args',
    [
        ['show'],
        ['info', 'x', '--what'],
        ['what'],
        ['show', 'x', '--what'],
        ['show', 'episodes', '0'],
        ['cat', 'episodes', 'x', 'id'],
        ['export', 'episodes', 'x', '--format', 'zip'],
        ['import', 'photos', 'x', '--layout', 'nope'],
        ['import', 'photos', 'x', '--workers', '0'],
        ['import', 'photos', 'x', '--shard-length', '0'],
        ['copy', 'episodes', 'x', '--workers', '0'],
        ['prefetch', 'episodes', '--cache', 'x', '--mode', 'nope'],
    ],
)
def test_usage_errors_exit_with_2(args, work, run):
    run(*args, code=2)


def test_damaged_files_are_named_with_advice(work, run):
    with open(os.path.join('photos', '1.jpg'), 'r+b') as file:
        file.truncate(100)
    assert '1.jpg: JPEG is cut off' in run('import', 'photos', 'taken', code=1).stderr
    said = run('import', 'photos', 'taken', '--resume', code=1).stderr
    assert said.endswith('(--resume --on-error skip continues without it)\n')
    shown = run('import', 'photos', 'taken', '--resume', '--on-error', 'skip').stdout
    assert '2 datapoints, from stems' in shown
    assert '1 left out:' in shown
    run('export', 'episodes', 'tars')
    os.truncate(os.path.join('tars', '000000.tar'), 5000)
    said = run('import', 'tars', 'x', code=1).stderr
    assert '000000.tar: ' in said
    assert said.endswith('(--on-error skip imports the datapoints before the damage)\n')


def test_control_characters_in_names_of_files_are_escaped(work, run):
    for kind in ('cls', 'jpg', 'json'):
        os.rename(os.path.join('photos', f'1.{kind}'), os.path.join('photos', f'1\x1b[31m.{kind}'))
    os.truncate(os.path.join('photos', '1\x1b[31m.jpg'), 100)
    shown = run('import', 'photos', 'taken', '--on-error', 'skip').stdout
    assert '1\\x1b[31m.jpg' in shown
    assert '\x1b' not in shown


def test_verify(work, run):
    assert run('verify', 'episodes', '--decode').stdout.endswith('no damage found\n')
    path = os.path.join('episodes', '000001', 'views.bag')
    with open(path, 'r+b') as file:
        file.seek(40)
        file.write(b'x')
    run('verify', 'episodes')
    shown = run('verify', 'episodes', '--decode', code=1).stdout
    assert f"{path}, field 'views', record 0: " in shown
    assert 'PNG chunk' in shown
    found = json.loads(run('verify', 'episodes', '--decode', '--json', code=1).stdout)
    assert (found['ok'], found['decoded'], len(found['damage'])) == (False, True, 1)
    assert (found['damage'][0]['field'], found['damage'][0]['record']) == ('views', 0)
    assert {note['field'] for note in found['notes']} == {'mask'}


def test_create_index(work, run):
    count = len(bags.open('episodes'))
    assert json.loads(run('create-index', 'episodes', 'id', '--json').stdout) == {
        'path': 'episodes', 'field': 'id', 'keys': count
    }  # fmt: skip
    assert run('create-index', 'episodes', 'id').stdout == f'episodes: indexed {count} keys of id\n'
    dataset = bags.open('episodes')
    assert dataset.find('id', dataset[7, 'id']['id']) == 7
    assert 'no field' in run('create-index', 'episodes', 'nope', code=2).stderr
    assert 'expected keys' in run('create-index', 'episodes', 'words', code=1).stderr


def test_consolidate_and_prefetch(work, run):
    assert json.loads(run('consolidate', 'episodes', '--json').stdout) == {'path': 'episodes', 'shards': 4}
    assert os.path.exists('episodes/shards.json')
    for name in ('info', 'verify'):
        run(name, 'episodes')
    url = f'local://{work}/episodes'
    found = json.loads(
        run('prefetch', url, '--cache', 'cache', '--rows', ':5', '--fields', 'id', '--json').stdout
    )
    assert 0 < found['bytes'] < json.loads(run('info', url, '--json').stdout)['bytes']
    for args, said in ((('--rows', 'x'), 'expected rows'), (('--fields', 'nope'), "no field 'nope'")):
        check_line(run('prefetch', url, '--cache', 'x', *args, code=2), said)
    check_line(run('prefetch', 'episodes', '--cache', 'x', code=1), 'cache: has no effect on a local path')


def test_copy(work, run):
    done = json.loads(
        run(
            'copy', 'episodes', 'half', '--rows', '::2', '-f', 'id,meta', '--shard-length', '4', '--json'
        ).stdout
    )
    assert (done['datapoints'], done['shards'], done['skipped']) == (10, 3, [])
    with bags.open('half') as dataset:
        assert list(dataset.spec) == ['id', 'meta']
        assert [row['id'] for row in dataset] == list(range(0, 20, 2))
    run('copy', 'episodes', 'packed', '--compression', 'words=19,id', '--shard-size', '1.5MB')
    assert os.path.exists('packed/000000/words.bagz')
    assert os.path.exists('packed/000000/meta.bag')
    assert '(--resume appends' in run('copy', 'episodes', 'half', code=1).stderr
    refused = run('copy', 'episodes', 'half', '--resume', '--mode', 'overwrite', code=1).stderr
    assert "expected 'create' with --resume, got 'overwrite'" in refused
    assert not os.path.exists('x')
    with open('episodes/000000/meta.bagz', 'r+b') as file:
        file.write(b'xxxx')
    assert 'meta.bagz' in run('copy', 'episodes', 'y', '--compression', 'id', code=1).stderr
    assert 'left out: datapoint 0' in run('copy', 'episodes', 'z', '--on-error', 'skip').stdout


def test_copies_and_imports_have_the_options_of_writers(work, run):
    run('copy', 'episodes', 'checked', '--checksum', '--workers', '1')
    assert bags.info('checked').checksums
    run('copy', 'checked', 'again')
    assert bags.info('again').checksums
    run('copy', 'checked', 'plain', '--no-checksum')
    assert not bags.info('plain').checksums
    run('import', 'photos', 'taken', '--checksum', '--compression', 'json', '--shard-length', '2')
    found = bags.info('taken')
    assert (found.checksums, found.shards) == (True, 2)
    assert [name for name, each in found.fields.items() if each.compressed] == ['json']
    run('import', 'photos', 'small', '--shard-size', '1B')
    assert bags.info('small').shards == 3


def test_show_prints_damage_in_its_field(work, run):
    path = os.path.join('episodes', '000000', 'meta.bagz')
    with open(path, 'r+b') as file:
        file.write(b'xxxx')
    shown = run('show', 'episodes', '--rows', '0').output
    assert 'CorruptError' in shown
    assert 'JPEG' in shown
    assert 'zstd' in run('cat', 'episodes', '0', 'meta', code=1).stderr


def test_show_a_picture_with_a_damaged_header(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture = bytearray(bags.encoders['jpeg'](np.zeros((4, 4, 3), np.uint8)))
    picture[3:5] = b'xx'
    with bags.DatasetWriter('photos', {'photo': 'jpeg'}) as writer:
        writer.append({'photo': bytes(picture)})
    assert 'cannot be read: ValueError: damaged header\n' in run('show', 'photos').stdout


def test_control_characters_are_escaped(tmp_path, run):
    with bags.DatasetWriter(tmp_path / 'x', {'text': 'utf8', 'blob': 'bytes'}) as writer:
        writer.append({'text': '[bold]red[/bold]\x1b[31m', 'blob': b'[red]'})
        writer.append({'text': '', 'blob': b'two\nlines\n'})
    shown = run('show', tmp_path / 'x').output
    assert '[bold]red[/bold]' in shown
    assert '[red]' in shown
    assert '\x1b' not in shown
    assert r"'two\nlines\n'" in run('show', tmp_path / 'x', '--rows', '1').output


def test_overwrite_and_metadata(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = {'robot': 'arm 7', 'notes': 'x' * 500, 'fields': {'id': {'rate': 50}}}
    with bags.DatasetWriter('x', {'id': 'int(8)'}, metadata=facts) as writer:
        for index in range(5):
            writer.append({'id': index})
    run('copy', 'x', 'y')
    run('copy', 'x', 'y', '--rows', ':2', code=1)
    run('copy', 'x', 'y', '--rows', ':2', '--mode', 'overwrite')
    lines = run('info', 'y').stdout.splitlines()
    assert '2 datapoints in 1 shard' in lines[1]
    assert any(line.split() == ['robot', '"arm', '7"'] for line in lines)
    assert any(line.split() == ['id.rate', '50'] for line in lines)
    assert max(map(len, lines)) < 200
    run('export', 'x', 'out')
    run('import', 'out', 'y', '--mode', 'overwrite')
    assert bags.open('y').metadata['robot'] == 'arm 7'
    assert 'min  median' in run('statistics', 'x', '--fields', 'id').stdout
    assert run('statistics', 'x', '--fields', 'nope', code=2)


def test_statistics_of_wide_values(tmp_path, run):
    with bags.DatasetWriter(tmp_path / 'a', {'state': 'array(float32,20)', 'id': 'int(8)'}) as writer:
        for index in range(5):
            writer.append({'state': np.arange(20, dtype=np.float32) + index, 'id': index})
    _, _, *lines, hint = run('statistics', tmp_path / 'a').stdout.splitlines()
    assert [line.split()[0] for line in lines] == ['state[20]', 'id']
    assert '--each' in hint
    _, _, *lines = run('statistics', tmp_path / 'a', '--each').stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*(f'state[{number}]' for number in range(20)), 'id']
    assert len(json.loads(run('statistics', tmp_path / 'a', '--json').stdout)['state']['mean']) == 20


def test_statistics_without_values_as_json(tmp_path, run):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'float(4)?'}) as writer:
        writer.append({'x': None})
    assert json.loads(run('statistics', str(tmp_path / 'a'), '--json').stdout)['x']['mean'] == 'nan'


def test_times_and_complex_numbers_are_shown(run, tmp_path):
    with bags.DatasetWriter(
        tmp_path / 'd', {'t': 'array(datetime64[us])', 'c': 'array(complex64,1)'}
    ) as writer:
        writer.append({'t': np.datetime64('2024-01-02T03:04:05', 'us'), 'c': np.full(1, 1 + 2j, 'c8')})
    output = run('show', tmp_path / 'd', '--rows', '0').output
    assert '2024-01-02T03:04:05' in output
    assert '1.+2.j' in output
    output = run('show', tmp_path / 'd', '--rows', '0', '--json').output
    assert '"2024-01-02T03:04:05.000000"' in output
    assert '(1+2j)' in output


def test_an_export_is_replaced_and_notes_of_an_import_are_printed(work, run):
    run('export', 'dataset', 'tars')
    check_line(run('export', 'dataset', 'tars', code=1), 'the folder is not empty')
    check_line(run('export', 'dataset', 'tars', '--resume', code=1), 'holds no unfinished export to resume')
    run('export', 'dataset', 'tars', '--mode', 'overwrite', '--durability', 'none')
    (work / 'tars/README.md').write_text('# Mine')
    assert "left out: 'README.md'" in run('import', 'tars', 'again').stdout
    (work / 'tars/.unfinished-export.json').write_text('{}')
    check_line(run('import', 'tars', 'other', code=1), 'is an unfinished export')
    refused = '--resume continues it, --mode overwrite replaces it'
    check_line(run('export', 'dataset', 'tars', code=1), refused)


def test_an_export_in_bags_for_lerobot(work, run):
    with bags.DatasetWriter('arm', {'state': 'float(4)[]', 'task': 'utf8'}, metadata={'fps': 10}) as writer:
        writer.append({'state': [1, 2, 3], 'task': 'wave'})
    refused = '--storage bags: expected --format lerobot, without --key, --resume, --mode or --every'
    assert refused in run('export', 'arm', 'out', '--storage', 'bags', code=2).stderr
    run('export', 'arm', 'out', '--format', 'lerobot', '--storage', 'bags')
    info = json.loads((work / 'out/meta/info.json').read_text())
    assert (info['storage_format'], info['total_frames']) == ('bags', 3)
    assert bags.open(work / 'out/bags')[0]['task'] == 'wave'


def test_a_recording_is_sampled_for_lerobot(work, run):
    options = ('--format', 'lerobot', '--every', 'front', '--fps', '15', '--fill', 'linear', '--gap', '0.1')
    shown = run('export', 'recording', 'out', *options).output
    assert "field 'sound' is left out: LeRobot has no sound" in shown
    assert "field 'front': encoded in 1 of 1 episodes; of 8 frames, 0 are repeated and 4 left out" in shown
    assert json.loads((work / 'out/meta/info.json').read_text())['fps'] == 15
    assert "'lerobot'" in run('export', 'recording', 'tars', '--every', 'front', code=1).stderr


def test_files_are_linked(run, tmp_path):
    make_photos(tmp_path / 'photos', range(3))
    shown = run('import', tmp_path / 'photos', tmp_path / 'index', '--link').output
    assert f"readers permit them by trust_links=['{tmp_path}/photos']" in shown
    make_photos(tmp_path / 'photos', (30,))
    shown = run('import', tmp_path / 'photos', tmp_path / 'index', '--link', '--update').output
    assert '4 datapoints' in shown


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('info --jsn episodes', 'info: no option --jsn; did you mean --json? (bags info -h)'),
        ('info --zzz episodes', 'info: no option --zzz (bags info -h)'),
        ('copy episodes', 'copy: TARGET is missing (bags copy -h)'),
        ('info a b', 'info: too many arguments: b (bags info -h)'),
        (
            'copy a b --mode new',
            "copy: --mode: expected one of 'create', 'overwrite', got 'new' (bags copy -h)",
        ),
        ('statistics a --samples 0', 'statistics: --samples: expected at least 1 (bags statistics -h)'),
        ('statistics a --samples x', 'statistics: --samples: expected an integer (bags statistics -h)'),
        ('show a --links b', 'show: no option --links: use --trust-links (bags show -h)'),
        ('cat a 0 f --links b', 'cat: no option --links: use --trust-links (bags cat -h)'),
        ('info a --links b', 'info: no option --links (bags info -h)'),
        ('statistics a --again', 'statistics: no option --again: use --recompute (bags statistics -h)'),
        ('nothing', 'no command nothing (bags -h)'),
        ('inf', 'no command inf; did you mean info? (bags -h)'),
    ],
)
def test_a_wrong_command_line_is_an_error_of_one_line(line, message, run):
    assert run(*line.split(), code=2).stderr == f'bags: {message}\n'


def test_an_import_of_nothing(work, run):
    assert run('import', 'nope', 'out', code=1).stderr == 'bags: nope: no such file or folder\n'
    assert run('import', 'photos', 'out', '--format', 'zip', code=2).stderr.startswith(
        'bags: --format: expected'
    )


@pytest.mark.parametrize('width', [60, 80, 140])
def test_tables_fit_the_terminal_and_fold_no_names(tmp_path, run, monkeypatch, width):
    name = 'observation.images.a_very_long_name_of_a_camera'
    spec = {name: 'utf8', 'state': 'array(float32,14)[]', 'number': 'float'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for count in range(3):
            state = np.full((100 + count, 14), count, np.float32)
            writer.append({name: 'word ' * 100 * (1 + count), 'state': state, 'number': count / 7})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', str(width))
    for command, shown in {
        'info': 'array(float32,14)[]',
        'show': '100 items',
        'statistics': '0.1429',
    }.items():
        lines = run(command, 'x').stdout.splitlines()
        assert [line for line in lines if len(line) > width and not line.startswith('All elements')] == []
        assert any(shown in line for line in lines), lines
        assert any(line.split()[:1] == [name] for line in lines) or command == 'statistics', lines


def test_columns_without_a_place_are_on_a_line_below(tmp_path, run, monkeypatch):
    spec = {'some_name_of_a_field': 'array(float32,14)[]'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for count in range(100, 500, 100):
            writer.append({'some_name_of_a_field': np.zeros((count, 14), np.float32)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', '60')
    assert run('info', 'x').stdout.splitlines()[3:] == [
        'field                 type                   bytes',
        '  bytes a record  items',
        'some_name_of_a_field  array(float32,14)[]  64.0 kB',
        '  56 B            100 █ █  █ █ 400',
        '(refs)                                        80 B',
    ]
