"""Worker processes end when the process that started them does, however that was."""

import signal

import pytest


@pytest.mark.parametrize('how', ['idle', 'stuck', 'forked'])
def test_workers_end_with_a_process_that_is_killed(script, how):
    """Also in the midst of a batch; and where another process has the other ends of their pipes."""
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
