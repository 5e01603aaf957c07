"""Records what a process asks the kernel to change in a folder: every write, name and sync, with strace.

The record is made beneath Python and the C library, so it has the calls of any library, thread and child
process. What it cannot have are stores to a shared writable mapping, and calls that it does not know: both
are errors. Whoever replays a record compares the result with the folder, which finds anything else.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ['MARK', 'Operation', 'record']

ROOT = Path(__file__).parents[2]

MARK = '/bags-laboratory/'
"""`os.rmdir(MARK + text)` fails, and leaves `text` in the record."""

CHANGES = (
    'open', 'openat', 'openat2', 'creat', 'lseek', 'write', 'pwrite64', 'writev', 'pwritev', 'pwritev2',
    'truncate', 'ftruncate', 'rename', 'renameat', 'renameat2', 'unlink', 'unlinkat', 'rmdir', 'mkdir',
    'mkdirat', 'fsync', 'fdatasync', 'sync', 'syncfs', 'copy_file_range',
)  # fmt: skip
IGNORED = ('sync_file_range',)
"""It starts writing and promises nothing."""
REFUSED = (
    'link', 'linkat', 'symlink', 'symlinkat', 'fallocate', 'sendfile', 'splice', 'vmsplice', 'mknod',
    'mknodat', 'io_uring_setup', 'io_uring_enter', 'io_submit', 'open_by_handle_at', 'mmap', 'ioctl', 'fcntl',
)  # fmt: skip
"""Calls that bags has no use for so far: one that changes the folder is an error."""

LINE = re.compile(r'(\d+) +(.*)')
CALL = re.compile(r'(\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)(?:<([^>]*)>)?(?:\(deleted\))?(?: .*)?', re.DOTALL)
STRING = r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?'
FD = r'(-?\d+)<([^>]*)>(\(deleted\))?'


class Operation(NamedTuple):
    """A change, in the order in which the calls returned."""

    call: str
    """'create', 'write', 'copy', 'resize', 'rename', 'exchange', 'unlink', 'rmdir', 'mkdir', 'sync',
    'sync all', or 'mark'."""
    path: str
    other: str = ''
    """The new path of a rename."""
    offset: int = 0
    """Of a write; the size, of 'resize'."""
    data: bytes = b''
    begin: int = 0
    """Of a copy from `other`: the offset there."""
    count: int = 0
    """Of a copy: bytes."""
    start: int = 0
    """Of a sync: the number of operations that had returned when it was called. It covers these."""


def record(arguments, folder):
    """Runs Python with arguments, and returns the operations on files below a folder.

    The program finds the tests and this bags.
    """
    strace = shutil.which('strace')
    assert strace is not None, 'strace is not installed: tools/debian-packages strace'
    environment = {**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'}
    with tempfile.TemporaryDirectory() as scratch:
        log = os.path.join(scratch, 'log')
        calls = ','.join(f'?{name}' for name in (*CHANGES, *IGNORED, *REFUSED))
        command = [strace, '-f', '--seccomp-bpf', '-qq', '-v', '-y', '-xx', '-s', str(1 << 24), '-o', log]
        command += ['-e', f'trace={calls}', '-e', 'signal=none', sys.executable, '-B', *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        with open(log) as lines:
            return Parser(str(folder)).parse(lines)


class Parser:
    """Turns the lines of strace into operations."""

    def __init__(self, folder):
        self._folder = folder
        self._hex = as_hex(folder)
        self._operations = []
        self._positions = {}
        """Positions of descriptors, by number and path; None: at the end."""

    def parse(self, lines):
        begun = {}
        for line in lines:
            process, text = LINE.match(line).groups()
            start = len(self._operations)
            if text.endswith('<unfinished ...>'):
                begun[process] = text.removesuffix('<unfinished ...>'), start
                continue
            if text.startswith('<... '):
                first, start = begun.pop(process)
                text = first + text.partition(' resumed>')[2]
            if self._hex in text or as_hex(MARK) in text or text.startswith('sync('):
                self._call(text, start)
        return self._operations

    def _add(self, call, path, *values, **named):
        if path == self._folder or path.startswith(f'{self._folder}/'):
            self._operations.append(Operation(call, path, *values, **named))

    def _call(self, text, start):
        match = CALL.fullmatch(text)
        if match is None:
            assert text.startswith(('+++', '---', 'exit')), text[:500]
            return
        name, arguments, result, opened = match.groups()
        if result == '?' or int(result, 0) < 0:
            for path in map(unhex, re.findall(STRING, arguments)) if name == 'rmdir' else ():
                if path.startswith(MARK):
                    self._operations.append(Operation('mark', path.removeprefix(MARK)))
            return
        if name in REFUSED:
            is_harmless = {
                'mmap': 'PROT_WRITE' not in arguments or 'MAP_SHARED' not in arguments,
                'ioctl': 'CLONE' not in arguments,
                'fcntl': True,
            }
            assert is_harmless.get(name), f'cannot be replayed: {text[:500]}'
        elif name not in IGNORED:
            getattr(self, f'_{name.removesuffix("64")}')(arguments, int(result, 0), opened, start)

    # Names.

    def _open(self, arguments, result, opened, start):
        path = unhex((opened,)) if opened.startswith('\\x') else opened
        flags = set(re.findall(r'\bO_\w+', arguments))
        assert not flags & {'O_SYNC', 'O_DSYNC', 'O_TMPFILE'}, arguments[:500]
        if 'O_DIRECTORY' in flags or not flags & {'O_WRONLY', 'O_RDWR', 'O_CREAT'}:
            return
        if 'O_CREAT' in flags:
            self._add('create', path)
        if 'O_TRUNC' in flags:
            self._add('resize', path)
        self._positions[result, path] = None if 'O_APPEND' in flags else 0

    _openat = _openat2 = _creat = _open

    def _rename(self, arguments, result, opened, start):
        path, other = paths_of(arguments)
        assert 'RENAME_WHITEOUT' not in arguments
        self._add('exchange' if 'RENAME_EXCHANGE' in arguments else 'rename', path, other)
        for fd, known in [key for key in self._positions if f'{key[1]}/'.startswith(f'{path}/')]:
            self._positions[fd, other + known.removeprefix(path)] = self._positions.pop((fd, known))

    _renameat = _renameat2 = _rename

    def _unlink(self, arguments, result, opened, start):
        self._add('rmdir' if 'AT_REMOVEDIR' in arguments else 'unlink', *paths_of(arguments))

    _unlinkat = _unlink

    def _rmdir(self, arguments, result, opened, start):
        self._add('rmdir', *paths_of(arguments))

    def _mkdir(self, arguments, result, opened, start):
        self._add('mkdir', *paths_of(arguments))

    _mkdirat = _mkdir

    # Data.

    def _lseek(self, arguments, result, opened, start):
        key = int(arguments.partition('<')[0]), self._target(arguments)
        if self._positions.get(key) is not None:
            self._positions[key] = result

    def _write(self, arguments, result, opened, start):
        """`write` and `writev`: at the position of the descriptor."""
        path = self._target(arguments)
        if path is None:
            return
        key = int(arguments.partition('<')[0]), path
        assert key in self._positions, f'a descriptor without `open`: {arguments[:200]}'
        position = self._positions[key]
        self._add('write', path, offset=-1 if position is None else position, data=written(arguments, result))
        if position is not None:
            self._positions[key] = position + result

    _writev = _write

    def _pwrite(self, arguments, result, opened, start):
        path = self._target(arguments)
        if path is not None:
            offset = int(arguments.rpartition(', ')[2])
            self._add('write', path, offset=offset, data=written(arguments, result))

    _pwritev = _pwrite

    def _pwritev2(self, arguments, result, opened, start):
        assert 'SYNC' not in arguments, arguments[:500]
        self._pwrite(arguments.rpartition(', ')[0], result, opened, start)

    def _ftruncate(self, arguments, result, opened, start):
        path = self._target(arguments)
        if path is not None:
            self._add('resize', path, offset=int(arguments.rpartition(', ')[2]))

    def _truncate(self, arguments, result, opened, start):
        self._add('resize', *paths_of(arguments), offset=int(arguments.rpartition(', ')[2]))

    def _copy_file_range(self, arguments, result, opened, start):
        source, target = re.findall(FD + r', (?:\[(\d+)\]|NULL)', arguments)
        path = unhex((target[1],))
        if path.startswith(self._folder) and not target[2] and result:
            assert source[3], f'cannot be replayed: {arguments[:500]}'
            assert target[3], f'cannot be replayed: {arguments[:500]}'
            assert not source[2], f'from a removed file: {arguments[:500]}'
            self._add('copy', path, unhex((source[1],)), int(target[3]), begin=int(source[3]), count=result)

    # Syncs.

    def _fsync(self, arguments, result, opened, start):
        path = self._target(arguments)
        if path is not None:
            self._add('sync', path, start=start)

    _fdatasync = _fsync

    def _sync(self, arguments, result, opened, start):
        self._add('sync all', self._folder, start=start)

    _syncfs = _sync

    def _target(self, arguments):
        """Returns the path of a descriptor; None if it is elsewhere, or has no name any more."""
        path, deleted = re.match(FD, arguments).groups()[1:]
        path = unhex((path,)) if path.startswith('\\x') else path
        return path if not deleted and path.startswith(f'{self._folder}') else None


def written(arguments, size):
    """Returns the bytes among the arguments of a write."""
    data = b''.join(unescape(part) for part, _ in re.findall(STRING, arguments))
    assert len(data) >= size, 'strace cut the bytes of a write'
    return data[:size]


def as_hex(text):
    return ''.join(f'\\x{byte:02x}' for byte in os.fsencode(text))


def unescape(text):
    return bytes.fromhex(text.replace('\\x', ''))


def unhex(found):
    return os.fsdecode(unescape(found[0]))


def paths_of(arguments):
    """Returns the absolute paths among the arguments of a call."""
    found = []
    for folder, text, rest in re.findall(r'(?:<([^>]*)>, )?' + STRING, arguments):
        assert not rest
        path = os.fsdecode(unescape(text))
        if not os.path.isabs(path):
            assert folder, f'a relative path: {path}'
            path = os.path.join(os.fsdecode(unescape(folder)), path)
        found.append(os.path.normpath(path))
    return found
