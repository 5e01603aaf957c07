"""Datasets that are appended to sharded datasets."""

import os
import random

import pytest

import bags
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter

SPEC = {'id': 'int(8)', 'words': 'utf8[]?'}


def make_row(index):
    return {'id': index, 'words': None if index % 5 == 0 else [str(index)] * (index % 3)}


def write(path, start, stop, spec=SPEC, **options):
    with bags.ShardedDatasetWriter(path, spec, shard_length=7, **options) as writer:
        for index in range(start, stop):
            writer.append(make_row(index))
    return path


def append(dataset, path, **options):
    return bags.append(dataset, path, progress=False, **options)


def test_shards_follow(tmp_path):
    path = write(tmp_path / 'all', 0, 20)
    before = {file: file.read_bytes() for file in path.rglob('*') if file.is_file()}
    done = append(write(tmp_path / 'b', 20, 45), path, shard_length=10)
    assert (done.datapoints, done.shards, done.spec) == (45, 6, SPEC)
    with bags.open(path) as dataset:
        assert list(dataset) == [make_row(index) for index in range(45)]
        assert not dataset.unfinished
    assert all(file.read_bytes() == data for file, data in before.items())
    assert not bags.verify(path, decode=True)


def test_views_and_several_datasets(tmp_path):
    a, b = bags.open(write(tmp_path / 'a', 0, 20)), bags.open(write(tmp_path / 'b', 20, 40))
    for dataset in (a.filter('id >= 5'), b[::2], bags.concat([a[:3], b[:3]])):
        append(dataset, tmp_path / 'new')
    expected = [*range(5, 20), *range(20, 40, 2), 0, 1, 2, 20, 21, 22]
    assert bags.open(tmp_path / 'new').column('id').tolist() == expected


def test_nothing_is_appended_twice(tmp_path):
    path = tmp_path / 'all'
    parts = [write(tmp_path / str(number), 10 * number, 10 * number + 10) for number in range(3)]
    for part in (*parts, parts[0], *parts):
        append(part, path)
    append(bags.copy(parts[1], tmp_path / 'copy', progress=False) and tmp_path / 'copy', path)
    assert bags.open(path).column('id').tolist() == [*range(30)]


def test_shards_json_is_renewed(tmp_path):
    path = write(tmp_path / 'all', 0, 20)
    bags.consolidate(path)
    append(write(tmp_path / 'b', 20, 30), path)
    written = (path / 'shards.json').read_bytes()
    assert bags.consolidate(path) == 4
    assert (path / 'shards.json').read_bytes() == written


def test_metadata_and_checksums_stay(tmp_path):
    facts = {'robot': 'arm', 'fields': {'words': {'rate': 3}}}
    path = write(tmp_path / 'all', 0, 5, metadata=facts, checksum=True)
    append(write(tmp_path / 'b', 5, 9, metadata=facts), path)
    assert bags.open(path, checksum=True).column('id').tolist() == [*range(9)]
    assert bags.open(path)[:].metadata == facts
    assert (path / '000001/metadata.json').read_bytes() == (path / '000000/metadata.json').read_bytes()


def test_compressed_records(tmp_path):
    path = write(tmp_path / 'all', 0, 10)
    append(write(tmp_path / 'b', 10, 30, compression=['words']), path)
    append(write(tmp_path / 'c', 30, 50, compression={'words': 'dictionary'}), path)
    assert list(bags.open(path)) == [make_row(index) for index in range(50)]


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='a child is forked')
@pytest.mark.parametrize('kill_at', [1, 2, 5, 9, 14])
@pytest.mark.parametrize('is_flushed', [True, False])
def test_an_append_that_was_killed_continues(tmp_path, monkeypatch, kill_at, is_flushed):
    path = write(tmp_path / 'all', 0, 10)
    bags.consolidate(path)
    new = write(tmp_path / 'new', 10, 50)
    if not (child := os.fork()):
        try:
            calls, append_runs = 0, bags.DatasetWriter.append_runs

            def count_calls(writer, *args):
                nonlocal calls
                calls += 1
                if calls == kill_at:
                    os._exit(9)
                append_runs(writer, *args)
                if is_flushed:
                    writer.flush()

            monkeypatch.setattr(bags.DatasetWriter, 'append_runs', count_calls)
            monkeypatch.setattr('bags.authoring.copy_plan.FIRST_CHUNK_DATAPOINTS', 1)
            monkeypatch.setattr('bags.authoring.copy_plan.MAX_CHUNK_DATAPOINTS', 3)
            append(new, path, shard_length=8)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    other = write(tmp_path / 'other', 50, 60)
    if bags.open(path).unfinished:
        with pytest.raises(ValueError, match='expected a finished dataset, got one that'):
            append(other, path)
    append(new, path, shard_length=8)
    append(other, path)
    assert bags.open(path).column('id').tolist() == [*range(60)]
    assert (path / 'shards.json').exists()
    assert not bags.verify(path)


def interrupt(dataset, path, monkeypatch):
    """Appends the first eight datapoints."""
    end_shard = ShardedDatasetWriter.end_shard

    def end_and_fail(writer):
        end_shard(writer)
        raise RuntimeError('full')

    monkeypatch.setattr(ShardedDatasetWriter, 'end_shard', end_and_fail)
    with pytest.raises(RuntimeError, match='full'):
        append(dataset, path, shard_length=8)
    monkeypatch.undo()


def test_a_part_that_was_accepted(tmp_path, monkeypatch):
    """After `bags.recover`, another dataset may follow; the rest of the first one is named."""
    path, new = write(tmp_path / 'all', 0, 5), bags.open(write(tmp_path / 'new', 5, 30))
    interrupt(new, path, monkeypatch)
    bags.recover(path)
    append(write(tmp_path / 'other', 30, 33), path)
    with pytest.raises(ValueError, match=r'only 8 of the 25 datapoints .*: append dataset\[8:\]'):
        append(new, path)
    append(new[8:], path)
    assert sorted(bags.open(path).column('id').tolist()) == [*range(33)]


@pytest.mark.parametrize('is_recovered', [True, False])
@pytest.mark.parametrize('then_another', [True, False])
def test_a_writer_after_an_interruption(tmp_path, monkeypatch, is_recovered, then_another):
    """Its datapoints are not counted as datapoints of the append that was interrupted."""
    path, new = write(tmp_path / 'all', 0, 5), bags.open(write(tmp_path / 'new', 5, 30))
    interrupt(new, path, monkeypatch)
    if is_recovered:
        bags.recover(path)
    with bags.ShardedDatasetWriter(path, SPEC, resume=True) as writer:
        for index in range(30, 60):
            writer.append(make_row(index))
    if then_another:
        append(write(tmp_path / 'other', 60, 62), path)
    with pytest.raises(ValueError, match=r'only 8 of the 25 datapoints .*: append dataset\[8:\]'):
        append(new, path)
    append(new[8:], path)
    assert sorted(bags.open(path).column('id').tolist()) == [*range(62 if then_another else 60)]


def test_a_writer_after_an_interruption_at_the_start(tmp_path, monkeypatch):
    path, new = write(tmp_path / 'all', 0, 5), write(tmp_path / 'new', 5, 30)

    def fail(*_):
        raise RuntimeError('full')

    monkeypatch.setattr('bags.authoring.append.copy_datapoints', fail)
    with pytest.raises(RuntimeError, match='full'):
        append(new, path)
    monkeypatch.undo()
    write(path, 30, 33, resume=True)
    for _ in range(2):
        append(new, path)
    assert sorted(bags.open(path).column('id').tolist()) == [*range(33)]


@pytest.mark.parametrize('checksum', [False, True])
@pytest.mark.parametrize('size', [5, 1 << 18])
@pytest.mark.parametrize('compression', [None, ['clip']])
def test_a_target_with_linked_fields(tmp_path, checksum, size, compression):
    """Records are stored in the target, beside its links."""
    spec = {'id': 'int(8)', 'clip': 'bytes[]'}
    (tmp_path / 'file').write_bytes(b'linked')
    path = tmp_path / 'all'
    with bags.ShardedDatasetWriter(path, spec, linked_fields=['clip'], checksum=checksum) as writer:
        writer.append({'id': 0, 'clip': [bags.Link(tmp_path / 'file'), b'own']})
    with bags.DatasetWriter(tmp_path / 'new', spec, compression=compression) as writer:
        for index in range(1, 5):
            writer.append({'id': index, 'clip': [bytes([index]) * size] * (index - 1)})
    for _ in range(2):
        append(tmp_path / 'new', path)
    with bags.open(path, trust_links=True, checksum=checksum) as reader:
        assert [row['clip'] for row in reader] == [
            [b'linked', b'own'],
            *([bytes([index]) * size] * (index - 1) for index in range(1, 5)),
        ]
    assert not bags.verify(path, trust_links=True, decode=True)


@pytest.mark.parametrize(
    ('options', 'error', 'reason'),
    [
        (
            {'spec': {**SPEC, 'id': 'int(4)'}},
            bags.SpecError,
            r"field 'id': expected 'int\(8\)', as in .*all, got",
        ),
        ({'metadata': {'fields': {'id': {'unit': 's'}}}}, ValueError, r"metadata: field 'id': expected null"),
    ],
)
def test_what_does_not_agree(tmp_path, options, error, reason):
    path = write(tmp_path / 'all', 0, 5)
    new = write(tmp_path / 'new', 5, 9, **options)
    with pytest.raises(error, match=reason):
        append(new, path)
    assert len(bags.open(path)) == 5


def test_targets_that_have_no_shards(tmp_path):
    new = write(tmp_path / 'new', 0, 5)
    with bags.DatasetWriter(tmp_path / 'one', SPEC) as writer:
        writer.append(make_row(0))
    with pytest.raises(ValueError, match=r'one: expected shards to append to, got a dataset of one folder'):
        append(new, tmp_path / 'one')
    with pytest.raises(ValueError, match='got a bag'):
        append(new, tmp_path / 'one/id.bag')
    with pytest.raises(TypeError, match='append'):
        append([1, 2], tmp_path / 'all')


def test_writers_that_are_open(tmp_path):
    path, new = tmp_path / 'all', write(tmp_path / 'new', 0, 5)
    with bags.ShardedDatasetWriter(path, SPEC) as writer:
        writer.append(make_row(0))
        writer.flush()
        with pytest.raises(ValueError, match='being written'):
            append(new, path)
    append(new, path)
    assert len(bags.open(path)) == 6


def test_random_appends(tmp_path):
    chance = random.Random(0)
    path, expected = tmp_path / 'all', []
    for number in range(8):
        count = chance.choice([0, 1, 3, 20])
        part = write(tmp_path / str(number), 100 * number, 100 * number + count)
        append(part, path, shard_length=chance.choice([None, 2, 5]))
        expected += [make_row(index) for index in range(100 * number, 100 * number + count)]
        if len(expected):
            assert list(bags.open(path)) == expected
