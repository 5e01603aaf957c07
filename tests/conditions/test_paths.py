"""Conditions on values inside fields; conditions.json has the cases that the viewer shares."""

import operator
from random import Random

import numpy as np
import pytest

import bags


@pytest.fixture
def dataset(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)', 'meta': 'json?', 'info': 'msgpack'}) as writer:
        for index in range(5000):
            meta = {'score': index / 5000, 'place': {'name': f'room {index % 7}'}}
            writer.append({'id': index, 'meta': meta if index % 2 else None, 'info': {1: index, 'x': b'12'}})
    with bags.open(tmp_path / 'd') as dataset:
        yield dataset


def test_many_datapoints_and_views(dataset):
    expected = [index for index in range(1, 5000, 2) if index / 5000 > 0.9]
    assert dataset.filter('meta.score > 0.9').indices.tolist() == expected
    assert dataset.filter('meta.score is none').indices.tolist() == list(range(0, 5000, 2))
    view = dataset.rename({'meta': 'facts'}).select([9, 3, 2]).filter('facts.place.name == "room 2"')
    assert [row['id'] for row in view] == [9]
    edited = dataset.update({2: {'meta': {'score': 7}}})
    assert edited.filter('meta.score > 1').indices.tolist() == [2]
    joined = bags.concat([dataset[:3], dataset[4990:]])
    assert [row['id'] for row in joined.filter('meta.place')] == [1, 4991, 4993, 4995, 4997, 4999]


def test_keys_that_are_integers(dataset):
    assert dataset.filter('info.1 < 3').indices.tolist() == [0, 1, 2]
    assert dataset.filter('id < 2 and len(info.x) == 2').indices.tolist() == [0, 1]


def test_no_datapoint_has_the_path(dataset):
    with pytest.raises(ValueError) as caught:
        dataset.filter('meta.place.nmae == "room 2"')
    assert 'no datapoint has meta.place.nmae: meta.place has name' in str(caught.value)
    assert dataset[:0].filter('meta.place.nmae == x').indices.tolist() == []
    assert dataset[:1].filter('meta.place.nmae == x').indices.tolist() == []  # No value of the field.
    with pytest.raises(ValueError, match=r'no datapoint has meta.*: meta\.place\.name is a text, without'):
        dataset.filter('meta.place.name.x > 3')


def test_errors_name_few_keys_of_few_values(tmp_path):
    with bags.DatasetWriter(tmp_path / 'wide', {'meta': 'json'}) as writer:
        for index in range(1000):
            writer.append({'meta': {f'key {index} ' + 'x' * 1000: 1}})
    with bags.open(tmp_path / 'wide') as wide, pytest.raises(ValueError) as caught:
        wide.filter('meta.key == 1')
    assert len(str(caught.value)) < 1200
    with bags.open(tmp_path / 'wide') as wide, pytest.raises(ValueError, match='at most 50 keys, got 9999'):
        wide.filter('meta' + '.a' * 9999 + ' == 1')


def test_deep_values(tmp_path):
    value, other = 3, 3
    for _ in range(400):
        value, other = [value], {'a': other}
    bags.write([{'meta': value}, {'meta': other}], tmp_path / 'deep', {'meta': 'json'})
    with bags.open(tmp_path / 'deep') as deep:
        assert deep.filter('any(meta == 3)').indices.tolist() == [0]
        assert deep.filter('meta' + '.a' * 50 + ' is not none').indices.tolist() == [1]


def test_raw_values_are_not_compared(tmp_path, dataset):
    with bags.open(tmp_path / 'd', raw=True) as raw:
        for text in ('meta.score > 3', 'info.x == 3', 'any(meta.tags == 3)'):
            with pytest.raises(ValueError, match='without raw=True'):
                raw.filter(text)


def test_columns_advise_conditions(dataset):
    with pytest.raises(KeyError, match=r"dataset.filter\('meta.score == …'\) tests values inside it"):
        dataset.column('meta.score')


def test_arrays_of_a_tree(tmp_path):
    rows = [
        {'t': {'x': np.arange(6).reshape(2, 3)}},
        {'t': {'x': np.zeros((0, 3))}},
        {'t': {'x': np.ones(2)}},
    ]
    bags.write(rows, tmp_path / 't', {'t': 'tree'})
    with bags.open(tmp_path / 't') as trees:
        assert trees.filter('any(t.x == 5)').indices.tolist() == [0]
        assert trees.filter('all(t.x == 1)').indices.tolist() == [1, 2]
        assert trees.filter('t.x').indices.tolist() == [0, 2]
        assert trees.filter('len(t.x) == 2').indices.tolist() == [0, 2]


def test_values_of_other_types_are_no_texts_and_numbers(tmp_path):
    rows = [
        {'text': 'a 1', 'numbers': [1.0, 2.5], 'meta': {'x': '1', 'y': [1]}},
        {'text': 'a 1', 'numbers': [1.0], 'meta': {'x': 1, 'y': {}}},
        {'text': 'a 1', 'numbers': [], 'meta': {'x': {'a': 1}, 'y': 'a'}},
    ]
    bags.write(rows, tmp_path / 'd', {'text': 'utf8', 'numbers': 'float(4)[]', 'meta': 'json'})
    with bags.open(tmp_path / 'd') as dataset:
        assert dataset.filter('text ~ meta.x').indices.tolist() == [0]
        assert dataset.filter('meta.x in text').indices.tolist() == [0]
        assert dataset.filter('meta.x in numbers').indices.tolist() == [1]
        assert dataset.filter('any(numbers == meta.x)').indices.tolist() == [1]


def test_arrays_are_no_lists_of_objects(tmp_path):
    rows = [{'t': {'a': np.zeros(2), 'b': np.zeros(3)}}, {'t': {'a': np.zeros(0), 'b': np.zeros(0)}}]
    bags.write(rows, tmp_path / 't', {'t': 'tree'})
    with bags.open(tmp_path / 't') as trees, pytest.raises(ValueError, match=r't\.a is no list'):
        trees.filter('any(t.a == 0 and t.b == 0)')


# Random conditions on random values, compared with Python.

COMPARISONS = {'==': operator.eq, '<': operator.lt, '>=': operator.ge}
KEYS = ('a', 'b', 'a.b', 'a.c', 'b.a')


def random_value(random, depth=0):
    chance = random.random()
    if depth < 3 and chance < 0.35:
        names = random.sample(['a', 'b', 'c', 'a.b'], random.randint(0, 3))
        return {name: random_value(random, depth + 1) for name in names}
    if depth < 3 and chance < 0.6:
        return [random_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return random.choice([None, True, False, 0, 1, -3, 2.5, 'a', 'B', '', '1', 2**60 + 1, 2**60])


def step(node, keys):
    """Returns the value of the longest key, and the rest of the keys; None if there is none."""
    stops = range(len(keys), 0, -1) if isinstance(node, dict) else ()
    return next(((node['.'.join(keys[:n])], keys[n:]) for n in stops if '.'.join(keys[:n]) in node), None)


def value_of(node, keys):
    while keys:
        found = step(node, keys)
        if found is None:
            return None
        node, keys = found
    return node


def items_of(node, keys):
    """Returns the items of the lists on the way, or None if there is no such path."""
    if isinstance(node, list):
        parts = [items_of(each, keys) for each in node]
        return [item for part in parts for item in ([None] if part is None else part)]
    if not keys:
        return [node]
    found = step(node, keys)
    return None if found is None else items_of(*found)


def is_true(one, sign, two):
    if sign == '!=':
        return not is_true(one, '==', two)
    if one is None and two is None:
        return sign == '=='
    are_comparable = any(isinstance(one, types) and isinstance(two, types) for types in (str, (int, float)))
    return are_comparable and COMPARISONS[sign](one, two)


def random_condition(random):
    """Returns a condition, and the function of a row that it is."""
    field, path, sign = random.choice(['d', 'e']), random.choice(KEYS), random.choice([*COMPARISONS, '!='])
    keys = path.split('.')
    constant = random.choice([0, 1, -3, 2.5, 'a', 'B', '', '1', True, 2**60 + 1])
    text = f'"{constant}"' if isinstance(constant, str) else str(constant).lower()
    chance = random.random()
    if chance < 0.4:
        return f'{field}.{path} {sign} {text}', lambda row: is_true(
            value_of(row[field], keys), sign, constant
        )
    if chance < 0.5:
        return f'not {field}.{path}', lambda row: not value_of(row[field], keys)
    if chance < 0.6:
        return f'{field}.{path} {sign} n', lambda row: is_true(value_of(row[field], keys), sign, row['n'])
    quantifier = random.choice([any, all])

    def test(row):
        items = None if row[field] is None else items_of(row[field], keys)
        return items is not None and quantifier(is_true(item, sign, constant) for item in items)

    return f'{quantifier.__name__}({field}.{path} {sign} {text})', test


def test_random_conditions(tmp_path):
    random = Random(0)
    rows = [
        {'n': random.choice([None, 0, 1, -3]), 'd': random_value(random), 'e': random_value(random)}
        for _ in range(200)
    ]
    bags.write(rows, tmp_path / 'd', {'n': 'int(8)?', 'd': 'json', 'e': 'msgpack?'})
    compared = 0
    with bags.open(tmp_path / 'd') as dataset:
        for _ in range(600):
            text, test = random_condition(random)
            expected = [index for index, row in enumerate(rows) if test(row)]
            try:
                found = dataset.filter(text, workers=1).indices.tolist()
            except ValueError:  # No datapoint has the path, or a value of the type.
                continue
            assert found == expected, text
            compared += 1
    assert compared > 400
