"""Fingerprints of datasets: kept by copies of the files, changed by every change of a datapoint."""

import json
import os
import shutil

import numpy as np
import pytest

import bags
from bags.dataset.reading.fingerprint import legacy_fingerprint
from bags.keys import index as key_index

SPEC = {'id': 'int(8)', 'label': 'int(8)', 'words': 'utf8[]?'}
COUNT = 500


def row(index):
    return {'id': index, 'label': 1, 'words': None if index % 3 else ['a', 'b'][: index % 2 + 1]}


def write(path, rows=None, *, sharded=True, **options):
    options = {**({'shard_length': 200} if sharded else {}), **options}
    with (bags.ShardedDatasetWriter if sharded else bags.DatasetWriter)(path, SPEC, **options) as writer:
        for each in map(row, range(COUNT)) if rows is None else rows:
            writer.append(each)
    return path


def corrected():
    """Returns rows of which one, in no sample of evenly spaced ones, has another label."""
    return [{**row(index), 'label': 2 if index == 123 else 1} for index in range(COUNT)]


def remove_ids(path):
    """Makes a dataset one of an earlier version."""
    for file in path.rglob('source.json'):
        file.unlink()


def folders_of(path):
    return [path] if (path / 'spec.json').exists() else sorted(path.glob('[0-9]*'))


@pytest.mark.parametrize('sharded', [False, True])
def test_another_dataset_has_another_one(tmp_path, sharded):
    one = write(tmp_path / 'one', sharded=sharded)
    same = bags.open(one).fingerprint
    assert bags.open(one).fingerprint == same
    shutil.copytree(one, tmp_path / 'copied')
    assert bags.open(tmp_path / 'copied').fingerprint == same
    for file in (tmp_path / 'copied').rglob('*'):
        os.utime(file, (1, 1))
    assert bags.open(tmp_path / 'copied').fingerprint == same
    # Without an id, equal datapoints of one writer are another dataset.
    other = bags.open(write(tmp_path / 'other', corrected(), sharded=sharded)).fingerprint
    again = bags.open(write(tmp_path / 'again', sharded=sharded)).fingerprint
    assert len({same, other, again}) == 3


@pytest.mark.parametrize('sharded', [False, True])
def test_it_changes_with_each_change(tmp_path, sharded):
    path = write(tmp_path / 'd', sharded=sharded)
    seen = [bags.open(path).fingerprint]
    write(path, (), sharded=sharded, resume=True)  # Nothing has changed.
    assert bags.open(path).fingerprint == seen[0]
    write(path, [row(7)], sharded=sharded, resume=True)
    seen.append(bags.open(path).fingerprint)
    write(path, mode='overwrite', sharded=sharded)
    seen.append(bags.open(path).fingerprint)
    if not sharded:  # Truncated, and then as long as before, with equal sizes.
        write(path, [row(COUNT - 1)], sharded=False, resume=True, truncate_to=COUNT - 1)
        seen.append(bags.open(path).fingerprint)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize('sharded', [False, True])
def test_equal_datapoints_with_one_id_give_equal_files(tmp_path, sharded):
    paths = [write(tmp_path / name, id='mine, 1', sharded=sharded) for name in 'ab']
    files = [
        {file.relative_to(path): file for path in [path] for file in path.rglob('*.*')} for path in paths
    ]
    assert files[0].keys() == files[1].keys()
    assert all(files[0][name].read_bytes() == files[1][name].read_bytes() for name in files[0])
    assert bags.open(paths[0]).fingerprint == bags.open(paths[1]).fingerprint
    found = [json.loads((folder / 'source.json').read_text()) for folder in folders_of(paths[0])]
    assert {each['id'] for each in found} == {'mine, 1'}
    for folder, each in zip(folders_of(paths[0]), found, strict=True):
        assert each['sizes'] == {file.name: file.stat().st_size for file in folder.glob('*.bag')}


@pytest.mark.parametrize('id', ['', 3, 'x' * 201, 'a\nb'])
def test_ids_that_are_refused(tmp_path, id):
    for writer in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        with pytest.raises((TypeError, ValueError), match='id: expected'):
            writer(tmp_path / 'd', SPEC, id=id)
    assert not (tmp_path / 'd').exists()


@pytest.mark.parametrize('has_ids', [True, False])
def test_a_file_that_is_replaced_by_hand_is_noticed(tmp_path, has_ids):
    path, other = write(tmp_path / 'd'), write(tmp_path / 'other', corrected())
    if not has_ids:
        remove_ids(path)
    before = bags.open(path).fingerprint
    shutil.copy(other / '000000' / 'label.bag', path / '000000' / 'label.bag')
    assert bags.open(path).fingerprint != before


def test_without_ids_all_records_count(tmp_path):
    """Of datasets of earlier versions and other libraries."""
    paths = [write(tmp_path / 'one'), write(tmp_path / 'same'), write(tmp_path / 'other', corrected())]
    for path in paths:
        remove_ids(path)
    one, same, other = (bags.open(path).fingerprint for path in paths)
    assert one == same != other


def test_unfinished_datasets_have_one(tmp_path):
    writer = bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, shard_length=200)
    seen = []
    for index in range(450):
        writer.append(row(index))
        if index % 100 == 99:
            writer.flush()
            seen.append(bags.open(tmp_path / 'd').fingerprint)
            assert bags.open(tmp_path / 'd').fingerprint == seen[-1]
    writer.close()
    seen.append(bags.open(tmp_path / 'd').fingerprint)
    assert len(set(seen)) == 5


def test_no_id_is_read_at_open(tmp_path):
    path = write(tmp_path / 'd', sharded=False)
    (path / 'source.json').write_text('{"id": [')
    dataset = bags.open(path)
    assert dataset[3] == row(3)
    damaged = dataset.fingerprint
    for text in ('[]', '{"id": "x", "datapoints": "y", "sizes": 3}', '{"id": "x"}', '[' * 10_000):
        (path / 'source.json').write_text(text)
        assert bags.open(path).fingerprint == damaged
    found = {'id': 'x', 'datapoints': COUNT, 'sizes': {'../d/refs.bag': 1}}
    (path / 'source.json').write_text(json.dumps(found))
    assert bags.open(path).fingerprint == damaged


def test_views_have_one(tmp_path):
    one, other = bags.open(write(tmp_path / 'a')), bags.open(write(tmp_path / 'b'))
    chosen = np.arange(COUNT)[::3]
    views = [
        one, one[:-1], one[1:], one[::2], one[:, 'id'], one.select(chosen),
        one.select(chosen[::-1]), bags.concat([one, other]), bags.concat([other, one]),
        bags.join([one, other], replace=True), bags.join([other, one], replace=True),
        bags.join([one[:, 'id'], other[:, ('label', 'words')]]),
        one.windows(every='words', words=bags.steps(0, 1)),
        one.windows(every='words', words=bags.steps(0, 2)),
        bags.join([one, other[:, ('id', 'label')]], on='id', how='left', replace=True),
    ]  # fmt: skip
    assert len({view.fingerprint for view in views}) == len(views)
    assert one[:].fingerprint == one.fingerprint
    moved = shutil.copytree(tmp_path, tmp_path.with_name('moved')) / 'a'
    assert bags.open(moved)[1:].fingerprint == one[1:].fingerprint
    assert (
        bags.open(moved).windows(every='words', words=bags.steps(0, 2)).fingerprint == views[-2].fingerprint
    )


def test_copies_have_another_one_and_their_loaders_go_on(tmp_path):
    source = bags.open(write(tmp_path / 'a'))
    loader = bags.Loader(source, 50, workers=0)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), [batch['id'].tolist() for batch in batches]

    def resumed(path, **options):
        dataset = bags.open(path)
        assert dataset.fingerprint != source.fingerprint
        other = bags.Loader(dataset, 50, workers=0)
        other.load_state_dict(state, **options)
        return [batch['id'].tolist() for batch in other]

    bags.copy(source, tmp_path / 'b', shard_length=70)
    assert resumed(tmp_path / 'b') == rest
    bags.copy(tmp_path / 'b', tmp_path / 'c', compression=['words'])
    assert resumed(tmp_path / 'c') == rest
    # And back: a state of the copy is one of the source.
    bags.Loader(source, 50).load_state_dict(bags.Loader(bags.open(tmp_path / 'c'), 50).state_dict())
    bags.copy(source, tmp_path / 'more', add={'twice': ('int(8)', lambda batch: 2 * batch['id'])})
    assert resumed(tmp_path / 'more') == rest
    # Not with other datapoints, or other values.
    bags.copy(source, tmp_path / 'relabelled', add={'label': ('int(8)', lambda batch: batch['id'])})
    bags.copy(source.select(np.arange(COUNT)[::-1]), tmp_path / 'reversed')
    write(tmp_path / 'b', [row(0)], resume=True)
    write(tmp_path / 'b', (), resume=True)
    write(tmp_path / 'same')
    for name in ('relabelled', 'reversed', 'same'):
        with pytest.raises(ValueError, match=r'state of another dataset.*check_dataset=False'):
            resumed(tmp_path / name)
        resumed(tmp_path / name, check_dataset=False)
    with pytest.raises(ValueError, match='state of another'):
        resumed(tmp_path / 'b')


def fails_at_300(batch):
    if batch['id'][-1] >= 300:
        raise ArithmeticError
    return batch['id']


def test_a_copy_that_was_interrupted_is_one_too(tmp_path):
    source = bags.open(write(tmp_path / 'a'))

    with pytest.raises(ArithmeticError):
        bags.copy(source, tmp_path / 'b', add={'x': ('int(8)', fails_at_300)}, shard_length=90, batch_size=50)
    add = {'x': ('int(8)', lambda batch: batch['id'])}
    bags.copy(source, tmp_path / 'b', add=add, shard_length=90, resume=True)
    copied = bags.open(tmp_path / 'b')
    assert len(copied) == COUNT
    states = [bags.Loader(dataset, 50).state_dict()['dataset'] for dataset in (copied, source)]
    assert states == [source.fingerprint] * 2
    # A shard that is gone, or was replaced by another.
    shutil.rmtree(tmp_path / 'b' / '000003')
    assert bags.Loader(bags.open(tmp_path / 'b'), 50).state_dict()['dataset'] != source.fingerprint


def test_a_folder_changed_by_an_earlier_version_has_no_id(tmp_path):
    """It knows nothing of the file, and leaves it as it is: the sizes differ, or the number of datapoints."""
    path = write(tmp_path / 'd', sharded=False)
    kept = (path / 'source.json').read_bytes()
    before = bags.open(path).fingerprint
    write(path, [row(1)], sharded=False, resume=True)
    (path / 'source.json').write_bytes(kept)
    later = bags.open(path).fingerprint
    remove_ids(path)
    assert bags.open(path).fingerprint == later != before


def stops_at(number):
    def function(value):
        if value['id'] >= number:
            raise ArithmeticError
        return value

    return function


def test_a_copy_does_not_resume_from_a_corrected_source(tmp_path):
    """Of 500 labels one is corrected, in a dataset of the same path, length and sizes."""
    source = write(tmp_path / 'a')
    with pytest.raises(ArithmeticError):
        bags.write(bags.open(source), tmp_path / 'w', SPEC, transform=stops_at(300), workers=1)
    with pytest.raises(ArithmeticError):
        bags.copy(source, tmp_path / 'c', add={'x': ('int(8)', fails_at_300)}, shard_length=100)
    shutil.rmtree(source)
    write(source, corrected())
    add = {'x': ('int(8)', lambda batch: batch['id'])}
    for resume in (
        lambda **options: bags.copy(source, tmp_path / 'c', add=add, resume=True, **options),
        lambda **options: bags.write(bags.open(source), tmp_path / 'w', SPEC, resume=True, **options),
    ):
        with pytest.raises(ValueError, match='source is another one, or has changed'):
            resume()
        assert resume(check_source=False).datapoints == COUNT
        assert resume().datapoints == COUNT  # It is the source from then on.


def test_arrays_that_have_changed_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.authoring.from_numpy.WRITTEN_BLOCK_BYTES', 1000)
    arrays = {
        'x': np.arange(400.0), 'time': np.arange(400).astype('M8[us]'), 'name': np.arange(400).astype(str),
        'big': np.ones((400, 3), '>f4'), 'flag': np.ones(400, bool),
    }  # fmt: skip

    class Stops(np.ndarray):
        def __getitem__(self, key):
            if isinstance(key, slice) and key.start >= 200:
                raise ArithmeticError
            return super().__getitem__(key).view(np.ndarray)

    with pytest.raises(ArithmeticError):
        bags.from_numpy({**arrays, 'x': arrays['x'].view(Stops)}, tmp_path / 'd')
    for name in arrays:
        changed = {each: array.copy() for each, array in arrays.items()}
        changed[name][77] = changed[name][78] if name in ('x', 'time', 'name') else 0
        with pytest.raises(ValueError, match=f'{name}: resume: .* at datapoint 77: .*check_source=False'):
            bags.from_numpy(changed, tmp_path / 'd', resume=True)
    assert bags.from_numpy(arrays, tmp_path / 'd', resume=True).datapoints == 400
    assert (bags.open(tmp_path / 'd').column('x') == arrays['x']).all()


@pytest.mark.parametrize('which', ['*', 'label.bag', '*.bag'])
def test_what_was_computed_from_replaced_files_is_not_used(tmp_path, which):
    """Files that were synced over a dataset: all, or some."""
    path, other = (
        write(tmp_path / 'd', shard_length=None),
        write(tmp_path / 'o', corrected(), shard_length=None),
    )
    assert bags.statistics(path, 'label', keep=True)['label'].max == 1
    bags.create_index(path, 'id')
    bags.create_index(path, 'label')
    state = bags.Loader(bags.open(path), 10).state_dict()
    for file in (other / '000000').glob(which):
        shutil.copy(file, path / '000000' / file.name)
    assert bags.statistics(path, 'label')['label'].max == 2
    dataset = bags.open(path)
    with pytest.raises(bags.CorruptError, match='is stale'):
        dataset.find('label', 1)
    with pytest.raises(ValueError, match='state of another dataset'):
        bags.Loader(dataset, 10).load_state_dict(state)


def test_indexes_of_earlier_versions_are_used(tmp_path, monkeypatch):
    path = write(tmp_path / 'd')
    remove_ids(path)
    with monkeypatch.context() as patch:  # As an earlier version wrote it.
        patch.setattr(key_index, 'fingerprint', legacy_fingerprint)
        bags.create_index(path, 'id')
    assert bags.open(path).find('id', 7) == 7
    write(path, [row(1)], resume=True)
    with pytest.raises(bags.CorruptError, match='is stale'):
        bags.open(path).find('id', 7)
