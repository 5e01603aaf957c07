"""Real file systems on loop devices, whose power can be cut: images that only root can mount."""

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess

__all__ = ['FLAGS', 'Disk', 'missing']

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: ext4 and XFS stop writing at once."""
FLAGS = {'journal lost': 2, 'journal kept': 1}
"""Whether the journal in memory still reaches the disk; data in the page cache never does."""
SIZES = {'ext4': 128 << 20, 'xfs': 320 << 20}
"""The smallest images; both are sparse."""


def missing():
    """Returns what is missing for mounting images; empty: nothing."""
    if not hasattr(os, 'geteuid') or os.geteuid() != 0:
        return 'mounting needs root'
    if not os.path.exists('/dev/loop-control'):
        return 'no loop devices'
    tools = [name for name in ('losetup', 'mount', 'mkfs.ext4', 'mkfs.xfs') if shutil.which(name) is None]
    return f'not installed: {", ".join(tools)} (tools/debian-packages e2fsprogs xfsprogs)' if tools else ''


class Disk:
    """A file system in an image, mounted while the `with` block runs.

    Args:
        type: 'ext4' or 'xfs'.
        folder: An empty folder for the image.
    """

    def __init__(self, type, folder):
        self._image = os.path.join(folder, 'image')
        self.path = os.path.join(folder, 'mounted')
        """Where it is mounted."""
        os.makedirs(self.path)
        with open(self._image, 'wb') as file:
            file.truncate(SIZES[type])
        run(f'mkfs.{type}', '-q', self._image)
        self._device = ''

    def __enter__(self):
        self._device = run('losetup', '--find', '--show', self._image).strip()
        try:
            self._mount()
        except BaseException:
            self._detach()
            raise
        return self

    def __exit__(self, *error):
        try:
            self._unmount()
        finally:
            self._detach()

    def _mount(self):
        run('mount', self._device, self.path)

    def _unmount(self):
        run('umount', self.path)

    def _detach(self):
        run('losetup', '--detach', self._device)

    def sync(self):
        """Writes everything to the disk."""
        run('sync', '--file-system', self.path)

    def cut_power(self, flag):
        """Loses all that is not on the disk: from now on, nothing is written any more."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, flag.to_bytes(4, 'little'))
        finally:
            with contextlib.suppress(OSError):
                os.close(fd)

    def start_again(self):
        """Mounts it again, as after the power is back: the journal is replayed."""
        self._unmount()
        self._mount()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(errno.EIO, f'{" ".join(command)}: {done.stderr.strip()}')
    return done.stdout
