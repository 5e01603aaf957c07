import numpy as np
import pytest

from bags.media.audio_layout import find_layout
from bags.media.timeline import PacketTable


def table(count, skips=(), hidden=(), truncation=None):
    none = np.zeros(count, np.int64)
    skipped = np.zeros((count, 2), np.int64)
    for number, before, after in skips:
        skipped[number] = before, after
    shown = ~np.isin(np.arange(count), hidden)
    return PacketTable(
        none, none, none, none, shown, shown, (1, 1), truncation=truncation, skips=skipped
    )  # fmt: skip


@pytest.mark.parametrize(
    ('skips', 'hidden', 'delay', 'expected'),
    [
        ([], [], 0, [(0, 35)]),
        ([(0, 4, 0)], [], 0, [(4, 35)]),
        ([(0, 14, 0)], [], 0, [(14, 35)]),  # Priming extends over two packets.
        ([(2, 0, 6)], [], 0, [(0, 24), (30, 35)]),  # The decoder returns five samples at the end.
        ([(2, 0, 11)], [], 0, [(0, 35)]),  # More samples than the packet has.
        ([(2, 0, 5)], [], 0, [(0, 25)]),
        ([], [0], 0, [(10, 35)]),
        ([], [1], 0, [(0, 10), (20, 35)]),
        ([], [1, 2], 0, [(0, 10)]),
        ([(0, 4, 0), (2, 0, 6)], [], 3, [(4, 21), (27, 30)]),
        ([(1, 0, 2)], [], 3, [(0, 15), (17, 30)]),
        ([], [1], 3, [(0, 7), (17, 30)]),
    ],
)
def test_presented_samples(skips, hidden, delay, expected):
    counts = np.array([10, 10, 10, 0 if delay else 5])
    layout = find_layout(table(3, skips, hidden), counts, lambda _: delay, False)
    assert list(zip(layout.starts.tolist(), layout.stops.tolist(), strict=True)) == expected
    presented = [sample for start, stop in expected for sample in range(start, stop)]
    assert layout.firsts[-1] == len(presented)
    for start in range(len(presented)):
        for stop in range(start + 1, len(presented) + 1):
            ranges = layout.decoded_ranges(start, stop)
            assert [sample for low, high in ranges for sample in range(low, high)] == presented[start:stop]


def test_samples_that_depend_on_missing_packets():
    cut = table(3, truncation='cut off')
    assert find_layout(cut, np.array([10, 10, 10, 0]), lambda _: 3, False).stops.tolist() == [27]
    assert find_layout(cut, np.array([10, 10, 10, 5]), lambda _: 0, False).stops.tolist() == [30]


def test_the_first_packet_of_vorbis():
    layout = find_layout(table(3), np.array([10, 10, 10, 0]), lambda _: 0, True)
    assert (layout.starts.tolist(), layout.stops.tolist()) == ([10], [30])
