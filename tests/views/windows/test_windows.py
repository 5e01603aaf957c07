"""Windows of sequences as datapoints, compared with windows made of lists."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags

SPEC = {
    'id': 'int(8)',
    'note': 'utf8?',
    'others': 'int(2)[]?',
    'points': 'array(float32,2)[]',
    'steps': 'int(4)[]',
    'trees': 'msgpack[]',
    'words': 'utf8[]?',
}
MOVING = ('points', 'steps', 'trees', 'words')
LENGTHS = (5, 0, 1, 9, 3, 0, 7, 2, 4, 12, 1, 6)


def make(index):
    count = LENGTHS[index]
    return {
        'id': index,
        'note': None if index % 3 else str(index),
        'others': None if index % 4 == 1 else np.arange(index % 4, dtype=np.int16),
        'points': np.array([[index, step] for step in range(count)], np.float32).reshape(-1, 2),
        'steps': np.arange(100 * index, 100 * index + count, dtype=np.int32),
        'trees': [{'at': [index, step]} for step in range(count)],
        'words': [f'{index} {step}' for step in range(count)] if count else None,
    }


NUMBERS = ('points', 'steps')


def spans_of(fields, length):
    return dict.fromkeys(fields, bags.steps(0, length))


def others(fields):
    """Returns the fields that windows of `fields` have only with `whole`, and one that they always have."""
    return ['id', *(name for name in SPEC if '[]' in SPEC[name] and name not in fields)]


def as_window(values, numbers):
    """Returns items of a sequence, which numbers in a window are an array of."""
    return values[numbers] if isinstance(values, np.ndarray) else [values[number] for number in numbers]


def cut(rows, fields, length, stride, padding):
    """Returns the expected windows, and where each is from."""
    found = []
    for index, row in enumerate(rows):
        count = 0 if row[fields[0]] is None else len(row[fields[0]])
        for start in range(0, count - length + 1 if padding == 'drop' else count, stride):
            items = np.arange(start, start + length)
            window = {name: as_window(row[name], items.clip(0, count - 1)) for name in fields}
            if padding == 'zero':
                for name in fields:
                    window[name][items >= count] = 0
            window |= {f'{name}_is_pad': items >= count for name in fields}
            found.append(({**row, **window}, (index, start)))
    return [window for window, _ in found], [origin for _, origin in found]


@pytest.fixture(scope='module', params=['plain', 'zstd'])
def sources(request, kit, tmp_path_factory):
    root = tmp_path_factory.mktemp('windows')
    rows = [make(index) for index in range(len(LENGTHS))]
    compression = MOVING if request.param == 'zstd' else ()
    folder = kit.fill(root / 'a', rows, SPEC, compression=compression)
    shards = kit.fill(root / 'b', rows, SPEC, shard_length=5, compression=compression)
    halves = [
        kit.fill(root / str(number), [{name: row[name] for name in names} for row in rows],
                 {name: SPEC[name] for name in names})
        for number, names in enumerate((['id', 'steps', 'words'], ['note', 'others', 'points', 'trees']))
    ]  # fmt: skip
    return [bags.open(folder), bags.open(shards), bags.join(halves)], rows


def plain(value):
    """Converts a column to lists of Python values."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, list | bags.Ragged) else value


def check(kit, view, rows, fields):
    """Compares all methods of a view with a list."""
    assert len(view) == len(rows)
    rows = [{name: row[name] for name in view.spec} for row in rows]
    assert kit.equal(list(view), rows)
    order = [*range(len(rows)), *range(len(rows))][::-3]
    wanted = [rows[index] for index in order]
    assert kit.equal(view.__getitems__(order), wanted)
    batch = view.batch(order)
    assert set(batch) == {*SPEC, *(f'{name}_is_pad' for name in fields)}
    assert list(batch) == list(view.spec)
    for name, column in batch.items():
        if isinstance(column, bags.Ragged):
            assert column.values.dtype == {'points': 'f4', 'steps': 'i4', 'others': 'i2'}[name]
        assert plain(column) == plain([row[name] for row in wanted])
    for name in ('words', 'others') if 'steps' in fields else ('steps', 'words', 'others'):
        lengths = [0 if row[name] is None else len(row[name]) for row in rows]
        assert view.lengths(name).tolist() == lengths
        assert view.lengths(name).dtype == np.int64
    assert list(view.records('words')) == [word.encode() for row in rows for word in row['words'] or []]
    assert list(view.records('note')) == [
        None if row['note'] is None else row['note'].encode() for row in rows
    ]
    for index in order[:5]:
        for item, word in enumerate(rows[index]['words'] or []):
            assert view.file(index, 'words', item).read() == word.encode()
        with pytest.raises(IndexError):
            view.file(index, 'words', len(rows[index]['words'] or []))
    again = pickle.loads(pickle.dumps(view))
    assert repr(again) == repr(view)
    assert kit.equal(again.__getitems__(order[:3]), wanted[:3])


@pytest.mark.slow(all_but='plain')
@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2),
    st.sampled_from([('steps',), ('words', 'steps'), MOVING]),
    st.integers(1, 8),
    st.integers(1, 5),
    st.sampled_from(['drop', 'edge', 'zero']),
    st.sampled_from(['as it is', 'of a view', 'view of it', 'of another', 'twice', 'joined']),
)
def test_windows_are_those_of_lists(kit, sources, which, fields, length, stride, padding, how):
    padding = padding if set(fields) <= set(NUMBERS) or padding == 'drop' else 'edge'
    dataset, rows = sources[0][which], sources[1]
    below = [(row, 0) for row in range(len(rows))]
    last_items = [len(row['words'] or ()) - 1 for row in rows]
    if how == 'of a view':
        below = [*below[::-2], below[3], below[3]]
        dataset, rows = (
            bags.concat([dataset[::-2], dataset.select([3, 3])]),
            [*rows[::-2], rows[3], rows[3]],
        )
    if how == 'of another':
        # Windows of numbers are arrays, of which there are no windows.
        whole = others(['words'])
        dataset = dataset.windows(every='words', words=bags.steps(0, 5), stride=2, whole=whole)
        dataset = dataset[:, list(SPEC)]
        rows, below = cut(rows, ['words'], 5, 2, 'edge')
        rows = [{name: row[name] for name in SPEC} for row in rows]
        fields, padding = ('words',), padding if padding != 'zero' else 'edge'
    view = dataset.windows(
        spans_of(fields, length), every=fields[0], stride=stride, padding=padding, whole=others(fields)
    )
    rows, anchors = cut(rows, fields, length, stride, padding)
    origins = [
        (below[row][0], min(below[row][1] + anchor, last_items[below[row][0]])) for row, anchor in anchors
    ]
    assert [view.origin(index)[1:3] for index in range(len(view))] == origins
    assert [tuple(map(int, pair)) for pair in zip(*view.origins()[1:3], strict=True)] == origins
    assert [part.tolist() for part in view.origins([-1] if rows else [])[1:3]] == (
        [[part] for part in origins[-1]] if rows else [[], []]
    )
    if how == 'view of it':
        view, rows = view[::-1][1:], rows[::-1][1:]
    if how == 'twice':
        view, rows = bags.concat([view, view]), rows + rows
    if how == 'joined':
        view = bags.join([view, view], replace=True)
    check(kit, view, rows, fields)


@pytest.mark.parametrize('padding', ['drop', 'edge'])
@pytest.mark.parametrize(
    'items',
    [range(1, 3), slice(None, None, -1), slice(-2, None), [0, 0], range(10), range(0), range(-5, 9, 2)],
)  # fmt: skip
def test_items_of_windows(kit, sources, items, padding):
    fields = ('trees', 'words')
    for dataset in sources[0]:
        view = dataset.windows(spans_of(fields, 4), every='words', stride=3, padding=padding)
        rows, _ = cut(sources[1], fields, 4, 3, padding)

        def pick(values):
            if isinstance(items, slice):
                return values[items]
            places = [item for item in items if isinstance(items, list) or 0 <= item < len(values)]
            return [values[item] for item in places]

        asked = {'trees': items, 'id': True, 'words': items}
        wanted = [{'trees': pick(r['trees']), 'id': r['id'], 'words': pick(r['words'])} for r in rows]
        assert kit.equal([view[index, asked] for index in range(len(view))], wanted)
        batch = view.batch(range(len(view)), asked)
        assert batch['trees'] == [row['trees'] for row in wanted]
        assert batch['words'] == [row['words'] for row in wanted]
        with pytest.raises(IndexError, match='item 4 out of range'):
            view[0, {'trees': [4]}]
        with pytest.raises(IndexError, match='item 4 out of range'):
            view.batch([0], {'trees': [4]})


def test_a_batch_of_full_windows_is_one_array(sources):
    view = sources[0][1].windows(spans_of(NUMBERS, 3), every='points', padding='drop')
    batch = view.batch(range(0, len(view), 2))
    assert batch['points'].shape == (len(range(0, len(view), 2)), 3, 2)
    assert np.array_equal(batch['points'][:, :, 1] + 100 * batch['points'][:, :, 0], batch['steps'])
    assert view.batch([], 'points')['points'].shape == (0, 3, 2)
    padded = sources[0][0].windows(every='steps', steps=bags.steps(0, 3)).batch([0, 4])
    assert padded['steps'].tolist() == [[0, 1, 2], [4, 4, 4]]
    assert padded['steps_is_pad'].tolist() == [[False] * 3, [False, True, True]]


def test_windows_own_their_values(sources):
    for dataset in sources[0]:
        view = dataset.windows(spans_of(MOVING, 4), every='steps', padding='drop')
        for rows in (view.__getitems__([0, 1, 0]), [view[0], view[1], view[0]]):
            rows[0]['trees'][1]['at'][0] = 77
            rows[0]['points'][1][0] = 77
            assert rows[1]['trees'][0]['at'] == rows[2]['trees'][1]['at'] == [0, 1]
            assert rows[1]['points'][0].tolist() == rows[2]['points'][1].tolist() == [0, 1]


def test_raw_windows(kit, sources):
    for dataset in sources[0][:2]:
        source = bags.open(dataset.path, raw=True)
        view = source.windows(spans_of(MOVING, 4), every='steps', padding='drop', whole='others')
        view = view[:, list(SPEC)]
        rows, _ = cut(sources[1], MOVING, 4, 1, 'drop')
        wanted = [kit.encode_row({name: row[name] for name in SPEC}, SPEC) for row in rows]
        order = [*range(len(view)), 0, 0]
        assert kit.to_bytes(list(view)) == wanted
        assert kit.to_bytes(view.__getitems__(order)) == [wanted[index] for index in order]
        batch = view.batch(order)
        assert [kit.to_bytes(words) for words in batch['words']] == [
            wanted[index]['words'] for index in order
        ]


def test_fields_that_come_whole(tmp_path):
    pixels = np.zeros((4, 4, 3), np.uint8)
    sound = np.zeros((40, 1), np.int16), 8000
    values = {
        'audio': ('audio', sound), 'bytes': ('bytes', b'x'), 'events': ('utf8[]', ['a', 'b']),
        'flac': ('flac', sound), 'frames': ('jpeg[]?', [pixels]), 'id': ('int(8)', 3),
        'jpeg': ('jpeg?', pixels), 'json': ('json', {'a': [1]}), 'label': ('utf8?', 'b'),
        'map': ('array(float32,2)', np.zeros(2, np.float32)),
        'mp4': ('mp4', np.zeros((2, 16, 16, 3), np.uint8)), 'sounds': ('audio[]', [sound]),
        'state': ('float(4)[]', np.arange(5)), 'video': ('video', np.zeros((2, 16, 16, 3), np.uint8)),
        'wav': ('wav', sound),
    }  # fmt: skip
    with bags.DatasetWriter(tmp_path / 'it', {name: text for name, (text, _) in values.items()}) as writer:
        writer.append({name: value for name, (_, value) in values.items()})
    dataset = bags.open(tmp_path / 'it')
    plain = ['audio', 'bytes', 'id', 'json', 'label', 'map', 'video']
    spans = {'state': bags.steps(0, 2)}
    windows = dataset.windows(spans, every='state')
    assert list(windows.spec) == list(windows[0]) == sorted([*plain, 'state', 'state_is_pad'])
    assert list(windows.batch([0, 3])) == list(windows.spec)
    whole = dataset.windows(spans, every='state', whole=('events', 'jpeg'))
    assert list(whole.spec) == sorted([*windows.spec, 'events', 'jpeg'])
    assert whole[3]['events'] == ['a', 'b']
    assert np.array_equal(whole[3]['jpeg'], dataset[0]['jpeg'])
    assert list(dataset.windows(spans, every='state', whole='events').spec) == sorted(
        [*windows.spec, 'events']
    )
    assert "whole=('events', 'jpeg')" in repr(whole)
    assert 'whole=' not in repr(windows)
    everything = dataset.windows(spans, every='state', whole=[name for name in values if name != 'state'])
    assert set(everything[2]) == {*values, 'state_is_pad'}
    with pytest.raises(KeyError, match=r"no field 'event' .perhaps 'events'"):
        dataset.windows(spans, every='state', whole=['event'])
    with pytest.raises(ValueError, match="whole: expected fields without a span, got 'state', which has one"):
        dataset.windows(spans, every='state', whole=['id', 'state'])
    with pytest.raises(TypeError, match='windows: whole: expected fields as a whole'):
        dataset.windows(spans, every='state', whole={'events': range(1)})


def test_states_of_before_whole_was_an_option(tmp_path):
    spec = {'id': 'int(8)', 'picture': 'png', 'state': 'int(4)[]', 'events': 'utf8[]', 'sound': 'wav?'}
    with bags.DatasetWriter(tmp_path / 'it', spec) as writer:
        for number in range(4):
            picture = np.full((2, 2, 3), number, np.uint8)
            values = {'id': number, 'picture': picture, 'state': np.arange(9), 'events': ['x', 'y']}
            writer.append({**values, 'sound': None})
    (tmp_path / 'it/source.json').unlink()  # Without a random id, the fingerprint is a hash of the content.
    state = {
        'seed': 0, 'epoch': 0, 'consumed': 4, 'first_epoch': 0, 'batch_size': 4, 'world_size': 1,
        'last_batch': 'partial', 'length': 32, 'sampler': 'Shuffled(32, seed=0)',
        'dataset': 'ef3741b35056cb540ffdb919',
    }  # fmt: skip

    def resumed(**options):
        dataset = bags.open(tmp_path / 'it')
        windows = dataset.windows(every='state', state=bags.steps(0, 2), padding='drop', **options)
        loader = bags.Loader(windows, 4, workers=0, shuffle=True)
        loader.load_state_dict(state)
        return next(iter(loader))

    assert resumed(whole=('sound', 'picture', 'events'))['id'].tolist() == [3, 2, 3, 2]
    with pytest.raises(
        ValueError, match=r"earlier version, pass whole=\('picture', 'events', 'sound'\) to win"
    ):
        resumed()
    with pytest.raises(ValueError, match=r'state of another dataset: .* resumes anyway; for a state'):
        resumed(whole=('sound', 'events'))


def test_what_cannot_be_meant(kit, sources, tmp_path):
    dataset = sources[0][0]
    with pytest.raises(TypeError, match="'id' of type int"):
        dataset.windows(every='steps', steps=bags.steps(0, 4), id=bags.steps(0, 4))
    with pytest.raises(KeyError, match="no field 'x'"):
        dataset.windows(every='x', x=bags.steps(0, 4))
    with pytest.raises(ValueError, match='at least one field'):
        dataset.windows(every='steps')
    for wrong in (0, -1):
        with pytest.raises(ValueError, match='expected 1 to'):
            dataset.windows(every='steps', steps=bags.steps(0, wrong))
        with pytest.raises(ValueError, match='at least 1'):
            dataset.windows(every='steps', steps=bags.steps(0, 1), stride=wrong)
    with pytest.raises(TypeError, match=r'stop: expected an integer, got 2.5'):
        dataset.windows(every='steps', steps=bags.steps(0, 2.5))
    for wrong in (10**6, -(10**6)):
        with pytest.raises(IndexError, match='out of range'):
            dataset.windows(every='steps', steps=bags.steps(0, 4))[wrong]
    uneven = [{'a': [1, 2], 'b': [1, 2]}, {'a': [1, 2], 'b': [1]}]
    path = kit.fill(tmp_path / 'x', uneven, {'a': 'int(1)[]', 'b': 'int(1)[]'})
    with pytest.raises(ValueError, match=r"2 items of 'a' and 1 of 'b' in datapoint 1$"):
        bags.open(path).windows(every='a', a=bags.steps(0, 1), b=bags.steps(0, 1))
    assert len(bags.open(path).windows(every='a', a=bags.steps(0, 1))) == 4


@pytest.mark.parametrize(
    'arguments', [('steps', 4), (('steps', 'words'), 4, 2), ('steps',), ('steps', 4, 1, False)]
)
def test_advice_for_the_form_with_a_length(sources, arguments):
    advice = r"windows\(every=FIELD, FIELD=bags.steps\(0, length\), padding='drop'\)"
    with pytest.raises(TypeError, match=advice):
        sources[0][0].windows(*arguments)
    with pytest.raises(TypeError, match=advice):
        sources[0][0].windows('steps', length=4, drop_last=False)
    with pytest.raises(TypeError, match=r"'drop_last': use .* padding='drop'"):
        sources[0][0].windows(every='steps', steps=bags.steps(0, 4), drop_last=True)


def test_fields_named_as_options(kit, tmp_path):
    """Fields may have the names of options of this function, and of former ones."""
    names = ('every', 'stride', 'drop_last', 'spans')
    rows = [{name: [1, 2, 3] for name in names}]
    dataset = bags.open(kit.fill(tmp_path / 'x', rows, dict.fromkeys(names, 'int(1)[]')))
    view = dataset.windows(
        {name: bags.steps(0, 2) for name in ('every', 'stride')}, every='every',
        drop_last=bags.steps(0, 2), spans=bags.steps(-1, 1),
    )  # fmt: skip
    assert [view[1][name].tolist() for name in names] == [[2, 3], [2, 3], [2, 3], [1, 2]]


def test_closing_windows_closes_the_dataset(kit, tmp_path):
    path = kit.fill(tmp_path / 'x', [make(0)], SPEC)
    reader = bags.open(path)
    with reader.windows(every='steps', steps=bags.steps(0, 2)) as view:
        view[0]
    with pytest.raises(ValueError, match='closed'):
        reader[0]


@pytest.mark.parametrize('by_time', [False, True])
def test_a_hundred_million_windows_cost_next_to_nothing(kit, tmp_path, by_time):
    rows = [{'x': [0] * 5000, 'y': [1] * 2500}] * 3
    dataset = bags.open(kit.fill(tmp_path / 'x', rows, {'x': 'uint(1)[]', 'y': 'uint(1)[]'}))
    many = dataset.select(np.resize(np.arange(3), 21_000))
    tracemalloc.start()
    if by_time:
        span = bags.times(-0.1, 0.1, rate=50, fill='nearest')
        view = many.windows(every='x', x=bags.steps(0, 16), y=span, times={'x': 100, 'y': 50})
    else:
        view = many.windows(every='x', x=bags.steps(0, 16), padding='drop')
    batch = view.batch(np.arange(0, len(view), 1_000_000), 'x')
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    count = 5000 if by_time else 4985
    assert len(view) == 21_000 * count > 100_000_000
    assert batch['x'].shape == (105, 16)
    assert view.origin(-1) == ((), 2, count - 1, count - 1, 5000)


def test_no_windows_of_windows(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'words': 'utf8[]'}) as writer:
        writer.append({'words': list('abc')})
    windows = bags.open(tmp_path / 'a').windows(every='words', words=bags.steps(0, 3), padding='drop')
    below = windows[:, ['words']].windows(every='words', words=bags.steps(0, 3), padding='drop')
    assert [row['words'] for row in below.__getitems__(range(len(below)))] == [list('abc')]
    assert below.__getitems__([]) == []


def test_fields_that_windows_leave_out_are_named(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', SPEC) as writer:
        for index in range(len(LENGTHS)):
            writer.append(make(index))
    with bags.open(tmp_path / 'd') as dataset:
        view = dataset.windows(every='steps', steps=bags.steps(0, 2))
        advice = r"no field 'points': windows leave it out; .*whole=\('points',\)"
        for of in (
            view,
            view[::2],
            view.filter('id > 3'),
            view.rename({'id': 'number'}),
            bags.concat([view, view]),
        ):
            for read in (
                lambda of=of: of[0, 'points'],
                lambda of=of: of.batch([0], ('steps', 'points')),
                lambda of=of: of.column('points'),
                lambda of=of: bags.Loader(of, 2, fields='points'),
                lambda of=of: pickle.loads(pickle.dumps(of))[0, 'points'],
            ):
                with pytest.raises(KeyError, match=advice):
                    read()
            with pytest.raises(ValueError, match=advice):
                of.filter('any(points > 3)')
        with pytest.raises(KeyError, match=r"no field 'ponits'; the fields are"):
            view[0, 'ponits']
        whole = dataset.windows(every='steps', steps=bags.steps(0, 2), whole=('points',))
        assert whole[0, 'points']['points'].shape == (5, 2)
