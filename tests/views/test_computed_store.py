"""The folder of computed values: what does not belong to the view is refused, by name."""

import json
import os
import shutil

import numpy as np
import pytest

import bags
from bags.bag.checksums import checksums_name

TYPE = 'array(float32,2)'


def make(path, values):
    with bags.ShardedDatasetWriter(path, {'x': 'int(8)'}, shard_length=4, mode='overwrite') as writer:
        for value in values:
            writer.append({'x': value})
    return bags.open(path)


def vectors(batch):
    return np.stack([batch['x'], batch['x'] + 1], 1).astype(np.float32)


def opened(source, path, field_type=TYPE, function=vectors, **options):
    return bags.computed(bags.open(source), path, add={'z': (field_type, function)}, **options)


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / 'source', range(10)).path


@pytest.fixture
def path(tmp_path, source):
    """A folder with values of two ranks."""
    for rank, rows in enumerate([range(5), range(4, 8)]):
        with opened(source, tmp_path / 'z', rank=rank) as view:
            view.batch(rows)
    return tmp_path / 'z'


def test_the_values_of_all_ranks_are_read(source, path):
    with opened(source, path, function=None.__init__, rank=7) as view:
        assert np.flatnonzero(view.stored).tolist() == list(range(8))
        assert view.batch(range(8))['z'].tolist() == [[row, row + 1] for row in range(8)]
        assert sorted(folder.path for folder, _ in view.folders(['z'])) == [
            str(path / '0/000000'), str(path / '1/000000'),
        ]  # fmt: skip
    stored = bags.open(path / '0')
    assert stored[3] == {'datapoint': 3, 'z': pytest.approx([3, 4])}


def test_the_same_datapoints_at_another_path_are_the_same_dataset(source, path, tmp_path):
    bags.copy(source, tmp_path / 'copy')
    shutil.rmtree(source)
    with opened(tmp_path / 'copy', path) as view:
        assert view.stored.sum() == 8


def test_another_fingerprint_is_refused(source, path):
    before = bags.open(source).fingerprint
    after = make(source, range(1, 11)).fingerprint
    with pytest.raises(ValueError, match=rf'z/0: expected .* fingerprint {after}.* got 5 rows of .{before}'):
        opened(source, path)
    with pytest.raises(ValueError, match='pass another folder'):
        bags.computed(bags.open(source)[:5], path, add={'z': (TYPE, vectors)})


def test_a_source_that_changed_since_it_was_opened_is_refused(source, path):
    view = opened(source, path)
    shutil.rmtree(path / '1')
    other = make(f'{source}-other', range(3, 13))
    with bags.computed(other, path.with_name('y'), add={'z': (TYPE, vectors)}, rank=1) as another:
        another.batch([9])
    shutil.copytree(path.with_name('y') / '1', path / '1')
    with pytest.raises(ValueError, match='z/1: expected values of the dataset with the fingerprint'):
        view.reopen()
    assert view.batch([2])['z'].tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ('add', 'message'),
    [
        ({'z': ('float(4)', len)}, r"'z'.*float\(4\), as in add.*array\(float32,2\)"),
        ({'y': (TYPE, len)}, r"'y'.*array\(float32,2\), as in add"),
        ({'z': (TYPE, vectors), 'y': ('utf8', len)}, "'y'"),
    ],
)
def test_other_fields_are_refused(source, path, add, message):
    with pytest.raises(bags.SpecError, match=message):
        bags.computed(bags.open(source), path, add=add)


def test_fewer_fields_are_refused(source, tmp_path):
    two = {'a': ('int(8)', lambda batch: batch['x']), 'b': ('int(8)', lambda batch: batch['x'])}
    with bags.computed(bags.open(source), tmp_path / 'z', add=two) as view:
        view.batch([1])
    with pytest.raises(bags.SpecError, match='fields'):
        bags.computed(bags.open(source), tmp_path / 'z', add={'a': two['a']})


def test_folders_with_something_else_are_refused(source, path, tmp_path):
    with pytest.raises(FileExistsError, match="holds '000000'"):
        opened(source, source)
    with pytest.raises(FileExistsError, match="holds 'refs"):
        opened(source, os.path.join(source, '000000'))
    with pytest.raises(NotADirectoryError):
        opened(source, os.path.join(source, '000000', 'spec.json'))
    bags.copy(source, tmp_path / 'y/5/000000')
    (tmp_path / 'x').mkdir()
    shutil.move(tmp_path / 'y/5/000000/000000', tmp_path / 'x/5')
    with pytest.raises(FileExistsError, match=r'is a dataset.*x/5'):
        opened(source, tmp_path / 'x')
    (path / '.hidden').touch()
    assert opened(source, path).stored.sum() == 8
    (path / '²').mkdir()
    with pytest.raises(FileExistsError, match='²'):
        opened(source, path)


@pytest.mark.parametrize('content', [None, b'', b'[]', b'{"identity": 5}'])
def test_a_damaged_log_is_refused(source, path, content):
    (path / '0/progress.json').unlink()
    if content is not None:
        (path / '0/progress.json').write_bytes(content)
    with pytest.raises(ValueError, match='z/0: expected'):
        opened(source, path)


@pytest.mark.parametrize('index', [-1, 10, 2**62])
def test_an_index_out_of_range_is_refused(source, path, index):
    with bags.ShardedDatasetWriter(path / '1', {'datapoint': 'int(8)', 'z': TYPE}, resume=True) as writer:
        writer.append({'datapoint': index, 'z': np.zeros(2, np.float32)})
    message = f"z/1, record 3: field 'datapoint': expected an index of 10 datapoints, got {index}"
    with pytest.raises(bags.CorruptError, match=message):
        opened(source, path)


def test_arguments(source, tmp_path):
    dataset, add = bags.open(source), {'z': (TYPE, vectors)}
    for url in ('s3://bucket/z', 'memory://z'):
        with pytest.raises(ValueError, match='expected a local folder'):
            bags.computed(dataset, url, add=add)
    with pytest.raises(TypeError, match='expected a dataset'):
        bags.computed(source, tmp_path / 'z', add=add)
    with pytest.raises(ValueError, match='got none'):
        bags.computed(dataset, tmp_path / 'z', add={})
    with pytest.raises(ValueError, match="'datapoint'"):
        bags.computed(dataset, tmp_path / 'z', add={'datapoint': ('int', len)})
    with pytest.raises(TypeError, match="a type and a function for field 'z'"):
        bags.computed(dataset, tmp_path / 'z', add={'z': TYPE})
    with pytest.raises(bags.SpecError, match='nonsense'):
        bags.computed(dataset, tmp_path / 'z', add={'z': ('nonsense', len)})
    for options in ({'rank': -1}, {'rank': 1 << 40}, {'batch_size': 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            bags.computed(dataset, tmp_path / 'z', add=add, **options)
    with pytest.raises(bags.SpecError, match="'y'"):
        bags.computed(dataset, tmp_path / 'z', add=add, compression=['y'])
    assert not (tmp_path / 'z').exists()


def test_values_are_compressed_and_checked(source, tmp_path):
    with opened(source, tmp_path / 'z', compression=['z'], checksum=True) as view:
        assert view.column('z').shape == (10, 2)
    folder = tmp_path / 'z/0/000000'
    assert (folder / 'z.bagz').exists()
    assert os.path.exists(checksums_name(str(folder / 'z.bagz')))
    assert (
        json.loads((tmp_path / 'z/0/progress.json').read_bytes())['identity'] == bags.open(source).fingerprint
    )
    assert bags.verify(tmp_path / 'z/0') == []
    with opened(source, tmp_path / 'z') as view:
        assert view.column('z').tolist() == [[row, row + 1] for row in range(10)]


def test_values_are_read_from_the_folder_while_others_are_appended(source, tmp_path, monkeypatch):
    # As if each batch came after a second.
    monkeypatch.setattr('bags.views.computed_store.MAX_HELD_SECONDS', 0)
    with opened(source, tmp_path / 'z', batch_size=3) as view:
        for rows in ([1], [0, 1, 2, 3, 4, 5], [9, 5, 9, 6]):
            assert view.batch(rows)['z'].tolist() == [[row, row + 1] for row in rows]
        assert not view.datasets[1].store._ranks[0].held
    assert bags.open(tmp_path / 'z/0').column('datapoint').tolist() == [1, 0, 2, 3, 4, 5, 6, 9]
