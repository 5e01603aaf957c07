"""Children that are forked while another thread imports a module for bags."""

import importlib
import os
import sys

import pytest

import bags
from bags.forks import IMPORT_SAFE_PACKAGES
from tests.test_layers import MODULES, imports

pytestmark = [
    pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked'),
    pytest.mark.skipif(
        not getattr(sys, '_is_gil_enabled', lambda: True)(),
        reason='a child can inherit locks of the interpreter itself, held by other threads',
    ),
]

CODE = """
import os, signal, sys, threading, time, warnings
sys.path.insert(0, sys.argv[3])
import bags
warnings.simplefilter('ignore', DeprecationWarning)  # Of forks beside threads.
name, path = sys.argv[1:3]
begun, is_done = threading.Event(), False

class Slow:
    # A finder that finds nothing, after some time.
    @staticmethod
    def find_spec(asked, *args):
        if asked == name and threading.current_thread() is not threading.main_thread():
            begun.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow)

def use():
    global is_done
    {use}
    is_done = True

thread = threading.Thread(target=use, daemon=True)
thread.start()
assert begun.wait(60)
child = os.fork()
if not child:
    signal.alarm(10)
    use()
    os._exit(0)
print(is_done, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
USES = {
    'bags.dataset.format.folder': 'bags.open(path)[0]',
    'bags.dataset.sharded_reader': 'bags.open(path)[0]',
    'xxhash': 'bags.open(path).fingerprint',
    'bags.torch': 'import bags.torch',
    'PIL.PngImagePlugin': "bags.open(path)[0, 'image']",
    'multiprocessing.shared_memory': 'import multiprocessing.shared_memory',
}


@pytest.mark.slow(all_but='bags.dataset.format.folder')
@pytest.mark.parametrize('name', USES)
def test_forks_wait_for_imports(tmp_path, kit, name):
    """Of modules of bags, also inside functions, of their libraries, and inside these."""
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int(4)', 'image': 'png'}) as writer:
        writer.append({'id': 1, 'image': bytes_of_png()})
    code = CODE.replace('{use}', USES[name])
    assert kit.python(code, name, tmp_path / 'd', tmp_path).split()[-1] == b'0'


def bytes_of_png():
    import numpy as np

    return bags.encoders['png'](np.zeros((2, 2, 3), np.uint8))


def test_forks_do_not_wait_for_programs(tmp_path, kit):
    """A module of the user may run for as long as the program."""
    (tmp_path / 'program.py').write_text('import time\ntime.sleep(1)\n')
    code = CODE.replace('{use}', 'import program').replace('use()\n    os._exit', 'os._exit')
    assert kit.python(code, 'program', tmp_path, tmp_path).split() == [b'False', b'0']


def test_forks_without_threads(tmp_path, kit):
    """Also inside of an import, which then goes on in both processes."""
    (tmp_path / 'forking.py').write_text('import os\nchild = os.fork()\nimport wave\n')
    code = (
        'import os, sys; sys.path.insert(0, sys.argv[1]); import bags, forking\n'
        'import colorsys\n'
        'os._exit(0) if not forking.child else print(os.waitpid(forking.child, 0)[1])'
    )
    assert kit.python(code, tmp_path).split() == [b'0']


def test_every_package_is_waited_for():
    for path in MODULES:
        assert {name.partition('.')[0] for name in imports(path)} <= IMPORT_SAFE_PACKAGES, path


def test_the_locks_of_python_are_known():
    """Else forks do not wait with this version of Python."""
    assert isinstance(importlib._bootstrap._module_locks, dict)
    assert hasattr(importlib._bootstrap._ModuleLock('x'), 'owner')
