"""Ctrl-C ends a program and its workers, at any moment."""

import signal

import pytest

# Raises SIGINT at one of the lines that run while an iterator is created; returns whether that line ran,
# and whether the iterator was not created.
INTERRUPTED = """
    def interrupted(make, line):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            if event == 'line':
                count += 1
                if count == line:
                    signal.raise_signal(signal.SIGINT)
            return trace

        batches = None
        sys.settrace(trace)
        try:
            batches = make()
            sys.settrace(None)
        except KeyboardInterrupt:
            sys.settrace(None)
            # While the error is there still, with all that it refers to.
            assert not active_children() and threading.active_count() == 1, line
        finally:
            sys.settrace(None)
            if batches is not None:
                batches.close()
        return count >= line, batches is None
"""


@pytest.mark.slow(all_but='20-False')
@pytest.mark.parametrize('processes', [False, True])
@pytest.mark.parametrize('times', [20, pytest.param(400, marks=pytest.mark.campaign)])
def test_ctrl_c_while_workers_start_leaves_nothing(script, processes, times):
    code = f"""
        one = loader(processes={processes})
        make = lambda: iter(one)
        list(loader(processes=False, epochs=1))  # All files of the dataset are open.
        make().close()
        before = held()
        count = 0
        while interrupted(make, count + 1)[0]:
            count = count * 2 + 10
        chance = random.Random(0)
        most = count // 2 - 5  # Of so many lines it is known that there are.
        lines = chance.sample(range(1, most), min(most - 1, {times}))
        stopped = sum(interrupted(make, line)[1] for line in lines)
        assert stopped == len(lines), (stopped, len(lines))
        assert held() == before, (held(), before)
        print('done')
    """
    assert script(code, functions=INTERRUPTED, timeout=500) == (0, 'done\n', '')


@pytest.mark.slow(all_but='inline')
@pytest.mark.parametrize('kind', ['inline', 'threads', 'processes', 'shard'])
def test_an_iterator_resumes_after_ctrl_c(script, kind):
    """With the batch that would have been next, wherever it was interrupted."""
    code = f"""
        from bags.loader.iterator import worker_shard
        from bags.loader.loader import plan_of

        kind = {kind!r}
        options = {{'processes': kind == 'processes', 'workers': 2 * (kind in ('threads', 'processes'))}}
        one = loader(epochs=4, transform=augment, **options)
        batches = worker_shard(plan_of(one), 1, 2) if kind == 'shard' else iter(one)
        chance = random.Random(0)
        left = chance.randrange(1, 60)

        def trace(frame, event, arg):
            global left
            if event == 'line':
                left -= 1
                if left == 0:
                    signal.raise_signal(signal.SIGINT)
            return trace

        found, times = [], 0
        while times < (4 if kind == 'processes' else 40):
            try:
                sys.settrace(trace)
                batch = next(batches)
                sys.settrace(None)
                found.append(batch)
            except KeyboardInterrupt:
                sys.settrace(None)
                times += 1
                left = chance.randrange(1, 100)
                assert not active_children() and threading.active_count() == 1
                if found:
                    assert batches.state_dict()['epoch'] == len(found) * (1 + (kind == 'shard')) // 15
            except StopIteration:
                sys.settrace(None)
                break
        assert times > 3
        found += batches
        expected = list(loader(epochs=4, transform=augment, processes=False))
        assert same(found, expected[1::2] if kind == 'shard' else expected), len(found)
        print('done')
    """
    assert script(code) == (0, 'done\n', '')


def test_ctrl_c_ends_all(script):
    code = """
        batches = iter(loader(transform=slow))
        pids = [child.pid for child in active_children()]
        for number, _ in enumerate(batches):
            if number == 5:
                print(*pids, flush=True)
                os.kill(os.getpid(), signal.SIGINT)
    """
    code, out, error = script(code)
    assert code == -signal.SIGINT
    assert error.count('Traceback') == 1
    assert 'KeyboardInterrupt' in error
    check = f'for pid in {out.split()}: assert ends(int(pid)), pid\nprint("done")'
    assert script(check) == (0, 'done\n', '')


def test_ctrl_c_of_a_terminal_is_seen_by_the_program_alone(script):
    """All processes of a group receive it: also workers that have just been started."""
    code = """
        os.setpgid(0, 0)
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))  # The program runs on.
        batches = iter(loader(epochs=1))
        for _ in range(20):
            os.killpg(0, signal.SIGINT)
            time.sleep(0.02)
        assert len(list(batches)) == 15
        print(bool(seen))
    """
    assert script(code) == (0, 'True\n', '')
