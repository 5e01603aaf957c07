"""Batches made by processes: the same as those of threads; errors are raised at once."""

import pytest

import bags
from tests.loader.samples import COUNT, kills_one

HINT = "expected `if __name__ == '__main__':` around this, as each worker process imports the script"


@pytest.mark.slow
def test_processes_make_the_batches_that_threads_do(script):
    code = """
        options = dict(epochs=2, transform=augment)
        expected = list(loader(processes=False, workers=0, **options))
        for workers, prefetch in ((1, None), (4, 2)):
            found = list(loader(workers=workers, prefetch=prefetch, **options))
            assert len(found) == len(expected) == 30
            assert same(found, expected)
            for one in found:
                for array in (one['x'], one['id'], one['nums'].values, *one['noise']):
                    assert array.flags.writeable and array.flags.c_contiguous
        # From a state, and back.
        batches = iter(loader(**options))
        for _ in range(20):
            next(batches)
        state = batches.get_state()
        other = loader(**options)
        other.load_state_dict(state)
        assert same(list(other), expected[20:])
        batches.close()
        assert not active_children()
        print('done')
    """
    assert script(code) == (0, 'done\n', '')


@pytest.mark.slow
def test_errors_arrive_and_nothing_stays(script):
    code = """
        def error_of(batches):
            found = []
            try:
                for batch in batches:
                    found.append(batch)
            except Exception as exc:
                assert not active_children(), active_children()
                return len(found), type(exc).__name__, str(exc), '\\n'.join(getattr(exc, '__notes__', []))
            raise AssertionError('no error')

        list(loader(processes=False, epochs=1)), list(loader(epochs=1))  # All that stays open is.
        before = held()
        count, kind, text, notes = error_of(loader(transform=bad))
        assert (count, kind, text) == (7, 'ArithmeticError', 'fifty')
        assert 'datapoints 49, 50, 51' in notes and 'in bad' in notes
        count, kind, text, notes = error_of(loader(transform=odd))
        assert (count, kind) == (0, 'RuntimeError') and text.startswith('Odd: ')
        count, kind, text, notes = error_of(loader(transform=generator))
        assert (count, kind) == (0, 'TypeError') and 'generator' in text, (kind, text)
        count, kind, text, notes = error_of(loader(transform=lost))
        assert (kind, text) == ('FileNotFoundError', 'gone') and 'was received' in notes, (kind, text)
        assert count <= 7  # It is met for all of the batches that were made together.
        count, kind, text, notes = error_of(loader(transform=sudden))
        assert kind == 'WorkerDiedError' and 'exit code -9' in text
        assert text.startswith('step 7, the batch of datapoints 49, 50, 51'), text
        batches = iter(loader(transform=slow))
        next(batches)
        os.kill(active_children()[0].pid, signal.SIGKILL)
        assert 'exit code -9' in error_of(batches)[2]
        try:
            loader(transform=lambda batch: batch)
        except TypeError as exc:
            assert str(exc).startswith('transform: expected a picklable object')
        del batches
        after = held()
        assert after == before, (after, before)
        batches = iter(loader(transform=slow))
        next(batches)
        print('done')  # And the process ends, with an iterator at work.
    """
    functions = """
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(one)

        def odd(batch):
            raise Odd(1, 2)

        class Lost:
            def __reduce__(self):
                return gone, ()

        def gone():
            raise FileNotFoundError('gone')

        def lost(batch):
            return Lost() if 50 in batch['id'] else batch

        def generator(batch):
            return (name for name in batch)
    """
    assert script(code, functions=functions) == (0, 'done\n', '')


def test_children_of_a_worker_do_not_hide_that_it_was_killed(script):
    """The children inherit its pipes, which stay open: the operating system reports its end."""
    functions = """
        def forks(batch):
            if 50 in batch['id']:
                warnings.simplefilter("ignore")  # Of Python 3.12: that there are threads.
                pid = os.fork()
                if not pid:
                    time.sleep(60)
                    os._exit(0)
                with open('pid', 'w') as file:
                    file.write(str(pid))
                os.kill(os.getpid(), signal.SIGKILL)
            return batch
    """
    code = """
        began = time.monotonic()
        try:
            list(loader(transform=forks))
        except RuntimeError as exc:
            assert 'exit code -9' in str(exc), exc
        else:
            raise AssertionError('no error')
        finally:
            with open('pid') as file:
                pid = int(file.read())
            assert not ends(pid, 0)  # It is still there, and it was not waited for.
            os.kill(pid, signal.SIGKILL)
        assert not active_children()
        print('done')
    """
    assert script(code, functions=functions) == (0, 'done\n', '')


@pytest.mark.slow(all_but='True')
@pytest.mark.parametrize('large', [False, True])
def test_a_script_without_a_guard_is_told_so(script, large):
    """Also if the message to a process is longer than a pipe's buffer."""
    code = f"""
        view = dataset.select(np.arange({10**5 if large else 100}) % 100)
        for batch in bags.Loader(view, 7, workers=1, processes=True):
            pass
    """
    code, _, errors = script(code, guard=False, timeout=60)
    assert code == 1
    assert HINT in errors


def test_processes_end_with_a_program_that_ignores_signals(script):
    """Workers do not inherit that: SIGTERM ends them when the program ends."""
    code = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        batches = iter(loader(transform=stuck, workers=1))
        child = active_children()[0]
        until = time.monotonic() + 20
        while not int(status(child.pid)['SigIgn'], 16) & 2 and time.monotonic() < until:
            time.sleep(0.01)  # Until it ignores SIGINT, and so has begun to work.
        os.kill(child.pid, signal.SIGINT)
        time.sleep(0.1)
        assert child.is_alive()
        os.kill(child.pid, signal.SIGTERM)
        assert ends(child.pid)
        try:
            next(batches)
        except RuntimeError as exc:
            print('exit code -15' in str(exc))
    """
    assert script(code, timeout=60) == (0, 'True\n', '')


@pytest.mark.slow(all_but='3')
@pytest.mark.parametrize('prefetch', [None, 3])
def test_the_batch_that_ends_a_process_is_named(dataset, prefetch):
    """Also if several batches are one task; those before it and those after it are delivered."""
    loader = bags.Loader(
        dataset, 2, shuffle=False, transform=kills_one, per='datapoint', workers=2, processes=True,
        prefetch=prefetch,
    )  # fmt: skip
    batches = iter(loader)
    found = [next(batches)['id'].tolist() for _ in range(26)]
    with pytest.raises(RuntimeError, match=r'batch of datapoints 52, 53 \(epoch 0\): worker .*\(SIGKILL\)'):
        next(batches)
    assert loader.state_dict()['consumed'] == 52
    found += [batch['id'].tolist() for batch in batches]
    delivered = [index for batch in found for index in batch]
    assert delivered == [index for index in range(COUNT) if index not in (52, 53)]
