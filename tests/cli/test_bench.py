"""`bags bench` measures a loader over a dataset, with threads and processes, local or remote."""

import json

import pytest

import bags
from bags.loader.bench import size_of
from tests.servers import WebServer

SHORT = '--seconds 0.05'


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv('COLUMNS', '300')  # A line is not wrapped.


def test_a_line_for_each_number_of_workers(work, run_line):
    done = run_line(f'bags bench episodes --fields id,image,words --batch 4 --workers 0,2 {SHORT}')
    assert done.code == 0
    head, none, threads, *rest = done.stdout.splitlines()
    assert head.split('  ')[0] == 'workers'
    for column in ('datapoints/s', 'replay', 'read', 'decode image', 'decode words', 'hand over', 'ready'):
        assert column in head
    assert 'decode id' not in head
    assert none.startswith('none ')
    assert threads.startswith('2 threads ')
    assert 'requests/s' not in head
    assert [line.partition(':')[0] for line in rest if 'The bottleneck is' in line] == ['none', '2 threads']


def test_json_has_the_attributes_of_timing(work, run_line):
    done = run_line(f'bags bench episodes --fields id,image --batch 4 --workers 0,1 --json {SHORT}')
    facts = json.loads(done.stdout)
    assert (facts['fields'], facts['batch_size'], facts['shuffle']) == (['id', 'image'], 4, 'all')
    assert [(run['workers'], run['processes']) for run in facts['runs']] == [(0, False), (1, False)]
    for run in facts['runs']:
        timing = run['timing']
        assert run['datapoints_per_second'] == pytest.approx(4 * timing['steps'] / timing['wall'])
        assert run['replayed_per_second'] > 0
        assert timing['bottleneck'] in ('read', 'decode', 'collate', 'hand over', 'training')
        assert list(timing['decode']) == ['image']


@pytest.mark.slow
def test_processes_are_runs_of_their_own(work, run_line):
    done = run_line(f'bags bench episodes --fields id --batch 4 --workers 0,1 --processes --json {SHORT}')
    runs = json.loads(done.stdout)['runs']
    assert [(run['workers'], run['processes']) for run in runs] == [(0, False), (1, False), (1, True)]
    assert runs[-1]['timing']['hand_over'] > 0


def test_a_remote_dataset_adds_requests(work, run_line, tmp_path):
    with bags.DatasetWriter(tmp_path / 'far', {'raw': 'bytes'}) as writer:
        for _ in range(20):
            writer.append({'raw': bytes(20_000)})
    with WebServer(tmp_path) as server:
        line = f'bags bench {server.url}/far --batch 4 --workers 2 --shuffle none'
        done = run_line(f'{line} {SHORT}')
        assert 'requests/s' in done.stdout
        run = json.loads(run_line(f'{line} --json {SHORT}').stdout)['runs'][0]
    assert run['timing']['requests'] > 0
    assert run['timing']['received_bytes'] > 20_000


@pytest.mark.parametrize('workers', ['x', '1,', '-1', '1.5'])
def test_other_numbers_of_workers_are_refused(work, run_line, workers):
    done = run_line(f'bags bench episodes --workers={workers}')
    assert done.code == 2
    assert 'expected numbers as 1,4,16' in done.stderr


def test_unknown_fields_are_refused(work, run_line):
    done = run_line('bags bench episodes --fields imag')
    assert done.code == 2
    assert 'perhaps image' in done.stderr


def test_replayed_batches_are_measured_in_bytes(work):
    with bags.open('episodes') as dataset:
        batch = dataset.batch(range(4), ('id', 'image', 'words', 'actions'))
        items = sum(dataset.lengths('actions')[:4])
        words = sum(len(word) for row in batch['words'] for word in row)
        assert size_of(batch) == 4 * 8 + 4 * 24 * 32 * 3 + words + items * 8 + 5 * 8
