"""Tries what power cuts during a command leave: records the command, and checks states of its folder."""

import dataclasses
import os
import random
import shutil
import traceback

from tests.durability.commands import commands
from tests.durability.file_system import FileSystem, read_tree, write_tree
from tests.durability.recorder import record

__all__ = ['Laboratory', 'Trial', 'check']

EXTREMES = [('none', 'none'), ('all', 'none'), ('all', 'holes'), ('none', 'all'), ('all', 'all')]
"""What is left of names and of bytes: nothing unsynced, names without bytes, bytes without names, all."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A state, and what was wrong with it."""

    command: str
    stop: int
    how: str
    error: str
    """Empty: nothing."""

    def __str__(self):
        return f'{self.command}, power cut after operation {self.stop} ({self.how}): {self.error}'


class Laboratory:
    """Records commands in a folder, all in one process.

    Args:
        folder: An empty folder, for the commands and the states.
        names: The commands; all unless given.
        durability: The option of all of them; their default unless given.
    """

    def __init__(self, folder, names=None, durability='default'):
        self._commands = commands()
        self.names = list(self._commands if names is None else names)
        self._runs, self._states = os.path.join(folder, 'runs'), os.path.join(folder, 'states')
        os.makedirs(self._runs)
        os.makedirs(self._states)
        arguments = ['-m', 'tests.durability.commands', self._runs, durability, *self.names]
        self._operations = record(arguments, self._runs)

    def file_system(self, name, synced=True):
        """Returns the file system of a command, at its end; unless `synced`, as if it had synced nothing."""
        operations = self._operations
        if not synced:
            operations = [each for each in operations if each.call not in ('sync', 'sync all')]
        return FileSystem(os.path.join(self._runs, name), operations, f'{name} begins')

    def is_complete(self, name):
        """Returns whether replaying the record of a command gives the files that it left."""
        return self.file_system(name).contents() == read_tree(os.path.join(self._runs, name))

    def trials(self, name, count, seed=0, synced=True):
        """Yields trials of `count` states of a command, extremes and random ones; equal ones are left out."""
        system, command = self.file_system(name, synced), self._commands[name]
        begin, end = system.marks[f'{name} begins'], system.marks[f'{name} returned']
        promises = [(begin, command.promised)]
        promises += [
            (number, int(text.rpartition(' ')[2]))
            for text, number in system.marks.items()
            if text.startswith(f'{name} promises')
        ]
        chance = random.Random(f'{name} {seed}')
        extremes = [(stop, *how) for stop in range(begin, end + 1) for how in EXTREMES]
        chance.shuffle(extremes)
        extremes = [(end, *how) for how in EXTREMES] + extremes[: count // 2]
        tried = set()
        for number in range(count):
            if number < len(extremes):
                stop, names, data = extremes[number]
            else:
                stop, names, data = (
                    chance.choice([end, *[chance.randint(begin, end)] * 9]),
                    'random',
                    'random',
                )
            snapshot = system.snapshot(stop, chance, names, data)
            promised = max(least for number, least in promises if number <= stop)
            key = hash((promised, stop == end, snapshot.key))
            if key not in tried:
                tried.add(key)
                yield Trial(name, stop, snapshot.how, self._try(command, snapshot, promised, stop == end))

    def _try(self, command, snapshot, promised, done):
        folder = os.path.join(self._states, 'state')
        write_tree(snapshot.files, folder)
        try:
            return check(command, folder, promised, done)
        finally:
            shutil.rmtree(folder)


def check(command, folder, promised, done):
    """Returns what is wrong in the folder of a command after a power cut; empty: nothing."""
    try:
        command.check(folder, promised, done)
    except Exception as exc:  # Errors of unexpected types are what is looked for, too.
        where = traceback.extract_tb(exc.__traceback__)[-1]
        return f'{type(exc).__name__}: {exc} ({os.path.basename(where.filename)}:{where.lineno})'
    return ''
