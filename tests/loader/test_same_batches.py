"""Streams of batches are equal, bit by bit: however they are made, and wherever a run was killed."""

import itertools
import random

import numpy as np
import pytest

import bags

# Datasets and views, with all of their fields; and a digest of a batch, bit by bit.
VIEWS = """
    import hashlib

    def views_of(dataset):
        chosen = np.random.default_rng(0).integers(0, len(dataset), 60)
        both = bags.concat([dataset.select(chosen), dataset[10:53]])
        if not os.path.exists('labels'):
            bags.from_numpy({'label': np.arange(103) ** 2, 'text': np.zeros((103, 3), 'f4')}, 'labels')
        return {
            'dataset': dataset,
            'select, concat, join': bags.join([both, bags.open('labels')], replace=True),
            'windows': dataset.windows(every='nums', nums=bags.steps(0, 2), padding='drop'),
        }

    def mark(batch):
        found = hashlib.sha256()

        def add(value):
            if isinstance(value, bags.Ragged):
                value = [value.values, value.offsets, value.present]
            if isinstance(value, np.ndarray):
                found.update(f'{value.dtype} {value.shape}'.encode() + value.tobytes())
            elif isinstance(value, list):
                found.update(b'%d' % len(value))
                for part in value:
                    add(part)
            else:
                found.update(repr(value).encode())

        for name, column in batch.items():
            found.update(name.encode())
            add(column)
        return found.hexdigest()

    def noise(batch, rng):
        for name, column in batch.items():
            if isinstance(column, np.ndarray):
                batch[name] = column + rng.integers(0, 9, column.shape).astype(column.dtype)
        return batch

    def stream(dataset, **options):
        options = {'epochs': 2, 'transform': noise, 'mask_column': 'counts', **options}
        return [mark(batch) for batch in bags.Loader(dataset, options.pop('batch_size', 7), **options)]
"""


@pytest.mark.slow
def test_any_number_and_kind_of_workers(script):
    code = """
        for name, view in views_of(dataset).items():
            expected = stream(view, workers=0)
            assert len(expected) == len(set(expected)) > 20
            for options in (
                {'workers': 1},
                {'workers': 4},
                {'workers': 4, 'prefetch': 1},
                {'workers': 4, 'processes': True},
            ):
                assert stream(view, **options) == expected, (name, options)
        print('done')
    """
    assert script(code, functions=VIEWS) == (0, 'done\n', '')


KINDS = [{'workers': 2}, {'workers': 2, 'processes': True}, {'workers': 4}, {'workers': 0}]


@pytest.mark.slow(all_but='2-dataset')
@pytest.mark.parametrize('name', ['dataset', 'select, concat, join', 'windows'])
@pytest.mark.parametrize('times', [2, pytest.param(20, marks=pytest.mark.campaign)])
def test_a_killed_run_resumes_in_another_process(script, tmp_path, name, times):
    """A run is killed after a random number of steps, several times, and resumes with other workers."""
    code = """
        name, times, left, options = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
        view = views_of(dataset)[name]
        batches = iter(bags.Loader(view, 7, transform=noise, epochs=None, **options))
        if os.path.exists('state'):
            with open('state') as file:
                batches.load_state_dict(json.load(file))
        for batch in batches:
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)  # With a batch that is neither used nor saved.
            left -= 1
            with open('seen', 'a') as file:
                file.write(f'{mark(batch)}\\n')
            with open('new', 'w') as file:
                json.dump(batches.state_dict(), file)
            os.rename('new', 'state')
    """
    chance = random.Random(times)
    total = 0
    for number in range(times):
        steps = chance.randrange(1, 30)
        total += steps
        options = str(KINDS[number % len(KINDS)]).replace("'", '"').replace('True', 'true')
        done = script(code, name, times, steps, options, functions=VIEWS)
        assert (done[0], done[2]) == (-9, '')
    code = """
        view = views_of(dataset)[sys.argv[2]]
        batches = iter(bags.Loader(view, 7, transform=noise, epochs=None, workers=0))
        print(*(mark(next(batches)) for _ in range(int(sys.argv[3]))), sep='\\n')
    """
    expected = script(code, name, total, functions=VIEWS)
    assert expected[0] == 0
    assert (tmp_path / 'seen').read_text() == expected[1]
    assert total >= times


@pytest.fixture(scope='module', params=['dataset', 'select, concat, join', 'windows'])
def view(request, dataset, tmp_path_factory):
    if request.param == 'dataset':
        return dataset
    if request.param == 'windows':
        return dataset.windows(every='nums', nums=bags.steps(0, 2), padding='drop')
    labels = tmp_path_factory.mktemp('labels') / 'x'
    bags.from_numpy({'label': np.arange(103) ** 2}, labels)
    chosen = np.random.default_rng(0).permutation(103)
    both = bags.concat([dataset.select(chosen[:50]), dataset.select(chosen[50:])])
    return bags.join([both, bags.open(labels)])


def rows_of(batches):
    """Splits batches into datapoints, each with all its columns."""
    return [
        {name: repr(column[place]) for name, column in batch.items()}
        for batch in batches
        for place in range(len(batch['id']))
    ]


@pytest.mark.parametrize('hosts', [1, 2, 3])
def test_ranks_together_take_the_epoch_of_one(view, hosts):
    """Also in the same order, as long as all batches are whole."""
    options = {'epochs': 1, 'last_batch': 'partial', 'seed': 5}
    single = rows_of(bags.Loader(view, 6, **options))
    assert len(single) == len(view)
    parts = [list(bags.Loader(view, 4, rank=host, world_size=hosts, **options)) for host in range(hosts)]
    steps = list(itertools.zip_longest(*parts))
    together = [row for step in steps for row in rows_of(batch for batch in step if batch is not None)]
    assert together == single


@pytest.mark.slow(all_but='*-3-2')
@pytest.mark.parametrize('before', [1, 2, 3])
@pytest.mark.parametrize('after', [1, 2, 3])
def test_a_run_resumes_with_another_world_size_batch_size_and_workers(view, before, after):
    options = {'epochs': 1, 'last_batch': 'partial', 'seed': 5}
    single = rows_of(bags.Loader(view, 1, **options))
    chance = random.Random(before * 10 + after)
    for _ in range(3):
        size, steps = chance.randrange(1, 6), chance.randrange(1, 4)
        loaders = [bags.Loader(view, size, rank=host, world_size=before, **options) for host in range(before)]
        taken, states = [], []
        for loader in loaders:
            with iter(loader) as batches:
                taken.append([next(batches) for _ in range(steps)])
                states.append(batches.state_dict())
        assert all(state == states[0] for state in states)
        size, rest = chance.randrange(1, 15), []
        for host in range(after):
            loader = bags.Loader(view, size, rank=host, world_size=after, workers=host, **options)
            loader.load_state_dict(states[0])
            rest.append(list(loader))
        found = [
            row
            for parts in (taken, rest)
            for step in itertools.zip_longest(*parts)
            for row in rows_of(batch for batch in step if batch is not None)
        ]
        assert found == single
