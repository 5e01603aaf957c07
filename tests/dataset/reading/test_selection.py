import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.dataset.format.spec import parse_spec
from bags.dataset.reading.selection import PerRowItems, group_items, select_fields, select_items, select_many

SPEC = parse_spec({'id': 'int(8)', 'note': 'utf8?', 'words': 'utf8[]', 'tags': 'utf8[]?'})
BOUND = st.integers(-12, 12) | st.sampled_from([10**6, -(10**6), 10**30, -(10**30)])
STEP = st.integers(-5, 5).filter(bool)
RANGES = st.builds(range, st.integers(-30, 30), st.integers(-30, 30), STEP)
SLICES = st.builds(slice, st.none() | BOUND, st.none() | BOUND, st.none() | STEP)


@given(SLICES, st.integers(0, 10))
def test_slices_are_those_of_lists(items, count):
    assert list(select_items(items, count)) == list(range(count))[items]


@given(RANGES, st.integers(0, 20))
def test_ranges_take_the_places_there_are(items, count):
    assert list(select_items(items, count)) == [item for item in items if 0 <= item < count]


@pytest.mark.parametrize(
    'items', [range(10**30), range(-(10**30), 10**30, 10**29), range(10**30, -1, -1)], ids=repr
)
def test_ranges_may_be_huge(items):
    found = list(select_items(items, 5))
    assert found == [place for place in (range(4, -1, -1) if items.step < 0 else range(5)) if place in items]


@given(st.lists(st.integers(-6, 5)))
def test_lists_count_from_the_end_too(items):
    assert select_items(items, 6) == [list(range(6))[item] for item in items]


@given(st.lists(st.integers(-9, 9)), st.integers(0, 6))
def test_lists_must_be_there(items, count):
    wrong = [item for item in items if not -count <= item < count]
    if not wrong:
        return
    with pytest.raises(IndexError, match=rf'item {wrong[0]} out of range \[{-count}, {count}\)'):
        select_items(items, count)


@given(RANGES | SLICES, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 9)), max_size=6))
def test_many_sequences_at_once(items, refs):
    firsts, counts = (np.array([ref[part] for ref in refs], np.int64) for part in (0, 1))
    members, lengths = select_many(items, firsts, counts)
    wanted = [[first + place for place in select_items(items, count)] for first, count in refs]
    assert members.dtype == lengths.dtype == np.int64
    assert members.tolist() == [member for part in wanted for member in part]
    assert lengths.tolist() == list(map(len, wanted))


@pytest.mark.parametrize('type', ['utf8[]?', 'int(4)[]?', 'array(float32,2)[]?'])
@pytest.mark.parametrize('items', [slice(0, 1), slice(-1, None), range(1), [0], [-1], [5, 0], []], ids=repr)
def test_items_of_a_missing_sequence_are_missing(tmp_path, items, type):
    """However they are asked for: of a row, of a row of a view, in a batch, as rows, or raw."""
    values = {'utf8[]?': list('abcdef'), 'int(4)[]?': np.arange(6)}.get(type, np.ones((6, 2), 'f4'))
    with bags.DatasetWriter(tmp_path / 'a', {'x': type}) as writer:
        for value in (values, None, values):
            writer.append({'x': value})
    asked = {'x': items}
    for raw in (False, True):
        reader = bags.open(tmp_path / 'a', raw=raw)
        rows = [
            reader[1, asked],
            reader[0:3][1, asked],
            reader.select([1])[0, asked],
            bags.concat([reader, reader])[4, asked],
            *reader.select([1, 1]).read_rows(np.arange(2), asked),
        ]
        assert rows == [{'x': None}] * 6
        columns = [reader.batch([0, 1, 2], asked), bags.concat([reader, reader]).batch([3, 4, 5], asked)]
        for column in columns:
            assert column['x'][1] is None
            assert len(column['x'][0]) == len(column['x'][2]) == len(reader[0, asked]['x'])
    batches = bags.Loader(bags.open(tmp_path / 'a'), 3, fields=asked, shuffle=False)
    assert [batch['x'][1] for batch in batches] == [None]


def test_items_of_a_sequence_without_the_field_are_missing(tmp_path):
    for name, spec in (('a', {'y': 'int(4)', 'x': 'utf8[]?'}), ('b', {'y': 'int(4)'})):
        with bags.DatasetWriter(tmp_path / name, spec) as writer:
            writer.append({'y': 1, 'x': ['a']} if 'x' in spec else {'y': 1})
    both = bags.concat([bags.open(tmp_path / 'a'), bags.open(tmp_path / 'b')])
    assert both[1, {'x': [0]}] == {'x': None}
    assert both.batch([0, 1], {'x': [0]}) == {'x': [['a'], None]}


def test_fields():
    assert select_fields(None, SPEC) == dict.fromkeys(SPEC, True)
    assert select_fields('words', SPEC) == {'words': True}
    assert list(select_fields(('words', 'id'), SPEC)) == ['words', 'id']
    assert list(select_fields(iter(['words', 'id', 'words']), SPEC)) == ['words', 'id']
    assert select_fields({'words': slice(2), 'id': False, 'note': True}, SPEC) == {
        'words': slice(2),
        'note': True,
    }
    assert select_fields({'words': np.array([1, -1], np.int8), 'tags': (2,)}, SPEC) == {
        'words': [1, -1],
        'tags': [2],
    }
    assert select_fields([], SPEC) == select_fields({}, SPEC) == {}
    given_ = {'words': [1]}
    select_fields(given_, SPEC)['words'].append(2)
    assert given_ == {'words': [1]}


@pytest.mark.parametrize('fields', ['nope', ['id', 'nope'], {'nope': False}, {'nope': range(2)}], ids=repr)
def test_unknown_fields_list_those_there_are(fields):
    with pytest.raises(KeyError, match=r"nope.*'id', 'note', 'tags', 'words'"):
        select_fields(fields, SPEC)


@pytest.mark.parametrize(
    'fields',
    [3, 1.5, {'id': range(2)}, {'id': []}, {'id': slice(None)}, {'note': [0]}, {'id': None}, {'words': None},
     {'words': 2}, {'words': '0'}, {'words': [0.5]}, {'words': ['0']}, {'words': 1.0}, [['id']]],
    ids=repr,
)  # fmt: skip
def test_what_is_no_selection(fields):
    with pytest.raises(TypeError):
        select_fields(fields, SPEC)


def test_items_of_a_video_are_its_frames():
    with pytest.raises(
        TypeError, match=r"'film' of type video .* expected True, False or bags.frames\(…\), got 3"
    ):
        select_fields({'film': 3}, parse_spec({'film': 'video'}))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 4)), max_size=10)


@given(ROWS, st.booleans())
def test_groups_have_the_items_of_their_rows(rows, are_listed):
    owners, starts, counts = np.array(sorted(rows), np.int64).reshape(-1, 3).T
    items = PerRowItems(starts, counts)
    if are_listed:
        items = PerRowItems(None, counts, items.numbers)
    groups = np.append(np.flatnonzero(np.diff(owners, prepend=-1)), len(owners))
    grouped = group_items(items, groups)
    for number, (start, stop) in enumerate(itertools.pairwise(groups.tolist())):
        found, wanted = grouped.items[number].tolist(), []
        for row in range(start, stop):
            first = int(grouped.firsts[row])
            own = list(range(starts[row], starts[row] + counts[row]))
            assert found[first : first + len(own)] == own
            wanted += own
        if grouped.overlap[number]:
            assert len(set(found)) == len(found) < len(wanted)
        else:
            assert found == wanted
