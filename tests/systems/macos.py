"""Python as on macOS before version 11, where Linux can pretend so: calls that it lacks are missing."""

import os

from tests.systems import remove

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
