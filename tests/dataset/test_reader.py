"""Every way to read, over every form that a dataset has, compared with a list of dicts."""

# ruff: noqa: B023 - functions made in a loop are called in it

import io
import itertools
import os
import pickle
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import bags
from bags.dataset.format.spec import parse_spec

COUNT = 26
FORMS = ['folder', 'shards', 'select', 'slice', 'concat', 'join', 'live', 'resumed']


class Case(NamedTuple):
    dataset: object
    rows: list
    values: list
    raw: bool
    spec: dict
    root: Path


def build(kit, root, form, compression):
    """Returns a path or a dataset, its rows, and objects that must stay alive."""
    rows = [kit.make_row(index) for index in range(COUNT)]
    options = {'compression': compression}
    if form in ('folder', 'slice'):
        return kit.fill(root / 'a', rows, **options), rows, None
    if form in ('shards', 'select'):
        return kit.fill(root / 'a', rows, shard_length=7, **options), rows, None
    if form == 'concat':
        paths = [kit.fill(root / 'a', rows[:9], **options), kit.fill(root / 'b', [], **options)]
        paths.append(kit.fill(root / 'c', rows[9:], shard_length=5, **options))
        return paths, rows, None
    if form == 'join':
        some = {name: kit.SPEC[name] for name in list(kit.SPEC)[::2]}
        rest = {name: kit.SPEC[name] for name in kit.SPEC if name not in some}
        paths = []
        for number, part in enumerate((some, rest)):
            chosen = [name for name in compression if name in part]
            cut = [{name: row[name] for name in part} for row in rows]
            paths.append(kit.fill(root / str(number), cut, part, compression=chosen))
        return paths, rows, None
    if form == 'live':
        writer = bags.DatasetWriter(root / 'a', kit.SPEC, **options)
        for row in rows:
            writer.append(row, flush=row['id'] % 3 == 0)
        writer.flush()
        return str(root / 'a'), rows, writer
    for part in (rows[:5], rows[5:6], [], rows[6:]):
        with bags.DatasetWriter(root / 'a', kit.SPEC, resume=True, **options) as writer:
            for row in part:
                writer.append(row)
    return str(root / 'a'), rows, None


def open_form(form, where, raw):
    if form in ('concat', 'join'):
        return getattr(bags, form)([bags.open(path, raw=raw) for path in where])
    dataset = bags.open(where, raw=raw)
    if form == 'select':
        return dataset.select([*range(COUNT - 1, -1, -1), 3, 3])
    if form == 'slice':
        return dataset[2:][:-3:2]
    return dataset


def rows_of(form, rows):
    if form == 'select':
        return [*rows[::-1], rows[3], rows[3]]
    return rows[2:][:-3:2] if form == 'slice' else rows


@pytest.fixture(
    scope='module',
    params=[
        pytest.param(each, marks=[pytest.mark.slow] * (each[1:] == ('zstd', 'raw')), id='-'.join(each))
        for each in itertools.product(FORMS, ['plain', 'zstd'], ['values', 'raw'])
    ],
)
def case(request, kit, tmp_path_factory):
    form, compression, how = request.param
    root = tmp_path_factory.mktemp(form)
    where, rows, open_writer = build(kit, root, form, kit.COMPRESSED if compression == 'zstd' else ())
    dataset = open_form(form, where, how == 'raw')
    rows = rows_of(form, rows)
    values = [kit.encode_row(row) for row in rows] if how == 'raw' else rows
    yield Case(dataset, rows, values, how == 'raw', parse_spec(kit.SPEC), root)
    dataset.close()
    if open_writer is not None:
        open_writer.close()


@pytest.fixture
def same(case, kit):
    """Compares a value that was read with the expected one."""

    def check(found, expected):
        found = kit.to_bytes(found) if case.raw else found
        assert kit.equal(found, expected), f'{found!r:.300} is not {expected!r:.300}'

    return check


def test_what_it_is(case, kit):
    assert len(case.dataset) == len(case.rows)
    assert case.dataset.spec == kit.SPEC
    assert list(case.dataset.spec) == sorted(kit.SPEC)
    assert isinstance(case.dataset, bags.Dataset)


def test_rows_by_any_index(case, same):
    count = len(case.rows)
    for index in range(count):
        same(case.dataset[index], case.values[index])
        same(case.dataset[index - count], case.values[index])
    for kind in (np.int64, np.int8, np.uint8, np.uint64, np.array):
        same(case.dataset[kind(count - 1)], case.values[-1])
    for kind in (int, np.int64, np.int8):
        same(case.dataset[kind(-2)], case.values[-2])
        for wrong in (count, -count - 1):
            with pytest.raises(IndexError, match=f'{wrong} out of range'):
                case.dataset[kind(wrong)]
    for wrong in ('id', 1.0, None, b'1'):
        with pytest.raises(TypeError):
            case.dataset[wrong]
    with pytest.raises(TypeError):
        case.dataset[0, 'id', 'text']


def test_iteration_and_rows_together(case, same):
    same(list(case.dataset), case.values)
    same(list(reversed(case.dataset)), case.values[::-1])
    order = random.Random(1).choices(range(-len(case.rows), len(case.rows)), k=60)
    for indices in (order, np.array(order), np.array(order, np.int16), [], [0], iter(order)):
        wanted = order if not isinstance(indices, list | np.ndarray) else list(indices)
        same(case.dataset.__getitems__(indices), [case.values[index] for index in wanted])
    same(case.dataset._getitems(order), [case.values[index] for index in order])


SELECTIONS = [
    'id',
    ('text', 'id'),
    ['maybe'],
    {'id': True},
    {'words': True, 'id': False, 'note': True},
    {'words': range(1, 2), 'frames': slice(None, None, -1), 'id': True},
    {'nums': range(0), 'points': [], 'tags': slice(0, 1)},
    {'nums': range(-2, 4), 'points': range(100, 200), 'tags': range(1, -2, -1)},
    {'nums': range(8, -1, -3), 'frames': range(-5, 100, 2), 'words': slice(-2, None)},
    {'words': slice(5, 1, -2), 'points': slice(-1000, 1000, 4), 'tags': False},
    [],
    {},
]


def pick(values, name, items, spec):
    """Returns what a selection should give of a datapoint's field."""
    if items is True or values is None:
        return values
    if isinstance(items, slice):
        return values[items]
    if isinstance(items, range):
        items = [item for item in items if 0 <= item < len(values)]
    return values[items] if isinstance(values, np.ndarray) else [values[item] for item in items]


def picked(row, selection, spec):
    if isinstance(selection, str):
        selection = [selection]
    if not isinstance(selection, dict):
        selection = dict.fromkeys(selection, True)
    return {
        name: pick(row[name], name, items, spec) for name, items in selection.items() if items is not False
    }


@pytest.mark.parametrize('selection', SELECTIONS, ids=repr)
def test_parts_of_rows(case, same, selection):
    for index in range(-3, 9):
        same(case.dataset[index, selection], picked(case.values[index], selection, case.spec))
    same(
        case.dataset[np.int64(1), dict.fromkeys(case.spec, True)],
        picked(case.values[1], list(case.spec), case.spec),
    )


def test_lists_of_items_must_be_there(case, same):
    for index, row in enumerate(case.values):
        words = row['words']
        for kind in (list, tuple, np.array):
            if len(words) >= 2:
                same(
                    case.dataset[index, {'words': kind([1, -1, 0, 1])}],
                    {'words': [words[1], words[-1], words[0], words[1]]},
                )
            with pytest.raises(IndexError, match=rf"^field 'words': item {len(words)} out of range"):
                case.dataset[index, {'words': kind([len(words)])}]
        with pytest.raises(IndexError):
            case.dataset[index, {'words': [-len(words) - 1]}]


def test_selections_that_are_none(case):
    for method in (lambda fields: case.dataset[0, fields], lambda fields: case.dataset.batch([0], fields)):
        with pytest.raises(KeyError, match=r"'nope'.*'any'.*'words'"):
            method('nope')
        with pytest.raises(KeyError):
            method({'nope': False})
        for fields in ({'id': range(1)}, {'id': [0]}, {'id': None}, {'words': 1}, {'words': 'id'}, 7):
            with pytest.raises(TypeError):
                method(fields)


def expected_column(values, name, case):
    """Returns the column a batch should have, from the values of its datapoints."""
    kind = case.spec[name]
    fixed = {'flag': '?', 'id': '<i8', 'score': '<f4', 'small': '<u2', 'grid': '<f4'}
    items = {'frames': ('<u1', (2,)), 'nums': ('<i2', ()), 'points': ('<f8', ())}
    if case.raw:
        return values
    if name in fixed:
        return np.array(values, fixed[name]).reshape(len(values), *((2, 3) if name == 'grid' else ()))
    if name in items:
        dtype, shape = items[name]
        there = [[] if value is None else value for value in values]
        offsets = np.cumsum([0, *map(len, there)])
        flat = np.array([item for value in there for item in value], dtype).reshape(-1, *shape)
        present = np.array([value is not None for value in values], bool) if kind.optional else None
        return bags.Ragged(flat, offsets, present)
    return values


def check_column(found, expected, kit):
    if not isinstance(expected, bags.Ragged):
        assert kit.equal(found, expected)
        if isinstance(found, np.ndarray):
            assert found.flags.writeable
            assert found.flags.c_contiguous
        return
    assert isinstance(found, bags.Ragged)
    assert kit.equal(found.values, expected.values)
    assert found.values.flags.writeable
    assert found.offsets.dtype == np.int64
    assert found.offsets.tolist() == expected.offsets.tolist()
    if expected.present is None:
        assert found.present is None
    else:
        assert kit.equal(found.present, expected.present)


def test_batches_of_every_column(case, kit):
    chance = random.Random(5)
    count = len(case.rows)
    for size in (0, 1, 3, count, 3 * count):
        order = [chance.randrange(-count, count) for _ in range(size)]
        for indices in (order, np.array(order, np.int32)):
            batch = case.dataset.batch(indices)
            assert list(batch) == list(case.spec)
            for name, column in batch.items():
                values = [case.values[index][name] for index in order]
                column = kit.to_bytes(column) if case.raw else column
                check_column(column, expected_column(values, name, case), kit)
    if not case.raw:
        batch = case.dataset.batch([0, 1], 'id')
        batch['id'][:] = 7  # A batch has its own memory,
        assert case.dataset[0]['id'] == case.rows[0]['id']  # not that of the file.


@pytest.mark.parametrize('selection', SELECTIONS, ids=repr)
def test_batches_of_parts(case, kit, selection):
    order = [5, 1, 5, -1, 0, 2, 1]
    for batch in (case.dataset.batch(order, selection), case.dataset[order, selection]):
        wanted = [picked(case.values[index], selection, case.spec) for index in order]
        assert list(batch) == list(wanted[0])
        for name, column in batch.items():
            column = kit.to_bytes(column) if case.raw else column
            check_column(column, expected_column([row[name] for row in wanted], name, case), kit)


def test_forms_of_batches(case, kit):
    count = len(case.rows)
    for key in ([1, 2], np.array([1, 2]), range(1, 3)):
        batch = case.dataset[key, 'id']['id']
        assert kit.equal(
            kit.to_bytes(batch) if case.raw else batch.tolist(), [r['id'] for r in case.values[1:3]]
        )
        assert list(case.dataset[key]) == list(case.spec)
    view = case.dataset[3:5, 'id']
    assert list(view.spec) == ['id']
    assert len(view) == 2
    with pytest.raises(IndexError, match='out of range'):
        case.dataset.batch([0, count])
    with pytest.raises(IndexError, match='out of range'):
        case.dataset.batch([0, -count - 1])
    for wrong in ([0.5], np.array([True, False]), np.array([[0, 1]]), 3, ['0']):
        with pytest.raises(TypeError):
            case.dataset.batch(wrong)


def test_lengths(case):
    for name in ('words', 'nums', 'frames', 'tags', 'points'):
        lengths = case.dataset.lengths(name)
        assert lengths.dtype == np.int64
        assert lengths.tolist() == [0 if row[name] is None else len(row[name]) for row in case.rows]
    for wrong in ('id', 'note'):
        with pytest.raises(TypeError, match='sequence'):
            case.dataset.lengths(wrong)
    with pytest.raises(KeyError):
        case.dataset.lengths('nope')


def test_records_of_plain_fields(case, kit):
    records = [kit.encode_row(row) for row in case.rows]
    for name in ('id', 'text', 'blob', 'note', 'maybe', 'meta'):
        field = case.dataset.records(name)
        wanted = [row[name] for row in records]
        assert len(field) == len(wanted)
        assert list(field) == wanted
        assert list(reversed(field)) == wanted[::-1]
        assert [field[index] for index in (0, -1, np.int64(2))] == [wanted[0], wanted[-1], wanted[2]]
        assert field[3:9:2] == wanted[3:9:2]
        assert field.read_indices([4, 0, 4]) == [wanted[4], wanted[0], wanted[4]]
        assert all(value is None or type(value) is bytes for value in field)
        assert wanted[5] in field
        with pytest.raises(IndexError):
            field[len(wanted)]
    with pytest.raises(KeyError, match='nope'):
        case.dataset.records('nope')
    with pytest.raises(TypeError, match='name of a field'):
        case.dataset.records(3)
    index = bags.bag.Index(case.dataset.records('id'))
    assert case.dataset[index[records[4]['id']]]['id'] == case.dataset[4]['id']


def test_records_of_sequences_and_their_datapoints(case, kit):
    for name in ('words', 'nums', 'tags', 'points', 'frames'):
        owners = [index for index, row in enumerate(case.rows) if row[name] is not None for _ in row[name]]
        wanted = [item for row in case.rows for item in kit.encode_row(row)[name] or []]
        items = case.dataset.records(name)
        assert len(items) == len(wanted)
        assert list(items) == wanted
        assert items[-1] == wanted[-1]
        assert items[1:4] == wanted[1:4]
        assert items.read_indices([3, 0, 3]) == [wanted[3], wanted[0], wanted[3]]
        assert [case.dataset.datapoint_of(name, item) for item in range(len(wanted))] == owners
        assert case.dataset.datapoint_of(name, np.int64(-1)) == owners[-1]
        with pytest.raises(IndexError):
            case.dataset.datapoint_of(name, len(wanted))
    with pytest.raises(TypeError, match=r"'id' of type .*: expected a sequence field"):
        case.dataset.datapoint_of('id', 0)


def test_records_as_files(case, kit):
    for index, row in enumerate(case.rows):
        record = kit.encode_row(row)
        with case.dataset.file(index, 'blob') as file:
            check_file(file, record['blob'])
        for item, wanted in enumerate(record['words']):
            with case.dataset.file(np.int64(index), 'words', item) as file:
                assert file.read() == wanted
            with case.dataset.file(index - len(case.rows), 'words', item - len(record['words'])) as file:
                assert file.read() == wanted
        with pytest.raises(IndexError):
            case.dataset.file(index, 'words', len(record['words']))
        if record['note'] is None:
            with pytest.raises(ValueError, match='note'):
                case.dataset.file(index, 'note')
    for wrong in (('words', None), ('id', 0)):
        with pytest.raises(TypeError, match=wrong[0]):
            case.dataset.file(0, *wrong)
    with pytest.raises(KeyError, match='nope'):
        case.dataset.file(0, 'nope')
    with pytest.raises(IndexError):
        case.dataset.file(len(case.rows), 'id')


def check_file(file, wanted):
    other = io.BytesIO(wanted)
    chance = random.Random(len(wanted))
    assert file.seekable()
    assert file.readable()
    for _ in range(12):
        offset = chance.randrange(len(wanted) + 9)
        whence = chance.choice([0, 0, 1, 2])
        if whence == 2:
            offset = -chance.randrange(len(wanted) + 1)
        assert file.seek(offset, whence) == other.seek(offset, whence)
        size = chance.choice([0, 1, 100, 10**9, -1])
        assert file.read(size) == other.read(size)
        assert file.tell() == other.tell()
    with pytest.raises(ValueError):
        file.seek(-1)


SLICES = [slice(None), slice(3, 9), slice(-4, None), slice(None, None, -1), slice(20, 2, -3), slice(5, 5)]


@pytest.mark.parametrize('part', SLICES, ids=repr)
def test_slices_of_slices(case, same, part):
    view, wanted, rows = case.dataset[part], case.values[part], case.rows[part]
    assert len(view) == len(wanted)
    same(list(view), wanted)
    assert view.lengths('words').tolist() == [len(row['words']) for row in rows]
    for inner in SLICES:
        same(list(view[inner]), wanted[inner])
        assert repr(view[inner]) == repr(case.dataset[part][inner])
        part_range = range(len(case.rows))[part][inner]
        if part_range != range(len(case.rows)):
            assert repr(view[inner]) != repr(case.dataset)
    if wanted:
        same(view[-1], wanted[-1])
        same(view.__getitems__([0, -1]), [wanted[0], wanted[-1]])
    with pytest.raises(IndexError):
        view[len(wanted)]


def test_pickles(case, same):
    for form in (case.dataset, case.dataset[2:7]):
        other = pickle.loads(pickle.dumps(form))
        assert repr(other) == repr(form)
        assert len(other) == len(form)
        same(list(other), case.values if form is case.dataset else case.values[2:7])
        other.close()


def test_raw_values_alias_the_file(case):
    if not case.raw:
        return
    for value in (case.dataset[0]['text'], case.dataset.batch([0, 0])['text'][1]):
        assert isinstance(value, memoryview)
        assert value.readonly
    row, batch = case.dataset[1]['grid'], case.dataset.batch([1])['grid'][0]
    if isinstance(row, memoryview):  # Not compressed.
        assert np.shares_memory(np.frombuffer(row, np.uint8), np.frombuffer(batch, np.uint8))


def test_values_are_owned_and_writable(case, kit):
    if case.raw:
        return
    for index in range(len(case.rows)):
        row = case.dataset[index]
        for value in (row['any'], row['grid'], *row['frames']):
            assert value.flags.writeable
            value[...] = 0
        assert type(row['blob']) is bytes
        assert kit.equal(case.dataset[index], case.rows[index])


@pytest.mark.slow(all_but='*-plain-values')
def test_threads(case, same):
    count = len(case.rows)

    def work(seed):
        chance = random.Random(seed)
        for _ in range(12):
            index = chance.randrange(count)
            same(case.dataset[index], case.values[index])
            order = chance.choices(range(count), k=5)
            same(case.dataset.__getitems__(order), [case.values[i] for i in order])
            words = case.dataset[index, {'words': range(1, 3)}]
            same(words, {'words': case.values[index]['words'][1:3]})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


@pytest.mark.slow(all_but='*-plain-values')
def test_a_forked_child_reads_on(case, same):
    same(case.dataset[0], case.values[0])
    child = os.fork()
    if not child:
        try:
            same(list(case.dataset), case.values)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    same(case.dataset[1], case.values[1])


CHILD = """
import pickle, sys
dataset = pickle.load(sys.stdin.buffer)
rows = [dataset[index] for index in range(len(dataset))]
pickle.dump((repr(dataset), rows), sys.stdout.buffer)
"""


@pytest.mark.slow(all_but='shards')
@pytest.mark.parametrize('form', ['folder', 'shards', 'select', 'concat', 'join', 'live'])
def test_another_process_reads_on(kit, tmp_path, form):
    where, rows, writer = build(kit, tmp_path, form, ('text', 'words') if form != 'join' else ())
    dataset = open_form(form, where, False)
    if writer is not None:
        writer.append(kit.make_row(99), flush=True)
    name, found = pickle.loads(kit.python(CHILD, stdin=pickle.dumps(dataset)))
    assert name == repr(dataset)
    assert kit.equal(found, rows_of(form, rows))
    if writer is not None:
        writer.close()


# One folder.


def test_size_is_what_the_bags_take(kit, tmp_path):
    rows = [kit.make_row(index) for index in range(12)]
    path = kit.fill(tmp_path / 'a', rows, compression=['text'])
    with bags.open(path) as reader:
        assert reader.size == sum(f.stat().st_size for f in (tmp_path / 'a').glob('*.bag*'))
        assert reader.shards == 1
    path = kit.fill(tmp_path / 'b', rows, shard_length=5)
    with bags.open(path) as reader:
        assert reader.size == sum(f.stat().st_size for f in (tmp_path / 'b').glob('*/*.bag'))
        assert reader.shards == 3
    writer = bags.DatasetWriter(tmp_path / 'c', {'id': 'int(8)'})
    writer.append({'id': 1}, flush=True)
    with bags.open(tmp_path / 'c') as reader:
        assert reader.size == sum(f.stat().st_size for f in (tmp_path / 'c').glob('*.bag'))
        writer.close()
        assert reader.size == sum(f.stat().st_size for f in (tmp_path / 'c').glob('*.bag'))


def test_a_closed_reader_refuses(kit, tmp_path):
    path = kit.fill(tmp_path / 'a', [kit.make_row(index) for index in range(3)])
    sharded = kit.fill(tmp_path / 'b', [kit.make_row(index) for index in range(3)], shard_length=2)
    for where in (path, sharded):
        reader = bags.open(where)
        view, text = reader[1:], repr(reader)
        kept = bags.open(where, raw=True)
        raw = kept[0]['text']
        kept.close()
        assert isinstance(bytes(raw), bytes)
        reader[0]
        reader.close()
        reader.close()
        for use in (
            lambda: reader[0],
            lambda: reader[0, 'id'],
            lambda: reader.batch([0]),
            lambda: reader.__getitems__([0]),
            lambda: reader.lengths('words'),
            lambda: reader.file(0, 'id'),
            lambda: reader.records('id')[0],
            lambda: list(reader),
            lambda: view[0],
        ):
            with pytest.raises(ValueError, match='closed'):
                use()
        assert repr(reader) == text
        assert len(reader) == 3


def test_reprs_tell_datasets_apart(kit, tmp_path):
    rows = [kit.make_row(index) for index in range(8)]
    one = kit.fill(tmp_path / 'a', rows)
    two = kit.fill(tmp_path / 'b', rows)
    many = kit.fill(tmp_path / 'c', rows, shard_length=2)
    datasets = [
        bags.open(one),
        bags.open(two),
        bags.open(many),
        bags.open(many, shard_start=0, shard_step=2),
        bags.open(many, shard_start=1, shard_step=2),
        bags.open(one)[1:3],
        bags.open(one)[3:5],
        bags.open(one).select([1, 2]),
        bags.open(one).select([2, 1]),
        bags.concat([bags.open(one), bags.open(two)]),
        bags.concat([bags.open(two), bags.open(one)]),
        bags.join([one, two], replace=True),
        bags.join([two, one], replace=True),
    ]
    assert len({repr(dataset) for dataset in datasets}) == len(datasets)
    assert [repr(pickle.loads(pickle.dumps(dataset))) for dataset in datasets] == list(map(repr, datasets))


@pytest.mark.parametrize('sharded', [False, True])
@pytest.mark.parametrize(
    'options',
    [
        {'mapped': False},
        {'cache_index': False},
        {'mapped': False, 'cache_index': False},
        {'cache_policy': 'drop_after_read'},
        {'cache_policy': 'direct_io'},
        {'access_pattern': 'random'},
    ],
    ids=repr,
)
def test_options_of_reading(kit, tmp_path, sharded, options):
    rows = [kit.make_row(index) for index in range(9)]
    path = kit.fill(
        tmp_path / 'a', rows, compression=['text', 'id'], **({'shard_length': 4} if sharded else {})
    )
    with bags.open(path, **options) as reader:
        assert kit.equal(list(reader), rows)
        assert kit.equal(reader.__getitems__([8, 0, 8]), [rows[8], rows[0], rows[8]])
        assert reader.batch([8, 0])['id'].tolist() == [rows[8]['id'], rows[0]['id']]
        assert kit.equal(reader.batch([8, 0])['grid'], np.stack([rows[8]['grid'], rows[0]['grid']]))
        with reader.file(3, 'blob') as file:
            assert file.read() == rows[3]['blob']
        other = pickle.loads(pickle.dumps(reader))
        assert kit.equal(other[4], rows[4])
        other.close()
    with pytest.raises(TypeError, match='nope'):
        bags.open(path, nope=1)


def test_a_large_record_is_streamed(tmp_path):
    size = 300 << 20
    with open(tmp_path / 'film', 'wb') as file:
        file.truncate(size)
        file.seek(200 << 20)
        file.write(b'here')
    with bags.DatasetWriter(
        tmp_path / 'a', {'film': 'film'}, {'film': lambda path: open(path, 'rb')}
    ) as writer:
        tracemalloc.start()
        writer.append({'film': tmp_path / 'film'})
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    with bags.DatasetReader(tmp_path / 'a', {'film': len}) as reader, reader.file(0, 'film') as file:
        assert file.seek(0, 2) == size
        file.seek(200 << 20)
        assert file.read(4) == b'here'
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20


def test_iterating_over_large_records_holds_few(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [{'x': bytes(2 << 20), 'y': [bytes(2 << 20)] * 2} for _ in range(20)],
                    {'x': 'bytes', 'y': 'bytes[]'})  # fmt: skip
    with bags.open(path) as reader:
        tracemalloc.start()
        assert sum(len(record) for record in reader.records('x')) == 40 << 20
        assert sum(len(record) for record in reader.records('y')) == 80 << 20
        assert sum(len(row['x']) for row in reader) == 40 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        tracemalloc.stop()


def test_a_users_decoders_get_bytes_and_are_the_whole_set(kit, tmp_path):
    path = kit.fill(
        tmp_path / 'a',
        [{'x': 'one', 'y': ['a'] * 9}],
        {'x': 'utf8', 'y': 'utf8(z)[]'},
        encoders={'utf8': lambda value, *args: value.encode()},
    )
    seen = []

    def decode(data, *args):
        seen.append((type(data), args))
        return data.decode()

    with bags.open(path, {'utf8': decode}) as reader:
        row = {'x': 'one', 'y': ['a'] * 9}
        assert reader[0] == row
        assert reader.__getitems__([0]) == [row]
        assert reader.batch([0]) == {'x': ['one'], 'y': [['a'] * 9]}
    assert set(seen) == {(bytes, ()), (bytes, ('z',))}
    with bags.open(path, {'other': decode}) as reader, pytest.raises(bags.SpecError, match=r"'x'.*utf8"):
        reader[0]
    with bags.open(path, {}, raw=True) as reader:
        assert bytes(reader[0]['x']) == b'one'


@pytest.mark.parametrize('name', ['bags05-dataset', 'bags05-sharded', 'granular-dataset', 'granular-sharded'])
def test_datasets_of_others(kit, name):
    import json

    expected = json.loads((kit.GOLDEN / 'expected.json').read_text())[name]
    with bags.open(kit.GOLDEN / name) as reader:
        assert reader.spec == expected['spec']
        rows = [simple(row) for row in reader]
        assert rows == expected['rows']
        assert [simple(row) for row in reader.__getitems__(range(len(reader)))] == expected['rows']
        order = [3, 0, 3, -1]
        batch = reader.batch(order)
        for field in expected['spec']:
            column = [simple(value) for value in batch[field]]
            assert column == [expected['rows'][index][field] for index in order], field
        assert [simple(row) for row in pickle.loads(pickle.dumps(reader))] == expected['rows']
        if 'bar' in reader.spec and reader.spec['bar'] == 'utf8[]':
            assert reader.lengths('bar').tolist() == [len(row['bar']) for row in expected['rows']]
            assert reader[3, {'bar': range(1, 2)}] == {'bar': expected['rows'][3]['bar'][1:2]}
    folder = kit.GOLDEN / name
    folder = folder if (folder / 'spec.json').exists() else folder / '000000'
    with pytest.raises(ValueError, match='read but not resumed'):
        bags.DatasetWriter(folder, expected['spec'], dict.fromkeys(bags.encoders, bytes), resume=True)


def simple(value):
    """Converts arrays and numpy numbers to Python values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: simple(part) for key, part in value.items()}
    return [simple(part) for part in value] if isinstance(value, list | tuple) else value


def test_what_granular_writes_today(tmp_path):
    granular = pytest.importorskip('granular')
    spec = {'id': 'u64', 'n': 'int', 'text': 'utf8', 'vec': 'array', 'meta': 'msgpack', 'tree': 'tree'}
    rows = [
        {
            'id': index,
            'n': 900 * index,
            'text': f'text {index}',
            'vec': np.arange(index, dtype='float32'),
            'meta': {'a': index},
            'tree': {'x': [index, {'y': np.full(3, index)}]},
        }
        for index in range(20)
    ]
    with granular.ShardedDatasetWriter(tmp_path / 'g', spec, granular.encoders, shardlen=6) as writer:
        for row in rows:
            writer.append(row, flush=True)
    with bags.open(str(tmp_path / 'g')) as reader:
        assert len(reader) == 20
        assert [simple(row) for row in reader] == [simple(row) for row in rows]
        assert simple(reader.batch([19, 3])['id']) == [19, 3]


def test_every_field_opens_in_bagz(kit, tmp_path):
    bagz = pytest.importorskip('bagz')
    rows = [kit.make_row(index) for index in range(12)]
    path = kit.fill(tmp_path / 'a', rows, compression=['text', 'words', 'blob'])
    records = [kit.encode_row(row) for row in rows]
    for name in ('text', 'blob', 'id', 'any'):
        (file,) = (tmp_path / 'a').glob(f'{name}.bag*')
        assert list(bagz.Reader(str(file))) == [record[name] for record in records]
    with bags.open(path) as reader:
        for name in ('words', 'nums', 'points'):
            (file,) = (tmp_path / 'a').glob(f'{name}.bag*')
            assert list(bagz.Reader(str(file))) == list(reader.records(name))
    assert len(bagz.Reader(str(tmp_path / 'a' / 'refs.bag'))) == 12


def test_the_quickstart_of_the_first_bags(tmp_path):
    import msgpack

    encoders = {
        'utf8': lambda x: x.encode('utf-8'),
        'int': lambda x, size: x.to_bytes(int(size), 'little'),
        'msgpack': msgpack.packb,
    }
    decoders = {
        'utf8': lambda x: x.decode('utf-8'),
        'int': lambda x, size=None: int.from_bytes(x, 'little'),
        'msgpack': msgpack.unpackb,
    }
    spec = {'foo': 'int(8)', 'bar': 'utf8[]', 'baz': 'msgpack'}
    first = {'foo': 42, 'bar': ['hello', 'world'], 'baz': {'a': 1}}
    directory = str(tmp_path / 'data')
    with bags.ShardedDatasetWriter(directory, spec, encoders, 10 * 1024**3) as writer:
        writer.append(first)
    with bags.ShardedDatasetReader(directory, decoders) as reader:
        assert (len(reader), reader.shards) == (1, 1)
        assert reader.size > 0
        assert reader[0] == first
        assert reader[0, {'foo': True, 'baz': True}] == {'foo': 42, 'baz': {'a': 1}}
        assert reader[0, {'bar': range(1, 2)}] == {'bar': ['world']}
    with bags.ShardedDatasetReader(directory, decoders, shard_start=0, shard_step=2) as reader:
        assert list(reader) == [first]
    with bags.DatasetReader(f'{directory}/000000', decoders) as reader:
        assert list(reader) == [first]


def test_what_is_not_there(tmp_path):
    for kind in (bags.open, bags.DatasetReader, bags.ShardedDatasetReader):
        with pytest.raises(FileNotFoundError):
            kind(tmp_path / 'nowhere')
        (tmp_path / 'empty').mkdir(exist_ok=True)
        with pytest.raises(FileNotFoundError):
            kind(tmp_path / 'empty')


@pytest.mark.slow(all_but='zstd')
@pytest.mark.parametrize('compression', [(), ('array', 'float', 'int', 'own')], ids=['plain', 'zstd'])
def test_a_sequence_of_fixed_size_is_one_array_in_a_row(tmp_path, kit, compression):
    spec = {'array': 'array(float32,2,3)[]', 'float': 'float(4)[]?', 'int': 'int[]', 'own': 'own[]'}
    own = {'own': lambda value: bytes([value])}
    rows = [
        {
            'array': np.full((index % 7, 2, 3), index, np.float32),
            'float': None if index % 3 == 1 else np.arange(index % 600, dtype=np.float32),
            'int': np.arange(index % 5),
            'own': list(range(index % 4)),
        }
        for index in range(1200)
    ]
    path = kit.fill(tmp_path / 'a', rows, spec, encoders={**bags.encoders, **own}, compression=compression)
    dataset = bags.open(path, decoders={**bags.decoders, 'own': lambda data: data[0]})
    order = random.Random(0).sample(range(len(rows)), 200)
    for index, row in zip(order, dataset.__getitems__(order), strict=True):
        assert kit.equal(row, rows[index])
        for _ in range(2):  # The first read checks the limits, the second does not.
            assert kit.equal(dataset[index], rows[index])
        found = dataset[index, {'array': [-1, 0] if index % 7 else [], 'int': slice(None, None, -2)}]
        assert kit.equal(found['array'], rows[index]['array'][[-1, 0] if index % 7 else []])
        assert found['int'].tolist() == rows[index]['int'][::-2].tolist()
        dataset[index]['array'][:] = 9  # A copy, which is writable.
    windows = dataset.windows(every='array', array=bags.steps(0, 4), stride=2, padding='drop')
    _, row, _, start, _ = windows.origin(5)
    assert kit.equal(windows[5]['array'], rows[row]['array'][start : start + 4])
