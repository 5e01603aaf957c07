"""Random streams of several clocks, of one dataset or of several, compared with a model in plain Python."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import bags
from tests.streams.forms import DECODERS, ENCODERS, numbers_of

pytest.importorskip('av')

FORMS = ('array(float32)[]', 'array(float32,?)', 'numbers', 'numbers[]', 'flac[]')
EPSILON = 1e-6


class Row:
    """The elements of a datapoint: their times, and the seconds that the last one lasts."""

    def __init__(self, times, last):
        self.times, self.last = times, last

    @property
    def duration(self):
        return float(self.times[-1] - self.times[0] + self.last) if len(self.times) else 0.0

    @property
    def end(self):
        return self.times[-1] + self.last


@st.composite
def datasets(draw, form):
    """Returns metadata, and for each datapoint its value, its field of times and the model; None: missing."""
    clocks = ['rate', 'start'] if form == 'flac[]' else ['rate', 'start', 'times', 'times and rate']
    clock = draw(st.sampled_from(clocks + (['own'] if form != 'array(float32)[]' and form[0] != 'a' else [])))
    rate = 8000 if form == 'flac[]' else draw(st.sampled_from([4, 10, 30]))
    start = draw(st.sampled_from([0.25, -1.0, 3.0])) if clock == 'start' else None
    unit = draw(st.sampled_from(['s', 'ms']))
    facts = {} if clock in ('own', 'times') else {'rate': rate}
    facts |= {} if start is None else {'start': start}
    facts |= {'times': 'when'} if clock.startswith('times') else {}
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 4)) == 0:
            rows.append((None, [], None))
            continue
        count = draw(st.integers(1, 12)) * (100 if form == 'flac[]' else 1)
        chance = np.random.default_rng(draw(st.integers(0, 99)))
        own = np.arange(count) / rate
        if clock.startswith('times'):
            times = np.round(np.cumsum(chance.uniform(0.02, 0.3, count)), 3)
            intervals = np.diff(times)
            last = (
                1 / rate if clock == 'times and rate' else float(np.median(intervals)) if count > 1 else 0.0
            )
        else:
            times, last = (start or 0.0) + own, 1 / rate
        stored = times * (1000 if unit == 'ms' else 1) if clock.startswith('times') else []
        numbers = np.arange(count)
        if form == 'flac[]':
            value = [
                (part[:, None].astype(np.int16), rate) for part in np.array_split(numbers, 3) if len(part)
            ]
        elif form.startswith('numbers'):
            table = np.stack([own, numbers, np.full(count, 1 / rate)], 1)
            value = table if form == 'numbers' else np.array_split(table, min(2, count))
        else:
            value = (numbers / (32768 if form.endswith('[]') else 1)).astype(np.float32)
        rows.append((value, stored, Row(times, last)))
    return {'fields': {'x': facts, 'when': {'unit': unit}, 'mark': {'times': 'at'}}}, rows


@st.composite
def cases(draw):
    form = draw(st.sampled_from(FORMS))
    parts = draw(st.lists(datasets(form), min_size=1, max_size=2))
    start = draw(st.integers(-8, 4)) / 8 + 0.003
    span = bags.between(
        start,
        start + draw(st.integers(2, 8)) / 8,
        closed=draw(st.sampled_from(['left', 'right'])),
        count=draw(st.sampled_from([None, None, 3])),
        keep=draw(st.sampled_from(['first', 'last'])),
    )
    return form, parts, span, draw(st.sampled_from(['edge', 'drop'])), draw(st.booleans())


MARKS = np.array([0.0, 0.51, 1.26, 3.4])


def write(path, form, metadata, rows):
    spec = {'x': f'{form}?', 'when': 'float(8)[]', 'mark': 'int(4)[]', 'at': 'float(8)[]'}
    with bags.DatasetWriter(path, spec, metadata=metadata, encoders=ENCODERS) as writer:
        for value, stored, _ in rows:
            writer.append({'x': value, 'when': stored, 'mark': range(len(MARKS)), 'at': MARKS})
    return bags.open(path, decoders=DECODERS)


def expected_window(row, rate, moment, span):
    """Returns the numbers of the elements of a window, and which are padding; None without a fixed number."""
    if rate is not None and span.count is None:
        count = round((span.stop - span.start) * rate)
        position, slack = (moment + span.start - row.times[0]) * rate, EPSILON * rate
        first = np.floor(position + slack) + 1 if span.closed == 'right' else np.ceil(position - slack)
        numbers = int(first) + np.arange(count)
        return numbers, (numbers < 0) | (numbers >= len(row.times))
    low, high = moment + span.start, moment + span.stop
    if span.closed == 'right':
        inside = (row.times > low + EPSILON) & (row.times <= high + EPSILON)
    else:
        inside = (row.times >= low - EPSILON) & (row.times < high - EPSILON)
    numbers = np.flatnonzero(inside)
    if span.count is None:
        return numbers, None
    kept = numbers[-span.count :] if span.keep == 'last' else numbers[: span.count]
    lacking = np.full(span.count - len(kept), -1)
    kept = np.concatenate([lacking, kept] if span.keep == 'last' else [kept, lacking])
    return kept, kept < 0


def check(root, case):
    form, parts, span, padding, is_reversed = case
    datasets = [write(root / str(number), form, *part) for number, part in enumerate(parts)]
    dataset = datasets[0] if len(datasets) == 1 else bags.concat(datasets)
    models = [model for _, rows in parts for _, _, model in rows]
    facts = [metadata['fields']['x'] for metadata, rows in parts for _ in rows]
    if is_reversed:
        dataset, models, facts = dataset[::-1], models[::-1], facts[::-1]
    counts = [0 if model is None else len(model.times) for model in models]
    assert dataset.lengths('x', of='elements').tolist() == counts
    if form == 'array(float32,?)' and any(not {'rate', 'times'} & {*fact} for fact in facts):
        return
    seconds = np.array([np.nan if model is None else model.duration for model in models])
    np.testing.assert_allclose(dataset.durations('x'), seconds, atol=1e-6)
    limit = np.nan_to_num(seconds).mean() + 1e-3
    with np.errstate(invalid='ignore'):
        longer = np.flatnonzero(seconds > limit).tolist()
    if form != 'numbers':
        passed = dataset.filter(f'duration(x) > {limit:.9f} and elements(x) > 0')
        assert len(passed) == len(longer)
    for index, model in enumerate(models):
        stream = dataset.stream(index, 'x')
        assert (stream is None) == (model is None)
        if model is not None:
            np.testing.assert_allclose(stream.times, model.times, atol=1e-6)
            assert stream.duration == pytest.approx(model.duration, abs=1e-6)
            middle = model.times[0] + model.duration / 2
            wanted = np.flatnonzero(
                (model.times >= middle - EPSILON) & (model.times < middle + 0.2 - EPSILON)
            )
            found = stream.between(middle, middle + 0.2)
            assert (numbers_of(form, found) if len(found) else []) == wanted.tolist()
    if None in models:
        return
    has_rate = form == 'flac[]' or all('rate' in fact and 'times' not in fact for fact in facts)
    view = dataset.windows(every='mark', x=span, padding=padding)
    wanted = []
    for row, (model, fact) in enumerate(zip(models, facts, strict=True)):
        rate = (8000 if form == 'flac[]' else fact['rate']) if has_rate else None
        for mark, moment in enumerate(MARKS.tolist()):
            numbers, pads = expected_window(model, rate, moment, span)
            if rate is not None and span.count is None:
                is_within = not pads.any()
            else:
                is_within = (
                    moment + span.start >= model.times[0] - EPSILON
                    and moment + span.stop <= model.end + EPSILON
                )
            if padding != 'drop' or is_within:
                wanted.append((row, mark, numbers, pads))
    sources = [(number, row) for number, (_, rows) in enumerate(parts) for row in range(len(rows))]
    sources = sources[::-1] if is_reversed else sources
    origins = [view.origin(index) for index in range(len(view))]
    found = [((*(origin.datasets or (0,)), origin.datapoint), origin.anchor) for origin in origins]
    assert found == [(sources[row], mark) for row, mark, _, _ in wanted]
    if not wanted:
        return
    batch = view.batch(range(len(view)), 'x')['x']
    marks = view.batch(range(len(view)), 'x_is_pad')['x_is_pad'] if 'x_is_pad' in view.spec else None
    for place, (_, _, numbers, pads) in enumerate(wanted):
        found = numbers_of(form, batch[place]) if len(batch[place]) else []
        if pads is None:
            assert found == numbers.tolist()
            continue
        assert marks[place].tolist() == pads.tolist()
        assert np.array(found)[~pads].tolist() == numbers[~pads].tolist()


@hypothesis.given(case=cases())
@hypothesis.settings(max_examples=100, deadline=None)
def test_random_streams(tmp_path_factory, case):
    check(tmp_path_factory.mktemp('streams'), case)


@pytest.mark.campaign
@hypothesis.given(case=cases())
@hypothesis.settings(max_examples=10_000, deadline=None)
def test_many_random_streams(tmp_path_factory, case):
    check(tmp_path_factory.mktemp('streams'), case)
