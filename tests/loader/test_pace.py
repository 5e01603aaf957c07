"""How many batches are made at a time, and by how many threads."""

import pytest

from bags.loader.pace import Pace


def after(runs, **options):
    pace = Pace(**options)
    for took in runs:
        seconds, size, busy, threads = (*took, 1)[:4]
        count = pace.count
        pace.took(count, seconds * count, size * count, busy * count, threads)
    return pace


@pytest.mark.parametrize('size', [1000, 50_000_000])
def test_slow_batches_are_made_one_by_one_by_all_threads(size):
    pace = after([(0.05, size, 0.05, 4)] * 9)
    assert (pace.count, pace.is_alone) == (1, False)


def test_small_ones_are_made_together_within_bounds():
    assert after([(1e-5, 100, 1e-5)] * 9).count == 400
    assert after([(1e-5, 100, 1e-5)] * 2).count == 16
    assert after([(1e-5, 100, 1e-5)] * 9, most=7).count == 7
    assert after([(1e-5, 500_000, 1e-5)] * 9).count == 4


def test_threads_that_wait_for_each_other_become_one():
    pace = Pace()
    for _ in range(12):
        pace.took(pace.count, 4e-5 * pace.count, 100, 1e-5 * pace.count, 4)
    assert pace.is_alone
    pace = Pace()
    for _ in range(12):
        pace.took(pace.count, 1e-5 * pace.count, 100, 1e-5 * pace.count, 4)
    assert not pace.is_alone
    # What waits for a storage does not use a processor.
    pace = Pace()
    for _ in range(12):
        pace.took(pace.count, 4e-4 * pace.count, 100, 1e-5 * pace.count, 4)
    assert not pace.is_alone
