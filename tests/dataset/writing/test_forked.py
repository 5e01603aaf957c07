"""Writers, episodes and bags in a process that was forked from the process that opened them."""

import atexit
import contextlib
import functools
import os
import pickle
import random
import re
import signal
import sys
import time

import pytest

import bags
from bags.streams.joined_video import join_videos

pytestmark = pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
SPEC = {'id': 'int', 'words': 'utf8[]'}
WRITERS = {'folder': bags.DatasetWriter, 'shards': bags.ShardedDatasetWriter}
ADVICE = r'shard_start= and shard_step= .*join the datasets by a key with bags\.join'


def in_child(function, seconds=20):
    """Runs a function in a forked process; returns what it returned, or its error as text."""
    read, write = os.pipe()
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            try:
                answer = str(function())
            except BaseException as exc:
                answer = f'{type(exc).__name__}: {exc}'
            os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    end = time.monotonic() + seconds
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail('the child hangs')
        time.sleep(0.005)
    with os.fdopen(read) as file:
        return file.read()


def is_refused(answer, text='bags.'):
    own = answer.startswith('RuntimeError: ') and f'cannot write in process {os.getpid()}' not in answer
    return own and text in answer and re.search(ADVICE, answer)


CALLS = {
    'append': lambda writer: writer.append({'id': 2, 'words': ['b']}),
    'append_and_flush': lambda writer: writer.append({'id': 2, 'words': ['b']}, flush=True),
    'flush': lambda writer: writer.flush(),
    'begin': lambda writer: writer.begin({'id': 2}),
    'append_block': lambda writer: writer.append_block([writer.encode_whole({'id': 2, 'words': []})]),
}


@pytest.mark.parametrize('kind', WRITERS)
@pytest.mark.parametrize('call', CALLS)
def test_a_child_is_told_that_it_cannot_write(tmp_path, kind, call):
    with WRITERS[kind](tmp_path / 'd', SPEC) as writer:
        writer.append({'id': 1, 'words': ['a']})
        assert is_refused(in_child(lambda: CALLS[call](writer)))
        writer.append({'id': 3, 'words': ['c']})
    assert bags.open(tmp_path / 'd').column('id').tolist() == [1, 3]
    assert bags.verify(tmp_path / 'd') == []


@pytest.mark.parametrize('kind', WRITERS)
def test_a_child_can_look_at_a_writer(tmp_path, kind):
    with WRITERS[kind](tmp_path / 'd', SPEC) as writer:
        writer.append({'id': 1, 'words': ['a']})
        assert in_child(lambda: (len(writer), writer.spec)) == str((1, SPEC))
        assert f'open in process {os.getpid()}' in in_child(lambda: repr(writer))


@pytest.mark.parametrize('kind', WRITERS)
@pytest.mark.parametrize('with_episode', [False, True])
@pytest.mark.parametrize('end', ['close', 'abandon', '__del__', 'return', 'error', 'exit'])
def test_ends_in_a_child_do_nothing(tmp_path, kind, with_episode, end):
    def end_writer():
        if end in ('close', 'abandon', '__del__'):
            return getattr(writer, end)()
        with writer, episode or contextlib.nullcontext():
            if end == 'error':
                raise KeyError('told')
            if end == 'exit':
                sys.exit(3)
        return None

    writer = WRITERS[kind](tmp_path / 'd', SPEC)
    writer.append({'id': 1, 'words': ['a']})
    episode = writer.begin({'id': 2}) if with_episode else None
    if episode:
        episode.append({'words': 'b'})
        episode.flush()
    expected = {'error': "KeyError: 'told'", 'exit': 'SystemExit: 3'}.get(end, 'None')
    assert in_child(end_writer) == expected
    if episode:
        episode.append({'words': 'c'})
        episode.commit()
    writer.close()
    rows = list(bags.open(tmp_path / 'd'))
    assert rows == [{'id': 1, 'words': ['a']}, *([{'id': 2, 'words': ['b', 'c']}] if episode else [])]
    assert not bags.open(tmp_path / 'd').unfinished


EPISODE_CALLS = {
    'append': lambda episode: episode.append({'words': 'x'}),
    'set': lambda episode: episode.set({'id': 9}),
    'flush': lambda episode: episode.flush(),
    'commit': lambda episode: episode.commit(),
}


@pytest.mark.parametrize('call', EPISODE_CALLS)
def test_a_child_is_told_that_it_cannot_write_to_an_episode(tmp_path, call):
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC) as writer, writer.begin({'id': 1}) as episode:
        episode.append({'words': 'a'})
        assert is_refused(in_child(lambda: EPISODE_CALLS[call](episode)), '<bags.Episode of ')
        assert in_child(lambda: (episode.discard(), episode.leave())) == '(None, None)'
        assert 'bags.Episode' in in_child(lambda: repr(episode))
        episode.append({'words': 'b'})
    assert list(bags.open(tmp_path / 'd')) == [{'id': 1, 'words': ['a', 'b']}]


def test_frames_in_a_child(tmp_path):
    """Frames pass through other threads than items."""
    import numpy as np

    frame = np.zeros((48, 64, 3), np.uint8)
    with bags.DatasetWriter(tmp_path / 'd', {'cam': 'mp4(30)[]'}) as writer, writer.begin() as episode:
        episode.append({'cam': frame})
        assert is_refused(in_child(lambda: episode.append({'cam': frame})), '<bags.Episode of ')
        episode.append({'cam': frame})
    assert len(join_videos(bags.open(tmp_path / 'd'), 0, 'cam')) == 2


def test_a_writer_whose_full_shard_is_being_closed(tmp_path):
    """The thread that closes it does not exist in the child."""
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, shard_length=1) as writer:
        for number in range(5):
            writer.append({'id': number, 'words': []})
            assert is_refused(in_child(lambda: writer.append({'id': 9, 'words': []})))
            assert in_child(writer.close) == 'None'
    assert bags.open(tmp_path / 'd').column('id').tolist() == list(range(5))


def test_a_closed_writer_stays_closed_in_a_child(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', SPEC) as writer:
        pass
    assert 'is closed' in in_child(writer.flush)


@pytest.mark.parametrize('mode', ['create', 'overwrite'])
def test_a_bag_in_a_child(tmp_path, mode):
    path = tmp_path / 'x.bag'
    with bags.bag.Writer(path, mode=mode) as writer:
        writer.write(b'one')
        for call in (lambda: writer.write(b'two'), writer.flush, lambda: writer.write_stored([b'a'], [1])):
            answer = in_child(call)
            assert answer.startswith('RuntimeError: ')
            assert 'name-00000-of-00004.bag' in answer
        assert in_child(lambda: (len(writer), writer.close(), writer.discard())) == '(1, None, None)'

        def fail():
            with writer:
                raise KeyError

        assert in_child(fail).startswith('KeyError')
        writer.write(b'three')
    assert bags.bag.Reader(path).read() == [b'one', b'three']


def test_writers_cannot_be_pickled(tmp_path):
    for kind, make in WRITERS.items():
        with make(tmp_path / kind, SPEC, checksum=True) as writer, writer.begin({'id': 1}) as episode:
            for each in (writer, episode):
                with pytest.raises(TypeError, match=ADVICE):
                    pickle.dumps(each)
    with bags.bag.Writer(tmp_path / 'x.bag') as bag, pytest.raises(TypeError, match='open a bag in each'):
        pickle.dumps(bag)


# Random forks.


def call_in_child(chance, writer, episode):
    """Returns what random calls in a child did: 'refused', 'nothing', or an error."""
    calls = []
    for _ in range(chance.randint(1, 5)):
        name = chance.choice(
            [*CALLS, *(EPISODE_CALLS if episode else ()), 'close', 'abandon', '__del__', 'exit']
        )
        try:
            if name in CALLS:
                CALLS[name](writer)
            elif name in EPISODE_CALLS:
                EPISODE_CALLS[name](episode)
            elif name == 'exit':
                atexit._run_exitfuncs()
            else:
                getattr(writer, name)()
            calls.append(f'{name} did nothing')
        except BaseException as exc:
            calls.append(f'{name} raised {type(exc).__name__}: {exc}')
    return '\n'.join(calls)


def fork_at_random(tmp_path, chance):
    """Writes a random dataset, forks children at random moments, and compares what was written."""
    kind = chance.choice(list(WRITERS))
    options = {'durability': chance.choice(['none', 'close', 'flush']), 'checksum': chance.random() < 0.3}
    if kind == 'shards':
        options['shard_length'] = chance.choice([1, 2, 100])
    writer, episode, rows, forks = WRITERS[kind](tmp_path / 'd', SPEC, **options), None, [], 0
    for number in range(chance.randint(1, 12)):
        step = chance.choice(['append', 'flush', 'begin', 'item', 'commit', 'discard', 'fork', 'fork'])
        if step == 'fork':
            forks += 1
            for call in in_child(functools.partial(call_in_child, chance, writer, episode)).splitlines():
                name, _, end = call.partition(' ')
                is_ended = name in ('close', 'abandon', '__del__', 'exit')
                assert end == 'did nothing' if is_ended else is_refused(end.removeprefix('raised '), ''), call
        elif step == 'flush':
            (episode or writer).flush()
        elif episode is None:
            rows.append({'id': number, 'words': ['a']})
            if step == 'begin':
                episode = writer.begin({'id': number})
                rows[-1]['words'] = []
            else:
                writer.append(rows[-1])
        elif step in ('commit', 'discard'):
            getattr(episode, step)()
            episode = None
            if step == 'discard':
                rows.pop()
        else:
            rows[-1]['words'].append(f'word {number}')
            episode.append({'words': rows[-1]['words'][-1]})
    if episode is not None:
        episode.commit()
    writer.close()
    with bags.open(tmp_path / 'd') as dataset:
        assert list(dataset) == rows
        assert not dataset.unfinished
    assert bags.verify(tmp_path / 'd') == []
    return forks


@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_random_forks(tmp_path):
    assert sum(fork_at_random(tmp_path / str(seed), random.Random(seed)) for seed in range(20)) > 20


@pytest.mark.campaign
@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
@pytest.mark.parametrize('part', range(10))
def test_many_random_forks(tmp_path, part, found):
    forks = 0
    for seed in range(200 * part + 1000, 200 * part + 1200):
        try:
            forks += fork_at_random(tmp_path / str(seed), random.Random(seed))
        except BaseException as exc:
            exc.add_note(f'seed {seed}')
            raise
    found(f'200 writers and {forks} children: 0 datapoints lost or wrong')
