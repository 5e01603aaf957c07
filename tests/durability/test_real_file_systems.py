"""Power cuts of ext4 and XFS, after commands have returned and while they run."""

import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from tests.durability.commands import commands
from tests.durability.disks import FLAGS, Disk, missing
from tests.durability.laboratory import check
from tests.durability.recorder import ROOT

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(bool(missing()), reason=missing())]

ROUNDS = 2
"""Moments at which the power of each command is cut."""


def cut(disk, folder, name, flag, durability, delay):
    """Cuts the power during a command, or after it; returns what was wrong, or nothing.

    Args:
        disk, folder: The file system, and a folder elsewhere.
        name, durability: The command and its option.
        flag: A value of `FLAGS`.
        delay: Seconds after the start of the command; None: when it has returned.
    """
    root = os.path.join(disk.path, f'{len(os.listdir(disk.path))}')
    os.mkdir(root)
    command = [sys.executable, '-m', 'tests.durability.commands', root, durability, name]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if delay is None else subprocess.DEVNULL,  # It fails when the power is cut.
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            assert process.stdout.readline() == f'{name} begins\n'
            if commands()[name].synced:
                disk.sync()
            process.stdin.write('go on\n')
            process.stdin.flush()
            lines = process.stdout.readlines() if delay is None else []
            time.sleep(delay or 0)
            disk.cut_power(flag)
        finally:
            process.kill()
        lines += process.stdout.readlines()
    assert delay is not None or lines[-1] == f'{name} returned\n'
    disk.start_again()
    found = os.path.join(folder, 'found')
    shutil.copytree(os.path.join(root, name), found)
    shutil.rmtree(root)
    known = commands()[name]
    promised = [int(line.rpartition(' ')[2]) for line in lines if ' promises ' in line]
    try:
        return check(known, found, max([known.promised, *promised]), lines[-1:] == [f'{name} returned\n'])
    finally:
        shutil.rmtree(found)


def campaign(folder, type, durability, delays, seed=0):
    """Cuts the power of all commands; returns the number of tries, and what was wrong."""
    tries, wrong = 0, []
    os.mkdir(os.path.join(folder, type))
    with Disk(type, os.path.join(folder, type)) as disk:
        for name in commands():
            for loss, flag in FLAGS.items():
                for delay in delays(random.Random(f'{seed} {type} {name} {loss}')):
                    tries += 1
                    error = cut(disk, folder, name, flag, durability, delay)
                    when = 'when it had returned' if delay is None else f'after {delay * 1000:.1f} ms'
                    wrong += [f'{type}, {name}, {when}, {loss}: {error}'] if error else []
    return tries, wrong


def report(capsys, what, tries, wrong):
    with capsys.disabled():
        sys.stdout.write(f'{what}: {len(wrong)} of {tries} lost or wrong\n')
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_nothing_is_lost_when_a_command_has_returned(tmp_path, capsys, type):
    tries, wrong = campaign(tmp_path, type, 'default', lambda chance: [None])
    report(capsys, f'{type}, after commands had returned', tries, wrong)


@pytest.mark.parametrize('durability', ['default', 'flush'])
@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_nothing_is_lost_or_wrong_at_any_moment(tmp_path, capsys, type, durability):
    def delays(chance):
        return [chance.random() * chance.choice([0.005, 0.03, 0.1, 0.3]) for _ in range(ROUNDS)]

    tries, wrong = campaign(tmp_path, type, durability, delays)
    report(capsys, f'{type}, while commands run, durability {durability}', tries, wrong)


@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_what_is_not_synced_is_lost(tmp_path, type):
    _, wrong = campaign(tmp_path, type, 'none', lambda chance: [None])
    assert wrong
