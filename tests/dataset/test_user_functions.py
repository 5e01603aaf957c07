"""Errors of functions of users: each raises, with field and record, on every path."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

import bags
from bags.samplers.orders import Sequential

COUNT = 30
BAD = 13
ERRORS = [StopIteration, EOFError, OSError, KeyError, ZeroDivisionError, RuntimeError, IndexError, TypeError]


class Fails:
    """A decoder that fails at one value; a class, so that it can be sent to processes."""

    def __init__(self, error: type[Exception], bad: bytes) -> None:
        self.error, self.bad = error, bad

    def __call__(self, data: bytes) -> str:
        if data == self.bad:
            raise self.error('of the user')
        return data.decode()


def write(directory, kind='mine', compression=None):
    spec = {'id': 'int', 'x': kind}
    encoders = {**bags.encoders, 'mine': str.encode}
    with bags.DatasetWriter(directory, spec, encoders, compression=compression) as writer:
        for i in range(COUNT):
            items = [f'{i}-{k}' for k in range(12)]
            writer.append({'id': i, 'x': items if '[]' in kind else str(i)})


def opened(directory, error, bad, **options):
    return bags.open(directory, {**bags.decoders, 'mine': Fails(error, bad)}, **options)


READS = {
    'row': lambda d: d[BAD],
    'row of a field': lambda d: d[BAD, 'x'],
    'row of two': lambda d: d[BAD, ('x', 'id')],
    'batch of 1': lambda d: d.batch([BAD]),
    'batch of 8': lambda d: d.batch(range(10, 18)),
    'batch of 20': lambda d: d.batch(range(5, 25)),
    'shuffled batch': lambda d: d.batch([20, BAD, 3, BAD, *range(20)]),
    'rows': lambda d: d.__getitems__(list(range(COUNT))),
    'iteration': list,
    'slice': lambda d: list(d[10:20]),
    'slice of batch': lambda d: d[10:20].batch(range(10)),
    'concat': lambda d: bags.concat([d, d]).batch(range(COUNT, 2 * COUNT)),
    'pickled': lambda d: pickle.loads(pickle.dumps(d)).batch(range(COUNT)),
    'loader': lambda d: list(bags.Loader(d, 10, epochs=1)),
    'loader in threads': lambda d: list(bags.Loader(d, 10, epochs=1, workers=2)),
}


@pytest.mark.parametrize('error', ERRORS)
@pytest.mark.parametrize('kind', ['mine', 'mine?', 'mine[]', 'mine[]?'])
@pytest.mark.parametrize('compression', [None, ['x']])
def test_decoder_errors_name_field_and_record(tmp_path, error, kind, compression):
    write(tmp_path / 'd', kind, compression)
    is_sequence = '[]' in kind
    bad = f'{BAD}-7' if is_sequence else str(BAD)
    record = 12 * BAD + 7 if is_sequence else BAD
    with opened(tmp_path / 'd', error, bad.encode()) as dataset:
        for how, read in READS.items():
            with pytest.raises(bags.DecodeError, match=f"field 'x' of type .*record {record}: ") as caught:
                read(dataset)
            assert type(caught.value.__cause__) is error, how
            assert caught.value.index == record
        good = dataset.batch([i for i in range(COUNT) if i != BAD])
        assert len(good['x']) == len(good['id']) == COUNT - 1


def test_loader_in_processes_names_field_and_record(tmp_path):
    write(tmp_path / 'd')
    dataset = opened(tmp_path / 'd', StopIteration, str(BAD).encode())
    with pytest.raises(bags.DecodeError, match=f"field 'x' of type mine, record {BAD}"):
        list(bags.Loader(dataset, 10, epochs=1, workers=1, processes=True))


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(200))
def test_columns_are_never_shorter_than_asked(tmp_path, seed):
    rng = random.Random(seed)
    kind = rng.choice(['mine', 'mine[]'])
    write(tmp_path / 'd', kind, rng.choice([None, ['x']]))
    bad = rng.randrange(COUNT)
    failing = f'{bad}-{rng.randrange(12)}' if '[]' in kind else str(bad)
    with opened(tmp_path / 'd', rng.choice(ERRORS), failing.encode()) as dataset:
        for _ in range(20):
            asked = [rng.randrange(COUNT) for _ in range(rng.randrange(1, 40))]
            try:
                columns = dataset.batch(asked)
            except bags.DecodeError:
                assert bad in asked
            else:
                assert bad not in asked
                assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(
                    columns, len(asked)
                )


@pytest.mark.parametrize('error', ERRORS)
def test_encoder_errors_name_the_field(tmp_path, error):
    def encode(value):
        if value == BAD:
            raise error('of the user')
        return b'%d' % value

    encoders = {**bags.encoders, 'mine': encode}
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'mine', 'xs': 'mine[]'}, encoders) as writer:
        writer.append({'x': 0, 'xs': range(5)})
        with pytest.raises(bags.EncodeError, match="field 'x' of type mine: ") as caught:
            writer.append({'x': BAD, 'xs': []})
        assert type(caught.value.__cause__) is error
        with pytest.raises(bags.EncodeError, match=f"field 'xs' of type .*, item {BAD - 10}: "):
            writer.append({'x': 1, 'xs': range(10, 20)})
        writer.append({'x': 2, 'xs': []})
    assert len(bags.open(tmp_path / 'd', {'mine': bytes})) == 2


@pytest.mark.parametrize('error', ERRORS)
def test_generators_of_items_name_the_field(tmp_path, error):
    def items():
        yield 1
        yield 2
        raise error('of the user')

    class Broken:
        def __iter__(self):
            raise error('of the user')

    with bags.DatasetWriter(tmp_path / 'd', {'xs': 'int[]'}) as writer:
        with pytest.raises(RuntimeError if error is StopIteration else error) as caught:
            writer.append({'xs': items()})
        assert caught.value.__notes__ == ["from the iterable of field 'xs' of type int[], at item 2"]
        with pytest.raises(bags.EncodeError, match=r"field 'xs' of type int\[\]: "):
            writer.append({'xs': Broken()})
    assert len(bags.open(tmp_path / 'd')) == 0


# Other functions of users: transforms, inputs, samplers.


def stop_at_13(value):
    if np.any(np.asarray(value['id']) == BAD):
        raise StopIteration('of the user')
    return value


@pytest.fixture
def ids(tmp_path):
    with bags.DatasetWriter(tmp_path / 'ids', {'id': 'int'}) as writer:
        for i in range(COUNT):
            writer.append({'id': i})
    return bags.open(tmp_path / 'ids')


WORKERS = [{'workers': 0}, {'workers': 2}, {'workers': 1, 'processes': True}]


@pytest.mark.slow("collate-{'workers': 1*")
@pytest.mark.parametrize('workers', WORKERS, ids=str)
@pytest.mark.parametrize('stage', ['transform', 'collate'])
def test_loader_functions_that_stop(ids, workers, stage):
    loader = bags.Loader(ids, 5, epochs=1, **{stage: stop_at_13}, **workers)
    expected = f'StopIteration was raised: in {stage} of batch '
    with pytest.raises(RuntimeError, match=expected):
        list(loader)


def test_samplers_and_device_functions_that_stop(ids):
    class Sampler(Sequential):
        def take(self, epoch, positions):
            raise StopIteration

    with pytest.raises(RuntimeError, match='StopIteration was raised: in sampler'):
        list(bags.Loader(ids, 5, sampler=Sampler(COUNT), epochs=1))
    with pytest.raises(RuntimeError, match='to_device raised StopIteration'):
        list(bags.Loader(ids, 5, epochs=1, to_device=stop_at_13))


@pytest.mark.parametrize('workers', [1, 2])
def test_write_names_the_input(tmp_path, ids, workers):
    where = {'workers': workers, 'processes': False, 'progress': False}
    with pytest.raises(RuntimeError, match=f'StopIteration was raised: at input {BAD}'):
        bags.write(ids, tmp_path / 'a', {'id': 'int'}, transform=stop_at_13, **where)

    class Source(list):
        def __getitem__(self, place):
            if place == BAD:
                raise StopIteration
            return {'id': place}

    def generated():
        for place in range(COUNT):
            if place == BAD:
                raise StopIteration
            yield {'id': place}

    for number, source in enumerate([Source(range(COUNT)), generated()]):
        with pytest.raises(RuntimeError) as caught:
            bags.write(source, tmp_path / f'b{number}', {'id': 'int'}, **where)
        assert caught.value.__notes__ == [f'from the source, at input {BAD}']
    for path in tmp_path.glob('[ab]*'):  # One is missing if no input was written before the error.
        assert len(bags.open(path)) <= BAD


def test_copy_names_the_field(tmp_path, ids):
    with pytest.raises(RuntimeError, match="StopIteration was raised: in the function of field 'y', on "):
        bags.copy(ids, tmp_path / 'c', add={'y': ('int', stop_at_13)}, progress=False)
