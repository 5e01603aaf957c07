"""Export as Parquet: types and values are kept, and Hugging Face's datasets finds its features."""

import json
from pathlib import Path

import numpy as np
import pytest

import bags

pa = pytest.importorskip('pyarrow')
from pyarrow import parquet as pq  # noqa: E402

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / 'tests/interop/sources/golden/hf'
CAT = (ROOT / 'examples/data/cat.jpg').read_bytes()
FILM = (ROOT / 'examples/data/bunny.mp4').read_bytes()
SOUND = (ROOT / 'examples/data/austen-1.flac').read_bytes()
SPEC = {
    'bare': 'array(float16)', 'big': 'int(16)', 'clips': 'mp4[]', 'complex': 'array(complex64,2)',
    'day': 'array(datetime64[D])', 'doc': 'json', 'empty': 'array(int8,0,2)', 'film': 'video',
    'flags': 'array(bool,3)', 'hour': 'array(datetime64[h])?', 'label': 'int(2)', 'names': 'array(U5,2)',
    'photo': 'jpeg?', 'photos': 'image[]?', 'ragged': 'array(float32,?,3)', 'raggeds': 'array(int16,2,?)[]?',
    'reverse': 'array(>i4,2)', 'sound': 'flac', 'span': 'array(timedelta64[ms])', 'tree': 'tree',
    'volume': 'array(uint8,2,1,2)', 'when': 'array(datetime64[us])?',
}  # fmt: skip


def row(index):
    return {
        'bare': np.float16(index / 4),
        'big': 2**100 + index,
        'clips': [FILM] * (index % 2),
        'complex': np.array([index, 1j * index], 'c8'),
        'day': np.datetime64(index, 'D'),
        'doc': {'a': [index, None, 'ä']},
        'empty': np.zeros((0, 2), 'i1'),
        'film': FILM,
        'flags': np.arange(3) < index % 4,
        'hour': np.datetime64(index, 'h') if index % 2 else None,
        'label': index % 3,
        'names': np.array(['é', f'{index}'], 'U5'),
        'photo': CAT if index % 3 else None,
        'photos': [CAT] * (index % 3) if index % 4 else None,
        'ragged': np.arange(3 * (index % 4), dtype='f4').reshape(-1, 3),
        'raggeds': [np.full((2, item), index, 'i2') for item in range(index % 5)] if index % 5 != 4 else None,
        'reverse': np.array([index, -index], '>i4'),
        'sound': SOUND,
        'span': np.timedelta64(index, 'ms'),
        'tree': {'x': np.arange(index % 3)},
        'volume': np.full((2, 1, 2), index, 'u1'),
        'when': np.datetime64(index, 'us') if index % 2 else None,
    }


def records(dataset, name):
    if not dataset.schema[name].sequence:
        return list(dataset.records(name))
    present = [value is not None for value in dataset.column(name)]
    return present, dataset.lengths(name).tolist(), list(dataset.records(name))


def assert_same(first, other):
    assert first.spec == other.spec
    assert first.metadata == other.metadata
    for name in first.spec:
        assert records(first, name) == records(other, name), name


@pytest.mark.slow
@pytest.mark.parametrize('options', [{}, {'shard_length': 3}, {'shard_size': 100_000}])
def test_types_names_and_records_come_back(options, kit, tmp_path):
    metadata = {'robot': 'arm', 'fields': {'label': {'classes': ['a', 'b', 'c']}, 'nums': {'rate': 50}}}
    rows = [row(index) | kit.make_row(index) for index in range(8)]
    path = kit.fill(tmp_path / 'in', rows, SPEC | kit.SPEC, metadata=metadata)
    files = bags.export(path, tmp_path / 'parquet', format='parquet', **options).shards
    names = sorted(file.name for file in (tmp_path / 'parquet').iterdir())
    assert names == [f'{number:06}.parquet' for number in range(files)]
    assert files == {'': 1, 'shard_length': 3, 'shard_size': 8}[next(iter(options), '')]
    done = bags.convert(tmp_path / 'parquet', tmp_path / 'out')
    assert done.datapoints == 8
    with bags.open(path) as before, bags.open(tmp_path / 'out') as after:
        assert_same(before, after)


def test_columns_and_features_are_those_that_hugging_face_writes(tmp_path):
    bags.convert(GOLDEN / 'saved', tmp_path / 'in')
    bags.export(tmp_path / 'in', tmp_path / 'parquet', format='parquet')
    found = pq.read_schema(tmp_path / 'parquet/000000.parquet')
    wanted = pq.read_schema(GOLDEN / 'hub/data/train-00000-of-00002.parquet')
    features, expected = (
        json.loads(schema.metadata[b'huggingface'])['info']['features'] for schema in (found, wanted)
    )
    same = (
        'audio', 'day', 'grid', 'id', 'image', 'images', 'label', 'labels', 'nested', 'note', 'raw', 'rows',
        'tags', 'vector', 'video',
    )  # fmt: skip
    for name in same:
        assert found.field(name).equals(wanted.field(name), check_metadata=True), name
        assert features[name] == expected[name]
    assert features['half'] == {'dtype': 'float32', '_type': 'Value'}
    assert features['when'] == {'dtype': 'timestamp[us]', '_type': 'Value'}
    rows = pq.read_table(tmp_path / 'parquet').select(same[:6]).drop_columns(['audio', 'image', 'images'])
    assert rows.equals(pq.read_table(GOLDEN / 'hub/data').select(rows.column_names))


def test_fields_views_and_an_empty_dataset(kit, tmp_path):
    path = kit.fill(
        tmp_path / 'in', [{'id': i, 'text': f'{i}'} for i in range(9)], {'id': 'int', 'text': 'utf8'}
    )
    with bags.open(path) as dataset:
        bags.export(dataset[2:8:2], tmp_path / 'some', format='parquet', fields='text')
        assert bags.export(dataset[:0], tmp_path / 'none', format='parquet').shards == 1
        with pytest.raises(TypeError, match='key: expected none for Parquet'):
            bags.export(dataset, tmp_path / 'other', format='parquet', key='id')
    assert pq.read_table(tmp_path / 'some').to_pylist() == [{'text': '2'}, {'text': '4'}, {'text': '6'}]
    assert bags.convert(tmp_path / 'none', tmp_path / 'out').spec == {'id': 'int', 'text': 'utf8'}


def test_a_failed_export_leaves_nothing(kit, tmp_path):
    rows = [{'id': i, 'text': 'x' * 1000} for i in range(300)]
    path = kit.fill(tmp_path / 'in', rows, {'id': 'int', 'text': 'utf8'})
    with open(f'{path}/text.bag', 'r+b') as file:
        file.seek(200_000)
        file.write(b'\xff' * 10)
    with pytest.raises(ValueError, match="field 'text' of type utf8"):
        bags.export(path, tmp_path / 'out', format='parquet', shard_length=50)
    assert list((tmp_path / 'out').iterdir()) == []


def test_keys_and_extensions_of_files_are_columns(tmp_path):
    (tmp_path / 'in').mkdir()
    for name in ('a.TXT', 'b.txt'):
        (tmp_path / 'in' / name).write_text(name)
    bags.convert(tmp_path / 'in', tmp_path / 'data')
    bags.export(tmp_path / 'data', tmp_path / 'parquet', format='parquet')
    bags.convert(tmp_path / 'parquet', tmp_path / 'back')
    with bags.open(tmp_path / 'data') as before, bags.open(tmp_path / 'back') as after:
        assert_same(before, after)


def test_changed_bytes_are_found_by_the_checksums_of_pages(tmp_path):
    content = np.random.default_rng(0).bytes(3000)
    with bags.DatasetWriter(tmp_path / 'in', {'blob': 'bytes', 'id': 'int'}) as writer:
        for index in range(3):
            writer.append({'blob': content, 'id': index})
    bags.export(tmp_path / 'in', tmp_path / 'out', format='parquet')
    file = tmp_path / 'out/000000.parquet'
    data = bytearray(file.read_bytes())
    data[data.index(content) + 1500] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match='CRC'):
        pq.read_table(file, page_checksum_verification=True)
    with pytest.raises(bags.SourceError, match=r'000000\.parquet.*CRC'):
        bags.convert(tmp_path / 'out', tmp_path / 'back')
