"""Partial datapoints: what readers have of an episode while it is recorded, and what was appended."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import shutil
import threading
import time

import numpy as np
import pytest

import bags
from bags.bag.journal import ENTRIES, ENTRIES_OFFSET, entry_size
from bags.bag.unsynced_digest import pack_numbers
from bags.dataset.writing import writer as writer_module
from tests.dataset.writing.killed import leave_open

SPEC = {
    'front': 'mkv[]',
    'front_time': 'float(8)[]',
    'note': 'utf8[]?',
    'score': 'float(8)?',
    'state': 'array(float32,2)[]',
    'state_time': 'float(8)[]',
    'task': 'utf8',
}
FACTS = {'fields': {'front': {'times': 'front_time'}, 'state': {'times': 'state_time'}}}


def picture(number):
    return np.full((16, 16, 3), number, np.uint8)


def state(number):
    return np.full(2, number, np.float32)


@pytest.fixture(params=[bags.DatasetWriter, bags.ShardedDatasetWriter])
def writer_class(request):
    return request.param


@pytest.fixture
def writer(tmp_path, writer_class):
    """A writer with one committed datapoint."""
    with writer_class(tmp_path / 'x', SPEC, metadata=FACTS) as writer:
        before = {'task': 'before', 'state': [state(9)], 'state_time': [0.5], 'front': [], 'front_time': []}
        writer.append(before, flush=True)
        yield writer


def test_the_open_episode_is_the_last_datapoint(tmp_path, writer):
    plain = bags.open(tmp_path / 'x')
    assert plain.reopen(partial=True).partial.dtype == np.int64
    assert (len(plain.reopen(partial=True)), plain.reopen(partial=True).partial.tolist()) == (1, [])
    episode = writer.begin()
    first = plain.reopen(partial=True)
    assert (len(first), first.partial.tolist(), plain.partial.tolist()) == (2, [1], [])
    empty = first[1]
    assert (empty['task'], empty['score'], empty['note'], empty['front']) == (None, None, None, [])
    assert empty['state'].shape == (0, 2)
    assert (first.spec['task'], first[0, 'task']) == ('utf8?', {'task': 'before'})
    assert first.batch([0, 1], ['task', 'state_time'])['task'] == ['before', None]
    for number in range(10):
        episode.append({'state': state(number), 'state_time': number / 10})
    episode.append({'note': 'one'})
    episode.set({'task': 'first'})
    episode.set({'task': 'second'})
    episode.flush()
    later = plain.reopen(partial=True)
    assert later[1, 'task'] == {'task': 'second'}
    assert later.spec['task'] == 'utf8'
    assert later[1]['state'][:, 0].tolist() == list(map(float, range(10)))
    assert later[1]['state_time'].tolist() == [number / 10 for number in range(10)]
    assert later[1]['note'] == ['one']
    assert len(first[1]['state']) == 0  # A reader does not change.
    assert len(plain.reopen()) == 1
    assert pickle.loads(pickle.dumps(later))[1]['state_time'].tolist() == later[1]['state_time'].tolist()
    assert pickle.loads(pickle.dumps(later)).partial.tolist() == [1]
    episode.commit()
    assert plain.reopen(partial=True).partial.tolist() == []
    assert plain.reopen(partial=True)[1]['task'] == later[1]['task'] == 'second'


def test_items_of_a_call_are_there_together(tmp_path, monkeypatch, writer_class):
    """Also if a field is flushed in the middle of a call, because its buffer is full."""
    monkeypatch.setattr(writer_module, 'MAX_BUFFERED_BYTES', 3000)
    spec = {'a': 'int(8)[]', 'b': 'bytes[]', 'c': 'int(8)[]', 'last': 'int(8)?'}
    with writer_class(tmp_path / 'x', spec) as writer:
        reader = bags.open(tmp_path / 'x') if writer_class is bags.DatasetWriter else None
        episode = writer.begin(flush=0.01)
        stop = threading.Event()

        def record():
            for number in itertools.count():
                episode.append({'a': number, 'b': bytes(number % 7 * 400), 'c': number})
                if number % 50 == 0:
                    episode.set({'last': number})
                if stop.is_set():
                    return
                if number % 20 == 0:
                    time.sleep(0.001)

        thread = threading.Thread(target=record)
        thread.start()
        try:
            lengths = set()
            reader = reader or bags.open(tmp_path / 'x')
            while len(lengths) < 25:
                live = reader.reopen(partial=True)
                if not len(live.partial):
                    continue
                row = live[int(live.partial[-1])]
                count = len(row['a'])
                assert row['a'].tolist() == row['c'].tolist() == list(range(count))
                assert list(map(len, row['b'])) == [number % 7 * 400 for number in range(count)]
                assert count >= max(lengths, default=0)
                assert (row['last'] is None) == (count == 0) or row['last'] <= count
                lengths.add(count)
        finally:
            stop.set()
            thread.join()
        episode.commit()


def test_frames_are_there_once_they_are_encoded_with_their_times(tmp_path, writer):
    episode = writer.begin({'task': 'x'}, flush=0.02, clip_seconds=0.1)
    reader, counts = bags.open(tmp_path / 'x'), [0]
    for number in range(30):
        episode.append({'front': picture(number), 'front_time': number / 30})
        time.sleep(0.01)
        live = reader.reopen(partial=True)[1]
        numbers = [int(frame[0, 0, 0]) for clip in live['front'] for frame in clip]
        assert len(numbers) == len(live['front_time'])
        assert numbers == list(range(len(numbers)))
        assert live['front_time'].tolist() == [index / 30 for index in range(len(numbers))]
        assert len(numbers) >= counts[-1]
        counts.append(len(numbers))
        if len(numbers) > counts[-2] > 0:
            reader_now = reader.reopen(partial=True)
            stream = reader_now.stream(1, 'front')
            assert len(stream) == len(reader_now[1, 'front_time']['front_time'])
            assert stream.times.tolist() == reader_now[1, 'front_time']['front_time'].tolist()
            assert int(stream[-1][0, 0, 0]) == len(stream) - 1
            assert reader_now.lengths('front', of='elements').tolist() == [0, len(stream)]
            assert reader_now.durations('front')[1] >= stream.times[-1]
    assert counts[-1] >= 3
    episode.discard()


def record_until_killed(path, began):
    writer = bags.ShardedDatasetWriter(path, SPEC, metadata=FACTS, resume=True)
    episode = writer.begin({'task': 'x'}, flush=0.02, clip_seconds=0.2)
    for number in itertools.count():
        episode.append({'state': state(number), 'state_time': number / 200})
        if number % 7 == 0:
            episode.append({'front': picture(number // 7), 'front_time': number / 200})
        if number == 100:
            began.set()
        time.sleep(0.002)


def test_the_episode_of_a_killed_writer(tmp_path):
    context = multiprocessing.get_context('fork')
    began = context.Event()
    process = context.Process(target=record_until_killed, args=(tmp_path / 'x', began))
    process.start()
    assert began.wait(30)
    reader = bags.open(tmp_path / 'x')
    alive = reader.reopen(partial=True)
    process.kill()
    process.join()
    killed = reader.reopen(partial=True)
    again = reader.reopen(partial=True)
    assert killed.partial.tolist() == [0]
    row, count = killed[0], len(killed[0]['state'])
    assert count >= len(alive[0]['state']) > 0
    assert row['state'][:, 0].tolist() == list(map(float, range(count)))
    assert again[0]['state'].tolist() == row['state'].tolist()
    shutil.copytree(tmp_path / 'x', tmp_path / 'dropped')
    bags.recover(tmp_path / 'x')
    recovered = bags.open(tmp_path / 'x')[0]
    for name in ('state', 'state_time', 'front_time'):
        assert recovered[name][: len(row[name])].tolist() == row[name].tolist()
    assert len(row['front_time']) == sum(map(len, row['front']))
    # Left out by the next writer: a reader of before still has it.
    before = bags.open(tmp_path / 'dropped').reopen(partial=True)
    with bags.ShardedDatasetWriter(tmp_path / 'dropped', SPEC, resume=True, partial='drop'):
        pass
    assert before[0]['state'].tolist() == row['state'].tolist()
    assert len(bags.open(tmp_path / 'dropped').reopen(partial=True)) == 0


@pytest.mark.parametrize('has_others', [True, False])
def test_a_discarded_episode_stays_in_readers_that_have_it(tmp_path, writer_class, has_others):
    with writer_class(tmp_path / 'x', {'state': 'array(float32,2)[]', 'task': 'utf8'}) as writer:
        if has_others:
            writer.append({'state': [], 'task': 'before'}, flush=True)
        episode = writer.begin({'task': 'x'})
        for number in range(100):
            episode.append({'state': state(number)})
        episode.flush()
        live = bags.open(tmp_path / 'x').reopen(partial=True)
        episode.discard()
        assert len(bags.open(tmp_path / 'x').reopen(partial=True)) == has_others
        with writer.begin({'task': 'y'}) as other:
            other.append({'state': state(7)})
            other.flush()
            newer = bags.open(tmp_path / 'x').reopen(partial=True)
            assert newer[-1]['state'][:, 0].tolist() == [7.0]
            other.discard()
    assert live[-1]['state'][:, 0].tolist() == list(map(float, range(100)))
    assert live[-1]['task'] == 'x'
    if writer_class is bags.DatasetWriter or has_others:
        assert len(bags.open(tmp_path / 'x').reopen(partial=True)) == has_others


def test_each_open_shard_has_its_own(tmp_path):
    spec, writers, episodes = {'id': 'int(8)', 'state': 'int(8)[]'}, [], []
    for worker in range(3):
        writer = bags.ShardedDatasetWriter(tmp_path / 'x', spec, shard_start=worker, shard_step=3)
        for number in range(worker):
            writer.append({'id': number, 'state': [number]}, flush=True)
        writers.append(writer)
    for worker in (0, 2):
        episode = writers[worker].begin({'id': 10 + worker} if worker else None)
        episode.append({'state': worker})
        episode.flush()
        episodes.append(episode)
    reader = bags.open(tmp_path / 'x').reopen(partial=True)
    assert reader.partial.tolist() == [0, 4]
    assert reader.column('id') == [None, 0, 0, 1, 12]
    assert [reader[index, 'id']['id'] for index in range(5)] == [None, 0, 0, 1, 12]
    assert [row['state'].tolist() for row in reader] == [[0], [0], [0], [1], [2]]
    assert pickle.loads(pickle.dumps(reader)).column('id') == [None, 0, 0, 1, 12]
    share = bags.ShardedDatasetReader(tmp_path / 'x', shard_start=2, shard_step=3).reopen(partial=True)
    assert (share.partial.tolist(), len(share)) == ([2], 3)
    with pytest.raises(ValueError, match=r'datapoint 0 of 5 .*reader\.drop\(reader\.partial\) leaves it out'):
        bags.Loader(reader, 2)
    assert len(bags.Loader(reader.drop(reader.partial), 1)) == 3
    for episode in episodes:
        episode.discard()
    for writer in writers:
        writer.close()


def test_views_have_the_partial_datapoints_of_their_datasets(tmp_path, writer):
    episode = writer.begin({'task': 'x'})
    for number in range(6):
        episode.append({'state': state(number), 'state_time': number / 10})
    episode.flush()
    live = bags.open(tmp_path / 'x').reopen(partial=True)
    assert live[:-1].partial.tolist() == []
    assert live[::-1].partial.tolist() == [0]
    assert live.select([1, 0, 1]).partial.tolist() == [0, 2]
    assert live.rename({'task': 'what'}).partial.tolist() == [1]
    assert live.update({0: {'task': 'new'}}).partial.tolist() == [1]
    assert bags.concat([live, live]).partial.tolist() == [1, 3]
    assert bags.join([live, live.select(fields='task').rename({'task': 'b'})]).partial.tolist() == [1]
    windows = live.windows(every='state', state=bags.steps(0, 2))
    assert windows.partial.tolist() == [1, 2, 3, 4, 5, 6]
    assert [windows.origin(index).datapoint for index in windows.partial] == [1] * 6
    episode.discard()


def test_what_takes_partial_datapoints(tmp_path, writer):
    episode = writer.begin({'task': 'x'})
    for number in range(6):
        episode.append({'state': state(number), 'state_time': number / 10})
    episode.flush()
    live = bags.open(tmp_path / 'x').reopen(partial=True)
    windows = live.windows(every='state', state=bags.steps(0, 2))
    match = r'datapoint 1 of 2 is an episode that is not committed: reader\[:-1\] leaves it out'
    for refused in (
        lambda: bags.Loader(live, 1),
        lambda: bags.copy(live, tmp_path / 'copy'),
        lambda: live.save(tmp_path / 'copy'),
        lambda: bags.export(live, tmp_path / 'copy', format='webdataset'),
    ):
        with pytest.raises(ValueError, match=match):
            refused()
    with pytest.raises(ValueError, match=r'reader\[:-6\]'):
        bags.Loader(windows, 1)
    assert not (tmp_path / 'copy').exists()
    batches = list(bags.Loader(windows, 7, partial=True, shuffle=False, workers=0))
    assert batches[0]['state'][:, 0, 0].tolist() == [9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    (batch,) = bags.Loader(live, 2, fields='task', partial=True, shuffle=False, workers=1, processes=True)
    assert batch['task'] == ['before', 'x']
    for source, name in ((live, 'copy'), (tmp_path / 'x', 'of path')):
        assert bags.copy(source, tmp_path / name, partial=True).datapoints == 2
        assert bags.open(tmp_path / name)[1]['state_time'].tolist() == live[1]['state_time'].tolist()
    assert bags.copy(live[:-1], tmp_path / 'first').datapoints == 1
    assert bags.copy(tmp_path / 'x', tmp_path / 'committed').datapoints == 1
    episode.discard()


def test_an_object_store_has_no_partial_datapoints(writer_class):
    path = f'memory://partial/{writer_class.__name__}'
    with writer_class(path, {'id': 'int(8)'}) as writer:
        writer.append({'id': 1})
    reader = bags.open(path)
    with pytest.raises(ValueError, match=r'expected a local dataset, got .*on an object store'):
        reader.reopen(partial=True)
    assert len(reader.reopen()) == 1


@pytest.mark.parametrize('durability', ['none', 'close', 'flush'])
@pytest.mark.parametrize('checksum', [False, True])
def test_with_any_durability_and_with_checksums(tmp_path, durability, checksum):
    spec = {'clip': 'bytes', 'id': 'int(8)', 'link': 'bytes[]'}
    options = {'durability': durability, 'checksum': checksum, 'compression': ['clip']}
    (tmp_path / 'raw.bin').write_bytes(b'0123456789' * 1000)
    with bags.DatasetWriter(tmp_path / 'x', spec, linked_fields=['link'], **options) as writer:
        for number in range(300):
            writer.append({'id': number, 'clip': bytes([number % 256]) * 99, 'link': [b'own', b'own too']})
        writer.flush()
        episode = writer.begin({'id': 300, 'clip': b'x' * 1000})
        for number in range(5):
            episode.append({'link': bags.Link(tmp_path / 'raw.bin', offset=number, length=5)})
            episode.append({'link': b'a record'})
        episode.flush()
        reader = bags.open(tmp_path / 'x', checksum=checksum, trust_links=tmp_path).reopen(partial=True)
        assert reader.column('id').tolist() == list(range(301))
        assert reader[300]['clip'] == b'x' * 1000
        assert reader[300]['link'][:4] == [b'01234', b'a record', b'12345', b'a record']
        assert len(reader[300]['link']) == 10
        assert reader[299]['link'] == [b'own', b'own too']
        assert len(reader.fingerprint) == 24
        episode.commit()
    assert bags.verify(tmp_path / 'x', trust_links=tmp_path) == []


def leave_episode(path, items):
    """Writes an episode, and leaves it as a killed writer does."""
    writer = bags.DatasetWriter(path, {'a': 'int(8)[]', 'b': 'int(8)?'})
    episode = writer.begin()
    for number in range(items):
        episode.append({'a': number})
    episode.flush()
    episode.leave()
    writer.release_locks()
    leave_open(writer)


def test_a_journal_of_an_earlier_version(tmp_path):
    """It does not say which items readers may see: none. Recovery keeps them."""
    leave_episode(tmp_path / 'x', 9)
    bags_of_folder = 3
    journal = tmp_path / 'x' / 'unfinished'
    first_list = ENTRIES_OFFSET + ENTRIES * entry_size(bags_of_folder) + 8 * (bags_of_folder + 1)
    assert len(bags.open(tmp_path / 'x').reopen(partial=True)[0]['a']) == 9
    os.truncate(journal, first_list)
    live = bags.open(tmp_path / 'x').reopen(partial=True)
    assert (live.partial.tolist(), len(live[0]['a'])) == ([0], 0)
    bags.recover(tmp_path / 'x')
    assert bags.open(tmp_path / 'x')[0]['a'].tolist() == list(range(9))


def test_a_damaged_journal(tmp_path):
    """A power cut in the middle of a flush can damage the counts of the flush: no item is shown then."""
    leave_episode(tmp_path / 'x', 1)
    journal = tmp_path / 'x' / 'unfinished'
    whole = journal.read_bytes()
    for position in range(len(whole) - 16, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 255
        journal.write_bytes(damaged)
        live = bags.open(tmp_path / 'x').reopen(partial=True)
        assert [row['a'].tolist() for row in live] == [[]]


@pytest.mark.parametrize(
    ('before', 'flushed', 'match'),
    [
        (
            [0, 0, 0],
            [0, 2**63, 0],
            r'expected fewer than 4294967295 .*, got 9223372036854775808',
        ),
        ([0, 2**64 - 2, 0], [0, 2**64 - 1, 0], r'unfinished: expected fewer than .* records'),
        ([0, 0, 0], [0, 10, 0], r"field 'a': the records of the open episode were removed"),
        ([0, 3, 0], [0, 2**32 - 1, 0], r"field 'a': the records of the open episode were removed"),
        ([5, 0, 0], [5, 9, 0], r'had 5 datapoints before its open episode, now 0'),
    ],
)
def test_a_journal_that_lies(tmp_path, before, flushed, match):
    leave_episode(tmp_path / 'x', 9)
    journal = tmp_path / 'x' / 'unfinished'
    start = ENTRIES_OFFSET + ENTRIES * entry_size(3)
    journal.write_bytes(journal.read_bytes()[:start] + pack_numbers(before) + pack_numbers(flushed))
    reader = bags.open(tmp_path / 'x')
    with pytest.raises(bags.CorruptError, match=match):
        reader.reopen(partial=True)
    assert len(reader.reopen()) == 0
