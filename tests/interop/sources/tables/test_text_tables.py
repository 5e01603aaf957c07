"""CSV and JSONL files as datasets: types, notes, and errors that name the line."""

import gzip

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


def test_labels_join_by_key(tmp_path):
    _, _ = imported(tmp_path, 'labels.csv', b'id,label\n2,dog\n0,cat\n1,bird\n')
    bags.create_index(tmp_path / 'dataset', 'id')
    pictures = bags.from_numpy({'id': np.arange(3), 'x': np.eye(3)}, tmp_path / 'pictures')
    assert pictures.datapoints == 3
    joined = bags.join([bags.open(tmp_path / 'pictures'), bags.open(tmp_path / 'dataset')], on='id')
    assert [row['label'] for row in joined[:, ('id', 'label')]] == ['cat', 'bird', 'dog']
