"""CSV and JSONL files as datasets: types, notes, and errors that name the line."""

import csv
import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pytest

import bags

pytest.importorskip('pyarrow')


def imported(folder, name, data, **options):
    path = folder / name
    path.write_bytes(data)
    done = bags.convert(path, folder / 'dataset', mode='overwrite', **options)
    return done, list(bags.open(folder / 'dataset'))


def test_csv(tmp_path):
    data = b'id,name,score,day\n1,cat,2.5,2020-01-02\n2,"a ""dog"",\nold",,2020-01-03\n'
    done, rows = imported(tmp_path, 'labels.csv', data)
    assert done.spec == {'id': 'int(8)', 'name': 'utf8', 'score': 'float(8)?', 'day': 'array(datetime64[D])'}
    assert done.notes == ['types are inferred from all rows; spec= changes them']
    assert [row['name'] for row in rows] == ['cat', 'a "dog",\nold']
    assert [row['score'] for row in rows] == [2.5, None]
    assert rows[1]['day'] == np.datetime64('2020-01-03')


def test_jsonl(tmp_path):
    data = b'{"id": 1, "tags": ["a", "b"], "box": {"x": 1}}\n{"id": 2, "tags": [], "new": true}\n'
    done, rows = imported(tmp_path, 'labels.jsonl', data)
    assert done.spec == {'id': 'int(8)', 'tags': 'utf8[]', 'box': 'msgpack?', 'new': 'bool?'}
    assert rows[0] == {'id': 1, 'tags': ['a', 'b'], 'box': {'x': 1}, 'new': None}


@pytest.mark.parametrize('name', ['t.tsv', 't.tsv.gz'])
def test_tabs_and_gzip(tmp_path, name):
    data = b'\xef\xbb\xbfid\ttext\n7\ta,b\n'
    _, rows = imported(tmp_path, name, gzip.compress(data) if name.endswith('.gz') else data)
    assert rows == [{'id': 7, 'text': 'a,b'}]


def test_types_can_be_given(tmp_path):
    done, rows = imported(tmp_path, 'a.csv', b'id,label\n1,3\n', spec={'id': 'int(4)', 'label': None})
    assert done.spec == {'id': 'int(4)'}
    assert rows == [{'id': 1}]


def test_a_folder_of_tables_is_their_rows(tmp_path):
    folder = tmp_path / 'tables'
    folder.mkdir()
    for number in range(2):
        (folder / f'{number}.csv').write_text(f'id\n{number}\n')
    (folder / 'README.md').write_text('about')
    done = bags.convert(folder, tmp_path / 'dataset')
    assert done.notes == ['types are inferred from all rows; spec= changes them', "left out: 'README.md'"]
    assert bags.open(tmp_path / 'dataset').column('id').tolist() == [0, 1]


def test_a_table_beside_other_files_is_a_value(tmp_path):
    folder = tmp_path / 'mixed'
    folder.mkdir()
    (folder / 'a.csv').write_text('x\n1\n')
    (folder / 'a.jpg').write_bytes(bags.encoders['jpeg'](np.zeros((8, 8, 3), np.uint8)))
    assert bags.convert(folder, tmp_path / 'files').spec == {'__key__': 'utf8', 'csv': 'utf8', 'jpg': 'jpeg'}
    assert bags.convert(folder, tmp_path / 'rows', format='csv').spec == {'x': 'int(8)'}


def test_mixed_types_are_named(tmp_path):
    rows = ''.join(f'{number}\n' for number in range(20))
    done, found = imported(tmp_path, 'a.csv', f'id\n{rows}n/a!\n'.encode())
    assert done.spec == {'id': 'utf8'}
    assert done.notes[-1].endswith("a.csv: column 'id' is text: line 22 has 'n/a!', most others have numbers")
    assert len(found) == 21


def test_values_with_lines_and_quotes(tmp_path):
    data = b'a,b\n5" disk,"x\ny ""z"""\n6,"last\nvalue"'
    assert imported(tmp_path, 'a.csv', data)[1] == [
        {'a': '5" disk', 'b': 'x\ny "z"'},
        {'a': '6', 'b': 'last\nvalue'},
    ]


def test_other_delimiters_are_noted(tmp_path):
    notes = imported(tmp_path, 'a.csv', b'a;b\n1;2\n')[0].notes
    assert any("one column 'a;b': expected columns separated by commas" in note for note in notes)


@pytest.mark.parametrize(
    ('name', 'data', 'said'),
    [
        ('a.csv', b'a,b\n1,2\n3\n', 'line 3: expected 2 values, got 1: 3'),
        ('a.csv', b'a,b\n\n1,"x\ny"\r\n\n3,4,5\n', 'line 6: expected 2 values, got 3: 3,4,5'),
        ('a.tsv', b'a\tb\n"x\ty\nz"\t2\n3\n', 'line 4: expected 2 values, got 1: 3'),
        (
            'a.csv',
            b'a,b\n1,2\n3,"x ""y"" z\n4,5\n',
            """line 3: expected a closing quote, got 'x "y" z""",
        ),
        ('a.csv', b'a,b\n1,2\n3,\xff\n', 'line 3: expected UTF-8, got the byte 0xff'),
        ('a.csv', 'a,b\n1,2\n'.encode('utf-16'), 'line 1: expected UTF-8'),
        ('a.csv', b'a,a\n1,2\n', 'expected each column once, got a, a'),
        ('a.csv', b'', 'Empty CSV file'),
        ('a.csv', b'a,b\n', 'without any'),
        ('a.jsonl', b'{"a": 1}\n{"a": "x"}\n', 'line 2: Column(/a) changed from number to string'),
        ('a.jsonl', b'{"a": 1}\n{"a": \n', 'line 2: Invalid value'),
        ('a.jsonl', b'{"a": 1}\n\n \n{"a": "x"}\n', 'line 4: Column(/a) changed from number to string'),
        ('a.jsonl', b'[1, 2]\n', 'line 1: Column() changed from object to array'),
        ('a.csv.gz', gzip.compress(b'a,b\n1,2\n', mtime=0)[:-9], 'a.csv.gz'),
    ],
)
def test_errors_name_the_line(tmp_path, name, data, said):
    with pytest.raises(bags.SourceError) as caught:
        imported(tmp_path, name, data)
    assert said in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    assert not (tmp_path / 'dataset').exists()


TEXTS = [
    *(
        '007',
        '1234e5',
        '0x1F',
        '1.10',
        '12345678901234567890',
        '2024-01-02T03:04:05+05:00',
        'False',
        '+4915112345',
    ),
    *('2024-01-02', '-0', ' 1', 'NA', 'a "b", c'),
]


@pytest.mark.parametrize('text', TEXTS)
def test_utf8_has_the_characters_of_the_file(tmp_path, text):
    table = io.StringIO(newline='')
    csv.writer(table).writerows([['id', 'x'], [text, 1], [text, 2]])
    _, rows = imported(tmp_path, 'a.csv', table.getvalue().encode(), spec={'id': 'utf8'})
    assert [row['id'] for row in rows] == [text, text]
    _, rows = imported(tmp_path, 'a.jsonl', json.dumps({'id': text}).encode(), spec={'id': 'utf8'})
    assert rows == [{'id': text}]


def test_a_type_can_be_given_to_a_column_without_values(tmp_path):
    assert imported(tmp_path, 'a.csv', b'id\nNA\n', spec={'id': 'utf8'})[1] == [{'id': 'NA'}]
    done, rows = imported(tmp_path, 'a.jsonl', b'{"a": null, "b": 1}\n', spec={'a': 'json'})
    assert (done.spec, rows) == ({'b': 'int(8)', 'a': 'json'}, [{'b': 1, 'a': None}])
    with pytest.raises(bags.SourceError, match="expected a column with values, got 'id' without any"):
        imported(tmp_path, 'a.csv', b'id\nNA\n')


def test_empty_values_are_missing_in_optional_fields(tmp_path):
    data = b'a,b,c\n,,1\nx,y,\n'
    _, rows = imported(tmp_path, 'a.csv', data, spec={'a': 'utf8?', 'c': 'utf8'})
    assert rows == [{'a': None, 'b': '', 'c': '1'}, {'a': 'x', 'b': 'y', 'c': ''}]


@pytest.mark.parametrize(
    ('values', 'type', 'found', 'note'),
    [
        ('7 12', 'int(8)', [7, 12], None),
        ('12 007', 'utf8', ['12', '007'], "line 3 has '007', which has a leading zero"),
        ('1e3 007', 'utf8', ['1e3', '007'], "line 3 has '007', which has a leading zero"),
        ('0x1F', 'utf8', ['0x1F'], 'which has a leading zero'),
        ('5 +4915112345', 'utf8', ['5', '+4915112345'], 'which has a plus sign'),
        ('1 12345678901234567890', 'uint(8)', [1, 12345678901234567890], None),
        ('-1 12345678901234567890', 'utf8', ['-1', '12345678901234567890'], 'not an integer of 64 bits'),
        ('1 123456789012345678901', 'utf8', ['1', '123456789012345678901'], 'not an integer of 64 bits'),
        ('1.5 12345678901234567', 'utf8', ['1.5', '12345678901234567'], 'digits a float does not hold'),
        ('1.5 1000000000000000000000', 'float(8)', [1.5, 1e21], None),
        ('0 0.5 -0.25', 'float(8)', [0, 0.5, -0.25], None),
    ],
)
def test_numbers_that_would_lose_digits_are_text(tmp_path, values, type, found, note):
    done, rows = imported(tmp_path, 'a.csv', ('id\n' + values.replace(' ', '\n') + '\n').encode())
    assert done.spec == {'id': type}
    assert [row['id'] for row in rows] == found
    notes = [each for each in done.notes if "column 'id' is text" in each]
    assert [note in each for each in notes] == ([] if note is None else [True])
    if all(value.lstrip('-')[0] in '123456789' for value in values.split()):
        lines = ''.join(f'{{"id": {value}}}\n' for value in values.split())
        done, rows = imported(tmp_path, 'a.jsonl', lines.encode())
        assert (done.spec, [row['id'] for row in rows]) == ({'id': type}, found)


def test_integers_in_lists_and_objects_keep_their_digits(tmp_path):
    data = b'{"ids": [1, 12345678901234567890], "at": {"id": 12345678901234567890, "day": "2024-01-02"}}\n'
    data += b'{"ids": [2], "at": {}}\n'
    done, rows = imported(tmp_path, 'a.jsonl', data)
    assert done.spec == {'ids': 'json', 'at': 'msgpack'}
    assert rows[0] == {
        'ids': [1, 12345678901234567890],
        'at': {'id': 12345678901234567890, 'day': '2024-01-02'},
    }
    assert rows[1] == {'ids': [2], 'at': {}}
    assert any("column 'ids' is json: line 1 has" in note for note in done.notes)


def test_json_is_read_as_it_is(tmp_path):
    values = ['1', '"x"', '[{"b": 1, "a": null}]', '{"z":  1.50}', 'null', 'true', '12345678901234567890123']
    data = ''.join(f'{{"id": {number}, "x": {value}}}\n' for number, value in enumerate(values))
    done, _ = imported(tmp_path, 'a.jsonl', data.encode(), spec={'x': 'json'})
    assert done.spec == {'id': 'int(8)', 'x': 'json'}
    with bags.open(tmp_path / 'dataset', raw=True) as dataset:
        assert [bytes(row['x']).decode() for row in dataset] == values
    _, rows = imported(tmp_path, 'a.jsonl', data.encode(), spec={'x': 'utf8?'})
    assert [row['x'] for row in rows[:5]] == ['1', 'x', '[{"b": 1, "a": null}]', '{"z":  1.50}', None]
    assert imported(tmp_path, 'a.jsonl', data.encode(), spec={'x': None})[0].spec == {'id': 'int(8)'}
    with pytest.raises(bags.SourceError, match=r"a.jsonl.*line 2: Column\(/x\) .* spec=\{'x': 'json'\}"):
        imported(tmp_path, 'a.jsonl', data.encode())


@pytest.mark.parametrize(
    ('text', 'type', 'said'),
    [
        ('x', 'int(8)', "expected an integer, got 'x'"),
        ('1_000', 'float(8)', "expected a number, got '1_000'"),
        ('maybe', 'bool', "expected true, false, 1 or 0, got 'maybe'"),
        ('{', 'json', 'Expecting property name'),
    ],
)
def test_a_text_of_another_type_is_named(tmp_path, text, type, said):
    with pytest.raises(bags.SourceError) as caught:
        imported(tmp_path, 'a.csv', f'id,x\n1,{text}\n'.encode(), spec={'x': type})
    assert f"a.csv, row 0: field 'x' of type {type}: " in str(caught.value)
    assert said in str(caught.value)


UNITED = {
    'int and float': (['v\n1\n', 'v\n2.5\n'], 'float(8)', [1.0, 2.5]),
    'int and text': (['v\n7\n', 'v\nx\n'], 'utf8', ['7', 'x']),
    'leading zeros': (['v\n7\n', 'v\n007\n'], 'utf8', ['7', '007']),
    'wide integers': (['v\n7\n', 'v\n12345678901234567890\n'], 'uint(8)', [7, 12345678901234567890]),
    'wide and negative': (['v\n-7\n', 'v\n12345678901234567890\n'], 'utf8', ['-7', '12345678901234567890']),
    'wide and float': (['v\n9007199254740993\n', 'v\n0.5\n'], 'utf8', ['9007199254740993', '0.5']),
    'dates and texts': (['v\n2024-01-02\n', 'v\nunknown\n'], 'utf8', ['2024-01-02', 'unknown']),
    'no values': (['v,w\n,1\n', 'v,w\nx,2\n'], 'utf8?', [None, 'x']),
    'a missing column': (['w\n1\n', 'v,w\n3,2\n'], 'int(8)?', [None, 3]),
    'a missing key': (['{"v": "x"}\n', '{"w": 1}\n'], 'utf8?', ['x', None]),
    'null': (['{"v": null, "w": 1}\n', '{"v": "x", "w": 2}\n'], 'utf8?', [None, 'x']),
    'numbers of JSON': (['{"v": 1}\n', '{"v": 1.5}\n'], 'float(8)', [1.0, 1.5]),
    'a date and a text': (['{"v": "2024-01-02"}\n', '{"v": "x"}\n'], 'utf8', ['2024-01-02', 'x']),
    'lists': (['{"v": []}\n', '{"v": ["x"]}\n'], 'utf8[]', [[], ['x']]),
    'objects': (['{"v": {"a": 1}}\n', '{"v": {"b": "x"}}\n'], 'msgpack', [{'a': 1}, {'b': 'x'}]),
}


@pytest.mark.parametrize('name', UNITED)
@pytest.mark.parametrize('order', [1, -1])
def test_files_of_different_types_unite(tmp_path, name, order):
    parts, type, values = UNITED[name]
    folder = tmp_path / 'parts'
    folder.mkdir()
    for number, text in enumerate(parts[::order]):
        extension = 'jsonl' if text.startswith('{') else 'csv'
        (folder / f'{number}.{extension}').write_text(text)
    done = bags.convert(folder, tmp_path / 'dataset')
    assert done.spec['v'] == type
    assert [row['v'] for row in bags.open(tmp_path / 'dataset')] == values[::order]


def test_files_without_a_common_type_need_one(tmp_path):
    folder = tmp_path / 'parts'
    folder.mkdir()
    (folder / '0.jsonl').write_text('{"v": 1}\n')
    (folder / '1.jsonl').write_text('{"v": ["x"]}\n')
    with pytest.raises(bags.SourceError, match=r"1.jsonl: .* column 'v': expected int64, .* --spec v=json"):
        bags.convert(folder, tmp_path / 'dataset')
    bags.convert(folder, tmp_path / 'dataset', spec={'v': 'json'})
    assert [row['v'] for row in bags.open(tmp_path / 'dataset')] == [1, ['x']]


def test_resume_reads_with_the_types_of_the_dataset(tmp_path):
    path, out = tmp_path / 'a.jsonl', tmp_path / 'dataset'
    path.write_text('{"id": 7, "x": 1}\n{"id": 8, "x": "a"}\n{"id": "bad", "x": 2}\n')
    spec = {'id': 'uint(2)', 'x': 'json'}
    with pytest.raises(bags.SourceError, match='row 2'):
        bags.convert(path, out, spec=spec, rename={'x': 'y'})
    path.write_text('{"id": 7, "x": 1}\n{"id": 8, "x": "a"}\n{"id": 9, "x": 2}\n')
    done = bags.convert(path, out, resume=True, rename={'x': 'y'}, check_source=False)
    assert done.spec == {'id': 'uint(2)', 'y': 'json'}
    assert list(bags.open(out)) == [{'id': 7, 'y': 1}, {'id': 8, 'y': 'a'}, {'id': 9, 'y': 2}]


def test_8000_levels_do_not_end_the_process(tmp_path):
    (tmp_path / 'a.jsonl').write_text('{"a":' + '[' * 8000 + ']' * 8000 + '}\n')
    code = "import bags\ntry: bags.convert('a.jsonl', 'out')\nexcept bags.SourceError as exc: print(exc)"
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert 'a.jsonl' in done.stdout
    assert 'line 1: expected up to 500 levels of nesting, got more' in done.stdout


NESTED = {
    'over lines': ('{"a":' + '[\n' * 600 + ']' * 600 + '}\n', 501),
    'objects': ('{"a":' * 600 + '1' + '}' * 600, 2),
    'after texts': ('{"a": "]]]", "b": "\\"]]]"}\n{"a":' + '[' * 500, 3),
    'never closed': ('{"a":' + '[' * 600, 2),
}


@pytest.mark.parametrize('name', NESTED)
def test_deep_levels_are_an_error(tmp_path, name):
    text, line = NESTED[name]
    with pytest.raises(
        bags.SourceError, match=f'a.jsonl.* line {line}: expected up to 500 levels of nesting'
    ):
        imported(tmp_path, 'a.jsonl', ('{"a": []}\n' + text).encode())


ARRAYS = [
    ('{"v": [1.5, 2, 3]}', 'array(float32,3)', np.array([1.5, 2, 3], 'f4')),
    ('{"v": [[1, 2], [3, 4]]}', 'array(uint8,2,2)', np.array([[1, 2], [3, 4]], 'u1')),
    ('{"v": "2024-01-02"}', 'array(datetime64[D])', np.datetime64('2024-01-02')),
    (
        '{"v": "2024-01-02T03:04:05+05:00"}',
        'array(datetime64[ms])',
        np.datetime64('2024-01-01T22:04:05', 'ms'),
    ),
    ('v,w\n2,1\n', 'array(float32)', np.float32(2)),
    ('v,w\n2024-01-02,1\n', 'array(datetime64[ns])', np.datetime64('2024-01-02', 'ns')),
]


@pytest.mark.parametrize(('data', 'type', 'value'), ARRAYS, ids=[type for _, type, _ in ARRAYS])
def test_arrays_have_the_given_dtype(tmp_path, data, type, value):
    name = 'a.jsonl' if data.startswith('{') else 'a.csv'
    _, rows = imported(tmp_path, name, data.encode(), spec={'v': type})
    np.testing.assert_array_equal(rows[0]['v'], value)
    assert np.asarray(rows[0]['v']).dtype == value.dtype


@pytest.mark.parametrize(
    ('data', 'type', 'said'),
    [
        ('{"v": [1.5]}', 'array(int32,1)', r'expected int32, got \[1.5\]'),
        ('{"v": [300]}', 'array(uint8,1)', r'expected uint8, got \[300\]'),
        ('{"v": ["x"]}', 'array(float32,1)', r"expected numbers, got \['x'\]"),
        ('{"v": "2024-01-02T03:04:05"}', 'array(datetime64[D])', 'expected a time as datetime64'),
    ],
)
def test_values_that_do_not_fit_an_array_are_named(tmp_path, data, type, said):
    with pytest.raises(bags.SourceError, match=f"row 0: field 'v' of type .*{said}"):
        imported(tmp_path, 'a.jsonl', data.encode(), spec={'v': type})


def test_brackets_in_texts_are_no_levels(tmp_path):
    text = '[' * 600 + '"\\' + '{' * 600
    _, rows = imported(
        tmp_path,
        'a.jsonl',
        json.dumps({'a': text, 'b': json.loads('[' * 400 + ']' * 400)}).encode(),
        spec={'b': 'json'},
    )
    assert rows[0]['a'] == text


def test_labels_join_by_key(tmp_path):
    _, _ = imported(tmp_path, 'labels.csv', b'id,label\n2,dog\n0,cat\n1,bird\n')
    bags.create_index(tmp_path / 'dataset', 'id')
    pictures = bags.from_numpy({'id': np.arange(3), 'x': np.eye(3)}, tmp_path / 'pictures')
    assert pictures.datapoints == 3
    joined = bags.join([bags.open(tmp_path / 'pictures'), bags.open(tmp_path / 'dataset')], on='id')
    assert [row['label'] for row in joined[:, ('id', 'label')]] == ['cat', 'bird', 'dog']
