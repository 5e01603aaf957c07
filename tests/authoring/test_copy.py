"""`bags.copy`: the copy equals the view, whatever its storage options, and also after a crash."""

import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.authoring import copy_plan
from bags.bag import compression
from tests.dataset.writing.killed import leave_open

ROWS = 60


@pytest.fixture(scope='module')
def sources(kit, tmp_path_factory):
    """Datasets of one spec, stored in different ways, and their rows."""
    folder = tmp_path_factory.mktemp('sources')
    rows = [kit.make_row(index) for index in range(ROWS)]
    ways = {
        'plain': {},
        'zstd': {'compression': kit.COMPRESSED},
        'shards': {'shard_length': 17, 'compression': ['text', 'blob']},
        'trained': {'shard_length': 25, 'compression': {'words': 'dictionary', 'text': ('dictionary', 9)}},
    }
    # Train a dictionary from few records too.
    least, compression.MIN_TRAINING_BYTES = compression.MIN_TRAINING_BYTES, 100
    try:
        filled = {name: kit.fill(folder / name, rows, **options) for name, options in ways.items()}
    finally:
        compression.MIN_TRAINING_BYTES = least
    assert list(folder.rglob('words.zdict'))
    return {name: bags.open(path) for name, path in filled.items()}, rows


def same(kit, dataset, rows):
    assert len(dataset) == len(rows)
    for found, row in zip(dataset, rows, strict=True):
        assert kit.equal(found, {name: row.get(name) for name in found})


VIEWS = st.sampled_from(['whole', 'slice', 'back', 'select', 'concat', 'join', 'windows', 'shuffled parts'])
COMPRESSIONS = st.sampled_from(
    [None, (), ['text', 'nums', 'frames'], {'text': 1, 'blob': 'dictionary'}, {'words': 'dictionary'}]
)


def view_of(kind, sources, names, chance):
    a, b = (sources[name] for name in names)
    indices = [chance.randrange(-ROWS, ROWS) for _ in range(chance.choice([0, 1, 40, 90]))]
    if kind == 'whole':
        return a
    if kind == 'slice':
        return a[chance.randrange(ROWS) : chance.randrange(ROWS + 5) : chance.choice([1, 1, 3])]
    if kind == 'back':
        return a[:: -chance.choice([1, 2])]
    if kind == 'select':
        return a.select(indices)
    if kind == 'concat':
        return bags.concat([a[5:25], b, a[:2]])
    if kind == 'join':
        return bags.join([a, b], replace=True)
    if kind == 'windows':
        return a.windows(every='nums', nums=bags.steps(0, 2), stride=chance.choice([1, 2, 3]), padding='drop')
    return bags.concat([a, b]).select([index % (2 * ROWS) for index in range(0, 700, 7)])


ANY = given(VIEWS, COMPRESSIONS, st.integers(0, 2**30), st.sampled_from([3000, 50_000, 1 << 25]))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@ANY
def test_a_copy_of_a_view_is_equal_to_it(tmp_path_factory, kit, sources, kind, compression, seed, limit):
    check_copy(tmp_path_factory, kit, sources, kind, compression, seed, limit)


@pytest.mark.campaign
@settings(max_examples=300, deadline=None)
@ANY
def test_copies_of_many_views(tmp_path_factory, kit, sources, kind, compression, seed, limit):
    check_copy(tmp_path_factory, kit, sources, kind, compression, seed, limit)


def check_copy(tmp_path_factory, kit, sources, kind, compression, seed, limit):
    found, _ = sources
    chance = random.Random(seed)
    names = chance.choices(list(found), k=2)
    view = view_of(kind, found, names, chance)
    target = tmp_path_factory.mktemp('copies') / 'copy'
    fields = chance.choice([None, None, 'text', ('id', 'words', 'tags'), ['nums', 'maybe']])
    size = chance.choice(
        [{}, {'shard_length': 13}, {'shard_size': 5000}, {'shard_size': 1, 'shard_length': 7}]
    )
    before = copy_plan.MAX_COPIED_CHUNK_BYTES
    copy_plan.MAX_COPIED_CHUNK_BYTES = limit
    try:
        kept = view.spec if fields is None else fields
        ways = compression if isinstance(compression, dict) else dict.fromkeys(compression or (), 3)
        ways = {name: way for name, way in ways.items() if name in kept}
        done = bags.copy(
            view, target, fields=fields, compression=None if compression is None else ways, **size
        )
    finally:
        copy_plan.MAX_COPIED_CHUNK_BYTES = before
    assert done.datapoints == len(view)
    assert not done.skipped
    with bags.open(target) as copy:
        assert copy.spec == {name: kind for name, kind in view.spec.items() if name in copy.spec}
        same(kit, copy, [view[index, list(copy.spec)] for index in range(len(view))])
        if 'shard_length' in size and 'shard_size' not in size:
            assert copy.shards == max(1, -(-len(view) // 13))
        if compression is not None:
            for name in copy.spec:
                suffix = '.bagz' if name in ways else '.bag'
                assert (target / '000000' / f'{name}{suffix}').exists()


def test_records_that_are_stored_alike_are_copied_as_they_are(tmp_path, sources):
    found, _ = sources
    for name in ('plain', 'zstd', 'trained'):
        source = found[name]
        bags.copy(source, tmp_path / name)
        for path in (tmp_path / name / '000000').iterdir():
            if path.suffix in ('.bag', '.bagz') and path.name != 'refs.bag':
                kept = bags.bag.Reader(path, compression='none').read()
                folder = source.path
                shards = sorted(os.listdir(folder)) if name == 'trained' else ['']
                held = [
                    record
                    for shard in shards
                    for record in bags.bag.Reader(os.path.join(folder, shard, path.name), compression='none')
                ]
                assert kept == held
    assert (tmp_path / 'trained' / '000000' / 'words.zdict').exists()


def test_shared_records_stay_shared(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'bytes', 'xs': 'bytes[]'}) as writer:
        for index in range(20):
            writer.append({'x': bytes([index]), 'xs': [bytes([index, item]) for item in range(20)]})
    source = bags.open(tmp_path / 'd')
    thrice = source.select(np.repeat(np.arange(20), 3))
    bags.copy(thrice, tmp_path / 'thrice', fields='x')
    assert len(bags.bag.Reader(tmp_path / 'thrice' / '000000' / 'x.bag')) == 20
    windows = source.windows(every='xs', xs=bags.steps(0, 8), stride=4, padding='drop')
    bags.copy(windows, tmp_path / 'windows')
    assert len(bags.bag.Reader(tmp_path / 'windows' / '000000' / 'xs.bag')) == 400
    copied, fields = bags.open(tmp_path / 'windows'), ('x', 'xs')
    assert list(copied[:, fields]) == list(windows[:, fields])
    assert np.array_equal(copied.column('xs_is_pad'), windows.column('xs_is_pad'))
    again = windows[:, ('x', 'xs')].windows(every='xs', xs=bags.steps(0, 3), stride=2, padding='drop')
    bags.copy(again, tmp_path / 'again')
    copied = bags.open(tmp_path / 'again')
    assert list(copied[:, fields]) == list(again[:, fields])
    assert np.array_equal(copied.column('xs_is_pad'), again.column('xs_is_pad'))


def test_shards_end_where_a_writer_would_end_them(tmp_path, sources, kit):
    found, rows = sources
    kit.fill(tmp_path / 'written', rows, shard_length=None, shard_size=20_000)
    bags.copy(found['plain'], tmp_path / 'copied', shard_size=20_000)
    sizes = [
        [len(bags.open(path)) for path in sorted((tmp_path / name).iterdir()) if path.is_dir()]
        for name in ('written', 'copied')
    ]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > 3


def test_new_fields(tmp_path, sources, kit):
    found, rows = sources
    sizes = []

    def mean(batch):
        assert set(batch) == set(kit.SPEC)
        assert 'text' in batch
        assert 'nothing' not in batch
        sizes.append(len(batch['id']))
        return batch['grid'].mean(axis=(1, 2))

    add = {
        'mean': ('float(4)', mean),
        'twice': ('array(float32,2,3)', lambda batch: 2 * batch['grid']),
        'letters': ('utf8[]?', lambda batch: [list(text) if text else None for text in batch['text']]),
        'id': ('utf8', lambda batch: [f'number {number}' for number in batch['id']]),
    }
    bags.copy(
        found['shards'], tmp_path / 'd', fields=['score', 'id'], add=add, batch_size=7,
        compression=['letters'], shard_length=20,
    )  # fmt: skip
    assert max(sizes) == 7
    copy = bags.open(tmp_path / 'd')
    assert copy.spec == {
        'id': 'utf8', 'letters': 'utf8[]?', 'mean': 'float(4)', 'score': 'float(4)',
        'twice': 'array(float32,2,3)',
    }  # fmt: skip
    for datapoint, row in zip(copy, rows, strict=True):
        assert kit.equal(datapoint['twice'], 2 * row['grid'])
        assert datapoint['letters'] == (list(row['text']) or None)
        assert datapoint['id'] == f'number {row["id"]}'
        assert datapoint['score'] == row['score']


def test_errors_of_functions(tmp_path, sources):
    source = sources[0]['plain']
    with pytest.raises(ValueError, match=r"field 'x': expected 60 values .* got 59"):
        bags.copy(source, tmp_path / 'a', add={'x': ('int', lambda batch: batch['id'][1:])})
    with pytest.raises(ZeroDivisionError) as error:
        bags.copy(source, tmp_path / 'b', add={'x': ('int', lambda batch: 1 // 0)})
    assert "field 'x', on datapoints 0 to 59" in error.value.__notes__[0]
    numbers = {'x': ('uint(1)', lambda batch: [999 if row == 7 else 0 for row in batch['id']])}
    with pytest.raises(bags.EncodeError, match="'x'") as error:
        bags.copy(source, tmp_path / 'c', add=numbers)
    index = source.column('id').tolist().index(7)
    assert error.value.__notes__ == [f"from the function of field 'x', for datapoint {index}"]
    with pytest.raises(KeyError, match="no field 'nothing'"):
        bags.copy(source, tmp_path / 'e', add={'x': ('int', lambda batch: batch['nothing'])})


def test_what_cannot_be_copied(tmp_path, sources):
    source = sources[0]['plain']
    bags.copy(source, tmp_path / 'there', fields='id')
    with pytest.raises(FileExistsError, match='there'):
        bags.copy(source, tmp_path / 'there', fields='id')
    with pytest.raises(TypeError, match='expected a dataset'):
        bags.copy([{'id': 1}], tmp_path / 'x')
    with pytest.raises(TypeError, match='as a whole'):
        bags.copy(source, tmp_path / 'x', fields={'words': range(2)})
    with pytest.raises(KeyError, match='nothing'):
        bags.copy(source, tmp_path / 'x', fields='nothing')
    with pytest.raises(bags.SpecError, match='nothing'):
        bags.copy(source, tmp_path / 'x', compression=['nothing'])
    with pytest.raises(ValueError, match='on_error'):
        bags.copy(source, tmp_path / 'x', on_error='ignore')
    assert not (tmp_path / 'x').exists()


def test_a_path_and_types_without_a_codec(tmp_path):
    encoders = {'mine': lambda value, size: value[: int(size)]}
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'mine(3)'}, encoders) as writer:
        writer.append({'x': b'abcdef'})
    bags.copy(tmp_path / 'd', tmp_path / 'copy')
    copy = bags.open(tmp_path / 'copy', {'mine': lambda record, size: (record, size)})
    assert copy[0]['x'] == (b'abc', '3')


@pytest.mark.parametrize('name', ['bags05-dataset', 'bags05-sharded', 'granular-dataset'])
def test_datasets_of_other_libraries(tmp_path, kit, name):
    source = bags.open(kit.GOLDEN / name)
    bags.copy(source, tmp_path / 'copy')
    copy = bags.open(tmp_path / 'copy')
    same(kit, copy, [source[index] for index in range(len(source))])


def test_unsigned_integers_stay_unsigned(tmp_path, kit):
    """In datasets of Bags 0.x every int is unsigned."""
    source = bags.open(kit.GOLDEN / 'bags05-dataset')
    ints = [name for name, kind in source.spec.items() if kind.startswith('int')]
    bags.copy(source, tmp_path / 'copy')
    assert ints
    assert all(bags.open(tmp_path / 'copy').spec[name] == f'u{source.spec[name]}' for name in ints)


# Damage.


def harm(path, index):
    """Changes a byte of a record; in a zstd frame, a byte of its checksum."""
    bag = bags.bag.Reader(path, compression='none')
    end = sum(len(bag[i]) for i in range(index + 1))
    with open(path, 'r+b') as file:
        file.seek(end - 1)
        byte = file.read(1)[0]
        file.seek(end - 1)
        file.write(bytes([byte ^ 0x40]))


def test_damaged_datapoints_are_left_out_and_listed(tmp_path, kit):
    rows = [kit.make_row(index) for index in range(ROWS)]
    folder = kit.fill(tmp_path / 'd', rows, compression=['meta'])
    for index in (3, 4, 40):
        harm(os.path.join(folder, 'meta.bagz'), index)
    with open(os.path.join(folder, 'refs.bag'), 'r+b') as file:
        stride = os.path.getsize(file.name) // ROWS - 8
        file.seek(20 * stride + 5)
        file.write(b'\xff')
    source = bags.open(folder)
    with pytest.raises(bags.CorruptError, match=r'refs\.bag, record 20'):
        bags.copy(source, tmp_path / 'raised')
    done = bags.copy(source, tmp_path / 'copy', on_error='skip', shard_length=9)
    assert [skip.datapoint for skip in done.skipped] == [3, 4, 20, 40]
    assert all('record' in skip.error for skip in done.skipped)
    kept = [row for index, row in enumerate(rows) if index not in (3, 4, 20, 40)]
    same(kit, bags.open(tmp_path / 'copy'), kept)
    # A resumed copy still lists the skipped datapoints.
    again = bags.copy(source, tmp_path / 'copy', on_error='skip', shard_length=9, resume=True)
    assert (again.datapoints, again.skipped) == (done.datapoints, done.skipped)
    same(kit, bags.open(tmp_path / 'copy'), kept)


def test_skipped_datapoints_are_listed_once_after_a_crash(tmp_path, kit):
    """A killed copy may have recorded a datapoint as skipped while datapoints before it are not durable."""
    rows = [kit.make_row(index) for index in range(ROWS)]
    folder = kit.fill(tmp_path / 'd', rows, compression=['meta'])
    for index in (3, 4, 20, 40):
        harm(os.path.join(folder, 'meta.bagz'), index)
    source = bags.open(folder)
    done = bags.copy(source, tmp_path / 'copy', on_error='skip', shard_length=9)
    kept = [row for index, row in enumerate(rows) if index not in (3, 4, 20, 40)]
    for lost in ([2, 3, 4, 5, 6], [5, 6], [0, 1, 2, 3, 4, 5, 6]):  # Shards that a killed copy did not finish.
        for shard in lost:
            shutil.rmtree(tmp_path / 'copy' / f'{shard:06}')
        again = bags.copy(source, tmp_path / 'copy', on_error='skip', shard_length=9, resume=True)
        assert (again.datapoints, again.skipped) == (done.datapoints, done.skipped)
        same(kit, bags.open(tmp_path / 'copy'), kept)


def test_damage_found_while_records_are_compressed_again(tmp_path, kit):
    rows = [kit.make_row(index) for index in range(ROWS)]
    folder = kit.fill(tmp_path / 'd', rows, compression=['meta'])
    harm(os.path.join(folder, 'meta.bagz'), 31)
    with pytest.raises(bags.CorruptError, match=r'meta\.bagz, record 31'):
        bags.copy(folder, tmp_path / 'copy', compression=())
    done = bags.copy(folder, tmp_path / 'copy', compression=(), on_error='skip', resume=True)
    assert [skip.datapoint for skip in done.skipped] == [31]
    same(kit, bags.open(tmp_path / 'copy'), [row for index, row in enumerate(rows) if index != 31])


# Resuming.


def test_a_copy_resumes_only_from_what_it_is_of(tmp_path, sources):
    found, _ = sources
    bags.copy(found['plain'], tmp_path / 'copy')
    # The same rows, but another dataset.
    with pytest.raises(ValueError, match=r'source is another one, or has changed.*check_source=False'):
        bags.copy(found['zstd'], tmp_path / 'copy', resume=True)
    again = bags.copy(found['zstd'], tmp_path / 'copy', resume=True, check_source=False)
    assert again.datapoints == ROWS
    with pytest.raises(ValueError, match='source is another one'):
        bags.copy(found['plain'], tmp_path / 'copy', resume=True)
    bags.copy(found['plain'], tmp_path / 'copy', resume=True, check_source=False)
    more = bags.concat([found['plain'], found['plain']])
    for other, said in (
        (found['plain'][1:], 'expected the 60 inputs .* got only 59'),
        (more, 'expected the 60 inputs .* got 120. Resume with the first 60'),
        (found['plain'][::-1], 'source is another one'),
    ):
        with pytest.raises(ValueError, match=said):
            bags.copy(other, tmp_path / 'copy', resume=True)
    assert bags.copy(found['plain'][:], tmp_path / 'copy', resume=True).datapoints == ROWS
    with pytest.raises(bags.SpecError):
        bags.copy(found['plain'], tmp_path / 'copy', fields='id', resume=True)
    with bags.ShardedDatasetWriter(tmp_path / 'written', {'id': 'int(8)'}) as writer:
        writer.append({'id': 3})
    with pytest.raises(ValueError, match=r'progress\.json'):
        bags.copy(found['plain'], tmp_path / 'written', fields='id', resume=True)


KILLED = """
import sys, bags
from bags.authoring import copy_plan
from bags.bag import compression
copy_plan.MAX_COPIED_CHUNK_BYTES = 1 << 15
source = bags.open(sys.argv[1])
many = len(source) * 8
view = bags.concat([source] * 8).select([index * 7 % many for index in range(many)])
print('begun', flush=True)
bags.copy(view, sys.argv[2], shard_length=70, compression={'text': 'dictionary', 'nums': 3}, resume=True)
"""


def kill_at_random(kit, tmp_path, source, times, seed):
    chance = random.Random(seed)
    for _ in range(times):
        process = kit.python(KILLED, source.path, tmp_path / 'copy', wait=False)
        process.stdout.readline()
        time.sleep(chance.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()
    kit.python(KILLED, source.path, tmp_path / 'copy')
    view = bags.concat([source] * 8).select([index * 7 % (8 * ROWS) for index in range(8 * ROWS)])
    same(kit, bags.open(tmp_path / 'copy'), list(view))


@pytest.mark.slow
def test_a_killed_copy_resumes(kit, tmp_path, sources):
    kill_at_random(kit, tmp_path, sources[0]['shards'], 3, 0)


@pytest.mark.campaign
def test_a_copy_killed_at_many_moments(kit, tmp_path, sources):
    kill_at_random(kit, tmp_path, sources[0]['shards'], 20, 1)


@pytest.mark.parametrize('first', [[], ['text'], {'text': 'dictionary'}])
@pytest.mark.parametrize('then', [None, [], ['text'], {'text': 'dictionary'}])
def test_an_open_shard_of_another_compression_is_not_continued(tmp_path, first, then):
    texts = [f'text {index} ' * 9 for index in range(60)]
    with bags.DatasetWriter(tmp_path / 'source', {'text': 'utf8'}, compression=['text']) as writer:
        for text in texts:
            writer.append({'text': text})
    source, path = bags.open(tmp_path / 'source'), tmp_path / 'copy'
    bags.copy(source, path, compression=first)
    leave_open(bags.DatasetWriter(path / '000000', {'text': 'utf8'}, resume=True, truncate_to=30))
    bags.copy(source, path, compression=then, resume=True)
    assert bags.open(path).column('text') == texts
    assert not bags.verify(path, decode=True)


def test_to_a_remote_store_and_back(tmp_path, sources, kit):
    found, rows = sources
    for name in ('plain', 'trained'):
        url = f'memory://{tmp_path.name}/{name}'
        bags.copy(found[name], url, shard_length=22)
        with bags.open(url) as there:
            same(kit, there, rows)
            bags.copy(there[::-1], tmp_path / name, compression=['blob'])
        done = bags.copy(found[name], url, shard_length=22, resume=True)
        assert (done.datapoints, done.shards) == (ROWS, 3)
        same(kit, bags.open(tmp_path / name), rows[::-1])
