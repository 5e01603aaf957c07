"""Tries what power cuts during a command leave: records the command, and checks states of its folder."""

import dataclasses
import os
import random
import shutil
import traceback

from tests.durability.commands import Command, commands
from tests.durability.file_system import FileSystem, Snapshot, read_tree, write_tree
from tests.durability.recorder import Operation, record

__all__ = ['Laboratory', 'Trial', 'check']

EXTREMES = [('none', 'none'), ('all', 'none'), ('all', 'holes'), ('none', 'all'), ('all', 'all')]
"""What is left of names and of bytes: nothing unsynced, names without bytes, bytes without names, all."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A command that was recorded."""

    command: Command
    promised: int
    """Number of datapoints that were promised before it began."""
    before: dict = dataclasses.field(default_factory=dict)
    """Files in its folder before the record: bytes by path; None for a folder."""
    done: bool | None = None
    """For a recovery: whether the command had returned."""


@dataclasses.dataclass(frozen=True)
class State:
    """What a power cut left of a run."""

    name: str
    snapshot: Snapshot
    promised: int
    done: bool
    """Whether the command had returned."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A state, and what was wrong with it."""

    state: State
    error: str
    """Empty: nothing."""

    def __str__(self):
        snapshot = self.state.snapshot
        return f'{self.state.name}, power cut after operation {snapshot.stop} ({snapshot.how}): {self.error}'


class Laboratory:
    """Records commands, all in one process.

    Args:
        folder: An empty folder, for the commands and the states.
        names: The commands; all unless given.
        durability: The option of all of them; their default unless given.
    """

    def __init__(self, folder, names=None, durability='default'):
        known = commands()
        self._runs = {name: Run(known[name], known[name].promised) for name in names or known}
        self._record(str(folder), durability)

    def _record(self, folder, durability):
        self._root, self._states = os.path.join(folder, 'runs'), os.path.join(folder, 'states')
        os.mkdir(self._root)
        os.mkdir(self._states)
        for name, run in self._runs.items():
            write_tree(run.before, os.path.join(self._root, name))
        arguments = ['-m', 'tests.durability.commands', self._root, durability, *self._runs]
        self._operations = record(arguments, self._root)

    @classmethod
    def recoveries(cls, folder, states):
        """Returns a laboratory in which `bags.recover` runs on states that power cuts have left."""
        laboratory = cls.__new__(cls)
        laboratory._runs = {}
        for number, (state, command) in enumerate(states):
            command = dataclasses.replace(command, synced=True)  # What a power cut has left is on disk.
            run = Run(command, state.promised, state.snapshot.files, state.done)
            laboratory._runs[f'{state.name}~{number}'] = run
        laboratory._record(str(folder), 'recover')
        return laboratory

    @property
    def names(self):
        return list(self._runs)

    def command(self, name):
        return self._runs[name].command

    def file_system(self, name, unsynced=()):
        """Returns the file system of a command, at its end, as if it had not made some of its syncs."""
        root = os.path.join(self._root, name)
        before = [Operation('mkdir' if data is None else 'create', os.path.join(root, path))
                  for path, data in self._runs[name].before.items()]  # fmt: skip
        before += [
            Operation('write', os.path.join(root, path), data=data)
            for path, data in self._runs[name].before.items()
            if data
        ]
        after = [
            each._replace(call='nothing' if number in unsynced else each.call, start=len(before) + each.start)
            for number, each in enumerate(self._operations)
        ]
        return FileSystem(root, before + after, f'{name} begins' if self.command(name).synced else None)

    def syncs(self, name):
        """Returns the numbers of the syncs of a command, for `unsynced`."""
        root, own = os.path.join(self._root, name), []
        for number, operation in enumerate(self._operations):
            if operation.call == 'mark' and operation.path == f'{name} begins':
                own = []
            elif operation.call == 'sync' and f'{operation.path}/'.startswith(f'{root}/'):
                own.append(number)
        return own

    def is_complete(self, name):
        """Returns whether replaying the record of a command gives the files that it left."""
        return self.file_system(name).contents() == read_tree(os.path.join(self._root, name))

    def states(self, name, count, seed=0, unsynced=()):
        """Yields `count` states of a command, extremes and random ones; equal ones are left out."""
        system = self.file_system(name, unsynced)
        begin, end = system.marks[f'{name} begins'], system.marks[f'{name} returned']
        promises = [(begin, self._runs[name].promised)]
        promises += [
            (number, int(text.rpartition(' ')[2]))
            for text, number in system.marks.items()
            if text.startswith(f'{name} promises ')
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
                    chance.choice(['random', 'random', 'all']),
                    chance.choice(['random', 'folders']),
                )
            snapshot = system.snapshot(stop, chance, names, data)
            promised = max(least for number, least in promises if number <= stop)
            done = stop == end if self._runs[name].done is None else self._runs[name].done
            key = hash((promised, done, snapshot.key))
            if key not in tried:
                tried.add(key)
                yield State(name, snapshot, promised, done)

    def trials(self, name, count, **options):
        """Yields trials of the states of a command."""
        for state in self.states(name, count, **options):
            yield self._trial(state, self.command(name).check)

    def kills(self, name):
        """Yields trials of what a kill after each operation of a command leaves, read as it is."""
        system = self.file_system(name)
        begin, end = system.marks[f'{name} begins'], system.marks[f'{name} returned']
        for stop in range(begin, end + 1):
            snapshot = system.snapshot(stop, None, 'all', 'all')
            state = State(name, snapshot, self._runs[name].promised, stop == end)
            yield self._trial(state, self.command(name).check_readable)

    def _trial(self, state, check_folder):
        folder = os.path.join(self._states, 'state')
        write_tree(state.snapshot.files, folder)
        try:
            return Trial(state, check(check_folder, folder, state.promised, state.done))
        finally:
            shutil.rmtree(folder)


def check(check_folder, folder, promised, done):
    """Returns what is wrong in the folder of a command after a power cut; empty: nothing."""
    try:
        check_folder(folder, promised, done)
    except Exception as exc:  # Errors of unexpected types are what is looked for, too.
        where = traceback.extract_tb(exc.__traceback__)[-1]
        return f'{type(exc).__name__}: {exc} ({os.path.basename(where.filename)}:{where.lineno})'
    return ''
