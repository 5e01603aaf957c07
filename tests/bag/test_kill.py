"""Writers killed with SIGKILL at random moments: all flushed records are readable, and writing resumes."""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import time

import pytest

from bags import bag
from tests.bag.samples import COMPRESSIONS, PLACEMENTS, run_child

KILLS = 8


@functools.cache
def record(index: int) -> bytes:
    """Returns a record that mostly looks like limits."""
    rng = random.Random(index)
    kind = index % 5
    if kind == 0:
        return b''
    if kind < 4:
        return (8 * rng.randrange(200)).to_bytes(8, 'little') * rng.randrange(1, 4)
    return b'%d ' % index + rng.randbytes(rng.choice([10, 300, 5000]))


def write_until_killed(path, options, interval, output):
    """Appends, flushes, closes and resumes; reports the number of records after every flush."""
    while True:
        with bag.Writer(path, mode='append', buffer_size=1 << 14, **options) as writer:
            os.write(output, b'%d ' % len(writer))
            for _ in range(6):
                for _ in range(interval):
                    writer.write(record(len(writer)))
                writer.flush()
                os.write(output, b'%d ' % len(writer))


def kill_one(path, options, interval, delay):
    """Returns the number of records that were reported as flushed."""
    source, output = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            write_until_killed(path, options, interval, output)
        finally:
            os._exit(1)
    os.close(output)
    with os.fdopen(source, 'rb') as reports:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        numbers = reports.read().rpartition(b' ')[0].split()
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return int(numbers[-1]) if numbers else 0


def campaign(folder, placement, compression):
    options = {'limits_placement': placement, 'compression': COMPRESSIONS[compression]}
    rng = random.Random(compression)
    for interval in (1, 40):
        path = os.path.join(folder, f'{interval}.bag')
        count = kill = 0
        while kill < KILLS or not count:  # On a slow machine, many die before they have flushed.
            kill += 1
            flushed = kill_one(path, options, interval, rng.uniform(0, 0.02 * -(-kill // KILLS)))
            try:
                with bag.Reader(path, **options) as reader:
                    found = reader.read()
                    assert [reader[index] for index in range(len(found))] == found
            except FileNotFoundError:  # The writer was killed before it created the files.
                assert not flushed
                assert not count
                continue
            assert len(found) >= max(count, flushed), f'kill {kill}: {len(found)}, {count}, {flushed}'
            assert found == [record(index) for index in range(len(found))], f'kill {kill}'
            count = len(found)
        with bag.Writer(path, mode='append', **options) as writer:
            assert len(writer) == count
            writer.write(record(count))
        with bag.Reader(path, **options) as reader:
            assert reader.read() == [record(index) for index in range(count + 1)]


@pytest.mark.slow(all_but='tail')
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
@pytest.mark.parametrize('placement', PLACEMENTS)
def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path, placement):
    # Forks from a process without threads, which is quick and safe.
    child = run_child('from tests.bag import test_kill; test_kill.main()', tmp_path, placement)
    assert child.stdout == 'done\n', child.stderr


def main():
    folder, placement = sys.argv[1:]
    for compression in COMPRESSIONS:
        place = os.path.join(folder, compression)
        os.mkdir(place)
        campaign(place, placement, compression)
    sys.stdout.write('done\n')
