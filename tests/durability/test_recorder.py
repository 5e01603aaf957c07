"""The recorder sees all that a process changes, and refuses what it cannot replay."""

import sys

import pytest

from tests.durability.file_system import FileSystem, read_tree
from tests.durability.recorder import record

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='strace is for Linux')

CHANGES = """
import ctypes, os, subprocess, sys, threading

folder = sys.argv[1]
at = lambda name: os.path.join(folder, name)
os.makedirs(at('a/b'))
fd = os.open(at('a/quoted " é'), os.O_CREAT | os.O_RDWR)
os.pwritev(fd, [b'0123', bytes(range(256))], 5)
os.pwrite(fd, b'x', 2)
with open(at('text'), 'wb') as file:
    file.write(b'abcdef' * 9)
    file.flush()
    file.seek(4)
    file.write(b'--')
    os.fsync(file.fileno())
with open(at('text'), 'ab') as file:
    file.write(b'end')
with open(at('short'), 'w') as file:
    file.write('lost')
open(at('short'), 'w').close()
copy = os.open(at('copy'), os.O_CREAT | os.O_WRONLY)
os.copy_file_range(fd, copy, 100, 5, 3)
os.ftruncate(copy, 50)
os.truncate(at('text'), 20)
os.rename(at('a'), at('c'))
os.write(fd, b'after the rename')
os.makedirs(at('d'))
rename = ctypes.CDLL(None).renameat2
assert rename(-100, at('c').encode(), -100, at('d').encode(), 2) == 0
os.rename(at('d/b'), at('moved'))
os.rename(at('copy'), at('short'))
os.unlink(at('text'))
os.rmdir(at('moved'))
folder_fd = os.open(folder, os.O_RDONLY)
os.mkdir('relative', dir_fd=folder_fd)
os.fsync(folder_fd)
subprocess.run([sys.executable, '-c', 'import sys; open(sys.argv[1], "w").write("child")', at('child')])
def work(number):
    with open(at(f'thread {number}'), 'wb', buffering=0) as file:
        for part in range(200):
            file.write(b'%d,' % part)
            os.fdatasync(file.fileno())
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_replaying_gives_what_is_on_disk(tmp_path):
    root = tmp_path / 'root'
    root.mkdir()
    operations = record(['-c', CHANGES, str(root)], root)
    found = FileSystem(str(root), operations).contents()
    assert found == read_tree(root)
    assert len(found) == 9


@pytest.mark.parametrize(
    'code',
    [
        'import mmap; mmap.mmap(fd, 9)[:1] = b"!"',
        'os.posix_fallocate(fd, 0, 90)',
        'os.link(name, name + "2")',
    ],
    ids=['mmap', 'fallocate', 'link'],
)
def test_calls_that_cannot_be_replayed_are_errors(tmp_path, code):
    begin = 'import os, sys; name = sys.argv[1]; fd = os.open(name, 0o102); os.write(fd, bytes(9)); '
    with pytest.raises(AssertionError, match='cannot be replayed'):
        record(['-c', begin + code, str(tmp_path / 'file')], tmp_path)
