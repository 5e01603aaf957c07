"""Datapoints that are written by items, with `writer.begin`: compared with plain Python, and after kills."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import shutil
import sys
import threading
import time

import numpy as np
import pytest

import bags
from bags.bag.journal_recovery import certain_counts
from bags.episodes.episode_bags import EpisodeBags
from bags.formats.audio import encode_wav
from bags.storage import store_for

SPEC = {
    'task': 'utf8',
    'success': 'bool?',
    'state': 'array(float32,2)[]',
    'time': 'float(8)[]',
    'words': 'utf8[]?',
}


def state(number):
    return np.full(2, number, np.float32)


def content(path, **options):
    """The datapoints of a dataset as plain values."""
    with bags.open(path, **options) as dataset:
        return [
            {
                name: None
                if value is None
                else [float(item[0]) for item in value]
                if name == 'state'
                else list(value)
                if name in ('time', 'words')
                else value
                for name, value in dataset[index].items()
            }
            for index in range(len(dataset))
        ]


@pytest.fixture(params=[bags.DatasetWriter, bags.ShardedDatasetWriter])
def writer_class(request):
    return request.param


def test_streams_in_any_order_are_one_datapoint(tmp_path, writer_class):
    with writer_class(tmp_path / 'x', SPEC) as writer:
        writer.append({'task': 'before', 'state': [state(9)], 'time': [0.5]})
        with writer.begin({'task': 'pick the cup'}) as episode:
            for number in range(500):
                episode.append({'state': state(number), 'time': number / 100})
                if number % 7 == 0:
                    episode.append({'words': f'word {number}'})
            episode.set({'success': True, 'task': 'pick the cups'})
        assert (episode.index, episode.state, len(writer)) == (1, 'committed', 2)
        with writer.begin({'task': 'none'}):
            pass
    rows = content(tmp_path / 'x')
    assert rows[1] == {
        'task': 'pick the cups',
        'success': True,
        'state': list(map(float, range(500))),
        'time': [number / 100 for number in range(500)],
        'words': [f'word {number}' for number in range(0, 500, 7)],
    }
    assert rows[2] == {'task': 'none', 'success': None, 'state': [], 'time': [], 'words': None}
    assert bags.verify(tmp_path / 'x') == []
    assert not bags.open(tmp_path / 'x').unfinished


def test_threads_append_to_one_episode(tmp_path, request):
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-5)
    spec = {'a': 'int(8)[]', 'b': 'int(8)[]', 'c': 'int(8)[]'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer, writer.begin(flush=0.01) as episode:

        def record(name):
            for number in range(2000):
                episode.append({name: number})

        threads = [threading.Thread(target=record, args=(name,)) for name in spec]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    row = bags.open(tmp_path / 'x')[0]
    assert all(row[name].tolist() == list(range(2000)) for name in spec)


def test_a_discarded_take_leaves_nothing(tmp_path, writer_class):
    with writer_class(tmp_path / 'x', SPEC) as writer:
        for number in range(3):
            with writer.begin({'task': f'take {number}'}) as episode:
                for step in range(100):
                    episode.append({'state': state(1000 * number + step), 'time': step})
                episode.flush()
                if number == 1:
                    episode.discard()
        assert episode.index == 1
    rows = content(tmp_path / 'x')
    assert [row['task'] for row in rows] == ['take 0', 'take 2']
    assert rows[1]['state'] == [2000.0 + step for step in range(100)]


def test_errors_that_leave_the_episode_usable(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer:
        for wrong, message in [
            ({'task': 1}, "field 'task' of type utf8: TypeError"),
            ({'state': [state(1)]}, "field 'state' .* is a sequence"),
            ({'nothing': 1}, "'nothing' is not in the spec"),
        ]:
            with pytest.raises(bags.EncodeError, match=message):
                writer.begin(wrong)
        with pytest.raises(TypeError, match='values: expected a mapping of fields to values, got list'):
            writer.begin([1])
        assert len(writer) == 0
        with writer.begin() as episode:
            episode.append({'state': state(0), 'time': 0.0})
            message = r"field 'time' of type float\(8\)\[\], item 1: TypeError"
            with pytest.raises(bags.EncodeError, match=message):
                episode.append({'state': state(1), 'time': 'late'})
            with pytest.raises(TypeError, match='items: expected a mapping of fields to values, got list'):
                episode.append([state(1)])
            with pytest.raises(TypeError, match='values: expected a mapping of fields to values, got str'):
                episode.set('task')
            with pytest.raises(bags.EncodeError, match=r"field 'task' .* is not a sequence"):
                episode.append({'task': 'no'})
            with pytest.raises(bags.EncodeError, match=r"field 'task' .* is not set"):
                episode.commit()
            with pytest.raises(ValueError, match='an episode is open: commit or discard'):
                writer.append({'task': 'a', 'state': [], 'time': []})
            with pytest.raises(ValueError, match='an episode is open'):
                writer.begin()
            with pytest.raises(ValueError, match='an episode is open'):
                writer.close()
            episode.append({'state': state(1), 'time': 1.0})
            episode.set({'task': 'cup'})
        with pytest.raises(ValueError, match='the episode is committed'):
            episode.append({'time': 1.0})
        with pytest.raises(ValueError, match='flush: expected a positive number of seconds'):
            writer.begin(flush=0)
    assert content(tmp_path / 'x') == [
        {'task': 'cup', 'success': None, 'state': [0.0, 1.0], 'time': [0.0, 1.0], 'words': None}
    ]
    with pytest.raises(ValueError, match='is closed'):
        writer.begin()


@pytest.mark.parametrize('earlier', [0, 2])
@pytest.mark.parametrize('how', ['recover', 'resume'])
def test_an_exception_leaves_the_episode_as_a_kill_does(earlier, how, tmp_path, writer_class):
    def record():
        with writer_class(tmp_path / 'x', SPEC) as writer:
            for _ in range(earlier):
                writer.append({'task': 'whole', 'state': [state(1)], 'time': [1.0]})
            with writer.begin({'task': 'cup'}) as episode:
                for number in range(50):
                    episode.append({'state': state(number), 'time': float(number)})
                raise RuntimeError('the arm has hit the table')

    with pytest.raises(RuntimeError, match='the arm'):
        record()
    with bags.open(tmp_path / 'x') as dataset:
        assert (len(dataset), dataset.unfinished) == (earlier, True)
    if how == 'recover':
        found = [each.partial for each in bags.recover(tmp_path / 'x') if each.partial is not None]
        assert found == [earlier]
    else:
        with writer_class(tmp_path / 'x', SPEC, resume=True) as writer:
            assert len(writer) == earlier + 1
    rows = content(tmp_path / 'x')
    assert len(rows) == earlier + 1
    assert rows[-1]['state'] == rows[-1]['time'] == list(map(float, range(50)))
    assert bags.verify(tmp_path / 'x') == []
    assert not bags.open(tmp_path / 'x').unfinished


def begin_and_drop(path, writer_class, how):
    writer = writer_class(path, SPEC)
    episode = writer.begin({'task': 'a'})
    episode.append({'time': 1.0})
    episode.flush()
    if how == 'cycle':
        episode.writer = writer  # As of an object with a method that refers to both.
        episode.own = episode
    return episode if how == 'episode' else None


@pytest.mark.parametrize('how', ['writer', 'cycle', 'episode'])
def test_a_writer_that_is_dropped_with_an_open_episode_is_released(how, tmp_path, writer_class):
    episode = begin_and_drop(tmp_path / 'd', writer_class, how)
    gc.collect()
    if episode is not None:  # It keeps the writer.
        with pytest.raises(BlockingIOError):
            writer_class(tmp_path / 'd', SPEC, resume=True, partial='keep')
        episode.append({'time': 2.0})
        del episode
        gc.collect()
    with writer_class(tmp_path / 'd', SPEC, resume=True, partial='keep') as writer:
        assert len(writer) == 1
    assert [row['time'] for row in content(tmp_path / 'd')] == [[1.0, 2.0][: 1 + (how == 'episode')]]
    assert not [each for each in threading.enumerate() if each.name == 'bags-episode']


def test_a_writer_that_the_thread_of_its_episode_collects_is_released(tmp_path, writer_class, monkeypatch):
    """Objects in reference cycles may be collected in any thread."""

    def begin():
        writer = writer_class(tmp_path / 'd', {'a': 'bytes[]'})
        writer.own = writer
        writer.begin(flush=0.2).append({'a': b'x'})

    def threads():
        return [each for each in threading.enumerate() if each.name == 'bags-episode']

    def write(self, call):
        write_call(self, call)
        collected_in.append(threading.current_thread().name)
        gc.collect()

    write_call, collected_in = EpisodeBags.write, []
    monkeypatch.setattr(EpisodeBags, 'write', write)
    gc.disable()
    try:
        begin()
        for _ in range(500):
            if not threads():
                break
            time.sleep(0.01)
        assert set(collected_in) == {'bags-episode'}
        with writer_class(tmp_path / 'd', {'a': 'bytes[]'}, resume=True, partial='keep') as writer:
            assert len(writer) == 1
    finally:
        gc.enable()


def left_open(path, values, metadata=None):
    """Leaves an episode of five states and four times open, after one whole datapoint."""
    with contextlib.suppress(RuntimeError), bags.DatasetWriter(path, SPEC, metadata=metadata) as writer:
        writer.append({'task': 'whole', 'state': [], 'time': []})
        with writer.begin(values) as episode:
            for number in range(5):
                episode.append({'state': state(number)})
                if number < 4:
                    episode.append({'time': float(number)})
            raise RuntimeError


def test_what_becomes_of_an_open_episode_is_chosen(tmp_path):
    left_open(tmp_path / 'x', {})
    for name in 'abcde':
        shutil.copytree(tmp_path / 'x', tmp_path / name)
    (left_out,) = bags.recover(tmp_path / 'a')
    assert (left_out.partial, left_out.unset, left_out.kept) == (None, ['task'], 1)
    assert 'task is not set' in left_out.detail
    (kept,) = bags.recover(tmp_path / 'b', partial_values={'task': 'given', 'success': False})
    assert (kept.partial, kept.kept, kept.dropped) == (1, 2, 0)
    row = content(tmp_path / 'b')[1]
    assert (row['task'], row['success'], len(row['state']), len(row['time'])) == ('given', False, 5, 4)
    (dropped,) = bags.recover(tmp_path / 'c', partial='drop')
    assert (dropped.partial, dropped.kept) == (None, 1)
    with bags.DatasetWriter(tmp_path / 'd', SPEC, resume=True, partial='drop') as writer:
        writer.append({'task': 'next', 'state': [], 'time': []})
    assert [row['task'] for row in content(tmp_path / 'd')] == ['whole', 'next']
    with bags.DatasetWriter(tmp_path / 'e', SPEC, resume=True, partial_values={'task': 'later'}) as writer:
        assert writer.partial == (1, [])
    for name in 'abcde':
        assert bags.verify(tmp_path / name) == []
    with pytest.raises(ValueError, match="partial: expected 'keep' or 'drop'"):
        bags.recover(tmp_path / 'x', partial='maybe')


def test_fields_tied_by_times_are_cut_to_the_shortest(tmp_path):
    left_open(tmp_path / 'x', {'task': 'cup'}, {'fields': {'state': {'times': 'time'}}})
    assert bags.recover(tmp_path / 'x')[0].partial == 1
    row = content(tmp_path / 'x')[1]
    assert (row['state'], row['time']) == ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(('times', 'clips', 'kept'), [(25, 3, (20, 2)), (40, 3, (30, 3)), (9, 2, None)])
def test_times_of_frames_are_cut_to_whole_clips(times, clips, kept, tmp_path):
    pytest.importorskip('av')
    spec = {'clips': 'mp4(10)[]', 'time': 'float(8)[]', 'other': 'int(8)[]'}
    facts = {'fields': {'clips': {'times': 'time'}, 'other': {'times': 'time'}}}
    with (
        contextlib.suppress(RuntimeError),
        bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer,
        writer.begin() as episode,
    ):
        for _ in range(clips):
            episode.append({'clips': np.zeros((10, 32, 32, 3), np.uint8)})
        for number in range(times):
            episode.append({'time': number / 10, 'other': number})
        raise RuntimeError
    assert bags.recover(tmp_path / 'x')[0].partial == (None if kept is None else 0)
    with bags.open(tmp_path / 'x') as dataset:
        if kept is None:
            assert len(dataset) == 0
            return
        counts = [int(dataset.item_counts(np.array([0]), name)[0]) for name in ('time', 'other', 'clips')]
    assert counts == [kept[0], kept[0], kept[1]]


def test_a_wrong_value_for_an_open_episode_does_not_lose_it(tmp_path):
    left_open(tmp_path / 'x', {})
    with pytest.raises(bags.EncodeError, match="field 'task' of type utf8"):
        bags.DatasetWriter(tmp_path / 'x', SPEC, resume=True, partial_values={'task': 5})
    assert bags.recover(tmp_path / 'x', partial_values={'task': 'given'})[0].partial == 1
    assert len(content(tmp_path / 'x')[1]['state']) == 5


@pytest.mark.parametrize('size', [1000, 9 << 20])
def test_large_records_of_an_open_episode_are_synced(size, tmp_path):
    path = tmp_path / 'x'
    with (
        bags.DatasetWriter(path, {'blob': 'bytes[]'}, durability='flush') as writer,
        writer.begin() as episode,
    ):
        episode.append({'blob': bytes(size)})
        episode.flush()
        bags_of = [str(path / 'refs.bag'), str(path / 'blob.bag')]
        store, mark = store_for(path / 'unfinished')
        os.truncate(path / 'limits.blob.bag', 0)  # What a power cut may do to limits that are not synced.
        assert certain_counts(store, mark, bags_of) == [0, 1]


def test_values_that_do_not_fit_change_nothing(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'x', SPEC) as writer:
        writer.append({'task': 'whole', 'state': [], 'time': []})
    before = sorted(tmp_path.rglob('*'))
    writer = bags.ShardedDatasetWriter(tmp_path / 'x', SPEC, resume=True)
    with pytest.raises(bags.EncodeError, match="'task'"):
        writer.begin({'task': 7})
    writer.close()
    assert sorted(tmp_path.rglob('*')) == before
    left_open(tmp_path / 'y', {})
    for name in ('nope', 'state'):
        with pytest.raises(
            KeyError, match=f"no plain field '{name}'; the plain fields are 'success', 'task'"
        ):
            bags.recover(tmp_path / 'y', partial_values={name: 1})
    assert bags.recover(tmp_path / 'y', partial_values={'task': 'given'})[0].partial == 1


def test_values_that_can_be_read_once(tmp_path):
    pytest.importorskip('av')
    spec = {'clip': 'mp4(10)', 'sound': 'audio'}
    (tmp_path / 'sound').write_bytes(sound := encode_wav((np.zeros((800, 1), np.int16), 8000)))
    frames = (np.full((32, 32, 3), 20 * number, np.uint8) for number in range(10))
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer, (tmp_path / 'sound').open('rb') as file:
        episode = writer.begin({'clip': frames, 'sound': file})
        episode.commit()
    with bags.open(tmp_path / 'x', raw=True) as dataset:
        assert bytes(dataset[0]['sound']) == sound
    assert len(bags.open(tmp_path / 'x')[0]['clip']) == 10


def test_optional_fields_take_none_until_they_are_set(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer, writer.begin({'success': None}) as episode:
        episode.set({'task': 'cup', 'success': None})
        episode.set({'success': True})
        with pytest.raises(bags.EncodeError, match='is set already'):
            episode.set({'success': None})
        with pytest.raises(bags.EncodeError, match="'task'"):
            episode.set({'task': None})
    assert content(tmp_path / 'x')[0]['success'] is True


def test_an_episode_lies_in_one_shard(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'x', {'frame': 'bytes[]'}, shard_size=10_000) as writer:
        for _ in range(3):
            with writer.begin() as episode:
                for _ in range(50):
                    episode.append({'frame': bytes(1000)})
        assert (writer.shards, episode.index) == (3, 2)
    assert bags.open(tmp_path / 'x').item_counts(np.arange(3), 'frame').tolist() == [50] * 3


def recovered(path):
    """Recovers, and returns the datapoints that became of open episodes."""
    return [each.partial for each in bags.recover(path) if each.partial is not None]


@pytest.mark.parametrize('earlier', [0, 1])
def test_a_disk_that_fills_up_keeps_what_was_flushed(earlier, small_disk, kit, writer_class):
    path, ballast = small_disk / 'x', small_disk / 'ballast'

    def record():
        with writer_class(path, SPEC) as writer:
            for _ in range(earlier):
                writer.append({'task': 'whole', 'state': [state(7)], 'time': [1.0]})
            with writer.begin({'task': 'cup'}, flush=0.01) as episode:
                for number in range(100):
                    episode.append({'state': state(number), 'time': float(number)})
                episode.flush()
                kit.fill_up(ballast)
                for number in range(100, 20_000):
                    episode.append({'state': state(number), 'time': float(number)})

    with pytest.raises(OSError, match='space') as caught:
        record()
    assert str(caught.value.filename).startswith(str(path))
    with bags.open(path) as dataset:
        assert (len(dataset), dataset.unfinished) == (earlier, True)
    with pytest.raises(OSError, match='space'):
        bags.recover(path)
    ballast.unlink()
    assert recovered(path) == [earlier]
    rows = content(path)
    assert [row['task'] for row in rows] == ['whole'] * earlier + ['cup']
    assert len(rows[-1]['state']) >= 100
    assert len(rows[-1]['time']) >= 100
    for name in ('state', 'time'):
        assert rows[-1][name] == list(map(float, range(len(rows[-1][name]))))
    assert bags.verify(path) == []


def test_an_episode_that_a_full_disk_cannot_commit_is_kept(small_disk, kit, writer_class):
    path, ballast = small_disk / 'x', small_disk / 'ballast'
    writer = writer_class(path, SPEC)
    episode = writer.begin({'task': 'cup'})
    for number in range(100):
        episode.append({'state': state(number), 'time': float(number)})
    episode.flush()
    kit.fill_up(ballast)
    with pytest.raises(OSError, match='space'):
        episode.commit()
    assert episode.state == 'left'
    with pytest.raises(ValueError, match='an error ended an episode'):
        writer.begin()
    ballast.unlink()
    writer.close()
    assert recovered(path) == [0]
    assert content(path)[0]['state'] == list(map(float, range(100)))


@pytest.mark.parametrize('end', ['with', 'close', 'commit'])
def test_a_full_disk_leaves_no_lock(small_disk, kit, writer_class, end):
    """While the object of the writer lives, e.g. in a notebook, another one continues the dataset."""
    path, ballast = small_disk / 'x', small_disk / 'ballast'
    writer = writer_class(path, SPEC)
    for number in range(100):
        writer.append({'task': 'cup', 'state': [state(number)], 'time': [float(number)]})
    writer.flush()
    if end == 'commit':
        with pytest.raises(OSError, match='space'), writer, writer.begin({'task': 'cup'}) as episode:  # noqa: PT012
            kit.fill_up(ballast)
            for number in range(5000):
                episode.append({'state': state(number), 'time': float(number)})
    else:
        for number in range(5000):
            writer.append({'task': 'mug', 'state': [state(number)] * 4, 'time': [1.0]}, flush=False)
        kit.fill_up(ballast)
        with pytest.raises(OSError, match='space'):
            writer.close() if end == 'close' else writer.__exit__(None, None, None)
    ballast.unlink()
    with writer_class(path, SPEC, resume=True) as other:
        kept = len(other)
        assert kept >= 100
        other.append({'task': 'next', 'state': [], 'time': []})
    if end == 'close':  # It may be closed again only as long as no other writer has opened the folder.
        with pytest.raises(OSError, match='another writer has opened the folder since close failed'):
            writer.close()
    del writer
    gc.collect()
    assert [row['task'] for row in content(path)][kept:] == ['next']
    assert bags.verify(path) == []


def test_a_full_disk_can_discard(small_disk, kit, writer_class):
    path, ballast = small_disk / 'x', small_disk / 'ballast'
    with writer_class(path, SPEC) as writer:
        episode = writer.begin({'task': 'cup'})
        for number in range(5000):
            episode.append({'state': state(number), 'time': float(number)})
        episode.flush()
        kit.fill_up(ballast)
        episode.discard()
        ballast.unlink()
        writer.append({'task': 'next', 'state': [], 'time': []})
    assert [row['task'] for row in content(path)] == ['next']


def test_others_cannot_write_while_an_episode_is_open(tmp_path, writer_class, kit):
    path, spec = tmp_path / 'x', {'state': 'int(8)[]'}
    with writer_class(path, spec) as writer, writer.begin() as episode:
        for number in range(10):
            episode.append({'state': number})
        for other in [
            lambda: writer_class(path, spec, resume=True),
            lambda: writer_class(path, spec, mode='overwrite'),
            lambda: bags.recover(path),
            lambda: bags.recover(path, partial='drop'),
        ]:
            with pytest.raises(BlockingIOError, match='another writer'):
                other()
        code = (
            f'import bags\ntry: bags.{writer_class.__name__}({str(path)!r}, {spec!r}, resume=True)\n'
            'except BlockingIOError: print("refused")'
        )
        assert kit.python(code) == b'refused\n'
        assert bags.verify(path) == []
        episode.append({'state': 10})
    assert bags.open(path)[0]['state'].tolist() == list(range(11))


def test_an_open_episode_is_not_on_an_object_store(tmp_path, writer_class):
    pytest.importorskip('fsspec')
    path = f'memory://{tmp_path.name}/{writer_class.__name__}'
    with writer_class(path, {'state': 'int(8)[]'}) as writer:
        with writer.begin() as episode:
            for number in range(10):
                episode.append({'state': number})
            episode.flush()
            with pytest.raises(FileNotFoundError):
                bags.open(path)
        assert episode.index == 0
    assert bags.open(path)[0]['state'].tolist() == list(range(10))

    def record():
        with writer_class(f'{path}2', {'state': 'int(8)[]'}) as writer, writer.begin() as episode:
            episode.append({'state': 1})
            episode.flush()
            raise RuntimeError('the arm has hit the table')

    with pytest.raises(RuntimeError, match='the arm'):
        record()
    with pytest.raises(FileNotFoundError):
        bags.open(f'{path}2')


# Against a model.


class Model:
    """A dataset with an open episode, in plain Python."""

    def __init__(self):
        self.rows = []
        self.open = None

    def row(self):
        row = {'success': None, 'state': [], 'time': [], 'words': [], **self.open}
        return {**{name: row.get(name) for name in SPEC}, 'words': row['words'] or None}

    def end(self, keep):
        if keep and self.open is not None and 'task' in self.open:
            self.rows.append(self.row())
        self.open = None


def play(path, seed, count):
    """Plays random calls on a writer and on the model, which must agree in the end."""
    chance, model = random.Random(seed), Model()
    options = {'durability': chance.choice(['none', 'close', 'flush']), 'checksum': chance.random() < 0.3}
    sharded = {'shard_length': chance.choice([1, 2, None])} if chance.random() < 0.5 else None
    writer_class = bags.DatasetWriter if sharded is None else bags.ShardedDatasetWriter

    def open_writer(partial):
        return writer_class(path, SPEC, resume=True, partial=partial, **options, **(sharded or {}))

    writer, episode = open_writer('keep'), None
    for _ in range(count):
        call = chance.choices(
            ['append', 'begin', 'item', 'set', 'commit', 'discard', 'exception', 'kill', 'recover'],
            [2, 4, 12, 2, 2, 1, 1, 1, 1],
        )[0]
        if call == 'append' and episode is None:
            writer.append({'task': 'whole', 'state': [state(1)], 'time': [2.0]})
            model.open = {'task': 'whole', 'state': [1.0], 'time': [2.0], 'words': []}
            model.end(True)
        elif call == 'begin' and episode is None:
            values = {'task': f'task {chance.random()}'} if chance.random() < 0.7 else {}
            episode = writer.begin(values, flush=chance.choice([0.01, 1.0]))
            model.open = {'state': [], 'time': [], 'words': [], **values}
        elif call == 'item' and episode is not None:
            for _ in range(chance.choice([1, 1, 30])):
                number = chance.randrange(100)
                item = (
                    {'state': state(number), 'time': float(number)}
                    if chance.random() < 0.7
                    else {'words': 'a'}
                )
                episode.append(item)
                for name in item:
                    model.open[name].append('a' if name == 'words' else float(number))
        elif call == 'set' and episode is not None:
            values = chance.choice([{'task': f'later {chance.random()}'}, {'success': chance.random() < 0.5}])
            episode.set(values)
            model.open |= values
        elif call == 'commit' and episode is not None:
            if 'task' not in model.open:
                with pytest.raises(bags.EncodeError, match='is not set'):
                    episode.commit()
                continue
            assert episode.commit() == len(model.rows)
            model.end(True)
            episode = None
        elif call == 'discard' and episode is not None:
            episode.discard()
            model.end(False)
            episode = None
        elif call in ('exception', 'kill', 'recover'):
            keep = chance.choice(['keep', 'drop'])
            if call == 'kill' or (call == 'recover' and episode is not None):
                # The files of a killed process are those of this moment.
                if episode is not None:
                    episode.flush()
                else:
                    writer.flush()
                shutil.copytree(path, f'{path}.killed')
                writer.abandon()
                shutil.rmtree(path, ignore_errors=True)
                os.rename(f'{path}.killed', path)
            else:
                if episode is not None:
                    with contextlib.suppress(RuntimeError), episode:
                        raise RuntimeError
                writer.abandon()
            if call == 'recover' and os.path.exists(path) and os.listdir(path):
                bags.recover(path, partial=keep)
            writer, episode = open_writer(keep), None
            model.end(keep == 'keep')
        assert len(writer) == len(model.rows), call
    if episode is not None:
        if 'task' not in model.open:
            episode.set({'task': 'last'})
            model.open |= {'task': 'last'}
        episode.commit()
        model.end(True)
    writer.close()
    assert content(path, checksum=options['checksum']) == model.rows
    assert bags.verify(path) == []
    assert not bags.open(path).unfinished


@pytest.mark.parametrize('seed', range(8))
def test_random_calls_against_a_model(seed, tmp_path):
    play(str(tmp_path / 'x'), seed, 40)


@pytest.mark.campaign
@pytest.mark.parametrize('part', range(10))
def test_1000_sequences_of_random_calls_against_a_model(part, tmp_path):
    for seed in range(100):
        play(str(tmp_path / f'x{seed}'), 1000 + 100 * part + seed, 60)


# Other processes.

RECORD = """
import json, sys, time
import numpy as np
import bags

path, kind, flush = sys.argv[1], getattr(bags, sys.argv[2]), float(sys.argv[3])
with kind(path, json.loads(sys.argv[4])) as writer:
    for take in range(1000):
        with writer.begin({'task': f'take {take}'}, flush=flush) as episode:
            for step in range(100):
                episode.append({'state': np.full(2, 1000 * take + step, np.float32), 'time': time.time()})
                if step % 3 == 0:
                    episode.append({'words': f'{take} {step}'})
                if not take and not step:
                    print('begun', flush=True)
                time.sleep(0.002)
            if take % 2:
                episode.discard()
        print(take, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize('trial', range(10))
def test_a_killed_recorder_loses_only_the_last_items(trial, tmp_path, writer_class, kit):
    path, flush = tmp_path / 'x', 0.1
    process = kit.python(RECORD, path, writer_class.__name__, flush, json.dumps(SPEC), wait=False)
    assert process.stdout.readline() == b'begun\n'
    time.sleep(0.1 + random.Random(trial).random() * (0.4 if trial < 5 else 2.5))
    process.kill()
    killed = time.time()
    ended = [int(line) for line in process.communicate()[0].split()]
    whole = [take for take in ended if take % 2 == 0]
    with bags.open(path) as dataset:
        assert dataset.unfinished
    found = [each.partial for each in bags.recover(path) if each.partial is not None]
    rows = content(path)
    assert bags.verify(path) == []
    committed = [row['task'] for number, row in enumerate(rows) if number not in found]
    assert committed[: len(whole)] == [f'take {take}' for take in whole]
    assert len(committed) - len(whole) in (0, 1)  # The last one may not have been printed.
    for number, row in enumerate(rows):
        take = int(row['task'].split()[1])
        steps = len(row['state'])
        assert row['state'] == [1000.0 * take + step for step in range(steps)]
        assert row['words'] == (
            [f'{take} {step}' for step in range(0, steps, 3)][: len(row['words'] or [])] or None
        )
        if number not in found:
            assert steps == len(row['time']) == 100
        else:
            # The next one would have been appended within 20 ms.
            assert killed - row['time'][-1] < 2 * flush + 0.5


def test_a_reader_that_is_opened_again_has_the_datapoints_so_far(tmp_path, writer_class):
    with writer_class(tmp_path / 'x', SPEC) as writer:
        writer.append({'task': 'first', 'state': [], 'time': []}, flush=True)
        reader = bags.open(tmp_path / 'x', raw=True)
        for number in range(3):
            with writer.begin({'task': f'take {number}'}) as episode:
                episode.append({'time': 1.0})
                episode.flush()
                assert len(reader.reopen()) == number + 1
            again = reader.reopen()
            assert (len(reader), len(again), type(again)) == (1, number + 2, type(reader))
            assert again[-1]['task'] == f'take {number}'.encode()
            loader = bags.Loader(again, 2, last_batch='partial')
            assert sum(len(batch['task']) for batch in loader) == number + 2
