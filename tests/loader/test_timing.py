"""`loader.timing` tells where the time of a loop goes, and which option makes it faster."""

import functools
import time

import numpy as np
import pytest

import bags
from tests.loader.samples import COUNT
from tests.servers import WebServer


class SlowServer(WebServer):
    """A web server that answers after 30 ms."""

    def serve(self, handler):
        time.sleep(0.03)
        super().serve(handler)


def measured(test):
    """Repeats a test of proportions of time up to 4 times, in case another process took the processor."""

    @functools.wraps(test)
    def repeated(*args, **options):
        for _ in range(4):
            try:
                return test(*args, **options)
            except AssertionError:
                pass
        return test(*args, **options)

    return repeated


def transforms(batch):
    time.sleep(0.03)
    return batch


def collates(batch):
    time.sleep(0.03)
    return batch


def moves(batch):
    time.sleep(0.03)
    return batch


def grows(batch):
    return {**batch, 'wide': np.zeros(4_000_000)}


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp('timing') / 'images'
    pixels = np.random.default_rng(0).integers(0, 255, (640, 640, 3), np.uint8)
    with bags.DatasetWriter(path, {'image': 'jpeg', 'raw': 'bytes', 'label': 'int(8)'}) as writer:
        for index in range(32):
            writer.append({'image': pixels, 'raw': bytes(20_000), 'label': index})
    return path


@pytest.fixture
def server(files):
    with SlowServer(files.parent) as server:
        yield server


def run(loader, training=0.0):
    for _ in loader:
        time.sleep(training)
    return loader.timing


def loader_of(files, stage, server, **options):
    """Returns a loader most of whose time goes into one stage."""
    if stage == 'read':
        remote = bags.open(f'{server.url}/images')
        return bags.Loader(remote, 4, fields='raw', timing=True, **options)
    if stage == 'decode':
        return bags.Loader(bags.open(files), 4, fields=('image', 'label'), timing=True, **options)
    functions = {
        'transform': {'transform': transforms},
        'collate': {'collate': collates},
        'hand over': {'to_device': moves},
        'training': {},
    }
    return bags.Loader(
        bags.open(files), 4, fields=('raw', 'label'), timing=True, **functions[stage], **options
    )


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('stage', ['read', 'decode', 'transform', 'collate', 'hand over', 'training'])
@measured
def test_the_bottleneck_is_named_with_an_option(files, server, stage, workers):
    loader = loader_of(files, stage, server, workers=workers)
    timing = run(loader, 0.03 if stage == 'training' else 0.0)
    assert timing.bottleneck == stage, timing
    assert timing.steps == 8
    if stage == 'training':
        assert timing.training > timing.waited
        assert 'the loader keeps up' in timing.advice
    else:
        assert timing.waited > 0.8 * timing.wall
        assert timing.stages[stage] > sum(timing.stages.values()) / 2
        expected = 'to_device' if stage == 'hand over' else 'workers=' if not workers else '='
        assert expected in timing.advice or 'processors are busy' in timing.advice
    assert stage in timing.advice
    assert timing.advice in str(timing)


@pytest.mark.parametrize('options', [{'workers': 0}, {'workers': 3}])
@measured
def test_waiting_and_training_are_all_the_time(files, options):
    loader = bags.Loader(bags.open(files), 4, transform=transforms, timing=True, **options)
    start = time.perf_counter()
    timing = run(loader, 0.01)
    wall = time.perf_counter() - start
    assert timing.waited + timing.training == pytest.approx(timing.wall, rel=1e-9)
    assert timing.wall == pytest.approx(wall, rel=0.01, abs=0.02)


@measured
def test_stages_without_workers_are_the_time_of_waiting(files):
    loader = bags.Loader(
        bags.open(files), 4, transform=transforms, collate=collates, to_device=moves, workers=0, timing=True
    )
    timing = run(loader)
    assert list(timing.decode) == ['image']
    assert min(timing.stages.values()) > 0
    assert sum(timing.stages.values()) == pytest.approx(timing.waited, rel=0.05, abs=0.05)
    assert timing.busy == pytest.approx(timing.waited, rel=0.05, abs=0.05)


@pytest.mark.slow(all_but='threads')
@pytest.mark.parametrize('processes', [False, True], ids=['threads', 'processes'])
@measured
def test_stages_with_workers_are_the_time_that_they_work(files, processes):
    loader = bags.Loader(
        bags.open(files), 4, epochs=3, transform=transforms, workers=2, processes=processes, timing=True
    )
    timing = run(loader)
    assert (timing.workers, timing.processes) == (2, processes)
    assert sum(timing.stages.values()) == pytest.approx(timing.busy, rel=0.05, abs=0.1)
    assert (timing.hand_over > 0) == processes
    assert 0 < timing.processors <= 2.5
    assert 0 <= timing.ready <= timing.prefetch == 4
    assert ('2 processes' if processes else '2 threads') in str(timing)


@pytest.mark.slow
@measured
def test_hand_over_between_processes_is_named(dataset):
    timing = run(
        bags.Loader(dataset, 10, fields='id', workers=2, processes=True, transform=grows, timing=True)
    )
    assert timing.bottleneck == 'hand over'
    assert 0 < timing.received < timing.hand_over
    assert 'processes=False' in timing.advice


def test_requests_are_counted(files, server):
    loader = loader_of(files, 'read', server, workers=2)
    earlier = len(server.requests)
    timing = run(loader)
    assert timing.requests == len(server.requests) - earlier
    assert timing.received_bytes >= 32 * 20_000 - 2**16  # The last bytes are received when a file is opened.
    assert timing.retries == 0
    assert f'{timing.requests} requests, ' in str(timing)


@measured
def test_a_period_begins_with_the_previous_report_and_with_an_iteration(dataset):
    loader = bags.Loader(dataset, 10, epochs=None, workers=1, timing=True)
    assert loader.timing.steps == 0
    assert loader.timing.bottleneck is None
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    first = loader.timing
    assert (first.steps, loader.timing.steps) == (3, 0)
    assert first.first_wait > 0
    next(batches)
    assert (loader.timing.steps, loader.timing.first_wait) == (1, 0.0)
    next(batches)
    others = iter(loader)
    next(others)
    next(others)
    assert loader.timing.steps == 2
    batches.close()
    others.close()
    time.sleep(0.05)
    assert loader.timing.wall < 0.05


@measured
def test_many_short_steps_are_sampled(dataset):
    loader = bags.Loader(dataset, 2, epochs=30, workers=0, transform=lambda batch: batch, timing=True)
    timing = run(loader)
    assert timing.steps == 30 * -(-COUNT // 2)
    assert sum(timing.stages.values()) == pytest.approx(timing.busy, rel=0.2)
    assert timing.busy < timing.waited
    assert set(timing.decode) == {'text', 'note'}


@measured
def test_fields_of_views_and_windows_are_measured(files):
    dataset = bags.concat({'a': bags.open(files), 'b': bags.open(files)})[::2]
    timing = run(bags.Loader(dataset, 4, workers=0, timing=True))
    assert timing.bottleneck == 'decode'
    assert "field 'image'" in timing.advice


def test_an_error_ends_a_step_and_not_the_report(dataset):
    def fails(batch):
        if 50 in batch['id']:
            raise ArithmeticError('fifty')
        return batch

    loader = bags.Loader(dataset, 10, shuffle=False, workers=0, transform=fails, timing=True)
    batches = iter(loader)
    delivered = 0
    for _ in range(11):
        try:
            next(batches)
            delivered += 1
        except ArithmeticError:
            pass
    assert loader.timing.steps == delivered == 10


def test_batches_are_the_same(dataset):
    for options in ({}, {'collate': bags.pad}, {'per': 'datapoint', 'transform': dict}):
        plain, timed = (
            [batch['x'].tolist() for batch in bags.Loader(dataset, 7, workers=2, timing=timing, **options)]
            for timing in (False, True)
        )
        assert plain == timed


def test_bins_of_cut_documents_are_the_same(tmp_path):
    lengths = [5, 40, 3, 17, 9, 30] * 4
    with bags.DatasetWriter(tmp_path / 'documents', {'tokens': 'array(uint16,?)'}) as writer:
        for length in lengths:
            writer.append({'tokens': np.arange(length, dtype=np.uint16)})
    dataset = bags.open(tmp_path / 'documents')
    sampler = bags.samplers.Packed(16, lengths, longer='cut')
    plain, timed = (
        bags.Loader(dataset, 2, sampler=sampler, workers=0, timing=timing) for timing in (False, True)
    )
    for batch, other in zip(plain, timed, strict=True):
        assert [part.tolist() for part in batch['tokens']] == [part.tolist() for part in other['tokens']]
    timing = timed.timing
    assert timing.steps > 1
    assert timing.read > 0


def test_a_loader_without_timing_says_how_to_get_it(dataset):
    loader = bags.Loader(dataset, 10)
    with pytest.raises(AttributeError, match='pass timing=True'):
        _ = loader.timing


def test_a_report_is_a_dict_of_numbers(dataset):
    loader = bags.Loader(dataset, 10, workers=0, timing=True)
    facts = run(loader).as_dict()
    assert facts['steps'] == 11
    assert facts['bottleneck'] in {'read', 'decode', 'collate', 'hand over', 'training'}
    assert isinstance(facts['advice'], str)
    assert set(facts['decode']) == {'text', 'note'}


def test_another_rank_has_its_own_report(dataset):
    loader = bags.Loader(dataset, 10, workers=0, timing=True)
    other = loader.on_rank(1, 2)
    for _ in loader:
        pass
    assert other.timing.steps == 0
    assert loader.timing.steps == 11
