"""Python as on macOS before version 11, where Linux can pretend so: calls that it lacks are missing."""

import os

import pytest

from tests.systems import remove

LEFT_OUT = (
    *('test_a_bag_becomes_longer_but_never_shorter', 'test_a_disk_that_is_full_leaves_the_old_one'),
    *('test_a_full_disk_is_told_and_read_past', 'test_a_writer_may_end_between_any_two_system_calls'),
)
"""Tests of calls that are missing."""

remove(
    os,
    (
        *(
            'O_DIRECT',
            'RWF_NOWAIT',
            'SCHED_OTHER',
            'copy_file_range',
            'fdatasync',
            'memfd_create',
            'posix_fadvise',
        ),
        *(name for name in dir(os) if name.startswith('POSIX_FADV_')),
        *('posix_fallocate', 'preadv', 'pwritev', 'sched_getaffinity'),
    ),
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name.partition('[')[0] in LEFT_OUT:
            item.add_marker(pytest.mark.skip(reason='calls that do not exist there'))
