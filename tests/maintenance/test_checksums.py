"""Checksums of records detect a flipped bit anywhere in a dataset, and are kept with it."""

import json
import os
import subprocess
import sys

import pytest
import xxhash

import bags
from bags import bag
from tests.dataset.writing.killed import leave_open

SPEC = {'id': 'int(8)', 'note': 'utf8[]', 'packed': 'utf8', 'raw': 'bytes?'}


def row(index):
    raw = None if index % 4 == 3 else bytes([index]) * (index * 7)
    return {'id': index, 'note': ['a', 'bc'][: index % 3], 'packed': f'text {index} ' * 5, 'raw': raw}


def write(path, rows=range(5), **options):
    with bags.ShardedDatasetWriter(
        path, SPEC, shard_length=3, compression=['packed'], checksum=True, **options
    ) as writer:
        for index in rows:
            writer.append(row(index))
    return path


def files(path):
    return sorted(file for file in path.rglob('*') if file.is_file())


def flip_every_bit(path, step=1):
    """Returns the bits of a dataset whose damage `verify` does not detect."""
    missed = []
    for file in files(path):
        data = file.read_bytes()
        for bit in range(0, 8 * len(data), step):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            if not bags.verify(path, progress=False):
                missed.append((file.name, bit))
        file.write_bytes(data)
    assert bags.verify(path, notes=True) == []
    return missed


def test_flipped_bits_are_found(tmp_path):
    path = write(tmp_path / 'a')
    bags.consolidate(path)
    assert flip_every_bit(path, step=53) == []


@pytest.mark.slow
@pytest.mark.parametrize('compression', [(), {'packed': 'dictionary', 'id': 3}])
def test_every_flipped_bit_is_found(tmp_path, compression):
    path = tmp_path / 'a'
    with bags.DatasetWriter(path, SPEC, compression=compression, checksum=True) as writer:
        for index in range(300 if compression else 3):
            writer.append(row(index % 7))
    assert (path / 'packed.zdict').exists() == bool(compression)
    assert flip_every_bit(path, step=97 if compression else 1) == []


def damage(path):
    """Flips a bit of the second note of datapoint 2."""
    file = path / '000000' / 'note.bag'
    data = bytearray(file.read_bytes())
    data[2] ^= 4
    file.write_bytes(data)


def everything(path):
    """Reads a dataset in all ways; returns the errors."""
    errors = []
    with bags.open(path, checksum=True) as reader:
        for read in (
            lambda: list(reader),
            lambda: [reader[index] for index in range(len(reader))],
            lambda: reader[2, {'note': [1]}],
            lambda: reader.batch(range(len(reader))),
            lambda: reader.batch([2, 1], 'note'),
            lambda: reader[0:3][2],
            lambda: reader.records('note')[2],
            lambda: list(reader.records('note')),
            lambda: reader.file(2, 'note', 1).read(),
            lambda: bags.copy(reader, f'{path}.copy{len(errors)}'),
        ):
            try:
                read()
            except bags.CorruptError as exc:
                errors.append(exc)
    return errors


def test_readers_compare_when_asked(tmp_path):
    path = write(tmp_path / 'a')
    with bags.open(path, checksum=True) as reader:
        assert list(reader) == list(map(row, range(5)))
        assert reader.batch([4, 0])['id'].tolist() == [4, 0]
        assert reader.file(2, 'raw').read() == row(2)['raw']
    assert everything(path) == []
    damage(path)
    errors = everything(path)
    assert len(errors) == 10
    assert all('note.bag' in str(exc) and 'differs from its checksum' in str(exc) for exc in errors)
    assert [reader['note'] for reader in bags.open(path)][2] != row(2)['note']  # Not checked by default.


def test_readers_say_when_there_are_none(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', SPEC) as writer:
        writer.append(row(0))
    with pytest.raises(ValueError, match='has no checksums'):
        bags.open(tmp_path / 'a', checksum=True)
    assert not bags.info(tmp_path / 'a').checksums


@pytest.mark.parametrize('close', [True, False])
def test_resumed_datasets_keep_them(tmp_path, close):
    path = tmp_path / 'a'
    writer = bags.DatasetWriter(path, SPEC, checksum=True)
    for index in range(4):
        writer.append(row(index), flush=True)
    with bags.open(path, checksum=True) as before:
        assert list(before) == list(map(row, range(4)))
        if close:
            writer.close()
        leave_open(writer)
        del writer
        with bags.DatasetWriter(path, SPEC, resume=True, truncate_to=3) as writer:
            for index in range(3, 9):
                writer.append(row(index))
        assert list(before) == list(map(row, range(4)))
    with bags.open(path, checksum=True) as reader:
        assert list(reader) == list(map(row, range(9)))
    assert bags.verify(path) == []
    assert bags.info(path).checksums
    with bags.ShardedDatasetWriter(write(tmp_path / 'b'), SPEC, resume=True) as shards:
        shards.append(row(5))
    assert bags.info(tmp_path / 'b').checksums


@pytest.mark.parametrize('remote', [False, True])
def test_a_resume_adds_them(tmp_path, remote):
    path = f'memory://added-{os.path.basename(tmp_path)}/a' if remote else tmp_path / 'a'
    for rows, checksum in (range(3), False), (range(3, 5), True), (range(5, 7), False):
        with bags.DatasetWriter(
            path, SPEC, compression=['packed'], checksum=checksum, resume=bool(rows[0])
        ) as writer:
            for index in rows:
                writer.append(row(index))
    with bags.open(path, checksum=True) as reader:
        assert list(reader) == list(map(row, range(7)))
    assert bags.verify(path, decode=True) == []


def test_what_a_killed_overwrite_leaves_is_removed(tmp_path):
    path = tmp_path / 'a.bag'
    bag.Writer(path).close()
    writer = bag.Writer(path, mode='overwrite', checksum=True)
    writer.write(b'one')
    writer.flush()
    with bag.Writer(path, mode='append'):
        assert len(list(tmp_path.glob('*.xxh3'))) == 1  # It is being written.
    del writer
    bag.Writer(path, mode='append').close()
    assert [file.name for file in tmp_path.iterdir()] == ['a.bag']


def test_copies_keep_them_and_find_damage(tmp_path):
    path = write(tmp_path / 'a')
    for number, options in enumerate([{}, {'compression': ['raw']}, {'compression': ()}]):
        bags.copy(bags.open(path), tmp_path / f'{number}', **options)
        assert bags.info(tmp_path / f'{number}').checksums
        assert bags.verify(tmp_path / f'{number}') == []
        assert list(bags.open(tmp_path / f'{number}', checksum=True)) == list(map(row, range(5)))
    bags.copy(path, tmp_path / 'none', checksum=False)
    assert not bags.info(tmp_path / 'none').checksums
    damage(path)
    with pytest.raises(bags.CorruptError, match='differs from its checksum'):
        bags.copy(path, tmp_path / 'damaged')


def test_a_bag_alone(tmp_path):
    path, records = tmp_path / 'a.bag', [b'', b'one', bytes(100_000), b'']
    with bag.Writer(path, checksum=True) as writer:
        for record in records:
            writer.write(record)
    assert bag.Reader(path, checksum=True).read() == records
    with bag.Writer(path, mode='append') as writer:
        writer.write(b'more')
    assert bag.Reader(path, checksum=True).read() == [*records, b'more']
    assert bags.info(path).checksums
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    assert [(found.path, found.record) for found in bags.verify(path)] == [(os.fspath(path), 2)]
    with bag.Writer(path, mode='overwrite') as writer:
        writer.write(b'other')
    assert not os.path.exists(f'{path}.xxh3')


def test_an_object_store(tmp_path):
    import fsspec

    path = f'memory://checksums-{os.path.basename(tmp_path)}/a'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, checksum=True) as writer:
        for index in range(5):
            writer.append(row(index))
    with bags.open(path, checksum=True) as reader:
        assert list(reader) == list(map(row, range(5)))
    assert list(bags.open(path, checksum=True, cache=tmp_path)) == list(map(row, range(5)))
    assert bags.verify(path, decode=True) == []
    filesystem = fsspec.filesystem('memory')
    data = bytearray(filesystem.cat(f'{path}/000000/note.bag'))
    data[2] ^= 4
    filesystem.pipe(f'{path}/000000/note.bag', bytes(data))
    assert len(bags.verify(path, decode=True)) == 1


def test_missing_checksums_of_refs_are_damage(tmp_path):
    write(tmp_path / 'a')
    os.remove(tmp_path / 'a' / '000000' / 'refs.bag.xxh3')
    (found,) = bags.verify(tmp_path / 'a')
    assert os.path.basename(found.path) == 'refs.bag'
    assert 'has no checksums' in found.detail


def test_a_last_shard_without_checksums_does_not_end_them(tmp_path):
    """A writer that is killed while it begins a shard leaves empty bags without checksums."""
    path = tmp_path / 'a'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, checksum=True) as writer:
        for index in range(3):
            writer.append(row(index))
    bags.DatasetWriter(path / '000001', SPEC).close()
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, resume=True) as writer:
        for index in range(3, 5):
            writer.append(row(index))
    assert list(bags.open(path)) == list(map(row, range(5)))
    assert (path / '000002' / 'refs.bag.xxh3').exists()


def edit(file):
    """Changes a number in a JSON file by hand, without another length."""
    text = file.read_text()
    assert '7' in text
    file.write_text(text.replace('7', '8', 1))


@pytest.mark.parametrize('sharded', [False, True])
def test_json_files_have_checksums(tmp_path, sharded):
    path = write(tmp_path / 'a', metadata={'robot': 7}) if sharded else tmp_path / 'a'
    if not sharded:
        with bags.DatasetWriter(path, SPEC, checksum=True, metadata={'robot': 7}) as writer:
            writer.append(row(7))
    bags.statistics(path, 'id', keep=True)
    if sharded:
        bags.consolidate(path)
    files = list(path.rglob('*.json'))
    assert {file.name for file in files} >= {'spec.json', 'metadata.json', 'statistics.json', 'source.json'}
    assert (path / 'shards.json' in files) == sharded
    for file in files:
        digest = file.with_name(file.name + '.xxh3').read_bytes()
        assert digest == xxhash.xxh3_64_intdigest(file.read_bytes()).to_bytes(8, 'little')
    assert list(bags.verify(path, notes=False)) == []


def test_metadata_that_were_edited_by_hand_are_refused(tmp_path):
    path = write(tmp_path / 'a', metadata={'robot': 7})
    file = path / '000000' / 'metadata.json'
    edit(file)
    for options in ({}, {'checksum': True}):
        with pytest.raises(bags.CorruptError, match=r'metadata\.json: differs .*`bags metadata PATH --set'):
            _ = bags.open(path, **options).metadata
    assert [damage.path for damage in bags.verify(path, notes=False)] == [str(file)]
    # As today, if there is no checksum.
    kept = (path / '000000' / 'metadata.json.xxh3').read_bytes()
    (path / '000000' / 'metadata.json.xxh3').unlink()
    assert bags.open(path).metadata == {'robot': 8}
    (path / '000000' / 'metadata.json.xxh3').write_bytes(kept)
    # The command that the error names.
    command = [sys.executable, '-m', 'bags', 'metadata', str(path), '--set', str(file), '--json']
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == {'path': str(path), 'metadata': {'robot': 8}}
    assert bags.open(path, checksum=True).metadata == {'robot': 8}
    assert list(bags.verify(path, notes=False)) == []
    bags.set_metadata(path, {})
    assert not list(path.rglob('metadata.json*'))


def test_shards_json_that_was_edited_by_hand_is_refused(tmp_path):
    path = write(tmp_path / 'a')
    bags.consolidate(path)
    edit(path / 'shards.json')
    with pytest.raises(
        bags.CorruptError, match=r'shards\.json: differs .*`bags consolidate` writes it again'
    ):
        bags.open(path)
    assert [damage.path for damage in bags.verify(path, notes=False)] == [str(path / 'shards.json')]
    bags.consolidate(path)
    assert len(bags.open(path, checksum=True)) == len(bags.open(path))
    assert list(bags.verify(path, notes=False)) == []
    with bags.ShardedDatasetWriter(path, SPEC, resume=True) as writer:
        writer.append(row(1))
    assert not list(path.glob('shards.json*'))


def test_statistics_that_were_edited_by_hand_are_refused(tmp_path):
    path = write(tmp_path / 'a')
    found = bags.statistics(path, 'id', keep=True)['id'].mean.tolist()
    file = path / '000000' / 'statistics.json'
    edit(file)
    with pytest.raises(
        bags.CorruptError, match=r'statistics\.json: differs .*`bags statistics PATH --recompute --keep`'
    ):
        bags.statistics(path, 'id')
    assert [damage.path for damage in bags.verify(path, notes=False)] == [str(file)]
    assert bags.statistics(path, 'id', recompute=True, keep=True)['id'].mean.tolist() == found
    assert list(bags.verify(path, notes=False)) == []


def test_logs_of_runs_have_checksums(tmp_path):
    write(tmp_path / 'a')
    bags.copy(tmp_path / 'a', tmp_path / 'b')
    file = tmp_path / 'b' / 'progress.json'
    digest = xxhash.xxh3_64_intdigest(file.read_bytes()).to_bytes(8, 'little')
    assert file.with_name('progress.json.xxh3').read_bytes() == digest
    bags.copy(tmp_path / 'a', tmp_path / 'b', resume=True)
    file.write_text(file.read_text().replace('"length": 5', '"length": 6'))
    with pytest.raises(bags.CorruptError, match=r'progress\.json: differs .*mode="overwrite"'):
        bags.copy(tmp_path / 'a', tmp_path / 'b', resume=True)
