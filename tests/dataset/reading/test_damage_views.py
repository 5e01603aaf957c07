"""A damaged shard, read through readers, views and the loader: an error, or the right value."""

import random
import shutil

import numpy as np
import pytest

import bags
from bags.dataset.format.spec import parse_spec
from tests.dataset.reading.test_damage import (
    COUNT,
    ERRORS,
    FORMS,
    ROWS,
    SPEC,
    Bad,
    as_row,
    check_meant,
    check_message,
    listed,
    meaning,
)

SHARDS = 3
DAMAGED_SHARD = 1


@pytest.fixture(params=FORMS, scope='module')
def whole(request, kit, tmp_path_factory):
    path = tmp_path_factory.mktemp('damage') / 'whole'
    kit.fill(path, ROWS * SHARDS, SPEC, compression=FORMS[request.param], shard_length=COUNT)
    return path


def damage(rng, folder):
    """Damages one file; returns a description of the damage."""
    path = rng.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    kind = rng.randrange(4) if data else 3
    place = rng.randrange(max(1, len(data)))
    if kind == 0:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[place : place + 9] = rng.randbytes(min(9, len(data) - place))
    elif kind == 2:
        del data[place:]
    else:
        data += rng.randbytes(8)
    path.write_bytes(data)
    return f'{path.name}, kind {kind} at {place}'


def ways(reader, name):
    """Yields ways to read many values of a field: a name, the datapoints, and a function that reads them."""
    count = len(reader)
    order = [*range(count)[::-2], *range(count)]
    sequence = reader.spec[name].rstrip('?').endswith('[]')

    def rows(dataset, indices):
        return [row[name] for row in dataset.__getitems__(indices)]

    def batch(dataset, indices, items=True):
        column = dataset.batch(indices, {name: items})[name]
        return [listed(column, place) for place in range(len(indices))]

    chosen = reader.select(order)
    back = reader[::-1]
    both = bags.concat([reader, reader])
    joined = bags.join([reader.select(range(count)), reader], replace=True)
    everything = range(count)
    yield 'iteration', everything, lambda: [row[name] for row in reader]
    yield 'rows', order, lambda: rows(reader, order)
    yield 'batch', order, lambda: batch(reader, np.array(order))
    yield 'select', order, lambda: batch(chosen, range(len(order)))
    yield 'rows of a slice', everything[::-1], lambda: rows(back, everything)
    yield 'concat', [*everything, *everything], lambda: batch(both, range(2 * count))
    yield 'join', order, lambda: rows(joined, order)
    yield 'batch of join', order, lambda: batch(joined, order)
    for index in range(0, count, 2):
        yield 'a row of select', [order[index]], lambda index=index: [chosen[index, name][name]]
        yield 'a row of concat', [index], lambda index=index: [both[count + index][name]]
        yield 'a row of join', [index], lambda index=index: [joined[index, name][name]]
    if sequence:
        yield 'all items', everything, lambda: batch(reader, everything, slice(None))
        windows = reader.windows({name: bags.steps(0, 1)}, every=name)
        yield 'windows', everything, lambda: regroup(windows, name, batch(windows, range(len(windows))))
    loader = bags.Loader(reader, 4, fields=name, shuffle=False, epochs=1, workers=0, last_batch='partial')
    yield (
        'loader',
        everything,
        lambda: [listed(found[name], place) for found in loader for place in range(len(found[name]))],
    )


def regroup(windows, name, values):
    """Returns windows of one item as the sequences of their datapoints."""
    rows = [[] for _ in range(len(windows.datasets[0]))]
    for row, window in zip(windows.origins().datapoint.tolist(), values, strict=True):
        rows[row] += list(window)
    kind = parse_spec({name: SPEC[name]})[name]
    return [as_row(kind, items) for items in rows]


def campaign(whole, tmp_path, kit, seeds):
    tally = {'errors': 0, 'right': 0}
    for seed in seeds:
        path = tmp_path / 'damaged'
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        rng = random.Random(seed)
        done = damage(rng, path / f'{DAMAGED_SHARD:06}')
        try:
            count, value = meaning(path / f'{DAMAGED_SHARD:06}')
        except Bad:
            count, value = None, None

        def means(index, name, count=count, value=value):
            length = COUNT if count is None else count
            if COUNT <= index < COUNT + length:
                if value is None:
                    raise Bad
                return value(index - COUNT, name)
            return ROWS[index if index < COUNT else index - length - COUNT][name]

        try:
            reader = bags.open(path)
        except ERRORS as exc:
            check_message(exc, path)
            tally['errors'] += 1
            continue
        with reader:
            assert len(reader) in (SHARDS * COUNT, (SHARDS - 1) * COUNT + (count or 0)), (seed, done)
            name = rng.choice(sorted(SPEC))
            try:
                every_way = list(ways(reader, name))
            except ERRORS as exc:  # Windows count items when they are created.
                check_message(exc, path)
                tally['errors'] += 1
                continue
            for way, order, read in every_way:
                try:
                    found = read()
                except ERRORS as exc:
                    check_message(exc, path)
                    tally['errors'] += 1
                    continue
                assert len(found) == len(order), (seed, done, way)
                for index, got in zip(order, found, strict=True):
                    where = f'seed {seed}, {done}: {way}, {name} of {index}'
                    check_meant(kit, means, index, name, got, where)
                    tally['right'] += 1
    assert min(tally.values()) > len(seeds) // 3


@pytest.mark.slow(all_but='zstd')
def test_one_shard_damaged(whole, tmp_path, kit):
    campaign(whole, tmp_path, kit, range(30))


@pytest.mark.campaign
def test_one_shard_damaged_thoroughly(whole, tmp_path, kit):
    campaign(whole, tmp_path, kit, range(1500))


@pytest.mark.slow(all_but='zstd')
def test_index_over_a_damaged_field(whole, tmp_path):
    """Returns an index over a field, and its lengths: right, or an error."""
    for seed in range(60):
        path = tmp_path / f'{seed}'
        shutil.copytree(whole, path)
        done = damage(random.Random(seed), path / f'{DAMAGED_SHARD:06}')
        try:
            count, value = meaning(path / f'{DAMAGED_SHARD:06}')
            assert count == COUNT
            lengths = [len(value(index, 'words')) for index in range(COUNT)]
            texts = [value(index, 'text') for index in range(COUNT)]
        except (Bad, AssertionError):
            lengths = texts = None
        try:
            with bags.open(path) as reader:
                found = reader.lengths('words').tolist()[COUNT : 2 * COUNT]
                index = bags.bag.Index(reader.records('text'))
                keys = {record: index[record] for record in set(reader.records('text'))}
        except ERRORS as exc:
            check_message(exc, path)
            continue
        if lengths is not None:
            assert found == lengths, done
            expected = [row['text'] for row in ROWS] + texts + [row['text'] for row in ROWS]
            assert keys == {text.encode(): expected.index(text) for text in expected}, done
