"""A follower beside a recorder that is killed again and again: what it sees is what was recorded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import bags
from tests.episodes.recorder import CAMERAS, CLIP, FLUSH, check


def follow(path, take, seconds, ages):
    """Follows a take until the time is over; returns the last datapoint that it has seen.

    Appends the age of the newest frame at each look, in seconds, to `ages`.
    """
    reader, end, first, row = None, time.monotonic() + seconds, dict.fromkeys(CAMERAS, 0), None
    while time.monotonic() < end:
        try:
            reader = (reader or bags.open(path)).reopen(partial=True)
        except FileNotFoundError:
            time.sleep(0.01)
            continue
        now = time.monotonic()
        assert reader.partial.tolist() == ([len(reader) - 1] if len(reader.partial) else [])
        if len(reader.partial):
            before, row = row, reader[-1]
            newest = check(row, take, first)
            if newest is not None:
                ages.append(now - newest)
            for name in row if before else ():
                if name not in ('take', 'mark'):
                    assert len(row[name]) >= len(before[name])
        time.sleep(random.uniform(0, 0.1))
    return row


def run(path, kills, seconds, ages):
    """Records takes that are killed; returns the numbers of looks, joints and frames that were compared."""
    totals = {'joints': 0, 'frames': 0}
    for take in range(kills):
        recorder = subprocess.Popen(
            [sys.executable, '-m', 'tests.episodes.recorder', path, str(take)], stdout=subprocess.PIPE
        )
        try:
            assert recorder.stdout.readline() == b'begun\n'
            seen = follow(path, take, random.uniform(0.5, 1.5) * seconds, ages)
        finally:
            recorder.kill()
            recorder.wait()
            recorder.stdout.close()
        killed = bags.open(path).reopen(partial=True)
        assert killed.partial.tolist() == [len(killed) - 1]
        row = killed[-1]
        check(row, take)
        for name in ('joints_time', 'left_time', 'right_time'):
            count = 0 if seen is None else len(seen[name])
            assert row[name][:count].tolist() == ([] if seen is None else seen[name].tolist())
        bags.recover(path, partial_values={'take': -1})
        recovered = bags.open(path)[-1]
        check({**recovered, 'take': None if recovered['take'] < 0 else recovered['take']}, take)
        for name in ('joints_time', 'left_time', 'right_time'):
            assert recovered[name][: len(row[name])].tolist() == row[name].tolist()
        totals['joints'] += len(row['joints'])
        totals['frames'] += sum(len(row[f'{name}_time']) for name in CAMERAS)
    assert bags.verify(path) == []
    return totals


@pytest.mark.slow
def test_a_follower_sees_what_is_recorded(tmp_path):
    ages = []
    assert run(str(tmp_path / 'x'), 2, 1.5, ages)['joints'] > 0
    assert ages


@pytest.mark.campaign
def test_a_follower_beside_a_recorder_that_is_killed(tmp_path):
    """Ten minutes, 50 kills; BAGS_FOLLOW_SECONDS sets the seconds of each of the 50 takes on average."""
    ages, seconds = [], float(os.environ.get('BAGS_FOLLOW_SECONDS', '12'))
    start = time.monotonic()
    totals = run(str(tmp_path / 'x'), 50, seconds, ages)
    median, high, most = np.quantile(ages, [0.5, 0.99, 1]).tolist()
    sys.stdout.write(
        f'\n50 kills in {time.monotonic() - start:.0f} s, {len(ages)} looks, {totals["joints"]} joints and '
        f'{totals["frames"]} frames in the takes; age of the newest frame: median {median:.2f} s, 99% '
        f'{high:.2f} s, most {most:.2f} s (clip_seconds {CLIP}, flush {FLUSH})\n'
    )
