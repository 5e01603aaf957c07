"""The author's order of fields: kept in metadata.json, and that of specs, datapoints and views."""

import json
import os
import pickle

import numpy as np
import pytest

import bags

SPEC = {'name': 'utf8', 'action': 'array(float32,2)', 'words': 'utf8[]', 'id': 'int(8)', 'extra': 'int(1)?'}
ORDER = list(SPEC)


def row(index):
    return {
        'id': index,
        'action': np.full(2, index, np.float32),
        'name': f'{index}',
        'words': ['a'] * (index % 3),
        'extra': None,
    }


@pytest.fixture(scope='module')
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp('order')
    facts = {'robot': 'arm', 'fields': {'action': {'rate': 50}}}
    with bags.DatasetWriter(folder / 'one', SPEC, metadata=facts) as writer:
        assert list(writer.spec) == ORDER
        for index in range(9):
            writer.append(row(index))
    with bags.ShardedDatasetWriter(folder / 'many', SPEC, shard_length=4, metadata=facts) as writer:
        for index in range(9):
            writer.append(row(index))
    return folder


@pytest.mark.parametrize('name', ['one', 'many'])
def test_readers_have_the_order_of_the_author(paths, name):
    with bags.open(paths / name) as dataset:
        for found in (dataset.spec, dataset[3], dataset[-1], dataset.batch([1, 8]), next(iter(dataset))):
            assert list(found) == ORDER
        assert list(pickle.loads(pickle.dumps(dataset))[5]) == ORDER
        assert [list(each) for each in dataset.__getitems__([8, 2])] == [ORDER, ORDER]
        assert dataset.metadata == {'robot': 'arm', 'fields': {'action': {'rate': 50}}}
    assert list(bags.info(paths / name).fields) == ORDER
    assert not bags.verify(paths / name, decode=True, notes=True)
    with bags.open(f'local://{paths / name}') as dataset:
        assert list(dataset.spec) == list(dataset[7]) == ORDER


@pytest.mark.parametrize('name', ['one', 'many'])
def test_arrow_tables_have_the_order_of_the_author(paths, name):
    pa = pytest.importorskip('pyarrow')
    with bags.open(paths / name) as dataset:
        assert pa.table(dataset).column_names == ORDER


def test_files_say_the_order_only_if_it_is_not_alphabetical(paths, tmp_path):
    folder = paths / 'one'
    assert list(json.loads((folder / 'spec.json').read_bytes())) == sorted(SPEC)
    found = json.loads((folder / 'metadata.json').read_bytes())
    assert found['robot'] == 'arm'
    assert found['fields']['action'] == {'rate': 50, 'spec_position': 1}
    assert found['fields']['words'] == {'spec_position': 2}
    with bags.DatasetWriter(tmp_path / 'x', dict(sorted(SPEC.items()))) as writer:
        writer.append(row(0))
    assert 'metadata.json' not in os.listdir(tmp_path / 'x')


def test_views_keep_the_order(paths):
    one, many = bags.open(paths / 'one'), bags.open(paths / 'many')
    for view in (
        one[2:5],
        many.select([3, 1]),
        bags.concat([one, many]),
        one.filter(lambda found: found['id'] > 2),
        bags.join([one[:, ('name', 'words')], one[:, ('action', 'id', 'extra')]]),
    ):
        assert sorted(view.spec) == sorted(SPEC)
        expected = (
            ORDER if len(view.datasets) < 2 or len(view) > 9 else ['name', 'words', 'action', 'id', 'extra']
        )
        assert list(view.spec) == list(view[1]) == expected
    assert list(one[:, ('id', 'name')].spec) == ['name', 'id']
    windows = one.windows(every='words', words=bags.steps(0, 1))
    assert list(windows.spec) == [*ORDER, 'words_is_pad']


def test_copies_keep_the_order(paths, tmp_path):
    bags.copy(paths / 'many', tmp_path / 'a')
    assert list(bags.open(tmp_path / 'a').spec) == ORDER
    bags.copy(paths / 'one', tmp_path / 'b', fields=['id', 'name'])
    assert list(bags.open(tmp_path / 'b').spec) == ['name', 'id']
    bags.copy(
        paths / 'one',
        tmp_path / 'c',
        fields=['id', 'name'],
        add={'double': ('int(8)', lambda batch: batch['id'] * 2)},
    )
    assert list(bags.open(tmp_path / 'c')[4]) == ['name', 'id', 'double']
    bags.consolidate(tmp_path / 'a')
    assert list(bags.open(tmp_path / 'a')[0]) == ORDER


def test_files_keep_the_order(paths, tmp_path):
    pytest.importorskip('pyarrow')
    bags.export(paths / 'one', tmp_path / 'parquet', format='parquet')
    bags.convert(tmp_path / 'parquet', tmp_path / 'd')
    assert list(bags.open(tmp_path / 'd').spec) == ORDER


@pytest.mark.parametrize('writer', [bags.DatasetWriter, bags.ShardedDatasetWriter])
def test_what_changes_metadata_keeps_the_order(tmp_path, writer):
    with writer(tmp_path / 'x', SPEC) as opened:
        opened.append(row(0))
    assert bags.open(tmp_path / 'x').metadata == {}
    for change in ({'robot': 'leg'}, {}):
        bags.set_metadata(tmp_path / 'x', change)
        assert list(bags.open(tmp_path / 'x')[0]) == ORDER
        assert bags.open(tmp_path / 'x').metadata == change
    # A later writer may give the fields in another order.
    with writer(tmp_path / 'x', dict(sorted(SPEC.items())), resume=True, metadata={'robot': 'arm'}) as opened:
        assert list(opened.spec) == ORDER
        opened.append(row(1))
    with bags.open(tmp_path / 'x') as dataset:
        assert list(dataset[1]) == list(dataset.spec) == ORDER
        assert dataset.metadata == {'robot': 'arm'}


@pytest.mark.parametrize('position', ['1', -1, True, None, 1e9, [0]])
def test_positions_that_are_none_are_ignored(tmp_path, position):
    with bags.DatasetWriter(tmp_path / 'x', SPEC) as writer:
        writer.append(row(0))
    facts = {'fields': {'id': {'spec_position': position}, 'words': {'spec_position': 0}}}
    (tmp_path / 'x' / 'metadata.json').write_text(json.dumps(facts))
    with bags.open(tmp_path / 'x') as dataset:
        assert list(dataset[0]) == ['words', 'action', 'extra', 'id', 'name']
    (tmp_path / 'x' / 'metadata.json').write_text('[')
    with bags.open(tmp_path / 'x') as dataset:
        assert list(dataset[0]) == sorted(SPEC)  # Data can be read; the metadata raises.
        with pytest.raises(bags.CorruptError):
            _ = dataset.metadata
