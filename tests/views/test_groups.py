"""`split` and `unique`."""

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

import bags

SHARES = {'train': 0.8, 'val': 0.15, 'test': 0.05}


def write(path, episodes, **options):
    spec = {'id': 'int(8)', 'episode': 'utf8?', 'text': 'bytes?'}
    with bags.ShardedDatasetWriter(path, spec, **options) as writer:
        for number, episode in enumerate(episodes):
            writer.append(
                {'id': number, 'episode': episode, 'text': None if number % 5 == 4 else b'%d' % (number % 3)}
            )
    return bags.open(path)


def split_of(dataset, **options):
    views = dataset.split(SHARES, **options)
    found = {int(number): name for name, view in views.items() for number in view.column('id')}
    assert sum(map(len, views.values())) == len(found) == len(dataset)
    assert all(view.column('id').tolist() == sorted(view.column('id')) for view in views.values())
    return found


def test_a_datapoint_stays_in_its_split(tmp_path):
    episodes = [f'episode {number // 7}' for number in range(3000)]
    with (
        write(tmp_path / 'a', episodes[:2000]) as first,
        write(tmp_path / 'b', episodes, shard_length=100) as grown,
    ):
        for by in (None, 'episode', 'id'):
            before, after = split_of(first, by=by), split_of(grown, by=by)
            assert after.items() >= before.items()
            assert {*before.values()} == SHARES.keys()
        by_episode = {}
        for number, name in split_of(grown, by='episode').items():
            by_episode.setdefault(episodes[number], set()).add(name)
        assert {len(names) for names in by_episode.values()} == {1}
        assert split_of(grown, seed=1) != split_of(grown, seed=2)
        # A datapoint keeps its split in another order too.
        turned = grown[::-1].split(SHARES, 'episode')['val']
        assert sorted(turned.column('id')) == grown.split(SHARES, 'episode')['val'].column('id').tolist()


def test_shares_are_met(tmp_path):
    with write(tmp_path / 'a', [f'episode {number}' for number in range(10_000)]) as dataset:
        for by in (None, 'episode'):
            sizes = {name: len(view) / 10_000 for name, view in dataset.split(SHARES, by=by).items()}
            assert all(abs(sizes[name] - share) < 0.02 for name, share in SHARES.items())
        assert [*map(len, dataset.split({'all': 1, 'none': 0}).values())] == [10_000, 0]


@pytest.mark.parametrize(
    ('shares', 'by', 'error', 'message'),
    [
        ({'a': 0.5, 'b': 0.4}, None, ValueError, 'add up to 1'),
        ({'a': 1.5, 'b': -0.5}, None, ValueError, 'from 0 to 1'),
        ({}, None, TypeError, 'mapping of names'),
        (['a'], None, TypeError, 'mapping of names'),
        ({'a': '1'}, None, TypeError, 'expected shares, or by= with values'),
        ({1: 1.0}, None, TypeError, 'expected the name of a part, got 1'),
        ({'a': 0.5, 'b': ['a']}, 'episode', TypeError, 'shares and values cannot be mixed'),
        ({'a': 'a', 'b': ...}, 'episode', TypeError, "'a': expected values of field 'episode', or ..."),
        ({'a': [1], 'b': ...}, 'episode', TypeError, "'a': expected values of type utf8., got 1"),
        ({'a': ..., 'b': ...}, 'episode', ValueError, "expected ... for one part, got it for 'a' and 'b'"),
        ({'a': ['a'], 'b': ['a']}, 'episode', ValueError, "'a' is in two parts: 'a', 'b'"),
        ({'a': ['a'], 'b': ...}, 'episode', ValueError, 'no value in datapoint 1'),
        ({'a': 1}, 'episodes', KeyError, "no field 'episodes'"),
        ({'a': 1}, 'value', TypeError, 'expected utf8, bytes, int or uint'),
        ({'a': 1}, 'episode', ValueError, 'no value in datapoint 1'),
    ],
)
def test_wrong_splits_are_refused(tmp_path, shares, by, error, message):
    with bags.DatasetWriter(tmp_path / 'd', {'episode': 'utf8?', 'value': 'float(8)'}) as writer:
        for episode in ('a', None):
            writer.append({'episode': episode, 'value': 0.5})
    with bags.open(tmp_path / 'd') as dataset, pytest.raises(error, match=message):
        dataset.split(shares, by)


@pytest.mark.parametrize('type', ['utf8', 'int(8)', 'bytes'])
def test_a_split_by_values(tmp_path, type):
    keys = {'utf8': ['ann', 'bob', 'cyd'], 'int(8)': [1, 22, -3], 'bytes': [b'a', b'', b'c']}[type]
    with bags.DatasetWriter(tmp_path / 'd', {'speaker': type}) as writer:
        for number in range(12):
            writer.append({'speaker': keys[number % 3]})
    with bags.open(tmp_path / 'd') as dataset:
        views = dataset.split({'val': [keys[2]], 'train': ...}, by='speaker')
        assert dataset.column('speaker')[2] == keys[2]
        assert len(views['val']) == 4
        assert len(views['train']) == 8
        assert {row['speaker'] for row in views['val']} == {keys[2]}
        assert {row['speaker'] for row in views['train']} == {*keys[:2]}
        some = dataset.split({'a': [keys[0]], 'b': [keys[1]]}, by='speaker')
        assert [*map(len, some.values())] == [4, 4]
        other = {'utf8': 'dan', 'int(8)': 4, 'bytes': b'd'}[type]
        with pytest.raises(ValueError, match="'val': expected values of field 'speaker', got "):
            dataset.split({'val': [other], 'train': ...}, by='speaker')
        with pytest.raises(ValueError, match="'train': expected other values of field 'speaker', got none"):
            dataset.split({'val': keys, 'train': ...}, by='speaker')


def test_a_part_without_datapoints_is_an_error(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'task': 'utf8'}) as writer:
        for number in range(60):
            writer.append({'task': 'ab'[number % 2]})
    with bags.open(tmp_path / 'd') as dataset:
        match = r"for a share of 0\.05, got none of 2 different values of field 'task': name the values"
        with pytest.raises(ValueError, match=match):
            dataset.split({'train': 0.95, 'val': 0.05}, by='task')
        with pytest.raises(ValueError, match=r'got none of 3 datapoints: pass another seed'):
            dataset[:3].split({'train': 0.999, 'val': 0.001})
        for seed in range(20):
            with pytest.raises(
                ValueError, match=r'of 1 datapoints: 2 parts with a share above 0 need at least 2'
            ):
                dataset[:1].split({'train': 0.5, 'val': 0.5, 'test': 0}, seed=seed)
        with pytest.raises(ValueError, match=r"of 2 different values of field 'task': 3 parts .* at least 3"):
            dataset.split({'train': 0.4, 'val': 0.3, 'test': 0.3}, by='task')
        assert [*map(len, dataset[:1].split({'train': 1, 'val': 0}).values())] == [1, 0]
        assert [*map(len, dataset[:0].split({'train': 0.5, 'val': 0.5}).values())] == [0, 0]


def test_the_first_of_each_value_stays(tmp_path):
    with write(tmp_path / 'a', ['a', 'b'] * 20, shard_length=7) as dataset:
        assert dataset.unique('text').column('id').tolist() == [0, 1, 2, 4]
        assert dataset[::-1].unique('text').column('id').tolist() == [39, 38, 37, 36]
        assert len(dataset.unique('id')) == 40
        with pytest.raises(KeyError, match="no field 'texts'"):
            dataset.unique('texts')


SECRET = bytes.fromhex('b8fe6c3923a44bbe')
"""Of XXH3: where a record has these 8 bytes, the hash does not depend on the next 8."""


def colliding(number):
    return SECRET + number.to_bytes(8, 'little') + bytes(16)


@pytest.mark.parametrize('field_type', ['bytes', 'bytes[]'])
def test_values_with_one_hash_are_told_apart(tmp_path, field_type):
    assert len({xxh3_64_intdigest(colliding(number)) for number in range(20)}) == 1
    numbers = np.random.default_rng(0).integers(0, 20, 300).tolist()
    with bags.DatasetWriter(tmp_path / 'd', {'x': field_type}) as writer:
        for number in numbers:
            record = colliding(number)
            writer.append({'x': [record] if field_type == 'bytes[]' else record})
    with bags.open(tmp_path / 'd') as dataset:
        firsts = [numbers.index(number) for number in dict.fromkeys(numbers)]
        kept = dataset.unique('x')
        assert list(kept) == [dataset[index] for index in firsts]
