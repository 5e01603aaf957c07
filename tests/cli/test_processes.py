"""The command as a process: pipes, interrupts, exit codes, terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import warnings

import pytest

import bags
from bags.cli import main


def test_cat_is_exact_in_a_pipe(work, spawn):
    with bags.open('episodes', raw=True) as dataset:
        record = dataset[7, 'image']['image']
    assert spawn('bags cat episodes 7 image').stdout == record
    assert spawn('bags cat episodes 7 image > x.jpg; cat x.jpg').stdout == record


def test_closed_pipe_exits_without_an_error(work, spawn):
    with bags.bag.Writer('large.bag') as writer:
        writer.write(bytes(1 << 24))
        for number in range(3000):
            writer.write(f'text {number}')
    for line in ('bags cat large.bag 0 | head -c 5', 'bags show large.bag --rows :3000 | head -n 2'):
        done = spawn(f'{line} > /dev/null; exit ${{PIPESTATUS[0]}}', check=False)
        assert (done.returncode, done.stderr) == (141, b'')


def test_exit_codes(work, spawn):
    assert spawn('bags info nowhere', check=False).returncode == 1
    assert spawn('bags info', check=False).returncode == 2


def test_ctrl_c(work, environment):
    with bags.bag.Writer('many.bag') as writer:
        for number in range(200_000):
            writer.write(f'text {number}')
    process = subprocess.Popen(
        [sys.executable, '-m', 'bags', 'show', 'many.bag', '--rows', ':'],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b'')


def in_terminal(command, environment, columns):
    """Runs a command with a terminal for its output; returns what it printed."""
    above, below = pty.openpty()
    environment = {**environment, 'COLUMNS': str(columns), 'TERM': 'xterm-256color'}
    process = subprocess.Popen(command, env=environment, stdout=below, stderr=below)
    os.close(below)
    shown = b''
    while True:
        try:
            part = os.read(above, 1 << 16)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(above)
    assert process.wait(timeout=60) == 0
    return shown.decode()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='the end of a terminal differs')
def test_on_a_terminal(work, environment):
    command = [sys.executable, '-m', 'bags', 'info', 'episodes']
    shown = in_terminal(command, environment, 80)
    assert '█' in shown
    assert '\x1b[3' not in shown  # NO_COLOR is set.
    colored = {name: value for name, value in environment.items() if name != 'NO_COLOR'}
    assert '\x1b[' in in_terminal(command, colored, 80)
    for columns in (60, 80, 120):
        lines = in_terminal(command, environment, columns).splitlines()
        assert max(len(line.split('\x1b')[0]) for line in lines) <= columns


@pytest.mark.slow
def test_ascii_output_without_unicode(work, spawn):
    for line in ('bags info episodes', 'bags show episodes'):
        assert spawn(f'PYTHONIOENCODING=ascii {line}').stdout.isascii()
    with bags.DatasetWriter('texts', {'text': 'utf8'}) as writer:
        writer.append({'text': '→漢é'})
    for encoding in ('ascii', 'latin-1', 'utf-8'):
        (line,) = (
            spawn(f'PYTHONIOENCODING={encoding} bags show texts --json').stdout.decode(encoding).splitlines()
        )
        assert json.loads(line)['fields'] == {'text': '→漢é'}
    assert '█' in spawn('PYTHONIOENCODING=utf-8 bags info episodes').stdout.decode()


def test_recover_after_a_kill(work, spawn, run):
    code = """
import os, sys, bags
writer = bags.ShardedDatasetWriter('killed', {'id': 'int(8)', 'words': 'utf8[]'}, shard_length=10)
for index in range(25):
    writer.append({'id': index, 'words': ['a'] * index})
writer.flush()
bag = bags.bag.Writer('killed.bag')
for index in range(25):
    bag.write('x' * index)
bag.flush()
os._exit(0)
"""
    spawn(f'"{sys.executable}" -c "$CODE"'.replace('"$CODE"', f"'{code.replace(chr(39), chr(34))}'"))
    with open('killed/000002/words.bag', 'ab') as file:
        file.write(b'half a record')
    shown = run('recover', 'killed').stdout
    assert '000002: closed, with 5 datapoints; dropped 13 bytes' in shown
    assert '2 parts closed already' in shown
    assert 'limits.refs.bag' not in os.listdir('killed/000002')
    with bags.open('killed') as dataset:
        assert [row['id'] for row in dataset] == list(range(25))
    assert 'closed already' in run('recover', 'killed').stdout
    assert 'closed, with 25 records' in run('recover', 'killed.bag').stdout
    assert not os.path.exists('limits.killed.bag')
    assert bags.bag.Reader('killed.bag')[24] == b'x' * 24


def test_recover_refuses_a_dataset_that_is_being_written(tmp_path, spawn):
    writer = bags.DatasetWriter(tmp_path / 'open', {'id': 'int(8)'})
    writer.append({'id': 1}, flush=True)
    done = spawn(f'bags recover {tmp_path}/open', check=False)
    assert done.returncode == 1
    assert b'another writer' in done.stderr
    writer.append({'id': 2})
    writer.close()
    assert len(bags.open(tmp_path / 'open')) == 2


def test_startup_imports_little(environment):
    code = 'import sys\nfrom bags.cli.app import build_app\nbuild_app()\nprint(*sys.modules)'
    loaded = subprocess.run(
        [sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {'numpy', 'rich.table', 'fsspec', 'PIL', 'av'} & set(loaded)


@pytest.mark.skipif(sys.platform != 'linux', reason='the end of a terminal differs')
def test_progress_bar_is_not_in_redirected_output(work, environment):
    line = f'"{sys.executable}" -m bags verify episodes --decode'
    shown = in_terminal(['bash', '-c', f'{line} > found.txt'], environment, 80)
    assert 'verifying' in shown
    with open('found.txt') as file:
        lines = file.read().splitlines()
    assert lines[-1] == 'episodes: no damage found'
    assert len(lines) == 5
    together = in_terminal(['bash', '-c', line], environment, 80)
    for each in lines:
        assert each.split(' ')[-1] in together


ESCAPES = 'f\x1b]52;c;cHduZWQ=\x07\x1b]0;pwned\x07\x9b31m'


@pytest.fixture
def hostile(tmp_path):
    """A dataset with control sequences of terminals in the name of a field, a text and a path of metadata."""
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)', 't': 'utf8'}) as writer:
        writer.append({'id': 1, 't': ESCAPES})
    (tmp_path / 'd' / 't.bag').rename(tmp_path / 'd' / f'{ESCAPES}.bag')
    (tmp_path / 'd' / 'spec.json').write_text(json.dumps({'id': 'int(8)', ESCAPES: 'utf8'}))
    return tmp_path / 'd'


@pytest.mark.parametrize(
    'line',
    ['info d', 'info d --json', 'show d', 'show d --json', 'edit d e --drop-field zz', 'edit d e --set 0:t=x',
     'edit d e --rename zz=y', 'edit d e --where t<2', 'split d s a=0.5 b=0.5 --by t', 'copy d c --fields zz',
     'create-index d zz', 'statistics d --fields zz', 'cat d 0 zz', 'diff d d --on zz', 'verify d',
     'export d x'],
)  # fmt: skip
def test_names_of_a_stranger_do_not_reach_the_terminal(hostile, line, monkeypatch, capfd):
    monkeypatch.chdir(hostile.parent)
    monkeypatch.setattr(sys, 'argv', ['bags', *line.split()])
    monkeypatch.setattr(warnings, 'formatwarning', warnings.formatwarning)  # Which the command replaces.
    with pytest.raises(SystemExit):
        main()
    shown = ''.join(capfd.readouterr())
    assert shown
    assert not {char for char in shown if (char < ' ' and char != '\n') or '\x7f' <= char <= '\x9f'}
