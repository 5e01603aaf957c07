"""Repeated reads skip checks of refs and limits that were checked before; their results stay equal."""

import numpy as np
import pytest

import bags
import bags.bag
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import parse_spec

SPEC = {'id': 'int(4)', 'text': 'utf8', 'vector': 'array(float32,3)'}
COUNT = 1200  # Two blocks of 512, and a part of one.


def value(field, record):
    if field == 'id':
        return record * 7
    return 'abc'[: record % 4] + str(record) if field == 'text' else np.float32([record, 0.5, -record])


def write(folder, refs, spec):
    """Writes records in order, and these refs to them, shape (COUNT, fields)."""
    with bags.DatasetWriter(folder, spec) as writer:
        for record in range(COUNT):
            writer.append({field: value(field.rstrip('?'), record) for field in SPEC})
    (folder / 'refs.bag').unlink()
    form = RefsFormat(parse_spec(spec))
    with bags.bag.Writer(folder / 'refs.bag') as writer:
        for row in refs:
            writer.write(form.pack(row[None]))


def shuffled(refs):
    refs[:] = np.random.default_rng(3).permutation(refs)


def one_differs(refs):
    refs[700, 1] = 699


def first_and_last(refs):
    refs[0], refs[-1] = 1, 0


def later(refs):
    refs[512:] = refs[512:][::-1]


def shared(refs):
    refs[:, 2] //= 4


@pytest.mark.slow(all_but='False-one_differs')
@pytest.mark.parametrize('changed', [None, shuffled, one_differs, first_and_last, later, shared])
@pytest.mark.parametrize('optional', [False, True])
def test_rows_and_batches_stay_the_same(tmp_path, changed, optional):
    refs = np.repeat(np.arange(COUNT)[:, None], 3, axis=1)
    if changed:
        changed(refs)
    spec = {**SPEC, 'text': 'utf8?'} if optional else SPEC
    write(tmp_path / 'd', refs, spec)
    expected = [
        {field: value(field, record) for field, record in zip(SPEC, row, strict=True)}
        for row in refs.tolist()
    ]
    rng = np.random.default_rng(5)
    with bags.open(tmp_path / 'd') as dataset:
        view = dataset[5:]
        for turn in range(12):
            for index in rng.permutation(COUNT).tolist():
                for fields in (None, 'id', ('vector', 'text'), ('text',)):
                    row = dataset[index] if fields is None else dataset[index, fields]
                    names = list(SPEC) if fields is None else [fields] if fields == 'id' else list(fields)
                    assert list(row) == names
                    for name in names:
                        assert np.array_equal(row[name], expected[index][name]), (turn, index, name)
            assert view[-1]['text'] == expected[-1]['text']
            assert dataset[np.int64(3), 'id'] == {'id': expected[3]['id']}
            check_batches(dataset, expected, rng.integers(0, COUNT, 200))


def check_batches(dataset, expected, chosen):
    for fields in (None, ('id', 'text'), ('vector',)):
        batch = dataset.batch(chosen, fields)
        for name in fields or SPEC:
            found = np.array([expected[index][name] for index in chosen])
            assert np.array_equal(np.array(batch[name]), found), (chosen, name)


@pytest.mark.slow(all_but='one_differs')
@pytest.mark.parametrize('changed', [None, shuffled, one_differs, first_and_last, later, shared])
def test_runs_of_datapoints_stay_the_same(tmp_path, changed):
    """In any order, in blocks read before or not, in one call with others or alone."""
    refs = np.repeat(np.arange(COUNT)[:, None], 3, axis=1)
    if changed:
        changed(refs)
    write(tmp_path / 'd', refs, SPEC)
    expected = [
        {field: value(field, record) for field, record in zip(SPEC, row, strict=True)}
        for row in refs.tolist()
    ]
    rng = np.random.default_rng(6)
    for turn in range(12):
        with bags.open(tmp_path / 'd') as dataset:
            for _ in range(6):
                start, stop = sorted(rng.integers(0, COUNT + 1, 2).tolist())
                check_batches(dataset, expected, range(start, stop))
                check_batches(dataset, expected, np.arange(start, stop))
                check_batches(dataset, expected, range(stop - 1, start, -1))
                run = np.arange(start, stop)
                rng.shuffle(run[1:-1])  # The first and the last are those of a run.
                check_batches(dataset, expected, run)
                if turn % 2:
                    check_batches(dataset, expected, rng.integers(0, COUNT, 100))
            check_batches(dataset, expected, range(COUNT))


def test_a_damaged_record_is_found_each_time(tmp_path):
    refs = np.repeat(np.arange(COUNT)[:, None], 3, axis=1)
    write(tmp_path / 'd', refs, SPEC)
    with bags.bag.Reader(tmp_path / 'd' / 'text.bag') as reader:
        size = reader.size
    path = tmp_path / 'd' / 'text.bag'
    data = bytearray(path.read_bytes())
    limits = np.frombuffer(data, '<u8', COUNT, size - 8 * COUNT)
    limits[40] = limits[-1] + 1
    path.write_bytes(data)
    with bags.open(tmp_path / 'd') as dataset:
        for _ in range(20):
            for index in (39, 42, 60, 1100):
                assert dataset[index, 'text'] == {'text': value('text', index)}
                assert dataset[index]['id'] == 7 * index
            for index in (40, 41):
                for key in (index, (index, 'text'), (index, ('id', 'text'))):
                    with pytest.raises(bags.CorruptError, match=r'text\.bag.*record 4[01]'):
                        dataset[key]


def test_what_is_no_choice_of_fields_stays_an_error(tmp_path):
    write(tmp_path / 'd', np.repeat(np.arange(COUNT)[:, None], 3, axis=1), SPEC)
    with bags.open(tmp_path / 'd') as dataset:
        for _ in range(3):
            assert dataset[3, ()] == {}
            with pytest.raises(KeyError, match='nothing') as error:
                dataset[3, 'nothing']
            assert error.value.__context__ is None
            with pytest.raises((TypeError, KeyError)):
                dataset[3, (['id'],)]
            with pytest.raises(IndexError):
                dataset[COUNT, 'id']
            assert dataset[-1, 'id'] == {'id': 7 * (COUNT - 1)}
    with pytest.raises(ValueError, match='closed'):
        dataset[3, 'id']


def test_whole_datapoints_and_a_choice_are_decoded_once_however_often(tmp_path):
    write(tmp_path / 'd', np.repeat(np.arange(COUNT)[:, None], 3, axis=1), SPEC)
    seen = []

    def decode(data):
        seen.append(bytes(data))
        return str(data, 'utf-8')

    with bags.open(tmp_path / 'd', decoders={**bags.decoders, 'utf8': decode}) as dataset:
        for _ in range(20):
            dataset[7], dataset[7, 'text'], dataset[7, ('id', 'text')]
            assert len(seen) == 3
            seen.clear()
