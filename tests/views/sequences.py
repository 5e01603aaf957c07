"""Random sequences of edits, views and saves, applied to a dataset and to a list of dicts."""

import pickle

import numpy as np
from hypothesis import strategies as st

import bags

SPEC = {
    'id': 'int(8)', 'text': 'utf8', 'note': 'utf8?', 'words': 'int(2)[]?', 'vector': 'array(float32,80)',
    'blob': 'bytes?', 'parts': 'bytes[]',
}  # fmt: skip
COUNT = 11
VALUES = {
    'int(8)': st.integers(-20, 20),
    'utf8': st.text(max_size=4),
    'utf8?': st.none() | st.text(max_size=4),
    'int(2)[]?': st.none() | st.lists(st.integers(-9, 9), max_size=3),
    'array(float32,80)': st.integers(-9, 9).map(lambda number: [float(number)] * 80),
    'bytes?': st.none() | st.binary(max_size=3).map(lambda data: data * 200),
    'bytes[]': st.lists(st.binary(max_size=2).map(lambda data: data * 300), max_size=3),
}
NAMES = [*SPEC, 'a', 'b', 'c', 'x.y']


def row(index):
    chance = np.random.default_rng(index)
    return {
        'id': index,
        'text': f'text {index % 4}',
        'note': None if index % 3 else str(index % 2),
        'words': None if index % 4 == 3 else list(range(index % 4)),
        'vector': [float(index % 5)] * 80,
        'blob': None if index % 5 == 2 else chance.bytes(300 * (index % 3)),
        'parts': [chance.bytes(300) for _ in range(index % 3)],
    }


def plain(value):
    """Returns a value with lists in place of arrays and ragged columns."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bags.Ragged | list):
        return [plain(each) for each in value]
    return value


def rows_of(dataset):
    return [{name: plain(value) for name, value in each.items()} for each in dataset]


class Model:
    """What a dataset has: rows, the types of its fields, and the fields that have a key index."""

    def __init__(self, rows, types, keys=()):
        self.rows, self.types, self.keys = rows, dict(types), set(keys)

    def copy(self, rows=None, **changes):
        return Model(
            self.rows if rows is None else rows, **{'types': self.types, 'keys': self.keys, **changes}
        )

    def only(self, names):
        rows = [{name: each[name] for name in names} for each in self.rows]
        types = {name: self.types[name] for name in names}
        return self.copy(rows, types=types, keys=self.keys & types.keys())


def indices(draw, model, most=14):
    """Draws indices in any order, with repeats and negative ones."""
    count = len(model.rows)
    return draw(st.lists(st.integers(-count, count - 1), max_size=most)) if count else []


def some_fields(draw, model):
    """Draws at least one field, in the order of the dataset."""
    chosen = draw(st.sets(st.sampled_from(sorted(model.types)), min_size=1))
    return [name for name in model.types if name in chosen]


def drop(draw, dataset, model, _):
    dropped = indices(draw, model, 4)
    gone = {index % len(model.rows) for index in dropped}
    rows = [each for index, each in enumerate(model.rows) if index not in gone]
    return dataset.drop(dropped), model.copy(rows)


def drop_fields(draw, dataset, model, _):
    kept = some_fields(draw, model)
    return dataset.drop(fields=[name for name in model.types if name not in kept]), model.only(kept)


def rename(draw, dataset, model, _):
    names = draw(
        st.lists(st.sampled_from(NAMES), min_size=len(model.types), max_size=len(model.types), unique=True)
    )
    new = dict(zip(model.types, names, strict=True))
    if draw(st.booleans()):
        changed = draw(st.sampled_from(list(new)))
        new = {name: name if name != changed else new[name] for name in new}
        if len(set(new.values())) < len(new):
            return dataset, model
    rows = [{new[name]: value for name, value in each.items()} for each in model.rows]
    types = {new[name]: text for name, text in model.types.items()}
    given = {name: other for name, other in new.items() if name != other or draw(st.booleans())}
    return dataset.rename(given), model.copy(rows, types=types, keys={new[name] for name in model.keys})


def update(draw, dataset, model, _):
    changes, rows = {}, [dict(each) for each in model.rows]
    for index in dict.fromkeys(indices(draw, model, 4)):
        new = {name: draw(VALUES[model.types[name]]) for name in some_fields(draw, model)}
        changes[index] = new
        rows[index].update(new)
    return dataset.update(changes), model.copy(rows)


def select(draw, dataset, model, _):
    chosen = indices(draw, model)
    names = some_fields(draw, model)
    return dataset.select(chosen, names), model.copy([model.rows[index] for index in chosen]).only(names)


def cut(draw, dataset, model, _):
    part = draw(st.slices(len(model.rows)))
    return dataset[part], model.copy(model.rows[part])


def filtered(draw, dataset, model, _):
    name = draw(st.sampled_from(list(model.types)))
    value = draw(st.sampled_from([each[name] for each in model.rows])) if model.rows else None
    found = dataset.filter(lambda each: plain(each[name]) != value, [name], workers=1)
    return found, model.copy([each for each in model.rows if each[name] != value])


def concat(draw, dataset, model, _):
    other = draw(st.sampled_from([drop, update, cut]))
    second, other_model = other(draw, dataset, model, _)
    return bags.concat([dataset, second]), model.copy(model.rows + other_model.rows)


def join(draw, dataset, model, _):
    first = some_fields(draw, model)
    second = [name for name in model.types if name not in first]
    if not second:
        return dataset, model
    joined = bags.join([dataset.select(fields=second), dataset.drop(fields=second)])
    rows = [{name: each[name] for name in joined.schema} for each in model.rows]
    return joined, model.copy(rows, types={name: model.types[name] for name in joined.schema})


def unique(draw, dataset, model, _):
    name = draw(st.sampled_from(list(model.types)))
    seen, rows = [], []
    for each in model.rows:
        if each[name] not in seen:
            seen.append(each[name])
            rows.append(each)
    return dataset.unique(name), model.copy(rows)


def split(draw, dataset, model, _):
    keyed = [name for name, text in model.types.items() if text in ('int(8)', 'utf8')]
    by = draw(st.sampled_from([None, *keyed]))
    seed = draw(st.integers(0, 3))
    try:
        views = dataset.split({'a': 0.5, 'b': 0.3, 'c': 0.2}, by, seed=seed)
    except ValueError as exc:
        if 'got none of' not in str(exc):  # Few keys may leave a part empty.
            raise
        return dataset, model
    assert sum(map(len, views.values())) == len(model.rows)
    if by is None:
        return bags.concat([views['a'], views['b'], views['c']])[:0], model.copy([])
    groups = {name: {plain(key) for key in map(plain, view.column(by))} for name, view in views.items()}
    chosen = draw(st.sampled_from(['a', 'b', 'c']))
    assert not any(groups[chosen] & keys for name, keys in groups.items() if name != chosen)
    return views[chosen], model.copy([each for each in model.rows if each[by] in groups[chosen]])


def save(draw, dataset, model, root):
    heavy = [
        name for name, text in model.types.items() if text not in ('int(8)', 'utf8', 'utf8?', 'int(2)[]?')
    ]
    link = heavy if heavy and draw(st.booleans()) else False
    folder, options = root
    path = folder / str(len(list(folder.iterdir())))
    dataset.save(path, link=link, shard_length=draw(st.sampled_from([None, 4])))
    return bags.open(path, trust_links=True, **(options if link else {})), model.copy(keys=())


def pickled(draw, dataset, model, _):
    return pickle.loads(pickle.dumps(dataset)), model


EDITS = [drop, drop_fields, rename, update, update, select, cut, filtered, concat, join, unique, pickled]


def apply(draw, dataset, model, root, steps):
    """Applies random steps; returns the dataset and the model."""
    for _ in range(draw(st.integers(1, steps))):
        step = draw(st.sampled_from([*EDITS, split, save]))
        dataset, model = step(draw, dataset, model, root)
    return dataset, model


def check(draw, dataset, model):
    """Compares a dataset with a model in every way of reading."""
    rows = model.rows
    assert {name: dataset.spec[name] for name in dataset.schema} == dict(model.types)
    assert list(dataset.schema) == list(model.types) or sorted(dataset.schema) == sorted(model.types)
    assert len(dataset) == len(rows)
    assert rows_of(dataset) == rows
    order = indices(draw, model)
    assert rows_of(dataset.__getitems__(order)) == [rows[index] for index in order]
    names = some_fields(draw, model)
    batch = dataset.batch(order, names)
    for name in names:
        assert plain(batch[name]) == [rows[index][name] for index in order]
        assert plain(dataset.column(name)) == [each[name] for each in rows]
        if model.types[name].endswith(('[]', '[]?')):
            assert dataset.lengths(name).tolist() == [len(each[name] or ()) for each in rows]
    for index in order:
        assert {name: plain(value) for name, value in dataset[index, tuple(names)].items()} == {
            name: rows[index][name] for name in names
        }
    for name in names:
        if model.types[name] == 'bytes?':
            assert list(dataset.records(name)) == [each[name] for each in rows]
        if model.types[name] == 'bytes[]':
            assert list(dataset.records(name)) == [part for each in rows for part in each[name]]
        if name in model.keys and rows:
            keys = [each[name] for each in rows]
            assert [dataset.find(name, key) for key in keys] == [keys.index(key) for key in keys]
