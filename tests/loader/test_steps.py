"""Which positions ranks read: together all of them, in order, for any world size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.loader.steps import Cursor, Schedule

START = Cursor()
RUNS = st.fixed_dictionaries(
    {
        'length': st.integers(1, 60),
        'batch_size': st.integers(1, 8),
        'hosts': st.integers(1, 5),
        'last_batch': st.sampled_from(['pad', 'drop', 'partial']),
    }
).filter(lambda run: run['length'] >= run['hosts'])


def hosts_of(run, epochs, begin=START):
    return [
        Schedule(run['length'], run['batch_size'], host, run['hosts'], run['last_batch'], epochs, begin)
        for host in range(run['hosts'])
    ]


def taken(schedule):
    """Returns positions by epoch and step."""
    found = schedule.steps(range(schedule.total))
    return [(step.epoch, list(range(step.start, step.stop))) for step in found]


def after_step(schedule, number):
    return schedule.steps(range(number, number + 1))[0].after


@given(RUNS, st.integers(1, 3))
def test_ranks_take_the_whole_epoch(run, epochs):
    hosts = hosts_of(run, epochs)
    length, together = run['length'], run['batch_size'] * run['hosts']
    for epoch in range(epochs):
        positions = sorted(p for steps in hosts for e, part in taken(steps) for p in part if e == epoch)
        expected = {
            'pad': -(-length // together) * together,
            'drop': length // together * together,
            'partial': length,
        }
        assert positions == list(range(expected[run['last_batch']]))
    if run['last_batch'] != 'partial':
        assert len({steps.total for steps in hosts}) == 1
        assert all(len(part) == run['batch_size'] for steps in hosts for _, part in taken(steps))
    else:
        assert max(steps.total for steps in hosts) - min(steps.total for steps in hosts) <= epochs
        assert all(part for steps in hosts for _, part in taken(steps))


@given(RUNS, st.data())
def test_after_any_step_the_first_positions_are_taken(run, data):
    # If hosts may take different numbers of steps, they are in different epochs after the first.
    hosts = hosts_of(run, 1 if run['last_batch'] == 'partial' else 2)
    done = data.draw(st.integers(0, min(steps.total for steps in hosts)))
    if not done:
        return
    (place,) = {after_step(steps, done - 1) for steps in hosts}
    parts = [part for steps in hosts for e, part in taken(steps)[:done] if e == place.epoch]
    assert sorted(p for part in parts for p in part) == list(range(place.consumed))


@given(RUNS, RUNS, st.data())
def test_another_world_size_resumes_from_any_step(run, other, data):
    other = {**other, 'length': run['length'], 'last_batch': 'partial'}
    if other['hosts'] > run['length']:
        return
    hosts = hosts_of({**run, 'last_batch': 'partial'}, 1)
    most = min(steps.total for steps in hosts)
    done = data.draw(st.integers(0, most))
    place = after_step(hosts[0], done - 1) if done else Cursor()
    before = [p for steps in hosts for _, part in taken(steps)[:done] for p in part]
    epochs = 1 - place.epoch
    after = [p for steps in hosts_of(other, epochs, place) for _, part in taken(steps) for p in part]
    assert sorted(before + after) == list(range(run['length']))


@given(RUNS, st.integers(1, 3), st.integers(1, 4), st.integers(0, 9))
def test_workers_share_the_steps(run, epochs, stride, skip):
    options = run['length'], run['batch_size'], 0, run['hosts'], run['last_batch'], epochs, START
    whole = taken(Schedule(*options))
    workers = [taken(Schedule(*options, skip + worker, stride)) for worker in range(stride)]
    assert workers == [whole[skip + worker :: stride] for worker in range(stride)]


@pytest.mark.parametrize('epochs', [None, 0, 1, 5])
def test_how_many(epochs):
    schedule = Schedule(10, 4, 0, 1, 'pad', epochs, Cursor(2, 8))
    assert (schedule.epoch_steps(8), schedule.epoch_steps()) == (1, 3)
    assert schedule.total == {None: None, 0: 0, 1: 0, 5: 7}[epochs]
    assert schedule.steps(range(2)) == [(2, 8, 12, (3, 0, 0)), (3, 0, 4, (3, 4, 0))]
    assert (
        Schedule(10, 4, 0, 1, 'pad', epochs, Cursor(2, 8, 1)).total == {None: None, 0: 0, 1: 0, 5: 10}[epochs]
    )
