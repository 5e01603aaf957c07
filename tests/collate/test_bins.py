"""Bins as rows, or one after the other, with positions and segments."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.samplers import Packed

PIECES = [[3, 2], [4], [], [0, 1]]
"""The lengths of the pieces in each bin."""


def batch_of(bins=PIECES, **more):
    lengths = [length for bin_ in bins for length in bin_]
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(10, 10 + offsets[-1], dtype=np.uint16)
    return {
        'id': np.arange(len(lengths)),
        'tokens': bags.Ragged(tokens, offsets),
        'loss_mask': [(part % 2 == 0).astype(np.int8) for part in np.split(tokens, offsets[1:-1])],
        '_datapoint': np.arange(len(lengths)) + 70,
        '_bin': np.repeat(np.arange(len(bins)), list(map(len, bins))).astype(np.int32),
        **more,
    }


def test_rows():
    found = bags.bins(6, value={'tokens': 9})(batch_of())
    assert found['tokens'].tolist() == [
        [10, 11, 12, 13, 14, 9],
        [15, 16, 17, 18, 9, 9],
        [9] * 6,
        [19] + [9] * 5,
    ]
    assert found['tokens'].dtype == np.uint16
    assert found['position_ids'].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0], [0] * 6, [0] * 6]
    assert found['segment_ids'].tolist() == [[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 0, 0], [0] * 6, [2] + [0] * 5]
    assert {found[name].dtype for name in ('position_ids', 'segment_ids')} == {np.dtype(np.int32)}
    assert (found['loss_mask'] == (found['tokens'] % 2 == 0)).all()
    assert found['id'].tolist() == [0, 1, 2, 3, 4]
    assert list(found)[:3] == ['id', 'tokens', 'loss_mask']


def test_flat():
    found = bags.bins(flat=True)(batch_of())
    assert found['tokens'].tolist() == list(range(10, 20))
    assert found['position_ids'].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]
    assert found['cu_seqlens'].tolist() == [0, 3, 5, 9, 9, 10]
    assert {found[name].dtype for name in ('position_ids', 'cu_seqlens')} == {np.dtype(np.int32)}
    assert found['loss_mask'].shape == (10,)
    assert 'segment_ids' not in found


@pytest.mark.parametrize('flat', [False, True])
def test_positions_of_pieces_may_continue(flat):
    batch = batch_of(_start=np.array([0, 50, 7, 0, 3]))
    at = bags.bins(6, flat=flat)(batch)['position_ids'].reshape(-1)
    assert at[:5].tolist() == [0, 1, 2, 0, 1]
    at = bags.bins(6, flat=flat, positions='document')(batch)['position_ids'].reshape(-1)
    assert at[:5].tolist() == [0, 1, 2, 50, 51]
    # Without pieces, both are the same.
    same = bags.bins(6, positions='document')(batch_of())
    assert (same['position_ids'] == bags.bins(6)(batch_of())['position_ids']).all()


def test_several_budgets():
    patches = bags.Ragged(np.arange(12.0).reshape(6, 2), np.array([0, 1, 1, 4, 4, 6]))
    lengths = {('tokens', 'loss_mask'): 6, 'patches': 4}
    rows = bags.bins(lengths)(batch_of(patches=patches))
    assert rows['tokens'].shape == rows['loss_mask'].shape == rows['position_ids'].shape == (4, 6)
    assert rows['patches'].shape == (4, 4, 2)
    assert rows['patches_segment_ids'].tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [0] * 4, [2, 2, 0, 0]]
    assert rows['patches_position_ids'].tolist() == [[0] * 4, [0, 1, 2, 0], [0] * 4, [0, 1, 0, 0]]
    flat = bags.bins(lengths, flat=True)(batch_of(patches=patches))
    assert flat['patches_cu_seqlens'].tolist() == [0, 1, 1, 4, 4, 6]
    assert flat['patches'].shape == (6, 2)


def test_repeats_are_marked_for_each_bin():
    mask = np.array([True, True, False, True, True])
    assert bags.bins(6)(batch_of(_mask=mask))['_mask'].tolist() == [True, False, False, True]
    assert bags.bins(flat=True)(batch_of(_mask=mask))['_mask'] is mask


def test_each_datapoint_is_a_bin_without_bins():
    found = bags.bins(4)({'tokens': [np.arange(3), np.arange(1)]})
    assert found['segment_ids'].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6).filter(lambda bins: bins[-1])
)
@settings(deadline=None, max_examples=50)
def test_rows_beside_flat(bins):
    rows, flat = bags.bins(36)(batch_of(bins)), bags.bins(flat=True)(batch_of(bins))
    kept = rows['segment_ids'] > 0
    assert kept.sum(1).tolist() == list(map(sum, bins))
    for name in ('tokens', 'loss_mask', 'position_ids'):
        assert (rows[name][kept] == flat[name]).all()
        assert not rows[name][~kept].any()
    # Elements attend to each other if bin and segment are equal: as in the flat form.
    bin_of = np.broadcast_to(np.arange(len(bins))[:, None], kept.shape)[kept]
    lengths = np.diff(flat['cu_seqlens'])
    piece_of = np.repeat(np.arange(len(lengths)), lengths)
    same = (bin_of[:, None] == bin_of) & (rows['segment_ids'][kept][:, None] == rows['segment_ids'][kept])
    assert (same == (piece_of[:, None] == piece_of)).all()


@pytest.mark.parametrize('options', [{}, {'workers': 2, 'processes': True}])
@pytest.mark.slow('options1')
def test_a_loader_of_pieces(tmp_path, options):
    lengths = np.random.default_rng(0).integers(0, 50, 40)
    with bags.DatasetWriter(tmp_path / 'x', {'tokens': 'array(uint16,?)', 'loss_mask': 'int(1)[]'}) as writer:
        for index, length in enumerate(lengths.tolist()):
            tokens = 1 + 60 * index + np.arange(length)
            writer.append({'tokens': tokens.astype(np.uint16), 'loss_mask': tokens % 2})
    dataset = bags.open(tmp_path / 'x')
    sampler = Packed(16, dataset.lengths('tokens', of='elements'), longer='cut')
    loader = bags.Loader(dataset, 3, sampler=sampler, collate=bags.bins(16, positions='document'), **options)
    seen = []
    for batch in loader:
        kept = batch['segment_ids'] > 0
        assert batch['tokens'].shape[1] == 16
        assert (batch['loss_mask'] == batch['tokens'] % 2 * kept).all()
        assert (batch['position_ids'][kept] == (batch['tokens'][kept] - 1) % 60).all()
        seen.append(batch['tokens'][kept])
    expected = np.concatenate([1 + 60 * index + np.arange(length) for index, length in enumerate(lengths)])
    assert np.sort(np.concatenate(seen)).tolist() == expected.tolist()


def test_what_cannot_be_laid_out():
    function = bags.bins({('tokens', 'loss_mask'): 6})
    assert pickle.loads(pickle.dumps(function)) == function
    uneven = batch_of(loss_mask=bags.Ragged(np.zeros(9), np.array([0, 3, 5, 9, 9, 9])))
    for batch, options, match in [
        (
            batch_of(),
            {'length': 4},
            "at most 4 elements of 'tokens' in a bin, got 5 in bin 0, .* datapoint 70",
        ),
        (
            uneven,
            {'length': 6},
            "datapoint 74: expected as many elements of 'loss_mask' as of 'tokens', got 0 and 1",
        ),
        (batch_of(), {'length': {'token': 6}}, "no field 'token' .perhaps 'tokens'"),
        (batch_of(segment_ids=1), {'length': 6}, "already has a column 'segment_ids'"),
        ({'id': np.arange(3)}, {'length': 6}, r"a field with elements, got the columns \['id'\]"),
        (batch_of(_bin=np.array([1, 0, 0, 0, 0])), {'length': 20}, 'in the order of their bins'),
        (batch_of(), {'length': 6, 'value': {'tokens': -1}}, 'a value that uint16 can hold, got -1'),
        (batch_of(), {'length': 6, 'value': {'token': 1}}, "value: no field 'token' .perhaps 'tokens'"),
    ]:
        with pytest.raises((ValueError, KeyError), match=match):
            bags.bins(**options)(batch)
    for options, match in [
        ({}, 'expected a length, or flat=True'),
        ({'length': 0}, 'bins: length: expected at least 1, got 0'),
        ({'length': {}}, 'expected a field, got none'),
        ({'length': {3: 6}}, 'expected names of fields, or tuples of names, got 3'),
        ({'length': {('a', 'b'): 6, 'b': 4}}, "expected each field once, got 'b' several times"),
        ({'length': 6, 'positions': 'x'}, "expected 'piece' or 'document', got 'x'"),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            bags.bins(**options)
