"""Ordinary mistakes, and the errors that a user sees: what is wrong, and what is probably meant."""

import datetime as dt
import re
from pathlib import Path

import numpy as np
import pytest

import bags

SPEC = {'number': 'int', 'text': 'utf8', 'photo': 'jpeg', 'vector': 'array(float32,3)'}
OPTIONAL = {'json': 'json?', 'time': 'array(datetime64[us])?'}
PIXELS = np.zeros((8, 8, 3), np.uint8)
DATAPOINT = {'number': 1, 'text': 'x', 'photo': PIXELS, 'vector': np.zeros(3, np.float32)}
FIELDS = "the fields are 'number', 'text', 'photo', 'vector'"


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp('mistakes') / 'photos'
    with bags.DatasetWriter(path, SPEC) as writer:
        for number in range(4):
            writer.append({**DATAPOINT, 'number': number})
    with bags.open(path) as opened:
        yield opened


READS = {
    'field': (lambda d: d[0, 'txt'], KeyError, f"no field 'txt' (perhaps 'text'); {FIELDS}"),
    'case': (lambda d: d.batch([0], 'Text'), KeyError, f"no field 'Text' (perhaps 'text'); {FIELDS}"),
    'column': (lambda d: d.column('zzz'), KeyError, f"no field 'zzz'; {FIELDS}"),
    'index': (lambda d: d[4], IndexError, 'index 4 out of range [-4, 4)'),
    'negative': (lambda d: d[-5], IndexError, 'index -5 out of range [-4, 4)'),
    'batch': (lambda d: d.batch([0, 99]), IndexError, 'indices[1] = 99 out of range [-4, 4)'),
    'name': (lambda d: d['text'], TypeError, "expected an integer, got 'text' (dataset.column('text')"),
    'float': (lambda d: d[1.0], TypeError, 'expected an integer, got float'),
    'words': (lambda d: d.batch('text'), TypeError, 'indices: expected integers, got str'),
    'view': (lambda d: d[0:3]['text'], TypeError, 'reads a whole column'),
    'statistics': (
        lambda d: bags.statistics(d, ['text']), TypeError, "field 'text' of type utf8 has no numbers"
    ),
    'loader path': (lambda d: bags.Loader('a/b', 8), TypeError, "got str; bags.open('a/b') opens a dataset"),
    'num_workers': (lambda d: bags.Loader(d, 8, num_workers=2), TypeError, "'num_workers': use workers"),
    'shufle': (lambda d: bags.Loader(d, 8, shufle=True), TypeError, "did you mean 'shuffle'? Expected"),
    'loader field': (
        lambda d: next(iter(bags.Loader(d, 2, fields=('foto',)))), KeyError, "'foto' (perhaps 'photo')"
    ),
    'batch_size': (lambda d: bags.Loader(d, 0), ValueError, 'batch_size: expected at least 1, got 0'),
    'attribute': (
        lambda d: d.text, AttributeError, "fields are no attributes: dataset[index, 'text'] reads one value"
    ),
    'near attribute': (
        lambda d: d[:2].numbers, AttributeError, "no attribute 'numbers' (perhaps 'number'); fields are"
    ),
    'method': (lambda d: d.selct, AttributeError, 'did you mean select?'),
    'shape': (lambda d: d.shape, AttributeError, 'did you mean len(dataset)?'),
    'save_to_disk': (
        lambda d: d.save_to_disk, AttributeError, 'did you mean dataset.save(path, link=False)?'
    ),
    'field()': (lambda d: d.field('text'), AttributeError, 'did you mean dataset.records(field)?'),
    'items()': (lambda d: d.items('text'), AttributeError, 'did you mean dataset.records(field)?'),
    'owner()': (lambda d: d.owner('text', 0), AttributeError, 'mean dataset.datapoint_of(field, item)?'),
    'Written': (
        lambda d: bags.types.Written, AttributeError, 'did you mean bags.types.WriteResult?'
    ),
    'Sequential': (
        lambda d: bags.samplers.Sequential(4), AttributeError, 'did you mean shuffle=False of a Loader?'
    ),
    'iloc': (lambda d: d.iloc, AttributeError, 'did you mean dataset[index]?'),
    'map': (lambda d: d.map, AttributeError, 'did you mean bags.copy(dataset, path, add=…) to keep'),
    'to_pandas': (lambda d: d.to_pandas, AttributeError, 'did you mean dataset.to_arrow_dataset()?'),
    'train_test_split': (lambda d: d.train_test_split, AttributeError, "dataset.split({'train': 0.9"),
    'mask': (lambda d: d.filter(np.ones(4, bool)), TypeError, 'dataset.select takes indices or a mask'),
    'split': (lambda d: bags.open('x', split='train'), TypeError, "'split': use the path of the split"),
    'streaming': (lambda d: bags.open('x', streaming=True), TypeError, "'streaming': use no option"),
    'generator': (lambda d: bags.Loader(d, 8, generator=1), TypeError, "'generator': use seed"),
    'bags.from_pandas': (lambda d: bags.from_pandas, AttributeError, 'did you mean bags.from_numpy'),
    'bags.concatenate_datasets': (lambda d: bags.concatenate_datasets, AttributeError, 'bags.concat?'),
    'bags.load': (lambda d: bags.load('x'), AttributeError, 'did you mean bags.open?'),
    'bags.Dataloader': (lambda d: bags.Dataloader, AttributeError, 'did you mean bags.Loader?'),
    'bags.filter': (lambda d: bags.filter(d, bool), AttributeError, 'did you mean dataset.filter?'),
    'bags.windows': (lambda d: bags.windows(d, 4), AttributeError, 'did you mean dataset.windows?'),
}  # fmt: skip


@pytest.mark.parametrize('mistake', READS)
def test_reading(dataset, mistake):
    call, error, message = READS[mistake]
    with pytest.raises(error, match=re.escape(message)):
        call(dataset)


def test_errors_in_functions_name_datapoints(dataset):
    with pytest.raises(KeyError) as caught:
        next(iter(bags.Loader(dataset, 2, shuffle=False, transform=lambda batch: batch['nope'])))
    assert caught.value.__notes__ == ['in transform of batch 0 of epoch 0: datapoints 0, 1']
    with pytest.raises(KeyError) as caught:
        dataset.filter(lambda datapoint: datapoint['nope'] == 1)
    assert 'for datapoint 0 of <bags.DatasetReader' in caught.value.__notes__[0]


VALUES = {
    'str': ({'number': 'one'}, "'number' of type int: TypeError: expected an integer, got str"),
    'fraction': ({'number': 1.5}, "'number' of type int: TypeError: expected an integer, got float"),
    'unknown': ({'zz': 1}, "field 'zz' is not in the spec, which has 'json', 'number', 'photo', 'text'"),
    'misspelled': ({'nubmer': 1}, "field 'nubmer' is not in the spec (perhaps 'number'), which has"),
    'none': ({'text': None}, "'text' of type utf8: TypeError: expected str, got NoneType; utf8? takes None"),
    'shape': ({'vector': np.zeros(4, np.float32)}, 'expected shape (3,), got (4,)'),
    'dtype': ({'vector': np.zeros(3)}, "np.asarray(value, 'float32') converts it"),
    'float image': (
        {'photo': PIXELS / 255}, 'expected an image of uint8, got ndarray of float64; (255 * value).astype('
    ),
    'channels': ({'photo': np.zeros((3, 8, 8), np.uint8)}, 'np.moveaxis(value, 0, -1) moves the channels'),
    'digits': ({'number': '1'}, 'expected an integer, got str; int(value) converts it'),
    'nan': ({'number': float('nan')}, 'got float (nan); a missing value is None, in a field whose type'),
    'Path': ({'text': Path('x')}, 'Path; str(value) converts it'),
    'datetime': (
        {'text': dt.datetime(2026, 1, 2)}, 'expected str, got datetime; utf8 holds value.isoformat()'  # noqa: DTZ001
    ),
    'timedelta': ({'number': dt.timedelta(1)}, 'got timedelta; float holds value.total_seconds()'),
    'date': ({'json': dt.date(2026, 1, 2)}, 'expected plain values, got date; utf8 holds value.isoformat()'),
    'datetime array': (
        {'time': dt.datetime(2026, 1, 2)}, 'got datetime of object; np.datetime64(value) converts it'  # noqa: DTZ001
    ),
    'path': ({'photo': 'nope.jpg'}, "No such file or directory: 'nope.jpg'"),
}  # fmt: skip


@pytest.mark.parametrize('mistake', VALUES)
def test_writing(tmp_path, mistake):
    values, message = VALUES[mistake]
    with (
        bags.DatasetWriter(tmp_path / 'x', SPEC | OPTIONAL) as writer,
        pytest.raises(bags.EncodeError, match=re.escape(message)),
    ):
        writer.append(DATAPOINT | values)


def test_missing_values(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'int', 'b': 'utf8'}) as writer:
        with pytest.raises(bags.EncodeError, match=r"'b' of type utf8: .* missing; the datapoint has 'a'"):
            writer.append({'a': 1})
        with pytest.raises(bags.EncodeError, match=r"'A' is not in the spec \(perhaps 'a'\)"):
            writer.append({'A': 1, 'b': 'x'})


TYPES = {
    'string': '(perhaps utf8)',
    'integer': '(perhaps int)',
    'int64': '(perhaps int(8))',
    'int32[]': '(perhaps int(4)[])',
    'float32': '(perhaps float(4))',
    'np.ndarray': '(perhaps array)',
    'mp3': '(perhaps audio)',
    'datetime': '(perhaps array(datetime64[us]))',
    'timestamp[]': '(perhaps array(datetime64[us])[])',
    'date': '(perhaps array(datetime64[D]))',
    'timedelta': '(perhaps array(timedelta64[us]))',
    'datetime64[ns]': '(perhaps array(datetime64[ns]))',
    'category': '(perhaps int)',
    'list[int]': '(perhaps int[])',
    'list[str]': '(perhaps utf8[])',
    'Optional[int]': '(perhaps int?)',
    'jpeg(95': '(perhaps jpeg(95))',
    'array(float33,3)': "expected a NumPy dtype, not 'float33'",
    'utf8[][]': 'a type like format, format(arg,arg), format[] or format?',
    int: "(perhaps 'int')",
    str: "(perhaps 'utf8')",
    dt.datetime: "(perhaps 'array(datetime64[us])')",
}


@pytest.mark.parametrize('given', TYPES, ids=str)
def test_types(tmp_path, given):
    with pytest.raises(bags.SpecError, match=re.escape(TYPES[given])) as caught:
        bags.DatasetWriter(tmp_path / 'x', {'a': given})
    assert caught.value.field == 'a'
    assert not (tmp_path / 'x').exists()


def test_lists_as_types(tmp_path):
    for given in (['int'], [int]):
        with pytest.raises(bags.SpecError, match=re.escape('(perhaps int[])')):
            bags.DatasetWriter(tmp_path / 'x', {'a': given})


def test_tables_of_other_libraries(dataset, tmp_path):
    pd = pytest.importorskip('pandas')
    table, spec = pd.DataFrame({'a': [1, 2]}), {'a': 'int'}
    for columns in (table, {'a': [1, 2]}):
        with pytest.raises(TypeError, match=r'expected datapoints, got a \w+ of columns; bags.from_numpy'):
            bags.write(columns, tmp_path / 'x', spec)
    assert not (tmp_path / 'x').exists()
    assert bags.write(table.to_dict('records'), tmp_path / 'x', spec).datapoints == 2
    with bags.DatasetWriter(tmp_path / 'y', spec) as writer:
        with pytest.raises(TypeError, match=r'got Series; convert it with dict\(value\)'):
            writer.append(table.iloc[0])
        writer.append(dict(table.iloc[0]))
    with pytest.raises(TypeError, match=r'join, dataset 1: expected a dataset, got a 0 1 1 2$'):
        bags.join([dataset, table])


def test_errors_of_properties_are_their_own(dataset):
    class Broken(type(dataset[:2])):
        @property
        def broken(self):
            return {}.nothing

    view = object.__new__(Broken)
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'nothing'"):
        _ = view.broken
    assert not hasattr(view, '_nothing')


def test_nested_fields(tmp_path):
    with pytest.raises(bags.SpecError, match='fields are not nested'):
        bags.DatasetWriter(tmp_path / 'x', {'obs': {'image': 'jpeg'}})


def test_paths(dataset, tmp_path):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'file.csv').write_text('a')
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other/file.csv').write_text('a')
    for path, error, message in (
        (tmp_path / 'nope', FileNotFoundError, 'No such file or directory'),
        (tmp_path / 'empty', FileNotFoundError, 'no dataset here: expected spec.json, or shard folders'),
        (tmp_path / 'other', FileNotFoundError, '000001, … (bags.convert imports other formats)'),
        (tmp_path / 'file.csv', NotADirectoryError, 'expected a dataset, which is a folder, got a file'),
        ('hf://datasets/x', ValueError, 'expected hf://datasets/OWNER/NAME[@REVISION]/PATH'),
    ):
        with pytest.raises(error, match=re.escape(message)):
            bags.open(path)
    with pytest.raises(FileExistsError, match='resume=True appends'):
        bags.DatasetWriter(dataset.path, SPEC)


def test_closed(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer:
        writer.append(DATAPOINT)
    with pytest.raises(ValueError, match='is closed'):
        writer.append(DATAPOINT)
    reader = bags.open(tmp_path / 'x')
    reader.close()
    with pytest.raises(ValueError, match='is closed'):
        reader[0]
