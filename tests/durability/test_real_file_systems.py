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
    """Cuts the power during a command, or after it.

    Returns:
        What was wrong, or nothing, and whether the command had returned.

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
    done = lines[-1:] == [f'{name} returned\n']
    try:
        return check(known.check, found, max([known.promised, *promised]), done), done
    finally:
        shutil.rmtree(found)


def campaign(folder, type, durability, delays, seed=0):
    """Cuts the power of all commands.

    Returns:
        The number of tries, that of those in which the command had not returned, and what was wrong.
    """
    tries, during, wrong = 0, 0, []
    os.mkdir(os.path.join(folder, type))
    with Disk(type, os.path.join(folder, type)) as disk:
        for name in commands():
            for loss, flag in FLAGS.items():
                for delay in delays(random.Random(f'{seed} {type} {name} {loss}')):
                    tries += 1
                    error, done = cut(disk, folder, name, flag, durability, delay)
                    during += not done
                    when = 'when it had returned' if delay is None else f'after {delay * 1000:.1f} ms'
                    wrong += [f'{type}, {name}, {when}, {loss}: {error}'] if error else []
    return tries, during, wrong


def report(found, what, tries, during, wrong):
    found(f'{what}: {len(wrong)} of {tries} lost or wrong; {during} cut before the command had returned')
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_nothing_is_lost_when_a_command_has_returned(tmp_path, found, type):
    result = campaign(tmp_path, type, 'default', lambda chance: [None])
    report(found, f'{type}, after commands had returned', *result)


@pytest.mark.parametrize('durability', ['default', 'flush'])
@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_nothing_is_lost_or_wrong_at_any_moment(tmp_path, found, type, durability):
    def delays(chance):
        return [chance.random() * chance.choice([0.005, 0.03, 0.1, 0.3]) for _ in range(ROUNDS)]

    result = campaign(tmp_path, type, durability, delays)
    report(found, f'{type}, while commands run, durability {durability}', *result)


@pytest.mark.parametrize('type', ['ext4', 'xfs'])
def test_what_is_not_synced_is_lost(tmp_path, type):
    assert campaign(tmp_path, type, 'none', lambda chance: [None])[-1]
