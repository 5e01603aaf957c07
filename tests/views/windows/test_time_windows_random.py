"""Windows by time of random recordings, compared with a search through all items, in milliseconds."""

import math
import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import bags

SPEC = {
    'a': 'array(float32,2)[]',
    'at': 'int(8)[]',
    'b': 'float(8)[]?',
    'c': 'utf8[]',
    'ct': 'float(8)[]',
    'id': 'int(4)',
}


@st.composite
def recordings(draw):
    """Returns datapoints, and the times of the items of each field in milliseconds."""
    offset = draw(st.sampled_from([0, 0, 40, -500, 1_700_000_000_000]))
    period, start = draw(st.sampled_from([1, 5, 20])), draw(st.sampled_from([0, 7, 40]))
    rows, times = [], []
    for index in range(draw(st.integers(1, 5))):
        random = np.random.default_rng(draw(st.integers(0, 1000)))
        counts = [draw(st.sampled_from([0, 1, 2, 5, 12])) for _ in 'abc']
        a, c = (offset + np.cumsum(random.integers(1, 40, count)) for count in counts[::2])
        b = offset + start + period * np.arange(counts[1])
        values = random.standard_normal((counts[0], 2)).astype('f4')
        values[random.random(values.shape) < 0.1] = np.nan
        there = counts[1] > 0 or draw(st.booleans())
        rows.append({
            'a': values, 'at': a, 'b': random.standard_normal(counts[1]) if there else None,
            'c': [f'{index} {item}' for item in range(counts[2])], 'ct': c / 1000, 'id': index,
        })  # fmt: skip
        times.append({'a': a, 'b': b, 'c': c})
    facts = {
        'a': {'times': 'at'}, 'at': {'unit': 'ms'}, 'c': {'times': 'ct'},
        'b': {'rate': 1000 / period, 'start': (offset + start) / 1000},
    }  # fmt: skip
    return rows, times, {'fields': facts}, offset


@st.composite
def spans(draw, name):
    if draw(st.booleans()):
        start = draw(st.integers(-4, 4))
        return bags.steps(start, start + draw(st.integers(1, 5)))
    fills = ['nearest', 'previous', *(['linear'] if name != 'c' else [])]
    offsets = draw(st.lists(st.integers(-60, 60), min_size=1, max_size=3))
    tolerance = draw(st.sampled_from([None, None, 0.0, 0.004, 0.03]))
    return bags.times(
        *(offset / 1000 for offset in offsets),
        fill=draw(st.sampled_from(fills)),
        tolerance=tolerance,
        gaps='pad',
    )


def take(times, values, moment, span, *, by_index):
    """Returns the values of a window and which of them are padding, by search."""
    if isinstance(span, bags.types.Steps):
        first = by_index if by_index is not None else int((times < moment).sum())
        places = range(first + span.start, first + span.stop)
        pads = [not 0 <= place < len(times) for place in places]
        return [values[min(max(place, 0), len(times) - 1)] for place in places], pads
    found, pads = [], []
    tolerance = None if span.tolerance is None else round(span.tolerance * 1000)
    for offset in span.offsets:
        wanted = moment + round(offset * 1000)
        distances = [abs(int(time) - wanted) for time in times]
        nearest = distances.index(min(distances))
        earlier = [place for place, time in enumerate(times) if time <= wanted]
        pad = not times[0] - (tolerance or 0) <= wanted <= times[-1] + (tolerance or 0)
        if span.fill == 'previous':
            pad |= not earlier
            place = earlier[-1] if earlier else 0
            pad |= tolerance is not None and wanted - times[place] > tolerance
        else:
            place = nearest
            pad |= tolerance is not None and distances[nearest] > tolerance
        value = values[place]
        if span.fill == 'linear':
            low = earlier[-1] if earlier else 0
            value = np.asarray(values[low])
            if earlier and wanted != times[low] and low + 1 < len(times):
                share = (wanted - int(times[low])) / (int(times[low + 1]) - int(times[low]))
                low_value, high_value = np.float64(value), np.float64(values[low + 1])
                value = (low_value + share * (high_value - low_value)).astype(value.dtype)
        found.append(value)
        pads.append(pad)
    return found, pads


def expected(rows, times, chosen, every, padding, stride, bounds, offset):
    """Returns the windows: datapoint, anchor, and the values of each field; None if no window exists."""
    found = []
    for index, (row, when) in enumerate(zip(rows, times, strict=True)):
        if isinstance(every, str):
            moments = when[every].tolist()
        else:
            there = np.concatenate([when[name] for name in chosen])
            step = round(every * 1000)
            low, high = (int(there.min()), int(there.max())) if len(there) else (0, -1)
            low = low if bounds[0] is None or not len(there) else offset + bounds[0]
            moments = list(range(low, high + 1, step))
        allowed = []
        for item, moment in enumerate(moments):
            inside = all(
                sign * (moment - offset - bound) >= 0
                for sign, bound in zip((1, -1), bounds, strict=True)
                if bound is not None
            )
            if not inside:
                continue
            window = {}
            for name, span in chosen.items():
                if not len(when[name]):
                    window[name] = None
                    continue
                by_index = item if name == every else None
                window[name] = take(when[name], row[name], moment, span, by_index=by_index)
            beyond = False
            for name, part in window.items():
                span = chosen[name]
                if part is None:
                    beyond = True
                elif isinstance(span, bags.types.Steps):
                    beyond |= any(part[1])
                else:
                    slack = round((span.tolerance or 0) * 1000)
                    early = 0 if span.fill == 'previous' else slack
                    offsets = [round(each * 1000) for each in span.offsets]
                    beyond |= moment + min(offsets) < when[name][0] - early
                    beyond |= moment + max(offsets) > when[name][-1] + slack
            if item % stride == 0 and (padding != 'drop' or not beyond):
                allowed.append((index, item, moment, window))
        found += allowed
    return found


@st.composite
def cases(draw):
    names = draw(st.sets(st.sampled_from('abc'), min_size=1))
    bounds = draw(st.sampled_from([(None, None), (None, None), (10, None), (None, 60), (20, 50)]))
    return {
        'made': draw(recordings()),
        'chosen': {name: draw(spans(name)) for name in sorted(names)},
        'every': draw(st.sampled_from(['a', 'b', 'c', 0.007, 0.03])),
        'padding': draw(st.sampled_from(['edge', 'zero', 'drop'])),
        'stride': draw(st.sampled_from([1, 1, 3])),
        'bounds': bounds,
        'kind': draw(st.sampled_from(['folder', 'shards', 'memory', 'select', 'pickled'])),
    }


def check(root, case):
    rows, times, metadata, offset = case['made']
    chosen, every, padding, bounds = case['chosen'], case['every'], case['padding'], case['bounds']
    if padding == 'zero':
        chosen = {name: span for name, span in chosen.items() if name != 'c'} or {'a': bags.steps(0, 2)}
    kind = case['kind']
    writer, options = bags.DatasetWriter, {}
    if kind == 'shards':
        writer, options = bags.ShardedDatasetWriter, {'shard_length': 2}
    path = f'memory://random/{root.name}' if kind == 'memory' else root / 'x'
    with writer(path, SPEC, metadata=metadata, **options) as made:
        for row in rows:
            made.append(row)
    reader, datapoints = bags.open(path), range(len(rows))
    if kind == 'select':
        reader, rows, times, datapoints = reader[::-1], rows[::-1], times[::-1], datapoints[::-1]
    absolute = tuple(None if bound is None else (offset + bound) / 1000 for bound in bounds)
    stride = case['stride'] if padding != 'drop' and bounds == (None, None) else 1
    wanted = expected(rows, times, chosen, every, padding, stride, bounds, offset)
    view = reader.windows(every=every, padding=padding, stride=stride,
        bounds=None if bounds == (None, None) else absolute, **chosen,
    )  # fmt: skip
    lacking = [name for window in wanted for name, part in window[3].items() if part is None]
    if padding == 'edge' and lacking:
        with pytest.raises(ValueError, match='expected items of'):
            view[0]
        return
    assert len(view) == len(wanted)
    if kind == 'pickled':
        view = pickle.loads(pickle.dumps(view))
    places = np.random.default_rng(0).permutation(len(view)).tolist()
    batch = view.batch(places)
    _, origins, anchors, _, _ = view.origins(places)
    assert origins.tolist() == [datapoints[wanted[place][0]] for place in places]
    assert anchors.tolist() == [wanted[place][1] for place in places]
    moments = [wanted[place][2] / 1000 for place in places]
    np.testing.assert_allclose(view.anchor_times(places), moments, rtol=0, atol=1e-6)
    shapes = {'a': (2,), 'b': ()}
    for name, span in chosen.items():
        count = len(span.offsets) if isinstance(span, bags.types.Times) else span.stop - span.start
        assert batch[f'{name}_is_pad'].shape == (len(places), count)
        if name != 'c':
            assert batch[name].shape == (len(places), count, *shapes[name])
        for position, place in enumerate(places):
            part = wanted[place][3][name]
            values, pads = part if part is not None else ([np.zeros(shapes[name])] * count, [True] * count)
            assert batch[f'{name}_is_pad'][position].tolist() == pads
            one = view[place, (name, f'{name}_is_pad')]
            assert one[f'{name}_is_pad'].tolist() == pads
            if name == 'c':
                assert batch[name][position] == one[name] == values
                continue
            if padding == 'zero':
                values = [
                    np.zeros(shapes[name]) if pad else value for value, pad in zip(values, pads, strict=True)
                ]
            # Unix times in seconds have seven decimals in float64.
            exact = 1e-6 if offset < 1e9 else 2e-3
            np.testing.assert_allclose(batch[name][position], np.array(values), rtol=exact, atol=exact)
            np.testing.assert_array_equal(batch[name][position], one[name])


@hypothesis.given(cases())
@hypothesis.settings(max_examples=60)
def test_windows_are_those_of_a_search(tmp_path_factory, case):
    check(tmp_path_factory.mktemp('random'), case)


@pytest.mark.campaign
@hypothesis.given(cases())
@hypothesis.settings(max_examples=3000)
def test_many_windows_are_those_of_a_search(tmp_path_factory, case):
    check(tmp_path_factory.mktemp('random'), case)


def test_seconds_are_finite():
    with pytest.raises(ValueError, match='finite'):
        bags.times(math.inf)
