"""What may be written, the files on disk, and resuming."""

import io
import json
import os
import tracemalloc

import msgpack
import numpy as np
import pytest

import bags
from tests.dataset.writing.killed import leave_open

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]', 'note': 'utf8?', 'tags': 'utf8[]?'}


def row(index):
    return {
        'id': index,
        'text': f'text {index}',
        'words': [f'word {index}'] * (index % 3),
        'note': None if index % 2 else f'note {index}',
        'tags': None if index % 3 else [],
    }


def read(path, **options):
    with bags.open(path, **options) as reader:
        return list(reader)


def test_what_is_on_disk(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', SPEC, compression=['text']) as writer:
        assert [writer.append(row(index)) for index in range(3)] == [0, 1, 2]
    names = {path.name for path in (tmp_path / 'a').iterdir()}
    fields = {'id.bag', 'text.bagz', 'words.bag', 'note.bag', 'tags.bag'}
    assert names == {'spec.json', 'metadata.json', 'source.json', 'refs.bag', *fields}
    spec = json.loads((tmp_path / 'a' / 'spec.json').read_text())
    assert spec == SPEC
    assert list(spec) == sorted(SPEC)
    refs = bags.bag.Reader(str(tmp_path / 'a' / 'refs.bag')).read()
    missing = 0xFFFFFFFF
    assert [msgpack.unpackb(record) for record in refs] == [
        # id, note, tags, text, words
        [0, 0, [0, 0], 0, [0, 0]],
        [1, missing, [missing, 0], 1, [0, 1]],
        [2, 1, [missing, 0], 2, [1, 2]],
    ]
    assert {len(record) for record in refs} == {1 + 5 + 5 + 11 + 5 + 11}


def test_a_dataset_without_datapoints(tmp_path):
    for kind, name in ((bags.DatasetWriter, 'a'), (bags.ShardedDatasetWriter, 'b')):
        with kind(tmp_path / name, SPEC) as writer:
            assert len(writer) == 0
            assert bool(writer)
        with bags.open(tmp_path / name) as reader:
            assert (len(reader), list(reader), reader.spec) == (0, [], dict(sorted(SPEC.items())))
            batch = reader.batch([])
            assert batch['id'].dtype == np.int64
            assert batch['id'].shape == (0,)
            assert batch['text'] == []
            assert reader.lengths('words').tolist() == []
            assert len(reader.records('id')) == len(reader.records('words')) == len(reader[:]) == 0
            with pytest.raises(IndexError):
                reader[0]


def test_what_a_writer_says_of_itself(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'a', SPEC)
    for index in range(5):
        writer.append(row(index), flush=False)
    assert (len(writer), writer.shards, writer.closed) == (5, 1, False)
    assert writer.spec == SPEC
    assert 'open' in repr(writer)
    size = writer.size
    writer.close()
    writer.close()
    assert writer.closed
    assert writer.size == size == bags.open(tmp_path / 'a').size
    assert 'closed' in repr(writer)
    with pytest.raises(ValueError, match='closed'):
        writer.append(row(0))
    with pytest.raises(ValueError, match='closed'):
        writer.flush()


def test_nothing_is_overwritten(tmp_path, kit):
    kit.fill(tmp_path / 'a', [row(0)], SPEC)
    before = {path: path.read_bytes() for path in (tmp_path / 'a').iterdir()}
    for kind in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        with pytest.raises(FileExistsError):
            kind(tmp_path / 'a', SPEC)
    (tmp_path / 'b').mkdir()
    (tmp_path / 'b' / 'thesis.txt').write_text('mine')
    with pytest.raises(FileExistsError):
        bags.DatasetWriter(tmp_path / 'b', SPEC)
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(OSError):
        bags.DatasetWriter(tmp_path / 'file', SPEC)
    assert {path: path.read_bytes() for path in (tmp_path / 'a').iterdir()} == before
    assert [path.name for path in (tmp_path / 'b').iterdir()] == ['thesis.txt']


@pytest.mark.parametrize('kind', [bags.DatasetWriter, bags.ShardedDatasetWriter])
@pytest.mark.parametrize(
    ('spec', 'field'),
    [
        ({'x': 'nope'}, 'x'),
        ({'x': 'int(99)'}, 'x'),
        ({'x': 'float(3)'}, 'x'),
        ({'x': 'array(object)'}, 'x'),
        ({'x': 'utf8(3)'}, 'x'),
        ({'../x': 'utf8'}, '../x'),
        ({'refs': 'utf8'}, 'refs'),
        ({'limits.x': 'utf8'}, 'limits.x'),
        ({'x': 'utf8', 'X': 'utf8'}, None),
        ({}, None),
        (None, None),
        ({'x': 3}, 'x'),
    ],
    ids=repr,
)
def test_a_spec_that_cannot_be_leaves_nothing(tmp_path, kind, spec, field):
    with pytest.raises(bags.SpecError) as caught:
        kind(tmp_path / 'a', spec)
    assert field in (None, caught.value.field)
    assert not (tmp_path / 'a').exists()


def test_compression(tmp_path):
    for number, compression in enumerate((['text', 'words'], {'text': 19, 'words': 1}, ('text', 'words'))):
        with bags.DatasetWriter(tmp_path / str(number), SPEC, compression=compression) as writer:
            for index in range(9):
                writer.append(row(index))
        names = {path.name for path in (tmp_path / str(number)).iterdir()}
        assert {'text.bagz', 'words.bagz', 'id.bag', 'refs.bag'} <= names
        assert read(tmp_path / str(number)) == [dict(sorted(row(index).items())) for index in range(9)]
    for kind in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        with pytest.raises(bags.SpecError, match=r"'nope'.*text"):
            kind(tmp_path / 'x', SPEC, compression=['nope'])
        with pytest.raises(ValueError):
            kind(tmp_path / 'x', SPEC, compression={'text': 99})
    with pytest.raises(TypeError, match='names of fields'):
        bags.DatasetWriter(tmp_path / 'x', SPEC, compression='text')


def test_levels_of_compression(tmp_path):
    rng = np.random.default_rng(0)
    text = ' '.join(rng.choice(['one', 'two', 'three', 'four', 'five'], 30_000))
    sizes = []
    for level in (1, 19):
        with bags.DatasetWriter(
            tmp_path / str(level), {'text': 'utf8'}, compression={'text': level}
        ) as writer:
            writer.append({'text': text})
        sizes.append((tmp_path / str(level) / 'text.bagz').stat().st_size)
        assert read(tmp_path / str(level)) == [{'text': text}]
    assert sizes[1] < sizes[0]


def test_optional_fields_may_be_left_out(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'a': 'int(8)?', 'b': 'int(8)[]?', 'c': 'msgpack?'}) as writer:
        writer.append({})
        writer.append({'a': None, 'b': None, 'c': None})
        writer.append({'a': 0, 'b': [], 'c': {}})
    nothing = {'a': None, 'b': None, 'c': None}
    *missing, present = read(tmp_path / 'a')
    assert missing == [nothing, nothing]
    assert present['b'].tolist() == []
    assert {**present, 'b': None} == {**nothing, 'a': 0, 'c': {}}
    with bags.open(tmp_path / 'a') as reader:
        assert reader.batch([0, 2])['a'] == [None, 0]
        assert reader.batch([0, 2])['b'].present.tolist() == [False, True]


def test_sequences_may_be_any_iterable(tmp_path):
    class Old:
        def __getitem__(self, index):
            return [7, 8][index]

    with bags.DatasetWriter(tmp_path / 'a', {'x': 'int(8)[]'}) as writer:
        for values in (
            [7, 8],
            (7, 8),
            iter([7, 8]),
            np.array([7, 8]),
            range(7, 9),
            {7: 0, 8: 0}.keys(),
            Old(),
        ):
            writer.append({'x': values})
        writer.append({'x': (value for value in [7, 8])})
    assert [r['x'].tolist() for r in read(tmp_path / 'a')] == [[7, 8]] * 8


def test_items_that_do_not_encode_are_named(tmp_path):
    def words():
        yield 'one'
        raise ZeroDivisionError('two')

    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int', 'words': 'utf8[]'}) as writer:
        with pytest.raises(bags.EncodeError, match=r"field 'words' of type utf8\[\], item 1: ") as error:
            writer.append({'id': 1, 'words': ['one', 2]})
        assert error.value.item == 1
        with pytest.raises(ZeroDivisionError) as error:
            writer.append({'id': 1, 'words': words()})
        assert error.value.__notes__ == ["from the iterable of field 'words' of type utf8[], at item 1"]
        with pytest.raises(bags.EncodeError) as error:
            writer.append({'id': 'x', 'words': []})
        assert error.value.item is None
        assert not len(writer)


def test_generators_give_one_value_at_a_time(tmp_path):
    live, most = [0], [0]

    class Value(bytes):
        def __new__(cls):
            live[0] += 1
            most[0] = max(most[0], live[0])
            return super().__new__(cls, 1000)

        def __del__(self):
            live[0] -= 1

    def encode(value):
        assert isinstance(value, Value)
        return bytes(bytearray(value))

    with bags.DatasetWriter(tmp_path / 'a', {'x': 'blob[]'}, {'blob': encode}) as writer:
        tracemalloc.start()
        writer.append({'x': (Value() for _ in range(60_000))})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most[0] <= 2
    assert peak < 32 << 20  # Of 60 MB.
    with bags.open(tmp_path / 'a', {'blob': len}) as reader:
        assert reader.lengths('x').tolist() == [60_000]


class RecordingFile(io.BytesIO):
    """Records the largest read."""

    largest = 0

    def read(self, size=-1):
        data = super().read(size)
        RecordingFile.largest = max(RecordingFile.largest, len(data))
        return data


def test_encoders_may_return_bytes_buffers_and_files(tmp_path):
    made = []

    def encode(value):
        if value[0] == 'f':
            made.append(RecordingFile(value.encode() * 5))
            return made[-1]
        form = {'b': bytes, 'a': bytearray, 'm': memoryview, 'n': lambda v: np.frombuffer(v, np.uint8)}[
            value[0]
        ]
        return form(value.encode())

    values = ['bytes', 'array', 'memory', 'numpy', 'file', 'file2', 'n' * 8]
    for compression in ((), ('x', 'y')):
        path = tmp_path / str(len(compression))
        with bags.DatasetWriter(
            path, {'x': 'any', 'y': 'any[]'}, {'any': encode}, compression=compression
        ) as w:
            for value in values:
                w.append({'x': value, 'y': values})
        stored = [value * 5 if value[0] == 'f' else value for value in values]
        with bags.open(path, {'any': bytes.decode}) as reader:
            assert [r['x'] for r in reader] == stored
            assert [r['y'] for r in reader] == [stored] * len(values)
    assert all(file.closed for file in made)


@pytest.mark.parametrize('compression', [(), ('video',)])
def test_files_of_any_size_are_copied_in_pieces(tmp_path, compression):
    size = 200 << 20
    with open(tmp_path / 'video', 'wb') as file:
        file.truncate(size)
    tracemalloc.start()
    encoders = {'video': lambda path: open(path, 'rb')}  # noqa: SIM115 - the writer closes it
    with bags.DatasetWriter(tmp_path / 'a', {'video': 'video'}, encoders, compression=compression) as writer:
        writer.append({'video': tmp_path / 'video'})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    (bag,) = (tmp_path / 'a').glob('video.bag*')
    if not compression:
        assert bag.stat().st_size == size + 8
    with bags.open(tmp_path / 'a', raw=True) as reader, reader.file(0, 'video') as file:
        assert file.seek(0, 2) == size


def test_users_encoders_are_the_whole_set(tmp_path):
    with pytest.raises(bags.SpecError, match="'x'"):
        bags.DatasetWriter(tmp_path / 'a', {'x': 'utf8'}, {'depth': bytes})
    encoders = {**bags.encoders, 'depth': lambda value, unit='m', *rest: f'{value}{unit}{rest}'.encode()}
    with bags.DatasetWriter(
        tmp_path / 'a', {'x': 'depth(cm,9)', 'y': 'depth', 'z': 'utf8'}, encoders
    ) as writer:
        writer.append({'x': 1, 'y': 2, 'z': '3'})
    with bags.open(tmp_path / 'a', {**bags.decoders, 'depth': lambda data, *args: (data, args)}) as reader:
        assert reader[0] == {'x': (b"1cm('9',)", ('cm', '9')), 'y': (b'2m()', ()), 'z': '3'}


# Resuming.


@pytest.mark.parametrize('compression', [(), ('id', 'words', 'note')])
def test_resuming(tmp_path, compression):
    path, rows = tmp_path / 'a', [dict(sorted(row(index).items())) for index in range(30)]
    done = 0
    for step, closes in enumerate([True, False, True, True, False, False, True]):
        writer = bags.DatasetWriter(path, SPEC, compression=compression, resume=True)
        assert len(writer) == done
        assert read(path) == rows[:done]
        for index in range(done, done + step):
            assert writer.append(rows[index], flush=True) == index
        done += step
        assert read(path) == rows[:done]
        if closes:
            writer.close()
        leave_open(writer)
        del writer
        assert read(path) == rows[:done]
    names = [p.name for p in path.iterdir()]
    assert len(names) == 4 + len(SPEC)  # No temporary files are left.


def test_a_closed_dataset_that_is_resumed_stays_readable(tmp_path, kit):
    # These records look like limits: 0 is the limit of a bag of one empty record.
    for values in ([0], [0, 0], [8, 16], [0, 8, 16, 24]):
        path = kit.fill(tmp_path / str(values), [{'id': value} for value in values], {'id': 'int(8)'})
        writer = bags.DatasetWriter(path, {'id': 'int(8)'}, resume=True)
        assert [r['id'] for r in read(path)] == values
        writer.append({'id': 5}, flush=True)
        assert [r['id'] for r in read(path)] == [*values, 5]
        writer.close()
        assert [r['id'] for r in read(path)] == [*values, 5]


def test_resuming_keeps_what_readers_have(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [row(index) for index in range(6)], SPEC)
    with bags.open(path) as reader, bags.open(path, raw=True) as raw:
        text = raw[5]['text']
        with bags.DatasetWriter(path, SPEC, resume=True) as writer:
            for index in range(6, 2000):
                writer.append(row(index))
        assert len(reader) == 6
        assert [r['id'] for r in reader] == list(range(6))
        assert bytes(text) == b'text 5'
        with pytest.raises(IndexError):
            reader[6]
    assert len(read(path)) == 2000


def test_resuming_keeps_the_compression_of_fields(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [row(0)], SPEC, compression=['text'])
    with bags.DatasetWriter(path, SPEC, compression=['id'], resume=True) as writer:
        writer.append(row(1))
    assert {p.name for p in (tmp_path / 'a').iterdir()} >= {'text.bagz', 'id.bag'}
    assert read(path) == [dict(sorted(row(index).items())) for index in range(2)]


def test_resuming_with_another_spec(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [row(0)], SPEC)
    before = {p: p.read_bytes() for p in (tmp_path / 'a').iterdir()}
    for spec in ({**SPEC, 'id': 'int(4)'}, {**SPEC, 'more': 'utf8'}, {'id': 'int(8)'}):
        with pytest.raises(bags.SpecError):
            bags.DatasetWriter(path, spec, resume=True)
    assert {p: p.read_bytes() for p in (tmp_path / 'a').iterdir()} == before


def test_resuming_drops_only_what_is_incomplete(tmp_path):
    path = tmp_path / 'a'
    writer = bags.DatasetWriter(path, SPEC)
    for index in range(5):
        writer.append(row(index))
    writer.flush()
    leave_open(writer)
    del writer
    for name, torn in (
        ('text.bag', b'torn'),
        ('limits.text.bag', b'abc'),
        ('refs.bag', b'\x95\xce'),
        ('id.bag', b'?'),
    ):
        with open(path / name, 'ab') as file:
            file.write(torn)
    assert read(path) == [dict(sorted(row(index).items())) for index in range(5)]
    with bags.DatasetWriter(path, SPEC, resume=True) as writer:
        assert len(writer) == 5
        writer.append(row(5))
    assert read(path) == [dict(sorted(row(index).items())) for index in range(6)]


@pytest.mark.parametrize('durability', ['none', 'close'])
def test_resuming_drops_refs_at_the_end_that_lead_nowhere(tmp_path, durability):
    path = tmp_path / 'a'
    writer = bags.DatasetWriter(path, SPEC, durability=durability)
    for index in range(6):
        writer.append(row(index), flush=True)
    leave_open(writer)
    del writer
    os.truncate(path / 'limits.text.bag', 4 * 8)  # As after a power failure.
    with bags.DatasetWriter(path, SPEC, resume=True) as writer:
        assert len(writer) == 4
        writer.append(row(4))
    assert read(path) == [dict(sorted(row(index).items())) for index in range(5)]


@pytest.mark.parametrize('closes', [True, False])
@pytest.mark.parametrize('count', [0, 2, 4, 9])
def test_resuming_a_part_of_the_datapoints(tmp_path, closes, count):
    rows = [dict(sorted(row(index).items())) for index in range(4)]
    writer = bags.DatasetWriter(tmp_path / 'a', SPEC)
    for index in range(4):
        writer.append(rows[index], flush=True)
    if closes:
        writer.close()
    leave_open(writer)
    del writer
    with bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True, truncate_to=count) as writer:
        assert len(writer) == min(count, 4)
        writer.append(rows[3])
    assert read(tmp_path / 'a') == [*rows[:count], rows[3]]
    with pytest.raises(ValueError, match='truncate_to: expected resume=True'):
        bags.DatasetWriter(tmp_path / 'b', SPEC, truncate_to=1)
    with pytest.raises(ValueError, match='truncate_to: expected at least 0'):
        bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True, truncate_to=-1)


def test_resuming_does_not_take_a_lost_bag_for_an_empty_one(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', [row(index) for index in range(3)], SPEC)
    os.rename(tmp_path / 'a' / 'text.bag', tmp_path / 'text.bag')
    with pytest.raises(bags.CorruptError, match='text'):
        bags.DatasetWriter(path, SPEC, resume=True)
    os.rename(tmp_path / 'text.bag', tmp_path / 'a' / 'text.bag')
    assert len(read(path)) == 3


@pytest.mark.parametrize('keep', [[], ['spec.json'], ['spec.json', 'limits.refs.bag'],
                                  ['spec.json', 'limits.refs.bag', 'refs.bag'],
                                  ['spec.json', 'limits.refs.bag', 'refs.bag', 'id.bag', 'limits.id.bag'],
                                  ['spec.json', 'limits.refs.bag', 'refs.bag', 'limits.id.bag'],
                                  ['spec.json.123.new']])  # fmt: skip
def test_resuming_an_incomplete_folder(tmp_path, keep):
    writer = bags.DatasetWriter(tmp_path / 'a', SPEC)
    leave_open(writer)
    del writer
    for path in (tmp_path / 'a').iterdir():
        if path.name not in keep:
            path.unlink()
    if keep == ['spec.json.123.new']:
        (tmp_path / 'a' / keep[0]).write_text('{"i')
    with bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True) as writer:
        writer.append(row(0))
    assert read(tmp_path / 'a') == [dict(sorted(row(0).items()))]


def test_records_without_a_datapoint_are_dropped_at_close(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'a', SPEC)
    with pytest.raises(bags.EncodeError):
        writer.append({**row(0), 'words': ['x' * 100_000] * 400 + [3]})
    writer.close()
    assert read(tmp_path / 'a') == []
    with bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True) as writer:
        writer.append(row(1))
    assert read(tmp_path / 'a') == [dict(sorted(row(1).items()))]


def test_a_with_block_that_raises_keeps_what_was_written(tmp_path):
    with pytest.raises(RuntimeError), bags.DatasetWriter(tmp_path / 'a', SPEC) as writer:  # noqa: PT012
        writer.append(row(0))
        raise RuntimeError
    assert read(tmp_path / 'a') == [dict(sorted(row(0).items()))]


def test_two_writers_in_one_folder(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', SPEC) as writer:
        writer.append(row(0), flush=True)
        with pytest.raises(BlockingIOError, match='another writer'):
            bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True)
        assert len(read(tmp_path / 'a')) == 1
        writer.append(row(1))
    with bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True) as writer:
        assert len(writer) == 2


@pytest.mark.parametrize('count', [1, 3])
def test_most_records_of_a_folder(tmp_path, monkeypatch, count):
    monkeypatch.setattr('bags.dataset.writing.field_writer.MAX_BAG_RECORDS', 10)
    with bags.DatasetWriter(tmp_path / 'a', {'words': 'utf8[]'}) as writer:
        for _ in range(10 // count):
            writer.append({'words': ['x'] * count})
        with pytest.raises(bags.EncodeError, match=r"'words'.*10 records"):
            writer.append({'words': ['x'] * 3})
    assert read(tmp_path / 'a') == [{'words': ['x'] * count}] * (10 // count)


@pytest.mark.parametrize('values', [np.array(['a', 'abcd', ''], 'U4'), np.array([b'a', b'abcd', b''], 'S4')])
def test_sequences_of_texts_of_arrays(tmp_path, values):
    with bags.DatasetWriter(tmp_path / 'a', {'x': f'array({values.dtype.str[1:]})[]'}) as writer:
        writer.append({'x': values})
        with pytest.raises(bags.EncodeError, match='expected an array of'):
            writer.append({'x': np.array([values[1] * 2])})
    with bags.open(tmp_path / 'a') as dataset:
        assert np.array_equal(dataset[0]['x'], values)


def test_the_longest_name_of_a_field(tmp_path):
    name = 'f' * 200
    with bags.DatasetWriter(tmp_path / 'new', {name: 'utf8'}, checksum=True) as writer:
        writer.append({name: 'one'})
    with bags.DatasetWriter(tmp_path / 'new', {name: 'utf8'}, resume=True) as writer:
        writer.append({name: 'more'})
    with bags.open(tmp_path / 'new', checksum=True) as dataset:
        assert dataset.batch([0, 1])[name] == ['one', 'more']
    with pytest.raises(bags.SpecError, match='a name of at most 200 characters'):
        bags.DatasetWriter(tmp_path / 'other', {name + 'f': 'utf8'})
