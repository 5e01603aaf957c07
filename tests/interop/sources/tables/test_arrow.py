"""Parquet and Arrow files, and datasets of Hugging Face: values equal those of the format's library."""

import datetime as dt
import decimal
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.interop.open_source import open_source

pa = pytest.importorskip('pyarrow')
pytest.importorskip('pyarrow.parquet')
from pyarrow import feather, ipc  # noqa: E402
from pyarrow import parquet as pq  # noqa: E402

GOLDEN = Path(__file__).parents[1] / 'golden' / 'hf'
EXPECTED = json.loads((GOLDEN / 'expected.json').read_text())
CAT = (Path(__file__).parents[4] / 'examples' / 'data' / 'cat.jpg').read_bytes()
SPEC = {
    'amount': 'utf8', 'audio': 'audio', 'big': 'int(8)[]', 'day': 'array(datetime64[D])',
    'grid': 'array(float32,2,3)', 'half': 'float(2)', 'id': 'int(4)', 'image': 'image', 'images': 'image[]',
    'label': 'int(8)', 'labels': 'int(8)[]', 'meta_data': 'msgpack', 'nested': 'array(int64,?)[]',
    'note': 'utf8?', 'objects': 'msgpack[]', 'raw': 'bytes', 'rows': 'array(int64,?,3)', 'tags': 'utf8[]',
    'vector': 'array(float32,4)', 'video': 'video', 'when': 'array(datetime64[us])',
}  # fmt: skip
MEDIA = ('audio', 'image', 'images', 'video')


def digest(data):
    return hashlib.sha256(data).hexdigest()


def as_expected(name, value):
    """Returns a value of a field as the script of the golden samples writes it."""
    if name == 'raw':
        return digest(value)
    if name == 'when':
        return f'{value.item()}+00:00'
    if name == 'day':
        return str(value)
    if name == 'nested':
        return [each.tolist() for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize('source', ['hub', 'hub/data', 'hub/data/train-*.parquet', 'saved'])
def test_values_of_a_dataset_of_hugging_face(source, tmp_path):
    done = bags.convert(GOLDEN / source, tmp_path / 'out')
    # Statistics of Parquet do not distinguish an empty list from a missing one.
    assert done.spec == SPEC | ({} if source == 'saved' else {'nested': 'array(int64,?)[]?'})
    with bags.open(tmp_path / 'out') as dataset:
        assert len(dataset) == len(EXPECTED)
        for index, row in enumerate(EXPECTED):
            row['meta_data'] = row.get('meta data', row.get('meta_data'))
            found = dataset[index, tuple(name for name in SPEC if name not in MEDIA)]
            for name, value in found.items():
                assert as_expected(name, value) == row[name], name
            for name in ('audio', 'image', 'video'):
                assert digest(dataset.file(index, name).read()) == row[name]['bytes']
            images = [
                digest(dataset.file(index, 'images', item).read()) for item in range(len(row['images']))
            ]
            assert images == [each['bytes'] for each in row['images']]
        assert dataset.metadata == {
            'fields': {
                'label': {'classes': ['cat', 'dog']},
                'labels': {'classes': ['a', 'b']},
                'when': {'timezone': 'UTC'},
            }
        }
        assert len(dataset[0, 'video']['video']) == 2


def test_notes_say_what_changes():
    notes = open_source(GOLDEN / 'saved').notes
    assert "field 'meta data' is named 'meta_data'" in notes
    assert "field 'amount': decimal128(10, 2) becomes utf8" in notes
    assert any(note.startswith("field 'objects': list<item: struct<box: ") for note in notes)
    assert any('the zone UTC is in the metadata' in note for note in notes)


def test_one_split_at_a_time(tmp_path):
    with pytest.raises(
        bags.SourceError, match=r'expected one split, got test/data, train/data: .* of one, as'
    ):
        open_source(GOLDEN / 'splits')
    assert bags.convert(GOLDEN / 'splits/train', tmp_path / 'out').spec == {'id': 'int(4)', 'label': 'int(8)'}
    for name in ('train.parquet', 'validation.parquet'):
        pq.write_table(pa.table({'id': [1]}), tmp_path / name)
    with pytest.raises(bags.SourceError, match='expected one split, got train, validation'):
        open_source([tmp_path / 'train.parquet', tmp_path / 'validation.parquet'])
    assert open_source(tmp_path / 'train.parquet').count == 1


def test_caches_beside_a_saved_dataset_are_left_out(tmp_path):
    shutil.copytree(GOLDEN / 'saved', tmp_path / 'in')
    shutil.copy(GOLDEN / 'saved/data-00000-of-00002.arrow', tmp_path / 'in/cache-0123.arrow')
    assert open_source(tmp_path / 'in').count == len(EXPECTED)
    state = json.loads((tmp_path / 'in/state.json').read_text())
    for name in ('../data.arrow', '/etc/passwd', 'no.arrow', 3):
        state['_data_files'][0]['filename'] = name
        (tmp_path / 'in/state.json').write_text(json.dumps(state))
        with pytest.raises(bags.SourceError, match=r'state.json: expected (names of )?files beside it, got'):
            open_source(tmp_path / 'in')


def typed_table():
    time = dt.datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001
    pairs = pa.array([[('a', 1)], [], None], pa.map_(pa.string(), pa.int64()))
    tensors = np.arange(12, dtype='i2').reshape(2, 2, 3)
    return pa.table({
        'amounts': pa.array([[decimal.Decimal('1.5')], [], None]),
        'big_text': pa.array(['x', '', None], pa.large_string()),
        'days': pa.array([[dt.date(2026, 1, 2)], [], [dt.date(1969, 12, 31)]]),
        'double': [0.5, -0.0, 1e300],
        'fixed': pa.array([b'ab', b'cd', b'ef'], pa.binary(2)),
        'flags': pa.array([[True, False], [], [True]]),
        'kind': pa.array(['x', 'y', 'x']).dictionary_encode(),
        'lists': pa.array([[1, 2], [], None], pa.list_(pa.int8())),
        'maybe': pa.array([1, None, 3], pa.uint16()),
        'nothing': pa.nulls(3),
        'pairs': pairs,
        'seconds': pa.array([1, 2, 3], pa.time64('us')),
        'span': pa.array([1, None, 3], pa.duration('ms')),
        'struct': pa.array([{'a': [time], 'b': b'x'}, {'a': [], 'b': None}, {'a': None, 'b': b''}]),
        'tensor': pa.FixedShapeTensorArray.from_numpy_ndarray(np.concatenate([tensors, tensors[:1]])),
        'times': pa.array([time, None, time], pa.timestamp('ns')),
        'vectors': pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.float32(), 2))),
    })  # fmt: skip


def write_stream(table, path, batch=2):
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)


WRITERS = {
    'x.parquet': lambda table, path: pq.write_table(table, path, row_group_size=2),
    'x.feather': lambda table, path: feather.write_feather(table, str(path), compression='lz4'),
    'x.arrow': write_stream,
}


@pytest.mark.parametrize('name', WRITERS)
def test_types_of_arrow(name, tmp_path):
    table = typed_table()
    WRITERS[name](table, tmp_path / name)
    done = bags.convert(tmp_path / name, tmp_path / 'out')
    empty = '?' if name == 'x.parquet' else ''
    assert done.spec == {
        'amounts': 'utf8[]?', 'big_text': 'utf8?', 'days': f'array(datetime64[D])[]{empty}',
        'double': 'float(8)', 'fixed': 'bytes', 'flags': f'bool[]{empty}', 'kind': 'utf8',
        'lists': 'int(1)[]?', 'maybe': 'uint(2)?', 'pairs': 'msgpack?', 'seconds': 'array(timedelta64[us])',
        'span': 'array(timedelta64[ms])?', 'struct': 'msgpack' if name != 'x.parquet' else 'msgpack?',
        'tensor': 'array(int16,2,3)', 'times': 'array(datetime64[ns])?',
        'vectors': f'array(float32,2)[]{empty}',
    }  # fmt: skip
    with bags.open(tmp_path / 'out') as dataset:
        rows = table.drop_columns(['tensor', 'seconds', 'span', 'times', 'struct', 'amounts']).to_pylist()
        for index, row in enumerate(rows):
            found = dataset[index]
            assert found['maybe'] == row['maybe']
            assert found['double'] == row['double']
            assert found['kind'] == row['kind']
            assert found['fixed'] == row['fixed']
            assert found['big_text'] == row['big_text']
            assert found['pairs'] == (row['pairs'] and [list(pair) for pair in row['pairs']])
            assert (found['lists'] is None) == (row['lists'] is None)
            assert row['lists'] is None or found['lists'].tolist() == row['lists']
            assert found['flags'].tolist() == row['flags']
            assert np.array(found['days']).tolist() == row['days']
            assert np.array(found['vectors']).tolist() == row['vectors']
        assert np.array_equal(dataset.column('tensor')[1], np.arange(6, 12).reshape(2, 3))
        assert dataset.column('seconds').tolist() == [dt.timedelta(microseconds=n) for n in (1, 2, 3)]
        assert dataset.column('span')[2] == np.timedelta64(3, 'ms')
        assert dataset.column('span')[1] is None
        assert dataset.column('times')[0] == np.datetime64('2026-01-02T03:04:05.000006000')
        assert dataset[0, 'struct']['struct'] == {'a': ['2026-01-02T03:04:05.000006'], 'b': b'x'}
        assert [each and list(each) for each in dataset.column('amounts')] == [['1.5'], [], None]
    assert "column 'nothing' has no values and is left out" in open_source(tmp_path / name).notes


def test_other_types_may_be_chosen(tmp_path):
    table = pa.table({'doc': ['{"a":  1}', '[]'], 'meta': [{'a': 1}, {'a': 2}], 'ids': [[1, None], [2, 3]]})
    pq.write_table(table, tmp_path / 'x.parquet')
    spec = {'doc': 'json', 'meta': 'json', 'ids': 'msgpack'}
    bags.convert(tmp_path / 'x.parquet', tmp_path / 'out', spec=spec)
    with bags.open(tmp_path / 'out') as dataset:
        assert dataset[0] == {'doc': {'a': 1}, 'meta': {'a': 1}, 'ids': [1, None]}
        assert dataset.records('doc')[0] == b'{"a":  1}'
    done = bags.convert(tmp_path / 'x.parquet', tmp_path / 'few', spec={'doc': None, 'ids': None})
    assert done.spec == {'meta': 'msgpack'}


def with_features(table, **features):
    return table.replace_schema_metadata({'huggingface': json.dumps({'info': {'features': features}})})


def test_bad_rows_name_file_row_and_field(tmp_path):
    image = {'bytes': pa.binary(), 'path': pa.string()}
    table = pa.table({
        'id': [0, 1, 2, 3],
        'image': pa.array([
            {'bytes': CAT, 'path': '../../cat.jpg'}, {'bytes': None, 'path': '../../../etc/passwd'},
            {'bytes': b'no picture', 'path': None}, {'bytes': CAT, 'path': None},
        ], pa.struct(image)),
        'ids': [[1], [2], [3], [None, 3]],
    })  # fmt: skip
    pq.write_table(with_features(table, image={'_type': 'Image'}), tmp_path / 'x.parquet')
    with pytest.raises(
        bags.SourceError, match=r"x.parquet, row 1: field 'image' .* a reference to the file '../../../etc"
    ):
        bags.convert(tmp_path / 'x.parquet', tmp_path / 'out')
    done = bags.convert(tmp_path / 'x.parquet', tmp_path / 'out', resume=True, on_error='skip')
    assert done.datapoints == 1
    names, details = zip(*done.skipped, strict=True)
    assert [name.rpartition('/')[2] for name in names] == [f'x.parquet, row {row}' for row in (1, 2, 3)]
    assert 'a null among them' in details[2]


class Array2DType(pa.ExtensionType):
    """As `datasets` registers it when it is imported."""

    def __init__(self, text='[[2, 3], "float32"]'):
        self.text = text
        super().__init__(pa.list_(pa.list_(pa.float32())), 'datasets.features.features.Array2DExtensionType')

    def __arrow_ext_serialize__(self):
        return self.text.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(serialized.decode())


def test_arrays_of_datasets_whose_library_is_imported(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    storage = pa.array(rows.tolist(), pa.list_(pa.list_(pa.float32())))
    table = pa.table({'x': pa.ExtensionArray.from_storage(Array2DType(), storage)})
    feature = {'_type': 'Array2D', 'shape': [2, 3], 'dtype': 'float32'}
    pq.write_table(with_features(table, x=feature), tmp_path / 'x.parquet')
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'array(float32,2,3)'}) as writer:
        for row in rows:
            writer.append({'x': row})
    bags.export(bags.open(tmp_path / 'd'), tmp_path / 'out', format='parquet')

    def check(number):
        for source in (tmp_path / 'x.parquet', tmp_path / 'out'):
            bags.convert(source, tmp_path / f'{number}-{source.stem}', progress=False)
            with bags.open(tmp_path / f'{number}-{source.stem}') as dataset:
                assert dataset.spec == {'x': 'array(float32,2,3)'}
                assert np.array_equal(dataset.batch(range(2))['x'], rows)

    check(0)
    pa.register_extension_type(Array2DType())
    try:
        check(1)
    finally:
        pa.unregister_extension_type('datasets.features.features.Array2DExtensionType')


def test_features_that_lie_are_no_danger(tmp_path):
    table = pa.table({'id': [1, 2], 'text': ['a', 'b']})
    for features in (
        {'id': {'_type': 'Array2D', 'shape': [2, 'x'], 'dtype': 'float32'}},
        {'id': {'_type': 'Array2D', 'shape': [2], 'dtype': 'nope(3)'}},
        {'id': {'_type': 'Sequence'}},
        {'id': {'_type': ['Image']}},
        {'id': [[[[]]]]},
        {'id': {'_type': 'ClassLabel', 'names': 3}},
    ):
        pq.write_table(with_features(table, **features), tmp_path / 'x.parquet')
        assert open_source(tmp_path / 'x.parquet').spec == {'id': 'int(8)', 'text': 'utf8'}
    for facts in (
        b'3',
        b'{"spec": {"id": 3}, "metadata": {}}',
        b'{"spec": {"id": "jpeg"}, "metadata": {"fields": 3}}',
    ):
        pq.write_table(table.replace_schema_metadata({'bags': facts}), tmp_path / 'x.parquet')
        assert open_source(tmp_path / 'x.parquet').spec == {'id': 'int(8)', 'text': 'utf8'}


def test_files_of_other_columns_are_refused(tmp_path):
    pq.write_table(pa.table({'id': [1], 'a': ['x']}), tmp_path / '0.parquet')
    pq.write_table(pa.table({'id': [1.5], 'a': ['x']}), tmp_path / '1.parquet')
    with pytest.raises(
        bags.SourceError, match=r"1.parquet: column 'id': expected int64, as in .*0.parquet, got double"
    ):
        open_source(tmp_path)
    pq.write_table(pa.table({'id': [1]}), tmp_path / '1.parquet')
    with pytest.raises(bags.SourceError, match=r"1.parquet: column 'a': expected string, .* got no column"):
        open_source(tmp_path)


def test_damaged_files(tmp_path):
    source = tmp_path / 'in'
    source.mkdir()
    for number in range(3):
        pq.write_table(
            pa.table({'id': range(100 * number, 100 * number + 100)}), source / f'{number}.parquet'
        )
    data = (source / '1.parquet').read_bytes()
    (source / '1.parquet').write_bytes(data[:-20])
    with pytest.raises(bags.SourceError, match=r'1.parquet: cannot be read as Parquet'):
        bags.convert(source, tmp_path / 'out')
    done = bags.convert(source, tmp_path / 'out', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (200, 1)
    (source / '1.parquet').write_bytes(b'PAR1' + bytes(30) + data[34:])  # The pages are damaged.
    with pytest.raises(bags.SourceError, match=r'1.parquet, rows 0 to 99: cannot be read as parquet: '):
        bags.convert(source, tmp_path / 'other')
    (tmp_path / 'old.feather').write_bytes(b'FEA1....')
    with pytest.raises(bags.SourceError, match='version 1 of Feather'):
        open_source(tmp_path / 'old.feather')


def overwrite(path, place, data):
    """Overwrites bytes in a new file, as the old one may be mapped. Returns the content before."""
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:place] + data + whole[place + len(data) :])
    return whole


@pytest.mark.parametrize('name', WRITERS)
def test_a_damaged_part_of_a_file_is_skipped(name, tmp_path):
    table = pa.table({'id': range(6), 'text': [f'text {index} of a row' for index in range(6)]})
    path = tmp_path / name
    if name == 'x.parquet':  # In groups of 2 rows, like the batches of the others.
        pq.write_table(table, path, row_group_size=2, write_page_checksum=True, compression='none')
        whole = overwrite(path, path.read_bytes().index(b'text 2 of a row'), b'other')
    else:
        with (ipc.new_stream if name == 'x.arrow' else ipc.new_file)(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        # The ends of the texts in the second batch: an offset far outside the file.
        ends = np.array([15, 30], '<i4').tobytes()
        place = path.read_bytes().index(ends, path.read_bytes().index(ends) + 1)
        whole = overwrite(path, place, b'\xff\xff\xff\x7f')
    with pytest.raises(bags.SourceError, match=rf'{name}, rows 2 to 3: cannot be read as '):
        bags.convert(path, tmp_path / 'out')
    done = bags.convert(path, tmp_path / 'some', on_error='skip')
    assert [where for where, _ in done.skipped] == [f'{path}, rows 2 to 3']
    with bags.open(tmp_path / 'some') as dataset:
        assert dataset.column('id').tolist() == [0, 1, 4, 5]
    again = bags.convert(path, tmp_path / 'some', on_error='skip', resume=True)
    assert (again.datapoints, again.skipped) == (4, done.skipped)
    overwrite(path, 0, whole)
    assert bags.convert(path, tmp_path / 'out', resume=True).datapoints == 6


@pytest.mark.slow(all_but='x.feather')
@pytest.mark.parametrize('name', ['x.feather', 'x.arrow'])
def test_changed_bytes_of_arrow_do_not_end_the_process(name, kit, tmp_path):
    table = pa.table({'text': ['a', 'bc'] * 8, 'lists': [[1], []] * 8, 'kind': pa.array(['x', 'y'] * 8)})
    table = table.set_column(2, 'kind', table['kind'].dictionary_encode())
    feather.write_feather(table, str(tmp_path / name), compression='uncompressed')
    if name == 'x.arrow':
        write_stream(table, tmp_path / name)
    code = """
import pathlib, sys, bags
path, out = pathlib.Path(sys.argv[1]), sys.argv[2]
whole = path.read_bytes()
for place in range(8, len(whole), 23):
    path.unlink()
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x7f]) + whole[place + 1 :])
    try:
        bags.convert(path, out, mode='overwrite', progress=False)
    except bags.SourceError as error:
        assert path.name in error.name
print('alive')
"""
    assert kit.python(code, tmp_path / name, tmp_path / 'out').decode() == 'alive\n'


def test_changed_bytes_of_a_footer_do_not_end_the_process(kit, tmp_path):
    """pyarrow aborts, e.g., if it is asked for a column that has no metadata or another type."""
    table = pa.table({'id': pa.array([1, 2, None]), 'text': ['x', 'yy', 'z'], 'lists': [[1.0], [], [2.0]]})
    pq.write_table(table, tmp_path / 'a.parquet')
    code = """
import pathlib, sys, bags
from bags.interop.open_source import open_source
path = pathlib.Path(sys.argv[1])
whole = path.read_bytes()
errors = 0
for offset in range(whole.index(b'schema'), len(whole), 3):
    path.unlink()
    path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1 << offset % 7]) + whole[offset + 1 :])
    try:
        open_source(path)
    except bags.SourceError as error:
        assert path.name in error.name
        errors += 1
print('alive' if errors > 50 else errors)
"""
    assert kit.python(code, tmp_path / 'a.parquet').decode() == 'alive\n'


@pytest.mark.parametrize('name', ['x.feather', 'x.arrow'])
def test_a_damaged_name_of_a_column_names_the_file(name, tmp_path):
    table, sources = pa.table({'id': [1, 2], 'text': ['x', 'y']}), tmp_path / 'in'
    sources.mkdir()
    for number in range(2):
        path = sources / f'{number}-{name}'
        if name == 'x.arrow':
            write_stream(table, path)
        else:
            feather.write_feather(table, str(path), compression='uncompressed')
    whole = path.read_bytes()
    offsets = [offset for offset in range(len(whole)) if whole.startswith(b'text', offset)]
    assert len(offsets) == 1 + (name == 'x.feather')  # A file has its schema at the start and in the footer.
    for offset in offsets:
        for letter in b'\xff\0x.':
            overwrite(path, offset, bytes([letter]))
            with pytest.raises(bags.SourceError, match=f'1-{name}'):
                bags.convert(sources, tmp_path / 'out')
            if name == 'x.feather' or letter == 0xFF:
                out = tmp_path / f'out {offset} {letter}'
                done = bags.convert(sources, out, on_error='skip')
                assert (done.datapoints, [where for where, _ in done.skipped]) == (2, [str(path)])
            overwrite(path, 0, whole)


@pytest.mark.parametrize('name', WRITERS)
def test_claims_of_many_rows_are_refused(name, tmp_path):
    few, many = tmp_path / 'few' / name, tmp_path / 'many' / name
    few.parent.mkdir()
    many.parent.mkdir()
    if name == 'x.parquet':
        pq.write_table(pa.table({'x': [1.5] * 3}), few)
        whole = few.read_bytes()
        length = int.from_bytes(whole[-8:-4], 'little')
        # 2**40 in place of each 3 in the footer: the rows of the file and of the row group, and the values.
        footer = whole[-8 - length : -8].replace(b'\x16\x06', b'\x16' + b'\x80' * 5 + b'\x40')
        many.write_bytes(whole[: -8 - length] + footer + len(footer).to_bytes(4, 'little') + whole[-4:])
        assert pq.ParquetFile(many).metadata.num_rows == 1 << 40
    else:
        new = ipc.new_stream if name == 'x.arrow' else ipc.new_file
        for path, count in (few, 3), (many, 1 << 40):
            runs = pa.RunEndEncodedArray.from_arrays(pa.array([count]), pa.array([1.5]))
            batch = pa.record_batch([runs], ['x'])
            with new(path, batch.schema, options=ipc.IpcWriteOptions(allow_64bit=True)) as writer:
                writer.write_batch(batch)
    assert open_source(few).count == 3
    expected = r'many/.*: expected up to \d+ bytes of values in \d+ bytes, got \d+ in 1099511627776 rows'
    with pytest.raises(bags.SourceError, match=expected):
        bags.convert(many, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
    done = bags.convert(many, tmp_path / 'out', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (0, 1)


KILLED = """
import os, signal, sys, bags
from bags.interop.open_source import open_source
source = open_source(sys.argv[1])
load, count = source.load, 0
def counted(entry):
    global count
    count += 1
    if count == 700:
        os.kill(os.getpid(), signal.SIGKILL)
    return load(entry)
source.load = counted
bags.convert(source, sys.argv[2], shard_length=100)
"""


@pytest.mark.slow(all_but='x.parquet')
@pytest.mark.parametrize('name', WRITERS)
def test_a_killed_import_resumes(name, kit, tmp_path):
    table = pa.table({'id': range(1000), 'text': [f'text {index}' for index in range(1000)]})
    (tmp_path / 'in').mkdir()
    for number in range(2):
        WRITERS[name](table.slice(500 * number, 500), tmp_path / 'in' / f'{number}{name}')
    process = subprocess.run(
        [sys.executable, '-c', KILLED, tmp_path / 'in', tmp_path / 'out'], cwd=kit.ROOT, check=False
    )
    assert process.returncode < 0
    done = bags.convert(tmp_path / 'in', tmp_path / 'out', resume=True, shard_length=100)
    assert done.datapoints == 1000
    with bags.open(tmp_path / 'out') as dataset:
        assert pa.table(dataset).equals(table.cast(dataset.to_arrow().schema), check_metadata=False)


MEMORY = """
import sys, bags
bags.convert(sys.argv[1], sys.argv[2])
with open('/proc/self/status') as status:
    print(next(line for line in status if line.startswith('VmHWM')).split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path('/proc/self/status').exists(), reason='needs /proc')
@pytest.mark.parametrize('name', ['x.parquet', 'x.arrow'])
def test_memory_is_flat_in_the_size_of_the_source(name, kit, tmp_path):
    peaks = []
    for count in (5_000, 20_000):  # 50 and 200 MB.
        blobs = pa.array([bytes([index % 256]) * 10_000 for index in range(count)])
        path = tmp_path / name
        if name == 'x.parquet':  # One row group.
            pq.write_table(pa.table({'blob': blobs}), path, compression='none', use_dictionary=False)
        else:
            write_stream(pa.table({'blob': blobs}), path, 1000)  # As `datasets` does.
        peaks.append(int(kit.python(MEMORY, path, tmp_path / f'out{count}')) << 10)
    assert peaks[1] < peaks[0] + 30e6


def test_without_pyarrow(kit):
    code = """
import sys
sys.modules['pyarrow'] = None
import bags
try:
    bags.convert(sys.argv[1], 'nowhere')
except bags.MissingDependencyError as exc:
    print(exc)
"""
    assert (
        kit.python(code, GOLDEN / 'saved').decode().strip()
        == "pyarrow is needed for this: pip install 'bags[hf]'"
    )


@pytest.mark.parametrize('name', WRITERS)
def test_urls(name, tmp_path):
    import fsspec

    table = pa.table({'id': range(3000), 'note': [None, 'x', ''] * 1000})
    WRITERS[name](table, tmp_path / name)
    fsspec.filesystem('memory').pipe_file(f'/tables/{name}', (tmp_path / name).read_bytes())
    done = bags.convert(f'memory://tables/{name}', tmp_path / 'out')
    assert done.spec == {'id': 'int(8)', 'note': 'utf8?'}
    with bags.open(tmp_path / 'out') as dataset:
        assert pa.table(dataset).to_pydict() == table.to_pydict()


def test_without_pandas(kit, tmp_path):
    table = pa.table({'x': [1, 2], 'y': [0.5, None], 'z': [True, False], 'words': [['a'], []]})
    pq.write_table(table, tmp_path / 'plain.parquet')
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == 'pandas':
            raise ModuleNotFoundError("No module named 'pandas'", name='pandas')

sys.meta_path.insert(0, Absent())
import bags
bags.convert(*sys.argv[1:], progress=False)
with bags.open(sys.argv[2]) as dataset:
    print(dataset.to_arrow().read_all().num_rows)
"""
    assert kit.python(code, tmp_path / 'plain.parquet', tmp_path / 'out').decode() == '2\n'


@pytest.mark.skipif(int(pa.__version__.split('.')[0]) < 24, reason='pyarrow 24 slices views of lists')
@pytest.mark.parametrize('make', [pa.list_view, pa.large_list_view])
def test_views_of_lists(make, tmp_path):
    one, nested = make(pa.int32()), make(make(pa.int32()))
    shared = pa.ListViewArray.from_arrays(pa.array([2, 0, 0]), pa.array([1, 2, 1]), pa.array([10, 20, 30]))
    columns = [
        pa.array([[1], [2, 3], []], one), pa.array([[1], None, [], [2]], one), shared,
        pa.array([['a'], ['b', 'c']], make(pa.string())), pa.array([[[1], []], [[2, 3]]], nested),
        pa.array([[[1], []], [[2, 3]]], pa.list_(one)), pa.array([[0], [1], [2, 3], []], one)[1:],
    ]  # fmt: skip
    for number, column in enumerate(columns):
        with ipc.new_file(tmp_path / 'a.arrow', pa.schema([('x', column.type)])) as file:
            file.write_table(pa.table({'x': column}))
        bags.convert(tmp_path / 'a.arrow', tmp_path / f'{number}', progress=False)
        with bags.open(tmp_path / f'{number}') as dataset:
            found = [
                row['x'] if row['x'] is None else [np.asarray(each).tolist() for each in row['x']]
                for row in dataset
            ]
        assert found == column.to_pylist()


def test_columns_in_names_of_folders_are_left_out_with_a_note(tmp_path):
    table = pa.table({'x': [1, 2], 'label': ['a', 'b'], 'fold': [1, 2]})
    pq.write_to_dataset(table, tmp_path / 'a', partition_cols=['label', 'fold'])
    source = open_source(tmp_path / 'a')
    assert source.spec == {'x': 'int(8)'}
    said = 'column {!r}, which is in the names of folders, is left out'
    assert [note for note in source.notes if 'folders' in note] == [said.format('fold'), said.format('label')]


def test_names_of_other_files_of_a_dataset_are_changed(tmp_path):
    pq.write_table(
        pa.table({name: [1] for name in ('refs', 'aux', 'limits.x', 'Refs')}), tmp_path / 'a.parquet'
    )
    bags.convert(tmp_path / 'a.parquet', tmp_path / 'b', progress=False)
    with bags.open(tmp_path / 'b') as dataset:
        assert dataset[0] == {'_refs': 1, '_aux': 1, '_limits.x': 1, '_Refs_2': 1}


def test_a_file_without_values_is_named(tmp_path):
    pq.write_table(pa.table({'x': pa.nulls(3)}), tmp_path / 'a.parquet')
    with pytest.raises(
        bags.SourceError, match=r"a\.parquet: expected a column with values, got 'x' without any"
    ):
        bags.convert(tmp_path / 'a.parquet', tmp_path / 'out')


def test_bool8_and_time_zones_of_items(tmp_path):
    times = pa.array([[0, 1], [2]], pa.list_(pa.timestamp('us', 'Europe/Berlin')))
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
    pq.write_table(pa.table({'flag': flags, 'times': times}), tmp_path / 'a.parquet')
    source = open_source(tmp_path / 'a.parquet')
    assert source.spec == {'flag': 'bool', 'times': 'array(datetime64[us])[]'}
    assert source.metadata['fields']['times'] == {'timezone': 'Europe/Berlin'}
    assert any("field 'times': times are in UTC" in note for note in source.notes)
    bags.convert(source, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert [row['flag'] for row in dataset] == [False, True]


def test_bytes_that_are_images_have_their_type(tmp_path):
    jpeg, png = (bytes(bags.encoders[format](np.zeros((4, 4, 3), np.uint8))) for format in ('jpeg', 'png'))
    columns = {
        'photo': [jpeg, None, jpeg],
        'mask': [png] * 3,
        'mixed': [jpeg, png, png],
        'raw': [b'a', b'b', b''],
    }
    pq.write_table(pa.table(columns), tmp_path / 'x.parquet')
    done = bags.convert(tmp_path / 'x.parquet', tmp_path / 'out')
    assert done.spec == {'photo': 'jpeg?', 'mask': 'png', 'mixed': 'bytes', 'raw': 'bytes'}
    assert "field 'photo': bytes become jpeg, as the first values are JPEG" in done.notes
    assert bags.open(tmp_path / 'out')[0, 'mask']['mask'].shape == (4, 4, 3)


def test_a_later_value_that_is_no_image_raises(tmp_path):
    jpeg = bytes(bags.encoders['jpeg'](np.zeros((4, 4, 3), np.uint8)))
    values = [jpeg] * 1000 + [b'no image']
    pq.write_table(pa.table({'photo': values}), tmp_path / 'x.parquet')
    message = (
        r"x.parquet, row 1000: field 'photo': expected JPEG, as the first values are, got bytes .*photo=bytes"
    )
    with pytest.raises(bags.SourceError, match=message):
        bags.convert(tmp_path / 'x.parquet', tmp_path / 'out')
    done = bags.convert(tmp_path / 'x.parquet', tmp_path / 'whole', spec={'photo': 'bytes'})
    assert (done.datapoints, done.spec['photo']) == (1001, 'bytes')
    done = bags.convert(tmp_path / 'x.parquet', tmp_path / 'part', on_error='skip')
    assert (done.datapoints, len(done.skipped)) == (1000, 1)
