"""What writes files to the disk, by system."""

import subprocess
import sys

import pytest

pytest.importorskip('fcntl')

CODE = """
import errno, fcntl, os, sys

calls, refuses = [], sys.argv[2] == 'refused'
fcntl.F_FULLFSYNC = 51


def recorded(fd, command, *arguments):
    if command == fcntl.F_FULLFSYNC:
        calls.append(('full', os.readlink(f'/proc/self/fd/{fd}')))
        if refuses:
            raise OSError(errno.ENOTSUP, 'not supported')
        return 0
    return original(fd, command, *arguments)


def fsync(fd):
    calls.append(('fsync', os.readlink(f'/proc/self/fd/{fd}')))


original, fcntl.fcntl, os.fsync = fcntl.fcntl, recorded, fsync
import bags

with bags.DatasetWriter(sys.argv[1], {'id': 'int(4)'}) as writer:
    writer.append({'id': 1})
for how, path in calls:
    print(how, os.path.basename(path))
"""


@pytest.mark.skipif(sys.platform != 'linux', reason='names files by /proc')
@pytest.mark.parametrize('refused', [False, True])
def test_macos_syncs_files_through_the_cache_of_the_disk(tmp_path, refused):
    """`fcntl` has F_FULLFSYNC on macOS. File systems that refuse it get a plain `fsync`."""
    arguments = [sys.executable, '-c', CODE, str(tmp_path / 'data'), 'refused' if refused else '']
    calls = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {'full id.bag', 'full refs.bag', 'full data'} <= set(calls)
    assert ('fsync id.bag' in calls) == ('fsync refs.bag' in calls) == refused
    assert any(each.startswith('fsync') for each in calls) == refused
