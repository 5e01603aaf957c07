"""Batches are made ahead, one or several a task, by workers that end with the process that started them."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.loader.iterator import TASK_SECONDS, Tasks
from bags.loader.steps import PLAN_STEPS


@given(st.integers(0, 500), st.integers(1, 70), st.lists(st.floats(0, 10), min_size=1))
def test_tasks_divide_the_steps(total, max_length, seconds):
    tasks, found = Tasks(total, max_length), []
    for number, task in enumerate(tasks):
        assert 1 <= len(task) <= max_length
        assert task[0] // PLAN_STEPS == task[-1] // PLAN_STEPS
        found += task
        tasks.adapt(len(task), seconds[number % len(seconds)])
    assert found == list(range(total))
    assert list(tasks) == []


def test_tasks_take_as_many_batches_as_are_made_in_their_time():
    tasks = Tasks(None, PLAN_STEPS)
    assert len(next(tasks)) == 1
    tasks.adapt(1, TASK_SECONDS / 8.5)
    assert len(next(tasks)) == 8
    tasks.adapt(8, 100)
    assert len(next(tasks)) == 1
    tasks.adapt(1, 0)
    assert next(tasks).stop == PLAN_STEPS


@pytest.mark.slow(all_but='idle')
@pytest.mark.parametrize('how', ['idle', 'stuck', 'forked'])
def test_workers_end_with_a_process_that_is_killed(script, how):
    """Also in the middle of a batch, and while another process has the other ends of their pipes."""
    code = f"""
        batches = iter(loader(transform=stuck if {how == 'stuck'} else slow))
        if {how != 'stuck'}:
            next(batches)
        print(*(child.pid for child in active_children()), flush=True)
        if {how == 'forked'}:
            warnings.simplefilter('ignore')
            if not os.fork():
                os.close(1), os.close(2)
                time.sleep(60)
                os._exit(0)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    code, out, _ = script(code)
    assert code == -signal.SIGKILL
    pids = out.split()
    assert len(pids) == 2
    check = f'for pid in {pids}: assert ends(int(pid)), pid\nprint("done")'
    assert script(check) == (0, 'done\n', '')
