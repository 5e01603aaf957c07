"""Readers, compared with a list of the records as the model."""

from __future__ import annotations

import gc
import itertools
import os
import pathlib
import pickle
import random
import signal
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags import bag
from bags.errors import CorruptError
from tests.bag.samples import (
    ACCESS,
    COMPRESSIONS,
    PLACEMENTS,
    descriptors,
    few,
    forked,
    many,
    records_of_many_kinds,
    run_child,
    threads_of_bags,
    write,
)

RECORDS = records_of_many_kinds()
SHARDINGS = ('single', 'concatenated', 'interleaved')
INTS = [int, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.fixture(scope='module')
def specs(tmp_path_factory):
    """File specs of RECORDS by limits placement, compression and sharding."""
    folder = tmp_path_factory.mktemp('bags')
    specs = {}
    for placement, name, sharding in itertools.product(PLACEMENTS, COMPRESSIONS, SHARDINGS):
        options = {'limits_placement': placement, 'compression': COMPRESSIONS[name]}
        stem = folder / f'{placement}-{name}-{sharding}'
        if sharding == 'single':
            parts, spec = [RECORDS], f'{stem}.bag'
            paths = [spec]
        else:
            spec = f'{stem}@3.bag'
            paths = [f'{stem}-{shard:05}-of-00003.bag' for shard in range(3)]
            # With an empty shard, if the order allows one.
            cuts = (
                [RECORDS[:40], [], RECORDS[40:]]
                if sharding == 'concatenated'
                else [RECORDS[shard::3] for shard in range(3)]
            )
            parts = cuts
        for path, part in zip(paths, parts, strict=True):
            write(path, part, **options)
        specs[placement, name, sharding] = spec
    return specs


def opened(specs, placement, compression, sharding, access='mapped', storage='on_disk'):
    return bag.Reader(
        specs[placement, compression, sharding],
        limits_placement=placement,
        compression=COMPRESSIONS[compression],
        sharding_layout='concatenated' if sharding == 'single' else sharding,
        limits_storage=storage,
        **ACCESS[access],
    )


PRODUCT = list(itertools.product(PLACEMENTS, COMPRESSIONS, SHARDINGS, ACCESS, ('on_disk', 'in_memory')))
combinations = st.sampled_from(PRODUCT)
slices = st.slices(len(RECORDS))
indices = st.integers(-len(RECORDS), len(RECORDS) - 1)


@pytest.mark.parametrize(('placement', 'compression', 'sharding', 'access', 'storage'), PRODUCT)
def test_every_combination_reads_the_records_in_every_way(
    specs, placement, compression, sharding, access, storage
):
    with opened(specs, placement, compression, sharding, access, storage) as reader:
        check_all_ways(reader, RECORDS)


def check_all_ways(reader, model):
    count = len(model)
    chosen = [0, -1, count - 1, count // 2, 0, -count] if count else []
    assert len(reader) == count
    assert [reader[index] for index in range(count)] == model
    assert [reader[index] for index in chosen] == [model[index] for index in chosen]
    assert reader.read() == model
    assert list(reader) == model
    assert list(reversed(reader)) == model[::-1]
    assert reader[::-2].read() == model[::-2]
    assert reader.read_range(count // 3, count // 3) == model[count // 3 :][: count // 3]
    assert reader.read_indices(chosen) == [model[index] for index in chosen]
    assert list(reader.read_indices_iter(iter(chosen), read_ahead=2)) == [model[i] for i in chosen]
    assert list(reader.read_range_iter(1, count - 1, read_ahead=7) if count else []) == model[1:]
    assert [bytes(reader.view(index)) for index in chosen] == [model[index] for index in chosen]
    assert list(map(bytes, reader.views(chosen))) == [model[index] for index in chosen]
    if model:
        assert reader.index(model[-1]) == model.index(model[-1])
        assert model[-1] in reader
        assert reader.count(b'') == model.count(b'')
    assert b'no such record' not in reader


def check_selections(specs, combination, first, second, chosen):
    with opened(specs, *combination) as reader:
        model = RECORDS[first]
        part = reader[first]
        assert isinstance(part, bag.Reader)
        assert isinstance(part, Sequence)
        assert len(part) == len(model)
        assert part.read() == model
        assert list(part) == model
        assert part[second].read() == model[second]
        assert part.read_indices(second) == model[second]
        assert list(map(bytes, part.views(second))) == model[second]
        assert list(part.read_indices_iter(second)) == model[second]
        assert [part[index] for index in range(-len(model), len(model))] == model * 2
        chosen = [index for index in chosen if -len(model) <= index < len(model)]
        expected = [model[index] for index in chosen]
        assert part.read_indices(chosen) == expected
        assert part.read_indices(np.array(chosen, np.int64)) == expected
        assert part.read_indices(index for index in chosen) == expected
        assert list(map(bytes, part.views(chosen))) == expected
        assert list(part.read_indices_iter(chosen, read_ahead=3)) == expected
        for value in (RECORDS[3], b''):
            assert part.count(value) == model.count(value)
            assert (value in part) == (value in model)
            if value in model:
                assert part.index(value) == model.index(value)


selections = {
    'combination': combinations,
    'first': slices,
    'second': slices,
    'chosen': st.lists(indices, max_size=30),
}


@few
@given(**selections)
def test_slices_of_slices_and_any_indices(specs, combination, first, second, chosen):
    check_selections(specs, combination, first, second, chosen)


@pytest.mark.campaign
@many
@given(**selections)
def test_slices_of_slices_and_any_indices_thoroughly(specs, combination, first, second, chosen):
    check_selections(specs, combination, first, second, chosen)


@few
@given(combinations, st.data())
def test_ranges(specs, combination, data):
    with opened(specs, *combination) as reader:
        start = data.draw(st.integers(0, len(RECORDS)))
        count = data.draw(st.integers(0, len(RECORDS) - start))
        ahead = data.draw(st.one_of(st.none(), st.integers(1, 100)))
        expected = RECORDS[start : start + count]
        assert reader.read_range(start, count) == expected
        assert list(reader.read_range_iter(start, count, read_ahead=ahead)) == expected
        low = data.draw(st.integers(-70, 70))
        high = data.draw(st.one_of(st.none(), st.integers(-70, 70)))
        value = data.draw(st.sampled_from(RECORDS))
        try:
            place = RECORDS.index(value, low, len(RECORDS) if high is None else high)
        except ValueError:
            with pytest.raises(ValueError, match='no such record'):
                reader.index(value, low, high)
        else:
            assert reader.index(value, low, high) == place


# Single records.


@pytest.fixture
def reader(specs):
    with opened(specs, 'tail', 'plain', 'single') as reader:
        yield reader


@pytest.fixture(params=['x.bag', 'x.bagz'])
def access_to_300(request, tmp_path):
    records = [b'%04d' % index for index in range(300)]
    path = write(tmp_path / request.param, records)
    return bag.Reader(path), records


@pytest.mark.parametrize('kind', [*INTS, bool])
@pytest.mark.parametrize('sharding', SHARDINGS)
def test_integers_of_any_kind(specs, access_to_300, kind, sharding):
    for reader, records in ((opened(specs, 'tail', 'plain', sharding), RECORDS), access_to_300):
        high = 1 if kind is bool else min(len(records) - 1, np.iinfo(kind).max if kind is not int else 999)
        # Repeated reads may take another path for records of one length.
        for index in [*range(0, high + 1, 17), high, *[high] * 20]:
            assert reader[kind(index)] == records[index]
            assert bytes(reader.view(kind(index))) == records[index]
        if kind is not bool and (kind is int or np.iinfo(kind).min):
            assert reader[kind(-1)] == records[-1]
            assert reader[kind(-60)] == records[-60]


class Five:
    def __index__(self):
        return 5


def test_anything_with_an_index_is_an_integer(reader):
    assert reader[Five()] == reader[np.array(5)] == RECORDS[5]
    assert reader.read_indices([Five(), np.int8(3)]) == [RECORDS[5], RECORDS[3]]
    for index in (1.0, '1', None, [1], (1,), b'1', np.float64(1)):
        with pytest.raises(TypeError):
            reader[index]
        with pytest.raises(TypeError):
            reader.view(index)


@pytest.mark.parametrize('sharding', SHARDINGS)
@pytest.mark.parametrize('compression', COMPRESSIONS)
def test_an_index_out_of_range(specs, compression, sharding):
    reader = opened(specs, 'tail', compression, sharding)
    for index in (61, -62, 1 << 70, -(1 << 70), np.uint64((1 << 64) - 1), np.int64(-62)):
        with pytest.raises(IndexError, match=r'out of range \[-61, 61\)'):
            reader[index]
        with pytest.raises(IndexError, match=r'out of range \[-61, 61\)'):
            reader.view(index)
        with pytest.raises(IndexError, match=r'out of range \[-61, 61\)'):
            reader.read_indices([3, index])
    with pytest.raises(IndexError):
        reader[5:10][5]


def test_the_error_names_the_position_of_an_index_out_of_range(reader):
    for chosen in ([0, 5, 61], np.array([0, 5, 61]), np.array([0, 5, 61], np.uint64), range(59, 65)):
        with pytest.raises(IndexError, match=r'indices\[2\] = 61 out of range'):
            reader.read_indices(chosen)


@pytest.mark.parametrize(('start', 'count'), [(0, 62), (61, 1), (62, 0), (-1, 1), (3, -1)])
def test_a_range_out_of_range(reader, start, count):
    with pytest.raises(IndexError, match='out of range'):
        reader.read_range(start, count)
    with pytest.raises(IndexError, match='out of range'):
        reader.read_range_iter(start, count)


@pytest.mark.parametrize('part', [slice('x'), slice(1.5, None), slice(None, None, 'x'), slice(None, None, 0)])
def test_an_invalid_slice(reader, part):
    for read in (reader.__getitem__, reader.read_indices, reader.views, reader.read_indices_iter):
        with pytest.raises(IndexError, match='Invalid slice') as caught:
            read(part)
        assert isinstance(caught.value, TypeError)  # As in Python and bagz.


# Many records.


@pytest.mark.parametrize('kind', INTS[1:])
def test_arrays_of_any_integer_type(reader, kind):
    chosen = np.array([5, 0, 60, 5], kind)
    expected = [RECORDS[5], RECORDS[0], RECORDS[60], RECORDS[5]]
    assert reader.read_indices(chosen) == expected
    assert reader.read_indices(chosen.astype(chosen.dtype.newbyteorder())) == expected
    assert reader.read_indices(np.repeat(chosen, 2)[::2]) == expected
    assert list(reader.read_indices_iter(chosen)) == expected
    if np.iinfo(kind).min < 0:
        assert reader.read_indices(np.array([-1, -61], kind)) == [RECORDS[-1], RECORDS[0]]


@pytest.mark.parametrize(
    'chosen', [range(5), range(60, -1, -7), range(-3, 3), range(0), (4, 4), {7}, iter([1, 2]), {3: 'x'}]
)
def test_iterables_of_many_kinds(reader, chosen):
    chosen = list(chosen) if not isinstance(chosen, Sequence) else chosen
    expected = [RECORDS[index] for index in chosen]
    assert reader.read_indices(chosen) == expected
    assert list(map(bytes, reader.views(chosen))) == expected
    assert list(reader.read_indices_iter(chosen)) == expected


@pytest.mark.parametrize(
    'chosen',
    [[1.0], ['1'], [None], 'ab', 5, None, np.array([1.5]), np.array([[1]]), np.array([True]), np.array(3)],
)
def test_invalid_indices(reader, chosen):
    with pytest.raises(TypeError):
        reader.read_indices(chosen)
    with pytest.raises(TypeError):
        reader.views(chosen)
    with pytest.raises(TypeError):
        list(reader.read_indices_iter(chosen))


@pytest.mark.parametrize('empty', [[], (), np.array([]), np.array([], np.uint8), range(0), slice(5, 5)])
def test_no_indices(reader, empty):
    assert reader.read_indices(empty) == []
    assert reader.views(empty) == []
    assert list(reader.read_indices_iter(empty)) == []


@pytest.mark.parametrize('sharding', SHARDINGS)
@pytest.mark.parametrize('access', ACCESS)
def test_equal_indices_give_the_same_object(specs, access, sharding):
    with opened(specs, 'tail', 'zstd', sharding, access) as reader:
        found = reader.read_indices([10, 11, 10, 10 - 61, 12, 11])
        assert found[0] is found[2] is found[3]
        assert found[1] is found[5]
        assert found == [RECORDS[index] for index in (10, 11, 10, 10, 12, 11)]


def test_records_are_bytes(specs):
    for combination in itertools.product(['tail'], COMPRESSIONS, SHARDINGS, ACCESS):
        with opened(specs, *combination) as reader:
            found = [reader[5], reader[0], *reader.read(), *reader.read_indices([7, 3]), *reader]
            assert {type(record) for record in found} == {bytes}


# Views.


def test_views_of_a_mapped_uncompressed_bag_alias_the_file(tmp_path):
    path = write(tmp_path / 'x.bag', [b'abc', b'def' * 1000, b''])
    reader = bag.Reader(path)
    one, two = reader.view(0), reader.views([1, 0])[0]
    empty = reader.view(2)
    assert isinstance(one, memoryview)
    assert isinstance(two, memoryview)
    with open(path, 'r+b') as file:  # Bags are never changed so; here it shows that no bytes were copied.
        file.write(b'ABCDEF')
    assert bytes(one) == b'ABC'
    assert bytes(two[:4]) == b'DEFd'
    assert bytes(empty) == b''
    assert one.readonly


def test_views_outlive_their_reader(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    reader = bag.Reader(path)
    views = [reader.view(3), *reader.views([5, 6])]
    reader.close()
    del reader
    os.unlink(path)
    gc.collect()
    assert [bytes(view) for view in views] == [RECORDS[3], RECORDS[5], RECORDS[6]]


def test_a_view_costs_no_memory(tmp_path):
    import tracemalloc

    path = write(tmp_path / 'x.bag', [bytes(20 << 20)])
    with bag.Reader(path) as reader:
        reader.view(0)
        tracemalloc.start()
        try:
            view, others = reader.view(0), reader.views([0, 0])
            assert tracemalloc.get_traced_memory()[1] < 1 << 16
        finally:
            tracemalloc.stop()
        assert len(view) == len(others[1]) == 20 << 20


# Iterators.


def collected(iterator):
    """Returns the items of an iterator, and the error it ends with."""
    found = []
    while True:
        try:
            found.append(next(iterator))
        except Exception as exc:
            return found, exc


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('ahead', [None, 1, 3, 100])
@pytest.mark.parametrize('sharding', SHARDINGS)
def test_an_infinite_source(specs, access, ahead, sharding):
    with opened(specs, 'tail', 'zstd', sharding, access) as reader:
        source = itertools.cycle([3, -1, 7])
        iterator = reader.read_indices_iter(source, read_ahead=ahead)
        expected = [RECORDS[3], RECORDS[-1], RECORDS[7]]
        assert list(itertools.islice(iterator, 30)) == expected * 10


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('ahead', [None, 1, 3, 100])
@pytest.mark.parametrize('place', [0, 1, 2, 3, 7, 20])
def test_an_error_of_the_source_is_raised_after_the_records_before_it(specs, access, ahead, place):
    def source():
        yield from range(place)
        raise KeyError('from the source')

    with opened(specs, 'tail', 'zstd', 'concatenated', access) as reader:
        found, error = collected(reader.read_indices_iter(source(), read_ahead=ahead))
        assert found == RECORDS[:place]
        assert isinstance(error, KeyError)


@pytest.mark.parametrize(
    'chosen', [range(58, 64), range(-64, 0), range(2, -64, -1), range(1 << 70, 1 << 71), range(1 << 40)]
)
def test_ranges_of_indices_partly_out_of_range(reader, chosen):
    for read in (reader.read_indices, reader.views):
        with pytest.raises(IndexError, match='out of range'):
            read(chosen)
    good = list(itertools.takewhile(range(-61, 61).__contains__, chosen))
    found, error = collected(reader.read_indices_iter(chosen))
    assert found == [RECORDS[index] for index in good]
    assert isinstance(error, IndexError)


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('ahead', [None, 1, 3, 100])
@pytest.mark.parametrize('wrong', [61, -62, 1 << 80, 'x', 1.5])
def test_an_invalid_index_is_raised_after_the_records_before_it(specs, access, ahead, wrong):
    with opened(specs, 'tail', 'zstd', 'concatenated', access) as reader:
        chosen = [*range(10), wrong, *range(10)]
        iterator = reader.read_indices_iter(chosen, read_ahead=ahead)
        found, error = collected(iterator)
        assert found == RECORDS[:10]
        assert isinstance(error, IndexError if isinstance(wrong, int) else TypeError)
        assert next(iterator, None) is None


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('ahead', [None, 1, 4, 1000])
@pytest.mark.parametrize('place', [0, 1, 5, 39])
def test_a_damaged_record_is_raised_after_the_records_before_it(tmp_path, access, ahead, place):
    records = [b'%d and some text' % index for index in range(40)]
    path = write(tmp_path / 'x.bagz', records)
    data = bytearray(pathlib.Path(path).read_bytes())
    starts = np.frombuffer(bytes(data[-320:]), '<u8').tolist()
    data[(starts[place - 1] if place else 0) + 8] ^= 0xFF
    pathlib.Path(path).write_bytes(data)
    with bag.Reader(path, **ACCESS[access]) as reader:
        for iterator in (
            reader.read_indices_iter(itertools.count(), read_ahead=ahead),
            reader.read_range_iter(0, 40, read_ahead=ahead),
            iter(reader),
            iter(reader[:]),
            iter(reader[::1]),
        ):
            found, error = collected(iterator)
            assert found == records[:place]
            assert isinstance(error, CorruptError)
            assert error.record == place
            assert next(iterator, None) is None


@pytest.mark.parametrize('access', ACCESS)
def test_abandoned_iterators_leave_nothing_behind(specs, access):
    gc.collect()
    before, others = descriptors(), threads_of_bags()
    for _ in range(5):
        reader = opened(specs, 'tail', 'zstd', 'concatenated', access)
        iterators = [
            iter(reader),
            reader.read_indices_iter(itertools.cycle(range(61)), read_ahead=2),
            reader.read_range_iter(0, 61, read_ahead=2),
        ]
        for iterator in iterators:
            next(iterator)
        iterators.append(reader.read_indices_iter(itertools.count()))  # Never started.
        del iterator, iterators, reader
    deadline = time.monotonic() + 10
    # Threads and files of earlier tests may end meanwhile.
    while (descriptors() > before or set(threads_of_bags()) - set(others)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descriptors() <= before
    assert not set(threads_of_bags()) - set(others)


class NotIterable:
    def __iter__(self):
        raise NotImplementedError


def test_an_error_of_iter_is_raised_at_once(reader):
    with pytest.raises(NotImplementedError):
        reader.read_indices_iter(NotIterable())
    with pytest.raises(TypeError, match='indices: expected several integers, got 5'):
        reader.read_indices_iter(5)


@pytest.mark.parametrize('index', [1 << 64, -(1 << 64)])
def test_an_index_of_more_than_64_bits_in_an_iterator(reader, index):
    iterator = reader.read_indices_iter(iter([3, index]))
    assert next(iterator) == RECORDS[3]
    with pytest.raises(OverflowError, match='out of range') as caught:
        next(iterator)
    assert isinstance(caught.value, IndexError)


def test_indices_are_taken_at_most_two_batches_ahead(reader):
    taken = []

    def source():
        for index in itertools.cycle(range(61)):
            taken.append(index)
            yield index

    iterator = reader.read_indices_iter(source(), read_ahead=4)
    assert not taken
    for count in range(1, 40):
        next(iterator)
        assert count <= len(taken) <= count + 8


def test_a_budget_of_bytes_bounds_what_is_read_ahead(tmp_path):
    path = write(tmp_path / 'x.bag', [bytes(1000)] * 500)
    taken = []
    with bag.Reader(path, read_ahead_bytes=10_000) as reader:
        iterator = reader.read_indices_iter(taken.append(index) or index for index in range(500))
        next(iterator)
        assert len(taken) <= 20


def test_large_records_come_one_at_a_time(tmp_path):
    records = [bytes([index]) * 700_000 for index in range(4)]
    for access in ACCESS.values():
        with bag.Reader(write(tmp_path / 'x.bag', records, mode='overwrite'), **access) as reader:
            assert list(reader) == records
            assert list(reader[::-1]) == records[::-1]
            assert list(reader.read_range_iter(1, 2)) == records[1:3]


@pytest.mark.slow(all_but='bagz')
@pytest.mark.parametrize('extension', ['bag', 'bagz'])
def test_large_results(tmp_path, extension):
    rng = random.Random(1)
    records = [rng.randbytes(1_000_000 + 7 * index) for index in range(90)]
    path = write(tmp_path / f'x.{extension}', records)
    with bag.Reader(path) as reader:
        for seed in range(3):
            chosen = random.Random(seed).sample(range(90), 80)
            assert reader.read_indices(chosen) == [records[index] for index in chosen]
        assert reader.read() == records


# Properties.


def test_bytes_per_record(tmp_path):
    assert bag.Reader(write(tmp_path / 'x.bag', [b'abc', b'', b'abcdef'])).approximate_bytes_per_record() == 3
    assert bag.Reader(write(tmp_path / 'empty.bag', [])).approximate_bytes_per_record() == 0


def test_limits_can_be_warmed(specs):
    for combination in itertools.product(PLACEMENTS, ['zstd'], SHARDINGS, ACCESS, ['on_disk', 'in_memory']):
        with opened(specs, *combination) as reader:
            reader.warm_limits()
            assert reader.read() == RECORDS


def test_limits_in_memory_do_not_need_their_file(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS, limits_placement='separate')
    reader = bag.Reader(path, limits_placement='separate', limits_storage='in_memory', mapped=False)
    (tmp_path / 'limits.x.bag').write_bytes(b'')
    assert reader.read() == RECORDS


def test_repr(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    reader = bag.Reader(path)
    assert repr(reader) == f'bags.bag.Reader({path!r}) of 61 records'
    assert repr(reader) == repr(bag.Reader(path)) == repr(pickle.loads(pickle.dumps(reader)))
    different = {repr(part) for part in (reader, reader[1:], reader[::2], reader[::-1], reader[1:][::-1])}
    assert len(different) == 5
    assert 'interleaved' in repr(bag.Reader(path, sharding_layout='interleaved'))


def test_the_file_spec_and_the_paths(tmp_path):
    paths = [write(tmp_path / f'x-0000{shard}-of-00002.bag', RECORDS) for shard in range(2)]
    reader = bag.Reader(tmp_path / 'x@*.bag')
    assert reader.file_spec == os.fspath(tmp_path / 'x@*.bag')
    assert reader.paths == paths
    assert reader[5:].file_spec == reader.file_spec
    for spec in (
        tmp_path / 'x@2.bag',
        ','.join(paths),
        paths,
        tuple(map(pathlib.Path, paths)),
        tmp_path / '*.bag',
    ):
        assert bag.Reader(spec).read() == RECORDS * 2
    assert bag.Reader(paths[0]).paths == paths[:1]


def test_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write('x.bag', RECORDS)
    write('y@z.bag', RECORDS[:2])
    assert bag.Reader('x.bag').read() == RECORDS
    assert bag.Reader('*.bag').read() == RECORDS + RECORDS[:2]
    assert bag.Reader('y@z.bag').read() == RECORDS[:2]


def test_no_such_file(tmp_path):
    for spec in ('x.bag', 'x@2.bag', 'x@*.bag', '*.bag', ['x.bag']):
        spec = [tmp_path / part for part in spec] if isinstance(spec, list) else tmp_path / spec
        with pytest.raises(FileNotFoundError):
            bag.Reader(spec)
    path = write(tmp_path / 'x.bag', RECORDS)
    with pytest.raises(FileNotFoundError, match='limits'):
        bag.Reader(path, limits_placement='separate')
    with pytest.raises(FileNotFoundError, match='y'):
        bag.Reader(tmp_path / 'y.bag', limits_placement='separate')


def test_no_path_at_all():
    with pytest.raises(ValueError, match='at least one path'):
        bag.Reader([])


def test_granular_limits(tmp_path):
    (tmp_path / 'x.bag').write_bytes(b''.join(RECORDS))
    (tmp_path / 'x.idx').write_bytes(np.cumsum(list(map(len, RECORDS)), dtype='<u8').tobytes())
    check_all_ways(bag.Reader(tmp_path / 'x.bag', limits_placement='idx'), RECORDS)


@pytest.mark.parametrize('placement', PLACEMENTS)
@pytest.mark.parametrize('access', ACCESS)
def test_empty_bags_and_bags_of_empty_records(tmp_path, placement, access):
    for count in (0, 1, 5):
        path = write(tmp_path / 'x.bag', [b''] * count, limits_placement=placement, mode='overwrite')
        with bag.Reader(path, limits_placement=placement, **ACCESS[access]) as reader:
            check_all_ways(reader, [b''] * count)
            for part in (reader[:], reader[::-1], reader[3:3]):
                assert part.read() == [b''] * len(part)


@pytest.mark.slow(all_but='700-*')
@pytest.mark.parametrize('length', [1, 8, 100, 8192, 9000])
@pytest.mark.parametrize('odd', [None, 0, 700, 1499])
def test_records_of_one_length_except_perhaps_one(tmp_path, length, odd):
    count = 1500 if length < 5000 else 60
    records = [random.Random(index).randbytes(length) for index in range(count)]
    if odd is not None:
        # The sum is unchanged, so that only the limits in between differ.
        odd %= count - 1
        records[odd], records[odd + 1] = records[odd][:-1], records[odd + 1] + b'x'
    for access in ACCESS.values():
        with bag.Reader(write(tmp_path / 'x.bag', records, mode='overwrite'), **access) as reader:
            for index in [*range(count)] + [odd or 0, (odd or 0) + 1] * 2:
                assert reader[index] == records[index]
                assert bytes(reader.view(index)) == records[index]
            for _ in range(2):
                assert reader.read_indices(range(0, count, 3)) == records[::3]
                assert list(map(bytes, reader.views(range(count)))) == records
            assert reader.read() == records
            assert list(reader) == records


# Closing, pickling, other processes and threads.


USES = {
    'one': lambda reader: reader[0],
    'numpy': lambda reader: reader[np.int64(0)],
    'slice': lambda reader: reader[1:],
    'view': lambda reader: reader.view(0),
    'views': lambda reader: reader.views([0]),
    'read': lambda reader: reader.read(),
    'read_indices': lambda reader: reader.read_indices([1]),
    'read_range': lambda reader: reader.read_range(0, 1),
    'iter': lambda reader: next(iter(reader)),
    'read_indices_iter': lambda reader: next(reader.read_indices_iter([0])),
    'read_range_iter': lambda reader: next(reader.read_range_iter(0, 1)),
    'reversed': reversed,
    'index': lambda reader: reader.index(b'x'),
    'count': lambda reader: reader.count(b'x'),
    'in': lambda reader: b'x' in reader,
    'warm_limits': lambda reader: reader.warm_limits(),
}


def test_a_closed_reader_raises_and_its_slices_stay_open(specs):
    for sharding in SHARDINGS:
        reader = opened(specs, 'tail', 'plain', sharding)
        part = reader[5:]
        assert not reader.closed
        reader.close()
        reader.close()
        assert reader.closed
        for use in USES.values():
            with pytest.raises(ValueError, match='is closed'):
                use(reader)
        assert len(reader) == 61
        assert 'Reader' in repr(reader)
        check_all_ways(part, RECORDS[5:])
        part.close()


@pytest.mark.parametrize('end', ['close', 'drop', 'drop a slice', 'drop many shards'])
@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('compression', ['plain', 'zstd'])
def test_files_close_at_once_with_their_last_user(specs, end, access, compression):
    gc.collect()
    gc.disable()
    try:
        before = descriptors()
        reader = opened(specs, 'tail', compression, 'interleaved' if 'many' in end else 'single', access)
        assert reader[3] == RECORDS[3]
        if end == 'drop a slice':
            reader = reader[2:50:3]
            assert reader[1] == RECORDS[5]
        if end == 'close':
            reader.close()
        else:
            del reader
        assert descriptors() == before
    finally:
        gc.enable()


def test_many_shards_are_read_with_few_descriptors(tmp_path):
    code = """
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        from bags import bag
        os.chdir(sys.argv[1])
        for shard in range(300):
            with bag.Writer(f'x-{shard:05}-of-00300.bag') as writer:
                writer.write(b'%d' % shard)
                writer.write(b'%d again' % shard)
        expected = [text % shard for shard in range(300) for text in (b'%d', b'%d again')]
        for options in ({}, {'mapped': False}, {'cache_policy': 'direct_io'}):
            reader = bag.Reader('x@300.bag', **options)
            assert [reader[index] for index in range(600)] == expected
            assert reader.read() == list(reader) == expected
            assert len(os.listdir('/proc/self/fd')) < 100
            del reader
        print('done')
    """
    child = run_child(code, tmp_path)
    assert child.stdout == 'done\n', child.stderr


def test_pickled_readers_read_the_same(specs):
    for combination in itertools.product(['separate'], ['dictionary'], SHARDINGS, ACCESS):
        reader = opened(specs, *combination)[40:3:-2]
        again = pickle.loads(pickle.dumps(reader))
        assert again.read() == reader.read() == RECORDS[40:3:-2]
        assert again.options == reader.options
        assert repr(again) == repr(reader)


def read_everything(reader):
    return reader.read(), [reader[index] for index in range(len(reader))], list(reader)


@pytest.mark.parametrize('method', ['spawn', 'fork', 'forkserver'])
@pytest.mark.filterwarnings('ignore:.*multi-threaded.*fork:DeprecationWarning')
def test_other_processes(specs, method):
    import multiprocessing

    readers = [opened(specs, 'tail', 'zstd', 'interleaved', access) for access in ('mapped', 'direct_io')]
    readers.append(readers[0][::-3])
    for reader in readers:
        list(itertools.islice(reader, 2))  # Starts its thread, if it has one.
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        for reader, model in zip(readers, [RECORDS, RECORDS, RECORDS[::-3]], strict=True):
            assert pool.apply(read_everything, (reader,)) == (model, model, model)


@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('compression', ['plain', 'zstd'])
def test_a_fork_reads_at_the_same_time_as_its_parent(specs, access, compression):
    reader = opened(specs, 'tail', compression, 'concatenated', access)
    assert reader[3] == RECORDS[3]

    def work():
        for index in random.Random(os.getpid()).choices(range(61), k=300):
            if reader[index] != RECORDS[index]:
                return False
        return reader.read() == RECORDS == list(reader)

    with forked(work):
        assert work()


def test_a_fork_while_a_thread_waits_for_limits(tmp_path, monkeypatch):
    from bags.storage.pread_file import PreadFile

    path = write(tmp_path / 'x.bag', RECORDS)
    reader = bag.Reader(path, mapped=False)
    began, go = threading.Event(), threading.Event()
    read_many = PreadFile.read_many

    def slow(file, starts, stops):
        if threading.current_thread() is thread:
            began.set()
            go.wait(20)
        return read_many(file, starts, stops)

    monkeypatch.setattr(PreadFile, 'read_many', slow)
    thread = threading.Thread(target=lambda: reader[5])
    thread.start()
    assert began.wait(20)

    def work():
        signal.alarm(10)  # Ends this process in case of a deadlock.
        return reader[5] == RECORDS[5]

    try:
        with forked(work):
            pass
    finally:
        go.set()
        thread.join()


@pytest.mark.slow(all_but='interleaved-*')
@pytest.mark.freethreaded
@pytest.mark.parametrize('access', ACCESS)
@pytest.mark.parametrize('compression', COMPRESSIONS)
@pytest.mark.parametrize('sharding', SHARDINGS)
def test_eight_threads_read_one_reader_at_random(specs, access, compression, sharding):
    reader = opened(specs, 'tail', compression, sharding, access)
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(25):
                index = rng.randrange(61)
                chosen = [rng.randrange(61) for _ in range(5)]
                if (
                    reader[index] != RECORDS[index]
                    or bytes(reader.view(index)) != RECORDS[index]
                    or reader.read_indices(chosen) != [RECORDS[index] for index in chosen]
                ):
                    wrong.append(index)
            if list(reader[seed::8]) != RECORDS[seed::8]:
                wrong.append('slice')
        except Exception as exc:
            wrong.append(exc)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.freethreaded
def test_threads_read_records_of_one_length_while_these_are_found_to_be_so(tmp_path):
    records = [b'%08d' % index for index in range(20_000)]
    reader = bag.Reader(write(tmp_path / 'x.bag', records))
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(3000):
            index = rng.randrange(20_000)
            if reader[index] != records[index] or reader[-index - 1] != records[-index - 1]:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_shard_that_became_shorter_is_refused(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS)
    data = pickle.dumps(bag.Reader(path))
    write(path, RECORDS[:5], mode='overwrite')
    with pytest.raises(CorruptError, match='had 61 records when first opened, now 5'):
        pickle.loads(data)


def test_a_shard_that_grew_stays_as_it_was(tmp_path):
    path = write(tmp_path / 'x.bag', RECORDS[:50])
    reader = bag.Reader(path)
    data = pickle.dumps(reader[3:])
    write(path, RECORDS[50:], mode='append')
    assert reader.read() == RECORDS[:50]
    again = pickle.loads(data)
    assert again.read() == RECORDS[3:50]
    assert again[-1] == RECORDS[49]
    whole = pickle.loads(pickle.dumps(reader))
    check_all_ways(whole, RECORDS[:50])
    assert whole[-1] == bytes(whole.view(-1)) == RECORDS[49]
    assert len(bag.Reader(path)) == 61
