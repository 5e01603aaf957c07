"""`bags.write`: many workers write the same as one, also if a worker or the whole run is killed."""

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import numpy as np
import pytest

import bags
from tests.authoring import samples

ROWS = 200
WAYS = {
    'alone': {'workers': 1},
    'threads': {'workers': 3, 'processes': False},
    'processes': {'workers': 2, 'processes': True},
}


def expected(numbers):
    return [{**samples.datapoint(number), 'items': list(range(number % 5))} for number in numbers]


def check(path, numbers):
    found = [{**row, 'items': row['items'].tolist()} for row in bags.open(path)]
    assert found == expected(numbers)


@pytest.mark.parametrize('way', WAYS)
def test_what_workers_write_is_what_one_would(tmp_path, way):
    options = WAYS[way]
    done = bags.write(
        range(ROWS), tmp_path / 'd', samples.SPEC, transform=samples.uneven, shard_length=70,
        compression={'text': 'dictionary'}, **options,
    )  # fmt: skip
    assert (done.datapoints, done.shards) == (ROWS, 3)
    check(tmp_path / 'd', range(ROWS))
    again = bags.write(
        range(ROWS), tmp_path / 'd', samples.SPEC, transform=samples.uneven, resume=True, **options
    )
    assert again.datapoints == ROWS


@pytest.mark.parametrize('way', ['alone', 'threads'])
def test_inputs_of_every_kind(tmp_path, way):
    rows = [samples.datapoint(number) for number in range(ROWS)]
    options = WAYS[way]
    bags.write(rows, tmp_path / 'list', samples.SPEC, **options)
    check(tmp_path / 'list', range(ROWS))
    bags.write((row for row in rows), tmp_path / 'generator', samples.SPEC, **options)
    check(tmp_path / 'generator', range(ROWS))
    bags.write(bags.open(tmp_path / 'list')[::-1], tmp_path / 'view', samples.SPEC, **options)
    check(tmp_path / 'view', range(ROWS - 1, -1, -1))
    assert bags.write([], tmp_path / 'none', samples.SPEC, **options).datapoints == 0
    assert len(bags.open(tmp_path / 'none')) == 0


def test_datasets_are_read_by_the_workers(tmp_path):
    bags.write(range(50), tmp_path / 'd', samples.SPEC, transform=samples.datapoint, workers=1)
    bags.write(
        bags.open(tmp_path / 'd'),
        tmp_path / 'e',
        samples.SPEC,
        transform=samples.doubled,
        **WAYS['processes'],
    )
    assert [row['id'] for row in bags.open(tmp_path / 'e')] == list(range(0, 100, 2))


def test_files_that_encoders_return(tmp_path):
    for number in range(5):
        (tmp_path / f'{number}').write_bytes(bytes([number]) * 3000)
    encoders = {'film': lambda path: open(path, 'rb')}  # noqa: SIM115 - the writer closes it
    spec = {'one': 'film', 'more': 'film[]'}
    rows = [{'one': tmp_path / f'{number}', 'more': [tmp_path / '1'] * number} for number in range(5)]
    bags.write(rows, tmp_path / 'd', spec, encoders=encoders, workers=2)
    for number, row in enumerate(bags.open(tmp_path / 'd', {'film': bytes})):
        assert row == {'one': bytes([number]) * 3000, 'more': [b'\1' * 3000] * number}


@pytest.mark.parametrize('size', [2_000, 300_000])
def test_inputs_that_fill_pipes(tmp_path, size):
    rows = ({'blob': bytes([i % 256]) * size} for i in range(4_000_000 // size))
    bags.write(rows, tmp_path / 'd', {'blob': 'bytes'}, workers=2)
    with bags.open(tmp_path / 'd') as dataset:
        assert dataset.records('blob')[-1] == bytes([(len(dataset) - 1) % 256]) * size
        assert len(dataset) == 4_000_000 // size


@pytest.mark.parametrize('way', WAYS)
def test_links(tmp_path, way):
    spec = {'id': 'int(8)', 'blob': 'bytes', 'parts': 'bytes[]'}
    options = {'linked_fields': {'blob', 'parts'}, 'shard_length': 50, **WAYS[way]}
    every = bytes(range(256))
    (tmp_path / 'all').write_bytes(every)

    def row(number, part):
        blob = part(number, 3) if number % 3 else b'own'
        return {'id': number, 'blob': blob, 'parts': [part(number, 2), part(0, number % 5)][: number % 4]}

    rows = [row(n, lambda start, size: bags.Link(tmp_path / 'all', start, size)) for n in range(ROWS)]
    with pytest.raises(bags.EncodeError, match='blob'):
        bags.write(
            [*rows[:90], {'id': 90, 'blob': 5, 'parts': []}, *rows[91:]], tmp_path / 'd', spec, **options
        )
    done = bags.write(rows, tmp_path / 'd', spec, resume=True, check_source=False, **options)
    assert done.datapoints == ROWS
    names = sorted(path.name for path in (tmp_path / 'd/000001').glob('parts*'))
    assert names == ['parts.files', 'parts.links', 'parts.values']
    with bags.open(tmp_path / 'd', trust_links=tmp_path / 'all') as dataset:
        found = [{**each, 'parts': list(each['parts'])} for each in dataset]
    assert found == [row(n, lambda start, size: every[start : start + size]) for n in range(ROWS)]


def test_links_that_cannot_be_written(tmp_path):
    (tmp_path / 'all').write_bytes(bytes(9))
    spec, rows = {'a': 'bytes', 'b': 'bytes'}, [{'a': bags.Link(tmp_path / 'all'), 'b': b''}]
    with pytest.raises(bags.EncodeError, match=r"linked_fields=\('a',\)"):
        bags.write(rows, tmp_path / 'd', spec, linked_fields=['b'])
    with pytest.raises(ValueError, match=r'compression: .* not linked'):
        bags.write(rows, tmp_path / 'e', spec, linked_fields=['a'], compression=['a'])
    with pytest.raises(ValueError, match='linked_fields: expected no fields, got x: from_numpy'):
        bags.from_numpy({'x': np.arange(3)}, tmp_path / 'f', linked_fields=['x'])
    with pytest.raises(ValueError, match=r'linked_fields: .* link='):
        bags.copy(tmp_path / 'd', tmp_path / 'g', linked_fields=['a'])


@pytest.mark.parametrize('way', ['alone', 'threads', 'processes'])
def test_an_error_names_the_input_and_keeps_what_came_before(tmp_path, way):
    options = WAYS[way]
    with pytest.raises(ZeroDivisionError, match='seventy') as error:
        bags.write(range(ROWS), tmp_path / 'd', samples.SPEC, transform=samples.fails_at_70, **options)
    assert error.value.__notes__[0] == 'at input 70'
    assert [row['id'] for row in bags.open(tmp_path / 'd')] == list(range(70))
    with pytest.raises(bags.EncodeError, match="'id'"):
        bags.write([{'id': 'x'}] * 80, tmp_path / 'e', {'id': 'int'}, workers=2, processes=False)
    bags.write(range(ROWS), tmp_path / 'd', samples.SPEC, transform=samples.datapoint, resume=True, **options)
    check(tmp_path / 'd', range(ROWS))


@pytest.mark.slow
def test_a_worker_that_dies(tmp_path, monkeypatch):
    options = WAYS['processes']
    monkeypatch.setenv('BAGS_TEST_FLAG', str(tmp_path / 'flag'))
    bags.write(range(ROWS), tmp_path / 'd', samples.SPEC, transform=samples.dies_once_at_70, **options)
    assert (tmp_path / 'flag').exists()
    check(tmp_path / 'd', range(ROWS))
    with pytest.raises(RuntimeError, match=r'inputs? .*: 3 workers died of it, .*SIGKILL'):
        bags.write(range(ROWS), tmp_path / 'e', samples.SPEC, transform=samples.dies_at_70, **options)
    assert len(bags.open(tmp_path / 'e')) > 5
    bags.write(range(ROWS), tmp_path / 'e', samples.SPEC, transform=samples.datapoint, resume=True, **options)
    check(tmp_path / 'e', range(ROWS))


@pytest.mark.parametrize(
    ('inputs', 'changed'),
    [
        ([{'id': 1, 'text': 'one'}] * 5, [{'id': 1, 'text': 'one'}] * 2 + [{'id': 1, 'text': 'two'}] * 3),
        ([Path('a'), Path('b')], [Path('b'), Path('a')]),
        (['a', 'b'], ['a', 'c']),
        (range(3), range(1, 4)),
        (np.arange(3), np.arange(3, dtype=np.int32)),
        ([(1, np.zeros(3)), {'x': [b'1', None, 2.5]}], [(1, np.zeros(3)), {'x': [b'1', None, 2.6]}]),
    ],
    ids=['rows', 'paths', 'texts', 'ranges', 'arrays', 'trees'],
)
def test_other_inputs_of_the_same_number_are_refused(tmp_path, inputs, changed):
    calls = itertools.count()

    def fails(value):
        if next(calls) == 1:
            raise ZeroDivisionError
        return {'text': str(value)}

    def works(value):
        return {'text': str(value)}

    spec, options = {'text': 'utf8'}, {'workers': 1}
    with pytest.raises(ZeroDivisionError):
        bags.write(inputs, tmp_path / 'd', spec, transform=fails, **options)
    options['resume'] = True
    with pytest.raises(ValueError, match='the source is another one, or has changed since the earlier run'):
        bags.write(changed, tmp_path / 'd', spec, transform=works, **options)
    done = bags.write(changed, tmp_path / 'd', spec, transform=works, check_source=False, **options)
    assert done.datapoints == len(inputs)
    with bags.open(tmp_path / 'd') as dataset:
        assert [row['text'] for row in dataset] == [str(inputs[0]), *map(str, changed[1:])]


def test_inputs_that_are_no_plain_values_are_compared_by_number(tmp_path):
    def write(texts, **options):
        inputs = [types.SimpleNamespace(text=text) for text in texts]
        bags.write(inputs, tmp_path / 'd', {'text': 'utf8'}, transform=vars, workers=1, **options)

    with pytest.raises(bags.EncodeError):
        write(['a', 2])
    write(['b', 'c'], resume=True)
    with bags.open(tmp_path / 'd') as dataset:
        assert dataset.column('text') == ['a', 'c']


def test_what_cannot_be_written(tmp_path):
    rows = [samples.datapoint(0)]
    bags.write(rows, tmp_path / 'd', samples.SPEC)
    with pytest.raises(FileExistsError):
        bags.write(rows, tmp_path / 'd', samples.SPEC)
    with pytest.raises(ValueError, match=r'resume: expected the 1 inputs .* got 2. Resume with the first 1'):
        bags.write(rows * 2, tmp_path / 'd', samples.SPEC, resume=True)
    with pytest.raises(ValueError, match=r'expected the 1 inputs .* got only 0'):
        bags.write([], tmp_path / 'd', samples.SPEC, resume=True)
    with pytest.raises(ValueError, match='made from another source: expected length 1, got None'):
        bags.write(iter(rows), tmp_path / 'd', samples.SPEC, resume=True)
    assert bags.write(rows, tmp_path / 'd', samples.SPEC, resume=True).datapoints == 1
    with pytest.raises(ValueError, match='expected at least the 1 inputs'):
        bags.write(iter(()), tmp_path / 'g', samples.SPEC, resume=not _generator(tmp_path / 'g', rows))
    with pytest.raises(TypeError, match=r'transform: .* sent to other processes'):
        bags.write(rows, tmp_path / 'x', samples.SPEC, transform=lambda row: row, processes=True)
    with pytest.raises(TypeError, match='an iterable of inputs'):
        bags.write(3, tmp_path / 'x', samples.SPEC)
    with pytest.raises(ValueError, match='workers'):
        bags.write(rows, tmp_path / 'x', samples.SPEC, workers=0)
    with pytest.raises(bags.SpecError):
        bags.write(rows, tmp_path / 'x', {'id': 'nothing'})
    assert not (tmp_path / 'x').exists()


def _generator(path, rows):
    bags.write(iter(rows), path, samples.SPEC)
    return False


def test_functions_that_cannot_be_sent_run_in_threads(tmp_path):
    seen = set()
    bags.write(
        range(20), tmp_path / 'd', samples.SPEC, workers=2,
        transform=lambda number: seen.add(os.getpid()) or samples.datapoint(number),
    )  # fmt: skip
    check(tmp_path / 'd', range(20))
    assert seen == {os.getpid()}


STARTS_PROCESSES = {
    'write': 'bags.write(range(9), "made", {"id": "int"}, transform=transform, workers=2)',
    'in a function': 'bags.write(range(9), "made", {"id": "int"}, transform=transform, processes=True)',
    'loader': 'list(bags.Loader(bags.open("read"), 2, workers=1, processes=True, epochs=1))',
}


@pytest.mark.slow(all_but='-write')
@pytest.mark.parametrize('what', STARTS_PROCESSES)
@pytest.mark.parametrize(
    'guard', ['', '__name__ == "__main__"', 'multiprocessing.current_process().name == "MainProcess"']
)
def test_processes_started_by_an_unguarded_script(tmp_path, kit, monkeypatch, what, guard):
    monkeypatch.setenv('PYTHONPATH', str(kit.ROOT))
    with bags.DatasetWriter(tmp_path / 'read', {'id': 'int(4)'}) as writer:
        for number in range(4):
            writer.append({'id': number})
    call = f'def run():\n    {STARTS_PROCESSES[what]}\n{"run" if "function" in what else "(lambda: run())"}()'
    call = f'if {guard}:\n' + textwrap.indent(call, '    ') if guard else call
    (tmp_path / 'script.py').write_text(
        'import multiprocessing, pathlib, shutil\nimport bags\n'
        'pathlib.Path("runs").open("a").write("x")\nshutil.rmtree("kept", ignore_errors=True)\n'
        f'def transform(number):\n    return {{"id": number}}\n{call}\n'
    )
    done = subprocess.run(
        [sys.executable, 'script.py'], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    if guard:
        assert done.returncode == 0, done.stderr
        return
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r'RuntimeError: .*script.py, line \d+: expected `if __name__ == .__main__.:`', last)
    assert (tmp_path / 'runs').read_text() == 'x'
    assert not (tmp_path / 'made').exists()


def test_a_script_without_a_transform_uses_threads(tmp_path, kit, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', str(kit.ROOT))
    (tmp_path / 'script.py').write_text(
        'import bags\nbags.write([{"id": n} for n in range(9)], "made", {"id": "int"}, workers=2)\n'
    )
    subprocess.run([sys.executable, 'script.py'], cwd=tmp_path, check=True)
    assert len(bags.open(tmp_path / 'made')) == 9


KILLED = """
import os, sys, bags
from tests.authoring import samples
options = {{'processes': {processes}, 'workers': 2, 'shard_length': 60}}

def inputs(there):
    for number in range({rows}):
        if number == min(there + 8, {rows} - 1):
            print('at work', flush=True)
        if number == {rows} - 1 and 'hold' in sys.argv:
            sys.stdin.read()
        yield number

if __name__ == '__main__':
    there = len(bags.open(sys.argv[1])) if os.path.exists(sys.argv[1]) else 0
    bags.write(inputs(there), sys.argv[1], samples.SPEC, transform=samples.uneven, resume=True, **options)
"""


def kill_at_random(kit, tmp_path, times, seed, processes, rows):
    chance = random.Random(seed)
    code = KILLED.format(processes=processes, rows=rows)
    reached = [0]
    for _ in range(times):
        process = kit.python(code, tmp_path / 'd', 'hold', wait=False)
        process.stdout.readline()
        time.sleep(chance.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if (tmp_path / 'd' / '000000' / 'refs.bag').exists():
            reached.append(len(bags.open(tmp_path / 'd')))
    assert reached == sorted(reached)
    assert len(set(reached)) > times // 3
    assert reached[-1] < rows
    kit.python(code, tmp_path / 'd')
    check(tmp_path / 'd', range(rows))


def test_a_killed_write_resumes(kit, tmp_path):
    kill_at_random(kit, tmp_path, 2, 0, False, 600)


@pytest.mark.campaign
@pytest.mark.parametrize('processes', [True, False])
def test_killed_at_many_moments(kit, tmp_path, processes):
    kill_at_random(kit, tmp_path, 20, 1, processes, 6000)


class MapStyle:
    """A map-style dataset of PyTorch: without `__iter__`, and without an IndexError behind its end."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return samples.datapoint(index)


@pytest.mark.parametrize('options', [{'workers': 1}, {'workers': 2, 'processes': False}])
def test_a_map_style_dataset_is_read_by_its_length(options, tmp_path):
    done = bags.write(MapStyle(), tmp_path / 'x', samples.SPEC, **options)
    assert done.datapoints == 20
    with bags.open(tmp_path / 'x') as dataset:
        assert list(dataset.column('id')) == list(range(20))
    with pytest.raises(TypeError, match='a dataset or an iterable of inputs, got int'):
        bags.write(3, tmp_path / 'y', samples.SPEC)
