"""Plans of clips."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bags.media.cutting import plan_clips


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 20),
    st.none() | st.integers(1, 15),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_plans_take_every_frame_once(groups, size, gop, copy, chance):
    """Of groups of pictures, some open: with frames that are shown before their key frame."""
    times, keys = [], []
    for number, length in enumerate(groups):
        start = len(times)
        own = list(range(start, start + length))
        lead = chance.randint(0, min(3, length - 1)) if number else 0
        times += [own[lead], *own[:lead], *own[lead + 1 :]]
        keys += [True] + [False] * (length - 1)
    pieces = plan_clips(np.array(times), np.array(keys), size, gop, copy)
    assert [frame for piece in pieces for frame in range(piece.start, piece.stop)] == list(range(len(times)))
    for piece in pieces:
        if piece.copied:
            assert keys[piece.start]
            assert times[piece.start] == piece.start
            assert sorted(times[piece.start : piece.stop]) == list(range(piece.start, piece.stop))
    if copy:
        assert all(piece.copied for piece in pieces)
    else:
        assert [piece.start for piece in pieces] == list(range(0, len(times), size))
