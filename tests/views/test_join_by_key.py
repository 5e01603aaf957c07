"""Joining datasets by key gives what a loop over their datapoints gives."""

import itertools
import pickle

import numpy as np
import pytest

import bags

FILMS = {'id': 'utf8', 'title': 'utf8', 'frames': 'array(uint8,2)[]'}
LABELS = {
    'id': 'utf8',
    'label': 'int(8)',
    'box': 'array(float32,4)',
    'words': 'utf8[]',
    'scores': 'float(8)[]',
    'note': 'utf8?',
    'meta': 'json',
}
COUNT = 60


def film(n):
    return {'id': f'film {n}', 'title': f'title {n}', 'frames': np.full((n % 3, 2), n, np.uint8)}


def label(n, k=0):
    return {
        'id': f'film {n}',
        'label': 100 * n + k,
        'box': np.arange(4, dtype=np.float32) + n,
        'words': [f'word {n}'] * (n % 4),
        'scores': np.arange(n % 3) * 0.5,
        'note': None if n % 2 else f'note {n}',
        'meta': {'n': n, 'k': k},
    }


def write(path, spec, rows, length=None):
    with bags.ShardedDatasetWriter(path, spec, shard_length=length) as writer:
        for row in rows:
            writer.append(row)
    return bags.open(path)


def expected(lefts, rights, spec, on='id', keep=False):
    """Joins two lists of datapoints."""
    joined = []
    for left in lefts:
        found = [right for right in rights if right[on] == left[on] and left[on] is not None]
        if not found and keep:
            found = [dict.fromkeys(spec)]
        joined += [{**right, **left} for right in found]
    return joined


@pytest.fixture(scope='module', params=['stored', 'in memory'])
def made(request, tmp_path_factory):
    """Films, labels of two thirds of them in another order, and several labels for some of them."""
    path = tmp_path_factory.mktemp('join')
    order = np.random.default_rng(0).permutation(COUNT).tolist()
    films = [film(n) for n in order]
    labels = [label(n) for n in range(COUNT + 20) if n % 3]
    many = [label(n, k) for k in range(3) for n in range(0, COUNT, k + 1)]
    found = (
        (write(path / 'films', FILMS, films, 25), films),
        (write(path / 'labels', LABELS, labels, 15), labels),
        (write(path / 'many', LABELS, many), many),
    )
    if request.param == 'stored':
        bags.create_index(path / 'labels', 'id')
        bags.create_index(path / 'many', 'id')
    return found


def check(view, rows, kit):
    rows = [{name: row[name] for name in view.spec} for row in rows]
    assert len(view) == len(rows)
    assert kit.equal(list(view), rows)
    assert kit.equal(view.__getitems__(range(len(view))), rows)
    for indices in ([], [0], [2, 1, 2], range(len(view)), [len(view) - 1, 0]):
        batch = view.batch(indices)
        assert list(batch) == list(view.spec)
        for name, column in batch.items():
            values = column.tolist() if isinstance(column, np.ndarray) and column.ndim == 1 else list(column)
            assert kit.equal(values, [rows[index][name] for index in indices]), name


@pytest.mark.parametrize('how', ['inner', 'left'])
def test_one_to_one(made, how, kit):
    (films, film_rows), (labels, label_rows), _ = made
    view = bags.join([films, labels], on='id', how=how)
    check(view, expected(film_rows, label_rows, LABELS, keep=how == 'left'), kit)
    check(pickle.loads(pickle.dumps(view)), expected(film_rows, label_rows, LABELS, keep=how == 'left'), kit)
    kinds = {
        name: kind if how == 'inner' or kind.endswith('?') else kind + '?' for name, kind in LABELS.items()
    }
    assert view.spec == dict(sorted({**kinds, **FILMS}.items()))


@pytest.mark.parametrize('how', ['inner', 'left'])
def test_one_to_many(made, how, kit):
    (films, film_rows), _, (labels, label_rows) = made
    rows = expected(film_rows, label_rows, LABELS, keep=how == 'left')
    check(bags.join([films, labels], on='id', how=how, many=True), rows, kit)
    with pytest.raises(
        ValueError, match=r"join: key 'film \d+' of field 'id' is in datapoints 0 and 60 of dataset 1"
    ):
        bags.join([films.select([films.column('id').index('film 0')]), labels], on='id', how=how)


def test_several_datasets(made, kit):
    (films, film_rows), (labels, label_rows), (many, many_rows) = made
    keep = ('id', 'label')
    renamed = bags.join([many[:, ('id', 'words')]])
    for how in ('inner', 'left'):
        rows = expected(
            film_rows, [{name: row[name] for name in keep} for row in label_rows], keep, keep=how == 'left'
        )
        rows = [
            {**row, **other}
            for row in rows
            for other in (
                [{'words': other['words']} for other in many_rows if other['id'] == row['id']]
                or ([{'words': None}] if how == 'left' else [])
            )
        ]
        check(bags.join([films, labels[:, keep], renamed], on='id', how=how, many=True), rows, kit)


def test_lengths_items_files_and_copies(made, tmp_path, kit):
    (films, film_rows), (labels, label_rows), _ = made
    view = bags.join([films, labels], on='id', how='left')
    rows = expected(film_rows, label_rows, LABELS, keep=True)
    assert view.lengths('words').tolist() == [len(row['words'] or []) for row in rows]
    assert view.records('note')[:] == [None if row['note'] is None else row['note'].encode() for row in rows]
    words = list(itertools.chain(*(row['words'] or [] for row in rows)))
    assert [item.decode() for item in view.records('words')] == words
    there = next(index for index, row in enumerate(rows) if row['label'] is not None)
    missing = next(index for index, row in enumerate(rows) if row['label'] is None)
    assert view.file(there, 'label').read() == rows[there]['label'].to_bytes(8, 'little')
    with pytest.raises(ValueError, match='has no value'):
        view.file(missing, 'label')
    some = view.batch(range(len(rows)), {'words': range(1, 3), 'scores': [], 'id': True})
    assert some['words'] == [None if row['words'] is None else row['words'][1:3] for row in rows]
    bags.copy(view, tmp_path / 'copy')
    copy = bags.open(tmp_path / 'copy')
    assert copy.spec == view.spec
    check(copy, rows, kit)
    assert not list(bags.verify(tmp_path / 'copy'))
    check(view[5:40:3], rows[5:40:3], kit)
    both = bags.concat([view, view[:7]])
    check(both, rows + rows[:7], kit)
    assert kit.equal(both.batch([])['scores'].values, np.empty(0))
    again = bags.join([films[:, 'id'], view], on='id', how='left')
    check(again, rows, kit)


def test_finding_in_a_join(made):
    (films, _), (labels, _), _ = made
    bags.create_index(films.path, 'id')
    view = bags.join([bags.open(films.path), labels], on='id')
    ids = view.column('id')
    assert view.find_many('id', ids).tolist() == list(range(len(ids)))
    with pytest.raises(KeyError):
        view.find('id', 'film 0')


def test_integers_of_different_sizes_and_missing_keys(tmp_path, kit):
    lefts = [{'k': 3, 'a': 'x'}, {'k': None, 'a': 'y'}, {'k': -5, 'a': 'z'}, {'k': 3, 'a': 'w'}]
    rights = [{'k': -5, 'b': 1}, {'k': 9, 'b': 2}, {'k': 3, 'b': 3}]
    left = write(tmp_path / 'a', {'k': 'int(2)?', 'a': 'utf8'}, lefts)
    right = write(tmp_path / 'b', {'k': 'int(16)', 'b': 'int(8)'}, rights)
    check(
        bags.join([left, right], on='k'),
        [{**lefts[0], 'b': 3}, {**lefts[2], 'b': 1}, {**lefts[3], 'b': 3}],
        kit,
    )
    check(bags.join([left, right], on='k', how='left'), [
        {**lefts[0], 'b': 3}, {**lefts[1], 'b': None}, {**lefts[2], 'b': 1}, {**lefts[3], 'b': 3}
    ], kit)  # fmt: skip


def test_nothing_in_common(made, tmp_path, kit):
    (films, film_rows), _, _ = made
    other = write(tmp_path / 'x', {'id': 'utf8', 'x': 'int(8)[]'}, [{'id': 'none', 'x': [1]}])
    empty = write(tmp_path / 'y', {'id': 'utf8', 'x': 'int(8)[]'}, [])
    match = (
        "field 'id': expected keys that are in all datasets, got none of dataset 1 among .*how='left' keeps"
    )
    for datasets in ([films, other], [other, films], [films, other, films]):
        with pytest.raises(ValueError, match=match):
            bags.join(datasets, True, on='id')
    view = bags.join([films, empty], on='id')
    assert len(view) == 0
    assert view.batch([])['title'] == []
    assert list(bags.join([empty, films], on='id')) == []
    for dataset in (other, empty):
        rows = [{**row, 'x': None} for row in film_rows]
        check(bags.join([films, dataset], on='id', how='left'), rows, kit)


def test_what_is_refused(made, tmp_path):
    (films, _), (labels, _), _ = made
    numbers = write(tmp_path / 'n', {'id': 'int(8)'}, [{'id': 1}])
    with pytest.raises(
        TypeError, match=r"join: field 'id': expected keys of one type in all datasets, got \['utf8', 'int"
    ):
        bags.join([films, numbers], on='id')
    with pytest.raises(KeyError, match="no field 'title'"):
        bags.join([films, labels], on='title')
    with pytest.raises(TypeError, match=r"field 'frames' of type .*: expected keys"):
        bags.join([films, films], on='frames')
    with pytest.raises(ValueError, match='no effect without on'):
        bags.join([films, films], how='left', replace=True)
    with pytest.raises(ValueError, match='how: expected'):
        bags.join([films, labels], on='id', how='outer')
    with pytest.raises(ValueError, match="field 'frames' of dataset 1 is also in an earlier dataset"):
        bags.join([films, films], on='id')
    assert bags.join([films, films], True, on='id')[3]['title'] == films[3]['title']
    one = write(tmp_path / 'one', LABELS, [label(1)])
    bags.create_index(tmp_path / 'one', 'id')
    with bags.ShardedDatasetWriter(tmp_path / 'one', LABELS, resume=True) as writer:
        writer.append(label(2))
    assert len(one) == 1
    with pytest.raises(bags.CorruptError, match='stale'):
        bags.join([films, bags.open(tmp_path / 'one')], on='id')
