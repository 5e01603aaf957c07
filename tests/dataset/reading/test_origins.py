import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.types import Origin

COUNTS = [3, 0, 5, 1, 7, 4]
SPEC = {'id': 'int', 'x': 'array(int32,2)[]', 'words': 'utf8[]', 'note': 'utf8?'}


def write(path, ids):
    """Writes datapoints whose items of `x` and `words` are the id and the number of the item."""
    with bags.DatasetWriter(path, SPEC, metadata={'fields': {'x': {'rate': 10}}}) as writer:
        for id in ids:
            pairs = [(id, item) for item in range(COUNTS[id])]
            writer.append(
                {
                    'id': id,
                    'x': [np.array(pair, np.int32) for pair in pairs],
                    'words': [f'{id} {item}' for id, item in pairs],
                    'note': f'note {id}' if id % 2 else None,
                }
            )
    return bags.open(path)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp('origins') / 'a', range(len(COUNTS)))


def test_a_reader_is_its_own_origin(dataset, tmp_path):
    assert dataset.origin(-1) == Origin((), 5, None, None, None)
    assert dataset.origin(np.int64(2), 'x').datapoint == 2
    origins = dataset.origins()
    assert origins.datapoint.tolist() == [0, 1, 2, 3, 4, 5]
    assert origins.datasets.shape == (6, 0)
    assert {*origins.start.tolist()} == {-1}
    assert dataset.origins([]).datapoint.dtype == np.int64
    bags.copy(dataset, tmp_path / 'shards', shard_length=2)
    assert bags.open(tmp_path / 'shards').origin(3).datapoint == 3


def test_selected_renamed_and_edited_datapoints(dataset):
    view = dataset.select([5, 0, 5, 2])[1:].rename({'x': 'y'}).update({0: {'id': 9}})
    assert view.origins().datapoint.tolist() == [0, 5, 2]
    assert view.origins(field='y').datapoint.tolist() == [0, 5, 2]
    assert view.origin(0, 'id').datapoint == 0
    assert dataset.drop([0, 1]).origin(0).datapoint == 2
    assert [dataset.filter('id > 3').origin(index).datapoint for index in (0, 1)] == [4, 5]


def test_datasets_of_a_concat(dataset):
    inner = bags.concat({'a': dataset[::-1], 'b': dataset[4:]})
    both = bags.concat([dataset, inner.drop(fields='source')])
    expected = [((0,), row) for row in range(6)]
    expected += [((1, 0), row) for row in range(6)[::-1]] + [((1, 1), 4), ((1, 1), 5)]
    assert [both.origin(index)[:2] for index in range(len(both))] == expected
    datasets, datapoints = both.origins()[:2]
    assert datasets.tolist() == [[*path, -1][:2] for path, _ in expected]
    assert datapoints.tolist() == [row for _, row in expected]
    assert inner.origin(7, 'source') == inner.origin(7) == Origin((1,), 5, None, None, None)
    again = pickle.loads(pickle.dumps(both))
    assert again.origins([13]).datapoint.tolist() == [5]


def test_fields_of_a_join_have_their_own_origins(dataset):
    other = dataset.select([0, 4, 2], fields=('id', 'note')).rename({'note': 'text'})
    joined = bags.join([dataset, other], on='id', how='left')
    assert joined.origins().datapoint.tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.origins(field='text').datapoint.tolist() == [0, -1, 2, -1, 4, -1]
    assert joined.origin(4, 'text').datapoint == 4
    with pytest.raises(ValueError, match="datapoint 1: field 'text' has no value"):
        joined.origin(1, 'text')
    by_position = bags.join(
        [dataset[:3], dataset[3:].rename({'x': 'y', 'id': 'k', 'note': 'n', 'words': 'w'})]
    )
    assert (by_position.origin(1).datapoint, by_position.origin(1, 'y').datapoint) == (1, 4)


def test_a_field_of_some_datasets(dataset):
    mixed = bags.concat([dataset[:2, 'id'], dataset[2:, ('id', 'note')]], fields='union')
    assert mixed.origins(field='note').datapoint.tolist() == [-1, -1, 2, 3, 4, 5]
    assert mixed.origins(field='note').datasets.ravel().tolist() == [-1, -1, 1, 1, 1, 1]
    assert mixed.origins(field='id').datapoint.tolist() == [0, 1, 2, 3, 4, 5]


def test_errors_name_the_field_or_the_index(dataset):
    with pytest.raises(KeyError, match='y'):
        dataset.origin(0, 'y')
    with pytest.raises(KeyError, match='y'):
        dataset.origins([], 'y')
    with pytest.raises(IndexError, match='6'):
        dataset.origin(6)
    with pytest.raises(TypeError, match='field'):
        dataset.origins([0], ('id', 'x'))
    # A pair of earlier versions does not compare equal, and cannot be unpacked.
    with pytest.raises(ValueError, match='unpack'):
        _, _ = dataset.windows(every='x', x=bags.steps(0, 1)).origin(0)


SPANS = st.one_of(
    st.builds(lambda start, count: bags.steps(start, start + count), st.integers(-4, 2), st.integers(1, 5)),
    st.builds(
        lambda start, tenths, fill: bags.times(start / 10, (start + tenths) / 10, rate=10, fill=fill),
        st.integers(-3, 2), st.integers(1, 4), st.sampled_from(['nearest', 'previous']),
    ),
    st.builds(
        lambda start, tenths: bags.between(start / 10, (start + tenths) / 10),
        st.integers(-3, 2), st.integers(1, 4),
    ),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(SPANS, st.booleans(), st.sampled_from(['edge', 'drop']), st.booleans())
def test_the_part_of_a_window(dataset, span, by_time, padding, of_view):
    if by_time and isinstance(span, bags.types.Steps):
        span = bags.times(span.start / 10)
    source = dataset.filter('id != 1')
    if of_view:
        source = bags.concat([source[:3], source[::-1]])
    view = source.windows(every=0.1 if by_time else 'x', x=span, padding=padding)
    origins = view.origins(field='x')
    for index, row in enumerate(view):
        origin = view.origin(index, 'x')
        assert origin[1:] == tuple(int(column[index]) for column in origins[1:])
        is_pad = row.get('x_is_pad', np.zeros(len(row['x']), bool))
        known = row['x'][~is_pad]
        assert origin.datapoint == row['id']
        assert (known[:, 0] == row['id']).all()
        if len(known):
            assert (origin.start, origin.stop) == (known[0, 1], known[-1, 1] + 1)
        else:
            assert origin.start == origin.stop
        if not by_time:
            assert view.origin(index) == origin
            assert origin.anchor == round(float(view.anchor_times([index])[0]) * 10)
    if 'x_is_pad' in view.schema:
        assert np.array_equal(view.origins(field='x_is_pad').stop, origins.stop)


@given(st.integers(-3, 1), st.integers(1, 4), st.sampled_from(['edge', 'drop']), st.booleans())
def test_windows_of_windows_have_the_items_of_the_reader(dataset, start, count, padding, of_view):
    inner = dataset.drop([1]).windows(every='words', words=bags.steps(-1, 3), stride=2)
    inner = inner[::-1] if of_view else inner
    outer = inner[:, ('id', 'words')].windows(
        every='words', words=bags.steps(start, start + count), padding=padding
    )
    for index, row in enumerate(outer):
        origin = outer.origin(index)
        known = [word for word, is_pad in zip(row['words'], row['words_is_pad'], strict=True) if not is_pad]
        assert origin.datapoint == row['id']
        if known:
            assert f'{origin.datapoint} {origin.start}' == known[0]
            assert f'{origin.datapoint} {origin.stop - 1}' == known[-1]
        if start <= 0 < start + count:
            assert row['words'][-start] == f'{origin.datapoint} {origin.anchor}'


def test_the_anchor_of_a_window_without_its_field(dataset):
    view = dataset.windows(every='x', words=bags.steps(0, 2), stride=2)
    assert [view.origin(index)[1:] for index in (0, 1, 2)] == [(0, 0, 0, 1), (0, 2, 2, 3), (2, 0, 0, 1)]
    assert view.origin(0, 'words')[1:] == (0, 0, 0, 2)
    assert view.origin(2, 'id') == Origin((), 2, None, None, None)
    by_time = dataset.windows({'x': bags.times(0.0)}, every=0.2)
    assert by_time.origin(1) == Origin((), 0, 1, None, None)
    assert by_time.origin(1, 'x') == Origin((), 0, 1, 2, 3)
