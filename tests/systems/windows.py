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

import pytest

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


LEFT_OUT = {
    'processes that fork': (
        *('test_a_fork_reads_at_the_same_time_as_its_parent', 'test_a_fork_while_a_thread_waits_for_limits'),
        *('test_a_forked_child_reads_on', 'test_other_processes'),
    ),
    'locks, which do not exist there': (
        *(
            'test_a_lock_holds_between_processes_and_dies_with_its_own',
            'test_a_writer_knows_a_lock_per_share',
        ),
        *('test_a_lock_is_not_held_by_a_child_that_outlives_its_parents_lock', 'test_leftovers_of_a_bag'),
        *(
            'test_files_in_use_stay_and_others_are_read_where_they_are',
            'test_leftovers_of_a_killed_overwrite',
        ),
        *('test_locks', 'test_recover_leaves_a_bag_that_is_being_replaced', 'test_what_is_not_overwritten'),
        *('test_threads_fetch_a_whole_file_once', 'test_two_writers', 'test_two_writers_in_one_folder'),
    ),
    'calls that do not exist there': (
        *('test_a_bag_becomes_longer_but_never_shorter', 'test_a_disk_that_is_full_leaves_the_old_one'),
        *('test_a_full_disk_is_told_and_read_past', 'test_a_writer_may_end_between_any_two_system_calls'),
    ),
    'a writer that closes a bag which a reader has open': (
        *('test_a_snapshot_stays_what_it_was', 'test_threads_read_while_one_writes'),
    ),
}
"""Tests that are skipped, by what they are about."""


def pytest_collection_modifyitems(items):
    for reason, names in LEFT_OUT.items():
        for item in items:
            if item.name.partition('[')[0] in names:
                item.add_marker(pytest.mark.skip(reason=reason))


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
