"""Rows of arrays, which are selected like the items of a sequence."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.dataset.reading.columns import read_column, read_records
from bags.dataset.reading.selection import PerRowItems

LENGTHS = [5, 0, 1, 40, 3000, 7, 12]
ARRAYS = [np.arange(length, dtype='u2') + 100 * number for number, length in enumerate(LENGTHS)]
PAIRS = [(np.arange(2 * length).reshape(length, 2) + length).astype('>f4') for length in LENGTHS]
MISSING = {1, 4}
SPEC = {'tokens': 'array(uint16,?)', 'pairs': 'array(>f4,?,2)', 'maybe': 'array(uint16,?)?', 'id': 'int(8)'}
EXPECTED = {
    'tokens': ARRAYS,
    'pairs': PAIRS,
    'maybe': [None if number in MISSING else array for number, array in enumerate(ARRAYS)],
}
ROWS = range(len(LENGTHS))


def write(path, rows=ROWS, **options):
    with bags.DatasetWriter(path, SPEC, **options) as writer:
        for row in rows:
            writer.append({**{name: values[row] for name, values in EXPECTED.items()}, 'id': row})


def write_links(path, *sources):
    """Writes links to parts of files, as an import of tokens does."""
    fields = list(EXPECTED)
    with bags.DatasetWriter(path, SPEC, linked_fields=fields) as writer:
        files = [source.open('wb') for source in sources]
        values = [{name: EXPECTED[name][row] for name in fields} | {'id': row} for row in ROWS]
        for row, datapoint in enumerate(values):
            file, source = files[row % len(files)], sources[row % len(files)]
            for name in fields:
                if datapoint[name] is not None:
                    file.write(b'!')  # So that arrays are not aligned.
                    start, data = file.tell(), datapoint[name].tobytes()
                    file.write(data)
                    datapoint[name] = bags.Link(source, offset=start, length=len(data))
        for file in files:
            file.close()
        for datapoint in values:
            writer.append(datapoint)


def decode_own(data, *args):
    return bags.decoders['array'](data, *args)


def open_forms(root):
    plain = bags.open(root / 'plain')
    first, rest = plain.select(range(3)), plain.select(range(3, 7))
    return {
        'mapped': plain,
        'read': bags.open(root / 'plain', mapped=False),
        'compressed': bags.open(root / 'compressed'),
        'checked': bags.open(root / 'checked', checksum=True),
        'sharded': bags.open(root / 'sharded'),
        'linked': bags.open(root / 'linked', trust_links=root),
        'linked files': bags.open(root / 'linked files', trust_links=root),
        'own decoder': bags.open(root / 'plain', {**bags.decoders, 'array': decode_own}),
        'concat': bags.concat([first, rest]),
        'edited': plain.update({3: {'tokens': ARRAYS[3], 'pairs': PAIRS[3]}, 1: {'maybe': None}}),
        'renamed': plain.rename({'tokens': 'words'}).rename({'words': 'tokens'}),
        'joined': bags.join([plain.select(fields=['tokens', 'id']), plain.select(fields=['pairs', 'maybe'])]),
        'pickled': pickle.loads(pickle.dumps(plain)),
    }


@pytest.fixture(scope='module')
def forms(tmp_path_factory):
    root = tmp_path_factory.mktemp('rows')
    write(root / 'plain')
    write(root / 'compressed', compression=list(EXPECTED))
    write(root / 'checked', checksum=True)
    for number, rows in enumerate([ROWS[:3], ROWS[3:4], ROWS[4:]]):
        write(root / f'sharded/{number:06}', rows)
    write_links(root / 'linked', root / 'data.bin')
    write_links(root / 'linked files', root / 'even.bin', root / 'odd.bin')
    return open_forms(root)


def part_of(value, items):
    return None if value is None else value[list(items) if isinstance(items, range) else items]


def expect_equal(found, expected):
    if expected is None:
        assert found is None
        return
    assert found.dtype.newbyteorder('=') == expected.dtype.newbyteorder('=')
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


BOUND = st.none() | st.integers(-45, 45) | st.sampled_from([10**6, -(10**6), 10**30, -(10**30)])
SLICES = st.builds(slice, BOUND, BOUND, st.none() | st.integers(-5, 5).filter(bool))
NAMES = ['mapped', 'read', 'compressed', 'checked', 'sharded', 'linked', 'linked files', 'own decoder',
         'concat', 'edited', 'renamed', 'joined', 'pickled']  # fmt: skip


@pytest.mark.parametrize('form', NAMES)
@settings(max_examples=25, deadline=None)
@given(items=SLICES, rows=st.lists(st.sampled_from(ROWS), min_size=1, max_size=9))
def test_slices_are_those_of_numpy(forms, form, items, rows):
    """Of a row, in a batch, in columns of rows, and in a view."""
    dataset, asked = forms[form], dict.fromkeys(EXPECTED, items)
    batch, listed = dataset.batch(rows, asked), dataset.select(rows)[0:1].__getitem__((0, asked))
    rows_of_dataset = dataset.read_rows(np.array(rows), asked)
    for name, values in EXPECTED.items():
        expect_equal(listed[name], part_of(values[rows[0]], items))
        assert isinstance(batch[name], bags.Ragged)
        for position, row in enumerate(rows):
            expected = part_of(values[row], items)
            expect_equal(dataset[row, asked][name], expected)
            expect_equal(batch[name][position], expected)
            expect_equal(rows_of_dataset[position][name], expected)
    assert batch['tokens'].values.flags.writeable


@pytest.mark.parametrize('form', NAMES)
def test_lists_and_ranges_of_rows(forms, form):
    dataset = forms[form]
    for items in ([0, -1, 3, 3], [4], [], np.array([2, 0], np.int8), (1,)):
        for row in (0, 3, 4):
            for name, values in EXPECTED.items():
                if name == 'maybe' and row in MISSING:
                    assert dataset[row, {name: items}] == {name: None}
                    continue
                expected = values[row][np.asarray(items, int)]
                expect_equal(dataset[row, {name: items}][name], expected)
                expect_equal(dataset.batch([row, row], {name: items})[name][1], expected)
    for items in (range(1, 4), range(0, 40, 7), range(10, -1, -3), range(3, 10**30), range(9, 2)):
        for row in ROWS:
            expected = ARRAYS[row][[item for item in items[:5000] if 0 <= item < LENGTHS[row]]]
            expect_equal(dataset[row, {'tokens': items}]['tokens'], expected)
            expect_equal(dataset.batch([row], {'tokens': items})['tokens'][0], expected)
    with pytest.raises(IndexError, match=r'item 40 out of range \[-40, 40\)'):
        dataset[3, {'tokens': [40]}]
    with pytest.raises(IndexError, match=r'item -6 out of range \[-5, 5\)'):
        dataset.batch([3, 0], {'tokens': [0, -6]})


@pytest.mark.parametrize('form', NAMES)
def test_other_rows_of_each_array(forms, form):
    """What windows and packed batches read: a range, or a list, of each array."""
    dataset, rng = forms[form], np.random.default_rng(0)
    rows = rng.choice([0, 3, 4, 5, 6], 60)
    lengths = np.array(LENGTHS)[rows]
    starts = rng.integers(0, lengths)
    counts = rng.integers(0, lengths - starts + 1)
    numbers = [rng.integers(0, length, count) for length, count in zip(lengths, counts, strict=True)]
    for items, keys in (
        (PerRowItems(starts, counts), list(map(slice, starts, starts + counts))),
        (PerRowItems(None, counts, np.concatenate(numbers)), numbers),
    ):
        columns = dataset.read_selection(rows, dict.fromkeys(EXPECTED, items), read_column)
        for name, values in EXPECTED.items():
            for position, (row, key) in enumerate(zip(rows.tolist(), keys, strict=True)):
                expect_equal(columns[name][position], part_of(values[row], key))
    with pytest.raises(IndexError, match='no longer exist'):
        dataset.read_selection(
            np.array([0, 3]), {'tokens': PerRowItems(starts[:2] * 0, lengths[:2] + 50)}, read_column
        )


@pytest.mark.parametrize('form', ['mapped', 'compressed', 'linked', 'sharded'])
def test_records_of_rows(forms, form):
    records = forms[form].read_selection(np.array([3, 1, 0]), {'maybe': slice(1, 3)}, read_records)['maybe']
    assert records == [ARRAYS[3][1:3].tobytes(), None, ARRAYS[0][1:3].tobytes()]


def test_raw_rows_are_bytes(tmp_path):
    write(tmp_path / 'a')
    reader = bags.open(tmp_path / 'a', raw=True)
    expected = [array[1:4].tobytes() for array in ARRAYS]
    asked = {'tokens': slice(1, 4)}
    assert [reader[row, asked]['tokens'] for row in ROWS] == expected
    assert reader.batch(ROWS, asked)['tokens'] == expected
    assert reader.batch([1, 0], {'maybe': [0]}) == {'maybe': [None, ARRAYS[0][:1].tobytes()]}


def test_loaders_take_rows(forms):
    loader = bags.Loader(forms['sharded'], 3, fields={'tokens': slice(-2, None), 'id': True}, shuffle=False)
    for batch in loader:
        for row, tokens in zip(batch['id'].tolist(), batch['tokens'], strict=True):
            expect_equal(tokens, ARRAYS[row][-2:])


@pytest.mark.parametrize('form', ['mapped', 'compressed', 'linked', 'sharded', 'concat', 'edited'])
def test_lengths_of_arrays(forms, form):
    assert forms[form].lengths('tokens', of='elements').tolist() == LENGTHS
    expected = [0 if row in MISSING else length for row, length in enumerate(LENGTHS)]
    assert forms[form].lengths('maybe', of='elements').tolist() == expected


@pytest.mark.parametrize('form', ['mapped', 'compressed', 'linked', 'sharded', 'own decoder'])
@pytest.mark.parametrize('padding', ['edge', 'zero', 'drop'])
def test_windows_of_rows(forms, form, padding):
    dataset = forms[form].select([0, 3, 5])
    windows = dataset.windows(every='tokens', tokens=bags.steps(-2, 3), stride=3, padding=padding)
    columns = windows.batch(range(len(windows)))
    origins = windows.origins()
    for number, (row, anchor) in enumerate(zip(origins.datapoint, origins.anchor, strict=True)):
        array = ARRAYS[row]
        positions = np.arange(anchor - 2, anchor + 3)
        is_pad = (positions < 0) | (positions >= len(array))
        expected = array[positions.clip(0, len(array) - 1)]
        if padding == 'zero':
            expected[is_pad] = 0
        for window in (windows[number], {name: column[number] for name, column in columns.items()}):
            expect_equal(window['tokens'], expected)
            assert window['tokens_is_pad'].tolist() == is_pad.tolist()


def test_streams_read_the_rows_asked_for(forms):
    for form in ('mapped', 'compressed', 'linked'):
        stream = forms[form].stream(4, 'tokens')
        expect_equal(stream[10:20], ARRAYS[4][10:20])
        expect_equal(stream[20:10:-2], ARRAYS[4][20:10:-2])
        expect_equal(stream[[5, -1, 5]], ARRAYS[4][[5, -1, 5]])
        assert stream[-1] == ARRAYS[4][-1]


def test_rows_of_arrays_that_differ_in_a_length(tmp_path):
    for name, type in (('a', 'array(float32,?)'), ('b', 'array(float32,6)')):
        with bags.DatasetWriter(tmp_path / name, {'x': type}) as writer:
            writer.append({'x': np.arange(6, dtype='f4')})
    both = bags.concat([bags.open(tmp_path / 'a'), bags.open(tmp_path / 'b')], fields='union')
    column = both.batch([1, 0, 1], {'x': slice(1, 3)})['x']
    assert column.values.tolist() == [1, 2] * 3
    assert both[1, {'x': slice(-1, None)}]['x'].tolist() == [5]


def test_no_rows_of_texts(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'array(<U4,?)'}) as writer:
        writer.append({'x': np.array([], '<U4')})
        writer.append({'x': np.array(['a', 'b'], '<U4')})
    dataset = bags.open(tmp_path / 'a')
    for column in (
        dataset.batch([0], {'x': slice(None)})['x'],
        dataset.batch([0, 1], {'x': slice(0, 0)})['x'],
    ):
        assert column.values.dtype == '<U4'
    assert len(dataset[1, {'x': slice(2, None)}]['x']) == 0


def test_rows_of_a_missing_field(tmp_path):
    for name, spec in (('a', {'x': 'array(uint8,?)', 'y': 'bool'}), ('b', {'y': 'bool'})):
        with bags.DatasetWriter(tmp_path / name, spec) as writer:
            writer.append({'x': np.arange(4, dtype='u1'), 'y': True} if 'x' in spec else {'y': True})
    both = bags.concat([bags.open(tmp_path / 'a'), bags.open(tmp_path / 'b')], fields='union')
    column = both.batch([1, 0], {'x': slice(1, 3)})['x']
    assert (column[0], column[1].tolist()) == (None, [1, 2])
    assert both[1, {'x': slice(1, 3)}] == {'x': None}


@pytest.mark.parametrize('type', ['utf8', 'array', 'array(float32,2,?)', 'array(float32,5)', 'bytes'])
def test_types_without_rows(tmp_path, type):
    with bags.DatasetWriter(tmp_path / 'a', {'x': type}) as writer:
        value = {'utf8': 'text', 'bytes': b'bytes'}.get(type, np.zeros((2, 5) if '?' in type else 5, 'f4'))
        writer.append({'x': value})
    reader = bags.open(tmp_path / 'a')
    for call in (lambda: reader[0, {'x': slice(1)}], lambda: reader.batch([0], {'x': [0]})):
        with pytest.raises(
            TypeError, match=r"field 'x' of type .* (is not a sequence|no \? as its first dim)"
        ):
            call()


def test_parts_of_a_record_above_the_maximum_size(tmp_path):
    """Only the bytes of the rows are read, and count: the file has a terabyte of zeros."""
    path = tmp_path / 'large.bin'
    with path.open('wb') as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(np.arange(8, dtype='u2').tobytes())
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'array(uint16,?)'}, linked_fields=['x']) as writer:
        writer.append({'x': bags.Link(path)})
    reader = bags.open(tmp_path / 'a', trust_links=tmp_path)
    middle = 1 << 38
    assert reader[0, {'x': slice(middle, middle + 4)}]['x'].tolist() == [0, 1, 2, 3]
    assert reader.batch([0, 0], {'x': [middle + 3, -1]})['x'].values.tolist() == [3, 0, 3, 0]
    assert reader.lengths('x', of='elements').tolist() == [1 << 39]
    assert reader.stream(0, 'x')[middle : middle + 2].tolist() == [0, 1]
    with pytest.raises(bags.DecodeError, match=f'has {1 << 40} bytes, which exceeds max_value_size'):
        reader[0, {'x': slice(None)}]
    with pytest.raises(bags.DecodeError, match=f'has {1 << 31} bytes, which exceeds max_value_size'):
        reader.batch([0], {'x': slice(0, 1 << 30)})


def test_records_that_are_not_whole_rows(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'bytes'}) as writer:
        writer.append({'x': b'1234'})
        writer.append({'x': b'12345'})
    spec = tmp_path / 'a' / 'spec.json'
    spec.write_text(spec.read_text().replace('bytes', 'array(uint16,?)'))
    for reader in (bags.open(tmp_path / 'a'), bags.open(tmp_path / 'a', mapped=False)):
        assert reader[0, {'x': slice(1)}]['x'].tolist() == [0x3231]
        for call in (lambda r=reader: r[1, {'x': slice(1)}], lambda r=reader: r.batch([0, 1], {'x': [0]})):
            with pytest.raises(
                bags.DecodeError, match=r"field 'x' .*, record 1: .*a multiple of 2 bytes .*, got 5"
            ):
                call()


@pytest.mark.parametrize('options', [{}, {'mapped': False}])
def test_invalid_elements(tmp_path, options):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'bytes'}) as writer:
        writer.append({'x': b'\0\1\0'})
        writer.append({'x': b'\0\1\2'})
    spec = tmp_path / 'a' / 'spec.json'
    spec.write_text(spec.read_text().replace('bytes', 'array(bool,?)'))
    reader = bags.open(tmp_path / 'a', **options)
    assert reader.batch([0, 1], {'x': slice(1, 2)})['x'].values.tolist() == [True, True]
    for call in (lambda: reader[1, {'x': [2]}], lambda: reader.batch([0, 1], {'x': slice(1, 3)})):
        with pytest.raises(bags.DecodeError, match=r"field 'x' .*, record 1: .*bools that are 0 or 1"):
            call()


def test_damaged_links_and_cut_files(tmp_path):
    write_links(tmp_path / 'a', tmp_path / 'data.bin')
    reader = bags.open(tmp_path / 'a', trust_links=tmp_path)
    assert len(reader[0, {'tokens': slice(2)}]['tokens']) == 2
    data = (tmp_path / 'data.bin').read_bytes()
    (tmp_path / 'data.bin').write_bytes(data[:-100])
    for dataset in (reader, bags.open(tmp_path / 'a', trust_links=tmp_path)):
        with pytest.raises(bags.CorruptError, match=r'data\.bin'):
            dataset.batch([6, 5], {'pairs': slice(-1, None)})
