"""Writing the index of a field of keys: accepted fields, and changes of the file."""

import os

import pytest

import bags


def write(path, rows, spec, length=None):
    with bags.ShardedDatasetWriter(path, spec, shard_length=length) as writer:
        for row in rows:
            writer.append(row)
    return path


def test_fields_that_have_no_keys(tmp_path):
    write(tmp_path / 'x', [{'words': ['a'], 'x': 1.0}], {'words': 'utf8[]', 'x': 'float(8)'})
    for field, kind in [('words', r'utf8\[\]'), ('x', r'float\(8\)')]:
        with pytest.raises(TypeError, match=f"field '{field}' of type {kind}: expected keys"):
            bags.create_index(tmp_path / 'x', field)
    with pytest.raises(KeyError, match="no field 'id'"):
        bags.create_index(tmp_path / 'x', 'id')


def test_what_becomes_of_it(tmp_path):
    small = tmp_path / 'small'
    with bags.DatasetWriter(small, {'id': 'utf8'}) as writer:
        writer.append({'id': 'b'})
    bags.create_index(small, 'id')
    bags.copy(small, tmp_path / 'copy')
    assert not list((tmp_path / 'copy').rglob('*.index'))
    with bags.DatasetWriter(small, {'id': 'utf8'}, mode='overwrite') as writer:
        writer.append({'id': 'a'})
    assert 'id.index' not in os.listdir(small)
    shards = write(tmp_path / 'shards', [{'id': f'{n}'} for n in range(10)], {'id': 'utf8'}, length=4)
    bags.consolidate(shards)
    bags.create_index(shards, 'id')
    assert bags.open(shards).find('id', '7') == 7
    assert not list(bags.verify(shards))
    bags.consolidate(shards)
    os.unlink(shards / '000000/id.index')
    assert not list(bags.verify(shards))


def test_an_unfinished_dataset_is_refused(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'x', {'id': 'utf8'})
    writer.append({'id': 'a'}, flush=True)
    with pytest.raises(ValueError, match='expected a finished dataset'):
        bags.create_index(tmp_path / 'x', 'id')
    writer.close()
    assert bags.create_index(tmp_path / 'x', 'id') == 1
