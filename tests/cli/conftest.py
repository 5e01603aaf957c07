"""A folder with datasets, a bag and files for commands to work on."""

import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer import testing

import bags
from bags.cli.app import build_app
from tests.interop.sources.manifests.manifests import write_lines, write_sound
from tests.interop.sources.tokens.files import write_megatron

# The runner builds the options of all commands for each call, which takes longer than most commands.
testing._get_command = functools.cache(testing._get_command)

SPEC = {
    'actions': 'array(float32,2)[]',
    'clip': 'mp4?',
    'id': 'int(8)',
    'image': 'jpeg(95)',
    'mask': 'rle',
    'meta': 'json',
    'sound': 'wav',
    'views': 'png[]',
    'words': 'utf8[]',
}
COUNT = 20


def row(index):
    chance = np.random.default_rng(index)
    return {
        'actions': [chance.random(2, np.float32) for _ in range(index % 5)],
        'clip': np.full((4, 16, 16, 3), index, np.uint8) if index % 4 == 0 else None,
        'id': index,
        'image': chance.integers(0, 255, (24, 32, 3), np.uint8),
        'mask': b'mask' * index,
        'meta': {'source': 'simulation', 'index': index},
        'sound': (np.zeros((800, 1), np.int16), 8000),
        'views': [chance.integers(0, 255, (4, 5, 3), np.uint8) for _ in range(index % 3)],
        'words': f'this is episode {index}'.split(),
    }


@pytest.fixture(scope='session')
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp('cli')
    encoders = {**bags.encoders, 'rle': bytes}
    options = {'shard_length': 5, 'compression': ['meta']}
    with bags.ShardedDatasetWriter(folder / 'episodes', SPEC, encoders, **options) as writer:
        for index in range(COUNT):
            writer.append(row(index))
    with bags.bag.Writer(folder / 'texts.bagz') as writer:
        for number in range(100):
            writer.write(f'text {number}')
    with bags.DatasetWriter(folder / 'dataset', {'jpg': 'jpeg', 'txt': 'utf8'}) as writer:
        for index in range(3):
            writer.append({'jpg': row(index)['image'], 'txt': f'picture {index}'})
    facts = {'fields': {'front': {'rate': 30}, 'joints': {'rate': 200}}}
    spec = {'front': 'mp4(30)[]', 'joints': 'array(float32,2)[]', 'sound': 'flac[]'}
    with bags.DatasetWriter(folder / 'recording', spec, metadata=facts) as writer:
        frames = np.full((8, 32, 32, 3), 100, np.uint8)
        sound = (np.zeros(1600, np.int16), 8000)
        writer.append({'front': [frames], 'joints': np.zeros((60, 2), np.float32), 'sound': [sound]})
    (folder / 'photos').mkdir()
    for index in range(3):
        image = bags.encoders['jpeg'](row(index)['image'])
        (folder / 'photos' / f'{index}.jpg').write_bytes(bytes(image))
        (folder / 'photos' / f'{index}.cls').write_text(str(index))
        (folder / 'photos' / f'{index}.json').write_text('{}')
    write_megatron(folder / 'web.bin', [[[1, 2, 3]], [[4]]])
    (folder / 'train.bin').write_bytes(np.array([1, 2, 50256, 3, 50256], 'u2').tobytes())
    write_sound(folder / 'corpus/a.wav')
    for name, part in (('corpus/train.jsonl', {}), ('nemo.json', {'offset': 0.5, 'duration': 0.25})):
        write_lines(folder / name, [{'audio_filepath': 'a.wav', 'text': 'hello', **part}])
    with bags.DatasetWriter(folder / 'tokens', {'tokens': 'array(uint16,?)'}) as writer:
        writer.append({'tokens': np.arange(4, dtype='u2')})
    return folder


@pytest.fixture
def work(made, tmp_path, monkeypatch):
    """A copy of the folder, as the working directory."""
    folder = shutil.copytree(made, tmp_path / 'work')
    (folder / 'facts.json').write_text('{"robot": "arm 7"}')
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope='session')
def app():
    """The command."""
    return build_app()


@pytest.fixture
def run(app):
    """Runs the command in this process; returns exit code, output and errors."""

    def run(*args, code=0):
        result = testing.CliRunner().invoke(app, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.exit_code, result.output)
        return result

    return run


@pytest.fixture
def run_line(app):
    """Runs a line as in a shell, in this process; returns exit code, output if not in a file, and errors."""

    def run_line(line):
        command, _, file = line.partition(' > ')
        name, *args = shlex.split(command)
        assert name == 'bags'
        result = testing.CliRunner().invoke(app, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if file:
            Path(file).write_bytes(result.stdout_bytes)
        stdout = '' if file else result.stdout
        return SimpleNamespace(code=result.exit_code, stdout=stdout, stderr=result.stderr)

    return run_line


@pytest.fixture
def environment():
    root = Path(bags.__file__).parent.parent
    return {**os.environ, 'PYTHONPATH': str(root), 'NO_COLOR': '1'}


@pytest.fixture
def spawn(environment):
    """Runs a shell command in which `bags` is the command, in a process of its own."""

    def spawn(line, check=True, **options):
        line = f'bags() {{ "{sys.executable}" -W error -m bags "$@"; }}\n{line}'
        done = subprocess.run(
            ['bash', '-c', line],
            env=environment,
            capture_output=True,
            check=False,
            timeout=60,
            **options,
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done

    return spawn
