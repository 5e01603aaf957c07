"""Python as on Windows, where Linux can pretend so.

Calls and modules that Windows lacks are missing. The library can open no folders, nor remove, rename or
replace files that this process or a child has open or mapped, nor cut mapped ones. What it opens without
`O_BINARY` is a failure, as Windows would change its ends of lines.
"""

import errno
import mmap
import os
import signal
import sys

from tests.systems import remove

MISSING = {
    os: (
        *(
            'O_CLOEXEC',
            'O_DIRECT',
            'O_DIRECTORY',
            'O_DSYNC',
            'O_NOFOLLOW',
            'O_NONBLOCK',
            'O_SYNC',
            'RWF_NOWAIT',
        ),
        *(name for name in dir(os) if name.startswith('POSIX_FADV_')),
        *(
            'SCHED_OTHER',
            'copy_file_range',
            'fchown',
            'fdatasync',
            'fork',
            'getpgid',
            'killpg',
            'memfd_create',
        ),
        *('mkfifo', 'posix_fadvise', 'posix_fallocate', 'pread', 'preadv', 'pwrite', 'pwritev', 'readv'),
        *('register_at_fork', 'sched_getaffinity', 'setsid', 'sync', 'sysconf', 'writev'),
    ),
    mmap: ('MADV_RANDOM', 'MADV_SEQUENTIAL', 'MAP_ANONYMOUS', 'MAP_PRIVATE', 'MAP_SHARED'),
    signal: ('pthread_sigmask',),
}
MODULES = ('fcntl', 'resource')
O_BINARY = 0x8000  # As on Windows; on Linux it is that of large files, which changes nothing.

_open, _replace, _rename, _unlink, _ftruncate = (
    os.open, os.replace, os.rename, os.unlink, os.ftruncate,
)  # fmt: skip


OPENS_WITHOUT_DATA = {'_write_total', 'sync', 'sync_folder'}
"""Functions of the library that open files in which they neither read nor write."""


def is_open(path, maps_only=False):
    """Returns whether this process or a child has a file open or mapped, or any file in a folder."""
    path = os.path.realpath(path)
    with open(f'/proc/self/task/{os.getpid()}/children') as file:
        processes = ['self', *file.read().split()]
    for process in processes:
        try:
            with open(f'/proc/{process}/maps') as file:
                names = [line.rstrip('\n').split(None, 5)[5] for line in file if '/' in line]
            if not maps_only:
                folder = f'/proc/{process}/fd'
                names += [os.readlink(f'{folder}/{each}') for each in os.listdir(folder)]
        except OSError:
            continue  # It has ended, or a descriptor was closed meanwhile.
        if any(name == path or name.startswith(f'{path}/') for name in names):
            return True
    return False


def is_library(depth=2):
    return sys._getframe(depth).f_globals.get('__name__', '').startswith('bags')


def refuse(*paths):
    for path in paths:
        if os.path.lexists(path) and not os.path.islink(path) and is_open(path):
            raise PermissionError(errno.EACCES, 'a process has it open', os.fspath(path))


def checked_open(path, flags, mode=0o777, *, dir_fd=None):
    if is_library():
        if str(path).startswith('/proc/'):
            raise FileNotFoundError(errno.ENOENT, 'No such file or directory', path)
        if os.path.isdir(path or '.'):
            raise PermissionError(errno.EACCES, 'Permission denied', path)
        name = sys._getframe(1).f_code.co_name
        assert flags & O_BINARY or name in OPENS_WITHOUT_DATA, f'{path}: {name} opens it without O_BINARY'
    return _open(path, flags, mode, dir_fd=dir_fd)


def checked_replace(source, target, **options):
    if is_library():
        refuse(source, target)
    return _replace(source, target, **options)


def checked_rename(source, target, **options):
    if is_library():
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, 'the file already exists', source, None, target)
        refuse(source)
    return _rename(source, target, **options)


def checked_unlink(path, *, dir_fd=None):
    if is_library():
        refuse(path)
    return _unlink(path, dir_fd=dir_fd)


def checked_ftruncate(fd, length):
    path = os.readlink(f'/proc/self/fd/{fd}')
    if length < os.fstat(fd).st_size and is_open(path, maps_only=True):
        raise OSError(errno.EINVAL, 'a process has it mapped', path)
    return _ftruncate(fd, length)


for module, names in MISSING.items():
    remove(module, names)
for name in MODULES:
    sys.modules[name] = None
os.O_BINARY = O_BINARY
os.open, os.replace, os.rename, os.ftruncate = (
    checked_open,
    checked_replace,
    checked_rename,
    checked_ftruncate,
)
os.unlink = os.remove = checked_unlink
