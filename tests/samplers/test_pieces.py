"""Datapoints that are longer than a bin: left out, or cut into pieces."""

import collections
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.samplers import Packed, Pieces, packing


def pieces_of(sampler, epoch):
    """Returns the pieces of each bin: the datapoint, and its first element and the end, or None for all."""
    taken = sampler.take(epoch, np.arange(len(sampler)))
    if not isinstance(taken, Pieces):
        return [[(index, 0, None) for index in bin_.tolist()] for bin_ in taken]
    columns = taken.values, taken.starts, taken.stops
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    bounds = taken.offsets.tolist()
    return [
        [(index, start, None if stop == -1 else stop) for index, start, stop in rows[first:end]]
        for first, end in itertools.pairwise(bounds)
    ]


@pytest.fixture
def small_blocks(monkeypatch):
    """Makes blocks of two groups, so that a few hundred datapoints have several."""
    monkeypatch.setattr(packing, 'BLOCK_LENGTH', 2 * packing.GROUP_LENGTH)
    monkeypatch.setattr(packing, 'BLOCK_BINS', 1)


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_each_element_comes_as_often_as_the_overlap_says(data):
    budget = data.draw(st.sampled_from([2, 7, 64]))
    overlap = data.draw(st.integers(0, min(3, budget - 1)))
    cap = data.draw(st.sampled_from([None, 1, 2, 5]))
    top = data.draw(st.sampled_from([1, budget, 5 * budget]))
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    lengths = chance.integers(0, top, data.draw(st.sampled_from([1, 5, 300])), endpoint=True).astype('i4')
    dropping = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, 'BLOCK_LENGTH', 2 * packing.GROUP_LENGTH)
        patch.setattr(packing, 'BLOCK_BINS', 1)
        if dropping and (lengths > budget).all():
            return
        options = {'longer': 'drop'} if dropping else {'longer': 'cut', 'overlap': overlap}
        sampler = Packed(budget, lengths, 3, max_datapoints=cap, **options)
    counts = [collections.Counter() for _ in lengths]
    total = 0
    for bin_ in pieces_of(sampler, 1):
        assert bin_
        assert cap is None or len(bin_) <= cap
        sizes = [(lengths[index] if stop is None else stop) - start for index, start, stop in bin_]
        assert sum(sizes) <= budget
        total += sum(sizes)
        for (index, start, _), size in zip(bin_, sizes, strict=True):
            counts[index].update(range(start, start + size))
            counts[index]['pieces'] += 1
    for length, count in zip(lengths.tolist(), counts, strict=True):
        if dropping and length > budget:
            assert not count
            continue
        pieces = count.pop('pieces')
        # Pieces of the budget from the start, each of which repeats the end of the one before.
        step = budget - overlap
        assert pieces == 1 if length <= budget else pieces == -(-(length - overlap) // step)
        repeated = {at for piece in range(1, pieces) for at in range(piece * step, piece * step + overlap)}
        assert count == collections.Counter(range(length)) + collections.Counter(repeated)
    assert sampler.dropped == (int((lengths > budget).sum()) if dropping else 0)
    assert sampler.cut == (0 if dropping else int((lengths > budget).sum()))
    assert sampler.fill == pytest.approx(total / (budget * len(sampler)))
    assert sampler.mean == pytest.approx(total / len(sampler))


def test_what_is_left_out_and_cut_is_said():
    lengths = [3, 30, 5, 40]
    assert "longer='drop', dropped=2)" in repr(Packed(10, lengths, longer='drop'))
    cut = Packed(10, lengths, longer='cut', overlap=1, max_datapoints=3)
    assert "longer='cut', cut=2, overlap=1, max_datapoints=3)" in repr(cut)
    assert (cut.cut, cut.dropped) == (2, 0)
    assert sorted(piece for bin_ in pieces_of(cut, 0) for piece in bin_ if piece[0] == 1) == [
        (1, 0, 10),
        (1, 9, 19),
        (1, 18, 28),
        (1, 27, 30),
    ]
    marks = {repr(Packed(50, np.array(lengths, dtype))) for dtype in ('i4', 'i8', 'u2', '>i4')}
    assert len(marks) == 1


@pytest.mark.usefixtures('small_blocks')
def test_blocks_are_planned_by_themselves():
    lengths = np.random.default_rng(0).integers(1, 200, 900)
    for options in ({'longer': 'cut'}, {'longer': 'drop'}, {'longer': 'cut', 'max_datapoints': 4}):
        sampler = Packed(100, lengths, 1, **options)
        whole = {epoch: pieces_of(sampler, epoch) for epoch in (0, 1)}
        assert whole[0] != whole[1]
        chance = np.random.default_rng(1)
        for each in (sampler, Packed(100, lengths, 1, **options), pickle.loads(pickle.dumps(sampler))):
            for _ in range(10):
                epoch, position = int(chance.integers(2)), int(chance.integers(len(sampler)))
                taken = each.take(epoch, np.array([position]))
                assert taken.values.tolist() == [piece[0] for piece in whole[epoch][position]]
        kept = np.flatnonzero(lengths <= 100) if options['longer'] == 'drop' else np.arange(900)
        indices = sorted({piece[0] for bin_ in whole[0] for piece in bin_})
        assert indices == kept.tolist()
    # The datapoints of a block come from the whole dataset, and those of a bin from everywhere in the block.
    first = np.concatenate([[piece[0] for piece in bin_] for bin_ in whole[0][: len(sampler) // 7]])
    assert first.min() < 150
    assert first.max() > 750


@pytest.mark.usefixtures('small_blocks')
def test_several_budgets_in_blocks():
    chance = np.random.default_rng(0)
    tokens, patches = chance.integers(0, 90, 700), chance.integers(0, 5, 700)
    patches[::3], tokens[::3] = 0, chance.integers(0, 400, len(tokens[::3]))
    sampler = Packed({'tokens': 100, 'patches': 9}, {'tokens': tokens, 'patches': patches}, longer='cut')
    bins = pieces_of(sampler, 0)
    seen = np.zeros(700, int)
    for bin_ in bins:
        assert sum((tokens[index] if stop is None else stop) - start for index, start, stop in bin_) <= 100
        assert sum(int(patches[index]) for index, _, _ in bin_) <= 9
        for index, start, stop in bin_:
            seen[index] += (tokens[index] if stop is None else stop) - start
    assert seen.tolist() == tokens.tolist()
    assert sampler.cut == (tokens > 100).sum()
    capped = Packed({'tokens': 400, 'patches': 9}, {'tokens': tokens, 'patches': patches}, max_datapoints=6)
    assert max(map(len, pieces_of(capped, 0))) <= 6


@pytest.mark.parametrize('count', [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_bins_are_full_within_a_number_of_datapoints(count):
    lengths = np.random.default_rng(0).lognormal(6, 1, count).astype('i4') + 1
    lengths = lengths[lengths <= 8192]
    tolerance = 0.001 if count >= 1_000_000 else 0.004
    for cap in (16, 14, 64, 6) if count >= 1_000_000 else (16, 6):
        sampler = Packed(8192, lengths, max_datapoints=cap)
        taken = sampler.take(0, np.arange(len(sampler)))
        assert np.add.reduceat(lengths[taken.values], taken.offsets[:-1]).max() <= 8192
        assert taken.lengths.max() <= cap
        # Datapoints of nearly the budget leave no space for others.
        alone = (lengths > 8192 - lengths.min()).sum()
        bins = max(lengths.sum() / 8192, alone + (len(lengths) - alone) / cap)
        assert len(sampler) <= bins * (1 + tolerance) + 1, cap


def test_options_that_do_not_fit():
    for make, match in [
        (
            lambda: Packed(10, [11], longer='drop'),
            'expected some within the budget of 10, .* shortest has 11',
        ),
        (lambda: Packed(10, [11, 3]), r"got 11 for datapoint 0 \(longer='drop' leaves it out"),
        (lambda: Packed(10, [1], longer='skip'), "longer: expected 'error' or 'drop' or 'cut', got 'skip'"),
        (lambda: Packed(10, [1], max_datapoints=0), 'max_datapoints: expected at least 1'),
        (lambda: Packed(10, [1], overlap=1), "overlap: expected longer='cut'"),
        (lambda: Packed(10, [1], longer='cut', overlap=10), 'overlap below the budget of 10, .* of 10'),
        (
            lambda: Packed({'a': 5, 'b': 5}, {'a': [1, 9], 'b': [0, 2]}, longer='cut'),
            r"lengths\['a'\]: datapoint 1 of length 9 cannot be cut .* expected lengths\['b'\] of 0, got 2",
        ),
        (lambda: Packed(10, np.array([1, 2**63], 'u8'), longer='drop'), 'a sum below 2.62, .* datapoint 1'),
        (lambda: Packed(10, [2**61] * 3, longer='cut'), 'a sum below 2.62'),
    ]:
        with pytest.raises(ValueError, match=match):
            make()
