"""The result of the functions that write a dataset: the same facts from each."""

from pathlib import Path

import numpy as np
import pytest

import bags

SPEC = {'id': 'int(8)', 'text': 'utf8'}


def make_source(path):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=2) as writer:
        for index in range(5):
            writer.append({'id': index, 'text': f'text {index}'})
    return path


@pytest.mark.parametrize('function', ['write', 'copy', 'convert', 'from_numpy'])
def test_functions_that_write_a_dataset_return_what_readers_find(function, tmp_path):
    source, target = make_source(tmp_path / 'source'), tmp_path / 'target'
    bags.export(source, tmp_path / 'tars', format='webdataset')
    done = {
        'write': lambda: bags.write(bags.open(source), target, SPEC, shard_length=2),
        'copy': lambda: bags.copy(source, target, shard_length=2),
        'convert': lambda: bags.convert(tmp_path / 'tars', target, shard_length=2),
        'from_numpy': lambda: bags.from_numpy({'id': np.arange(5)}, target, shard_length=2),
    }[function]()
    assert isinstance(done, bags.types.WriteResult)
    with bags.open(target) as dataset:
        found = bags.types.WriteResult(len(dataset), dataset.shards, dataset.size, dataset.spec)
    assert (done, done.datapoints, done.shards) == (found, 5, 3)


@pytest.mark.parametrize('format', ['webdataset', 'files', 'parquet'])
def test_export_returns_what_is_in_its_folder(format, tmp_path):
    if format == 'parquet':
        pytest.importorskip('pyarrow')
    done = bags.export(make_source(tmp_path / 'source'), tmp_path / 'out', format=format, shard_length=2)
    files = [path for path in Path(tmp_path / 'out').rglob('*') if path.is_file()]
    assert (done.datapoints, done.spec, done.skipped, done.notes) == (5, SPEC, [], [])
    assert done.shards == (1 if format == 'files' else len(files) - (format == 'webdataset'))  # metadata.json
    assert done.size == sum(path.stat().st_size for path in files)


def test_what_is_left_out_is_in_the_result(tmp_path):
    pa = pytest.importorskip('pyarrow')
    make_source(tmp_path / 'source')
    bags.export(tmp_path / 'source', tmp_path / 'parquet', format='parquet')
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / 'parquet/000000.parquet').replace_schema_metadata(None)
    table = table.rename_columns(['the id', 'text']).append_column('none', pa.nulls(5))
    pq.write_table(table, tmp_path / 'renamed.parquet')
    done = bags.convert(tmp_path / 'renamed.parquet', tmp_path / 'out')
    assert [word for word in ('the id', 'none') if not any(word in note for note in done.notes)] == []
    assert set(done.spec) == {'the_id', 'text'}
